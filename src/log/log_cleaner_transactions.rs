//! What a cleaning knows of the transactions it walks over (Kafka's CleanedTransactionMetadata). Pure.
//!
//! Owns which transaction is open at the position of the walk and whether any of its batches was seen there: records of an
//! aborted one go, and a marker may go only when no batch of its transaction is left.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

use super::transaction_index::AbortedTxn;
use crate::record::control_record::{ControlRecordType, control_type_of};
use crate::record::{BatchHeader, RecordError};
use bytes::Bytes;

/// An aborted transaction in the order of its first offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Upcoming {
    first_offset: i64,
    producer_id: i64,
    last_offset: i64,
    last_stable_offset: i64,
}

#[derive(Debug, Clone, Copy)]
struct OngoingAborted {
    txn: AbortedTxn,
    saw_batch: bool,
}

#[derive(Debug, Default)]
pub(crate) struct CleanedTransactions {
    upcoming: BinaryHeap<Reverse<Upcoming>>,
    ongoing_aborted: HashMap<i64, OngoingAborted>,
    ongoing_committed: HashSet<i64>,
    /// Markers that stay, for the transaction index of the cleaned segment.
    retained: Vec<AbortedTxn>,
}

impl CleanedTransactions {
    /// What the transaction indexes say of the segment that is walked next.
    pub fn add_aborted(&mut self, aborted: impl IntoIterator<Item = AbortedTxn>) {
        let added: BTreeSet<Upcoming> = aborted
            .into_iter()
            .map(|txn| Upcoming {
                first_offset: txn.first_offset,
                producer_id: txn.producer_id,
                last_offset: txn.last_offset,
                last_stable_offset: txn.last_stable_offset,
            })
            .collect();
        self.upcoming.extend(added.into_iter().map(Reverse));
    }

    fn begin_up_to(&mut self, offset: i64) {
        while let Some(Reverse(next)) = self.upcoming.peek().copied() {
            if next.first_offset > offset {
                break;
            }
            self.upcoming.pop();
            let txn = AbortedTxn {
                producer_id: next.producer_id,
                first_offset: next.first_offset,
                last_offset: next.last_offset,
                last_stable_offset: next.last_stable_offset,
            };
            self.ongoing_aborted
                .entry(next.producer_id)
                .or_insert(OngoingAborted {
                    txn,
                    saw_batch: false,
                });
        }
    }

    /// A data batch; true when it belongs to an aborted transaction and can go.
    pub fn on_data_batch(&mut self, header: &BatchHeader) -> bool {
        self.begin_up_to(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        match self.ongoing_aborted.get_mut(&header.producer_id) {
            Some(ongoing) => {
                ongoing.saw_batch = true;
                true
            }
            None => {
                self.ongoing_committed.insert(header.producer_id);
                false
            }
        }
    }

    /// A control batch; true when nothing of its transaction is left and it can go.
    pub fn on_control_batch(&mut self, header: &BatchHeader, batch: &Bytes) -> Result<bool, RecordError> {
        self.begin_up_to(header.last_offset());
        if header.records_count == 0 {
            // Its record was cleaned before: only the producer's epoch is in it.
            return Ok(true);
        }
        Ok(match control_type_of(batch)? {
            ControlRecordType::Abort => match self.ongoing_aborted.remove(&header.producer_id) {
                Some(ongoing) if ongoing.saw_batch => {
                    self.retained.push(ongoing.txn);
                    false
                }
                _ => true,
            },
            ControlRecordType::Commit => !self.ongoing_committed.remove(&header.producer_id),
            _ => false,
        })
    }

    pub fn take_retained(&mut self) -> Vec<AbortedTxn> {
        std::mem::take(&mut self.retained)
    }
}
