use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use uuid::Uuid;

use super::checkpoint::{
    CLEAN_SHUTDOWN, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT,
};
use super::*;
use crate::io::clock::Clock;
use crate::io::disk::{Disk, SystemDisk};
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::io::stalling_disk::{StallingCall, StallingDisk};
use crate::record::{BatchBuilder, BatchOptions};

/// A clock that stands until it is moved.
#[derive(Debug)]
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub fn at(now_ms: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(now_ms)))
    }

    pub fn advance(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> i64 {
        self.now_ms()
    }
}

/// Kafka's defaults with topic properties changed.
pub(crate) fn kafka_config(change: impl FnOnce(&mut BTreeMap<String, String>)) -> LogConfig {
    let mut overrides = BTreeMap::new();
    change(&mut overrides);
    let node = crate::config::KafkaConfig::development_defaults().unwrap();
    LogConfig::from_overrides(&node, &overrides).unwrap()
}

pub(crate) fn config_with(overrides: &[(&str, &str)]) -> LogConfig {
    kafka_config(|config| {
        for (name, value) in overrides {
            config.insert((*name).into(), (*value).into());
        }
    })
}

pub(crate) fn open_manager(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, dirs: &[PathBuf]) -> LogManager {
    LogManager::open(LogManagerConfig::new(dirs.to_vec()), disk, clock).unwrap()
}

/// A batch as a producer sends it: `count` records of about `size` bytes from `timestamp` on.
pub(crate) fn batch(count: usize, size: usize, timestamp: i64) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = vec![b'v'; size];
    for index in 0..count {
        builder.append(timestamp + index as i64, None, Some(&value), &[]);
    }
    builder.build().unwrap()
}

impl LogManager {
    /// As an I/O error in it does.
    pub(crate) fn fail_log_dir(&self, log_dir: &Path) {
        let failed = self.dirs.iter().find(|dir| dir.path() == log_dir).unwrap();
        let error = std::io::Error::other("gone");
        failed.dir.fail(log_dir, "reading", error);
    }
}

fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn dirs(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

fn load(manager: &LogManager) {
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
}

const NOW: i64 = 1_700_000_000_000;

fn append(log: &UnifiedLog, count: usize) -> LogAppendInfo {
    let info = log
        .append_as_leader(&batch(count, 10, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap();
    log.update_high_watermark(log.log_end_offset());
    info
}

#[test]
fn restart_after_clean_shutdown_finds_log_epoch_id_and_high_watermark_without_recovery() {
    let disk = Arc::new(SimDisk::new());
    let clock = TestClock::at(NOW);
    let id = Uuid::from_u128(42);
    let manager = open_manager(disk.clone(), clock.clone(), &dirs(&["/d"]));
    load(&manager);
    assert_eq!(manager.previous_broker_epoch(), -1);
    let log = manager
        .get_or_create(&tp(), Some(id), LogConfig::default())
        .unwrap();
    append(&log, 5);
    append(&log, 3);
    manager.shutdown(17).unwrap();

    let manager = open_manager(disk.clone(), clock, &dirs(&["/d"]));
    assert_eq!(manager.previous_broker_epoch(), 17);
    load(&manager);
    assert!(!disk.exists(Path::new("/d/.kafka_cleanshutdown")));
    let log = manager.get(&tp()).unwrap();
    assert_eq!(log.log_end_offset(), 8);
    assert_eq!(log.recovery_point(), 8);
    assert_eq!(log.high_watermark(), 8);
    assert_eq!(log.topic_id(), Some(id));
    assert_eq!(log.leader_epochs(), [(0, 0)]);
    log.check_invariants();
}

#[test]
fn clean_shutdown_then_power_loss_keeps_all() {
    for seed in 0..20 {
        let disk = Arc::new(SimDisk::new());
        let manager = open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/d"]));
        load(&manager);
        let log = manager
            .get_or_create(&tp(), Some(Uuid::from_u128(9)), LogConfig::default())
            .unwrap();
        append(&log, 5);
        manager.shutdown(1).unwrap();
        disk.lose_power(seed);
        let manager = open_manager(disk, TestClock::at(NOW), &dirs(&["/d"]));
        assert_eq!(manager.previous_broker_epoch(), 1);
        load(&manager);
        let log = manager.get(&tp()).unwrap();
        assert_eq!(log.log_end_offset(), 5, "seed {seed}");
        assert_eq!(log.topic_id(), Some(Uuid::from_u128(9)));
    }
}

#[test]
fn open_of_a_dir_that_is_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    let first = open_manager(Arc::clone(&disk), TestClock::at(NOW), std::slice::from_ref(&path));
    let config = LogManagerConfig::new(vec![path.clone()]);
    let error = LogManager::open(config.clone(), Arc::clone(&disk), TestClock::at(NOW)).unwrap_err();
    assert!(matches!(error, LogError::LockHeld { .. }), "{error}");
    first.shutdown(1).unwrap();
    LogManager::open(config, disk, TestClock::at(NOW)).unwrap();
}

#[test]
fn async_delete_renames_at_once_and_removes_after_the_delay() {
    let disk = Arc::new(SimDisk::new());
    let clock = TestClock::at(NOW);
    let manager = open_manager(disk.clone(), clock.clone(), &dirs(&["/d"]));
    load(&manager);
    let log = manager.get_or_create(&tp(), None, LogConfig::default()).unwrap();
    append(&log, 5);
    manager.async_delete(&tp()).unwrap();
    assert!(manager.get(&tp()).is_none());
    assert!(!disk.exists(Path::new("/d/t-0")));
    assert!(log.dir().to_string_lossy().ends_with("-delete"));
    // Who has the log still reads it, but nobody writes.
    assert!(
        !log.read_bytes(0, 1000, FetchIsolation::LogEnd, true)
            .unwrap()
            .is_empty()
    );
    let refused = log.append_as_leader(&batch(1, 1, NOW), 0, AppendOrigin::Client, NOW);
    assert!(matches!(refused, Err(LogError::Closed { .. })));

    let due = manager.run_deletion(NOW).unwrap();
    assert_eq!(due, NOW + 60_000);
    clock.advance(60_000);
    assert_eq!(manager.run_deletion(due), None);
    assert!(!disk.exists(&log.dir()));
    // The name is free for a new log that starts at nothing.
    let again = manager.get_or_create(&tp(), None, LogConfig::default()).unwrap();
    assert_eq!(again.log_end_offset(), 0);
}

#[test]
fn get_or_create_goes_to_the_dir_with_the_fewest_logs() {
    let manager = open_manager(Arc::new(SimDisk::new()), TestClock::at(NOW), &dirs(&["/a", "/b"]));
    load(&manager);
    for partition in 0..4 {
        manager
            .get_or_create(&TopicPartition::new("t", partition), None, LogConfig::default())
            .unwrap();
    }
    let in_a = manager
        .all_logs()
        .iter()
        .filter(|log| *log.parent_dir() == *Path::new("/a"))
        .count();
    assert_eq!(in_a, 2);
}

#[test]
fn write_error_takes_its_dir_offline_alone_and_tells_once() {
    let disk = Arc::new(SimDisk::new());
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut config = LogManagerConfig::new(dirs(&["/a", "/b"]));
    let listener = Arc::clone(&told);
    config.on_log_dir_failure =
        Arc::new(move |dir: &Path, _: &LogError| listener.lock().unwrap().push(dir.to_path_buf()));
    let manager = LogManager::open(config, disk.clone(), TestClock::at(NOW)).unwrap();
    load(&manager);
    let bad = manager
        .get_or_create_in(&tp(), None, LogConfig::default(), Some(Path::new("/a")))
        .unwrap();
    let other = TopicPartition::new("u", 0);
    let good = manager
        .get_or_create_in(&other, None, LogConfig::default(), Some(Path::new("/b")))
        .unwrap();
    append(&bad, 1);
    disk.fail_nth(SimOperation::Write, 0, std::io::ErrorKind::Other);
    let error = bad
        .append_as_leader(&batch(1, 1, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap_err();
    assert!(matches!(error, LogError::Storage { .. }), "{error}");
    assert_eq!(*told.lock().unwrap(), dirs(&["/a"]));
    let error = bad
        .append_as_leader(&batch(1, 1, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap_err();
    assert!(matches!(error, LogError::DirectoryOffline { .. }), "{error}");
    assert!(matches!(
        bad.read(0, 100, FetchIsolation::LogEnd, true),
        Err(LogError::DirectoryOffline { .. })
    ));
    assert_eq!(bad.log_end_offset(), 1);
    append(&good, 1);
    assert_eq!(manager.live_log_dirs(), dirs(&["/b"]));
    assert_eq!(told.lock().unwrap().len(), 1);
    assert!(manager.shutdown(3).is_err());
    assert!(!disk.exists(Path::new("/a/.kafka_cleanshutdown")));
    assert!(disk.exists(Path::new("/b/.kafka_cleanshutdown")));
}

#[test]
fn stray_log_is_renamed_and_not_served() {
    let disk = Arc::new(SimDisk::new());
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/d"]));
    load(&manager);
    append(
        &manager.get_or_create(&tp(), None, LogConfig::default()).unwrap(),
        1,
    );
    manager.shutdown(1).unwrap();
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/d"]));
    manager
        .load_logs(&|_| LogConfig::default(), &|log| log.topic_id().is_none())
        .unwrap();
    assert!(manager.get(&tp()).is_none());
    let names = disk.list(Path::new("/d")).unwrap();
    assert!(
        names
            .iter()
            .any(|(name, _)| name.to_string_lossy().ends_with("-stray")),
        "{names:?}"
    );
    // It stays so.
    manager.shutdown(1).unwrap();
    let manager = open_manager(disk, TestClock::at(NOW), &dirs(&["/d"]));
    load(&manager);
    assert!(manager.all_logs().is_empty());
}

/// A log that is made now has all of its ten records after a kill.
fn assert_made_anew_from_nothing(manager: LogManager, disk: &Arc<SimDisk>) {
    let log = manager.get_or_create(&tp(), None, LogConfig::default()).unwrap();
    append(&log, 10);
    drop(manager);
    disk.crash_process();

    let manager = open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/d"]));
    load(&manager);
    let log = manager.get(&tp()).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (0, 10));
}

#[test]
fn log_made_by_the_name_of_a_stray_begins_with_nothing_of_its_checkpoints() {
    let disk = Arc::new(SimDisk::new());
    let open = || open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/d"]));
    let manager = open();
    load(&manager);
    let log = manager.get_or_create(&tp(), None, LogConfig::default()).unwrap();
    append(&log, 20);
    log.maybe_increment_log_start_offset(15).unwrap();
    manager.shutdown(1).unwrap();
    drop(manager);

    let manager = open();
    manager.load_logs(&|_| LogConfig::default(), &|_| true).unwrap();
    assert_made_anew_from_nothing(manager, &disk);
}

#[test]
fn kill_between_a_deletion_and_the_checkpoints_leaves_nothing_to_the_next_log_of_that_name() {
    let disk = Arc::new(SimDisk::new());
    let open = || open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/d"]));
    let manager = open();
    load(&manager);
    let log = manager.get_or_create(&tp(), None, LogConfig::default()).unwrap();
    append(&log, 20);
    log.maybe_increment_log_start_offset(15).unwrap();
    manager.checkpoint_log_start_offsets().unwrap();
    let deleted = format!(
        "/d/{}",
        super::log_folder::Folder::deleted_name(&tp(), Uuid::from_u128(1))
    );
    disk.rename(&log.dir(), Path::new(&deleted)).unwrap();
    drop((log, manager));
    disk.crash_process();

    let manager = open();
    load(&manager);
    assert_made_anew_from_nothing(manager, &disk);
}

#[test]
fn log_made_by_the_name_of_a_deleted_one_begins_without_its_high_watermark() {
    let disk = Arc::new(SimDisk::new());
    let open = || open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/d"]));
    let manager = open();
    load(&manager);
    let log = manager.get_or_create(&tp(), None, LogConfig::default()).unwrap();
    append(&log, 20);
    manager.checkpoint_high_watermarks().unwrap();
    manager.async_delete(&tp()).unwrap();
    let log = manager.get_or_create(&tp(), None, LogConfig::default()).unwrap();
    log.append_as_leader(&batch(10, 10, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap();
    drop((log, manager));
    disk.crash_process();

    let manager = open();
    load(&manager);
    let log = manager.get(&tp()).unwrap();
    assert_eq!((log.high_watermark(), log.log_end_offset()), (0, 10));
}

#[test]
fn the_same_partition_in_two_dirs_is_refused() {
    let disk = Arc::new(SimDisk::new());
    for dir in ["/a", "/b"] {
        disk.create_dir_all(&Path::new(dir).join("t-0")).unwrap();
    }
    let manager = open_manager(disk, TestClock::at(NOW), &dirs(&["/a", "/b"]));
    let error = manager
        .load_logs(&|_| LogConfig::default(), &|_| false)
        .unwrap_err();
    assert!(
        error.to_string().starts_with("Duplicate log directories for t-0"),
        "{error}"
    );
}

#[test]
fn kill_without_shutdown_recovers_from_the_checkpointed_recovery_point() {
    let disk = Arc::new(SimDisk::new());
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/d"]));
    load(&manager);
    let log = manager.get_or_create(&tp(), None, LogConfig::default()).unwrap();
    append(&log, 5);
    log.flush().unwrap();
    manager.checkpoint_recovery_points().unwrap();
    append(&log, 4);
    disk.crash_process();
    let manager = open_manager(disk, TestClock::at(NOW), &dirs(&["/d"]));
    load(&manager);
    let log = manager.get(&tp()).unwrap();
    assert_eq!((log.log_end_offset(), log.recovery_point()), (9, 5));
    log.check_invariants();
}

#[test]
fn metadata_log_lies_in_its_dir_with_kafkas_id_and_is_none_of_the_logs() {
    let disk = Arc::new(SimDisk::new());
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/d"]));
    let log = manager
        .open_metadata_log(Path::new("/d"), LogConfig::default())
        .unwrap();
    load(&manager);
    assert!(manager.all_logs().is_empty());
    let text = disk
        .read(Path::new("/d/__cluster_metadata-0/partition.metadata"))
        .unwrap();
    assert_eq!(text, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
    let mut options = BatchOptions {
        base_offset: 0,
        partition_leader_epoch: 3,
        ..BatchOptions::default()
    };
    let prepared = |options: BatchOptions| {
        let mut builder = BatchBuilder::new(options);
        builder.append(NOW, None, Some(b"record"), &[]);
        builder.append(NOW, None, Some(b"record"), &[]);
        builder.build().unwrap()
    };
    let info = log.append_prepared(&prepared(options)).unwrap();
    assert_eq!(
        (info.first_offset, info.last_offset, info.last_leader_epoch),
        (0, 1, 3)
    );
    options.base_offset = 7;
    let gap = log.append_prepared(&prepared(options));
    assert!(
        matches!(gap, Err(LogError::UnexpectedAppendOffset { expected: 2, .. })),
        "{gap:?}"
    );
    log.flush().unwrap();
    assert_eq!(log.recovery_point(), 2);
}

#[test]
fn checkpoints_written_at_the_same_time_do_not_take_the_directory_offline() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = [dir.path().to_path_buf()];
    let manager = open_manager(Arc::new(SystemDisk::new()), TestClock::at(NOW), &dirs);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let log = manager
        .get_or_create(&TopicPartition::new("t", 0), None, LogConfig::default())
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    manager.checkpoint_recovery_points().unwrap();
                }
            });
        }
    });
    assert!(manager.is_log_dir_online(dir.path()));
    drop(log);
}

#[test]
fn checkpoint_that_waits_for_another_knows_what_was_made_meanwhile() {
    let sim = Arc::new(SimDisk::new());
    let disk = StallingDisk::new(sim.clone());
    let manager = open_manager(Arc::new(disk.clone()), TestClock::at(NOW), &dirs(&["/d"]));
    load(&manager);
    let path = Path::new("/d").join(RECOVERY_POINT_CHECKPOINT);
    disk.stall(&path, StallingCall::Write);
    let log_dir = manager.dirs[0].dir.clone();
    std::thread::scope(|scope| {
        let unused = Arc::strong_count(&manager.logs);
        let writers = [1, 2].map(|count| {
            let writer = scope.spawn(|| manager.context.checkpoint_recovery_points(&log_dir));
            // Each has the map at hand while it writes, or waits to.
            while disk.hanging() == 0 || Arc::strong_count(&manager.logs) < unused + count {
                std::thread::yield_now();
            }
            writer
        });
        manager.get_or_create(&tp(), None, LogConfig::default()).unwrap();
        disk.release();
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    assert_eq!(sim.read(&path).unwrap(), b"0\n1\nt 0 0\n");
}

/// Two directories after a crash, the second of which is at its first log when the node is told to end.
struct LoadingWhenToldToEnd {
    disk: Arc<SimDisk>,
    before: Vec<Vec<u8>>,
    loaded: Result<(), LogError>,
    manager: LogManager,
}

impl LoadingWhenToldToEnd {
    const CHECKPOINTS: [&str; 3] = [
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
    ];

    fn checkpoints(disk: &SimDisk) -> Vec<Vec<u8>> {
        Self::CHECKPOINTS
            .map(|name| disk.read(&Path::new("/a").join(name)).unwrap())
            .to_vec()
    }

    fn with_slow_logs(count: i32) -> Self {
        let disk = Arc::new(SimDisk::new());
        let manager = open_manager(disk.clone(), TestClock::at(NOW), &dirs(&["/a", "/b"]));
        load(&manager);
        let quick = TopicPartition::new("quick", 0);
        let log = manager
            .get_or_create_in(&quick, None, LogConfig::default(), Some(Path::new("/a")))
            .unwrap();
        append(&log, 5);
        log.maybe_increment_log_start_offset(3).unwrap();
        for partition in 0..count {
            let slow = TopicPartition::new("slow", partition);
            let log = manager.get_or_create_in(&slow, None, LogConfig::default(), Some(Path::new("/b")));
            append(&log.unwrap(), 5);
        }
        manager.checkpoint_recovery_points().unwrap();
        manager.checkpoint_log_start_offsets().unwrap();
        manager.checkpoint_high_watermarks().unwrap();
        disk.crash_process();
        let before = Self::checkpoints(&disk);

        let mut config = LogManagerConfig::new(dirs(&["/a", "/b"]));
        config.recovery_threads_per_data_dir = 1;
        let manager = LogManager::open(config, disk.clone(), TestClock::at(NOW)).unwrap();
        let loaded = std::thread::scope(|scope| {
            let (is_slow, slow) = std::sync::mpsc::channel();
            let (quick_is_loaded, quick) = std::sync::mpsc::channel();
            let (release, released) = std::sync::mpsc::channel::<()>();
            let (is_slow, quick_is_loaded, released) = (
                Mutex::new(is_slow),
                Mutex::new(quick_is_loaded),
                Mutex::new(released),
            );
            let manager = &manager;
            let loading = scope.spawn(move || {
                manager.load_logs(
                    &|topic| {
                        if topic == "slow" {
                            is_slow.lock().unwrap().send(()).ok();
                            // Once: the other side is gone after that.
                            released.lock().unwrap().recv().ok();
                        }
                        LogConfig::default()
                    },
                    &|log| {
                        quick_is_loaded
                            .lock()
                            .unwrap()
                            .send(log.topic_partition().clone())
                            .ok();
                        false
                    },
                )
            });
            slow.recv().unwrap();
            assert_eq!(&*quick.recv().unwrap().topic, "quick");
            let ending = scope.spawn(|| manager.shutdown(7));
            while !manager.is_stopping.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            drop(release);
            ending.join().unwrap().unwrap();
            loading.join().unwrap()
        });
        Self {
            disk,
            before,
            loaded,
            manager,
        }
    }
}

#[test]
fn shutdown_while_logs_load_leaves_the_checkpoints_and_no_mark_of_a_clean_end() {
    let ended = LoadingWhenToldToEnd::with_slow_logs(2);
    assert!(
        matches!(ended.loaded, Err(LogError::ShuttingDown)),
        "{:?}",
        ended.loaded
    );
    assert_eq!(LoadingWhenToldToEnd::checkpoints(&ended.disk), ended.before);
    for dir in ["/a", "/b"] {
        assert!(!ended.disk.exists(&Path::new(dir).join(CLEAN_SHUTDOWN)), "{dir}");
    }
    // Nor is anything loaded after the end.
    let again = ended.manager.load_logs(&|_| LogConfig::default(), &|_| false);
    assert!(matches!(again, Err(LogError::ShuttingDown)), "{again:?}");
}

#[test]
fn shutdown_at_the_last_log_that_loads_is_a_clean_one() {
    let ended = LoadingWhenToldToEnd::with_slow_logs(1);
    ended.loaded.unwrap();
    for dir in ["/a", "/b"] {
        assert!(ended.disk.exists(&Path::new(dir).join(CLEAN_SHUTDOWN)), "{dir}");
    }
    let manager = open_manager(ended.disk, TestClock::at(NOW), &dirs(&["/a", "/b"]));
    load(&manager);
    let quick = manager.get(&TopicPartition::new("quick", 0)).unwrap();
    assert_eq!((quick.log_start_offset(), quick.log_end_offset()), (3, 5));
    assert_eq!(quick.high_watermark(), 5);
}
