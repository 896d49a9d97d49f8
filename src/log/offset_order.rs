//! Which batches of a segment have an offset that cannot be theirs. No checksum is over a batch's base offset: a bit that flips there leaves a batch
//! that looks whole, and readers that skip it or skip what follows. Pure.
//!
//! Offsets grow, and what is missing between them is legal (compaction). So a batch that continues the one before is right; behind a gap it is right
//! if what follows continues it, and of two that cannot both be right it is the one that does not fit between its neighbours. What is not told: an
//! offset that a flipped bit moved within a gap that compaction left, and of the last batch of all one that only grew.
//!
//! An entry of the offset index may decide between two batches, never against one alone: its own bits flip as easily, and it has the last offset of
//! its batch, of all batches of an append, or (up to Kafka 1.0) the first one.
//!
//! Invariant: a batch is settled before those behind it, and at most two wait for it.

use std::ops::Range;

use super::batch_scanner::PlacedBatch;
use super::offset_index::OffsetPosition;

/// Bytes of batches whose offsets are wrong (or that are damaged otherwise).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misplaced {
    pub bytes: Range<u64>,
    /// The offsets that may be in them, by what is in front and behind.
    pub offsets: Range<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    position: u64,
    end_position: u64,
    first: i64,
    next: i64,
}

#[derive(Debug, Clone)]
enum Seen {
    /// Behind a gap: what follows decides.
    Waiting(Waiting),
    Bad(Range<u64>),
}

#[derive(Debug)]
pub(crate) struct OffsetOrder {
    /// Behind the last batch that is right.
    next_offset: i64,
    /// Where the next segment begins.
    limit: i64,
    /// Whether a gap was seen among those that are right; `None`: there are none.
    has_gaps: Option<bool>,
    /// Behind it, in order; at most two of them wait.
    seen: Vec<Seen>,
    found: Vec<Misplaced>,
}

impl Waiting {
    fn of(batch: &PlacedBatch, first_offset: i64) -> Self {
        Self {
            position: batch.position,
            end_position: batch.end(),
            first: first_offset,
            next: batch.header.next_offset(),
        }
    }

    fn count(&self) -> i64 {
        self.next - self.first
    }
}

impl OffsetOrder {
    /// Of a segment with offsets in this range.
    pub fn new(offsets: Range<i64>) -> Self {
        Self {
            next_offset: offsets.start,
            limit: offsets.end,
            has_gaps: None,
            seen: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Behind what is surely right.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// The next batch, whose checksum is right, and its first offset (`damage::first_offset_of`). `entry_behind` gives the first entry of the offset
    /// index at or behind a position, if the batch there bears it out; it is asked of batches behind a gap.
    pub fn push<E>(
        &mut self,
        batch: &PlacedBatch,
        first_offset: i64,
        entry_behind: impl FnOnce(u64) -> Result<Option<OffsetPosition>, E>,
    ) -> Result<(), E> {
        let magic = batch.header.magic;
        let first_offset = match magic < 2 && first_offset < self.next_offset {
            // What is in a wrapper says nothing against it.
            true => batch.header.last_offset(),
            false => first_offset,
        };
        let batch = Waiting::of(batch, first_offset);
        if batch.next <= batch.first || batch.first < self.next_offset || batch.next > self.limit {
            self.push_bad(batch.position..batch.end_position);
            return Ok(());
        }
        match self.waiting()[..] {
            [] => {}
            [before] if batch.first >= before.next => self.settle(&[before]),
            // Where nothing is missing: the one before would continue what is in front of it, and this one continues it then.
            [before] if self.has_gaps == Some(false) && batch.first - self.next_offset == before.count() => {
                self.settle(&[]);
            }
            [_] => {
                self.seen.push(Seen::Waiting(batch));
                return Ok(());
            }
            [first, second, ..] => {
                let right = self.right_of(first, second, batch.first);
                self.settle(&right);
            }
        }
        if batch.first == self.next_offset {
            self.settle_to(batch.first, batch.next);
        } else if magic >= 2 && self.contradicts(&batch, entry_behind(batch.end_position)?) {
            self.push_bad(batch.position..batch.end_position);
        } else {
            self.seen.push(Seen::Waiting(batch));
        }
        Ok(())
    }

    /// Bytes that are damaged otherwise.
    pub fn push_bad(&mut self, bytes: Range<u64>) {
        match self.seen.last_mut() {
            Some(Seen::Bad(last)) => last.end = bytes.end,
            _ => self.seen.push(Seen::Bad(bytes)),
        }
    }

    /// What is known by now.
    pub fn take_found(&mut self) -> Vec<Misplaced> {
        std::mem::take(&mut self.found)
    }

    /// There are no more batches.
    pub fn finish(mut self) -> Vec<Misplaced> {
        let limit = self.limit;
        match self.waiting()[..] {
            [] => {}
            [last] => self.settle(&[last]),
            [first, second, ..] => {
                let right = self.right_of(first, second, limit);
                self.settle(&right);
            }
        }
        self.settle_to(limit, limit);
        self.found
    }

    fn waiting(&self) -> Vec<Waiting> {
        let waiting = self.seen.iter().filter_map(|seen| match seen {
            Seen::Waiting(batch) => Some(*batch),
            Seen::Bad(_) => None,
        });
        waiting.collect()
    }

    /// Of two that overlap, by the first offset of what is behind them.
    fn right_of(&self, first: Waiting, second: Waiting, behind: i64) -> Vec<Waiting> {
        match (first.next <= behind, second.next <= behind) {
            (true, false) => vec![first],
            (false, true) => vec![second],
            (true, true) if second.next == behind => vec![second],
            _ => Vec::new(),
        }
    }

    /// All batches in front of an entry's place end below it.
    fn contradicts(&self, batch: &Waiting, entry: Option<OffsetPosition>) -> bool {
        entry.is_some_and(|entry| {
            let is_plausible = (self.next_offset..self.limit).contains(&entry.offset);
            is_plausible && batch.next > entry.offset
        })
    }

    /// Of those that wait these are right, the others are not.
    fn settle(&mut self, right: &[Waiting]) {
        for seen in std::mem::take(&mut self.seen) {
            match seen {
                Seen::Bad(bytes) => self.push_bad(bytes),
                Seen::Waiting(batch) if right.iter().any(|right| right.position == batch.position) => {
                    self.settle_to(batch.first, batch.next);
                }
                Seen::Waiting(batch) => self.push_bad(batch.position..batch.end_position),
            }
        }
    }

    /// A batch that is right, with nothing but bad ones in front.
    fn settle_to(&mut self, first: i64, next: i64) {
        let is_gap = first > self.next_offset && self.seen.is_empty();
        self.has_gaps = Some(is_gap || self.has_gaps == Some(true));
        for seen in self.seen.drain(..) {
            if let Seen::Bad(bytes) = seen {
                self.found.push(Misplaced {
                    bytes,
                    offsets: self.next_offset..first,
                });
            }
        }
        self.next_offset = next;
    }
}

#[cfg(test)]
#[path = "offset_order_test.rs"]
mod offset_order_test;
