//! Heartbeats: what they are answered with, what they write, and every way in which they are refused.

use super::super::consumer_fixture_test::*;
use super::super::fixture_test::*;
use crate::coordinator::group::config::{GroupConfig, MigrationPolicy};
use crate::coordinator::group::consumer_member::MemberState;
use crate::coordinator::runtime::timer::TimerQueue;
use crate::protocol::ErrorCode;

/// A group with members of topic 1 that have reached the newest target.
fn stable(members: &[&str], partitions: i32) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, partitions);
    for member in members {
        fixture.beat(&joining(member, &["one"]));
        fixture.sleep(1000);
    }
    settle(&mut fixture, members);
    fixture
}

/// All members do what they are told until nobody has more to do.
fn settle(fixture: &mut Fixture, members: &[&str]) {
    for _ in 0..3 {
        for member in members {
            let known = fixture.group().member(&text(member)).unwrap().clone();
            let owned = known
                .assigned
                .iter()
                .map(|(topic, partitions)| (topic.as_u128() - 0x1000, partitions.keys().copied().collect()));
            let owned: Vec<(u128, Vec<i32>)> = owned.collect();
            let owned: Vec<(u128, &[i32])> = owned.iter().map(|(topic, list)| (*topic, &list[..])).collect();
            let mut beat = request(member, known.member_epoch).with_topic_partitions(owning(&owned));
            beat.instance_id = known.instance_id.clone();
            fixture.beat(&beat);
            fixture.sleep(1000);
        }
    }
}

fn epoch_of(fixture: &Fixture, member: &str) -> i32 {
    fixture.group().member(&text(member)).unwrap().member_epoch
}

#[test]
fn first_member_gets_all_with_its_first_heartbeat() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 3);
    let response = fixture.beat(&joining("a", &["one"]));
    assert_eq!(answered(&response), (2, Some(vec![(1, vec![0, 1, 2])])));
    assert_eq!(response.heartbeat_interval_ms, 5000);
    assert_eq!(&*member_id(&response), "a");
    assert_eq!(
        fixture.written_since(0),
        [
            "MemberMetadata",
            "Metadata",
            "TargetAssignmentMember",
            "TargetAssignmentMetadata",
            "CurrentMemberAssignment"
        ]
    );
    assert_eq!(fixture.epochs(), (2, 2, "Stable"));
    fixture.assert_replays();
}

#[test]
fn heartbeat_without_news_writes_and_tells_nothing() {
    let mut fixture = stable(&["a"], 1);
    let before = fixture.log.len();
    assert_eq!(fixture.beats(&request("a", 2)), (2, None));
    // All fields said again: then the assignment is told again.
    let full = joining("a", &["one"])
        .with_member_epoch(2)
        .with_topic_partitions(owning(&[(1, &[0])]));
    assert_eq!(fixture.beats(&full), (2, Some(vec![(1, vec![0])])));
    assert_eq!(fixture.log.len(), before);
}

#[test]
fn member_without_an_id_is_given_one() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    let response = fixture.beat(&joining("", &["one"]));
    assert_eq!(&*member_id(&response), "made-up");
    assert!(fixture.group().member(&text("made-up")).is_some());
}

#[test]
fn second_member_waits_until_the_first_has_given_up() {
    let mut fixture = stable(&["a"], 2);
    // It joins in the next epoch, with nothing yet.
    assert_eq!(fixture.beats(&joining("b", &["one"])), (3, Some(vec![])));
    assert_eq!(fixture.epochs(), (3, 3, "Reconciling"));
    let kept: Vec<i32> = fixture.group().target(&text("a"))[&topic_id(1)]
        .iter()
        .copied()
        .collect();
    let given = 1 - kept[0];
    // The first is told what it keeps, in its epoch, and is in the next one once it says that it has no more.
    assert_eq!(
        fixture.beats(&request("a", 2)),
        (2, Some(vec![(1, kept.clone())]))
    );
    assert_eq!(fixture.beats(&request("b", 3)), (3, None));
    let still = request("a", 2).with_topic_partitions(owning(&[(1, &[0, 1])]));
    assert_eq!(fixture.beats(&still), (2, None));
    let done = request("a", 2).with_topic_partitions(owning(&[(1, &kept)]));
    assert_eq!(fixture.beats(&done), (3, None));
    assert_eq!(fixture.beats(&request("b", 3)), (3, Some(vec![(1, vec![given])])));
    assert_eq!(fixture.epochs(), (3, 3, "Stable"));
    fixture.assert_replays();
}

#[test]
fn targets_are_computed_no_more_often_than_the_interval() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 4);
    fixture.beat(&joining("a", &["one"]));
    // Too early for another one: the member has the last target's epoch, and nothing.
    assert_eq!(fixture.beats(&joining("b", &["one"])), (2, Some(vec![])));
    assert_eq!(fixture.epochs(), (3, 2, "Assigning"));
    fixture.sleep(1000);
    fixture.beat(&request("a", 2));
    assert_eq!(fixture.epochs(), (3, 3, "Reconciling"));
    fixture.group_config("group", "consumer.assignment.interval.ms", "0");
    fixture.beat(&joining("c", &["one"]));
    assert_eq!(fixture.epochs(), (4, 4, "Reconciling"));
}

#[test]
fn clock_that_is_put_back_holds_up_no_target() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 4);
    fixture.beat(&joining("a", &["one"]));
    fixture.now_ms -= 500_000;
    fixture.beat(&joining("b", &["one"]));
    assert_eq!(fixture.epochs(), (3, 3, "Reconciling"));
    // From there on the interval counts again.
    fixture.beat(&joining("c", &["one"]));
    assert_eq!(fixture.epochs(), (4, 3, "Assigning"));
}

#[test]
fn interval_that_the_brokers_change_counts_for_groups_without_their_own() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 4);
    fixture.beat(&joining("a", &["one"]));
    fixture.beat(&joining("b", &["one"]));
    assert_eq!(fixture.epochs(), (3, 2, "Assigning"));
    fixture.shard.config.consumer_group_assignment_interval.set(0);
    fixture.beat(&joining("c", &["one"]));
    assert_eq!(fixture.epochs(), (4, 4, "Reconciling"));
    fixture.shard.config.consumer_group_assignment_interval.set(5000);
    fixture.group_config("group", "consumer.assignment.interval.ms", "0");
    fixture.beat(&joining("d", &["one"]));
    assert_eq!(fixture.epochs(), (5, 5, "Reconciling"));
}

#[test]
fn settings_of_the_group_count_within_the_brokers_bounds() {
    let mut fixture = stable(&["a"], 1);
    fixture.group_config("group", "consumer.heartbeat.interval.ms", "7000");
    fixture.group_config("group", "consumer.session.timeout.ms", "1000");
    let response = fixture.beat(&request("a", 2));
    assert_eq!(response.heartbeat_interval_ms, 7000);
    // 45 s at least.
    fixture.sleep(44_999);
    assert_eq!(fixture.group().len(), 1);
    fixture.sleep(1);
    assert_eq!(fixture.group().len(), 0);
}

#[test]
fn member_that_is_silent_is_fenced_and_its_partitions_go_to_others() {
    let mut fixture = stable(&["a", "b"], 2);
    fixture.sleep(40_000);
    let epoch = epoch_of(&fixture, "a");
    fixture.beat(&request("a", epoch));
    let before = fixture.log.len();
    fixture.sleep(20_000);
    assert_eq!(
        fixture.written_since(before),
        [
            "-CurrentMemberAssignment",
            "-TargetAssignmentMember",
            "-MemberMetadata",
            "Metadata"
        ]
    );
    let (code, message) = fixture.refused(&request("b", 3));
    assert_eq!(code, ErrorCode::UnknownMemberId);
    assert_eq!(message, "Member b is not a member of group group.");
    let (_, assignment) = fixture.beats(&request("a", epoch));
    assert_eq!(assignment, Some(vec![(1, vec![0, 1])]));
    // The last one goes, and the target is nobody's.
    let before = fixture.log.len();
    fixture.sleep(45_000);
    assert_eq!(
        fixture.written_since(before).last().unwrap(),
        "TargetAssignmentMetadata"
    );
    assert_eq!(fixture.epochs().2, "Empty");
    fixture.assert_replays();
}

#[test]
fn member_that_does_not_give_up_in_time_is_fenced() {
    let mut fixture = stable(&["a"], 2);
    fixture.beat(&joining("b", &["one"]));
    fixture.beat(&request("a", 2));
    assert_eq!(
        fixture.group().member(&text("a")).unwrap().state,
        MemberState::UnrevokedPartitions
    );
    for _ in 0..6 {
        fixture.sleep(4999);
        fixture.beat(&request("a", 2));
        fixture.beat(&request("b", 3));
    }
    fixture.sleep(6);
    assert!(fixture.group().member(&text("a")).is_none());
}

#[test]
fn member_that_gives_up_in_time_is_not_fenced_later() {
    let mut fixture = stable(&["a"], 2);
    fixture.beat(&joining("b", &["one"]));
    fixture.beat(&request("a", 2));
    let kept: Vec<i32> = fixture.group().target(&text("a"))[&topic_id(1)]
        .iter()
        .copied()
        .collect();
    fixture.beat(&request("a", 2).with_topic_partitions(owning(&[(1, &kept)])));
    for _ in 0..8 {
        fixture.sleep(5000);
        fixture.beat(&request("a", 3));
        fixture.beat(&request("b", 3));
    }
    assert_eq!(fixture.group().len(), 2);
}

#[test]
fn epoch_that_is_not_the_members_is_fenced() {
    let mut fixture = stable(&["a", "b"], 2);
    let epoch = epoch_of(&fixture, "a");
    let (code, message) = fixture.refused(&request("a", epoch + 1));
    assert_eq!(code, ErrorCode::FencedMemberEpoch);
    assert_eq!(
        message,
        format!(
            "The consumer group member has a greater member epoch ({}) than the one known by the group coordinator \
             ({epoch}). The member must abandon all its partitions and rejoin.",
            epoch + 1
        )
    );
    let (code, message) = fixture.refused(&request("a", epoch - 1));
    assert_eq!(code, ErrorCode::FencedMemberEpoch);
    assert!(message.contains("smaller member epoch"), "{message}");
    // The answer with the new epoch was lost: it has a part of what it should, and says so.
    let lost = request("a", epoch - 1).with_topic_partitions(owning(&[]));
    let again = fixture.beats(&lost);
    assert_eq!(again.0, epoch);
    let more = request("a", epoch - 1).with_topic_partitions(owning(&[(1, &[0, 1])]));
    assert_eq!(fixture.refused(&more).0, ErrorCode::FencedMemberEpoch);
    let older = request("a", 1).with_topic_partitions(owning(&[]));
    assert_eq!(fixture.refused(&older).0, ErrorCode::FencedMemberEpoch);
}

#[test]
fn member_that_joins_again_keeps_what_it_had() {
    let mut fixture = stable(&["a"], 1);
    let before = fixture.log.len();
    assert_eq!(
        fixture.beats(&joining("a", &["one"])),
        (2, Some(vec![(1, vec![0])]))
    );
    assert_eq!(fixture.log.len(), before);
}

#[test]
fn group_that_is_not_there_or_of_another_kind_is_not_found() {
    let mut fixture = Fixture::new();
    assert_eq!(
        fixture.refused(&request("a", 1)),
        (
            ErrorCode::GroupIdNotFound,
            "Consumer group group not found.".into()
        )
    );
    assert_eq!(
        fixture.refused(&request("a", -1)),
        (ErrorCode::GroupIdNotFound, "Group group not found.".into())
    );
    fixture.stable_group(1);
    for epoch in [1, -1] {
        assert_eq!(
            fixture.refused(&request("a", epoch)),
            (
                ErrorCode::GroupIdNotFound,
                "Group group is not a consumer group.".into()
            )
        );
    }
}

#[test]
fn full_group_takes_no_other_member() {
    let mut fixture = Fixture::with(GroupConfig {
        consumer_group_max_size: 1,
        ..Default::default()
    });
    fixture.topic("one", 1, 1);
    fixture.beat(&joining("a", &["one"]).with_instance_id(Some(text("i"))));
    assert_eq!(
        fixture.refused(&joining("b", &["one"])),
        (
            ErrorCode::GroupMaxSizeReached,
            "The consumer group has reached its maximum capacity of 1 members.".into()
        )
    );
    assert_eq!(
        fixture.refused(&joining("", &["one"])).0,
        ErrorCode::GroupMaxSizeReached
    );
    fixture.beat(&request("a", 2).with_instance_id(Some(text("i"))));
    // Nor is an instance's next incarnation another one.
    fixture.beat(&request("a", -2).with_instance_id(Some(text("i"))));
    fixture.beat(&joining("b", &["one"]).with_instance_id(Some(text("i"))));
}

#[test]
fn leaving_member_is_gone_at_once() {
    let mut fixture = stable(&["a", "b"], 2);
    let response = fixture.beat(&request("b", -1));
    assert_eq!((response.member_epoch, member_id(&response)), (-1, text("b")));
    assert_eq!(response.heartbeat_interval_ms, 0);
    assert!(fixture.group().member(&text("b")).is_none());
    assert_eq!(fixture.refused(&request("b", -1)).0, ErrorCode::UnknownMemberId);
    let (_, assignment) = fixture.beats(&request("a", epoch_of(&fixture, "a")));
    assert_eq!(assignment, Some(vec![(1, vec![0, 1])]));
}

#[test]
fn static_member_that_comes_back_has_what_it_had() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 2);
    let instance = Some(text("i"));
    fixture.beat(&joining("a", &["one"]).with_instance_id(instance.clone()));
    let unreleased = joining("a2", &["one"]).with_instance_id(instance.clone());
    assert_eq!(
        fixture.refused(&unreleased),
        (
            ErrorCode::UnreleasedInstanceId,
            "Static member a2 with instance id i cannot join the group because the instance id is owned by a member."
                .into()
        )
    );
    let before = fixture.log.len();
    let left = fixture.beat(&request("a", -2).with_instance_id(instance.clone()));
    assert_eq!(left.member_epoch, -2);
    assert_eq!(fixture.written_since(before), ["CurrentMemberAssignment"]);
    let member = fixture.group().member(&text("a")).unwrap();
    assert_eq!(member.epoch_of(topic_id(1), 0), Some(0));
    let before = fixture.log.len();
    let back = fixture.beats(&joining("a2", &["one"]).with_instance_id(instance.clone()));
    assert_eq!(back, (2, Some(vec![(1, vec![0, 1])])));
    assert_eq!(
        fixture.written_since(before),
        [
            "-CurrentMemberAssignment",
            "-TargetAssignmentMember",
            "-MemberMetadata",
            "MemberMetadata",
            "TargetAssignmentMember",
            "CurrentMemberAssignment",
            "CurrentMemberAssignment"
        ]
    );
    // The group did not move, and the old incarnation is fenced.
    assert_eq!(fixture.epochs(), (2, 2, "Stable"));
    assert_eq!(
        fixture.refused(&request("a", 2).with_instance_id(instance.clone())),
        (
            ErrorCode::FencedInstanceId,
            "Static member a with instance id i was fenced by member a2.".into()
        )
    );
    assert_eq!(
        fixture.refused(&request("a", 2).with_instance_id(Some(text("j")))),
        (ErrorCode::UnknownMemberId, "Instance id j is unknown.".into())
    );
    assert_eq!(
        fixture
            .refused(&request("a", -1).with_instance_id(instance.clone()))
            .0,
        ErrorCode::FencedInstanceId
    );
    fixture.assert_replays();
    // The old incarnation's session ends without harm; the new one's counts.
    fixture.sleep(44_000);
    fixture.beat(&request("a2", 2).with_instance_id(instance));
    fixture.sleep(44_000);
    assert_eq!(fixture.group().len(), 1);
}

#[test]
fn static_member_that_stays_away_loses_its_place() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 2);
    let instance = Some(text("i"));
    fixture.beat(&joining("a", &["one"]).with_instance_id(instance.clone()));
    fixture.sleep(2000);
    fixture.beat(&request("a", -2).with_instance_id(instance));
    fixture.beat(&joining("b", &["one"]));
    // Half of it is to come from the one that is away.
    assert_eq!(fixture.beats(&request("b", 3)), (3, None));
    for _ in 0..5 {
        fixture.sleep(9000);
        fixture.beat(&request("b", epoch_of(&fixture, "b")));
    }
    let (_, assignment) = fixture.beats(&request("b", epoch_of(&fixture, "b")));
    assert_eq!((fixture.group().len(), assignment), (1, None));
    assert_eq!(fixture.group().held_partitions().count(), 2);
}

#[test]
fn changed_subscription_is_a_new_epoch() {
    let mut fixture = stable(&["a"], 1);
    fixture.topic("two", 2, 1);
    let beat = request("a", 2).with_subscribed_topic_names(Some(names(&["two"])));
    // What is not wanted any more is to be given up first.
    assert_eq!(fixture.beats(&beat), (2, Some(vec![])));
    assert_eq!(fixture.epochs(), (3, 3, "Reconciling"));
    let done = request("a", 2).with_topic_partitions(owning(&[]));
    assert_eq!(fixture.beats(&done), (3, Some(vec![(2, vec![0])])));
}

#[test]
fn changed_topics_reach_the_group_with_its_next_heartbeat() {
    let mut fixture = stable(&["a"], 1);
    fixture.topic("other", 9, 1);
    fixture.topic("one", 1, 2);
    assert_eq!(fixture.epochs().0, 2);
    assert_eq!(fixture.beats(&request("a", 2)), (3, Some(vec![(1, vec![0, 1])])));
    let before = fixture.log.len();
    fixture.topic("other", 9, 2);
    fixture.sleep(1000);
    fixture.beat(&request("a", 3));
    assert_eq!(fixture.log.len(), before);
    fixture.delete_topic(1);
    fixture.beat(&request("a", 3));
    assert_eq!(fixture.epochs().0, 4);
    let done = request("a", 3).with_topic_partitions(owning(&[]));
    assert_eq!(fixture.beats(&done).0, 4);
    // A new one of the name is another.
    fixture.topic("one", 3, 1);
    fixture.sleep(1000);
    assert_eq!(fixture.beats(&request("a", 4)), (5, Some(vec![(3, vec![0])])));
    fixture.assert_replays();
}

#[test]
fn most_members_choose_the_assignor() {
    let mut fixture = stable(&["a"], 2);
    let range = joining("b", &["one"]).with_server_assignor(Some(text("range")));
    fixture.beat(&range);
    assert_eq!(
        fixture.group().preferred_server_assignor(None, None),
        Some(text("range"))
    );
    let before = fixture.epochs().0;
    // With nothing else changed, that is a new epoch too.
    let uniform = request("a", 2).with_server_assignor(Some(text("uniform")));
    fixture.beat(&uniform);
    let (after, ..) = fixture.epochs();
    let preferred = fixture.group().preferred_server_assignor(None, None).unwrap();
    assert_eq!(after, before + i32::from(&*preferred == "uniform"));
}

#[test]
fn pattern_is_resolved_beside_the_heartbeat() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    fixture.topic("two", 2, 1);
    let regex = joining("a", &[])
        .with_subscribed_topic_names(None)
        .with_subscribed_topic_regex(Some(text("on.*")));
    assert_eq!(fixture.beats(&regex), (1, Some(vec![])));
    assert_eq!(
        fixture.written_since(0),
        ["MemberMetadata", "CurrentMemberAssignment"]
    );
    fixture.sleep(0);
    assert_eq!(fixture.written_since(2), ["RegularExpression", "Metadata"]);
    assert_eq!(fixture.beats(&request("a", 1)), (2, Some(vec![(1, vec![0])])));
    fixture.assert_replays();
    // A topic that is created later is found, but not within ten seconds of the last look.
    fixture.topic("once", 3, 1);
    fixture.beat(&request("a", 2));
    fixture.sleep(0);
    assert_eq!(fixture.beats(&request("a", 2)), (2, None));
    fixture.sleep(10_001);
    fixture.beat(&request("a", 2));
    fixture.sleep(0);
    let found = fixture.beats(&request("a", 2));
    assert_eq!(found, (3, Some(vec![(1, vec![0]), (3, vec![0])])));
    // The pattern goes with its last subscriber.
    let before = fixture.log.len();
    fixture.beat(&request("a", -1));
    assert!(
        fixture
            .written_since(before)
            .contains(&"-RegularExpression".to_owned())
    );
    assert_eq!(fixture.group().subscribed_topics().len(), 0);
    fixture.assert_replays();
}

#[test]
fn clock_that_is_put_back_holds_up_no_resolution() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    let regex = joining("a", &[])
        .with_subscribed_topic_names(None)
        .with_subscribed_topic_regex(Some(text("on.*")));
    fixture.beat(&regex);
    fixture.sleep(0);
    fixture.beat(&request("a", 1));
    fixture.now_ms -= 500_000;
    fixture.timers = TimerQueue::default();
    let before = fixture.log.len();
    for _ in 0..2 {
        fixture.beat(&request("a", 2));
        fixture.sleep(0);
    }
    // Once: it has a time of this clock then.
    assert_eq!(fixture.written_since(before), ["RegularExpression"]);
}

#[test]
fn known_pattern_needs_no_resolution() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 2);
    let regex = |member: &str| {
        joining(member, &[])
            .with_subscribed_topic_names(None)
            .with_subscribed_topic_regex(Some(text("on.*")))
    };
    fixture.beat(&regex("a"));
    fixture.sleep(2000);
    fixture.beat(&request("a", 1));
    fixture.sleep(2000);
    assert_eq!(fixture.beats(&regex("b")), (3, Some(vec![])));
    assert_eq!(fixture.epochs(), (3, 3, "Reconciling"));
    // Without it: a new epoch at once.
    let none = request("b", 3).with_subscribed_topic_regex(Some(text("")));
    fixture.beat(&none);
    assert_eq!(fixture.epochs().0, 4);
    assert_eq!(fixture.group().subscribers_of_regex(&text("on.*")), 1);
}

#[test]
fn pattern_that_is_none_is_refused() {
    let mut fixture = Fixture::new();
    let broken = joining("a", &[]).with_subscribed_topic_regex(Some(text("[")));
    let (code, message) = fixture.refused(&broken);
    assert_eq!(code, ErrorCode::InvalidRegularExpression);
    assert_eq!(
        message,
        "SubscribedTopicRegex `[` is not a valid regular expression: missing closing ]."
    );
    assert!(fixture.shard.consumer_group("group").is_none());
}

#[test]
fn failed_append_leaves_nothing_behind() {
    let mut fixture = stable(&["a"], 2);
    let before = fixture.group().clone();
    fixture.fail = Some(ErrorCode::NotEnoughReplicas);
    fixture.beat(&joining("b", &["one"]));
    fixture.beat(&request("a", -1));
    let mut after = fixture.group().clone();
    after.set_refresh(0, 0);
    let mut before_too = before.clone();
    before_too.set_refresh(0, 0);
    assert_eq!(after, before_too);
    // A group that could not be created is not there.
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    fixture.fail = Some(ErrorCode::NotEnoughReplicas);
    fixture.beat(&joining("a", &["one"]));
    assert!(fixture.shard.consumer_group("group").is_none());
}

#[test]
fn loaded_members_have_a_session_to_show_up() {
    let mut fixture = stable(&["a"], 2);
    fixture.beat(&joining("b", &["one"]));
    fixture.beat(&request("a", 2));
    let mut reloaded = fixture.reloaded();
    reloaded.topic("one", 1, 2);
    // What had to be given up has the rebalance timeout again.
    reloaded.sleep(29_999);
    assert_eq!(reloaded.group().len(), 2);
    reloaded.sleep(1);
    assert!(reloaded.group().member(&text("a")).is_none());
    reloaded.sleep(15_000);
    assert_eq!(reloaded.group().len(), 0);
}

#[test]
fn record_of_kafka_4_0_is_removed_with_the_next_look_at_the_topics() {
    use crate::protocol::records::group::{
        ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue,
    };
    let mut fixture = stable(&["a"], 1);
    let key = ConsumerGroupPartitionMetadataKey {
        group_id: text("group"),
    };
    let record = super::super::GroupRecord {
        key: key.into(),
        value: Some((ConsumerGroupPartitionMetadataValue::default().into(), 0)),
    };
    let outcome = super::super::shard::GroupOutcome::with_records(vec![record], ());
    fixture.apply(outcome);
    fixture.topic("one", 1, 2);
    let before = fixture.log.len();
    fixture.beat(&request("a", 2));
    assert!(
        fixture
            .written_since(before)
            .contains(&"-PartitionMetadata".to_owned())
    );
    assert!(!fixture.group().has_subscription_metadata_record());
}

#[test]
fn commits_and_fetches_are_held_to_the_members_epoch() {
    let mut fixture = stable(&["a", "b"], 2);
    let epoch = epoch_of(&fixture, "a");
    let commit_in = |member: &str, epoch: i32, partition: i32| {
        let mut commit = commit("group", "one", partition, 5);
        commit.member_id = text(member);
        commit.generation_id_or_member_epoch = epoch;
        commit.topics[0].topic_id = topic_id(1);
        commit
    };
    let kept = *fixture.group().target(&text("a"))[&topic_id(1)].first().unwrap();
    assert!(fixture.commit_offsets(&commit_in("a", epoch, kept), true).is_ok());
    // An older epoch is as good for what it has had since (KIP-1251), and for nothing else.
    assert!(
        fixture
            .commit_offsets(&commit_in("a", epoch - 1, kept), true)
            .is_ok()
    );
    let mut refuse = |commit, known: bool| fixture.commit_offsets(&commit, known).unwrap_err();
    assert_eq!(
        refuse(commit_in("a", epoch - 1, 1 - kept), true),
        ErrorCode::StaleMemberEpoch
    );
    assert_eq!(refuse(commit_in("a", 1, kept), true), ErrorCode::StaleMemberEpoch);
    assert_eq!(
        refuse(commit_in("a", epoch + 1, kept), true),
        ErrorCode::StaleMemberEpoch
    );
    assert_eq!(refuse(commit_in("c", 1, 0), true), ErrorCode::UnknownMemberId);
    assert_eq!(refuse(commit_in("", -1, 0), true), ErrorCode::UnknownMemberId);
    assert_eq!(
        refuse(commit_in("a", epoch, kept), false),
        ErrorCode::UnsupportedVersion
    );
    let group = fixture.group();
    let fetch = |member: Option<&str>, epoch: i32| {
        let member = member.map(text);
        let valid = group.validate_offset_fetch(member.as_ref(), epoch);
        valid.map_err(|error| error.code)
    };
    assert_eq!(fetch(None, -1), Ok(()));
    assert_eq!(fetch(None, epoch), Err(ErrorCode::UnknownServerError));
    assert_eq!(fetch(Some("a"), epoch), Ok(()));
    assert_eq!(fetch(Some("a"), epoch - 1), Err(ErrorCode::StaleMemberEpoch));
    assert_eq!(fetch(Some("c"), epoch), Err(ErrorCode::UnknownMemberId));
    // An administrator may commit once nobody is there.
    fixture.beat(&request("a", -1));
    fixture.beat(&request("b", -1));
    assert!(fixture.commit_offsets(&commit_in("", -1, 0), true).is_ok());
}

#[test]
fn empty_group_can_be_deleted_and_expires_with_its_offsets() {
    let mut fixture = stable(&["a"], 1);
    let mut commit = commit("group", "one", 0, 5);
    commit.member_id = text("a");
    commit.generation_id_or_member_epoch = 2;
    fixture.commit_offsets(&commit, true).unwrap();
    let refused = fixture.shard.delete_groups(&[text("group")]);
    assert_eq!(refused.response[0].error_code, ErrorCode::NonEmptyGroup.code());
    // What is consumed does not expire.
    let later = fixture.now_ms + 3_000_000_000_000;
    assert!(fixture.shard.expire(later).is_empty());
    fixture.beat(&request("a", -1));
    let expired = fixture.shard.expire(later);
    let names: Vec<&str> = expired.iter().map(|record| record.key.name()).collect();
    assert_eq!(
        names,
        [
            "OffsetCommitKey",
            "ConsumerGroupTargetAssignmentMetadataKey",
            "ConsumerGroupPartitionMetadataKey",
            "ConsumerGroupMetadataKey"
        ]
    );
    let deleted = fixture.shard.delete_groups(&[text("group")]);
    let response = fixture.apply(deleted);
    assert_eq!(response[0].error_code, 0);
    assert!(fixture.shard.consumer_group("group").is_none());
}

#[test]
fn migration_policy_is_read_in_any_case() {
    let policy = |upgrade, downgrade| MigrationPolicy { upgrade, downgrade };
    for (name, expected) in [
        ("Bidirectional", policy(true, true)),
        ("UPGRADE", policy(true, false)),
        ("downgrade", policy(false, true)),
        ("disabled", policy(false, false)),
    ] {
        assert_eq!(MigrationPolicy::named(name), expected, "{name}");
    }
}
