//! DeleteRecords in two stages: the leader's log start offset moves, and the answer waits until no live replica starts below it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::log::TopicPartition;
use crate::replica::delayed_produce::INTERNAL_TOPICS;
use crate::replica::purgatory::ProduceWaiter;
use crate::replica::{Partition, ReplicaError, ReplicaManager};

/// What one partition of a DeleteRecords request comes to; the low watermark is -1 beside an error, but for a timeout.
#[derive(Debug, Clone)]
pub struct DeleteRecordsResult {
    pub error: Option<ReplicaError>,
    pub low_watermark: i64,
}

impl DeleteRecordsResult {
    fn failed(error: ReplicaError) -> Self {
        Self {
            error: Some(error),
            low_watermark: -1,
        }
    }
}

struct Pending {
    index: usize,
    partition: Arc<Partition>,
    required_offset: i64,
}

/// Records that are deleted here; what is left is to wait for the followers.
pub struct DeletedRecords {
    results: Vec<(TopicPartition, DeleteRecordsResult)>,
    pending: Vec<Pending>,
}

impl DeletedRecords {
    /// The results in the order of the entries, once every live replica has followed or the time is over.
    pub async fn completed(mut self, timeout_ms: u64) -> Vec<(TopicPartition, DeleteRecordsResult)> {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        while !self.pending.is_empty() {
            let waiter = ProduceWaiter::new(self.pending.len());
            let mut watching = Vec::with_capacity(self.pending.len());
            for pending in &self.pending {
                let required = pending.required_offset;
                let watch = pending.partition.waiters.watch_low_watermark(&waiter, required);
                // Registered first, looked at afterwards: an event in between is not lost.
                match pending.partition.low_watermark_if_leader() {
                    Ok(low_watermark) if low_watermark < required => watching.push(watch),
                    Ok(_) | Err(_) => watch.complete(),
                }
            }
            let in_time = waiter.wait_until(deadline).await;
            drop(watching);
            self.settle();
            if !in_time {
                break;
            }
        }
        for pending in &self.pending {
            self.results[pending.index].1.error = Some(ReplicaError::RequestTimedOut);
        }
        self.results
    }

    /// Takes out of `pending` what is decided.
    fn settle(&mut self) {
        let results = &mut self.results;
        self.pending
            .retain(|pending| match pending.partition.low_watermark_if_leader() {
                Ok(low_watermark) if low_watermark < pending.required_offset => true,
                Ok(low_watermark) => {
                    results[pending.index].1.low_watermark = low_watermark;
                    false
                }
                Err(error) => {
                    results[pending.index].1 = DeleteRecordsResult::failed(error);
                    false
                }
            });
    }
}

impl ReplicaManager {
    /// Moves the log start offsets; -1 stands for the high watermark. Does file work: for a thread that may block.
    pub fn delete_records(&self, entries: Vec<(TopicPartition, i64)>) -> DeletedRecords {
        let mut results = Vec::with_capacity(entries.len());
        let mut pending = Vec::new();
        for (topic_partition, offset) in entries {
            let result = match self.delete_records_of(&topic_partition, offset) {
                Ok((partition, required_offset, low_watermark)) => {
                    if low_watermark < required_offset {
                        let index = results.len();
                        pending.push(Pending {
                            index,
                            partition,
                            required_offset,
                        });
                    }
                    DeleteRecordsResult {
                        error: None,
                        low_watermark,
                    }
                }
                Err(error) => {
                    tracing::debug!(partition = %topic_partition, %error, "records not deleted");
                    DeleteRecordsResult::failed(error)
                }
            };
            results.push((topic_partition, result));
        }
        DeletedRecords { results, pending }
    }

    /// (partition, the offset that is meant, low watermark)
    fn delete_records_of(
        &self,
        topic_partition: &TopicPartition,
        offset: i64,
    ) -> Result<(Arc<Partition>, i64, i64), ReplicaError> {
        let topic: &str = &topic_partition.topic;
        if INTERNAL_TOPICS.contains(&topic) {
            return Err(ReplicaError::InvalidTopic {
                topic: topic.to_owned(),
            });
        }
        let partition = self.get_partition(topic_partition)?;
        let (required_offset, low_watermark) = partition.delete_records_on_leader(offset)?;
        Ok((partition, required_offset, low_watermark))
    }
}

#[cfg(test)]
#[path = "delayed_delete_records_test.rs"]
mod delayed_delete_records_test;
