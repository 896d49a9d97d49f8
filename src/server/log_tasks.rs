//! The clockwork of the logs: retention, flushes, checkpoints, removal of deleted files. File work runs on blocking threads.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::config::KafkaConfig;
use crate::io::clock::Clock;
use crate::log::{LogError, LogManager};

/// How often deleted files are looked for when nothing says when the next is due.
const DELETION_INTERVAL: Duration = Duration::from_secs(15);

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
            "retention",
            millis(config.log_retention_check_interval_ms),
            |logs, now_ms| {
                logs.run_retention(now_ms);
                Ok(())
            },
        );
        add(
            "flush",
            millis(config.log_flush_scheduler_interval_ms),
            |logs, now_ms| {
                logs.run_flush(now_ms);
                Ok(())
            },
        );
        add(
            "recovery point checkpoint",
            millis(config.log_flush_offset_checkpoint_interval_ms.into()),
            |logs, _| logs.checkpoint_recovery_points(),
        );
        add(
            "log start offset checkpoint",
            millis(config.log_flush_start_offset_checkpoint_interval_ms.into()),
            |logs, _| logs.checkpoint_log_start_offsets(),
        );
        add("deletion", DELETION_INTERVAL, |logs, now_ms| {
            logs.run_deletion(now_ms);
            Ok(())
        });
        add(
            "high watermark checkpoint",
            millis(config.replica_high_watermark_checkpoint_interval_ms),
            |logs, _| logs.checkpoint_high_watermarks(),
        );
        started
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
