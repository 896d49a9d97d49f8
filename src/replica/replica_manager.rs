//! The partitions that this node hosts: appends, reads, and what the metadata makes of them.

use std::sync::Arc;

use bytes::Bytes;

use crate::log::TopicPartition;
use crate::replica::FetchIsolation;
use crate::replica::{
    FetchParams, FetchPartition, FetchResult, OffsetResult, OffsetSpec, Partition, PartitionListener,
    ReplicaError, TopicIdPartition,
};

#[derive(Debug, Clone)]
pub struct ReplicaManagerConfig {
    pub node_id: i32,
    pub replica_lag_time_max_ms: u64,
    pub high_watermark_checkpoint_interval_ms: u64,
    pub fetch_max_bytes: usize,
    pub max_incremental_fetch_session_cache_slots: usize,
}

/// One record that made its batch fail (KIP-467).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    pub batch_index: i32,
    pub message: Option<String>,
}

/// One partition's part of a produce answer. Offsets are -1 where Kafka answers -1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendResult {
    pub error: Option<ReplicaError>,
    pub base_offset: i64,
    pub last_offset: i64,
    /// -1 unless the topic uses LogAppendTime.
    pub log_append_time_ms: i64,
    pub log_start_offset: i64,
    pub record_errors: Vec<RecordError>,
    pub error_message: Option<String>,
}

/// An append whose order is fixed; what is left is to wait for the replicas.
pub struct Appended {
    results: Vec<(TopicIdPartition, AppendResult)>,
}

impl Appended {
    /// Nothing to wait for: acks 0 or 1, an error, or replicated already.
    pub fn is_complete(&self) -> bool {
        todo!()
    }

    /// The results in the order of the entries, once replicated or timed out.
    pub async fn completed(self) -> Vec<(TopicIdPartition, AppendResult)> {
        self.results
    }
}

pub struct ReplicaManager {}

impl ReplicaManager {
    /// A partition that is hosted here, whatever its role.
    pub fn get_partition(&self, _topic_partition: &TopicPartition) -> Result<Arc<Partition>, ReplicaError> {
        todo!()
    }

    /// Stage one of a produce: synchronous, fixes the order. `required_acks` is one of -1, 0, 1 (checked by the caller).
    pub fn append_records(
        &self,
        _timeout_ms: u64,
        _required_acks: i16,
        _internal_topics_allowed: bool,
        _entries: Vec<(TopicIdPartition, Bytes)>,
    ) -> Appended {
        todo!()
    }

    pub async fn fetch_messages(
        &self,
        _params: &FetchParams,
        _partitions: Vec<(TopicIdPartition, FetchPartition)>,
    ) -> FetchResult {
        todo!()
    }

    /// `isolation` is `None` for followers and the debugging consumer.
    pub fn list_offset(
        &self,
        _topic_partition: &TopicPartition,
        _spec: OffsetSpec,
        _isolation: Option<FetchIsolation>,
        _current_leader_epoch: Option<i32>,
        _only_from_leader: bool,
    ) -> Result<OffsetResult, ReplicaError> {
        todo!()
    }

    /// (epoch, end offset), both -1 where the epoch is not known.
    pub fn last_offset_for_leader_epoch(
        &self,
        _topic_partition: &TopicPartition,
        _current_leader_epoch: Option<i32>,
        _leader_epoch: i32,
    ) -> Result<(i32, i64), ReplicaError> {
        todo!()
    }

    // The coordinators' doors.

    /// Appends one ready batch (offsets are assigned here) as the leader of `leader_epoch`; returns the offset after it.
    /// It is committed once the partition's high watermark reaches that offset: see `add_partition_listener`.
    pub fn append_coordinator_batch(
        &self,
        _topic_partition: &TopicPartition,
        _leader_epoch: i32,
        _batch: Bytes,
    ) -> Result<i64, ReplicaError> {
        todo!()
    }

    /// Whole batches from `start_offset` up to the log end, at most about `max_bytes` but at least one batch, copied:
    /// for loading a coordinator. Empty at the end of the log.
    pub fn read_coordinator_batches(
        &self,
        _topic_partition: &TopicPartition,
        _start_offset: i64,
        _max_bytes: usize,
    ) -> Result<Bytes, ReplicaError> {
        todo!()
    }

    /// Hears of high watermark changes, deletion and loss of leadership. False: not hosted here, or offline.
    pub fn add_partition_listener(
        &self,
        _topic_partition: &TopicPartition,
        _listener: Arc<dyn PartitionListener>,
    ) -> bool {
        todo!()
    }

    pub fn remove_partition_listener(
        &self,
        _topic_partition: &TopicPartition,
        _listener: &Arc<dyn PartitionListener>,
    ) {
        todo!()
    }

    /// Writes `replication-offset-checkpoint` of every log dir; the server calls it every
    /// `replica.high.watermark.checkpoint.interval.ms` and at shutdown.
    pub fn checkpoint_high_watermarks(&self) {
        todo!()
    }

    /// Fails the waiting, writes the high watermarks.
    pub fn shutdown(&self) {
        todo!()
    }
}
