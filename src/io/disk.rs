//! The disk door: every call that `log` and `raft` make on files, so that tests can lose, tear and fail them.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a file is opened. Reads and writes are always positioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist; reads only.
    Read,
    /// Must exist; reads and writes.
    ReadWrite,
    /// Made if it is not there; reads and writes.
    Create,
    /// Made, or cut to nothing if it is there.
    CreateTruncate,
}

/// One open file.
pub trait DiskFile: Send + Sync + Debug {
    /// Reads until `buffer` is full or the file ends; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all of `data` at `position`.
    fn write_all_at(&self, data: &[u8], position: u64) -> io::Result<()>;
    /// Writes all of `parts` one after the other from `position` (pwritev).
    fn write_all_vectored_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// fdatasync.
    fn sync_data(&self) -> io::Result<()>;
    /// The real file for sendfile; `None` on a simulated disk (readers then copy).
    fn as_file(&self) -> Option<&File>;
}

/// A file system.
pub trait Disk: Send + Sync + Debug + 'static {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Writes `<path>.tmp`, syncs it, renames it over `path` and syncs the directory.
    fn write_atomically(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names (not paths) in a directory with a flag "is a directory", in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>>;
    fn exists(&self, path: &Path) -> bool;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// Bytes of a file that are to be sent or read later: what a fetch hands to the network.
#[derive(Debug, Clone)]
pub struct FileSlice {
    pub file: Arc<dyn DiskFile>,
    pub position: u64,
    pub length: usize,
}
