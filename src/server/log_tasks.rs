//! The clockwork of the logs: their own thread (retention, flushes, checkpoints, removal of deleted files), the cleaner's
//! threads (compaction), and the checkpoint of high watermarks, which is a task on a blocking thread.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::config::KafkaConfig;
use crate::io::clock::Clock;
use crate::log::{BackgroundIntervals, LogCleanerConfig, LogError, LogManager};

/// The running tasks; they end with it.
#[derive(Debug, Default)]
pub(super) struct LogTasks {
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for LogTasks {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl LogTasks {
    pub(super) fn start(
        config: &KafkaConfig,
        log_manager: &Arc<LogManager>,
        clock: &Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Self {
        let initial = millis(config.log_initial_task_delay_ms);
        let intervals = BackgroundIntervals {
            initial_delay_ms: config.log_initial_task_delay_ms,
            retention_check_ms: config.log_retention_check_interval_ms,
            flush_check_ms: config.log_flush_scheduler_interval_ms,
            recovery_point_checkpoint_ms: config.log_flush_offset_checkpoint_interval_ms.into(),
            log_start_offset_checkpoint_ms: config.log_flush_start_offset_checkpoint_interval_ms.into(),
        };
        if let Err(error) = log_manager.start_background(intervals) {
            tracing::error!(%error, "could not start the thread of the logs: no retention, no checkpoints");
        }
        let mut started = Self::default();
        let mut add = |name: &'static str, every: Duration, work: Work| {
            let logs = Arc::clone(log_manager);
            let clock = Arc::clone(clock);
            started
                .tasks
                .push(runtime.spawn(periodically(initial, every, move || {
                    let (logs, clock) = (Arc::clone(&logs), Arc::clone(&clock));
                    on_blocking_thread(name, move || work(&logs, clock.now_ms()))
                })));
        };
        add(
            "high watermark checkpoint",
            millis(config.replica_high_watermark_checkpoint_interval_ms),
            |logs, _| logs.checkpoint_high_watermarks(),
        );
        if config.log_cleaner_enable
            && let Err(error) = log_manager.start_cleaner(log_cleaner_config(config))
        {
            tracing::error!(%error, "the log cleaner's threads could not be started: compacted topics grow");
        }
        started
    }
}

fn log_cleaner_config(config: &KafkaConfig) -> LogCleanerConfig {
    let size = |value: i64| usize::try_from(value).unwrap_or(0);
    LogCleanerConfig {
        threads: size(config.log_cleaner_threads.into()),
        dedupe_buffer_size: size(config.log_cleaner_dedupe_buffer_size),
        load_factor: config.log_cleaner_io_buffer_load_factor,
        io_buffer_size: size(config.log_cleaner_io_buffer_size.into()),
        io_max_bytes_per_second: config.log_cleaner_io_max_bytes_per_second,
        backoff_ms: config.log_cleaner_backoff_ms.unsigned_abs(),
    }
}

type Work = fn(&LogManager, i64) -> Result<(), LogError>;

fn millis(value: i64) -> Duration {
    Duration::from_millis(value.max(1).unsigned_abs())
}

/// Kafka's way to say "never" is the largest long; tokio's clock does not reach so far.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

async fn periodically<F: Future<Output = ()>>(
    initial: Duration,
    every: Duration,
    mut work: impl FnMut() -> F,
) {
    if every > NEVER {
        return;
    }
    let mut ticks = interval_at(Instant::now() + initial.min(every).min(NEVER), every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        work().await;
    }
}

async fn on_blocking_thread(
    name: &'static str,
    work: impl FnOnce() -> Result<(), LogError> + Send + 'static,
) {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::error!(%error, task = name, "a periodic task of the logs failed; it is tried again")
        }
        Err(error) => {
            tracing::error!(%error, task = name, "a periodic task of the logs panicked; it is tried again")
        }
    }
}
