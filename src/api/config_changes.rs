//! What AlterConfigs and IncrementalAlterConfigs share: one shape of what is asked, and what the broker that is asked checks
//! before the controller sees the rest (`ConfigAdminManager`).
//!
//! A broker takes the changes of its own loggers itself and checks changes of nodes, for which it may answer for itself and
//! for the cluster's default only. A controller takes everything as it comes.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{ApiError, Broker, ListenerScope, RequestContext};
use crate::config::dynamic_config::{self, ListChange};
use crate::controller::configs::{AlterOperation, ConfigAlteration, ResourceAlteration, ResourceChanges};
use crate::metadata::{ConfigResource, ConfigResourceType};
use crate::protocol::{ErrorCode, StrBytes};
use crate::telemetry;

/// A key of a request.
#[derive(Debug, Clone)]
pub(super) struct AskedConfig {
    pub name: StrBytes,
    /// `None`: the legacy request, which only sets.
    pub operation: Option<i8>,
    pub value: Option<StrBytes>,
}

impl AskedConfig {
    /// `None`: an operation that nobody knows.
    fn operation(&self) -> Option<AlterOperation> {
        match self.operation {
            Some(id) => AlterOperation::from_id(id),
            None => Some(AlterOperation::Set),
        }
    }
}

/// A resource of a request.
#[derive(Debug, Clone)]
pub(super) struct AskedResource {
    pub resource_type: i8,
    pub resource_name: StrBytes,
    pub configs: Vec<AskedConfig>,
}

impl AskedResource {
    fn kind(&self) -> ConfigResourceType {
        ConfigResourceType::from_id(self.resource_type)
    }

    fn resource(&self) -> ConfigResource {
        ConfigResource::new(self.kind(), &self.resource_name)
    }
}

/// A whole request.
#[derive(Debug)]
pub(super) struct AskedChanges {
    pub resources: Vec<AskedResource>,
    pub validate_only: bool,
    pub is_incremental: bool,
}

/// What becomes of one resource of the request, in the order of the answer.
#[derive(Debug)]
pub(super) struct AnsweredResource {
    pub resource_type: i8,
    pub resource_name: StrBytes,
    pub result: Result<(), ApiError>,
}

impl AnsweredResource {
    pub(super) fn new(asked: &AskedResource, result: Result<(), ApiError>) -> Self {
        Self {
            resource_type: asked.resource_type,
            resource_name: asked.resource_name.clone(),
            result,
        }
    }
}

fn invalid_request(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message.into())
}

fn invalid_config(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidConfig, message.into())
}

/// Makes the changes, or says of each resource why not.
pub(super) async fn alter(
    context: &RequestContext,
    asked: AskedChanges,
) -> Result<Vec<AnsweredResource>, ApiError> {
    let processed = match context.scope() {
        ListenerScope::Broker => on_broker(&context.broker, &asked),
        ListenerScope::Controller => on_controller(&context.broker, &asked),
    };
    let is_left = |result: &Option<Result<(), ApiError>>| result.is_none();
    let left: Vec<&AskedResource> = asked
        .resources
        .iter()
        .zip(&processed)
        .filter(|(_, result)| is_left(result))
        .map(|(resource, _)| resource)
        .collect();
    let mut stored = store(context, &asked, &left).await?.into_iter();
    let answers = asked.resources.iter().zip(processed).map(|(resource, result)| {
        let result = result.or_else(|| stored.next());
        AnsweredResource::new(
            resource,
            result.unwrap_or(Err(ErrorCode::UnknownServerError.into())),
        )
    });
    Ok(answers.collect())
}

/// The controller's part.
async fn store(
    context: &RequestContext,
    asked: &AskedChanges,
    left: &[&AskedResource],
) -> Result<Vec<Result<(), ApiError>>, ApiError> {
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let alterations: Option<Vec<ResourceAlteration>> = left
        .iter()
        .map(|resource| alteration(resource, asked.is_incremental))
        .collect();
    let Some(alterations) = alterations else {
        // Kafka's controller fails over it, with all that came in the request.
        let unknown = || Err(ErrorCode::UnknownServerError.into());
        return Ok(left.iter().map(|_| unknown()).collect());
    };
    // Kafka looks at no timeout, and the request has none.
    let asker = context.for_controller(0).without_deadline();
    let controller = &context.broker.controller;
    let altered = controller
        .alter_configs(&asker, alterations, asked.validate_only)
        .await?;
    context.broker.wait_until_published().await;
    Ok(altered)
}

fn alteration(asked: &AskedResource, is_incremental: bool) -> Option<ResourceAlteration> {
    let text = |value: &Option<StrBytes>| value.as_ref().map(ToString::to_string);
    let changes = match is_incremental {
        true => {
            let changes = asked.configs.iter().map(|config| {
                Some(ConfigAlteration {
                    name: config.name.to_string(),
                    operation: config.operation()?,
                    value: text(&config.value),
                })
            });
            ResourceChanges::Incremental(changes.collect::<Option<_>>()?)
        }
        false => {
            let settings = asked.configs.iter();
            ResourceChanges::Complete(
                settings
                    .map(|config| (config.name.to_string(), text(&config.value)))
                    .collect(),
            )
        }
    };
    Some(ResourceAlteration {
        resource: asked.resource(),
        changes,
    })
}

type Processed = Vec<Option<Result<(), ApiError>>>;

/// `None`: for the controller.
fn on_controller(broker: &Broker, asked: &AskedChanges) -> Processed {
    let mut seen = HashSet::new();
    let unsupported = |resource: &AskedResource| {
        let message = format!("Unknown resource type {}.", resource.resource_type);
        ApiError::new(ErrorCode::UnsupportedVersion, message)
    };
    let process = |resource: &AskedResource| match resource.kind() {
        ConfigResourceType::BrokerLogger if asked.is_incremental => {
            Some(alter_loggers(broker, resource, asked.validate_only))
        }
        ConfigResourceType::Unknown => Some(Err(unsupported(resource))),
        _ if !seen.insert((resource.resource_type, resource.resource_name.clone())) => {
            Some(Err(invalid_request("Duplicate resource.")))
        }
        _ => None,
    };
    asked.resources.iter().map(process).collect()
}

fn on_broker(broker: &Broker, asked: &AskedChanges) -> Processed {
    let mut times: HashMap<(i8, &StrBytes), usize> = HashMap::new();
    for resource in &asked.resources {
        *times
            .entry((resource.resource_type, &resource.resource_name))
            .or_default() += 1;
    }
    let process = |resource: &AskedResource| {
        if times[&(resource.resource_type, &resource.resource_name)] > 1 {
            return Some(Err(invalid_request("Each resource must appear at most once.")));
        }
        match preprocess(broker, asked, resource) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    };
    asked.resources.iter().map(process).collect()
}

/// Whether the resource is done with.
fn preprocess(broker: &Broker, asked: &AskedChanges, resource: &AskedResource) -> Result<bool, ApiError> {
    check_configs(resource)?;
    match resource.kind() {
        ConfigResourceType::BrokerLogger if asked.is_incremental => {
            alter_loggers(broker, resource, asked.validate_only)?;
            Ok(true)
        }
        ConfigResourceType::Broker => {
            if !resource.resource_name.is_empty() {
                check_own_id(broker, &resource.resource_name)?;
            }
            check_node_change(broker, asked.is_incremental, resource)?;
            Ok(false)
        }
        ConfigResourceType::Topic | ConfigResourceType::ClientMetrics | ConfigResourceType::Group => {
            Ok(false)
        }
        ConfigResourceType::BrokerLogger | ConfigResourceType::Unknown => Err(invalid_request(format!(
            "Unknown resource type {}",
            resource.resource_type
        ))),
    }
}

fn check_configs(resource: &AskedResource) -> Result<(), ApiError> {
    let mut names = HashSet::new();
    if !resource.configs.iter().all(|config| names.insert(&config.name)) {
        return Err(invalid_request("Error due to duplicate config keys"));
    }
    let needs_value = |config: &&AskedConfig| config.operation() != Some(AlterOperation::Delete);
    let nulls: Vec<&str> = resource
        .configs
        .iter()
        .filter(needs_value)
        .filter(|config| config.value.is_none())
        .map(|config| &*config.name)
        .collect();
    match nulls.is_empty() {
        true => Ok(()),
        false => Err(invalid_request(format!(
            "Null value not supported for : {}",
            nulls.join(", ")
        ))),
    }
}

fn check_own_id(broker: &Broker, name: &str) -> Result<(), ApiError> {
    let id: i32 = name
        .parse()
        .map_err(|_| invalid_request(format!("Node id must be an integer, but it is: {name}")))?;
    match id == broker.node_id {
        true => Ok(()),
        false => Err(invalid_request(format!(
            "Unexpected broker id, expected {}, but received {name}",
            broker.node_id
        ))),
    }
}

/// Whether this broker could take the node's configs as they would be.
fn check_node_change(broker: &Broker, is_incremental: bool, asked: &AskedResource) -> Result<(), ApiError> {
    let for_one_broker = !asked.resource_name.is_empty();
    let mut proposed = match is_incremental {
        true => {
            let image = broker.metadata.image();
            let stored = image.configs.get(&asked.resource());
            stored.map_or_else(BTreeMap::new, |stored| {
                dynamic_config::usable(stored, for_one_broker)
            })
        }
        false => BTreeMap::new(),
    };
    for config in &asked.configs {
        let name = config.name.to_string();
        let value = config.value.as_deref().unwrap_or_default();
        let Some(operation) = config.operation() else {
            let id = config.operation.unwrap_or_default();
            return Err(invalid_request(format!("Unknown operations type {id}")));
        };
        let change = match operation {
            AlterOperation::Set => {
                proposed.insert(name, value.to_owned());
                continue;
            }
            AlterOperation::Delete => {
                proposed.remove(&name);
                continue;
            }
            AlterOperation::Append => ListChange::Append,
            AlterOperation::Subtract => ListChange::Subtract,
        };
        let changed = dynamic_config::changed_list(proposed.get(&name), &name, change, value);
        proposed.insert(name, changed.map_err(|error| invalid_config(error.to_string()))?);
    }
    dynamic_config::validate_change(&broker.current_config.load(), &proposed, for_one_broker)
        .map_err(|error| invalid_request(dynamic_config::message_of(&error)))
}

/// The levels of this node's log lines; not stored anywhere.
fn alter_loggers(broker: &Broker, asked: &AskedResource, validate_only: bool) -> Result<(), ApiError> {
    let name = &*asked.resource_name;
    let id: i32 = name
        .parse()
        .map_err(|_| invalid_request(format!("Node id must be an integer, but it is: {name}")))?;
    if id != broker.node_id {
        return Err(invalid_request(format!(
            "Unexpected node id. Expected {}, but received {id}",
            broker.node_id
        )));
    }
    let mut changes = Vec::with_capacity(asked.configs.len());
    for config in &asked.configs {
        changes.push((&*config.name, logger_change(config)?));
    }
    if !validate_only {
        telemetry::change(&changes);
    }
    Ok(())
}

/// The level that is asked for; `None`: the root's.
fn logger_change(asked: &AskedConfig) -> Result<Option<&str>, ApiError> {
    let name = &*asked.name;
    let exists = || match telemetry::is_logger(name) {
        true => Ok(()),
        false => Err(invalid_config(format!("Logger {name} does not exist!"))),
    };
    match asked.operation() {
        Some(AlterOperation::Set) => {
            exists()?;
            let level = asked.value.as_deref().unwrap_or_default();
            match telemetry::LEVELS.contains(&level) {
                true => Ok(Some(level)),
                false => Err(invalid_config(format!(
                    "Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are \
                     {}",
                    telemetry::LEVELS.join(", ")
                ))),
            }
        }
        Some(AlterOperation::Delete) => {
            exists()?;
            match name == telemetry::ROOT {
                true => Err(invalid_request(
                    "Removing the log level of the root logger is not allowed",
                )),
                false => Ok(None),
            }
        }
        Some(operation) => Err(invalid_request(format!(
            "{} operation is not allowed for the BROKER_LOGGER resource",
            operation.name()
        ))),
        None => Err(invalid_request(format!(
            "Unknown operation type {} is not allowed for the BROKER_LOGGER resource",
            asked.operation.unwrap_or_default()
        ))),
    }
}
