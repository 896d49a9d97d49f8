//! The state machine of one partition of `__transaction_state`: its transactional ids. Pure.
//!
//! A decision is a record; state changes by its replay alone. What is decided about a transaction is carried out (markers)
//! only once its record is committed: `Pending` comes back then, and the sink is told. So it is after loading, too.
//!
//! Kafka answers CONCURRENT_TRANSACTIONS while a transition is being written. Here a request that comes meanwhile sees the state
//! after it, and its answer waits until that is committed; if it cannot be written both are taken back.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::records::TransactionRecord;
use super::transaction_state::{
    Decision, NO_PRODUCER_ID, ProducerIdAndEpoch, TransactionMetadata, TransactionState, TransactionVersion,
};
use crate::coordinator::runtime::shard::{CoordinatorShard, Effect, OperationContext, Outcome};
use crate::coordinator::runtime::timer::TimerEvent;
use crate::log::TopicPartition;
use crate::metadata::MetadataImage;
use crate::protocol::{ApiError, ErrorCode, StrBytes, WireError};
use crate::timeline::TimelineMap;

pub type TransactionOutcome<T> = Outcome<TransactionShard, T>;

/// A decided transaction that its partitions have to hear of.
#[derive(Debug, Clone, PartialEq)]
pub struct TransactionMarkers {
    pub transactional_id: StrBytes,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// Tells it from the others of its producer, which may keep its epoch: the last update of the prepared state.
    pub decided_ms: i64,
    pub commit: bool,
    pub transaction_version: TransactionVersion,
    pub partitions: BTreeSet<TopicPartition>,
}

/// Takes decided transactions. Must return at once.
pub trait MarkerSink: Send + Sync + 'static {
    fn send(&self, markers: TransactionMarkers);
}

#[derive(Debug, Clone)]
pub struct TransactionShardConfig {
    pub transactional_id_expiration_ms: i64,
    /// How often to look for ids that expired.
    pub expiration_check_interval_ms: i64,
}

/// An answer, or the wish for a producer id that only the controller can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<T> {
    Ready(T),
    NeedsProducerId,
}

/// Time to look for ids that expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpirationTimer;

impl TimerEvent for ExpirationTimer {
    type Key = ();

    fn key(&self) {}
}

/// Decided transactions whose records are being written: the producer, and when it was decided, which tells its transactions of one epoch apart.
#[derive(Debug, Clone, PartialEq)]
pub struct MarkersDue(Vec<(StrBytes, ProducerIdAndEpoch, i64)>);

fn due(metadata: &TransactionMetadata) -> (StrBytes, ProducerIdAndEpoch, i64) {
    let decided_ms = metadata.last_update_timestamp_ms;
    (
        metadata.transactional_id.clone(),
        producer_of(metadata),
        decided_ms,
    )
}

pub struct TransactionShard {
    config: Arc<TransactionShardConfig>,
    sink: Arc<dyn MarkerSink>,
    transactions: TimelineMap<StrBytes, Arc<TransactionMetadata>>,
}

impl TransactionShard {
    pub fn new(config: Arc<TransactionShardConfig>, sink: Arc<dyn MarkerSink>) -> Self {
        Self {
            config,
            sink,
            transactions: TimelineMap::default(),
        }
    }

    pub fn get(&self, transactional_id: &StrBytes) -> Option<&Arc<TransactionMetadata>> {
        self.transactions.get(transactional_id)
    }

    /// A transactional id that is not known has no producer.
    fn known(&self, transactional_id: &StrBytes) -> Result<&Arc<TransactionMetadata>, ApiError> {
        let known = self.transactions.get(transactional_id);
        known.ok_or_else(|| ErrorCode::InvalidProducerIdMapping.into())
    }
}

fn producer_of(metadata: &TransactionMetadata) -> ProducerIdAndEpoch {
    ProducerIdAndEpoch {
        producer_id: metadata.producer_id,
        producer_epoch: metadata.producer_epoch,
    }
}

/// The record of a transition; of one to a prepared state the markers come due with it.
fn transition<T>(
    metadata: TransactionMetadata,
    server_version: TransactionVersion,
    answer: T,
) -> TransactionOutcome<T> {
    let due = metadata
        .state
        .is_prepared()
        .then(|| MarkersDue(vec![due(&metadata)]));
    let mut outcome =
        TransactionOutcome::with_records(vec![TransactionRecord::new(metadata, server_version)], answer);
    outcome.pending = due;
    outcome
}

/// A record of version 0 cannot say that its client raises epochs.
fn check_recordable(
    client_version: TransactionVersion,
    server_version: TransactionVersion,
) -> Result<(), ApiError> {
    match client_version.record_version() > server_version.record_version() {
        true => Err(ErrorCode::UnsupportedVersion.into()),
        false => Ok(()),
    }
}

/// Requests.
impl TransactionShard {
    /// `new_producer_id` is used if one is needed; else the answer asks for one.
    pub fn init_producer_id(
        &self,
        context: &OperationContext,
        transactional_id: &StrBytes,
        timeout_ms: i32,
        expected: Option<ProducerIdAndEpoch>,
        new_producer_id: Option<i64>,
        server_version: TransactionVersion,
    ) -> Result<TransactionOutcome<Answer<Result<ProducerIdAndEpoch, ErrorCode>>>, ApiError> {
        let created;
        let (metadata, new_producer_id) = match self.transactions.get(transactional_id) {
            Some(metadata) => (metadata.as_ref(), new_producer_id),
            None => {
                let Some(producer_id) = new_producer_id else {
                    return Ok(Outcome::of(Answer::NeedsProducerId));
                };
                let id = StrBytes::from_string(transactional_id.to_string());
                created = TransactionMetadata::new(id, producer_id, timeout_ms, context.now_ms);
                (&created, None)
            }
        };
        match metadata.init_producer_id(
            timeout_ms,
            expected,
            new_producer_id,
            server_version,
            context.now_ms,
        ) {
            Decision::Transition(next) => {
                let answer = match next.state.is_prepared() {
                    // The open transaction goes first: the client has to come again.
                    true => Err(ErrorCode::ConcurrentTransactions),
                    false => Ok(producer_of(&next)),
                };
                Ok(transition(next, server_version, Answer::Ready(answer)))
            }
            Decision::Done => Ok(Outcome::of(Answer::Ready(Ok(producer_of(metadata))))),
            Decision::NeedsProducerId => Ok(Outcome::of(Answer::NeedsProducerId)),
            Decision::Refused(error) => Err(error.into()),
        }
    }

    pub fn add_partitions(
        &self,
        context: &OperationContext,
        transactional_id: &StrBytes,
        producer: ProducerIdAndEpoch,
        partitions: &BTreeSet<TopicPartition>,
        client_version: TransactionVersion,
        server_version: TransactionVersion,
    ) -> Result<TransactionOutcome<()>, ApiError> {
        let metadata = self.known(transactional_id)?;
        match metadata.add_partitions(producer, partitions, client_version, context.now_ms) {
            Decision::Transition(next) => {
                check_recordable(client_version, server_version)?;
                Ok(transition(next, server_version, ()))
            }
            Decision::Done => Ok(Outcome::of(())),
            Decision::NeedsProducerId => Err(ErrorCode::UnknownServerError.into()),
            Decision::Refused(error) => Err(error.into()),
        }
    }

    /// Which of `partitions` are in the producer's transaction; the others are answered TRANSACTION_ABORTABLE.
    pub fn verify_partitions(
        &self,
        transactional_id: &StrBytes,
        producer: ProducerIdAndEpoch,
        partitions: &BTreeSet<TopicPartition>,
    ) -> Result<TransactionOutcome<Vec<(TopicPartition, ErrorCode)>>, ApiError> {
        let added = self.known(transactional_id)?.verify(producer)?;
        let verified = partitions.iter().map(|partition| {
            let error = match added.contains(partition) {
                true => ErrorCode::None,
                false => ErrorCode::TransactionAbortable,
            };
            (partition.clone(), error)
        });
        Ok(Outcome::of(verified.collect()))
    }

    #[allow(clippy::too_many_arguments)]
    pub fn end(
        &self,
        context: &OperationContext,
        transactional_id: &StrBytes,
        producer: ProducerIdAndEpoch,
        commit: bool,
        client_version: TransactionVersion,
        new_producer_id: Option<i64>,
        server_version: TransactionVersion,
    ) -> Result<TransactionOutcome<Answer<ProducerIdAndEpoch>>, ApiError> {
        let metadata = self.known(transactional_id)?;
        match metadata.end(producer, commit, client_version, new_producer_id, context.now_ms) {
            Decision::Transition(next) => {
                check_recordable(client_version, server_version)?;
                let answer = ended(&next);
                Ok(transition(next, server_version, Answer::Ready(answer)))
            }
            Decision::Done => Ok(Outcome::of(Answer::Ready(producer_of(metadata)))),
            Decision::NeedsProducerId => Ok(Outcome::of(Answer::NeedsProducerId)),
            Decision::Refused(error) => Err(error.into()),
        }
    }

    /// Aborts a transaction that has been open for too long, if it still is the same and still late.
    pub fn abort_timed_out(
        &self,
        context: &OperationContext,
        transactional_id: &StrBytes,
        producer: ProducerIdAndEpoch,
        new_producer_id: Option<i64>,
        server_version: TransactionVersion,
    ) -> Result<TransactionOutcome<Answer<()>>, ApiError> {
        let metadata = self.known(transactional_id)?;
        if producer_of(metadata) != producer || !metadata.is_timed_out(context.now_ms) {
            return Ok(Outcome::of(Answer::Ready(())));
        }
        match metadata.fence(server_version, new_producer_id, context.now_ms) {
            Decision::Transition(next) => Ok(transition(next, server_version, Answer::Ready(()))),
            Decision::Done => Ok(Outcome::of(Answer::Ready(()))),
            Decision::NeedsProducerId => Ok(Outcome::of(Answer::NeedsProducerId)),
            Decision::Refused(error) => Err(error.into()),
        }
    }

    /// All partitions have the markers of the transaction that this producer and epoch had decided then; whatever came after it goes on.
    pub fn complete(
        &self,
        context: &OperationContext,
        transactional_id: &StrBytes,
        producer: ProducerIdAndEpoch,
        decided_ms: i64,
        server_version: TransactionVersion,
    ) -> Result<TransactionOutcome<()>, ApiError> {
        let metadata = self.known(transactional_id)?;
        if producer_of(metadata) != producer || metadata.last_update_timestamp_ms != decided_ms {
            return Ok(Outcome::of(()));
        }
        Ok(match metadata.complete(context.now_ms) {
            Some(next) => transition(next, server_version, ()),
            None => Outcome::of(()),
        })
    }
}

/// What EndTxn tells: with what to go on. A new producer id takes over when the markers are written; the client learns it now.
fn ended(next: &TransactionMetadata) -> ProducerIdAndEpoch {
    match next.next_producer_id {
        NO_PRODUCER_ID => producer_of(next),
        producer_id => ProducerIdAndEpoch {
            producer_id,
            producer_epoch: 0,
        },
    }
}

/// Looking at transactions.
impl TransactionShard {
    pub fn timed_out(&self, now_ms: i64) -> Vec<(StrBytes, ProducerIdAndEpoch)> {
        let late = self
            .transactions
            .iter()
            .filter(|(_, metadata)| metadata.is_timed_out(now_ms));
        late.map(|(id, metadata)| (id.clone(), producer_of(metadata)))
            .collect()
    }

    pub fn list(&self, filter: impl Fn(&TransactionMetadata) -> bool) -> Vec<Arc<TransactionMetadata>> {
        let all = self.transactions.iter().map(|(_, metadata)| metadata);
        all.filter(|metadata| filter(metadata)).cloned().collect()
    }

    fn expired(&self, now_ms: i64) -> Vec<TransactionRecord> {
        let is_expired = |metadata: &TransactionMetadata| {
            metadata.state.is_idle()
                && metadata.last_update_timestamp_ms <= now_ms - self.config.transactional_id_expiration_ms
        };
        let expired = self
            .transactions
            .iter()
            .filter(|(_, metadata)| is_expired(metadata));
        expired
            .map(|(id, _)| TransactionRecord::tombstone(id.clone()))
            .collect()
    }

    fn next_expiration(&self) -> Effect<ExpirationTimer, ()> {
        Effect::Schedule {
            after_ms: self.config.expiration_check_interval_ms,
            event: ExpirationTimer,
        }
    }
}

impl CoordinatorShard for TransactionShard {
    type Record = TransactionRecord;
    type Timer = ExpirationTimer;
    type Reply = ();
    type Pending = MarkersDue;

    fn encode(record: &TransactionRecord) -> Result<(Bytes, Option<Bytes>), WireError> {
        record.encode()
    }

    fn decode(key: Bytes, value: Option<Bytes>) -> Result<Option<TransactionRecord>, WireError> {
        TransactionRecord::decode(key, value)
    }

    fn replay(&mut self, offset: i64, _producer_id: i64, record: TransactionRecord) {
        match record.metadata {
            Some(metadata) => {
                self.transactions
                    .insert(offset, record.transactional_id, metadata);
            }
            None => {
                self.transactions.remove(offset, &record.transactional_id);
            }
        }
    }

    /// Nobody writes to this topic in a transaction.
    fn replay_end_transaction_marker(&mut self, _offset: i64, _producer_id: i64, _committed: bool) {}

    fn commit(&mut self, offset: i64) {
        self.transactions.commit(offset);
    }

    fn revert(&mut self, offset: i64) -> Vec<Effect<ExpirationTimer, ()>> {
        self.transactions.revert(offset);
        Vec::new()
    }

    /// Transactions that were decided before go on to their end.
    fn on_loaded(
        &mut self,
        _context: &OperationContext,
        _image: &Arc<MetadataImage>,
    ) -> TransactionOutcome<()> {
        let prepared = self
            .transactions
            .iter()
            .filter(|(_, metadata)| metadata.state.is_prepared());
        let due: Vec<_> = prepared.map(|(_, metadata)| due(metadata)).collect();
        let mut outcome = TransactionOutcome::of(());
        outcome.pending = (!due.is_empty()).then_some(MarkersDue(due));
        outcome.effects = vec![self.next_expiration()];
        outcome
    }

    fn on_unloaded(&mut self, _context: &OperationContext) -> Vec<Effect<ExpirationTimer, ()>> {
        Vec::new()
    }

    fn on_timer(&mut self, context: &OperationContext, _event: ExpirationTimer) -> TransactionOutcome<()> {
        let mut outcome = TransactionOutcome::with_records(self.expired(context.now_ms), ());
        outcome.atomic = false;
        outcome.effects = vec![self.next_expiration()];
        outcome
    }

    fn on_appended(
        &mut self,
        _context: &OperationContext,
        pending: MarkersDue,
        result: Result<(), ErrorCode>,
    ) -> TransactionOutcome<()> {
        let still_due = |noted: &(StrBytes, ProducerIdAndEpoch, i64)| {
            let metadata = self.transactions.get(&noted.0);
            metadata.is_some_and(|metadata| metadata.state.is_prepared() && due(metadata) == *noted)
        };
        let due: Vec<_> = pending.0.into_iter().filter(still_due).collect();
        let mut outcome = TransactionOutcome::of(());
        match result {
            Ok(()) => {
                for metadata in due.iter().filter_map(|(id, ..)| self.transactions.get(id)) {
                    self.sink.send(markers_of(metadata));
                }
            }
            // It is on the log and may yet be committed (the wait was too long): the wait goes on. Of what was taken back
            // nothing is due.
            Err(_) if !due.is_empty() => outcome.pending = Some(MarkersDue(due)),
            Err(_) => {}
        }
        outcome
    }
}

fn markers_of(metadata: &TransactionMetadata) -> TransactionMarkers {
    TransactionMarkers {
        transactional_id: metadata.transactional_id.clone(),
        producer_id: metadata.producer_id,
        producer_epoch: metadata.producer_epoch,
        decided_ms: metadata.last_update_timestamp_ms,
        commit: metadata.state == TransactionState::PrepareCommit,
        transaction_version: metadata.client_version,
        partitions: metadata.partitions.clone(),
    }
}

#[cfg(test)]
#[path = "shard_test.rs"]
mod shard_test;
