//! The time stamps of a segment: its largest one, look-ups by time, and indexes that turn out to be wrong.
//!
//! Kafka believes a time index of a segment that needs no recovery, whatever is in it. Here an entry counts only if a batch
//! bears it out, which costs one header: an entry that does is right wherever it stands, for no record up to it is later. One
//! that does not costs a walk over the segment's headers.
//!
//! A time index of which a part is missing looks sound. So one that is wrong is built anew in place only while its segment is
//! active, where a start after a crash does so again. That of a closed segment is left to the start after a clean end, which
//! finds no offset index, and builds both durably.
//!
//! Invariant: what was appended in this run is known from memory and asked of no index.

use std::io;
use std::sync::atomic::Ordering;

use super::super::batch_scanner::{HeaderScanner, ScanError};
use super::super::time_index::TimestampOffset;
use super::super::types::TimestampAndOffset;
use super::{LogSegment, REBUILD_READ_BYTES};
use crate::record::{BatchHeader, NO_TIMESTAMP, RecordError, crc_is_valid, records_of};

/// What the indexes of a segment should have.
#[derive(Debug, Default)]
pub(crate) struct IndexEntries {
    /// Last offset and position of a batch.
    pub offsets: Vec<(i64, u32)>,
    pub times: Vec<TimestampOffset>,
}

/// What the batches say of an entry of the time index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Right,
    Wrong,
    /// Of a batch that is appended right now, or never was.
    BehindTheEnd,
}

impl LogSegment {
    /// The largest time stamp: from memory, or the time index's last entry for a segment that was closed.
    pub fn read_max_timestamp_so_far(&self) -> io::Result<TimestampOffset> {
        if let Some(known) = self.state().max_timestamp_so_far {
            return Ok(known);
        }
        let last = self.time_index.last_entry()?;
        let is_right = self.judge(last)? == Claim::Right;
        let largest = match is_right {
            true => last,
            false => self.largest_by_headers(self.no_timestamp())?,
        };
        let mut state = self.state();
        if let Some(known) = state.max_timestamp_so_far {
            // Who appended meanwhile knows better.
            return Ok(known);
        }
        state.max_timestamp_so_far = Some(largest);
        drop(state);
        if !is_right {
            self.note_bad_time_index();
        }
        Ok(largest)
    }

    /// The largest time stamp of a record, or when the file was last written to if no record has one.
    pub fn largest_timestamp(&self) -> io::Result<i64> {
        let so_far = self.read_max_timestamp_so_far()?.timestamp;
        if so_far >= 0 {
            Ok(so_far)
        } else {
            self.log.get()?.modified_ms()
        }
    }

    fn no_timestamp(&self) -> TimestampOffset {
        TimestampOffset {
            timestamp: NO_TIMESTAMP,
            offset: self.base_offset,
        }
    }

    /// What is damaged says nothing: the entry is believed then, as Kafka does.
    fn judge(&self, entry: TimestampOffset) -> io::Result<Claim> {
        let is_right = if entry == self.no_timestamp() {
            self.first_batch_timestamp()
                .map(|first| Some(first.is_none_or(|first| first < 0)))
        } else {
            self.batch_bears_out(entry)
        };
        match is_right {
            Ok(Some(true)) | Err(ScanError::Record(_)) => Ok(Claim::Right),
            Ok(Some(false)) => Ok(Claim::Wrong),
            Ok(None) => Ok(Claim::BehindTheEnd),
            Err(ScanError::Io(error)) => Err(error),
        }
    }

    /// `None`: no batch is at or behind its offset.
    fn batch_bears_out(&self, entry: TimestampOffset) -> Result<Option<bool>, ScanError> {
        let Some(batch) = self.translate_offset(entry.offset)? else {
            return Ok(None);
        };
        let header = batch.header;
        // Of older formats the header does not tell the first offset.
        if header.magic < 2 || header.base_offset <= entry.offset && header.max_timestamp == entry.timestamp {
            return Ok(Some(true));
        }
        // Not the word of a damaged batch against the index's.
        let (_, bytes) = self.read_batch(&batch)?;
        Ok(Some(!crc_is_valid(&bytes)))
    }

    /// The largest of `so_far` and what is behind it, as far as batches are whole.
    fn largest_by_headers(&self, so_far: TimestampOffset) -> io::Result<TimestampOffset> {
        let mut largest = so_far;
        let mut scanner = match self.headers_towards(so_far.offset) {
            Ok(scanner) => scanner,
            Err(ScanError::Io(error)) => return Err(error),
            Err(ScanError::Record(_)) => return Ok(largest),
        };
        loop {
            match scanner.next_batch() {
                Ok(Some(batch)) => {
                    if batch.header.max_timestamp > largest.timestamp {
                        largest = TimestampOffset {
                            timestamp: batch.header.max_timestamp,
                            offset: batch.header.last_offset(),
                        };
                    }
                }
                Ok(None) | Err(ScanError::Record(_)) => return Ok(largest),
                Err(ScanError::Io(error)) => return Err(error),
            }
        }
    }

    /// The largest time stamp by the time index and the batches behind its last entry.
    pub(super) fn read_largest_timestamp(&self) -> io::Result<TimestampOffset> {
        let last = self.time_index.last_entry()?;
        // A short segment has none: that is no claim.
        let is_sound = last == self.no_timestamp() || self.judge(last)? == Claim::Right;
        if !is_sound {
            self.note_bad_time_index();
        }
        self.largest_by_headers(if is_sound { last } else { self.no_timestamp() })
    }

    fn note_bad_time_index(&self) {
        if !self.has_bad_time_index.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                "{} names times that no batch has: batches are looked through instead, until it is built anew, when \
                 records are appended to this segment or the node has been stopped and started",
                self.time_index.file().handle().path().display()
            );
        }
    }

    /// The time index was found to be wrong.
    pub fn has_bad_time_index(&self) -> bool {
        self.has_bad_time_index.load(Ordering::Acquire)
    }

    /// For the clean end of a log, of a closed segment: the start after it builds both indexes anew.
    pub fn leave_indexes_to_next_start(&self) -> io::Result<()> {
        let offset_index = self.offset_index.file().handle();
        offset_index.remove()?;
        offset_index.sync_folder()
    }

    /// The first record at or after `starting_offset` with a time stamp at or after `timestamp`. `end_of_damage_at` gives the end of the known damage
    /// that a position is in.
    pub fn find_offset_by_timestamp(
        &self,
        timestamp: i64,
        starting_offset: i64,
        end_of_damage_at: impl Fn(u64) -> Option<u64>,
    ) -> Result<Option<TimestampAndOffset>, ScanError> {
        let entry = self.time_index.lookup(timestamp)?;
        let from = match entry == self.no_timestamp() {
            true => entry.offset,
            false => match self.judge(entry)? {
                Claim::Right => entry.offset,
                Claim::BehindTheEnd => self.base_offset,
                Claim::Wrong => {
                    self.note_bad_time_index();
                    self.base_offset
                }
            },
        };
        let size = self.size();
        let mut scanner = self.headers_towards(from.max(starting_offset))?;
        loop {
            while let Some(end) = end_of_damage_at(scanner.position()) {
                scanner.skip_to(end);
            }
            let Some(batch) = scanner.next_batch()? else {
                break;
            };
            if batch.header.max_timestamp < timestamp {
                continue;
            }
            let (_, bytes) = self.read_batch(&batch)?;
            for record in records_of(&bytes)? {
                let record = record?;
                if record.timestamp >= timestamp && record.offset >= starting_offset {
                    return Ok(Some(TimestampAndOffset {
                        timestamp: record.timestamp,
                        offset: record.offset,
                        leader_epoch: leader_epoch_of(&batch.header),
                    }));
                }
            }
        }
        self.check_not_torn(&scanner, size)?;
        Ok(None)
    }

    /// The first record of the segment's largest time stamp.
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimestampAndOffset>, ScanError> {
        let largest = self.read_max_timestamp_so_far()?;
        let size = self.size();
        let mut scanner = self.headers_towards(largest.offset)?;
        while let Some(batch) = scanner.next_batch()? {
            if batch.header.max_timestamp != largest.timestamp {
                continue;
            }
            let (_, bytes) = self.read_batch(&batch)?;
            for record in records_of(&bytes)? {
                let record = record?;
                if record.timestamp == largest.timestamp {
                    return Ok(Some(TimestampAndOffset {
                        timestamp: record.timestamp,
                        offset: record.offset,
                        leader_epoch: leader_epoch_of(&batch.header),
                    }));
                }
            }
            return Ok(None);
        }
        self.check_not_torn(&scanner, size)?;
        Ok(None)
    }

    /// The entries that the indexes should have, by the headers. Damage is an error: no checksum is over a batch's offset.
    pub fn index_entries(&self) -> Result<IndexEntries, ScanError> {
        let mut scanner = HeaderScanner::with_read_size(self.log.get()?, 0, self.size(), REBUILD_READ_BYTES);
        let mut entries = IndexEntries::default();
        let mut largest = self.no_timestamp();
        let mut next_offset = self.base_offset;
        let mut since = 0;
        while let Some(batch) = scanner.next_batch()? {
            let header = batch.header;
            let first_offset = if header.magic < 2 {
                header.last_offset()
            } else {
                header.base_offset
            };
            if first_offset < next_offset
                || header.last_offset() < first_offset
                || !self.fits(header.last_offset())
            {
                return Err(RecordError::InvalidBatch("offsets that do not follow those before them").into());
            }
            next_offset = header.next_offset();
            if header.max_timestamp > largest.timestamp {
                largest = TimestampOffset {
                    timestamp: header.max_timestamp,
                    offset: header.last_offset(),
                };
            }
            if since > self.index_interval_bytes {
                entries
                    .offsets
                    .push((header.last_offset(), batch.position as u32));
                entries.times.push(largest);
                since = 0;
            }
            since += header.size_in_bytes();
        }
        entries.times.push(largest);
        Ok(entries)
    }

    /// Puts these in the place of an offset index that was found to be wrong, which counts as wrong until then. Nobody may
    /// append to or truncate the segment meanwhile. Lookups meanwhile find fewer entries, and walk further.
    pub fn replace_bad_index(&self, entries: &IndexEntries) -> io::Result<()> {
        self.offset_index.file().reset()?;
        for (offset, position) in &entries.offsets {
            self.offset_index.append(*offset, *position)?;
        }
        self.bad_index_is_told.store(false, Ordering::Release);
        self.has_bad_index.store(false, Ordering::Release);
        // Behind the changes: a flush that came between them has synced a part.
        self.mark_indexes_dirty();
        self.flush_indexes()
    }

    fn replace_bad_time_index(&self, entries: &IndexEntries) -> io::Result<()> {
        // Who asks meanwhile must not take an entry in the middle for the last one.
        self.read_max_timestamp_so_far()?;
        self.time_index.file().reset()?;
        for entry in &entries.times {
            self.time_index.maybe_append(entry.timestamp, entry.offset)?;
        }
        self.has_bad_time_index.store(false, Ordering::Release);
        self.mark_indexes_dirty();
        self.flush_indexes()
    }

    /// For who may append, to the active segment: before an entry is added to indexes that were found to be wrong they are
    /// built anew. Those of a segment that is damaged stay as they are, and get no entries: then false.
    pub fn mend_indexes(&self) -> io::Result<bool> {
        if !self.has_bad_index() && !self.has_bad_time_index() {
            return Ok(true);
        }
        if self.is_beyond_mending.load(Ordering::Acquire) {
            return Ok(false);
        }
        let entries = match self.index_entries() {
            Ok(entries) => entries,
            Err(ScanError::Io(error)) => return Err(error),
            Err(ScanError::Record(error)) => {
                tracing::warn!(
                    "{} is damaged ({error}): its indexes are not built anew, and reads walk its batches; see what \
                     kavka dump-log says of it",
                    self.log.path().display()
                );
                self.is_beyond_mending.store(true, Ordering::Release);
                return Ok(false);
            }
        };
        if self.has_bad_index() {
            self.replace_bad_index(&entries)?;
        }
        if self.has_bad_time_index() {
            self.replace_bad_time_index(&entries)?;
        }
        Ok(true)
    }
}

fn leader_epoch_of(header: &BatchHeader) -> Option<i32> {
    (header.partition_leader_epoch >= 0).then_some(header.partition_leader_epoch)
}
