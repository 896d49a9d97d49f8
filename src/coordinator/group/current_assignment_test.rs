use super::super::consumer_fixture_test::topic_id;
use super::super::fixture_test::text;
use super::*;

/// Partitions of topic 1, with their epochs.
fn having(partitions: &[(i32, i32)]) -> PartitionEpochs {
    match partitions.is_empty() {
        true => PartitionEpochs::new(),
        false => [(topic_id(1), partitions.iter().copied().collect())].into(),
    }
}

fn of(partitions: &[i32]) -> TopicPartitions {
    match partitions.is_empty() {
        true => TopicPartitions::new(),
        false => [(topic_id(1), partitions.iter().copied().collect())].into(),
    }
}

fn member(state: MemberState, epoch: i32, assigned: &[(i32, i32)], revoked: &[(i32, i32)]) -> ConsumerMember {
    let mut member = ConsumerMember::new(text("member"));
    member.state = state;
    member.member_epoch = epoch;
    member.previous_member_epoch = epoch - 1;
    member.assigned = Arc::new(having(assigned));
    member.pending_revocation = Arc::new(having(revoked));
    member
}

struct Given {
    target: TopicPartitions,
    subscribed: BTreeSet<Uuid>,
    changed: bool,
    owned: Option<TopicPartitions>,
    held: Vec<i32>,
}

fn given(target: &[i32]) -> Given {
    Given {
        target: of(target),
        subscribed: [topic_id(1)].into(),
        changed: false,
        owned: None,
        held: Vec::new(),
    }
}

impl Given {
    fn try_next(&self, member: &ConsumerMember) -> Result<ConsumerMember, ApiError> {
        let is_held = |_: Uuid, partition: i32| self.held.contains(&partition);
        Reconciliation {
            target_epoch: 11,
            target: &self.target,
            subscribed_topic_ids: &self.subscribed,
            has_subscription_changed: self.changed,
            owned: self.owned.as_ref(),
            is_held: &is_held,
        }
        .next(member)
    }

    fn next(&self, member: &ConsumerMember) -> (MemberState, i32, i32, PartitionEpochs, PartitionEpochs) {
        let next = self.try_next(member).unwrap();
        (
            next.state,
            next.member_epoch,
            next.previous_member_epoch,
            (*next.assigned).clone(),
            (*next.pending_revocation).clone(),
        )
    }
}

use MemberState::{Stable, Unknown, UnreleasedPartitions, UnrevokedPartitions};

#[test]
fn stable_member_in_the_targets_epoch_stays() {
    let member = member(Stable, 11, &[(1, 10)], &[]);
    assert_eq!(given(&[1]).try_next(&member).unwrap(), member);
}

#[test]
fn stable_member_gets_what_is_free_in_the_next_epoch() {
    let next = given(&[1, 2]).next(&member(Stable, 10, &[(1, 10)], &[]));
    assert_eq!(next, (Stable, 11, 10, having(&[(1, 10), (2, 11)]), having(&[])));
}

#[test]
fn stable_member_gives_up_before_it_goes_on() {
    let next = given(&[1, 3]).next(&member(Stable, 10, &[(1, 9), (2, 10)], &[]));
    assert_eq!(
        next,
        (UnrevokedPartitions, 10, 10, having(&[(1, 9)]), having(&[(2, 10)]))
    );
}

#[test]
fn stable_member_that_has_given_up_already_goes_on_at_once() {
    let given = Given {
        owned: Some(of(&[1])),
        ..given(&[1, 3])
    };
    let next = given.next(&member(Stable, 10, &[(1, 10), (2, 10)], &[]));
    assert_eq!(next, (Stable, 11, 10, having(&[(1, 10), (3, 11)]), having(&[])));
}

#[test]
fn stable_member_waits_for_what_others_have() {
    let given = Given {
        held: vec![1, 2, 3],
        ..given(&[1, 2, 4])
    };
    let next = given.next(&member(Stable, 10, &[(1, 10)], &[]));
    assert_eq!(
        next,
        (
            UnreleasedPartitions,
            11,
            10,
            having(&[(1, 10), (4, 11)]),
            having(&[])
        )
    );
}

#[test]
fn unrevoked_member_stays_until_it_has_given_up() {
    let member = member(UnrevokedPartitions, 10, &[(1, 10)], &[(2, 10)]);
    assert_eq!(given(&[1]).try_next(&member).unwrap(), member);
    let still_owning = Given {
        owned: Some(of(&[1, 2])),
        ..given(&[1])
    };
    assert_eq!(still_owning.try_next(&member).unwrap(), member);
    let revoked = Given {
        owned: Some(of(&[1])),
        ..given(&[1])
    };
    assert_eq!(
        revoked.next(&member),
        (Stable, 11, 10, having(&[(1, 10)]), having(&[]))
    );
}

#[test]
fn unrevoked_member_gets_back_what_a_newer_target_gives_it() {
    // It is held by itself.
    let given = Given {
        owned: Some(of(&[1])),
        held: vec![1, 2],
        ..given(&[1, 2])
    };
    let member = member(UnrevokedPartitions, 10, &[(1, 9)], &[(2, 10)]);
    assert_eq!(
        given.next(&member),
        (Stable, 11, 10, having(&[(1, 9), (2, 11)]), having(&[]))
    );
}

#[test]
fn unrevoked_member_has_more_to_give_up_for_a_newer_target() {
    let given = Given {
        owned: Some(of(&[1, 3])),
        ..given(&[3])
    };
    let member = member(UnrevokedPartitions, 10, &[(1, 9), (3, 9)], &[(2, 10)]);
    assert_eq!(
        given.next(&member),
        (UnrevokedPartitions, 10, 10, having(&[(3, 9)]), having(&[(1, 9)]))
    );
}

#[test]
fn unreleased_member_gets_what_has_become_free() {
    let waiting = member(UnreleasedPartitions, 11, &[(1, 10)], &[]);
    let given = Given {
        held: vec![3],
        ..given(&[1, 2, 3])
    };
    assert_eq!(
        given.next(&waiting),
        (
            UnreleasedPartitions,
            11,
            11,
            having(&[(1, 10), (2, 11)]),
            having(&[])
        )
    );
    let free = Given {
        held: vec![],
        ..given
    };
    assert_eq!(
        free.next(&waiting),
        (Stable, 11, 11, having(&[(1, 10), (2, 11), (3, 11)]), having(&[]))
    );
}

#[test]
fn unknown_member_is_fenced_unless_it_has_nothing() {
    let member = member(Unknown, 10, &[], &[]);
    let error = given(&[1]).try_next(&member).unwrap_err();
    assert_eq!(error.code, ErrorCode::FencedMemberEpoch);
    let owning = Given {
        owned: Some(of(&[1])),
        ..given(&[1])
    };
    assert!(owning.try_next(&member).is_err());
    let anew = Given {
        owned: Some(of(&[])),
        ..given(&[1])
    };
    assert_eq!(
        anew.next(&member),
        (Stable, 11, 10, having(&[(1, 11)]), having(&[]))
    );
}

#[test]
fn topic_that_is_not_subscribed_to_is_given_to_nobody() {
    let given = Given {
        subscribed: BTreeSet::new(),
        owned: Some(of(&[])),
        ..given(&[1])
    };
    assert_eq!(
        given.next(&member(Stable, 10, &[], &[])),
        (Stable, 11, 10, having(&[]), having(&[]))
    );
}

#[test]
fn changed_subscription_takes_partitions_before_the_next_target() {
    let given = Given {
        subscribed: BTreeSet::new(),
        changed: true,
        ..given(&[1])
    };
    assert_eq!(
        given.next(&member(Stable, 11, &[(1, 10)], &[])),
        (UnrevokedPartitions, 11, 11, having(&[]), having(&[(1, 10)]))
    );
    // It says that it has none of it any more.
    let given = Given {
        owned: Some(of(&[])),
        ..given
    };
    assert_eq!(
        given.next(&member(Stable, 11, &[(1, 10)], &[])),
        (Stable, 11, 11, having(&[]), having(&[]))
    );
    let unrevoked = member(UnrevokedPartitions, 10, &[(1, 9)], &[(2, 10)]);
    let given = Given { owned: None, ..given };
    assert_eq!(
        given.next(&unrevoked),
        (
            UnrevokedPartitions,
            10,
            10,
            having(&[]),
            having(&[(1, 9), (2, 10)])
        )
    );
}
