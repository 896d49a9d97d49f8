//! Checkpoint files: snapshots of the metadata log (KIP-630), and the file that formatting leaves.
//!
//! ```text
//! <20-digit end offset>-<10-digit epoch>.checkpoint         a snapshot, read-only
//! <...>-<random>.checkpoint.part                            being written; removed at start
//! <...>.checkpoint.deleted                                  forgotten; removed a minute later or at start
//! ```
//! A file is a plain row of batches whose offsets start at 0: a control batch (SnapshotHeader, then KRaftVersion and
//! KRaftVoters from kraft.version 1 on), data batches of up to 1024 records, a control batch with SnapshotFooter.
//! It is complete and on disk before it gets its name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::control::ControlRecord;
use super::records::{self, DecodedBatch};
use super::voters::VoterSet;
use super::{OffsetAndEpoch, RaftError, SnapshotContents, VersionedRecord};
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::record::{BatchHeader, RECORD_BATCH_OVERHEAD};

const SUFFIX: &str = ".checkpoint";
const PARTIAL_SUFFIX: &str = ".checkpoint.part";
const DELETED_SUFFIX: &str = ".checkpoint.deleted";
const OFFSET_WIDTH: usize = 20;
const EPOCH_WIDTH: usize = 10;

/// Kafka's image writer hands records over in lists of this size; each becomes a batch.
pub const RECORDS_PER_BATCH: usize = 1024;

fn stem(id: OffsetAndEpoch) -> String {
    format!("{:020}-{:010}", id.offset, id.epoch)
}

pub fn snapshot_path(dir: &Path, id: OffsetAndEpoch) -> PathBuf {
    dir.join(stem(id) + SUFFIX)
}

pub fn deleted_path(dir: &Path, id: OffsetAndEpoch) -> PathBuf {
    dir.join(stem(id) + DELETED_SUFFIX)
}

/// A file name of one of the three kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotFileName {
    pub id: OffsetAndEpoch,
    pub partial: bool,
    pub deleted: bool,
}

impl SnapshotFileName {
    /// `None`: not a checkpoint's name.
    pub fn parse(name: &str) -> Option<Self> {
        let partial = name.ends_with(PARTIAL_SUFFIX);
        let deleted = name.ends_with(DELETED_SUFFIX);
        if !partial && !deleted && !name.ends_with(SUFFIX) {
            return None;
        }
        let digits = |from: usize, width: usize| {
            name.get(from..from + width)
                .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let offset = digits(0, OFFSET_WIDTH)?.parse().ok()?;
        if name.as_bytes().get(OFFSET_WIDTH) != Some(&b'-') {
            return None;
        }
        let epoch = digits(OFFSET_WIDTH + 1, EPOCH_WIDTH)?.parse().ok()?;
        Some(Self {
            id: OffsetAndEpoch::new(offset, epoch),
            partial,
            deleted,
        })
    }
}

/// Writes one checkpoint; nothing is seen of it before [`SnapshotWriter::freeze`].
pub struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    id: OffsetAndEpoch,
    partial_path: PathBuf,
    file: Arc<dyn DiskFile>,
    position: u64,
    next_offset: i64,
}

impl SnapshotWriter {
    /// Makes the temporary file and writes the header batch. `voters` is written from kraft.version 1 on.
    pub fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        id: OffsetAndEpoch,
        last_contained_log_timestamp: i64,
        kraft_version: i16,
        voters: Option<&VoterSet>,
        now_ms: i64,
    ) -> Result<Self, RaftError> {
        let name = format!("{}-{}{PARTIAL_SUFFIX}", stem(id), fastrand::u64(..));
        let partial_path = dir.join(name);
        let file = disk
            .open(&partial_path, OpenMode::CreateTruncate)
            .map_err(|error| RaftError::io("creating", &partial_path, error))?;
        let mut writer = Self {
            disk,
            dir: dir.to_owned(),
            id,
            partial_path,
            file,
            position: 0,
            next_offset: 0,
        };
        let mut header = vec![ControlRecord::SnapshotHeader {
            last_contained_log_timestamp,
        }];
        if kraft_version >= 1 {
            header.push(ControlRecord::KRaftVersion(kraft_version));
            header.extend(voters.cloned().map(ControlRecord::KRaftVoters));
        }
        match writer.append_control(&header, now_ms) {
            Ok(()) => Ok(writer),
            Err(error) => {
                writer.abort();
                Err(error)
            }
        }
    }

    /// One data batch (more, if it would be too large for one).
    pub fn append(&mut self, records: &[VersionedRecord], now_ms: i64) -> Result<(), RaftError> {
        if records.is_empty() {
            return Ok(());
        }
        let batch = records::encode_data_batch(self.next_offset, self.id.epoch, now_ms, records)
            .map_err(|reason| RaftError::corrupt(&self.partial_path, reason))?;
        if batch.len() > records::MAX_BATCH_SIZE_BYTES && records.len() > 1 {
            let (left, right) = records.split_at(records.len() / 2);
            self.append(left, now_ms)?;
            return self.append(right, now_ms);
        }
        self.write(&batch, records.len())
    }

    fn append_control(&mut self, control: &[ControlRecord], now_ms: i64) -> Result<(), RaftError> {
        let batch = records::encode_control_batch(self.next_offset, self.id.epoch, now_ms, control)
            .map_err(|reason| RaftError::corrupt(&self.partial_path, reason))?;
        self.write(&batch, control.len())
    }

    fn write(&mut self, batch: &[u8], records: usize) -> Result<(), RaftError> {
        self.file
            .write_all_at(batch, self.position)
            .map_err(|error| RaftError::io("writing", &self.partial_path, error))?;
        self.position += batch.len() as u64;
        self.next_offset += records as i64;
        Ok(())
    }

    /// Footer, fsync, read-only, rename, fsync of the directory. Returns the size.
    pub fn freeze(mut self, now_ms: i64) -> Result<u64, RaftError> {
        match self.complete(now_ms) {
            Ok(()) => Ok(self.position),
            Err(error) => {
                self.abort();
                Err(error)
            }
        }
    }

    fn complete(&mut self, now_ms: i64) -> Result<(), RaftError> {
        self.append_control(&[ControlRecord::SnapshotFooter], now_ms)?;
        self.file
            .sync_data()
            .map_err(|error| RaftError::io("syncing", &self.partial_path, error))?;
        let path = snapshot_path(&self.dir, self.id);
        self.disk
            .set_read_only(&self.partial_path)
            .and_then(|()| self.disk.rename(&self.partial_path, &path))
            .and_then(|()| self.disk.sync_dir(&self.dir))
            .map_err(|error| RaftError::io("renaming", &self.partial_path, error))
    }

    /// Removes what was written; best effort, a start removes it too.
    pub fn abort(self) {
        let _ = self.disk.remove_file(&self.partial_path);
    }
}

/// Reads a checkpoint batch by batch.
pub struct SnapshotReader {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    id: OffsetAndEpoch,
    position: u64,
    size: u64,
}

impl SnapshotReader {
    pub fn open(disk: &dyn Disk, path: &Path, id: OffsetAndEpoch) -> Result<Self, RaftError> {
        let file = disk
            .open(path, OpenMode::Read)
            .map_err(|error| RaftError::io("opening", path, error))?;
        let size = file.len().map_err(|error| RaftError::io("sizing", path, error))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            id,
            position: 0,
            size,
        })
    }

    pub fn next_batch(&mut self) -> Result<Option<DecodedBatch>, RaftError> {
        let Some((header, batch)) = self.next_raw_batch()? else {
            return Ok(None);
        };
        records::decode_batch(header, &batch)
            .map(Some)
            .map_err(|reason| RaftError::corrupt(&self.path, reason))
    }

    pub fn next_raw_batch(&mut self) -> Result<Option<(BatchHeader, Bytes)>, RaftError> {
        if self.position == self.size {
            return Ok(None);
        }
        let mut header = [0; RECORD_BATCH_OVERHEAD];
        self.read_exactly(&mut header)?;
        let header =
            BatchHeader::parse(&header).map_err(|error| RaftError::corrupt(&self.path, error.to_string()))?;
        let size = header.size_in_bytes();
        if size as u64 > self.size - self.position {
            return Err(RaftError::corrupt(
                &self.path,
                format!("the batch at position {} is cut off", self.position),
            ));
        }
        let mut batch = vec![0; size];
        self.read_exactly(&mut batch)?;
        self.position += size as u64;
        Ok(Some((header, Bytes::from(batch))))
    }

    fn read_exactly(&self, buffer: &mut [u8]) -> Result<(), RaftError> {
        let read = self
            .file
            .read_at(buffer, self.position)
            .map_err(|error| RaftError::io("reading", &self.path, error))?;
        if read < buffer.len() {
            return Err(RaftError::corrupt(
                &self.path,
                format!("the batch at position {} is cut off", self.position),
            ));
        }
        Ok(())
    }

    /// The data batches with what the header says; control batches are left out.
    pub fn into_contents(mut self) -> Result<SnapshotContents, RaftError> {
        let header = self.next_batch()?;
        let timestamp = header
            .iter()
            .flat_map(|batch| &batch.control_records)
            .find_map(|record| match record {
                ControlRecord::SnapshotHeader {
                    last_contained_log_timestamp,
                } => Some(*last_contained_log_timestamp),
                _ => None,
            })
            .ok_or_else(|| RaftError::corrupt(&self.path, "it has no SnapshotHeader"))?;
        let id = self.id;
        let batches = std::iter::from_fn(move || {
            loop {
                match self.next_batch() {
                    Ok(Some(batch)) if batch.header.is_control() => {}
                    Ok(Some(batch)) => return Some(Ok(batch.into_committed())),
                    Ok(None) => return None,
                    Err(error) => {
                        // Nothing sensible can follow.
                        self.position = self.size;
                        return Some(Err(error));
                    }
                }
            }
        });
        Ok(SnapshotContents::new(id, timestamp, Box::new(batches)))
    }
}

#[cfg(test)]
#[path = "snapshot_test.rs"]
mod snapshot_test;
