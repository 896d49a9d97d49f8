//! The scrub: reads closed segments again, slowly, and checks the CRC of every batch and the offset that no CRC is over (`offset_order`), so that a
//! disk that forgets is noticed while there are other replicas to restore from.
//!
//! A fetch sends bytes without a look at them, as in Kafka; without the scrub the first to find the damage is a consumer. What is found is said once
//! with what to do, kept as a known-bad range (`known_bad`), and answered with CORRUPT_MESSAGE. An I/O error of the scrub takes no directory offline:
//! nobody needs these bytes now.
//!
//! One thread a directory, all of them together below `kavka.log.scrub.io.max.bytes.per.second`; a segment is read once in `kavka.log.scrub.interval.ms`. With nothing to read it
//! wakes every ten minutes.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::batch_scanner::{BatchScanner, ScanError};
use super::damage::{bad_range, first_offset_of};
use super::known_bad::BadRange;
use super::log_cleaner::Throttle;
use super::log_dir::LogDir;
use super::log_segment::LogSegment;
use super::offset_order::{Misplaced, OffsetOrder};
use super::unified_log::Writer;
use super::{LogError, LogManager, UnifiedLog};
use crate::record::crc_is_valid;

/// How often the scrub looks whether a segment is due, at most.
const LOOK_MS_MAX: u64 = 600_000;

/// The node's settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogScrubConfig {
    /// `kavka.log.scrub.io.max.bytes.per.second`
    pub bytes_per_second: f64,
    /// `kavka.log.scrub.interval.ms`
    pub interval_ms: i64,
    /// `log.initial.task.delay.ms`
    pub initial_delay_ms: u64,
}

/// What a look at some segments came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubStats {
    pub segments: u64,
    pub bytes: u64,
    /// Damaged ranges that were not known.
    pub damaged: u64,
}

/// Told how much was read; false ends the scrub.
type Gate<'a> = &'a dyn Fn(u64) -> bool;

impl LogManager {
    /// Starts the threads, one a directory; `shutdown` ends them.
    pub fn start_scrub(self: &Arc<Self>, config: LogScrubConfig) -> io::Result<()> {
        let throttle = Arc::new(Throttle::new(config.bytes_per_second));
        for dir in &self.dirs {
            self.start_scrub_of(&dir.dir, config, Arc::clone(&throttle))?;
        }
        Ok(())
    }

    fn start_scrub_of(
        self: &Arc<Self>,
        dir: &Arc<LogDir>,
        config: LogScrubConfig,
        throttle: Arc<Throttle>,
    ) -> io::Result<()> {
        let weak = Arc::downgrade(self);
        let (cleaner, dir) = (Arc::clone(&self.cleaner), Arc::clone(dir));
        let look = Duration::from_millis(config.interval_ms.unsigned_abs().clamp(1, LOOK_MS_MAX));
        let run = move || {
            let mut pause = Duration::from_millis(config.initial_delay_ms);
            while cleaner.wait(pause) {
                let Some(manager) = Weak::upgrade(&weak) else {
                    return;
                };
                let clock = &manager.context.clock;
                let gate = |bytes| cleaner.wait(throttle.charge(bytes, clock.monotonic_ms()));
                let stats = scrub_logs(manager.logs_in(&dir), config.interval_ms, &gate);
                if stats.segments > 0 {
                    tracing::info!(
                        segments = stats.segments,
                        bytes = stats.bytes,
                        damaged = stats.damaged,
                        "scrub: read closed segments again"
                    );
                }
                pause = look;
            }
        };
        let thread = thread::Builder::new().name("log-scrub".to_owned()).spawn(run)?;
        self.cleaner.adopt(thread);
        Ok(())
    }

    /// Reads the closed segments that were not read since `interval_ms`.
    pub fn scrub(&self, interval_ms: i64, gate: &dyn Fn(u64) -> bool) -> ScrubStats {
        scrub_logs(self.all_logs().into_iter(), interval_ms, gate)
    }

    /// Damaged ranges in all logs.
    pub fn known_bad_ranges(&self) -> usize {
        self.logs.load().values().map(|log| log.known_bad.len()).sum()
    }
}

fn scrub_logs(logs: impl Iterator<Item = Arc<UnifiedLog>>, interval_ms: i64, gate: Gate<'_>) -> ScrubStats {
    let mut stats = ScrubStats::default();
    for log in logs {
        if log.is_closed() || !log.log_dir.is_online() {
            continue;
        }
        if !log.scrub(interval_ms, gate, &mut stats) {
            break;
        }
    }
    stats
}

/// What became of the scrub of a segment.
enum Scrubbed {
    Whole,
    /// It was truncated, or is not of the log any more.
    Changed,
    /// The gate ended it.
    Ended,
}

impl UnifiedLog {
    /// False: the gate ended it.
    pub(crate) fn scrub(&self, interval_ms: i64, gate: Gate<'_>, stats: &mut ScrubStats) -> bool {
        let segments = self.segments.load_full();
        self.known_bad.forget_gone(&segments);
        let now_ms = self.context.clock.monotonic_ms();
        for segment in &segments[..segments.len() - 1] {
            let last_ms = segment.scrubbed_ms.load(Ordering::Relaxed);
            if last_ms != i64::MIN && now_ms - last_ms < interval_ms {
                continue;
            }
            segment.scrubbed_ms.store(now_ms, Ordering::Relaxed);
            match self.scrub_segment(segment, gate, stats) {
                Ok(Scrubbed::Whole) => {}
                // What is left of it is read when it is closed again.
                Ok(Scrubbed::Changed) => segment.scrubbed_ms.store(i64::MIN, Ordering::Relaxed),
                Ok(Scrubbed::Ended) => {
                    segment.scrubbed_ms.store(i64::MIN, Ordering::Relaxed);
                    return false;
                }
                // Retention and compaction take segments away at any time.
                Err(error) if self.has_segment(segment) => {
                    tracing::warn!(
                        "{}: scrub could not read {}: {error}",
                        self.topic_partition,
                        segment.base_offset()
                    );
                }
                Err(_) => {}
            }
        }
        true
    }

    fn has_segment(&self, segment: &Arc<LogSegment>) -> bool {
        self.segments
            .load()
            .iter()
            .any(|other| Arc::ptr_eq(other, segment))
    }

    fn scrub_segment(
        &self,
        segment: &Arc<LogSegment>,
        gate: Gate<'_>,
        stats: &mut ScrubStats,
    ) -> Result<Scrubbed, ScanError> {
        let truncations = self.truncations();
        let (file, end) = (segment.file()?, segment.size());
        let mut scanner = BatchScanner::new(Arc::clone(&file), 0, end);
        let end_offset = self.end_offset_of(segment);
        let mut order = OffsetOrder::new(segment.base_offset()..end_offset);
        let mut entry_at = segment.entries_by_position();
        let mut position = 0;
        stats.segments += 1;
        while position < end {
            let whole = match scanner.next_batch() {
                Ok(Some((batch, bytes))) if crc_is_valid(&bytes) => {
                    let first_offset = first_offset_of(&batch.header, &bytes);
                    Some((batch, first_offset))
                }
                Ok(_) | Err(ScanError::Record(_)) => None,
                Err(error) => return Err(error),
            };
            let from = position;
            match whole {
                Some((batch, first_offset)) => {
                    position = batch.end();
                    order.push(&batch, first_offset, &mut entry_at)?;
                }
                None => {
                    let range = bad_range(segment, position, order.next_offset()..end_offset)?;
                    if !self.is_unchanged(&self.lock_any(), segment, truncations) {
                        return Ok(Scrubbed::Changed);
                    }
                    position = range.end_position;
                    scanner = BatchScanner::new(Arc::clone(&file), position, end);
                    order.push_bad(from..position);
                }
            }
            if !self.note_damage(segment, order.take_found(), truncations, stats) {
                return Ok(Scrubbed::Changed);
            }
            stats.bytes += position - from;
            if !gate(position - from) {
                return Ok(Scrubbed::Ended);
            }
        }
        match self.note_damage(segment, order.finish(), truncations, stats) {
            true => Ok(Scrubbed::Whole),
            false => Ok(Scrubbed::Changed),
        }
    }

    fn end_offset_of(&self, segment: &LogSegment) -> i64 {
        let segments = self.segments.load();
        let next = segments
            .iter()
            .find(|next| next.base_offset() > segment.base_offset());
        next.map_or_else(|| self.log_end_offset(), |next| next.base_offset())
    }

    /// Is what was read of a segment since there were so many truncations still in the log?
    fn is_unchanged(&self, writer: &Writer, segment: &Arc<LogSegment>, truncations: u64) -> bool {
        writer.truncations == truncations && self.has_segment(segment)
    }

    /// Said once. False: the segment was changed since, and nothing is known of it.
    fn note_damage(
        &self,
        segment: &Arc<LogSegment>,
        found: Vec<Misplaced>,
        truncations: u64,
        stats: &mut ScrubStats,
    ) -> bool {
        if found.is_empty() {
            return true;
        }
        // Held: a truncation forgets what it cuts.
        let writer = self.lock_any();
        if !self.is_unchanged(&writer, segment, truncations) {
            return false;
        }
        let ranges = found
            .into_iter()
            .map(|misplaced| BadRange::of(segment, misplaced));
        let new: Vec<BadRange> = ranges.filter(|range| self.known_bad.add(range.clone())).collect();
        drop(writer);
        for range in new {
            range.report(&self.topic_partition, &segment.log_handle().path());
            stats.damaged += 1;
        }
        true
    }

    /// The part of a range that may be handed out.
    pub(crate) fn without_damage(
        &self,
        segment: &Arc<LogSegment>,
        position: u64,
        length: usize,
    ) -> Result<usize, LogError> {
        self.known_bad
            .readable(segment, position, length)
            .map_err(|range| self.damaged(&range))
    }

    pub(crate) fn damaged(&self, range: &BadRange) -> LogError {
        LogError::CorruptRecord {
            reason: format!(
                "Offsets {} to {} of {} are damaged on disk",
                range.first_offset,
                range.end_offset - 1,
                self.topic_partition
            ),
        }
    }
}

#[cfg(test)]
#[path = "log_scrubber_test.rs"]
mod log_scrubber_test;
