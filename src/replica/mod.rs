//! REPLICATION: partitions, high watermark, delayed produce and fetch, fetch sessions.
//!
//! Owns the hosted partitions and decides what may be appended to, read from and acknowledged by them. Never touches files
//! (that is `log`), never knows request versions (that is `api`), never writes metadata (that is `controller`).
//!
//! `fetch_session` and `replica_state` are pure; the rest is a thin shell around them.

#![allow(clippy::todo)]

pub mod error;
pub mod fetch;
pub mod fetch_session;
pub mod partition;
pub mod producer_ids;
pub mod purgatory;
pub mod replica_manager;

pub use error::ReplicaError;
pub use fetch::{
    AbortedTransaction, DivergingEpoch, FetchIsolation, FetchParams, FetchPartition, FetchPartitionData,
    FetchResult, OffsetForLeaderEpochResult, OffsetResult, OffsetSpec,
};
pub use partition::{Partition, PartitionListener};
pub use producer_ids::{ProducerIdAllocator, ProducerIdBlock, ProducerIdManager};
pub use replica_manager::{AppendResult, Appended, RecordError, ReplicaManager, ReplicaManagerConfig};

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
