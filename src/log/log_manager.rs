//! The log directories of one node and the logs in them (Kafka's LogManager).
//!
//! Owns `.lock`, `.kafka_cleanshutdown`, the offset checkpoints of each directory, and which log lies where. A directory with an I/O error
//! is offline until the node starts anew; the others go on.
//!
//! Invariants: a partition has one log, in one directory; a log is not in the map before it is loaded whole;
//! `.kafka_cleanshutdown` is there only while nobody uses the directory, and only if all its logs were loaded and closed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use arc_swap::ArcSwap;
use uuid::Uuid;

use super::checkpoint::{
    self, CLEAN_SHUTDOWN, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT,
};
use super::log_cleaner::Cleaner;
use super::log_dir::{Deletion, LogContext, LogDir, ProducerStateConfig, RecoveryPointCheckpointer};
use super::log_folder::{Folder, FolderKind};
use super::log_move::IsAssigned;
use super::recovery::LogLoader;
use super::{LogConfig, LogError, Reserve, TopicPartition, UnifiedLog};
use crate::io::clock::Clock;
use crate::io::disk::{Disk, DiskLock, is_no_space};

/// Called once for a log directory that went offline, from whatever thread met the error; must be quick.
pub type LogDirFailureListener = Arc<dyn Fn(&Path, &LogError) + Send + Sync>;

/// From so many logs on with something to sync at the end, the file system is synced as a whole.
const SYNCED_TOGETHER_MIN: usize = 16;

const LOCK_FILE: &str = ".lock";

/// The metadata log: raft's, in whichever directory it lies.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// How the log directories are opened.
#[derive(Clone)]
pub struct LogManagerConfig {
    pub log_dirs: Vec<PathBuf>,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads_per_data_dir: usize,
    /// `transaction.max.timeout.ms`: when an open transaction is late.
    pub max_transaction_timeout_ms: i32,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i32,
    /// How many files the logs may keep open.
    pub max_open_files: usize,
    pub on_log_dir_failure: LogDirFailureListener,
}

impl LogManagerConfig {
    /// Kafka's defaults for these directories.
    pub fn new(log_dirs: Vec<PathBuf>) -> Self {
        Self {
            log_dirs,
            recovery_threads_per_data_dir: 2,
            max_transaction_timeout_ms: 900_000,
            producer_id_expiration_ms: 86_400_000,
            max_open_files: 8_000,
            on_log_dir_failure: Arc::new(|_, _| {}),
        }
    }
}

impl fmt::Debug for LogManagerConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LogManagerConfig")
            .field("log_dirs", &self.log_dirs)
            .finish_non_exhaustive()
    }
}

type Offsets = BTreeMap<TopicPartition, i64>;

/// One of the directories, with what was found in it at start.
#[derive(Debug)]
pub(super) struct ManagedDir {
    pub(super) dir: Arc<LogDir>,
    lock: Mutex<Option<Box<dyn DiskLock>>>,
    had_clean_shutdown: bool,
    /// -1 without a clean shutdown.
    previous_broker_epoch: i64,
    /// All its logs are in the map; see [`LogManager::load_logs`].
    loaded: AtomicBool,
    /// How often logs left it whose offsets its checkpoints may have: they were deleted or moved, or a start found the checkpoints so.
    deletions: AtomicU64,
    /// As many of these are forgotten; fewer where a full disk did not take the checkpoints.
    forgotten: AtomicU64,
    /// Held while a checkpoint is gathered and written: all writers share its `.tmp`, and the last one must know the latest.
    checkpointing: Mutex<()>,
}

pub(super) type Logs = HashMap<TopicPartition, Arc<UnifiedLog>>;

/// All logs of a node. The metadata log is opened through it, but is raft's.
#[derive(Debug)]
pub struct LogManager {
    config: LogManagerConfig,
    pub(super) context: Arc<LogContext>,
    pub(super) dirs: Vec<Arc<ManagedDir>>,
    /// The metadata log's directory if it is none of `log.dirs`.
    metadata_dir: Mutex<Option<Arc<ManagedDir>>>,
    pub(super) logs: Arc<ArcSwap<Logs>>,
    /// Logs on their way from another directory (`-future`): loaded, not served.
    pub(super) future_logs: ArcSwap<Logs>,
    /// Wishes of AlterReplicaLogDirs for partitions that are not here yet.
    pub(super) preferred_dirs: Mutex<HashMap<TopicPartition, PathBuf>>,
    /// Whether a log is where the metadata says: which of two is meant.
    pub(super) is_assigned: Mutex<Option<IsAssigned>>,
    /// Held while logs are made, removed or moved.
    changes: Mutex<()>,
    /// Held from the beginning of loading to its end.
    loading: Mutex<()>,
    /// The node shuts down: loading ends with the logs that it is at.
    pub(super) is_stopping: AtomicBool,
    /// One for each directory.
    pub(super) background: Mutex<Vec<thread::JoinHandle<()>>>,
    pub(super) cleaner: Arc<Cleaner>,
}

impl ManagedDir {
    fn open(path: &Path, config: &LogManagerConfig, disk: &dyn Disk) -> Result<Self, LogError> {
        let dir = LogDir::new(path, Arc::clone(&config.on_log_dir_failure));
        let prepared = || -> io::Result<Option<Box<dyn DiskLock>>> {
            if !disk.exists(path) {
                disk.create_dir_all(path)?;
                if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    disk.sync_dir(parent)?;
                }
            }
            disk.list(path)?;
            disk.try_lock(&path.join(LOCK_FILE))
        };
        let lock = match prepared() {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                return Err(LogError::LockHeld {
                    path: path.join(LOCK_FILE),
                });
            }
            Err(error) => return Err(dir.fail(path, "opening", error)),
        };
        let clean_shutdown = path.join(CLEAN_SHUTDOWN);
        let text = checkpoint::read_text(disk, &clean_shutdown)
            .map_err(|error| dir.fail(&clean_shutdown, "reading", error))?;
        Ok(Self {
            dir,
            lock: Mutex::new(Some(lock)),
            had_clean_shutdown: text.is_some(),
            previous_broker_epoch: text.as_deref().map_or(-1, checkpoint::parse_clean_shutdown),
            loaded: AtomicBool::new(false),
            deletions: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            checkpointing: Mutex::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// After a log left the map, before its folder has another name.
    pub(super) fn remember_deletion(&self) {
        self.deletions.fetch_add(1, Ordering::AcqRel);
    }

    fn has(&self, logs: &Logs, topic_partition: &TopicPartition) -> bool {
        logs.get(topic_partition)
            .is_some_and(|log| *log.parent_dir() == *self.path())
    }

    /// A checkpoint that cannot be read counts as empty, as in Kafka: a start then does more than it had to.
    fn read_checkpoint(&self, name: &str, disk: &dyn Disk) -> Result<Offsets, LogError> {
        let path = self.path().join(name);
        let text =
            checkpoint::read_text(disk, &path).map_err(|error| self.dir.fail(&path, "reading", error))?;
        Ok(
            match checkpoint::parse_offsets(text.as_deref().unwrap_or_default()) {
                Ok(offsets) => offsets,
                Err(error) => {
                    tracing::warn!("{}: {error}; taken as empty", path.display());
                    Offsets::new()
                }
            },
        )
    }

    fn write_checkpoint(&self, name: &str, offsets: &Offsets, disk: &dyn Disk) -> Result<(), LogError> {
        self.dir.check_online()?;
        let path = self.path().join(name);
        disk.write_atomically(&path, checkpoint::format_offsets(offsets).as_bytes())
            .map_err(|error| self.dir.write_failed(&path, "writing", error))
    }
}

impl LogManager {
    /// Makes missing directories, takes their `.lock` files and reads the clean-shutdown files. Loads nothing yet. A
    /// directory that fails is offline; an error when all do, or when another process holds one.
    pub fn open(
        config: LogManagerConfig,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LogError> {
        let mut dirs = Vec::new();
        let mut first_error = None;
        for path in &config.log_dirs {
            match ManagedDir::open(path, &config, &*disk) {
                Ok(dir) => dirs.push(Arc::new(dir)),
                Err(error @ LogError::LockHeld { .. }) => return Err(error),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        if dirs.is_empty() {
            return Err(first_error.unwrap_or(LogError::NoLogDirectory));
        }
        let producer_state = ProducerStateConfig {
            max_transaction_timeout_ms: config.max_transaction_timeout_ms,
            producer_id_expiration_ms: config.producer_id_expiration_ms,
        };
        let context = LogContext::new(disk, clock, config.max_open_files, producer_state);
        let logs = Arc::new(ArcSwap::<Logs>::default());
        context.set_checkpointer(recovery_point_checkpointer(&logs, &dirs, &context));
        Ok(Self {
            config,
            context,
            dirs,
            metadata_dir: Mutex::new(None),
            logs,
            future_logs: ArcSwap::default(),
            preferred_dirs: Mutex::default(),
            is_assigned: Mutex::default(),
            changes: Mutex::new(()),
            loading: Mutex::new(()),
            is_stopping: AtomicBool::new(false),
            background: Mutex::default(),
            cleaner: Arc::default(),
        })
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.context.disk
    }

    /// `log.dirs`, and the metadata log's directory if it is none of them.
    pub(super) fn all_dirs(&self) -> Vec<Arc<ManagedDir>> {
        let dirs = self.dirs.iter().cloned();
        dirs.chain(lock(&self.metadata_dir).clone()).collect()
    }

    pub(super) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- the logs

    pub fn get(&self, topic_partition: &TopicPartition) -> Option<Arc<UnifiedLog>> {
        self.logs.load().get(topic_partition).cloned()
    }

    /// A new log goes to the directory with the fewest.
    pub fn get_or_create(
        &self,
        topic_partition: &TopicPartition,
        topic_id: Option<Uuid>,
        config: LogConfig,
    ) -> Result<Arc<UnifiedLog>, LogError> {
        self.get_or_create_in(topic_partition, topic_id, config, None)
    }

    /// The same with a wish for the directory of a new log (its assignment in the metadata).
    pub fn get_or_create_in(
        &self,
        topic_partition: &TopicPartition,
        topic_id: Option<Uuid>,
        config: LogConfig,
        log_dir: Option<&Path>,
    ) -> Result<Arc<UnifiedLog>, LogError> {
        if let Some(log) = self.get(topic_partition) {
            return Ok(log);
        }
        let _changes = self.lock_changes();
        if let Some(log) = self.get(topic_partition) {
            return Ok(log);
        }
        let preferred = lock(&self.preferred_dirs).remove(topic_partition);
        let dir = match preferred.as_deref().or(log_dir) {
            None => self.next_dir()?,
            Some(wanted) => {
                let dir = self
                    .dirs
                    .iter()
                    .find(|dir| dir.path() == wanted)
                    .ok_or(LogError::NoLogDirectory)?;
                dir.dir.check_online()?;
                Arc::clone(dir)
            }
        };
        self.prepare_for_new_log(&dir)?;
        let name = topic_partition.to_string();
        let log = self.open_log(&dir, &name, topic_partition.clone(), topic_id, config, true)?;
        self.logs.rcu(|logs| {
            let mut logs = Logs::clone(logs);
            logs.insert(topic_partition.clone(), Arc::clone(&log));
            logs
        });
        Ok(log)
    }

    /// The directory that is online and has the fewest logs; the first of those in the order of `log.dirs`.
    fn next_dir(&self) -> Result<Arc<ManagedDir>, LogError> {
        let mut online = self.dirs.iter().filter(|dir| dir.dir.is_online());
        if self.dirs.len() == 1 {
            return online.next().cloned().ok_or(LogError::NoLogDirectory);
        }
        let logs = self.logs.load();
        let count = |dir: &ManagedDir| {
            logs.values()
                .filter(|log| *log.parent_dir() == *dir.path())
                .count()
        };
        online
            .min_by_key(|dir| count(dir))
            .cloned()
            .ok_or(LogError::NoLogDirectory)
    }

    pub fn all_logs(&self) -> Vec<Arc<UnifiedLog>> {
        self.logs.load().values().cloned().collect()
    }

    /// Renames the folder to `-delete` at once; the files go after `file.delete.delay.ms`. The files of a log whose directory is offline are
    /// out of reach: it is only forgotten, and once they are not, a start takes them for a stray.
    /// [`Self::forget_deletions`] comes after one or many of it.
    pub fn async_delete(&self, topic_partition: &TopicPartition) -> Result<(), LogError> {
        let _changes = self.lock_changes();
        let mut removed = None;
        self.logs.rcu(|logs| {
            let mut logs = Logs::clone(logs);
            removed = logs.remove(topic_partition);
            logs
        });
        let mut result = Ok(());
        let all = removed.into_iter().chain(self.take_future(topic_partition));
        for log in all.filter(|log| log.log_dir.is_online()) {
            if let Ok(dir) = self.managed_dir(&log.parent_dir()) {
                dir.remember_deletion();
            }
            result = result.and(self.set_aside_for_deletion(&log));
        }
        // Afterwards: a cleaning that fails meanwhile sees that the log is closed.
        self.cleaner.manager.forget(topic_partition);
        result
    }

    /// Takes logs that were deleted out of the checkpoints of their directories. Until then no log is made there, and what a kill leaves
    /// of it the next start makes up for.
    pub fn forget_deletions(&self) -> Result<(), LogError> {
        let mut result = Ok(());
        // One that an error takes offline keeps nothing of the others from being done.
        for dir in self.dirs.iter().filter(|dir| dir.dir.is_online()) {
            match self.prepare_for_new_log(dir) {
                // That keeps nobody from deleting: it is made up for before a log is made there again.
                Err(error) if error.is_no_space() => {}
                forgotten => result = result.and(forgotten),
            }
        }
        result
    }

    /// A log must not begin with what the checkpoints say of another by its name.
    pub(super) fn prepare_for_new_log(&self, dir: &ManagedDir) -> Result<(), LogError> {
        if dir.forgotten.load(Ordering::Acquire) < dir.deletions.load(Ordering::Acquire) {
            self.forget_deleted(dir)?;
        }
        Ok(())
    }

    pub(super) fn forget_deleted(&self, dir: &ManagedDir) -> Result<(), LogError> {
        // First: what is deleted from here on may not be in what is written.
        let deletions = dir.deletions.load(Ordering::Acquire);
        if !dir.loaded.load(Ordering::Acquire) {
            return Ok(());
        }
        let cleaner = &self.cleaner.manager;
        cleaner.retain(&dir.dir, |tp| dir.has(&self.logs.load(), tp), self.disk())?;
        self.write_checkpoints(dir)?;
        dir.forgotten.fetch_max(deletions, Ordering::AcqRel);
        Ok(())
    }

    pub(super) fn random_id(&self) -> u128 {
        (u128::from(self.context.jitter()) << 64) | u128::from(self.context.jitter())
    }

    /// Closes a log for appends and gives its folder another name. Readers that have it go on.
    pub(super) fn rename_folder(&self, log: &UnifiedLog, name: &str) -> Result<PathBuf, LogError> {
        log.mark_closed();
        self.move_folder(log, name)
    }

    /// Gives the folder another name, the log goes on.
    pub(super) fn move_folder(&self, log: &UnifiedLog, name: &str) -> Result<PathBuf, LogError> {
        let moved = self.move_folder_if_there_is_room(log, name)?;
        moved.ok_or_else(|| {
            log.log_dir
                .fail(&log.dir(), "renaming", io::ErrorKind::StorageFull.into())
        })
    }

    /// `None`: a full disk does not take the other name, and nothing is changed.
    pub(super) fn move_folder_if_there_is_room(
        &self,
        log: &UnifiedLog,
        name: &str,
    ) -> Result<Option<PathBuf>, LogError> {
        let from = log.dir();
        let to = log.parent_dir().join(name);
        match log.dir.rename(self.disk(), to.clone()) {
            Ok(()) => {}
            Err(error) if is_no_space(&error) => return Ok(None),
            Err(error) => return Err(log.log_dir.fail(&from, "renaming", error)),
        }
        self.disk()
            .sync_dir(&log.parent_dir())
            .map_err(|error| log.log_dir.fail(&log.parent_dir(), "flushing", error))?;
        tracing::info!("{}: the folder is {} now", log.topic_partition, to.display());
        Ok(Some(to))
    }

    /// The node's defaults changed: every log gets what `config_of` its topic says now.
    pub fn update_configs(&self, config_of: &dyn Fn(&str) -> LogConfig) {
        let logs = self.logs.load_full();
        let mut by_topic: HashMap<&str, LogConfig> = HashMap::new();
        for log in logs.values() {
            let topic = &*log.topic_partition.topic;
            let config = by_topic.entry(topic).or_insert_with(|| config_of(topic));
            log.update_config(config.clone());
        }
    }

    /// `producer.id.expiration.ms`, from the next look at the producers on.
    pub fn set_producer_id_expiration_ms(&self, producer_id_expiration_ms: i32) {
        self.context
            .set_producer_id_expiration_ms(producer_id_expiration_ms);
    }

    pub fn update_topic_config(&self, topic: &str, config: LogConfig) {
        let (logs, futures) = (self.logs.load(), self.future_logs.load());
        let all = logs.values().chain(futures.values());
        for log in all.filter(|log| &*log.topic_partition.topic == topic) {
            log.update_config(config.clone());
        }
    }

    // ---- checkpoints

    /// `replication-offset-checkpoint` of every dir, from the logs' own high watermarks.
    pub fn checkpoint_high_watermarks(&self) -> Result<(), LogError> {
        self.checkpoint_all(HIGH_WATERMARK_CHECKPOINT)
    }

    pub fn checkpoint_recovery_points(&self) -> Result<(), LogError> {
        self.checkpoint_all(RECOVERY_POINT_CHECKPOINT)
    }

    pub fn checkpoint_log_start_offsets(&self) -> Result<(), LogError> {
        self.checkpoint_all(LOG_START_OFFSET_CHECKPOINT)
    }

    /// Every directory is tried; the first error is given.
    fn checkpoint_all(&self, name: &str) -> Result<(), LogError> {
        let online = self.dirs.iter().filter(|dir| dir.dir.is_online());
        online
            .map(|dir| self.checkpoint_dir(dir, name))
            .fold(Ok(()), Result::and)
    }

    pub(super) fn checkpoint_dir(&self, dir: &ManagedDir, name: &str) -> Result<(), LogError> {
        // Before the logs are loaded the files say more than we know.
        if !dir.loaded.load(Ordering::Acquire) {
            return Ok(());
        }
        write_checkpoint_of(dir, name, &self.logs, self.disk())
    }

    /// All that a start reads of a directory's logs.
    pub(super) fn write_checkpoints(&self, dir: &ManagedDir) -> Result<(), LogError> {
        [
            RECOVERY_POINT_CHECKPOINT,
            LOG_START_OFFSET_CHECKPOINT,
            HIGH_WATERMARK_CHECKPOINT,
        ]
        .iter()
        .try_for_each(|name| self.checkpoint_dir(dir, name))
    }

    // ---- directories

    /// `log.dirs`, those that are offline too.
    pub fn log_dirs(&self) -> &[PathBuf] {
        &self.config.log_dirs
    }

    /// Logs that are served, and those on their way from another directory (true).
    pub(super) fn all_and_future_logs(&self) -> Vec<(Arc<UnifiedLog>, bool)> {
        let (logs, future_logs) = (self.logs.load(), self.future_logs.load());
        let all = logs.values().map(|log| (log.clone(), false));
        all.chain(future_logs.values().map(|log| (log.clone(), true)))
            .collect()
    }

    /// What the metadata log may give up on a full disk.
    pub fn set_reserve(&self, reserve: Reserve) {
        for dir in &self.dirs {
            dir.dir.set_reserve(&reserve, self.disk());
        }
        // A node has one.
        let _ = self.context.reserve.set(reserve);
    }

    /// `kavka.log.min.free.bytes` of every directory.
    pub fn set_min_free_bytes(&self, bytes: u64) {
        for dir in &self.dirs {
            dir.dir.set_min_free_bytes(bytes);
        }
    }

    /// Looks how much room there is in every directory: to be called now and then, appends only look at what it found. In one
    /// that is full nothing stays set aside.
    pub fn check_room(&self) {
        for dir in self.dirs.iter().filter(|dir| dir.dir.is_online()) {
            dir.dir.probe_room(self.disk());
            if !dir.dir.is_full() {
                continue;
            }
            let mut given_back = 0;
            for (log, _) in self.all_and_future_logs() {
                let is_here = Arc::ptr_eq(&log.log_dir, &dir.dir);
                given_back += usize::from(is_here && log.give_back_room());
            }
            if given_back > 0 {
                dir.dir.probe_room(self.disk());
            }
        }
        if let Some(reserve) = self.context.reserve.get() {
            reserve.restore();
        }
    }

    pub fn live_log_dirs(&self) -> Vec<PathBuf> {
        let online = self.dirs.iter().filter(|dir| dir.dir.is_online());
        online.map(|dir| dir.path().to_path_buf()).collect()
    }

    pub fn is_log_dir_online(&self, log_dir: &Path) -> bool {
        self.dirs
            .iter()
            .any(|dir| dir.path() == log_dir && dir.dir.is_online())
    }

    /// The broker epoch of the last clean shutdown, if every directory had the same (else -1): BrokerRegistration.
    pub fn previous_broker_epoch(&self) -> i64 {
        if self.dirs.len() < self.config.log_dirs.len() {
            return -1;
        }
        let mut epochs = self.dirs.iter().map(|dir| dir.previous_broker_epoch);
        let first = epochs.next().unwrap_or(-1);
        if epochs.all(|epoch| epoch == first) {
            first
        } else {
            -1
        }
    }

    // ---- the end

    /// Flushes and closes all logs, writes checkpoints and `.kafka_cleanshutdown`, frees the locks. Waits for a loading that goes
    /// on to give up: nobody may be at a directory that is not locked any more.
    pub fn shutdown(&self, broker_epoch: i64) -> Result<(), LogError> {
        self.stop_loading();
        let _loading = lock(&self.loading);
        self.cleaner.stop();
        self.all_dirs().iter().for_each(|dir| dir.dir.deferred.stop());
        for background in std::mem::take(&mut *lock(&self.background)) {
            // A panic there was reported when it happened, and holds nothing that is needed here.
            let _ = background.join();
        }
        let _changes = self.lock_changes();
        let result = thread::scope(|scope| {
            let threads: Vec<_> = self
                .dirs
                .iter()
                .map(|dir| scope.spawn(|| self.shutdown_dir(dir, broker_epoch)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(LogError::NoLogDirectory)))
                .fold(Ok(()), Result::and)
        });
        for dir in self.all_dirs() {
            lock(&dir.lock).take();
        }
        result
    }

    /// Many logs that have something to sync are synced by the file system as a whole, twice: the content before new files
    /// take the names of old ones, then the names.
    fn close_logs(&self, dir: &ManagedDir, logs: &[Arc<UnifiedLog>]) -> Result<(), LogError> {
        let threads = self.config.recovery_threads_per_data_dir;
        let unsynced = AtomicUsize::new(0);
        for_each_log(logs, threads, &|log| {
            unsynced.fetch_add(usize::from(log.finish_writing()?), Ordering::Relaxed);
            Ok(())
        })?;
        let sync_all = || match self.disk().sync_file_system(dir.path()) {
            Ok(is_synced) => is_synced,
            Err(error) => {
                // It may be of a file that is not ours: file by file we know.
                tracing::warn!("{}: syncing the file system: {error}", dir.path().display());
                false
            }
        };
        let is_synced = unsynced.into_inner() >= SYNCED_TOGETHER_MIN && sync_all();
        for_each_log(logs, threads, &|log| log.finish_closing(is_synced))?;
        if is_synced && !sync_all() {
            for_each_log(logs, threads, &UnifiedLog::sync_names)?;
        }
        Ok(())
    }

    fn shutdown_dir(&self, dir: &ManagedDir, broker_epoch: i64) -> Result<(), LogError> {
        dir.dir.check_online()?;
        // First, and once: what was loaded after the look at the map would not be closed.
        let is_loaded = dir.loaded.load(Ordering::Acquire);
        let logs = self.logs.load_full();
        let future_logs = self.future_logs.load_full();
        let here: Vec<Arc<UnifiedLog>> = logs
            .values()
            .chain(future_logs.values())
            .filter(|log| *log.parent_dir() == *dir.path())
            .cloned()
            .collect();
        self.close_logs(dir, &here)?;
        if !is_loaded {
            return Ok(());
        }
        self.write_checkpoints(dir)?;
        let path = dir.path().join(CLEAN_SHUTDOWN);
        self.disk()
            .write_atomically(&path, checkpoint::format_clean_shutdown(broker_epoch).as_bytes())
            .map_err(|error| dir.dir.write_failed(&path, "writing", error))
    }
}

/// Calls `work` for each log on as many threads; the first error.
fn for_each_log(
    logs: &[Arc<UnifiedLog>],
    threads: usize,
    work: &(dyn Fn(&UnifiedLog) -> Result<(), LogError> + Sync),
) -> Result<(), LogError> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let run = || {
        while let Some(log) = logs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(log)
                && !matches!(error, LogError::Closed { .. })
            {
                lock(&failed).get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(run);
        }
        run();
    });
    lock(&failed).take().map_or(Ok(()), Err)
}

/// The entries of one of the checkpoints for the logs of a directory.
fn write_checkpoint_of(
    dir: &ManagedDir,
    name: &str,
    logs: &ArcSwap<Logs>,
    disk: &dyn Disk,
) -> Result<(), LogError> {
    let _one_at_a_time = lock(&dir.checkpointing);
    // Looked at under the lock: else what was deleted or made since an earlier look would be there again, or be lost.
    let logs = logs.load();
    let offset_of = |log: &UnifiedLog| match name {
        RECOVERY_POINT_CHECKPOINT => Some(log.recovery_point()),
        HIGH_WATERMARK_CHECKPOINT => Some(log.high_watermark()),
        // What the first segment's name does not say.
        _ => {
            let first = log.segment_base_offsets().first().copied().unwrap_or(0);
            Some(log.log_start_offset()).filter(|offset| *offset > first)
        }
    };
    let offsets: Offsets = logs
        .values()
        .filter(|log| *log.parent_dir() == *dir.path())
        .filter_map(|log| offset_of(log).map(|offset| (log.topic_partition.clone(), offset)))
        .collect();
    dir.write_checkpoint(name, &offsets, disk)
}

/// For logs whose recovery point goes back. Holds nothing that would keep the logs alive.
fn recovery_point_checkpointer(
    logs: &Arc<ArcSwap<Logs>>,
    dirs: &[Arc<ManagedDir>],
    context: &Arc<LogContext>,
) -> RecoveryPointCheckpointer {
    // Nor the directories' locks: a log may outlive its manager.
    let dirs: Vec<_> = dirs.iter().map(Arc::downgrade).collect();
    let logs = Arc::downgrade(logs);
    let disk = Arc::clone(&context.disk);
    Box::new(move |log_dir: &LogDir| {
        let mut dirs = dirs.iter().filter_map(Weak::upgrade);
        let dir = dirs.find(|dir| dir.path() == &**log_dir.path());
        match (logs.upgrade(), dir) {
            (Some(logs), Some(dir)) if dir.loaded.load(Ordering::Acquire) => {
                write_checkpoint_of(&dir, RECOVERY_POINT_CHECKPOINT, &logs, &*disk)
            }
            _ => Ok(()),
        }
    })
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[path = "log_manager_loading.rs"]
mod log_manager_loading;
