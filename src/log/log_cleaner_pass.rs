//! One cleaning of one log (Kafka's Cleaner): read the keys of the dirty part into the offset map, then copy what stays of
//! all segments up to there into new ones, and swap those in.
//!
//! ```text
//!  log start                first dirty offset            first uncleanable offset         log end
//!      [ cleaned before ........ ][ dirty: read into the map ][ not yet: active, unstable, young ]
//!      [ group of segments ][ group ][ group ]        each copied to one `.cleaned` segment
//! ```
//!
//! Holds no lock while it reads and copies: segments below the first uncleanable offset never change, and what happens to
//! the list meanwhile (truncation, retention, the end of the log) shows when a segment is to be swapped in.
//! A disk without room ends the pass, not the log directory: nothing but the new files is lost.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::batch_scanner::{BatchScanner, ScanError};
use super::log_cleaner_filter::{BatchFilter, FilterStats, LastRecord, Retained};
use super::log_cleaner_transactions::CleanedTransactions;
use super::log_read::floor_segment;
use super::log_segment::LogSegment;
use super::offset_map::OffsetMap;
use super::unified_log::Segments;
use super::{LogError, UnifiedLog};
use crate::record::compression::decompress;
use crate::record::record::walk_payload;
use crate::record::record_batch::check_crc;
use crate::record::{BatchHeader, RECORD_BATCH_OVERHEAD, RecordError, records_of};

/// What is gathered before it is written.
const WRITE_BYTES: usize = 1024 * 1024;
const WRITE_PARTS_MAX: usize = 512;

/// A log, what of it is to be cleaned, and the list of its segments that this was said of.
#[derive(Debug, Clone)]
pub(crate) struct LogToClean {
    pub log: Arc<UnifiedLog>,
    pub segments: Arc<Segments>,
    pub truncations: u64,
    pub first_dirty_offset: i64,
    pub first_uncleanable_offset: i64,
    pub clean_bytes: u64,
    pub cleanable_bytes: u64,
    /// `max.compaction.lag.ms` is over.
    pub needs_compaction_now: bool,
}

impl LogToClean {
    pub fn total_bytes(&self) -> u64 {
        self.clean_bytes + self.cleanable_bytes
    }

    pub fn cleanable_ratio(&self) -> f64 {
        self.cleanable_bytes as f64 / self.total_bytes() as f64
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PassSettings {
    /// How many keys the offset map may hold.
    pub keys_max: usize,
    pub load_factor: f64,
    pub read_bytes: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PassStats {
    pub map_bytes_read: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub filter: FilterStats,
}

/// Why a pass ended early.
#[derive(Debug)]
pub(crate) enum CleanError {
    /// The node stops, or the log was truncated, closed or lost segments: nothing is wrong.
    Aborted,
    /// The disk is full.
    NoSpace(io::Error),
    Failed(LogError),
}

/// Told of every byte that was read or written; may wait, and says whether to go on.
pub(crate) type Gate<'a> = &'a dyn Fn(u64) -> bool;

pub(crate) struct CleanerPass<'a> {
    target: &'a LogToClean,
    settings: PassSettings,
    now_ms: i64,
    gate: Gate<'a>,
    uncharged: std::cell::Cell<u64>,
    pub stats: PassStats,
}

impl<'a> CleanerPass<'a> {
    pub fn new(target: &'a LogToClean, settings: PassSettings, now_ms: i64, gate: Gate<'a>) -> Self {
        Self {
            target,
            settings,
            now_ms,
            gate,
            uncharged: std::cell::Cell::new(0),
            stats: PassStats::default(),
        }
    }

    /// Cleans; gives the offset up to which the log is clean now.
    pub fn run(&mut self) -> Result<i64, CleanError> {
        let target = self.target;
        let map = self.build_offset_map()?;
        let end_offset = map.latest_offset() + 1;
        let legacy_delete_horizon_ms = self.legacy_delete_horizon_ms()?;
        let last_records = target
            .log
            .last_records_of_producers(target.first_uncleanable_offset)
            .into_iter()
            .collect();
        let mut transactions = CleanedTransactions::default();
        let count = target
            .segments
            .partition_point(|segment| segment.base_offset() < end_offset);
        for group in self.group_segments(count)? {
            self.clean_group(
                group,
                &map,
                &last_records,
                legacy_delete_horizon_ms,
                &mut transactions,
            )?;
        }
        Ok(end_offset)
    }

    // ---- errors and the gate

    fn io_error(&self, segment: &LogSegment, operation: &'static str, error: io::Error) -> CleanError {
        let log = &self.target.log;
        // The files of a log that is deleted or was truncated may be elsewhere, gone, or shorter.
        if log.is_closed() || log.truncations() != self.target.truncations || !self.is_in_list(segment) {
            return CleanError::Aborted;
        }
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CleanError::NoSpace(error),
            io::ErrorKind::InvalidData => {
                let path = segment.log_handle().path();
                CleanError::Failed(log.log_dir.scan_error(&path, operation, error.into()))
            }
            _ => CleanError::Failed(log.log_dir.fail(&segment.log_handle().path(), operation, error)),
        }
    }

    /// Old segments that retention took are none of ours any more; new ones were never in the list.
    fn is_in_list(&self, segment: &LogSegment) -> bool {
        let was = |segments: &Segments| segments.iter().any(|known| std::ptr::eq(&**known, segment));
        !was(&self.target.segments) || was(&self.target.log.segments.load())
    }

    fn scan_error(&self, segment: &LogSegment, error: ScanError) -> CleanError {
        match error {
            ScanError::Io(error) => self.io_error(segment, "cleaning", error),
            ScanError::Record(error) => self.record_error(segment, &error),
        }
    }

    fn record_error(&self, segment: &LogSegment, error: &RecordError) -> CleanError {
        match self.io_error(segment, "cleaning", io::ErrorKind::StorageFull.into()) {
            CleanError::Aborted => CleanError::Aborted,
            _ => CleanError::Failed(LogError::CorruptRecord {
                reason: format!("{error} in {}", segment.log_handle().path().display()),
            }),
        }
    }

    /// Counts bytes; every now and then looks whether the pass may go on.
    fn charge(&self, bytes: u64) -> Result<(), CleanError> {
        let uncharged = self.uncharged.get() + bytes;
        if uncharged < self.settings.read_bytes as u64 {
            self.uncharged.set(uncharged);
            return Ok(());
        }
        self.uncharged.set(0);
        let log = &self.target.log;
        if !(self.gate)(uncharged) || log.is_closed() || log.truncations() != self.target.truncations {
            return Err(CleanError::Aborted);
        }
        Ok(())
    }

    /// All batches of a segment from a position on; an error when they do not fill it.
    fn for_each_batch(
        &self,
        segment: &LogSegment,
        position: u64,
        mut visit: impl FnMut(&BatchHeader, Bytes) -> Result<bool, CleanError>,
    ) -> Result<(), CleanError> {
        let file = segment
            .file()
            .map_err(|error| self.io_error(segment, "opening", error))?;
        let end = segment.size();
        let mut scanner = BatchScanner::with_read_size(file, position, end, self.settings.read_bytes);
        let mut seen = position;
        let mut next_offset = segment.base_offset();
        let later = self.target.segments.iter().map(|other| other.base_offset());
        let limit = later.filter(|base| *base > next_offset).min().unwrap_or(i64::MAX);
        while let Some((batch, bytes)) = scanner.next_batch().map_err(|e| self.scan_error(segment, e))? {
            seen = batch.end();
            // No checksum is over the offset: one that a flipped bit made large would take all that is behind it for older.
            if !(next_offset..limit).contains(&batch.header.last_offset()) {
                let error = RecordError::InvalidBatch("offsets that do not follow those before them");
                return Err(self.record_error(segment, &error));
            }
            next_offset = batch.header.next_offset();
            self.charge(bytes.len() as u64)?;
            if !visit(&batch.header, bytes)? {
                return Ok(());
            }
        }
        if seen < end {
            let torn = RecordError::Torn {
                position: seen as usize,
                needed: (end - seen) as usize,
                available: 0,
            };
            return Err(self.record_error(segment, &torn));
        }
        Ok(())
    }

    // ---- the map

    fn build_offset_map(&mut self) -> Result<OffsetMap, CleanError> {
        let target = self.target;
        let (start, end) = (target.first_dirty_offset, target.first_uncleanable_offset);
        let offsets = usize::try_from(end - start).unwrap_or(0);
        let keys_max = offsets.clamp(1, self.settings.keys_max.max(1));
        let mut map = OffsetMap::new(keys_max, self.settings.load_factor);
        map.update_latest_offset(start - 1);
        let first = floor_segment(&target.segments, start).unwrap_or(0);
        let dirty: Vec<&Arc<LogSegment>> = target.segments[first..]
            .iter()
            .take_while(|segment| segment.base_offset() < end)
            .collect();
        let mut transactions = CleanedTransactions::default();
        if let Some(segment) = dirty.first() {
            let aborted = target.log.collect_aborted(&target.segments[first..], start, end);
            transactions.add_aborted(aborted.map_err(|error| self.io_error(segment, "reading", error))?);
        }
        for (index, segment) in dirty.iter().enumerate() {
            if self.map_segment(segment, &mut map, &mut transactions)? {
                break;
            }
            // Offsets at the segment's end may be missing.
            let next = dirty.get(index + 1).map_or(end, |next| next.base_offset());
            map.update_latest_offset(next - 1);
        }
        Ok(map)
    }

    /// True when the map is full.
    fn map_segment(
        &mut self,
        segment: &LogSegment,
        map: &mut OffsetMap,
        transactions: &mut CleanedTransactions,
    ) -> Result<bool, CleanError> {
        let start = self.target.first_dirty_offset;
        let position = segment
            .headers_towards(start)
            .map_err(|error| self.scan_error(segment, error))?
            .position();
        let mut is_full = false;
        let mut bytes_read = 0;
        self.for_each_batch(segment, position, |header, batch| {
            bytes_read += batch.len() as u64;
            is_full = map_batch(header, &batch, start, map, transactions)
                .map_err(|error| self.record_error(segment, &error))?;
            Ok(!is_full)
        })?;
        self.stats.map_bytes_read += bytes_read;
        Ok(is_full)
    }

    fn legacy_delete_horizon_ms(&self) -> Result<i64, CleanError> {
        let target = self.target;
        let clean = target
            .segments
            .iter()
            .take_while(|s| s.base_offset() < target.first_dirty_offset);
        match clean.last() {
            None => Ok(0),
            Some(segment) => {
                let modified_ms = segment
                    .modified_ms()
                    .map_err(|e| self.io_error(segment, "reading", e))?;
                Ok(modified_ms - target.log.config().delete_retention_ms)
            }
        }
    }

    // ---- copying

    /// Neighbours that fit into one segment by size, indexes and offsets, as ranges of the first `count` segments.
    fn group_segments(&self, count: usize) -> Result<Vec<std::ops::Range<usize>>, CleanError> {
        let config = self.target.log.config();
        let max_size = config.segment_size().max(0) as u64;
        let max_index_size = config.segment_index_bytes.max(0) as usize;
        let segments = &self.target.segments[..count];
        let mut sizes = Vec::with_capacity(count);
        for segment in segments {
            let entries = segment.offset_index.file().entries();
            let time_entries = segment.time_index.file().entries();
            match (entries, time_entries) {
                (Ok(entries), Ok(time_entries)) => {
                    sizes.push((segment.size(), entries * 8, time_entries * 12))
                }
                (Err(error), _) | (_, Err(error)) => return Err(self.io_error(segment, "reading", error)),
            }
        }
        let last_offset_of = |index: usize| {
            let next = segments.get(index + 1).map(|next| next.base_offset());
            next.unwrap_or(self.target.first_uncleanable_offset) - 1
        };
        let mut groups = Vec::new();
        let mut start = 0;
        while start < count {
            let (mut size, mut index_size, mut time_index_size) = sizes[start];
            let mut end = start + 1;
            while end < count {
                let (log, index, time_index) = sizes[end];
                let offsets_fit =
                    log == 0 || last_offset_of(end) - segments[start].base_offset() <= i64::from(i32::MAX);
                if size + log > max_size
                    || index_size + index > max_index_size
                    || time_index_size + time_index > max_index_size
                    || !offsets_fit
                {
                    break;
                }
                size += log;
                index_size += index;
                time_index_size += time_index;
                end += 1;
            }
            groups.push(start..end);
            start = end;
        }
        Ok(groups)
    }

    fn clean_group(
        &mut self,
        group: std::ops::Range<usize>,
        map: &OffsetMap,
        last_records: &HashMap<i64, LastRecord>,
        legacy_delete_horizon_ms: i64,
        transactions: &mut CleanedTransactions,
    ) -> Result<(), CleanError> {
        let target = self.target;
        let old = &target.segments[group.clone()];
        let Some((first, last)) = old.first().zip(old.last()) else {
            return Ok(());
        };
        let cleaned = target
            .log
            .create_cleaned_segment(first.base_offset())
            .map_err(|error| self.io_error(first, "making a cleaned segment of", error))?;
        let mut copy = || -> Result<bool, CleanError> {
            for index in group.clone() {
                let segment = &target.segments[index];
                let failed = |error: io::Error| self.io_error(segment, "cleaning", error);
                let modified_ms = segment.modified_ms().map_err(failed)?;
                let upper_bound = match target.segments.get(index + 1).filter(|_| index + 1 < group.end) {
                    Some(next) => next.base_offset(),
                    None => segment
                        .read_next_offset()
                        .map_err(|e| self.scan_error(segment, e))?,
                };
                let aborted =
                    target
                        .log
                        .collect_aborted(&target.segments[index..], segment.base_offset(), upper_bound);
                transactions.add_aborted(aborted.map_err(failed)?);
                let filter = BatchFilter {
                    map,
                    now_ms: self.now_ms,
                    delete_retention_ms: target.log.config().delete_retention_ms,
                    retain_legacy_deletes: modified_ms > legacy_delete_horizon_ms,
                    last_records,
                    upper_bound_offset: target.first_uncleanable_offset,
                };
                self.clean_into(segment, &cleaned, &filter, transactions)?;
            }
            let failed = |error: io::Error| self.io_error(&cleaned, "writing", error);
            cleaned.on_become_inactive().map_err(failed)?;
            cleaned.flush_log().map_err(failed)?;
            cleaned.mark_indexes_dirty();
            cleaned.flush_indexes().map_err(failed)?;
            let modified_ms = last
                .modified_ms()
                .map_err(|e| self.io_error(last, "reading", e))?;
            cleaned.set_modified_ms(modified_ms).map_err(failed)?;
            target
                .log
                .replace_segments(&cleaned, old, target.truncations)
                .map_err(CleanError::Failed)
        };
        let result = match copy() {
            Ok(true) => return Ok(()),
            Ok(false) => CleanError::Aborted,
            Err(error) => error,
        };
        // Where the directory failed the replacement may have begun: then the new files are all that is left of the records.
        if target.log.log_dir.is_online()
            && let Err(error) = cleaned.remove_files()
        {
            tracing::debug!(
                "{}: {error}; a start removes it",
                cleaned.log_handle().path().display()
            );
        }
        Err(result)
    }

    fn clean_into(
        &mut self,
        segment: &LogSegment,
        cleaned: &LogSegment,
        filter: &BatchFilter<'_>,
        transactions: &mut CleanedTransactions,
    ) -> Result<(), CleanError> {
        let mut output = Output::default();
        let mut stats = self.stats;
        self.for_each_batch(segment, 0, |header, batch| {
            stats.bytes_read += batch.len() as u64;
            let retained = filter
                .filter(header, &batch, transactions, &mut stats.filter)
                .map_err(|error| self.record_error(segment, &error))?;
            match retained {
                Retained::Nothing => {}
                Retained::AsItIs => output.push(*header, batch),
                Retained::Rewritten(bytes) => {
                    let header = BatchHeader::parse(&bytes).map_err(|e| self.record_error(segment, &e))?;
                    output.push(header, bytes);
                }
            }
            if output.bytes >= WRITE_BYTES || output.batches.len() >= WRITE_PARTS_MAX {
                stats.bytes_written += self.write(cleaned, &mut output)?;
            }
            Ok(true)
        })?;
        stats.bytes_written += self.write(cleaned, &mut output)?;
        for txn in transactions.take_retained() {
            let appended = cleaned.txn_index.append(&txn);
            appended.map_err(|error| self.io_error(cleaned, "writing the index of", error))?;
        }
        self.stats = stats;
        Ok(())
    }

    fn write(&self, cleaned: &LogSegment, output: &mut Output) -> Result<u64, CleanError> {
        if output.batches.is_empty() {
            return Ok(0);
        }
        if let Some(last) = output
            .headers
            .last()
            .filter(|last| !cleaned.fits(last.last_offset()))
        {
            return Err(CleanError::Failed(LogError::CorruptRecord {
                reason: format!(
                    "offset {} does not fit into {}",
                    last.last_offset(),
                    cleaned.log_handle().path().display()
                ),
            }));
        }
        let parts: Vec<&[u8]> = output.batches.iter().map(|batch| &batch[..]).collect();
        cleaned
            .append(&output.headers, &parts)
            .map_err(|error| self.io_error(cleaned, "writing", error))?;
        let written = output.bytes as u64;
        output.headers.clear();
        output.batches.clear();
        output.bytes = 0;
        self.charge(written)?;
        Ok(written)
    }
}

/// Batches that wait to be written.
#[derive(Debug, Default)]
struct Output {
    headers: Vec<BatchHeader>,
    batches: Vec<Bytes>,
    bytes: usize,
}

impl Output {
    fn push(&mut self, header: BatchHeader, batch: Bytes) {
        self.bytes += batch.len();
        self.headers.push(header);
        self.batches.push(batch);
    }
}

/// Notes the keys of a batch; true when there was no room for one, and the map ends before its record.
fn map_batch(
    header: &BatchHeader,
    batch: &Bytes,
    start_offset: i64,
    map: &mut OffsetMap,
    transactions: &mut CleanedTransactions,
) -> Result<bool, RecordError> {
    check_crc(batch)?;
    let goes = if header.is_control() {
        transactions.on_control_batch(header, batch)?;
        true
    } else {
        transactions.on_data_batch(header)
    };
    let mut is_full = false;
    let mut note = |offset: i64, key: Option<&[u8]>| {
        if !is_full && offset >= start_offset {
            is_full = key.is_some_and(|key| !map.put(key, offset));
        }
    };
    if goes || header.last_offset() < start_offset {
        // Nothing in it is the latest of its key.
    } else if header.magic < 2 {
        for record in records_of(batch)? {
            let record = record?;
            note(record.offset, record.key.as_deref());
        }
    } else {
        let payload = &batch[RECORD_BATCH_OVERHEAD..header.size_in_bytes()];
        let inflated;
        let payload = if header.is_compressed() && header.records_count > 0 {
            inflated = decompress(header.compression()?, payload, i32::MAX as usize)?;
            &inflated[..]
        } else {
            payload
        };
        walk_payload(payload, header.records_count, |record| {
            note(header.base_offset + i64::from(record.offset_delta), record.key);
        })?;
    }
    if !is_full && header.last_offset() >= start_offset {
        map.update_latest_offset(header.last_offset());
    }
    Ok(is_full)
}
