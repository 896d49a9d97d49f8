//! The group as data: transitions, counts, votes.

use super::ClassicGroupState::{CompletingRebalance, Dead, Empty, PreparingRebalance, Stable};
use super::*;

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_string())
}

fn member(id: &str, protocols: &[&str]) -> ClassicGroupMember {
    ClassicGroupMember {
        member_id: text(id),
        group_instance_id: None,
        client_id: text("client"),
        client_host: text("/127.0.0.1"),
        rebalance_timeout_ms: 100,
        session_timeout_ms: 50,
        protocols: protocols
            .iter()
            .map(|name| MemberProtocol {
                name: text(name),
                metadata: Bytes::from(name.to_string()),
            })
            .collect(),
        assignment: Bytes::new(),
        held: None,
        is_new: false,
        awaiting_join: None,
        awaiting_sync: None,
    }
}

fn group(members: &[ClassicGroupMember]) -> ClassicGroup {
    let mut group = ClassicGroup::new(text("group"), 7);
    for member in members {
        group.add(member.clone(), &text("consumer"));
    }
    group
}

#[test]
fn transitions_are_those_of_kafka() {
    let states = [Empty, PreparingRebalance, CompletingRebalance, Stable, Dead];
    let allowed = [
        (PreparingRebalance, Empty),
        (Stable, PreparingRebalance),
        (CompletingRebalance, PreparingRebalance),
        (Empty, PreparingRebalance),
        (PreparingRebalance, CompletingRebalance),
        (CompletingRebalance, Stable),
    ];
    for from in states {
        for to in states {
            let expected = to == Dead || allowed.contains(&(from, to));
            assert_eq!(from.may_become(to), expected, "{from:?} to {to:?}");
        }
    }
}

#[test]
#[should_panic(expected = "cannot go from Empty to Stable")]
fn transition_that_is_not_allowed_panics() {
    ClassicGroup::new(text("group"), 0).transition_to(Stable, 1);
}

#[test]
fn transition_notes_the_time_and_where_it_came_from() {
    let mut group = group(&[]);
    assert_eq!(
        (group.previous_state(), group.current_state_timestamp_ms()),
        (Dead, Some(7))
    );
    group.transition_to(PreparingRebalance, 9);
    assert_eq!(
        (group.previous_state(), group.current_state_timestamp_ms()),
        (Empty, Some(9))
    );
}

#[test]
fn protocol_with_most_votes_among_those_of_all_is_selected() {
    let group = group(&[
        member("a", &["mine", "range", "sticky"]),
        member("b", &["sticky", "range"]),
        member("c", &["sticky", "range"]),
    ]);
    assert_eq!(group.select_protocol(), Some(text("sticky")));
}

#[test]
fn tie_of_votes_is_broken_as_a_java_hash_map_orders_its_keys() {
    // What Java's HashMap and Stream.max say when each has one vote.
    for (first, second, winner) in [
        ("range", "roundrobin", "range"),
        ("range", "sticky", "sticky"),
        ("range", "cooperative-sticky", "range"),
        ("sticky", "roundrobin", "sticky"),
    ] {
        for (one, other) in [(first, second), (second, first)] {
            let group = group(&[member("a", &[one, other]), member("b", &[other, one])]);
            assert_eq!(group.select_protocol(), Some(text(winner)), "{one} and {other}");
        }
    }
}

#[test]
fn protocols_are_supported_if_one_is_that_of_all_and_the_type_is_the_groups() {
    let protocols = |names: &[&str]| member("x", names).protocols;
    let mut group = group(&[]);
    assert!(group.supports_protocols(&text("any"), &protocols(&["p"])));
    assert!(!group.supports_protocols(&text(""), &protocols(&["p"])));
    assert!(!group.supports_protocols(&text("any"), &[]));
    group.add(member("a", &["range", "sticky"]), &text("consumer"));
    group.add(member("b", &["sticky"]), &text("consumer"));
    group.transition_to(PreparingRebalance, 1);
    assert!(group.supports_protocols(&text("consumer"), &protocols(&["other", "sticky"])));
    assert!(!group.supports_protocols(&text("consumer"), &protocols(&["range"])));
    assert!(!group.supports_protocols(&text("connect"), &protocols(&["sticky"])));
    group.remove(&text("b"));
    assert!(group.supports_protocols(&text("consumer"), &protocols(&["range"])));
}

#[test]
fn leader_is_the_first_member_and_moves_when_it_goes() {
    let mut group = group(&[member("a", &["p"]), member("b", &["p"])]);
    assert!(group.is_leader(&text("a")));
    group.remove(&text("a"));
    assert!(group.is_leader(&text("b")));
    group.remove(&text("b"));
    assert_eq!(group.leader_id(), None);
}

#[test]
fn leader_that_did_not_join_is_replaced_by_one_who_did() {
    let mut group = group(&[member("a", &["p"]), member("b", &["p"])]);
    assert!(!group.maybe_elect_new_joined_leader());
    group.update_member(&text("b"), member("b", &["p"]).protocols, 1, 1, Some(5));
    assert!(group.maybe_elect_new_joined_leader());
    assert!(group.is_leader(&text("b")));
    assert!(group.maybe_elect_new_joined_leader());
}

#[test]
fn awaiting_members_are_counted_through_every_change() {
    let mut group = group(&[member("a", &["p"]), member("b", &["p"])]);
    let protocols = member("a", &["p"]).protocols;
    group.update_member(&text("a"), protocols.clone(), 1, 1, Some(1));
    group.update_member(&text("a"), protocols.clone(), 1, 1, Some(2));
    assert_eq!(group.awaiting_join_count(), 1);
    group.update_member(&text("b"), protocols.clone(), 1, 1, Some(3));
    assert!(group.has_all_members_joined());
    group.add_pending_member(text("c"));
    assert!(!group.has_all_members_joined());
    group.remove(&text("c"));
    assert_eq!(group.take_awaiting_join(&text("a")), Some(2));
    assert_eq!(group.take_awaiting_join(&text("a")), None);
    assert_eq!(group.awaiting_join_count(), 1);
    group.remove(&text("b"));
    assert_eq!(group.awaiting_join_count(), 0);
}

#[test]
fn static_member_is_replaced_in_place() {
    let mut first = member("old", &["p"]);
    first.group_instance_id = Some(text("i"));
    first.awaiting_join = Some(4);
    let mut group = group(&[first, member("b", &["p"])]);
    let removed = group
        .replace_static_member(&text("i"), &text("old"), &text("new"))
        .unwrap();
    assert_eq!(removed.awaiting_join, Some(4));
    assert_eq!(group.awaiting_join_count(), 0);
    assert!(group.is_leader(&text("new")));
    assert_eq!(group.static_member_id(&text("i")), Some(&text("new")));
    assert_eq!(group.member_ids(), [text("new"), text("b")]);
    assert_eq!(
        group.validate_member(&text("old"), Some(&text("i"))),
        Err(ErrorCode::FencedInstanceId)
    );
    assert_eq!(group.validate_member(&text("new"), Some(&text("i"))), Ok(()));
    assert_eq!(
        group.validate_member(&text("new"), Some(&text("j"))),
        Err(ErrorCode::UnknownMemberId)
    );
    assert_eq!(
        group.validate_member(&text("old"), None),
        Err(ErrorCode::UnknownMemberId)
    );
    assert_eq!(
        group.replace_static_member(&text("i"), &text("gone"), &text("x")),
        None
    );
}

/// Version 1 of the consumer protocol: topics, user data, owned partitions.
const SUBSCRIPTION: &[u8] = b"\0\x01\0\0\0\x02\0\x03foo\0\x03bar\xff\xff\xff\xff\0\0\0\0";

#[test]
fn subscribed_topics_are_those_of_all_members_or_unknown() {
    let subscribe = |id: &str, metadata: &'static [u8]| {
        let mut member = member(id, &["range"]);
        member.protocols[0].metadata = Bytes::from_static(metadata);
        member
    };
    let mut known = group(&[subscribe("a", SUBSCRIPTION)]);
    known.transition_to(PreparingRebalance, 1);
    known.init_next_generation(2);
    assert!(known.is_subscribed_to(&text("foo")) && known.is_subscribed_to(&text("bar")));
    assert!(!known.is_subscribed_to(&text("baz")));

    let mut unknown = group(&[subscribe("a", SUBSCRIPTION), subscribe("b", b"junk")]);
    unknown.transition_to(PreparingRebalance, 1);
    unknown.init_next_generation(2);
    assert!(!unknown.knows_subscribed_topics() && unknown.is_subscribed_to(&text("any")));

    let mut connect = ClassicGroup::new(text("group"), 0);
    connect.add(subscribe("a", SUBSCRIPTION), &text("connect"));
    connect.transition_to(PreparingRebalance, 1);
    connect.init_next_generation(2);
    assert!(!connect.is_subscribed_to(&text("foo")));
}

#[test]
fn next_generation_completes_with_members_and_is_empty_without() {
    let mut group = group(&[member("a", &["p"])]);
    group.transition_to(PreparingRebalance, 1);
    group.init_next_generation(2);
    assert_eq!((group.state(), group.generation_id()), (CompletingRebalance, 1));
    assert_eq!(group.protocol_name(), Some(&text("p")));
    group.transition_to(PreparingRebalance, 3);
    group.remove(&text("a"));
    group.init_next_generation(4);
    assert_eq!((group.state(), group.generation_id()), (Empty, 2));
    assert_eq!(group.protocol_name(), None);
    assert_eq!(group.protocol_type(), Some(&text("consumer")));
    assert!(!group.is_simple() && ClassicGroup::new(text("g"), 0).is_simple());
}
