use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};

use super::*;
use crate::io::disk::{Disk, OpenMode};
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::log::log_manager_test::{TestClock, batch, config_with, open_manager};
use crate::log::{FetchIsolation, LogManager};
use crate::record::{BatchBuilder, BatchOptions, Batches, records_of};

const NOW: i64 = 1_700_000_000_000;
const FOLDER: &str = "/data/t-0";
/// The first offset that does not fit into a segment that begins at 0.
const BEYOND: i64 = 1 << 31;

fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn small_index_config() -> LogConfig {
    config_with(&[("index.interval.bytes", "300")])
}

fn open(disk: &Arc<SimDisk>) -> Arc<LogManager> {
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &[PathBuf::from("/data")]);
    Arc::new(manager)
}

fn load(disk: &Arc<SimDisk>) -> Result<(Arc<LogManager>, Arc<UnifiedLog>), LogError> {
    let manager = open(disk);
    manager.load_logs(&|_| small_index_config(), &|_| false)?;
    let log = manager.get(&tp()).ok_or(LogError::NoLogDirectory)?;
    Ok((manager, log))
}

/// All record offsets, read one fetch after the other; those of damaged ranges are left out.
fn offsets_of_all(log: &UnifiedLog) -> Vec<i64> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let bytes = log
            .read_bytes(offset, 1 << 20, FetchIsolation::LogEnd, true)
            .unwrap();
        for (header, batch) in Batches::of_bytes(&bytes).map_while(Result::ok) {
            found.extend(records_of(&batch).unwrap().map(|record| record.unwrap().offset));
            offset = header.next_offset();
        }
    }
    found
}

fn at_offset(batch: &Bytes, base_offset: i64) -> Bytes {
    let mut moved = BytesMut::from(&batch[..]);
    moved[..8].copy_from_slice(&base_offset.to_be_bytes());
    moved.freeze()
}

fn path_of(base_offset: i64, kind: FileKind) -> PathBuf {
    Path::new(FOLDER).join(file_name(base_offset, kind))
}

fn names(disk: &SimDisk) -> Vec<String> {
    let mut names: Vec<String> = disk
        .list(Path::new(FOLDER))
        .unwrap()
        .into_iter()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

// ---- splitting

const OVERFLOWED: [i64; 5] = [0, 4, BEYOND + 10, BEYOND + 12, 2 * BEYOND + 11];

/// Segments with batches of two records at these offsets.
fn disk_with(segments: &[(i64, &[i64])]) -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new());
    let manager = open(&disk);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    manager.get_or_create(&tp(), None, small_index_config()).unwrap();
    manager.shutdown(1).unwrap();
    for (base_offset, offsets) in segments {
        let mut bytes = Vec::new();
        for offset in *offsets {
            bytes.extend_from_slice(&at_offset(&batch(2, 200, NOW), *offset));
        }
        let path = path_of(*base_offset, FileKind::Log);
        let file = disk.open(&path, OpenMode::CreateTruncate).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_data().unwrap();
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
            let file = disk
                .open(&path_of(*base_offset, kind), OpenMode::CreateTruncate)
                .unwrap();
            file.sync_data().unwrap();
        }
    }
    disk.sync_dir(Path::new(FOLDER)).unwrap();
    disk
}

fn pairs(offsets: &[i64]) -> Vec<i64> {
    offsets.iter().flat_map(|offset| [*offset, offset + 1]).collect()
}

fn unclean(disk: &SimDisk) {
    disk.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
}

#[test]
fn segment_whose_offsets_reach_too_far_is_split_after_a_clean_end_and_after_a_crash() {
    let offsets = [&OVERFLOWED[..], &[2 * BEYOND + 13]].concat();
    for is_clean in [true, false] {
        let disk = disk_with(&[(0, &offsets)]);
        if !is_clean {
            unclean(&disk);
        }
        let (manager, log) = load(&disk).unwrap();
        assert_eq!(
            log.segment_base_offsets(),
            [0, BEYOND + 10, 2 * BEYOND + 11],
            "clean: {is_clean}"
        );
        assert_eq!(offsets_of_all(&log), pairs(&offsets));
        log.append_as_leader(&batch(2, 50, NOW), 0, AppendOrigin::Client, NOW)
            .unwrap();
        assert_eq!(log.log_end_offset(), 2 * BEYOND + 17);
        drop(log);
        manager.shutdown(1).unwrap();
        let (_, log) = load(&disk).unwrap();
        assert_eq!(log.log_end_offset(), 2 * BEYOND + 17);
        let left: Vec<String> = names(&disk);
        assert!(
            left.iter()
                .all(|name| !name.ends_with(".cleaned") && !name.ends_with(".swap")),
            "{left:?}"
        );
        assert_eq!(
            left.iter().filter(|name| name.ends_with(".index")).count(),
            3,
            "{left:?}"
        );
    }
}

#[test]
fn closed_segment_is_split_by_what_the_next_one_says() {
    let end: &[i64] = &[3 * BEYOND];
    for is_clean in [true, false] {
        let disk = disk_with(&[(0, &OVERFLOWED), (3 * BEYOND, end)]);
        if !is_clean {
            unclean(&disk);
        }
        let (_, log) = load(&disk).unwrap();
        assert_eq!(
            log.segment_base_offsets(),
            [0, BEYOND + 10, 2 * BEYOND + 11, 3 * BEYOND]
        );
        assert_eq!(offsets_of_all(&log), pairs(&[&OVERFLOWED, end].concat()));
    }
}

/// The pieces' indexes are new: no flush would come by below the recovery point.
#[test]
fn recovery_point_goes_back_to_the_first_piece_of_what_a_crash_left_to_be_split() {
    let end: &[i64] = &[3 * BEYOND];
    let (closed, last) = (
        disk_with(&[(0, &OVERFLOWED), (3 * BEYOND, end)]),
        disk_with(&[(0, &[&OVERFLOWED[..], &[2 * BEYOND + 13]].concat())]),
    );
    for disk in [closed, last] {
        unclean(&disk);
        let checkpoint = format!("0\n1\nt 0 {}\n", BEYOND + 12);
        let path = Path::new("/data/recovery-point-offset-checkpoint");
        disk.write_atomically(path, checkpoint.as_bytes()).unwrap();
        let (_, log) = load(&disk).unwrap();
        assert!(log.segment_base_offsets().len() >= 3);
        assert_eq!(log.recovery_point(), 0);
        log.flush().unwrap();
        let segments = log.segments.load_full();
        assert!(!segments[0].has_dirty_indexes());
        assert_eq!(log.recovery_point(), log.log_end_offset());
    }
}

/// The process died before all indexes of a segment were durable.
#[test]
fn index_that_was_being_built_anew_is_removed_and_built_again() {
    let disk = durable_log();
    let path = path_of(20, FileKind::OffsetIndex);
    let expected = disk.read(&path).unwrap();
    let rebuilt = path.with_extension("index.rebuilt");
    disk.rename(&path, &rebuilt).unwrap();
    let (manager, log) = load(&disk).unwrap();
    assert_eq!(log.log_end_offset(), 62);
    assert!(!disk.exists(&rebuilt));
    drop(log);
    manager.shutdown(1).unwrap();
    let built = disk.read(&path).unwrap();
    assert_eq!(built[..expected.len()], expected);
}

/// Past the recovery point it may be of another time: the log ends there.
#[test]
fn offset_that_a_flipped_bit_made_large_splits_nothing() {
    let disk = disk_with(&[(0, &[0, 2, BEYOND + 4, 6, 8])]);
    unclean(&disk);
    let (manager, log) = load(&disk).unwrap();
    assert_eq!(log.segment_base_offsets(), [0]);
    assert_eq!((log.log_end_offset(), manager.known_bad_ranges()), (4, 0));
}

/// Whichever change is the last that a split makes, and whatever power loss leaves of it.
#[test]
fn split_that_is_interrupted_loses_nothing() {
    let offsets = [&OVERFLOWED[..], &[2 * BEYOND + 13]].concat();
    let mut interrupted = 0;
    for change in 0..200 {
        for loses_power in [false, true] {
            let disk = disk_with(&[(0, &offsets)]);
            unclean(&disk);
            disk.fail_from(SimOperation::AnyChange, change, std::io::ErrorKind::Other);
            interrupted += usize::from(load(&disk).is_err());
            disk.heal();
            if loses_power {
                disk.lose_power(change);
            }
            let (_, log) = load(&disk).unwrap();
            assert_eq!(offsets_of_all(&log), pairs(&offsets), "after {change} changes");
        }
    }
    assert!((20..400).contains(&interrupted), "{interrupted}");
}

/// A full disk: the start is refused with what it was at, nothing is lost, and what was written of the pieces is gone.
#[test]
fn split_without_room_loses_nothing_and_gives_back_what_it_took() {
    let offsets = [&OVERFLOWED[..], &[2 * BEYOND + 13]].concat();
    let mut refused = 0;
    for (room, is_clean) in (0..60).flat_map(|step| [(step * 64, true), (step * 64, false)]) {
        let disk = disk_with(&[(0, &offsets)]);
        if !is_clean {
            unclean(&disk);
        }
        let used = disk.used();
        disk.set_capacity(Some(used + room));
        if let Err(error) = load(&disk) {
            refused += 1;
            assert!(error.is_no_space(), "{error}");
            let text = error.to_string();
            assert!(text.contains("splitting") && text.contains("t-0"), "{text}");
            assert!(disk.used() <= used, "{} of {used} bytes with {room}", disk.used());
            // Again and again: no start takes more.
            assert!(load(&disk).is_err_and(|error| error.is_no_space()));
            assert!(disk.used() <= used);
        }
        disk.set_capacity(None);
        let (_, log) = load(&disk).unwrap();
        assert_eq!(offsets_of_all(&log), pairs(&offsets), "room of {room}");
    }
    assert!((20..120).contains(&refused), "{refused}");
}

/// The same where the disk is full for names, too, at any change.
#[test]
fn split_interrupted_by_a_full_disk_at_any_change_loses_nothing() {
    let offsets = [&OVERFLOWED[..], &[2 * BEYOND + 13]].concat();
    let mut refused = 0;
    for change in 0..200 {
        for loses_power in [false, true] {
            let disk = disk_with(&[(0, &offsets)]);
            unclean(&disk);
            disk.fail_from(SimOperation::AnyChange, change, std::io::ErrorKind::StorageFull);
            refused += usize::from(load(&disk).is_err());
            disk.heal();
            if loses_power {
                disk.lose_power(change);
            }
            let (_, log) = load(&disk).unwrap();
            assert_eq!(offsets_of_all(&log), pairs(&offsets), "after {change} changes");
        }
    }
    assert!((20..400).contains(&refused), "{refused}");
}

// ---- indexes below the recovery point, and damage

/// Three closed segments with an aborted transaction in the second one, all durable, and an active one; the process is gone.
fn durable_log() -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new());
    let manager = open(&disk);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let log = manager.get_or_create(&tp(), None, small_index_config()).unwrap();
    for _ in 0..3 {
        for _ in 0..10 {
            log.append_as_leader(&batch(2, 200, NOW), 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        log.roll().unwrap();
    }
    log.append_as_leader(&batch(2, 200, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap();
    log.flush().unwrap();
    manager.checkpoint_recovery_points().unwrap();
    disk
}

fn index_sizes(disk: &SimDisk, base_offset: i64) -> Vec<u64> {
    [FileKind::OffsetIndex, FileKind::TimeIndex]
        .map(|kind| disk.file_len(&path_of(base_offset, kind)).unwrap_or(0))
        .to_vec()
}

#[test]
fn index_that_is_built_anew_below_the_recovery_point_is_whole_or_missing_whenever_the_process_ends() {
    let expected = index_sizes(&durable_log(), 20);
    assert!(expected.iter().all(|size| *size > 0), "{expected:?}");
    let mut interrupted = 0;
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        for change in 0..60 {
            for loses_power in [false, true] {
                let disk = durable_log();
                disk.remove_file(&path_of(20, kind)).unwrap();
                disk.sync_dir(Path::new(FOLDER)).unwrap();
                disk.fail_from(SimOperation::AnyChange, change, std::io::ErrorKind::Other);
                interrupted += usize::from(load(&disk).is_err());
                disk.heal();
                if loses_power {
                    disk.lose_power(change);
                }
                let (manager, log) = load(&disk).unwrap();
                assert_eq!(log.log_end_offset(), 62);
                drop(log);
                manager.shutdown(1).unwrap();
                assert_eq!(index_sizes(&disk, 20), expected, "{kind:?}, {change} changes");
            }
        }
    }
    assert!((10..200).contains(&interrupted), "{interrupted}");
}

/// The shorter file is in memory alone until it is synced, and the second start finds nothing to cut off.
#[test]
fn index_entries_cut_off_before_two_crashes_do_not_come_back_after_a_clean_stop() {
    for batches_left in 0..3 {
        for seed in 0..20 {
            let disk = Arc::new(SimDisk::new());
            let manager = open(&disk);
            manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
            let log = manager.get_or_create(&tp(), None, small_index_config()).unwrap();
            for _ in 0..10 {
                log.append_as_leader(&batch(2, 200, NOW), 0, AppendOrigin::Client, NOW)
                    .unwrap();
            }
            manager.shutdown(1).unwrap();
            assert!(index_sizes(&disk, 0).iter().all(|size| *size > 0));
            let (_, log) = load(&disk).unwrap();
            log.truncate_to(2 * batches_left).unwrap();
            disk.crash_process();
            load(&disk).unwrap();
            disk.crash_process();
            let (manager, _) = load(&disk).unwrap();
            manager.shutdown(1).unwrap();
            disk.lose_power(seed);
            let (_, log) = load(&disk).unwrap();
            assert_eq!(log.log_end_offset(), 2 * batches_left);
            for _ in batches_left..30 {
                log.append_as_leader(&batch(2, 200, NOW), 0, AppendOrigin::Client, NOW)
                    .unwrap();
            }
            assert_eq!(offsets_of_all(&log).len(), 60, "{batches_left} left, seed {seed}");
        }
    }
}

fn damage(disk: &SimDisk, base_offset: i64, position: u64, bytes: &[u8]) {
    let path = path_of(base_offset, FileKind::Log);
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    file.write_all_at(bytes, position).unwrap();
    file.sync_data().unwrap();
}

#[test]
fn damage_that_a_recovery_finds_below_the_recovery_point_is_known_and_nothing_is_cut() {
    let size = batch(2, 200, NOW).len() as u64;
    // A bit of a value; a header; the last batch.
    for (at, bytes, bad) in [
        (3 * size + 100, &b"X"[..], 26..28),
        (3 * size, &[0xff; 61][..], 26..28),
        (9 * size + 100, &b"X"[..], 38..40),
    ] {
        let disk = durable_log();
        damage(&disk, 20, at, bytes);
        disk.remove_file(&path_of(20, FileKind::OffsetIndex)).unwrap();
        let (manager, log) = load(&disk).unwrap();
        assert_eq!((log.log_end_offset(), manager.known_bad_ranges()), (62, 1));
        for offset in 0..62 {
            let read = log.read_bytes(offset, 1, FetchIsolation::LogEnd, true);
            match read {
                Ok(_) => assert!(!bad.contains(&offset), "{offset}"),
                Err(error) => {
                    assert!(matches!(error, LogError::CorruptRecord { .. }), "{error}");
                    assert!(bad.contains(&offset), "{offset}: {error}");
                }
            }
        }
        assert_eq!(disk.file_len(&path_of(20, FileKind::Log)).unwrap(), 10 * size);
        // The next start trusts the index again, and the scrub finds what it does not look at.
        drop(log);
        manager.shutdown(1).unwrap();
        let (manager, log) = load(&disk).unwrap();
        assert_eq!((log.log_end_offset(), manager.known_bad_ranges()), (62, 0));
        assert_eq!(manager.scrub(0, &|_| true).damaged, 1);
    }
}

#[test]
fn damaged_header_hinders_no_start_that_reads_producers_from_the_segment() {
    let disk = durable_log();
    let size = batch(2, 200, NOW).len() as u64;
    damage(&disk, 20, 3 * size, &[0xff; 61]);
    for name in names(&disk) {
        if name.ends_with(".snapshot") {
            disk.remove_file(&Path::new(FOLDER).join(name)).unwrap();
        }
    }
    let (_, log) = load(&disk).unwrap();
    assert_eq!(log.log_end_offset(), 62);
}

/// Whatever an index says: no record is passed over, the log ends where it ended, and the index is as it was in the end.
#[test]
fn index_that_names_wrong_places_is_built_anew_and_nothing_else_suffers() {
    let place = |relative: u32, position: u32| [relative.to_be_bytes(), position.to_be_bytes()].concat();
    let behind_the_end = [place(1, 1_000_000), place(3, 2_000_000)].concat();
    let inside_a_batch = [place(1, 33), place(9, 1_111)].concat();
    let later_batches = [place(1, 9 * batch(2, 200, NOW).len() as u32)].concat();
    for garbage in [behind_the_end, inside_a_batch, later_batches, vec![0xff; 800]] {
        for base_offset in [20, 60] {
            let disk = durable_log();
            let (manager, log) = load(&disk).unwrap();
            for _ in 0..9 {
                log.append_as_leader(&batch(2, 200, NOW), 0, AppendOrigin::Client, NOW)
                    .unwrap();
            }
            drop(log);
            manager.shutdown(1).unwrap();
            let path = path_of(base_offset, FileKind::OffsetIndex);
            let expected = disk.read(&path).unwrap();
            let file = disk.open(&path, OpenMode::CreateTruncate).unwrap();
            file.write_all_at(&garbage, 0).unwrap();

            let (manager, log) = load(&disk).unwrap();
            assert_eq!(log.log_end_offset(), 80);
            for offset in 0..80 {
                let bytes = log.read_bytes(offset, 1, FetchIsolation::LogEnd, true).unwrap();
                let (header, _) = Batches::of_bytes(&bytes).next().unwrap().unwrap();
                assert_eq!(header.base_offset, offset / 2 * 2, "{garbage:?}");
            }
            log.append_as_leader(&batch(2, 200, NOW), 0, AppendOrigin::Client, NOW)
                .unwrap();
            manager.run_roll_flushes();
            drop(log);
            manager.shutdown(1).unwrap();
            let built = disk.read(&path).unwrap();
            assert_eq!(built[..expected.len()], expected, "{base_offset} {garbage:?}");
        }
    }
}

/// Record n has the time NOW + n.
fn append_timed(log: &UnifiedLog) -> Result<(), LogError> {
    let timestamp = NOW + log.log_end_offset();
    log.append_as_leader(&batch(2, 200, timestamp), 0, AppendOrigin::Client, NOW)?;
    Ok(())
}

/// Batches of two such records up to 78, a segment for 20, after a clean end.
fn timed_log() -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new());
    let manager = open(&disk);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let log = manager.get_or_create(&tp(), None, small_index_config()).unwrap();
    for number in 0..39 {
        if number > 0 && number % 10 == 0 {
            log.roll().unwrap();
        }
        append_timed(&log).unwrap();
    }
    drop(log);
    manager.shutdown(1).unwrap();
    disk
}

/// Whatever a time index says of a clean end: look-ups by time, retention and appends are right, and it is built anew.
#[test]
fn time_index_that_names_wrong_times_is_built_anew_and_nothing_else_suffers() {
    let entry =
        |timestamp: i64, relative: i32| [&timestamp.to_be_bytes()[..], &relative.to_be_bytes()].concat();
    let too_early = entry(5, 19);
    let too_late = [entry(NOW + 1, 1), entry(i64::MAX, i32::MAX)].concat();
    let elsewhere = [entry(NOW + 1_000, 17), entry(NOW + 1_001, 19)].concat();
    let negative = [entry(-7, -3), entry(-5, -2)].concat();
    for garbage in [
        too_early,
        too_late,
        elsewhere,
        negative,
        vec![0xff; 600],
        Vec::new(),
    ] {
        for base_offset in [20, 60] {
            let disk = timed_log();
            let path = path_of(base_offset, FileKind::TimeIndex);
            let expected = disk.read(&path).unwrap();
            let file = disk.open(&path, OpenMode::CreateTruncate).unwrap();
            file.write_all_at(&garbage, 0).unwrap();

            let (manager, log) = load(&disk).unwrap();
            for offset in 0..78 {
                let found = log.offset_for_timestamp(NOW + offset).unwrap().unwrap();
                assert_eq!(
                    (found.offset, found.timestamp),
                    (offset, NOW + offset),
                    "{garbage:?}"
                );
            }
            assert_eq!(log.offset_for_timestamp(NOW + 78).unwrap(), None);
            let latest = log.offset_of_max_timestamp().unwrap().unwrap();
            assert_eq!(latest.offset, 77);
            // Nothing is old, whatever the index says.
            let mut config = small_index_config();
            config.retention_ms = 60_000;
            log.update_config(config);
            log.update_high_watermark(78);
            assert_eq!(log.delete_old_segments(NOW + 40).unwrap(), 0, "{garbage:?}");
            manager.run_roll_flushes();
            (0..4).for_each(|_| append_timed(&log).unwrap());
            log.roll().unwrap();
            append_timed(&log).unwrap();
            let found = log.offset_for_timestamp(NOW + 80).unwrap().unwrap();
            assert_eq!(found.offset, 80);
            drop(log);
            manager.shutdown(1).unwrap();
            // One in the middle is built by the start after a clean end.
            let (manager, log) = load(&disk).unwrap();
            assert_eq!(log.offset_for_timestamp(NOW + 25).unwrap().unwrap().offset, 25);
            drop(log);
            manager.shutdown(1).unwrap();
            let built = disk.read(&path).unwrap();
            let kept = expected.len() - usize::from(base_offset == 60) * 12;
            assert_eq!(built[..kept], expected[..kept], "{base_offset} {garbage:?}");
        }
    }
}

/// Whichever change is the last, a look-up by time and retention never believe half of an index.
#[test]
fn time_index_that_is_built_anew_is_never_believed_before_it_is_whole() {
    let mut interrupted = 0;
    for change in 0..120 {
        for loses_power in [false, true] {
            let disk = timed_log();
            let file = disk
                .open(&path_of(20, FileKind::TimeIndex), OpenMode::CreateTruncate)
                .unwrap();
            file.write_all_at(&[0xff; 600], 0).unwrap();
            file.sync_data().unwrap();
            disk.fail_from(SimOperation::AnyChange, change, std::io::ErrorKind::Other);
            let run = || -> Result<(), LogError> {
                for _ in 0..2 {
                    let (manager, log) = load(&disk)?;
                    assert_eq!(log.offset_for_timestamp(NOW + 39)?.unwrap().offset, 39);
                    append_timed(&log)?;
                    manager.run_roll_flushes();
                    drop(log);
                    manager.shutdown(1)?;
                }
                Ok(())
            };
            interrupted += usize::from(run().is_err());
            disk.heal();
            if loses_power {
                disk.lose_power(change);
            }
            let (_, log) = load(&disk).unwrap();
            for offset in 0..78 {
                let found = log.offset_for_timestamp(NOW + offset).unwrap().unwrap();
                assert_eq!(found.offset, offset, "after {change} changes");
            }
            let mut config = small_index_config();
            config.retention_ms = 60_000;
            log.update_config(config);
            log.update_high_watermark(78);
            // The last record of the second segment is of NOW + 39: no younger than that is too old.
            assert_eq!(
                log.delete_old_segments(NOW + 60_019).unwrap(),
                0,
                "after {change}"
            );
            assert_eq!(
                log.delete_old_segments(NOW + 60_039).unwrap(),
                1,
                "after {change}"
            );
        }
    }
    assert!((10..240).contains(&interrupted), "{interrupted}");
}

/// No checksum is over a batch's offset: a bit that flipped there makes no index worse, and appends go on.
#[test]
fn damaged_offset_in_the_active_segment_hinders_no_append_behind_a_wrong_index() {
    for wrong in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        let disk = timed_log();
        let size = batch(2, 200, NOW).len() as u64;
        damage(&disk, 60, 3 * size + 2, &[1]);
        let garbage = match wrong {
            FileKind::OffsetIndex => vec![0, 0, 0, 1, 0, 0, 0, 33],
            _ => vec![0xff; 600],
        };
        let file = disk.open(&path_of(60, wrong), OpenMode::CreateTruncate).unwrap();
        file.write_all_at(&garbage, 0).unwrap();

        let (manager, log) = load(&disk).unwrap();
        let end = log.log_end_offset();
        for _ in 0..9 {
            let _ = log.read_bytes(end - 2, 1, FetchIsolation::LogEnd, true);
            let _ = log.offset_for_timestamp(NOW + 77);
            append_timed(&log).unwrap();
        }
        log.roll().unwrap();
        append_timed(&log).unwrap();
        assert_eq!(log.log_end_offset(), end + 20);
        drop(log);
        manager.shutdown(1).unwrap();
    }
}

/// Files that were changed after a clean end: what is acknowledged from then on is read, and is there after a kill.
#[test]
fn log_that_is_not_as_its_clean_end_left_it_is_recovered_before_anything_is_appended() {
    let size = batch(2, 200, NOW).len() as u64;
    let (last, end) = (8 * size, 9 * size);
    let flipped = |at: u64, bit: u8| {
        move |disk: &SimDisk| {
            let path = path_of(60, FileKind::Log);
            let byte = disk.read(&path).unwrap()[at as usize] ^ bit;
            damage(disk, 60, at, &[byte]);
        }
    };
    let written = |at: u64, bytes: Vec<u8>| move |disk: &SimDisk| damage(disk, 60, at, &bytes);
    type Change = Box<dyn Fn(&SimDisk)>;
    let cases: Vec<(&str, i64, Change)> = vec![
        (
            "a few bytes more",
            78,
            Box::new(written(end, vec![1, 2, 3, 4, 5])),
        ),
        ("zeros", 78, Box::new(written(end, vec![0; 4096]))),
        (
            "half a batch",
            78,
            Box::new(written(end, batch(2, 200, NOW)[..200].to_vec())),
        ),
        ("a larger size", 76, Box::new(flipped(last + 8, 0x40))),
        ("a size a little larger", 76, Box::new(flipped(last + 11, 4))),
        ("a negative size", 76, Box::new(flipped(last + 8, 0x80))),
        ("another format", 76, Box::new(flipped(last + 16, 0x80))),
        ("an offset of before", 76, Box::new(flipped(last + 7, 64))),
        ("an offset far away", 76, Box::new(flipped(last, 0x40))),
        (
            "a batch lost",
            76,
            Box::new(move |disk: &SimDisk| {
                let file = disk
                    .open(&path_of(60, FileKind::Log), OpenMode::ReadWrite)
                    .unwrap();
                file.set_len(last).unwrap();
            }),
        ),
    ];
    for (name, left, change) in cases {
        let disk = timed_log();
        change(&disk);
        let (manager, log) = load(&disk).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(log.log_end_offset(), left, "{name}");
        (0..3).for_each(|_| append_timed(&log).unwrap());
        let expected: Vec<i64> = (0..left + 6).collect();
        assert_eq!(offsets_of_all(&log), expected, "{name}");
        // Killed.
        drop((manager, log));
        let (_, log) = load(&disk).unwrap();
        assert_eq!(offsets_of_all(&log), expected, "{name}");
    }
}

#[test]
fn clean_start_recovers_nothing_with_and_without_checkpoints() {
    for has_checkpoint in [true, false] {
        let disk = timed_log();
        if !has_checkpoint {
            disk.remove_file(Path::new("/data/recovery-point-offset-checkpoint"))
                .unwrap();
        }
        // A recovery would build it.
        let path = path_of(60, FileKind::OffsetIndex);
        let before = disk.read(&path).unwrap();
        let file = disk.open(&path, OpenMode::CreateTruncate).unwrap();
        file.write_all_at(&before[..8], 0).unwrap();
        let (_, log) = load(&disk).unwrap();
        assert_eq!(log.log_end_offset(), 78);
        assert_eq!(disk.read(&path).unwrap()[..], before[..8]);
    }
}

/// A segment that a clean start builds indexes for says nothing against what snapshots behind it tell of producers, nor if all of
/// it lies below the log's start.
#[test]
fn producers_are_known_after_a_clean_start_that_builds_an_index_anew() {
    for (missing, start) in [(0, 0), (20, 0), (40, 0), (0, 50), (20, 50), (40, 50)] {
        let disk = timed_log();
        let (manager, log) = load(&disk).unwrap();
        log.update_high_watermark(78);
        log.maybe_increment_log_start_offset(start).unwrap();
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: 0,
            ..BatchOptions::default()
        });
        builder.append(NOW + 78, None, Some(b"once"), &[]);
        let bytes = builder.build().unwrap();
        log.append_as_leader(&bytes, 0, AppendOrigin::Client, NOW)
            .unwrap();
        drop(log);
        manager.shutdown(1).unwrap();
        disk.remove_file(&path_of(missing, FileKind::OffsetIndex))
            .unwrap();
        let (_, log) = load(&disk).unwrap();
        let again = log
            .append_as_leader(&bytes, 0, AppendOrigin::Client, NOW)
            .unwrap();
        assert!(again.duplicate, "{missing}");
        assert_eq!(again.first_offset, 78);
    }
}
