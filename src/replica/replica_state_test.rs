//! Epoch checks, ISR sizes and high watermark rules.

use super::*;

fn state(replicas: &[i32], isr: &[i32]) -> PartitionState {
    let mut state = PartitionState::default();
    state.follow_metadata(&PartitionRegistration {
        replicas: replicas.to_vec(),
        isr: isr.to_vec(),
        leader: replicas[0],
        leader_epoch: 5,
        partition_epoch: 9,
        ..PartitionRegistration::default()
    });
    state
}

fn follower(replica_id: i32, log_end_offset: i64) -> FollowerState {
    FollowerState {
        log_end_offset: at(log_end_offset),
        ..FollowerState::new(replica_id)
    }
}

fn at(offset: i64) -> LogOffsetMetadata {
    LogOffsetMetadata::offset_only(offset)
}

fn candidate(state: &PartitionState, min_isr: i32, end: i64, followers: &[FollowerState]) -> Option<i64> {
    high_watermark_candidate(state, min_isr, at(end), followers, |_| false)
        .map(|metadata| metadata.message_offset)
}

#[test]
fn leader_epoch_older_is_fenced_newer_is_unknown_none_or_equal_passes() {
    let state = state(&[1], &[1]);
    assert!(state.check_leader_epoch(None).is_ok());
    assert!(state.check_leader_epoch(Some(5)).is_ok());
    let older = state.check_leader_epoch(Some(4));
    assert!(matches!(
        older,
        Err(ReplicaError::FencedLeaderEpoch {
            requested: 4,
            current: 5
        })
    ));
    let newer = state.check_leader_epoch(Some(6));
    assert!(matches!(
        newer,
        Err(ReplicaError::UnknownLeaderEpoch {
            requested: 6,
            current: 5
        })
    ));
}

#[test]
fn effective_min_isr_is_bounded_by_the_replicas() {
    assert_eq!(state(&[1], &[1]).effective_min_isr(2), 1);
    assert_eq!(state(&[1, 2, 3], &[1]).effective_min_isr(2), 2);
}

#[test]
fn high_watermark_of_a_single_replica_is_its_log_end() {
    assert_eq!(candidate(&state(&[1], &[1]), 1, 42, &[]), Some(42));
    // As Kafka: more than there are replicas cannot be asked for.
    assert_eq!(candidate(&state(&[1], &[1]), 2, 42, &[]), Some(42));
}

#[test]
fn high_watermark_waits_for_the_slowest_of_the_isr_only() {
    let followers = [follower(2, 30), follower(3, 10)];
    assert_eq!(
        candidate(&state(&[1, 2, 3], &[1, 2, 3]), 1, 42, &followers),
        Some(10)
    );
    assert_eq!(
        candidate(&state(&[1, 2, 3], &[1, 2]), 1, 42, &followers),
        Some(30)
    );
    assert_eq!(candidate(&state(&[1, 2, 3], &[1]), 1, 42, &followers), Some(42));
}

#[test]
fn high_watermark_stalls_under_min_isr() {
    assert_eq!(
        candidate(
            &state(&[1, 2, 3], &[1]),
            2,
            42,
            &[follower(2, 42), follower(3, 42)]
        ),
        None
    );
}

#[test]
fn high_watermark_waits_for_a_replica_that_joins() {
    let mut state = state(&[1, 2], &[1]);
    state.isr = IsrState::PendingExpand {
        isr: vec![1],
        new_in_sync_replica: 2,
    };
    assert_eq!(candidate(&state, 1, 42, &[follower(2, 30)]), Some(30));
    assert_eq!(state.isr.maximal_isr_size(), 2);
    assert_eq!(state.isr.isr(), [1]);

    state.isr = IsrState::Committed { isr: vec![1] };
    let joining = high_watermark_candidate(&state, 1, at(42), &[follower(2, 30)], |_| true);
    assert_eq!(joining, Some(at(30)));
}

#[test]
fn pending_shrink_still_waits_for_the_removed_one() {
    let mut state = state(&[1, 2], &[1, 2]);
    state.isr = IsrState::PendingShrink {
        isr: vec![1, 2],
        out_of_sync_replicas: vec![2],
    };
    assert_eq!(candidate(&state, 1, 42, &[follower(2, 30)]), Some(30));
    assert!(state.isr.is_inflight());
}

#[test]
fn follower_is_caught_up_now_at_the_end_and_at_its_last_fetch_where_it_reached_the_end_of_then() {
    let mut follower = FollowerState::new(2);
    follower.reset(1_000, 100, true, false);
    assert!(!follower.is_caught_up(100, 2_000, 500));

    follower.record_fetch(at(50), 0, 2_000, 100, 7);
    assert_eq!(follower.last_caught_up_time_ms, 0);
    // It reached 100, which was all at 2,000; by now there are 120.
    follower.record_fetch(at(100), 0, 3_000, 120, 7);
    assert_eq!(follower.last_caught_up_time_ms, 2_000);
    follower.record_fetch(at(120), 0, 4_000, 120, 7);
    assert_eq!(follower.last_caught_up_time_ms, 4_000);
    assert!(follower.is_caught_up(200, 4_500, 500));
    assert!(!follower.is_caught_up(200, 4_501, 500));
    assert!(follower.is_caught_up(120, 99_999, 500));
}

#[test]
fn new_epoch_counts_isr_members_as_caught_up_and_others_as_never() {
    let mut member = follower(2, 10);
    member.reset(1_000, 50, false, true);
    assert_eq!(
        (
            member.last_caught_up_time_ms,
            member.log_end_offset.message_offset
        ),
        (1_000, 10)
    );
    let mut other = follower(3, 10);
    other.reset(1_000, 50, true, false);
    assert_eq!(
        (other.last_caught_up_time_ms, other.log_end_offset.message_offset),
        (0, -1)
    );
}
