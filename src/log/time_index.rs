//! The time index of a segment: time stamp -> offset, an entry beside each of the offset index and one at the end.
//!
//! Entry: time stamp i64, relative offset i32: no record up to that offset has a larger time stamp. Time stamps grow
//! strictly, offsets do not go back. A closed segment's last entry is its largest time stamp.

use std::io;
use std::sync::Arc;

use super::index_file::IndexFile;
use super::open_file_cache::FileHandle;
use crate::record::NO_TIMESTAMP;

const ENTRY_SIZE: usize = 12;

/// A time stamp and the last offset of the batch that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: i64,
    pub offset: i64,
}

#[derive(Debug)]
pub(crate) struct TimeIndex {
    file: IndexFile<ENTRY_SIZE>,
    base_offset: i64,
    max_entries: usize,
}

impl TimeIndex {
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

    fn parse(&self, entry: &[u8; ENTRY_SIZE]) -> TimestampOffset {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *entry;
        TimestampOffset {
            timestamp: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
            offset: self.base_offset + i64::from(i32::from_be_bytes([i, j, k, l])),
        }
    }

    fn none(&self) -> TimestampOffset {
        TimestampOffset {
            timestamp: NO_TIMESTAMP,
            offset: self.base_offset,
        }
    }

    /// (-1, base offset) when there is none.
    pub fn last_entry(&self) -> io::Result<TimestampOffset> {
        Ok(self
            .file
            .last()?
            .map_or_else(|| self.none(), |entry| self.parse(&entry)))
    }

    /// The last entry whose time stamp is at or before `target`.
    pub fn lookup(&self, target: i64) -> io::Result<TimestampOffset> {
        let found = self.file.find_last(
            |_, entries| entries / 2,
            |entry| self.parse(entry).timestamp <= target,
        )?;
        Ok(found.map_or_else(|| self.none(), |(_, entry)| self.parse(&entry)))
    }

    /// An entry if the time stamp is above the last one's.
    pub fn maybe_append(&self, timestamp: i64, offset: i64) -> io::Result<()> {
        let last = self.last_entry()?;
        if self.file.entries()? > 0 && (offset < last.offset || timestamp < last.timestamp) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("attempt to append ({timestamp}, {offset}) to a time index that ends with {last:?}"),
            ));
        }
        if timestamp <= last.timestamp {
            return Ok(());
        }
        let mut entry = [0u8; ENTRY_SIZE];
        entry[..8].copy_from_slice(&timestamp.to_be_bytes());
        entry[8..].copy_from_slice(&((offset - self.base_offset) as i32).to_be_bytes());
        self.file.append(entry)
    }

    /// One entry is kept free for the last one, which a closed segment gets.
    pub fn is_full(&self) -> io::Result<bool> {
        Ok(self.file.entries()? + 1 >= self.max_entries)
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
    pub fn all(&self) -> io::Result<Vec<TimestampOffset>> {
        (0..self.file.entries()?)
            .map(|slot| self.file.read_entry(slot).map(|entry| self.parse(&entry)))
            .collect()
    }
}

#[cfg(test)]
#[path = "time_index_test.rs"]
mod time_index_test;
