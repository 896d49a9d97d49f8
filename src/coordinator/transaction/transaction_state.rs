//! One transactional id: who its producer is, which transaction is open or ending, and what may follow. Pure.
//!
//! | from | event | to |
//! | --- | --- | --- |
//! | (none), Empty, CompleteCommit, CompleteAbort | InitProducerId | Empty |
//! | Empty, Ongoing, CompleteCommit, CompleteAbort | partitions or offsets are added | Ongoing |
//! | Ongoing | EndTxn commit | PrepareCommit |
//! | Ongoing | EndTxn abort; InitProducerId, timeout (both raise the epoch) | PrepareAbort |
//! | Empty, CompleteCommit, CompleteAbort | EndTxn abort, version 2 only: a transaction without partitions | PrepareAbort |
//! | PrepareCommit | all markers are written | CompleteCommit |
//! | PrepareAbort | all markers are written | CompleteAbort |
//! | Empty, CompleteCommit, CompleteAbort | not used for `transactional.id.expiration.ms` | (none) |
//!
//! Kafka has two more states that are never written: Dead, and PrepareEpochFence (a transition to PrepareAbort with a raised
//! epoch, here one step).
//!
//! Versions (`transaction.version`): 0 writes records of version 0, 1 writes flexible ones, 2 (KIP-890) raises the epoch at
//! every end, so that nothing late of one transaction can touch the next. An end by an older client on a node of version 2
//! goes by the old rules; an abort that comes from the coordinator itself goes by the node's version.
//!
//! Invariants: an epoch never goes down for one producer id; a producer never gets `i16::MAX`, so that it can be fenced.

use std::collections::BTreeSet;

use crate::log::TopicPartition;
use crate::protocol::{ErrorCode, StrBytes};

pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;

/// Levels of the feature `transaction.version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TransactionVersion {
    #[default]
    V0,
    /// Flexible records.
    V1,
    /// KIP-890, part 2.
    V2,
}

impl TransactionVersion {
    pub const FEATURE_NAME: &'static str = "transaction.version";

    /// A level above what is known here counts as the last: it is never finalized while this node is registered.
    pub fn from_level(level: i16) -> Self {
        match level {
            ..=0 => Self::V0,
            1 => Self::V1,
            _ => Self::V2,
        }
    }

    pub fn level(self) -> i16 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    pub fn supports_epoch_bump(self) -> bool {
        self >= Self::V2
    }

    /// Version of a `TransactionLogValue`.
    pub fn record_version(self) -> i16 {
        match self {
            Self::V0 => 0,
            Self::V1 | Self::V2 => 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransactionState {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

impl TransactionState {
    pub fn id(self) -> i8 {
        match self {
            Self::Empty => 0,
            Self::Ongoing => 1,
            Self::PrepareCommit => 2,
            Self::PrepareAbort => 3,
            Self::CompleteCommit => 4,
            Self::CompleteAbort => 5,
        }
    }

    /// `None`: a state that is never written.
    pub fn from_id(id: i8) -> Option<Self> {
        match id {
            0 => Some(Self::Empty),
            1 => Some(Self::Ongoing),
            2 => Some(Self::PrepareCommit),
            3 => Some(Self::PrepareAbort),
            4 => Some(Self::CompleteCommit),
            5 => Some(Self::CompleteAbort),
            _ => None,
        }
    }

    /// As DescribeTransactions and ListTransactions have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    /// Decided, but not all partitions know.
    pub fn is_prepared(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::PrepareAbort)
    }

    /// No transaction is open or ending.
    pub fn is_idle(self) -> bool {
        matches!(self, Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
    }

    /// States that ListTransactions knows by name, those too that no record can have.
    pub fn is_known_name(name: &str) -> bool {
        const NEVER_WRITTEN: [&str; 2] = ["Dead", "PrepareEpochFence"];
        NEVER_WRITTEN.contains(&name)
            || (0..=5)
                .filter_map(Self::from_id)
                .any(|state| state.name() == name)
    }
}

/// A producer and its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdAndEpoch {
    pub producer_id: i64,
    pub producer_epoch: i16,
}

/// What a decision gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Write this; then the state is so.
    Transition(TransactionMetadata),
    /// All is as asked for.
    Done,
    /// The epoch is exhausted: come again with a new producer id.
    NeedsProducerId,
    Refused(ErrorCode),
}

/// Last epoch that a producer may have.
const LAST_PRODUCER_EPOCH: i16 = i16::MAX - 1;

fn is_epoch_exhausted(producer_epoch: i16) -> bool {
    producer_epoch >= LAST_PRODUCER_EPOCH
}

#[derive(Debug, Clone, PartialEq)]
pub struct TransactionMetadata {
    pub transactional_id: StrBytes,
    pub producer_id: i64,
    /// Before the last transition. Not in records of version 0.
    pub previous_producer_id: i64,
    /// Takes over once the transaction that exhausted the epoch has ended.
    pub next_producer_id: i64,
    pub producer_epoch: i16,
    /// The epoch before a raise whose answer the producer may not have got. Never written.
    pub last_producer_epoch: i16,
    pub timeout_ms: i32,
    pub state: TransactionState,
    pub partitions: BTreeSet<TopicPartition>,
    /// -1: no transaction since InitProducerId.
    pub start_timestamp_ms: i64,
    pub last_update_timestamp_ms: i64,
    pub client_version: TransactionVersion,
}

impl TransactionMetadata {
    /// A transactional id that nobody has used; it becomes something by `init_producer_id`.
    pub fn new(transactional_id: StrBytes, producer_id: i64, timeout_ms: i32, now_ms: i64) -> Self {
        Self {
            transactional_id,
            producer_id,
            previous_producer_id: NO_PRODUCER_ID,
            next_producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            last_producer_epoch: NO_PRODUCER_EPOCH,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            start_timestamp_ms: -1,
            last_update_timestamp_ms: now_ms,
            client_version: TransactionVersion::V0,
        }
    }

    /// A copy to change: every transition notes whose producer id was before. Its time is no earlier than the last one's, and a decision's
    /// is later: so it tells the decisions of one producer and epoch apart, however the clock goes.
    fn successor(&self, state: TransactionState, now_ms: i64) -> Self {
        let not_before_ms = match state.is_prepared() {
            true => self.last_update_timestamp_ms.saturating_add(1),
            false => self.last_update_timestamp_ms,
        };
        Self {
            state,
            previous_producer_id: self.producer_id,
            last_update_timestamp_ms: now_ms.max(not_before_ms),
            ..self.clone()
        }
    }

    pub fn is_producer_epoch_exhausted(&self) -> bool {
        is_epoch_exhausted(self.producer_epoch)
    }

    pub fn is_timed_out(&self, now_ms: i64) -> bool {
        self.state == TransactionState::Ongoing
            && self.start_timestamp_ms.saturating_add(i64::from(self.timeout_ms)) < now_ms
    }

    /// Who gives its own id and epoch is fenced unless they are current, or were exhausted by a raise that it may not know of.
    fn is_expected_producer(&self, expected: ProducerIdAndEpoch) -> bool {
        self.producer_epoch == NO_PRODUCER_EPOCH
            || expected.producer_id == self.producer_id
            || (expected.producer_id == self.previous_producer_id
                && is_epoch_exhausted(expected.producer_epoch))
    }

    /// InitProducerId. An open transaction is aborted first: the transition is one to PrepareAbort, whose producer is never told.
    pub fn init_producer_id(
        &self,
        timeout_ms: i32,
        expected: Option<ProducerIdAndEpoch>,
        new_producer_id: Option<i64>,
        server_version: TransactionVersion,
        now_ms: i64,
    ) -> Decision {
        if self.state.is_prepared() {
            return Decision::Refused(ErrorCode::ConcurrentTransactions);
        }
        if expected.is_some_and(|expected| !self.is_expected_producer(expected)) {
            return Decision::Refused(ErrorCode::ProducerFenced);
        }
        match self.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                Decision::Refused(ErrorCode::ConcurrentTransactions)
            }
            TransactionState::Ongoing => self.fence(server_version, new_producer_id, now_ms),
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort => {
                let epoch_is_current =
                    expected.is_none_or(|expected| expected.producer_epoch == self.producer_epoch);
                let mut next = self.successor(TransactionState::Empty, now_ms);
                next.timeout_ms = timeout_ms;
                next.partitions.clear();
                next.start_timestamp_ms = -1;
                if self.is_producer_epoch_exhausted() && epoch_is_current {
                    let Some(producer_id) = new_producer_id else {
                        return Decision::NeedsProducerId;
                    };
                    next.producer_id = producer_id;
                    next.producer_epoch = 0;
                    next.last_producer_epoch = match expected {
                        Some(_) => self.producer_epoch,
                        None => NO_PRODUCER_EPOCH,
                    };
                    return Decision::Transition(next);
                }
                // Kafka has no epoch to raise here, and says so, even to one that only asks again.
                if self.is_producer_epoch_exhausted() {
                    return Decision::Refused(ErrorCode::UnknownServerError);
                }
                match self.raised_epoch(expected) {
                    Some((producer_epoch, last_producer_epoch)) => {
                        next.producer_epoch = producer_epoch;
                        next.last_producer_epoch = last_producer_epoch;
                        Decision::Transition(next)
                    }
                    None => Decision::Refused(ErrorCode::ProducerFenced),
                }
            }
        }
    }

    /// The epoch after InitProducerId, and the one before if its producer may ask again; `None`: fenced.
    fn raised_epoch(&self, expected: Option<ProducerIdAndEpoch>) -> Option<(i16, i16)> {
        let raised = self.producer_epoch.saturating_add(1);
        let Some(expected) = expected else {
            return Some((raised, NO_PRODUCER_EPOCH));
        };
        if self.producer_epoch == NO_PRODUCER_EPOCH || expected.producer_epoch == self.producer_epoch {
            Some((raised, self.producer_epoch))
        } else if expected.producer_epoch == self.last_producer_epoch {
            // Asked again: another instance would have reset the last epoch.
            Some((self.producer_epoch, self.last_producer_epoch))
        } else {
            None
        }
    }

    /// Aborts the open transaction with an epoch that its producer does not have: InitProducerId, and transactions that took too long.
    pub fn fence(
        &self,
        server_version: TransactionVersion,
        new_producer_id: Option<i64>,
        now_ms: i64,
    ) -> Decision {
        if self.state != TransactionState::Ongoing {
            return Decision::Refused(ErrorCode::InvalidTxnState);
        }
        let mut next = self.successor(TransactionState::PrepareAbort, now_ms);
        next.producer_epoch = self.producer_epoch.saturating_add(1);
        if server_version.supports_epoch_bump() {
            next.client_version = server_version;
            next.last_producer_epoch = self.producer_epoch;
            next.next_producer_id = match (self.is_producer_epoch_exhausted(), new_producer_id) {
                (false, _) => NO_PRODUCER_ID,
                (true, Some(producer_id)) => producer_id,
                (true, None) => return Decision::NeedsProducerId,
            };
        } else {
            next.client_version = TransactionVersion::V0;
            next.last_producer_epoch = NO_PRODUCER_EPOCH;
            next.next_producer_id = NO_PRODUCER_ID;
        }
        Decision::Transition(next)
    }

    fn check_producer(&self, producer: ProducerIdAndEpoch) -> Result<(), ErrorCode> {
        if self.producer_id != producer.producer_id {
            return Err(ErrorCode::InvalidProducerIdMapping);
        }
        if self.producer_epoch != producer.producer_epoch {
            return Err(ErrorCode::ProducerFenced);
        }
        if self.state.is_prepared() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        Ok(())
    }

    /// AddPartitionsToTxn and AddOffsetsToTxn.
    pub fn add_partitions(
        &self,
        producer: ProducerIdAndEpoch,
        partitions: &BTreeSet<TopicPartition>,
        client_version: TransactionVersion,
        now_ms: i64,
    ) -> Decision {
        // Whoever asks has to come again: so it is in Kafka, which looks at the producer afterwards.
        if self.state.is_prepared() {
            return Decision::Refused(ErrorCode::ConcurrentTransactions);
        }
        if let Err(error) = self.check_producer(producer) {
            return Decision::Refused(error);
        }
        if self.state == TransactionState::Ongoing && partitions.is_subset(&self.partitions) {
            return Decision::Done;
        }
        let mut next = self.successor(TransactionState::Ongoing, now_ms);
        if self.state.is_idle() {
            next.start_timestamp_ms = now_ms;
        }
        next.partitions.extend(partitions.iter().cloned());
        next.client_version = client_version;
        Decision::Transition(next)
    }

    /// Whether a producer may write: Kafka's verification (KIP-890, part 1). An error is one of all partitions.
    pub fn verify(&self, producer: ProducerIdAndEpoch) -> Result<&BTreeSet<TopicPartition>, ErrorCode> {
        self.check_producer(producer)?;
        Ok(&self.partitions)
    }

    /// EndTxn.
    pub fn end(
        &self,
        producer: ProducerIdAndEpoch,
        commit: bool,
        client_version: TransactionVersion,
        new_producer_id: Option<i64>,
        now_ms: i64,
    ) -> Decision {
        match client_version.supports_epoch_bump() {
            true => self.end_raising_epoch(producer, commit, client_version, new_producer_id, now_ms),
            false => self.end_keeping_epoch(producer, commit, now_ms),
        }
    }

    /// Versions 0 and 1.
    fn end_keeping_epoch(&self, producer: ProducerIdAndEpoch, commit: bool, now_ms: i64) -> Decision {
        if self.producer_id != producer.producer_id {
            return Decision::Refused(ErrorCode::InvalidProducerIdMapping);
        }
        if self.producer_epoch != producer.producer_epoch {
            return Decision::Refused(ErrorCode::ProducerFenced);
        }
        match (self.state, commit) {
            (TransactionState::Ongoing, _) => {
                let mut next = self.successor(prepared(commit), now_ms);
                next.client_version = TransactionVersion::V0;
                next.next_producer_id = NO_PRODUCER_ID;
                Decision::Transition(next)
            }
            (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false) => {
                Decision::Done
            }
            (TransactionState::PrepareCommit | TransactionState::PrepareAbort, _) => {
                Decision::Refused(ErrorCode::ConcurrentTransactions)
            }
            (
                TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort,
                _,
            ) => Decision::Refused(ErrorCode::InvalidTxnState),
        }
    }

    /// Version 2. The current epoch means the transaction that is open now, the one before means a request that comes again.
    fn end_raising_epoch(
        &self,
        producer: ProducerIdAndEpoch,
        commit: bool,
        client_version: TransactionVersion,
        new_producer_id: Option<i64>,
        now_ms: i64,
    ) -> Decision {
        if self.state.is_prepared() {
            return Decision::Refused(ErrorCode::ConcurrentTransactions);
        }
        let is_retry_after_new_id = self.previous_producer_id == producer.producer_id
            && producer.producer_epoch == LAST_PRODUCER_EPOCH
            && self.producer_epoch == 0;
        let is_retry_after_raise = i32::from(self.producer_epoch) == i32::from(producer.producer_epoch) + 1;
        let is_retry = is_retry_after_new_id || is_retry_after_raise;
        let is_current = producer.producer_epoch == self.producer_epoch;
        let is_valid_epoch = match self.state {
            TransactionState::Empty | TransactionState::Ongoing => is_current,
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => false,
            TransactionState::CompleteCommit | TransactionState::CompleteAbort => is_retry || is_current,
        };
        if self.producer_id != producer.producer_id && !is_retry_after_new_id {
            return Decision::Refused(ErrorCode::InvalidProducerIdMapping);
        }
        if !is_valid_epoch {
            return Decision::Refused(ErrorCode::ProducerFenced);
        }
        let end = |has_partitions: bool| {
            let mut next = self.successor(prepared(commit), now_ms);
            next.producer_epoch = self.producer_epoch.saturating_add(1);
            next.last_producer_epoch = self.producer_epoch;
            next.client_version = client_version;
            next.next_producer_id = match (self.is_producer_epoch_exhausted(), new_producer_id) {
                (false, _) => NO_PRODUCER_ID,
                (true, Some(producer_id)) => producer_id,
                (true, None) => return Decision::NeedsProducerId,
            };
            if !has_partitions {
                next.start_timestamp_ms = now_ms;
            }
            Decision::Transition(next)
        };
        match (self.state, commit) {
            (TransactionState::Ongoing, _) => end(true),
            (TransactionState::Empty, false) => end(false),
            (TransactionState::CompleteCommit | TransactionState::CompleteAbort, false) if !is_retry => {
                end(false)
            }
            (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false)
                if is_retry =>
            {
                Decision::Done
            }
            (
                TransactionState::Empty
                | TransactionState::PrepareCommit
                | TransactionState::PrepareAbort
                | TransactionState::CompleteCommit
                | TransactionState::CompleteAbort,
                _,
            ) => Decision::Refused(ErrorCode::InvalidTxnState),
        }
    }

    /// All partitions have the marker. `None`: nothing was being ended.
    pub fn complete(&self, now_ms: i64) -> Option<TransactionMetadata> {
        let state = match self.state {
            TransactionState::PrepareCommit => TransactionState::CompleteCommit,
            TransactionState::PrepareAbort => TransactionState::CompleteAbort,
            TransactionState::Empty
            | TransactionState::Ongoing
            | TransactionState::CompleteCommit
            | TransactionState::CompleteAbort => return None,
        };
        let mut next = self.successor(state, now_ms);
        next.partitions.clear();
        if self.client_version.supports_epoch_bump() && self.next_producer_id != NO_PRODUCER_ID {
            next.producer_id = self.next_producer_id;
            next.producer_epoch = 0;
        }
        next.next_producer_id = NO_PRODUCER_ID;
        Some(next)
    }
}

fn prepared(commit: bool) -> TransactionState {
    match commit {
        true => TransactionState::PrepareCommit,
        false => TransactionState::PrepareAbort,
    }
}

#[cfg(test)]
#[path = "transaction_state_test.rs"]
mod transaction_state_test;
