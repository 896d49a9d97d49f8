//! Compaction: the threads that clean compacted logs, one log at a time (Kafka's LogCleaner).
//!
//! ```text
//! log_cleaner            threads, throttle, what happens when a cleaning fails
//!   log_cleaner_manager  which log next; `cleaner-offset-checkpoint`
//!     log_cleaner_pass   one cleaning of one log
//!       log_cleaner_filter, log_cleaner_transactions, offset_map    what stays
//!       log_replace      the new segments in the place of the old ones
//! ```
//!
//! The threads are the background's: no request waits for them. All of them share one throttle and one buffer size. Idle,
//! they hold no memory; the offset map is made for each cleaning, as large as the dirty part can need.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::log_cleaner_manager::LogCleanerManager;
use super::log_cleaner_pass::{CleanError, CleanerPass, LogToClean, PassSettings, PassStats};
use super::offset_map::OffsetMap;
use super::{LogError, LogManager, TopicPartition, UnifiedLog};
use crate::io::clock::Clock;

/// A full disk is looked at again after this long at the earliest.
const NO_SPACE_BACKOFF_MS: i64 = 60_000;

/// The longest sleep of a throttled cleaning before it looks whether it may go on.
const THROTTLE_PIECE: Duration = Duration::from_millis(100);

/// The smallest read, however small `log.cleaner.io.buffer.size` is.
const READ_BYTES_MIN: usize = 4 * 1024;

/// The node's `log.cleaner.*` settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogCleanerConfig {
    pub threads: usize,
    /// Of all threads together.
    pub dedupe_buffer_size: usize,
    /// How full the map of a thread may become (`log.cleaner.io.buffer.load.factor`).
    pub load_factor: f64,
    /// Of all threads together.
    pub io_buffer_size: usize,
    pub io_max_bytes_per_second: f64,
    pub backoff_ms: u64,
}

impl Default for LogCleanerConfig {
    fn default() -> Self {
        Self {
            threads: 1,
            dedupe_buffer_size: 134_217_728,
            load_factor: 0.9,
            io_buffer_size: 524_288,
            io_max_bytes_per_second: f64::MAX,
            backoff_ms: 15_000,
        }
    }
}

impl LogCleanerConfig {
    fn pass_settings(&self) -> PassSettings {
        let threads = self.threads.max(1);
        PassSettings {
            keys_max: OffsetMap::capacity_of(self.dedupe_buffer_size / threads, self.load_factor).max(1),
            load_factor: self.load_factor,
            // Half is for writing, in Kafka.
            read_bytes: (self.io_buffer_size / threads / 2).max(READ_BYTES_MIN),
        }
    }
}

/// Spreads reads and writes so that all threads together stay below a rate.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: f64,
    /// When what was charged so far is paid for.
    free_at_ms: Mutex<f64>,
}

impl Throttle {
    pub fn new(bytes_per_second: f64) -> Self {
        Self {
            bytes_per_second,
            free_at_ms: Mutex::new(0.0),
        }
    }

    /// How long to wait after these bytes.
    pub fn charge(&self, bytes: u64, now_ms: i64) -> Duration {
        let cost_ms = bytes as f64 / self.bytes_per_second * 1000.0;
        let mut free_at_ms = self.free_at_ms.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at_ms = free_at_ms.max(now_ms as f64) + cost_ms;
        Duration::from_secs_f64(((*free_at_ms - now_ms as f64) / 1000.0).clamp(0.0, 86_400.0))
    }

    /// Sleeps by pieces until the bytes are paid for; false as soon as `sleep` says so.
    pub fn pace(&self, bytes: u64, clock: &dyn Clock, mut sleep: impl FnMut(Duration) -> bool) -> bool {
        let began_ms = clock.monotonic_ms();
        let wait_ms = self.charge(bytes, began_ms).as_millis() as i64;
        loop {
            let left_ms = (began_ms + wait_ms - clock.monotonic_ms()).max(0);
            let left = Duration::from_millis(left_ms.unsigned_abs());
            if !sleep(left.min(THROTTLE_PIECE)) {
                return false;
            }
            if left_ms == 0 || clock.monotonic_ms() >= began_ms + wait_ms {
                return true;
            }
        }
    }
}

/// What the manager of the logs holds of the cleaner.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    pub manager: LogCleanerManager,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    is_stopping: Mutex<bool>,
    stopping: Condvar,
    no_space_until_ms: Mutex<i64>,
    last_stats: Mutex<PassStats>,
    /// What the threads work by; replaced as a whole.
    settings: Mutex<Option<CleanerSettings>>,
}

/// The settings in force and the throttle that belongs to them.
#[derive(Debug, Clone)]
struct CleanerSettings {
    config: LogCleanerConfig,
    throttle: Arc<Throttle>,
}

impl CleanerSettings {
    fn new(config: LogCleanerConfig) -> Self {
        Self {
            config,
            throttle: Arc::new(Throttle::new(config.io_max_bytes_per_second)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cleaner {
    /// Sleeps; false when the cleaner is to stop.
    pub fn wait(&self, duration: Duration) -> bool {
        let is_stopping = lock(&self.is_stopping);
        if *is_stopping || duration.is_zero() {
            return !*is_stopping;
        }
        let (is_stopping, _) = self
            .stopping
            .wait_timeout_while(is_stopping, duration, |is_stopping| !*is_stopping)
            .unwrap_or_else(PoisonError::into_inner);
        !*is_stopping
    }

    /// A thread of the same kind, which ends when `wait` says so.
    pub fn adopt(&self, thread: thread::JoinHandle<()>) {
        lock(&self.threads).push(thread);
    }

    /// Ends the cleanings and the threads.
    pub fn stop(&self) {
        *lock(&self.is_stopping) = true;
        self.stopping.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // What panicked there was said when it happened.
            let _ = thread.join();
        }
    }
}

impl LogManager {
    /// Starts `log.cleaner.threads` threads; `shutdown` ends them.
    pub fn start_cleaner(self: &Arc<Self>, config: LogCleanerConfig) -> io::Result<()> {
        *lock(&self.cleaner.settings) = Some(CleanerSettings::new(config));
        self.start_cleaner_threads(0..config.threads)
    }

    /// Other settings, from the next cleaning on. Without threads that were started nothing happens.
    pub fn update_cleaner(self: &Arc<Self>, config: LogCleanerConfig) -> io::Result<()> {
        let running = {
            let mut settings = lock(&self.cleaner.settings);
            match &mut *settings {
                Some(settings) if settings.config != config => {
                    let running = settings.config.threads;
                    *settings = CleanerSettings::new(config);
                    running
                }
                _ => return Ok(()),
            }
        };
        // Threads beyond the new number end by themselves.
        self.start_cleaner_threads(running..config.threads)
    }

    fn start_cleaner_threads(self: &Arc<Self>, indexes: std::ops::Range<usize>) -> io::Result<()> {
        for index in indexes {
            let weak = Arc::downgrade(self);
            let cleaner = Arc::clone(&self.cleaner);
            let run = move || {
                loop {
                    let Some(manager) = Weak::upgrade(&weak) else {
                        return;
                    };
                    let Some(CleanerSettings { config, throttle }) = lock(&cleaner.settings).clone() else {
                        return;
                    };
                    if index >= config.threads {
                        return;
                    }
                    let cleaned = manager.clean_filthiest(&config, &throttle);
                    drop(manager);
                    let backoff = Duration::from_millis(config.backoff_ms);
                    let pause = if cleaned { Duration::ZERO } else { backoff };
                    if !cleaner.wait(pause) {
                        return;
                    }
                }
            };
            let name = format!("log-cleaner-{index}");
            let thread = thread::Builder::new().name(name).spawn(run)?;
            lock(&self.cleaner.threads).push(thread);
        }
        Ok(())
    }

    /// Cleans what is dirty now, on this thread: tests and tools.
    pub fn clean_all(&self, config: &LogCleanerConfig) -> usize {
        let throttle = Throttle::new(config.io_max_bytes_per_second);
        let mut count = 0;
        while self.clean_filthiest(config, &throttle) {
            count += 1;
        }
        count
    }

    /// Partitions in which a cleaning failed, and which are left alone since.
    pub fn uncleanable_partitions(&self) -> Vec<TopicPartition> {
        self.cleaner.manager.uncleanable()
    }

    /// Bytes read and written by the last cleaning.
    pub fn last_cleaning(&self) -> (u64, u64) {
        let stats = *lock(&self.cleaner.last_stats);
        (stats.bytes_read, stats.bytes_written)
    }

    /// One cleaning; false when there is nothing to do at once.
    fn clean_filthiest(&self, config: &LogCleanerConfig, throttle: &Throttle) -> bool {
        let cleaner = &self.cleaner;
        if *lock(&cleaner.is_stopping) || self.context.clock.now_ms() < *lock(&cleaner.no_space_until_ms) {
            return false;
        }
        let logs = self.logs.load_full();
        let grabbed = cleaner
            .manager
            .grab_filthiest(logs.values(), self.context.clock.now_ms());
        let target = match grabbed {
            Ok(Some(target)) => target,
            Ok(None) => return false,
            Err(uncleanable) => {
                self.give_up(&uncleanable.log, &uncleanable.error.to_string());
                return true;
            }
        };
        let cleaned_to = self.clean(&target, config, throttle);
        if let Err(error) = cleaner.manager.done(&target.log, cleaned_to) {
            tracing::warn!("{}: {error}", target.log.topic_partition());
        }
        cleaned_to.is_some() || cleaner.manager.is_uncleanable(target.log.topic_partition())
    }

    fn give_up(&self, log: &UnifiedLog, why: &str) {
        tracing::warn!(
            "{}: cleaning failed, it is not cleaned any more: {why}",
            log.topic_partition()
        );
        self.cleaner.manager.mark_uncleanable(log);
    }

    /// The offset up to which it is clean now; `None` when the cleaning did not end well.
    fn clean(&self, target: &LogToClean, config: &LogCleanerConfig, throttle: &Throttle) -> Option<i64> {
        let clock = &self.context.clock;
        let gate = |bytes: u64| {
            // Whoever moves the log to another directory waits for the end of its cleaning.
            throttle.pace(bytes, &**clock, |piece| {
                !self.cleaner.manager.is_paused(target.log.topic_partition()) && self.cleaner.wait(piece)
            })
        };
        let began_ms = clock.monotonic_ms();
        let mut pass = CleanerPass::new(target, config.pass_settings(), clock.now_ms(), &gate);
        let result = catch_unwind(AssertUnwindSafe(|| pass.run()));
        let topic_partition = target.log.topic_partition();
        match result {
            Ok(Ok(end_offset)) => {
                report(target, end_offset, &pass.stats, clock.monotonic_ms() - began_ms);
                *lock(&self.cleaner.last_stats) = pass.stats;
                return Some(end_offset);
            }
            Ok(Err(CleanError::Aborted)) => {
                tracing::debug!("{topic_partition}: the cleaning was ended early")
            }
            Ok(Err(CleanError::NoSpace(error))) => {
                tracing::warn!("{topic_partition}: no room to clean in: {error}; it is tried again later");
                *lock(&self.cleaner.no_space_until_ms) = clock.now_ms().saturating_add(NO_SPACE_BACKOFF_MS);
            }
            // The directory went offline, which was said; its logs are left alone.
            Ok(Err(CleanError::Failed(_))) if !target.log.log_dir.is_online() => {}
            Ok(Err(CleanError::Failed(error))) => {
                self.give_up(&target.log, &error.to_string());
                if matches!(error, LogError::CorruptRecord { .. }) {
                    // Where, and what is to be done about it.
                    target.log.scrub(0, &gate, &mut super::ScrubStats::default());
                }
            }
            Err(_) => self.give_up(&target.log, "it panicked"),
        }
        None
    }
}

fn report(target: &LogToClean, end_offset: i64, stats: &PassStats, took_ms: i64) {
    let filter = &stats.filter;
    tracing::info!(
        "{}: cleaned offsets {} to {end_offset}: {} of {} bytes and {} of {} records left, in {took_ms} ms",
        target.log.topic_partition(),
        target.first_dirty_offset,
        stats.bytes_written,
        stats.bytes_read,
        filter.messages_retained,
        filter.messages_read,
    );
    if filter.invalid_messages > 0 {
        tracing::warn!(
            "{}: {} records without a key were found and removed",
            target.log.topic_partition(),
            filter.invalid_messages
        );
    }
}

#[cfg(test)]
#[path = "log_cleaner_model_test.rs"]
mod log_cleaner_model_test;
#[cfg(test)]
#[path = "log_cleaner_test.rs"]
mod log_cleaner_test;
