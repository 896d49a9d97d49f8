//! Finding batches in a segment: by offset, by position, and the ranges that a fetch sends.
//!
//! Invariant: nothing behind the segment's published size is looked at, and an index entry counts only where a batch bears it out.

use std::io;
use std::sync::atomic::Ordering;

use super::super::batch_scanner::{BatchScanner, HEADER_READ_BYTES, HeaderScanner, PlacedBatch, ScanError};
use super::super::offset_index::OffsetPosition;
use super::super::types::{FetchDataInfo, LogOffsetMetadata};
use super::LogSegment;
use crate::io::disk::FileSlice;
use crate::record::{BatchHeader, RECORD_BATCH_OVERHEAD, RecordError};

impl LogSegment {
    pub fn headers_from(&self, position: u64) -> Result<HeaderScanner, ScanError> {
        Ok(HeaderScanner::new(self.log.get()?, position, self.size()))
    }

    /// The first batch whose last offset is at or after `offset`.
    pub fn translate_offset(&self, offset: i64) -> Result<Option<PlacedBatch>, ScanError> {
        self.translate_offset_from(offset, 0)
    }

    /// The same where it is known to begin at or behind `position`.
    pub fn translate_offset_from(
        &self,
        offset: i64,
        position: u64,
    ) -> Result<Option<PlacedBatch>, ScanError> {
        let size = self.size();
        let (entry, behind) = self.offset_index.lookup_around(offset)?;
        let from = u64::from(entry.position).max(position);
        if let Some(behind) = behind
            && u64::from(behind.position) > from + HEADER_READ_BYTES as u64
            && let Some(batch) = self.batch_if_holds(offset, u64::from(behind.position))?
        {
            return Ok(Some(batch));
        }
        let (mut scanner, is_sound) = self.headers_at_entry(entry, position)?;
        while let Some(batch) = scanner.next_batch()? {
            if batch.header.last_offset() >= offset {
                if !is_sound {
                    self.note_bad_index();
                }
                return Ok(Some(batch));
            }
        }
        self.check_not_torn(&scanner, size)?;
        Ok(None)
    }

    /// Published batches end with the file, unless it is truncated meanwhile: what may be behind the one where a walk ended must not be passed over.
    pub(super) fn check_not_torn(&self, scanner: &HeaderScanner, size: u64) -> Result<(), ScanError> {
        if scanner.torn && self.size() >= size {
            return Err(RecordError::Torn {
                position: scanner.position() as usize,
                needed: RECORD_BATCH_OVERHEAD,
                available: size.saturating_sub(scanner.position()) as usize,
            }
            .into());
        }
        Ok(())
    }

    /// The headers from the batch of an index entry on, or from `min_position` on if that is behind it. An index that names a
    /// place where no such batch begins is not trusted (then false): all from `min_position` on are walked.
    fn headers_at_entry(
        &self,
        entry: OffsetPosition,
        min_position: u64,
    ) -> Result<(HeaderScanner, bool), ScanError> {
        let position = u64::from(entry.position);
        if position > min_position {
            let mut scanner = self.headers_from(position)?;
            let base_offset = scanner.peek_base_offset()?;
            if base_offset.is_some_and(|base| (self.base_offset..=entry.offset).contains(&base)) {
                return Ok((scanner, true));
            }
        }
        Ok((self.headers_from(min_position)?, position <= min_position))
    }

    /// From the last batch that the index has at or before `offset`.
    pub fn headers_towards(&self, offset: i64) -> Result<HeaderScanner, ScanError> {
        let entry = self.offset_index.lookup(offset)?;
        Ok(self.headers_at_entry(entry, 0)?.0)
    }

    /// The first entry of the offset index at or behind a position, for positions that grow: where the batch at its place bears it out. An index that
    /// was found to be wrong has none.
    pub fn entries_by_position(&self) -> impl FnMut(u64) -> Result<Option<OffsetPosition>, ScanError> {
        let mut known: Option<OffsetPosition> = None;
        let mut is_borne_out = false;
        let mut is_past_the_last = false;
        move |position| {
            let is_behind = known.is_none_or(|entry| u64::from(entry.position) < position);
            if is_behind && !is_past_the_last && !self.has_bad_index() {
                known = self.offset_index.first_entry_at_or_after_position(position)?;
                is_past_the_last = known.is_none();
                is_borne_out = known.map_or(Ok(false), |entry| self.bears_out(entry))?;
            }
            Ok(known.filter(|_| is_borne_out))
        }
    }

    fn bears_out(&self, entry: OffsetPosition) -> Result<bool, ScanError> {
        match self.headers_from(u64::from(entry.position))?.next_batch() {
            Ok(batch) => Ok(batch.is_some_and(|PlacedBatch { header, .. }| {
                header.magic >= 2 && (self.base_offset..=entry.offset).contains(&header.base_offset)
            })),
            Err(ScanError::Record(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn note_bad_index(&self) {
        if !self.has_bad_index.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                "{} names places where no batch begins: it is built anew",
                self.offset_index.file().handle().path().display()
            );
        }
    }

    /// The offset index was found to be wrong.
    pub fn has_bad_index(&self) -> bool {
        self.has_bad_index.load(Ordering::Acquire)
    }

    /// The same; true once.
    pub fn take_news_of_bad_index(&self) -> bool {
        self.has_bad_index() && !self.bad_index_is_told.swap(true, Ordering::AcqRel)
    }

    /// The batch at a position that an index names, if `offset` is in it. Where batches are large, each has an entry, and this
    /// spares the walk from the one before.
    fn batch_if_holds(&self, offset: i64, position: u64) -> Result<Option<PlacedBatch>, ScanError> {
        let mut bytes = [0; RECORD_BATCH_OVERHEAD];
        if self.log.get()?.read_at(&mut bytes, position)? < bytes.len() {
            return Ok(None);
        }
        // What is wrong there is the walk's to tell.
        let Ok(header) = BatchHeader::parse(&bytes) else {
            return Ok(None);
        };
        let batch = PlacedBatch { header, position };
        // Of older formats the header does not tell the first offset.
        let holds = header.magic >= 2 && header.base_offset <= offset && offset <= header.last_offset();
        Ok((holds && batch.end() <= self.size()).then_some(batch))
    }

    /// The range of the file from the batch of `start_offset` on, which is not before `min_position`, up to `max_position`.
    /// `None` when this segment ends before the offset.
    pub fn read(
        &self,
        start_offset: i64,
        min_position: u64,
        max_bytes: usize,
        max_position: Option<u64>,
        min_one_message: bool,
    ) -> Result<Option<FetchDataInfo>, ScanError> {
        let Some(first) = self.translate_offset_from(start_offset, min_position)? else {
            return Ok(None);
        };
        let metadata = LogOffsetMetadata {
            message_offset: start_offset,
            segment_base_offset: self.base_offset,
            relative_position_in_segment: first.position as i64,
        };
        let first_size = first.header.size_in_bytes();
        let adjusted = if min_one_message {
            max_bytes.max(first_size)
        } else {
            max_bytes
        };
        let available = max_position.map_or(0, |max| max.saturating_sub(first.position));
        let length = available.min(adjusted as u64) as usize;
        let mut info = FetchDataInfo::empty(metadata);
        if length > 0 {
            info.slices.push(FileSlice {
                file: self.log.get()?,
                position: first.position,
                length,
            });
            info.first_entry_incomplete = adjusted < first_size;
        }
        Ok(Some(info))
    }

    /// The offset after the last batch.
    pub fn read_next_offset(&self) -> Result<i64, ScanError> {
        Ok(self.read_end()?.0)
    }

    /// The offset after the last batch, and whether the file ends there.
    pub fn read_end(&self) -> Result<(i64, bool), ScanError> {
        let mut next_offset = self.base_offset;
        let mut scanner = match self.size() {
            0 => return Ok((next_offset, true)),
            // One read has all of it: the index would cost more.
            size if size <= HEADER_READ_BYTES as u64 => self.headers_from(0)?,
            _ => {
                let entry = self.offset_index.lookup(self.offset_index.last_offset()?)?;
                let (scanner, is_sound) = self.headers_at_entry(entry, 0)?;
                if !is_sound {
                    self.note_bad_index();
                }
                scanner
            }
        };
        while let Some(batch) = scanner.next_batch()? {
            next_offset = batch.header.next_offset();
        }
        Ok((next_offset, scanner.position() == self.size()))
    }

    pub fn read_batch(&self, batch: &PlacedBatch) -> Result<(PlacedBatch, bytes::Bytes), ScanError> {
        let mut scanner = BatchScanner::with_read_size(
            self.log.get()?,
            batch.position,
            batch.end(),
            batch.header.size_in_bytes(),
        );
        let torn = || io::Error::from(io::ErrorKind::UnexpectedEof);
        Ok(scanner.next_batch()?.ok_or_else(torn)?)
    }
}
