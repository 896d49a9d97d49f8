//! The transaction index of a segment: the aborted transactions whose marker is in it.
//!
//! Entry (34 bytes): version i16 (0), producer id, first offset, last offset, last stable offset (all i64). The file is made
//! with the first entry. Entries are in the order of their markers, so last offsets grow; `last_stable_offset` is the one
//! after the marker: a read that ends below it needs no later entry.
//!
//! No checksum is over an entry, and one that is believed wrongly hides records from readers, or shows them what was aborted. So entries that cannot be
//! are not read: the start builds the index anew, and whoever meets them later is told that the log is damaged. (Kafka looks at the version and
//! whether markers are before the segment.)
//!
//! Invariant: an entry that a full disk does not take is kept in memory, seen by readers, and written before anything else
//! is appended to the segment and before the indexes are synced. A crash meanwhile loses it, and the recovery finds it in the batches.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;

use super::open_file_cache::FileHandle;
use super::types::AbortedTransaction;
use crate::io::disk::is_no_space;

const ENTRY_SIZE: usize = 34;
const CURRENT_VERSION: i16 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub last_stable_offset: i64,
}

impl AbortedTxn {
    pub fn as_aborted_transaction(&self) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: self.producer_id,
            first_offset: self.first_offset,
        }
    }

    fn encode(&self) -> [u8; ENTRY_SIZE] {
        let mut entry = [0u8; ENTRY_SIZE];
        entry[..2].copy_from_slice(&CURRENT_VERSION.to_be_bytes());
        let fields = [
            self.producer_id,
            self.first_offset,
            self.last_offset,
            self.last_stable_offset,
        ];
        for (index, field) in fields.iter().enumerate() {
            entry[2 + index * 8..10 + index * 8].copy_from_slice(&field.to_be_bytes());
        }
        entry
    }

    fn decode(entry: &[u8]) -> io::Result<Self> {
        let field = |position: usize| {
            entry
                .get(position..)
                .and_then(|rest| rest.first_chunk::<8>())
                .map(|bytes| i64::from_be_bytes(*bytes))
        };
        let version = entry.first_chunk::<2>().map(|bytes| i16::from_be_bytes(*bytes));
        match (version, field(2), field(10), field(18), field(26)) {
            (
                Some(CURRENT_VERSION),
                Some(producer_id),
                Some(first_offset),
                Some(last_offset),
                Some(last_stable_offset),
            ) => Ok(Self {
                producer_id,
                first_offset,
                last_offset,
                last_stable_offset,
            }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "unexpected aborted transaction version",
            )),
        }
    }
}

/// Entries in the order of their markers, which lie in [base, limit) of the offsets.
fn can_be(entries: &[AbortedTxn], markers: std::ops::Range<i64>) -> bool {
    let mut before = AbortedTxn {
        producer_id: 0,
        first_offset: 0,
        last_offset: markers.start - 1,
        last_stable_offset: 0,
    };
    entries.iter().all(|txn| {
        let can_follow =
            txn.last_offset > before.last_offset && txn.last_stable_offset >= before.last_stable_offset;
        before = *txn;
        can_follow
            && txn.producer_id >= 0
            && (0..txn.last_offset).contains(&txn.first_offset)
            && txn.last_offset < markers.end
            && txn.last_stable_offset <= txn.last_offset + 1
    })
}

#[derive(Debug)]
pub(crate) struct TransactionIndex {
    handle: Arc<FileHandle>,
    base_offset: i64,
    /// The file is there.
    present: AtomicBool,
    /// Entries that are not in the file yet.
    unwritten: ArcSwapOption<Vec<AbortedTxn>>,
    /// Held while `unwritten` is changed.
    writing: Mutex<()>,
    damage_is_told: AtomicBool,
}

impl TransactionIndex {
    pub fn new(handle: Arc<FileHandle>, base_offset: i64, present: bool) -> Self {
        Self {
            handle,
            base_offset,
            present: AtomicBool::new(present),
            unwritten: ArcSwapOption::empty(),
            writing: Mutex::default(),
            damage_is_told: AtomicBool::new(false),
        }
    }

    pub fn handle(&self) -> &Arc<FileHandle> {
        &self.handle
    }

    pub fn is_present(&self) -> bool {
        self.present.load(Ordering::Acquire)
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_unwritten(&self, unwritten: Vec<AbortedTxn>) {
        let some = (!unwritten.is_empty()).then(|| Arc::new(unwritten));
        self.unwritten.store(some);
    }

    pub fn all(&self) -> io::Result<Vec<AbortedTxn>> {
        // Before the file: an entry that is written meanwhile is seen twice, not missed.
        let unwritten = self.unwritten.load_full();
        let mut all = self.written()?;
        for txn in unwritten.iter().flat_map(|unwritten| unwritten.iter()) {
            if !all.contains(txn) {
                all.push(*txn);
            }
        }
        Ok(all)
    }

    /// An error of the kind `InvalidData` where there are entries that cannot be.
    fn written(&self) -> io::Result<Vec<AbortedTxn>> {
        let read = self.read_written();
        let is_damaged = match &read {
            Ok(entries) => !can_be(entries, self.base_offset..i64::MAX),
            Err(error) => error.kind() == io::ErrorKind::InvalidData,
        };
        if !is_damaged {
            return read;
        }
        if !self.damage_is_told.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "{} has entries that cannot be: read_committed fetches that need it answer CORRUPT_MESSAGE. Stop the node and start it: it \
                 is built anew then",
                self.handle.path().display()
            );
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "entries of aborted transactions that cannot be",
        ))
    }

    fn read_written(&self) -> io::Result<Vec<AbortedTxn>> {
        if !self.is_present() {
            return Ok(Vec::new());
        }
        let file = self.handle.get()?;
        let mut bytes = vec![0u8; file.len()? as usize];
        let read = file.read_at(&mut bytes, 0)?;
        bytes[..read]
            .chunks_exact(ENTRY_SIZE)
            .map(AbortedTxn::decode)
            .collect()
    }

    /// On a full disk the entry waits in memory: its marker is in the log already.
    pub fn append(&self, txn: &AbortedTxn) -> io::Result<()> {
        let writing = self.writing();
        let mut unwritten = self
            .unwritten
            .load_full()
            .map_or_else(Vec::new, |known| known.to_vec());
        unwritten.push(*txn);
        match self.write_entries(&writing, unwritten) {
            Err(error) if !is_no_space(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes what a full disk did not take before.
    pub fn write_out(&self) -> io::Result<()> {
        if self.unwritten.load().is_none() {
            return Ok(());
        }
        let writing = self.writing();
        match self.unwritten.load_full() {
            Some(unwritten) => self.write_entries(&writing, unwritten.to_vec()),
            None => Ok(()),
        }
    }

    fn write_entries(&self, _writing: &MutexGuard<'_, ()>, mut entries: Vec<AbortedTxn>) -> io::Result<()> {
        let result = self.write_some(&mut entries);
        self.set_unwritten(entries);
        result
    }

    /// Takes what is in the file out of `entries`.
    fn write_some(&self, entries: &mut Vec<AbortedTxn>) -> io::Result<()> {
        while let Some(txn) = entries.first() {
            if !self.is_present() {
                self.handle.create()?;
                self.present.store(true, Ordering::Release);
            }
            let file = self.handle.get()?;
            let length = file.len()?;
            file.write_all_at(&txn.encode(), length - length % ENTRY_SIZE as u64)?;
            entries.remove(0);
        }
        Ok(())
    }

    /// The aborted transactions that touch [fetch offset, upper bound); true when later segments hold none of them.
    pub fn collect_aborted_txns(
        &self,
        fetch_offset: i64,
        upper_bound: i64,
    ) -> io::Result<(Vec<AbortedTxn>, bool)> {
        let mut found = Vec::new();
        for txn in self.all()? {
            if txn.last_offset >= fetch_offset && txn.first_offset < upper_bound {
                found.push(txn);
            }
            if txn.last_stable_offset >= upper_bound {
                return Ok((found, true));
            }
        }
        Ok((found, false))
    }

    /// Removes the transactions whose marker is at or after `offset`.
    pub fn truncate_to(&self, offset: i64) -> io::Result<()> {
        let all = self.written()?;
        let writing = self.writing();
        if let Some(unwritten) = self.unwritten.load_full() {
            let kept = unwritten.iter().filter(|txn| txn.last_offset < offset);
            self.set_unwritten(kept.copied().collect());
        }
        drop(writing);
        let kept = all.iter().take_while(|txn| txn.last_offset < offset).count();
        if kept < all.len() {
            self.handle.get()?.set_len((kept * ENTRY_SIZE) as u64)?;
        }
        Ok(())
    }

    pub fn reset(&self) -> io::Result<()> {
        self.unwritten.store(None);
        if self.is_present() {
            self.handle.get()?.set_len(0)?;
        }
        Ok(())
    }

    /// Whole entries that can be, with markers in this segment, which ends before `limit`.
    pub fn sanity_check(&self, limit: i64) -> io::Result<bool> {
        if !self.is_present() {
            return Ok(true);
        }
        let whole = self.handle.get()?.len()?.is_multiple_of(ENTRY_SIZE as u64);
        match self.read_written() {
            Ok(entries) => Ok(whole && can_be(&entries, self.base_offset..limit)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub fn sync(&self) -> io::Result<()> {
        if self.is_present() {
            self.handle.get()?.sync_data()
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
#[path = "transaction_index_test.rs"]
mod transaction_index_test;
