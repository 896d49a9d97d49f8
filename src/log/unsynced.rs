//! Whether a folder has names that are not durable yet.
//!
//! Invariant: who is told that all is durable is told so after the sync that made it so has ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    changes: AtomicU64,
    /// As many of these are durable.
    synced: AtomicU64,
    /// Held by whoever syncs: those who come meanwhile wait, for they are at the same disk.
    syncing: Mutex<()>,
}

impl Unsynced {
    pub fn mark(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    pub fn is_marked(&self) -> bool {
        self.synced.load(Ordering::Acquire) < self.changes.load(Ordering::Acquire)
    }

    /// Syncs if there is something to sync. What is marked meanwhile is left to the next.
    pub fn sync<E>(&self, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        if !self.is_marked() {
            return Ok(());
        }
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_marked() {
            return Ok(());
        }
        let changes = self.changes.load(Ordering::Acquire);
        sync()?;
        self.synced.fetch_max(changes, Ordering::AcqRel);
        Ok(())
    }
}

#[cfg(test)]
#[path = "unsynced_test.rs"]
mod unsynced_test;
