//! AlterConfigs and IncrementalAlterConfigs: what is stored of topics, nodes, groups and subscriptions to clients' metrics
//! (`ConfigurationControlManager`).
//!
//! Pure. Each resource is changed or refused by itself; the changes of one request are one batch. A node's configs were
//! checked by the broker that was asked; the rest is checked here.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::shard::{Outcome, Shard, check_batch_size};
use super::topic_name;
use crate::config::client_metrics_config::{ClientMetricsError, validate_client_metrics_config};
use crate::config::definition::ConfigKey;
use crate::config::group_config::validate_group_config;
use crate::config::topic_config::validate_topic_config;
use crate::config::{ConfigDefinition, ConfigError, ConfigType};
use crate::metadata::{ConfigResource, ConfigResourceType};
use crate::protocol::records::metadata::{ClearElrRecord, ConfigRecord, MetadataRecord};
use crate::protocol::{ApiError, ErrorCode, StrBytes};
use crate::raft::VersionedRecord;

const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";
const CORDONED_LOG_DIRS: &str = "cordoned.log.dirs";
/// Java's `Short.MAX_VALUE`, in its characters.
const VALUE_LENGTH_MAX: usize = 32_767;

/// `AlterConfigOp.OpType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlterOperation {
    Set,
    Delete,
    Append,
    Subtract,
}

impl AlterOperation {
    pub fn from_id(id: i8) -> Option<Self> {
        Some(match id {
            0 => Self::Set,
            1 => Self::Delete,
            2 => Self::Append,
            3 => Self::Subtract,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Delete => "DELETE",
            Self::Append => "APPEND",
            Self::Subtract => "SUBTRACT",
        }
    }
}

/// What is asked of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigAlteration {
    pub name: String,
    pub operation: AlterOperation,
    pub value: Option<String>,
}

/// What is asked of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceAlteration {
    pub resource: ConfigResource,
    pub changes: ResourceChanges,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceChanges {
    /// Only what is named changes.
    Incremental(Vec<ConfigAlteration>),
    /// All that the resource has from now on: what is not named goes.
    Complete(BTreeMap<String, Option<String>>),
}

/// A change, and where it comes from.
struct Change {
    name: String,
    value: Option<String>,
}

impl Shard {
    /// Answers are in the order asked.
    pub fn alter_configs(
        &self,
        alterations: &[ResourceAlteration],
        validate_only: bool,
    ) -> Result<Outcome<Vec<Result<(), ApiError>>>, ApiError> {
        let mut records: Vec<VersionedRecord> = Vec::new();
        let mut answers = Vec::with_capacity(alterations.len());
        for alteration in alterations {
            let altered = self.alter_resource(alteration);
            answers.push(altered.map(|changes| {
                let record = |change| (config_record(&alteration.resource, change).into(), 0);
                records.extend(changes.into_iter().map(record));
            }));
        }
        records.extend(self.clear_elr(&records));
        check_batch_size(&records)?;
        let outcome = Outcome::atomic(records, answers);
        Ok(match validate_only {
            true => outcome.without_records(),
            false => outcome,
        })
    }

    fn settings_of(&self, resource: &ConfigResource) -> BTreeMap<String, String> {
        let settings = self.image().configs.get(resource);
        settings.map(|settings| (**settings).clone()).unwrap_or_default()
    }

    fn alter_resource(&self, alteration: &ResourceAlteration) -> Result<Vec<Change>, ApiError> {
        let resource = &alteration.resource;
        let existing = self.settings_of(resource);
        // A node's configs are written again although they are the same: its broker may reload files that they name.
        let is_written = |change: &Change| {
            existing.get(&change.name) != change.value.as_ref()
                || resource.resource_type == ConfigResourceType::Broker
        };
        let mut changes = Vec::new();
        match &alteration.changes {
            ResourceChanges::Incremental(asked) => {
                for asked in asked {
                    changes.push(Change {
                        name: asked.name.clone(),
                        value: altered_value(resource.resource_type, existing.get(&asked.name), asked)?,
                    });
                }
                changes.retain(is_written);
            }
            ResourceChanges::Complete(asked) => {
                for (name, value) in asked {
                    let (name, value) = (name.clone(), value.clone());
                    changes.push(Change { name, value });
                }
                changes.retain(is_written);
                for name in existing.keys().filter(|name| !asked.contains_key(*name)) {
                    let (name, value) = (name.clone(), None);
                    changes.push(Change { name, value });
                }
            }
        }
        self.check_changes(resource, &existing, &changes)?;
        Ok(changes)
    }

    fn check_changes(
        &self,
        resource: &ConfigResource,
        existing: &BTreeMap<String, String>,
        changes: &[Change],
    ) -> Result<(), ApiError> {
        let mut all = existing.clone();
        for change in changes {
            self.check_node_key(resource, change)?;
            match &change.value {
                None => {
                    all.remove(&change.name);
                }
                Some(value) if value.encode_utf16().count() > VALUE_LENGTH_MAX => {
                    return Err(invalid_config(
                        "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
                    ));
                }
                Some(value) => {
                    all.insert(change.name.clone(), value.clone());
                }
            }
        }
        self.check_resource(resource, existing, &all)
    }

    /// Keys of a node that the cluster's features bind.
    fn check_node_key(&self, resource: &ConfigResource, change: &Change) -> Result<(), ApiError> {
        if resource.resource_type != ConfigResourceType::Broker {
            return Ok(());
        }
        if change.name == MIN_INSYNC_REPLICAS && self.image().features.is_elr_enabled() {
            if !resource.name.is_empty() {
                return Err(invalid_config(
                    "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
                ));
            }
            if change.value.is_none() {
                return Err(invalid_config(
                    "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
                ));
            }
        }
        if change.name == CORDONED_LOG_DIRS && !self.metadata_version().is_cordoned_log_dirs_supported() {
            return Err(invalid_config(
                "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0",
            ));
        }
        Ok(())
    }

    fn check_resource(
        &self,
        resource: &ConfigResource,
        existing: &BTreeMap<String, String>,
        all: &BTreeMap<String, String>,
    ) -> Result<(), ApiError> {
        let name = &*resource.name;
        let config = self.effective_config();
        let invalid = |error: ConfigError| invalid_config(error.to_string());
        match resource.resource_type {
            ConfigResourceType::Topic => {
                if name.is_empty() {
                    return Err(invalid_request("Default topic resources are not allowed."));
                }
                topic_name::validate(name)
                    .map_err(|message| ApiError::new(ErrorCode::InvalidTopicException, message))?;
                validate_topic_config(config, existing, all).map_err(invalid)?;
                if self.image().topics.by_name(name).is_none() {
                    return Err(ApiError::new(
                        ErrorCode::UnknownTopicOrPartition,
                        format!("The topic '{name}' does not exist."),
                    ));
                }
                Ok(())
            }
            ConfigResourceType::Broker => self.check_node(name),
            ConfigResourceType::ClientMetrics => {
                validate_client_metrics_config(name, all).map_err(|error| match error {
                    ClientMetricsError::InvalidRequest(message) => invalid_request(message),
                    ClientMetricsError::InvalidConfig(error) => invalid(error),
                })
            }
            ConfigResourceType::Group if name.is_empty() => {
                Err(invalid_request("Default group resources are not allowed."))
            }
            ConfigResourceType::Group => validate_group_config(config, all).map_err(invalid),
            ConfigResourceType::BrokerLogger => Err(invalid_request("Unknown resource type BROKER_LOGGER")),
            ConfigResourceType::Unknown => Err(invalid_request("Unknown resource type UNKNOWN")),
        }
    }

    fn check_node(&self, name: &str) -> Result<(), ApiError> {
        if name.is_empty() {
            return Ok(());
        }
        let id: i32 = name
            .parse()
            .map_err(|_| invalid_request("Unable to parse broker name as a base 10 number."))?;
        if id < 0 {
            return Err(invalid_request("Invalid negative broker ID."));
        }
        let cluster = &self.image().cluster;
        let mut voters = self.static_config().controller_quorum_voters.iter();
        let is_known = cluster.brokers.contains_key(&id)
            || cluster.controllers.contains_key(&id)
            || voters.any(|voter| voter.id == id);
        match is_known {
            true => Ok(()),
            false => Err(ApiError::new(
                ErrorCode::BrokerIdNotRegistered,
                format!("No node with id {id} found."),
            )),
        }
    }

    /// Who is eligible to lead depends on the minimum: it is counted anew (KIP-966).
    fn clear_elr(&self, records: &[VersionedRecord]) -> Vec<VersionedRecord> {
        if !self.image().features.is_elr_enabled() {
            return Vec::new();
        }
        let clear = |record: &VersionedRecord| match &record.0 {
            MetadataRecord::Config(record) if *record.name == *MIN_INSYNC_REPLICAS => {
                let is_topic = record.resource_type == ConfigResourceType::Topic.id();
                let topic_name = match is_topic {
                    true => record.resource_name.clone(),
                    false => StrBytes::new(),
                };
                let clear = ClearElrRecord {
                    topic_name,
                    ..ClearElrRecord::default()
                };
                Some((clear.into(), 0))
            }
            _ => None,
        };
        records.iter().filter_map(clear).collect()
    }
}

fn invalid_config(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidConfig, message.into())
}

fn invalid_request(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message.into())
}

fn config_record(resource: &ConfigResource, change: Change) -> ConfigRecord {
    ConfigRecord {
        resource_type: resource.resource_type.id(),
        resource_name: StrBytes::from_string(resource.name.to_string()),
        name: StrBytes::from_string(change.name),
        value: change.value.map(StrBytes::from_string),
        ..ConfigRecord::default()
    }
}

/// Kafka knows lists of topics and of nodes only.
fn list_key(resource_type: ConfigResourceType, name: &str) -> Option<&'static ConfigKey> {
    let definition = match resource_type {
        ConfigResourceType::Topic => ConfigDefinition::topic(),
        ConfigResourceType::Broker => ConfigDefinition::broker(),
        ConfigResourceType::BrokerLogger
        | ConfigResourceType::ClientMetrics
        | ConfigResourceType::Group
        | ConfigResourceType::Unknown => return None,
    };
    let key = definition.get(name)?;
    (key.config_type == ConfigType::List).then_some(key)
}

/// The key's value after the operation.
fn altered_value(
    resource_type: ConfigResourceType,
    current: Option<&String>,
    asked: &ConfigAlteration,
) -> Result<Option<String>, ApiError> {
    let is_append = match asked.operation {
        AlterOperation::Set => return Ok(asked.value.clone()),
        AlterOperation::Delete => return Ok(None),
        AlterOperation::Append => true,
        AlterOperation::Subtract => false,
    };
    let Some(key) = list_key(resource_type, &asked.name) else {
        return Err(invalid_config(format!(
            "Can't {} to key {} because its type is not LIST.",
            asked.operation.name(),
            asked.name
        )));
    };
    let current = current.map(String::as_str).or(key.default).unwrap_or_default();
    let mut entries: Vec<&str> = current.split(',').filter(|entry| !entry.is_empty()).collect();
    let asked = java_split(asked.value.as_deref().unwrap_or_default());
    if is_append {
        let mut known: HashSet<&str> = entries.iter().copied().collect();
        entries.extend(asked.into_iter().filter(|entry| known.insert(*entry)));
    } else {
        // Each takes one away, the first.
        let mut doomed: HashMap<&str, usize> = HashMap::new();
        for entry in asked {
            *doomed.entry(entry).or_default() += 1;
        }
        entries.retain(|entry| match doomed.get_mut(entry) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        });
    }
    Ok(Some(entries.join(",")))
}

/// Java's `split(",")`: empty entries at the end are dropped, but an empty text is one empty entry.
fn java_split(text: &str) -> Vec<&str> {
    let mut entries: Vec<&str> = text.split(',').collect();
    while entries.len() > 1 && entries.last().is_some_and(|entry| entry.is_empty()) {
        entries.pop();
    }
    entries
}

#[cfg(test)]
#[path = "configs_test.rs"]
mod configs_test;
