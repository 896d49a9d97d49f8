//! A disk on which some calls under a path can be made to hang until they are let go: for tests of what must go on
//! meanwhile.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, DiskFile, DiskLock, DiskSpace, OpenMode};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallingCall {
    Write,
    Sync,
    Read,
    /// Of the old name: hangs when it is done already.
    Rename,
}

#[derive(Debug, Default)]
struct State {
    stalled: Option<(PathBuf, StallingCall)>,
    hanging: usize,
    syncs: usize,
}

#[derive(Debug, Default)]
struct Stall {
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    fn hangs(&self, path: &Path, call: StallingCall) -> bool {
        let stalled = self.stalled.as_ref();
        stalled.is_some_and(|(prefix, stalls)| *stalls == call && path.starts_with(prefix))
    }
}

impl Stall {
    fn stalls(&self, path: &Path, call: StallingCall) -> bool {
        self.state().hangs(path, call)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, path: &Path, call: StallingCall) {
        let mut state = self.state();
        state.syncs += usize::from(call == StallingCall::Sync);
        state.hanging += 1;
        while state.hangs(path, call) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.hanging -= 1;
    }
}

/// Wraps a disk; clones share it.
#[derive(Debug, Clone)]
pub struct StallingDisk {
    disk: Arc<dyn Disk>,
    stall: Arc<Stall>,
}

impl StallingDisk {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            stall: Arc::default(),
        }
    }

    /// From now on these calls on files under `prefix` hang.
    pub fn stall(&self, prefix: &Path, call: StallingCall) {
        self.stall.state().stalled = Some((prefix.to_path_buf(), call));
    }

    pub fn release(&self) {
        self.stall.state().stalled = None;
        self.stall.changed.notify_all();
    }

    /// Calls that hang now.
    pub fn hanging(&self) -> usize {
        self.stall.state().hanging
    }

    /// Syncs of files that were begun.
    pub fn syncs(&self) -> usize {
        self.stall.state().syncs
    }
}

#[derive(Debug)]
struct StallingFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    stall: Arc<Stall>,
}

impl DiskFile for StallingFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.stall.pass(&self.path, StallingCall::Read);
        self.file.read_at(buffer, position)
    }

    fn write_all_at(&self, data: &[u8], position: u64) -> io::Result<()> {
        self.stall.pass(&self.path, StallingCall::Write);
        self.file.write_all_at(data, position)
    }

    fn write_all_vectored_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        self.stall.pass(&self.path, StallingCall::Write);
        self.file.write_all_vectored_at(parts, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.stall.pass(&self.path, StallingCall::Sync);
        self.file.sync_data()
    }

    fn modified_ms(&self) -> io::Result<i64> {
        self.file.modified_ms()
    }

    fn set_modified_ms(&self, modified_ms: i64) -> io::Result<()> {
        self.file.set_modified_ms(modified_ms)
    }

    fn is_cached_at(&self, position: u64) -> bool {
        !self.stall.stalls(&self.path, StallingCall::Read) && self.file.is_cached_at(position)
    }

    fn read_cached(&self, buffer: &mut [u8], position: u64) -> bool {
        !self.stall.stalls(&self.path, StallingCall::Read) && self.file.read_cached(buffer, position)
    }

    fn device(&self) -> u64 {
        self.file.device()
    }

    fn as_file(&self) -> Option<&File> {
        self.file.as_file()
    }
}

impl Disk for StallingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(StallingFile {
            file: self.disk.open(path, mode)?,
            path: path.to_path_buf(),
            stall: Arc::clone(&self.stall),
        }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(path)
    }

    fn write_atomically(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.stall.pass(path, StallingCall::Write);
        self.stall.pass(path, StallingCall::Sync);
        self.disk.write_atomically(path, content)
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.stall.pass(path, StallingCall::Write);
        self.disk.replace(path, content)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)?;
        self.stall.pass(from, StallingCall::Rename);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        self.disk.list(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn space(&self, path: &Path) -> io::Result<DiskSpace> {
        self.disk.space(path)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.try_lock(path)
    }
}
