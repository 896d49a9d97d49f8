//! Transactions' markers for the partitions that this node leads: what WriteTxnMarkers does, and the way of this node's own transaction
//! coordinator to its partitions.
//!
//! A partition of `__consumer_offsets` gets its marker through its group coordinator, which has offsets that wait for it; any other by
//! an append. Answers come when the markers are replicated.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::marker_sender::{MarkerResults, MarkerWriter};
use crate::coordinator::group::{GROUP_METADATA_TOPIC, GroupCoordinatorService};
use crate::coordinator::runtime::TransactionEnd;
use crate::coordinator::runtime::context::marker_batch;
use crate::coordinator::runtime::log::error_code;
use crate::io::clock::Clock;
use crate::log::TopicPartition;
use crate::protocol::ErrorCode;
use crate::replica::{ReplicaError, ReplicaManager, TopicIdPartition};

pub struct LocalMarkerWriter {
    replica_manager: Arc<ReplicaManager>,
    group_coordinator: Arc<GroupCoordinatorService>,
    clock: Arc<dyn Clock>,
    /// How long a marker may take to be replicated.
    timeout_ms: u64,
}

impl LocalMarkerWriter {
    pub fn new(
        replica_manager: Arc<ReplicaManager>,
        group_coordinator: Arc<GroupCoordinatorService>,
        clock: Arc<dyn Clock>,
        timeout_ms: u64,
    ) -> Self {
        Self {
            replica_manager,
            group_coordinator,
            clock,
            timeout_ms,
        }
    }

    /// In the order of `partitions`. One that is not hosted here and online is UNKNOWN_TOPIC_OR_PARTITION.
    pub async fn write_here(&self, end: TransactionEnd, partitions: Vec<TopicPartition>) -> MarkerResults {
        let mut results = Vec::with_capacity(partitions.len());
        let mut appends = Vec::new();
        let mut groups = Vec::new();
        for topic_partition in partitions {
            let Ok(partition) = self.replica_manager.get_partition(&topic_partition) else {
                results.push((topic_partition, ErrorCode::UnknownTopicOrPartition));
                continue;
            };
            let index = results.len();
            if &*topic_partition.topic == GROUP_METADATA_TOPIC {
                groups.push((index, topic_partition.partition));
            } else {
                let topic_id = partition.topic_id().unwrap_or_default();
                appends.push((
                    index,
                    TopicIdPartition::new(topic_id, topic_partition.topic.clone(), topic_partition.partition),
                ));
            }
            results.push((topic_partition, ErrorCode::None));
        }
        let written = self.append(end, appends);
        let ended = self.end_in_groups(end, groups);
        let (written, ended) = tokio::join!(written, ended);
        for (index, error) in written.into_iter().chain(ended) {
            results[index].1 = error;
        }
        results
    }

    async fn append(
        &self,
        end: TransactionEnd,
        appends: Vec<(usize, TopicIdPartition)>,
    ) -> Vec<(usize, ErrorCode)> {
        if appends.is_empty() {
            return Vec::new();
        }
        let (indices, partitions): (Vec<_>, Vec<_>) = appends.into_iter().unzip();
        let batch = match marker_batch(end, self.clock.now_ms()) {
            Ok(batch) => batch,
            Err(error) => return indices.into_iter().map(|index| (index, error)).collect(),
        };
        let entries = partitions.into_iter().map(|partition| (partition, batch.clone()));
        let appended = self
            .replica_manager
            .append_markers(self.timeout_ms, end.transaction_version, entries.collect())
            .await;
        let results = appended.completed().await;
        let code = |error: Option<ReplicaError>| error.map_or(ErrorCode::None, |error| error_code(&error));
        let codes = results.into_iter().map(|(_, result)| code(result.error));
        indices.into_iter().zip(codes).collect()
    }

    async fn end_in_groups(&self, end: TransactionEnd, groups: Vec<(usize, i32)>) -> Vec<(usize, ErrorCode)> {
        let mut results = Vec::with_capacity(groups.len());
        for (index, partition) in groups {
            let ended = self.group_coordinator.end_transaction(partition, end).await;
            results.push((index, ended.err().unwrap_or(ErrorCode::None)));
        }
        results
    }
}

/// The coordinator's own way, as long as all partitions are led here: one that is led elsewhere waits.
pub struct LocalMarkers {
    pub writer: Arc<LocalMarkerWriter>,
}

impl MarkerWriter for LocalMarkers {
    fn write(
        &self,
        end: TransactionEnd,
        partitions: Vec<TopicPartition>,
    ) -> Pin<Box<dyn Future<Output = MarkerResults> + Send>> {
        let writer = self.writer.clone();
        Box::pin(async move { writer.write_here(end, partitions).await })
    }
}
