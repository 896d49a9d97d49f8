//! What can go wrong in raft. Answers to remote requests are codes in the answers, not errors.

use std::io;
use std::path::PathBuf;

use super::OffsetAndEpoch;
use crate::io::disk::is_no_space;

#[derive(Debug, Clone, thiserror::Error)]
pub enum RaftError {
    #[error("this node is not the leader of epoch {epoch} (the current epoch is {current_epoch})")]
    NotLeader { epoch: i32, current_epoch: i32 },
    #[error("the append of {size} bytes exceeds the {max} bytes of a batch")]
    RecordBatchTooLarge { size: usize, max: usize },
    #[error("{pending} bytes wait to be written already")]
    BufferFull { pending: usize },
    #[error("an append needs records")]
    EmptyBatch,
    #[error("snapshot {id} cannot be made: {reason}")]
    InvalidSnapshot { id: OffsetAndEpoch, reason: String },
    #[error("raft is shut down")]
    ShutDown,
    #[error("{operation} of {} failed: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::sync::Arc<io::Error>,
    },
    #[error("{} is not what it should be: {reason}", path.display())]
    Corrupt { path: PathBuf, reason: String },
    #[error("the metadata log failed: {0}")]
    Log(String),
    /// Nothing was written; the same succeeds when there is room.
    #[error("the metadata log found no room: {0}")]
    NoSpace(String),
}

impl RaftError {
    pub(crate) fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.into(),
            source: std::sync::Arc::new(source),
        }
    }

    pub fn is_no_space(&self) -> bool {
        match self {
            Self::NoSpace(_) => true,
            Self::Io { source, .. } => is_no_space(source),
            _ => false,
        }
    }

    pub(crate) fn corrupt(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.into(),
            reason: reason.into(),
        }
    }
}
