//! Produce in two stages: the append, which fixes the order, and the wait for the replicas.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::log::validator::ValidationError;
use crate::log::{
    AppendOrigin, LogAppendInfo, LogError, TopicPartition, TransactionCheck, VerificationGuard,
};
use crate::replica::purgatory::ProduceWaiter;
use crate::replica::{Partition, ReplicaError, ReplicaManager, TopicIdPartition};

/// Topics that only coordinators write to (`Topic.isInternal`).
pub(crate) const INTERNAL_TOPICS: [&str; 3] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// One record that made its batch fail (KIP-467).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    pub batch_index: i32,
    pub message: Option<String>,
}

/// One partition's part of a produce answer. Offsets are -1 where Kafka answers -1.
#[derive(Debug, Clone)]
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

impl AppendResult {
    fn appended(info: &LogAppendInfo) -> Self {
        Self {
            error: None,
            base_offset: info.first_offset,
            last_offset: info.last_offset,
            log_append_time_ms: info.log_append_time,
            log_start_offset: info.log_start_offset,
            record_errors: Vec::new(),
            error_message: None,
        }
    }

    pub fn failed(error: ReplicaError) -> Self {
        Self {
            error: Some(error),
            base_offset: -1,
            last_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            error_message: None,
        }
    }

    /// Kafka gives the log start offset beside all but the well-known errors, and a message beside refused records only.
    fn refused(error: ReplicaError, partition: Option<&Partition>) -> Self {
        let mut result = Self::failed(error);
        if !result.error.as_ref().is_some_and(is_well_known) {
            result.log_start_offset = partition.map_or(-1, Partition::log_start_offset_if_leader);
        }
        if let Some(ReplicaError::Log(LogError::Validation(
            ValidationError::InvalidRecord {
                message,
                record_errors,
            }
            | ValidationError::InvalidTimestamp {
                message,
                record_errors,
            },
        ))) = &result.error
            && !record_errors.is_empty()
        {
            result.error_message = Some(message.clone());
            result.record_errors = record_errors
                .iter()
                .map(|error| RecordError {
                    batch_index: error.batch_index,
                    message: error.message.clone(),
                })
                .collect();
        }
        result
    }
}

/// The errors that `ReplicaManager.appendToLocalLog` answers without a log start offset.
fn is_well_known(error: &ReplicaError) -> bool {
    matches!(
        error,
        ReplicaError::UnknownTopicOrPartition { .. }
            | ReplicaError::NotLeaderOrFollower { .. }
            | ReplicaError::KafkaStorage { .. }
            | ReplicaError::InvalidTopic { .. }
            | ReplicaError::Log(
                LogError::RecordTooLarge { .. }
                    | LogError::RecordBatchTooLarge { .. }
                    | LogError::CorruptRecord { .. }
                    | LogError::Storage { .. }
                    | LogError::NoSpace { .. }
                    | LogError::DirectoryOffline { .. }
                    | LogError::NoLogDirectory
                    | LogError::Closed { .. }
                    | LogError::Validation(
                        ValidationError::CorruptRecord(_) | ValidationError::RecordTooLarge(_)
                    )
            )
    )
}

struct Pending {
    index: usize,
    partition: Arc<Partition>,
    required_offset: i64,
}

/// An append whose order is fixed; what is left is to wait for the replicas.
pub struct Appended {
    results: Vec<(TopicIdPartition, AppendResult)>,
    pending: Vec<Pending>,
    deadline: Instant,
}

impl Appended {
    fn done(results: Vec<(TopicIdPartition, AppendResult)>) -> Self {
        Self {
            results,
            pending: Vec::new(),
            deadline: Instant::now(),
        }
    }

    /// Nothing to wait for: acks 0 or 1, an error, or replicated already.
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }

    /// The results so far, in the order of the entries: final if `is_complete`.
    pub fn into_results(self) -> Vec<(TopicIdPartition, AppendResult)> {
        self.results
    }

    /// The results in the order of the entries, once replicated or timed out.
    pub async fn completed(mut self) -> Vec<(TopicIdPartition, AppendResult)> {
        // A change of leadership wakes too, and may have decided nothing: then it goes on to wait.
        while !self.pending.is_empty() && self.changed().await {
            self.settle();
        }
        self.settle();
        for pending in &self.pending {
            self.results[pending.index].1.error = Some(ReplicaError::RequestTimedOut);
        }
        self.results
    }

    /// Until something happened to all that is pending. False: the deadline came first.
    async fn changed(&self) -> bool {
        let waiter = ProduceWaiter::new(self.pending.len());
        let mut watching = Vec::with_capacity(self.pending.len());
        for pending in &self.pending {
            let watch = pending
                .partition
                .waiters
                .watch_offset(&waiter, pending.required_offset);
            // Registered first, looked at afterwards: an event in between is not lost.
            match pending.partition.is_replicated(pending.required_offset) {
                Ok(false) => watching.push(watch),
                Ok(true) | Err(_) => watch.complete(),
            }
        }
        waiter.wait_until(self.deadline).await
    }

    /// Takes out of `pending` what is decided.
    fn settle(&mut self) {
        let results = &mut self.results;
        self.pending.retain(
            |pending| match pending.partition.is_replicated(pending.required_offset) {
                Ok(is_replicated) => !is_replicated,
                Err(error) => {
                    // The offsets stay in the answer, as in Kafka.
                    results[pending.index].1.error = Some(error);
                    false
                }
            },
        );
    }
}

/// With what transactional batches may open their transactions, by partition.
pub type VerificationGuards = HashMap<TopicPartition, VerificationGuard>;

impl ReplicaManager {
    /// Stage one of a produce: fixes the order. One append a partition, without a wait but for a disk that stalls.
    pub async fn append_records(
        &self,
        timeout_ms: u64,
        required_acks: i16,
        internal_topics_allowed: bool,
        entries: Vec<(TopicIdPartition, Bytes)>,
        guards: &VerificationGuards,
    ) -> Appended {
        if !matches!(required_acks, -1..=1) {
            let invalid = ReplicaError::InvalidRequiredAcks { acks: required_acks };
            let results = entries
                .into_iter()
                .map(|(id, _)| (id, AppendResult::failed(invalid.clone())));
            return Appended::done(results.collect());
        }
        self.append_all(timeout_ms, required_acks, entries, |id| {
            let topic: &str = &id.topic_partition.topic;
            if !internal_topics_allowed && INTERNAL_TOPICS.contains(&topic) {
                let topic = topic.to_owned();
                return Err(ReplicaError::InvalidTopic { topic });
            }
            let check = TransactionCheck {
                must_be_verified: self.verifies_transactions(),
                guard: guards.get(&id.topic_partition).copied(),
                ..Default::default()
            };
            Ok((AppendOrigin::Client, check))
        })
        .await
    }

    /// The same for the markers of a transaction, which a coordinator has made and all replicas must have.
    pub async fn append_markers(
        &self,
        timeout_ms: u64,
        transaction_version: i16,
        entries: Vec<(TopicIdPartition, Bytes)>,
    ) -> Appended {
        const ALL_REPLICAS: i16 = -1;
        let check = TransactionCheck {
            marker_version: transaction_version,
            ..Default::default()
        };
        self.append_all(timeout_ms, ALL_REPLICAS, entries, |_| {
            Ok((AppendOrigin::Coordinator, check))
        })
        .await
    }

    /// `terms` says how a partition may be appended to, or that it may not.
    async fn append_all(
        &self,
        timeout_ms: u64,
        required_acks: i16,
        entries: Vec<(TopicIdPartition, Bytes)>,
        terms: impl Fn(&TopicIdPartition) -> Result<(AppendOrigin, TransactionCheck), ReplicaError>,
    ) -> Appended {
        let mut results = Vec::with_capacity(entries.len());
        let mut pending = Vec::new();
        for (id, records) in entries {
            let result = match terms(&id) {
                Err(error) => AppendResult::failed(error),
                Ok(terms) => {
                    let (result, partition) =
                        self.append_to_local_log(&id, records, required_acks, terms).await;
                    if required_acks == -1
                        && let Some(partition) = partition
                    {
                        let required_offset = result.last_offset + 1;
                        pending.push(Pending {
                            index: results.len(),
                            partition,
                            required_offset,
                        });
                    }
                    result
                }
            };
            results.push((id, result));
        }
        if pending.is_empty() {
            return Appended::done(results);
        }
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let mut appended = Appended {
            results,
            pending,
            deadline,
        };
        // With one replica in sync all is replicated already.
        appended.settle();
        appended
    }

    /// The partition comes back if there is something to wait for.
    async fn append_to_local_log(
        &self,
        id: &TopicIdPartition,
        records: Bytes,
        required_acks: i16,
        (origin, check): (AppendOrigin, TransactionCheck),
    ) -> (AppendResult, Option<Arc<Partition>>) {
        let partition = match self.partition_of_topic(id, ReplicaError::UnknownTopicId) {
            Ok(partition) => partition,
            Err(error) => return (AppendResult::refused(error, None), None),
        };
        let log_dir = partition.log().parent_dir();
        let syncs = partition.log().config().flush_messages < i64::MAX;
        let now_ms = self.clock.now_ms();
        let appending = partition.clone();
        let append =
            move || appending.append_as_leader(&records, origin, required_acks, None, now_ms, &check);
        let appended = self.gate.run(&log_dir, syncs, append).await;
        match appended.unwrap_or(Err(ReplicaError::RequestTimedOut)) {
            Ok(info) => (AppendResult::appended(&info), Some(partition)),
            Err(error) => {
                tracing::debug!(partition = %id.topic_partition, %error, "append refused");
                (AppendResult::refused(error, Some(&partition)), None)
            }
        }
    }
}

#[cfg(test)]
#[path = "delayed_produce_test.rs"]
mod delayed_produce_test;
