//! The producer state's files: writing and removing `.snapshot` files, and building the state again from one of them and
//! the batches behind it.
//!
//! Snapshots are written without a sync: one that a crash left torn is told by its CRC, removed, and an older one taken.

use std::io;
use std::sync::Arc;

use super::batch_scanner::{HeaderScanner, PlacedBatch, ScanError};
use super::damage::bad_range;
use super::log_append::marker_of;
use super::log_dir::{LogContext, LogDir};
use super::log_read::floor_segment;
use super::log_segment::LogSegment;
use super::open_file_cache::{FileKind, PartitionDir, file_name, remove_if_exists};
use super::producer_state::{ProducerState, decode_snapshot, encode_snapshot};
use super::unified_log::Segments;
use super::{AppendOrigin, LogError, LogOffsetMetadata};

/// One read when a segment's headers are walked for producers.
const WALK_READ_BYTES: usize = 64 * 1024;

pub(crate) struct ProducerFiles<'a> {
    pub context: &'a LogContext,
    pub log_dir: &'a LogDir,
    pub dir: &'a PartitionDir,
}

impl ProducerFiles<'_> {
    /// Writes the state if it is newer than the last snapshot.
    pub fn take_snapshot(&self, state: &mut ProducerState) -> Result<(), LogError> {
        let Some(offset) = state.snapshot_due() else {
            return Ok(());
        };
        let path = self
            .dir
            .path()
            .join(file_name(offset, FileKind::ProducerSnapshot));
        self.context
            .disk
            .replace(&path, &encode_snapshot(state.entries()))
            .map_err(|error| self.log_dir.write_failed(&path, "writing", error))?;
        self.dir.mark_dirty();
        state.on_snapshot_taken(offset);
        Ok(())
    }

    /// The same where a snapshot only spares later starts some reading: a full disk does without.
    pub fn take_snapshot_if_there_is_room(&self, state: &mut ProducerState) -> Result<(), LogError> {
        match self.take_snapshot(state) {
            Err(error) if error.is_no_space() => Ok(()),
            result => result,
        }
    }

    pub fn remove_snapshot(&self, state: &mut ProducerState, offset: i64) -> Result<(), LogError> {
        state.remove_snapshot(offset);
        self.dir.mark_dirty();
        let path = self
            .dir
            .path()
            .join(file_name(offset, FileKind::ProducerSnapshot));
        remove_if_exists(&*self.context.disk, &path)
            .map_err(|error| self.log_dir.fail(&path, "deleting", error))
    }

    /// The newest snapshot that is whole; without any the state is empty at `log_start_offset`.
    fn load_latest_snapshot(&self, state: &mut ProducerState, log_start_offset: i64) -> Result<(), LogError> {
        while let Some(offset) = state.snapshots().last().copied() {
            let path = self
                .dir
                .path()
                .join(file_name(offset, FileKind::ProducerSnapshot));
            let bytes = self.context.disk.read(&path);
            match bytes.map(|bytes| decode_snapshot(&bytes)) {
                Ok(Ok(entries)) => {
                    state.load_snapshot(offset, entries, self.context.clock.now_ms());
                    return Ok(());
                }
                Ok(Err(corrupt)) => {
                    tracing::warn!("removing the producer snapshot {}: {corrupt}", path.display());
                    self.remove_snapshot(state, offset)?;
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    state.remove_snapshot(offset);
                }
                Err(error) => return Err(self.log_dir.fail(&path, "reading", error)),
            }
        }
        state.start_empty(log_start_offset);
        Ok(())
    }

    /// Brings the state to `last_offset` (UnifiedLog.rebuildProducerState). Snapshots are kept at the bases of the last two
    /// segments and at the end, so that a truncation of the recent past finds one. After a clean shutdown without any
    /// snapshot nothing is read: the log has had no producers.
    pub fn rebuild(
        &self,
        state: &mut ProducerState,
        segments: &Segments,
        log_start_offset: i64,
        last_offset: i64,
        after_clean_shutdown: bool,
    ) -> Result<(), LogError> {
        let last_two = &segments[segments.len().saturating_sub(2)..];
        let wanted: Vec<i64> = last_two
            .iter()
            .map(|segment| segment.base_offset())
            .chain([last_offset])
            .collect();
        if state.snapshots().is_empty() && after_clean_shutdown {
            for offset in wanted {
                state.update_map_end_offset(offset);
                self.take_snapshot_if_there_is_room(state)?;
            }
            return Ok(());
        }
        let was_empty = state.is_empty() && state.map_end_offset() >= last_offset;
        for offset in state.snapshots().clone() {
            if offset > last_offset || offset <= log_start_offset {
                self.remove_snapshot(state, offset)?;
            }
        }
        if last_offset != state.map_end_offset() {
            self.load_latest_snapshot(state, log_start_offset)?;
        } else {
            state.on_log_start_offset_incremented(log_start_offset);
        }
        if last_offset > state.map_end_offset() && !was_empty {
            let first = floor_segment(segments, state.map_end_offset()).unwrap_or(0);
            for segment in segments[first..]
                .iter()
                .take_while(|segment| segment.base_offset() < last_offset)
            {
                let start = segment
                    .base_offset()
                    .max(state.map_end_offset())
                    .max(log_start_offset);
                state.update_map_end_offset(start);
                if wanted.contains(&segment.base_offset()) {
                    self.take_snapshot_if_there_is_room(state)?;
                }
                self.load_from_segment(state, segment, start, last_offset)?;
            }
        }
        state.update_map_end_offset(last_offset);
        self.take_snapshot_if_there_is_room(state)
    }

    /// The batches of [start, end) in a segment.
    fn load_from_segment(
        &self,
        state: &mut ProducerState,
        segment: &Arc<LogSegment>,
        start: i64,
        end: i64,
    ) -> Result<(), LogError> {
        let fail = |error| {
            self.log_dir
                .scan_error(&segment.log_handle().path(), "reading", error)
        };
        let failed = |error: io::Error| fail(error.into());
        let file = segment.file().map_err(failed)?;
        let (mut position, mut next_offset) = match segment.translate_offset(start) {
            Ok(None) => return Ok(()),
            Ok(Some(first)) => (first.position, start),
            Err(ScanError::Record(_)) => (0, segment.base_offset()),
            Err(error) => return Err(fail(error)),
        };
        let scanner_at =
            |position| HeaderScanner::with_read_size(file.clone(), position, segment.size(), WALK_READ_BYTES);
        let mut scanner = scanner_at(position);
        loop {
            let batch = match scanner.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) if !scanner.torn => return Ok(()),
                // What the disk damaged says nothing of producers any more; what is behind it does.
                damaged @ (Ok(None) | Err(ScanError::Record(_))) => {
                    let path = segment.log_handle().path();
                    let error = damaged
                        .err()
                        .map_or("the batch is cut off".to_owned(), |error| error.to_string());
                    tracing::warn!("{} at byte {position}: {error}", path.display());
                    let bad = bad_range(segment, position, next_offset..end).map_err(failed)?;
                    (position, next_offset) = (bad.end_position, bad.end_offset);
                    scanner = scanner_at(position);
                    continue;
                }
                Err(error) => return Err(fail(error)),
            };
            position = batch.end();
            // What only a flipped bit moved behind the end does not end the walk.
            if !(start..end).contains(&batch.header.last_offset()) {
                continue;
            }
            next_offset = batch.header.next_offset();
            match self.load_batch(state, segment, &batch) {
                Err(LoadError::Scan(error @ ScanError::Io(_))) => return Err(fail(error)),
                Err(LoadError::Scan(ScanError::Record(error))) => {
                    tracing::warn!("a batch at {}: {error}", batch.header.base_offset);
                }
                Err(LoadError::Log(error)) => return Err(error),
                Ok(()) => {}
            }
        }
    }

    fn load_batch(
        &self,
        state: &mut ProducerState,
        segment: &LogSegment,
        batch: &PlacedBatch,
    ) -> Result<(), LoadError> {
        let header = &batch.header;
        if !header.has_producer_id() {
            return Ok(());
        }
        let marker = if header.is_control() {
            let (_, bytes) = segment.read_batch(batch)?;
            marker_of(header, &bytes).map_err(ScanError::from)?
        } else {
            None
        };
        let mut update = state.prepare_update(header.producer_id, AppendOrigin::Replication);
        let first_offset = LogOffsetMetadata {
            message_offset: header.base_offset,
            segment_base_offset: segment.base_offset(),
            relative_position_in_segment: batch.position as i64,
        };
        let completed = update.append(header, marker.as_ref(), first_offset)?;
        state.update(&update);
        if let Some(completed) = completed {
            state.complete_txn(&completed);
        }
        Ok(())
    }
}

enum LoadError {
    Scan(ScanError),
    Log(LogError),
}

impl From<ScanError> for LoadError {
    fn from(error: ScanError) -> Self {
        LoadError::Scan(error)
    }
}

impl From<LogError> for LoadError {
    fn from(error: LogError) -> Self {
        LoadError::Log(error)
    }
}
