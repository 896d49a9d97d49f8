//! The group coordinator's front: finds the partition, runs the operation, turns errors into the answers Kafka gives.
//!
//! Knows no request versions: what depends on them comes as an argument. Follows the metadata to learn which partitions
//! of `__consumer_offsets` this node leads, and which topics are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::runtime::Handle;
use uuid::Uuid;

use super::GROUP_METADATA_TOPIC;
use super::classic_protocol::JoinContext;
use super::config::GroupConfig;
use super::offsets::DeletedTopic;
use super::shard::{GroupReply, GroupShard};
use crate::coordinator::runtime::context::ContextConfig;
use crate::coordinator::runtime::shard::{Outcome, TopicChanges};
use crate::coordinator::runtime::{CoordinatorRuntime, PartitionLog, RuntimeConfig, TransactionEnd};
use crate::coordinator::topic_partitions::CoordinatorPartitions;
use crate::io::clock::Clock;
use crate::log::VerificationGuard;
use crate::metadata::{MetadataCache, MetadataDelta, MetadataImage, MetadataPublisher};
use crate::protocol::messages::delete_groups_response::DeletableGroupResult;
use crate::protocol::messages::describe_groups_response::DescribedGroup;
use crate::protocol::messages::leave_group_response::MemberResponse;
use crate::protocol::messages::list_groups_response::ListedGroup;
use crate::protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use crate::protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use crate::protocol::messages::{
    GroupId, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    SyncGroupRequest, SyncGroupResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

/// Who joins, and what its version of JoinGroup can do.
#[derive(Debug, Clone)]
pub struct JoiningClient {
    pub client_id: StrBytes,
    /// As Java prints an address: `/127.0.0.1`.
    pub client_host: StrBytes,
    /// From version 4.
    pub requires_known_member_id: bool,
    /// From version 9.
    pub supports_skipping_assignment: bool,
}

pub struct GroupCoordinatorService {
    node_id: i32,
    pub(super) config: Arc<GroupConfig>,
    pub(super) metadata: MetadataCache,
    partitions: CoordinatorPartitions,
    pub(super) runtime: Arc<CoordinatorRuntime<GroupShard>>,
    executor: Handle,
}

impl GroupCoordinatorService {
    /// Tasks run on `executor` (the data plane's: they append). Register it as a metadata publisher after the replica manager.
    pub fn new(
        node_id: i32,
        config: GroupConfig,
        log: Arc<dyn PartitionLog>,
        clock: Arc<dyn Clock>,
        metadata: MetadataCache,
        executor: Handle,
    ) -> Arc<Self> {
        let config = Arc::new(config);
        let runtime_config = RuntimeConfig {
            topic: GROUP_METADATA_TOPIC.into(),
            context: ContextConfig {
                compression: config.offsets_topic_compression,
                base_sequence: 0,
                write_timeout_ms: i64::from(config.offsets_commit_timeout_ms),
            },
            load_buffer_bytes: config.offsets_load_buffer_size,
            loads_at_once: 4,
        };
        let shard_config = config.clone();
        let new_shard = move || GroupShard::new(shard_config.clone());
        let runtime = CoordinatorRuntime::new(
            runtime_config,
            log,
            clock,
            metadata.clone(),
            executor.clone(),
            new_shard,
        );
        Arc::new(Self {
            node_id,
            partitions: CoordinatorPartitions::new(
                GROUP_METADATA_TOPIC,
                config.offsets_topic_num_partitions,
                metadata.clone(),
            ),
            config,
            metadata,
            runtime: Arc::new(runtime),
            executor,
        })
    }

    /// `group.consumer.assignment.interval.ms`, for groups that have none of their own.
    pub fn set_assignment_interval_ms(&self, interval_ms: i32) {
        self.config.consumer_group_assignment_interval.set(interval_ms);
    }

    pub fn assignment_interval_ms(&self) -> i32 {
        self.config.consumer_group_assignment_interval.now().value_ms
    }

    /// The partition of `__consumer_offsets` that a group belongs to; its leader is the group's coordinator.
    pub fn partition_for(&self, group_id: &str) -> i32 {
        self.partitions.partition_for(group_id)
    }

    pub async fn join_group(&self, client: JoiningClient, request: JoinGroupRequest) -> JoinGroupResponse {
        let error = |error: ErrorCode| {
            JoinGroupResponse::default()
                .with_member_id(request.member_id.clone())
                .with_error_code(error.code())
        };
        if request.group_id.is_empty() {
            return error(ErrorCode::InvalidGroupId);
        }
        let sessions = self.config.group_min_session_timeout_ms..=self.config.group_max_session_timeout_ms;
        if !sessions.contains(&request.session_timeout_ms) {
            return error(ErrorCode::InvalidSessionTimeout);
        }
        let partition = self.partition_for(&request.group_id);
        let context = JoinContext {
            client_id: client.client_id,
            client_host: client.client_host,
            requires_known_member_id: client.requires_known_member_id,
            supports_skipping_assignment: client.supports_skipping_assignment,
            random: random_uuid(),
        };
        let joined = self
            .runtime
            .write_parked(partition, move |shard, operation, token| {
                shard.join_group(operation, &context, &request, token)
            })
            .await;
        match joined {
            Ok(GroupReply::Join(response)) => response,
            Ok(GroupReply::Sync(_)) => {
                JoinGroupResponse::default().with_error_code(ErrorCode::UnknownServerError.code())
            }
            Err(error) => JoinGroupResponse::default().with_error_code(operation_error(error.code).code()),
        }
    }

    pub async fn sync_group(&self, request: SyncGroupRequest) -> SyncGroupResponse {
        let error = |error: ErrorCode| SyncGroupResponse::default().with_error_code(error.code());
        if request.group_id.is_empty() {
            return error(ErrorCode::InvalidGroupId);
        }
        let partition = self.partition_for(&request.group_id);
        let synced = self
            .runtime
            .write_parked(partition, move |shard, operation, token| {
                shard.sync_group(operation, &request, token)
            })
            .await;
        match synced {
            Ok(GroupReply::Sync(response)) => response,
            Ok(GroupReply::Join(_)) => error(ErrorCode::UnknownServerError),
            Err(failed) => error(operation_error(failed.code)),
        }
    }

    pub async fn heartbeat(&self, request: HeartbeatRequest) -> HeartbeatResponse {
        let response = |error: ErrorCode| HeartbeatResponse::default().with_error_code(error.code());
        if request.group_id.is_empty() {
            return response(ErrorCode::InvalidGroupId);
        }
        let partition = self.partition_for(&request.group_id);
        let result = self.runtime.write(partition, move |shard, operation| {
            Ok(shard.heartbeat(
                operation,
                &request.group_id.0,
                &request.member_id,
                request.group_instance_id.as_ref(),
                request.generation_id,
            ))
        });
        match result.await {
            Ok(error) => response(error),
            // While the group loads nobody is known to be gone.
            Err(error) if error.code == ErrorCode::CoordinatorLoadInProgress => response(ErrorCode::None),
            Err(error) => response(operation_error(error.code)),
        }
    }

    /// The members are in `members`, whatever the version.
    pub async fn leave_group(&self, request: LeaveGroupRequest) -> LeaveGroupResponse {
        let error = |error: ErrorCode| LeaveGroupResponse::default().with_error_code(error.code());
        if request.group_id.is_empty() {
            return error(ErrorCode::InvalidGroupId);
        }
        let partition = self.partition_for(&request.group_id);
        let members = request.members.clone();
        let result = self.runtime.write(partition, move |shard, operation| {
            shard.leave_group(operation, &request.group_id.0, &request.members)
        });
        match result.await {
            Ok(response) => response,
            Err(failed) if failed.code == ErrorCode::UnknownMemberId => {
                let unknown = members.into_iter().map(|member| {
                    MemberResponse::default()
                        .with_member_id(member.member_id)
                        .with_group_instance_id(member.group_instance_id)
                        .with_error_code(ErrorCode::UnknownMemberId.code())
                });
                LeaveGroupResponse::default().with_members(unknown.collect())
            }
            Err(failed) => error(operation_error(failed.code)),
        }
    }

    /// Topics have names and ids, and exist. An error is one of the whole commit.
    pub async fn commit_offsets(
        &self,
        request: OffsetCommitRequest,
        knows_group_id_not_found: bool,
    ) -> Result<OffsetCommitResponse, ErrorCode> {
        let partition = self.partition_for(&request.group_id);
        let result = self.runtime.write(partition, move |shard, operation| {
            shard.commit_offsets(operation, &request, knows_group_id_not_found)
        });
        result.await.map_err(|error| operation_error(error.code))
    }

    /// Topics have names and ids, and exist; the partition is in the producer's transaction, which `guard` shows if it is not open there
    /// yet. An error is one of the whole commit. `knows_member_epochs`: from version 6.
    pub async fn commit_transactional_offsets(
        &self,
        request: TxnOffsetCommitRequest,
        guard: Option<VerificationGuard>,
        knows_member_epochs: bool,
    ) -> Result<TxnOffsetCommitResponse, ErrorCode> {
        if request.group_id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        let partition = self.partition_for(&request.group_id);
        let result = self.runtime.write(partition, move |shard, operation| {
            shard.commit_transactional_offsets(operation, &request, guard, knows_member_epochs)
        });
        result.await.map_err(|error| operation_error(error.code))
    }

    /// Writes a transaction's marker to a partition of `__consumer_offsets` and applies it. Errors as of a partition's leader.
    pub async fn end_transaction(&self, partition: i32, end: TransactionEnd) -> Result<(), ErrorCode> {
        let written = self.runtime.end_transaction(partition, end).await;
        written.map_err(|error| match error.code {
            ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::NotCoordinator => ErrorCode::NotLeaderOrFollower,
            code => code,
        })
    }

    /// One group of an OffsetFetch; topics have their names set. An error is one of the whole group.
    pub async fn fetch_offsets(
        &self,
        request: OffsetFetchRequestGroup,
        require_stable: bool,
    ) -> Result<OffsetFetchResponseGroup, ErrorCode> {
        let partition = self.partition_for(&request.group_id);
        if require_stable {
            // A write that writes nothing: it waits for what is being written.
            let result = self.runtime.write(partition, move |shard, _| {
                shard.fetch_offsets(&request, None).map(Outcome::of)
            });
            return result.await.map_err(|error| match error.code {
                // Consumers before 3.9 know none of these.
                ErrorCode::UnknownTopicOrPartition
                | ErrorCode::NotEnoughReplicas
                | ErrorCode::RequestTimedOut => ErrorCode::NotCoordinator,
                code => operation_error(code),
            });
        }
        let result = self.runtime.read(partition, move |shard, committed| {
            shard.fetch_offsets(&request, Some(committed))
        });
        match result.await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) | Err(error) => Err(error.code),
        }
    }

    pub async fn list_groups(
        &self,
        states: Vec<StrBytes>,
        types: Vec<StrBytes>,
    ) -> Result<Vec<ListedGroup>, ErrorCode> {
        let mut groups = Vec::new();
        for partition in self.runtime.partition_ids() {
            let (states, types) = (states.clone(), types.clone());
            let listed = self
                .runtime
                .read(partition, move |shard, _| shard.list_groups(&states, &types));
            match listed.await {
                Ok(listed) => groups.extend(listed),
                Err(error) if error.code == ErrorCode::NotCoordinator => {}
                Err(error) => return Err(operation_error(error.code)),
            }
        }
        Ok(groups)
    }

    pub async fn describe_groups(
        &self,
        group_ids: Vec<GroupId>,
        knows_group_id_not_found: bool,
    ) -> Vec<DescribedGroup> {
        let mut described = Vec::with_capacity(group_ids.len());
        for (partition, group_ids) in self.by_partition(group_ids) {
            let asked = group_ids.clone();
            let result = self.runtime.read(partition, move |shard, _| {
                let describe = |group_id: &StrBytes| shard.describe_group(group_id, knows_group_id_not_found);
                asked.iter().map(describe).collect::<Vec<_>>()
            });
            match result.await {
                Ok(groups) => described.extend(groups),
                Err(error) => described.extend(group_ids.into_iter().map(|group_id| {
                    DescribedGroup::default()
                        .with_group_id(GroupId(group_id))
                        .with_error_code(operation_error(error.code).code())
                })),
            }
        }
        described
    }

    pub async fn delete_groups(&self, group_ids: Vec<GroupId>) -> Vec<DeletableGroupResult> {
        let mut deleted = Vec::with_capacity(group_ids.len());
        for (partition, group_ids) in self.by_partition(group_ids) {
            let asked = group_ids.clone();
            let result = self
                .runtime
                .write(partition, move |shard, _| Ok(shard.delete_groups(&asked)));
            match result.await {
                Ok(results) => deleted.extend(results),
                Err(error) => deleted.extend(group_ids.into_iter().map(|group_id| {
                    DeletableGroupResult::default()
                        .with_group_id(GroupId(group_id))
                        .with_error_code(operation_error(error.code).code())
                })),
            }
        }
        deleted
    }

    /// Topics and partitions exist. An error is one of the whole group.
    pub async fn delete_offsets(
        &self,
        request: OffsetDeleteRequest,
    ) -> Result<OffsetDeleteResponse, ErrorCode> {
        if request.group_id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        let partition = self.partition_for(&request.group_id);
        let result = self.runtime.write(partition, move |shard, _| {
            shard.delete_offsets(&request).map_err(ApiError::from)
        });
        result.await.map_err(|error| operation_error(error.code))
    }

    /// Groups as they are described: partition by partition.
    pub fn in_order_of_answer(&self, group_ids: Vec<GroupId>) -> impl Iterator<Item = StrBytes> {
        self.by_partition(group_ids).into_values().flatten()
    }

    pub(super) fn by_partition(&self, group_ids: Vec<GroupId>) -> BTreeMap<i32, Vec<StrBytes>> {
        let mut by_partition: BTreeMap<i32, Vec<StrBytes>> = BTreeMap::new();
        for group_id in group_ids {
            let partition = self.partition_for(&group_id);
            by_partition.entry(partition).or_default().push(group_id.0);
        }
        by_partition
    }

    /// Groups forget what they committed of these topics.
    pub fn on_topics_deleted(&self, topics: Vec<DeletedTopic>) {
        let topics = Arc::new(topics);
        for partition in self.runtime.partition_ids() {
            let (runtime, topics) = (self.runtime.clone(), topics.clone());
            self.executor.spawn(async move {
                let result = runtime
                    .write(partition, move |shard, _| Ok(shard.on_topics_deleted(&topics)))
                    .await;
                if let Err(error) = result {
                    tracing::warn!(partition, %error, "offsets of deleted topics could not be removed");
                }
            });
        }
    }

    pub fn shutdown(&self) {
        self.runtime.shutdown();
    }
}

impl MetadataPublisher for GroupCoordinatorService {
    fn name(&self) -> &'static str {
        "GroupCoordinator"
    }

    fn on_metadata_update(&self, delta: &MetadataDelta, image: &Arc<MetadataImage>) {
        let changes = delta.topics_delta().local_changes(self.node_id);
        self.runtime.on_local_changes(&changes);
        let topics = TopicChanges::of(delta);
        if !topics.topics.is_empty() || !delta.changed_configs().is_empty() {
            self.runtime.on_metadata_update(image, &topics);
        }
        let deleted: Vec<DeletedTopic> = delta
            .topics_delta()
            .deleted_topics()
            .map(|topic| DeletedTopic {
                id: topic.id,
                name: StrBytes::from_string(topic.name.to_string()),
            })
            .collect();
        if !deleted.is_empty() {
            self.on_topics_deleted(deleted);
        }
    }
}

/// What clients are told of an operation that failed (`CoordinatorOperationExceptionHelper`).
pub fn operation_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::NetworkException => ErrorCode::CoordinatorLoadInProgress,
        ErrorCode::UnknownTopicOrPartition | ErrorCode::NotEnoughReplicas | ErrorCode::RequestTimedOut => {
            ErrorCode::CoordinatorNotAvailable
        }
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge | ErrorCode::InvalidFetchSize => {
            ErrorCode::UnknownServerError
        }
        other => other,
    }
}

pub(super) fn random_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid()
}
