//! The disk door: every call that `log` and `raft` make on files, so that tests can lose, tear and fail them.

use std::collections::HashSet;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fcntl_lock};
use rustix::io::ReadWriteFlags;

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
    /// Sets room aside for what will be written there; the length stays. `set_len` gives back what is behind it.
    fn reserve(&self, _position: u64, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// fdatasync.
    fn sync_data(&self) -> io::Result<()>;
    /// When it was last written to, in milliseconds since the Unix epoch.
    fn modified_ms(&self) -> io::Result<i64> {
        let file = self.as_file().ok_or(io::ErrorKind::Unsupported)?;
        let modified = file.metadata()?.modified()?;
        Ok(modified
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64))
    }
    /// Sets what `modified_ms` says; until the next write.
    fn set_modified_ms(&self, modified_ms: i64) -> io::Result<()> {
        let file = self.as_file().ok_or(io::ErrorKind::Unsupported)?;
        file.set_modified(UNIX_EPOCH + Duration::from_millis(modified_ms.max(0).unsigned_abs()))
    }
    /// Whether a byte can be read without waiting for the disk; true where that cannot be told.
    fn is_cached_at(&self, _position: u64) -> bool {
        true
    }
    /// Fills the buffer if that needs no wait for the disk; false where it does, or where that cannot be told.
    fn read_cached(&self, _buffer: &mut [u8], _position: u64) -> bool {
        false
    }
    /// Which device the file is on: those of one stall together.
    fn device(&self) -> u64 {
        0
    }
    /// The real file for sendfile; `None` on a simulated disk (readers then copy).
    fn as_file(&self) -> Option<&File>;
}

/// An exclusive lock on a file, held until it is dropped.
pub trait DiskLock: Send + Sync + Debug {}

/// The size of a file system and what of it this process may still write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    pub total_bytes: u64,
    pub usable_bytes: u64,
}

/// A file system.
pub trait Disk: Send + Sync + Debug + 'static {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Writes `<path>.tmp`, syncs it, renames it over `path` and syncs the directory.
    fn write_atomically(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// The same without the syncs: whole after a process crash; after power loss it may be the old, the new or empty.
    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names (not paths) in a directory with a flag "is a directory", in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>>;
    fn exists(&self, path: &Path) -> bool;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// All files and names of the file system that holds `path`, at once (syncfs). False where that cannot be had, or
    /// would not tell of errors: the caller then syncs one by one.
    fn sync_file_system(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }
    /// A file's length by its name: it need not be opened for that.
    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.open(path, OpenMode::Read)?.len()
    }
    /// Mode 0400: Kafka's mark of a checkpoint that is complete. Nothing where the file system knows no modes.
    fn set_read_only(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    /// Of the file system that holds `path`.
    fn space(&self, _path: &Path) -> io::Result<DiskSpace> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Takes the exclusive lock on a file, which is made if it is not there; `None` when somebody else has it.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;
}

/// No room is left, or none of what this user may have: what a call says that can succeed later without any change.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Bytes of a file that are to be sent or read later: what a fetch hands to the network.
#[derive(Debug, Clone)]
pub struct FileSlice {
    pub file: Arc<dyn DiskFile>,
    pub position: u64,
    pub length: usize,
}

/// The machine's file system.
#[derive(Debug, Default)]
pub struct SystemDisk;

impl SystemDisk {
    pub fn new() -> Self {
        Self
    }
}

#[derive(Debug)]
struct SystemFile(File);

/// Parts of one pwritev; the kernel takes at most 1024 (IOV_MAX).
const VECTORED_PARTS_MAX: usize = 1024;

impl DiskFile for SystemFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match self.0.read_at(&mut buffer[read..], position + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_all_at(&self, data: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(data, position)
    }

    fn write_all_vectored_at(&self, parts: &[&[u8]], mut position: u64) -> io::Result<()> {
        for chunk in parts.chunks(VECTORED_PARTS_MAX) {
            let mut slices: Vec<IoSlice<'_>> = chunk.iter().map(|part| IoSlice::new(part)).collect();
            let mut rest: &mut [IoSlice<'_>] = &mut slices;
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                match rustix::io::pwritev(&self.0, rest, position) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => {
                        position += written as u64;
                        IoSlice::advance_slices(&mut rest, written);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn reserve(&self, position: u64, length: u64) -> io::Result<()> {
        Ok(fallocate(&self.0, FallocateFlags::KEEP_SIZE, position, length)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn is_cached_at(&self, position: u64) -> bool {
        let mut byte = [0; 1];
        let mut parts = [IoSliceMut::new(&mut byte)];
        let read = rustix::io::preadv2(&self.0, &mut parts, position, ReadWriteFlags::NOWAIT);
        // Some file systems know no such read.
        !matches!(read, Err(rustix::io::Errno::AGAIN))
    }

    fn read_cached(&self, buffer: &mut [u8], position: u64) -> bool {
        let length = buffer.len();
        let mut parts = [IoSliceMut::new(buffer)];
        let read = rustix::io::preadv2(&self.0, &mut parts, position, ReadWriteFlags::NOWAIT);
        read == Ok(length)
    }

    fn device(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.dev())
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.0)
    }
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// What was written of a file that will not get its name must not take room on a full disk.
fn give_back(temporary: &Path) {
    let _ = fs::remove_file(temporary);
}

impl Disk for SystemDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::Create => {
                options.write(true).create(true);
            }
            OpenMode::CreateTruncate => {
                options.write(true).create(true).truncate(true);
            }
        }
        Ok(Arc::new(SystemFile(options.open(path)?)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn write_atomically(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let temporary = temporary_path(path);
        let file = File::create(&temporary)?;
        file.write_all_at(content, 0)
            .and_then(|()| file.sync_data())
            .and_then(|()| fs::rename(&temporary, path))
            .inspect_err(|_| give_back(&temporary))?;
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let temporary = temporary_path(path);
        fs::write(&temporary, content)
            .and_then(|()| fs::rename(&temporary, path))
            .inspect_err(|_| give_back(&temporary))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let mut kind = entry.file_type()?;
            if kind.is_symlink() {
                kind = fs::metadata(entry.path())?.file_type();
            }
            names.push((PathBuf::from(entry.file_name()), kind.is_dir()));
        }
        Ok(names)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<bool> {
        if !syncfs_tells_of_errors() {
            return Ok(false);
        }
        rustix::fs::syncfs(File::open(path)?)?;
        Ok(true)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(0o400))
    }

    fn space(&self, path: &Path) -> io::Result<DiskSpace> {
        let found = rustix::fs::statvfs(path)?;
        Ok(DiskSpace {
            total_bytes: found.f_frsize.saturating_mul(found.f_blocks),
            usable_bytes: found.f_frsize.saturating_mul(found.f_bavail),
        })
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        SystemLock::try_lock(path)
    }
}

/// Before Linux 5.8 syncfs returned no error of a write that had failed.
fn syncfs_tells_of_errors() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (5, 8),
        _ => false,
    }
}

/// POSIX record locks (what Java's `FileChannel.tryLock` takes) do not hold against the process that has them, and
/// closing any descriptor of the file frees them: so a process keeps its own list, and never opens a file on it again.
static LOCKED_BY_THIS_PROCESS: Mutex<Option<HashSet<(u64, u64)>>> = Mutex::new(None);

#[derive(Debug)]
struct SystemLock {
    _file: File,
    device_and_inode: (u64, u64),
}

impl SystemLock {
    fn try_lock(path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut locked = LOCKED_BY_THIS_PROCESS
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let locked = locked.get_or_insert_with(HashSet::new);
        if let Ok(metadata) = fs::metadata(path)
            && locked.contains(&(metadata.dev(), metadata.ino()))
        {
            return Ok(None);
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let metadata = file.metadata()?;
        let device_and_inode = (metadata.dev(), metadata.ino());
        locked.insert(device_and_inode);
        Ok(Some(Box::new(SystemLock {
            _file: file,
            device_and_inode,
        })))
    }
}

impl DiskLock for SystemLock {}

impl Drop for SystemLock {
    fn drop(&mut self) {
        let mut locked = LOCKED_BY_THIS_PROCESS
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(locked) = locked.as_mut() {
            locked.remove(&self.device_and_inode);
        }
    }
}

#[cfg(test)]
#[path = "disk_test.rs"]
mod disk_test;
