//! A file system in memory that behaves as badly as a real one may: for tests and the simulator.
//!
//! Owns two pictures of every file: what a process sees, and what would be there after power was lost. Only
//! `sync_data` (bytes) and `sync_dir` (names) bring the second up to the first; a crash of the process loses nothing.
//! Invariants: reads see the first picture only; `lose_power` makes the second the first, with unsynced bytes lost,
//! kept or torn as its seed says; a failed call changes nothing but what a torn write says it wrote. With a capacity a
//! write ends where the room does, and the bytes of files without a name count no more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, DiskFile, DiskLock, DiskSpace, OpenMode};

/// The block that a device writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Kinds of calls that can be told to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SimOperation {
    Open,
    Read,
    Write,
    Sync,
    SetLen,
    Rename,
    Remove,
    /// Every call that changes something.
    AnyChange,
}

#[derive(Debug)]
struct Failure {
    operation: SimOperation,
    /// Calls that still succeed before it.
    remaining: u64,
    /// From then on all calls fail, not the one alone.
    forever: bool,
    kind: io::ErrorKind,
    /// A write that fails has written this part of its bytes (0 to 100 per cent).
    torn_percent: usize,
}

#[derive(Debug, Default, Clone)]
struct FileContent {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    modified_ms: i64,
}

type Inode = u64;

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<Inode, FileContent>,
    next_inode: Inode,
    /// The names a process sees.
    names: BTreeMap<PathBuf, Inode>,
    directories: BTreeSet<PathBuf>,
    /// The names that power loss leaves.
    durable_names: BTreeMap<PathBuf, Inode>,
    durable_directories: BTreeSet<PathBuf>,
    locked: BTreeSet<PathBuf>,
    failures: Vec<Failure>,
    now_ms: i64,
    writes: u64,
    syncs: u64,
    changes: u64,
    /// Bytes that all files together may have.
    capacity: Option<u64>,
}

/// The disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, path.display().to_string())
}

impl State {
    /// Counts a call; an error when it is one that must fail, with the share of a write's bytes that got through.
    fn check(&mut self, operation: SimOperation, is_change: bool) -> Result<(), (io::Error, usize)> {
        self.changes += u64::from(is_change);
        for index in 0..self.failures.len() {
            let failure = &mut self.failures[index];
            let hit =
                failure.operation == operation || (is_change && failure.operation == SimOperation::AnyChange);
            if !hit {
                continue;
            }
            if failure.remaining > 0 {
                failure.remaining -= 1;
                continue;
            }
            let error = io::Error::new(failure.kind, "simulated");
            let torn_percent = failure.torn_percent;
            if !failure.forever {
                self.failures.remove(index);
            }
            return Err((error, torn_percent));
        }
        Ok(())
    }

    fn inode(&self, path: &Path) -> io::Result<Inode> {
        self.names.get(path).copied().ok_or_else(|| not_found(path))
    }

    fn content(&mut self, inode: Inode) -> &mut FileContent {
        self.files.entry(inode).or_default()
    }

    fn create(&mut self, path: &Path) -> io::Result<Inode> {
        let parent = path.parent().unwrap_or(Path::new(""));
        if !self.directories.contains(parent) {
            return Err(not_found(parent));
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        self.files.insert(
            inode,
            FileContent {
                modified_ms: self.now_ms,
                ..FileContent::default()
            },
        );
        self.names.insert(path.to_path_buf(), inode);
        Ok(inode)
    }

    fn used(&self) -> u64 {
        let named: BTreeSet<&Inode> = self.names.values().collect();
        let files = named.iter().filter_map(|inode| self.files.get(inode));
        files.map(|content| content.bytes.len() as u64).sum()
    }

    /// How many of `length` bytes at `position` there is room for.
    fn room_for(&mut self, inode: Inode, length: usize, position: usize) -> usize {
        let Some(capacity) = self.capacity else {
            return length;
        };
        let free = usize::try_from(capacity.saturating_sub(self.used())).unwrap_or(usize::MAX);
        let end = self.content(inode).bytes.len();
        let grows_from = end.max(position) - position;
        length.min(grows_from.saturating_add(free))
    }

    fn write(&mut self, inode: Inode, data: &[u8], position: usize) {
        let now_ms = self.now_ms;
        let content = self.content(inode);
        if content.bytes.len() < position + data.len() {
            content.bytes.resize(position + data.len(), 0);
        }
        content.bytes[position..position + data.len()].copy_from_slice(data);
        content.modified_ms = now_ms;
    }

    fn sync_names_of(&mut self, directory: &Path) {
        self.durable_names
            .retain(|path, _| path.parent() != Some(directory));
        for (path, inode) in &self.names {
            if path.parent() == Some(directory) {
                self.durable_names.insert(path.clone(), *inode);
            }
        }
        for child in &self.directories {
            if child.parent() == Some(directory) {
                self.durable_directories.insert(child.clone());
            }
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if let Some(inode) = self.names.remove(from) {
            self.names.insert(to.to_path_buf(), inode);
            return Ok(());
        }
        if !self.directories.contains(from) {
            return Err(not_found(from));
        }
        if self.directories.contains(to) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                to.display().to_string(),
            ));
        }
        let moved = |path: &Path| path.strip_prefix(from).ok().map(|rest| join(to, rest));
        self.names = std::mem::take(&mut self.names)
            .into_iter()
            .map(|(path, inode)| (moved(&path).unwrap_or(path), inode))
            .collect();
        self.directories = std::mem::take(&mut self.directories)
            .into_iter()
            .map(|path| moved(&path).unwrap_or(path))
            .collect();
        // A folder's move is taken as durable with what is in it: the log syncs its parent only for the name.
        self.durable_names = std::mem::take(&mut self.durable_names)
            .into_iter()
            .map(|(path, inode)| (moved(&path).unwrap_or(path), inode))
            .collect();
        self.durable_directories = std::mem::take(&mut self.durable_directories)
            .into_iter()
            .map(|path| moved(&path).unwrap_or(path))
            .collect();
        Ok(())
    }

    /// What the device holds of one file: synced bytes, and of the rest each sector lost, kept or (the last) torn.
    fn bytes_after_power_loss(content: &FileContent, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut result = content.durable.clone();
        if content.bytes == content.durable {
            return result;
        }
        match random.u8(0..4) {
            // Nothing more came through.
            0 | 1 => result,
            // A prefix did, cut anywhere.
            2 => {
                let length = random.usize(0..=content.bytes.len());
                for (index, byte) in content.bytes.iter().take(length).enumerate() {
                    if index < result.len() {
                        result[index] = *byte;
                    } else {
                        result.push(*byte);
                    }
                }
                result
            }
            // The length did, but some sectors are still zeros or old.
            _ => {
                let durable_length = result.len();
                result.resize(content.bytes.len().max(durable_length), 0);
                result.truncate(content.bytes.len().max(durable_length));
                for start in (0..content.bytes.len()).step_by(SECTOR_BYTES) {
                    if random.bool() {
                        let end = (start + SECTOR_BYTES).min(content.bytes.len());
                        result[start..end].copy_from_slice(&content.bytes[start..end]);
                    }
                }
                result
            }
        }
    }
}

fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        base.to_path_buf()
    } else {
        base.join(rest)
    }
}

impl SimDisk {
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `n`-th call of this kind from now on (0: the next) fails, once.
    pub fn fail_nth(&self, operation: SimOperation, n: u64, kind: io::ErrorKind) {
        self.push_failure(operation, n, false, kind, 0);
    }

    /// From the `n`-th call of this kind on all fail: a dead disk or a full one.
    pub fn fail_from(&self, operation: SimOperation, n: u64, kind: io::ErrorKind) {
        self.push_failure(operation, n, true, kind, 0);
    }

    /// The `n`-th write from now on fails after this share of its bytes.
    pub fn tear_write(&self, n: u64, percent: usize, kind: io::ErrorKind) {
        self.push_failure(SimOperation::Write, n, false, kind, percent.min(100));
    }

    /// The room for the bytes of all files; `None`: without an end.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.state().capacity = capacity;
    }

    /// Bytes of all files that have a name.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    pub fn heal(&self) {
        self.state().failures.clear();
    }

    fn push_failure(
        &self,
        operation: SimOperation,
        remaining: u64,
        forever: bool,
        kind: io::ErrorKind,
        torn_percent: usize,
    ) {
        self.state().failures.push(Failure {
            operation,
            remaining,
            forever,
            kind,
            torn_percent,
        });
    }

    /// Power is lost: what was not synced is lost, kept or torn as the seed says. Locks are free again. Files that are
    /// still open belong to the dead process: they must not be used any more.
    pub fn lose_power(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut state = self.state();
        // A name that was not synced may have come through all the same (with the file's bytes not).
        let mut names = state.durable_names.clone();
        for (path, inode) in &state.names {
            let parent_is_durable = state.durable_directories.contains(path.parent().unwrap_or(path));
            if !names.contains_key(path) && parent_is_durable && random.bool() {
                names.insert(path.clone(), *inode);
            }
        }
        // A folder that is lost takes its files along.
        names.retain(|path, _| {
            path.parent()
                .is_none_or(|parent| state.durable_directories.contains(parent))
        });
        let files = state
            .files
            .iter()
            .map(|(inode, content)| {
                let bytes = State::bytes_after_power_loss(content, &mut random);
                (
                    *inode,
                    FileContent {
                        durable: bytes.clone(),
                        bytes,
                        modified_ms: content.modified_ms,
                    },
                )
            })
            .collect();
        state.files = files;
        state.directories = state.durable_directories.clone();
        state.names = names.clone();
        state.durable_names = names;
        state.locked.clear();
        state.failures.clear();
    }

    /// The process is killed: all that was written stays, locks are free again.
    pub fn crash_process(&self) {
        self.state().locked.clear();
    }

    /// Flips one bit of a file (on the device too).
    pub fn flip_bit(&self, path: &Path, bit: u64) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.inode(path)?;
        let content = state.content(inode);
        let index = (bit / 8) as usize;
        let mask = 1 << (bit % 8);
        for bytes in [&mut content.bytes, &mut content.durable] {
            if let Some(byte) = bytes.get_mut(index) {
                *byte ^= mask;
            }
        }
        Ok(())
    }

    pub fn set_now_ms(&self, now_ms: i64) {
        self.state().now_ms = now_ms;
    }

    /// Calls of sync_data and sync_dir so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Calls that wrote to a file so far.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    fn give_back(&self, temporary: &Path) {
        let _ = self.remove_file(temporary);
    }

    /// Calls that changed something so far (`SimOperation::AnyChange`).
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// A copy of a real directory, as if it had always been there.
    pub fn import(&self, real: &Path, at: &Path) -> io::Result<()> {
        self.create_dir_all(at)?;
        for entry in std::fs::read_dir(real)? {
            let entry = entry?;
            let target = at.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.import(&entry.path(), &target)?;
            } else {
                self.write_atomically(&target, &std::fs::read(entry.path())?)?;
            }
        }
        let mut state = self.state();
        for path in at.ancestors() {
            state.durable_directories.insert(path.to_path_buf());
        }
        state.sync_names_of(at);
        Ok(())
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state
            .check(SimOperation::Open, false)
            .map_err(|(error, _)| error)?;
        let inode = match (state.names.get(path).copied(), mode) {
            (Some(inode), OpenMode::CreateTruncate) => {
                state.content(inode).bytes.clear();
                inode
            }
            (Some(inode), _) => inode,
            (None, OpenMode::Create | OpenMode::CreateTruncate) => state.create(path)?,
            (None, OpenMode::Read | OpenMode::ReadWrite) => return Err(not_found(path)),
        };
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
            writable: mode != OpenMode::Read,
        }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state
            .check(SimOperation::Read, false)
            .map_err(|(error, _)| error)?;
        let inode = state.inode(path)?;
        Ok(state.content(inode).bytes.clone())
    }

    fn write_atomically(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let file = self.open(&temporary, OpenMode::CreateTruncate)?;
        file.write_all_at(content, 0)
            .and_then(|()| file.sync_data())
            .and_then(|()| self.rename(&temporary, path))
            .inspect_err(|_| self.give_back(&temporary))?;
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let file = self.open(&temporary, OpenMode::CreateTruncate)?;
        file.write_all_at(content, 0)
            .and_then(|()| self.rename(&temporary, path))
            .inspect_err(|_| self.give_back(&temporary))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state
            .check(SimOperation::Rename, true)
            .map_err(|(error, _)| error)?;
        state.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state
            .check(SimOperation::Remove, true)
            .map_err(|(error, _)| error)?;
        state
            .names
            .remove(path)
            .map(|_| ())
            .ok_or_else(|| not_found(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state
            .check(SimOperation::Remove, true)
            .map_err(|(error, _)| error)?;
        if !state.directories.contains(path) {
            return Err(not_found(path));
        }
        state.names.retain(|name, _| !name.starts_with(path));
        state.directories.retain(|name| !name.starts_with(path));
        state.durable_names.retain(|name, _| !name.starts_with(path));
        state.durable_directories.retain(|name| !name.starts_with(path));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state
            .check(SimOperation::AnyChange, true)
            .map_err(|(error, _)| error)?;
        for ancestor in path.ancestors() {
            state.directories.insert(ancestor.to_path_buf());
        }
        // Only the top of the tree was there before: folders below wait for their parent's sync.
        if let Some(top) = path.ancestors().last() {
            state.durable_directories.insert(top.to_path_buf());
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let mut state = self.state();
        state
            .check(SimOperation::Read, false)
            .map_err(|(error, _)| error)?;
        if !state.directories.contains(path) {
            return Err(not_found(path));
        }
        let name_in = |child: &Path| {
            (child.parent() == Some(path))
                .then(|| child.file_name().map(PathBuf::from))
                .flatten()
        };
        let files = state
            .names
            .keys()
            .filter_map(|child| name_in(child))
            .map(|name| (name, false));
        let directories = state
            .directories
            .iter()
            .filter_map(|child| name_in(child))
            .map(|name| (name, true));
        Ok(files.chain(directories).collect())
    }

    fn exists(&self, path: &Path) -> bool {
        let state = self.state();
        state.names.contains_key(path) || state.directories.contains(path)
    }

    fn sync_file_system(&self, _path: &Path) -> io::Result<bool> {
        let mut state = self.state();
        state
            .check(SimOperation::Sync, true)
            .map_err(|(error, _)| error)?;
        state.syncs += 1;
        for content in state.files.values_mut() {
            content.durable = content.bytes.clone();
        }
        state.durable_names = state.names.clone();
        state.durable_directories = state.directories.clone();
        Ok(true)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state
            .check(SimOperation::Sync, true)
            .map_err(|(error, _)| error)?;
        if !state.directories.contains(path) {
            return Err(not_found(path));
        }
        state.syncs += 1;
        state.sync_names_of(path);
        Ok(())
    }

    fn space(&self, _path: &Path) -> io::Result<DiskSpace> {
        let state = self.state();
        let total_bytes = state.capacity.ok_or(io::ErrorKind::Unsupported)?;
        Ok(DiskSpace {
            total_bytes,
            usable_bytes: total_bytes.saturating_sub(state.used()),
        })
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.open(path, OpenMode::Create)?;
        let taken = !self.state().locked.insert(path.to_path_buf());
        if taken {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock {
            disk: self.clone(),
            path: path.to_path_buf(),
        })))
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state().locked.remove(&self.path);
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: Inode,
    writable: bool,
}

impl SimFile {
    fn changeable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        state
            .check(SimOperation::Read, false)
            .map_err(|(error, _)| error)?;
        let bytes = &state.content(self.inode).bytes;
        let start = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
        let count = buffer.len().min(bytes.len() - start);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn write_all_at(&self, data: &[u8], position: u64) -> io::Result<()> {
        self.changeable()?;
        let mut state = self.disk.state();
        state.writes += 1;
        let position = position as usize;
        if let Err((error, torn_percent)) = state.check(SimOperation::Write, true) {
            let written = data.len() * torn_percent / 100;
            state.write(self.inode, &data[..written], position);
            return Err(error);
        }
        let room = state.room_for(self.inode, data.len(), position);
        state.write(self.inode, &data[..room], position);
        if room < data.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn write_all_vectored_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        self.write_all_at(&parts.concat(), position)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().content(self.inode).bytes.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.changeable()?;
        let mut state = self.disk.state();
        state
            .check(SimOperation::SetLen, true)
            .map_err(|(error, _)| error)?;
        state.content(self.inode).bytes.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state
            .check(SimOperation::Sync, true)
            .map_err(|(error, _)| error)?;
        state.syncs += 1;
        let content = state.content(self.inode);
        content.durable = content.bytes.clone();
        Ok(())
    }

    fn modified_ms(&self) -> io::Result<i64> {
        Ok(self.disk.state().content(self.inode).modified_ms)
    }

    fn set_modified_ms(&self, modified_ms: i64) -> io::Result<()> {
        self.disk.state().content(self.inode).modified_ms = modified_ms;
        Ok(())
    }

    fn as_file(&self) -> Option<&File> {
        None
    }
}

#[cfg(test)]
#[path = "sim_disk_test.rs"]
mod sim_disk_test;
