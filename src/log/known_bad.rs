//! Ranges of segments that are known to be damaged: fetches that would touch one are refused, all others go on.
//!
//! Kept in memory alone: a file of our own among Kafka's would be foreign to Apache Kafka, and a start finds the ranges again as the first run did (its
//! recovery, or the scrub, which looks at every closed segment anew). A range goes with its segment: retention, DeleteRecords, truncation and compaction leave it behind.
//!
//! Invariant: nothing is kept of a segment that the log does not have any more, once `forget_gone` was called.

use std::path::Path;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use super::TopicPartition;
use super::log_segment::LogSegment;
use super::offset_order::Misplaced;
use super::unified_log::Segments;

/// Damaged bytes, from the begin of a batch to the begin of the next whole one.
#[derive(Debug, Clone)]
pub(crate) struct BadRange {
    pub segment: Weak<LogSegment>,
    pub position: u64,
    pub end_position: u64,
    /// The offsets that may be in it: from the end of the batch before up to the one behind.
    pub first_offset: i64,
    pub end_offset: i64,
}

impl BadRange {
    pub fn of(segment: &Arc<LogSegment>, misplaced: Misplaced) -> Self {
        Self {
            segment: Arc::downgrade(segment),
            position: misplaced.bytes.start,
            end_position: misplaced.bytes.end,
            first_offset: misplaced.offsets.start,
            end_offset: misplaced.offsets.end,
        }
    }

    /// Says what is wrong and what can be done about it.
    pub fn report(&self, topic_partition: &TopicPartition, log_file: &Path) {
        let (first, end) = (self.first_offset, self.end_offset);
        let (position, end_position) = (self.position, self.end_position);
        tracing::error!(
            "{topic_partition}: offsets {first} to {} in {} (bytes {position} to {end_position}) are damaged on disk. Fetches of them answer \
             CORRUPT_MESSAGE, all others go on. Check the disk; with other replicas, remove this one's folder while the node is down and it is \
             copied again; without, consumers have to seek to offset {end}",
            end - 1,
            log_file.display(),
        );
    }

    fn is_in(&self, segment: &Arc<LogSegment>) -> bool {
        std::ptr::eq(self.segment.as_ptr(), Arc::as_ptr(segment))
    }
}

/// Those of one log. No range costs a reader one load.
#[derive(Debug, Default)]
pub(crate) struct KnownBad {
    ranges: ArcSwapOption<Vec<BadRange>>,
}

impl KnownBad {
    /// False if it is known.
    pub fn add(&self, range: BadRange) -> bool {
        let mut is_new = false;
        self.ranges.rcu(|known| {
            let mut ranges: Vec<BadRange> = known.as_deref().cloned().unwrap_or_default();
            is_new = !ranges.iter().any(|other| {
                Weak::ptr_eq(&other.segment, &range.segment) && other.position == range.position
            });
            if is_new {
                ranges.push(range.clone());
            }
            Some(Arc::new(ranges))
        });
        is_new
    }

    /// How much of a range of bytes may be read: up to the first damage. An error where it begins in one.
    pub fn readable(
        &self,
        segment: &Arc<LogSegment>,
        position: u64,
        length: usize,
    ) -> Result<usize, BadRange> {
        let known = self.ranges.load();
        let mut readable = length;
        for range in in_segment(&known, segment) {
            if range.end_position <= position || range.position >= position + readable as u64 {
                continue;
            }
            if range.position <= position {
                return Err(range.clone());
            }
            readable = (range.position - position) as usize;
        }
        Ok(readable)
    }

    /// Where a walk towards an offset may begin: behind the last damage that lies before it. An error where the offset lies in one, whose
    /// bytes tell nothing of what follows them.
    pub fn way_to(&self, segment: &Arc<LogSegment>, offset: i64) -> Result<u64, BadRange> {
        let known = self.ranges.load();
        let mut position = 0;
        for range in in_segment(&known, segment) {
            if range.end_offset <= offset {
                position = position.max(range.end_position);
            } else if range.first_offset <= offset {
                return Err(range.clone());
            }
        }
        Ok(position)
    }

    /// Whether a segment has any.
    pub fn is_in(&self, segment: &Arc<LogSegment>) -> bool {
        let known = self.ranges.load();
        in_segment(&known, segment).next().is_some()
    }

    /// From behind the range that a position is in, if it is in one.
    pub fn end_of_range_at(&self, segment: &Arc<LogSegment>, position: u64) -> Option<u64> {
        let known = self.ranges.load();
        let found = in_segment(&known, segment)
            .find(|range| (range.position..range.end_position).contains(&position));
        found.map(|range| range.end_position)
    }

    /// A segment was cut.
    pub fn forget_behind(&self, segment: &Arc<LogSegment>, size: u64) {
        self.retain(|range| !range.is_in(segment) || range.end_position <= size);
    }

    pub fn forget_gone(&self, segments: &Segments) {
        self.retain(|range| segments.iter().any(|segment| range.is_in(segment)));
    }

    fn retain(&self, is_kept: impl Fn(&BadRange) -> bool) {
        if self.ranges.load().is_none() {
            return;
        }
        self.ranges.rcu(|known| {
            let mut ranges: Vec<BadRange> = known.as_deref().cloned().unwrap_or_default();
            ranges.retain(&is_kept);
            (!ranges.is_empty()).then(|| Arc::new(ranges))
        });
    }

    pub fn len(&self) -> usize {
        self.ranges.load().as_ref().map_or(0, |ranges| ranges.len())
    }
}

/// Those of one segment.
fn in_segment<'a>(
    known: &'a Option<Arc<Vec<BadRange>>>,
    segment: &'a Arc<LogSegment>,
) -> impl Iterator<Item = &'a BadRange> {
    let ranges = known.iter().flat_map(|ranges| ranges.iter());
    ranges.filter(move |range| range.is_in(segment))
}
