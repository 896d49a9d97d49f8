//! The table of KIP-227's cases.

use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::replica::ReplicaError;

const NOW: i64 = 1_000_000;

fn named(topic: &str, partition: i32) -> SessionPartition {
    SessionPartition {
        topic_id: Uuid::nil(),
        topic: Some(Arc::from(topic)),
        partition,
    }
}

fn by_id(id: u128, topic: Option<&str>, partition: i32) -> SessionPartition {
    SessionPartition {
        topic_id: Uuid::from_u128(id),
        topic: topic.map(Arc::from),
        partition,
    }
}

fn from(fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        fetch_offset,
        log_start_offset: -1,
        max_bytes: 1024,
        current_leader_epoch: None,
        last_fetched_epoch: None,
    }
}

fn data(high_watermark: i64) -> FetchPartitionData {
    FetchPartitionData {
        error: None,
        high_watermark,
        last_stable_offset: high_watermark,
        log_start_offset: 0,
        aborted_transactions: None,
        diverging_epoch: None,
        preferred_read_replica: -1,
        records: Vec::new(),
    }
}

fn with_records(high_watermark: i64) -> FetchPartitionData {
    FetchPartitionData {
        records: vec![crate::replica::fetch::test_slice(10)],
        ..data(high_watermark)
    }
}

fn answer(partition: SessionPartition, data: FetchPartitionData) -> FetchAnswer {
    FetchAnswer {
        partition,
        request: from(0),
        data,
    }
}

fn no_names(_: Uuid) -> Option<Arc<str>> {
    None
}

fn metadata(session_id: i32, epoch: i32) -> FetchMetadata {
    FetchMetadata { session_id, epoch }
}

/// A shard with `slots` slots and a session over `partitions` in it.
fn shard_with(slots: usize, partitions: &[SessionPartition]) -> (FetchSessionShard, i32) {
    let mut shard = FetchSessionShard::new(0, slots * SHARDS as usize);
    let id = create(&mut shard, false, partitions, NOW);
    assert_ne!(id, INVALID_SESSION_ID);
    (shard, id)
}

fn create(shard: &mut FetchSessionShard, privileged: bool, partitions: &[SessionPartition], now: i64) -> i32 {
    let uses_ids = partitions.iter().any(|partition| !partition.topic_id.is_nil());
    let answers: Vec<_> = partitions
        .iter()
        .map(|partition| answer(partition.clone(), data(5)))
        .collect();
    let mut next = shard.counts().0 as u32 + 6;
    let mut random = || {
        next += 1;
        next
    };
    shard.maybe_create(privileged, uses_ids, &answers, &mut random, now)
}

fn incremental(shard: &mut FetchSessionShard, id: i32, epoch: i32) -> Vec<SessionPartition> {
    match shard.new_context(metadata(id, epoch), false, Vec::new(), &[], &no_names, NOW) {
        FetchContext::Incremental { partitions, .. } => {
            partitions.into_iter().map(|(partition, _)| partition).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn next_epoch_wraps_to_one_and_keeps_the_final_one() {
    assert_eq!(next_epoch(INITIAL_EPOCH), 1);
    assert_eq!(next_epoch(41), 42);
    assert_eq!(next_epoch(i32::MAX), 1);
    assert_eq!(next_epoch(FINAL_EPOCH), FINAL_EPOCH);
}

#[test]
fn full_request_with_epoch_zero_asks_for_a_session_and_with_minus_one_for_none() {
    let mut shard = FetchSessionShard::new(0, 80);
    let fetch = vec![(named("a", 0), from(3))];
    let full = shard.new_context(metadata(0, 0), false, fetch.clone(), &[], &no_names, NOW);
    assert_eq!(full, FetchContext::Full(fetch.clone()));
    let none = shard.new_context(FetchMetadata::LEGACY, false, fetch.clone(), &[], &no_names, NOW);
    assert_eq!(none, FetchContext::Sessionless(fetch));
}

#[test]
fn full_request_naming_a_session_closes_it() {
    for epoch in [INITIAL_EPOCH, FINAL_EPOCH] {
        let (mut shard, id) = shard_with(10, &[named("a", 0)]);
        shard.new_context(
            metadata(id, epoch),
            false,
            vec![(named("a", 0), from(3))],
            &[],
            &no_names,
            NOW,
        );
        assert_eq!(shard.counts(), (0, 0, 0), "epoch {epoch}");
    }
}

#[test]
fn unknown_session_is_not_found() {
    let (mut shard, id) = shard_with(10, &[named("a", 0)]);
    let context = shard.new_context(metadata(id + 1, 1), false, vec![], &[], &no_names, NOW);
    assert_eq!(context, FetchContext::Error(SessionError::IdNotFound));
}

#[test]
fn epoch_out_of_turn_is_invalid_and_changes_nothing() {
    let (mut shard, id) = shard_with(10, &[named("a", 0)]);
    for epoch in [2, 5] {
        let context = shard.new_context(metadata(id, epoch), false, vec![], &[], &no_names, NOW);
        assert_eq!(context, FetchContext::Error(SessionError::InvalidEpoch));
    }
    assert_eq!(incremental(&mut shard, id, 1), [named("a", 0)]);
    assert_eq!(incremental(&mut shard, id, 2), [named("a", 0)]);
}

#[test]
fn request_by_id_in_a_session_by_name_is_a_topic_id_error_and_the_other_way_round() {
    let (mut shard, id) = shard_with(10, &[named("a", 0)]);
    let context = shard.new_context(metadata(id, 1), true, vec![], &[], &no_names, NOW);
    assert_eq!(context, FetchContext::Error(SessionError::TopicId));

    let (mut shard, id) = shard_with(10, &[by_id(7, Some("a"), 0)]);
    let context = shard.new_context(metadata(id, 1), false, vec![], &[], &no_names, NOW);
    assert_eq!(context, FetchContext::Error(SessionError::TopicId));
}

#[test]
fn incremental_request_adds_updates_and_forgets() {
    let (mut shard, id) = shard_with(10, &[named("a", 0), named("b", 0), named("c", 0)]);
    let fetch = vec![(named("b", 0), from(9)), (named("d", 1), from(4))];
    let context = shard.new_context(metadata(id, 1), false, fetch, &[named("a", 0)], &no_names, NOW);
    let expected = vec![
        (named("b", 0), from(9)),
        (named("c", 0), from(0)),
        (named("d", 1), from(4)),
    ];
    assert_eq!(
        context,
        FetchContext::Incremental {
            session_id: id,
            epoch: 2,
            partitions: expected
        }
    );
    assert_eq!(shard.counts().1, 3);
}

#[test]
fn forgetting_all_closes_the_session() {
    let (mut shard, id) = shard_with(10, &[named("a", 0)]);
    let context = shard.new_context(metadata(id, 1), false, vec![], &[named("a", 0)], &no_names, NOW);
    assert_eq!(context, FetchContext::Sessionless(vec![]));
    assert_eq!(shard.counts(), (0, 0, 0));
}

#[test]
fn name_unknown_at_first_is_resolved_later_and_is_the_same_partition() {
    let (mut shard, id) = shard_with(10, &[by_id(7, None, 0)]);
    let names = |topic_id: Uuid| (topic_id == Uuid::from_u128(7)).then(|| Arc::from("late"));
    let context = shard.new_context(metadata(id, 1), true, vec![], &[], &names, NOW);
    let expected = vec![(by_id(7, Some("late"), 0), from(0))];
    assert_eq!(
        context,
        FetchContext::Incremental {
            session_id: id,
            epoch: 2,
            partitions: expected
        }
    );

    // Named by the client now, it is no second partition.
    let fetch = vec![(by_id(7, Some("late"), 0), from(8))];
    shard.new_context(metadata(id, 2), true, fetch, &[], &no_names, NOW);
    assert_eq!(shard.counts().1, 1);
    // And its name is not needed to forget it.
    shard.new_context(
        metadata(id, 3),
        true,
        vec![],
        &[by_id(7, None, 0)],
        &no_names,
        NOW,
    );
    assert_eq!(shard.counts().0, 0);
}

#[test]
fn answer_leaves_out_what_did_not_change() {
    let partitions: Vec<_> = (0..7).map(|partition| named("a", partition)).collect();
    let (mut shard, id) = shard_with(10, &partitions);
    incremental(&mut shard, id, 1);
    let failed = FetchPartitionData::failed(ReplicaError::UnknownTopicId);
    let diverging = crate::replica::fetch::DivergingEpoch {
        epoch: 1,
        end_offset: 2,
    };
    let mut answers = vec![
        answer(named("a", 0), data(5)),
        answer(named("a", 1), with_records(5)),
        answer(named("a", 2), data(6)),
        answer(
            named("a", 3),
            FetchPartitionData {
                log_start_offset: 2,
                ..data(5)
            },
        ),
        answer(named("a", 4), failed),
        answer(
            named("a", 5),
            FetchPartitionData {
                diverging_epoch: Some(diverging),
                ..data(5)
            },
        ),
        answer(
            named("a", 6),
            FetchPartitionData {
                preferred_read_replica: 2,
                ..data(5)
            },
        ),
    ];
    shard.finish_incremental(id, 2, &mut answers).unwrap();
    let sent: Vec<_> = answers.iter().map(|answer| answer.partition.partition).collect();
    assert_eq!(sent, [1, 2, 3, 4, 5, 6]);

    // The same again: only what must always be sent, and nothing that was just told.
    incremental(&mut shard, id, 2);
    let mut answers = vec![
        answer(named("a", 2), data(6)),
        answer(
            named("a", 3),
            FetchPartitionData {
                log_start_offset: 2,
                ..data(5)
            },
        ),
    ];
    shard.finish_incremental(id, 3, &mut answers).unwrap();
    assert!(answers.is_empty());
}

#[test]
fn error_gone_is_told_even_if_nothing_else_changed() {
    let (mut shard, id) = shard_with(10, &[named("a", 0)]);
    incremental(&mut shard, id, 1);
    let failed = FetchPartitionData::failed(ReplicaError::UnknownTopicId);
    shard
        .finish_incremental(id, 2, &mut vec![answer(named("a", 0), failed)])
        .unwrap();
    incremental(&mut shard, id, 2);
    let mut answers = vec![answer(named("a", 0), data(5))];
    shard.finish_incremental(id, 3, &mut answers).unwrap();
    assert_eq!(answers.len(), 1);
}

#[test]
fn partition_with_records_is_read_last_the_next_time() {
    let (mut shard, id) = shard_with(10, &[named("a", 0), named("b", 0), named("c", 0)]);
    incremental(&mut shard, id, 1);
    let mut answers = vec![
        answer(named("a", 0), with_records(9)),
        // A new high watermark alone does not cost a partition its place.
        answer(named("b", 0), data(9)),
        answer(named("c", 0), data(5)),
    ];
    shard.finish_incremental(id, 2, &mut answers).unwrap();
    assert_eq!(
        incremental(&mut shard, id, 2),
        [named("b", 0), named("c", 0), named("a", 0)]
    );
}

#[test]
fn answer_to_a_request_that_another_overtook_is_an_epoch_error_without_partitions() {
    let (mut shard, id) = shard_with(10, &[named("a", 0)]);
    incremental(&mut shard, id, 1);
    incremental(&mut shard, id, 2);
    let mut answers = vec![answer(named("a", 0), with_records(9))];
    assert_eq!(
        shard.finish_incremental(id, 2, &mut answers),
        Err(SessionError::InvalidEpoch)
    );
    assert!(answers.is_empty());
}

#[test]
fn full_cache_of_young_sessions_makes_no_new_one() {
    let (mut shard, _) = shard_with(1, &[named("a", 0)]);
    let larger = [named("a", 0), named("b", 0)];
    assert_eq!(
        create(&mut shard, false, &larger, NOW + MIN_EVICTION_MS),
        INVALID_SESSION_ID
    );
    assert_eq!(shard.counts(), (1, 1, 0));
}

#[test]
fn session_unused_for_long_gives_way_to_anyone() {
    let (mut shard, old) = shard_with(1, &[named("a", 0), named("b", 0)]);
    let new = create(&mut shard, false, &[named("c", 0)], NOW + MIN_EVICTION_MS + 1);
    assert_ne!(new, INVALID_SESSION_ID);
    assert_ne!(new, old);
    assert_eq!(shard.counts(), (1, 1, 1));
}

#[test]
fn session_in_use_but_not_young_gives_way_to_a_larger_one_only() {
    let (mut shard, id) = shard_with(1, &[named("a", 0), named("b", 0)]);
    let later = NOW + MIN_EVICTION_MS + 1;
    shard.new_context(metadata(id, 1), false, vec![], &[], &no_names, later);
    assert_eq!(
        create(&mut shard, false, &[named("c", 0)], later),
        INVALID_SESSION_ID
    );
    let larger = [named("c", 0), named("d", 0), named("e", 0)];
    assert_ne!(create(&mut shard, false, &larger, later), INVALID_SESSION_ID);
    assert_eq!(shard.counts(), (1, 3, 1));
}

#[test]
fn young_consumer_session_gives_way_to_a_follower_but_no_young_follower_to_anyone() {
    let (mut shard, _) = shard_with(1, &[named("a", 0), named("b", 0)]);
    assert_ne!(
        create(&mut shard, true, &[named("c", 0)], NOW),
        INVALID_SESSION_ID
    );
    assert_eq!(shard.counts(), (1, 1, 1));
    let larger = [named("c", 0), named("d", 0), named("e", 0)];
    assert_eq!(create(&mut shard, true, &larger, NOW), INVALID_SESSION_ID);
    assert_eq!(create(&mut shard, false, &larger, NOW), INVALID_SESSION_ID);
}

#[test]
fn ids_are_positive_unique_and_lead_back_to_their_shard() {
    for number in 0..SHARDS {
        let mut shard = FetchSessionShard::new(number, 100 * SHARDS as usize);
        for random in [0, 1, i32::MAX as u32, u32::MAX, 0] {
            let mut numbers = [random, random, 12345, 54321, 777].into_iter();
            let mut random = || numbers.next().unwrap();
            let answers = [answer(named("a", 0), data(5))];
            let id = shard.maybe_create(false, false, &answers, &mut random, NOW);
            assert!(id > 0);
            assert_eq!(shard_of(id), number as usize, "{id}");
        }
        assert_eq!(shard.counts().0, 5);
    }
    // Whatever a client sends finds some shard.
    assert_eq!(shard_of(i32::MIN), 0);
    assert_eq!(shard_of(i32::MAX), SHARDS as usize - 1);
}

#[test]
fn no_slots_make_no_sessions() {
    let mut shard = FetchSessionShard::new(0, 0);
    assert_eq!(
        create(&mut shard, true, &[named("a", 0)], NOW),
        INVALID_SESSION_ID
    );
}

/// More than a shard may remember: no session, as when there is no slot; one that grows beyond it is gone, as if evicted.
#[test]
fn names_that_no_topic_can_have_are_not_remembered() {
    let mut shard = FetchSessionShard::new(0, 8 * 10);
    let long = "n".repeat(250);
    assert_eq!(
        create(&mut shard, false, &[named(&long, 0)], NOW),
        INVALID_SESSION_ID
    );
    let id = create(&mut shard, false, &[named(&long[1..], 0)], NOW);
    assert_ne!(id, INVALID_SESSION_ID);
    let grown = vec![(named(&long, 0), from(0))];
    let context = shard.new_context(metadata(id, 1), false, grown, &[], &no_names, NOW);
    assert_eq!(context, FetchContext::Error(SessionError::IdNotFound));
    assert_eq!(shard.counts(), (0, 0, 1));
}

#[test]
fn partitions_beyond_the_bound_are_not_remembered() {
    let partitions = |count: usize| -> Vec<SessionPartition> {
        (0..count as i32).map(|partition| named("t", partition)).collect()
    };
    let mut shard = FetchSessionShard::new(0, 8 * 10);
    let most = create(&mut shard, false, &partitions(SHARD_PARTITIONS_MAX - 5), NOW);
    assert_ne!(most, INVALID_SESSION_ID);
    let small = create(&mut shard, false, &partitions(5), NOW);
    assert_ne!(small, INVALID_SESSION_ID);
    assert_eq!(create(&mut shard, true, &partitions(1), NOW), INVALID_SESSION_ID);

    let grown = vec![(named("u", 0), from(0))];
    let context = shard.new_context(metadata(small, 1), false, grown, &[], &no_names, NOW);
    assert_eq!(context, FetchContext::Error(SessionError::IdNotFound));
    assert_eq!(shard.counts(), (1, SHARD_PARTITIONS_MAX - 5, 1));

    // What nobody uses any more makes room.
    let later = NOW + MIN_EVICTION_MS + 1;
    let next = create(&mut shard, false, &partitions(SHARD_PARTITIONS_MAX), later);
    assert_ne!(next, INVALID_SESSION_ID);
    assert_eq!(shard.counts(), (1, SHARD_PARTITIONS_MAX, 2));
}
