//! Reading: ranges of files for fetches, offsets by time. Takes no lock of the writer.
//!
//! Invariants: a read never goes behind the published offset of its isolation, and stays within one segment.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::batch_scanner::ScanError;
use super::log_segment::LogSegment;
use super::unified_log::Segments;
use super::{
    AbortedTransaction, FetchDataInfo, FetchIsolation, LogError, LogOffsetMetadata, TimestampAndOffset,
    UnifiedLog,
};

/// The index of the segment that holds `offset`: the last one whose base is at or below it.
pub(crate) fn floor_segment(segments: &Segments, offset: i64) -> Option<usize> {
    segments
        .partition_point(|segment| segment.base_offset() <= offset)
        .checked_sub(1)
}

impl UnifiedLog {
    /// Ranges of one segment's file from the batch that holds `start_offset` on. With `min_one_message` the first batch
    /// is whole even when it is above `max_bytes`.
    pub fn read(
        &self,
        start_offset: i64,
        max_bytes: usize,
        isolation: FetchIsolation,
        min_one_message: bool,
    ) -> Result<FetchDataInfo, LogError> {
        self.log_dir.check_online()?;
        let segments = self.segments.load_full();
        let log_end = self.log_end_offset_metadata();
        if start_offset < self.log_start_offset() || start_offset > log_end.message_offset {
            return Err(self.out_of_range(start_offset));
        }
        let Some(mut index) = floor_segment(&segments, start_offset) else {
            return Err(self.out_of_range(start_offset));
        };
        let include_aborted = isolation == FetchIsolation::TxnCommitted;
        let max_offset = match isolation {
            FetchIsolation::LogEnd => log_end,
            FetchIsolation::HighWatermark => self.placed_high_watermark(&segments)?,
            FetchIsolation::TxnCommitted => self.placed_last_stable_offset(&segments)?,
        };
        let empty = |metadata: LogOffsetMetadata| FetchDataInfo {
            aborted_transactions: include_aborted.then(Vec::new),
            ..FetchDataInfo::empty(metadata)
        };
        if start_offset == max_offset.message_offset {
            return Ok(empty(max_offset));
        }
        if start_offset > max_offset.message_offset {
            return Ok(empty(self.place_offset(&segments, start_offset)?));
        }
        while let Some(segment) = segments.get(index) {
            let max_position = if max_offset.is_offset_only() {
                None
            } else if max_offset.segment_base_offset == segment.base_offset() {
                Some(max_offset.relative_position_in_segment as u64)
            } else if max_offset.segment_base_offset > segment.base_offset() {
                Some(segment.size())
            } else {
                None
            };
            let min_position = self
                .known_bad
                .way_to(segment, start_offset)
                .map_err(|range| self.damaged(&range))?;
            let info = segment
                .read(
                    start_offset,
                    min_position,
                    max_bytes,
                    max_position,
                    min_one_message,
                )
                .map_err(|error| self.read_error(segment, error))?;
            if segment.take_news_of_bad_index() {
                // Its next work includes building it anew.
                self.log_dir.deferred.flush_soon(&self.weak);
            }
            if let Some(mut info) = info {
                for slice in &mut info.slices {
                    slice.length = self.without_damage(segment, slice.position, slice.length)?;
                }
                if include_aborted {
                    let aborted = self.aborted_transactions(&segments, index, start_offset, &info)?;
                    info.aborted_transactions = Some(aborted);
                }
                return Ok(info);
            }
            index += 1;
        }
        // All records from the offset on are gone (compaction): the reader goes on at the end.
        Ok(empty(self.log_end_offset_metadata()))
    }

    /// The same, copied.
    pub fn read_bytes(
        &self,
        start_offset: i64,
        max_bytes: usize,
        isolation: FetchIsolation,
        min_one_message: bool,
    ) -> Result<Bytes, LogError> {
        let info = self.read(start_offset, max_bytes, isolation, min_one_message)?;
        let mut bytes = BytesMut::zeroed(info.size_in_bytes());
        let mut filled = 0;
        for slice in &info.slices {
            let read = slice
                .file
                .read_at(&mut bytes[filled..filled + slice.length], slice.position)
                .map_err(|error| self.log_dir.fail(&self.dir.path(), "reading", error))?;
            filled += read;
            if read < slice.length {
                break;
            }
        }
        bytes.truncate(filled);
        Ok(bytes.freeze())
    }

    fn out_of_range(&self, offset: i64) -> LogError {
        LogError::OffsetOutOfRange {
            topic_partition: self.topic_partition.clone(),
            offset,
            log_start_offset: self.log_start_offset(),
            log_end_offset: self.log_end_offset(),
        }
    }

    pub(crate) fn read_error(&self, segment: &LogSegment, error: ScanError) -> LogError {
        // The files of a log that is being deleted may be gone: nothing is wrong with the disk.
        let is_gone = matches!(&error, ScanError::Io(error) if error.kind() == std::io::ErrorKind::NotFound);
        if is_gone && self.is_closed() {
            return self.closed();
        }
        self.log_dir
            .scan_error(&segment.log_handle().path(), "reading", error)
    }

    /// The high watermark with its place, which is looked up once if only the offset was known.
    fn placed_high_watermark(&self, segments: &Segments) -> Result<LogOffsetMetadata, LogError> {
        let known = self.high_watermark.load();
        if !known.is_offset_only() {
            return Ok(known);
        }
        let placed = self.place_offset(segments, known.message_offset)?;
        // Kept unless the high watermark moved meanwhile.
        self.high_watermark.replace(known, placed);
        Ok(placed)
    }

    fn placed_last_stable_offset(&self, segments: &Segments) -> Result<LogOffsetMetadata, LogError> {
        let high_watermark = self.placed_high_watermark(segments)?;
        match self.first_unstable.load() {
            Some(first) if first.message_offset < high_watermark.message_offset => {
                if !first.is_offset_only() {
                    return Ok(first);
                }
                let placed = self.place_offset(segments, first.message_offset)?;
                self.first_unstable.replace(Some(first), Some(placed));
                Ok(placed)
            }
            _ => Ok(high_watermark),
        }
    }

    /// Where the batch of an offset begins; only the offset if there is none (Kafka's maybeConvertToOffsetMetadata).
    fn place_offset(&self, segments: &Segments, offset: i64) -> Result<LogOffsetMetadata, LogError> {
        let log_end = self.log_end_offset_metadata();
        if offset == log_end.message_offset {
            return Ok(log_end);
        }
        let first = floor_segment(segments, offset);
        for segment in first.and_then(|index| segments.get(index..)).unwrap_or_default() {
            let position = match self.known_bad.way_to(segment, offset) {
                Ok(min_position) => segment
                    .translate_offset_from(offset, min_position)
                    .map_err(|error| self.read_error(segment, error))?
                    .map(|batch| batch.position),
                // What is before it can be read.
                Err(range) => Some(range.position),
            };
            if let Some(position) = position {
                return Ok(LogOffsetMetadata {
                    message_offset: offset,
                    segment_base_offset: segment.base_offset(),
                    relative_position_in_segment: position as i64,
                });
            }
        }
        Ok(LogOffsetMetadata::offset_only(offset))
    }

    /// The aborted transactions that touch what was read: from the segment's index, and later ones up to the first entry
    /// that shows that no more can follow.
    fn aborted_transactions(
        &self,
        segments: &Segments,
        index: usize,
        start_offset: i64,
        info: &FetchDataInfo,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        let segment = &segments[index];
        let from = info.fetch_offset_metadata.relative_position_in_segment.max(0) as u64;
        let end_position = from + info.size_in_bytes() as u64;
        let next_base = segments.get(index + 1).map(|next| next.base_offset());
        // An offset that is surely not below the end of the range, found without reading the batches: the first index
        // entry behind it.
        let upper_bound = segment
            .offset_index
            .first_at_or_after_position(end_position)
            .map_err(|error| self.read_error(segment, error.into()))?
            .filter(|_| !segment.has_bad_index())
            .or(next_base)
            .unwrap_or_else(|| self.log_end_offset());
        let mut aborted = Vec::new();
        for segment in &segments[index..] {
            let (found, complete) = segment
                .txn_index
                .collect_aborted_txns(start_offset, upper_bound)
                .map_err(|error| {
                    let path = segment.txn_index.handle().path();
                    self.log_dir.scan_error(&path, "reading", error.into())
                })?;
            aborted.extend(found.iter().map(|txn| txn.as_aborted_transaction()));
            if complete {
                break;
            }
        }
        Ok(aborted)
    }

    /// The first record whose time stamp is at or after `timestamp`.
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<TimestampAndOffset>, LogError> {
        self.log_dir.check_online()?;
        let segments = self.segments.load_full();
        for segment in segments.iter() {
            let largest = segment
                .largest_timestamp()
                .map_err(|error| self.read_error(segment, error.into()))?;
            if largest >= timestamp {
                return segment
                    .find_offset_by_timestamp(timestamp, self.log_start_offset(), |position| {
                        self.known_bad.end_of_range_at(segment, position)
                    })
                    .map_err(|error| self.read_error(segment, error));
            }
        }
        Ok(None)
    }

    /// The record with the largest time stamp (ListOffsets -3).
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimestampAndOffset>, LogError> {
        self.log_dir.check_online()?;
        let segments = self.segments.load_full();
        let mut latest: Option<(&Arc<LogSegment>, i64)> = None;
        for segment in segments.iter() {
            let so_far = segment
                .read_max_timestamp_so_far()
                .map_err(|error| self.read_error(segment, error.into()))?
                .timestamp;
            if latest.is_none_or(|(_, largest)| so_far > largest) {
                latest = Some((segment, so_far));
            }
        }
        match latest {
            Some((segment, _)) => segment
                .offset_of_max_timestamp()
                .map_err(|error| self.read_error(segment, error)),
            None => Ok(None),
        }
    }
}
