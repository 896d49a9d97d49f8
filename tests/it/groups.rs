//! Groups over the wire: a rebalance of two members, and what is promised over a kill -9.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use bytes::Bytes;
use kavka::protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kavka::protocol::messages::leave_group_request::MemberIdentity;
use kavka::protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kavka::protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kavka::protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kavka::protocol::messages::{
    DescribeGroupsRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest,
};
use kavka::protocol::{ErrorCode, StrBytes};

use crate::support::client::Client;
use crate::support::node::{Node, wait_until};
use crate::support::topic::{create, name};

pub(crate) const JOIN_GROUP: i16 = 9;
pub(crate) const SYNC_GROUP: i16 = 5;
pub(crate) const HEARTBEAT: i16 = 4;
pub(crate) const OFFSET_COMMIT: i16 = 9;
pub(crate) const OFFSET_FETCH: i16 = 9;

pub(crate) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub(crate) fn group(id: &str) -> GroupId {
    GroupId(text(id))
}

/// Retriable: the group's topic is being created, or its partition loaded.
pub(crate) fn is_coming(code: i16) -> bool {
    matches!(
        ErrorCode::from_code(code),
        ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress
    )
}

/// Waits until the group has its coordinator.
pub(crate) fn find_coordinator(client: &mut Client, id: &str) {
    wait_until("the group has a coordinator", || {
        let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(id)]);
        let found = &client.call(4, &request).coordinators[0];
        assert!(found.error_code == 0 || is_coming(found.error_code), "{found:?}");
        found.error_code == 0
    });
}

pub(crate) fn join_request(id: &str, member_id: StrBytes) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(b"metadata"));
    JoinGroupRequest::default()
        .with_group_id(group(id))
        .with_member_id(member_id)
        .with_session_timeout_ms(30_000)
        .with_rebalance_timeout_ms(30_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

/// The id that the coordinator gives to a new member.
fn new_member_id(client: &mut Client, id: &str) -> StrBytes {
    loop {
        let given = client.call(JOIN_GROUP, &join_request(id, StrBytes::new()));
        if !is_coming(given.error_code) {
            assert_eq!(
                ErrorCode::from_code(given.error_code),
                ErrorCode::MemberIdRequired
            );
            return given.member_id;
        }
    }
}

fn sync_request(
    id: &str,
    joined: &JoinGroupResponse,
    assignments: &[(&StrBytes, &'static [u8])],
) -> SyncGroupRequest {
    let assignments = assignments.iter().map(|(member_id, assignment)| {
        SyncGroupRequestAssignment::default()
            .with_member_id((*member_id).clone())
            .with_assignment(Bytes::from_static(assignment))
    });
    SyncGroupRequest::default()
        .with_group_id(group(id))
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id)
        .with_protocol_type(Some(text("consumer")))
        .with_protocol_name(Some(text("range")))
        .with_assignments(assignments.collect())
}

/// One member in a group of its own.
fn join_alone(client: &mut Client, id: &str) -> JoinGroupResponse {
    let member_id = new_member_id(client, id);
    let joined = client.call(JOIN_GROUP, &join_request(id, member_id));
    assert_eq!((joined.error_code, joined.members.len()), (0, 1));
    let synced = client.call(
        SYNC_GROUP,
        &sync_request(id, &joined, &[(&joined.member_id, b"mine")]),
    );
    assert_eq!(
        (synced.error_code, synced.assignment),
        (0, Bytes::from_static(b"mine"))
    );
    joined
}

fn heartbeat(client: &mut Client, id: &str, joined: &JoinGroupResponse) -> ErrorCode {
    let request = HeartbeatRequest::default()
        .with_group_id(group(id))
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id);
    ErrorCode::from_code(client.call(HEARTBEAT, &request).error_code)
}

fn commit_request(id: &str, joined: &JoinGroupResponse, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("kept")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group(id))
        .with_member_id(joined.member_id.clone())
        .with_generation_id_or_member_epoch(joined.generation_id)
        .with_topics(vec![topic])
}

/// The committed offset and its metadata; waits while the coordinator loads.
fn committed(client: &mut Client, id: &str) -> (i64, String) {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(name("topic"))
        .with_partition_indexes(vec![0]);
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(group(id))
        .with_topics(Some(vec![topic]));
    let request = OffsetFetchRequest::default()
        .with_groups(vec![asked])
        .with_require_stable(true);
    loop {
        let response = client.call(OFFSET_FETCH, &request);
        let group = &response.groups[0];
        if group.error_code == 0 {
            let partition = &group.topics[0].partitions[0];
            return (
                partition.committed_offset,
                partition.metadata.as_deref().unwrap_or("").to_owned(),
            );
        }
        assert!(is_coming(group.error_code), "{group:?}");
    }
}

#[test]
fn two_members_share_a_group_and_one_goes_on_when_the_other_leaves() {
    let node = Node::start(&[]);
    let (mut first, mut second) = (Client::connect(node.address()), Client::connect(node.address()));
    find_coordinator(&mut first, "g");
    let one = join_alone(&mut first, "g");
    assert_eq!(heartbeat(&mut first, "g", &one), ErrorCode::None);
    // The second one's join waits for the first, who learns of it by its heartbeat.
    let member_id = new_member_id(&mut second, "g");
    second.send(JOIN_GROUP, &join_request("g", member_id));
    wait_until("the first member is told to rejoin", || {
        heartbeat(&mut first, "g", &one) == ErrorCode::RebalanceInProgress
    });
    let one = first.call(JOIN_GROUP, &join_request("g", one.member_id.clone()));
    let two = second.receive::<JoinGroupRequest>(JOIN_GROUP);
    assert_eq!((one.generation_id, two.generation_id), (2, 2));
    assert_eq!(
        (&one.leader, one.members.len(), two.members.len()),
        (&one.member_id, 2, 0)
    );
    second.send(SYNC_GROUP, &sync_request("g", &two, &[]));
    let assignments: [(&StrBytes, &'static [u8]); 2] = [(&one.member_id, b"a"), (&two.member_id, b"b")];
    let synced = first.call(SYNC_GROUP, &sync_request("g", &one, &assignments));
    assert_eq!(synced.assignment, Bytes::from_static(b"a"));
    assert_eq!(
        second.receive::<SyncGroupRequest>(SYNC_GROUP).assignment,
        Bytes::from_static(b"b")
    );

    let leaving = MemberIdentity::default()
        .with_member_id(one.member_id.clone())
        .with_group_instance_id(None);
    let leave = LeaveGroupRequest::default()
        .with_group_id(group("g"))
        .with_members(vec![leaving]);
    assert_eq!(first.call(5, &leave).members[0].error_code, 0);
    assert_eq!(heartbeat(&mut second, "g", &two), ErrorCode::RebalanceInProgress);
    let two = second.call(JOIN_GROUP, &join_request("g", two.member_id));
    assert_eq!(
        (two.generation_id, &two.leader, two.members.len()),
        (3, &two.member_id, 1)
    );
}

/// Commits one offset after the other until the node is gone; `acknowledged` is the last that was acknowledged.
fn commit_until_gone(address: SocketAddr, id: &str, joined: &JoinGroupResponse, acknowledged: &AtomicI64) {
    let mut client = Client::connect(address);
    for offset in 0.. {
        let Some(response) = client.try_call(OFFSET_COMMIT, &commit_request(id, joined, offset)) else {
            return;
        };
        assert_eq!(response.topics[0].partitions[0].error_code, 0);
        acknowledged.store(offset, Ordering::SeqCst);
    }
}

#[test]
fn members_and_acknowledged_offsets_are_there_after_kill_9() {
    let mut node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    create(&mut client, "topic", 1, &[]);
    for round in 0..3 {
        let id = format!("g{round}");
        find_coordinator(&mut client, &id);
        let joined = join_alone(&mut client, &id);
        let acknowledged = Arc::new(AtomicI64::new(-1));
        let committing = {
            let (address, id, joined) = (node.address(), id.clone(), joined.clone());
            let acknowledged = acknowledged.clone();
            thread::spawn(move || commit_until_gone(address, &id, &joined, &acknowledged))
        };
        wait_until("offsets are being committed", || {
            acknowledged.load(Ordering::SeqCst) > 100
        });
        node.kill();
        committing.join().unwrap();
        node.start_again();
        client = Client::connect(node.address());
        let (offset, metadata) = committed(&mut client, &id);
        let last = acknowledged.load(Ordering::SeqCst);
        assert!(
            offset == last || offset == last + 1,
            "{offset} after {last} was acknowledged"
        );
        assert_eq!(metadata, "kept");
        // The member goes on as if nothing had been.
        assert_eq!(heartbeat(&mut client, &id, &joined), ErrorCode::None);
        let synced = client.call(SYNC_GROUP, &sync_request(&id, &joined, &[]));
        assert_eq!(
            (synced.error_code, synced.assignment),
            (0, Bytes::from_static(b"mine"))
        );
    }
}

#[test]
fn member_that_is_silent_is_removed_and_its_group_described_as_empty() {
    let node = Node::start(&[("group.min.session.timeout.ms", "100")]);
    let mut client = Client::connect(node.address());
    find_coordinator(&mut client, "g");
    let member_id = new_member_id(&mut client, "g");
    let join = join_request("g", member_id).with_session_timeout_ms(200);
    let joined = client.call(JOIN_GROUP, &join);
    client.call(SYNC_GROUP, &sync_request("g", &joined, &[]));
    let mut state = || {
        let request = DescribeGroupsRequest::default().with_groups(vec![group("g")]);
        client.call(6, &request).groups[0].group_state.to_string()
    };
    assert_eq!(state(), "Stable");
    wait_until("the group is empty", || state() == "Empty");
}

#[test]
fn node_ends_at_once_although_members_wait_to_join() {
    let mut node = Node::start(&[("group.initial.rebalance.delay.ms", "60000")]);
    let mut client = Client::connect(node.address());
    find_coordinator(&mut client, "g");
    let member_id = new_member_id(&mut client, "g");
    client.send(JOIN_GROUP, &join_request("g", member_id));
    let mut other = Client::connect(node.address());
    wait_until("the member waits", || {
        let request = DescribeGroupsRequest::default().with_groups(vec![group("g")]);
        other.call(6, &request).groups[0].group_state.as_str() == "PreparingRebalance"
    });
    let took = node.terminate();
    assert!(took.as_millis() < 5000, "{took:?}");
}
