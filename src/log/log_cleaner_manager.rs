//! Which log is cleaned next, and how far each one is (Kafka's LogCleanerManager).
//!
//! Owns `cleaner-offset-checkpoint` of every log directory (the first dirty offset of each compacted log), the logs that are
//! being cleaned, and those that cannot be: a log in which a cleaning failed is left alone until the node starts anew or
//! the partition is deleted, and the others go on.
//! Invariants: a log is cleaned by one thread at a time; nothing at or above the last stable offset, the active segment or
//! a segment younger than `min.compaction.lag.ms` is cleaned.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::batch_scanner::ScanError;
use super::checkpoint::{self, CLEANER_CHECKPOINT};
use super::log_cleaner_pass::LogToClean;
use super::log_dir::LogDir;
use super::log_read::floor_segment;
use super::log_segment::LogSegment;
use super::unified_log::Segments;
use super::{LogError, TopicPartition, UnifiedLog};
use crate::io::disk::Disk;

type Offsets = BTreeMap<TopicPartition, i64>;
/// Nothing before it was read.
type Checkpoint = Arc<Mutex<Option<Offsets>>>;

#[derive(Debug, Default)]
struct State {
    in_progress: HashSet<TopicPartition>,
    uncleanable: HashSet<TopicPartition>,
    /// On their way to another log directory.
    paused: HashSet<TopicPartition>,
    /// Of the last look for something to clean: how dirty the dirtiest log was, and when.
    max_dirty_percent: i32,
    last_run_ms: Option<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct LogCleanerManager {
    state: Mutex<State>,
    /// What the checkpoint file of each directory says; read once. Each has its lock, which is held while the file is
    /// written: a disk that stalls holds nothing of the others up.
    checkpoints: Mutex<HashMap<Arc<Path>, Checkpoint>>,
    /// A cleaning ended.
    ended: Condvar,
}

/// A log that could not even be looked at.
#[derive(Debug)]
pub(crate) struct UncleanableLog {
    pub log: Arc<UnifiedLog>,
    pub error: LogError,
}

impl LogCleanerManager {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log with the largest share of dirty bytes, if that is above its `min.cleanable.dirty.ratio` or its
    /// `max.compaction.lag.ms` is over. It counts as being cleaned until `done`.
    pub fn grab_filthiest<'a>(
        &self,
        logs: impl Iterator<Item = &'a Arc<UnifiedLog>>,
        now_ms: i64,
    ) -> Result<Option<LogToClean>, UncleanableLog> {
        let mut filthiest: Option<LogToClean> = None;
        let mut max_ratio: f64 = 0.0;
        self.state().last_run_ms = Some(now_ms);
        for log in logs.filter(|log| log.config().is_compacted() && log.log_dir.is_online()) {
            let topic_partition = log.topic_partition();
            {
                let state = self.state();
                if state.in_progress.contains(topic_partition)
                    || state.uncleanable.contains(topic_partition)
                    || state.paused.contains(topic_partition)
                {
                    continue;
                }
            }
            if log.is_closed() {
                continue;
            }
            let candidate = match self.examine(log, now_ms) {
                Ok(candidate) => candidate,
                // Nothing is wrong with the log: it is looked at again.
                Err(error) if error.is_no_space() => continue,
                Err(error) => {
                    return Err(UncleanableLog {
                        log: Arc::clone(log),
                        error,
                    });
                }
            };
            if candidate.total_bytes() > 0 {
                max_ratio = max_ratio.max(candidate.cleanable_ratio());
            }
            let wanted = candidate.total_bytes() > 0
                && ((candidate.needs_compaction_now && candidate.cleanable_bytes > 0)
                    || candidate.cleanable_ratio() > log.config().min_cleanable_dirty_ratio);
            let is_filthier = |than: &LogToClean| candidate.cleanable_ratio() > than.cleanable_ratio();
            if wanted && filthiest.as_ref().is_none_or(is_filthier) {
                filthiest = Some(candidate);
            }
        }
        let mut state = self.state();
        state.max_dirty_percent = (100.0 * max_ratio) as i32;
        if let Some(found) = &filthiest {
            let topic_partition = found.log.topic_partition();
            if state.paused.contains(topic_partition) || !state.in_progress.insert(topic_partition.clone()) {
                // Another thread was quicker; the next look finds another.
                return Ok(None);
            }
        }
        Ok(filthiest)
    }

    /// How dirty the dirtiest log was at the last look, in percent, and when the newest began.
    pub fn last_look(&self) -> (i32, Option<i64>) {
        let state = self.state();
        (state.max_dirty_percent, state.last_run_ms)
    }

    /// What a cleaning would begin with; 0 of a log that cannot be looked at. Writes nothing.
    pub fn cleanable_bytes(&self, log: &Arc<UnifiedLog>, now_ms: i64) -> u64 {
        let truncations = log.truncations();
        let segments = log.segments.load_full();
        let offset_of = |offsets: &mut Offsets| Ok(offsets.get(log.topic_partition()).copied());
        let candidate = self
            .with_offsets(&log.log_dir, &*log.context.disk, offset_of)
            .and_then(|checkpointed| {
                let (first_dirty_offset, _) = first_dirty_offset(log, checkpointed);
                Self::examine_from(log, segments, truncations, first_dirty_offset, now_ms)
            });
        candidate.map_or(0, |candidate| candidate.cleanable_bytes)
    }

    fn examine(&self, log: &Arc<UnifiedLog>, now_ms: i64) -> Result<LogToClean, LogError> {
        let truncations = log.truncations();
        let segments = log.segments.load_full();
        let checkpointed = self.checkpointed_offset(log)?;
        let (first_dirty_offset, is_reset) = first_dirty_offset(log, checkpointed);
        if is_reset {
            self.checkpoint(log, first_dirty_offset)?;
        }
        Self::examine_from(log, segments, truncations, first_dirty_offset, now_ms)
    }

    fn examine_from(
        log: &Arc<UnifiedLog>,
        segments: Arc<Segments>,
        truncations: u64,
        first_dirty_offset: i64,
        now_ms: i64,
    ) -> Result<LogToClean, LogError> {
        let scan_error = |segment: &LogSegment, error: ScanError| log.read_error(segment, error);
        let not_beyond = first_uncleanable_offset(log, &segments, first_dirty_offset, now_ms)
            .map_err(|(segment, error)| scan_error(&segment, error))?;
        // Segments are cleaned whole.
        let active_base = segments[segments.len() - 1].base_offset();
        let first_uncleanable_offset =
            floor_segment(&segments, not_beyond).map_or(active_base, |index| segments[index].base_offset());
        let size_of = |from: i64, to: i64| -> u64 {
            let in_range = segments.iter().filter(|s| s.base_offset() < to);
            let first =
                floor_segment(&segments, from).map_or(i64::MIN, |index| segments[index].base_offset());
            in_range
                .filter(|s| s.base_offset() >= first)
                .map(|s| s.size())
                .sum()
        };
        let delay_ms = max_compaction_delay_ms(log, &segments, first_dirty_offset, now_ms)
            .map_err(|(segment, error)| scan_error(&segment, error))?;
        let cleanable_from = first_dirty_offset.min(first_uncleanable_offset);
        Ok(LogToClean {
            clean_bytes: size_of(-1, first_dirty_offset),
            cleanable_bytes: size_of(cleanable_from, first_uncleanable_offset),
            needs_compaction_now: delay_ms > 0,
            log: Arc::clone(log),
            segments,
            truncations,
            first_dirty_offset,
            first_uncleanable_offset,
        })
    }

    /// A cleaning ended; `cleaned_to` if all went well.
    pub fn done(&self, log: &UnifiedLog, cleaned_to: Option<i64>) -> Result<(), LogError> {
        let result = match cleaned_to {
            Some(offset) => self.checkpoint(log, offset),
            None => Ok(()),
        };
        self.state().in_progress.remove(log.topic_partition());
        self.ended.notify_all();
        result
    }

    // ---- moves to another log directory

    /// No cleaning begins until `resume`; one that runs ends early, and is waited for.
    pub fn pause(&self, topic_partition: &TopicPartition) {
        let mut state = self.state();
        state.paused.insert(topic_partition.clone());
        while state.in_progress.contains(topic_partition) {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn is_paused(&self, topic_partition: &TopicPartition) -> bool {
        self.state().paused.contains(topic_partition)
    }

    pub fn resume(&self, topic_partition: &TopicPartition) {
        self.state().paused.remove(topic_partition);
    }

    /// What the checkpoint of its directory says of a log.
    pub fn cleaned_to(&self, log: &UnifiedLog) -> Result<Option<i64>, LogError> {
        self.with_offsets(&log.log_dir, &*log.context.disk, |offsets| {
            Ok(offsets.get(log.topic_partition()).copied())
        })
    }

    /// Not one that is out of reach or was deleted meanwhile: another may be made by its name.
    pub fn mark_uncleanable(&self, log: &UnifiedLog) {
        if !log.log_dir.is_online() {
            return;
        }
        let topic_partition = log.topic_partition();
        self.state().uncleanable.insert(topic_partition.clone());
        // Asked without our lock, for the log's may wait for its disk; afterwards, for else `forget` could come in between.
        if log.is_closed() {
            self.state().uncleanable.remove(topic_partition);
        }
    }

    pub fn is_uncleanable(&self, topic_partition: &TopicPartition) -> bool {
        self.state().uncleanable.contains(topic_partition)
    }

    pub fn uncleanable(&self) -> Vec<TopicPartition> {
        self.state().uncleanable.iter().cloned().collect()
    }

    // ---- the checkpoint

    /// A log that lost records it had cleaned begins with what is left.
    fn checkpointed_offset(&self, log: &UnifiedLog) -> Result<Option<i64>, LogError> {
        self.with_offsets(&log.log_dir, &*log.context.disk, |offsets| {
            let Some(offset) = offsets.get_mut(log.topic_partition()) else {
                return Ok(None);
            };
            let truncated_to = log.take_lowest_truncation();
            if truncated_to < *offset {
                *offset = truncated_to;
                write(&log.log_dir, offsets, &*log.context.disk)?;
            }
            Ok(offsets.get(log.topic_partition()).copied())
        })
    }

    /// Up to where a log is clean: after a cleaning, and in the new directory after a move.
    pub fn checkpoint(&self, log: &UnifiedLog, offset: i64) -> Result<(), LogError> {
        self.with_offsets(&log.log_dir, &*log.context.disk, |offsets| {
            // Asked here, for a deletion closes the log first: it takes out of the checkpoint what was written before, and nothing comes after.
            if log.is_closed() {
                return Ok(());
            }
            if offsets.insert(log.topic_partition().clone(), offset) == Some(offset) {
                return Ok(());
            }
            write(&log.log_dir, offsets, &*log.context.disk)
        })
    }

    /// A partition that is deleted: one that is made anew by the same name begins anew.
    pub fn forget(&self, topic_partition: &TopicPartition) {
        let mut state = self.state();
        state.uncleanable.remove(topic_partition);
        state.paused.remove(topic_partition);
    }

    /// Takes all out of a directory's checkpoint that is not there (any more).
    pub fn retain(
        &self,
        log_dir: &LogDir,
        is_there: impl Fn(&TopicPartition) -> bool,
        disk: &dyn Disk,
    ) -> Result<(), LogError> {
        self.with_offsets(log_dir, disk, |offsets| {
            let mut retained = offsets.clone();
            retained.retain(|topic_partition, _| is_there(topic_partition));
            if retained.len() < offsets.len() {
                write(log_dir, &retained, disk)?;
                *offsets = retained;
            }
            Ok(())
        })
    }

    /// What a directory's checkpoint has an offset of.
    pub fn checkpointed(&self, log_dir: &LogDir, disk: &dyn Disk) -> Result<Vec<TopicPartition>, LogError> {
        self.with_offsets(log_dir, disk, |offsets| Ok(offsets.keys().cloned().collect()))
    }

    fn with_offsets<T>(
        &self,
        log_dir: &LogDir,
        disk: &dyn Disk,
        work: impl FnOnce(&mut Offsets) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let checkpoint = {
            let mut checkpoints = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(checkpoints.entry(Arc::clone(log_dir.path())).or_default())
        };
        let mut offsets = checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *offsets {
            Some(offsets) => work(offsets),
            unread => work(unread.insert(read_offsets(log_dir, disk)?)),
        }
    }
}

fn read_offsets(log_dir: &LogDir, disk: &dyn Disk) -> Result<Offsets, LogError> {
    let path = log_dir.path().join(CLEANER_CHECKPOINT);
    let text = checkpoint::read_text(disk, &path).map_err(|error| log_dir.fail(&path, "reading", error))?;
    let offsets = checkpoint::parse_offsets(text.as_deref().unwrap_or_default());
    Ok(offsets.unwrap_or_else(|error| {
        tracing::warn!(
            "{}: {error}; all compacted logs in it are cleaned anew",
            path.display()
        );
        Offsets::new()
    }))
}

fn write(log_dir: &LogDir, offsets: &Offsets, disk: &dyn Disk) -> Result<(), LogError> {
    log_dir.check_online()?;
    let path = log_dir.path().join(CLEANER_CHECKPOINT);
    disk.write_atomically(&path, checkpoint::format_offsets(offsets).as_bytes())
        .map_err(|error| log_dir.write_failed(&path, "writing", error))
}

/// Where a cleaning begins, and whether the checkpoint said something that cannot be.
fn first_dirty_offset(log: &UnifiedLog, checkpointed: Option<i64>) -> (i64, bool) {
    let log_start_offset = log.log_start_offset();
    match checkpointed {
        None => (log_start_offset, false),
        Some(offset) if offset < log_start_offset => {
            // Retention does that all the time.
            if !log.config().is_deleting() {
                tracing::warn!(
                    "{}: the cleaner's checkpoint {offset} is below the log start offset {log_start_offset}: \
                     beginning there",
                    log.topic_partition()
                );
            }
            (log_start_offset, true)
        }
        Some(offset) if offset > log.log_end_offset() => {
            tracing::warn!(
                "{}: the cleaner's checkpoint {offset} is above the log end offset {}: cleaning all of it",
                log.topic_partition(),
                log.log_end_offset()
            );
            (log_start_offset, true)
        }
        Some(offset) => (offset, false),
    }
}

type SegmentError = (Arc<LogSegment>, ScanError);

/// The segments but the active one from that which holds `offset` on.
fn inactive_from(segments: &Segments, offset: i64) -> &[Arc<LogSegment>] {
    let first = floor_segment(segments, offset).unwrap_or(0);
    segments.get(first..segments.len() - 1).unwrap_or_default()
}

/// The lowest of: last stable offset, active segment, first dirty segment with a record that is too young.
fn first_uncleanable_offset(
    log: &UnifiedLog,
    segments: &Segments,
    first_dirty_offset: i64,
    now_ms: i64,
) -> Result<i64, SegmentError> {
    let active_base = segments[segments.len() - 1].base_offset();
    let mut offset = log.last_stable_offset().min(active_base);
    let min_lag_ms = log.config().min_compaction_lag_ms.max(0);
    if min_lag_ms > 0 {
        for segment in inactive_from(segments, first_dirty_offset) {
            let largest = segment.largest_timestamp();
            let largest = largest.map_err(|error| (Arc::clone(segment), error.into()))?;
            if largest > now_ms - min_lag_ms {
                offset = offset.min(segment.base_offset());
                break;
            }
        }
    }
    Ok(offset.max(first_dirty_offset))
}

/// For how long the oldest dirty records should have been cleaned.
fn max_compaction_delay_ms(
    log: &UnifiedLog,
    segments: &Segments,
    first_dirty_offset: i64,
    now_ms: i64,
) -> Result<i64, SegmentError> {
    let clean_until_ms = now_ms.saturating_sub(log.config().max_compaction_lag_ms.max(0));
    if clean_until_ms <= 0 {
        return Ok(0);
    }
    let mut delay_ms = 0;
    for segment in inactive_from(segments, first_dirty_offset) {
        let first = segment
            .first_batch_timestamp()
            .map_err(|error| (Arc::clone(segment), error))?;
        if let Some(timestamp) = first.filter(|timestamp| *timestamp > 0) {
            delay_ms = delay_ms.max(clean_until_ms - timestamp);
        }
    }
    Ok(delay_ms)
}

#[cfg(test)]
impl LogCleanerManager {
    /// By the checkpoint; the log start when it has none.
    pub fn first_dirty_offset_of(&self, log: &UnifiedLog) -> i64 {
        let checkpointed = self.checkpointed_offset(log).ok().flatten();
        first_dirty_offset(log, checkpointed).0
    }
}

#[cfg(test)]
#[path = "log_cleaner_manager_test.rs"]
mod log_cleaner_manager_test;
