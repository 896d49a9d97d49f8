//! The offset index of a segment: offset -> position of its batch, one entry every `index.interval.bytes`.
//!
//! Entry: relative offset i32, position i32; the offset is the last one of the batch at that position. Offsets and
//! positions grow strictly. Owns the file's entries; which batches get one is the segment's decision.

use std::io;
use std::sync::Arc;

use super::index_file::IndexFile;
use super::open_file_cache::FileHandle;

const ENTRY_SIZE: usize = 8;

/// An offset and where its batch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetPosition {
    pub offset: i64,
    pub position: u32,
}

#[derive(Debug)]
pub(crate) struct OffsetIndex {
    file: IndexFile<ENTRY_SIZE>,
    base_offset: i64,
    max_entries: usize,
}

/// The slot at this share of the way.
fn share_of(way: i64, whole: i64, entries: usize) -> usize {
    if whole <= 0 {
        return 0;
    }
    (way.max(0) as u128 * entries as u128 / whole as u128) as usize
}

impl OffsetIndex {
    pub fn open(handle: Arc<FileHandle>, base_offset: i64, max_index_size: usize) -> Self {
        Self {
            file: IndexFile::new(handle),
            base_offset,
            max_entries: max_index_size / ENTRY_SIZE,
        }
    }

    pub fn new_empty(handle: Arc<FileHandle>, base_offset: i64, max_index_size: usize) -> Self {
        Self {
            file: IndexFile::new_empty(handle),
            base_offset,
            max_entries: max_index_size / ENTRY_SIZE,
        }
    }

    pub fn file(&self) -> &IndexFile<ENTRY_SIZE> {
        &self.file
    }

    fn parse(&self, entry: &[u8; ENTRY_SIZE]) -> OffsetPosition {
        let [a, b, c, d, e, f, g, h] = *entry;
        OffsetPosition {
            offset: self.base_offset + i64::from(i32::from_be_bytes([a, b, c, d])),
            position: u32::from_be_bytes([e, f, g, h]),
        }
    }

    /// The last entry at or before `target`; the segment's start when there is none.
    pub fn lookup(&self, target: i64) -> io::Result<OffsetPosition> {
        Ok(self.lookup_around(target)?.0)
    }

    /// The same with the first entry behind `target`, if there is one.
    pub fn lookup_around(&self, target: i64) -> io::Result<(OffsetPosition, Option<OffsetPosition>)> {
        let start = OffsetPosition {
            offset: self.base_offset,
            position: 0,
        };
        let Some(last) = self.file.last()? else {
            return Ok((start, None));
        };
        let last = self.parse(&last);
        if last.offset <= target {
            return Ok((last, None));
        }
        let guess = |last: &[u8; ENTRY_SIZE], entries| {
            let last_offset = self.parse(last).offset;
            share_of(target - self.base_offset, last_offset - self.base_offset, entries)
        };
        let found = self
            .file
            .find_around(guess, |entry| self.parse(entry).offset <= target)?;
        let before = found.before.map_or(start, |(_, entry)| self.parse(&entry));
        Ok((before, found.after.map(|entry| self.parse(&entry))))
    }

    /// The last entry's offset, or the base offset.
    pub fn last_offset(&self) -> io::Result<i64> {
        Ok(self
            .file
            .last()?
            .map_or(self.base_offset, |entry| self.parse(&entry).offset))
    }

    /// An entry for the batch at `position` whose last offset is `offset`; both must be above the last entry's.
    pub fn append(&self, offset: i64, position: u32) -> io::Result<()> {
        if offset <= self.last_offset()? && self.file.entries()? > 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("attempt to append offset {offset} to an index that ends with a larger one"),
            ));
        }
        let relative = (offset - self.base_offset) as i32;
        let mut entry = [0u8; ENTRY_SIZE];
        entry[..4].copy_from_slice(&relative.to_be_bytes());
        entry[4..].copy_from_slice(&position.to_be_bytes());
        self.file.append(entry)
    }

    /// The offset of the first entry whose position is at or after this one.
    pub fn first_at_or_after_position(&self, position: u64) -> io::Result<Option<i64>> {
        Ok(self
            .first_entry_at_or_after_position(position)?
            .map(|entry| entry.offset))
    }

    pub fn first_entry_at_or_after_position(&self, position: u64) -> io::Result<Option<OffsetPosition>> {
        let guess = |last: &[u8; ENTRY_SIZE], entries| {
            share_of(position as i64, i64::from(self.parse(last).position), entries)
        };
        let before = self
            .file
            .find_last(guess, |entry| u64::from(self.parse(entry).position) < position)?;
        let slot = before.map_or(0, |(slot, _)| slot + 1);
        if slot >= self.file.entries()? {
            return Ok(None);
        }
        Ok(Some(self.parse(&self.file.read_entry(slot)?)))
    }

    pub fn is_full(&self) -> io::Result<bool> {
        Ok(self.file.entries()? >= self.max_entries)
    }

    /// Removes the entries at and after `offset`.
    pub fn truncate_to(&self, offset: i64) -> io::Result<()> {
        let kept = self
            .file
            .find_last(|_, entries| entries, |entry| self.parse(entry).offset < offset)?
            .map_or(0, |(slot, _)| slot + 1);
        self.file.truncate_to_entries(kept)
    }

    #[cfg(test)]
    pub fn all(&self) -> io::Result<Vec<OffsetPosition>> {
        (0..self.file.entries()?)
            .map(|slot| self.file.read_entry(slot).map(|entry| self.parse(&entry)))
            .collect()
    }
}

/// Can the offset be told from the base by an i32?
pub(crate) fn fits_in_segment(base_offset: i64, offset: i64) -> bool {
    (0..=i64::from(i32::MAX)).contains(&offset.wrapping_sub(base_offset))
}

#[cfg(test)]
#[path = "offset_index_test.rs"]
mod offset_index_test;
