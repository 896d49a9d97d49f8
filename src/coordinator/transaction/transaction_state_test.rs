use super::TransactionState::*;
use super::*;

const NOW: i64 = 1_000_000;
const V0: TransactionVersion = TransactionVersion::V0;
const V2: TransactionVersion = TransactionVersion::V2;
const STATES: [TransactionState; 6] = [
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
];

fn partition(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
}

/// Producer 7 at epoch 5.
fn metadata(state: TransactionState, version: TransactionVersion) -> TransactionMetadata {
    let mut metadata = TransactionMetadata::new(StrBytes::from_static_str("tx"), 7, 60_000, 1);
    metadata.producer_epoch = 5;
    metadata.previous_producer_id = 7;
    metadata.state = state;
    metadata.client_version = version;
    if !state.is_idle() {
        metadata.partitions.insert(partition(0));
        metadata.start_timestamp_ms = 10;
    }
    metadata
}

fn producer(producer_id: i64, producer_epoch: i16) -> ProducerIdAndEpoch {
    ProducerIdAndEpoch {
        producer_id,
        producer_epoch,
    }
}

/// State, producer id and epoch after it; or the error.
type Short = Result<(TransactionState, i64, i16), ErrorCode>;

/// `Done` leaves all as it was, and is marked by the epoch -2.
fn short(decision: Decision) -> Short {
    match decision {
        Decision::Transition(next) => Ok((next.state, next.producer_id, next.producer_epoch)),
        Decision::Done => Ok((Empty, 0, -2)),
        Decision::NeedsProducerId => Ok((Empty, 0, -3)),
        Decision::Refused(error) => Err(error),
    }
}

const DONE: Short = Ok((Empty, 0, -2));
const NEEDS_ID: Short = Ok((Empty, 0, -3));
const INVALID: Short = Err(ErrorCode::InvalidTxnState);
const CONCURRENT: Short = Err(ErrorCode::ConcurrentTransactions);
const FENCED: Short = Err(ErrorCode::ProducerFenced);
const MAPPING: Short = Err(ErrorCode::InvalidProducerIdMapping);

fn each_state(version: TransactionVersion, decide: impl Fn(TransactionMetadata) -> Decision) -> Vec<Short> {
    STATES
        .iter()
        .map(|state| short(decide(metadata(*state, version))))
        .collect()
}

/// Of the states in order: in the prepared ones the producer is not looked at.
fn unless_prepared(answer: Short) -> [Short; 6] {
    [answer, answer, CONCURRENT, CONCURRENT, answer, answer]
}

#[test]
fn init_without_expectation_raises_the_epoch_or_fences() {
    for (version, server) in [(V0, V0), (V2, V2)] {
        let answers = each_state(version, |m| m.init_producer_id(30_000, None, None, server, NOW));
        let raised = Ok((Empty, 7, 6));
        assert_eq!(
            answers,
            [
                raised,
                Ok((PrepareAbort, 7, 6)),
                CONCURRENT,
                CONCURRENT,
                raised,
                raised
            ]
        );
    }
}

#[test]
fn init_with_the_current_epoch_remembers_it_for_a_retry() {
    let Decision::Transition(next) =
        metadata(Empty, V0).init_producer_id(30_000, Some(producer(7, 5)), None, V0, NOW)
    else {
        panic!("refused");
    };
    assert_eq!(
        (next.producer_epoch, next.last_producer_epoch, next.timeout_ms),
        (6, 5, 30_000)
    );
    // Asked again, the same answer; a stranger's epoch is fenced.
    let again = next.init_producer_id(30_000, Some(producer(7, 5)), None, V0, NOW);
    assert_eq!(short(again), Ok((Empty, 7, 6)));
    let stranger = next.init_producer_id(30_000, Some(producer(7, 4)), None, V0, NOW);
    assert_eq!(short(stranger), FENCED);
    let other_id = next.init_producer_id(30_000, Some(producer(8, 6)), None, V0, NOW);
    assert_eq!(short(other_id), FENCED);
}

#[test]
fn init_with_an_exhausted_epoch_takes_a_new_producer_id() {
    let mut exhausted = metadata(CompleteCommit, V0);
    exhausted.producer_epoch = i16::MAX - 1;
    let init = |new_id| exhausted.init_producer_id(30_000, None, new_id, V0, NOW);
    assert_eq!(short(init(None)), NEEDS_ID);
    assert_eq!(short(init(Some(9))), Ok((Empty, 9, 0)));
    // The producer that exhausted it may ask again with what it has.
    let Decision::Transition(next) =
        exhausted.init_producer_id(1, Some(producer(7, i16::MAX - 1)), Some(9), V0, NOW)
    else {
        panic!("refused");
    };
    assert_eq!(next.last_producer_epoch, i16::MAX - 1);
    let again = next.init_producer_id(1, Some(producer(7, i16::MAX - 1)), None, V0, NOW);
    assert_eq!(short(again), Ok((Empty, 9, 0)));
    // But not one that came to the last epoch.
    exhausted.last_producer_epoch = i16::MAX - 2;
    let again = exhausted.init_producer_id(1, Some(producer(7, i16::MAX - 2)), Some(9), V0, NOW);
    assert_eq!(short(again), Err(ErrorCode::UnknownServerError));
}

#[test]
fn add_partitions_in_each_state() {
    let added = BTreeSet::from([partition(1)]);
    for version in [V0, V2] {
        let add = |id, epoch| {
            each_state(version, |m| {
                m.add_partitions(producer(id, epoch), &added, version, NOW)
            })
        };
        let ongoing = Ok((Ongoing, 7, 5));
        assert_eq!(
            add(7, 5),
            [ongoing, ongoing, CONCURRENT, CONCURRENT, ongoing, ongoing]
        );
        assert_eq!(add(8, 5), unless_prepared(MAPPING));
        assert_eq!(add(7, 4), unless_prepared(FENCED));
        assert_eq!(add(7, 6), unless_prepared(FENCED));
    }
}

#[test]
fn add_partitions_starts_the_clock_once_and_keeps_what_was_added() {
    let Decision::Transition(first) =
        metadata(CompleteAbort, V0).add_partitions(producer(7, 5), &[partition(0)].into(), V0, NOW)
    else {
        panic!("refused");
    };
    assert_eq!(first.start_timestamp_ms, NOW);
    let Decision::Transition(second) =
        first.add_partitions(producer(7, 5), &[partition(1)].into(), V0, NOW + 5)
    else {
        panic!("refused");
    };
    assert_eq!(
        (second.start_timestamp_ms, second.last_update_timestamp_ms),
        (NOW, NOW + 5)
    );
    assert_eq!(second.partitions, [partition(0), partition(1)].into());
    let known = second.add_partitions(producer(7, 5), &[partition(1)].into(), V0, NOW);
    assert_eq!(known, Decision::Done);
}

#[test]
fn end_of_old_clients_in_each_state() {
    let end = |commit| each_state(V0, move |m| m.end(producer(7, 5), commit, V0, None, NOW));
    let invalid = INVALID;
    assert_eq!(
        end(true),
        [
            invalid,
            Ok((PrepareCommit, 7, 5)),
            CONCURRENT,
            CONCURRENT,
            DONE,
            invalid
        ]
    );
    assert_eq!(
        end(false),
        [
            invalid,
            Ok((PrepareAbort, 7, 5)),
            CONCURRENT,
            CONCURRENT,
            invalid,
            DONE
        ]
    );
    for (id, epoch, error) in [(8, 5, MAPPING), (7, 4, FENCED), (7, 6, FENCED)] {
        let refused = each_state(V0, |m| m.end(producer(id, epoch), true, V0, None, NOW));
        assert_eq!(refused, [error; 6]);
    }
}

#[test]
fn end_of_version_2_with_the_current_epoch_in_each_state() {
    let end = |commit| each_state(V2, move |m| m.end(producer(7, 5), commit, V2, None, NOW));
    assert_eq!(
        end(true),
        [
            INVALID,
            Ok((PrepareCommit, 7, 6)),
            CONCURRENT,
            CONCURRENT,
            INVALID,
            INVALID
        ]
    );
    let abort = Ok((PrepareAbort, 7, 6));
    assert_eq!(end(false), [abort, abort, CONCURRENT, CONCURRENT, abort, abort]);
}

#[test]
fn end_of_version_2_that_comes_again_in_each_state() {
    // The epoch before the current one.
    let end = |commit| each_state(V2, move |m| m.end(producer(7, 4), commit, V2, None, NOW));
    assert_eq!(end(true), [FENCED, FENCED, CONCURRENT, CONCURRENT, DONE, INVALID]);
    assert_eq!(
        end(false),
        [FENCED, FENCED, CONCURRENT, CONCURRENT, INVALID, DONE]
    );
    for epoch in [3, 6] {
        let late = each_state(V2, |m| m.end(producer(7, epoch), true, V2, None, NOW));
        assert_eq!(late, unless_prepared(FENCED));
    }
    assert_eq!(
        each_state(V2, |m| m.end(producer(8, 5), true, V2, None, NOW)),
        unless_prepared(MAPPING)
    );
}

#[test]
fn late_end_of_an_earlier_transaction_never_ends_a_later_one() {
    let ongoing = metadata(Ongoing, V2);
    let Decision::Transition(prepared) = ongoing.end(producer(7, 5), true, V2, None, NOW) else {
        panic!("refused");
    };
    let complete = prepared.complete(NOW).unwrap();
    let Decision::Transition(second) =
        complete.add_partitions(producer(7, 6), &[partition(3)].into(), V2, NOW)
    else {
        panic!("refused");
    };
    assert_eq!(short(second.end(producer(7, 5), true, V2, None, NOW)), FENCED);
    assert_eq!(short(second.end(producer(7, 5), false, V2, None, NOW)), FENCED);
}

#[test]
fn end_with_an_exhausted_epoch_goes_on_with_a_new_producer_id() {
    let mut ongoing = metadata(Ongoing, V2);
    ongoing.producer_epoch = i16::MAX - 1;
    let last = producer(7, i16::MAX - 1);
    assert_eq!(short(ongoing.end(last, true, V2, None, NOW)), NEEDS_ID);
    let Decision::Transition(prepared) = ongoing.end(last, true, V2, Some(9), NOW) else {
        panic!("refused");
    };
    assert_eq!(
        (
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.next_producer_id
        ),
        (7, i16::MAX, 9)
    );
    let complete = prepared.complete(NOW).unwrap();
    assert_eq!(
        (
            complete.producer_id,
            complete.producer_epoch,
            complete.next_producer_id
        ),
        (9, 0, -1)
    );
    // Asked again.
    assert_eq!(complete.end(last, true, V2, None, NOW), Decision::Done);
    assert_eq!(short(complete.end(last, false, V2, None, NOW)), INVALID);
}

#[test]
fn fence_raises_the_epoch_once_whatever_the_version() {
    for version in [V0, TransactionVersion::V1, V2] {
        let Decision::Transition(fenced) = metadata(Ongoing, version).fence(version, None, NOW) else {
            panic!("refused");
        };
        assert_eq!((fenced.state, fenced.producer_epoch), (PrepareAbort, 6));
        assert_eq!(fenced.client_version.supports_epoch_bump(), version == V2);
        assert_eq!(fenced.partitions, [partition(0)].into());
    }
}

#[test]
fn complete_ends_what_was_prepared_and_nothing_else() {
    let completed = STATES.map(|state| metadata(state, V0).complete(NOW).map(|next| next.state));
    assert_eq!(
        completed,
        [None, None, Some(CompleteCommit), Some(CompleteAbort), None, None]
    );
    let complete = metadata(PrepareCommit, V2).complete(NOW).unwrap();
    assert!(complete.partitions.is_empty());
    assert_eq!((complete.producer_epoch, complete.start_timestamp_ms), (5, 10));
}

#[test]
fn verification_in_each_state() {
    let errors = STATES.map(|state| metadata(state, V0).verify(producer(7, 5)).err());
    let concurrent = Some(ErrorCode::ConcurrentTransactions);
    assert_eq!(errors, [None, None, concurrent, concurrent, None, None]);
    let fenced = metadata(Ongoing, V0).verify(producer(7, 4)).err();
    assert_eq!(fenced, Some(ErrorCode::ProducerFenced));
}

#[test]
fn only_an_open_transaction_times_out() {
    let late = STATES.map(|state| metadata(state, V0).is_timed_out(NOW));
    assert_eq!(late, [false, true, false, false, false, false]);
    assert!(!metadata(Ongoing, V0).is_timed_out(60_010));
    assert!(metadata(Ongoing, V0).is_timed_out(60_011));
}

#[test]
fn each_decision_of_an_epoch_has_a_time_of_its_own() {
    let next = |decision| match decision {
        Decision::Transition(next) => next,
        other => panic!("{other:?}"),
    };
    let mut current = metadata(Empty, V0);
    let mut decided = Vec::new();
    // The clock stands, goes back, and goes on.
    for now_ms in [NOW, NOW, NOW - 5, NOW + 1, NOW + 50] {
        current = next(current.add_partitions(producer(7, 5), &[partition(0)].into(), V0, now_ms));
        current = next(current.end(producer(7, 5), true, V0, None, now_ms));
        decided.push(current.last_update_timestamp_ms);
        current = current.complete(now_ms).unwrap();
    }
    assert_eq!(decided, [NOW + 1, NOW + 2, NOW + 3, NOW + 4, NOW + 51]);
}
