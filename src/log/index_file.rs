//! What the offset index and the time index share: a file of fixed-size entries in growing order.
//!
//! Owns the number of entries and the last one; all others are read from the file when asked for. Kafka maps a file of
//! `segment.index.bytes` and cuts it on roll and close; here the file grows by the entry, so that it always is as long as
//! what is in it. A file that Kafka left at full length (a kill) has zeros behind its last entry: they are not entries.
//! Invariants: an entry is in the file before it is counted; the count is published last, so readers take no lock.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::open_file_cache::FileHandle;

/// Entries that one read of a search takes in.
const SEARCH_BLOCK_ENTRIES: usize = 256;

/// Not loaded yet.
const UNKNOWN: usize = usize::MAX;

/// An index file with entries of `N` bytes.
#[derive(Debug)]
pub(crate) struct IndexFile<const N: usize> {
    handle: Arc<FileHandle>,
    entries: AtomicUsize,
    /// The last entry; all zeros when there is none. Its lock also covers loading.
    last: Mutex<[u8; N]>,
}

impl<const N: usize> IndexFile<N> {
    pub fn new(handle: Arc<FileHandle>) -> Self {
        Self {
            handle,
            entries: AtomicUsize::new(UNKNOWN),
            last: Mutex::new([0; N]),
        }
    }

    /// For a file that was just made.
    pub fn new_empty(handle: Arc<FileHandle>) -> Self {
        Self {
            handle,
            entries: AtomicUsize::new(0),
            last: Mutex::new([0; N]),
        }
    }

    pub fn handle(&self) -> &Arc<FileHandle> {
        &self.handle
    }

    fn lock(&self) -> MutexGuard<'_, [u8; N]> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn entries(&self) -> io::Result<usize> {
        match self.entries.load(Ordering::Acquire) {
            UNKNOWN => self.load(),
            entries => Ok(entries),
        }
    }

    /// Number of entries and the last one, as one.
    pub fn last(&self) -> io::Result<Option<[u8; N]>> {
        if self.entries()? == 0 {
            return Ok(None);
        }
        let last = self.lock();
        Ok((self.entries.load(Ordering::Acquire) > 0).then_some(*last))
    }

    fn load(&self) -> io::Result<usize> {
        let mut last = self.lock();
        let known = self.entries.load(Ordering::Acquire);
        if known != UNKNOWN {
            return Ok(known);
        }
        let file = self.handle.get()?;
        let slots = (file.len()? / N as u64) as usize;
        let is_padding = |slot: usize| self.read_entry(slot).map(|entry| entry == [0; N]);
        // Zeros can only follow the entries: find the first.
        let mut entries = slots;
        if slots > 0 && is_padding(slots - 1)? {
            let (mut low, mut high) = (0, slots - 1);
            while low < high {
                let middle = low + (high - low) / 2;
                if is_padding(middle)? {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            entries = low;
        }
        *last = if entries > 0 {
            self.read_entry(entries - 1)?
        } else {
            [0; N]
        };
        self.entries.store(entries, Ordering::Release);
        Ok(entries)
    }

    pub fn read_entry(&self, slot: usize) -> io::Result<[u8; N]> {
        let mut entry = [0u8; N];
        self.handle.get()?.read_at(&mut entry, (slot * N) as u64)?;
        Ok(entry)
    }

    pub fn append(&self, entry: [u8; N]) -> io::Result<()> {
        let entries = self.entries()?;
        let mut last = self.lock();
        self.handle.get()?.write_all_at(&entry, (entries * N) as u64)?;
        *last = entry;
        self.entries.store(entries + 1, Ordering::Release);
        Ok(())
    }

    /// The last slot whose entry `is_at_or_before`; entries for which it holds come first. `None` when there is none.
    pub fn find_last(
        &self,
        is_at_or_before: impl Fn(&[u8; N]) -> bool,
    ) -> io::Result<Option<(usize, [u8; N])>> {
        let entries = self.entries()?;
        let (mut low, mut high) = (0, entries);
        // First by single entries down to a block, then the block in one read.
        while high - low > SEARCH_BLOCK_ENTRIES {
            let middle = low + (high - low) / 2;
            if is_at_or_before(&self.read_entry(middle)?) {
                low = middle;
            } else {
                high = middle;
            }
        }
        let mut block = vec![0u8; (high - low) * N];
        let read = self.handle.get()?.read_at(&mut block, (low * N) as u64)?;
        let mut found = None;
        for (index, bytes) in block[..read - read % N].chunks_exact(N).enumerate() {
            let mut entry = [0u8; N];
            entry.copy_from_slice(bytes);
            if !is_at_or_before(&entry) {
                break;
            }
            found = Some((low + index, entry));
        }
        Ok(found)
    }

    /// Keeps the first `entries` and cuts the file there.
    pub fn truncate_to_entries(&self, entries: usize) -> io::Result<()> {
        let kept = entries.min(self.entries()?);
        let new_last = if kept > 0 {
            self.read_entry(kept - 1)?
        } else {
            [0; N]
        };
        let mut last = self.lock();
        self.entries.store(kept, Ordering::Release);
        *last = new_last;
        self.handle.get()?.set_len((kept * N) as u64)
    }

    /// Forgets all, makes the file if it is not there. True if there was anything to forget or to make: an empty file is
    /// not even opened.
    pub fn reset(&self) -> io::Result<bool> {
        let mut last = self.lock();
        self.entries.store(0, Ordering::Release);
        *last = [0; N];
        let is_empty = self.handle.file_len().is_ok_and(|length| length == 0);
        if !is_empty {
            self.handle.get_or_create()?.set_len(0)?;
        }
        Ok(!is_empty)
    }

    /// Cuts the zeros that Kafka's preallocation left.
    pub fn trim_to_valid_size(&self) -> io::Result<()> {
        let expected = (self.entries()? * N) as u64;
        if self.handle.file_len()? != expected {
            self.handle.get()?.set_len(expected)?;
        }
        Ok(())
    }

    pub fn sync(&self) -> io::Result<()> {
        self.handle.get()?.sync_data()
    }
}
