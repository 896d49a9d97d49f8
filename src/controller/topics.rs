//! CreateTopics, DeleteTopics, CreatePartitions.
//!
//! Pure. Rules, their order and their messages are those of Kafka's `ReplicationControlManager` and `ControllerApis`;
//! authorization came before.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::context::ControllerContext;
use super::placement::{self, ControllerRandom, UsableBroker};
use super::shard::{Inputs, Outcome, Shard, check_batch_size};
use super::topic_name;
use crate::config::describe::{self, DescribedConfig};
use crate::config::{KafkaConfig, topic_config};
use crate::metadata::partition::directory_id;
use crate::metadata::{ConfigResourceType, LeaderRecoveryState, PartitionRegistration};
use crate::protocol::messages::TopicName;
use crate::protocol::messages::create_partitions_request::CreatePartitionsTopic;
use crate::protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use crate::protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use crate::protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use crate::protocol::messages::delete_topics_response::DeletableTopicResult;
use crate::protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse,
};
use crate::protocol::records::metadata::{ClearElrRecord, ConfigRecord, RemoveTopicRecord, TopicRecord};
use crate::protocol::{ApiError, ErrorCode, StrBytes};
use crate::raft::{CLUSTER_METADATA_TOPIC_NAME, VersionedRecord};

/// New partitions in one request at most.
const MAX_PARTITIONS_PER_REQUEST: i64 = 10_000;

const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// As Java's `new ApiError(error)`: with the code's own message.
fn with_default_message(code: ErrorCode) -> ApiError {
    ApiError::new(code, code.message())
}

fn excessive(what: &str) -> ApiError {
    ApiError::new(
        ErrorCode::PolicyViolation,
        format!("Excessively large number of {what} per request."),
    )
}

impl Shard {
    /// Kafka's CreateTopics, as the controller listener serves it.
    pub fn create_topics(
        &self,
        inputs: &mut Inputs<'_>,
        request: &CreateTopicsRequest,
    ) -> Result<Outcome<CreateTopicsResponse>, ApiError> {
        let names = NamesOnce::of(request.topics.iter().map(|topic| topic.name.as_str()));
        let creatable: Vec<&CreatableTopic> = request
            .topics
            .iter()
            .filter(|topic| names.once.contains(topic.name.as_str()))
            .filter(|topic| topic.name.as_str() != CLUSTER_METADATA_TOPIC_NAME)
            .collect();
        self.check_total_partitions(&creatable)?;

        let mut records = Vec::new();
        let mut response = CreateTopicsResponse::default();
        for topic in creatable {
            let result = match self.create_topic(inputs, topic, &mut records) {
                Ok(result) => result,
                Err(error) => topic_error(topic.name.clone(), &error),
            };
            response.topics.push(result);
        }
        for name in names.more_than_once {
            let error = ApiError::new(ErrorCode::InvalidRequest, "Duplicate topic name.");
            response.topics.push(topic_error(TopicName(text(name)), &error));
        }
        if names.once.contains(CLUSTER_METADATA_TOPIC_NAME) {
            let error = ApiError::new(
                ErrorCode::InvalidRequest,
                format!("Creation of internal topic {CLUSTER_METADATA_TOPIC_NAME} is prohibited."),
            );
            let name = TopicName(text(CLUSTER_METADATA_TOPIC_NAME));
            response.topics.push(topic_error(name, &error));
        }
        check_batch_size(&records)?;
        let outcome = Outcome::atomic(records, response);
        Ok(if request.validate_only {
            outcome.without_records()
        } else {
            outcome
        })
    }

    fn check_total_partitions(&self, topics: &[&CreatableTopic]) -> Result<(), ApiError> {
        let mut total: i64 = 0;
        for topic in topics {
            total += match (topic.assignments.len(), topic.num_partitions) {
                (0, -1) => i64::from(self.config.config.num_partitions),
                (0, count) => i64::from(count.max(0)),
                (assignments, _) => assignments as i64,
            };
            if total > MAX_PARTITIONS_PER_REQUEST {
                return Err(excessive("partitions"));
            }
        }
        Ok(())
    }

    fn create_topic(
        &self,
        inputs: &mut Inputs<'_>,
        topic: &CreatableTopic,
        records: &mut Vec<VersionedRecord>,
    ) -> Result<CreatableTopicResult, ApiError> {
        self.check_new_topic_name(topic.name.as_str())?;
        let configs = creation_configs(self.effective_config(), topic)?;
        let partitions = if topic.assignments.is_empty() {
            self.place_partitions(inputs.random, topic)?
        } else {
            self.assigned_partitions(topic)?
        };
        let described = self.effective_topic_configs(&configs)?;
        let topic_id = new_topic_id(inputs.random);
        records.push((
            TopicRecord {
                name: topic.name.0.clone(),
                topic_id,
                ..TopicRecord::default()
            }
            .into(),
            0,
        ));
        self.push_config_records(topic, &configs, records);
        let metadata_version = self.metadata_version();
        let elr_enabled = self.image().features.is_elr_enabled();
        let replication_factor = partitions.first().map_or(0, |partition| partition.replicas.len());
        for (index, partition) in (0..).zip(&partitions) {
            let (record, version) = partition.to_record(topic_id, index, metadata_version, elr_enabled);
            records.push((record.into(), version));
        }
        let mut result = CreatableTopicResult::default();
        result.name = topic.name.clone();
        result.topic_id = topic_id;
        result.error_message = None;
        result.num_partitions = partitions.len() as i32;
        result.replication_factor = replication_factor as i16;
        result.configs = Some(described);
        Ok(result)
    }

    fn check_new_topic_name(&self, name: &str) -> Result<(), ApiError> {
        // Kafka runs all three checks, and the last that fails wins.
        if self.image().topics.id_of(name).is_some() {
            return Err(ApiError::new(
                ErrorCode::TopicAlreadyExists,
                format!("Topic '{name}' already exists."),
            ));
        }
        if let Some(existing) = self.indexes().colliding_topic(name) {
            return Err(ApiError::new(
                ErrorCode::InvalidTopicException,
                format!("Topic '{name}' collides with existing topic: {existing}"),
            ));
        }
        topic_name::validate(name).map_err(|message| ApiError::new(ErrorCode::InvalidTopicException, message))
    }

    fn push_config_records(
        &self,
        topic: &CreatableTopic,
        configs: &BTreeMap<String, String>,
        records: &mut Vec<VersionedRecord>,
    ) {
        for (name, value) in configs {
            let record = ConfigRecord {
                resource_type: ConfigResourceType::Topic.id(),
                resource_name: topic.name.0.clone(),
                name: text(name.as_str()),
                value: Some(text(value.as_str())),
                ..ConfigRecord::default()
            };
            records.push((record.into(), 0));
        }
        // Who is eligible depends on the minimum: it is counted anew (KIP-966).
        if self.image().features.is_elr_enabled() && configs.contains_key(MIN_INSYNC_REPLICAS) {
            let record = ClearElrRecord {
                topic_name: topic.name.0.clone(),
                ..ClearElrRecord::default()
            };
            records.push((record.into(), 0));
        }
    }

    fn effective_topic_configs(
        &self,
        overrides: &BTreeMap<String, String>,
    ) -> Result<Vec<CreatableTopicConfigs>, ApiError> {
        let mut described = describe::topic_configs(self.effective_config(), overrides)
            .map_err(|error| ApiError::new(ErrorCode::InvalidConfig, error.to_string()))?;
        described.sort_by(|left, right| left.name.cmp(&right.name));
        let shape = |entry: DescribedConfig| {
            let mut out = CreatableTopicConfigs::default();
            out.name = text(entry.name);
            out.value = entry.value.filter(|_| !entry.is_sensitive).map(text);
            out.read_only = entry.read_only;
            out.config_source = entry.source as i8;
            out.is_sensitive = entry.is_sensitive;
            out
        };
        Ok(described.into_iter().map(shape).collect())
    }

    fn assigned_partitions(&self, topic: &CreatableTopic) -> Result<Vec<PartitionRegistration>, ApiError> {
        for (value, name) in [
            (i32::from(topic.replication_factor), "replication factor"),
            (topic.num_partitions, "numPartitions"),
        ] {
            if value != -1 {
                return Err(ApiError::new(
                    ErrorCode::InvalidRequest,
                    format!("A manual partition assignment was specified, but {name} was not set to -1."),
                ));
            }
        }
        let invalid = |message: String| ApiError::new(ErrorCode::InvalidReplicaAssignment, message);
        let mut partitions: BTreeMap<i32, PartitionRegistration> = BTreeMap::new();
        let mut replication_factor = None;
        for CreatableReplicaAssignment {
            partition_index,
            broker_ids,
            ..
        } in &topic.assignments
        {
            if partitions.contains_key(partition_index) {
                return Err(invalid(format!(
                    "Found multiple manual partition assignments for partition {partition_index}"
                )));
            }
            let replicas: Vec<i32> = broker_ids.iter().map(|id| id.0).collect();
            self.check_manual_assignment(&replicas, replication_factor)?;
            replication_factor = Some(replicas.len());
            let registration = self.new_partition(replicas);
            let registration = registration.ok_or_else(|| all_fenced_in_assignment(*partition_index))?;
            partitions.insert(*partition_index, registration);
        }
        if !partitions.keys().copied().eq(0..partitions.len() as i32) {
            return Err(invalid(
                "partitions should be a consecutive 0-based integer sequence".to_owned(),
            ));
        }
        Ok(partitions.into_values().collect())
    }

    fn place_partitions(
        &self,
        random: &mut dyn ControllerRandom,
        topic: &CreatableTopic,
    ) -> Result<Vec<PartitionRegistration>, ApiError> {
        if topic.replication_factor < -1 || topic.replication_factor == 0 {
            return Err(ApiError::new(
                ErrorCode::InvalidReplicationFactor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            ));
        }
        if topic.num_partitions < -1 || topic.num_partitions == 0 {
            return Err(ApiError::new(
                ErrorCode::InvalidPartitions,
                "Number of partitions was set to an invalid non-positive value.",
            ));
        }
        let or_default = |asked: i32, default: i32| if asked == -1 { default } else { asked };
        let config = &self.config.config;
        let count = or_default(topic.num_partitions, config.num_partitions);
        let replication_factor = or_default(
            i32::from(topic.replication_factor),
            config.default_replication_factor,
        ) as i16;
        let cannot = |message: String| {
            ApiError::new(
                ErrorCode::InvalidReplicationFactor,
                format!("Unable to replicate the partition {replication_factor} time(s): {message}"),
            )
        };
        let placed = placement::place(
            &self.usable_brokers(),
            usize::try_from(count).unwrap_or(0),
            replication_factor,
            random,
        )
        .map_err(cannot)?;
        placed
            .into_iter()
            .map(|replicas| {
                let all_fenced =
                    || cannot("All brokers are currently fenced or in controlled shutdown.".into());
                self.new_partition(replicas).ok_or_else(all_fenced)
            })
            .collect()
    }

    /// A partition as it is born: every active replica is in sync, the first of them leads. `None` if none is active.
    fn new_partition(&self, replicas: Vec<i32>) -> Option<PartitionRegistration> {
        let cluster = &self.image().cluster;
        let isr: Vec<i32> = replicas
            .iter()
            .copied()
            .filter(|id| cluster.is_active(*id))
            .collect();
        let leader = *isr.first()?;
        Some(PartitionRegistration {
            directories: replicas.iter().map(|id| self.default_directory(*id)).collect(),
            replicas,
            isr,
            leader,
            leader_recovery_state: LeaderRecoveryState::Recovered,
            leader_epoch: 0,
            partition_epoch: 0,
            ..PartitionRegistration::default()
        })
    }

    /// Where a broker will put a new replica, if that is sure (`ClusterControlManager.defaultDir`).
    pub(super) fn default_directory(&self, broker_id: i32) -> Uuid {
        let Some(broker) = self.image().cluster.broker(broker_id) else {
            return directory_id::UNASSIGNED;
        };
        match broker.directories.as_slice() {
            [] => directory_id::MIGRATING,
            [only] => *only,
            _ => directory_id::UNASSIGNED,
        }
    }

    fn usable_brokers(&self) -> Vec<UsableBroker> {
        let is_leaving = |id: i32| {
            self.heartbeats
                .as_ref()
                .is_some_and(|heartbeats| heartbeats.is_shutting_down(id))
        };
        let brokers = self.image().cluster.brokers.values();
        brokers
            .filter(|broker| !is_leaving(broker.id) && broker.has_uncordoned_directories())
            .map(|broker| UsableBroker {
                id: broker.id,
                rack: broker.rack.clone(),
                fenced: broker.fenced,
            })
            .collect()
    }

    fn check_manual_assignment(
        &self,
        replicas: &[i32],
        replication_factor: Option<usize>,
    ) -> Result<(), ApiError> {
        let invalid = |message: String| Err(ApiError::new(ErrorCode::InvalidReplicaAssignment, message));
        if replicas.is_empty() {
            return invalid("The manual partition assignment includes an empty replica list.".to_owned());
        }
        let mut sorted = replicas.to_vec();
        sorted.sort_unstable();
        let mut previous = None;
        for id in sorted {
            match self.image().cluster.broker(id) {
                None => {
                    return invalid(format!(
                        "The manual partition assignment includes broker {id}, but no such broker is registered."
                    ));
                }
                Some(broker) if !broker.has_uncordoned_directories() => {
                    return invalid(format!(
                        "The manual partition assignment includes broker {id}, but all its log directories are \
                         cordoned."
                    ));
                }
                Some(_) if previous == Some(id) => {
                    return invalid(format!(
                        "The manual partition assignment includes the broker {id} more than once."
                    ));
                }
                Some(_) => previous = Some(id),
            }
        }
        match replication_factor {
            Some(factor) if factor != replicas.len() => invalid(format!(
                "The manual partition assignment includes a partition with {} replica(s), but this is not \
                 consistent with previous partitions, which have {factor} replica(s).",
                replicas.len()
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Kafka's DeleteTopics, by name or id.
    pub fn delete_topics(
        &self,
        context: &ControllerContext,
        request: &DeleteTopicsRequest,
    ) -> Result<Outcome<DeleteTopicsResponse>, ApiError> {
        if !self.config.config.delete_topic_enable {
            return Err(if context.api_version < 3 {
                ApiError::new(ErrorCode::InvalidRequest, "Topic deletion is disabled.")
            } else {
                ErrorCode::TopicDeletionDisabled.into()
            });
        }
        let mut responses = Vec::new();
        let doomed = self.topics_to_delete(request, &mut responses);
        let mut records = Vec::new();
        for (topic_id, name) in doomed {
            let record = RemoveTopicRecord {
                topic_id,
                ..RemoveTopicRecord::default()
            };
            records.push((record.into(), 0));
            responses.push(deleted(name, topic_id, None));
        }
        check_batch_size(&records)?;
        let mut response = DeleteTopicsResponse::default();
        response.responses = responses;
        Ok(Outcome::atomic(records, response))
    }

    /// Ids and names of what is to go; everything wrong is answered in `responses`.
    fn topics_to_delete(
        &self,
        request: &DeleteTopicsRequest,
        responses: &mut Vec<DeletableTopicResult>,
    ) -> BTreeMap<Uuid, Option<String>> {
        let invalid = |message: &str| ApiError::new(ErrorCode::InvalidRequest, message);
        let mut names: Vec<&str> = request.topic_names.iter().map(|name| name.as_str()).collect();
        let mut ids = Vec::new();
        for topic in &request.topics {
            match &topic.name {
                None if topic.topic_id.is_nil() => {
                    let error = invalid("Neither topic name nor id were specified.");
                    responses.push(deleted(None, Uuid::nil(), Some(&error)));
                }
                None => ids.push(topic.topic_id),
                Some(name) if topic.topic_id.is_nil() => names.push(name.as_str()),
                Some(name) => {
                    let error = invalid("You may not specify both topic name and topic id.");
                    responses.push(deleted(Some(name.to_string()), topic.topic_id, Some(&error)));
                }
            }
        }
        let names = NamesOnce::of(names.into_iter());
        let ids = NamesOnce::of(ids.into_iter());
        for name in &names.more_than_once {
            let error = invalid("Duplicate topic name.");
            responses.push(deleted(Some((*name).to_owned()), Uuid::nil(), Some(&error)));
        }
        for id in &ids.more_than_once {
            responses.push(deleted(None, *id, Some(&invalid("Duplicate topic id."))));
        }
        let mut doomed = BTreeMap::new();
        for id in ids.once {
            match self.image().topics.by_id(id) {
                Some(topic) => {
                    doomed.insert(id, Some(topic.name.to_string()));
                }
                None => {
                    let error = with_default_message(ErrorCode::UnknownTopicId);
                    responses.push(deleted(None, id, Some(&error)));
                }
            }
        }
        let mut taken: BTreeSet<Uuid> = ids.more_than_once;
        for name in names.once {
            let Some(id) = self.image().topics.id_of(name) else {
                let error = with_default_message(ErrorCode::UnknownTopicOrPartition);
                responses.push(deleted(Some(name.to_owned()), Uuid::nil(), Some(&error)));
                continue;
            };
            if taken.contains(&id) || doomed.contains_key(&id) {
                taken.insert(id);
                doomed.remove(&id);
                let error = invalid("The provided topic name maps to an ID that was already supplied.");
                responses.push(deleted(Some(name.to_owned()), id, Some(&error)));
            } else {
                doomed.insert(id, Some(name.to_owned()));
            }
        }
        doomed
    }

    /// Kafka's CreatePartitions.
    pub fn create_partitions(
        &self,
        inputs: &mut Inputs<'_>,
        request: &CreatePartitionsRequest,
    ) -> Result<Outcome<CreatePartitionsResponse>, ApiError> {
        let names = NamesOnce::of(request.topics.iter().map(|topic| topic.name.as_str()));
        let topics: Vec<&CreatePartitionsTopic> = request
            .topics
            .iter()
            .filter(|topic| names.once.contains(topic.name.as_str()))
            .collect();
        self.check_total_additional_partitions(&topics)?;
        let mut records = Vec::new();
        let mut results = Vec::new();
        for name in names.more_than_once {
            let error = ApiError::new(ErrorCode::InvalidRequest, "Duplicate topic name.");
            results.push(grown(TopicName(text(name)), Some(&error)));
        }
        for topic in topics {
            let error = self.add_partitions(inputs.random, topic, &mut records).err();
            results.push(grown(topic.name.clone(), error.as_ref()));
        }
        check_batch_size(&records)?;
        let mut response = CreatePartitionsResponse::default();
        response.results = results;
        let outcome = Outcome::atomic(records, response);
        Ok(if request.validate_only {
            outcome.without_records()
        } else {
            outcome
        })
    }

    fn check_total_additional_partitions(&self, topics: &[&CreatePartitionsTopic]) -> Result<(), ApiError> {
        let mut total: i64 = 0;
        for topic in topics {
            if let Some(existing) = self.image().topics.by_name(topic.name.as_str())
                && topic.count >= 0
            {
                total += (i64::from(topic.count) - existing.partitions.len() as i64).max(0);
            }
            if total > MAX_PARTITIONS_PER_REQUEST {
                return Err(excessive("additional partitions"));
            }
        }
        Ok(())
    }

    fn add_partitions(
        &self,
        random: &mut dyn ControllerRandom,
        request: &CreatePartitionsTopic,
        records: &mut Vec<VersionedRecord>,
    ) -> Result<(), ApiError> {
        let Some(topic) = self.image().topics.by_name(request.name.as_str()) else {
            return Err(ErrorCode::UnknownTopicOrPartition.into());
        };
        let invalid = |message: String| ApiError::new(ErrorCode::InvalidPartitions, message);
        let existing = topic.partitions.len();
        let wanted = usize::try_from(request.count).unwrap_or(0);
        if request.count >= 0 && wanted == existing {
            return Err(invalid(format!("Topic already has {existing} partition(s).")));
        }
        if wanted < existing {
            return Err(invalid(format!(
                "The topic {} currently has {existing} partition(s); {} would not be an increase.",
                topic.name, request.count
            )));
        }
        let additional = wanted - existing;
        if let Some(assignments) = &request.assignments
            && assignments.len() != additional
        {
            return Err(ApiError::new(
                ErrorCode::InvalidReplicaAssignment,
                format!(
                    "Attempted to add {additional} additional partition(s), but only {} assignment(s) were \
                     specified.",
                    assignments.len()
                ),
            ));
        }
        let Some(first) = topic.partitions.values().next() else {
            return Err(ErrorCode::UnknownServerError.into());
        };
        let replication_factor = first.replicas.len();
        let new = match &request.assignments {
            Some(assignments) => {
                let replicas = assignments
                    .iter()
                    .map(|assignment| assignment.broker_ids.iter().map(|id| id.0).collect());
                self.added_by_assignment(existing, replicas, replication_factor)?
            }
            None => self.added_by_placement(random, additional, replication_factor as i16)?,
        };
        let elr_enabled = self.image().features.is_elr_enabled();
        for (index, partition) in (existing as i32..).zip(&new) {
            let (record, version) =
                partition.to_record(topic.id, index, self.metadata_version(), elr_enabled);
            records.push((record.into(), version));
        }
        Ok(())
    }

    fn added_by_assignment(
        &self,
        first_partition: usize,
        assignments: impl Iterator<Item = Vec<i32>>,
        replication_factor: usize,
    ) -> Result<Vec<PartitionRegistration>, ApiError> {
        let mut partitions = Vec::new();
        for (index, replicas) in (first_partition as i32..).zip(assignments) {
            self.check_manual_assignment(&replicas, Some(replication_factor))?;
            let registration = self.new_partition(replicas);
            partitions.push(registration.ok_or_else(|| all_fenced_in_assignment(index))?);
        }
        Ok(partitions)
    }

    fn added_by_placement(
        &self,
        random: &mut dyn ControllerRandom,
        additional: usize,
        replication_factor: i16,
    ) -> Result<Vec<PartitionRegistration>, ApiError> {
        let cannot = |message: String| ApiError::new(ErrorCode::InvalidReplicationFactor, message);
        let placed = placement::place(&self.usable_brokers(), additional, replication_factor, random);
        let all_fenced = || {
            cannot(format!(
                "Unable to replicate the partition {replication_factor} time(s): All brokers are currently \
                 fenced or in controlled shutdown."
            ))
        };
        placed
            .map_err(cannot)?
            .into_iter()
            .map(|replicas| self.new_partition(replicas).ok_or_else(all_fenced))
            .collect()
    }
}

/// Items of a request, those that come more than once apart: Kafka refuses all mentions of these.
struct NamesOnce<T> {
    once: BTreeSet<T>,
    more_than_once: BTreeSet<T>,
}

impl<T: Ord> NamesOnce<T> {
    fn of(items: impl Iterator<Item = T>) -> Self {
        let mut once = BTreeSet::new();
        let mut more_than_once = BTreeSet::new();
        for item in items {
            if more_than_once.contains(&item) {
                continue;
            }
            if once.remove(&item) {
                more_than_once.insert(item);
            } else {
                once.insert(item);
            }
        }
        Self { once, more_than_once }
    }
}

/// The topic's settings, checked. A key that comes twice has its last value.
fn creation_configs(
    config: &KafkaConfig,
    topic: &CreatableTopic,
) -> Result<BTreeMap<String, String>, ApiError> {
    let invalid = |message: String| ApiError::new(ErrorCode::InvalidConfig, message);
    let nulls: Vec<&str> = topic
        .configs
        .iter()
        .filter(|config| config.value.is_none())
        .map(|config| config.name.as_str())
        .collect();
    if !nulls.is_empty() {
        let message = format!("Null value not supported for topic configs: {}", nulls.join(","));
        return Err(invalid(message));
    }
    let configs: BTreeMap<String, String> = topic
        .configs
        .iter()
        .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())))
        .collect();
    if configs
        .values()
        .any(|value| value.encode_utf16().count() > i16::MAX as usize)
    {
        return Err(invalid(
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
                .to_owned(),
        ));
    }
    topic_config::validate_topic_config(config, &BTreeMap::new(), &configs)
        .map_err(|error| invalid(error.to_string()))?;
    Ok(configs)
}

/// A random (version 4) id that is neither reserved nor starts with a `-` in Kafka's text form, which tools would take
/// for an option.
pub fn new_topic_id(random: &mut dyn ControllerRandom) -> Uuid {
    loop {
        let id = uuid::Builder::from_random_bytes(random.next_u128().to_be_bytes()).into_uuid();
        // The first of the 22 characters is the top six bits; `-` is number 62 of the url-safe alphabet.
        let starts_with_dash = id.as_bytes()[0] >> 2 == 62;
        if !directory_id::is_reserved(id) && !starts_with_dash {
            return id;
        }
    }
}

fn all_fenced_in_assignment(partition: i32) -> ApiError {
    ApiError::new(
        ErrorCode::InvalidReplicaAssignment,
        format!(
            "All brokers specified in the manual partition assignment for partition {partition} are fenced or in \
             controlled shutdown."
        ),
    )
}

fn topic_error(name: TopicName, error: &ApiError) -> CreatableTopicResult {
    let mut result = CreatableTopicResult::default();
    result.name = name;
    result.error_code = error.code.code();
    result.error_message = error.message.clone().map(text);
    result
}

fn deleted(name: Option<String>, topic_id: Uuid, error: Option<&ApiError>) -> DeletableTopicResult {
    let mut result = DeletableTopicResult::default();
    result.name = name.map(|name| TopicName(text(name)));
    result.topic_id = topic_id;
    result.error_code = error.map_or(0, |error| error.code.code());
    result.error_message = error.and_then(|error| error.message.clone()).map(text);
    result
}

fn grown(name: TopicName, error: Option<&ApiError>) -> CreatePartitionsTopicResult {
    let mut result = CreatePartitionsTopicResult::default();
    result.name = name;
    result.error_code = error.map_or(0, |error| error.code.code());
    result.error_message = error.and_then(|error| error.message.clone()).map(text);
    result
}

#[cfg(test)]
#[path = "topics_test.rs"]
mod topics_test;
