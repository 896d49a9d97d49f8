//! Groups that change their protocol while they are in use.

use super::super::consumer_fixture_test::*;
use super::super::fixture_test::*;
use crate::coordinator::group::config::{GroupConfig, MigrationPolicy};
use crate::coordinator::group::embedded_protocol as embedded;
use crate::coordinator::group::shard::{Group, GroupOutcome, GroupTimer};
use crate::coordinator::runtime::shard::CoordinatorShard;
use crate::coordinator::runtime::timer::TimerEvent;
use crate::protocol::messages::join_group_request::JoinGroupRequestProtocol;
use crate::protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use crate::protocol::messages::{JoinGroupRequest, JoinGroupResponse, SyncGroupRequest};
use crate::protocol::records::consumer_protocol::ConsumerProtocolSubscription;
use crate::protocol::records::consumer_protocol::consumer_protocol_subscription::TopicPartition;
use crate::protocol::{Encodable, ErrorCode, StrBytes};
use bytes::{BufMut, Bytes, BytesMut};

pub fn subscription(topics: &[&str], owned: &[(&str, &[i32])]) -> Bytes {
    let subscription = ConsumerProtocolSubscription {
        topics: topics.iter().map(|topic| text(topic)).collect(),
        owned_partitions: owned
            .iter()
            .map(|(topic, partitions)| TopicPartition {
                topic: text(topic),
                partitions: partitions.to_vec(),
            })
            .collect(),
        ..Default::default()
    };
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    subscription.encode(&mut bytes, 1).unwrap();
    bytes.freeze()
}

/// A consumer of the classic protocol that subscribes to topic 1.
fn classic(member_id: &str, owned: &[(&str, &[i32])]) -> JoinGroupRequest {
    classic_of("range", member_id, owned)
}

fn classic_of(protocol: &str, member_id: &str, owned: &[(&str, &[i32])]) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text(protocol))
        .with_metadata(subscription(&["one"], owned));
    join("group")
        .with_member_id(text(member_id))
        .with_protocols(vec![protocol])
}

fn assignment_of(bytes: &Bytes) -> Vec<(String, Vec<i32>)> {
    let assignment = embedded::assignment(bytes).unwrap();
    let topics = assignment.assigned_partitions.into_iter();
    topics
        .map(|topic| (topic.topic.to_string(), topic.partitions))
        .collect()
}

fn sync_request(member: &JoinGroupResponse) -> SyncGroupRequest {
    sync("group", member, &[])
}

/// What a SyncGroup is answered with at once.
fn synced(fixture: &mut Fixture, member: &JoinGroupResponse) -> (ErrorCode, Vec<(String, Vec<i32>)>) {
    let token = fixture.sync_with(sync_request(member));
    let response = fixture.synced(token).expect("the SyncGroup is parked");
    let error = ErrorCode::from_code(response.error_code);
    match error {
        ErrorCode::None => (error, assignment_of(&response.assignment)),
        _ => (error, Vec::new()),
    }
}

/// A stable classic group of one consumer that has all of topic 1.
fn classic_group(fixture: &mut Fixture, partitions: i32) -> JoinGroupResponse {
    classic_group_of("range", fixture, partitions)
}

fn classic_group_of(protocol: &str, fixture: &mut Fixture, partitions: i32) -> JoinGroupResponse {
    fixture.topic("one", 1, partitions);
    let token = fixture.join(classic_of(protocol, "", &[]));
    fixture.sleep(3000);
    let joined = fixture.joined(token).unwrap();
    let all: Vec<i32> = (0..partitions).collect();
    let target = [(topic_id(1), all.into_iter().collect())].into();
    let assignment = embedded::serialize_assignment(&target, 1, &fixture.shard.image).unwrap();
    let mut request = sync_request(&joined);
    request.assignments = vec![
        SyncGroupRequestAssignment::default()
            .with_member_id(joined.member_id.clone())
            .with_assignment(assignment),
    ];
    let token = fixture.sync_with(request);
    assert_eq!(fixture.synced(token).unwrap().error_code, 0);
    joined
}

fn rejoin_with(fixture: &mut Fixture, member_id: &StrBytes, owned: &[(&str, &[i32])]) -> JoinGroupResponse {
    let token = fixture.join(classic(member_id, owned));
    let joined = fixture.joined(token).expect("the JoinGroup is parked");
    assert_eq!(joined.error_code, 0);
    joined
}

#[test]
fn empty_classic_group_becomes_a_consumer_group() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    fixture
        .commit_offsets(&commit("group", "one", 0, 5), true)
        .unwrap();
    let before = fixture.log.len();
    fixture.beat(&joining("a", &["one"]));
    assert_eq!(fixture.written_since(before)[0], "-GroupMetadata");
    assert_eq!(fixture.epochs(), (2, 2, "Stable"));
    assert_eq!(fixture.fetch("group", "one", 0), 5);
    fixture.assert_replays();
}

#[test]
fn group_in_use_is_upgraded_and_its_members_stay() {
    let mut fixture = Fixture::new();
    let first = classic_group(&mut fixture, 2);
    let before = fixture.log.len();
    let response = fixture.beat(&joining("b", &["one"]));
    assert_eq!(answered(&response), (2, Some(vec![])));
    assert_eq!(
        fixture.written_since(before)[..6],
        [
            "-GroupMetadata",
            "MemberMetadata",
            "Metadata",
            "TargetAssignmentMember",
            "TargetAssignmentMetadata",
            "CurrentMemberAssignment"
        ]
    );
    assert_eq!(fixture.epochs(), (2, 2, "Reconciling"));
    let member = fixture.group().member(&first.member_id).unwrap();
    assert!(member.uses_classic_protocol());
    assert_eq!((member.member_epoch, member.assigned.len()), (1, 1));
    fixture.assert_replays();
    // The classic member is told to join again, gives up what is not its any more, and gets the rest.
    assert_eq!(
        fixture.heartbeat(&first.member_id, 1),
        ErrorCode::RebalanceInProgress
    );
    let again = rejoin_with(&mut fixture, &first.member_id, &[("one", &[0, 1])]);
    // It has more than the target gives it: it stays in its epoch.
    assert_eq!(again.generation_id, 1);
    assert_eq!(
        (&*again.leader, &*again.protocol_name.clone().unwrap()),
        ("", "range")
    );
    let (error, kept) = synced(&mut fixture, &again);
    assert_eq!((error, kept[0].1.len()), (ErrorCode::None, 1));
    assert_eq!(
        fixture.heartbeat(&first.member_id, 1),
        ErrorCode::RebalanceInProgress
    );
    let again = rejoin_with(&mut fixture, &first.member_id, &[("one", &kept[0].1)]);
    assert_eq!(again.generation_id, 2);
    assert_eq!(synced(&mut fixture, &again), (ErrorCode::None, kept.clone()));
    assert_eq!(fixture.heartbeat(&first.member_id, 2), ErrorCode::None);
    let (_, given) = fixture.beats(&request("b", 2));
    assert_eq!(given.unwrap()[0].1, vec![1 - kept[0].1[0]]);
    assert_eq!(fixture.epochs(), (2, 2, "Stable"));
    fixture.assert_replays();
}

/// A group of one member that says that it has partitions 0 and 1 of topic 1, and that is given `target`, but has not heard of it.
fn unheard_assignment(fixture: &mut Fixture, protocol: &str, target: &[i32]) -> JoinGroupResponse {
    let first = classic_group_of(protocol, fixture, 2);
    let token = fixture.join(classic_of(protocol, &first.member_id, &[("one", &[0, 1])]));
    let joined = fixture.joined(token).unwrap();
    let target = [(topic_id(1), target.iter().copied().collect())].into();
    let mut syncing = sync_request(&joined);
    syncing.assignments = vec![
        SyncGroupRequestAssignment::default()
            .with_member_id(joined.member_id.clone())
            .with_assignment(embedded::serialize_assignment(&target, 1, &fixture.shard.image).unwrap()),
    ];
    fixture.sync_with(syncing);
    joined
}

/// The assignment that gives up a partition is made, and its member has not heard of it when the group is upgraded.
#[test]
fn partition_that_a_member_has_not_given_up_yet_is_nobody_elses_after_an_upgrade() {
    const PROTOCOL: &str = "cooperative-sticky";
    let mut fixture = Fixture::new();
    let first = unheard_assignment(&mut fixture, PROTOCOL, &[0]);
    // 1 is to be with "b", 0 with the first: "b" waits.
    let generation = first.generation_id;
    let (epoch, given) = fixture.beats(&joining("b", &["one"]));
    assert_eq!((epoch, given), (generation + 1, Some(vec![])));
    fixture.assert_replays();
    assert_eq!(
        fixture.heartbeat(&first.member_id, generation),
        ErrorCode::RebalanceInProgress
    );
    let rejoin = |fixture: &mut Fixture, owned: &[i32]| {
        let token = fixture.join(classic_of(PROTOCOL, &first.member_id, &[("one", owned)]));
        fixture
            .joined(token)
            .expect("the JoinGroup is parked")
            .generation_id
    };
    assert_eq!(rejoin(&mut fixture, &[0, 1]), generation);
    assert_eq!(fixture.beats(&request("b", epoch)).1, None);
    assert_eq!(rejoin(&mut fixture, &[0]), epoch);
    assert_eq!(fixture.beats(&request("b", epoch)).1, Some(vec![(1, vec![1])]));
    fixture.assert_replays();
}

/// Such a member has given up all before it joined, whatever it says: another may have it by now.
#[test]
fn claim_of_a_member_of_an_eager_group_is_not_believed() {
    for protocol in ["range", "roundrobin", "sticky"] {
        let mut fixture = Fixture::new();
        let first = unheard_assignment(&mut fixture, protocol, &[0]);
        let (_, given) = fixture.beats(&joining("b", &["one"]));
        assert_eq!(given, Some(vec![(1, vec![1])]), "{protocol}");
        let member = fixture.group().member(&first.member_id).unwrap();
        assert!(member.pending_revocation.is_empty());
        fixture.assert_replays();
    }
}

/// A static member comes back by the consumer protocol and wants what it wanted before: nothing else tells that the classic
/// group's last assignment is out of date.
fn epochs_after_a_static_upgrade(change: impl FnOnce(&mut Fixture)) -> ((i32, i32, &'static str), Answered) {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 2);
    let instance = Some(text("i"));
    let token = fixture.join(classic("", &[]).with_group_instance_id(instance.clone()));
    fixture.sleep(3000);
    let joined = fixture.joined(token).unwrap();
    let target = [(topic_id(1), [0, 1].into())].into();
    let assignment = embedded::serialize_assignment(&target, 1, &fixture.shard.image).unwrap();
    let mut syncing = sync_request(&joined);
    syncing.group_instance_id = instance.clone();
    syncing.assignments = vec![
        SyncGroupRequestAssignment::default()
            .with_member_id(joined.member_id.clone())
            .with_assignment(assignment),
    ];
    let token = fixture.sync_with(syncing);
    assert_eq!(fixture.synced(token).unwrap().error_code, 0);
    change(&mut fixture);
    let answered = fixture.beats(&joining("a", &["one"]).with_instance_id(instance));
    fixture.assert_replays();
    (fixture.epochs(), answered)
}

#[test]
fn assignment_that_a_classic_leader_left_out_of_date_is_made_anew_after_an_upgrade() {
    let stays = epochs_after_a_static_upgrade(|_| {});
    assert_eq!(stays, ((1, 1, "Stable"), (1, Some(vec![(1, vec![0, 1])]))));
    let grown = epochs_after_a_static_upgrade(|fixture| fixture.topic("one", 1, 3));
    assert_eq!(grown, ((2, 2, "Stable"), (2, Some(vec![(1, vec![0, 1, 2])]))));
    let new = epochs_after_a_static_upgrade(|fixture| {
        fixture.delete_topic(1);
        fixture.topic("one", 2, 1);
    });
    assert_eq!(new, ((2, 2, "Stable"), (2, Some(vec![(2, vec![0])]))));
}

#[test]
fn assignment_of_a_generation_before_a_change_of_subscriptions_is_made_anew_after_an_upgrade() {
    let (epochs, (epoch, _)) = epochs_after_a_static_upgrade(|fixture| {
        fixture.topic("two", 2, 1);
        // It waits for the static member, so the group is upgraded in the midst of a rebalance.
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text("range"))
            .with_metadata(subscription(&["two"], &[]));
        fixture.join(join("group").with_protocols(vec![protocol]));
        assert_eq!(fixture.state(), "PreparingRebalance");
    });
    assert_eq!((epochs.0, epochs.1, epoch), (2, 2, 2));
}

#[test]
fn members_that_wait_for_a_rebalance_are_told_to_join_again() {
    let mut fixture = Fixture::new();
    let first = classic_group(&mut fixture, 1);
    let waiting = fixture.join(classic("", &[]));
    assert_eq!(fixture.state(), "PreparingRebalance");
    fixture.beat(&joining("c", &["one"]));
    let told = fixture.joined(waiting).unwrap();
    assert_eq!(told.error_code, ErrorCode::RebalanceInProgress.code());
    assert_eq!(fixture.group().len(), 3);
    // No timer of the classic group fires into the new one.
    fixture.sleep(9_000);
    assert!(fixture.group().member(&first.member_id).is_some());
}

#[test]
fn upgrade_is_refused_where_it_would_lose_something() {
    let refused = |config: GroupConfig, prepare: &dyn Fn(&mut Fixture)| {
        let mut fixture = Fixture::with(config);
        prepare(&mut fixture);
        let (code, message) = fixture.refused(&joining("b", &["one"]));
        assert_eq!(code, ErrorCode::GroupIdNotFound);
        assert!(fixture.shard.classic_group("group").is_some());
        message
    };
    let usual = |fixture: &mut Fixture| {
        classic_group(fixture, 1);
    };
    let policy = GroupConfig {
        consumer_group_migration_policy: MigrationPolicy::named("downgrade"),
        ..Default::default()
    };
    assert_eq!(
        refused(policy, &usual),
        "Cannot upgrade classic group group to consumer group because online upgrade is disabled."
    );
    let small = GroupConfig {
        consumer_group_max_size: 0,
        ..Default::default()
    };
    assert_eq!(
        refused(small, &usual),
        "Cannot upgrade classic group group to consumer group because the group size exceeds the consumer group \
         maximum size."
    );
    let malformed = |fixture: &mut Fixture| {
        fixture.topic("one", 1, 1);
        fixture.join(join("group"));
        fixture.sleep(3000);
    };
    assert_eq!(
        refused(GroupConfig::default(), &malformed),
        "Cannot upgrade classic group group to consumer group because the embedded consumer protocol is malformed."
    );
    let connect = |fixture: &mut Fixture| {
        fixture.join(join("group").with_protocol_type(text("connect")));
        fixture.sleep(3000);
    };
    assert_eq!(
        refused(GroupConfig::default(), &connect),
        "Cannot upgrade classic group group to consumer group because the group does not use the consumer embedded \
         protocol."
    );
}

#[test]
fn members_that_wait_for_their_first_rebalance_are_told_though_the_upgrade_is_refused() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    let waiting = fixture.join(classic("", &[]));
    // The group has no protocol yet.
    let response = fixture.beat(&joining("b", &["one"]));
    assert_eq!(response.error_code, ErrorCode::UnknownServerError.code());
    let told = fixture.joined(waiting).expect("the JoinGroup is lost");
    assert_eq!(told.error_code, ErrorCode::RebalanceInProgress.code());
    let waiting = fixture.join(classic(&told.member_id, &[]));
    fixture.sleep(3000);
    assert_eq!(fixture.joined(waiting).unwrap().generation_id, 1);
}

#[test]
fn members_that_wait_for_their_assignment_are_told_though_the_upgrade_is_refused() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    let tokens = [fixture.join(join("group")), fixture.join(join("group"))];
    fixture.sleep(6000);
    let joined = tokens.map(|token| fixture.joined(token).unwrap());
    let follower = joined.iter().find(|member| member.leader != member.member_id);
    let waiting = fixture.sync_with(sync_request(follower.unwrap()));
    // Nothing but a consumer's subscription can be made a member of a consumer group.
    let response = fixture.beat(&joining("b", &["one"]));
    assert_eq!(response.error_code, ErrorCode::GroupIdNotFound.code());
    let told = fixture.synced(waiting).expect("the SyncGroup is lost");
    assert_eq!(told.error_code, ErrorCode::RebalanceInProgress.code());
    assert_eq!(fixture.state(), "CompletingRebalance");
}

#[test]
fn upgrade_is_refused_when_two_members_have_the_same_partition() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    let tokens = [fixture.join(classic("", &[])), fixture.join(classic("", &[]))];
    fixture.sleep(6000);
    let joined = tokens.map(|token| fixture.joined(token).unwrap());
    let target = [(topic_id(1), [0].into())].into();
    let both = embedded::serialize_assignment(&target, 1, &fixture.shard.image).unwrap();
    let leader = joined.iter().find(|member| member.leader == member.member_id);
    let mut request = sync_request(leader.unwrap());
    request.assignments = joined
        .iter()
        .map(|member| {
            SyncGroupRequestAssignment::default()
                .with_member_id(member.member_id.clone())
                .with_assignment(both.clone())
        })
        .collect();
    fixture.sync_with(request);
    assert_eq!(fixture.state(), "Stable");
    let (code, _) = fixture.refused(&joining("b", &["one"]));
    assert_eq!(code, ErrorCode::UnknownServerError);
    assert_eq!(fixture.shard.classic_group("group").unwrap().len(), 2);
}

/// A rebalance that `old` holds up goes on without it after its time, whatever became of an upgrade.
fn assert_rebalance_ends(fixture: &mut Fixture, old: &StrBytes, told: &JoinGroupResponse) {
    assert_eq!(told.error_code, ErrorCode::RebalanceInProgress.code());
    assert_eq!(fixture.state(), "PreparingRebalance");
    let waiting = fixture.join(classic(&told.member_id, &[]));
    for _ in 0..6 {
        fixture.sleep(5000);
        fixture.heartbeat(old, 1);
    }
    let joined = fixture.joined(waiting).expect("the rebalance does not end");
    assert_eq!((joined.error_code, joined.generation_id), (0, 2));
}

#[test]
fn rebalance_still_ends_when_the_upgraded_group_refuses_the_new_member() {
    let mut fixture = Fixture::new();
    let first = classic_group(&mut fixture, 1);
    let waiting = fixture.join(classic("", &[]));
    let invalid = joining("c", &["one"]).with_subscribed_topic_regex(Some(text("(")));
    let response = fixture.beat(&invalid);
    assert_eq!(response.error_code, ErrorCode::InvalidRegularExpression.code());
    let told = fixture.joined(waiting).unwrap();
    assert_rebalance_ends(&mut fixture, &first.member_id, &told);
}

#[test]
fn rebalance_still_ends_when_the_upgrade_is_not_written() {
    let mut fixture = Fixture::new();
    let first = classic_group(&mut fixture, 1);
    let waiting = fixture.join(classic("", &[]));
    fixture.fail = Some(ErrorCode::NotEnoughReplicas);
    fixture.beat(&joining("c", &["one"]));
    fixture.fail = None;
    let told = fixture.joined(waiting).unwrap();
    assert_rebalance_ends(&mut fixture, &first.member_id, &told);
}

#[test]
fn sync_phase_still_ends_when_the_upgrade_is_not_written() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    let token = fixture.join(classic("", &[]));
    fixture.sleep(3000);
    let joined = fixture.joined(token).unwrap();
    fixture.fail = Some(ErrorCode::NotEnoughReplicas);
    fixture.beat(&joining("c", &["one"]));
    fixture.fail = None;
    assert_eq!(fixture.state(), "CompletingRebalance");
    for _ in 0..6 {
        fixture.sleep(5000);
        fixture.heartbeat(&joined.member_id, 1);
    }
    // It has not sent SyncGroup in time.
    assert_eq!(fixture.state(), "Empty");
}

#[test]
fn members_that_joined_a_downgraded_group_are_told_when_it_is_taken_back() {
    let mut fixture = Fixture::new();
    classic_group(&mut fixture, 1);
    fixture.beat(&joining("b", &["one"]));
    fixture.hold = true;
    let before = fixture.log.len();
    fixture.beat(&request("b", -1));
    let waiting = fixture.join(classic("", &[]));
    assert_eq!(fixture.state(), "PreparingRebalance");
    let mut reverted = GroupOutcome::of(());
    reverted.effects = fixture.shard.revert(before as i64);
    fixture.apply(reverted);
    assert_eq!(fixture.group().len(), 2);
    let told = fixture.joined(waiting).expect("the JoinGroup is lost");
    assert_eq!(told.error_code, ErrorCode::CoordinatorNotAvailable.code());
}

#[test]
fn timer_that_cannot_fence_a_member_fires_again() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    fixture.beat(&joining("a", &["one"]));
    let protocol = |name: &str, metadata: Bytes| {
        JoinGroupRequestProtocol::default()
            .with_name(text(name))
            .with_metadata(metadata)
    };
    let usual = subscription(&["one"], &[]);
    let odd = [protocol("range", usual.clone()), protocol("sticky", Bytes::new())];
    fixture.join(classic("odd", &[]).with_protocols(odd.to_vec()));
    for member_id in ["c", "d"] {
        let both = [
            protocol("sticky", usual.clone()),
            protocol("range", usual.clone()),
        ];
        fixture.join(classic(member_id, &[]).with_protocols(both.to_vec()));
    }
    assert_eq!(fixture.group().len(), 4);
    // The group would be classic again and use what one of its members cannot be read with.
    let timer = GroupTimer::ConsumerSession {
        group_id: text("group"),
        member_id: text("a"),
    };
    fixture.timers.cancel(&timer.key());
    let context = fixture.context();
    let outcome = fixture.shard.on_timer(&context, timer.clone());
    fixture.apply(outcome);
    assert_eq!(fixture.group().len(), 4);
    let now_ms = fixture.now_ms;
    let due: Vec<GroupTimer> = std::iter::from_fn(|| fixture.timers.pop_due(now_ms + 500)).collect();
    assert!(due.contains(&timer), "{due:?}");
}

#[test]
fn group_is_classic_again_when_the_last_consumer_member_leaves() {
    let mut fixture = Fixture::new();
    let first = classic_group(&mut fixture, 2);
    fixture.beat(&joining("b", &["one"]));
    let before = fixture.log.len();
    fixture.beat(&request("b", -1));
    let written = fixture.written_since(before);
    assert_eq!(written.last().unwrap(), "GroupMetadata");
    assert_eq!(written[written.len() - 2], "-Metadata");
    let group = fixture.shard.classic_group("group").unwrap();
    assert_eq!(
        (group.state().name(), group.generation_id(), group.len()),
        ("PreparingRebalance", 2, 1)
    );
    let reloaded = fixture.reloaded();
    assert_eq!(reloaded.shard.classic_group("group").unwrap().len(), 1);
    // It goes on as in any rebalance.
    assert_eq!(
        fixture.heartbeat(&first.member_id, 2),
        ErrorCode::RebalanceInProgress
    );
    let token = fixture.join(classic(&first.member_id, &[]));
    let joined = fixture.joined(token).unwrap();
    assert_eq!((joined.generation_id, joined.leader), (3, first.member_id));
}

#[test]
fn group_stays_when_a_downgrade_is_not_wanted_or_nobody_is_left() {
    let mut fixture = Fixture::with(GroupConfig {
        consumer_group_migration_policy: MigrationPolicy::named("upgrade"),
        ..Default::default()
    });
    classic_group(&mut fixture, 1);
    fixture.beat(&joining("b", &["one"]));
    fixture.beat(&request("b", -1));
    assert_eq!(fixture.group().len(), 1);
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 1);
    fixture.beat(&joining("b", &["one"]));
    fixture.beat(&request("b", -1));
    assert_eq!(fixture.epochs().2, "Empty");
}

#[test]
fn failed_downgrade_leaves_the_consumer_group() {
    let mut fixture = Fixture::new();
    classic_group(&mut fixture, 1);
    fixture.beat(&joining("b", &["one"]));
    fixture.fail = Some(ErrorCode::NotEnoughReplicas);
    fixture.beat(&request("b", -1));
    assert_eq!(fixture.group().len(), 2);
    let mut fixture = Fixture::new();
    classic_group(&mut fixture, 1);
    fixture.fail = Some(ErrorCode::NotEnoughReplicas);
    fixture.beat(&joining("b", &["one"]));
    assert!(fixture.shard.classic_group("group").is_some());
}

#[test]
fn static_member_that_comes_back_by_the_classic_protocol_brings_the_downgrade() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 2);
    let instance = Some(text("i"));
    fixture.beat(&joining("a", &["one"]).with_instance_id(instance.clone()));
    let token = fixture.join(classic("", &[]).with_group_instance_id(instance.clone()));
    let joined = fixture.joined(token).unwrap();
    assert_eq!((joined.error_code, joined.generation_id), (0, 2));
    let group = fixture.shard.classic_group("group").unwrap();
    assert_eq!(
        (group.state().name(), group.generation_id(), group.len()),
        ("Stable", 2, 1)
    );
    assert_ne!(&*joined.member_id, "a");
    // It has what its last incarnation had.
    let mut request = sync_request(&joined);
    request.group_instance_id = instance;
    let token = fixture.sync_with(request);
    let response = fixture.synced(token).unwrap();
    assert_eq!(
        assignment_of(&response.assignment),
        [("one".to_owned(), vec![0, 1])]
    );
    let reloaded = fixture.reloaded();
    assert!(matches!(
        reloaded.shard.groups["group".as_bytes()],
        Group::Classic(_)
    ));
    assert_eq!(reloaded.shard.classic_group("group").unwrap().len(), 1);
}

/// The target is up to date, and a classic member has not heard of it yet.
#[test]
fn downgrade_before_all_have_what_they_are_to_have_rebalances() {
    let mut fixture = Fixture::new();
    let first = classic_group(&mut fixture, 2);
    let instance = Some(text("i"));
    let (_, given) = fixture.beats(&joining("b", &["one"]).with_instance_id(instance.clone()));
    assert_eq!(given, Some(vec![]));
    let token = fixture.join(classic("", &[]).with_group_instance_id(instance.clone()));
    let joined = fixture.joined(token).unwrap();
    assert_eq!(joined.error_code, 0);
    let group = fixture.shard.classic_group("group").unwrap();
    assert_eq!((group.state().name(), group.len()), ("PreparingRebalance", 2));
    // What it is to have the other one still has.
    let mut syncing = sync_request(&joined);
    syncing.group_instance_id = instance;
    let token = fixture.sync_with(syncing);
    let error = fixture.synced(token).unwrap().error_code;
    assert_eq!(error, ErrorCode::RebalanceInProgress.code());
    assert_eq!(
        fixture.heartbeat(&first.member_id, first.generation_id),
        ErrorCode::IllegalGeneration
    );
}

/// What a group that was downgraded gives its members is not what they have: upgraded again before they have joined, it must know.
#[test]
fn partition_that_a_member_still_has_is_nobody_elses_after_a_downgrade_and_an_upgrade() {
    for protocol in ["range", "cooperative-sticky"] {
        let mut fixture = Fixture::new();
        let first = classic_group_of(protocol, &mut fixture, 2);
        // The first member has both, and is to have one.
        assert_eq!(fixture.beats(&joining("b", &["one"])).1, Some(vec![]));
        fixture.beat(&request("b", -1));
        assert_eq!(fixture.state(), "PreparingRebalance");
        let (epoch, given) = fixture.beats(&joining("c", &["one"]));
        assert_eq!(given, Some(vec![]), "{protocol}");
        fixture.assert_replays();
        let generation = first.generation_id;
        assert_ne!(fixture.heartbeat(&first.member_id, generation), ErrorCode::None);
        let token = fixture.join(classic_of(protocol, &first.member_id, &[]));
        assert_eq!(fixture.joined(token).unwrap().generation_id, epoch);
        let (_, given) = fixture.beats(&request("c", epoch));
        assert_eq!(given.map(|given| given[0].1.len()), Some(1), "{protocol}");
        fixture.assert_replays();
    }
}

#[test]
fn classic_members_of_a_consumer_group_are_held_to_its_rules() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 2);
    fixture.beat(&joining("a", &["one"]));
    fixture.sleep(1000);
    // A new member is asked to come back with the id it is given.
    fixture.requires_known_member_id = true;
    let token = fixture.join(classic("", &[]));
    let asked = fixture.joined(token).unwrap();
    assert_eq!(asked.error_code, ErrorCode::MemberIdRequired.code());
    assert_eq!(asked.member_id.len(), 22);
    let joined = rejoin_with(&mut fixture, &asked.member_id, &[]);
    assert_eq!(joined.generation_id, 3);
    // Nothing to give yet; what another has is waited for without a rebalance.
    assert_eq!(synced(&mut fixture, &joined), (ErrorCode::None, vec![]));
    assert_eq!(fixture.heartbeat(&joined.member_id, 3), ErrorCode::None);
    let kept: Vec<i32> = fixture.group().target(&text("a"))[&topic_id(1)]
        .iter()
        .copied()
        .collect();
    fixture.beat(&request("a", 2));
    fixture.beat(&request("a", 2).with_topic_partitions(owning(&[(1, &kept)])));
    assert_eq!(
        fixture.heartbeat(&joined.member_id, 3),
        ErrorCode::RebalanceInProgress
    );

    let error = |fixture: &mut Fixture, request: SyncGroupRequest| {
        let (context, token) = (fixture.context(), fixture.token());
        let outcome = fixture.shard.sync_group(&context, &request, token);
        outcome.err().map(|error| error.code)
    };
    let stale = sync_request(&joined).with_generation_id(2);
    assert_eq!(error(&mut fixture, stale), Some(ErrorCode::IllegalGeneration));
    let stranger = sync_request(&joined).with_member_id(text("who"));
    assert_eq!(error(&mut fixture, stranger), Some(ErrorCode::UnknownMemberId));
    let other = sync_request(&joined).with_protocol_name(Some(text("sticky")));
    assert_eq!(
        error(&mut fixture, other),
        Some(ErrorCode::InconsistentGroupProtocol)
    );
    let consumer = sync_request(&joined).with_member_id(text("a"));
    assert_eq!(error(&mut fixture, consumer), Some(ErrorCode::UnknownMemberId));
    assert_eq!(fixture.heartbeat(&text("a"), 3), ErrorCode::UnknownMemberId);
    assert_eq!(
        fixture.heartbeat(&joined.member_id, 2),
        ErrorCode::IllegalGeneration
    );
    assert_eq!(
        fixture.heartbeat_with(&joined.member_id, Some("i"), 3),
        ErrorCode::UnknownMemberId
    );
    let unsupported = fixture.try_join(classic("", &[]).with_protocol_type(text("connect")));
    assert_eq!(
        unsupported.unwrap_err().code,
        ErrorCode::InconsistentGroupProtocol
    );
    // LeaveGroup takes members of both protocols out.
    let left = fixture
        .leave(&[
            leaving(&joined.member_id),
            leaving(&text("who")),
            leaving(&text("a")),
        ])
        .unwrap();
    let errors: Vec<i16> = left.members.iter().map(|member| member.error_code).collect();
    assert_eq!(errors, [0, ErrorCode::UnknownMemberId.code(), 0]);
    assert_eq!(fixture.epochs().2, "Empty");
    fixture.assert_replays();
}

#[test]
fn classic_member_that_does_not_follow_is_fenced() {
    // It does not sync.
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 2);
    fixture.group_config("group", "consumer.session.timeout.ms", "60000");
    fixture.beat(&joining("a", &["one"]));
    let joined = rejoin_with(&mut fixture, &text("c"), &[]);
    for _ in 0..5 {
        fixture.sleep(5000);
        fixture.heartbeat(&joined.member_id, joined.generation_id);
    }
    fixture.sleep(4999);
    assert_eq!(fixture.group().len(), 2);
    fixture.sleep(1);
    assert_eq!(fixture.group().len(), 1);
    // It does not join again.
    let joined = rejoin_with(&mut fixture, &text("d"), &[]);
    synced(&mut fixture, &joined);
    fixture.topic("one", 1, 4);
    fixture.sleep(1000);
    fixture.beat(&request("a", 2).with_topic_partitions(owning(&[])));
    let mut told = 0;
    for _ in 0..8 {
        let error = fixture.heartbeat(&joined.member_id, joined.generation_id);
        told += i32::from(error == ErrorCode::RebalanceInProgress);
        fixture.sleep(5000);
    }
    assert!(told >= 6, "{told}");
    assert!(fixture.group().member(&joined.member_id).is_none());
}

#[test]
fn classic_member_is_refused_where_migration_is_disabled() {
    let mut fixture = Fixture::with(GroupConfig {
        consumer_group_migration_policy: MigrationPolicy::named("disabled"),
        ..Default::default()
    });
    fixture.topic("one", 1, 2);
    fixture.beat(&joining("a", &["one"]));
    let error = fixture.try_join(classic("", &[])).unwrap_err();
    assert_eq!(
        error.message_or_default(),
        "Cannot join the consumer group group with the classic protocol because the group migration is disabled."
    );
    // Once it is empty it is anybody's.
    fixture.beat(&request("a", -1));
    fixture.join(classic("", &[]));
    assert!(fixture.shard.classic_group("group").is_some());
}
