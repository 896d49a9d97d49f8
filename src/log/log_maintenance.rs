//! What happens to a log beside appends and reads: rolling, flushing, retention, truncation, closing.
//!
//! Invariants: a segment leaves the published list before its files are renamed, and its files stay for
//! `file.delete.delay.ms`; there is always an active segment; the recovery point is moved only over what was synced, and
//! never over what was truncated meanwhile; the log start offset never passes the high watermark.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::batch_scanner::ScanError;
use super::checkpoint::{self, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA};
use super::log_dir::Deletion;
use super::log_read::floor_segment;
use super::log_segment::LogSegment;
use super::open_file_cache::{DELETED_SUFFIX, FileKind, file_name, remove_if_exists};
use super::producer_files::ProducerFiles;
use super::unified_log::{Segments, Writer};
use super::{LogError, LogOffsetMetadata, UnifiedLog};
use crate::io::disk::{OpenMode, is_no_space};

/// What a roll does when a full disk does not take the producer snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeedsSnapshot {
    Always,
    /// Retention makes room by it; the snapshot is made up for (`lacks_snapshot`).
    IfThereIsRoom,
}

impl UnifiedLog {
    // ---- rolling

    /// Starts a new segment at the log end (if the active one holds anything).
    pub fn roll(&self) -> Result<(), LogError> {
        let mut writer = self.lock()?;
        self.roll_segment(&mut writer, None, NeedsSnapshot::Always)
            .map(|_| ())
    }

    /// A new active segment that starts at the log end, or at `expected_next_offset` if that is higher. Without room nothing
    /// is changed.
    pub(crate) fn roll_segment(
        &self,
        writer: &mut Writer,
        expected_next_offset: Option<i64>,
        needs_snapshot: NeedsSnapshot,
    ) -> Result<Arc<LogSegment>, LogError> {
        let log_end_offset = self.log_end_offset();
        let base_offset = expected_next_offset.unwrap_or(0).max(log_end_offset);
        let active = self.active_segment();
        if active.base_offset() == base_offset && active.size() == 0 {
            return Ok(active);
        }
        active.on_become_inactive().map_err(|error| {
            self.log_dir
                .write_failed(&active.log_handle().path(), "closing", error)
        })?;
        // With all of it durable already a start would take its indexes as they are.
        if self.recovery_point.load(Ordering::Acquire) >= base_offset {
            active.flush_indexes().map_err(|error| {
                self.log_dir
                    .write_failed(&active.log_handle().path(), "flushing", error)
            })?;
        }
        let segment = self.create_segment(base_offset)?;
        // A snapshot at a segment's base lets a recovery begin there.
        writer.producer_state.update_map_end_offset(base_offset);
        let snapshot = self.take_producer_snapshot(writer);
        writer.producer_state.update_map_end_offset(log_end_offset);
        match snapshot {
            Err(error) if error.is_no_space() && needs_snapshot == NeedsSnapshot::IfThereIsRoom => {
                writer.lacks_snapshot = true;
            }
            Err(error) => {
                // Back to as it was; the files were empty.
                segment
                    .remove_files()
                    .map_err(|error| self.log_dir.fail(&segment.log_handle().path(), "deleting", error))?;
                return Err(error);
            }
            Ok(()) => {}
        }
        let mut segments = Segments::clone(&self.segments.load());
        segments.push(Arc::clone(&segment));
        self.segments.store(Arc::new(segments));
        self.publish_log_end(log_end_offset, &segment);
        tracing::debug!(
            "{}: rolled a new segment at offset {base_offset}",
            self.topic_partition
        );
        if self.high_watermark() >= log_end_offset {
            let log_end = self.log_end_offset_metadata();
            self.set_high_watermark(writer, log_end);
        }
        self.log_dir.deferred.flush_soon(&self.weak);
        Ok(segment)
    }

    /// Gives back what is set aside behind the active segment, if there is any.
    pub(crate) fn give_back_room(&self) -> bool {
        if !self.active_segment().has_room_set_aside() {
            return false;
        }
        // Without the lock an append's bytes would be cut off.
        let Ok(_writer) = self.lock() else {
            return false;
        };
        let active = self.active_segment();
        let given_back = active.give_back_room();
        if let Err(error) = given_back {
            let path = active.log_handle().path();
            let error = self
                .log_dir
                .write_failed(&path, "giving back the room behind", error);
            tracing::warn!("{}: {error}", self.topic_partition);
            return false;
        }
        true
    }

    /// The same if nothing was appended since the last call.
    pub(crate) fn give_back_room_if_idle(&self) {
        if !self.active_segment().grew_since_last_look() {
            self.give_back_room();
        }
    }

    fn create_segment(&self, base_offset: i64) -> Result<Arc<LogSegment>, LogError> {
        let segment = LogSegment::create(&self.segment_files(), base_offset, &self.segment_config());
        segment.map(Arc::new).map_err(|error| {
            for kind in [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::Log] {
                // What is left of them takes room; a start removes it too.
                let path = self.dir.path().join(file_name(base_offset, kind));
                let _ = remove_if_exists(&*self.context.disk, &path);
            }
            let path = self.dir.path().join(file_name(base_offset, FileKind::Log));
            self.log_dir.write_failed(&path, "creating", error)
        })
    }

    fn snapshot_path(&self, offset: i64) -> PathBuf {
        self.dir
            .path()
            .join(file_name(offset, FileKind::ProducerSnapshot))
    }

    fn take_producer_snapshot(&self, writer: &mut Writer) -> Result<(), LogError> {
        self.producer_files().take_snapshot(&mut writer.producer_state)
    }

    fn producer_files(&self) -> ProducerFiles<'_> {
        ProducerFiles {
            context: &self.context,
            log_dir: &self.log_dir,
            dir: &self.dir,
        }
    }

    // ---- durability

    /// Makes all that was appended durable and moves the recovery point. Group commit: of many that call it at once each
    /// returns when its records are durable, and one sync serves all that were appended before it began.
    pub fn flush(&self) -> Result<(), LogError> {
        let wanted = self.log_end_offset();
        let _flushing = self.lock_flushing();
        if self.recovery_point.load(Ordering::Acquire) >= wanted {
            return self.log_dir.check_online();
        }
        self.flush_up_to(self.log_end_offset())
    }

    /// Makes what is before the active segment durable: what a roll left to be done.
    pub fn flush_rolled_segments(&self) -> Result<(), LogError> {
        let _flushing = self.lock_flushing();
        self.flush_up_to(self.active_segment().base_offset())
    }

    /// Those of closed segments that a read found to name wrong places.
    pub(crate) fn rebuild_bad_indexes(&self) {
        let segments = self.segments.load_full();
        let closed = &segments[..segments.len() - 1];
        for segment in closed.iter().filter(|segment| segment.has_bad_index()) {
            if let Err(error) = self.rebuild_bad_index(segment) {
                tracing::warn!(
                    "{}: the index of {} could not be built anew: {error}",
                    self.topic_partition,
                    segment.base_offset()
                );
            }
        }
    }

    /// Where the segment itself is damaged its index is left as it is.
    fn rebuild_bad_index(&self, segment: &Arc<LogSegment>) -> Result<(), ScanError> {
        let truncations = self.truncations();
        let entries = segment.index_entries()?;
        // Nobody truncates, replaces or removes it from here on.
        let _removal = self.lock_removal();
        let writer = self.lock_any();
        let is_as_it_was = !writer.closed && writer.truncations == truncations;
        drop(writer);
        let segments = self.segments.load_full();
        let mut closed = segments[..segments.len() - 1].iter();
        if is_as_it_was && closed.any(|other| Arc::ptr_eq(other, segment)) {
            segment.replace_bad_index(&entries)?;
        }
        Ok(())
    }

    /// The indexes of the active segment are left to the page cache: a start after power loss builds them anew, as the
    /// recovery point lies in that segment.
    fn flush_up_to(&self, offset: i64) -> Result<(), LogError> {
        self.log_dir.check_online()?;
        if offset <= self.recovery_point.load(Ordering::Acquire) {
            return Ok(());
        }
        let (small_files, truncations, segments) = {
            let mut writer = self.lock_any();
            // Its folder is about to get another name. Who closes it waits for this lock.
            if writer.closed {
                return Err(self.closed());
            }
            let small_files = self.sync_small_files(&mut writer);
            (small_files, writer.truncations, self.segments.load_full())
        };
        // What a full disk does not take of them a start finds in the batches, as long as the recovery point stays.
        let mut keeps_recovery_point = match small_files {
            Err(error) if !error.is_no_space() => return Err(error),
            result => result.is_err(),
        };
        let first = floor_segment(&segments, self.recovery_point.load(Ordering::Acquire)).unwrap_or(0);
        for (index, segment) in segments.iter().enumerate().skip(first) {
            if segment.base_offset() >= offset {
                break;
            }
            let is_active = index + 1 == segments.len();
            let path = segment.log_handle().path();
            segment.flush_log().map_err(|error| {
                self.flush_error(error, |error| self.log_dir.fail(&path, "flushing", error))
            })?;
            if !is_active && let Err(error) = segment.flush_indexes() {
                let error =
                    self.flush_error(error, |error| self.log_dir.write_failed(&path, "flushing", error));
                keeps_recovery_point = error.is_no_space();
                if !keeps_recovery_point {
                    return Err(error);
                }
            }
            if !is_active {
                self.sync_file(&self.snapshot_path(segments[index + 1].base_offset()))?;
            }
        }
        self.dir.sync_if_dirty(&*self.context.disk).map_err(|error| {
            self.flush_error(error, |error| {
                self.log_dir.fail(&self.dir.path(), "flushing", error)
            })
        })?;
        self.log_dir.sync_if_dirty(&*self.context.disk)?;
        let writer = self.lock_any();
        // Of a segment that was rolled meanwhile neither the indexes nor the snapshot behind it are durable: the flush that
        // the roll asked for sees to them.
        let was_active = &segments[segments.len() - 1];
        let is_rolled = !Arc::ptr_eq(was_active, &self.active_segment());
        let offset = if is_rolled {
            offset.min(was_active.base_offset())
        } else {
            offset
        };
        if writer.truncations == truncations && !keeps_recovery_point {
            self.recovery_point.fetch_max(offset, Ordering::AcqRel);
        }
        self.last_flush_ms
            .store(self.context.clock.now_ms(), Ordering::Release);
        Ok(())
    }

    /// The files of a log that is being deleted may have gone meanwhile: nothing is wrong with the disk.
    fn flush_error(
        &self,
        error: std::io::Error,
        failed: impl FnOnce(std::io::Error) -> LogError,
    ) -> LogError {
        if error.kind() == std::io::ErrorKind::NotFound && self.is_closed() {
            return self.closed();
        }
        failed(error)
    }

    /// Makes a file durable that was replaced without a sync; one that is not there is none.
    fn sync_file(&self, path: &Path) -> Result<(), LogError> {
        self.dir.mark_dirty();
        let opened = self.context.disk.open(path, OpenMode::Read);
        match opened.and_then(|file| file.sync_data()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(self.log_dir.fail(path, "flushing", error))
            }
            _ => Ok(()),
        }
    }

    /// Writes what the epochs' file lacks, and syncs what was written without.
    fn sync_small_files(&self, writer: &mut Writer) -> Result<(), LogError> {
        if writer.epochs_behind_from < i64::MAX || writer.debts.epochs {
            let text = self.with_epochs(|epochs| checkpoint::format_epochs(epochs.entries()));
            let path = self.dir.path().join(LEADER_EPOCH_CHECKPOINT);
            self.context
                .disk
                .write_atomically(&path, text.as_bytes())
                .map_err(|error| self.log_dir.write_failed(&path, "writing", error))?;
            writer.epochs_behind_from = i64::MAX;
            writer.unsynced_epochs = false;
            writer.debts.epochs = false;
        }
        if writer.unsynced_epochs {
            self.sync_file(&self.dir.path().join(LEADER_EPOCH_CHECKPOINT))?;
            writer.unsynced_epochs = false;
        }
        if writer.unsynced_metadata {
            self.sync_file(&self.dir.path().join(PARTITION_METADATA))?;
            writer.unsynced_metadata = false;
        }
        Ok(())
    }

    /// Flushes all with the indexes, takes a snapshot of the producers and closes the files: a start then has nothing to
    /// recover. Appends fail from here on.
    pub fn close(&self) -> Result<(), LogError> {
        self.finish_writing()?;
        self.finish_closing(false)
    }

    /// The first half of `close`: the log takes no more, and what a start needs is written. True when that has to be
    /// synced: the second half does, or the caller does for all logs of a disk at once.
    pub(crate) fn finish_writing(&self) -> Result<bool, LogError> {
        let _removal = self.lock_removal();
        let mut writer = self.lock()?;
        writer.closed = true;
        self.take_producer_snapshot(&mut writer)?;
        if writer.debts.epochs {
            writer.epochs_behind_from = i64::MIN;
        }
        // Of epochs without batches a start wants to know nothing.
        if writer.epochs_behind_from < self.log_end_offset() {
            let text = self.with_epochs(|epochs| checkpoint::format_epochs(epochs.entries()));
            let path = self.new_epochs_path();
            self.context
                .disk
                .open(&path, OpenMode::CreateTruncate)
                .and_then(|file| file.write_all_at(text.as_bytes(), 0))
                .map_err(|error| self.log_dir.write_failed(&path, "writing", error))?;
        } else {
            writer.epochs_behind_from = i64::MAX;
        }
        for segment in self.segments.load().iter() {
            segment.write_out().map_err(|error| {
                self.log_dir
                    .write_failed(&segment.log_handle().path(), "closing", error)
            })?;
        }
        let active = self.active_segment();
        active.finish_indexes().map_err(|error| {
            self.log_dir
                .write_failed(&active.log_handle().path(), "closing", error)
        })?;
        let is_flushed = self.recovery_point.load(Ordering::Acquire) >= self.log_end_offset();
        Ok(writer.unsynced_epochs
            || writer.unsynced_metadata
            || writer.epochs_behind_from < i64::MAX
            || !is_flushed
            || self.dir.is_dirty()
            || self
                .segments
                .load()
                .iter()
                .any(|segment| segment.has_dirty_indexes()))
    }

    /// `leader-epoch-checkpoint.tmp`: takes the file's place when it is synced.
    fn new_epochs_path(&self) -> PathBuf {
        self.dir.path().join(format!("{LEADER_EPOCH_CHECKPOINT}.tmp"))
    }

    /// The second half of `close`. `is_synced`: the caller has synced all that was written, and syncs the names after this.
    pub(crate) fn finish_closing(&self, is_synced: bool) -> Result<(), LogError> {
        let _removal = self.lock_removal();
        let mut writer = self.lock_any();
        if writer.epochs_behind_from < i64::MAX {
            let (from, to) = (
                self.new_epochs_path(),
                self.dir.path().join(LEADER_EPOCH_CHECKPOINT),
            );
            if !is_synced {
                self.sync_file(&from)?;
            }
            self.dir.mark_dirty();
            let renamed = self.context.disk.rename(&from, &to);
            renamed.map_err(|error| self.log_dir.fail(&from, "renaming", error))?;
            writer.epochs_behind_from = i64::MAX;
            writer.unsynced_epochs = false;
        }
        if !is_synced {
            self.sync_closed(&mut writer)?;
        }
        let segments = self.segments.load_full();
        let closed = &segments[..segments.len() - 1];
        for segment in closed.iter().filter(|segment| segment.has_bad_time_index()) {
            segment.leave_indexes_to_next_start().map_err(|error| {
                self.log_dir
                    .fail(&segment.log_handle().path(), "removing an index of", error)
            })?;
        }
        for segment in segments.iter() {
            segment.close();
        }
        self.recovery_point
            .store(self.log_end_offset(), Ordering::Release);
        Ok(())
    }

    /// Syncs the files of a log that takes no more, and their names.
    fn sync_closed(&self, writer: &mut Writer) -> Result<(), LogError> {
        self.sync_small_files(writer)?;
        let log_end_offset = self.log_end_offset();
        let recovery_point = self.recovery_point.load(Ordering::Acquire);
        let segments = self.segments.load_full();
        for (index, segment) in segments.iter().enumerate() {
            let is_active = index + 1 == segments.len();
            let fail = |error| self.log_dir.fail(&segment.log_handle().path(), "closing", error);
            // What was durable already is left alone: an idle log costs no sync.
            if recovery_point < log_end_offset
                && (is_active || segments[index + 1].base_offset() > recovery_point)
            {
                segment.flush_log().map_err(fail)?;
            }
            segment.flush_indexes().map_err(fail)?;
        }
        self.sync_names()
    }

    /// The folder and its entry in the log directory.
    pub(crate) fn sync_names(&self) -> Result<(), LogError> {
        self.dir
            .sync_if_dirty(&*self.context.disk)
            .map_err(|error| self.log_dir.fail(&self.dir.path(), "flushing", error))?;
        self.log_dir.sync_if_dirty(&*self.context.disk)
    }

    /// The log is about to be removed or moved: nothing may be appended any more.
    pub(crate) fn mark_closed(&self) {
        let _removal = self.lock_removal();
        self.lock_any().closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock_any().closed
    }

    // ---- retention

    /// DeleteRecords, a follower's leader, a snapshot: never above the high watermark (OffsetOutOfRange).
    pub fn maybe_increment_log_start_offset(&self, new_log_start_offset: i64) -> Result<bool, LogError> {
        let mut writer = self.lock()?;
        self.increment_log_start_offset(&mut writer, new_log_start_offset)
    }

    fn increment_log_start_offset(
        &self,
        writer: &mut Writer,
        new_log_start_offset: i64,
    ) -> Result<bool, LogError> {
        if new_log_start_offset > self.high_watermark() {
            return Err(LogError::OffsetOutOfRange {
                topic_partition: self.topic_partition.clone(),
                offset: new_log_start_offset,
                log_start_offset: self.log_start_offset(),
                log_end_offset: self.log_end_offset(),
            });
        }
        if new_log_start_offset <= self.log_start_offset() {
            return Ok(false);
        }
        self.log_start_offset
            .store(new_log_start_offset, Ordering::Release);
        tracing::info!(
            "{}: log start offset is {new_log_start_offset} now",
            self.topic_partition
        );
        self.change_epochs(writer, |epochs| epochs.truncate_from_start(new_log_start_offset))?;
        writer
            .producer_state
            .on_log_start_offset_incremented(new_log_start_offset);
        self.publish_first_unstable(writer);
        Ok(true)
    }

    /// Retention by log start offset, size and time; returns the number of segments removed.
    pub fn delete_old_segments(&self, now_ms: i64) -> Result<usize, LogError> {
        let config = self.config();
        let _removal = self.lock_removal();
        let mut writer = self.lock()?;
        if writer.lacks_snapshot && !self.log_dir.is_full() {
            self.take_producer_snapshot(&mut writer)?;
            writer.lacks_snapshot = false;
        }
        let mut deleted = self.delete_segments_while(&mut writer, |log, _, next| {
            Ok(next.is_some_and(|next| next.base_offset() <= log.log_start_offset()))
        })?;
        if !config.is_deleting() {
            return Ok(deleted);
        }
        if config.retention_bytes >= 0 {
            let mut surplus = self.size_in_bytes() as i64 - config.retention_bytes;
            deleted += self.delete_segments_while(&mut writer, |_, segment, _| {
                let size = segment.size() as i64;
                let breached = surplus >= size;
                if breached {
                    surplus -= size;
                }
                Ok(breached)
            })?;
        }
        if config.retention_ms >= 0 {
            deleted += self.delete_segments_while(&mut writer, |log, segment, _| {
                let largest = segment
                    .largest_timestamp()
                    .map_err(|error| log.read_error(segment, error.into()))?;
                Ok(now_ms.saturating_sub(largest) > config.retention_ms)
            })?;
        }
        Ok(deleted)
    }

    /// Removes segments from the front while `is_breached` says so, up to the high watermark.
    fn delete_segments_while(
        &self,
        writer: &mut Writer,
        mut is_breached: impl FnMut(&Self, &Arc<LogSegment>, Option<&Arc<LogSegment>>) -> Result<bool, LogError>,
    ) -> Result<usize, LogError> {
        let segments = self.segments.load_full();
        let high_watermark = self.high_watermark();
        let mut count = 0;
        for (index, segment) in segments.iter().enumerate() {
            let next = segments.get(index + 1);
            let upper_bound = next.map_or_else(|| self.log_end_offset(), |next| next.base_offset());
            let is_last_and_empty = next.is_none() && segment.size() == 0;
            if is_last_and_empty || high_watermark < upper_bound || !is_breached(self, segment, next)? {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        if count == segments.len() {
            self.roll_segment(writer, None, NeedsSnapshot::IfThereIsRoom)?;
        }
        let segments = self.segments.load_full();
        let (removed, kept) = segments.split_at(count);
        let Some(first_kept) = kept.first() else {
            return Ok(0);
        };
        self.increment_log_start_offset(writer, first_kept.base_offset())?;
        self.segments.store(Arc::new(kept.to_vec()));
        self.remove_segments(writer, removed.to_vec())?;
        Ok(count)
    }

    /// The files of segments that are no longer in the list: renamed now, removed after `file.delete.delay.ms`.
    fn remove_segments(&self, writer: &mut Writer, removed: Segments) -> Result<(), LogError> {
        let mut snapshots = Vec::new();
        for segment in &removed {
            tracing::info!(
                "{}: removing the segment at {} ({} bytes)",
                self.topic_partition,
                segment.base_offset(),
                segment.size()
            );
            segment
                .change_suffix(DELETED_SUFFIX)
                .or_else(|error| {
                    if is_no_space(&error) {
                        segment.remove_names()
                    } else {
                        Err(error)
                    }
                })
                .map_err(|error| self.log_dir.fail(&segment.log_handle().path(), "renaming", error))?;
            if writer.producer_state.remove_snapshot(segment.base_offset()) {
                let path = self.snapshot_path(segment.base_offset());
                let mut deleted = path.clone().into_os_string();
                deleted.push(DELETED_SUFFIX);
                let deleted = PathBuf::from(deleted);
                match self.context.disk.rename(&path, &deleted) {
                    Err(error) if is_no_space(&error) => {
                        remove_if_exists(&*self.context.disk, &path)
                            .map_err(|error| self.log_dir.fail(&path, "deleting", error))?;
                    }
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(self.log_dir.fail(&path, "renaming", error));
                    }
                    _ => snapshots.push(deleted),
                }
            }
        }
        let due_ms = self
            .context
            .clock
            .now_ms()
            .saturating_add(self.config().file_delete_delay_ms);
        self.log_dir.deferred.delete_at(
            due_ms,
            Deletion::Segments {
                segments: removed,
                snapshots,
            },
        );
        Ok(())
    }

    // ---- truncation

    /// Removes all at and above `target_offset`; true when something was removed.
    pub fn truncate_to(&self, target_offset: i64) -> Result<bool, LogError> {
        let _removal = self.lock_removal();
        let mut writer = self.lock()?;
        if target_offset >= self.log_end_offset() {
            // A leader's epoch without records may be at the end, which the new leader does not have.
            let log_end_offset = self.log_end_offset();
            self.change_epochs(&mut writer, |epochs| epochs.truncate_from_end(log_end_offset))?;
            return Ok(false);
        }
        tracing::info!("{}: truncating to offset {target_offset}", self.topic_partition);
        let segments = self.segments.load_full();
        if segments[0].base_offset() > target_offset {
            self.restart_at(&mut writer, target_offset, None)?;
            return Ok(true);
        }
        writer.truncations += 1;
        self.lowest_truncation.fetch_min(target_offset, Ordering::AcqRel);
        let kept = segments
            .partition_point(|segment| segment.base_offset() <= target_offset)
            .max(1);
        let (kept, removed) = segments.split_at(kept);
        let active = &kept[kept.len() - 1];
        // Readers must not look behind the new end while files shrink: high watermark and end go down first.
        if self.high_watermark() > target_offset {
            self.high_watermark
                .store(LogOffsetMetadata::offset_only(target_offset));
        }
        self.log_end.store(LogOffsetMetadata::offset_only(target_offset));
        self.recovery_point.fetch_min(target_offset, Ordering::AcqRel);
        self.log_start_offset.fetch_min(target_offset, Ordering::AcqRel);
        self.segments.store(Arc::new(kept.to_vec()));
        self.remove_segments(&mut writer, removed.to_vec())?;
        let way = self.known_bad.way_to(active, target_offset);
        active
            .truncate_to(target_offset, way, self.context.clock.now_ms())
            .map_err(|error| self.read_error(active, error))?;
        // Other batches come to the places of those that are gone.
        self.known_bad.forget_behind(active, active.size());
        active
            .flush_log()
            .map_err(|error| self.log_dir.fail(&active.log_handle().path(), "flushing", error))?;
        self.publish_log_end(target_offset, active);
        self.change_epochs(&mut writer, |epochs| epochs.truncate_from_end(target_offset))?;
        self.rebuild_producers(&mut writer, target_offset)?;
        self.make_truncation_durable(&mut writer)?;
        let high_watermark = self.high_watermark_metadata();
        self.set_high_watermark(&mut writer, high_watermark);
        Ok(true)
    }

    /// Removes all and goes on at `new_offset`.
    pub fn truncate_fully_and_start_at(
        &self,
        new_offset: i64,
        log_start_offset: Option<i64>,
    ) -> Result<(), LogError> {
        let _removal = self.lock_removal();
        let mut writer = self.lock()?;
        self.restart_at(&mut writer, new_offset, log_start_offset)
    }

    fn restart_at(
        &self,
        writer: &mut Writer,
        new_offset: i64,
        log_start_offset: Option<i64>,
    ) -> Result<(), LogError> {
        tracing::info!(
            "{}: removing all and going on at offset {new_offset}",
            self.topic_partition
        );
        writer.truncations += 1;
        self.lowest_truncation.fetch_min(new_offset, Ordering::AcqRel);
        let removed = Segments::clone(&self.segments.load());
        self.recovery_point.fetch_min(new_offset, Ordering::AcqRel);
        self.remove_segments(writer, removed)?;
        let segment = self.create_segment(new_offset)?;
        self.segments.store(Arc::new(vec![Arc::clone(&segment)]));
        self.publish_log_end(new_offset, &segment);
        self.change_epochs(writer, |epochs| {
            epochs.clear();
            true
        })?;
        for offset in writer.producer_state.snapshots().clone() {
            self.producer_files()
                .remove_snapshot(&mut writer.producer_state, offset)?;
        }
        writer.producer_state.truncate_fully_and_start_at(new_offset);
        self.log_start_offset.store(
            log_start_offset.unwrap_or(new_offset).min(new_offset),
            Ordering::Release,
        );
        self.rebuild_producers(writer, new_offset)?;
        self.make_truncation_durable(writer)?;
        let log_end = self.log_end_offset_metadata();
        self.set_high_watermark(writer, log_end);
        Ok(())
    }

    /// What was removed must not come back with a power loss, behind or among records that were written since.
    fn make_truncation_durable(&self, writer: &mut Writer) -> Result<(), LogError> {
        self.dir
            .sync_if_dirty(&*self.context.disk)
            .map_err(|error| self.log_dir.fail(&self.dir.path(), "flushing", error))?;
        match self.context.checkpoint_recovery_points(&self.log_dir) {
            Err(error) if error.is_no_space() => {
                writer.debts.recovery_point = true;
                Ok(())
            }
            result => result,
        }
    }

    /// The producer state at `last_offset`, from the newest snapshot below it and the batches behind that.
    fn rebuild_producers(&self, writer: &mut Writer, last_offset: i64) -> Result<(), LogError> {
        let segments = self.segments.load_full();
        self.producer_files().rebuild(
            &mut writer.producer_state,
            &segments,
            self.log_start_offset(),
            last_offset,
            false,
        )?;
        self.publish_first_unstable(writer);
        Ok(())
    }

    /// Offsets of the producer snapshots, for tests.
    pub fn producer_snapshot_offsets(&self) -> BTreeSet<i64> {
        self.lock_any().producer_state.snapshots().clone()
    }
}
