//! The clockwork of the logs: a thread a directory (retention, flushes, checkpoints, removal of deleted files), the
//! cleaner's threads (compaction), the scrub's, and a task on blocking threads: a look at how much room there is.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::config::KafkaConfig;
use crate::log::{BackgroundIntervals, LogCleanerConfig, LogManager, LogScrubConfig};
use crate::replica::ReplicaManager;

/// How often the directories are looked at for room. Appends to a full one look by themselves too.
const ROOM_CHECK: Duration = Duration::from_secs(1);

/// The running tasks; they end with this.
#[derive(Debug)]
pub(super) struct LogTasks {
    room_check: JoinHandle<()>,
}

impl Drop for LogTasks {
    fn drop(&mut self) {
        self.room_check.abort();
    }
}

impl LogTasks {
    pub(super) fn start(
        config: &KafkaConfig,
        log_manager: &Arc<LogManager>,
        replica_manager: &Arc<ReplicaManager>,
        runtime: &Handle,
    ) -> Self {
        let intervals = BackgroundIntervals {
            initial_delay_ms: config.log_initial_task_delay_ms,
            retention_check_ms: config.log_retention_check_interval_ms,
            flush_check_ms: config.log_flush_scheduler_interval_ms,
            recovery_point_checkpoint_ms: config.log_flush_offset_checkpoint_interval_ms.into(),
            log_start_offset_checkpoint_ms: config.log_flush_start_offset_checkpoint_interval_ms.into(),
            high_watermark_checkpoint_ms: config.replica_high_watermark_checkpoint_interval_ms,
        };
        if let Err(error) = log_manager.start_background(intervals) {
            tracing::error!(%error, "could not start the thread of the logs: no retention, no checkpoints");
        }
        if config.log_cleaner_enable
            && let Err(error) = log_manager.start_cleaner(log_cleaner_config(config))
        {
            tracing::error!(%error, "the log cleaner's threads could not be started: compacted topics grow");
        }
        let scrub = LogScrubConfig {
            bytes_per_second: config.kavka_log_scrub_io_max_bytes_per_second as f64,
            interval_ms: config.kavka_log_scrub_interval_ms,
            initial_delay_ms: config.log_initial_task_delay_ms.unsigned_abs(),
        };
        if scrub.bytes_per_second > 0.0
            && let Err(error) = log_manager.start_scrub(scrub)
        {
            tracing::error!(%error, "the scrub's thread could not be started: closed segments are not checked");
        }
        Self {
            room_check: runtime.spawn(check_room(log_manager.clone(), replica_manager.clone())),
        }
    }
}

pub(super) fn log_cleaner_config(config: &KafkaConfig) -> LogCleanerConfig {
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

/// The floor of free bytes, the reserve, and logs that could not be made.
async fn check_room(logs: Arc<LogManager>, replicas: Arc<ReplicaManager>) {
    let mut ticks = tokio::time::interval(ROOM_CHECK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (logs, replicas) = (logs.clone(), replicas.clone());
        let look = move || {
            logs.check_room();
            replicas.make_what_found_no_room();
        };
        if let Err(error) = tokio::task::spawn_blocking(look).await {
            tracing::error!(%error, "the look for room panicked; it is tried again");
        }
    }
}
