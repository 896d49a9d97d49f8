//! What a coordinator's state machine is, seen from the runtime. Pure.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::timer::TimerEvent;
use crate::log::VerificationGuard;
use crate::metadata::{MetadataDelta, MetadataImage};
use crate::protocol::{ErrorCode, WireError};

/// Identifies a parked reply.
pub type Token = u64;

/// The producer in whose transaction records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionalProducer {
    pub producer_id: i64,
    pub producer_epoch: i16,
}

/// The transaction that records are part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionalAppend {
    pub producer: TransactionalProducer,
    /// With what the records may be the first; `None`: the transaction is open on the partition.
    pub guard: Option<VerificationGuard>,
}

/// What ends a transaction on a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionEnd {
    pub producer: TransactionalProducer,
    pub coordinator_epoch: i32,
    pub committed: bool,
    /// 2: the marker's epoch must be above that of the transaction (KIP-890).
    pub transaction_version: i16,
}

/// What an operation is told beside its arguments.
#[derive(Debug, Clone, Copy)]
pub struct OperationContext {
    pub now_ms: i64,
    /// Offset that the operation's first record will have.
    pub next_offset: i64,
}

/// What an operation wants done at once, whatever becomes of its records.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect<T, R> {
    /// Replaces a timer with the same key.
    Schedule { after_ms: i64, event: T },
    /// Leaves a timer with the same key as it is.
    ScheduleIfAbsent { after_ms: i64, event: T },
    /// Cancels the timer with the key of this event.
    Cancel(T),
    /// Completes a parked reply; one that is gone is no mistake.
    Reply(Token, R),
}

/// Topics that changed in the metadata, those that were created or deleted too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicChanges {
    pub topics: BTreeMap<Uuid, Arc<str>>,
    pub has_new_topics: bool,
}

impl TopicChanges {
    pub fn of(delta: &MetadataDelta) -> Self {
        let topics = delta.topics_delta();
        let existed = |id: Uuid| delta.previous().topics.by_id(id).is_some();
        let changed = topics
            .changed_topics()
            .map(|topic| (topic.id, topic.name.clone()));
        let deleted = topics
            .deleted_topics()
            .map(|topic| (topic.id, topic.name.clone()));
        Self {
            topics: changed.chain(deleted).collect(),
            has_new_topics: topics.changed_topics().any(|topic| !existed(topic.id)),
        }
    }

    /// Both, one after the other.
    pub fn merge(&mut self, later: TopicChanges) {
        self.topics.extend(later.topics);
        self.has_new_topics |= later.has_new_topics;
    }
}

/// What an operation yields.
pub struct Outcome<S: CoordinatorShard, T> {
    pub records: Vec<S::Record>,
    /// The records have not been applied yet: replay them.
    pub replay: bool,
    /// The records go into one batch or nowhere.
    pub atomic: bool,
    /// The records are part of this transaction, in a batch without others.
    pub transaction: Option<TransactionalAppend>,
    /// Comes back by `on_appended` once the records are committed, or could not be.
    pub pending: Option<S::Pending>,
    pub effects: Vec<Effect<S::Timer, S::Reply>>,
    /// Leaves once the records are committed.
    pub response: T,
}

impl<S: CoordinatorShard, T> Outcome<S, T> {
    pub fn of(response: T) -> Self {
        Self {
            records: Vec::new(),
            replay: true,
            atomic: true,
            transaction: None,
            pending: None,
            effects: Vec::new(),
            response,
        }
    }

    pub fn with_records(records: Vec<S::Record>, response: T) -> Self {
        Self {
            records,
            ..Self::of(response)
        }
    }

    /// The same with another response.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Outcome<S, U> {
        Outcome {
            records: self.records,
            replay: self.replay,
            atomic: self.atomic,
            transaction: self.transaction,
            pending: self.pending,
            effects: self.effects,
            response: map(self.response),
        }
    }
}

/// A state machine on a partition. Not a word of it blocks, waits, reads a clock or draws a random number.
pub trait CoordinatorShard: Send + Sized + 'static {
    type Record: Debug + Send;
    type Timer: TimerEvent;
    type Reply: Debug + Send;
    /// What an operation keeps until its records are committed.
    type Pending: Debug + Send;

    /// Key and value of a record.
    fn encode(record: &Self::Record) -> Result<(Bytes, Option<Bytes>), WireError>;
    /// `None`: a record of a kind that is not known, passed over.
    fn decode(key: Bytes, value: Option<Bytes>) -> Result<Option<Self::Record>, WireError>;

    /// Applies a committed record as it lies in the log, if that is possible without decoding it in full. False: decode it.
    fn replay_raw(&mut self, _offset: i64, _producer_id: i64, _key: &[u8], _value: Option<&[u8]>) -> bool {
        false
    }
    /// Applies a record, from the log or one about to be written.
    fn replay(&mut self, offset: i64, producer_id: i64, record: Self::Record);
    /// Applies a transaction's marker.
    fn replay_end_transaction_marker(&mut self, offset: i64, producer_id: i64, committed: bool);
    /// Records below this offset are committed.
    fn commit(&mut self, offset: i64);
    /// Records from this offset on will not be written: takes their changes back.
    fn revert(&mut self, offset: i64) -> Vec<Effect<Self::Timer, Self::Reply>>;

    /// The log has been replayed: the shard is live.
    fn on_loaded(&mut self, context: &OperationContext, image: &Arc<MetadataImage>) -> Outcome<Self, ()>;
    /// The cluster's metadata changed. What comes of that for the log, comes with later operations.
    fn on_metadata_update(&mut self, _image: &Arc<MetadataImage>, _changes: &TopicChanges) {}
    /// The shard is about to go.
    fn on_unloaded(&mut self, context: &OperationContext) -> Vec<Effect<Self::Timer, Self::Reply>>;
    fn on_timer(&mut self, context: &OperationContext, event: Self::Timer) -> Outcome<Self, ()>;
    fn on_appended(
        &mut self,
        context: &OperationContext,
        pending: Self::Pending,
        result: Result<(), ErrorCode>,
    ) -> Outcome<Self, ()>;
}
