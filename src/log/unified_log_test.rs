use std::path::{Path, PathBuf};

use super::log_manager_test::{TestClock, batch, config_with, open_manager};
use super::*;
use crate::io::sim_disk::SimDisk;
use crate::record::control_record::{ControlRecordType, EndTransactionMarker, control_batch};
use crate::record::{BatchBuilder, BatchOptions, Batches, records_of};
use bytes::Bytes;

const NOW: i64 = 1_700_000_000_000;

struct Fixture {
    disk: Arc<SimDisk>,
    clock: Arc<TestClock>,
    manager: LogManager,
    log: Arc<UnifiedLog>,
}

fn fixture(overrides: &[(&str, &str)]) -> Fixture {
    let disk = Arc::new(SimDisk::new());
    let clock = TestClock::at(NOW);
    let manager = open_manager(disk.clone(), clock.clone(), &[PathBuf::from("/d")]);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let log = manager
        .get_or_create(&TopicPartition::new("t", 0), None, config_with(overrides))
        .unwrap();
    Fixture {
        disk,
        clock,
        manager,
        log,
    }
}

impl Fixture {
    /// Appends and lets the high watermark follow, as with one replica.
    fn append(&self, records: &Bytes) -> LogAppendInfo {
        let info = self
            .log
            .append_as_leader(records, 0, AppendOrigin::Client, NOW)
            .unwrap();
        self.log.update_high_watermark(self.log.log_end_offset());
        self.log.check_invariants();
        info
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .disk_names()
            .into_iter()
            .filter(|name| name.ends_with(".log") || name.ends_with(".snapshot"))
            .collect();
        names.sort();
        names
    }

    fn disk_names(&self) -> Vec<String> {
        use crate::io::disk::Disk;
        let names = self.disk.list(Path::new("/d/t-0")).unwrap();
        names
            .into_iter()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect()
    }
}

fn producer_batch(producer_id: i64, sequence: i32, count: usize, transactional: bool) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence: sequence,
        is_transactional: transactional,
        ..BatchOptions::default()
    });
    for index in 0..count {
        builder.append(NOW + index as i64, Some(b"k"), Some(b"v"), &[]);
    }
    builder.build().unwrap()
}

fn marker(producer_id: i64, control_type: ControlRecordType) -> Bytes {
    let options = BatchOptions {
        producer_id,
        producer_epoch: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    let value = EndTransactionMarker {
        control_type,
        coordinator_epoch: 0,
    }
    .value();
    control_batch(options, control_type, &value, NOW).unwrap()
}

fn offsets(bytes: &Bytes) -> Vec<i64> {
    let mut found = Vec::new();
    for (_, batch) in Batches::of_bytes(bytes).map_while(Result::ok) {
        found.extend(records_of(&batch).unwrap().map(|record| record.unwrap().offset));
    }
    found
}

fn read(log: &UnifiedLog, offset: i64, isolation: FetchIsolation) -> Vec<i64> {
    offsets(&log.read_bytes(offset, 1 << 20, isolation, true).unwrap())
}

#[test]
fn append_as_leader_assigns_offsets_and_epoch_and_stores_the_rest_as_it_came() {
    let fixture = fixture(&[]);
    let sent = batch(3, 20, NOW);
    fixture.append(&sent);
    let info = fixture
        .log
        .append_as_leader(&sent, 5, AppendOrigin::Client, NOW)
        .unwrap();
    assert_eq!(
        (info.first_offset, info.last_offset, info.log_end_offset),
        (3, 5, 6)
    );
    let stored = fixture
        .log
        .read_bytes(3, 1 << 20, FetchIsolation::LogEnd, true)
        .unwrap();
    assert_eq!(stored[16..], sent[16..]);
    let header = crate::record::BatchHeader::parse(&stored).unwrap();
    assert_eq!((header.base_offset, header.partition_leader_epoch), (3, 5));
    assert_eq!(fixture.log.leader_epochs(), [(0, 0), (5, 3)]);
    fixture.log.check_invariants();
}

#[test]
fn read_from_the_middle_of_a_batch_gives_the_whole_batch_within_the_isolation() {
    let fixture = fixture(&[]);
    fixture.append(&batch(4, 10, NOW));
    fixture.append(&batch(4, 10, NOW));
    fixture
        .log
        .append_as_leader(&batch(2, 10, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap();
    assert_eq!(read(&fixture.log, 6, FetchIsolation::LogEnd), [4, 5, 6, 7, 8, 9]);
    assert_eq!(read(&fixture.log, 6, FetchIsolation::HighWatermark), [4, 5, 6, 7]);
    assert!(read(&fixture.log, 8, FetchIsolation::HighWatermark).is_empty());
    assert!(read(&fixture.log, 9, FetchIsolation::HighWatermark).is_empty());
    assert!(read(&fixture.log, 10, FetchIsolation::LogEnd).is_empty());
    for offset in [-1, 11] {
        let error = fixture
            .log
            .read(offset, 100, FetchIsolation::LogEnd, true)
            .unwrap_err();
        assert!(matches!(error, LogError::OffsetOutOfRange { .. }), "{error}");
    }
}

#[test]
fn read_of_every_offset_finds_its_batch_or_the_next_where_offsets_are_missing() {
    let fixture = fixture(&[]);
    let mut random = fastrand::Rng::with_seed(5);
    // First and last offset of each batch; some larger than the distance of index entries, some with a gap before them.
    let mut batches: Vec<(i64, i64)> = Vec::new();
    for number in 0..400 {
        let base_offset = fixture.log.log_end_offset() + if number % 3 == 1 { random.i64(1..5) } else { 0 };
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            partition_leader_epoch: 0,
            ..BatchOptions::default()
        });
        let count = random.usize(1..6);
        for _ in 0..count {
            builder.append(NOW, None, Some(&vec![7; random.usize(10..4000)]), &[]);
        }
        let bytes = builder.build().unwrap();
        fixture.log.append_as_follower(&bytes, 0).unwrap();
        batches.push((base_offset, base_offset + count as i64 - 1));
    }
    for offset in 0..fixture.log.log_end_offset() {
        let wanted = batches.iter().find(|(_, last)| *last >= offset).unwrap();
        let found = fixture
            .log
            .read_bytes(offset, 1, FetchIsolation::LogEnd, true)
            .unwrap();
        let header = crate::record::BatchHeader::parse(&found).unwrap();
        assert_eq!((header.base_offset, header.last_offset()), *wanted, "{offset}");
    }
}

#[test]
fn read_below_the_size_of_the_first_batch_is_cut_unless_one_message_is_wanted() {
    let fixture = fixture(&[]);
    fixture.append(&batch(4, 100, NOW));
    fixture.append(&batch(1, 10, NOW));
    let whole = fixture.log.read(0, 50, FetchIsolation::LogEnd, true).unwrap();
    assert!(whole.size_in_bytes() > 400 && !whole.first_entry_incomplete);
    let cut = fixture.log.read(0, 50, FetchIsolation::LogEnd, false).unwrap();
    assert_eq!(cut.size_in_bytes(), 50);
    assert!(cut.first_entry_incomplete);
    assert_eq!(
        fixture
            .log
            .read(0, 0, FetchIsolation::LogEnd, false)
            .unwrap()
            .size_in_bytes(),
        0
    );
}

#[test]
fn high_watermark_that_is_only_an_offset_is_placed_by_the_first_read() {
    let fixture = fixture(&[]);
    for _ in 0..10 {
        fixture
            .log
            .append_as_leader(&batch(3, 10, NOW), 0, AppendOrigin::Client, NOW)
            .unwrap();
    }
    fixture
        .log
        .maybe_increment_high_watermark(LogOffsetMetadata::offset_only(12));
    assert!(fixture.log.high_watermark_metadata().is_offset_only());
    assert_eq!(read(&fixture.log, 9, FetchIsolation::HighWatermark), [9, 10, 11]);
    assert!(!fixture.log.high_watermark_metadata().is_offset_only());
    assert_eq!(
        fixture
            .log
            .maybe_increment_high_watermark(LogOffsetMetadata::offset_only(11)),
        None
    );
    assert_eq!(fixture.log.high_watermark(), 12);
}

#[test]
fn roll_when_the_next_append_would_pass_segment_bytes() {
    let fixture = fixture(&[("internal.segment.bytes", "900")]);
    for _ in 0..5 {
        fixture.append(&batch(4, 100, NOW));
    }
    assert_eq!(fixture.log.segment_base_offsets(), [0, 4, 8, 12, 16]);
    assert_eq!(
        fixture
            .files()
            .iter()
            .filter(|name| name.ends_with(".snapshot"))
            .count(),
        4,
        "{:?}",
        fixture.files()
    );
    // Reads go on over the segments, one at a time.
    assert_eq!(read(&fixture.log, 6, FetchIsolation::HighWatermark), [4, 5, 6, 7]);
    let too_large = fixture
        .log
        .append_as_leader(&batch(20, 100, NOW), 0, AppendOrigin::Client, NOW);
    assert!(
        matches!(too_large, Err(LogError::RecordBatchTooLarge { .. })),
        "{too_large:?}"
    );
}

#[test]
fn roll_by_the_time_stamps_of_records_not_by_the_clock() {
    let fixture = fixture(&[("segment.ms", "1000")]);
    fixture.append(&batch(1, 10, NOW));
    fixture.clock.advance(1_000_000);
    fixture.append(&batch(1, 10, NOW + 1000));
    assert_eq!(fixture.log.segment_base_offsets(), [0]);
    fixture.append(&batch(1, 10, NOW + 1001));
    assert_eq!(fixture.log.segment_base_offsets(), [0, 2]);
}

#[test]
fn roll_when_an_index_is_full() {
    let fixture = fixture(&[("segment.index.bytes", "36"), ("index.interval.bytes", "0")]);
    for index in 0..12 {
        fixture.append(&batch(1, 10, NOW + index));
    }
    // Two entries fit beside the one that closing a segment writes.
    assert_eq!(fixture.log.segment_base_offsets(), [0, 3, 6, 9]);
}

#[test]
fn idempotent_retry_answers_with_the_first_appends_offsets_and_writes_nothing() {
    let fixture = fixture(&[]);
    fixture.append(&batch(2, 10, NOW));
    fixture.append(&producer_batch(7, 0, 3, false));
    fixture.append(&producer_batch(7, 3, 1, false));
    let size = fixture.log.size_in_bytes();
    let again = fixture.append(&producer_batch(7, 0, 3, false));
    assert!(again.duplicate);
    assert_eq!((again.first_offset, again.last_offset), (2, 4));
    assert_eq!(
        (fixture.log.size_in_bytes(), fixture.log.log_end_offset()),
        (size, 6)
    );
    let gap = fixture
        .log
        .append_as_leader(&producer_batch(7, 9, 1, false), 0, AppendOrigin::Client, NOW);
    assert!(matches!(gap, Err(LogError::OutOfOrderSequence { .. })));
    fixture.log.check_invariants();
}

#[test]
fn aborted_transactions_are_told_to_read_committed_and_hold_it_while_open() {
    let fixture = fixture(&[]);
    fixture.append(&batch(2, 10, NOW));
    fixture.append(&producer_batch(7, 0, 3, true));
    fixture.append(&batch(2, 10, NOW));
    assert_eq!(fixture.log.last_stable_offset(), 2);
    assert_eq!(read(&fixture.log, 0, FetchIsolation::TxnCommitted), [0, 1]);
    let append_marker = |bytes: &Bytes| {
        fixture
            .log
            .append_as_leader(bytes, 0, AppendOrigin::Coordinator, NOW)
            .unwrap();
    };
    append_marker(&marker(7, ControlRecordType::Abort));
    assert_eq!(fixture.log.last_stable_offset(), 2);
    fixture.log.update_high_watermark(fixture.log.log_end_offset());
    assert_eq!(fixture.log.last_stable_offset(), 8);
    let info = fixture
        .log
        .read(0, 1 << 20, FetchIsolation::TxnCommitted, true)
        .unwrap();
    let aborted = AbortedTransaction {
        producer_id: 7,
        first_offset: 2,
    };
    assert_eq!(info.aborted_transactions, Some(vec![aborted]));
    let info = fixture
        .log
        .read(8, 1 << 20, FetchIsolation::TxnCommitted, true)
        .unwrap();
    assert_eq!(info.aborted_transactions, Some(vec![]));
    // It is found again after a kill.
    fixture.log.roll().unwrap();
    append_marker(&producer_batch(8, 0, 1, true));
    fixture.disk.crash_process();
    let manager = open_manager(
        fixture.disk.clone(),
        fixture.clock.clone(),
        &[PathBuf::from("/d")],
    );
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let log = manager.get(&TopicPartition::new("t", 0)).unwrap();
    log.update_high_watermark(9);
    assert_eq!(log.last_stable_offset(), 8);
    let info = log.read(0, 1 << 20, FetchIsolation::TxnCommitted, true).unwrap();
    assert_eq!(info.aborted_transactions, Some(vec![aborted]));
}

#[test]
fn truncate_to_the_middle_of_a_batch_removes_the_batch_and_what_follows() {
    let fixture = fixture(&[("internal.segment.bytes", "900")]);
    for index in 0..5 {
        let epoch = index / 2;
        let records = batch(4, 100, NOW);
        fixture
            .log
            .append_as_leader(&records, epoch, AppendOrigin::Client, NOW)
            .unwrap();
    }
    fixture.log.update_high_watermark(20);
    fixture.log.flush().unwrap();
    assert!(fixture.log.truncate_to(9).unwrap());
    // The batch of offset 9 began at 8.
    assert_eq!(read(&fixture.log, 4, FetchIsolation::LogEnd), [4, 5, 6, 7]);
    assert_eq!(fixture.log.log_end_offset(), 9);
    assert_eq!(fixture.log.high_watermark(), 9);
    assert_eq!(fixture.log.recovery_point(), 9);
    assert_eq!(fixture.log.segment_base_offsets(), [0, 4, 8]);
    assert_eq!(fixture.log.leader_epochs(), [(0, 0), (1, 8)]);
    fixture.log.check_invariants();
    fixture.append(&batch(1, 10, NOW));
    assert_eq!(read(&fixture.log, 9, FetchIsolation::LogEnd), [9]);
    assert!(!fixture.log.truncate_to(50).unwrap());
}

#[test]
fn truncate_below_the_first_segment_starts_anew_there() {
    let fixture = fixture(&[]);
    fixture.log.truncate_fully_and_start_at(100, None).unwrap();
    fixture.log.check_invariants();
    fixture.append(&batch(3, 10, NOW));
    assert_eq!(
        (fixture.log.log_start_offset(), fixture.log.log_end_offset()),
        (100, 103)
    );
    assert!(fixture.log.truncate_to(40).unwrap());
    assert_eq!(
        (fixture.log.log_start_offset(), fixture.log.log_end_offset()),
        (40, 40)
    );
    fixture.log.check_invariants();
    assert_eq!(fixture.append(&batch(1, 10, NOW)).first_offset, 40);
    assert!(
        fixture
            .disk_names()
            .contains(&"00000000000000000100.log.deleted".to_owned())
    );
    fixture.clock.advance(60_000);
    fixture.manager.run_deletion(NOW + 60_000);
    assert!(
        !fixture.disk_names().iter().any(|name| name.contains("deleted")),
        "{:?}",
        fixture.disk_names()
    );
}

#[test]
fn retention_by_time_removes_old_segments_the_active_one_too() {
    let fixture = fixture(&[("internal.segment.bytes", "900"), ("retention.ms", "10000")]);
    for index in 0..3 {
        fixture.append(&batch(4, 100, NOW + index * 4000));
    }
    assert_eq!(fixture.log.delete_old_segments(NOW + 10_003).unwrap(), 0);
    assert_eq!(fixture.log.delete_old_segments(NOW + 10_004).unwrap(), 1);
    assert_eq!(fixture.log.log_start_offset(), 4);
    assert_eq!(fixture.log.delete_old_segments(NOW + 1_000_000).unwrap(), 2);
    assert_eq!(
        (fixture.log.log_start_offset(), fixture.log.log_end_offset()),
        (12, 12)
    );
    assert_eq!(fixture.log.segment_base_offsets(), [12]);
    fixture.log.check_invariants();
    assert_eq!(fixture.append(&batch(1, 10, NOW)).first_offset, 12);
}

#[test]
fn retention_by_size_leaves_at_least_that_much_and_nothing_above_the_high_watermark_goes() {
    let fixture = fixture(&[
        ("internal.segment.bytes", "900"),
        ("retention.bytes", "1300"),
        ("retention.ms", "-1"),
    ]);
    for _ in 0..5 {
        fixture
            .log
            .append_as_leader(&batch(4, 100, NOW), 0, AppendOrigin::Client, NOW)
            .unwrap();
    }
    let segment = fixture.log.size_in_bytes() / 5;
    fixture.log.update_high_watermark(7);
    assert_eq!(fixture.log.delete_old_segments(NOW).unwrap(), 1);
    fixture.log.update_high_watermark(20);
    fixture.log.delete_old_segments(NOW).unwrap();
    let left = fixture.log.size_in_bytes();
    assert!(left >= 1300 && left < 1300 + segment, "{left}");
    fixture.log.check_invariants();
}

#[test]
fn delete_records_moves_the_start_within_a_segment_and_retention_takes_what_is_below() {
    let fixture = fixture(&[("internal.segment.bytes", "900")]);
    for _ in 0..3 {
        fixture.append(&batch(4, 100, NOW));
    }
    assert!(fixture.log.maybe_increment_log_start_offset(6).unwrap());
    assert!(!fixture.log.maybe_increment_log_start_offset(5).unwrap());
    let above = fixture.log.maybe_increment_log_start_offset(13);
    assert!(matches!(above, Err(LogError::OffsetOutOfRange { .. })));
    assert!(fixture.log.read(5, 100, FetchIsolation::LogEnd, true).is_err());
    assert_eq!(read(&fixture.log, 6, FetchIsolation::LogEnd), [4, 5, 6, 7]);
    assert_eq!(fixture.log.leader_epochs(), [(0, 6)]);
    assert_eq!(fixture.log.delete_old_segments(NOW).unwrap(), 1);
    assert_eq!(fixture.log.segment_base_offsets(), [4, 8]);
    // The checkpoint says what the first segment's name does not.
    fixture.manager.checkpoint_log_start_offsets().unwrap();
    fixture.manager.shutdown(1).unwrap();
    let manager = open_manager(
        fixture.disk.clone(),
        fixture.clock.clone(),
        &[PathBuf::from("/d")],
    );
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    assert_eq!(
        manager
            .get(&TopicPartition::new("t", 0))
            .unwrap()
            .log_start_offset(),
        6
    );
}

#[test]
fn follower_takes_batches_as_they_are_up_to_a_newer_epoch_or_the_cut_end() {
    let leader = fixture(&[]);
    for epoch in 0..3 {
        leader
            .log
            .append_as_leader(&batch(2, 10, NOW), epoch, AppendOrigin::Client, NOW)
            .unwrap();
    }
    let bytes = leader
        .log
        .read_bytes(0, 1 << 20, FetchIsolation::LogEnd, true)
        .unwrap();
    let follower = fixture(&[]);
    let info = follower.log.append_as_follower(&bytes, 1).unwrap();
    assert_eq!((info.first_offset, info.last_offset), (0, 3));
    assert_eq!(follower.log.leader_epochs(), [(0, 0), (1, 2)]);
    let again = follower.log.append_as_follower(&bytes, 2);
    assert!(matches!(
        again,
        Err(LogError::UnexpectedAppendOffset { expected: 4, .. })
    ));
    let rest = leader
        .log
        .read_bytes(4, 1 << 20, FetchIsolation::LogEnd, true)
        .unwrap();
    let nothing = follower
        .log
        .append_as_follower(&rest.slice(..rest.len() - 1), 2)
        .unwrap();
    assert_eq!((nothing.first_offset, nothing.valid_bytes), (-1, 0));
    follower.log.append_as_follower(&rest, 2).unwrap();
    assert_eq!(
        follower
            .log
            .read_bytes(0, 1 << 20, FetchIsolation::LogEnd, true)
            .unwrap(),
        bytes
    );
    let mut damaged = rest.to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let refused = follower.log.append_as_follower(&Bytes::from(damaged), 2);
    assert!(matches!(refused, Err(LogError::CorruptRecord { .. })));
    follower.log.check_invariants();
}

#[test]
fn offset_for_timestamp_is_the_first_record_at_or_after_it() {
    let fixture = fixture(&[("internal.segment.bytes", "900"), ("index.interval.bytes", "0")]);
    for index in 0..6 {
        fixture.append(&batch(4, 100, NOW + index * 100));
    }
    let offset = |timestamp| {
        fixture
            .log
            .offset_for_timestamp(timestamp)
            .unwrap()
            .map(|found| found.offset)
    };
    assert_eq!(offset(0), Some(0));
    assert_eq!(offset(NOW + 2), Some(2));
    assert_eq!(offset(NOW + 4), Some(4));
    assert_eq!(offset(NOW + 303), Some(15));
    assert_eq!(offset(NOW + 504), None);
    let latest = fixture.log.offset_of_max_timestamp().unwrap().unwrap();
    assert_eq!(
        (latest.offset, latest.timestamp, latest.leader_epoch),
        (23, NOW + 503, Some(0))
    );
}

#[test]
fn flush_messages_makes_appends_durable_by_themselves() {
    let fixture = fixture(&[("flush.messages", "4")]);
    fixture.append(&batch(3, 10, NOW));
    assert_eq!(fixture.log.recovery_point(), 0);
    fixture.append(&batch(1, 10, NOW));
    assert_eq!(fixture.log.recovery_point(), 4);
}

#[test]
fn rolled_segments_are_flushed_beside_requests() {
    let fixture = fixture(&[("internal.segment.bytes", "900")]);
    for _ in 0..3 {
        fixture.append(&batch(4, 100, NOW));
    }
    assert_eq!(fixture.log.recovery_point(), 0);
    fixture.manager.run_roll_flushes();
    assert_eq!(fixture.log.recovery_point(), 8);
}

#[test]
fn topic_id_is_written_once_and_another_is_refused() {
    let fixture = fixture(&[]);
    let id = uuid::Uuid::from_u128(77);
    fixture.log.assign_topic_id(id).unwrap();
    fixture.log.assign_topic_id(id).unwrap();
    let other = fixture.log.assign_topic_id(uuid::Uuid::from_u128(78));
    assert!(matches!(other, Err(LogError::InconsistentTopicId { .. })));
    assert_eq!(fixture.log.topic_id(), Some(id));
}

#[test]
fn one_sync_serves_all_appends_that_wait_for_it() {
    use crate::io::stalling_disk::{StallingCall, StallingDisk};
    let disk = Arc::new(StallingDisk::new(Arc::new(SimDisk::new())));
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &[PathBuf::from("/d")]);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let log = manager
        .get_or_create(
            &TopicPartition::new("t", 0),
            None,
            config_with(&[("flush.messages", "1")]),
        )
        .unwrap();
    let append = || {
        log.append_as_leader(&batch(1, 10, NOW), 0, AppendOrigin::Client, NOW)
            .unwrap()
    };
    // The small files are synced with the first one.
    append();
    let before = disk.syncs();
    disk.stall(Path::new("/d/t-0"), StallingCall::Sync);
    let wait_until = |condition: &dyn Fn() -> bool| {
        while !condition() {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(append);
        wait_until(&|| disk.hanging() == 1);
        // A sync that hangs holds no append back.
        let others: Vec<_> = (0..7).map(|_| scope.spawn(append)).collect();
        wait_until(&|| log.log_end_offset() == 9);
        assert!(others.iter().all(|other| !other.is_finished()), "not durable yet");
        assert_eq!(log.recovery_point(), 1);
        disk.release();
        first.join().unwrap();
        for other in others {
            other.join().unwrap();
        }
    });
    assert_eq!(log.recovery_point(), 9);
    assert_eq!(disk.syncs() - before, 2);
}

#[test]
fn segment_that_is_rolled_during_a_flush_is_recovered_until_its_indexes_are_durable_too() {
    use crate::io::stalling_disk::{StallingCall, StallingDisk};
    for seed in 0..20 {
        let sim = Arc::new(SimDisk::new());
        let disk = Arc::new(StallingDisk::new(sim.clone()));
        let open = |disk: Arc<dyn crate::io::disk::Disk>| {
            let manager = open_manager(disk, TestClock::at(NOW), &[PathBuf::from("/d")]);
            manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
            let config = LogConfig::default();
            let log = manager
                .get_or_create(&TopicPartition::new("t", 0), None, config)
                .unwrap();
            (manager, log)
        };
        let (manager, log) = open(disk.clone());
        let append = |records: &Bytes, origin| log.append_as_leader(records, 0, origin, NOW).unwrap();
        append(&producer_batch(7, 0, 3, true), AppendOrigin::Client);
        log.flush().unwrap();
        append(&marker(7, ControlRecordType::Abort), AppendOrigin::Coordinator);
        disk.stall(&log.dir().join("00000000000000000000.log"), StallingCall::Sync);
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| log.flush());
            while disk.hanging() == 0 {
                std::thread::yield_now();
            }
            log.roll().unwrap();
            append(&batch(1, 10, NOW), AppendOrigin::Client);
            disk.release();
            flush.join().unwrap().unwrap();
        });
        assert_eq!(log.segment_base_offsets(), [0, 4]);
        manager.checkpoint_recovery_points().unwrap();
        drop((log, manager));
        sim.lose_power(seed);

        let (_manager, log) = open(sim);
        assert!(log.log_end_offset() >= 4, "{seed}: what was flushed is there");
        log.update_high_watermark(log.log_end_offset());
        let found = log.read(0, 1 << 20, FetchIsolation::TxnCommitted, true).unwrap();
        let aborted = found.aborted_transactions.unwrap();
        assert_eq!(
            aborted.len(),
            1,
            "{seed}: read_committed would see what was aborted"
        );

        // What the roll left to be done comes next, and the recovery point then follows.
        log.flush().unwrap();
        assert_eq!(log.recovery_point(), log.log_end_offset());
    }
}

#[test]
fn flush_that_a_roll_overtook_leaves_the_rest_to_the_flush_of_the_roll() {
    use crate::io::stalling_disk::{StallingCall, StallingDisk};
    let disk = Arc::new(StallingDisk::new(Arc::new(SimDisk::new())));
    let manager = open_manager(disk.clone(), TestClock::at(NOW), &[PathBuf::from("/d")]);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let log = manager
        .get_or_create(&TopicPartition::new("t", 0), None, LogConfig::default())
        .unwrap();
    log.append_as_leader(&batch(3, 10, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap();
    disk.stall(&log.dir().join("00000000000000000000.log"), StallingCall::Sync);
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| log.flush());
        while disk.hanging() == 0 {
            std::thread::yield_now();
        }
        log.roll().unwrap();
        disk.release();
        flush.join().unwrap().unwrap();
    });
    assert_eq!(log.recovery_point(), 0);
    assert!(log.segments.load()[0].has_dirty_indexes());
    manager.run_roll_flushes();
    assert_eq!(log.recovery_point(), 3);
    assert!(!log.segments.load()[0].has_dirty_indexes());
}

#[test]
fn room_that_was_set_aside_for_a_segment_is_given_back_when_it_is_closed() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(crate::io::disk::SystemDisk::new());
    let manager = open_manager(disk, TestClock::at(NOW), &[dir.path().to_path_buf()]);
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let log = manager
        .get_or_create(&TopicPartition::new("t", 0), None, config_with(&[]))
        .unwrap();
    let fill = |base_offset: i64| {
        for _ in 0..40 {
            log.append_as_leader(&batch(1, 100_000, NOW), 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
        let path = log.dir().join(format!("{base_offset:020}.log"));
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), log.segments.load().last().unwrap().size());
        path
    };
    let room_behind = |path: &Path| {
        let metadata = std::fs::metadata(path).unwrap();
        (metadata.blocks() * 512).saturating_sub(metadata.len())
    };
    let rolled = fill(0);
    log.roll().unwrap();
    let active = fill(40);
    // A file system that does not do it has written no block yet, or just those that there are.
    log.flush().unwrap();
    assert!(room_behind(&rolled) < 65_536, "{}", room_behind(&rolled));
    assert!(room_behind(&active) < 2 << 20, "{}", room_behind(&active));
    manager.shutdown(1).unwrap();
    assert!(room_behind(&active) < 65_536, "{}", room_behind(&active));
}

#[test]
fn room_that_a_killed_run_had_set_aside_is_given_back_by_the_recovery() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let disk = Arc::new(crate::io::disk::SystemDisk::new());
        let manager = open_manager(disk, TestClock::at(NOW), &[dir.path().to_path_buf()]);
        manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
        manager
    };
    let manager = open();
    let log = manager
        .get_or_create(&TopicPartition::new("t", 0), None, config_with(&[]))
        .unwrap();
    for _ in 0..40 {
        log.append_as_leader(&batch(1, 100_000, NOW), 0, AppendOrigin::Client, NOW)
            .unwrap();
    }
    let path = log.dir().join(format!("{:020}.log", 0));
    drop((log, manager));
    let _manager = open();
    // What was not written to the device yet has no blocks, so it must be.
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert!(metadata.len() > 4_000_000);
    let room_behind = (metadata.blocks() * 512).saturating_sub(metadata.len());
    assert!(room_behind < 65_536, "{room_behind}");
}
