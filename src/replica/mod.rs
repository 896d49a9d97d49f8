//! REPLICATION: partitions, high watermark, delayed produce and fetch, fetch sessions.
//!
//! Owns the hosted partitions and decides what may be appended to, read from and acknowledged by them. Never touches files
//! (that is `log`), never knows request versions (that is `api`), never writes metadata (that is `controller`).
//!
//! ```text
//! replica_manager     which partitions are here; follows the metadata; the coordinators' doors
//!   delayed_produce   append now, wait for the replicas      delayed_fetch   read now, wait for more
//!   delayed_delete_records   move the log start now, wait for the followers
//!     purgatory       who waits on a partition and what wakes them
//!   disk_gate         a disk that stalls holds no worker but one
//!   partition         roles, append, read, high watermark: the shell around replica_state*
//! alter_log_dirs      replicas on their way to another log directory    directory_assignments   the controller is told where they lie
//! fetch_session_cache the shell around fetch_session*        producer_ids    ids in blocks from the controller
//! ```
//! `*` = pure.

pub mod alter_log_dirs;
pub mod delayed_delete_records;
pub mod delayed_fetch;
pub mod delayed_produce;
pub mod directory_assignments;
pub mod disk_gate;
pub mod error;
pub mod fetch;
pub mod fetch_session;
pub mod fetch_session_cache;
pub mod partition;
pub mod producer_ids;
pub mod purgatory;
pub mod replica_manager;
pub mod replica_state;
#[cfg(test)]
pub(crate) mod test_support;

pub use alter_log_dirs::AlterLogDirError;
pub use delayed_delete_records::{DeleteRecordsResult, DeletedRecords};
pub use delayed_produce::{AppendResult, Appended, RecordError, VerificationGuards};
pub use directory_assignments::{ControllerDirectoryAssigner, DirectoryAssigner, DirectoryAssignments};
pub use disk_gate::{DiskGate, Pass};
pub use error::ReplicaError;
pub use fetch::{
    AbortedTransaction, DivergingEpoch, FetchIsolation, FetchParams, FetchPartition, FetchPartitionData,
    FetchResult, OffsetResult, OffsetSpec,
};
pub use fetch_session_cache::FetchSessionCache;
pub use partition::{LeaderOffsets, Partition, PartitionListener};
pub use producer_ids::{
    ControllerProducerIdAllocator, ProducerIdAllocator, ProducerIdBlock, ProducerIdManager,
};
pub use replica_manager::{ReplicaManager, ReplicaManagerConfig, TopicLogConfig};

use std::fmt;
use uuid::Uuid;

use crate::log::TopicPartition;

/// A partition with its topic's id; the id is nil where a request of an old version named the topic only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopicIdPartition {
    pub topic_id: Uuid,
    pub topic_partition: TopicPartition,
}

impl TopicIdPartition {
    pub fn new(topic_id: Uuid, topic: impl Into<std::sync::Arc<str>>, partition: i32) -> Self {
        let topic = topic.into();
        Self {
            topic_id,
            topic_partition: TopicPartition { topic, partition },
        }
    }
}

impl fmt::Display for TopicIdPartition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.topic_id, self.topic_partition)
    }
}
