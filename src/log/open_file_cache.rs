//! Which of the logs' files are open: opened when needed, closed again when there are too many.
//!
//! Owns the bound on descriptors (common machines give a process 20,000, and connections need theirs). A file that
//! somebody uses at the moment stays open until he is done, so the bound may be passed by as many.
//! Invariants: a handle's path follows its partition's folder and its own suffix, so that a file can be opened again
//! after a rename; no lock is taken while a file is open already; no lock that others need is held while the disk works
//! (one that stalls would stall them).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::unsynced::Unsynced;
use crate::io::disk::{Disk, DiskFile, OpenMode};

/// The folder of a partition. It is renamed when the log is deleted, found stray, or moved between log dirs.
#[derive(Debug)]
pub(crate) struct PartitionDir {
    path: ArcSwap<PathBuf>,
    /// Files were made, renamed or removed since the folder was last synced.
    unsynced: Unsynced,
    /// Held between the folder's rename and the change of `path`.
    moving: Mutex<()>,
}

impl PartitionDir {
    pub fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            path: ArcSwap::from_pointee(path),
            unsynced: Unsynced::default(),
            moving: Mutex::new(()),
        })
    }

    pub fn path(&self) -> Arc<PathBuf> {
        self.path.load_full()
    }

    /// Gives the folder another name. Who finds nothing by the old one meanwhile waits for the new one.
    pub fn rename(&self, disk: &dyn Disk, to: PathBuf) -> io::Result<()> {
        let _moving = self.lock_moving();
        disk.rename(&self.path.load(), &to)?;
        self.path.store(Arc::new(to));
        Ok(())
    }

    fn lock_moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn mark_dirty(&self) {
        self.unsynced.mark();
    }

    pub fn is_dirty(&self) -> bool {
        self.unsynced.is_marked()
    }

    pub fn sync_if_dirty(&self, disk: &dyn Disk) -> io::Result<()> {
        self.unsynced.sync(|| disk.sync_dir(&self.path.load()))
    }
}

/// What a file of a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FileKind {
    Log,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    ProducerSnapshot,
}

impl FileKind {
    pub fn extension(self) -> &'static str {
        match self {
            FileKind::Log => ".log",
            FileKind::OffsetIndex => ".index",
            FileKind::TimeIndex => ".timeindex",
            FileKind::TransactionIndex => ".txnindex",
            FileKind::ProducerSnapshot => ".snapshot",
        }
    }
}

pub(crate) const DELETED_SUFFIX: &str = ".deleted";
pub(crate) const CLEANED_SUFFIX: &str = ".cleaned";
pub(crate) const SWAP_SUFFIX: &str = ".swap";
/// Of an offset index that is built anew, until all indexes of its segment are durable. Not the cleaner's: that may clean the
/// segment meanwhile, and a start takes what it finds of its names for an interrupted cleaning. Kafka leaves unknown names alone.
pub(crate) const REBUILT_SUFFIX: &str = ".rebuilt";

/// `<20 digits><extension>`.
pub(crate) fn file_name(base_offset: i64, kind: FileKind) -> String {
    format!("{base_offset:020}{}", kind.extension())
}

const SUFFIXES: [&str; 5] = ["", DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, REBUILT_SUFFIX];

fn suffix_index(suffix: &str) -> u8 {
    SUFFIXES.iter().position(|known| *known == suffix).unwrap_or(0) as u8
}

/// One file of a segment, open or not.
#[derive(Debug)]
pub(crate) struct FileHandle {
    cache: Arc<OpenFileCache>,
    dir: Arc<PartitionDir>,
    base_offset: i64,
    kind: FileKind,
    suffix: AtomicU8,
    open: ArcSwapOption<Arc<dyn DiskFile>>,
    used: AtomicBool,
    /// Held while the file is opened or renamed.
    opening: Mutex<()>,
    /// The file has no name any more: it stays open as long as somebody may read it.
    is_nameless: AtomicBool,
}

impl FileHandle {
    pub fn new(
        cache: &Arc<OpenFileCache>,
        dir: &Arc<PartitionDir>,
        base_offset: i64,
        kind: FileKind,
    ) -> Arc<Self> {
        Arc::new(Self {
            cache: Arc::clone(cache),
            dir: Arc::clone(dir),
            base_offset,
            kind,
            suffix: AtomicU8::new(0),
            open: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
            opening: Mutex::new(()),
            is_nameless: AtomicBool::new(false),
        })
    }

    /// The same for a file whose name has this suffix from the start.
    pub fn with_suffix(
        cache: &Arc<OpenFileCache>,
        dir: &Arc<PartitionDir>,
        base_offset: i64,
        kind: FileKind,
        suffix: &'static str,
    ) -> Arc<Self> {
        let handle = Self::new(cache, dir, base_offset, kind);
        handle.suffix.store(suffix_index(suffix), Ordering::Release);
        handle
    }

    pub fn path(&self) -> PathBuf {
        let suffix = SUFFIXES[usize::from(self.suffix.load(Ordering::Acquire)) % SUFFIXES.len()];
        self.dir
            .path()
            .join(file_name(self.base_offset, self.kind) + suffix)
    }

    pub fn disk(&self) -> &dyn Disk {
        &*self.cache.disk
    }

    /// Of the open file, else by its name: what is looked at once need not be opened.
    pub fn file_len(&self) -> io::Result<u64> {
        match &*self.open.load() {
            Some(file) => file.len(),
            None => match self.disk().file_len(&self.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    drop(self.dir.lock_moving());
                    self.disk().file_len(&self.path())
                }
                result => result,
            },
        }
    }

    /// The open file; opens one that exists.
    pub fn get(self: &Arc<Self>) -> io::Result<Arc<dyn DiskFile>> {
        self.get_or_open(OpenMode::ReadWrite)
    }

    /// The open file; makes it if it is not there.
    pub fn get_or_create(self: &Arc<Self>) -> io::Result<Arc<dyn DiskFile>> {
        self.get_or_open(OpenMode::Create)
    }

    fn get_or_open(self: &Arc<Self>, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = &*self.open.load() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return Ok(Arc::clone(file));
        }
        self.cache.open(self, mode)
    }

    /// Makes the file, empty.
    pub fn create(self: &Arc<Self>) -> io::Result<()> {
        self.dir.mark_dirty();
        self.close();
        self.cache.open(self, OpenMode::CreateTruncate).map(|_| ())
    }

    pub fn close(&self) {
        self.open.store(None);
    }

    #[cfg(test)]
    pub fn exists(&self) -> bool {
        self.disk().exists(&self.path())
    }

    /// Makes the names in the file's folder durable.
    pub fn sync_folder(&self) -> io::Result<()> {
        self.dir.sync_if_dirty(self.disk())
    }

    /// The file, which is not there, will be made with this suffix.
    pub fn call_it(&self, suffix: &'static str) {
        self.close();
        self.suffix.store(suffix_index(suffix), Ordering::Release);
    }

    /// Renames the file to one with this suffix; a file that is not there (a transaction index) is left so.
    pub fn change_suffix(&self, suffix: &'static str) -> io::Result<()> {
        // Nobody may look for the file between its rename and the change of our path.
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        self.rename_to(suffix)
    }

    /// The same if it has the suffix `from`.
    pub fn change_suffix_of(&self, from: &'static str, suffix: &'static str) -> io::Result<()> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.suffix.load(Ordering::Acquire) == suffix_index(from) {
            self.rename_to(suffix)
        } else {
            Ok(())
        }
    }

    fn rename_to(&self, suffix: &'static str) -> io::Result<()> {
        let from = self.path();
        let to = self
            .dir
            .path()
            .join(file_name(self.base_offset, self.kind) + suffix);
        self.dir.mark_dirty();
        match self.disk().rename(&from, &to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                self.suffix.store(suffix_index(suffix), Ordering::Release);
                Ok(())
            }
        }
    }

    /// Removes the file's name at once; who has the handle can read on until `remove`. For a full disk, which may not have
    /// the room for another name.
    pub fn remove_name(self: &Arc<Self>) -> io::Result<()> {
        match self.get() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => drop(opened?),
        }
        // From here on it is not closed to make room.
        self.is_nameless.store(true, Ordering::Release);
        self.get()?;
        self.dir.mark_dirty();
        remove_if_exists(self.disk(), &self.path())
    }

    pub fn remove(&self) -> io::Result<()> {
        self.close();
        if self.is_nameless.load(Ordering::Acquire) {
            return Ok(());
        }
        self.dir.mark_dirty();
        remove_if_exists(self.disk(), &self.path())
    }
}

pub(crate) fn remove_if_exists(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The bound, and a ring of the handles that are open (second chance: a handle that was used since is passed over).
#[derive(Debug)]
pub(crate) struct OpenFileCache {
    disk: Arc<dyn Disk>,
    max_open_files: usize,
    ring: Mutex<VecDeque<Weak<FileHandle>>>,
    opened: AtomicUsize,
}

impl OpenFileCache {
    pub fn new(disk: Arc<dyn Disk>, max_open_files: usize) -> Arc<Self> {
        Arc::new(Self {
            disk,
            max_open_files: max_open_files.max(1),
            ring: Mutex::new(VecDeque::new()),
            opened: AtomicUsize::new(0),
        })
    }

    /// How often a file was opened, for tests and metrics.
    #[cfg(test)]
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    fn open(&self, handle: &Arc<FileHandle>, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let _opening = handle.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if mode != OpenMode::CreateTruncate
            && let Some(file) = &*handle.open.load()
        {
            return Ok(Arc::clone(file));
        }
        let file = match self.disk.open(&handle.path(), mode) {
            // The folder or the file was just renamed: the path is another now, or is about to be.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                drop(handle.dir.lock_moving());
                self.disk.open(&handle.path(), mode)?
            }
            result => result?,
        };
        self.opened.fetch_add(1, Ordering::Relaxed);
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_room(&mut ring);
        handle.open.store(Some(Arc::new(Arc::clone(&file))));
        handle.used.store(true, Ordering::Relaxed);
        ring.push_back(Arc::downgrade(handle));
        Ok(file)
    }

    fn make_room(&self, ring: &mut VecDeque<Weak<FileHandle>>) {
        let mut looked_at = 0;
        let limit = ring.len() * 2;
        while ring.len() >= self.max_open_files && looked_at <= limit {
            looked_at += 1;
            let Some(weak) = ring.pop_front() else {
                return;
            };
            let Some(handle) = weak.upgrade() else {
                continue;
            };
            if handle.open.load().is_none() {
                continue;
            }
            let is_nameless = handle.is_nameless.load(Ordering::Acquire);
            if handle.used.swap(false, Ordering::Relaxed) || is_nameless {
                ring.push_back(weak);
            } else {
                handle.close();
            }
        }
    }
}

#[cfg(test)]
#[path = "open_file_cache_test.rs"]
mod open_file_cache_test;
