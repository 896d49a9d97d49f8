//! One hosted partition: leader or follower, its epochs, ISR and high watermark.

use uuid::Uuid;

use crate::log::TopicPartition;
use crate::replica::ReplicaError;

/// Who wants to know what happens to a partition (`PartitionListener`); the coordinators do. Called inline from the
/// thread that caused the event, in order for a partition: must be quick, never block and never call back into the partition.
pub trait PartitionListener: Send + Sync + 'static {
    fn on_high_watermark_updated(&self, topic_partition: &TopicPartition, high_watermark: i64);
    /// The log directory went offline.
    fn on_failed(&self, topic_partition: &TopicPartition);
    fn on_deleted(&self, topic_partition: &TopicPartition);
    fn on_become_follower(&self, topic_partition: &TopicPartition);
}

pub struct Partition {
    topic_partition: TopicPartition,
}

impl Partition {
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub fn topic_id(&self) -> Option<Uuid> {
        todo!()
    }

    pub fn leader_epoch(&self) -> i32 {
        todo!()
    }

    pub fn is_leader(&self) -> bool {
        todo!()
    }

    /// The log's offsets if this node leads the partition.
    pub fn leader_offsets(&self) -> Result<LeaderOffsets, ReplicaError> {
        todo!()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderOffsets {
    pub log_start_offset: i64,
    pub last_stable_offset: i64,
    pub high_watermark: i64,
    pub log_end_offset: i64,
}
