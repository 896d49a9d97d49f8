//! What the offset index and the time index share: a file of fixed-size entries in growing order.
//!
//! Owns the number of entries and the latest ones, which those who follow the tail ask for; all others are read from the
//! file. Kafka maps a file of `segment.index.bytes` and cuts it on roll and close; here the file grows by what is in it,
//! some entries at a time: a call for each would cost a produce as much as a third of its write. An entry that is lost with
//! the process belongs to the active segment, whose indexes a start builds anew. A file that Kafka left at full length (a
//! kill) has zeros behind its last entry: they are not entries.
//! Invariants: an entry that is counted is in the file or among the recent ones; `write_out` comes before anything that
//! takes the file for the index (roll, close, sync).

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::open_file_cache::FileHandle;

/// Entries that one read of a search takes in.
const SEARCH_BLOCK_ENTRIES: usize = 256;

/// Entries that wait in memory, and those that stay there after they were written.
const UNWRITTEN_MAX: usize = 64;
const RECENT_MAX: usize = 128;

/// Not loaded yet.
const UNKNOWN: usize = usize::MAX;

/// An index file with entries of `N` bytes.
#[derive(Debug)]
pub(crate) struct IndexFile<const N: usize> {
    handle: Arc<FileHandle>,
    entries: AtomicUsize,
    /// Its lock also covers loading.
    tail: Mutex<Tail<N>>,
}

/// The latest entries: at least the last one, if there is any.
#[derive(Debug, Default)]
struct Tail<const N: usize> {
    recent: Vec<[u8; N]>,
    /// So many of them, the last ones, are not in the file.
    unwritten: usize,
    /// The entries that a search last read, from this slot on, all of them before the recent ones: who reads behind the tail
    /// looks for neighbours of what he looked for before.
    searched: (usize, Vec<[u8; N]>),
    /// Grows when entries go, so that nobody keeps what he read before.
    cuts: u64,
}

impl<const N: usize> Tail<N> {
    fn reset_to(&mut self, last: Option<[u8; N]>) {
        self.recent = last.into_iter().collect();
        self.unwritten = 0;
        self.forget_searched();
    }

    fn forget_searched(&mut self) {
        self.searched = (0, Vec::new());
        self.cuts += 1;
    }
}

/// The neighbours of what was searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Around<const N: usize> {
    /// The last entry at or before it, and its slot.
    pub before: Option<(usize, [u8; N])>,
    /// The first entry behind it.
    pub after: Option<[u8; N]>,
}

impl<const N: usize> Around<N> {
    /// In `entries`, which are those from slot `first` on.
    fn of(entries: &[[u8; N]], first: usize, count: usize) -> Self {
        Self {
            before: count.checked_sub(1).map(|index| (first + index, entries[index])),
            after: entries.get(count).copied(),
        }
    }
}

impl<const N: usize> IndexFile<N> {
    pub fn new(handle: Arc<FileHandle>) -> Self {
        Self {
            handle,
            entries: AtomicUsize::new(UNKNOWN),
            tail: Mutex::default(),
        }
    }

    /// For a file that was just made.
    pub fn new_empty(handle: Arc<FileHandle>) -> Self {
        Self {
            handle,
            entries: AtomicUsize::new(0),
            tail: Mutex::default(),
        }
    }

    pub fn handle(&self) -> &Arc<FileHandle> {
        &self.handle
    }

    fn lock(&self) -> MutexGuard<'_, Tail<N>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn entries(&self) -> io::Result<usize> {
        match self.entries.load(Ordering::Acquire) {
            UNKNOWN => self.load(),
            entries => Ok(entries),
        }
    }

    pub fn last(&self) -> io::Result<Option<[u8; N]>> {
        if self.entries()? == 0 {
            return Ok(None);
        }
        Ok(self.lock().recent.last().copied())
    }

    fn load(&self) -> io::Result<usize> {
        let mut tail = self.lock();
        let known = self.entries.load(Ordering::Acquire);
        if known != UNKNOWN {
            return Ok(known);
        }
        let file = self.handle.get()?;
        let slots = (file.len()? / N as u64) as usize;
        let is_padding = |slot: usize| self.read_written(slot).map(|entry| entry == [0; N]);
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
        let last = entries.checked_sub(1).map(|slot| self.read_written(slot));
        tail.reset_to(last.transpose()?);
        self.entries.store(entries, Ordering::Release);
        Ok(entries)
    }

    fn read_written(&self, slot: usize) -> io::Result<[u8; N]> {
        let mut entry = [0u8; N];
        self.handle.get()?.read_at(&mut entry, (slot * N) as u64)?;
        Ok(entry)
    }

    pub fn read_entry(&self, slot: usize) -> io::Result<[u8; N]> {
        // Loads them; the count itself must be as old as the tail.
        self.entries()?;
        {
            let tail = self.lock();
            let first_recent = self.entries.load(Ordering::Acquire) - tail.recent.len();
            if let Some(index) = slot.checked_sub(first_recent) {
                let entry = tail.recent.get(index).copied();
                return entry.ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.read_written(slot)
    }

    pub fn append(&self, entry: [u8; N]) -> io::Result<()> {
        let entries = self.entries()? + 1;
        let mut tail = self.lock();
        tail.recent.push(entry);
        tail.unwritten += 1;
        self.entries.store(entries, Ordering::Release);
        if tail.unwritten >= UNWRITTEN_MAX
            && let Err(error) = self.write_out(&mut tail)
        {
            // The others keep waiting; this one is left out, so that a full disk fills no memory.
            tail.recent.pop();
            tail.unwritten -= 1;
            self.entries.store(entries - 1, Ordering::Release);
            return Err(error);
        }
        if tail.recent.len() > RECENT_MAX {
            let surplus = tail.recent.len() - UNWRITTEN_MAX;
            tail.recent.drain(..surplus);
        }
        Ok(())
    }

    /// The file then has all entries.
    fn write_out(&self, tail: &mut Tail<N>) -> io::Result<()> {
        if tail.unwritten == 0 {
            return Ok(());
        }
        let written = self.entries.load(Ordering::Acquire) - tail.unwritten;
        let unwritten = tail.recent[tail.recent.len() - tail.unwritten..].concat();
        self.handle
            .get()?
            .write_all_at(&unwritten, (written * N) as u64)?;
        tail.unwritten = 0;
        Ok(())
    }

    fn read_block(&self, slots: std::ops::Range<usize>) -> io::Result<Vec<[u8; N]>> {
        let mut block = vec![[0u8; N]; slots.len()];
        let bytes = block.as_flattened_mut();
        let read = self.handle.get()?.read_at(bytes, (slots.start * N) as u64)?;
        block.truncate(read / N);
        Ok(block)
    }

    /// The last slot whose entry `is_at_or_before`; entries for which it holds come first. `None` when there is none.
    pub fn find_last(
        &self,
        guess: impl FnOnce(&[u8; N], usize) -> usize,
        is_at_or_before: impl Fn(&[u8; N]) -> bool,
    ) -> io::Result<Option<(usize, [u8; N])>> {
        Ok(self.find_around(guess, is_at_or_before)?.before)
    }

    /// The same with the entry behind it. `guess` says of the last entry and the number of all where it might be: entries
    /// are mostly spread evenly, and then one read finds it.
    pub fn find_around(
        &self,
        guess: impl FnOnce(&[u8; N], usize) -> usize,
        is_at_or_before: impl Fn(&[u8; N]) -> bool,
    ) -> io::Result<Around<N>> {
        let entries = self.entries()?;
        let (mut low, mut high, guess, first_recent, cuts) = {
            let tail = self.lock();
            let first_recent = self.entries.load(Ordering::Acquire) - tail.recent.len();
            let count = tail.recent.partition_point(&is_at_or_before);
            if count > 0 {
                return Ok(Around::of(&tail.recent, first_recent, count));
            }
            let (start, searched) = &tail.searched;
            match searched.partition_point(&is_at_or_before) {
                count if count > 0 && count < searched.len() => {
                    return Ok(Around::of(searched, *start, count));
                }
                _ => {}
            }
            let guess = tail.recent.last().map_or(0, |last| guess(last, entries));
            (0, first_recent, guess, first_recent, tail.cuts)
        };
        if high > SEARCH_BLOCK_ENTRIES {
            // What is asked for next is mostly behind it.
            let start = guess
                .saturating_sub(SEARCH_BLOCK_ENTRIES / 4)
                .min(high - SEARCH_BLOCK_ENTRIES);
            let block = self.read_block(start..start + SEARCH_BLOCK_ENTRIES)?;
            match block.partition_point(&is_at_or_before) {
                0 => high = start,
                count if count == block.len() => low = start + count - 1,
                count => return Ok(self.searched(start, block, count, cuts)),
            }
        }
        // By single entries down to a block, then the block in one read.
        while high - low > SEARCH_BLOCK_ENTRIES {
            let middle = low + (high - low) / 2;
            if is_at_or_before(&self.read_written(middle)?) {
                low = middle;
            } else {
                high = middle;
            }
        }
        // With the entry behind the last that may be at or before.
        let block = self.read_block(low..first_recent.min(high + 1))?;
        let count = block.partition_point(&is_at_or_before);
        Ok(self.searched(low, block, count, cuts))
    }

    /// Keeps what was read for the next search, unless it is gone meanwhile.
    fn searched(&self, start: usize, block: Vec<[u8; N]>, count: usize, cuts: u64) -> Around<N> {
        let mut around = Around::of(&block, start, count);
        let mut tail = self.lock();
        if tail.cuts != cuts {
            // Whoever asked reads an older state, in which nothing more is known.
            return around;
        }
        let first_recent = self.entries.load(Ordering::Acquire) - tail.recent.len();
        if around.after.is_none() && start + block.len() == first_recent {
            around.after = tail.recent.first().copied();
        }
        tail.searched = (start, block);
        around
    }

    /// Keeps the first `entries` and cuts the file there. Writes nothing: a full disk does not hinder it.
    pub fn truncate_to_entries(&self, entries: usize) -> io::Result<()> {
        let known = self.entries()?;
        let kept = entries.min(known);
        let mut tail = self.lock();
        let written = known - tail.unwritten;
        if kept > written {
            let kept_recent = tail.recent.len() - (known - kept);
            tail.recent.truncate(kept_recent);
            tail.unwritten = kept - written;
            tail.forget_searched();
            self.entries.store(kept, Ordering::Release);
            return Ok(());
        }
        let last = kept.checked_sub(1).map(|slot| self.read_written(slot));
        tail.reset_to(last.transpose()?);
        self.entries.store(kept, Ordering::Release);
        self.handle.get()?.set_len((kept * N) as u64)
    }

    /// Forgets all, makes the file if it is not there. True if there was anything to forget or to make: an empty file is
    /// not even opened.
    pub fn reset(&self) -> io::Result<bool> {
        let mut tail = self.lock();
        self.entries.store(0, Ordering::Release);
        tail.reset_to(None);
        let is_empty = self.handle.file_len().is_ok_and(|length| length == 0);
        if !is_empty {
            self.handle.get_or_create()?.set_len(0)?;
        }
        Ok(!is_empty)
    }

    /// Writes what waits, and cuts the zeros that Kafka's preallocation left.
    pub fn trim_to_valid_size(&self) -> io::Result<()> {
        let expected = (self.entries()? * N) as u64;
        self.write_out(&mut self.lock())?;
        if self.handle.file_len()? != expected {
            self.handle.get()?.set_len(expected)?;
        }
        Ok(())
    }

    /// Writes what waits, which a full disk refuses without harm.
    pub fn write_waiting(&self) -> io::Result<()> {
        self.write_out(&mut self.lock())
    }

    pub fn sync(&self) -> io::Result<()> {
        self.write_waiting()?;
        self.handle.get()?.sync_data()
    }
}
