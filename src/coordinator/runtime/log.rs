//! The door to the log under a coordinator. The replica manager is behind it; tests put a vector there.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::log::{LogError, TopicPartition, TransactionCheck};
use crate::protocol::ErrorCode;
use crate::replica::{DiskGate, LeaderOffsets, PartitionListener, ReplicaError, ReplicaManager};

/// A partition's log as its leader's coordinator sees it.
pub trait PartitionLog: Send + Sync + 'static {
    /// Appends a ready batch; returns the offset after it. `check` says what is known of the transaction that it is part of, or ends.
    fn append(
        &self,
        topic_partition: &TopicPartition,
        leader_epoch: i32,
        batch: Bytes,
        check: TransactionCheck,
    ) -> Result<i64, ReplicaError>;
    /// Whole batches from `start_offset`, at least one; empty at the log's end.
    fn read(
        &self,
        topic_partition: &TopicPartition,
        start_offset: i64,
        max_bytes: usize,
    ) -> Result<Bytes, ReplicaError>;
    fn leader_offsets(&self, topic_partition: &TopicPartition) -> Result<LeaderOffsets, ReplicaError>;
    /// What stands before the files, and the directory that the partition lies in. `None`: nothing can hang.
    fn gate(&self, _topic_partition: &TopicPartition) -> Option<(&DiskGate, Arc<Path>)> {
        None
    }
    /// `max.message.bytes` of the topic.
    fn max_message_bytes(&self, topic_partition: &TopicPartition) -> usize;
    fn add_listener(&self, topic_partition: &TopicPartition, listener: Arc<dyn PartitionListener>) -> bool;
    fn remove_listener(&self, topic_partition: &TopicPartition, listener: &Arc<dyn PartitionListener>);
}

/// The real one. Coordinators run on the workers that the replica manager's gate counts.
pub struct ReplicaLog {
    replica_manager: Arc<ReplicaManager>,
}

impl ReplicaLog {
    pub fn new(replica_manager: Arc<ReplicaManager>) -> Self {
        Self { replica_manager }
    }
}

impl PartitionLog for ReplicaLog {
    fn append(
        &self,
        topic_partition: &TopicPartition,
        leader_epoch: i32,
        batch: Bytes,
        check: TransactionCheck,
    ) -> Result<i64, ReplicaError> {
        self.replica_manager
            .append_coordinator_batch(topic_partition, leader_epoch, batch, check)
    }

    fn read(
        &self,
        topic_partition: &TopicPartition,
        start_offset: i64,
        max_bytes: usize,
    ) -> Result<Bytes, ReplicaError> {
        self.replica_manager
            .read_coordinator_batches(topic_partition, start_offset, max_bytes)
    }

    fn leader_offsets(&self, topic_partition: &TopicPartition) -> Result<LeaderOffsets, ReplicaError> {
        self.replica_manager
            .get_partition(topic_partition)?
            .leader_offsets()
    }

    fn gate(&self, topic_partition: &TopicPartition) -> Option<(&DiskGate, Arc<Path>)> {
        let partition = self.replica_manager.get_partition(topic_partition).ok()?;
        Some((self.replica_manager.gate(), partition.log().parent_dir()))
    }

    fn max_message_bytes(&self, topic_partition: &TopicPartition) -> usize {
        const KAFKA_DEFAULT: usize = 1024 * 1024 + 12;
        match self.replica_manager.get_partition(topic_partition) {
            Ok(partition) => {
                usize::try_from(partition.log().config().max_message_bytes).unwrap_or(KAFKA_DEFAULT)
            }
            Err(_) => KAFKA_DEFAULT,
        }
    }

    fn add_listener(&self, topic_partition: &TopicPartition, listener: Arc<dyn PartitionListener>) -> bool {
        self.replica_manager
            .add_partition_listener(topic_partition, listener)
    }

    fn remove_listener(&self, topic_partition: &TopicPartition, listener: &Arc<dyn PartitionListener>) {
        self.replica_manager
            .remove_partition_listener(topic_partition, listener)
    }
}

/// The error that Kafka's partition writer gives for a failed append or load.
pub fn error_code(error: &ReplicaError) -> ErrorCode {
    match error {
        // The leader moved under the coordinator: its own appends carry the epoch it was elected with.
        ReplicaError::FencedLeaderEpoch { .. } | ReplicaError::UnknownLeaderEpoch { .. } => {
            ErrorCode::NotLeaderOrFollower
        }
        error => error.code().unwrap_or_else(log_error_code),
    }
}

fn log_error_code(error: &LogError) -> ErrorCode {
    match error {
        LogError::RecordTooLarge { .. } => ErrorCode::MessageTooLarge,
        LogError::RecordBatchTooLarge { .. } => ErrorCode::RecordListTooLarge,
        LogError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        LogError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        LogError::InvalidTxnState { .. } => ErrorCode::InvalidTxnState,
        LogError::TransactionCoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        LogError::Storage { .. }
        | LogError::NoSpace { .. }
        | LogError::DirectoryOffline { .. }
        | LogError::NoLogDirectory
        | LogError::ShuttingDown
        | LogError::Closed { .. } => ErrorCode::KafkaStorageError,
        // What remains would be a mistake of ours: the batch is made here.
        LogError::CorruptRecord { .. }
        | LogError::Validation(_)
        | LogError::InvalidRecord { .. }
        | LogError::OutOfOrderSequence { .. }
        | LogError::UnexpectedAppendOffset { .. }
        | LogError::InconsistentTopicId { .. }
        | LogError::LockHeld { .. }
        | LogError::InvalidLogDirectory { .. } => ErrorCode::UnknownServerError,
    }
}
