//! Fetch: reads what is there, and waits for more if that is less than the fetcher wants.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::log::{FetchIsolation, LogError};
use crate::replica::fetch::{FetchParams, FetchPartition, FetchPartitionData, FetchResult};
use crate::replica::partition::ReadInfo;
use crate::replica::purgatory::{FetchWaiter, Watching};
use crate::replica::{Partition, ReplicaError, ReplicaManager, TopicIdPartition};

/// One pass over all partitions of a fetch.
struct Read {
    result: FetchResult,
    bytes: usize,
    /// An error, a diverging epoch, or more to read than could be taken: no reason to wait.
    must_answer: bool,
    /// Those that were read without an error: of a fetch that waits, all.
    seen: Vec<Seen>,
}

/// A partition that was read: to wait on, and not to read again while nothing happens to it.
struct Seen {
    partition: Arc<Partition>,
    /// The number of its events before it was read.
    events: u64,
    /// `None`: there was something.
    nothing: Option<Nothing>,
}

/// What is told of a partition that has nothing to read.
#[derive(Clone, Copy)]
struct Nothing {
    high_watermark: i64,
    last_stable_offset: i64,
    log_start_offset: i64,
}

impl Seen {
    /// The answer of a partition without an event since, if it had nothing to read. Its start may have moved: that is no event.
    fn again(&self, isolation: FetchIsolation) -> Option<FetchPartitionData> {
        let nothing = self.nothing?;
        if self.partition.log().log_start_offset() != nothing.log_start_offset {
            return None;
        }
        Some(FetchPartitionData {
            error: None,
            high_watermark: nothing.high_watermark,
            last_stable_offset: nothing.last_stable_offset,
            log_start_offset: nothing.log_start_offset,
            aborted_transactions: (isolation == FetchIsolation::TxnCommitted).then(Vec::new),
            diverging_epoch: None,
            preferred_read_replica: -1,
            records: Vec::new(),
        })
    }
}

impl ReplicaManager {
    /// Answers at once when there are `min_bytes`, an error or a diverging epoch; else when they are there, or after `max_wait_ms` with what
    /// there is. The order of the answer is that of the request.
    pub async fn fetch_messages(
        &self,
        params: &FetchParams,
        partitions: &[(TopicIdPartition, FetchPartition)],
    ) -> FetchResult {
        let mut read = self.read_from_log(params, partitions, Vec::new(), true).await;
        if params.max_wait_ms == 0 || partitions.is_empty() {
            return read.result;
        }
        let deadline = Instant::now() + Duration::from_millis(params.max_wait_ms);
        while !read.must_answer && read.bytes < params.min_bytes {
            let waiter = FetchWaiter::new(params.min_bytes - read.bytes);
            let watch = |seen: &Seen| {
                let waiters = &seen.partition.waiters;
                waiters.watch_data(&waiter, params.isolation, seen.events)
            };
            let watching: Option<Vec<_>> = read.seen.iter().map(watch).collect();
            // Nothing of a read that is not the answer is kept while it sleeps.
            read.result = Vec::new();
            // `None`: something came between the read and the registration.
            let woken = match &watching {
                Some(_) => waiter.wait_until(deadline).await,
                None => Instant::now() < deadline,
            };
            let unchanged = |(seen, watching): (Seen, Watching)| {
                let is_unchanged = watching.end() == seen.events;
                is_unchanged.then_some(seen)
            };
            let watched = read.seen.into_iter().zip(watching.unwrap_or_default());
            let unchanged = watched.map(unchanged).collect();
            read = self.read_from_log(params, partitions, unchanged, false).await;
            if !woken {
                break;
            }
        }
        read.result
    }

    /// `unchanged`: those of `partitions`, in their order, that had no event since they were read.
    async fn read_from_log(
        &self,
        params: &FetchParams,
        partitions: &[(TopicIdPartition, FetchPartition)],
        unchanged: Vec<Option<Seen>>,
        is_first_read: bool,
    ) -> Read {
        let mut read = Read {
            result: Vec::with_capacity(partitions.len()),
            bytes: 0,
            must_answer: false,
            seen: Vec::with_capacity(partitions.len()),
        };
        let now_ms = self.clock.now_ms();
        let mut unchanged = unchanged.into_iter();
        for (id, request) in partitions {
            if let Some(seen) = unchanged.next().flatten()
                && let Some(data) = seen.again(params.isolation)
            {
                read.seen.push(seen);
                read.result.push((id.clone(), data));
                continue;
            }
            let left = params.max_bytes.saturating_sub(read.bytes);
            let max_bytes = left.min(usize::try_from(request.max_bytes).unwrap_or(0));
            // The first batch of all comes whole, however large: else a fetcher would stand still before it.
            let min_one_message = read.bytes == 0;
            let data = match self.partition_of_topic(id, ReplicaError::InconsistentTopicId) {
                Ok(partition) => {
                    let events = partition.waiters.events();
                    let (reading, params, request) = (partition.clone(), params.clone(), *request);
                    let work = move || {
                        reading.fetch_records(
                            &params,
                            &request,
                            max_bytes,
                            min_one_message,
                            is_first_read,
                            now_ms,
                        )
                    };
                    let log_dir = partition.log().parent_dir();
                    let found = self.gate.run(&log_dir, false, work).await;
                    let found = found.unwrap_or(Err(ReplicaError::RequestTimedOut));
                    found.map(|info| read.take(partition, events, max_bytes, info))
                }
                Err(error) => Err(error),
            };
            let data = data.unwrap_or_else(|error| {
                read.must_answer = true;
                if !matches!(error, ReplicaError::Log(LogError::OffsetOutOfRange { .. })) {
                    tracing::debug!(partition = %id, %error, "fetch refused");
                }
                FetchPartitionData::failed(error)
            });
            read.result.push((id.clone(), data));
        }
        read
    }
}

impl Read {
    fn take(
        &mut self,
        partition: Arc<Partition>,
        events: u64,
        max_bytes: usize,
        info: ReadInfo,
    ) -> FetchPartitionData {
        let bytes = info.data.size_in_bytes();
        // What only found no place in the answer is something.
        let is_nothing = bytes == 0 && max_bytes > 0 && !info.data.first_entry_incomplete;
        self.bytes += bytes;
        self.must_answer |= info.diverging_epoch.is_some() || info.is_behind;
        self.seen.push(Seen {
            partition,
            events,
            nothing: is_nothing.then_some(Nothing {
                high_watermark: info.high_watermark,
                last_stable_offset: info.last_stable_offset,
                log_start_offset: info.log_start_offset,
            }),
        });
        FetchPartitionData {
            error: None,
            high_watermark: info.high_watermark,
            last_stable_offset: info.last_stable_offset,
            log_start_offset: info.log_start_offset,
            aborted_transactions: info.data.aborted_transactions,
            diverging_epoch: info.diverging_epoch,
            preferred_read_replica: -1,
            records: info.data.slices,
        }
    }
}

#[cfg(test)]
#[path = "delayed_fetch_test.rs"]
mod delayed_fetch_test;
