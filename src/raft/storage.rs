//! What `kavka format` writes for raft, and where a controller finds its bootstrap records.
#![allow(clippy::todo)]

use std::path::Path;

use uuid::Uuid;

use super::{Endpoint, RaftError, VersionedRecord};
use crate::io::disk::Disk;

/// One voter of a dynamic quorum, as `--standalone` and `--initial-controllers` name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapVoter {
    pub voter_id: i32,
    pub voter_directory_id: Uuid,
    pub endpoints: Vec<Endpoint>,
}

/// What the 0-0 checkpoint of a freshly formatted controller holds.
#[derive(Debug, Clone, Default)]
pub struct BootstrapCheckpoint {
    /// 0 with `controller.quorum.voters`, else 1.
    pub kraft_version: i16,
    /// `None` with static voters and with `--no-initial-controllers`.
    pub voters: Option<Vec<BootstrapVoter>>,
    /// Feature levels (metadata.version first), SCRAM users.
    pub records: Vec<VersionedRecord>,
}

/// Writes `<metadata_log_dir>/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint` (mode 0400).
pub fn write_bootstrap_checkpoint(
    disk: &dyn Disk,
    metadata_log_dir: &Path,
    checkpoint: &BootstrapCheckpoint,
    now_ms: i64,
) -> Result<(), RaftError> {
    let _ = (disk, metadata_log_dir, checkpoint, now_ms);
    todo!()
}

/// The records with which a controller fills an empty metadata log: those of the 0-0 checkpoint (4.x), else of
/// `bootstrap.checkpoint` (before 4.1), else none (then: the latest production metadata.version).
pub fn read_bootstrap_records(
    disk: &dyn Disk,
    metadata_log_dir: &Path,
) -> Result<Option<Vec<VersionedRecord>>, RaftError> {
    let _ = (disk, metadata_log_dir);
    todo!()
}
