//! What can go wrong in the log: one enum for the layer, mapped to wire codes by `api/error_map.rs` alone.
//!
//! Three families: the caller asked for something the log does not hold or may not take (offsets, records,
//! producer state), the log directory failed (`Storage`, `DirectoryOffline`), the log is gone (`Closed`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::TopicPartition;
use super::validator::ValidationError;

/// An error of the log layer. Cheap to clone: it is kept for a directory that went offline.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    #[error(
        "Received request for offset {offset} for partition {topic_partition}, but we only have log segments \
         from offset {log_start_offset} to {log_end_offset}"
    )]
    OffsetOutOfRange {
        topic_partition: TopicPartition,
        offset: i64,
        log_start_offset: i64,
        log_end_offset: i64,
    },

    /// A batch whose bytes are wrong: CRC, length, count (CORRUPT_MESSAGE).
    #[error("{reason}")]
    CorruptRecord { reason: String },

    /// One batch is above `max.message.bytes` (MESSAGE_TOO_LARGE).
    #[error(
        "The record batch size in the append to {topic_partition} is {size} bytes which exceeds the maximum \
         configured value of {max}."
    )]
    RecordTooLarge {
        topic_partition: TopicPartition,
        size: usize,
        max: usize,
    },

    /// All batches of one append together are above `segment.bytes` (RECORD_LIST_TOO_LARGE).
    #[error(
        "Message batch size is {size} bytes in append to partition {topic_partition}, which exceeds the maximum \
         configured segment size of {max}."
    )]
    RecordBatchTooLarge {
        topic_partition: TopicPartition,
        size: usize,
        max: usize,
    },

    /// The validator refused the records; carries which ones (KIP-467).
    #[error(transparent)]
    Validation(#[from] ValidationError),

    /// INVALID_RECORD, found outside of the validator.
    #[error("{reason}")]
    InvalidRecord { reason: String },

    #[error("{reason}")]
    OutOfOrderSequence { reason: String },

    #[error("{reason}")]
    InvalidProducerEpoch { reason: String },

    #[error("{reason}")]
    InvalidTxnState { reason: String },

    #[error("{reason}")]
    TransactionCoordinatorFenced { reason: String },

    /// A follower's records do not continue this log (Kafka's UnexpectedAppendOffsetException,
    /// OffsetsOutOfOrderException).
    #[error(
        "Unexpected offset in append to {topic_partition}. First offset {first_offset} is not {expected}"
    )]
    UnexpectedAppendOffset {
        topic_partition: TopicPartition,
        first_offset: i64,
        expected: i64,
    },

    #[error(
        "Tried to assign topic ID {topic_id} to log for topic partition {topic_partition}, but log already contained topic ID {current}"
    )]
    InconsistentTopicId {
        topic_partition: TopicPartition,
        topic_id: Uuid,
        current: Uuid,
    },

    /// An I/O error: the log directory is offline from here on (KAFKA_STORAGE_ERROR).
    #[error("Error while {operation} {} in dir {}: {source}", path.display(), dir.display())]
    Storage {
        dir: PathBuf,
        path: PathBuf,
        operation: &'static str,
        source: Arc<io::Error>,
    },

    /// No room is left: the directory stays online, nothing was changed, and the same call succeeds when there is room again
    /// (KAFKA_STORAGE_ERROR).
    #[error("No space left while {operation} {} in dir {}", path.display(), dir.display())]
    NoSpace {
        dir: PathBuf,
        path: PathBuf,
        operation: &'static str,
    },

    /// The directory failed before (KAFKA_STORAGE_ERROR).
    #[error("The log dir {} is offline due to a previous I/O error", dir.display())]
    DirectoryOffline { dir: PathBuf },

    /// Every log dir is offline, or the wanted one is not there.
    #[error("No log directory is available")]
    NoLogDirectory,

    /// Another process holds `.lock`.
    #[error(
        "Failed to acquire lock on file {}. A Kafka instance in another process or thread is using this directory.",
        path.display()
    )]
    LockHeld { path: PathBuf },

    /// The log was closed or deleted while somebody still held it (NOT_LEADER_OR_FOLLOWER / UNKNOWN_TOPIC).
    #[error("The log of {topic_partition} is closed")]
    Closed { topic_partition: TopicPartition },

    /// The logs were being loaded when the node was told to end.
    #[error("The node shuts down")]
    ShuttingDown,

    /// What is on disk cannot be this log (a folder's name, two folders of one partition).
    #[error("{reason}")]
    InvalidLogDirectory { reason: String },
}

impl LogError {
    /// An I/O error on `path`, which lies in the log directory `dir`.
    pub(crate) fn storage(dir: &Path, path: &Path, operation: &'static str, source: io::Error) -> Self {
        LogError::Storage {
            dir: dir.to_path_buf(),
            path: path.to_path_buf(),
            operation,
            source: Arc::new(source),
        }
    }

    pub fn is_no_space(&self) -> bool {
        matches!(self, LogError::NoSpace { .. })
    }
}
