use std::collections::BTreeSet;

use super::*;
use crate::log::producer_state::{MarkerRecord, ProducerState};
use crate::log::{AppendOrigin, LogError, LogOffsetMetadata, TopicPartition};
use crate::record::control_record::{ControlRecordType, EndTransactionMarker};

const PID: i64 = 7;
const NOW: i64 = 1_700_000_000_000;
const EXPIRATION_MS: i32 = 86_400_000;

fn state() -> ProducerState {
    ProducerState::new(
        TopicPartition::new("t", 0),
        900_000,
        EXPIRATION_MS,
        BTreeSet::new(),
    )
}

fn batch(producer_epoch: i16, base_sequence: i32, offset: i64, attributes: i16) -> BatchHeader {
    BatchHeader {
        base_offset: offset,
        batch_length: 100,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes,
        last_offset_delta: 0,
        base_timestamp: NOW,
        max_timestamp: NOW,
        producer_id: PID,
        producer_epoch,
        base_sequence,
        records_count: 1,
    }
}

fn transactional(producer_epoch: i16, base_sequence: i32, offset: i64) -> BatchHeader {
    batch(producer_epoch, base_sequence, offset, 0x10)
}

fn request(producer_epoch: i16, base_sequence: i32, supports_epoch_bump: bool) -> VerificationRequest {
    VerificationRequest {
        producer_id: PID,
        producer_epoch,
        base_sequence,
        supports_epoch_bump,
    }
}

/// Of an epoch that is not an older one.
fn start(state: &mut ProducerState, request: &VerificationRequest, now_ms: i64) -> Option<VerificationGuard> {
    state.start_verification(request, now_ms).unwrap()
}

fn verified(guard: Option<VerificationGuard>) -> TransactionCheck {
    TransactionCheck {
        must_be_verified: true,
        guard,
        ..Default::default()
    }
}

/// An append as the log does it.
fn append(state: &mut ProducerState, batch: &BatchHeader, check: &TransactionCheck) -> Result<(), LogError> {
    state.check_verified(batch, check)?;
    let mut info = state.prepare_update(batch.producer_id, AppendOrigin::Client);
    info.append(batch, None, LogOffsetMetadata::offset_only(batch.base_offset))?;
    state.update(&info);
    Ok(())
}

fn end(
    state: &mut ProducerState,
    producer_epoch: i16,
    offset: i64,
    transaction_version: i16,
) -> Result<(), LogError> {
    let marker = MarkerRecord {
        marker: EndTransactionMarker {
            control_type: ControlRecordType::Commit,
            coordinator_epoch: 0,
        },
        timestamp: NOW,
        transaction_version,
    };
    let batch = batch(producer_epoch, -1, offset, 0x30);
    let mut info = state.prepare_update(PID, AppendOrigin::Coordinator);
    let completed = info.append(&batch, Some(&marker), LogOffsetMetadata::offset_only(offset))?;
    state.update(&info);
    completed
        .iter()
        .for_each(|completed| state.complete_txn(completed));
    Ok(())
}

#[test]
fn first_batch_needs_a_guard_and_the_next_ones_need_none() {
    let mut state = state();
    let refused = append(&mut state, &transactional(0, 0, 0), &verified(None));
    assert!(
        matches!(refused, Err(LogError::InvalidTxnState { .. })),
        "{refused:?}"
    );
    let guard = start(&mut state, &request(0, 0, false), NOW);
    assert!(guard.is_some());
    append(&mut state, &transactional(0, 0, 0), &verified(guard)).unwrap();
    assert_eq!(start(&mut state, &request(0, 1, false), NOW), None);
    append(&mut state, &transactional(0, 1, 1), &verified(None)).unwrap();
    // Another epoch's transaction is another one.
    assert!(start(&mut state, &request(1, 0, false), NOW).is_some());
}

#[test]
fn plain_batch_needs_no_guard_and_takes_none_away() {
    let mut state = state();
    let guard = start(&mut state, &request(0, 0, false), NOW);
    append(&mut state, &batch(0, 0, 0, 0), &verified(None)).unwrap();
    assert_eq!(start(&mut state, &request(0, 0, false), NOW), guard);
}

#[test]
fn marker_takes_the_guard_away_so_a_late_batch_opens_no_transaction() {
    let mut state = state();
    let guard = start(&mut state, &request(0, 0, false), NOW);
    end(&mut state, 0, 0, 0).unwrap();
    let late = append(&mut state, &transactional(0, 0, 1), &verified(guard));
    assert!(matches!(late, Err(LogError::InvalidTxnState { .. })), "{late:?}");
    // Nor does the guard of the next transaction let it in.
    let next = start(&mut state, &request(0, 0, false), NOW);
    assert_ne!(next, guard);
    assert!(append(&mut state, &transactional(0, 0, 1), &verified(guard)).is_err());
    append(&mut state, &transactional(0, 0, 1), &verified(next)).unwrap();
}

#[test]
fn requests_verified_together_share_a_guard_and_only_the_first_sequence_opens() {
    let mut state = state();
    let later = start(&mut state, &request(0, 3, false), NOW);
    let first = start(&mut state, &request(0, 0, false), NOW);
    assert_eq!(later, first);
    let refused = append(&mut state, &transactional(0, 3, 0), &verified(later));
    assert!(
        matches!(refused, Err(LogError::OutOfOrderSequence { .. })),
        "{refused:?}"
    );
    append(&mut state, &transactional(0, 0, 0), &verified(first)).unwrap();
}

#[test]
fn sequences_of_an_older_epoch_do_not_count() {
    let mut state = state();
    start(&mut state, &request(0, 0, false), NOW);
    let guard = start(&mut state, &request(1, 5, false), NOW);
    // A producer that is not known may begin anywhere with the older protocol.
    append(&mut state, &transactional(1, 5, 0), &verified(guard)).unwrap();
}

#[test]
fn version_2_begins_with_sequence_0_where_the_producer_is_not_known() {
    let mut state = state();
    let guard = start(&mut state, &request(0, 4, true), NOW);
    let refused = append(&mut state, &transactional(0, 4, 0), &verified(guard));
    assert!(
        matches!(refused, Err(LogError::OutOfOrderSequence { .. })),
        "{refused:?}"
    );
    start(&mut state, &request(0, 0, true), NOW);
    append(&mut state, &transactional(0, 0, 0), &verified(guard)).unwrap();
}

#[test]
fn marker_of_version_2_must_have_a_higher_epoch_than_the_transaction() {
    let mut state = state();
    append(&mut state, &transactional(5, 0, 0), &TransactionCheck::default()).unwrap();
    let stale = end(&mut state, 5, 1, 2);
    assert!(
        matches!(stale, Err(LogError::InvalidProducerEpoch { .. })),
        "{stale:?}"
    );
    assert!(state.has_ongoing_transaction(PID));
    end(&mut state, 6, 1, 2).unwrap();
    assert!(!state.has_ongoing_transaction(PID));
    // It came again after its answer was lost.
    end(&mut state, 6, 2, 2).unwrap();
    // A late one of the transaction before ends nothing of the next.
    append(&mut state, &transactional(6, 0, 3), &TransactionCheck::default()).unwrap();
    assert!(end(&mut state, 6, 4, 2).is_err());
    assert!(state.has_ongoing_transaction(PID));
}

#[test]
fn older_epoch_gets_no_guard_and_stands_in_nobodys_way() {
    let mut state = state();
    append(&mut state, &transactional(5, 0, 0), &TransactionCheck::default()).unwrap();
    let stale = state.start_verification(&request(4, 0, true), NOW);
    assert!(
        matches!(stale, Err(LogError::InvalidProducerEpoch { .. })),
        "{stale:?}"
    );
    append(&mut state, &transactional(5, 1, 1), &verified(None)).unwrap();
}

#[test]
fn guards_expire_with_idle_producers() {
    let mut state = state();
    let guard = start(&mut state, &request(0, 0, false), NOW);
    state.remove_expired_producers(NOW + i64::from(EXPIRATION_MS) - 1);
    assert_eq!(start(&mut state, &request(0, 0, false), NOW), guard);
    state.remove_expired_producers(NOW + i64::from(EXPIRATION_MS));
    assert_ne!(start(&mut state, &request(0, 0, false), NOW), guard);
}
