//! The log directories of one node.
#![allow(clippy::todo, unused_variables)]

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::{LogConfig, LogError, TopicPartition, UnifiedLog};
use crate::io::clock::Clock;
use crate::io::disk::Disk;

/// Called once for a log directory that went offline, from whatever thread met the error; must be quick.
pub type LogDirFailureListener = Arc<dyn Fn(&Path, &LogError) + Send + Sync>;

/// How the log directories are opened.
#[derive(Clone)]
pub struct LogManagerConfig {
    pub log_dirs: Vec<PathBuf>,
    pub defaults: LogConfig,
    /// Topic -> its own settings, where it has any (from the metadata image); others get `defaults`.
    pub topic_configs: HashMap<String, LogConfig>,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads_per_data_dir: usize,
    /// `transaction.max.timeout.ms`: when an open transaction is late.
    pub max_transaction_timeout_ms: i32,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i32,
    /// How many files the logs may keep open.
    pub max_open_files: usize,
    pub on_log_dir_failure: LogDirFailureListener,
}

impl fmt::Debug for LogManagerConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LogManagerConfig")
            .field("log_dirs", &self.log_dirs)
            .finish_non_exhaustive()
    }
}

/// All logs of a node, but for the metadata log, which raft opens by `open_metadata_log`.
#[derive(Debug)]
pub struct LogManager {
    config: LogManagerConfig,
}

impl LogManager {
    /// Makes missing directories, takes their `.lock` files and reads the clean-shutdown files. Loads nothing yet.
    pub fn open(
        config: LogManagerConfig,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LogError> {
        todo!()
    }

    /// Loads all logs, recovering where the last shutdown was not clean; the metadata log's folder is left alone.
    /// `is_stray` says for a folder's topic and topic id whether it belongs here (from the metadata image).
    pub fn load_logs(&self, is_stray: &(dyn Fn(&UnifiedLog) -> bool + Sync)) -> Result<(), LogError> {
        todo!()
    }

    /// Opens or makes `__cluster_metadata-0` in a log directory.
    pub fn open_metadata_log(&self, log_dir: &Path, config: LogConfig) -> Result<Arc<UnifiedLog>, LogError> {
        todo!()
    }

    pub fn get(&self, topic_partition: &TopicPartition) -> Option<Arc<UnifiedLog>> {
        todo!()
    }

    /// A new log goes to the directory with the fewest.
    pub fn get_or_create(
        &self,
        topic_partition: &TopicPartition,
        topic_id: Option<Uuid>,
        config: LogConfig,
    ) -> Result<Arc<UnifiedLog>, LogError> {
        todo!()
    }

    pub fn all_logs(&self) -> Vec<Arc<UnifiedLog>> {
        todo!()
    }

    /// Renames the folder to `-delete` at once; the files go after `file.delete.delay.ms`.
    pub fn async_delete(&self, topic_partition: &TopicPartition) -> Result<(), LogError> {
        todo!()
    }

    /// The high watermark that `replication-offset-checkpoint` had for it at start.
    pub fn checkpointed_high_watermark(&self, topic_partition: &TopicPartition) -> Option<i64> {
        todo!()
    }

    /// `replication-offset-checkpoint` of every dir, from the logs' own high watermarks.
    pub fn checkpoint_high_watermarks(&self) -> Result<(), LogError> {
        todo!()
    }

    pub fn checkpoint_recovery_points(&self) -> Result<(), LogError> {
        todo!()
    }

    pub fn checkpoint_log_start_offsets(&self) -> Result<(), LogError> {
        todo!()
    }

    /// One pass of retention (`log.retention.check.interval.ms`) and of what is due for removal.
    pub fn run_retention(&self, now_ms: i64) {
        todo!()
    }

    /// One pass of `flush.ms` (`log.flush.scheduler.interval.ms`).
    pub fn run_flush(&self, now_ms: i64) {
        todo!()
    }

    /// Removes `-delete` folders and `.deleted` files that are due; returns when the next is due.
    pub fn run_deletion(&self, now_ms: i64) -> Option<i64> {
        todo!()
    }

    pub fn update_topic_config(&self, topic: &str, config: LogConfig) {
        todo!()
    }

    pub fn live_log_dirs(&self) -> Vec<PathBuf> {
        todo!()
    }

    /// `directory.id` of meta.properties, for BrokerRegistration and AssignReplicasToDirs.
    pub fn is_log_dir_online(&self, log_dir: &Path) -> bool {
        todo!()
    }

    /// The broker epoch of the last clean shutdown, if every directory had one (else -1): BrokerRegistration.
    pub fn previous_broker_epoch(&self) -> i64 {
        todo!()
    }

    /// Flushes and closes all logs, writes checkpoints and `.kafka_cleanshutdown`, frees the locks.
    pub fn shutdown(&self, broker_epoch: i64) -> Result<(), LogError> {
        todo!()
    }
}
