//! What a partition's context promises, on a shard that counts and a log that is a vector.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use super::super::loader::{LoadError, load};
use super::*;
use crate::coordinator::runtime::TransactionalProducer;
use crate::protocol::WireError;
use crate::record::control_record::{ControlRecordType, EndTransactionMarker, control_batch};
use crate::replica::{LeaderOffsets, PartitionListener, ReplicaError};
use bytes::BytesMut;

/// A map of numbers: `key=value`, `key` deletes.
#[derive(Default)]
pub(crate) struct Numbers {
    pub(crate) latest: BTreeMap<String, i64>,
    history: Vec<(i64, String, Option<i64>)>,
    committed: i64,
    pub(crate) loaded: bool,
    markers: Vec<(i64, i64, bool)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Set(String, Option<i64>);

/// A key that does not encode.
const UNWRITABLE: &str = "unwritable";

impl TimerEvent for String {
    type Key = String;

    fn key(&self) -> String {
        self.clone()
    }
}

impl CoordinatorShard for Numbers {
    type Record = Set;
    type Timer = String;
    type Reply = i64;
    type Pending = Token;

    fn encode(record: &Set) -> Result<(Bytes, Option<Bytes>), WireError> {
        if record.0 == UNWRITABLE {
            return Err(WireError::NotUtf8);
        }
        let value = record.1.map(|value| Bytes::copy_from_slice(&value.to_be_bytes()));
        Ok((Bytes::from(record.0.clone()), value))
    }

    fn decode(key: Bytes, value: Option<Bytes>) -> Result<Option<Set>, WireError> {
        let key = String::from_utf8(key.to_vec()).map_err(|_| WireError::NotUtf8)?;
        if key.starts_with('?') {
            return Ok(None);
        }
        let value = value.map(|value| i64::from_be_bytes(value[..8].try_into().unwrap()));
        Ok(Some(Set(key, value)))
    }

    fn replay(&mut self, offset: i64, _producer_id: i64, Set(key, value): Set) {
        let previous = match value {
            Some(value) => self.latest.insert(key.clone(), value),
            None => self.latest.remove(&key),
        };
        self.history.push((offset, key, previous));
    }

    fn replay_end_transaction_marker(&mut self, offset: i64, producer_id: i64, committed: bool) {
        self.markers.push((offset, producer_id, committed));
    }

    fn commit(&mut self, offset: i64) {
        self.committed = offset;
    }

    fn revert(&mut self, offset: i64) -> Vec<Effect<String, i64>> {
        while let Some((_, key, previous)) = self.history.pop_if(|(changed, ..)| *changed >= offset) {
            match previous {
                Some(value) => self.latest.insert(key, value),
                None => self.latest.remove(&key),
            };
        }
        Vec::new()
    }

    fn on_loaded(&mut self, _context: &OperationContext, _image: &Arc<MetadataImage>) -> Outcome<Self, ()> {
        self.loaded = true;
        Outcome::of(())
    }

    fn on_unloaded(&mut self, _context: &OperationContext) -> Vec<Effect<String, i64>> {
        Vec::new()
    }

    fn on_timer(&mut self, _context: &OperationContext, event: String) -> Outcome<Self, ()> {
        Outcome::with_records(vec![Set(event, Some(-1))], ())
    }

    fn on_appended(
        &mut self,
        _context: &OperationContext,
        token: Token,
        result: Result<(), ErrorCode>,
    ) -> Outcome<Self, ()> {
        let mut outcome = Outcome::of(());
        outcome.effects = vec![Effect::Reply(token, result.map_or(-1, |()| 1))];
        outcome
    }
}

/// A log that is a vector; other coordinators' tests use it too.
#[derive(Default)]
pub(crate) struct MemoryLog {
    pub(crate) batches: Mutex<Vec<Bytes>>,
    end: AtomicI64,
    high_watermark: AtomicI64,
    /// The high watermark follows the end by itself.
    commits_at_once: bool,
    pub(crate) refuse: Mutex<Option<ErrorCode>>,
    refuses_transactions: AtomicBool,
    /// Nothing is there: no log, nobody to hear of it.
    pub(crate) absent: AtomicBool,
    /// So many reads panic.
    pub(crate) panics: AtomicI64,
    pub(crate) listeners: Mutex<Vec<Arc<dyn PartitionListener>>>,
    max_bytes: usize,
}

impl MemoryLog {
    pub(crate) fn new(commits_at_once: bool) -> Arc<MemoryLog> {
        Arc::new(MemoryLog {
            commits_at_once,
            max_bytes: 1000,
            ..Default::default()
        })
    }

    pub(crate) fn commit(&self, tp: &TopicPartition) {
        let end = self.end.load(Ordering::SeqCst);
        self.high_watermark.store(end, Ordering::SeqCst);
        for listener in self.listeners.lock().unwrap().iter() {
            listener.on_high_watermark_updated(tp, end);
        }
    }

    pub(crate) fn push(&self, batch: Bytes) {
        let count = crate::record::BatchHeader::parse(&batch).unwrap().records_count;
        let base = self.end.fetch_add(i64::from(count), Ordering::SeqCst);
        let mut batch = BytesMut::from(&batch[..]);
        batch[..8].copy_from_slice(&base.to_be_bytes());
        self.batches.lock().unwrap().push(batch.freeze());
    }

    /// As that of a topic that was made anew.
    pub(crate) fn clear(&self) {
        self.batches.lock().unwrap().clear();
        self.end.store(0, Ordering::SeqCst);
        self.high_watermark.store(0, Ordering::SeqCst);
    }

    fn sizes(&self) -> Vec<i32> {
        let batches = self.batches.lock().unwrap();
        batches
            .iter()
            .map(|batch| crate::record::BatchHeader::parse(batch).unwrap().records_count)
            .collect()
    }
}

impl PartitionLog for MemoryLog {
    fn append(
        &self,
        tp: &TopicPartition,
        _epoch: i32,
        batch: Bytes,
        _check: TransactionCheck,
    ) -> Result<i64, ReplicaError> {
        match *self.refuse.lock().unwrap() {
            Some(ErrorCode::NotLeaderOrFollower) => {
                return Err(ReplicaError::NotLeaderOrFollower {
                    partition: tp.to_string(),
                });
            }
            Some(_) => return Err(ReplicaError::RequestTimedOut),
            None => {}
        }
        let header = crate::record::BatchHeader::parse(&batch).unwrap();
        if header.is_transactional() && self.refuses_transactions.load(Ordering::SeqCst) {
            return Err(ReplicaError::RequestTimedOut);
        }
        self.push(batch);
        if self.commits_at_once {
            self.commit(tp);
        }
        Ok(self.end.load(Ordering::SeqCst))
    }

    fn read(&self, _tp: &TopicPartition, start: i64, max_bytes: usize) -> Result<Bytes, ReplicaError> {
        if self.panics.fetch_sub(1, Ordering::SeqCst) > 0 {
            panic!("as the test wants it");
        }
        let mut out = BytesMut::new();
        for batch in self.batches.lock().unwrap().iter() {
            let header = crate::record::BatchHeader::parse(batch).unwrap();
            if header.last_offset() >= start && (out.is_empty() || out.len() + batch.len() <= max_bytes) {
                out.extend_from_slice(batch);
            }
        }
        Ok(out.freeze())
    }

    fn leader_offsets(&self, _tp: &TopicPartition) -> Result<LeaderOffsets, ReplicaError> {
        if self.absent.load(Ordering::SeqCst) {
            return Err(ReplicaError::RequestTimedOut);
        }
        Ok(LeaderOffsets {
            log_start_offset: 0,
            last_stable_offset: 0,
            high_watermark: self.high_watermark.load(Ordering::SeqCst),
            log_end_offset: self.end.load(Ordering::SeqCst),
        })
    }

    fn max_message_bytes(&self, _tp: &TopicPartition) -> usize {
        self.max_bytes
    }

    fn add_listener(&self, _tp: &TopicPartition, listener: Arc<dyn PartitionListener>) -> bool {
        if self.absent.load(Ordering::SeqCst) {
            return false;
        }
        self.listeners.lock().unwrap().push(listener);
        true
    }

    fn remove_listener(&self, _tp: &TopicPartition, listener: &Arc<dyn PartitionListener>) {
        let mut listeners = self.listeners.lock().unwrap();
        listeners.retain(|known| !Arc::ptr_eq(known, listener));
    }
}

#[derive(Default)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.monotonic_ms() + 1_000_000
    }
    fn monotonic_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) fn partition() -> TopicPartition {
    TopicPartition {
        topic: "numbers".into(),
        partition: 0,
    }
}

struct Harness {
    context: PartitionContext<Numbers>,
    log: Arc<MemoryLog>,
    clock: Arc<ManualClock>,
}

type Answered = Arc<Mutex<Vec<(&'static str, Result<(), ErrorCode>)>>>;

impl Harness {
    fn new(commits_at_once: bool) -> Harness {
        let (log, clock) = (MemoryLog::new(commits_at_once), Arc::new(ManualClock::default()));
        let config = ContextConfig {
            compression: Compression::None,
            base_sequence: 0,
            write_timeout_ms: 5000,
        };
        let context = PartitionContext::new(
            partition(),
            0,
            config,
            log.clone(),
            clock.clone(),
            Numbers::default(),
            0,
            0,
        );
        Harness { context, log, clock }
    }

    fn write(&mut self, answered: &Answered, name: &'static str, outcome: Outcome<Numbers, ()>) {
        let answered = answered.clone();
        let answer: Answer = Box::new(move |result| answered.lock().unwrap().push((name, result)));
        self.context.handle(Event::Write {
            parked: None,
            operation: Box::new(move |_, _| outcome.map(|()| Some(answer))),
        });
    }

    fn settle(&mut self) -> Result<(), OutOfSync> {
        let log = self.log.clone();
        self.context
            .settle(&move || log.high_watermark.load(Ordering::SeqCst))
    }

    fn commit(&mut self) {
        self.log.commit(&partition());
        self.context
            .on_high_watermark(self.log.high_watermark.load(Ordering::SeqCst));
        self.settle().unwrap();
    }
}

pub(crate) fn set(key: &str, value: i64) -> Outcome<Numbers, ()> {
    Outcome::with_records(vec![Set(key.into(), Some(value))], ())
}

#[test]
fn operations_of_one_turn_share_a_batch_and_answer_when_it_is_committed() {
    let mut harness = Harness::new(false);
    let answered = Answered::default();
    harness.write(&answered, "a", set("x", 1));
    harness.write(&answered, "b", set("x", 2));
    // It has seen what is not committed: it waits too.
    harness.write(&answered, "c", Outcome::of(()));
    harness.settle().unwrap();
    assert_eq!(harness.log.sizes(), [2]);
    assert!(answered.lock().unwrap().is_empty());
    assert_eq!(
        (
            harness.context.shard().latest["x"],
            harness.context.shard().committed
        ),
        (2, 0)
    );
    harness.write(&answered, "d", Outcome::of(()));
    harness.settle().unwrap();
    assert!(answered.lock().unwrap().is_empty());
    harness.commit();
    assert_eq!(
        *answered.lock().unwrap(),
        [("a", Ok(())), ("b", Ok(())), ("c", Ok(())), ("d", Ok(()))]
    );
    assert_eq!(harness.context.shard().committed, 2);
    harness.write(&answered, "e", Outcome::of(()));
    harness.settle().unwrap();
    assert_eq!(answered.lock().unwrap().len(), 5);
}

#[test]
fn append_that_fails_is_taken_back_and_told() {
    let mut harness = Harness::new(true);
    let answered = Answered::default();
    harness.write(&answered, "a", set("x", 1));
    harness.settle().unwrap();
    *harness.log.refuse.lock().unwrap() = Some(ErrorCode::NotLeaderOrFollower);
    harness.write(&answered, "b", set("x", 2));
    harness.write(&answered, "c", Outcome::of(()));
    harness.settle().unwrap();
    let failed = Err(ErrorCode::NotLeaderOrFollower);
    assert_eq!(
        *answered.lock().unwrap(),
        [("a", Ok(())), ("b", failed), ("c", failed)]
    );
    assert_eq!(harness.context.shard().latest["x"], 1);
    *harness.log.refuse.lock().unwrap() = None;
    harness.write(&answered, "d", set("y", 3));
    harness.settle().unwrap();
    assert_eq!(answered.lock().unwrap()[3], ("d", Ok(())));
}

#[test]
fn records_that_do_not_fit_go_into_the_next_batch_and_too_large_ones_nowhere() {
    let mut harness = Harness::new(true);
    let answered = Answered::default();
    harness.write(&answered, "a", many(4));
    harness.write(&answered, "b", many(4));
    harness.settle().unwrap();
    assert_eq!(harness.log.sizes(), [4, 4]);
    harness.write(&answered, "c", many(20));
    harness.settle().unwrap();
    assert_eq!(
        answered.lock().unwrap()[2],
        ("c", Err(ErrorCode::RecordListTooLarge))
    );
    assert_eq!(harness.log.sizes(), [4, 4]);
    let mut split = many(20);
    split.atomic = false;
    harness.write(&answered, "d", split);
    harness.settle().unwrap();
    assert_eq!(answered.lock().unwrap()[3], ("d", Ok(())));
    assert_eq!(harness.log.sizes().iter().sum::<i32>(), 28);
}

fn many(count: usize) -> Outcome<Numbers, ()> {
    let records = (0..count).map(|i| Set(format!("{i:0>100}"), Some(1)));
    Outcome::with_records(records.collect(), ())
}

#[test]
fn operation_that_cannot_be_written_is_refused_alone_and_before_it_is_applied() {
    for (refused, error) in [
        (many(20), ErrorCode::RecordListTooLarge),
        (set(UNWRITABLE, 1), ErrorCode::UnknownServerError),
    ] {
        let mut harness = Harness::new(true);
        let answered = Answered::default();
        harness.write(&answered, "before", set("x", 1));
        let noted = answered.clone();
        harness.context.handle(Event::Write {
            parked: None,
            operation: Box::new(move |shard, context| {
                // As a classic group does, which is not replayed.
                shard.replay(context.next_offset, -1, Set("soft".into(), Some(1)));
                let answer: Answer = Box::new(move |result| noted.lock().unwrap().push(("refused", result)));
                refused.map(|()| Some(answer))
            }),
        });
        harness.write(&answered, "reads", Outcome::of(()));
        harness.write(&answered, "after", set("y", 2));
        harness.settle().unwrap();
        assert_eq!(
            *answered.lock().unwrap(),
            [
                ("refused", Err(error)),
                ("before", Ok(())),
                ("reads", Ok(())),
                ("after", Ok(()))
            ]
        );
        assert_eq!(harness.log.sizes(), [2]);
        let kept = BTreeMap::from([("x".into(), 1), ("y".into(), 2)]);
        assert_eq!(harness.context.shard().latest, kept);
    }
}

#[test]
fn operation_that_is_small_enough_once_compressed_is_written() {
    let mut harness = Harness::new(true);
    harness.context.config.compression = Compression::Gzip;
    let answered = Answered::default();
    harness.write(&answered, "a", many(20));
    harness.write(&answered, "b", many(200));
    harness.settle().unwrap();
    let too_large = Err(ErrorCode::RecordListTooLarge);
    assert_eq!(*answered.lock().unwrap(), [("b", too_large), ("a", Ok(()))]);
    assert_eq!(harness.log.sizes(), [20]);
}

#[test]
fn records_of_a_transaction_that_are_refused_fail_nobody_else() {
    let mut harness = Harness::new(true);
    harness.log.refuses_transactions.store(true, Ordering::SeqCst);
    let answered = Answered::default();
    harness.write(&answered, "before", set("a", 1));
    let mut transactional = set("b", 2);
    transactional.transaction = Some(TransactionalAppend {
        producer: TransactionalProducer {
            producer_id: 9,
            producer_epoch: 2,
        },
        guard: None,
    });
    harness.write(&answered, "transactional", transactional);
    harness.write(&answered, "reads", Outcome::of(()));
    harness.write(&answered, "after", set("c", 3));
    harness.settle().unwrap();
    let mut answered = answered.lock().unwrap().clone();
    answered.sort();
    let refused = Err(ErrorCode::RequestTimedOut);
    assert_eq!(
        answered,
        [
            ("after", Ok(())),
            ("before", Ok(())),
            ("reads", Ok(())),
            ("transactional", refused)
        ]
    );
    assert_eq!(harness.log.sizes(), [1, 1]);
}

#[test]
fn parked_reply_of_an_operation_that_fails_is_forgotten() {
    let mut harness = Harness::new(false);
    let mut replies = Vec::new();
    let mut park = |harness: &mut Harness, token, outcome: Option<Outcome<Numbers, ()>>| {
        let (sender, reply) = oneshot::channel();
        replies.push(reply);
        harness.context.handle(Event::Write {
            parked: Some((token, sender)),
            operation: Box::new(move |_, _| match outcome {
                Some(outcome) => outcome.map(|()| Some(Box::new(|_| {}) as Answer)),
                None => Outcome::of(None),
            }),
        });
        harness.settle().unwrap();
    };
    park(&mut harness, 1, None);
    park(&mut harness, 2, Some(many(20)));
    assert!(harness.context.parked.is_empty());
    // Not committed in time.
    park(&mut harness, 3, Some(set("x", 1)));
    park(&mut harness, 4, Some(Outcome::of(())));
    assert_eq!(harness.context.parked.len(), 2);
    harness.clock.0.store(5000, Ordering::SeqCst);
    harness.context.on_time();
    harness.settle().unwrap();
    assert!(harness.context.parked.is_empty());
    *harness.log.refuse.lock().unwrap() = Some(ErrorCode::NotLeaderOrFollower);
    park(&mut harness, 5, Some(set("x", 2)));
    assert!(harness.context.parked.is_empty());
    *harness.log.refuse.lock().unwrap() = None;
    park(&mut harness, 6, Some(set("x", 3)));
    harness.commit();
    // It may come later.
    assert_eq!(harness.context.parked.len(), 1);
}

#[test]
fn operation_that_is_not_committed_in_time_is_given_up() {
    let mut harness = Harness::new(false);
    let answered = Answered::default();
    harness.write(&answered, "a", set("x", 1));
    harness.settle().unwrap();
    assert_eq!(harness.context.next_deadline_ms(), Some(5000));
    harness.clock.0.store(5000, Ordering::SeqCst);
    harness.context.on_time();
    harness.settle().unwrap();
    assert_eq!(
        *answered.lock().unwrap(),
        [("a", Err(ErrorCode::RequestTimedOut))]
    );
    // What was written stays.
    harness.commit();
    assert_eq!(harness.context.shard().committed, 1);
}

#[test]
fn pending_of_an_operation_comes_back_with_the_result() {
    let mut harness = Harness::new(false);
    let (sender, mut reply) = oneshot::channel();
    harness.context.handle(Event::Write {
        parked: Some((7, sender)),
        operation: Box::new(|_, _| {
            let mut outcome = set("x", 1).map(|()| None);
            outcome.pending = Some(7);
            outcome
        }),
    });
    harness.settle().unwrap();
    assert!(reply.try_recv().is_err());
    harness.commit();
    assert_eq!(reply.try_recv(), Ok(1));
}

#[test]
fn timer_writes_like_an_operation() {
    let mut harness = Harness::new(true);
    let mut outcome: Outcome<Numbers, ()> = Outcome::of(());
    outcome.effects = vec![Effect::Schedule {
        after_ms: 10,
        event: "late".to_string(),
    }];
    let answered = Answered::default();
    harness.write(&answered, "a", outcome);
    harness.settle().unwrap();
    assert_eq!(harness.context.next_deadline_ms(), Some(10));
    harness.clock.0.store(10, Ordering::SeqCst);
    harness.context.on_time();
    harness.settle().unwrap();
    assert_eq!(harness.context.shard().latest["late"], -1);
    assert_eq!(harness.log.sizes(), [1]);
}

#[test]
fn log_that_somebody_else_wrote_to_is_out_of_sync() {
    let mut harness = Harness::new(true);
    let answered = Answered::default();
    harness.log.end.store(5, Ordering::SeqCst);
    harness.write(&answered, "a", set("x", 1));
    assert_eq!(harness.settle(), Err(OutOfSync));
    assert_eq!(*answered.lock().unwrap(), [("a", Err(ErrorCode::NotCoordinator))]);
}

#[test]
fn unloading_tells_all_who_wait() {
    let mut harness = Harness::new(false);
    let answered = Answered::default();
    harness.write(&answered, "a", set("x", 1));
    harness.settle().unwrap();
    harness.write(&answered, "b", set("x", 2));
    let (sender, mut reply) = oneshot::channel();
    harness.context.handle(Event::Write {
        parked: Some((1, sender)),
        operation: Box::new(|_, _| Outcome::of(None)),
    });
    harness.context.unload();
    let mut answered = answered.lock().unwrap().clone();
    answered.sort();
    let gone = Err(ErrorCode::NotCoordinator);
    assert_eq!(answered, [("a", gone), ("b", gone)]);
    assert_eq!(reply.try_recv(), Err(oneshot::error::TryRecvError::Closed));
}

pub(crate) fn batch(records: &[(&str, i64)], options: BatchOptions) -> Bytes {
    let mut builder = BatchBuilder::new(options);
    for (key, value) in records {
        builder.append(1, Some(key.as_bytes()), Some(&value.to_be_bytes()), &[]);
    }
    builder.build().unwrap()
}

#[test]
fn loading_replays_batches_markers_and_passes_over_unknown_records() {
    let log = MemoryLog::new(true);
    let options = BatchOptions::default();
    log.push(batch(&[("a", 1), ("?new", 2)], options));
    log.push(batch(
        &[("b", 3)],
        BatchOptions {
            compression: Compression::Gzip,
            ..options
        },
    ));
    let transaction = BatchOptions {
        producer_id: 9,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..options
    };
    let marker = EndTransactionMarker {
        control_type: ControlRecordType::Commit,
        coordinator_epoch: 0,
    };
    log.push(control_batch(transaction, ControlRecordType::Commit, &marker.value(), 1).unwrap());
    log.high_watermark.store(3, Ordering::SeqCst);
    let mut shard = Numbers::default();
    let loaded = load(&mut shard, log.as_ref(), &partition(), 1, &|| false).unwrap();
    assert_eq!(
        (loaded.end_offset, loaded.high_watermark, loaded.records),
        (4, 3, 3)
    );
    assert_eq!(shard.latest, BTreeMap::from([("a".into(), 1), ("b".into(), 3)]));
    assert_eq!((shard.markers.clone(), shard.committed), (vec![(3, 9, true)], 3));
    let stopped = load(&mut shard, log.as_ref(), &partition(), 1, &|| true);
    assert!(matches!(stopped, Err(LoadError::Stopped)));
}

#[test]
fn records_of_a_transaction_have_a_batch_of_their_own_and_a_marker_ends_them() {
    let mut harness = Harness::new(false);
    let answered = Answered::default();
    let producer = TransactionalProducer {
        producer_id: 9,
        producer_epoch: 2,
    };
    harness.write(&answered, "plain", set("a", 1));
    let mut transactional = set("b", 2);
    transactional.transaction = Some(TransactionalAppend {
        producer,
        guard: None,
    });
    harness.write(&answered, "transactional", transactional);
    let noted = answered.clone();
    harness.context.handle(Event::EndTransaction {
        end: TransactionEnd {
            producer,
            coordinator_epoch: 4,
            committed: true,
            transaction_version: 0,
        },
        answer: Box::new(move |result| noted.lock().unwrap().push(("marker", result))),
    });
    harness.write(&answered, "after", set("c", 3));
    harness.settle().unwrap();
    let batches = harness.log.batches.lock().unwrap().clone();
    let headers: Vec<_> = batches
        .iter()
        .map(|batch| crate::record::BatchHeader::parse(batch).unwrap())
        .map(|header| (header.producer_id, header.is_transactional(), header.is_control()))
        .collect();
    let (plain, own, marker) = ((-1, false, false), (9, true, false), (9, true, true));
    assert_eq!(headers, [plain, own, marker, plain]);
    assert_eq!(harness.context.shard().markers, [(2, 9, true)]);
    assert!(answered.lock().unwrap().is_empty());
    harness.commit();
    let names: Vec<_> = answered.lock().unwrap().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["plain", "transactional", "marker", "after"]);
}

#[test]
fn marker_that_cannot_be_written_is_not_applied() {
    let mut harness = Harness::new(true);
    *harness.log.refuse.lock().unwrap() = Some(ErrorCode::NotLeaderOrFollower);
    let answered = Answered::default();
    let noted = answered.clone();
    harness.context.handle(Event::EndTransaction {
        end: TransactionEnd {
            producer: TransactionalProducer {
                producer_id: 9,
                producer_epoch: 2,
            },
            coordinator_epoch: 4,
            committed: false,
            transaction_version: 0,
        },
        answer: Box::new(move |result| noted.lock().unwrap().push(("marker", result))),
    });
    harness.settle().unwrap();
    assert_eq!(
        *answered.lock().unwrap(),
        [("marker", Err(ErrorCode::NotLeaderOrFollower))]
    );
    assert!(harness.context.shard().markers.is_empty());
}
