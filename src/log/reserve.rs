//! A file in the metadata log directory that only takes room: given up when the disk is full, so that the node can start
//! and the metadata log can go on (without which nothing could be deleted), and made again when there is room.
//!
//! What is freed goes to the metadata log alone: a full directory takes no appends of others before there is more room than
//! this (`LogDir::check_room`). Apache Kafka has no such file, and does not start on a full disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open_file_cache::remove_if_exists;
use crate::io::disk::{Disk, OpenMode};

const FILE_NAME: &str = ".kavka_reserve";
const CHUNK_BYTES: usize = 64 * 1024;

/// The reserve of a node.
#[derive(Debug, Clone)]
pub struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    bytes: u64,
}

impl Reserve {
    /// `bytes`: `kavka.metadata.log.reserve.bytes`; 0: there is none.
    pub fn new(disk: Arc<dyn Disk>, metadata_log_dir: &Path, bytes: u64) -> Self {
        Self {
            disk,
            path: metadata_log_dir.join(FILE_NAME),
            bytes,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_missing(&self) -> bool {
        !self.disk.exists(&self.path)
    }

    fn usable_bytes(&self) -> io::Result<u64> {
        let dir = self.path.parent().unwrap_or(&self.path);
        Ok(self.disk.space(dir)?.usable_bytes)
    }

    /// Before a start, which writes.
    pub fn give_up_if_needed(&self) {
        if self.usable_bytes().is_ok_and(|usable| usable < self.bytes) {
            self.give_up();
        }
    }

    /// Removes the file; false when there was none.
    pub fn give_up(&self) -> bool {
        if !self.disk.exists(&self.path) {
            return false;
        }
        let result = remove_if_exists(&*self.disk, &self.path);
        match &result {
            Ok(()) => tracing::warn!("the disk is full: gave up {}", self.path.display()),
            Err(error) => tracing::error!("the disk is full, and {} stays: {error}", self.path.display()),
        }
        result.is_ok()
    }

    /// Makes the file if it is not there, and as much again stays free.
    pub fn restore(&self) {
        if self.bytes == 0 || self.disk.exists(&self.path) {
            return;
        }
        if self
            .usable_bytes()
            .is_ok_and(|usable| usable >= self.bytes.saturating_mul(2))
            && let Err(error) = self.write()
        {
            tracing::warn!("could not make {}: {error}", self.path.display());
            // Half of it is of no use, and the next look would take it for all.
            let _ = remove_if_exists(&*self.disk, &self.path);
        }
    }

    /// Bytes that no file system stores as nothing.
    fn write(&self) -> io::Result<()> {
        let file = self.disk.open(&self.path, OpenMode::CreateTruncate)?;
        let mut random = fastrand::Rng::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut position = 0;
        while position < self.bytes {
            random.fill(&mut chunk);
            let length = CHUNK_BYTES.min(usize::try_from(self.bytes - position).unwrap_or(CHUNK_BYTES));
            file.write_all_at(&chunk[..length], position)?;
            position += length as u64;
        }
        // Only then the blocks are sure to be its own.
        file.sync_data()
    }
}

#[cfg(test)]
#[path = "reserve_test.rs"]
mod reserve_test;
