//! What `kavka format` writes for raft, and where a controller finds its bootstrap records.
//!
//! Kafka 4.1 and later keep them in the checkpoint 0-0 beside the metadata log (KIP-1170), older ones in `bootstrap.checkpoint` in the
//! metadata log dir. The former's control records count as voters and kraft.version at offset -1.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::records;
use super::snapshot::{SnapshotReader, SnapshotWriter, snapshot_path};
use super::voters::{ReplicaKey, VoterNode, VoterSet};
use super::{BOOTSTRAP_SNAPSHOT_ID, CLUSTER_METADATA_TOPIC_NAME, Endpoint, RaftError, VersionedRecord};
use crate::io::disk::Disk;
use crate::protocol::records::metadata::MetadataRecord;
use crate::record::{BatchHeader, records_of};

/// The file of Kafka before 4.1.
const LEGACY_BOOTSTRAP_FILE_NAME: &str = "bootstrap.checkpoint";

/// `__cluster_metadata-0` in a metadata log dir.
pub fn metadata_partition_dir(metadata_log_dir: &Path) -> PathBuf {
    metadata_log_dir.join(format!("{CLUSTER_METADATA_TOPIC_NAME}-0"))
}

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

/// Writes `<metadata_log_dir>/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint` (mode 0400). All of it is on disk when
/// this returns.
pub fn write_bootstrap_checkpoint(
    disk: &Arc<dyn Disk>,
    metadata_log_dir: &Path,
    checkpoint: &BootstrapCheckpoint,
    now_ms: i64,
) -> Result<(), RaftError> {
    let dir = metadata_partition_dir(metadata_log_dir);
    disk.create_dir_all(&dir)
        .and_then(|()| disk.sync_dir(metadata_log_dir))
        .map_err(|error| RaftError::io("creating", &dir, error))?;
    let voters = checkpoint.voters.as_ref().map(|voters| {
        VoterSet::new(voters.iter().map(|voter| VoterNode {
            key: ReplicaKey::new(voter.voter_id, voter.voter_directory_id),
            endpoints: voter.endpoints.clone(),
            min_kraft_version: super::MIN_KRAFT_VERSION,
            max_kraft_version: super::MAX_KRAFT_VERSION,
        }))
    });
    let mut writer = SnapshotWriter::create(
        Arc::clone(disk),
        &dir,
        BOOTSTRAP_SNAPSHOT_ID,
        now_ms,
        checkpoint.kraft_version,
        voters.as_ref(),
        now_ms,
    )?;
    writer.append(&checkpoint.records, now_ms)?;
    writer.freeze(now_ms).map(drop)
}

/// The records with which a controller fills an empty metadata log: those of the 0-0 checkpoint (4.1 and later), else of
/// `bootstrap.checkpoint`, else none (then: the latest production metadata.version).
pub fn read_bootstrap_records(
    disk: &dyn Disk,
    metadata_log_dir: &Path,
) -> Result<Option<Vec<VersionedRecord>>, RaftError> {
    let paths = [
        snapshot_path(&metadata_partition_dir(metadata_log_dir), BOOTSTRAP_SNAPSHOT_ID),
        metadata_log_dir.join(LEGACY_BOOTSTRAP_FILE_NAME),
    ];
    match paths.iter().find(|path| disk.exists(path)) {
        Some(path) => read_records(disk, path).map(Some),
        None => Ok(None),
    }
}

/// All data records of a checkpoint file with their versions; its name does not matter.
fn read_records(disk: &dyn Disk, path: &Path) -> Result<Vec<VersionedRecord>, RaftError> {
    let mut reader = SnapshotReader::open(disk, path, BOOTSTRAP_SNAPSHOT_ID)?;
    let mut records = Vec::new();
    while let Some((header, batch)) = reader.next_raw_batch()? {
        records::decode_batch(header, &batch).map_err(|reason| RaftError::corrupt(path, reason))?;
        records.extend(versioned_records(header, &batch).map_err(|reason| RaftError::corrupt(path, reason))?);
    }
    Ok(records)
}

fn versioned_records(header: BatchHeader, batch: &Bytes) -> Result<Vec<VersionedRecord>, String> {
    if header.is_control() {
        return Ok(Vec::new());
    }
    let mut versioned = Vec::new();
    for record in records_of(batch).map_err(|error| error.to_string())? {
        let value = record.map_err(|error| error.to_string())?.value;
        let decoded = MetadataRecord::decode_framed(value.unwrap_or_default());
        versioned.push(decoded.map_err(|error| error.to_string())?);
    }
    Ok(versioned)
}

#[cfg(test)]
#[path = "storage_test.rs"]
mod storage_test;
