//! The log of `__cluster_metadata-0` with the snapshots beside it: what the raft thread writes, the metadata loader
//! snapshots and request handlers read.
//!
//! ```text
//! earliest snapshot <= ... <= latest snapshot <= high watermark <= flushed <= log end
//! log start = 0, or the end offset of the earliest snapshot
//! ```
//! A snapshot is dropped only if a later one exists, and then the log starts where the next one ends. Only the raft thread appends,
//! flushes and moves offsets; snapshots may be made by one other thread.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::control::ControlRecord;
use super::node::LogView;
use super::records::{self, DecodedBatch};
use super::snapshot::{SnapshotFileName, SnapshotReader, deleted_path, snapshot_path};
use super::voters::QuorumHistory;
use super::{BOOTSTRAP_SNAPSHOT_ID, CLUSTER_METADATA_TOPIC_ID, OffsetAndEpoch, RaftError, SnapshotContents};
use crate::io::disk::{Disk, OpenMode, is_no_space};
use crate::log::{FetchIsolation, LogError, UnifiedLog};
use crate::record::{BatchHeader, Batches, RecordError};

/// Kafka's `file.delete.delay.ms`.
const FILE_DELETE_DELAY_MS: i64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// `metadata.max.retention.bytes`; negative: no limit.
    pub max_bytes: i64,
    /// `metadata.max.retention.ms`; negative: no limit.
    pub max_ms: i64,
}

#[derive(Debug, Clone, Copy)]
struct SnapshotFile {
    size: u64,
    last_contained_log_timestamp: i64,
}

pub struct MetadataLog {
    log: Arc<UnifiedLog>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    snapshots: Mutex<BTreeMap<OffsetAndEpoch, SnapshotFile>>,
    /// `.deleted` files and when they go.
    forgotten: Mutex<Vec<(PathBuf, i64)>>,
}

fn log_error(error: LogError) -> RaftError {
    if error.is_no_space() {
        RaftError::NoSpace(error.to_string())
    } else {
        RaftError::Log(error.to_string())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MetadataLog {
    /// Takes stock of the snapshots, removes what a crash left half made, and empties a log that a downloaded snapshot overtook.
    pub fn open(log: Arc<UnifiedLog>, disk: Arc<dyn Disk>) -> Result<Self, RaftError> {
        log.assign_topic_id(CLUSTER_METADATA_TOPIC_ID)
            .map_err(log_error)?;
        let dir = log.dir();
        let metadata_log = Self {
            log,
            disk,
            dir,
            snapshots: Mutex::new(BTreeMap::new()),
            forgotten: Mutex::new(Vec::new()),
        };
        metadata_log.recover_snapshots()?;
        metadata_log.truncate_to_latest_snapshot()?;
        Ok(metadata_log)
    }

    fn recover_snapshots(&self) -> Result<(), RaftError> {
        let start = self.log.log_start_offset();
        let names = self
            .disk
            .list(&self.dir)
            .map_err(|error| RaftError::io("listing", &self.dir, error))?;
        let mut unneeded = Vec::new();
        for (name, _) in names {
            let Some(file) = name.to_str().and_then(SnapshotFileName::parse) else {
                continue;
            };
            if file.partial || file.deleted || file.id.offset < start {
                unneeded.push(self.dir.join(&name));
            } else {
                self.note_snapshot(file.id)?;
            }
        }
        let latest = self.latest_snapshot_id();
        if start > 0 && latest.is_none_or(|latest| latest.offset < start) {
            return Err(RaftError::corrupt(
                &self.dir,
                format!("the log starts at offset {start}, but no snapshot holds what came before"),
            ));
        }
        for path in unneeded {
            self.disk
                .remove_file(&path)
                .map_err(|error| RaftError::io("removing", &path, error))?;
        }
        Ok(())
    }

    fn truncate_to_latest_snapshot(&self) -> Result<(), RaftError> {
        let Some(latest) = self.latest_snapshot_id() else {
            return Ok(());
        };
        let epoch = self.log.latest_epoch().unwrap_or(0);
        let behind =
            latest.epoch > epoch || (latest.epoch == epoch && latest.offset > self.log.log_end_offset());
        if behind {
            self.log
                .truncate_fully_and_start_at(latest.offset, None)
                .map_err(log_error)?;
            self.forget_snapshots_before(latest, i64::MIN)?;
        }
        Ok(())
    }

    /// Enters a snapshot file that has its final name.
    pub fn note_snapshot(&self, id: OffsetAndEpoch) -> Result<(), RaftError> {
        let path = snapshot_path(&self.dir, id);
        let size = self
            .disk
            .open(&path, OpenMode::Read)
            .and_then(|file| file.len())
            .map_err(|error| RaftError::io("sizing", &path, error))?;
        let contents = SnapshotReader::open(&*self.disk, &path, id)?.into_contents()?;
        let file = SnapshotFile {
            size,
            last_contained_log_timestamp: contents.last_contained_log_timestamp,
        };
        locked(&self.snapshots).insert(id, file);
        Ok(())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub fn contains_snapshot(&self, id: OffsetAndEpoch) -> bool {
        locked(&self.snapshots).contains_key(&id)
    }

    /// The latest snapshot that is more than the formatting checkpoint.
    pub fn open_latest_snapshot(&self) -> Result<Option<SnapshotContents>, RaftError> {
        match self.latest_snapshot_id() {
            Some(id) if id != BOOTSTRAP_SNAPSHOT_ID => {
                let path = snapshot_path(&self.dir, id);
                SnapshotReader::open(&*self.disk, &path, id)?
                    .into_contents()
                    .map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Size, and bytes from `position` on: for FetchSnapshot. `None`: no such snapshot.
    pub fn read_snapshot(
        &self,
        id: OffsetAndEpoch,
        position: u64,
        max_bytes: usize,
    ) -> Result<Option<(u64, Bytes)>, RaftError> {
        let Some(size) = locked(&self.snapshots).get(&id).map(|file| file.size) else {
            return Ok(None);
        };
        let path = snapshot_path(&self.dir, id);
        let length = size.saturating_sub(position).min(max_bytes as u64) as usize;
        let mut bytes = vec![0; length];
        let read = self
            .disk
            .open(&path, OpenMode::Read)
            .and_then(|file| file.read_at(&mut bytes, position))
            .map_err(|error| RaftError::io("reading", &path, error))?;
        bytes.truncate(read);
        Ok(Some((size, Bytes::from(bytes))))
    }

    /// Control records along snapshot and log: voters and kraft.version. Reads the whole log once.
    pub fn load_quorum_history(&self, history: &mut QuorumHistory) -> Result<(), RaftError> {
        let mut next_offset = self.log.log_start_offset();
        if let Some(id) = self.latest_snapshot_id() {
            let path = snapshot_path(&self.dir, id);
            // Control records of a snapshot count as of its last record; those of the formatting checkpoint as of offset -1.
            let offset = id.offset - 1;
            let mut reader = SnapshotReader::open(&*self.disk, &path, id)?;
            if let Some(header) = reader.next_batch()? {
                for record in header.control_records {
                    note_control_record(history, offset, record);
                }
            }
            next_offset = id.offset;
        }
        while next_offset < self.log.log_end_offset() {
            let bytes = self.read(next_offset, READ_CHUNK_BYTES)?;
            for (header, batch) in self.whole_batches(&bytes, next_offset)? {
                if header.is_control() {
                    let decoded =
                        records::decode_batch(header, &batch).map_err(|reason| self.corrupt(reason))?;
                    for (offset, record) in (header.base_offset..).zip(decoded.control_records) {
                        note_control_record(history, offset, record);
                    }
                }
                next_offset = header.next_offset();
            }
        }
        Ok(())
    }

    /// The batches from `offset` on that a chunk of the log holds whole: at least one. The end of a chunk may cut one.
    fn whole_batches(&self, chunk: &Bytes, offset: i64) -> Result<Vec<(BatchHeader, Bytes)>, RaftError> {
        let mut whole = Vec::new();
        for batch in Batches::of_bytes(chunk) {
            match batch {
                Ok((header, _)) if header.base_offset < offset => {}
                Ok(batch) => whole.push(batch),
                Err(RecordError::Torn { .. }) if !whole.is_empty() => break,
                Err(error) => return Err(self.corrupt(error)),
            }
        }
        if whole.is_empty() {
            return Err(self.corrupt(format!("nothing can be read at offset {offset}")));
        }
        Ok(whole)
    }

    fn corrupt(&self, reason: impl std::fmt::Display) -> RaftError {
        RaftError::corrupt(&self.dir, reason.to_string())
    }

    /// Batches from the one that holds `offset` on, up to the log end.
    pub fn read(&self, offset: i64, max_bytes: usize) -> Result<Bytes, RaftError> {
        self.log
            .read_bytes(offset, max_bytes, FetchIsolation::LogEnd, true)
            .map_err(log_error)
    }

    /// The decoded batches in [offset, end), or the first part of them: at least one, if there is one.
    pub fn read_batches(&self, offset: i64, end: i64) -> Result<Vec<DecodedBatch>, RaftError> {
        if offset >= end {
            return Ok(Vec::new());
        }
        let bytes = self.read(offset, READ_CHUNK_BYTES)?;
        self.whole_batches(&bytes, offset)?
            .into_iter()
            .take_while(|(header, _)| header.base_offset < end)
            .map(|(header, batch)| {
                records::decode_batch(header, &batch).map_err(|reason| self.corrupt(reason))
            })
            .collect()
    }

    /// Writes; durable after [`MetadataLog::flush`]. On a full disk the reserve is given up for it.
    pub fn append(&self, batches: &Bytes) -> Result<(), RaftError> {
        let appended = match self.log.append_prepared(batches) {
            Err(error) if error.is_no_space() && self.log.give_up_reserve() => {
                self.log.append_prepared(batches)
            }
            appended => appended,
        };
        appended.map(drop).map_err(log_error)
    }

    /// False when there is nothing to give up.
    pub fn give_up_reserve(&self) -> bool {
        self.log.give_up_reserve()
    }

    pub fn flush(&self) -> Result<(), RaftError> {
        self.log.flush().map_err(log_error)
    }

    pub fn update_high_watermark(&self, high_watermark: i64) {
        self.log.update_high_watermark(high_watermark);
    }

    /// May a snapshot of this id be made? `Ok(false)`: there is one, or the log starts behind it.
    pub fn validate_new_snapshot(
        &self,
        id: OffsetAndEpoch,
        high_watermark: Option<i64>,
    ) -> Result<bool, RaftError> {
        if id.offset < self.log.log_start_offset() || self.contains_snapshot(id) {
            return Ok(false);
        }
        let invalid = |reason: String| RaftError::InvalidSnapshot { id, reason };
        if high_watermark.is_none_or(|high_watermark| id.offset > high_watermark) {
            return Err(invalid(format!(
                "it is above the high watermark {high_watermark:?}"
            )));
        }
        let end = self.end_offset_for_epoch(id.epoch);
        if end.epoch != id.epoch || end.offset < id.offset {
            return Err(invalid(format!("the log has {end}")));
        }
        if id.offset < self.log.log_end_offset() {
            let bytes = self.read(id.offset, 1)?;
            let base_offset = Batches::new(&bytes)
                .next()
                .transpose()
                .map_err(|error| self.corrupt(error))?
                .map(|(header, _)| header.base_offset);
            if base_offset != Some(id.offset) {
                return Err(invalid("it ends within a batch".to_owned()));
            }
        }
        Ok(true)
    }

    /// Retention by size, then by time: drops the oldest snapshot and the log before the next one, as long as the limits are
    /// exceeded and one is left. Also removes files that were forgotten a minute ago. Returns whether the log start moved.
    pub fn clean(&self, now_ms: i64, retention: Retention) -> Result<bool, RaftError> {
        self.remove_forgotten(now_ms)?;
        let mut cleaned = false;
        loop {
            let snapshots: Vec<(OffsetAndEpoch, SnapshotFile)> = locked(&self.snapshots)
                .iter()
                .map(|(id, file)| (*id, *file))
                .collect();
            let [(_, oldest), (next, _), ..] = snapshots.as_slice() else {
                return Ok(cleaned);
            };
            let total = self.log.size_in_bytes() + snapshots.iter().map(|(_, file)| file.size).sum::<u64>();
            let too_large = u64::try_from(retention.max_bytes).is_ok_and(|max_bytes| total > max_bytes);
            let too_old =
                retention.max_ms >= 0 && now_ms - oldest.last_contained_log_timestamp > retention.max_ms;
            if !(too_large || too_old) || !self.delete_before_snapshot(*next, now_ms)? {
                return Ok(cleaned);
            }
            cleaned = true;
        }
    }

    /// Starts the log at a snapshot and forgets those before it.
    fn delete_before_snapshot(&self, id: OffsetAndEpoch, now_ms: i64) -> Result<bool, RaftError> {
        if self.log.log_start_offset() >= id.offset
            || !self
                .log
                .maybe_increment_log_start_offset(id.offset)
                .map_err(log_error)?
        {
            return Ok(false);
        }
        self.log.delete_old_segments(now_ms).map_err(log_error)?;
        self.forget_snapshots_before(id, now_ms)?;
        Ok(true)
    }

    fn forget_snapshots_before(&self, id: OffsetAndEpoch, now_ms: i64) -> Result<(), RaftError> {
        let mut snapshots = locked(&self.snapshots);
        let kept = snapshots.split_off(&id);
        let old = std::mem::replace(&mut *snapshots, kept);
        drop(snapshots);
        for old in old.into_keys() {
            let (from, to) = (snapshot_path(&self.dir, old), deleted_path(&self.dir, old));
            match self.disk.rename(&from, &to) {
                Ok(()) => {}
                // A longer name can need room too. Who reads the file has it open.
                Err(error) if is_no_space(&error) => {
                    self.disk
                        .remove_file(&from)
                        .map_err(|error| RaftError::io("removing", &from, error))?;
                    continue;
                }
                Err(error) => return Err(RaftError::io("renaming", &from, error)),
            }
            locked(&self.forgotten).push((to, now_ms.saturating_add(FILE_DELETE_DELAY_MS)));
        }
        Ok(())
    }

    fn remove_forgotten(&self, now_ms: i64) -> Result<(), RaftError> {
        let due: Vec<PathBuf> = locked(&self.forgotten)
            .extract_if(.., |(_, due_ms)| *due_ms <= now_ms)
            .map(|(path, _)| path)
            .collect();
        for path in due {
            self.disk
                .remove_file(&path)
                .map_err(|error| RaftError::io("removing", &path, error))?;
        }
        Ok(())
    }
}

/// How much of the log is decoded and handed to a listener at a time. Little in tests, so that they meet chunks that cut batches.
const READ_CHUNK_BYTES: usize = if cfg!(test) { 700 } else { 1024 * 1024 };

fn note_control_record(history: &mut QuorumHistory, offset: i64, record: ControlRecord) {
    match record {
        ControlRecord::KRaftVersion(version) => history.add_kraft_version(offset, version),
        ControlRecord::KRaftVoters(voters) => history.add_voters(offset, voters),
        ControlRecord::LeaderChange { .. }
        | ControlRecord::SnapshotHeader { .. }
        | ControlRecord::SnapshotFooter
        | ControlRecord::Other(_) => {}
    }
}

impl LogView for MetadataLog {
    fn log_start_offset(&self) -> i64 {
        self.log.log_start_offset()
    }

    fn end_offset(&self) -> OffsetAndEpoch {
        let epoch = self
            .log
            .latest_epoch()
            .or_else(|| self.latest_snapshot_id().map(|id| id.epoch));
        OffsetAndEpoch::new(self.log.log_end_offset(), epoch.unwrap_or(0))
    }

    fn end_offset_for_epoch(&self, epoch: i32) -> OffsetAndEpoch {
        match (self.log.end_offset_for_epoch(epoch), self.earliest_snapshot_id()) {
            // Smaller than every epoch in the log: the snapshot at its start speaks for what came before.
            (Some((found, offset)), Some(earliest)) if offset == earliest.offset && found == epoch => {
                earliest
            }
            (Some((found, offset)), _) => OffsetAndEpoch::new(offset, found),
            (None, _) => self.end_offset(),
        }
    }

    fn latest_snapshot_id(&self) -> Option<OffsetAndEpoch> {
        locked(&self.snapshots).last_key_value().map(|(id, _)| *id)
    }

    fn earliest_snapshot_id(&self) -> Option<OffsetAndEpoch> {
        locked(&self.snapshots).first_key_value().map(|(id, _)| *id)
    }
}

impl std::fmt::Debug for MetadataLog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("MetadataLog")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}
