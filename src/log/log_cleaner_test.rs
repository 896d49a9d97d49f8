//! Whole cleanings: against what Apache Kafka's cleaner left of the same records, and what happens around them.
//! The random operations and crashes are in `log_cleaner_model_test.rs`.

use std::path::{Path, PathBuf};

use base64::Engine;
use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::io::disk::Disk;
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::log::log_manager_test::{TestClock, config_with, open_manager};
use crate::log::{AppendOrigin, FetchIsolation, LogConfig};
use crate::record::{BatchBuilder, BatchOptions, Batches, Compression, records_of};

pub(crate) const NOW: i64 = 1_700_000_000_000;

pub(crate) struct Fixture {
    pub disk: Arc<SimDisk>,
    pub clock: Arc<TestClock>,
    pub manager: LogManager,
    pub log: Arc<UnifiedLog>,
}

pub(crate) fn compacted(overrides: &[(&str, &str)]) -> LogConfig {
    let mut all = vec![
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.0"),
        ("index.interval.bytes", "64"),
    ];
    all.extend_from_slice(overrides);
    config_with(&all)
}

pub(crate) fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

pub(crate) fn fixture_at(now_ms: i64, overrides: &[(&str, &str)]) -> Fixture {
    let disk = Arc::new(SimDisk::new());
    let clock = TestClock::at(now_ms);
    disk.set_now_ms(now_ms);
    let manager = open_manager(disk.clone(), clock.clone(), &[PathBuf::from("/d")]);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let log = manager.get_or_create(&tp(), None, compacted(overrides)).unwrap();
    Fixture {
        disk,
        clock,
        manager,
        log,
    }
}

pub(crate) type KeyValue<'a> = (&'a str, Option<&'a str>);

pub(crate) fn batch_of(options: BatchOptions, timestamp: i64, records: &[KeyValue<'_>]) -> Bytes {
    let mut builder = BatchBuilder::new(options);
    for (key, value) in records {
        builder.append(timestamp, Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    }
    builder.build().unwrap()
}

impl Fixture {
    pub fn append(&self, records: &[KeyValue<'_>]) {
        let batch = batch_of(BatchOptions::default(), NOW, records);
        self.append_batch(&batch, AppendOrigin::Client);
    }

    pub fn append_batch(&self, batch: &Bytes, origin: AppendOrigin) {
        self.log.append_as_leader(batch, 0, origin, NOW).unwrap();
        self.log.update_high_watermark(self.log.log_end_offset());
    }

    pub fn clean(&self) -> usize {
        let count = self.manager.clean_all(&LogCleanerConfig::default());
        self.log.check_invariants();
        count
    }

    pub fn file_names(&self, suffix: &str) -> Vec<String> {
        let names = self.disk.list(Path::new("/d/t-0")).unwrap();
        let mut names: Vec<String> = names
            .into_iter()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .filter(|name| name.ends_with(suffix))
            .collect();
        names.sort();
        names
    }

    pub fn checkpoint(&self) -> String {
        let text = self.disk.read(Path::new("/d/cleaner-offset-checkpoint"));
        String::from_utf8(text.unwrap_or_default()).unwrap()
    }
}

pub(crate) fn all_bytes(log: &UnifiedLog) -> Vec<Bytes> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    loop {
        let bytes = log
            .read_bytes(offset, 1 << 20, FetchIsolation::LogEnd, true)
            .unwrap();
        let batches: Vec<_> = Batches::of_bytes(&bytes).map(Result::unwrap).collect();
        let Some((last, _)) = batches.last() else {
            return found;
        };
        offset = last.next_offset();
        found.extend(batches.into_iter().map(|(_, batch)| batch));
    }
}

pub(crate) fn records(log: &UnifiedLog) -> Vec<(i64, String, Option<String>)> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let mut found = Vec::new();
    for batch in all_bytes(log) {
        for record in records_of(&batch).unwrap() {
            let record = record.unwrap();
            let key = record.key.as_ref().map(text).unwrap_or_default();
            found.push((record.offset, key, record.value.as_ref().map(text)));
        }
    }
    found
}

// ---- what Apache Kafka left

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/single")
        .join(path)
}

/// The records of `compacted-*` as they were sent, in the batches in which they were sent: three by one producer, then
/// eights by another.
fn append_what_kafka_got(fixture: &Fixture, codec: Compression, producer_ids: [i64; 2]) {
    let decode = |value: &Value| {
        let text = value.as_str()?;
        Some(base64::engine::general_purpose::STANDARD.decode(text).unwrap())
    };
    let text = std::fs::read_to_string(golden(&format!("known/sent-compacted-{}.jsonl", codec.name())));
    let sent: Vec<Value> = text
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (first, rest) = sent.split_at(3);
    let mut batches = vec![(producer_ids[0], 0, Compression::None, first)];
    for (index, chunk) in rest.chunks(8).enumerate() {
        batches.push((producer_ids[1], 8 * index as i32, codec, chunk));
    }
    for (producer_id, base_sequence, compression, chunk) in batches {
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id,
            producer_epoch: 0,
            base_sequence,
            compression,
            ..BatchOptions::default()
        });
        for record in chunk {
            let headers: Vec<(String, Option<Vec<u8>>)> = record["headers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|header| (header[0].as_str().unwrap().to_owned(), decode(&header[1])))
                .collect();
            let refs: Vec<_> = headers
                .iter()
                .map(|(k, v)| (k.as_bytes(), v.as_deref()))
                .collect();
            let timestamp = record["timestamp"].as_i64().unwrap();
            let key = decode(&record["key"]);
            builder.append(
                timestamp,
                key.as_deref(),
                decode(&record["value"]).as_deref(),
                &refs,
            );
        }
        fixture.append_batch(&builder.build().unwrap(), AppendOrigin::Client);
    }
}

fn horizons(batches: &[Bytes]) -> Vec<Option<i64>> {
    let headers = batches
        .iter()
        .map(|batch| crate::record::BatchHeader::parse(batch).unwrap());
    headers.map(|header| header.delete_horizon_ms()).collect()
}

#[test]
fn golden_records_cleaned_leave_what_kafkas_cleaner_left() {
    for codec in [Compression::None, Compression::Zstd] {
        let folder = format!("compacted-{}-0", codec.name());
        let data = golden(&format!("data/{folder}"));
        let kafkas = std::fs::read(data.join("00000000000000000000.log")).unwrap();
        let wanted: Vec<Bytes> = Batches::of_bytes(&Bytes::from(kafkas))
            .map(|batch| batch.unwrap().1)
            .collect();
        let horizon = horizons(&wanted).into_iter().flatten().next().unwrap();
        let fixture = fixture_at(horizon - 86_400_000, &[("segment.ms", "60000")]);
        let producer_id = |batch: &Bytes| crate::record::BatchHeader::parse(batch).unwrap().producer_id;
        append_what_kafka_got(
            &fixture,
            codec,
            [producer_id(&wanted[0]), producer_id(&wanted[1])],
        );
        assert_eq!(fixture.log.segment_base_offsets(), [0, 43, 83], "{folder}");
        assert_eq!(fixture.clean(), 1);
        assert_eq!(fixture.log.segment_base_offsets(), [0, 83]);
        assert_eq!(fixture.checkpoint(), "0\n1\nt 0 83\n");
        let at = |name: &str| fixture.disk.read(&Path::new("/d/t-0").join(name)).unwrap();
        let cleaned = Bytes::from(at("00000000000000000000.log"));
        let found: Vec<Bytes> = Batches::of_bytes(&cleaned)
            .map(|batch| batch.unwrap().1)
            .collect();
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(&wanted) {
            if codec == Compression::None {
                assert_eq!(found, wanted, "{folder}");
                continue;
            }
            // Another zstd makes other bytes of the same records.
            let headers = [found, wanted].map(|batch| {
                let mut header = crate::record::BatchHeader::parse(batch).unwrap();
                (header.crc, header.batch_length) = (0, 0);
                header
            });
            assert_eq!(headers[0], headers[1]);
            let inner = |batch: &Bytes| records_of(batch).unwrap().map(Result::unwrap).collect::<Vec<_>>();
            assert_eq!(inner(found), inner(wanted));
        }
        if codec == Compression::None {
            for name in ["00000000000000000000.index", "00000000000000000000.timeindex"] {
                assert_eq!(at(name), std::fs::read(data.join(name)).unwrap(), "{name}");
            }
        }
    }
}

// ---- tombstones and horizons

#[test]
fn tombstone_stays_until_the_horizon_that_its_first_cleaning_set() {
    let fixture = fixture_at(NOW, &[("delete.retention.ms", "1000")]);
    fixture.append(&[("a", Some("1")), ("b", Some("1"))]);
    fixture.append(&[("a", None), ("b", Some("2"))]);
    fixture.log.roll().unwrap();
    assert_eq!(fixture.clean(), 1);
    let b2 = (3, "b".to_owned(), Some("2".to_owned()));
    assert_eq!(records(&fixture.log), [(2, "a".to_owned(), None), b2.clone()]);
    assert_eq!(horizons(&all_bytes(&fixture.log)), [Some(NOW + 1000)]);

    // Something dirty is needed for another cleaning.
    fixture.clock.advance(999);
    fixture.append(&[("c", Some("1"))]);
    fixture.log.roll().unwrap();
    assert_eq!(fixture.clean(), 1);
    assert_eq!(records(&fixture.log).len(), 3);

    fixture.clock.advance(1);
    fixture.append(&[("c", Some("2"))]);
    fixture.log.roll().unwrap();
    assert_eq!(fixture.clean(), 1);
    let c2 = (5, "c".to_owned(), Some("2".to_owned()));
    assert_eq!(records(&fixture.log), [b2, c2]);
    let timestamps: Vec<i64> = all_bytes(&fixture.log)
        .iter()
        .flat_map(|batch| records_of(batch).unwrap().map(|record| record.unwrap().timestamp))
        .collect();
    assert_eq!(
        timestamps,
        [NOW, NOW],
        "time stamps are kept though the base holds the horizon"
    );
}

// ---- what is chosen

#[test]
fn log_below_its_dirty_ratio_waits_unless_its_oldest_record_is_too_old() {
    let fixture = fixture_at(
        NOW,
        &[
            ("min.cleanable.dirty.ratio", "0.6"),
            ("max.compaction.lag.ms", "5000"),
        ],
    );
    fixture.append(&[("a", Some("1")), ("b", Some("1"))]);
    fixture.log.roll().unwrap();
    assert_eq!(fixture.clean(), 1, "all of it is dirty");
    fixture.append(&[("a", Some("2"))]);
    fixture.log.roll().unwrap();
    assert_eq!(fixture.clean(), 0, "less than 60 per cent are dirty");
    fixture.clock.advance(5001);
    assert_eq!(fixture.clean(), 1);
    assert_eq!(records(&fixture.log).len(), 2);
    assert_eq!(fixture.clean(), 0, "nothing is dirty");
}

#[test]
fn nothing_young_unstable_or_active_is_cleaned() {
    let fixture = fixture_at(NOW + 1000, &[("min.compaction.lag.ms", "5000")]);
    fixture.append(&[("a", Some("1")), ("a", Some("2"))]);
    fixture.log.roll().unwrap();
    assert_eq!(fixture.clean(), 0, "too young");
    fixture.clock.advance(10_000);
    fixture.log.update_high_watermark(1);
    assert_eq!(fixture.clean(), 0, "not replicated");
    fixture.log.update_high_watermark(2);
    fixture.append(&[("a", Some("3")), ("a", Some("4"))]);
    assert_eq!(fixture.clean(), 1);
    let offsets: Vec<i64> = records(&fixture.log).iter().map(|record| record.0).collect();
    assert_eq!(offsets, [1, 2, 3], "the active segment keeps all");
}

#[test]
fn open_transaction_holds_the_cleaner_back() {
    let fixture = fixture_at(NOW, &[]);
    let transactional = BatchOptions {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    fixture.append(&[("a", Some("1"))]);
    fixture.log.roll().unwrap();
    fixture.append_batch(
        &batch_of(transactional, NOW, &[("a", Some("2"))]),
        AppendOrigin::Client,
    );
    fixture.log.roll().unwrap();
    fixture.append(&[("a", Some("3"))]);
    fixture.log.roll().unwrap();
    assert_eq!(fixture.clean(), 1);
    assert_eq!(fixture.checkpoint(), "0\n1\nt 0 1\n");
    assert_eq!(records(&fixture.log).len(), 3);
}

// ---- trouble

#[test]
fn log_with_a_damaged_batch_is_left_alone_and_the_others_are_cleaned() {
    let fixture = fixture_at(NOW, &[]);
    let other = TopicPartition::new("u", 0);
    let other = fixture
        .manager
        .get_or_create(&other, None, compacted(&[]))
        .unwrap();
    for log in [&fixture.log, &other] {
        for value in ["1", "2"] {
            let batch = batch_of(BatchOptions::default(), NOW, &[("a", Some(value))]);
            log.append_as_leader(&batch, 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        log.update_high_watermark(2);
        log.roll().unwrap();
    }
    let path = Path::new("/d/t-0/00000000000000000000.log");
    fixture.disk.flip_bit(path, 8 * 65).unwrap();
    fixture.clean();
    assert_eq!(fixture.manager.uncleanable_partitions(), [tp()]);
    assert_eq!(records(&other).len(), 1);
    assert_eq!(fixture.log.segment_base_offsets(), [0, 2]);
    assert_eq!(fixture.file_names(".cleaned"), [""; 0]);
    assert!(fixture.manager.is_log_dir_online(Path::new("/d")));

    fixture.manager.async_delete(&tp()).unwrap();
    assert!(fixture.manager.uncleanable_partitions().is_empty());
}

#[test]
fn log_made_by_the_name_of_one_that_went_offline_is_cleaned() {
    let disk = Arc::new(SimDisk::new());
    let dirs = [PathBuf::from("/a"), PathBuf::from("/b")];
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &dirs);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let made_in = |dir: &str| {
        let log = manager.get_or_create_in(&tp(), None, compacted(&[]), Some(Path::new(dir)));
        let log = log.unwrap();
        for value in ["1", "2"] {
            let batch = batch_of(BatchOptions::default(), NOW, &[("a", Some(value))]);
            log.append_as_leader(&batch, 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        log.update_high_watermark(2);
        log.roll().unwrap();
        log
    };
    made_in("/a");
    let path = Path::new("/a/t-0/00000000000000000000.log");
    disk.flip_bit(path, 8 * 65).unwrap();
    manager.clean_all(&LogCleanerConfig::default());
    assert_eq!(manager.uncleanable_partitions(), [tp()]);

    manager.fail_log_dir(Path::new("/a"));
    manager.async_delete(&tp()).unwrap();
    let log = made_in("/b");
    manager.clean_all(&LogCleanerConfig::default());
    assert_eq!(records(&log).len(), 1);
}

#[test]
fn log_made_by_the_name_of_a_stray_is_cleaned_from_its_beginning() {
    let fixture = fixture_at(NOW, &[]);
    for value in ["1", "2", "3"] {
        fixture.append(&[("a", Some(value))]);
    }
    fixture.log.roll().unwrap();
    fixture.clean();
    assert_eq!(fixture.checkpoint(), "0\n1\nt 0 3\n");
    fixture.manager.shutdown(1).unwrap();
    let Fixture {
        disk,
        clock,
        manager,
        log,
    } = fixture;
    drop((manager, log));

    // One start finds the stray, its passes write the other checkpoints; it is the next one where the log is made.
    for is_stray in [true, false] {
        let manager = open_manager(disk.clone(), clock.clone(), &[PathBuf::from("/d")]);
        manager.load_logs(&|_| compacted(&[]), &|_| is_stray).unwrap();
        manager.checkpoint_recovery_points().unwrap();
        manager.checkpoint_log_start_offsets().unwrap();
        if is_stray {
            drop(manager);
            disk.crash_process();
            continue;
        }
        let log = manager.get_or_create(&tp(), None, compacted(&[])).unwrap();
        let fixture = Fixture {
            disk: disk.clone(),
            clock: clock.clone(),
            manager,
            log,
        };
        assert_eq!(fixture.checkpoint(), "0\n0\n");
        for value in ["1", "2", "3", "4", "5"] {
            fixture.append(&[("a", Some(value))]);
        }
        fixture.log.roll().unwrap();
        fixture.clean();
        assert_eq!(records(&fixture.log).len(), 1);
    }
}

/// No checksum is over a batch's offset, and by a large one all later values of its keys are older.
#[test]
fn log_with_an_offset_that_a_flipped_bit_made_large_is_left_alone() {
    // Within the segment, and beyond its end.
    for bit in [2, 40] {
        let fixture = fixture_at(NOW, &[]);
        for value in ["1", "2", "3"] {
            fixture.append(&[("a", Some(value))]);
        }
        fixture.log.roll().unwrap();
        fixture.append(&[("b", Some("4"))]);
        fixture.log.roll().unwrap();
        let path = Path::new("/d/t-0/00000000000000000000.log");
        let batch = if bit == 40 { 2 } else { 0 };
        let size = fixture.disk.file_len(path).unwrap() / 3;
        fixture
            .disk
            .flip_bit(path, 8 * (batch * size + 7 - bit / 8) + bit % 8)
            .unwrap();
        fixture.clean();
        assert_eq!(fixture.manager.uncleanable_partitions(), [tp()], "bit {bit}");
        assert_eq!(fixture.log.segment_base_offsets(), [0, 3, 4]);
    }
}

#[test]
fn full_disk_ends_the_cleaning_and_nothing_else() {
    let fixture = fixture_at(NOW, &[]);
    fixture.append(&[("a", Some("1")), ("a", Some("2"))]);
    fixture.log.roll().unwrap();
    fixture
        .disk
        .fail_nth(SimOperation::Write, 0, io::ErrorKind::StorageFull);
    assert_eq!(fixture.clean(), 0);
    assert!(fixture.manager.is_log_dir_online(Path::new("/d")));
    assert!(fixture.manager.uncleanable_partitions().is_empty());
    assert_eq!(fixture.file_names(".cleaned"), [""; 0]);
    fixture.clock.advance(NO_SPACE_BACKOFF_MS);
    assert_eq!(fixture.clean(), 1);
    assert_eq!(records(&fixture.log).len(), 1);
}

/// The newest value of every key stays whatever call of a cleaning fails, and a full disk is cleaned later.
#[test]
fn failure_at_any_call_of_a_cleaning_loses_no_record() {
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
        for n in 0..1_000 {
            let fixture = fixture_at(NOW, &[]);
            for value in ["1", "2", "3"] {
                fixture.append(&[("a", Some(value)), ("b", Some(value)), ("c", Some(value))]);
                fixture.log.roll().unwrap();
            }
            let before = fixture.disk.changes();
            fixture.disk.fail_nth(SimOperation::AnyChange, n, kind);
            fixture.manager.clean_all(&LogCleanerConfig::default());
            let is_past_the_end = fixture.disk.changes() - before <= n;
            fixture.disk.heal();
            let is_online = fixture.manager.is_log_dir_online(Path::new("/d"));
            let (manager, log) = if is_online {
                assert!(fixture.manager.uncleanable_partitions().is_empty(), "call {n}");
                (fixture.manager, fixture.log)
            } else {
                fixture.disk.crash_process();
                let dirs = [PathBuf::from("/d")];
                let manager = open_manager(fixture.disk.clone(), fixture.clock.clone(), &dirs);
                manager.load_logs(&|_| compacted(&[]), &|_| false).unwrap();
                let log = manager.get(&tp()).unwrap();
                log.update_high_watermark(log.log_end_offset());
                (manager, log)
            };
            fixture.clock.advance(NO_SPACE_BACKOFF_MS);
            manager.clean_all(&LogCleanerConfig::default());
            log.check_invariants();
            let left: Vec<_> = records(&log).into_iter().map(|(offset, _, _)| offset).collect();
            assert_eq!(left, [6, 7, 8], "call {n}, {kind}");
            if is_past_the_end {
                assert!(n > 20, "a cleaning has {n} calls");
                break;
            }
        }
    }
}

#[test]
fn truncation_below_the_checkpoint_makes_what_follows_dirty() {
    let fixture = fixture_at(NOW, &[]);
    for value in ["1", "2", "3", "4"] {
        fixture.append(&[("a", Some(value)), ("b", Some(value))]);
        fixture.log.roll().unwrap();
    }
    assert_eq!(fixture.clean(), 1);
    assert_eq!(fixture.checkpoint(), "0\n1\nt 0 8\n");
    fixture.log.truncate_to(6).unwrap();
    for value in ["5", "6"] {
        fixture.append(&[("a", Some(value)), ("b", Some(value))]);
        fixture.log.roll().unwrap();
    }
    assert_eq!(fixture.clean(), 1);
    let values: Vec<_> = records(&fixture.log)
        .into_iter()
        .map(|(_, _, value)| value.unwrap())
        .collect();
    assert_eq!(values, ["6", "6"]);
}

#[test]
fn cleaning_of_a_log_that_is_truncated_or_deleted_meanwhile_is_dropped() {
    type Disturb = fn(&Fixture);
    let disturbances: [Disturb; 2] = [
        |fixture| {
            fixture.log.truncate_to(3).unwrap();
        },
        |fixture| fixture.manager.async_delete(&tp()).unwrap(),
    ];
    for disturb in disturbances {
        let fixture = fixture_at(NOW, &[]);
        for value in ["1", "2", "3"] {
            fixture.append(&[("a", Some(value)), ("b", Some(value))]);
        }
        fixture.log.roll().unwrap();
        let manager = &fixture.manager.cleaner.manager;
        let target = manager
            .grab_filthiest([&fixture.log].into_iter(), NOW)
            .unwrap()
            .unwrap();
        let settings = PassSettings {
            read_bytes: 1,
            ..LogCleanerConfig::default().pass_settings()
        };
        let calls = std::cell::Cell::new(0);
        let gate = |_: u64| {
            calls.set(calls.get() + 1);
            if calls.get() == 5 {
                disturb(&fixture);
            }
            true
        };
        let result = CleanerPass::new(&target, settings, NOW, &gate).run();
        assert!(matches!(result, Err(CleanError::Aborted)), "{result:?}");
        assert!(fixture.manager.is_log_dir_online(Path::new("/d")));
    }
}

// ---- reads and the swap

#[test]
fn segments_that_were_read_from_before_the_swap_stay_readable() {
    let fixture = fixture_at(NOW, &[("file.delete.delay.ms", "60000")]);
    fixture.append(&[("a", Some("1")), ("a", Some("2"))]);
    fixture.log.roll().unwrap();
    let before = fixture
        .log
        .read(0, 1 << 20, FetchIsolation::LogEnd, true)
        .unwrap();
    assert_eq!(fixture.clean(), 1);
    let slice = &before.slices[0];
    let mut bytes = vec![0; slice.length];
    assert_eq!(
        slice.file.read_at(&mut bytes, slice.position).unwrap(),
        slice.length
    );
    let (_, batch) = Batches::of_bytes(&Bytes::from(bytes)).next().unwrap().unwrap();
    assert_eq!(records_of(&batch).unwrap().count(), 2);
    assert_eq!(fixture.file_names(".log.deleted").len(), 1);
    fixture.manager.run_deletion(NOW + 60_000);
    assert_eq!(fixture.file_names(".deleted"), [""; 0]);
}

#[test]
fn small_segments_become_one_and_their_snapshots_go() {
    let fixture = fixture_at(NOW, &[]);
    for sequence in 0..5 {
        let options = BatchOptions {
            producer_id: 3,
            producer_epoch: 0,
            base_sequence: sequence,
            ..BatchOptions::default()
        };
        fixture.append_batch(&batch_of(options, NOW, &[("a", Some("1"))]), AppendOrigin::Client);
        fixture.log.roll().unwrap();
    }
    assert_eq!(fixture.log.number_of_segments(), 6);
    assert_eq!(fixture.clean(), 1);
    assert_eq!(fixture.log.segment_base_offsets(), [0, 5]);
    let snapshots: Vec<i64> = fixture.log.producer_snapshot_offsets().into_iter().collect();
    assert_eq!(snapshots, [5]);
    assert_eq!(fixture.file_names(".snapshot").len(), 1);
}

#[test]
fn map_that_holds_few_keys_takes_several_passes_to_the_same_result() {
    let fixture = fixture_at(NOW, &[]);
    for round in 0..3 {
        for index in 0..20 {
            let (key, value) = (format!("k{index}"), format!("{round}"));
            fixture.append(&[(&key, Some(&value))]);
        }
        fixture.log.roll().unwrap();
    }
    let config = LogCleanerConfig {
        dedupe_buffer_size: 24 * 8,
        ..LogCleanerConfig::default()
    };
    let passes = fixture.manager.clean_all(&config);
    assert!(passes >= 60 / 8, "{passes}");
    fixture.log.check_invariants();
    let left = records(&fixture.log);
    assert_eq!(left.len(), 20);
    assert!(
        left.iter()
            .all(|(offset, _, value)| *offset >= 40 && value.as_deref() == Some("2"))
    );
}

#[test]
fn compact_and_delete_does_both() {
    let fixture = fixture_at(
        NOW,
        &[("cleanup.policy", "compact,delete"), ("retention.ms", "10000")],
    );
    fixture.append(&[("a", Some("1")), ("a", Some("2"))]);
    fixture.log.roll().unwrap();
    assert_eq!(fixture.clean(), 1);
    assert_eq!(records(&fixture.log).len(), 1);
    fixture.clock.advance(10_001);
    fixture.manager.run_retention(NOW + 10_001);
    assert_eq!(fixture.log.log_start_offset(), 2);
    assert!(records(&fixture.log).is_empty());
    assert_eq!(fixture.clean(), 0);
}

#[test]
fn threads_clean_by_themselves_and_end_with_the_manager() {
    let fixture = fixture_at(NOW, &[]);
    fixture.append(&[("a", Some("1")), ("a", Some("2"))]);
    fixture.log.roll().unwrap();
    let manager = Arc::new(fixture.manager);
    let config = LogCleanerConfig {
        threads: 2,
        backoff_ms: 1,
        ..LogCleanerConfig::default()
    };
    manager.start_cleaner(config).unwrap();
    let began = std::time::Instant::now();
    while records(&fixture.log).len() > 1 {
        assert!(began.elapsed() < Duration::from_secs(10), "not cleaned");
        thread::yield_now();
    }
    manager.shutdown(1).unwrap();
    assert!(lock(&manager.cleaner.threads).is_empty());
}

#[test]
fn throttle_waits_for_what_was_charged_above_the_rate() {
    let throttle = Throttle::new(1000.0);
    assert_eq!(throttle.charge(500, 10_000), Duration::from_millis(500));
    assert_eq!(throttle.charge(500, 10_000), Duration::from_millis(1000));
    assert_eq!(throttle.charge(100, 20_000), Duration::from_millis(100));
    assert_eq!(Throttle::new(f64::MAX).charge(u64::MAX, 0), Duration::ZERO);
}

// ---- the internal topics

/// What a coordinator knows after it has read the log: the last value of every key, without aborted transactions.
/// With handed-in time: all that two cleanings read and write at once takes as long as one rate allows.
#[test]
fn cleanings_take_as_long_as_their_common_rate_says() {
    let fixture = fixture_at(NOW, &[]);
    let other = fixture
        .manager
        .get_or_create(&TopicPartition::new("u", 0), None, compacted(&[]))
        .unwrap();
    for log in [&fixture.log, &other] {
        for index in 0..300 {
            let key = format!("k{}", index % 50);
            let batch = batch_of(BatchOptions::default(), NOW, &[(&key, Some("value"))]);
            log.append_as_leader(&batch, 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        log.update_high_watermark(log.log_end_offset());
        log.roll().unwrap();
    }
    let throttle = Throttle::new(1000.0);
    let config = LogCleanerConfig {
        io_buffer_size: 0,
        ..LogCleanerConfig::default()
    };
    let charged = std::cell::Cell::new(0);
    let gate = |bytes| {
        charged.set(charged.get() + bytes);
        throttle.pace(bytes, &*fixture.clock, |piece| {
            assert!(piece <= THROTTLE_PIECE);
            fixture.clock.advance(piece.as_millis() as i64);
            true
        })
    };
    let began_ms = fixture.clock.now_ms();
    let mut moved = 0;
    let mut total = 0;
    for _ in 0..2 {
        let logs = fixture.manager.logs.load_full();
        let grabbed = fixture.manager.cleaner.manager.grab_filthiest(logs.values(), NOW);
        let target = grabbed.unwrap().unwrap();
        let mut pass = CleanerPass::new(&target, config.pass_settings(), NOW, &gate);
        pass.run().unwrap();
        let stats = pass.stats;
        total += stats.map_bytes_read + stats.bytes_read + stats.bytes_written;
        moved += stats.bytes_written;
    }
    assert!(moved > 0);
    // What is left uncharged is less than one look each.
    assert!(
        charged.get() <= total && total - charged.get() < 2 * READ_BYTES_MIN as u64,
        "{} of {total}",
        charged.get()
    );
    let took_ms = fixture.clock.now_ms() - began_ms;
    assert!(
        (charged.get() as i64 - 1..=charged.get() as i64).contains(&took_ms),
        "{} bytes took {took_ms} ms",
        charged.get()
    );
}

#[test]
fn throttled_cleaning_ends_when_the_cleaner_does() {
    let throttle = Throttle::new(1.0);
    let clock = TestClock::at(NOW);
    let mut sleeps = 0;
    assert!(!throttle.pace(1_000_000, &*clock, |_| {
        sleeps += 1;
        sleeps < 3
    }));
    assert_eq!(sleeps, 3);
}

fn last_values(log: &UnifiedLog) -> std::collections::BTreeMap<Bytes, Bytes> {
    let info = log.read(
        log.log_start_offset(),
        1 << 20,
        FetchIsolation::TxnCommitted,
        true,
    );
    let info = info.unwrap();
    let aborted = info.aborted_transactions.clone().unwrap();
    let mut bytes = vec![0; info.slices[0].length];
    info.slices[0]
        .file
        .read_at(&mut bytes, info.slices[0].position)
        .unwrap();
    let mut values = std::collections::BTreeMap::new();
    for (header, batch) in Batches::of_bytes(&Bytes::from(bytes)).map(Result::unwrap) {
        let is_aborted = aborted
            .iter()
            .any(|txn| txn.producer_id == header.producer_id && txn.first_offset <= header.base_offset);
        if header.is_control() || (header.is_transactional() && is_aborted) {
            continue;
        }
        for record in records_of(&batch).unwrap().map(Result::unwrap) {
            let key = record.key.unwrap();
            match record.value {
                Some(value) => values.insert(key, value),
                None => values.remove(&key),
            };
        }
    }
    values
}

#[test]
fn coordinators_topics_of_kafka_say_the_same_after_a_cleaning_and_a_restart() {
    for folder in [
        "__consumer_offsets-0",
        "__consumer_offsets-1",
        "__transaction_state-0",
        "__transaction_state-1",
    ] {
        let disk = Arc::new(SimDisk::new());
        let clock = TestClock::at(1_795_966_500_000);
        let at = PathBuf::from("/d").join(folder);
        disk.import(&golden(&format!("data/{folder}")), &at).unwrap();
        let (topic, partition) = folder.rsplit_once('-').unwrap();
        let partition = TopicPartition::new(topic, partition.parse().unwrap());
        let open = || {
            let manager = open_manager(disk.clone(), clock.clone(), &[PathBuf::from("/d")]);
            manager.load_logs(&|_| compacted(&[]), &|_| false).unwrap();
            let log = manager.get(&partition).unwrap();
            log.update_high_watermark(log.log_end_offset());
            (manager, log)
        };
        let (manager, log) = open();
        let (before, size) = (last_values(&log), log.size_in_bytes());
        assert!(!before.is_empty());
        log.roll().unwrap();
        assert_eq!(manager.clean_all(&LogCleanerConfig::default()), 1, "{folder}");
        assert!(log.size_in_bytes() < size, "{folder} did not shrink");
        assert_eq!(last_values(&log), before);
        let end = log.log_end_offset();
        manager.shutdown(1).unwrap();
        drop((manager, log));
        let (_manager, log) = open();
        assert_eq!(log.log_end_offset(), end);
        assert_eq!(last_values(&log), before, "{folder}");
    }
}
