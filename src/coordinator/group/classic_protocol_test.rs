//! The classic protocol, request by request: what is answered, when, and what is written.

use super::super::GroupConfig;
use super::super::fixture_test::*;
use super::super::records::GroupRecord;
use super::super::shard::GroupReply;
use crate::protocol::messages::leave_group_request::MemberIdentity;
use crate::protocol::messages::{GroupId, JoinGroupResponse};
use crate::protocol::records::group::{GroupMetadataValue, GroupRecordValue};
use crate::protocol::{ErrorCode, StrBytes};
use bytes::Bytes;

fn config() -> GroupConfig {
    GroupConfig {
        group_max_size: 2,
        ..Default::default()
    }
}

fn error(response: &JoinGroupResponse) -> ErrorCode {
    ErrorCode::from_code(response.error_code)
}

/// The last record, which is a group's metadata.
fn last_metadata(fixture: &Fixture) -> GroupMetadataValue {
    match fixture.log.last() {
        Some(GroupRecord {
            value: Some((GroupRecordValue::GroupMetadata(value), 3)),
            ..
        }) => value.clone(),
        other => panic!("{other:?}"),
    }
}

mod joining {
    use super::*;

    #[test]
    fn unknown_member_of_an_unknown_group_creates_it_and_waits_for_the_initial_rebalance() {
        let mut fixture = Fixture::new();
        let token = fixture.join(join("group"));
        assert_eq!(fixture.state(), "PreparingRebalance");
        // The group is written at once, empty.
        let written = last_metadata(&fixture);
        assert_eq!(
            (written.generation, written.protocol, written.leader),
            (0, None, None)
        );
        assert_eq!((written.protocol_type, written.members.len()), (text(""), 0));
        assert_eq!(written.current_state_timestamp, fixture.now_ms);
        fixture.sleep(2999);
        assert_eq!(fixture.joined(token), None);
        fixture.sleep(1);
        // One member came: the delay is used up once more for it.
        let joined = fixture.joined(token).unwrap();
        assert_eq!((joined.error_code, joined.generation_id), (0, 1));
        assert_eq!(
            (joined.leader.clone(), joined.members.len()),
            (joined.member_id.clone(), 1)
        );
        assert_eq!(joined.protocol_name, Some(text("range")));
        assert_eq!(joined.protocol_type, Some(text("consumer")));
        assert_eq!(joined.members[0].metadata, Bytes::from_static(b"r"));
        assert!(joined.member_id.starts_with("client-"));
        assert_eq!(fixture.state(), "CompletingRebalance");
    }

    #[test]
    fn initial_rebalance_is_held_back_again_for_each_delay_with_a_new_member_but_not_beyond_the_rebalance_timeout()
     {
        let mut fixture = Fixture::new();
        let mut request = join("group");
        request.rebalance_timeout_ms = 7000;
        let tokens = [fixture.join(request.clone())];
        fixture.sleep(2000);
        let second = fixture.join(request.clone());
        fixture.sleep(1000);
        assert_eq!(fixture.joined(tokens[0]), None);
        fixture.sleep(2000);
        let third = fixture.join(request.clone());
        fixture.sleep(1000);
        // 7000 - 3000 - 3000 are left.
        assert_eq!(fixture.joined(tokens[0]), None);
        let fourth = fixture.join(request);
        fixture.sleep(1000);
        for token in [tokens[0], second, third, fourth] {
            assert_eq!(fixture.joined(token).unwrap().generation_id, 1);
        }
    }

    #[test]
    fn member_that_must_be_known_is_given_an_id_and_joins_with_it() {
        let mut fixture = Fixture::new();
        fixture.requires_known_member_id = true;
        let given = fixture.join_now(join("group"));
        assert_eq!(error(&given), ErrorCode::MemberIdRequired);
        assert_eq!(fixture.state(), "Empty");
        assert_eq!(fixture.log.len(), 1);
        let token = fixture.join(rejoin(&given));
        assert_eq!(fixture.state(), "PreparingRebalance");
        fixture.sleep(3000);
        let joined = fixture.joined(token).unwrap();
        assert_eq!((joined.member_id, joined.generation_id), (given.member_id, 1));
    }

    #[test]
    fn given_id_is_forgotten_when_its_session_ends_before_it_is_used() {
        let mut fixture = Fixture::new();
        fixture.requires_known_member_id = true;
        let given = fixture.join_now(join("group"));
        fixture.sleep(10_000);
        let rejoined = fixture.join_now(rejoin(&given));
        assert_eq!(error(&rejoined), ErrorCode::UnknownMemberId);
    }

    #[test]
    fn static_member_needs_no_known_id() {
        let mut fixture = Fixture::new();
        fixture.requires_known_member_id = true;
        let token = fixture.join(static_join("instance"));
        fixture.sleep(3000);
        let joined = fixture.joined(token).unwrap();
        assert!(joined.member_id.starts_with("instance-"));
        assert_eq!(joined.members[0].group_instance_id, Some(text("instance")));
    }

    #[test]
    fn id_that_no_string_could_hold_is_given_to_no_member() {
        let mut fixture = Fixture::new();
        for is_known_id_required in [false, true] {
            fixture.requires_known_member_id = is_known_id_required;
            // The id that is made of it is one byte too long: "-" and a UUID follow.
            let refused = fixture.join_now(static_join(&"i".repeat(32_768 - 37)));
            assert_eq!(error(&refused), ErrorCode::UnknownServerError);
            assert_eq!((refused.member_id.len(), fixture.state()), (0, "Empty"));
        }
        let token = fixture.join(static_join(&"i".repeat(32_767 - 37)));
        fixture.sleep(3000);
        assert_eq!(fixture.joined(token).unwrap().member_id.len(), 32_767);
    }

    #[test]
    fn known_member_of_an_unknown_group_is_refused_and_nothing_written() {
        let mut fixture = Fixture::new();
        let refused = fixture.join_now(join("group").with_member_id(text("stranger")));
        assert_eq!(error(&refused), ErrorCode::UnknownMemberId);
        assert_eq!(refused.member_id, text("stranger"));
        assert!(fixture.log.is_empty() && fixture.shard.classic_group("group").is_none());
    }

    #[test]
    fn protocols_that_do_not_fit_are_refused() {
        let mut fixture = Fixture::new();
        let nothing = fixture.join_now(join("group").with_protocols(vec![]));
        assert_eq!(error(&nothing), ErrorCode::InconsistentGroupProtocol);
        let members = fixture.stable_group(1);
        let other_type = fixture.join_now(join("group").with_protocol_type(text("connect")));
        assert_eq!(error(&other_type), ErrorCode::InconsistentGroupProtocol);
        let other_protocol = rejoin(&members[0]).with_protocols(vec![protocol("unheard", b"")]);
        // Kafka counts the member's own old protocols too.
        let refused = fixture.join_now(other_protocol);
        assert_eq!(error(&refused), ErrorCode::InconsistentGroupProtocol);
        assert_eq!(refused.member_id, members[0].member_id);
        assert_eq!(fixture.state(), "Stable");
    }

    #[test]
    fn group_takes_no_more_than_the_maximum() {
        let mut fixture = Fixture::with(config());
        let members = fixture.stable_group(2);
        let refused = fixture.join_now(join("group"));
        assert_eq!(error(&refused), ErrorCode::GroupMaxSizeReached);
        assert_eq!(refused.member_id, text(""));
        assert_eq!(fixture.state(), "Stable");
        // Those who are in may rejoin.
        fixture.join(rejoin(&members[0]));
        fixture.join(rejoin(&members[1]));
        assert_eq!(fixture.state(), "CompletingRebalance");
    }

    #[test]
    fn rebalance_of_a_group_that_is_too_large_turns_the_last_ones_away() {
        let mut large = Fixture::new();
        let members = large.stable_group(3);
        let mut fixture = large.reloaded();
        fixture.shard.config = std::sync::Arc::new(config());
        // As if it had been loaded with the lower maximum.
        let context = fixture.context();
        let (records, effects) = fixture.shard.on_classic_loaded(context.now_ms);
        assert!(records.is_empty());
        let mut outcome = super::super::GroupOutcome::of(());
        outcome.effects = effects;
        fixture.apply(outcome);
        assert_eq!(fixture.state(), "PreparingRebalance");
        let first = fixture.join(rejoin(&members[0]));
        let second = fixture.join(rejoin(&members[1]));
        let last = fixture.join_now(rejoin(&members[2]));
        assert_eq!(error(&last), ErrorCode::GroupMaxSizeReached);
        fixture.sleep(30_000);
        assert!(fixture.joined(first).is_some() && fixture.joined(second).is_some());
    }

    #[test]
    fn new_member_that_is_never_answered_is_given_up_after_five_minutes() {
        let mut fixture = Fixture::new();
        fixture.stable_group(1);
        let mut request = join("group");
        request.rebalance_timeout_ms = 3_600_000;
        let token = fixture.join(request);
        // The other member keeps its session by heartbeats and does not rejoin.
        let other = fixture.shard.classic_group("group").unwrap().member_ids()[0].clone();
        for _ in 0..59 {
            fixture.sleep(5000);
            assert_eq!(fixture.heartbeat(&other, 1), ErrorCode::RebalanceInProgress);
        }
        assert_eq!(fixture.joined(token), None);
        fixture.sleep(5000);
        assert_eq!(error(&fixture.joined(token).unwrap()), ErrorCode::UnknownMemberId);
    }

    #[test]
    fn member_in_stable_is_told_the_generation_unless_it_leads_or_changed() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let again = fixture.join_now(rejoin(&members[1]));
        assert_eq!((again.error_code, again.generation_id), (0, 1));
        assert_eq!(
            (again.members.len(), again.leader.clone()),
            (0, members[0].member_id.clone())
        );
        assert_eq!(fixture.state(), "Stable");
        // A change of what it supports.
        let changed = rejoin(&members[1]).with_protocols(vec![protocol("range", b"new")]);
        let token = fixture.join(changed);
        assert_eq!(fixture.state(), "PreparingRebalance");
        assert_eq!(
            fixture.heartbeat(&members[0].member_id, 1),
            ErrorCode::RebalanceInProgress
        );
        fixture.join(rejoin(&members[0]));
        assert_eq!(fixture.joined(token).unwrap().generation_id, 2);
    }

    #[test]
    fn leader_that_joins_again_starts_a_rebalance() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(1);
        let token = fixture.join(rejoin(&members[0]));
        let joined = fixture.joined(token).unwrap();
        assert_eq!((joined.generation_id, joined.members.len()), (2, 1));
        assert_eq!(fixture.state(), "CompletingRebalance");
    }

    #[test]
    fn join_that_is_repeated_while_completing_is_answered_again() {
        let mut fixture = Fixture::new();
        let tokens = [fixture.join(join("group")), fixture.join(join("group"))];
        fixture.sleep(6000);
        let joined: Vec<_> = tokens
            .iter()
            .map(|token| fixture.joined(*token).unwrap())
            .collect();
        let leader = fixture.join_now(rejoin(&joined[0]));
        assert_eq!((leader.generation_id, leader.members.len()), (1, 2));
        let follower = fixture.join_now(rejoin(&joined[1]));
        assert_eq!((follower.generation_id, follower.members.len()), (1, 0));
        // With other protocols it is a new rebalance.
        let changed = rejoin(&joined[1]).with_protocols(vec![protocol("range", b"new")]);
        fixture.join(changed);
        assert_eq!(fixture.state(), "PreparingRebalance");
    }

    #[test]
    fn rejoin_without_the_others_completes_without_them_after_the_rebalance_timeout() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let token = fixture.join(rejoin(&members[0]));
        for _ in 0..5 {
            fixture.sleep(5000);
            assert_eq!(
                fixture.heartbeat(&members[1].member_id, 1),
                ErrorCode::RebalanceInProgress
            );
        }
        assert_eq!(fixture.joined(token), None);
        fixture.sleep(5000);
        let joined = fixture.joined(token).unwrap();
        assert_eq!((joined.generation_id, joined.members.len()), (2, 1));
        assert_eq!(
            fixture.heartbeat(&members[1].member_id, 1),
            ErrorCode::UnknownMemberId
        );
    }

    #[test]
    fn leader_that_does_not_rejoin_is_replaced() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let changed = rejoin(&members[1]).with_protocols(vec![protocol("range", b"new")]);
        let token = fixture.join(changed);
        fixture.sleep(30_000);
        let joined = fixture.joined(token).unwrap();
        assert_eq!(joined.leader, members[1].member_id);
        assert_eq!(joined.members.len(), 1);
    }

    #[test]
    fn join_that_replaces_an_older_one_of_the_same_member_answers_the_older_one() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let older = fixture.join(rejoin(&members[0]));
        let newer = fixture.join(rejoin(&members[0]));
        assert_eq!(
            error(&fixture.joined(older).unwrap()),
            ErrorCode::RebalanceInProgress
        );
        fixture.join(rejoin(&members[1]));
        assert_eq!(fixture.joined(newer).unwrap().generation_id, 2);
    }

    #[test]
    fn group_that_cannot_be_written_is_taken_back_and_its_members_told() {
        let mut fixture = Fixture::new();
        fixture.fail = Some(ErrorCode::NotEnoughReplicas);
        let token = fixture.join(join("group"));
        assert_eq!(
            error(&fixture.joined(token).unwrap()),
            ErrorCode::CoordinatorNotAvailable
        );
        assert!(fixture.shard.classic_group("group").is_none());
        fixture.fail = None;
        fixture.sleep(10_000);
        fixture.stable_group(1);
    }
}

mod syncing {
    use super::*;

    #[test]
    fn assignments_are_written_and_handed_out_once_committed() {
        let mut fixture = Fixture::new();
        let tokens = [fixture.join(join("group")), fixture.join(join("group"))];
        fixture.sleep(6000);
        let joined: Vec<_> = tokens
            .iter()
            .map(|token| fixture.joined(*token).unwrap())
            .collect();
        let follower = fixture.sync(&joined[1], &[]);
        assert_eq!(fixture.synced(follower), None);
        fixture.hold = true;
        let leader = fixture.sync(&joined[0], &[(&joined[1].member_id, "one")]);
        let written = last_metadata(&fixture);
        assert_eq!(
            (written.generation, written.leader.as_ref()),
            (1, Some(&joined[0].leader))
        );
        assert_eq!(
            (written.protocol, written.protocol_type),
            (Some(text("range")), text("consumer"))
        );
        let members: Vec<_> = written
            .members
            .iter()
            .map(|member| {
                (
                    &*member.member_id,
                    &member.assignment[..],
                    &member.subscription[..],
                )
            })
            .collect();
        let expected = [
            (&*joined[0].member_id, &b""[..], &b"r"[..]),
            (&*joined[1].member_id, &b"one"[..], &b"r"[..]),
        ];
        assert_eq!(members, expected);
        let first = &written.members[0];
        assert_eq!((first.session_timeout, first.rebalance_timeout), (10_000, 30_000));
        assert_eq!((&*first.client_id, &*first.client_host), ("client", "/127.0.0.1"));
        assert_eq!((fixture.synced(leader), fixture.synced(follower)), (None, None));
        fixture.commit();
        let synced = fixture.synced(follower).unwrap();
        assert_eq!(
            (synced.error_code, synced.assignment),
            (0, Bytes::from_static(b"one"))
        );
        assert_eq!(synced.protocol_name, Some(text("range")));
        assert_eq!(synced.protocol_type, Some(text("consumer")));
        assert_eq!(fixture.synced(leader).unwrap().assignment, Bytes::new());
        assert_eq!(fixture.state(), "Stable");
    }

    #[test]
    fn sync_in_stable_is_answered_with_the_assignment() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let synced = fixture.sync_now(&members[1], &[]);
        assert_eq!(synced.assignment, Bytes::from(members[1].member_id.to_string()));
    }

    #[test]
    fn sync_is_refused_for_what_is_wrong_with_it() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let good = sync("group", &members[1], &[]);
        let code = |fixture: &mut Fixture, request| {
            let token = fixture.sync_with(request);
            ErrorCode::from_code(fixture.synced(token).unwrap().error_code)
        };
        let unknown_group = good.clone().with_group_id(GroupId(text("none")));
        assert_eq!(code(&mut fixture, unknown_group), ErrorCode::UnknownMemberId);
        let unknown_member = good.clone().with_member_id(text("stranger"));
        assert_eq!(code(&mut fixture, unknown_member), ErrorCode::UnknownMemberId);
        let other_generation = good.clone().with_generation_id(7);
        assert_eq!(code(&mut fixture, other_generation), ErrorCode::IllegalGeneration);
        let other_type = good.clone().with_protocol_type(Some(text("connect")));
        assert_eq!(
            code(&mut fixture, other_type),
            ErrorCode::InconsistentGroupProtocol
        );
        let other_name = good.clone().with_protocol_name(Some(text("sticky")));
        assert_eq!(
            code(&mut fixture, other_name),
            ErrorCode::InconsistentGroupProtocol
        );
        let unknown_instance = good.clone().with_group_instance_id(Some(text("none")));
        assert_eq!(code(&mut fixture, unknown_instance), ErrorCode::UnknownMemberId);
        fixture.join(join("group"));
        assert_eq!(code(&mut fixture, good), ErrorCode::RebalanceInProgress);
    }

    #[test]
    fn sync_to_an_empty_group_is_refused() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(1);
        fixture.leave(&[leaving(&members[0].member_id)]).unwrap();
        assert_eq!(fixture.state(), "Empty");
        let synced = fixture.sync_now(&members[0], &[]);
        assert_eq!(
            ErrorCode::from_code(synced.error_code),
            ErrorCode::UnknownMemberId
        );
    }

    #[test]
    fn members_that_do_not_sync_in_time_are_removed_and_the_rest_rebalances() {
        let mut fixture = Fixture::new();
        let tokens = [fixture.join(join("group")), fixture.join(join("group"))];
        fixture.sleep(6000);
        let joined: Vec<_> = tokens
            .iter()
            .map(|token| fixture.joined(*token).unwrap())
            .collect();
        let follower = fixture.sync(&joined[1], &[]);
        // The leader heartbeats and never syncs.
        for _ in 0..5 {
            fixture.sleep(5000);
            assert_eq!(fixture.heartbeat(&joined[0].member_id, 1), ErrorCode::None);
        }
        fixture.sleep(5000);
        let told = fixture.synced(follower).unwrap();
        assert_eq!(
            ErrorCode::from_code(told.error_code),
            ErrorCode::RebalanceInProgress
        );
        assert_eq!(
            fixture.heartbeat(&joined[0].member_id, 1),
            ErrorCode::UnknownMemberId
        );
        let token = fixture.join(rejoin(&joined[1]));
        let rejoined = fixture.joined(token).unwrap();
        assert_eq!(
            (rejoined.generation_id, &rejoined.leader),
            (2, &joined[1].member_id)
        );
    }

    #[test]
    fn new_member_while_completing_sends_those_who_sync_back_to_join() {
        let mut fixture = Fixture::new();
        let tokens = [fixture.join(join("group")), fixture.join(join("group"))];
        fixture.sleep(6000);
        let joined: Vec<_> = tokens
            .iter()
            .map(|token| fixture.joined(*token).unwrap())
            .collect();
        let follower = fixture.sync(&joined[1], &[]);
        fixture.join(join("group"));
        let told = fixture.synced(follower).unwrap();
        assert_eq!(
            ErrorCode::from_code(told.error_code),
            ErrorCode::RebalanceInProgress
        );
        assert_eq!((told.protocol_name, told.assignment), (None, Bytes::new()));
    }

    #[test]
    fn assignment_of_a_generation_that_is_over_when_it_is_committed_is_dropped() {
        let mut fixture = Fixture::new();
        let token = fixture.join(join("group"));
        fixture.sleep(3000);
        let joined = fixture.joined(token).unwrap();
        fixture.hold = true;
        let leader = fixture.sync(&joined, &[]);
        fixture.join(join("group"));
        let told = fixture.synced(leader).unwrap();
        assert_eq!(
            ErrorCode::from_code(told.error_code),
            ErrorCode::RebalanceInProgress
        );
        fixture.commit();
        assert_eq!(fixture.state(), "PreparingRebalance");
    }

    #[test]
    fn assignment_that_cannot_be_written_sends_all_back_to_join() {
        let mut fixture = Fixture::new();
        let tokens = [fixture.join(join("group")), fixture.join(join("group"))];
        fixture.sleep(6000);
        let joined: Vec<_> = tokens
            .iter()
            .map(|token| fixture.joined(*token).unwrap())
            .collect();
        for (failure, told) in [
            (ErrorCode::NotLeaderOrFollower, ErrorCode::NotCoordinator),
            (ErrorCode::NotEnoughReplicas, ErrorCode::CoordinatorNotAvailable),
            (ErrorCode::RecordListTooLarge, ErrorCode::UnknownServerError),
        ] {
            assert_eq!(super::super::append_error(failure), told);
        }
        let follower = fixture.sync(&joined[1], &[]);
        fixture.fail = Some(ErrorCode::NotEnoughReplicas);
        let leader = fixture.sync(&joined[0], &[]);
        for token in [leader, follower] {
            let told = fixture.synced(token).unwrap();
            assert_eq!(
                ErrorCode::from_code(told.error_code),
                ErrorCode::CoordinatorNotAvailable
            );
        }
        assert_eq!(fixture.state(), "PreparingRebalance");
    }
}

mod staying {
    use super::*;

    #[test]
    fn heartbeat_says_what_the_group_is_up_to() {
        let mut fixture = Fixture::new();
        assert_eq!(fixture.heartbeat(&text("m"), 1), ErrorCode::UnknownMemberId);
        let members = fixture.stable_group(1);
        let id = members[0].member_id.clone();
        assert_eq!(fixture.heartbeat(&id, 1), ErrorCode::None);
        assert_eq!(fixture.heartbeat(&id, 2), ErrorCode::IllegalGeneration);
        assert_eq!(
            fixture.heartbeat(&text("stranger"), 1),
            ErrorCode::UnknownMemberId
        );
        assert_eq!(
            fixture.heartbeat_with(&id, Some("i"), 1),
            ErrorCode::UnknownMemberId
        );
        fixture.join(join("group"));
        assert_eq!(fixture.heartbeat(&id, 1), ErrorCode::RebalanceInProgress);
        let token = fixture.join(rejoin(&members[0]));
        assert_eq!(fixture.joined(token).unwrap().generation_id, 2);
        assert_eq!(fixture.state(), "CompletingRebalance");
        assert_eq!(fixture.heartbeat(&id, 2), ErrorCode::None);
    }

    #[test]
    fn member_without_heartbeats_fails_and_the_group_is_empty() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(1);
        fixture.sleep(9999);
        assert_eq!(fixture.state(), "Stable");
        assert_eq!(fixture.heartbeat(&members[0].member_id, 1), ErrorCode::None);
        fixture.sleep(9999);
        assert_eq!(fixture.state(), "Stable");
        fixture.sleep(1);
        assert_eq!(fixture.state(), "Empty");
        let written = last_metadata(&fixture);
        assert_eq!(
            (written.generation, written.members.len(), written.protocol),
            (2, 0, None)
        );
        assert_eq!(written.protocol_type, text("consumer"));
        assert_eq!(
            fixture.heartbeat(&members[0].member_id, 2),
            ErrorCode::UnknownMemberId
        );
    }

    #[test]
    fn member_that_waits_for_the_group_does_not_fail() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let token = fixture.join(rejoin(&members[0]));
        for _ in 0..4 {
            fixture.sleep(6000);
            fixture.heartbeat(&members[1].member_id, 1);
        }
        // 24 seconds without a heartbeat of the first: its JoinGroup is parked.
        assert_eq!(fixture.joined(token), None);
        fixture.join(rejoin(&members[1]));
        assert_eq!(fixture.joined(token).unwrap().members.len(), 2);
    }

    #[test]
    fn failure_of_the_last_one_that_was_missing_completes_the_rebalance() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let token = fixture.join(rejoin(&members[0]));
        fixture.sleep(10_000);
        let joined = fixture.joined(token).unwrap();
        assert_eq!((joined.generation_id, joined.members.len()), (2, 1));
    }

    #[test]
    fn offset_commit_is_a_sign_of_life() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(1);
        for offset in 0..5 {
            fixture.sleep(9000);
            fixture
                .commit_offsets(&commit_as(&members[0], "topic", 0, offset), true)
                .unwrap();
        }
        assert_eq!(fixture.state(), "Stable");
    }
}

mod leaving_a_group {
    use super::*;

    fn codes(responses: &crate::protocol::messages::LeaveGroupResponse) -> Vec<ErrorCode> {
        let members = responses.members.iter();
        members
            .map(|member| ErrorCode::from_code(member.error_code))
            .collect()
    }

    #[test]
    fn member_that_leaves_starts_a_rebalance_for_the_others() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let left = fixture.leave(&[leaving(&members[0].member_id)]).unwrap();
        assert_eq!((left.error_code, codes(&left)), (0, vec![ErrorCode::None]));
        assert_eq!(left.members[0].member_id, members[0].member_id);
        assert_eq!(fixture.state(), "PreparingRebalance");
        let token = fixture.join(rejoin(&members[1]));
        let joined = fixture.joined(token).unwrap();
        assert_eq!((joined.generation_id, &joined.leader), (2, &members[1].member_id));
    }

    #[test]
    fn last_member_that_leaves_empties_the_group_at_once() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(1);
        fixture.leave(&[leaving(&members[0].member_id)]).unwrap();
        assert_eq!(fixture.state(), "Empty");
        assert_eq!(last_metadata(&fixture).generation, 2);
    }

    #[test]
    fn each_member_is_answered_for_itself() {
        let mut fixture = Fixture::new();
        assert_eq!(
            fixture.leave(&[leaving(&text("m"))]).unwrap_err().code,
            ErrorCode::UnknownMemberId
        );
        fixture.requires_known_member_id = true;
        let given = fixture.join_now(join("group"));
        let by_instance = |member: &str, instance: &str| {
            MemberIdentity::default()
                .with_member_id(text(member))
                .with_group_instance_id(Some(text(instance)))
        };
        let token = fixture.join(static_join("i"));
        assert_eq!(fixture.state(), "PreparingRebalance");
        let left = fixture
            .leave(&[
                leaving(&given.member_id),
                leaving(&text("stranger")),
                by_instance("", "none"),
                by_instance("other", "i"),
                leaving(&text("")),
            ])
            .unwrap();
        let expected = [
            ErrorCode::None,
            ErrorCode::UnknownMemberId,
            ErrorCode::UnknownMemberId,
            ErrorCode::FencedInstanceId,
            ErrorCode::UnknownMemberId,
        ];
        assert_eq!(codes(&left), expected);
        let left = fixture.leave(&[by_instance("", "i")]).unwrap();
        assert_eq!(codes(&left), [ErrorCode::None]);
        assert_eq!(left.members[0].group_instance_id, Some(text("i")));
        assert_eq!(error(&fixture.joined(token).unwrap()), ErrorCode::UnknownMemberId);
    }

    #[test]
    fn member_that_leaves_while_it_is_waited_for_completes_the_rebalance() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let token = fixture.join(rejoin(&members[0]));
        assert_eq!(fixture.joined(token), None);
        fixture.leave(&[leaving(&members[1].member_id)]).unwrap();
        assert_eq!(fixture.joined(token).unwrap().generation_id, 2);
    }
}

mod static_members {
    use super::*;

    fn stable_static(fixture: &mut Fixture, instances: &[&str]) -> Vec<JoinGroupResponse> {
        let tokens: Vec<_> = instances
            .iter()
            .map(|instance| fixture.join(static_join(instance)))
            .collect();
        fixture.sleep(3000 * (instances.len() as i64 + 1));
        let joined: Vec<_> = tokens
            .iter()
            .map(|token| fixture.joined(*token).unwrap())
            .collect();
        fixture.sync_all(&joined);
        joined
    }

    #[test]
    fn member_that_comes_back_keeps_its_assignment_without_a_rebalance() {
        let mut fixture = Fixture::new();
        let members = stable_static(&mut fixture, &["a", "b"]);
        fixture.hold = true;
        let token = fixture.join(static_join("b"));
        assert_eq!(fixture.joined(token), None);
        let written = last_metadata(&fixture);
        let new_id = written.members[1].member_id.clone();
        assert_ne!(new_id, members[1].member_id);
        assert_eq!(
            written.members[1].assignment,
            Bytes::from(members[1].member_id.to_string())
        );
        fixture.commit();
        let joined = fixture.joined(token).unwrap();
        assert_eq!(
            (joined.error_code, joined.generation_id, &joined.member_id),
            (0, 1, &new_id)
        );
        assert_eq!(
            (&joined.leader, joined.skip_assignment),
            (&members[0].member_id, false)
        );
        fixture.hold = false;
        let synced = fixture.sync_now(&joined, &[]);
        assert_eq!(synced.assignment, Bytes::from(members[1].member_id.to_string()));
        assert_eq!(fixture.state(), "Stable");
        // The old incarnation is fenced.
        let old = &members[1].member_id;
        assert_eq!(
            fixture.heartbeat_with(old, Some("b"), 1),
            ErrorCode::FencedInstanceId
        );
        assert_eq!(fixture.heartbeat_with(&new_id, Some("b"), 1), ErrorCode::None);
    }

    #[test]
    fn leader_that_comes_back_is_told_not_to_assign() {
        let mut fixture = Fixture::new();
        let members = stable_static(&mut fixture, &["a", "b"]);
        // An old client is told that somebody else leads.
        let old_client = fixture.join_now(static_join("a"));
        assert_eq!(old_client.leader, members[0].member_id);
        assert_ne!(old_client.member_id, old_client.leader);
        fixture.supports_skipping_assignment = true;
        let new_client = fixture.join_now(static_join("a"));
        assert!(new_client.skip_assignment);
        assert_eq!(new_client.member_id, new_client.leader);
        assert_eq!(new_client.members.len(), 2);
        assert_eq!(fixture.state(), "Stable");
    }

    #[test]
    fn member_that_comes_back_with_another_choice_of_protocol_starts_a_rebalance() {
        let mut fixture = Fixture::new();
        let members = stable_static(&mut fixture, &["a"]);
        let changed = static_join("a").with_protocols(vec![protocol("sticky", b"s")]);
        let token = fixture.join(changed);
        let joined = fixture.joined(token).unwrap();
        assert_eq!(
            (joined.generation_id, joined.protocol_name),
            (2, Some(text("sticky")))
        );
        assert_ne!(joined.member_id, members[0].member_id);
    }

    #[test]
    fn member_that_comes_back_while_completing_starts_a_rebalance() {
        let mut fixture = Fixture::new();
        let tokens = [fixture.join(static_join("a")), fixture.join(static_join("b"))];
        fixture.sleep(9000);
        let joined: Vec<_> = tokens
            .iter()
            .map(|token| fixture.joined(*token).unwrap())
            .collect();
        let waiting = fixture.sync(&joined[1], &[]);
        let token = fixture.join(static_join("b"));
        let told = fixture.synced(waiting).unwrap();
        assert_eq!(ErrorCode::from_code(told.error_code), ErrorCode::FencedInstanceId);
        assert_eq!(fixture.state(), "PreparingRebalance");
        fixture.join(rejoin(&joined[0]).with_group_instance_id(Some(text("a"))));
        assert_eq!(fixture.joined(token).unwrap().generation_id, 2);
    }

    #[test]
    fn older_join_of_an_instance_is_fenced_by_the_newer() {
        let mut fixture = Fixture::new();
        let older = fixture.join(static_join("a"));
        let newer = fixture.join(static_join("a"));
        let told = fixture.joined(older).unwrap();
        assert_eq!(error(&told), ErrorCode::FencedInstanceId);
        fixture.sleep(6000);
        assert_eq!(fixture.joined(newer).unwrap().members.len(), 1);
    }

    #[test]
    fn member_id_that_was_replaced_cannot_join_any_more() {
        let mut fixture = Fixture::new();
        let members = stable_static(&mut fixture, &["a"]);
        fixture.join_now(static_join("a"));
        let old = rejoin(&members[0]).with_group_instance_id(Some(text("a")));
        assert_eq!(error(&fixture.join_now(old)), ErrorCode::FencedInstanceId);
        let unknown = rejoin(&members[0]).with_group_instance_id(Some(text("z")));
        assert_eq!(error(&fixture.join_now(unknown)), ErrorCode::UnknownMemberId);
    }

    #[test]
    fn replacement_that_cannot_be_written_is_taken_back() {
        let mut fixture = Fixture::new();
        let members = stable_static(&mut fixture, &["a", "b"]);
        fixture.fail = Some(ErrorCode::NotEnoughReplicas);
        let told = fixture.join_now(static_join("b"));
        assert_eq!(error(&told), ErrorCode::CoordinatorNotAvailable);
        assert_eq!(
            (told.member_id, told.leader),
            (text(""), members[0].member_id.clone())
        );
        assert_eq!(
            fixture.heartbeat_with(&members[1].member_id, Some("b"), 1),
            ErrorCode::None
        );
        let group = fixture.shard.classic_group("group").unwrap();
        assert_eq!((group.len(), group.awaiting_join_count()), (2, 0));
    }

    #[test]
    fn member_that_is_silent_during_a_rebalance_stays_until_its_session_ends() {
        let mut fixture = Fixture::new();
        let mut long = static_join("b");
        long.session_timeout_ms = 60_000;
        let tokens = [fixture.join(join("group")), fixture.join(long)];
        fixture.sleep(9000);
        let joined: Vec<_> = tokens
            .iter()
            .map(|token| fixture.joined(*token).unwrap())
            .collect();
        fixture.sync_all(&joined);
        let token = fixture.join(rejoin(&joined[0]));
        fixture.sleep(30_000);
        // The rebalance is over, with the silent one still in it.
        let rejoined = fixture.joined(token).unwrap();
        assert_eq!((rejoined.generation_id, rejoined.members.len()), (2, 2));
    }

    #[test]
    fn rebalance_waits_on_while_only_silent_static_members_are_left() {
        let mut fixture = Fixture::new();
        let mut long = static_join("a");
        long.session_timeout_ms = 300_000;
        let token = fixture.join(long);
        fixture.sleep(3000);
        let joined = fixture.joined(token).unwrap();
        fixture.sync_all(std::slice::from_ref(&joined));
        let other = fixture.join(join("group"));
        fixture.leave(&[]).unwrap();
        let id = fixture
            .shard
            .classic_group("group")
            .unwrap()
            .member_ids()
            .into_iter()
            .find(|id| *id != joined.member_id)
            .unwrap();
        fixture.leave(&[leaving(&id)]).unwrap();
        assert_eq!(error(&fixture.joined(other).unwrap()), ErrorCode::UnknownMemberId);
        fixture.sleep(70_000);
        assert_eq!(fixture.state(), "PreparingRebalance");
        let back = fixture.join(rejoin(&joined).with_group_instance_id(Some(text("a"))));
        assert_eq!(fixture.joined(back).unwrap().generation_id, 2);
    }
}

mod coming_and_going {
    use super::*;
    use crate::coordinator::runtime::shard::{CoordinatorShard, Effect};

    #[test]
    fn group_that_is_loaded_is_stable_with_what_was_written() {
        let mut before = Fixture::new();
        let members = before.stable_group(2);
        let mut fixture = before.reloaded();
        assert_eq!(fixture.state(), "Stable");
        let group = fixture.shard.classic_group("group").unwrap();
        assert_eq!((group.generation_id(), group.len()), (1, 2));
        assert_eq!(group.leader_id(), Some(&members[0].member_id));
        let synced = fixture.sync_now(&members[1], &[]);
        assert_eq!(synced.assignment, Bytes::from(members[1].member_id.to_string()));
        assert_eq!(fixture.heartbeat(&members[0].member_id, 1), ErrorCode::None);
        // The other one does not show up.
        fixture.sleep(9999);
        assert_eq!(fixture.heartbeat(&members[0].member_id, 1), ErrorCode::None);
        fixture.sleep(1);
        assert_eq!(fixture.state(), "PreparingRebalance");
    }

    #[test]
    fn unloading_answers_all_who_wait() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(2);
        let joining = fixture.join(rejoin(&members[0]));
        let context = fixture.context();
        let effects = fixture.shard.on_unloaded(&context);
        let [Effect::Reply(token, GroupReply::Join(response))] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!((*token, error(response)), (joining, ErrorCode::NotCoordinator));
        assert_eq!(fixture.state(), "Dead");
        // Whoever still gets through is sent away.
        let refused = fixture.join_now(rejoin(&members[1]));
        assert_eq!(error(&refused), ErrorCode::CoordinatorNotAvailable);
        assert_eq!(
            fixture.heartbeat(&members[1].member_id, 1),
            ErrorCode::CoordinatorNotAvailable
        );
        let left = fixture.leave(&[leaving(&members[1].member_id)]).unwrap();
        assert_eq!(
            ErrorCode::from_code(left.error_code),
            ErrorCode::CoordinatorNotAvailable
        );
        let synced = fixture.sync_now(&members[1], &[]);
        assert_eq!(
            ErrorCode::from_code(synced.error_code),
            ErrorCode::CoordinatorNotAvailable
        );
    }

    /// Whatever happens, all who wait are answered in the end, and the log makes the same group.
    #[test]
    fn random_members_always_come_to_a_stable_group() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut fixture = Fixture::with(GroupConfig {
                group_max_size: 6,
                ..Default::default()
            });
            let mut members: Vec<StrBytes> = Vec::new();
            for _ in 0..60 {
                fixture.requires_known_member_id = random.bool();
                fixture.hold = random.u8(..4) == 0;
                let known = (!members.is_empty()).then(|| members[random.usize(..members.len())].clone());
                let generation = fixture
                    .shard
                    .classic_group("group")
                    .map_or(0, |group| group.generation_id());
                match (random.u8(..10), known) {
                    (0..=1, _) => {
                        fixture.join(join("group"));
                    }
                    (2, _) => {
                        let instance = format!("i{}", random.u8(..3));
                        fixture.join(static_join(&instance));
                    }
                    (3, Some(id)) => {
                        let _ = fixture.try_join(join("group").with_member_id(id));
                    }
                    (4, Some(id)) => {
                        let request = JoinGroupResponse::default()
                            .with_member_id(id)
                            .with_generation_id(generation);
                        fixture.sync(&request, &[]);
                    }
                    (5, Some(id)) => {
                        let _ = fixture.leave(&[leaving(&id)]);
                    }
                    (6, Some(id)) => {
                        fixture.heartbeat(&id, generation);
                    }
                    (7, _) => fixture.commit(),
                    (8, Some(id)) => {
                        let request = JoinGroupResponse::default()
                            .with_member_id(id)
                            .with_generation_id(generation);
                        let _ = fixture.commit_offsets(&commit_as(&request, "topic", 0, 1), true);
                    }
                    _ => fixture.sleep(random.i64(0..4000)),
                }
                if let Some(group) = fixture.shard.classic_group("group") {
                    members = group.member_ids();
                    let waiting = group.members().filter(|member| member.awaiting_join.is_some());
                    assert_eq!(waiting.count(), group.awaiting_join_count(), "seed {seed}");
                    assert!(group.leader_id().is_none_or(|leader| group.has_member(leader)));
                }
            }
            // Nobody speaks any more: all fail, and the group is empty.
            fixture.hold = false;
            fixture.commit();
            fixture.sleep(1_000_000);
            let Some(group) = fixture.shard.classic_group("group") else {
                continue;
            };
            assert_eq!((group.state().name(), group.len()), ("Empty", 0), "seed {seed}");
            let reloaded = fixture.reloaded();
            let loaded = reloaded.shard.classic_group("group").unwrap();
            assert_eq!((loaded.state().name(), loaded.len()), ("Empty", 0), "seed {seed}");
        }
    }
}
