use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::io::disk::Disk;
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::io::stalling_disk::{StallingCall, StallingDisk};
use crate::log::log_manager_test::{TestClock, batch, open_manager};
use crate::log::{AppendOrigin, FetchIsolation, LogConfig, LogError, LogManager, TopicPartition, UnifiedLog};
use uuid::Uuid;

const NOW: i64 = 1_700_000_000_000;
const TOPIC_ID: Uuid = Uuid::from_u128(77);

fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn dirs() -> Vec<PathBuf> {
    vec![PathBuf::from("/a"), PathBuf::from("/b")]
}

fn open(disk: &Arc<SimDisk>) -> Arc<LogManager> {
    Arc::new(open_manager(disk.clone(), TestClock::at(NOW), &dirs()))
}

fn load(manager: &LogManager) {
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
}

fn append(log: &UnifiedLog, count: usize) {
    log.append_as_leader(&batch(count, 10, NOW), 3, AppendOrigin::Client, NOW)
        .unwrap();
    log.update_high_watermark(log.log_end_offset());
}

fn copy(current: &UnifiedLog, future: &UnifiedLog) {
    let bytes = current
        .read_bytes(
            future.log_end_offset(),
            usize::MAX >> 1,
            FetchIsolation::LogEnd,
            true,
        )
        .unwrap();
    future.append_as_follower(&bytes, i32::MAX).unwrap();
}

fn folders(disk: &SimDisk, dir: &str) -> Vec<String> {
    let mut names: Vec<String> = disk
        .list(Path::new(dir))
        .unwrap()
        .into_iter()
        .filter(|(_, is_directory)| *is_directory)
        .map(|(name, _)| name.to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// A log of ten records in /a and its whole copy in /b.
fn copied() -> (Arc<SimDisk>, Arc<LogManager>, Arc<UnifiedLog>, Arc<UnifiedLog>) {
    let disk = Arc::new(SimDisk::new());
    let manager = open(&disk);
    load(&manager);
    let config = LogConfig::default();
    let current = manager
        .get_or_create_in(&tp(), Some(TOPIC_ID), config, Some(Path::new("/a")))
        .unwrap();
    append(&current, 10);
    let future = manager.create_future(&current, Path::new("/b")).unwrap();
    copy(&current, &future);
    (disk, manager, current, future)
}

#[test]
fn copy_takes_the_place_of_the_log() {
    let (disk, manager, current, future) = copied();
    assert!(folders(&disk, "/b")[0].starts_with("t-0.") && folders(&disk, "/b")[0].ends_with("-future"));

    let moved = manager.replace_current_with_future(&tp()).unwrap();
    assert!(Arc::ptr_eq(&moved, &future));
    assert!(Arc::ptr_eq(&manager.get(&tp()).unwrap(), &future));
    assert!(manager.future(&tp()).is_none());
    assert_eq!(folders(&disk, "/b"), ["t-0"]);
    assert!(folders(&disk, "/a")[0].ends_with("-delete"));
    // The old log takes nothing any more; the new one goes on.
    assert!(
        current
            .append_as_leader(&batch(1, 10, NOW), 3, AppendOrigin::Client, NOW)
            .is_err()
    );
    append(&moved, 5);
    moved.check_invariants();
    assert_eq!(moved.log_end_offset(), 15);
    let checkpoint = |dir: &str, name: &str| {
        let path = Path::new(dir).join(name);
        String::from_utf8(disk.read(&path).unwrap()).unwrap()
    };
    assert_eq!(checkpoint("/a", "recovery-point-offset-checkpoint"), "0\n0\n");
    assert_eq!(
        checkpoint("/b", "recovery-point-offset-checkpoint"),
        "0\n1\nt 0 10\n"
    );
    assert_eq!(
        checkpoint("/b", "replication-offset-checkpoint"),
        "0\n1\nt 0 10\n"
    );

    drop((current, future, moved));
    manager.shutdown(1).unwrap();
    drop(manager);
    let manager = open(&disk);
    load(&manager);
    assert_eq!(manager.get(&tp()).unwrap().log_end_offset(), 15);
    assert_eq!(*manager.get(&tp()).unwrap().parent_dir(), *Path::new("/b"));
}

#[test]
fn copy_is_found_again_after_a_start() {
    let (disk, manager, current, future) = copied();
    append(&current, 3);
    drop((manager, current, future));
    let manager = open(&disk);
    load(&manager);
    let future = manager.future(&tp()).unwrap();
    assert_eq!(future.log_end_offset(), 10);
    assert_eq!(future.topic_id(), Some(TOPIC_ID));
    assert_eq!(manager.get(&tp()).unwrap().log_end_offset(), 13);
    assert!(manager.cleaner.manager.is_paused(&tp()));
    manager.delete_future(&tp()).unwrap();
    assert!(!manager.cleaner.manager.is_paused(&tp()));
    assert!(folders(&disk, "/b")[0].ends_with("-delete"));
}

#[test]
fn copy_takes_nothing_from_checkpoints_of_an_earlier_log_in_its_directory() {
    let (disk, manager, current, future) = copied();
    drop((manager, current, future));
    let stale = Path::new("/b/log-start-offset-checkpoint");
    disk.write_atomically(stale, b"0\n1\nt 0 8\n").unwrap();
    let manager = open(&disk);
    load(&manager);
    assert_eq!(manager.future(&tp()).unwrap().log_start_offset(), 0);
}

#[test]
fn copy_of_a_partition_that_is_gone_is_a_stray() {
    let (disk, manager, current, future) = copied();
    drop((manager, current, future));
    let manager = open(&disk);
    let is_in_b = |log: &UnifiedLog| *log.parent_dir() == *Path::new("/b");
    manager.load_logs(&|_| LogConfig::default(), &is_in_b).unwrap();
    assert!(manager.future(&tp()).is_none());
    assert!(!manager.cleaner.manager.is_paused(&tp()));
    assert_eq!(manager.get(&tp()).unwrap().log_end_offset(), 10);
    assert!(folders(&disk, "/b")[0].ends_with("-stray"));
}

#[test]
fn start_after_the_swap_was_cut_in_two_keeps_one_of_the_logs_and_sets_the_other_aside() {
    let (disk, manager, current, future) = copied();
    future.flush().unwrap();
    let from = future.dir();
    drop((manager, current, future));
    disk.rename(&from, Path::new("/b/t-0")).unwrap();

    let manager = open(&disk);
    manager.set_assigned(|log| *log.parent_dir() == *Path::new("/b"));
    load(&manager);
    let log = manager.get(&tp()).unwrap();
    assert_eq!(log.log_end_offset(), 10);
    append(&log, 1);
    // The one where it was to be.
    assert_eq!(folders(&disk, "/b"), ["t-0"]);
    assert!(folders(&disk, "/a")[0].ends_with("-stray"));
}

#[test]
fn start_after_the_swap_was_cut_in_two_brings_nothing_back_that_was_deleted() {
    let (disk, manager, current, future) = copied();
    current.maybe_increment_log_start_offset(7).unwrap();
    future.flush().unwrap();
    manager.checkpoint_log_start_offsets().unwrap();
    let from = future.dir();
    drop((manager, current, future));
    disk.rename(&from, Path::new("/b/t-0")).unwrap();

    let manager = open(&disk);
    manager.set_assigned(|log| *log.parent_dir() == *Path::new("/b"));
    load(&manager);
    let log = manager.get(&tp()).unwrap();
    assert_eq!(*log.parent_dir(), *Path::new("/b"));
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (7, 10));
}

#[test]
fn old_log_that_the_moved_one_s_retention_has_passed_by_is_set_aside() {
    let (disk, manager, current, future) = copied();
    append(&future, 10);
    future.flush().unwrap();
    let from = future.dir();
    drop((manager, current, future));
    disk.rename(&from, Path::new("/b/t-0")).unwrap();
    for (name, offset) in [
        ("log-start-offset-checkpoint", 15),
        ("replication-offset-checkpoint", 20),
    ] {
        let text = format!("0\n1\nt 0 {offset}\n");
        let path = Path::new("/b").join(name);
        disk.write_atomically(&path, text.as_bytes()).unwrap();
    }

    let manager = open(&disk);
    load(&manager);
    let log = manager.get(&tp()).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (15, 20));
    assert_eq!(folders(&disk, "/b"), ["t-0"]);
    assert!(folders(&disk, "/a")[0].ends_with("-stray"));
}

#[test]
fn of_two_copies_the_one_of_the_log_s_topic_goes_on() {
    let disk = Arc::new(SimDisk::new());
    let three = [dirs(), vec![PathBuf::from("/c")]].concat();
    let open = || open_manager(disk.clone(), TestClock::at(NOW), &three);
    let manager = open();
    load(&manager);
    let begin_move = |topic_id, count, to: &str| {
        let (config, from) = (LogConfig::default(), Some(Path::new("/a")));
        let current = manager
            .get_or_create_in(&tp(), Some(topic_id), config, from)
            .unwrap();
        append(&current, count);
        let future = manager.create_future(&current, Path::new(to)).unwrap();
        copy(&current, &future);
    };
    let forget = || {
        manager.future_logs.store(Arc::default());
        manager.logs.store(Arc::default());
    };
    begin_move(Uuid::from_u128(78), 12, "/c");
    forget();
    disk.rename(Path::new("/a/t-0"), Path::new("/a/gone")).unwrap();
    begin_move(TOPIC_ID, 10, "/b");
    forget();
    drop(manager);
    disk.crash_process();

    let manager = open();
    load(&manager);
    let future = manager.future(&tp()).unwrap();
    assert_eq!(*future.parent_dir(), *Path::new("/b"));
    assert!(folders(&disk, "/b")[0].ends_with("-future"));
    assert!(folders(&disk, "/c")[0].ends_with("-stray"));
}

#[test]
fn two_logs_of_which_none_is_the_other_s_beginning_stop_the_start() {
    let disk = Arc::new(SimDisk::new());
    for (dir, epoch) in [("/a", 3), ("/b", 4)] {
        let manager = open_manager(disk.clone(), TestClock::at(NOW), &[PathBuf::from(dir)]);
        load(&manager);
        let log = manager
            .get_or_create(&tp(), Some(TOPIC_ID), LogConfig::default())
            .unwrap();
        log.append_as_leader(&batch(2, 10, NOW), epoch, AppendOrigin::Client, NOW)
            .unwrap();
        drop(log);
        manager.shutdown(1).unwrap();
    }
    let manager = open(&disk);
    let error = manager
        .load_logs(&|_| LogConfig::default(), &|_| false)
        .unwrap_err();
    assert!(error.to_string().contains("Duplicate log directories"), "{error}");
}

#[test]
fn cleaner_checkpoint_moves_with_the_log() {
    let (disk, manager, current, future) = copied();
    manager.cleaner.manager.done(&current, Some(7)).unwrap();
    manager.replace_current_with_future(&tp()).unwrap();
    let checkpoint = |dir: &str| {
        let path = Path::new(dir).join("cleaner-offset-checkpoint");
        String::from_utf8(disk.read(&path).unwrap()).unwrap()
    };
    assert_eq!(checkpoint("/a"), "0\n0\n");
    assert_eq!(checkpoint("/b"), "0\n1\nt 0 7\n");
    assert!(!manager.cleaner.manager.is_paused(&tp()));
    assert_eq!(manager.cleaner.manager.first_dirty_offset_of(&future), 7);
}

#[test]
fn copy_is_not_begun_while_a_directory_is_offline() {
    let disk = Arc::new(SimDisk::new());
    let three = [dirs(), vec![PathBuf::from("/c")]].concat();
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &three);
    load(&manager);
    let current = manager
        .get_or_create_in(&tp(), Some(TOPIC_ID), LogConfig::default(), Some(Path::new("/a")))
        .unwrap();
    manager.fail_log_dir(Path::new("/c"));
    assert!(manager.create_future(&current, Path::new("/b")).is_err());
}

#[test]
fn deleted_partition_takes_its_copy_along() {
    let (disk, manager, _current, _future) = copied();
    manager.async_delete(&tp()).unwrap();
    assert!(manager.future(&tp()).is_none());
    assert!(folders(&disk, "/a")[0].ends_with("-delete"));
    assert!(folders(&disk, "/b")[0].ends_with("-delete"));
}

#[test]
fn copy_of_a_log_that_was_deleted_meanwhile_is_not_begun() {
    let disk = Arc::new(SimDisk::new());
    let manager = open(&disk);
    load(&manager);
    let made = |id| {
        let (config, dir) = (LogConfig::default(), Some(Path::new("/a")));
        manager.get_or_create_in(&tp(), Some(id), config, dir).unwrap()
    };
    let current = made(TOPIC_ID);
    manager.async_delete(&tp()).unwrap();
    for _ in ["gone", "there is another"] {
        let refused = manager.create_future(&current, Path::new("/b")).err();
        assert!(matches!(refused, Some(LogError::Closed { .. })), "{refused:?}");
        assert!(manager.future(&tp()).is_none());
        assert!(!manager.cleaner.manager.is_paused(&tp()));
        assert!(folders(&disk, "/b").is_empty());
        made(Uuid::from_u128(78));
    }
}

/// The first one ended and with it the pause, while the second waited.
#[test]
fn log_is_not_cleaned_while_the_second_of_two_copies_is_there() {
    let disk = Arc::new(SimDisk::new());
    let manager = open(&disk);
    load(&manager);
    let config = LogConfig::default();
    let current = manager
        .get_or_create_in(&tp(), Some(TOPIC_ID), config, Some(Path::new("/a")))
        .unwrap();
    let changes = manager.lock_changes();
    std::thread::scope(|scope| {
        let begun = scope.spawn(|| manager.create_future(&current, Path::new("/b")));
        while !manager.cleaner.manager.is_paused(&tp()) {
            std::thread::yield_now();
        }
        manager.cleaner.manager.resume(&tp());
        drop(changes);
        begun.join().unwrap().unwrap();
    });
    assert!(manager.cleaner.manager.is_paused(&tp()));
}

#[test]
fn copy_of_another_topic_does_not_take_the_place_of_the_log() {
    let (disk, manager, _current, future) = copied();
    let other = folders(&disk, "/a").remove(0);
    manager.logs.store(Arc::default());
    disk.rename(&Path::new("/a").join(&other), Path::new("/a/gone"))
        .unwrap();
    let config = LogConfig::default();
    let anew = manager
        .get_or_create_in(&tp(), Some(Uuid::from_u128(78)), config, Some(Path::new("/a")))
        .unwrap();
    append(&anew, 3);
    let refused = manager.replace_current_with_future(&tp()).err();
    assert!(
        matches!(refused, Some(LogError::InconsistentTopicId { .. })),
        "{refused:?}"
    );
    assert!(Arc::ptr_eq(&manager.get(&tp()).unwrap(), &anew));
    assert!(folders(&disk, "/b")[0].ends_with("-future"));
    drop(future);
}

#[test]
fn log_made_where_a_full_disk_did_not_forget_the_one_that_left_begins_with_nothing_of_it() {
    let (disk, manager, current, future) = copied();
    current.maybe_increment_log_start_offset(7).unwrap();
    manager.checkpoint_log_start_offsets().unwrap();
    future.flush().unwrap();
    disk.set_capacity(Some(disk.used()));
    manager.replace_current_with_future(&tp()).unwrap();
    disk.set_capacity(None);
    manager.check_room();
    manager.async_delete(&tp()).unwrap();
    let config = LogConfig::default();
    let anew = manager
        .get_or_create_in(&tp(), Some(Uuid::from_u128(78)), config, Some(Path::new("/a")))
        .unwrap();
    append(&anew, 10);
    drop((manager, current, future, anew));
    disk.crash_process();

    let manager = open(&disk);
    load(&manager);
    let anew = manager.get(&tp()).unwrap();
    assert_eq!((anew.log_start_offset(), anew.log_end_offset()), (0, 10));
}

#[test]
fn deletion_that_fails_in_one_directory_is_forgotten_in_the_other() {
    let (disk, manager, _current, _future) = copied();
    let stale = Path::new("/b/log-start-offset-checkpoint");
    disk.write_atomically(stale, b"0\n1\nt 0 8\n").unwrap();
    disk.fail_nth(SimOperation::Rename, 0, std::io::ErrorKind::Other);
    assert!(manager.async_delete(&tp()).is_err());
    manager.forget_deletions().unwrap();
    assert!(!manager.is_log_dir_online(Path::new("/a")));
    assert!(folders(&disk, "/b")[0].ends_with("-delete"));
    assert_eq!(disk.read(stale).unwrap(), b"0\n0\n");
}

#[test]
fn new_log_is_made_where_it_was_wished_for() {
    let disk = Arc::new(SimDisk::new());
    let manager = open(&disk);
    load(&manager);
    manager.set_preferred_log_dir(&tp(), Path::new("/b"));
    let log = manager
        .get_or_create(&tp(), Some(TOPIC_ID), LogConfig::default())
        .unwrap();
    assert_eq!(*log.parent_dir(), *Path::new("/b"));
}

#[test]
fn flush_of_a_log_whose_folder_is_being_renamed_leaves_the_directory_online() {
    let (disk, manager, current, _future) = copied();
    current.mark_closed();
    disk.rename(Path::new("/a/t-0"), Path::new("/a/t-0.x-delete"))
        .unwrap();
    current.update_config(LogConfig {
        flush_ms: 0,
        ..LogConfig::default()
    });
    manager.run_flush(NOW);
    assert!(matches!(current.flush(), Err(LogError::Closed { .. })));
    assert!(!manager.has_offline_log_dirs());
}

#[test]
fn flush_that_is_overtaken_by_the_renaming_of_the_folder_leaves_the_directory_online() {
    let sim = Arc::new(SimDisk::new());
    let disk = StallingDisk::new(sim.clone());
    let manager = open_manager(Arc::new(disk.clone()), TestClock::at(NOW), &dirs());
    load(&manager);
    let log = manager
        .get_or_create_in(&tp(), Some(TOPIC_ID), LogConfig::default(), Some(Path::new("/a")))
        .unwrap();
    append(&log, 10);
    disk.stall(&log.dir().join("00000000000000000000.log"), StallingCall::Sync);
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| log.flush());
        while disk.hanging() == 0 {
            std::thread::yield_now();
        }
        log.mark_closed();
        // `sync_small_files` has synced the folder, so there must be something to sync again.
        log.dir.mark_dirty();
        sim.rename(Path::new("/a/t-0"), Path::new("/a/t-0.x-delete"))
            .unwrap();
        disk.release();
        assert!(matches!(flush.join().unwrap(), Err(LogError::Closed { .. })));
    });
    assert!(!manager.has_offline_log_dirs());
}

/// The rename of the folder is done, the log does not know of it yet.
#[test]
fn flush_during_the_swap_finds_the_files_by_their_new_names() {
    let sim = Arc::new(SimDisk::new());
    let disk = StallingDisk::new(sim.clone());
    let manager = Arc::new(open_manager(Arc::new(disk.clone()), TestClock::at(NOW), &dirs()));
    load(&manager);
    let current = manager
        .get_or_create_in(&tp(), Some(TOPIC_ID), LogConfig::default(), Some(Path::new("/a")))
        .unwrap();
    append(&current, 10);
    let future = manager.create_future(&current, Path::new("/b")).unwrap();
    copy(&current, &future);
    future.roll().unwrap();
    append(&future, 3);
    disk.stall(&future.dir(), StallingCall::Rename);
    let swap = {
        let manager = manager.clone();
        std::thread::spawn(move || manager.replace_current_with_future(&tp()).map(|_| ()))
    };
    while sim.exists(&future.dir()) {
        std::thread::yield_now();
    }
    let has_appended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| {
            append(&future, 1);
            // Files that have to be opened again.
            for segment in future.segments.load().iter() {
                segment.close();
            }
            has_appended.store(true, Ordering::Release);
            future.flush()
        });
        while !has_appended.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        disk.release();
        flush.join().unwrap().unwrap();
    });
    swap.join().unwrap().unwrap();
    assert!(manager.is_log_dir_online(Path::new("/b")));
    assert_eq!(future.recovery_point(), 14);
    assert_eq!(manager.get(&tp()).unwrap().log_end_offset(), 14);
}
