//! Which producers have asked their coordinator whether they may write here (KIP-890, part 1). Pure.
//!
//! The first batch of a transaction is appended only with a guard that was taken before the coordinator was asked. A marker in
//! between takes the guard away: so a batch that comes late, when the transaction that it was meant for has ended, opens none that
//! nobody would end. With the transaction open the guard is done with.

use std::collections::BTreeMap;

use crate::record::BatchHeader;

/// Shows that the coordinator was asked after the last marker of the producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerificationGuard(u64);

/// The batch that a producer wants to open a transaction with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerificationRequest {
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// -1: the batch has none (a coordinator's).
    pub base_sequence: i32,
    /// The client raises its epoch at every end (`transaction.version` 2).
    pub supports_epoch_bump: bool,
}

/// What an append says of its transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransactionCheck {
    /// A first batch of a transaction is taken with a valid guard only.
    pub must_be_verified: bool,
    pub guard: Option<VerificationGuard>,
    /// Of a marker: with 2 its epoch must be above that of the transaction.
    pub marker_version: i16,
}

/// One producer that is being asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verification {
    guard: VerificationGuard,
    began_ms: i64,
    pub lowest_sequence: i32,
    producer_epoch: i16,
    pub supports_epoch_bump: bool,
}

#[derive(Debug, Default)]
pub(super) struct Verifications {
    by_producer: BTreeMap<i64, Verification>,
    guards: u64,
}

impl Verifications {
    pub fn get(&self, producer_id: i64) -> Option<&Verification> {
        self.by_producer.get(&producer_id)
    }

    /// Whoever asks at the same time gets the same guard. The lowest sequence is kept, so that of requests that are verified together
    /// none but the first can open the transaction.
    pub fn start(&mut self, request: &VerificationRequest, now_ms: i64) -> VerificationGuard {
        let verification = self.by_producer.entry(request.producer_id).or_insert_with(|| {
            self.guards += 1;
            Verification {
                guard: VerificationGuard(self.guards),
                began_ms: now_ms,
                lowest_sequence: request.base_sequence,
                producer_epoch: request.producer_epoch,
                supports_epoch_bump: request.supports_epoch_bump,
            }
        });
        let same_epoch = request.producer_epoch == verification.producer_epoch;
        if request.producer_epoch > verification.producer_epoch
            || (same_epoch && request.base_sequence < verification.lowest_sequence)
        {
            verification.producer_epoch = request.producer_epoch;
            verification.lowest_sequence = request.base_sequence;
        }
        verification.guard
    }

    /// Whether `batch`, which is in no open transaction, may open one.
    pub fn allows(&self, batch: &BatchHeader, check: &TransactionCheck) -> bool {
        let current = self.get(batch.producer_id).map(|verification| verification.guard);
        !check.must_be_verified
            || !batch.is_transactional()
            || batch.is_control()
            || (current.is_some() && current == check.guard)
    }

    pub fn remove(&mut self, producer_id: i64) {
        self.by_producer.remove(&producer_id);
    }

    pub fn remove_older_than(&mut self, expiration_ms: i64, now_ms: i64) {
        self.by_producer
            .retain(|_, verification| now_ms - verification.began_ms < expiration_ms);
    }

    pub fn clear(&mut self) {
        self.by_producer.clear();
    }
}

#[cfg(test)]
#[path = "verification_test.rs"]
mod verification_test;
