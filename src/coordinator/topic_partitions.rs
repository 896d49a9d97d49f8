//! How many partitions a coordinator's topic has for its keys.
//!
//! Invariant: a key does not move while the node runs. The count is that of the first image that has the topic; as in Kafka
//! partitions that are added later count from the next start on, where state that was kept under the old count is not found.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::partition_for::partition_for;
use crate::metadata::{MetadataCache, MetadataImage};

pub struct CoordinatorPartitions {
    topic: &'static str,
    /// While there is no such topic.
    configured: i32,
    metadata: MetadataCache,
    count: OnceLock<i32>,
    is_difference_told: AtomicBool,
}

impl CoordinatorPartitions {
    pub fn new(topic: &'static str, configured: i32, metadata: MetadataCache) -> Self {
        Self {
            topic,
            configured,
            metadata,
            count: OnceLock::new(),
            is_difference_told: AtomicBool::new(false),
        }
    }

    /// The partition that keeps `key`.
    pub fn partition_for(&self, key: &str) -> i32 {
        partition_for(key, self.count_in(&self.metadata.load()))
    }

    fn count_in(&self, image: &MetadataImage) -> i32 {
        let Some(topic) = image.topics.by_name(self.topic) else {
            return self.count.get().copied().unwrap_or(self.configured);
        };
        let now = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let count = *self.count.get_or_init(|| now);
        if count != now && !self.is_difference_told.swap(true, Ordering::Relaxed) {
            tracing::error!(
                topic = self.topic,
                "the number of partitions has changed from {count} to {now}: coordinators keep to {count} until this node \
                 starts anew, and do not find then what is stored by it"
            );
        }
        count
    }
}

#[cfg(test)]
#[path = "topic_partitions_test.rs"]
mod topic_partitions_test;
