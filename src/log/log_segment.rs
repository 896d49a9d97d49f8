//! One segment: a `.log` file, its indexes, and what is kept of it in memory (Kafka's LogSegment).
//!
//! Owns where batches are in its file, which of them get index entries, and its largest time stamp. Knows nothing of
//! offsets that were promised to anybody: end, watermarks and epochs are the log's.
//! Invariants: `size` is published after the bytes are written, and a reader looks at nothing behind it; the base offset
//! is at or below the first batch's; every last offset fits into an i32 from it; what a failed write left behind `size` is
//! cut off before anything else is written, and before the segment is closed. A full disk costs index entries (they are
//! sparse, the next batch gets one), never records.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batch_scanner::{PlacedBatch, ScanError};
use super::known_bad::BadRange;
use super::offset_index::{OffsetIndex, fits_in_segment};
use super::open_file_cache::{FileHandle, FileKind, OpenFileCache, PartitionDir, REBUILT_SUFFIX};
use super::time_index::{TimeIndex, TimestampOffset};
use super::transaction_index::TransactionIndex;
use crate::io::disk::{DiskFile, is_no_space};
use crate::record::{BatchHeader, NO_TIMESTAMP};

/// From this size on room is set aside for a file: so large a share of what is there, and so much at most.
const RESERVE_FROM: u64 = 1024 * 1024;
const RESERVE_SHARE: u64 = 4;
const RESERVE_MAX: u64 = 16 * 1024 * 1024;

/// One read of a walk over all headers.
const REBUILD_READ_BYTES: usize = 64 * 1024;

/// What a new segment takes from the settings of its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentConfig {
    pub index_interval_bytes: usize,
    pub max_index_size: usize,
    pub roll_jitter_ms: i64,
    pub now_ms: i64,
}

/// When a segment is full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RollParams {
    pub max_segment_ms: i64,
    pub max_segment_bytes: u64,
    pub max_timestamp_in_messages: i64,
    pub max_offset_in_messages: i64,
    pub messages_size: u64,
    pub now_ms: i64,
}

/// What only the writer changes.
#[derive(Debug, Default)]
struct WriterState {
    /// Of the first batch; what `segment.ms` counts from.
    rolling_based_timestamp: Option<i64>,
    max_timestamp_so_far: Option<TimestampOffset>,
}

#[derive(Debug)]
pub(crate) struct LogSegment {
    base_offset: i64,
    log: Arc<FileHandle>,
    pub offset_index: OffsetIndex,
    pub time_index: TimeIndex,
    pub txn_index: TransactionIndex,
    size: AtomicU64,
    index_interval_bytes: usize,
    roll_jitter_ms: i64,
    created_ms: AtomicI64,
    bytes_since_last_index_entry: AtomicUsize,
    /// Up to here the file system has room set aside for the file; 0: nothing behind its end.
    reserved_until: AtomicU64,
    size_at_last_look: AtomicU64,
    /// The indexes were changed since they were last synced.
    indexes_dirty: AtomicBool,
    /// A write failed, and its bytes behind `size` could not be cut off yet.
    is_torn: AtomicBool,
    /// The segment is closed, but a full disk did not take the time index's last entry.
    lacks_last_time_entry: AtomicBool,
    /// The offset index named a place where no batch begins.
    has_bad_index: AtomicBool,
    bad_index_is_told: AtomicBool,
    /// The time index named a time that no batch has.
    has_bad_time_index: AtomicBool,
    /// The batches are damaged: what indexes should have cannot be told.
    is_beyond_mending: AtomicBool,
    /// The offset index gets its name when all indexes are durable: see `start_rebuild`.
    is_rebuilding: AtomicBool,
    state: Mutex<WriterState>,
    /// When all of it was last read by the scrub (monotonic); `i64::MIN`: not in this run.
    pub scrubbed_ms: AtomicI64,
}

/// How the files of a segment are found.
pub(crate) struct SegmentFiles<'a> {
    pub cache: &'a Arc<OpenFileCache>,
    pub dir: &'a Arc<PartitionDir>,
    /// None but for a segment that a cleaning makes.
    pub suffix: &'static str,
}

impl SegmentFiles<'_> {
    fn handle(&self, base_offset: i64, kind: FileKind) -> Arc<FileHandle> {
        FileHandle::with_suffix(self.cache, self.dir, base_offset, kind, self.suffix)
    }
}

impl LogSegment {
    /// Makes the files of an empty segment (over old ones of the same name).
    pub fn create(files: &SegmentFiles<'_>, base_offset: i64, config: &SegmentConfig) -> io::Result<Self> {
        let offset_index = files.handle(base_offset, FileKind::OffsetIndex);
        let time_index = files.handle(base_offset, FileKind::TimeIndex);
        let log = files.handle(base_offset, FileKind::Log);
        offset_index.create()?;
        time_index.create()?;
        log.create()?;
        let offset_index = OffsetIndex::new_empty(offset_index, base_offset, config.max_index_size);
        let time_index = TimeIndex::new_empty(time_index, base_offset, config.max_index_size);
        let txn_index = Self::txn_index(files, base_offset, false);
        Ok(Self::assemble(
            log,
            (offset_index, time_index, txn_index),
            base_offset,
            config,
            0,
        ))
    }

    /// A segment that is there. Opens nothing.
    pub fn open(
        files: &SegmentFiles<'_>,
        base_offset: i64,
        config: &SegmentConfig,
        has_txn_index: bool,
    ) -> io::Result<Self> {
        let log = files.handle(base_offset, FileKind::Log);
        let size = log.file_len()?;
        let offset_index = files.handle(base_offset, FileKind::OffsetIndex);
        let time_index = files.handle(base_offset, FileKind::TimeIndex);
        let offset_index = OffsetIndex::open(offset_index, base_offset, config.max_index_size);
        let time_index = TimeIndex::open(time_index, base_offset, config.max_index_size);
        let txn_index = Self::txn_index(files, base_offset, has_txn_index);
        let indexes = (offset_index, time_index, txn_index);
        let segment = Self::assemble(log, indexes, base_offset, config, size);
        segment.indexes_dirty.store(false, Ordering::Release);
        Ok(segment)
    }

    /// Has an empty segment entries in its indexes? They were cut off before a crash that brought them back.
    pub fn has_stale_indexes(&self) -> io::Result<bool> {
        Ok(self.size() == 0
            && (self.offset_index.file().handle().file_len()? > 0
                || self.time_index.file().handle().file_len()? > 0))
    }

    fn txn_index(files: &SegmentFiles<'_>, base_offset: i64, present: bool) -> TransactionIndex {
        TransactionIndex::new(
            files.handle(base_offset, FileKind::TransactionIndex),
            base_offset,
            present,
        )
    }

    fn assemble(
        log: Arc<FileHandle>,
        (offset_index, time_index, txn_index): (OffsetIndex, TimeIndex, TransactionIndex),
        base_offset: i64,
        config: &SegmentConfig,
        size: u64,
    ) -> Self {
        Self {
            base_offset,
            log,
            offset_index,
            time_index,
            txn_index,
            size: AtomicU64::new(size),
            index_interval_bytes: config.index_interval_bytes,
            roll_jitter_ms: config.roll_jitter_ms,
            created_ms: AtomicI64::new(config.now_ms),
            bytes_since_last_index_entry: AtomicUsize::new(0),
            reserved_until: AtomicU64::new(0),
            size_at_last_look: AtomicU64::new(u64::MAX),
            indexes_dirty: AtomicBool::new(true),
            is_torn: AtomicBool::new(false),
            lacks_last_time_entry: AtomicBool::new(false),
            has_bad_index: AtomicBool::new(false),
            bad_index_is_told: AtomicBool::new(false),
            has_bad_time_index: AtomicBool::new(false),
            is_beyond_mending: AtomicBool::new(false),
            is_rebuilding: AtomicBool::new(false),
            state: Mutex::new(WriterState::default()),
            scrubbed_ms: AtomicI64::new(i64::MIN),
        }
    }

    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// Bytes of whole, published batches.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub fn log_handle(&self) -> &Arc<FileHandle> {
        &self.log
    }

    pub fn file(&self) -> io::Result<Arc<dyn DiskFile>> {
        self.log.get()
    }

    fn state(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- appending

    pub fn fits(&self, offset: i64) -> bool {
        fits_in_segment(self.base_offset, offset)
    }

    /// Writes `parts` (the bytes of the batches of these headers, in order) with one call, then their index entries. The
    /// caller has made sure that they follow what is there. Without room nothing is changed.
    pub fn append(&self, headers: &[BatchHeader], parts: &[&[u8]]) -> io::Result<()> {
        self.cut_torn_tail()?;
        self.txn_index.write_out()?;
        let start = self.size();
        let file = self.log.get()?;
        if let Err(error) = file.write_all_vectored_at(parts, start) {
            self.is_torn.store(true, Ordering::Release);
            // If this fails too, the next append tries again before it writes.
            let _ = self.cut_torn_tail();
            return Err(error);
        }
        let mut position = start;
        for header in headers {
            self.note_batch(header, position)?;
            position += header.size_in_bytes() as u64;
        }
        self.size.store(position, Ordering::Release);
        Ok(())
    }

    fn cut_torn_tail(&self) -> io::Result<()> {
        if self.is_torn.load(Ordering::Acquire) {
            self.log.get()?.set_len(self.size())?;
            self.is_torn.store(false, Ordering::Release);
            self.reserved_until.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Tells the file system ahead of a file that grows: to find room for each page as it is written is a quarter of what the
    /// write costs. A share of what is there already, and only where the disk `has_plenty`, so that none fills with what never
    /// comes. To be called before an append of `length`, by who may append.
    pub fn set_room_aside(&self, length: u64, has_plenty: impl FnOnce() -> bool) {
        let start = self.size();
        let reserved_until = self.reserved_until.load(Ordering::Relaxed);
        if start < RESERVE_FROM || start + length <= reserved_until {
            return;
        }
        let from = reserved_until.max(start);
        let step = (start / RESERVE_SHARE).min(RESERVE_MAX).max(length);
        let reserve = || self.log.get()?.reserve(from, step);
        let until = match has_plenty().then(reserve) {
            // Nobody asks again before so much is written.
            None | Some(Ok(())) => from + step,
            // It knows no such thing, or has no room: that is for the write to tell, and this was the last attempt.
            Some(Err(_)) => u64::MAX,
        };
        self.reserved_until.store(until, Ordering::Relaxed);
    }

    /// Whether room may be set aside behind the end.
    pub fn has_room_set_aside(&self) -> bool {
        self.reserved_until.load(Ordering::Relaxed) > self.size()
    }

    /// Whether something was appended since this was asked last.
    pub fn grew_since_last_look(&self) -> bool {
        let size = self.size();
        self.size_at_last_look.swap(size, Ordering::Relaxed) != size
    }

    /// Gives back the room that is set aside and was not needed; for who may append: what is behind `size` is cut off.
    pub fn give_back_room(&self) -> io::Result<()> {
        let reserved_until = self.reserved_until.load(Ordering::Relaxed);
        let size = self.size();
        if reserved_until > size && size >= RESERVE_FROM {
            let file = self.log.get()?;
            // What was only recovered stays as old as it is.
            let modified_ms = match reserved_until {
                u64::MAX => Some(file.modified_ms()?),
                _ => None,
            };
            file.set_len(size)?;
            if let Some(modified_ms) = modified_ms {
                file.set_modified_ms(modified_ms)?;
            }
        }
        self.reserved_until.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// The largest time stamp and perhaps index entries for a batch at `position`. An entry comes when more than
    /// `index.interval.bytes` were appended since the last one, before this batch's own bytes are counted.
    fn note_batch(&self, header: &BatchHeader, position: u64) -> io::Result<()> {
        let mut so_far = self.read_max_timestamp_so_far()?;
        if header.max_timestamp > so_far.timestamp {
            so_far = TimestampOffset {
                timestamp: header.max_timestamp,
                offset: header.last_offset(),
            };
            self.state().max_timestamp_so_far = Some(so_far);
        }
        let mut since = self.bytes_since_last_index_entry.load(Ordering::Relaxed);
        if since > self.index_interval_bytes {
            self.mark_indexes_dirty();
            match self.add_index_entries(header.last_offset(), position, so_far) {
                Ok(()) => since = 0,
                Err(error) if is_no_space(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes_since_last_index_entry
            .store(since + header.size_in_bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn add_index_entries(&self, last_offset: i64, position: u64, so_far: TimestampOffset) -> io::Result<()> {
        if self.mend_indexes()? {
            self.offset_index.append(last_offset, position as u32)?;
            self.time_index.maybe_append(so_far.timestamp, so_far.offset)?;
        }
        Ok(())
    }

    /// The largest time stamp of the first batch; none in an empty segment.
    pub fn first_batch_timestamp(&self) -> Result<Option<i64>, ScanError> {
        if let Some(known) = self.state().rolling_based_timestamp {
            return Ok(Some(known));
        }
        let first = self
            .headers_from(0)?
            .next_batch()?
            .map(|batch| batch.header.max_timestamp);
        self.state().rolling_based_timestamp = first;
        Ok(first)
    }

    fn time_waited_for_roll(&self, now_ms: i64, message_timestamp: i64) -> Result<i64, ScanError> {
        Ok(match self.first_batch_timestamp()? {
            Some(first) if first >= 0 => message_timestamp - first,
            _ => now_ms - self.created_ms.load(Ordering::Relaxed),
        })
    }

    /// Must a new segment be started before these messages?
    pub fn should_roll(&self, params: &RollParams) -> Result<bool, ScanError> {
        let size = self.size();
        if size + params.messages_size > params.max_segment_bytes || !self.fits(params.max_offset_in_messages)
        {
            return Ok(true);
        }
        if size > 0 {
            let waited = self.time_waited_for_roll(params.now_ms, params.max_timestamp_in_messages)?;
            if waited > params.max_segment_ms - self.roll_jitter_ms {
                return Ok(true);
            }
        }
        Ok(self.offset_index.is_full()? || self.time_index.is_full()?)
    }

    /// Another segment is active now, or the log is closed: the time index gets its last entry.
    pub fn on_become_inactive(&self) -> io::Result<()> {
        self.cut_torn_tail()?;
        self.give_back_room()?;
        let so_far = self.read_max_timestamp_so_far()?;
        if self.size() > 0 {
            self.mark_indexes_dirty();
            if self.mend_indexes()? {
                self.time_index.maybe_append(so_far.timestamp, so_far.offset)?;
            }
        }
        self.offset_index.file().trim_to_valid_size()?;
        self.time_index.file().trim_to_valid_size()
    }

    /// The same after a recovery, which a full disk must not end: what is missing is written before the indexes count as
    /// durable, and until then the largest time stamp is known from memory.
    pub fn on_recovered(&self) -> io::Result<()> {
        match self.on_become_inactive() {
            Err(error) if is_no_space(&error) => {
                self.lacks_last_time_entry.store(true, Ordering::Release);
                Ok(())
            }
            result => result,
        }
    }

    /// The same for the active segment of a log that is closed, if anything was done with it.
    pub fn finish_indexes(&self) -> io::Result<()> {
        self.cut_torn_tail()?;
        let touched = self.state().max_timestamp_so_far.is_some();
        if touched {
            self.on_become_inactive()
        } else {
            Ok(())
        }
    }

    /// Cuts what a recovery found to be no whole batches.
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        self.size.store(size, Ordering::Release);
        self.log.get()?.set_len(size)?;
        self.is_torn.store(false, Ordering::Release);
        self.reserved_until.store(0, Ordering::Relaxed);
        Ok(())
    }

    // ---- truncation, durability, removal

    /// Removes the batches from the one that holds `offset` on; returns the number of bytes. `way`: where the walk towards it may begin, or
    /// the damage that it lies in.
    pub fn truncate_to(
        &self,
        offset: i64,
        way: Result<u64, BadRange>,
        now_ms: i64,
    ) -> Result<u64, ScanError> {
        self.read_max_timestamp_so_far()?;
        self.mend_indexes()?;
        let (position, offset) = match way {
            Ok(from) => (
                self.translate_offset_from(offset, from)?
                    .map(|batch| batch.position),
                offset,
            ),
            // The indexes may know of what is in it.
            Err(range) => (Some(range.position), offset.min(range.first_offset)),
        };
        self.mark_indexes_dirty();
        // The one that may be found to be damaged comes first, with nothing changed.
        self.txn_index.truncate_to(offset)?;
        self.offset_index.truncate_to(offset)?;
        self.time_index.truncate_to(offset)?;
        let removed = match position {
            None => 0,
            Some(position) => {
                let removed = self.size() - position;
                self.set_size(position)?;
                removed
            }
        };
        if self.size() == 0 {
            self.created_ms.store(now_ms, Ordering::Relaxed);
            self.state().rolling_based_timestamp = None;
        }
        self.bytes_since_last_index_entry.store(0, Ordering::Relaxed);
        // What is damaged may be gone.
        self.is_beyond_mending.store(false, Ordering::Release);
        let largest = self.read_largest_timestamp()?;
        self.state().max_timestamp_so_far = Some(largest);
        Ok(removed)
    }

    /// Begins a recovery: the indexes are built again from nothing by `recover_batch`.
    pub fn start_recovery(&self) -> io::Result<()> {
        // What a run that was killed had set aside goes back when this is done.
        self.reserved_until.store(u64::MAX, Ordering::Relaxed);
        for mark in [
            &self.has_bad_index,
            &self.has_bad_time_index,
            &self.is_beyond_mending,
        ] {
            mark.store(false, Ordering::Release);
        }
        let changed = self.offset_index.file().reset()? | self.time_index.file().reset()?;
        // What is empty here may be so in memory alone: of a second crash in a row. `has_stale_indexes` sees that of an
        // empty segment, which shall cost no sync.
        if changed || self.size() > 0 || self.txn_index.is_present() {
            self.mark_indexes_dirty();
        }
        self.txn_index.reset()?;
        self.bytes_since_last_index_entry.store(0, Ordering::Relaxed);
        *self.state() = WriterState {
            max_timestamp_so_far: Some(TimestampOffset {
                timestamp: NO_TIMESTAMP,
                offset: self.base_offset,
            }),
            ..WriterState::default()
        };
        Ok(())
    }

    /// The same for a segment below the recovery point, whose indexes a start takes as they are. One without an offset index
    /// it recovers: so that goes first, durably, and comes back when the others are durable too.
    pub fn start_rebuild(&self) -> io::Result<()> {
        let offset_index = self.offset_index.file().handle();
        offset_index.remove()?;
        offset_index.sync_folder()?;
        offset_index.call_it(REBUILT_SUFFIX);
        self.is_rebuilding.store(true, Ordering::Release);
        self.mark_indexes_dirty();
        self.start_recovery()
    }

    /// Index entries for a batch that is there, by the same rule as when it was appended.
    pub fn recover_batch(&self, batch: &PlacedBatch) -> io::Result<()> {
        self.note_batch(&batch.header, batch.position)
    }

    /// Transactions go into their index without passing through here.
    pub fn mark_indexes_dirty(&self) {
        self.indexes_dirty.store(true, Ordering::Release);
    }

    pub fn has_dirty_indexes(&self) -> bool {
        self.indexes_dirty.load(Ordering::Acquire)
    }

    /// Makes the records durable.
    pub fn flush_log(&self) -> io::Result<()> {
        self.log.get()?.sync_data()
    }

    /// Writes what a full disk did not take of the indexes.
    pub fn write_out(&self) -> io::Result<()> {
        self.txn_index.write_out()?;
        if self.lacks_last_time_entry.load(Ordering::Acquire) {
            self.on_become_inactive()?;
            self.lacks_last_time_entry.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Makes the indexes durable, for a segment that a start will not build anew.
    pub fn flush_indexes(&self) -> io::Result<()> {
        self.write_out()?;
        self.offset_index.file().write_waiting()?;
        self.time_index.file().write_waiting()?;
        if !self.indexes_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        // A sync that fails for want of room may have lost pages for good: no error to try again after.
        let lossy = |error: io::Error| {
            if is_no_space(&error) {
                io::Error::other(error)
            } else {
                error
            }
        };
        let result = self
            .offset_index
            .file()
            .sync()
            .and_then(|()| self.time_index.file().sync())
            .and_then(|()| self.txn_index.sync())
            .map_err(lossy);
        let result = result.and_then(|()| self.name_rebuilt_index());
        if result.is_err() {
            self.mark_indexes_dirty();
        }
        result
    }

    fn name_rebuilt_index(&self) -> io::Result<()> {
        if self.is_rebuilding.load(Ordering::Acquire) {
            // One that retention took meanwhile has another name.
            let handle = self.offset_index.file().handle();
            handle.change_suffix_of(REBUILT_SUFFIX, "")?;
            self.is_rebuilding.store(false, Ordering::Release);
        }
        Ok(())
    }

    fn handles(&self) -> [&Arc<FileHandle>; 4] {
        [
            &self.log,
            self.offset_index.file().handle(),
            self.time_index.file().handle(),
            self.txn_index.handle(),
        ]
    }

    pub fn change_suffix(&self, suffix: &'static str) -> io::Result<()> {
        self.handles()
            .iter()
            .try_for_each(|handle| handle.change_suffix(suffix))
    }

    /// Sets when the `.log` was last written to: a cleaned segment is as old as what it replaces.
    pub fn set_modified_ms(&self, modified_ms: i64) -> io::Result<()> {
        self.log.get()?.set_modified_ms(modified_ms)
    }

    pub fn modified_ms(&self) -> io::Result<i64> {
        self.log.get()?.modified_ms()
    }

    /// Instead of a rename, where a full disk does not take the new names.
    pub fn remove_names(&self) -> io::Result<()> {
        self.handles().iter().try_for_each(|handle| handle.remove_name())
    }

    pub fn remove_files(&self) -> io::Result<()> {
        self.handles().iter().try_for_each(|handle| handle.remove())
    }

    pub fn close(&self) {
        for handle in self.handles() {
            handle.close();
        }
    }
}

#[path = "log_segment_read.rs"]
mod log_segment_read;
#[path = "log_segment_times.rs"]
mod log_segment_times;
