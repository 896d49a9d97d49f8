use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::*;
use crate::io::disk::{Disk, OpenMode};
use crate::io::sim_disk::SimDisk;
use crate::log::log_manager_test::{TestClock, batch, config_with, open_manager};
use crate::log::{AppendOrigin, FetchIsolation, LogConfig, TopicPartition};

const NOW: i64 = 1_700_000_000_000;
const LOG: &str = "/data/t-0/00000000000000000000.log";

fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// Batches of two records, ten in each of two closed segments, then an active one.
fn log_of_three_segments() -> (Arc<SimDisk>, Arc<LogManager>, Arc<UnifiedLog>) {
    let disk = Arc::new(SimDisk::new());
    let dirs = [PathBuf::from("/data")];
    let manager = Arc::new(open_manager(disk.clone(), TestClock::at(NOW), &dirs));
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let config = config_with(&[("index.interval.bytes", "300")]);
    let log = manager.get_or_create(&tp(), None, config).unwrap();
    for _ in 0..2 {
        for _ in 0..10 {
            log.append_as_leader(&batch(2, 50, NOW), 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        log.roll().unwrap();
    }
    log.append_as_leader(&batch(2, 50, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap();
    log.update_high_watermark(log.log_end_offset());
    (disk, manager, log)
}

fn batch_size() -> u64 {
    batch(2, 50, NOW).len() as u64
}

fn damage(disk: &SimDisk, position: u64, bytes: &[u8]) {
    let file = disk.open(Path::new(LOG), OpenMode::ReadWrite).unwrap();
    file.write_all_at(bytes, position).unwrap();
}

fn all(_: u64) -> bool {
    true
}

fn read(log: &UnifiedLog, offset: i64) -> Result<usize, LogError> {
    log.read_bytes(offset, 1_000_000, FetchIsolation::HighWatermark, true)
        .map(|bytes| bytes.len())
}

#[test]
fn log_without_damage_is_read_once_in_an_interval_and_the_active_segment_never() {
    let (_, manager, log) = log_of_three_segments();
    let stats = manager.scrub(1_000, &all);
    let expected = ScrubStats {
        segments: 2,
        bytes: 20 * batch_size(),
        damaged: 0,
    };
    assert_eq!(stats, expected);
    assert_eq!(manager.scrub(1_000, &all), ScrubStats::default());
    log.roll().unwrap();
    assert_eq!(manager.scrub(1_000, &all).segments, 1);
    assert_eq!(manager.scrub(0, &all).segments, 3);
}

#[test]
fn fetches_of_a_damaged_batch_are_refused_and_all_others_go_on() {
    let (disk, manager, log) = log_of_three_segments();
    // A bit of the values of the batch of offsets 6 and 7.
    damage(&disk, 3 * batch_size() + 100, b"X");
    assert!(read(&log, 6).is_ok());
    assert_eq!(manager.scrub(1_000, &all).damaged, 1);
    assert_eq!(manager.known_bad_ranges(), 1);
    for offset in [6, 7] {
        let error = read(&log, offset).unwrap_err();
        assert!(
            matches!(&error, LogError::CorruptRecord { reason } if reason.contains("Offsets 6 to 7 of t-0")),
            "{error}"
        );
    }
    // Up to it, behind it, in other segments.
    assert_eq!(read(&log, 0).unwrap() as u64, 3 * batch_size());
    assert_eq!(read(&log, 5).unwrap() as u64, batch_size());
    assert_eq!(read(&log, 8).unwrap() as u64, 6 * batch_size());
    assert_eq!(read(&log, 20).unwrap() as u64, 10 * batch_size());
    // Found again, it is no news.
    assert_eq!(manager.scrub(0, &all).damaged, 0);
    assert_eq!(manager.known_bad_ranges(), 1);
}

#[test]
fn header_that_makes_no_sense_is_passed_over_up_to_the_next_whole_batch() {
    let (disk, manager, log) = log_of_three_segments();
    damage(&disk, 3 * batch_size(), &[0xff; 61]);
    assert_eq!(manager.scrub(1_000, &all).damaged, 1);
    assert!(read(&log, 6).is_err());
    assert_eq!(read(&log, 0).unwrap() as u64, 3 * batch_size());
    // Right behind it all is well.
    let stats = manager.scrub(0, &all);
    assert_eq!((stats.damaged, stats.bytes), (0, 20 * batch_size()));
    assert!(read(&log, 7).is_err());
    assert_eq!(read(&log, 8).unwrap() as u64, 6 * batch_size());
}

#[test]
fn damaged_end_of_a_segment_ends_with_it() {
    let (disk, manager, log) = log_of_three_segments();
    damage(&disk, 9 * batch_size() + 100, b"X");
    assert_eq!(manager.scrub(1_000, &all).damaged, 1);
    assert!(read(&log, 18).is_err());
    assert!(read(&log, 20).is_ok());
}

#[test]
fn damage_goes_with_its_segment() {
    let (disk, manager, log) = log_of_three_segments();
    damage(&disk, 100, b"X");
    manager.scrub(1_000, &all);
    assert_eq!(manager.known_bad_ranges(), 1);
    log.maybe_increment_log_start_offset(20).unwrap();
    assert_eq!(log.delete_old_segments(NOW).unwrap(), 1);
    manager.scrub(1_000, &all);
    assert_eq!(manager.known_bad_ranges(), 0);
    assert!(read(&log, 20).is_ok());
}

#[test]
fn scrub_that_is_ended_begins_with_the_same_segment() {
    let (_, manager, _log) = log_of_three_segments();
    let left = Cell::new(3);
    let gate = |_| {
        left.set(left.get() - 1);
        left.get() > 0
    };
    let stats = manager.scrub(1_000, &gate);
    assert_eq!((stats.segments, stats.bytes), (1, 3 * batch_size()));
    assert_eq!(manager.scrub(1_000, &all).segments, 2);
}

fn flip(disk: &SimDisk, position: u64, bit: u8) {
    let byte = disk.read(Path::new(LOG)).unwrap()[position as usize] ^ bit;
    damage(disk, position, &[byte]);
}

/// All offsets but those of one batch answer with a batch that holds them.
fn assert_bad(log: &UnifiedLog, bad: std::ops::Range<i64>, what: &str) {
    for offset in 0..log.log_end_offset() {
        let read = log.read_bytes(offset, 1, FetchIsolation::HighWatermark, true);
        match read {
            Ok(bytes) => {
                assert!(!bad.contains(&offset), "{what}: {offset}");
                let header = crate::record::BatchHeader::parse(&bytes).unwrap();
                let offsets = header.base_offset..=header.last_offset();
                assert!(offsets.contains(&offset), "{what}: {offset} in {offsets:?}");
            }
            Err(error) => {
                assert!(matches!(error, LogError::CorruptRecord { .. }), "{what}: {error}");
                assert!(bad.contains(&offset), "{what}: {offset}: {error}");
            }
        }
    }
}

/// No checksum is over a batch's first eight bytes.
#[test]
fn base_offset_that_a_flipped_bit_changed_is_found_wherever_it_is() {
    for number in 0..10 {
        for bit in 0..64 {
            let (disk, manager, log) = log_of_three_segments();
            flip(&disk, number * batch_size() + 7 - bit / 8, 1 << (bit % 8));
            let what = format!("batch {number}, bit {bit}");
            assert_eq!(manager.scrub(1_000, &all).damaged, 1, "{what}");
            let first = number as i64 * 2;
            assert_bad(&log, first..first + 2, &what);
            assert_eq!(manager.scrub(0, &all).damaged, 0, "{what}");
        }
    }
}

/// Nor over its size.
#[test]
fn size_that_a_flipped_bit_changed_is_found_and_hides_no_batch() {
    for number in 0..10 {
        for bit in 0..32 {
            let (disk, manager, log) = log_of_three_segments();
            flip(&disk, number * batch_size() + 11 - bit / 8, 1 << (bit % 8));
            let what = format!("batch {number}, bit {bit}");
            assert_eq!(manager.scrub(1_000, &all).damaged, 1, "{what}");
            let first = number as i64 * 2;
            assert_bad(&log, first..first + 2, &what);
        }
    }
}

#[test]
fn batch_that_would_end_behind_its_file_is_not_passed_over() {
    for number in 0..10 {
        let (disk, _manager, log) = log_of_three_segments();
        damage(&disk, number * batch_size() + 8, &[0x40]);
        let first = number as i64 * 2;
        for offset in [first, first + 1] {
            let error = read(&log, offset).unwrap_err();
            assert!(
                matches!(error, LogError::CorruptRecord { .. }),
                "{offset}: {error}"
            );
        }
        assert_eq!(read(&log, 20).unwrap() as u64, 10 * batch_size());
    }
}

#[test]
fn high_watermark_in_a_damaged_batch_hides_nothing_in_front_of_it() {
    let (disk, manager, log) = log_of_three_segments();
    damage(&disk, 3 * batch_size() + 100, b"X");
    drop(log);
    manager.scrub(1_000, &all);
    let log = manager.get(&tp()).unwrap();
    log.high_watermark
        .store(crate::log::LogOffsetMetadata::offset_only(7));
    assert_eq!(read(&log, 0).unwrap() as u64, 3 * batch_size());
    assert!(read(&log, 6).is_err());
}

fn log_of(disk: &Arc<SimDisk>) -> (Arc<LogManager>, Arc<UnifiedLog>) {
    let dirs = [PathBuf::from("/data")];
    let manager = Arc::new(open_manager(disk.clone(), TestClock::at(NOW), &dirs));
    let config = config_with(&[("index.interval.bytes", "300")]);
    manager.load_logs(&|_| config.clone(), &|_| false).unwrap();
    let log = manager.get_or_create(&tp(), None, config.clone()).unwrap();
    (manager, log)
}

fn write(disk: &SimDisk, path: &str, bytes: &[u8]) {
    let file = disk.open(Path::new(path), OpenMode::ReadWrite).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

/// Batches of ten records as compaction leaves them, in a closed segment, at these offsets.
const COMPACTED: [i64; 8] = [3, 16, 42, 52, 72, 99, 200, 330];

fn compacted_log(disk: &Arc<SimDisk>) {
    let (manager, log) = log_of(disk);
    for base_offset in COMPACTED {
        let mut bytes = batch(10, 30, NOW).to_vec();
        bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
        log.append_as_follower(&bytes.into(), 0).unwrap();
    }
    log.roll().unwrap();
    drop(log);
    manager.shutdown(1).unwrap();
}

const INDEX: &str = "/data/t-0/00000000000000000000.index";

/// Up to version 1.0 Kafka put the first offset of what was appended into the index.
#[test]
fn index_of_an_older_kafka_condemns_no_batch() {
    let disk = Arc::new(SimDisk::new());
    compacted_log(&disk);
    let size = batch(10, 30, NOW).len() as u32;
    let entries = (1..).zip(&COMPACTED[1..]).flat_map(|(number, offset): (u32, _)| {
        let (offset, position) = (*offset as i32, number * size);
        [offset.to_be_bytes(), position.to_be_bytes()].concat()
    });
    write(&disk, INDEX, &entries.collect::<Vec<u8>>());
    let (manager, log) = log_of(&disk);
    assert_eq!(manager.scrub(1_000, &all).damaged, 0);
    for offset in COMPACTED {
        assert!(log.read_bytes(offset, 1, FetchIsolation::LogEnd, true).is_ok());
    }
}

/// A word stands against a word, and the batch has its records.
#[test]
fn index_entry_that_a_flipped_bit_changed_condemns_no_batch() {
    let whole = {
        let disk = Arc::new(SimDisk::new());
        compacted_log(&disk);
        disk.read(Path::new(INDEX)).unwrap()
    };
    assert!(whole.len() >= 5 * 8);
    for bit in 0..whole.len() * 8 {
        let disk = Arc::new(SimDisk::new());
        compacted_log(&disk);
        disk.flip_bit(Path::new(INDEX), bit as u64).unwrap();
        let (manager, _log) = log_of(&disk);
        assert_eq!(manager.scrub(1_000, &all).damaged, 0, "bit {bit}");
    }
}

// ---- messages of before Kafka 0.11

fn message_of_magic_one(offset: i64, attributes: u8, value: &[u8]) -> Vec<u8> {
    let mut body = vec![1, attributes];
    body.extend(NOW.to_be_bytes());
    body.extend((-1_i32).to_be_bytes());
    body.extend((value.len() as i32).to_be_bytes());
    body.extend(value);
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    let size = body.len() as i32 + 4;
    let parts = [
        &offset.to_be_bytes()[..],
        &size.to_be_bytes(),
        &crc.sum().to_be_bytes(),
        &body,
    ];
    parts.concat()
}

/// Ten compressed messages at these offsets.
fn wrapper(first: i64) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    for number in 0..10 {
        encoder
            .write_all(&message_of_magic_one(number, 0, b"value"))
            .unwrap();
    }
    message_of_magic_one(first + 9, 1, &encoder.finish().unwrap())
}

/// A closed segment of five wrappers with the offsets up to 50, damaged by `change`, and an active one.
fn log_of_wrappers(change: impl Fn(&mut Vec<u8>, usize)) -> (Arc<SimDisk>, Arc<LogManager>, Arc<UnifiedLog>) {
    let disk = Arc::new(SimDisk::new());
    let (manager, log) = log_of(&disk);
    for _ in 0..5 {
        log.append_as_leader(&batch(10, 30, NOW), 0, AppendOrigin::Client, NOW)
            .unwrap();
    }
    log.roll().unwrap();
    log.append_as_leader(&batch(2, 50, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap();
    drop(log);
    manager.shutdown(1).unwrap();
    let mut bytes: Vec<u8> = (0..5).flat_map(|number| wrapper(number * 10)).collect();
    let size = bytes.len() / 5;
    change(&mut bytes, size);
    write(&disk, LOG, &bytes);
    disk.remove_file(Path::new(INDEX)).unwrap();
    let (manager, log) = log_of(&disk);
    log.update_high_watermark(log.log_end_offset());
    (disk, manager, log)
}

fn assert_wrapper_is_bad(log: &UnifiedLog, bad: std::ops::Range<i64>, what: &str) {
    for offset in 0..50 {
        match log.read_bytes(offset, 1, FetchIsolation::HighWatermark, true) {
            Ok(bytes) => {
                let last = crate::record::BatchHeader::parse(&bytes).unwrap().base_offset;
                assert_eq!(last, offset / 10 * 10 + 9, "{what}: {offset}");
                assert!(!bad.contains(&offset), "{what}: {offset}");
            }
            Err(error) => assert!(bad.contains(&offset), "{what}: {offset}: {error}"),
        }
    }
}

#[test]
fn damaged_messages_of_older_formats_end_where_the_next_wrapper_begins() {
    for number in 0..5 {
        let damaged = number as i64 * 10..number as i64 * 10 + 10;
        // What a recovery finds.
        let (_, manager, log) = log_of_wrappers(|bytes, size| bytes[number * size + 60] ^= 1);
        assert_eq!(manager.known_bad_ranges(), 1);
        assert_wrapper_is_bad(&log, damaged.clone(), &format!("recovery, wrapper {number}"));
        // What the scrub does.
        let (disk, manager, log) = log_of_wrappers(|_, _| {});
        assert_eq!(manager.scrub(0, &all).damaged, 0);
        let size = wrapper(0).len();
        flip(&disk, (number * size + 60) as u64, 1);
        assert_eq!(manager.scrub(0, &all).damaged, 1);
        assert_wrapper_is_bad(&log, damaged, &format!("scrub, wrapper {number}"));
    }
}

// ---- truncation meanwhile

#[test]
fn scrub_stops_at_a_segment_that_is_truncated_and_notes_nothing_of_it() {
    // More than the scrub reads at once, and less.
    for size in [500_000, 50] {
        let disk = Arc::new(SimDisk::new());
        let (manager, log) = log_of(&disk);
        let bytes = batch(2, size, NOW);
        for _ in 0..4 {
            log.append_as_leader(&bytes, 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        log.roll().unwrap();
        flip(&disk, 2 * bytes.len() as u64 + 100, 1);
        let is_first = Cell::new(true);
        let gate = |_| {
            if is_first.take() {
                log.truncate_to(2).unwrap();
            }
            true
        };
        assert_eq!(manager.scrub(0, &gate).damaged, 0, "{size}");
        assert_eq!(manager.known_bad_ranges(), 0, "{size}");
        for _ in 0..4 {
            log.append_as_leader(&bytes, 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        log.roll().unwrap();
        log.update_high_watermark(log.log_end_offset());
        // It is read anew when its time comes.
        assert_eq!(manager.scrub(i64::MAX, &all).bytes, log.size_in_bytes(), "{size}");
        assert_bad(&log, 0..0, "all are whole");
    }
}

#[test]
fn truncation_into_damage_leaves_no_index_entries_of_it() {
    let (disk, manager, log) = log_of_three_segments();
    for number in 3..6 {
        flip(&disk, number * batch_size() + 100, 1);
    }
    assert_eq!(manager.scrub(0, &all).damaged, 1);
    log.truncate_to(11).unwrap();
    let active = log.active_segment();
    assert_eq!(active.size(), 3 * batch_size());
    let entries = active.offset_index.all().unwrap();
    assert!(
        entries
            .iter()
            .all(|entry| u64::from(entry.position) < active.size()),
        "{entries:?}"
    );
}

#[test]
fn time_is_looked_for_behind_known_damage() {
    let (disk, manager, log) = log_of_three_segments();
    for number in 0..2 {
        flip(&disk, number * batch_size() + 100, 1);
    }
    assert_eq!(manager.scrub(0, &all).damaged, 1);
    assert_eq!(log.offset_for_timestamp(NOW).unwrap().unwrap().offset, 4);
}

#[test]
fn largest_time_is_not_said_to_be_none_where_its_batch_is_cut_off() {
    let disk = Arc::new(SimDisk::new());
    let (_manager, log) = log_of(&disk);
    for number in 0..5 {
        log.append_as_leader(&batch(2, 50, NOW + 10 * number), 0, AppendOrigin::Client, NOW)
            .unwrap();
    }
    assert_eq!(log.offset_of_max_timestamp().unwrap().unwrap().offset, 9);
    damage(&disk, 4 * batch_size() + 8, &[0x40]);
    let error = log.offset_of_max_timestamp().unwrap_err();
    assert!(matches!(error, LogError::CorruptRecord { .. }), "{error}");
}
