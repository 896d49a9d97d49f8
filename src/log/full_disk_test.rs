//! A disk that is full, or fails, at any call: what is acknowledged stays, what is refused is not there, and a full disk
//! needs no restart.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::log_manager_test::{TestClock, batch, config_with, open_manager};
use super::*;
use crate::io::disk::{Disk, SystemDisk};
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::record::control_record::{ControlRecordType, EndTransactionMarker, control_batch};
use crate::record::{BatchBuilder, BatchOptions, Batches, records_of};

const NOW: i64 = 1_700_000_000_000;

struct Node {
    disk: Arc<SimDisk>,
    clock: Arc<TestClock>,
    manager: LogManager,
    log: Arc<UnifiedLog>,
}

fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn config() -> LogConfig {
    config_with(&[
        ("internal.segment.bytes", "2000"),
        ("index.interval.bytes", "100"),
        ("file.delete.delay.ms", "1000"),
        ("retention.bytes", "5000"),
        ("retention.ms", "-1"),
    ])
}

fn open(disk: &Arc<SimDisk>, clock: &Arc<TestClock>) -> Result<Node, LogError> {
    let manager = LogManager::open(
        LogManagerConfig::new(vec![PathBuf::from("/d")]),
        disk.clone(),
        clock.clone(),
    )?;
    manager.load_logs(&|_| config(), &|_| false)?;
    let log = manager.get_or_create(&tp(), None, config())?;
    Ok(Node {
        disk: disk.clone(),
        clock: clock.clone(),
        manager,
        log,
    })
}

fn new_node() -> Node {
    open(&Arc::new(SimDisk::new()), &TestClock::at(NOW)).unwrap()
}

fn producer_batch(sequence: i32, count: usize, is_transactional: bool) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: sequence,
        is_transactional,
        ..BatchOptions::default()
    });
    for index in 0..count {
        builder.append(NOW + index as i64, Some(b"key"), Some(&[b'v'; 50]), &[]);
    }
    builder.build().unwrap()
}

fn abort_marker() -> Bytes {
    let options = BatchOptions {
        producer_id: 7,
        producer_epoch: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    let value = EndTransactionMarker {
        control_type: ControlRecordType::Abort,
        coordinator_epoch: 0,
    }
    .value();
    control_batch(options, ControlRecordType::Abort, &value, NOW).unwrap()
}

fn offsets(log: &UnifiedLog) -> Vec<i64> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let bytes = log
            .read_bytes(offset, 1 << 20, FetchIsolation::LogEnd, true)
            .unwrap();
        let before = offset;
        for (header, batch) in Batches::of_bytes(&bytes).map_while(Result::ok) {
            assert!(crate::record::crc_is_valid(&batch));
            let records = records_of(&batch).unwrap().map(|record| record.unwrap().offset);
            found.extend(records.filter(|found| *found >= before));
            offset = header.next_offset();
        }
        assert!(offset > before, "nothing can be read at {offset}");
    }
    found
}

impl Node {
    fn append(&self, records: &Bytes, epoch: i32) -> Result<LogAppendInfo, LogError> {
        self.clock.advance(200);
        let info = self
            .log
            .append_as_leader(records, epoch, AppendOrigin::Client, NOW)?;
        self.log.update_high_watermark(self.log.log_end_offset());
        Ok(info)
    }

    fn fill(&self) -> LogError {
        loop {
            if let Err(error) = self.append(&batch(3, 60, NOW), 0) {
                return error;
            }
        }
    }

    fn is_online(&self) -> bool {
        self.manager.is_log_dir_online(Path::new("/d"))
    }

    /// What is read is the log without a gap, and no more.
    fn check(&self) {
        self.log.check_invariants();
        let expected: Vec<i64> = (self.log.log_start_offset()..self.log.log_end_offset()).collect();
        assert_eq!(offsets(&self.log), expected);
    }
}

#[test]
fn full_disk_refuses_appends_and_nothing_else_until_there_is_room() {
    let node = new_node();
    node.append(&batch(3, 60, NOW), 0).unwrap();
    node.disk.set_capacity(Some(node.disk.used() + 6_000));
    let error = node.fill();
    assert!(error.is_no_space(), "{error}");
    assert!(node.is_online());
    let end = node.log.log_end_offset();
    node.check();
    // The torn write was cut off again.
    let active = *node.log.segment_base_offsets().last().unwrap();
    let path = PathBuf::from(format!("/d/t-0/{active:020}.log"));
    let size = node.disk.read(&path).unwrap().len() as i64;
    assert_eq!(
        size,
        node.log.log_end_offset_metadata().relative_position_in_segment
    );
    // Deletion goes on, and makes room.
    assert!(node.log.maybe_increment_log_start_offset(end - 1).unwrap());
    assert!(node.log.delete_old_segments(NOW).unwrap() > 0);
    assert!(
        node.append(&batch(1, 1, NOW), 0).is_err(),
        "the files wait for their removal"
    );
    node.clock.advance(2_000);
    node.manager.run_deletion(i64::MAX);
    node.disk.set_capacity(Some(node.disk.used() + 200_000));
    assert_eq!(node.append(&batch(3, 60, NOW), 0).unwrap().first_offset, end);
    node.check();
    node.manager.shutdown(1).unwrap();
    let node = open(&node.disk, &node.clock).unwrap();
    assert_eq!(node.log.log_end_offset(), end + 3);
    node.check();
}

#[test]
fn full_disk_is_not_written_to_again_before_there_is_more_room_than_a_scrap() {
    let node = new_node();
    node.disk.set_capacity(Some(node.disk.used() + 3_000));
    node.fill();
    let writes = node.disk.writes();
    for _ in 0..10 {
        node.append(&batch(1, 1, NOW), 0).unwrap_err();
    }
    node.disk.set_capacity(Some(node.disk.used() + 1_000));
    node.append(&batch(1, 1, NOW), 0).unwrap_err();
    assert_eq!(node.disk.writes(), writes);
    node.disk.set_capacity(Some(node.disk.used() + 1_000_000));
    node.append(&batch(1, 1, NOW), 0).unwrap();
}

#[test]
fn floor_of_free_bytes_refuses_appends_below_it() {
    let node = new_node();
    node.disk.set_capacity(Some(node.disk.used() + 500_000));
    node.manager.set_min_free_bytes(400_000);
    node.manager.check_room();
    node.append(&batch(1, 60, NOW), 0).unwrap();
    node.disk.set_capacity(Some(node.disk.used() + 300_000));
    node.manager.check_room();
    let error = node.append(&batch(1, 60, NOW), 0).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    node.check();
    node.disk.set_capacity(Some(node.disk.used() + 600_000));
    node.append(&batch(1, 60, NOW), 0).unwrap();
}

#[test]
fn what_a_start_gave_up_for_the_metadata_log_is_not_taken_by_appends() {
    let node = new_node();
    node.append(&batch(1, 60, NOW), 0).unwrap();
    node.disk.crash_process();
    node.disk.set_capacity(Some(node.disk.used() + 300_000));
    let node = open(&node.disk, &node.clock).unwrap();
    node.manager
        .set_reserve(Reserve::new(node.disk.clone(), Path::new("/d"), 200_000));
    let error = node.append(&batch(1, 60, NOW), 0).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    node.check();
    node.disk.set_capacity(Some(node.disk.used() + 1_000_000));
    node.append(&batch(1, 60, NOW), 0).unwrap();
}

#[test]
fn deletion_needs_no_room_for_other_names() {
    let node = new_node();
    for _ in 0..10 {
        node.append(&batch(10, 60, NOW), 0).unwrap();
    }
    let end = node.log.log_end_offset();
    let held = Arc::clone(&node.log.segments.load()[0]);
    node.disk
        .fail_from(SimOperation::Rename, 0, io::ErrorKind::StorageFull);
    node.log.maybe_increment_log_start_offset(end).unwrap();
    assert!(node.log.delete_old_segments(NOW).unwrap() > 3);
    assert!(!node.disk.exists(Path::new("/d/t-0/00000000000000000000.log")));
    // Who is at it reads on.
    let read = held
        .read(0, 0, 1 << 20, Some(held.size()), true)
        .unwrap()
        .unwrap();
    assert!(read.size_in_bytes() > 0);
    let mut bytes = vec![0; read.size_in_bytes()];
    assert_eq!(read.slices[0].file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    node.clock.advance(2_000);
    node.manager.run_deletion(i64::MAX);
    // A log that begins anew at the same offset keeps its files.
    node.disk.heal();
    node.log.truncate_fully_and_start_at(0, None).unwrap();
    node.append(&batch(1, 1, NOW), 0).unwrap();
    node.manager.run_deletion(i64::MAX);
    node.check();
    node.disk
        .fail_from(SimOperation::Rename, 0, io::ErrorKind::StorageFull);
    node.manager.async_delete(&tp()).unwrap();
    assert!(node.is_online());
    assert!(!node.disk.exists(Path::new("/d/t-0")));
    node.disk.heal();
    let log = node.manager.get_or_create(&tp(), None, config()).unwrap();
    assert_eq!(log.log_end_offset(), 0);
    node.manager.run_deletion(i64::MAX);
    assert!(node.disk.exists(Path::new("/d/t-0")));
}

#[test]
fn tail_that_cannot_be_cut_off_is_cut_off_before_the_next_append() {
    let node = new_node();
    node.append(&batch(3, 60, NOW), 0).unwrap();
    node.disk.tear_write(0, 70, io::ErrorKind::StorageFull);
    node.disk
        .fail_nth(SimOperation::SetLen, 0, io::ErrorKind::StorageFull);
    let error = node.append(&batch(3, 60, NOW), 0).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    node.check();
    node.append(&batch(1, 1, NOW), 0).unwrap();
    node.check();
    node.manager.shutdown(1).unwrap();
    let node = open(&node.disk, &node.clock).unwrap();
    assert_eq!(node.log.log_end_offset(), 4);
    node.check();
}

#[test]
fn aborted_transaction_whose_index_entry_finds_no_room_stays_aborted() {
    for restart in ["none", "clean", "kill"] {
        let node = new_node();
        node.append(&producer_batch(0, 1, true), 0).unwrap();
        // The marker's own write succeeds, its index entry's does not.
        node.disk
            .fail_nth(SimOperation::Write, 1, io::ErrorKind::StorageFull);
        node.log
            .append_as_leader(&abort_marker(), 0, AppendOrigin::Coordinator, NOW)
            .unwrap();
        node.log.update_high_watermark(2);
        let node = match restart {
            "none" => node,
            "clean" => {
                node.manager.shutdown(1).unwrap();
                open(&node.disk, &node.clock).unwrap()
            }
            _ => {
                node.disk.crash_process();
                open(&node.disk, &node.clock).unwrap()
            }
        };
        node.log.update_high_watermark(2);
        let found = node
            .log
            .read(0, 1 << 20, FetchIsolation::TxnCommitted, true)
            .unwrap();
        let aborted = found.aborted_transactions.unwrap();
        assert_eq!(aborted.len(), 1, "{restart}");
        assert_eq!((aborted[0].producer_id, aborted[0].first_offset), (7, 0));
        node.append(&producer_batch(1, 1, false), 0).unwrap();
        assert_eq!(node.log.segments.load()[0].txn_index.all().unwrap().len(), 1);
    }
}

#[test]
fn index_that_a_start_on_a_full_disk_could_not_build_is_built_by_the_next_one() {
    let node = new_node();
    for _ in 0..20 {
        node.append(&batch(3, 60, NOW), 0).unwrap();
    }
    assert!(node.log.segment_base_offsets().len() > 2);
    node.log.flush().unwrap();
    node.manager.checkpoint_recovery_points().unwrap();
    node.disk.crash_process();
    node.disk
        .remove_file(Path::new("/d/t-0/00000000000000000000.index"))
        .unwrap();

    node.disk.set_capacity(Some(0));
    let node = open(&node.disk, &node.clock).unwrap();
    assert_eq!(node.log.recovery_point(), 0);
    node.disk.set_capacity(None);
    let left = node.disk.list(Path::new("/d/t-0")).unwrap();
    let is_cleaners = |(name, _): &(PathBuf, bool)| name.to_string_lossy().ends_with(".cleaned");
    assert!(!left.iter().any(is_cleaners), "{left:?}");
    // What an append owes comes before it.
    node.append(&batch(1, 60, NOW), 0).unwrap();
    node.disk.crash_process();

    let node = open(&node.disk, &node.clock).unwrap();
    let first = Arc::clone(&node.log.segments.load()[0]);
    assert!(first.read_max_timestamp_so_far().unwrap().timestamp >= NOW);
    node.check();
    node.log.flush().unwrap();
    assert_eq!(node.log.recovery_point(), node.log.log_end_offset());
}

#[test]
fn index_that_was_built_anew_below_the_recovery_point_survives_a_power_loss() {
    for seed in 0..10 {
        let node = new_node();
        for _ in 0..20 {
            node.append(&batch(3, 60, NOW), 0).unwrap();
        }
        node.log.flush().unwrap();
        node.manager.checkpoint_recovery_points().unwrap();
        node.disk.crash_process();
        node.disk
            .remove_file(Path::new("/d/t-0/00000000000000000000.index"))
            .unwrap();
        let node = open(&node.disk, &node.clock).unwrap();
        assert!(node.log.recovery_point() > 0);
        node.append(&batch(1, 60, NOW), 0).unwrap();
        node.log.flush().unwrap();
        node.disk.lose_power(seed);

        let node = open(&node.disk, &node.clock).unwrap();
        let first = Arc::clone(&node.log.segments.load()[0]);
        assert!(first.offset_index.last_offset().unwrap() > 0, "{seed}: empty");
    }
}

#[test]
fn new_leader_epoch_on_a_full_disk_is_in_the_file_later() {
    let node = new_node();
    node.append(&batch(1, 60, NOW), 0).unwrap();
    node.disk
        .fail_from(SimOperation::Write, 0, io::ErrorKind::StorageFull);
    // A node that starts on a full disk leads.
    node.log.maybe_assign_epoch_start_offset(5, 1).unwrap();
    assert!(node.append(&batch(1, 60, NOW), 5).unwrap_err().is_no_space());
    assert_eq!(node.log.log_end_offset(), 1);
    node.disk.heal();
    node.append(&batch(1, 60, NOW), 5).unwrap();
    node.log.flush().unwrap();
    let text = node
        .disk
        .read(Path::new("/d/t-0/leader-epoch-checkpoint"))
        .unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "0\n2\n0 0\n5 1\n");
}

#[test]
fn epochs_that_a_full_disk_did_not_forget_are_forgotten_before_the_next_record() {
    for ends_cleanly in [true, false] {
        let node = new_node();
        node.append(&batch(4, 60, NOW), 0).unwrap();
        node.append(&batch(4, 60, NOW), 3).unwrap();
        node.log.flush().unwrap();
        node.disk
            .fail_from(SimOperation::Write, 0, io::ErrorKind::StorageFull);
        // A follower whose leader of epoch 3 was replaced by one of epoch 0's records.
        assert!(node.log.truncate_to(4).unwrap());
        node.log.maybe_increment_log_start_offset(0).unwrap();
        assert!(node.append(&batch(1, 60, NOW), 0).unwrap_err().is_no_space());
        node.disk.heal();
        if ends_cleanly {
            node.manager.shutdown(1).unwrap();
        } else {
            node.append(&batch(1, 60, NOW), 0).unwrap();
            node.disk.crash_process();
        }
        let node = open(&node.disk, &node.clock).unwrap();
        assert_eq!(node.log.log_end_offset(), if ends_cleanly { 4 } else { 5 });
        assert_eq!(node.log.leader_epochs(), [(0, 0)]);
        node.check();
    }
}

#[test]
fn topic_that_is_made_on_a_full_disk_can_be_made_later() {
    let node = new_node();
    let other = TopicPartition::new("u", 0);
    for allowed in 0..20 {
        node.disk
            .fail_from(SimOperation::AnyChange, allowed, io::ErrorKind::StorageFull);
        let made = node
            .manager
            .get_or_create(&other, Some(uuid::Uuid::from_u128(3)), config());
        node.disk.heal();
        match made {
            Ok(_) => break,
            Err(error) => assert!(error.is_no_space(), "{error}"),
        }
        assert!(node.is_online());
    }
    let log = node
        .manager
        .get_or_create(&other, Some(uuid::Uuid::from_u128(3)), config())
        .unwrap();
    assert_eq!(log.topic_id(), Some(uuid::Uuid::from_u128(3)));
    node.clock.advance(1_000);
    log.append_as_leader(&batch(1, 1, NOW), 0, AppendOrigin::Client, NOW)
        .unwrap();
}

/// What a run of the workload did: the log end that was acknowledged last, and errors.
struct Run {
    acknowledged_end: i64,
    /// Of the append that took the directory offline.
    attempted_end: i64,
    errors: Vec<LogError>,
}

/// Appends with rolls, a transaction, new epochs, a truncation, retention, checkpoints and flushes.
fn workload(node: &Node) -> Run {
    let mut run = Run {
        acknowledged_end: node.log.log_end_offset(),
        attempted_end: 0,
        errors: Vec::new(),
    };
    let mut sequence = 0;
    let note = |run: &mut Run, appended: Result<LogAppendInfo, LogError>, count: i64| match appended {
        Ok(info) => {
            run.acknowledged_end = info.last_offset + 1;
            true
        }
        Err(error) => {
            if matches!(error, LogError::Storage { .. }) {
                run.attempted_end = run.acknowledged_end + count;
            }
            run.errors.push(error);
            false
        }
    };
    for round in 0..6 {
        for _ in 0..8 {
            let appended = node.append(&batch(3, 60, NOW), round);
            note(&mut run, appended, 3);
        }
        let appended = node.append(&producer_batch(sequence, 2, true), round);
        if note(&mut run, appended, 2) {
            sequence += 2;
        }
        let ended = node
            .log
            .append_as_leader(&abort_marker(), round, AppendOrigin::Coordinator, NOW);
        note(&mut run, ended, 1);
        node.log.update_high_watermark(node.log.log_end_offset());
        let results = [
            node.log.delete_old_segments(NOW).map(|_| ()),
            node.manager.checkpoint_recovery_points(),
            node.manager.checkpoint_log_start_offsets(),
            if round % 2 == 1 { node.log.flush() } else { Ok(()) },
        ];
        run.errors.extend(results.into_iter().filter_map(Result::err));
        node.manager.run_roll_flushes();
        node.manager.run_deletion(i64::MAX);
    }
    run
}

/// After a kill all that was acknowledged is there, and at most the append that failed besides.
fn check_after_kill(node: &Node, run: &Run) {
    node.disk.heal();
    node.disk.crash_process();
    let node = open(&node.disk, &node.clock).unwrap();
    let end = node.log.log_end_offset();
    assert!(
        end == run.acknowledged_end || end == run.attempted_end,
        "the log ends at {end}, acknowledged was {}",
        run.acknowledged_end
    );
    node.check();
    node.append(&batch(1, 1, NOW), 9).unwrap();
}

#[test]
fn no_room_at_any_one_call_costs_at_most_that_append_and_no_restart() {
    for n in 0..2_000 {
        let node = new_node();
        let before = node.disk.changes();
        node.disk
            .fail_nth(SimOperation::AnyChange, n, io::ErrorKind::StorageFull);
        let run = workload(&node);
        if node.disk.changes() - before <= n {
            assert!(n > 100, "the workload has {n} calls");
            return;
        }
        // A sync or a removal that fails is not for want of room, whatever it says.
        if node.is_online() {
            for error in &run.errors {
                assert!(error.is_no_space(), "call {n}: {error}");
            }
            assert_eq!(node.log.log_end_offset(), run.acknowledged_end, "call {n}");
            node.check();
            let end = node.append(&batch(1, 1, NOW), 8).unwrap().last_offset + 1;
            node.check();
            let run = Run {
                acknowledged_end: end,
                attempted_end: end,
                errors: Vec::new(),
            };
            check_after_kill(&node, &run);
        } else {
            check_after_kill(&node, &run);
        }
    }
    panic!("the workload never ends");
}

#[test]
fn writes_without_room_from_any_call_on_leave_all_that_was_acknowledged() {
    for n in 0..2_000 {
        let node = new_node();
        let before = node.disk.writes();
        node.disk
            .fail_from(SimOperation::Write, n, io::ErrorKind::StorageFull);
        let run = workload(&node);
        if node.disk.writes() - before <= n {
            return;
        }
        assert!(node.is_online(), "call {n}: {:?}", run.errors);
        for error in &run.errors {
            assert!(error.is_no_space(), "call {n}: {error}");
        }
        assert_eq!(node.log.log_end_offset(), run.acknowledged_end, "call {n}");
        node.check();
        node.disk.heal();
        node.append(&batch(1, 1, NOW), 8).unwrap();
        node.check();
        assert_eq!(
            node.manager.shutdown(1).map_err(|error| error.to_string()),
            Ok(())
        );
        let node = open(&node.disk, &node.clock).unwrap();
        assert_eq!(node.log.log_end_offset(), run.acknowledged_end + 1);
        node.check();
    }
    panic!("the workload never ends");
}

#[test]
fn failing_device_at_any_call_takes_the_dir_offline_and_loses_nothing_acknowledged() {
    for n in 0..2_000 {
        let node = new_node();
        let before = node.disk.changes();
        node.disk
            .fail_nth(SimOperation::AnyChange, n, io::ErrorKind::Other);
        let run = workload(&node);
        if node.disk.changes() - before <= n {
            return;
        }
        // The temporary file of a small file that failed is given back, which may fail without harm.
        assert!(
            !node.is_online() || run.errors.is_empty(),
            "call {n}: {:?}",
            run.errors
        );
        check_after_kill(&node, &run);
    }
    panic!("the workload never ends");
}

/// A start after a kill, on a disk that takes nothing any more.
#[test]
fn start_on_a_full_disk_serves_what_is_there() {
    for n in 0..2_000 {
        let node = new_node();
        let run = workload(&node);
        assert!(run.errors.is_empty(), "{:?}", run.errors);
        node.disk.crash_process();
        let before = node.disk.writes();
        node.disk
            .fail_from(SimOperation::Write, n, io::ErrorKind::StorageFull);
        let full = open(&node.disk, &node.clock).unwrap();
        let is_past_the_end = node.disk.writes() - before <= n;
        assert_eq!(full.log.log_end_offset(), run.acknowledged_end, "call {n}");
        full.check();
        full.log.update_high_watermark(run.acknowledged_end);
        full.log
            .maybe_increment_log_start_offset(run.acknowledged_end)
            .unwrap();
        full.log.delete_old_segments(NOW).unwrap();
        assert_eq!(full.log.log_start_offset(), run.acknowledged_end);
        node.disk.heal();
        full.append(&batch(1, 1, NOW), 8).unwrap();
        full.check();
        full.manager.shutdown(1).unwrap();
        let node = open(&node.disk, &node.clock).unwrap();
        assert_eq!(node.log.log_end_offset(), run.acknowledged_end + 1, "call {n}");
        node.check();
        if is_past_the_end {
            return;
        }
    }
    panic!("the start never ends");
}

/// On a real file system; one that cannot set room aside, or has little, behaves the same but for the room.
#[test]
fn room_that_is_set_aside_comes_back_when_the_dir_is_full_and_when_the_log_is_idle() {
    let dir = tempfile::tempdir().unwrap();
    let clock = TestClock::at(NOW);
    let dirs = [dir.path().to_path_buf()];
    let manager = open_manager(Arc::new(SystemDisk::new()), clock.clone(), &dirs);
    manager.load_logs(&|_| config_with(&[]), &|_| false).unwrap();
    let log = manager.get_or_create(&tp(), None, config_with(&[])).unwrap();
    let append = || {
        log.append_as_leader(&batch(10, 9_000, NOW), 0, AppendOrigin::Client, NOW)
            .map(|info| info.last_offset)
    };
    let grow = || {
        for _ in 0..30 {
            append().unwrap();
        }
        assert!(log.active_segment().has_room_set_aside());
    };
    let assert_given_back = || {
        let active = log.active_segment();
        assert!(!active.has_room_set_aside());
        assert_eq!(active.file().unwrap().len().unwrap(), active.size());
        let metadata = std::fs::metadata(active.log_handle().path()).unwrap();
        let taken = metadata.blocks() * 512;
        assert!(taken < active.size() + 200_000, "{taken} for {}", active.size());
    };

    grow();
    manager.set_min_free_bytes(u64::MAX / 4);
    manager.check_room();
    assert!(append().unwrap_err().is_no_space());
    assert_given_back();

    manager.set_min_free_bytes(0);
    clock.advance(1_000);
    manager.check_room();
    grow();
    manager.run_retention(NOW);
    assert!(log.active_segment().has_room_set_aside(), "it is not idle yet");
    manager.run_retention(NOW);
    assert_given_back();
    assert_eq!(append().unwrap(), 609);
    assert_eq!(offsets(&log), (0..610).collect::<Vec<i64>>());
}

/// What retention goes by where records have no time stamps.
#[test]
fn file_that_is_only_recovered_stays_as_old_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = [dir.path().to_path_buf()];
    let manager = open_manager(Arc::new(SystemDisk::new()), TestClock::at(NOW), &dirs);
    manager.load_logs(&|_| config_with(&[]), &|_| false).unwrap();
    let log = manager.get_or_create(&tp(), None, config_with(&[])).unwrap();
    let segment = log.active_segment();
    for _ in 0..2 {
        segment.set_modified_ms(1_000_000).unwrap();
        segment.start_recovery().unwrap();
        segment.on_recovered().unwrap();
        assert_eq!(segment.modified_ms().unwrap(), 1_000_000, "{}", segment.size());
        for _ in 0..2 {
            log.append_as_leader(&batch(100, 9_000, NOW), 0, AppendOrigin::Client, NOW)
                .unwrap();
        }
    }
}
