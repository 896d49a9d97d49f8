//! Damage that no checksum shows, after a clean end and after a crash.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::*;
use crate::io::disk::{Disk, OpenMode};
use crate::io::sim_disk::SimDisk;
use crate::log::log_manager_test::{TestClock, batch, config_with, open_manager};
use crate::log::{AbortedTransaction, FetchIsolation, LogManager};
use crate::record::control_record::{ControlRecordType, EndTransactionMarker, control_batch};
use crate::record::{BatchBuilder, BatchHeader, BatchOptions};

const NOW: i64 = 1_700_000_000_000;

fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn open(disk: &Arc<SimDisk>) -> Arc<LogManager> {
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &[PathBuf::from("/data")]);
    Arc::new(manager)
}

fn load(disk: &Arc<SimDisk>) -> (Arc<LogManager>, Arc<UnifiedLog>) {
    let manager = open(disk);
    manager
        .load_logs(&|_| config_with(&[("index.interval.bytes", "300")]), &|_| false)
        .unwrap();
    let log = manager.get(&tp()).unwrap();
    (manager, log)
}

fn new_log(disk: &Arc<SimDisk>) -> (Arc<LogManager>, Arc<UnifiedLog>) {
    let manager = open(disk);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let config = config_with(&[("index.interval.bytes", "300")]);
    let log = manager.get_or_create(&tp(), None, config).unwrap();
    (manager, log)
}

fn path_of(base_offset: i64, kind: FileKind) -> PathBuf {
    Path::new("/data/t-0").join(file_name(base_offset, kind))
}

// ---- aborted transactions

fn in_transaction(producer_id: i64) -> BatchOptions {
    BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    }
}

fn transactional(producer_id: i64) -> Bytes {
    let mut builder = BatchBuilder::new(in_transaction(producer_id));
    builder.append(NOW, Some(b"k"), Some(b"v"), &[]);
    builder.build().unwrap()
}

fn abort(producer_id: i64) -> Bytes {
    let control_type = ControlRecordType::Abort;
    let value = EndTransactionMarker {
        control_type,
        coordinator_epoch: 0,
    }
    .value();
    let options = BatchOptions {
        base_sequence: -1,
        ..in_transaction(producer_id)
    };
    control_batch(options, control_type, &value, NOW).unwrap()
}

/// Two closed segments with two aborted transactions each, and an active one.
fn log_with_aborted_transactions(disk: &Arc<SimDisk>) -> (Arc<LogManager>, Arc<UnifiedLog>) {
    let (manager, log) = new_log(disk);
    for segment in 0..2 {
        for producer_id in [2 * segment, 2 * segment + 1] {
            for (bytes, origin) in [
                (transactional(producer_id), AppendOrigin::Client),
                (abort(producer_id), AppendOrigin::Coordinator),
            ] {
                log.append_as_leader(&bytes, 0, origin, NOW).unwrap();
            }
        }
        log.roll().unwrap();
    }
    log.append_as_leader(&batch(2, 50, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap();
    log.update_high_watermark(log.log_end_offset());
    (manager, log)
}

fn aborted(log: &UnifiedLog) -> Result<Vec<AbortedTransaction>, LogError> {
    log.update_high_watermark(log.log_end_offset());
    let mut found = Vec::new();
    for offset in [0, 4] {
        let info = log.read(offset, 1 << 20, FetchIsolation::TxnCommitted, true)?;
        found.extend(info.aborted_transactions.unwrap());
    }
    Ok(found)
}

/// Of an entry, its version and the fields from behind it.
fn garbage() -> Vec<(&'static str, u64, Vec<u8>)> {
    let number = |number: i64| number.to_be_bytes().to_vec();
    vec![
        ("version", 0, vec![0x40, 0]),
        ("producer", 2, number(-7)),
        ("first offset", 10, number(77)),
        ("last offset", 18, number(77)),
        ("last offset of before", 18, number(-1)),
        ("last stable offset", 26, number(77)),
        ("all", 0, vec![0xff; 34]),
        ("zeros", 0, vec![0; 34]),
    ]
}

#[test]
fn transaction_index_with_entries_that_cannot_be_is_built_anew() {
    for entry in 0..2 {
        for (what, at, bytes) in garbage() {
            for is_clean in [true, false] {
                let disk = Arc::new(SimDisk::new());
                let (manager, log) = log_with_aborted_transactions(&disk);
                let expected = aborted(&log).unwrap();
                assert_eq!(expected.len(), 4);
                let path = path_of(4, FileKind::TransactionIndex);
                let whole = disk.read(&path).unwrap();
                drop(log);
                manager.shutdown(1).unwrap();
                if !is_clean {
                    disk.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
                }
                let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
                file.write_all_at(&bytes, entry * 34 + at).unwrap();
                let (_, log) = load(&disk);
                assert_eq!(
                    aborted(&log).unwrap(),
                    expected,
                    "{what} of {entry}, clean: {is_clean}"
                );
                assert_eq!(
                    disk.read(&path).unwrap(),
                    whole,
                    "{what} of {entry}, clean: {is_clean}"
                );
            }
        }
    }
}

/// Nobody reads what was aborted as if it were not, and nothing else suffers.
#[test]
fn transaction_index_that_is_damaged_under_way_is_not_believed() {
    for (what, at, bytes) in garbage() {
        if what == "last offset" || what == "first offset" {
            // That the segment has no such offsets is the start's to see.
            continue;
        }
        let disk = Arc::new(SimDisk::new());
        let (manager, log) = log_with_aborted_transactions(&disk);
        let path = path_of(4, FileKind::TransactionIndex);
        let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
        file.write_all_at(&bytes, at).unwrap();
        let error = aborted(&log).unwrap_err();
        assert!(matches!(error, LogError::CorruptRecord { .. }), "{what}: {error}");
        assert!(manager.is_log_dir_online(Path::new("/data")), "{what}");
        let bytes = log.read_bytes(4, 1 << 20, FetchIsolation::HighWatermark, true);
        assert_eq!(BatchHeader::parse(&bytes.unwrap()).unwrap().base_offset, 4);
    }
}

// ---- offsets of batches

/// Two closed segments of ten batches of two records, and an active one of five. Nothing is flushed, and the process is gone.
fn log_of_batches() -> (Arc<SimDisk>, u64) {
    let disk = Arc::new(SimDisk::new());
    let (_manager, log) = new_log(&disk);
    let bytes = batch(2, 50, NOW);
    for number in 0..25 {
        log.append_as_leader(&bytes, 0, AppendOrigin::Client, NOW)
            .unwrap();
        if number == 9 || number == 19 {
            log.roll().unwrap();
        }
    }
    disk.crash_process();
    (disk, bytes.len() as u64)
}

/// The same, all flushed, of which a start builds the index of one segment anew.
fn flushed_log_of_batches(without_index: i64) -> (Arc<SimDisk>, u64) {
    let (disk, size) = log_of_batches();
    let (manager, log) = load(&disk);
    log.flush().unwrap();
    manager.checkpoint_recovery_points().unwrap();
    drop((manager, log));
    disk.crash_process();
    disk.remove_file(&path_of(without_index, FileKind::OffsetIndex))
        .unwrap();
    (disk, size)
}

fn flip(disk: &SimDisk, base_offset: i64, at: u64, bit: u64) {
    let path = path_of(base_offset, FileKind::Log);
    disk.flip_bit(&path, 8 * (at + 7 - bit / 8) + bit % 8).unwrap();
}

fn assert_bad(log: &UnifiedLog, bad: std::ops::Range<i64>, what: &str) {
    for offset in 0..log.log_end_offset() {
        match log.read_bytes(offset, 1, FetchIsolation::LogEnd, true) {
            Ok(bytes) => {
                let header = BatchHeader::parse(&bytes).unwrap();
                let offsets = header.base_offset..=header.last_offset();
                assert!(offsets.contains(&offset), "{what}: {offset} in {offsets:?}");
                assert!(!bad.contains(&offset), "{what}: {offset}");
            }
            Err(error) => {
                assert!(matches!(error, LogError::CorruptRecord { .. }), "{what}: {error}");
                assert!(bad.contains(&offset), "{what}: {offset}: {error}");
            }
        }
    }
}

/// What was not flushed may be of another time, brought back by power loss: the log ends where offsets go back, with nothing that was behind.
#[test]
fn offset_that_goes_back_ends_a_log_that_was_not_flushed() {
    for number in 0..24 {
        for bit in 0..64 {
            let (disk, size) = log_of_batches();
            let base_offset = number / 10 * 20;
            flip(&disk, base_offset as i64, number % 10 * size, bit);
            let what = format!("batch {number}, bit {bit}");
            let (manager, log) = load(&disk);
            let first = number as i64 * 2;
            let moved = first ^ (1_i64 << bit);
            // Taken for one behind a gap; the next one tells.
            let is_kept = moved > first && moved < 1 << 31;
            let end = if is_kept { moved + 2 } else { first };
            assert_eq!(log.log_end_offset(), end, "{what}");
            assert_eq!(manager.known_bad_ranges(), 0, "{what}");
            for offset in 0..first {
                assert!(log.read_bytes(offset, 1, FetchIsolation::LogEnd, true).is_ok());
            }
            log.append_as_leader(&batch(2, 50, NOW), 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
    }
}

/// Behind the last batch nothing tells: one that is lower than what is in front of it ends the log there, a larger one is kept.
#[test]
fn last_offset_that_a_flipped_bit_changed_loses_no_other_batch() {
    for bit in 0..64 {
        let (disk, size) = log_of_batches();
        flip(&disk, 40, 4 * size, bit);
        let (_, log) = load(&disk);
        let moved = 48_i64 ^ (1 << bit);
        let is_kept = moved > 48 && moved < 1 << 31;
        let end = if is_kept { moved + 2 } else { 48 };
        assert_eq!(log.log_end_offset(), end, "bit {bit}");
        for offset in 0..48 {
            assert!(log.read_bytes(offset, 1, FetchIsolation::LogEnd, true).is_ok());
        }
    }
}

#[test]
fn offset_that_a_flipped_bit_changed_costs_its_batch_alone_where_an_index_is_built_anew() {
    for number in 0..10 {
        for bit in 0..64 {
            let disk = Arc::new(SimDisk::new());
            let (manager, log) = new_log(&disk);
            let bytes = batch(2, 50, NOW);
            for _ in 0..10 {
                log.append_as_leader(&bytes, 0, AppendOrigin::Client, NOW)
                    .unwrap();
            }
            log.roll().unwrap();
            drop(log);
            manager.shutdown(1).unwrap();
            disk.remove_file(&path_of(0, FileKind::OffsetIndex)).unwrap();
            flip(&disk, 0, number * bytes.len() as u64, bit);
            let what = format!("batch {number}, bit {bit}");
            let (manager, log) = load(&disk);
            assert_eq!(
                (log.log_end_offset(), manager.known_bad_ranges()),
                (20, 1),
                "{what}"
            );
            let first = number as i64 * 2;
            assert_bad(&log, first..first + 2, &what);
        }
    }
}

/// What is appended to the places of damaged batches is not damaged.
#[test]
fn damage_goes_with_what_a_truncation_removes() {
    for target in [3, 6, 7, 8, 15] {
        let (disk, size) = flushed_log_of_batches(0);
        flip(&disk, 0, 3 * size, 5);
        let (manager, log) = load(&disk);
        assert_eq!(manager.known_bad_ranges(), 1);
        log.truncate_to(target).unwrap();
        assert_eq!(log.log_end_offset(), target);
        for _ in 0..10 {
            log.append_as_leader(&batch(2, 50, NOW), 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        assert_eq!(manager.known_bad_ranges(), usize::from(target >= 8), "{target}");
        for offset in target..log.log_end_offset() {
            let read = log.read_bytes(offset, 1, FetchIsolation::LogEnd, true);
            assert!(read.is_ok(), "{target}: {offset}");
        }
    }
}

/// The scrub reads closed segments alone, and a clean start none.
#[test]
fn damage_of_the_active_segment_is_found_again_after_a_clean_restart() {
    let (disk, size) = flushed_log_of_batches(40);
    flip(&disk, 40, 2 * size, 20);
    let (manager, log) = load(&disk);
    assert_eq!((log.log_end_offset(), manager.known_bad_ranges()), (50, 1));
    assert_bad(&log, 44..46, "after the crash");
    drop(log);
    manager.shutdown(1).unwrap();
    let (manager, log) = load(&disk);
    assert_eq!(manager.scrub(0, &|_| true).damaged, 1);
    assert_bad(&log, 44..46, "after the clean end");
    assert_eq!(log.log_end_offset(), 50);
    // Nothing is closed in vain.
    let segments = log.number_of_segments();
    drop(log);
    drop(manager);
    disk.crash_process();
    let (_manager, log) = load(&disk);
    assert_eq!(log.number_of_segments(), segments);
}

#[test]
fn producers_behind_an_offset_that_a_flipped_bit_raised_are_known() {
    for bit in 3..60 {
        let disk = Arc::new(SimDisk::new());
        let (manager, log) = new_log(&disk);
        log.append_as_leader(&batch(2, 50, NOW), 0, AppendOrigin::Client, NOW)
            .unwrap();
        log.append_as_leader(&transactional(1), 0, AppendOrigin::Client, NOW)
            .unwrap();
        log.roll().unwrap();
        let position = batch(2, 50, NOW).len() as u64;
        for _ in 0..2 {
            log.append_as_leader(&batch(2, 50, NOW), 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        log.append_as_leader(&transactional(2), 0, AppendOrigin::Client, NOW)
            .unwrap();
        drop(log);
        manager.shutdown(1).unwrap();
        disk.remove_file(&path_of(8, FileKind::ProducerSnapshot)).unwrap();
        flip(&disk, 3, position, bit);
        let (_manager, log) = load(&disk);
        let producers = log.active_producers().len();
        assert_eq!((log.log_end_offset(), producers), (8, 2), "bit {bit}");
    }
}

/// Batches behind one that seems to go beyond the file are not passed over.
#[test]
fn time_is_not_looked_for_behind_a_batch_that_is_cut_off() {
    let disk = Arc::new(SimDisk::new());
    let (_manager, log) = new_log(&disk);
    for number in 0..10 {
        log.append_as_leader(&batch(2, 50, NOW + 10 * number), 0, AppendOrigin::Client, NOW)
            .unwrap();
        if number == 4 {
            log.roll().unwrap();
        }
    }
    let size = batch(2, 50, NOW).len() as u64;
    let file = disk
        .open(&path_of(0, FileKind::Log), OpenMode::ReadWrite)
        .unwrap();
    file.write_all_at(&[0x40], 3 * size + 8).unwrap();
    assert_eq!(log.offset_for_timestamp(NOW + 20).unwrap().unwrap().offset, 4);
    assert_eq!(log.offset_for_timestamp(NOW + 50).unwrap().unwrap().offset, 10);
    let error = log.offset_for_timestamp(NOW + 40).unwrap_err();
    assert!(matches!(error, LogError::CorruptRecord { .. }), "{error}");
}
