//! librdkafka's consumer, and what it saw: polls, cut where the group moved it.
//!
//! It must begin at offsets that are numbers, never at logical ones (a beginning, an end, a tail), because librdkafka may
//! look a logical one up twice and go to where it is by then, without a word. When an answer to ListOffsets belongs to an
//! earlier assignment, `rd_kafka_toppar_handle_Offset` starts the timer of `rd_kafka_toppar_offset_retry` all the same;
//! the right answer does not stop it; 500 ms later `rd_kafka_offset_query_tmr_cb` asks again, though the partition is
//! fetched from long since, and `rd_kafka_toppar_next_offset_handle` moves it (librdkafka's issue 2256; seen with 2.12.1
//! and 2.16.0, and with Apache Kafka as the broker). That is what a broker that serves a log anew would look like. So the
//! ends are asked for here, and groups begin at offsets that were committed for them; what then goes back is no client's
//! doing, and the checker has nothing to allow.
//!
//! A member of a group whose assignment changes while it is told that a transaction is open on a partition (UNSTABLE_OFFSET_COMMIT)
//! takes it for one without a committed offset (`rd_kafka_assignment_apply_offsets` puts it back with the offset INVALID where
//! the request may not be tried again; seen with 2.12.1 and 2.16.0, and with Apache Kafka as the broker, where one in two to 33
//! assignments beside an open transaction began at 0). So members are not reset, but told, and end.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer, ConsumerContext, ConsumerGroupMetadata, Rebalance,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{ClientConfig, ClientContext, Message, Offset, TopicPartitionList};

use super::Surroundings;
use crate::history::{Body, ClientId, Isolation, Key, Member, Outcome, Poll, Read};

const CALL_PATIENCE: Duration = Duration::from_secs(10);
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);

/// Follows the group.
#[derive(Default)]
pub struct GroupContext {
    rebalances: AtomicU64,
    /// Taken when the assignment was new: what stands for it in a transaction. A client that was thrown out of its group
    /// would give one that fences nothing.
    metadata: Mutex<Option<Arc<ConsumerGroupMetadata>>>,
}

impl ClientContext for GroupContext {}

impl ConsumerContext for GroupContext {
    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        self.rebalances.fetch_add(1, Ordering::SeqCst);
        let metadata = match rebalance {
            Rebalance::Assign(_) => consumer.group_metadata().map(Arc::new),
            Rebalance::Revoke(_) | Rebalance::Error(_) => None,
        };
        *self.metadata.lock().unwrap_or_else(PoisonError::into_inner) = metadata;
    }
}

/// A consumer that is not waited for without end when it is closed.
///
/// The last rebalance is handled while it closes. An `rd_kafka_assign` that comes when the group's state is already TERM is taken
/// from the queue and never answered, and waits without a limit (seen three times in an hour of kills, with 2.12.1).
struct Closing {
    consumer: Option<BaseConsumer<GroupContext>>,
    surroundings: Arc<Surroundings>,
}

impl Deref for Closing {
    type Target = BaseConsumer<GroupContext>;

    fn deref(&self) -> &Self::Target {
        self.consumer.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let Some(consumer) = self.consumer.take() else {
            return;
        };
        let (closed, is_closed) = mpsc::channel();
        let close = move || {
            drop(consumer);
            // Who waited may have given up.
            let _ = closed.send(());
        };
        let closing = thread::Builder::new().name("closing".into()).spawn(close);
        if closing.is_ok() && is_closed.recv_timeout(CLOSE_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            self.surroundings.left_behind.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub struct Reader {
    pub client: ClientId,
    isolation: Isolation,
    consumer: Closing,
    surroundings: Arc<Surroundings>,
    has_lost_its_place: AtomicBool,
}

/// A partition's end was reached.
pub struct EndOfPartition;

impl Reader {
    /// One that is told where to read.
    pub fn new(surroundings: &Arc<Surroundings>, isolation: Isolation, group: &str) -> Result<Reader> {
        // Where a fetch is out of range, which means that records are gone.
        Self::with(surroundings, isolation, group, false, "earliest")
    }

    /// One that its group tells.
    pub fn member(
        surroundings: &Arc<Surroundings>,
        isolation: Isolation,
        group: &str,
        commits: bool,
    ) -> Result<Reader> {
        Self::with(surroundings, isolation, group, commits, "error")
    }

    fn with(
        surroundings: &Arc<Surroundings>,
        isolation: Isolation,
        group: &str,
        commits: bool,
        reset: &str,
    ) -> Result<Reader> {
        let real = match (isolation, surroundings.sabotage) {
            (Isolation::ReadCommitted, false) => "read_committed",
            (Isolation::ReadUncommitted, _) | (Isolation::ReadCommitted, true) => "read_uncommitted",
        };
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &surroundings.bootstrap)
            .set("group.id", format!("{}-{group}", surroundings.prefix))
            .set("isolation.level", real)
            .set("auto.offset.reset", reset)
            .set("enable.auto.commit", if commits { "true" } else { "false" })
            .set("auto.commit.interval.ms", "500")
            // What the client throws away while it is closed would count as read; see `store`.
            .set("enable.auto.offset.store", "false")
            // Shorter than a node lives here: a member that left while its group was rebalanced is there again after a
            // death, and waited for.
            .set("session.timeout.ms", "6000")
            .set("heartbeat.interval.ms", "500")
            .set("enable.partition.eof", "true")
            .set("fetch.wait.max.ms", "100")
            .set("reconnect.backoff.ms", "20")
            .set("reconnect.backoff.max.ms", "200")
            .set("retry.backoff.ms", "20");
        Ok(Reader {
            client: surroundings.recorder.client(),
            isolation,
            consumer: Closing {
                consumer: Some(
                    config
                        .create_with_context(GroupContext::default())
                        .context("a consumer")?,
                ),
                surroundings: surroundings.clone(),
            },
            surroundings: surroundings.clone(),
            has_lost_its_place: AtomicBool::new(false),
        })
    }

    /// A member does not know where to read on; the next one asks the group again.
    pub fn has_lost_its_place(&self) -> bool {
        self.has_lost_its_place.load(Ordering::Relaxed)
    }

    pub fn subscribe(&self, topics: &[u16]) -> Result<()> {
        let names: Vec<String> = topics
            .iter()
            .map(|topic| self.surroundings.topic(*topic))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(self.consumer.subscribe(&names)?)
    }

    pub fn assign(&self, places: &[(Key, i64)]) -> Result<()> {
        self.consumer.assign(&self.surroundings.offsets(places)?)?;
        self.repositioned();
        Ok(())
    }

    /// So many offsets before the ends.
    pub fn assign_near_ends(&self, keys: &[Key], distance: i64) -> Result<()> {
        let place = |key: &Key| Ok((*key, (self.end(*key)? - distance).max(0)));
        let places: Result<Vec<_>> = keys.iter().map(place).collect();
        self.assign(&places?)
    }

    /// Commits the beginnings for the group, which must have no member yet.
    pub fn commit_beginnings(&self, keys: &[Key]) -> Result<()> {
        let places: Vec<(Key, i64)> = keys.iter().map(|key| (*key, 0)).collect();
        let offsets = self.surroundings.offsets(&places)?;
        Ok(self.consumer.commit(&offsets, CommitMode::Sync)?)
    }

    /// What was read, and is in the history, may be committed.
    pub fn store(&self, reads: &[Read]) {
        for Read { key, offset, .. } in reads {
            let topic = self.surroundings.topic(key.topic);
            // Refused where the partition is another's by now: that one reads it again.
            let _ = self
                .consumer
                .store_offset(&topic, i32::from(key.partition), *offset);
        }
    }

    /// Where the group stands; nothing is pending any more when this succeeds.
    pub fn committed(&self, keys: &[Key]) -> Result<Vec<(Key, Option<i64>)>> {
        let mut asked = TopicPartitionList::new();
        for key in keys {
            asked.add_partition(&self.surroundings.topic(key.topic), i32::from(key.partition));
        }
        let told = self.consumer.committed_offsets(asked, CALL_PATIENCE)?;
        let elements = told.elements();
        let offsets = elements.iter().map(|element| {
            element.error()?;
            let key = self.surroundings.key(element.topic(), element.partition());
            let offset = match element.offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            };
            Ok((key.context("a topic of another run")?, offset))
        });
        offsets.collect()
    }

    /// Reads for its group from now on.
    pub fn joins(&self, group: &str) {
        let recorder = &self.surroundings.recorder;
        let member = Member {
            consumer: self.client,
            group: group.to_owned(),
            isolation: self.isolation,
        };
        recorder.record(self.client, recorder.now(), Outcome::Ok, Body::Member(member));
    }

    pub fn repositioned(&self) {
        let recorder = &self.surroundings.recorder;
        recorder.record(
            self.client,
            recorder.now(),
            Outcome::Ok,
            Body::Repositioned(self.client),
        );
    }

    fn rebalances(&self) -> u64 {
        self.consumer.context().rebalances.load(Ordering::SeqCst)
    }

    /// What stands for the assignment in a transaction, if there is one.
    pub fn group_metadata(&self) -> Option<Arc<ConsumerGroupMetadata>> {
        let metadata = &self.consumer.context().metadata;
        let metadata = metadata.lock().unwrap_or_else(PoisonError::into_inner);
        metadata.clone().filter(|_| !self.consumer.assignment_lost())
    }

    /// Up to `limit` records: one poll, or several where the consumer was moved between them.
    pub fn poll(&self, limit: usize, patience: Duration) -> Vec<Poll> {
        let deadline = Instant::now() + patience;
        let mut polls = vec![self.empty_poll()];
        let mut taken = 0;
        while taken < limit {
            let before = self.rebalances();
            let left = deadline.saturating_duration_since(Instant::now());
            let read = self.next(left);
            if self.rebalances() != before {
                self.close(&mut polls);
                self.repositioned();
                polls.push(self.empty_poll());
            }
            if let (Some(Ok(read)), Some(poll)) = (&read, polls.last_mut()) {
                poll.reads.push(*read);
                taken += 1;
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        self.close(&mut polls);
        polls
    }

    fn empty_poll(&self) -> Poll {
        Poll {
            consumer: self.client,
            isolation: self.isolation,
            completed: 0,
            reads: Vec::new(),
        }
    }

    fn close(&self, polls: &mut [Poll]) {
        if let Some(poll) = polls.last_mut() {
            poll.completed = self.surroundings.recorder.now();
        }
    }

    /// The next record; `None`: not in time, or an error that passes.
    pub fn next(&self, patience: Duration) -> Option<Result<Read, EndOfPartition>> {
        let message = match self.consumer.poll(patience)? {
            Ok(message) => message,
            Err(KafkaError::PartitionEOF(_)) => return Some(Err(EndOfPartition)),
            Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset)) => {
                self.has_lost_its_place.store(true, Ordering::Relaxed);
                return None;
            }
            Err(_) => return None,
        };
        // What cannot be read is taken as a value that nobody sent, and a strange topic as one that nobody sent to.
        let value = message.payload().and_then(super::value_of).unwrap_or(0);
        let strange = Key {
            topic: u16::MAX,
            partition: 0,
        };
        let key = self.surroundings.key(message.topic(), message.partition());
        Some(Ok(Read {
            key: key.unwrap_or(strange),
            offset: message.offset(),
            value,
        }))
    }

    /// The end of a partition for this reader: the last stable offset, or the high watermark.
    pub fn end(&self, key: Key) -> Result<i64> {
        let topic = self.surroundings.topic(key.topic);
        let partition = i32::from(key.partition);
        let (_, end) = self.consumer.fetch_watermarks(&topic, partition, CALL_PATIENCE)?;
        Ok(end)
    }

    /// Goes back to what the group has committed, as one must after a transaction that was not.
    pub fn rewind(&self) -> Result<()> {
        let assignment = self.consumer.assignment()?;
        if assignment.count() == 0 {
            return Ok(());
        }
        let committed = self.consumer.committed_offsets(assignment, CALL_PATIENCE)?;
        let mut moved = TopicPartitionList::new();
        for element in committed.elements() {
            element.error()?;
            let offset = match element.offset() {
                Offset::Offset(offset) => Offset::Offset(offset),
                _ => Offset::Offset(0),
            };
            moved.add_partition_offset(element.topic(), element.partition(), offset)?;
        }
        let moved = self.consumer.seek_partitions(moved, CALL_PATIENCE)?;
        for element in moved.elements() {
            element.error()?;
        }
        self.repositioned();
        Ok(())
    }
}
