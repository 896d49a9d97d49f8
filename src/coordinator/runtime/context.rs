//! One partition's coordinator: the shard, the batch being filled, what waits for the high watermark, the timers.
//!
//! [`PartitionContext`] is synchronous: it is handed events, the high watermark and the time; `run` is the task around it.
//!
//! Offsets, in order: `committed` <= `written` (the log's end) <= `next` (with the batch being filled).
//! Invariants: a waiting answer is in the batch or in `deferred`, never both; `deferred` is in the order of offsets, and so
//! of deadlines; what was reverted answered with an error.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::log::{PartitionLog, error_code};
use super::shard::{
    CoordinatorShard, Effect, OperationContext, Outcome, Token, TopicChanges, TransactionEnd,
    TransactionalAppend,
};
use super::timer::{TimerEvent, TimerQueue};
use crate::io::clock::Clock;
use crate::log::{TopicPartition, TransactionCheck};
use crate::metadata::MetadataImage;
use crate::protocol::ErrorCode;
use crate::record::control_record::{ControlRecordType, EndTransactionMarker, control_batch};
use crate::record::{BatchBuilder, BatchOptions, Compression, RECORD_BATCH_OVERHEAD};

/// Completes a write operation.
pub type Answer = Box<dyn FnOnce(Result<(), ErrorCode>) + Send>;
pub type WriteOperation<S> = Box<dyn FnOnce(&mut S, &OperationContext) -> Outcome<S, Option<Answer>> + Send>;
/// Reads what is committed below the given offset.
pub type ReadOperation<S> = Box<dyn FnOnce(&S, i64) + Send>;

/// What a partition's task is asked to do.
pub enum Event<S: CoordinatorShard> {
    Write {
        /// A reply to park before the operation runs.
        parked: Option<(Token, oneshot::Sender<S::Reply>)>,
        operation: WriteOperation<S>,
    },
    Read(ReadOperation<S>),
    /// Ends a transaction on the partition.
    EndTransaction {
        end: TransactionEnd,
        answer: Answer,
    },
}

/// Waits for records to be committed.
struct Waiting<S: CoordinatorShard> {
    pending: Option<S::Pending>,
    answer: Option<Answer>,
    /// The reply that is parked for the operation: one that fails gives none.
    parked: Option<Token>,
}

/// Answers that leave when the high watermark reaches `offset`.
struct Deferred<S: CoordinatorShard> {
    offset: i64,
    deadline_ms: i64,
    waiting: Vec<Waiting<S>>,
}

/// Key and value.
type EncodedRecord = (Bytes, Option<Bytes>);

struct Batch<S: CoordinatorShard> {
    base_offset: i64,
    transaction: Option<TransactionalAppend>,
    records: Vec<EncodedRecord>,
    size: usize,
    waiting: Vec<Waiting<S>>,
}

/// The log is not what the shard thinks it is: the shard must be loaded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfSync;

#[derive(Debug, Clone)]
pub struct ContextConfig {
    pub compression: Compression,
    /// Of every batch: Kafka's group coordinator writes 0, with a producer or without; its transaction coordinator -1 (none).
    pub base_sequence: i32,
    /// An operation that is not committed by then is answered with an error.
    pub write_timeout_ms: i64,
}

/// Bytes of a record beside its key and value, at most: varints and the header count.
const RECORD_OVERHEAD_MAX: usize = 32;
/// Batches are cut here even where the topic allows more.
const BATCH_BYTES: usize = 512 * 1024;
const TIMERS_A_TURN: usize = 1000;

pub struct PartitionContext<S: CoordinatorShard> {
    topic_partition: TopicPartition,
    leader_epoch: i32,
    config: ContextConfig,
    log: Arc<dyn PartitionLog>,
    clock: Arc<dyn Clock>,
    shard: S,
    timers: TimerQueue<S::Timer>,
    parked: HashMap<Token, oneshot::Sender<S::Reply>>,
    batch: Option<Batch<S>>,
    deferred: VecDeque<Deferred<S>>,
    /// Results that are known and not yet told.
    completions: VecDeque<(Waiting<S>, Result<(), ErrorCode>)>,
    committed: i64,
    written: i64,
    next: i64,
    out_of_sync: bool,
}

impl<S: CoordinatorShard> PartitionContext<S> {
    /// A context around a shard that has just been loaded up to `written`.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        topic_partition: TopicPartition,
        leader_epoch: i32,
        config: ContextConfig,
        log: Arc<dyn PartitionLog>,
        clock: Arc<dyn Clock>,
        shard: S,
        written: i64,
        committed: i64,
    ) -> Self {
        Self {
            topic_partition,
            leader_epoch,
            config,
            log,
            clock,
            shard,
            timers: TimerQueue::default(),
            parked: HashMap::new(),
            batch: None,
            deferred: VecDeque::new(),
            completions: VecDeque::new(),
            committed,
            written,
            next: written,
            out_of_sync: false,
        }
    }

    pub fn shard(&self) -> &S {
        &self.shard
    }

    pub fn set_leader_epoch(&mut self, leader_epoch: i32) {
        self.leader_epoch = leader_epoch;
    }

    fn operation_context(&self) -> OperationContext {
        OperationContext {
            now_ms: self.clock.now_ms(),
            next_offset: self.next,
        }
    }

    /// The shard is live from here on.
    pub fn start(&mut self, image: &Arc<MetadataImage>) {
        let context = self.operation_context();
        let outcome = self.shard.on_loaded(&context, image);
        self.apply(outcome.map(|()| None), None);
    }

    pub fn on_metadata_update(&mut self, image: &Arc<MetadataImage>, changes: &TopicChanges) {
        self.shard.on_metadata_update(image, changes);
    }

    pub fn handle(&mut self, event: Event<S>) {
        match event {
            Event::Write { parked, operation } => {
                let parked = parked.map(|(token, sender)| {
                    self.parked.insert(token, sender);
                    token
                });
                let context = self.operation_context();
                let outcome = operation(&mut self.shard, &context);
                self.apply(outcome, parked);
            }
            Event::Read(operation) => operation(&self.shard, self.committed),
            Event::EndTransaction { end, answer } => self.end_transaction(end, answer),
        }
    }

    /// Fires the timers that are due and gives up on what waited too long.
    pub fn on_time(&mut self) {
        let now_ms = self.clock.monotonic_ms();
        for _ in 0..TIMERS_A_TURN {
            let Some(event) = self.timers.pop_due(now_ms) else {
                break;
            };
            let context = self.operation_context();
            let outcome = self.shard.on_timer(&context, event);
            self.apply(outcome.map(|()| None), None);
        }
        while self
            .deferred
            .front()
            .is_some_and(|first| first.deadline_ms <= now_ms)
        {
            if let Some(late) = self.deferred.pop_front() {
                self.complete(late.waiting, Err(ErrorCode::RequestTimedOut));
            }
        }
    }

    pub fn on_high_watermark(&mut self, high_watermark: i64) {
        let committed = high_watermark.min(self.written);
        if committed <= self.committed {
            return;
        }
        self.committed = committed;
        self.shard.commit(committed);
        while self
            .deferred
            .front()
            .is_some_and(|first| first.offset <= committed)
        {
            if let Some(done) = self.deferred.pop_front() {
                self.complete(done.waiting, Ok(()));
            }
        }
    }

    /// Whether `on_high_watermark` has something to do.
    pub fn is_behind(&self, high_watermark: i64) -> bool {
        high_watermark.min(self.written) > self.committed
    }

    /// When `on_time` has something to do; monotonic.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let waiting = self.deferred.front().map(|first| first.deadline_ms);
        let timer = self.timers.next_deadline_ms();
        waiting.into_iter().chain(timer).min()
    }

    /// Ends a turn: appends what was gathered and tells all results, which may gather more.
    pub fn settle(&mut self, high_watermark: &dyn Fn() -> i64) -> Result<(), OutOfSync> {
        loop {
            while let Some((waiting, result)) = self.completions.pop_front() {
                self.tell(waiting, result);
            }
            if self.batch.is_none() {
                break;
            }
            // A failed append has told those who wait already.
            let _ = self.flush();
            self.on_high_watermark(high_watermark());
        }
        if self.out_of_sync { Err(OutOfSync) } else { Ok(()) }
    }

    /// Tells everybody that this is no coordinator any more, and takes the shard apart.
    pub fn unload(mut self) {
        let context = self.operation_context();
        let effects = self.shard.on_unloaded(&context);
        self.run_effects(effects);
        if let Some(batch) = self.batch.take() {
            self.complete(batch.waiting, Err(ErrorCode::NotCoordinator));
        }
        while let Some(deferred) = self.deferred.pop_front() {
            self.complete(deferred.waiting, Err(ErrorCode::NotCoordinator));
        }
        for (waiting, result) in std::mem::take(&mut self.completions) {
            if let Some(answer) = waiting.answer {
                answer(result);
            }
        }
        // Dropping the parked replies tells those who wait for them.
    }

    fn complete(&mut self, waiting: Vec<Waiting<S>>, result: Result<(), ErrorCode>) {
        self.completions
            .extend(waiting.into_iter().map(|waiting| (waiting, result)));
    }

    fn tell(&mut self, waiting: Waiting<S>, result: Result<(), ErrorCode>) {
        if let Some(pending) = waiting.pending {
            let context = self.operation_context();
            let outcome = self.shard.on_appended(&context, pending, result);
            self.apply(outcome.map(|()| None), None);
        }
        if let Some(answer) = waiting.answer {
            answer(result);
        }
        if result.is_err() {
            self.forget_parked(waiting.parked);
        }
    }

    /// The operation has failed: who waits for its reply is told that, and not what may come of it later.
    fn forget_parked(&mut self, parked: Option<Token>) {
        if let Some(token) = parked {
            self.parked.remove(&token);
        }
    }

    fn run_effects(&mut self, effects: Vec<Effect<S::Timer, S::Reply>>) {
        for effect in effects {
            match effect {
                Effect::Schedule { after_ms, event } => {
                    let deadline_ms = self.clock.monotonic_ms().saturating_add(after_ms.max(0));
                    self.timers.schedule(deadline_ms, event);
                }
                Effect::ScheduleIfAbsent { after_ms, event } => {
                    let deadline_ms = self.clock.monotonic_ms().saturating_add(after_ms.max(0));
                    self.timers.schedule_if_absent(deadline_ms, event);
                }
                Effect::Cancel(event) => self.timers.cancel(&event.key()),
                Effect::Reply(token, reply) => {
                    if let Some(sender) = self.parked.remove(&token) {
                        // The connection may be gone; the answer goes with it.
                        let _ = sender.send(reply);
                    }
                }
            }
        }
    }

    /// Does what an operation wants: effects at once, records into the batch.
    fn apply(&mut self, outcome: Outcome<S, Option<Answer>>, parked: Option<Token>) {
        self.run_effects(outcome.effects);
        let waiting = Waiting {
            pending: outcome.pending,
            answer: outcome.response,
            parked,
        };
        if outcome.records.is_empty() {
            self.wait_for_what_is_uncommitted(waiting);
            return;
        }
        let is_transactional = outcome.transaction.is_some();
        let gathered = self.gather(
            outcome.records,
            outcome.replay,
            outcome.atomic,
            outcome.transaction,
        );
        if let Err(error) = gathered {
            // What the operation changed by itself is not to stay either.
            let effects = self.shard.revert(self.next);
            self.run_effects(effects);
            self.completions.push_back((waiting, Err(error)));
            return;
        }
        match &mut self.batch {
            Some(batch) => batch.waiting.push(waiting),
            None => self.completions.push_back((waiting, Ok(()))),
        }
        if is_transactional {
            // The log may refuse it for what the producer is, which is nobody else's concern. Who waits has been told then.
            let _ = self.flush();
        }
    }

    /// An operation that wrote nothing may have seen what others wrote.
    fn wait_for_what_is_uncommitted(&mut self, waiting: Waiting<S>) {
        if waiting.pending.is_none() && waiting.answer.is_none() {
            // It was refused, and has been told.
            self.forget_parked(waiting.parked);
            return;
        }
        if let Some(batch) = &mut self.batch {
            batch.waiting.push(waiting);
        } else if self.committed < self.written {
            self.defer(vec![waiting]);
        } else {
            self.completions.push_back((waiting, Ok(())));
        }
    }

    fn defer(&mut self, waiting: Vec<Waiting<S>>) {
        let deadline_ms = self.clock.monotonic_ms() + self.config.write_timeout_ms;
        match self.deferred.back_mut() {
            Some(last) if last.offset == self.written && last.deadline_ms == deadline_ms => {
                last.waiting.extend(waiting);
            }
            _ => self.deferred.push_back(Deferred {
                offset: self.written,
                deadline_ms,
                waiting,
            }),
        }
    }

    fn encode(&self, records: &[S::Record]) -> Result<Vec<EncodedRecord>, ErrorCode> {
        let mut encoded = Vec::with_capacity(records.len());
        for record in records {
            match S::encode(record) {
                Ok(pair) => encoded.push(pair),
                Err(error) => {
                    tracing::error!(partition = %self.topic_partition, %error, ?record, "a record cannot be written");
                    return Err(ErrorCode::UnknownServerError);
                }
            }
        }
        Ok(encoded)
    }

    /// Refuses an operation that no batch can hold before anything of it is applied, and others wait in its batch. What seems
    /// too large may be small enough once it is compressed: it is tried out.
    fn check_size(
        &self,
        records: &[EncodedRecord],
        options: BatchOptions,
        max: usize,
    ) -> Result<(), ErrorCode> {
        let estimated = RECORD_BATCH_OVERHEAD + records.iter().map(size_of_record).sum::<usize>();
        if estimated <= max {
            return Ok(());
        }
        let bytes = build(records, self.clock.now_ms(), options)?.len();
        if bytes <= max {
            return Ok(());
        }
        tracing::error!(
            partition = %self.topic_partition, bytes,
            "records are larger than the maximum batch size; consider raising max.message.bytes"
        );
        Err(ErrorCode::RecordListTooLarge)
    }

    /// Replays records and adds them to the batch; those of a transaction get one of their own. An error is one before anything
    /// of them was applied, or of a batch that was taken back.
    fn gather(
        &mut self,
        records: Vec<S::Record>,
        replay: bool,
        atomic: bool,
        transaction: Option<TransactionalAppend>,
    ) -> Result<(), ErrorCode> {
        let encoded = self.encode(&records)?;
        let atomic = atomic || transaction.is_some();
        let bytes_max = self.log.max_message_bytes(&self.topic_partition);
        let options = options(&self.config, transaction);
        for together in encoded.chunks(if atomic { encoded.len().max(1) } else { 1 }) {
            self.check_size(together, options, bytes_max)?;
        }
        let max = bytes_max.min(BATCH_BYTES);
        if transaction.is_some() {
            self.flush()?;
        }
        if atomic {
            self.make_room(encoded.iter().map(size_of_record).sum(), max)?;
        }
        for (record, pair) in records.into_iter().zip(encoded) {
            let size = size_of_record(&pair);
            if !atomic {
                self.make_room(size, max)?;
            }
            if replay {
                let producer_id = transaction.map_or(-1, |transaction| transaction.producer.producer_id);
                self.shard.replay(self.next, producer_id, record);
            }
            let batch = self.batch.get_or_insert_with(|| Batch {
                base_offset: self.next,
                transaction,
                records: Vec::new(),
                size: RECORD_BATCH_OVERHEAD,
                waiting: Vec::new(),
            });
            batch.records.push(pair);
            batch.size += size;
            self.next += 1;
        }
        Ok(())
    }

    /// Appends the batch if `size` more bytes would not fit.
    fn make_room(&mut self, size: usize, max: usize) -> Result<(), ErrorCode> {
        match &self.batch {
            Some(batch) if batch.size + size > max => self.flush(),
            _ => Ok(()),
        }
    }

    /// Appends the batch. On failure its changes are taken back and those who wait for it are told.
    fn flush(&mut self) -> Result<(), ErrorCode> {
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        let check = TransactionCheck {
            guard: batch.transaction.and_then(|transaction| transaction.guard),
            ..Default::default()
        };
        let options = options(&self.config, batch.transaction);
        let written = build(&batch.records, self.clock.now_ms(), options).and_then(|bytes| {
            if bytes.len() > self.log.max_message_bytes(&self.topic_partition) {
                tracing::error!(
                    partition = %self.topic_partition, bytes = bytes.len(),
                    "records are larger than the maximum batch size; consider raising max.message.bytes"
                );
                return Err(ErrorCode::RecordListTooLarge);
            }
            self.log
                .append(&self.topic_partition, self.leader_epoch, bytes, check)
                .map_err(|error| {
                    tracing::warn!(partition = %self.topic_partition, %error, "records could not be written");
                    error_code(&error)
                })
        });
        match written {
            Ok(offset) if offset == self.next => {
                self.written = offset;
                self.defer(batch.waiting);
                Ok(())
            }
            Ok(offset) => {
                tracing::error!(
                    partition = %self.topic_partition, offset, expected = self.next,
                    "the coordinator is out of sync with its log and will be loaded again"
                );
                self.out_of_sync = true;
                self.fail(batch, ErrorCode::NotCoordinator)
            }
            Err(error) => self.fail(batch, error),
        }
    }

    /// Writes a marker behind all that was gathered, and applies it.
    fn end_transaction(&mut self, end: TransactionEnd, answer: Answer) {
        let waiting = Waiting {
            pending: None,
            answer: Some(answer),
            parked: None,
        };
        // What cannot be written has told those who wait; the marker goes its own way.
        let _ = self.flush();
        match self.write_marker(end) {
            Ok(offset) if offset == self.next + 1 => {
                let producer_id = end.producer.producer_id;
                self.shard
                    .replay_end_transaction_marker(self.next, producer_id, end.committed);
                self.next = offset;
                self.written = offset;
                self.defer(vec![waiting]);
            }
            Ok(offset) => {
                tracing::error!(
                    partition = %self.topic_partition, offset, expected = self.next + 1,
                    "the coordinator is out of sync with its log and will be loaded again"
                );
                self.out_of_sync = true;
                self.complete(vec![waiting], Err(ErrorCode::NotCoordinator));
            }
            Err(error) => self.complete(vec![waiting], Err(error)),
        }
    }

    fn write_marker(&self, end: TransactionEnd) -> Result<i64, ErrorCode> {
        let batch = marker_batch(end, self.clock.now_ms())?;
        let check = TransactionCheck {
            marker_version: end.transaction_version,
            ..Default::default()
        };
        let appended = self
            .log
            .append(&self.topic_partition, self.leader_epoch, batch, check);
        appended.map_err(|error| {
            tracing::warn!(partition = %self.topic_partition, %error, "a marker could not be written");
            error_code(&error)
        })
    }

    fn fail(&mut self, batch: Batch<S>, error: ErrorCode) -> Result<(), ErrorCode> {
        let effects = self.shard.revert(batch.base_offset);
        self.run_effects(effects);
        self.next = batch.base_offset;
        self.complete(batch.waiting, Err(error));
        Err(error)
    }
}

/// The control batch that ends a transaction.
pub(crate) fn marker_batch(end: TransactionEnd, now_ms: i64) -> Result<Bytes, ErrorCode> {
    let control_type = match end.committed {
        true => ControlRecordType::Commit,
        false => ControlRecordType::Abort,
    };
    let marker = EndTransactionMarker {
        control_type,
        coordinator_epoch: end.coordinator_epoch,
    };
    let options = BatchOptions {
        producer_id: end.producer.producer_id,
        producer_epoch: end.producer.producer_epoch,
        is_transactional: true,
        ..Default::default()
    };
    control_batch(options, control_type, &marker.value(), now_ms).map_err(|error| {
        tracing::error!(%error, "a marker cannot be built");
        ErrorCode::UnknownServerError
    })
}

fn size_of_record((key, value): &EncodedRecord) -> usize {
    RECORD_OVERHEAD_MAX + key.len() + value.as_ref().map_or(0, Bytes::len)
}

fn options(config: &ContextConfig, transaction: Option<TransactionalAppend>) -> BatchOptions {
    let options = BatchOptions {
        compression: config.compression,
        base_sequence: config.base_sequence,
        ..Default::default()
    };
    match transaction {
        None => options,
        Some(TransactionalAppend { producer, .. }) => BatchOptions {
            producer_id: producer.producer_id,
            producer_epoch: producer.producer_epoch,
            is_transactional: true,
            ..options
        },
    }
}

fn build(records: &[EncodedRecord], now_ms: i64, options: BatchOptions) -> Result<Bytes, ErrorCode> {
    let mut builder = BatchBuilder::new(options);
    for (key, value) in records {
        builder.append(now_ms, Some(key), value.as_deref(), &[]);
    }
    builder.build().map_err(|error| {
        tracing::error!(%error, "a batch of coordinator records cannot be built");
        ErrorCode::UnknownServerError
    })
}

#[cfg(test)]
#[path = "context_test.rs"]
pub(crate) mod context_test;
