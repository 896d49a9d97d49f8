//! The work of the log layer that no request waits for: retention, flushing, checkpoints, removal of what was deleted.
//!
//! Owns when each pass is due; what it does is the logs' and the manager's. One thread a directory, so that a disk that
//! stalls holds nothing of the others up: it sleeps until the next pass is due, a segment was rolled (its flush shortens
//! the next recovery) or files wait to be removed.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::checkpoint::{HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT};
use super::log_dir::LogDir;
use super::log_manager::{ManagedDir, lock};
use super::{LogError, LogManager, UnifiedLog};

/// How often the passes run, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackgroundIntervals {
    /// `log.initial.task.delay.ms`
    pub initial_delay_ms: i64,
    /// `log.retention.check.interval.ms`
    pub retention_check_ms: i64,
    /// `log.flush.scheduler.interval.ms`
    pub flush_check_ms: i64,
    /// `log.flush.offset.checkpoint.interval.ms`
    pub recovery_point_checkpoint_ms: i64,
    /// `log.flush.start.offset.checkpoint.interval.ms`
    pub log_start_offset_checkpoint_ms: i64,
    /// `replica.high.watermark.checkpoint.interval.ms`
    pub high_watermark_checkpoint_ms: i64,
}

impl Default for BackgroundIntervals {
    fn default() -> Self {
        Self {
            initial_delay_ms: 30_000,
            retention_check_ms: 300_000,
            flush_check_ms: i64::MAX,
            recovery_point_checkpoint_ms: 60_000,
            log_start_offset_checkpoint_ms: 60_000,
            high_watermark_checkpoint_ms: 5_000,
        }
    }
}

/// The longest sleep: a wall clock that jumps must not put off deletions for long.
const SLEEP_MS_MAX: i64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Retention,
    Flush,
    RecoveryPoints,
    LogStartOffsets,
    HighWatermarks,
}

/// When each pass runs next, on the monotonic clock.
struct Schedule {
    passes: [(Pass, i64, i64); 5],
}

impl Schedule {
    fn new(intervals: &BackgroundIntervals, now_ms: i64) -> Self {
        let first = now_ms.saturating_add(intervals.initial_delay_ms);
        let pass = |pass, interval_ms: i64| (pass, interval_ms, first.saturating_add(interval_ms));
        Self {
            passes: [
                // Retention begins after the delay alone, as in Kafka.
                (Pass::Retention, intervals.retention_check_ms, first),
                pass(Pass::Flush, intervals.flush_check_ms),
                pass(Pass::RecoveryPoints, intervals.recovery_point_checkpoint_ms),
                pass(Pass::LogStartOffsets, intervals.log_start_offset_checkpoint_ms),
                (
                    Pass::HighWatermarks,
                    intervals.high_watermark_checkpoint_ms,
                    now_ms.saturating_add(
                        intervals
                            .high_watermark_checkpoint_ms
                            .min(intervals.initial_delay_ms),
                    ),
                ),
            ],
        }
    }

    fn take_due(&mut self, now_ms: i64) -> Vec<Pass> {
        let mut due = Vec::new();
        for (pass, interval_ms, next_ms) in &mut self.passes {
            if *next_ms <= now_ms {
                due.push(*pass);
                *next_ms = now_ms.saturating_add(*interval_ms);
            }
        }
        due
    }

    fn next_ms(&self) -> i64 {
        self.passes
            .iter()
            .map(|(_, _, next_ms)| *next_ms)
            .min()
            .unwrap_or(i64::MAX)
    }
}

impl LogManager {
    /// Starts the threads; `shutdown` ends them.
    pub fn start_background(self: &Arc<Self>, intervals: BackgroundIntervals) -> io::Result<()> {
        for dir in self.all_dirs() {
            // Holds no directory's lock: that goes with the manager.
            let (weak, managed, dir) = (Arc::downgrade(self), Arc::downgrade(&dir), Arc::clone(&dir.dir));
            let context = Arc::clone(&self.context);
            let mut schedule = Schedule::new(&intervals, context.clock.monotonic_ms());
            let run = move || {
                let mut sleep_ms = 0;
                while dir.deferred.wait(Duration::from_millis(sleep_ms)) {
                    let (Some(manager), Some(dir)) = (weak.upgrade(), managed.upgrade()) else {
                        return;
                    };
                    let next_deletion_ms = manager.run_due(&dir, &mut schedule);
                    let until_deletion = next_deletion_ms.map(|due_ms| due_ms - context.clock.now_ms());
                    let until_pass = schedule.next_ms().saturating_sub(context.clock.monotonic_ms());
                    sleep_ms = until_deletion
                        .unwrap_or(i64::MAX)
                        .min(until_pass)
                        .clamp(1, SLEEP_MS_MAX) as u64;
                }
            };
            let thread = thread::Builder::new()
                .name("log-background".to_owned())
                .spawn(run)?;
            lock(&self.background).push(thread);
        }
        Ok(())
    }

    fn run_due(&self, dir: &ManagedDir, schedule: &mut Schedule) -> Option<i64> {
        let now_ms = self.context.clock.now_ms();
        flush_rolled(&dir.dir);
        for pass in schedule.take_due(self.context.clock.monotonic_ms()) {
            let result = match pass {
                Pass::Retention => {
                    self.logs_in(&dir.dir).for_each(|log| retain(&log, now_ms));
                    Ok(())
                }
                Pass::Flush => {
                    self.logs_in(&dir.dir).for_each(|log| flush_if_due(&log, now_ms));
                    Ok(())
                }
                Pass::RecoveryPoints => self.checkpoint_if_online(dir, RECOVERY_POINT_CHECKPOINT),
                Pass::LogStartOffsets => self.checkpoint_if_online(dir, LOG_START_OFFSET_CHECKPOINT),
                Pass::HighWatermarks => self.checkpoint_if_online(dir, HIGH_WATERMARK_CHECKPOINT),
            };
            if let Err(error) = result {
                tracing::warn!("checkpoint failed: {error}");
            }
        }
        dir.dir
            .deferred
            .run_deletions(self.context.clock.now_ms(), &dir.dir, self.disk())
    }

    fn checkpoint_if_online(&self, dir: &ManagedDir, name: &str) -> Result<(), LogError> {
        if dir.dir.is_online() {
            self.checkpoint_dir(dir, name)
        } else {
            Ok(())
        }
    }

    pub(super) fn logs_in(&self, dir: &Arc<LogDir>) -> impl Iterator<Item = Arc<UnifiedLog>> + use<> {
        let logs = self.logs.load();
        let here = logs.values().filter(|log| Arc::ptr_eq(&log.log_dir, dir));
        here.cloned().collect::<Vec<_>>().into_iter()
    }

    /// One pass of retention, and of producers that expired.
    pub fn run_retention(&self, now_ms: i64) {
        self.all_logs().iter().for_each(|log| retain(log, now_ms));
    }

    /// One pass of `flush.ms`.
    pub fn run_flush(&self, now_ms: i64) {
        self.all_logs().iter().for_each(|log| flush_if_due(log, now_ms));
    }

    /// Makes rolled segments durable, so that a start after a crash need not read them.
    pub fn run_roll_flushes(&self) {
        self.all_dirs().iter().for_each(|dir| flush_rolled(&dir.dir));
    }

    /// Removes `-delete` folders and `.deleted` files that are due; returns when the next is due.
    pub fn run_deletion(&self, now_ms: i64) -> Option<i64> {
        let dirs = self.all_dirs();
        let run = |dir: &Arc<ManagedDir>| dir.dir.deferred.run_deletions(now_ms, &dir.dir, self.disk());
        dirs.iter().filter_map(run).min()
    }
}

fn retain(log: &UnifiedLog, now_ms: i64) {
    if let Err(error) = log.delete_old_segments(now_ms)
        && log.log_dir.is_online()
        && !log.is_closed()
    {
        tracing::warn!("{}: retention failed: {error}", log.topic_partition);
    }
    log.remove_expired_producers(now_ms);
    log.give_back_room_if_idle();
}

fn flush_if_due(log: &UnifiedLog, now_ms: i64) {
    let last_flush_ms = log.last_flush_ms.load(Ordering::Acquire);
    if now_ms.saturating_sub(last_flush_ms) >= log.config().flush_ms
        && !log.is_closed()
        && let Err(error) = log.flush()
    {
        tracing::warn!("{}: flush failed: {error}", log.topic_partition);
    }
}

fn flush_rolled(dir: &LogDir) {
    let flushes = dir.deferred.take_flushes();
    for log in flushes.iter().filter_map(Weak::upgrade) {
        if log.is_closed() {
            continue;
        }
        if let Err(error) = log.flush_rolled_segments() {
            tracing::warn!("{}: flush failed: {error}", log.topic_partition);
        }
        log.rebuild_bad_indexes();
    }
}

#[cfg(test)]
#[path = "log_background_test.rs"]
mod log_background_test;
