//! What a log knows of its idempotent and transactional producers (Kafka's ProducerStateManager). Pure: the files of its
//! snapshots are the log's to write, read and remove; here is only which there are.
//!
//! Owns: the last five batches of each producer (duplicates and sequence checks), open transactions and those whose
//! marker is not yet replicated (both hold back the last stable offset), the offsets of snapshots.
//!
//! Invariants: a producer's epoch never goes down; its sequences go up by one (0 follows `i32::MAX`); an open transaction
//! is in `ongoing_txns` under its first offset and in its producer's entry; `map_end_offset` is the offset up to which the
//! log's batches are in here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::verification::{
    TransactionCheck, Verification, VerificationGuard, VerificationRequest, Verifications,
};
use super::{AppendOrigin, LogError, LogOffsetMetadata, ProducerStateSummary, TopicPartition};
use crate::record::control_record::{ControlRecordType, EndTransactionMarker};
use crate::record::{BatchHeader, NO_PRODUCER_EPOCH, NO_SEQUENCE};

/// Batches of a producer that are remembered to recognise a retry; clients have at most as many in flight.
const NUM_BATCHES_TO_RETAIN: usize = 5;

/// Producers that are looked at in one turn when they expire.
const EXPIRED_AT_ONCE_MAX: usize = 10_000;

/// Nobody tries a batch again so long after it came: `delivery.timeout.ms` is two minutes. By the broker's clock and the
/// log's end, as a producer may write records that are older.
const IDLE_PRODUCER_MS: i64 = 60 * 60 * 1000;

/// A transaction is late this long after `transaction.max.timeout.ms`.
const LATE_TRANSACTION_BUFFER_MS: i64 = 5 * 60 * 1000;

/// What is remembered of one appended batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchMetadata {
    pub last_sequence: i32,
    pub last_offset: i64,
    pub offset_delta: i32,
    pub timestamp: i64,
}

impl BatchMetadata {
    pub fn first_sequence(&self) -> i32 {
        crate::record::record_batch::decrement_sequence(self.last_sequence, self.offset_delta)
    }

    pub fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// The last batches of a producer's epoch. The newest is in place; those before it are on the heap, where there are any: a log may know a million
/// producers, and most of them are idle.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecentBatches {
    /// With a last offset of -1: there is none.
    newest: BatchMetadata,
    older: Option<Box<OlderBatches>>,
}

/// Oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct OlderBatches {
    batches: [BatchMetadata; NUM_BATCHES_TO_RETAIN - 1],
    length: usize,
}

impl RecentBatches {
    const NONE: Self = Self {
        newest: BatchMetadata {
            last_sequence: NO_SEQUENCE,
            last_offset: -1,
            offset_delta: 0,
            timestamp: -1,
        },
        older: None,
    };

    /// Oldest first.
    fn iter(&self) -> impl Iterator<Item = &BatchMetadata> {
        let older = self.older.iter().flat_map(|older| &older.batches[..older.length]);
        older.chain(self.last())
    }

    fn last(&self) -> Option<&BatchMetadata> {
        (self.newest.last_offset >= 0).then_some(&self.newest)
    }

    fn push(&mut self, batch: BatchMetadata) {
        let before = std::mem::replace(&mut self.newest, batch);
        if before.last_offset < 0 {
            return;
        }
        let older = self.older.get_or_insert_default();
        if older.length == older.batches.len() {
            older.batches.rotate_left(1);
            older.length -= 1;
        }
        older.batches[older.length] = before;
        older.length += 1;
    }

    fn clear(&mut self) {
        *self = Self::NONE;
    }
}

/// One producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerStateEntry {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub coordinator_epoch: i32,
    pub last_timestamp: i64,
    /// -1: no transaction is open.
    txn_first_offset: i64,
    batches: RecentBatches,
}

impl ProducerStateEntry {
    pub fn empty(producer_id: i64) -> Self {
        Self {
            producer_id,
            producer_epoch: NO_PRODUCER_EPOCH,
            coordinator_epoch: -1,
            last_timestamp: -1,
            txn_first_offset: -1,
            batches: RecentBatches::NONE,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.batches.last().is_none()
    }

    pub fn current_txn_first_offset(&self) -> Option<i64> {
        (self.txn_first_offset >= 0).then_some(self.txn_first_offset)
    }

    pub fn last_sequence(&self) -> i32 {
        self.batches
            .last()
            .map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    pub fn last_data_offset(&self) -> i64 {
        self.batches.last().map_or(-1, |batch| batch.last_offset)
    }

    pub fn last_offset_delta(&self) -> i32 {
        self.batches.last().map_or(0, |batch| batch.offset_delta)
    }

    /// Oldest first.
    pub fn batches(&self) -> impl Iterator<Item = &BatchMetadata> {
        self.batches.iter()
    }

    fn maybe_update_producer_epoch(&mut self, producer_epoch: i16) {
        if self.producer_epoch != producer_epoch {
            self.batches.clear();
            self.producer_epoch = producer_epoch;
        }
    }

    fn add_batch(&mut self, producer_epoch: i16, batch: BatchMetadata) {
        self.maybe_update_producer_epoch(producer_epoch);
        self.batches.push(batch);
        self.last_timestamp = batch.timestamp;
    }

    fn update(&mut self, next: &ProducerStateEntry) {
        self.maybe_update_producer_epoch(next.producer_epoch);
        for batch in next.batches.iter() {
            self.batches.push(*batch);
        }
        self.coordinator_epoch = next.coordinator_epoch;
        self.txn_first_offset = next.txn_first_offset;
        self.last_timestamp = next.last_timestamp;
    }

    /// The batch that was appended with these very sequences in this epoch.
    pub fn find_duplicate(&self, batch: &BatchHeader) -> Option<BatchMetadata> {
        if batch.producer_epoch != self.producer_epoch {
            return None;
        }
        let same = |seen: &&BatchMetadata| {
            seen.first_sequence() == batch.base_sequence && seen.last_sequence == batch.last_sequence()
        };
        self.batches().find(same).copied()
    }
}

/// A transaction that this log holds records of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxnMetadata {
    pub producer_id: i64,
    pub first_offset: LogOffsetMetadata,
    /// The offset of its marker once that is written.
    pub last_offset: Option<i64>,
}

/// A transaction that a marker just ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub is_aborted: bool,
}

/// The marker of a control batch: what it says, and the time stamp of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkerRecord {
    pub marker: EndTransactionMarker,
    pub timestamp: i64,
    /// 2 with transactions of KIP-890, whose markers carry the next epoch; else 0.
    pub transaction_version: i16,
}

/// The changes that the batches of one append make to one producer: checked first, taken over after the write.
#[derive(Debug, Clone)]
pub struct ProducerAppendInfo {
    topic_partition: TopicPartition,
    current: ProducerStateEntry,
    updated: ProducerStateEntry,
    origin: AppendOrigin,
    started: Vec<TxnMetadata>,
    /// Its coordinator is being asked for it.
    verification: Option<Verification>,
    has_transactional_batch: bool,
}

impl ProducerAppendInfo {
    pub fn producer_id(&self) -> i64 {
        self.current.producer_id
    }

    /// Checks a batch and notes it. `marker` is the record of a control batch (`None` for one that was cleaned empty);
    /// `first_offset` places the batch.
    pub fn append(
        &mut self,
        batch: &BatchHeader,
        marker: Option<&MarkerRecord>,
        first_offset: LogOffsetMetadata,
    ) -> Result<Option<CompletedTxn>, LogError> {
        self.has_transactional_batch |= batch.is_transactional();
        if batch.is_control() {
            return match marker {
                Some(marker) => self.append_end_txn_marker(marker, batch.producer_epoch, batch.base_offset),
                None => Ok(None),
            };
        }
        self.append_data_batch(batch, first_offset)?;
        Ok(None)
    }

    fn append_data_batch(
        &mut self,
        batch: &BatchHeader,
        first_offset: LogOffsetMetadata,
    ) -> Result<(), LogError> {
        let offset = first_offset.message_offset;
        self.check_producer_epoch(batch.producer_epoch, offset, 0)?;
        if self.origin == AppendOrigin::Client {
            self.check_sequence(batch.producer_epoch, batch.base_sequence, offset)?;
        }
        let last_offset = batch.last_offset();
        self.updated.add_batch(
            batch.producer_epoch,
            BatchMetadata {
                last_sequence: batch.last_sequence(),
                last_offset,
                offset_delta: (last_offset - offset) as i32,
                timestamp: batch.max_timestamp,
            },
        );
        match (self.updated.current_txn_first_offset(), batch.is_transactional()) {
            (Some(_), false) => Err(LogError::InvalidTxnState {
                reason: format!(
                    "Expected transactional write from producer {} at offset {offset} in partition {}",
                    self.producer_id(),
                    self.topic_partition
                ),
            }),
            (None, true) => {
                self.updated.txn_first_offset = offset;
                self.started.push(TxnMetadata {
                    producer_id: self.producer_id(),
                    first_offset,
                    last_offset: None,
                });
                Ok(())
            }
            (Some(_), true) | (None, false) => Ok(()),
        }
    }

    fn check_producer_epoch(
        &self,
        producer_epoch: i16,
        offset: i64,
        transaction_version: i16,
    ) -> Result<(), LogError> {
        let current = self.updated.producer_epoch;
        // Markers of KIP-890 carry the next epoch, so that one of an older transaction can be told.
        let strict = transaction_version >= 2;
        let valid = if strict {
            producer_epoch > current
        } else {
            producer_epoch >= current
        };
        if valid {
            return Ok(());
        }
        let is_retried_marker = strict
            && producer_epoch == current
            && (self.updated.current_txn_first_offset().is_none() || producer_epoch == i16::MAX);
        // A follower takes what its leader took.
        if is_retried_marker || self.origin == AppendOrigin::Replication {
            return Ok(());
        }
        Err(LogError::InvalidProducerEpoch {
            reason: format!(
                "Epoch of producer {} at offset {offset} in {} is {producer_epoch}, which is {} the last seen epoch \
                 {current} (TV{transaction_version})",
                self.producer_id(),
                self.topic_partition,
                if strict {
                    "not greater than"
                } else {
                    "smaller than"
                },
            ),
        })
    }

    fn check_sequence(&self, producer_epoch: i16, first_sequence: i32, offset: i64) -> Result<(), LogError> {
        self.check_verified_sequence(first_sequence, offset)?;
        let updated_epoch = self.updated.producer_epoch;
        if producer_epoch != updated_epoch {
            if first_sequence != 0 && updated_epoch != NO_PRODUCER_EPOCH {
                return Err(LogError::OutOfOrderSequence {
                    reason: format!(
                        "Invalid sequence number for new epoch of producer {} at offset {offset} in partition {}: \
                         {producer_epoch} (request epoch), {first_sequence} (seq. number), {updated_epoch} (current \
                         producer epoch)",
                        self.producer_id(),
                        self.topic_partition
                    ),
                });
            }
            return Ok(());
        }
        let current_last_sequence = if !self.updated.is_empty() {
            self.updated.last_sequence()
        } else if producer_epoch == self.current.producer_epoch {
            self.current.last_sequence()
        } else {
            NO_SEQUENCE
        };
        // A producer that is not known (all its records are deleted) may go on with any sequence.
        if self.current.producer_epoch == NO_PRODUCER_EPOCH
            || in_sequence(current_last_sequence, first_sequence)
        {
            return Ok(());
        }
        Err(LogError::OutOfOrderSequence {
            reason: format!(
                "Out of order sequence number for producer {} at offset {offset} in partition {}: {first_sequence} \
                 (incoming seq. number), {current_last_sequence} (current end sequence number)",
                self.producer_id(),
                self.topic_partition
            ),
        })
    }

    /// Of batches whose coordinator was asked at the same time only the first may open the transaction; and with version 2 a transaction
    /// begins with sequence 0 where nothing is known of its producer.
    fn check_verified_sequence(&self, first_sequence: i32, offset: i64) -> Result<(), LogError> {
        let Some(verification) = &self.verification else {
            return Ok(());
        };
        let refused = |reason: String| Err(LogError::OutOfOrderSequence { reason });
        let (producer_id, partition) = (self.producer_id(), &self.topic_partition);
        if verification.supports_epoch_bump && first_sequence != 0 && self.current.is_empty() {
            return refused(format!(
                "Invalid sequence number for producer {producer_id} at offset {offset} in partition {partition}: \
                 {first_sequence} (incoming seq. number). Expected sequence 0 for transactions v2 idempotent producer with \
                 no existing state."
            ));
        }
        if first_sequence > verification.lowest_sequence {
            return refused(format!(
                "Out of order sequence number for producer {producer_id} at offset {offset} in partition {partition}: \
                 {first_sequence} (incoming seq. number), {} (earliest seen sequence)",
                verification.lowest_sequence
            ));
        }
        Ok(())
    }

    fn append_end_txn_marker(
        &mut self,
        record: &MarkerRecord,
        producer_epoch: i16,
        offset: i64,
    ) -> Result<Option<CompletedTxn>, LogError> {
        self.check_producer_epoch(producer_epoch, offset, record.transaction_version)?;
        let coordinator_epoch = record.marker.coordinator_epoch;
        if self.updated.coordinator_epoch > coordinator_epoch && self.origin != AppendOrigin::Replication {
            return Err(LogError::TransactionCoordinatorFenced {
                reason: format!(
                    "Invalid coordinator epoch for producerId {} at offset {offset} in partition {}: \
                     {coordinator_epoch} (zombie), {} (current)",
                    self.producer_id(),
                    self.topic_partition,
                    self.updated.coordinator_epoch
                ),
            });
        }
        // A marker without records of its transaction moves nothing, and is in no index.
        let completed = self
            .updated
            .current_txn_first_offset()
            .map(|first_offset| CompletedTxn {
                producer_id: self.producer_id(),
                first_offset,
                last_offset: offset,
                is_aborted: record.marker.control_type == ControlRecordType::Abort,
            });
        self.updated.maybe_update_producer_epoch(producer_epoch);
        self.updated.coordinator_epoch = coordinator_epoch;
        self.updated.txn_first_offset = -1;
        self.updated.last_timestamp = record.timestamp;
        Ok(completed)
    }
}

fn in_sequence(last_sequence: i32, next_sequence: i32) -> bool {
    i64::from(next_sequence) == i64::from(last_sequence) + 1
        || (next_sequence == 0 && last_sequence == i32::MAX)
}

/// The state of all producers of one log.
#[derive(Debug)]
pub struct ProducerState {
    topic_partition: TopicPartition,
    max_transaction_timeout_ms: i64,
    producer_id_expiration_ms: i64,
    producers: BTreeMap<i64, ProducerStateEntry>,
    ongoing_txns: BTreeMap<i64, TxnMetadata>,
    /// Ended, but the marker is above the high watermark.
    unreplicated_txns: BTreeMap<i64, TxnMetadata>,
    verifications: Verifications,
    map_end_offset: i64,
    /// What is below was here `IDLE_PRODUCER_MS` ago.
    quiet_below: i64,
    /// The end of the log as a pass found it, and when: what `quiet_below` becomes when that is long enough ago.
    next_quiet: Option<(i64, i64)>,
    last_snapshot_offset: i64,
    /// Offsets of the `.snapshot` files.
    snapshots: BTreeSet<i64>,
}

impl ProducerState {
    pub fn new(
        topic_partition: TopicPartition,
        max_transaction_timeout_ms: i32,
        producer_id_expiration_ms: i32,
        snapshots: BTreeSet<i64>,
    ) -> Self {
        Self {
            topic_partition,
            max_transaction_timeout_ms: i64::from(max_transaction_timeout_ms),
            producer_id_expiration_ms: i64::from(producer_id_expiration_ms),
            producers: BTreeMap::new(),
            ongoing_txns: BTreeMap::new(),
            unreplicated_txns: BTreeMap::new(),
            verifications: Verifications::default(),
            map_end_offset: 0,
            quiet_below: 0,
            next_quiet: None,
            last_snapshot_offset: 0,
            snapshots,
        }
    }

    pub fn map_end_offset(&self) -> i64 {
        self.map_end_offset
    }

    pub fn last_snapshot_offset(&self) -> i64 {
        self.last_snapshot_offset
    }

    pub fn snapshots(&self) -> &BTreeSet<i64> {
        &self.snapshots
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.unreplicated_txns.is_empty()
    }

    pub fn entry(&self, producer_id: i64) -> Option<&ProducerStateEntry> {
        self.producers.get(&producer_id)
    }

    pub fn entries(&self) -> impl Iterator<Item = &ProducerStateEntry> {
        self.producers.values()
    }

    pub fn summaries(&self) -> Vec<ProducerStateSummary> {
        let summary = |entry: &ProducerStateEntry| ProducerStateSummary {
            producer_id: entry.producer_id,
            producer_epoch: entry.producer_epoch,
            last_sequence: entry.last_sequence(),
            last_timestamp: entry.last_timestamp,
            coordinator_epoch: entry.coordinator_epoch,
            current_txn_start_offset: entry.txn_first_offset,
        };
        self.producers.values().map(summary).collect()
    }

    fn is_in_transaction(&self, producer_id: i64, producer_epoch: i16) -> bool {
        self.entry(producer_id).is_some_and(|entry| {
            entry.current_txn_first_offset().is_some() && entry.producer_epoch == producer_epoch
        })
    }

    /// The guard for a batch that would open a transaction; `None`: it is open. An older epoch has none: it would stand in the way of the
    /// producer's next.
    pub fn start_verification(
        &mut self,
        request: &VerificationRequest,
        now_ms: i64,
    ) -> Result<Option<VerificationGuard>, LogError> {
        let (producer_id, producer_epoch) = (request.producer_id, request.producer_epoch);
        if let Some(entry) = self.entry(producer_id)
            && producer_epoch < entry.producer_epoch
        {
            return Err(LogError::InvalidProducerEpoch {
                reason: format!(
                    "Epoch of producer {producer_id} is {producer_epoch}, which is smaller than the last seen epoch {}",
                    entry.producer_epoch
                ),
            });
        }
        Ok(match self.is_in_transaction(producer_id, producer_epoch) {
            true => None,
            false => Some(self.verifications.start(request, now_ms)),
        })
    }

    /// Whether a client's or coordinator's batch may be written as far as its transaction goes.
    pub fn check_verified(&self, batch: &BatchHeader, check: &TransactionCheck) -> Result<(), LogError> {
        if self.verifications.allows(batch, check)
            || self.is_in_transaction(batch.producer_id, batch.producer_epoch)
        {
            return Ok(());
        }
        Err(LogError::InvalidTxnState {
            reason: "Record was not part of an ongoing transaction".to_owned(),
        })
    }

    pub fn has_ongoing_transaction(&self, producer_id: i64) -> bool {
        self.entry(producer_id)
            .is_some_and(|entry| entry.current_txn_first_offset().is_some())
    }

    /// The oldest open transaction hangs: its coordinator should have aborted it long ago.
    pub fn has_late_transaction(&self, now_ms: i64) -> bool {
        let oldest = self
            .ongoing_txns
            .values()
            .next()
            .and_then(|txn| self.entry(txn.producer_id));
        oldest.is_some_and(|entry| {
            entry.last_timestamp > 0
                && now_ms - entry.last_timestamp
                    > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        })
    }

    pub fn prepare_update(&self, producer_id: i64, origin: AppendOrigin) -> ProducerAppendInfo {
        let current = self
            .entry(producer_id)
            .cloned()
            .unwrap_or_else(|| ProducerStateEntry::empty(producer_id));
        ProducerAppendInfo {
            topic_partition: self.topic_partition.clone(),
            updated: ProducerStateEntry {
                batches: RecentBatches::NONE,
                ..current.clone()
            },
            current,
            origin,
            started: Vec::new(),
            verification: self.verifications.get(producer_id).copied(),
            has_transactional_batch: false,
        }
    }

    pub fn update(&mut self, info: &ProducerAppendInfo) {
        if info.has_transactional_batch {
            // A transaction began or ended: what was asked before says nothing of the next.
            self.verifications.remove(info.producer_id());
        }
        let entry = self
            .producers
            .entry(info.producer_id())
            .or_insert_with(|| ProducerStateEntry::empty(info.producer_id()));
        entry.update(&info.updated);
        for txn in &info.started {
            self.ongoing_txns.insert(txn.first_offset.message_offset, *txn);
        }
    }

    pub fn update_map_end_offset(&mut self, offset: i64) {
        self.map_end_offset = offset;
    }

    /// The last stable offset after this transaction ended: what its entry in the transaction index says.
    pub fn last_stable_offset(&self, completed: &CompletedTxn) -> i64 {
        self.ongoing_txns
            .values()
            .find(|txn| txn.producer_id != completed.producer_id)
            .map_or(completed.last_offset + 1, |txn| txn.first_offset.message_offset)
    }

    pub fn complete_txn(&mut self, completed: &CompletedTxn) {
        if let Some(mut txn) = self.ongoing_txns.remove(&completed.first_offset) {
            txn.last_offset = Some(completed.last_offset);
            self.unreplicated_txns.insert(completed.first_offset, txn);
        }
    }

    /// Where the first transaction begins that is open or whose marker is not below the high watermark.
    pub fn first_unstable_offset(&self) -> Option<LogOffsetMetadata> {
        let unreplicated = self.unreplicated_txns.values().next().map(|txn| txn.first_offset);
        let undecided = self.ongoing_txns.values().next().map(|txn| txn.first_offset);
        match (unreplicated, undecided) {
            (Some(a), Some(b)) => Some(if b.message_offset < a.message_offset { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    pub fn on_high_watermark_updated(&mut self, high_watermark: i64) {
        self.unreplicated_txns
            .retain(|_, txn| txn.last_offset.is_none_or(|last| last >= high_watermark));
    }

    fn is_expired(&self, now_ms: i64, entry: &ProducerStateEntry) -> bool {
        entry.current_txn_first_offset().is_none()
            && now_ms - entry.last_timestamp >= self.producer_id_expiration_ms
    }

    pub fn set_producer_id_expiration_ms(&mut self, producer_id_expiration_ms: i32) {
        self.producer_id_expiration_ms = i64::from(producer_id_expiration_ms);
    }

    /// All at once; see `expire_some`.
    pub fn remove_expired_producers(&mut self, now_ms: i64) {
        let mut after = None;
        loop {
            after = self.expire_some(after, now_ms);
            if after.is_none() {
                break;
            }
        }
    }

    /// Looks at some producers behind `after`, so that nobody waits long where there are many; gives how far it came, `None` at the end. Those that
    /// expired go; of those that are idle only the newest batch is kept, as of all of them after a start: no client repeats an older one so late.
    pub fn expire_some(&mut self, after: Option<i64>, now_ms: i64) -> Option<i64> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut expired = Vec::new();
        let mut last = None;
        let (expiration_ms, quiet_below) = (self.producer_id_expiration_ms, self.quiet_below);
        for (producer_id, entry) in self
            .producers
            .range_mut((from, Bound::Unbounded))
            .take(EXPIRED_AT_ONCE_MAX)
        {
            last = Some(*producer_id);
            let idle_for_ms = now_ms - entry.last_timestamp;
            if entry.current_txn_first_offset().is_none() && idle_for_ms >= expiration_ms {
                expired.push(*producer_id);
            } else if entry.last_data_offset() < quiet_below {
                entry.batches.older = None;
            }
        }
        for producer_id in expired {
            self.producers.remove(&producer_id);
        }
        if last.is_none() {
            self.verifications
                .remove_older_than(self.producer_id_expiration_ms, now_ms);
            self.note_quiet(now_ms);
        }
        last
    }

    /// At the end of a pass.
    fn note_quiet(&mut self, now_ms: i64) {
        if let Some((log_end, since_ms)) = self.next_quiet {
            if now_ms.saturating_sub(since_ms) < IDLE_PRODUCER_MS {
                return;
            }
            self.quiet_below = log_end;
        }
        self.next_quiet = Some((self.map_end_offset, now_ms));
    }

    /// Forgets all but which snapshots there are, and takes over the snapshot at `offset` (without those that expired).
    pub fn load_snapshot(&mut self, offset: i64, entries: Vec<ProducerStateEntry>, now_ms: i64) {
        self.clear();
        for entry in entries {
            if self.is_expired(now_ms, &entry) {
                continue;
            }
            if let Some(first_offset) = entry.current_txn_first_offset() {
                self.ongoing_txns.insert(
                    first_offset,
                    TxnMetadata {
                        producer_id: entry.producer_id,
                        first_offset: LogOffsetMetadata::offset_only(first_offset),
                        last_offset: None,
                    },
                );
            }
            self.producers.insert(entry.producer_id, entry);
        }
        self.last_snapshot_offset = offset;
        self.map_end_offset = offset;
    }

    /// No snapshot is left to load: nothing is known, the log's batches are read from `log_start_offset` on.
    pub fn start_empty(&mut self, log_start_offset: i64) {
        self.clear();
        self.last_snapshot_offset = log_start_offset;
        self.map_end_offset = log_start_offset;
    }

    fn clear(&mut self) {
        self.producers.clear();
        self.ongoing_txns.clear();
        self.unreplicated_txns.clear();
        self.verifications.clear();
        // The offsets may come again.
        self.quiet_below = 0;
        self.next_quiet = None;
    }

    /// A log that goes on at `offset` without anything before.
    pub fn truncate_fully_and_start_at(&mut self, offset: i64) {
        self.clear();
        self.last_snapshot_offset = 0;
        self.map_end_offset = offset;
    }

    pub fn on_log_start_offset_incremented(&mut self, log_start_offset: i64) {
        self.on_high_watermark_updated(log_start_offset);
        self.map_end_offset = self.map_end_offset.max(log_start_offset);
        self.last_snapshot_offset = self.snapshots.last().copied().unwrap_or(log_start_offset);
    }

    /// The offset that a snapshot would have now; `None` when the last one has it all.
    pub fn snapshot_due(&self) -> Option<i64> {
        (self.map_end_offset > self.last_snapshot_offset).then_some(self.map_end_offset)
    }

    pub fn on_snapshot_taken(&mut self, offset: i64) {
        self.snapshots.insert(offset);
        self.last_snapshot_offset = offset;
    }

    /// Drops a snapshot from the list; true when it was in it, and its file must go.
    pub fn remove_snapshot(&mut self, offset: i64) -> bool {
        self.snapshots.remove(&offset)
    }

    /// Which snapshots a start keeps: those at the base of a segment, and the last one if it is above all of them (the
    /// one of a clean shutdown). Gives those to be removed.
    pub fn stray_snapshots(snapshots: &BTreeSet<i64>, segment_base_offsets: &[i64]) -> Vec<i64> {
        let mut strays: Vec<i64> = snapshots
            .iter()
            .copied()
            .filter(|offset| !segment_base_offsets.contains(offset))
            .collect();
        let last_base = segment_base_offsets.last().copied();
        if let Some(&last_stray) = strays.last()
            && last_base.is_none_or(|base| last_stray > base)
        {
            strays.pop();
        }
        strays
    }

    #[cfg(test)]
    pub fn ongoing_first_offsets(&self) -> Vec<i64> {
        self.ongoing_txns.keys().copied().collect()
    }
}

// ---- the snapshot file

const SNAPSHOT_VERSION: i16 = 1;
const SNAPSHOT_ENTRIES_OFFSET: usize = 6;
const SNAPSHOT_ENTRY_SIZE: usize = 46;

/// Why a `.snapshot` file is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CorruptSnapshot {
    #[error("Snapshot contained an unknown file version {0}")]
    Version(i16),
    #[error("Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}")]
    Crc { stored: u32, computed: u32 },
    #[error("Snapshot failed schema validation")]
    Length,
}

/// Version i16, CRC-32C u32 of what follows, count i32, entries of 46 bytes.
pub fn encode_snapshot<'a>(entries: impl Iterator<Item = &'a ProducerStateEntry>) -> Vec<u8> {
    let mut bytes = vec![0u8; SNAPSHOT_ENTRIES_OFFSET + 4];
    let mut count = 0i32;
    for entry in entries {
        count += 1;
        bytes.extend_from_slice(&entry.producer_id.to_be_bytes());
        bytes.extend_from_slice(&entry.producer_epoch.to_be_bytes());
        bytes.extend_from_slice(&entry.last_sequence().to_be_bytes());
        bytes.extend_from_slice(&entry.last_data_offset().to_be_bytes());
        bytes.extend_from_slice(&entry.last_offset_delta().to_be_bytes());
        bytes.extend_from_slice(&entry.last_timestamp.to_be_bytes());
        bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        bytes.extend_from_slice(&entry.txn_first_offset.to_be_bytes());
    }
    bytes[0..2].copy_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
    bytes[SNAPSHOT_ENTRIES_OFFSET..SNAPSHOT_ENTRIES_OFFSET + 4].copy_from_slice(&count.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[SNAPSHOT_ENTRIES_OFFSET..]);
    bytes[2..SNAPSHOT_ENTRIES_OFFSET].copy_from_slice(&crc.to_be_bytes());
    bytes
}

pub fn decode_snapshot(bytes: &[u8]) -> Result<Vec<ProducerStateEntry>, CorruptSnapshot> {
    let version = i16::from_be_bytes(field(bytes, 0)?);
    if version != SNAPSHOT_VERSION {
        return Err(CorruptSnapshot::Version(version));
    }
    let stored = u32::from_be_bytes(field(bytes, 2)?);
    let count = i32::from_be_bytes(field(bytes, SNAPSHOT_ENTRIES_OFFSET)?);
    let computed = crc32c::crc32c(&bytes[SNAPSHOT_ENTRIES_OFFSET..]);
    if stored != computed {
        return Err(CorruptSnapshot::Crc { stored, computed });
    }
    let entries = &bytes[SNAPSHOT_ENTRIES_OFFSET + 4..];
    if usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(SNAPSHOT_ENTRY_SIZE))
        != Some(entries.len())
    {
        return Err(CorruptSnapshot::Length);
    }
    entries
        .chunks_exact(SNAPSHOT_ENTRY_SIZE)
        .map(decode_entry)
        .collect()
}

fn decode_entry(bytes: &[u8]) -> Result<ProducerStateEntry, CorruptSnapshot> {
    let last_offset = i64::from_be_bytes(field(bytes, 14)?);
    let timestamp = i64::from_be_bytes(field(bytes, 26)?);
    let txn_first_offset = i64::from_be_bytes(field(bytes, 38)?);
    let mut entry = ProducerStateEntry {
        producer_id: i64::from_be_bytes(field(bytes, 0)?),
        producer_epoch: i16::from_be_bytes(field(bytes, 8)?),
        coordinator_epoch: i32::from_be_bytes(field(bytes, 34)?),
        last_timestamp: timestamp,
        txn_first_offset: txn_first_offset.max(-1),
        batches: RecentBatches::NONE,
    };
    if last_offset >= 0 {
        entry.batches.push(BatchMetadata {
            last_sequence: i32::from_be_bytes(field(bytes, 10)?),
            last_offset,
            offset_delta: i32::from_be_bytes(field(bytes, 22)?),
            timestamp,
        });
    }
    Ok(entry)
}

fn field<const N: usize>(bytes: &[u8], position: usize) -> Result<[u8; N], CorruptSnapshot> {
    bytes
        .get(position..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .ok_or(CorruptSnapshot::Length)
}

#[cfg(test)]
#[path = "producer_state_test.rs"]
mod producer_state_test;
