use super::*;

const PID: i64 = 7;
const NOW: i64 = 1_700_000_000_000;

fn state() -> ProducerState {
    ProducerState::new(TopicPartition::new("t", 0), 900_000, 86_400_000, BTreeSet::new())
}

fn data(epoch: i16, sequence: i32, offset: i64, count: i32) -> BatchHeader {
    header(epoch, sequence, offset, count, 0)
}

fn txn_data(epoch: i16, sequence: i32, offset: i64, count: i32) -> BatchHeader {
    header(epoch, sequence, offset, count, 0x10)
}

fn header(epoch: i16, sequence: i32, offset: i64, count: i32, attributes: i16) -> BatchHeader {
    BatchHeader {
        base_offset: offset,
        batch_length: 100,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes,
        last_offset_delta: count - 1,
        base_timestamp: NOW,
        max_timestamp: NOW,
        producer_id: PID,
        producer_epoch: epoch,
        base_sequence: sequence,
        records_count: count,
    }
}

fn append_as(
    state: &mut ProducerState,
    batch: &BatchHeader,
    marker: Option<MarkerRecord>,
    origin: AppendOrigin,
) -> Result<Option<CompletedTxn>, LogError> {
    let mut info = state.prepare_update(batch.producer_id, origin);
    let completed = info.append(
        batch,
        marker.as_ref(),
        LogOffsetMetadata::offset_only(batch.base_offset),
    )?;
    state.update(&info);
    if let Some(completed) = &completed {
        state.complete_txn(completed);
    }
    state.update_map_end_offset(batch.next_offset());
    Ok(completed)
}

fn append(state: &mut ProducerState, batch: &BatchHeader) -> Result<Option<CompletedTxn>, LogError> {
    append_as(state, batch, None, AppendOrigin::Client)
}

fn marker(control_type: ControlRecordType, coordinator_epoch: i32) -> Option<MarkerRecord> {
    let marker = EndTransactionMarker {
        control_type,
        coordinator_epoch,
    };
    Some(MarkerRecord {
        marker,
        timestamp: NOW,
        transaction_version: 0,
    })
}

fn end_txn(
    state: &mut ProducerState,
    epoch: i16,
    offset: i64,
    control_type: ControlRecordType,
    coordinator_epoch: i32,
) -> Result<Option<CompletedTxn>, LogError> {
    let batch = header(epoch, -1, offset, 1, 0x30);
    append_as(
        state,
        &batch,
        marker(control_type, coordinator_epoch),
        AppendOrigin::Coordinator,
    )
}

#[test]
fn first_batch_of_an_unknown_producer_may_have_any_sequence() {
    let mut state = state();
    append(&mut state, &data(3, 17, 0, 2)).unwrap();
    assert_eq!(state.entry(PID).unwrap().last_sequence(), 18);
}

#[test]
fn next_sequence_must_follow_the_last() {
    let mut state = state();
    append(&mut state, &data(0, 0, 0, 3)).unwrap();
    append(&mut state, &data(0, 3, 3, 1)).unwrap();
    let gap = append(&mut state, &data(0, 5, 4, 1)).unwrap_err();
    assert!(matches!(gap, LogError::OutOfOrderSequence { .. }));
    assert_eq!(
        gap.to_string(),
        "Out of order sequence number for producer 7 at offset 4 in partition t-0: 5 (incoming seq. number), 3 \
         (current end sequence number)"
    );
    append(&mut state, &data(0, 4, 4, 1)).unwrap();
}

#[test]
fn sequence_wraps_to_zero_after_the_largest() {
    let mut state = state();
    append(&mut state, &data(0, i32::MAX - 1, 0, 2)).unwrap();
    append(&mut state, &data(0, 0, 2, 1)).unwrap();
    assert_eq!(state.entry(PID).unwrap().last_sequence(), 0);
}

#[test]
fn new_epoch_must_start_at_zero_and_an_old_one_is_refused() {
    let mut state = state();
    append(&mut state, &data(0, 0, 0, 1)).unwrap();
    let wrong = append(&mut state, &data(1, 1, 1, 1)).unwrap_err();
    assert!(matches!(wrong, LogError::OutOfOrderSequence { .. }), "{wrong}");
    append(&mut state, &data(1, 0, 1, 1)).unwrap();
    let old = append(&mut state, &data(0, 1, 2, 1)).unwrap_err();
    assert!(matches!(old, LogError::InvalidProducerEpoch { .. }));
    assert_eq!(
        old.to_string(),
        "Epoch of producer 7 at offset 2 in t-0 is 0, which is smaller than the last seen epoch 1 (TV0)"
    );
}

#[test]
fn follower_takes_what_its_leader_took() {
    let mut state = state();
    append(&mut state, &data(5, 0, 0, 1)).unwrap();
    append_as(&mut state, &data(4, 9, 1, 1), None, AppendOrigin::Replication).unwrap();
}

#[test]
fn one_of_the_last_five_batches_again_is_a_duplicate() {
    let mut state = state();
    for index in 0..7 {
        append(&mut state, &data(0, index * 2, i64::from(index) * 2, 2)).unwrap();
    }
    let entry = state.entry(PID).unwrap();
    assert_eq!(entry.batches().count(), 5);
    assert!(entry.find_duplicate(&data(0, 2, 0, 2)).is_none());
    let duplicate = entry.find_duplicate(&data(0, 4, 0, 2)).unwrap();
    assert_eq!((duplicate.first_offset(), duplicate.last_offset), (4, 5));
    assert!(entry.find_duplicate(&data(0, 4, 0, 1)).is_none());
    assert!(entry.find_duplicate(&data(1, 4, 0, 2)).is_none());
}

#[test]
fn open_transaction_holds_the_first_unstable_offset_until_its_marker_is_replicated() {
    let mut state = state();
    append(&mut state, &txn_data(0, 0, 10, 3)).unwrap();
    append(&mut state, &txn_data(0, 3, 13, 1)).unwrap();
    assert_eq!(state.first_unstable_offset().unwrap().message_offset, 10);
    let completed = end_txn(&mut state, 0, 14, ControlRecordType::Abort, 0)
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            completed.first_offset,
            completed.last_offset,
            completed.is_aborted
        ),
        (10, 14, true)
    );
    state.on_high_watermark_updated(14);
    assert_eq!(state.first_unstable_offset().unwrap().message_offset, 10);
    state.on_high_watermark_updated(15);
    assert_eq!(state.first_unstable_offset(), None);
    // The next transaction goes on with the sequences: a marker does not reset them.
    append(&mut state, &txn_data(0, 4, 15, 1)).unwrap();
}

#[test]
fn last_stable_offset_of_a_completed_transaction_is_the_next_open_ones_start() {
    let mut state = state();
    append(&mut state, &txn_data(0, 0, 10, 1)).unwrap();
    let other = BatchHeader {
        producer_id: 8,
        ..txn_data(0, 0, 11, 1)
    };
    append(&mut state, &other).unwrap();
    let completed = CompletedTxn {
        producer_id: PID,
        first_offset: 10,
        last_offset: 12,
        is_aborted: true,
    };
    assert_eq!(state.last_stable_offset(&completed), 11);
    let completed = CompletedTxn {
        producer_id: 8,
        first_offset: 11,
        last_offset: 12,
        is_aborted: true,
    };
    assert_eq!(state.last_stable_offset(&completed), 10);
}

#[test]
fn plain_batch_in_an_open_transaction_is_refused() {
    let mut state = state();
    append(&mut state, &txn_data(0, 0, 10, 1)).unwrap();
    let refused = append(&mut state, &data(0, 1, 11, 1)).unwrap_err();
    assert!(matches!(refused, LogError::InvalidTxnState { .. }), "{refused}");
    assert!(state.has_ongoing_transaction(PID));
}

#[test]
fn marker_of_an_older_coordinator_is_refused_and_one_without_records_ends_nothing() {
    let mut state = state();
    append(&mut state, &txn_data(0, 0, 10, 1)).unwrap();
    end_txn(&mut state, 0, 11, ControlRecordType::Commit, 5)
        .unwrap()
        .unwrap();
    assert_eq!(
        end_txn(&mut state, 1, 12, ControlRecordType::Commit, 5).unwrap(),
        None
    );
    let zombie = end_txn(&mut state, 1, 13, ControlRecordType::Commit, 4).unwrap_err();
    assert!(
        matches!(zombie, LogError::TransactionCoordinatorFenced { .. }),
        "{zombie}"
    );
}

#[test]
fn idle_producers_expire_but_not_in_a_transaction() {
    let mut state = state();
    append(&mut state, &data(0, 0, 0, 1)).unwrap();
    let open = BatchHeader {
        producer_id: 8,
        ..txn_data(0, 0, 1, 1)
    };
    append(&mut state, &open).unwrap();
    state.remove_expired_producers(NOW + 86_399_999);
    assert_eq!(state.entries().count(), 2);
    state.remove_expired_producers(NOW + 86_400_000);
    assert_eq!(
        state.entries().map(|entry| entry.producer_id).collect::<Vec<_>>(),
        [8]
    );
    assert!(!state.has_late_transaction(NOW + 900_000 + 300_000));
    assert!(state.has_late_transaction(NOW + 900_000 + 300_001));
}

#[test]
fn snapshot_reads_back_with_the_last_batch_and_open_transactions() {
    let mut state = state();
    for index in 0..3 {
        append(&mut state, &txn_data(4, index, 10 + i64::from(index), 1)).unwrap();
    }
    let bytes = encode_snapshot(state.entries());
    assert_eq!(bytes.len(), 10 + 46);
    let entries = decode_snapshot(&bytes).unwrap();
    assert_eq!(entries[0].batches().count(), 1);
    let mut loaded = self::state();
    loaded.load_snapshot(13, entries, NOW);
    assert_eq!(loaded.summaries(), state.summaries());
    assert_eq!(loaded.ongoing_first_offsets(), [10]);
    assert_eq!(loaded.map_end_offset(), 13);
    assert_eq!(encode_snapshot(loaded.entries()), bytes);
}

#[test]
fn snapshot_with_any_bit_flipped_or_cut_is_refused() {
    let mut state = state();
    append(&mut state, &data(0, 0, 0, 1)).unwrap();
    let bytes = encode_snapshot(state.entries());
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_snapshot(&damaged).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(decode_snapshot(&bytes[..length]).is_err(), "length {length}");
    }
}

#[test]
fn snapshots_of_kafka_encode_to_the_same_bytes() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for path in [
        "single/data/txn-0/00000000000000000024.snapshot",
        "single/data/txn-0/00000000000000000032.snapshot",
        "single/data/idempotent-0/00000000000000000012.snapshot",
        "crash/data/crash-txn-0/00000000000000000004.snapshot",
    ] {
        let bytes = std::fs::read(root.join(path)).unwrap();
        let entries = decode_snapshot(&bytes).unwrap();
        assert!(!entries.is_empty(), "{path}");
        assert_eq!(encode_snapshot(entries.iter()), bytes, "{path}");
    }
}

#[test]
fn stray_snapshots_are_all_off_the_segments_but_the_last_above_them() {
    let snapshots = BTreeSet::from([5, 10, 12, 20, 25, 30]);
    assert_eq!(
        ProducerState::stray_snapshots(&snapshots, &[0, 10, 20]),
        [5, 12, 25]
    );
    let snapshots = BTreeSet::from([5, 10, 12, 20]);
    assert_eq!(ProducerState::stray_snapshots(&snapshots, &[0, 10, 20]), [5, 12]);
}

#[test]
fn idle_producers_keep_their_newest_batch_until_they_expire() {
    let mut state = state();
    for batch in 0..5 {
        append(&mut state, &data(0, batch * 10, i64::from(batch) * 10, 10)).unwrap();
    }
    let duplicate_of = |state: &ProducerState, sequence: i32| {
        let batch = data(0, sequence, 1_000, 10);
        state.entry(PID).and_then(|entry| entry.find_duplicate(&batch))
    };
    // Where the log ends, and that it ended there an hour ago, is seen by two passes; the next one acts on it.
    state.remove_expired_producers(NOW);
    state.remove_expired_producers(NOW + IDLE_PRODUCER_MS - 1);
    state.remove_expired_producers(NOW + IDLE_PRODUCER_MS);
    assert_eq!(duplicate_of(&state, 0).map(|batch| batch.last_offset), Some(9));
    state.remove_expired_producers(NOW + IDLE_PRODUCER_MS + 1);
    assert_eq!(duplicate_of(&state, 0), None);
    assert_eq!(duplicate_of(&state, 40).map(|batch| batch.last_offset), Some(49));
    append(&mut state, &data(0, 50, 50, 10)).unwrap();
    assert_eq!(duplicate_of(&state, 40).map(|batch| batch.last_offset), Some(49));
    state.remove_expired_producers(NOW + 86_400_000);
    assert_eq!(state.entry(PID), None);
}

#[test]
fn active_producer_of_old_records_keeps_all_batches_that_may_be_tried_again() {
    let mut state = state();
    // Its records are half a day old, the retention passes come every five minutes.
    let mut now_ms = NOW + 43_200_000;
    for batch in 0..60 {
        let start = batch * 10;
        append(&mut state, &data(0, start, i64::from(start), 10)).unwrap();
        state.remove_expired_producers(now_ms);
        let kept = state.entry(PID).unwrap().batches().count();
        assert_eq!(
            kept,
            NUM_BATCHES_TO_RETAIN.min(batch as usize + 1),
            "after {batch}"
        );
        now_ms += 300_000;
    }
}

#[test]
fn batches_behind_a_truncation_are_not_taken_for_those_that_were_there_before() {
    let mut state = state();
    append(&mut state, &data(0, 0, 1_000, 10)).unwrap();
    state.remove_expired_producers(NOW);
    state.remove_expired_producers(NOW + IDLE_PRODUCER_MS);
    state.truncate_fully_and_start_at(0);
    for batch in 0..5 {
        append(&mut state, &data(0, batch * 10, i64::from(batch) * 10, 10)).unwrap();
    }
    state.remove_expired_producers(NOW + IDLE_PRODUCER_MS + 1);
    state.remove_expired_producers(NOW + IDLE_PRODUCER_MS + 2);
    assert_eq!(state.entry(PID).unwrap().batches().count(), 5);
}

#[test]
fn producers_expire_in_turns_of_a_bounded_length() {
    let mut state = state();
    for producer_id in 0..25_000 {
        let batch = BatchHeader {
            producer_id,
            ..data(0, 0, producer_id, 1)
        };
        append(&mut state, &batch).unwrap();
    }
    let later = NOW + 86_400_000;
    let first = state.expire_some(None, later);
    assert_eq!(first, Some(9_999));
    assert_eq!(state.entries().count(), 15_000);
    let second = state.expire_some(first, later);
    assert_eq!(second, Some(19_999));
    assert_eq!(state.expire_some(second, later), Some(24_999));
    assert_eq!(state.entries().count(), 0);
    assert_eq!(state.expire_some(Some(24_999), later), None);
}

/// The bytes of memory that this process has in use.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
#[ignore = "a million producers: run it alone, with --release"]
fn million_idle_producers_take_less_than_150_mb_and_expire_without_a_long_wait() {
    let mut state = state();
    let before = resident_bytes();
    for producer_id in 0..1_000_000 {
        let batch = BatchHeader {
            producer_id,
            ..data(0, 0, producer_id, 1)
        };
        append(&mut state, &batch).unwrap();
    }
    let taken = resident_bytes() - before;
    assert!(taken < 150_000_000, "{taken}");
    let mut longest = std::time::Duration::ZERO;
    let mut after = None;
    loop {
        let began = std::time::Instant::now();
        after = state.expire_some(after, NOW + 86_400_000);
        longest = longest.max(began.elapsed());
        if after.is_none() {
            break;
        }
    }
    assert_eq!(state.entries().count(), 0);
    assert!(longest < std::time::Duration::from_millis(100), "{longest:?}");
    println!("{taken} bytes; the longest turn of the expiration took {longest:?}");
}
