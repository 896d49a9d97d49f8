//! What all logs of a directory and of a node share: whether the directory is online, the doors, and the work that is
//! put off (removal of files, flush of rolled segments).
//!
//! Invariants: a directory that failed stays offline until the process starts anew, and its listener is called once; one
//! that is full stays online, and takes appends again when there is room (`RoomGate`); put-off work is never lost but by the end of the process, after which a start removes what is left.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::batch_scanner::ScanError;
use super::log_segment::LogSegment;
use super::open_file_cache::{OpenFileCache, remove_if_exists};
use super::unsynced::Unsynced;
use super::{LogDirFailureListener, LogError, Reserve, UnifiedLog};
use crate::io::clock::Clock;
use crate::io::disk::{Disk, is_no_space};

/// Bytes that must have become free before a full directory takes appends again: what little was left of it, or came back
/// when a write was cut off, is no reason to try.
const REOPEN_BYTES: u64 = 128 * 1024;
/// With less free than this above the floor no room is set aside for files that grow.
const PLENTY_BYTES: u64 = 1024 * 1024 * 1024;
/// How often a full directory is looked at while appends come.
const PROBE_INTERVAL_MS: i64 = 100;

/// Whether a directory has room for appends. The common case costs them one load.
#[derive(Debug, Default)]
struct RoomGate {
    is_full: AtomicBool,
    next_probe_ms: AtomicI64,
    /// `kavka.log.min.free.bytes`: below it the directory counts as full.
    min_free_bytes: AtomicU64,
    /// What the metadata log may need beside them (`Reserve`).
    reserve_bytes: AtomicU64,
}

/// One entry of `log.dirs`.
pub(crate) struct LogDir {
    path: Arc<Path>,
    failure: ArcSwapOption<LogError>,
    /// Folders were made or renamed since the directory was last synced.
    unsynced: Unsynced,
    on_failure: LogDirFailureListener,
    room: RoomGate,
    /// Each directory's own: a disk that stalls holds up nothing of the others.
    pub deferred: DeferredWork,
}

impl fmt::Debug for LogDir {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LogDir")
            .field("path", &self.path)
            .field("failure", &self.failure)
            .finish()
    }
}

impl LogDir {
    pub fn new(path: &Path, on_failure: LogDirFailureListener) -> Arc<Self> {
        Arc::new(Self {
            path: Arc::from(path),
            failure: ArcSwapOption::empty(),
            unsynced: Unsynced::default(),
            on_failure,
            room: RoomGate::default(),
            deferred: DeferredWork::default(),
        })
    }

    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    pub fn is_online(&self) -> bool {
        self.failure.load().is_none()
    }

    pub fn check_online(&self) -> Result<(), LogError> {
        if self.is_online() {
            Ok(())
        } else {
            Err(LogError::DirectoryOffline {
                dir: self.path.to_path_buf(),
            })
        }
    }

    pub fn mark_dirty(&self) {
        self.unsynced.mark();
    }

    pub fn sync_if_dirty(&self, disk: &dyn Disk) -> Result<(), LogError> {
        let sync = || disk.sync_dir(&self.path);
        self.unsynced
            .sync(sync)
            .map_err(|error| self.fail(&self.path, "flushing", error))
    }

    // ---- room

    /// A write failed. Without room the directory stays online: the caller has to leave all as it was, so that the same can
    /// be tried again. (A sync that finds no room is no such case: what it should have written may be lost. See `fail`.)
    pub fn write_failed(&self, path: &Path, operation: &'static str, source: io::Error) -> LogError {
        if !is_no_space(&source) {
            return self.fail(path, operation, source);
        }
        if !self.room.is_full.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "no space left while {operation} {} in dir {}: appends are refused until there is room",
                path.display(),
                self.path.display()
            );
        }
        LogError::NoSpace {
            dir: self.path.to_path_buf(),
            path: path.to_path_buf(),
            operation,
        }
    }

    pub fn is_full(&self) -> bool {
        self.room.is_full.load(Ordering::Acquire)
    }

    /// For appends: an error while the directory is full. It is looked at again every now and then, so that appends go on
    /// by themselves, and without trying (and cutting off) a write each time.
    pub fn check_room(&self, disk: &dyn Disk, clock: &dyn Clock) -> Result<(), LogError> {
        if !self.is_full() {
            return Ok(());
        }
        let now_ms = clock.monotonic_ms();
        let next_probe_ms = self.room.next_probe_ms.load(Ordering::Relaxed);
        let is_due = now_ms >= next_probe_ms;
        let later_ms = now_ms.saturating_add(PROBE_INTERVAL_MS);
        if is_due
            && self
                .room
                .next_probe_ms
                .compare_exchange(next_probe_ms, later_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.probe_room(disk);
        }
        if self.is_full() {
            Err(LogError::NoSpace {
                dir: self.path.to_path_buf(),
                path: self.path.to_path_buf(),
                operation: "appending in",
            })
        } else {
            Ok(())
        }
    }

    pub fn set_min_free_bytes(&self, bytes: u64) {
        self.room.min_free_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What a start gave up for the metadata log is not for appends: they wait for more room than that.
    pub fn set_reserve(&self, reserve: &Reserve, disk: &dyn Disk) {
        self.room.reserve_bytes.store(reserve.bytes(), Ordering::Relaxed);
        let needed = reserve.bytes().saturating_mul(2).saturating_add(REOPEN_BYTES);
        let is_short = || {
            disk.space(&self.path)
                .is_ok_and(|space| space.usable_bytes < needed)
        };
        if reserve.bytes() > 0 && reserve.is_missing() && is_short() {
            tracing::error!("dir {} is full: appends are refused", self.path.display());
            self.room.is_full.store(true, Ordering::Release);
        }
    }

    /// Looks how much is free: below the floor the directory is full, well above it is not any more.
    pub fn probe_room(&self, disk: &dyn Disk) {
        let floor = self.room.min_free_bytes.load(Ordering::Relaxed);
        let reopen = self
            .room
            .reserve_bytes
            .load(Ordering::Relaxed)
            .saturating_add(floor)
            .saturating_add(REOPEN_BYTES);
        let was_full = self.is_full();
        if !was_full && floor == 0 {
            return;
        }
        match disk.space(&self.path) {
            Ok(space) if !was_full && space.usable_bytes < floor => {
                self.room.is_full.store(true, Ordering::Release);
                tracing::error!(
                    "{} bytes are free in dir {}, less than kavka.log.min.free.bytes={floor}: appends are refused",
                    space.usable_bytes,
                    self.path.display()
                );
            }
            Ok(space) if was_full && space.usable_bytes >= reopen => {
                self.room.is_full.store(false, Ordering::Release);
                tracing::info!(
                    "{} bytes are free in dir {}: appends are taken again",
                    space.usable_bytes,
                    self.path.display()
                );
            }
            Ok(_) => {}
            // A file system that does not tell: the next write will.
            Err(_) => self.room.is_full.store(false, Ordering::Release),
        }
    }

    /// Whether there is so much room that some may be set aside for what is yet to come.
    pub fn has_plenty_of_room(&self, disk: &dyn Disk) -> bool {
        let floor = self.room.min_free_bytes.load(Ordering::Relaxed);
        let wanted = floor.saturating_add(PLENTY_BYTES);
        !self.is_full()
            && disk
                .space(&self.path)
                .is_ok_and(|space| space.usable_bytes >= wanted)
    }

    /// An I/O error: the directory goes offline, and whoever waits for that is told.
    pub fn fail(&self, path: &Path, operation: &'static str, source: io::Error) -> LogError {
        let error = LogError::storage(&self.path, path, operation, source);
        let previous = self
            .failure
            .compare_and_swap(&None::<Arc<LogError>>, Some(Arc::new(error.clone())));
        if previous.is_none() {
            tracing::error!("{error}; the log dir is offline from now on");
            (self.on_failure)(&self.path, &error);
        }
        error
    }

    /// A walk over a file failed: by I/O (the directory is offline) or by what is in the file (it is not).
    pub fn scan_error(&self, path: &Path, operation: &'static str, error: ScanError) -> LogError {
        match error {
            ScanError::Io(source) if source.kind() == io::ErrorKind::InvalidData => LogError::CorruptRecord {
                reason: format!("{source} in {}", path.display()),
            },
            ScanError::Io(source) => self.fail(path, operation, source),
            ScanError::Record(error) => LogError::CorruptRecord {
                reason: format!("{error} in {}", path.display()),
            },
        }
    }
}

/// Settings of the node that every log needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProducerStateConfig {
    pub max_transaction_timeout_ms: i32,
    pub producer_id_expiration_ms: i32,
}

/// Writes `recovery-point-offset-checkpoint` of a directory.
pub(crate) type RecoveryPointCheckpointer = Box<dyn Fn(&LogDir) -> Result<(), LogError> + Send + Sync>;

/// What a node's logs share.
pub(crate) struct LogContext {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub cache: Arc<OpenFileCache>,
    pub producer_state: ProducerStateConfig,
    /// `producer.id.expiration.ms` as it is now.
    producer_id_expiration_ms: AtomicI32,
    /// Of the metadata log's directory.
    pub reserve: OnceLock<Reserve>,
    checkpointer: OnceLock<RecoveryPointCheckpointer>,
    jitter_state: AtomicU64,
}

impl fmt::Debug for LogContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LogContext").finish_non_exhaustive()
    }
}

impl LogContext {
    pub fn producer_id_expiration_ms(&self) -> i32 {
        self.producer_id_expiration_ms.load(Ordering::Relaxed)
    }

    pub fn set_producer_id_expiration_ms(&self, producer_id_expiration_ms: i32) {
        self.producer_id_expiration_ms
            .store(producer_id_expiration_ms, Ordering::Relaxed);
    }

    pub fn new(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        max_open_files: usize,
        producer_state: ProducerStateConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            cache: OpenFileCache::new(Arc::clone(&disk), max_open_files),
            jitter_state: AtomicU64::new(clock.now_ms() as u64),
            disk,
            clock,
            producer_id_expiration_ms: AtomicI32::new(producer_state.producer_id_expiration_ms),
            producer_state,
            reserve: OnceLock::new(),
            checkpointer: OnceLock::new(),
        })
    }

    pub fn set_checkpointer(&self, checkpointer: RecoveryPointCheckpointer) {
        // A context has one manager.
        let _ = self.checkpointer.set(checkpointer);
    }

    /// A log's recovery point went back: the checkpoint must not say more than is true, or a start would trust segments
    /// that were written since.
    pub fn checkpoint_recovery_points(&self, log_dir: &LogDir) -> Result<(), LogError> {
        self.checkpointer
            .get()
            .map_or(Ok(()), |checkpoint| checkpoint(log_dir))
    }

    /// Any number: spreads the rolls of segments that were made together (`segment.jitter.ms`).
    pub fn jitter(&self) -> u64 {
        let state = self
            .jitter_state
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        fastrand::Rng::with_seed(state).u64(..)
    }
}

/// Files that wait for `file.delete.delay.ms`, so that readers which have them at hand can finish.
#[derive(Debug)]
pub(crate) enum Deletion {
    Segments {
        segments: Vec<Arc<LogSegment>>,
        snapshots: Vec<PathBuf>,
    },
    /// A whole folder that was renamed to `-delete`.
    Folder { path: PathBuf },
}

#[derive(Debug, Default)]
struct DeferredState {
    /// (due, what), not in order: delays differ by topic.
    deletions: VecDeque<(i64, Deletion)>,
    flushes: Vec<Weak<UnifiedLog>>,
    stopping: bool,
}

/// Work for a directory's background thread.
#[derive(Debug, Default)]
pub(crate) struct DeferredWork {
    state: Mutex<DeferredState>,
    changed: Condvar,
}

impl DeferredWork {
    fn state(&self) -> MutexGuard<'_, DeferredState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn delete_at(&self, due_ms: i64, deletion: Deletion) {
        self.state().deletions.push_back((due_ms, deletion));
        self.changed.notify_all();
    }

    /// A segment was rolled: what is before the new one should become durable soon.
    pub fn flush_soon(&self, log: &Weak<UnifiedLog>) {
        self.state().flushes.push(Weak::clone(log));
        self.changed.notify_all();
    }

    pub fn take_flushes(&self) -> Vec<Weak<UnifiedLog>> {
        std::mem::take(&mut self.state().flushes)
    }

    /// Removes what is due; returns when the next is.
    pub fn run_deletions(&self, now_ms: i64, log_dir: &LogDir, disk: &dyn Disk) -> Option<i64> {
        let due: Vec<Deletion> = {
            let mut state = self.state();
            let (due, waiting) = std::mem::take(&mut state.deletions)
                .into_iter()
                .partition(|(due_ms, _)| *due_ms <= now_ms);
            state.deletions = waiting;
            let due: VecDeque<(i64, Deletion)> = due;
            due.into_iter().map(|(_, deletion)| deletion).collect()
        };
        for deletion in due {
            delete(deletion, log_dir, disk);
        }
        self.state().deletions.iter().map(|(due_ms, _)| *due_ms).min()
    }

    /// Sleeps until there is work, `timeout` is over or `stop` was called (then false).
    pub fn wait(&self, timeout: Duration) -> bool {
        let state = self.state();
        if state.stopping {
            return false;
        }
        if !state.flushes.is_empty() {
            return true;
        }
        let (state, _) = self
            .changed
            .wait_timeout(state, timeout)
            .unwrap_or_else(PoisonError::into_inner);
        !state.stopping
    }

    pub fn stop(&self) {
        self.state().stopping = true;
        self.changed.notify_all();
    }
}

fn delete(deletion: Deletion, log_dir: &LogDir, disk: &dyn Disk) {
    if !log_dir.is_online() {
        return;
    }
    match deletion {
        Deletion::Segments { segments, snapshots } => {
            for segment in segments {
                if let Err(error) = segment.remove_files() {
                    log_dir.fail(&segment.log_handle().path(), "deleting", error);
                    return;
                }
                tracing::debug!("deleted segment {}", segment.log_handle().path().display());
            }
            for path in snapshots {
                if let Err(error) = remove_if_exists(disk, &path) {
                    log_dir.fail(&path, "deleting", error);
                    return;
                }
            }
        }
        Deletion::Folder { path } => match disk.remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log_dir.fail(&path, "deleting", error);
            }
            _ => tracing::info!("deleted {}", path.display()),
        },
    }
}
