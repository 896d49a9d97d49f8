//! DISK: one partition's log, log directories, checkpoints, recovery, retention.
//!
//! Owns every file of a log directory but `meta.properties` and the metadata log's quorum files. The map:
//!
//! ```text
//! log_manager      log dirs: lock, clean-shutdown file, checkpoints, loading, deletion, retention pass
//!   log_move       a log on its way to another directory
//!   unified_log    one partition: append, read, offsets, truncation, retention
//!     recovery     what is done to its files at start
//!     segment      .log + offset_index + time_index + transaction_index
//!     producer_state*  verification*  leader_epoch_cache*            (pure)
//!     validator*   the rules for producers' records
//!   log_cleaner    compaction: which log, what stays, the swap (log_replace)
//!   log_scrubber   reads closed segments again, slowly; known_bad: what it (or a recovery) found; damage: how far that goes;
//!                  offset_order*: offsets that cannot be right
//!   checkpoint, clean_shutdown, partition_metadata    small text files, replaced atomically
//!   open_file_cache  which of the files are open
//! ```
//!
//! Never knows replicas, requests or error codes of the wire.

pub mod meta_properties;
pub mod validator;

use std::fmt;
use std::sync::Arc;

mod batch_scanner;
pub mod checkpoint;
mod damage;
mod error;
mod index_file;
mod known_bad;
pub mod leader_epoch_cache;
mod log_append;
mod log_background;
mod log_cleaner;
mod log_cleaner_filter;
mod log_cleaner_manager;
mod log_cleaner_pass;
mod log_cleaner_transactions;
mod log_dir;
mod log_dir_description;
mod log_folder;
mod log_maintenance;
mod log_manager;
mod log_metrics;
mod log_move;
mod log_read;
mod log_replace;
mod log_scrubber;
mod log_segment;
mod offset_index;
mod offset_map;
mod offset_order;
mod open_file_cache;
mod producer_files;
pub mod producer_state;
mod published;
mod recovery;
mod reserve;
mod time_index;
mod transaction_index;
mod types;
mod unified_log;
mod unsynced;
mod verification;

pub use crate::config::LogConfig;
pub use error::LogError;
pub use log_background::BackgroundIntervals;
pub use log_cleaner::LogCleanerConfig;
pub use log_dir_description::{LogDescription, LogDirContent, LogDirDescription};
pub use log_manager::{LogDirFailureListener, LogManager, LogManagerConfig};
pub use log_scrubber::{LogScrubConfig, ScrubStats};
pub use reserve::Reserve;
pub use types::{
    AbortedTransaction, AppendOrigin, FetchDataInfo, FetchIsolation, LogAppendInfo, LogOffsetMetadata,
    ProducerStateSummary, TimestampAndOffset, UNKNOWN_FILE_POSITION,
};
pub use unified_log::UnifiedLog;
pub use verification::{TransactionCheck, VerificationGuard, VerificationRequest};

/// A topic's name and a partition's index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod full_disk_test;
#[cfg(test)]
mod golden_test;
#[cfg(test)]
pub(crate) mod log_manager_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod unified_log_test;
