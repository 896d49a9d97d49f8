//! What a recovery does about offsets that do not follow each other though the checksums, which are not over them, are right.
//!
//! Kafka's recovery keeps such batches, or empties the segment when it comes to index one. Here the one batch that is wrong is known as bad, and those
//! behind it stay. At and past the recovery point it may be of another time, brought back by power loss, even where it has just as many offsets as are
//! missing: the log ends there as it does before a batch that is torn.
//!
//! A last batch whose offset grew cannot be told from one behind a gap that compaction left: it is kept.

use std::convert::Infallible;
use std::sync::Arc;

use super::super::batch_scanner::{BatchScanner, ScanError};
use super::super::damage::first_offset_of;
use super::super::known_bad::BadRange;
use super::super::log_segment::LogSegment;
use super::super::offset_order::{Misplaced, OffsetOrder};
use super::{Durability, Loading, LogError, Recovered};
use crate::record::crc_is_valid;

/// What a walk over a segment's batches came to.
pub(super) enum Walk {
    /// The bytes up to which the segment is kept, and the offset after them.
    Ended { valid: u64, next_offset: i64 },
    /// It must be split.
    Overflows,
    /// Offsets do not follow each other.
    InDoubt,
}

/// As many offsets a segment may have.
const OFFSETS_MAX: i64 = 1 << 31;

impl Loading<'_> {
    /// Checks all batches of a segment and builds what belongs to it anew.
    pub(super) fn recover_segment(
        &mut self,
        segment: &Arc<LogSegment>,
        durability: Durability,
    ) -> Result<Recovered, LogError> {
        let epochs = (self.epochs.clone(), self.epochs_changed);
        if let Some(recovered) = self.try_recover_segment(segment, durability, None)? {
            return Ok(recovered);
        }
        // Which of the offsets are wrong only those behind them tell, and what was built of them is wrong, too.
        (self.epochs, self.epochs_changed) = epochs;
        let mut misplaced = self
            .misplaced_in(segment, durability)
            .map_err(|error| self.fail(segment, "recovering", error))?;
        if matches!(durability, Durability::Unflushed { .. }) {
            misplaced.retain(|misplaced| misplaced.offsets.end <= self.loader.recovery_point);
        }
        let recovered = self.try_recover_segment(segment, durability, Some(&misplaced))?;
        // Where all doubts are known there is none.
        Ok(recovered.unwrap_or(Recovered::Overflows))
    }

    /// Up to the first batch whose checksum is wrong.
    fn misplaced_in(
        &self,
        segment: &Arc<LogSegment>,
        durability: Durability,
    ) -> Result<Vec<Misplaced>, ScanError> {
        let base_offset = segment.base_offset();
        let farthest = base_offset.saturating_add(OFFSETS_MAX);
        let limit = durability
            .next_base_offset()
            .map_or(farthest, |next| next.min(farthest));
        let mut order = OffsetOrder::new(base_offset..limit);
        let mut scanner = BatchScanner::new(segment.file()?, 0, segment.size());
        let mut end = 0;
        loop {
            match scanner.next_batch() {
                Ok(Some((batch, bytes))) if crc_is_valid(&bytes) => {
                    end = batch.end();
                    let first_offset = first_offset_of(&batch.header, &bytes);
                    let Ok(()) = order.push(&batch, first_offset, |_| Ok::<_, Infallible>(None));
                }
                Ok(_) | Err(ScanError::Record(_)) => break,
                Err(error) => return Err(error),
            }
        }
        let mut found = order.finish();
        // What is behind the last ones tells, if it is known.
        let is_end_known = end == segment.size() && durability.next_base_offset() == Some(limit);
        found.retain(|misplaced| is_end_known || misplaced.offsets.end < limit);
        Ok(found)
    }

    /// Said once.
    pub(super) fn note_damage(&self, segment: &LogSegment, range: BadRange) {
        if self.known_bad.add(range.clone()) {
            range.report(&self.loader.topic_partition, &segment.log_handle().path());
        }
    }
}
