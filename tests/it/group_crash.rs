//! Kill -9 in the middle of joins, syncs and commits: no acknowledged offset is lost, and the groups come back by themselves.
//!
//! Members of several groups join, sync, commit, leave and join again without a pause, each on a thread of its own, while the node is killed
//! and started again: groups of the classic protocol, of the consumer protocol, and one of both, whose members upgrade and downgrade it.
//! `KAVKA_KILL_ROUNDS` kills (3; `scripts/test-long`: 20).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;

use bytes::{BufMut, Bytes, BytesMut};
use kavka::protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kavka::protocol::messages::leave_group_request::MemberIdentity;
use kavka::protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kavka::protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kavka::protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kavka::protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest, HeartbeatRequest, JoinGroupResponse, LeaveGroupRequest, OffsetCommitRequest,
    OffsetFetchRequest, SyncGroupRequest,
};
use kavka::protocol::{ErrorCode, StrBytes};

use crate::groups::{
    HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT, OFFSET_FETCH, SYNC_GROUP, find_coordinator, group, is_coming,
    join_request, text,
};
use crate::support::client::Client;
use crate::support::node::{Node, wait_until};
use crate::support::topic::{create, name};

const MEMBERS: usize = 3;
/// Who is in which group.
const GROUPS: [[Protocol; MEMBERS]; 5] = [
    [Protocol::Classic; MEMBERS],
    [Protocol::Classic; MEMBERS],
    [Protocol::Consumer; MEMBERS],
    [Protocol::Consumer; MEMBERS],
    [Protocol::Consumer, Protocol::Classic, Protocol::Consumer],
];
const LEAVE_GROUP: i16 = 5;
const CONSUMER_GROUP_HEARTBEAT: i16 = 1;
const CONSUMER_GROUP_DESCRIBE: i16 = 1;
/// Commits of one member between two joins.
const COMMITS: u64 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Classic,
    Consumer,
}

/// What a member and the test know of one another.
struct Shared {
    /// The last offset that was acknowledged, and the last that was sent. Each member commits its own partition.
    acknowledged: AtomicI64,
    sent: AtomicI64,
    joins: AtomicU64,
    /// Stay, do not leave or join without need.
    settle: AtomicBool,
    /// Generation, or epoch, of the last heartbeat that was answered without error; only while settling.
    generation: AtomicI64,
    end: AtomicBool,
}

/// Why a member's turn ended.
enum Turn {
    /// The connection is gone, or the coordinator not there.
    Lost,
    /// The coordinator does not know the member.
    Forgotten,
    /// Join again.
    Again,
}

struct Member {
    id: String,
    protocol: Protocol,
    partition: i32,
    /// Of the consumer protocol, which has the member make it.
    number: u32,
    member_id: StrBytes,
    shared: Arc<Shared>,
}

impl Member {
    fn run(mut self, address: SocketAddr) {
        while !self.shared.end.load(Ordering::SeqCst) {
            let Ok(mut client) = Client::try_connect(address) else {
                thread::yield_now();
                continue;
            };
            while !self.shared.end.load(Ordering::SeqCst) {
                let turn = match self.protocol {
                    Protocol::Classic => self.turn(&mut client),
                    Protocol::Consumer => self.consumer_turn(&mut client),
                };
                match turn {
                    None | Some(Turn::Again) => {}
                    Some(Turn::Forgotten) => self.member_id = StrBytes::new(),
                    Some(Turn::Lost) => break,
                }
            }
        }
    }

    /// What an error of a request means to the member; `None`: no error.
    fn outcome(&self, code: i16) -> Option<Turn> {
        let id = self.id.as_str();
        match ErrorCode::from_code(code) {
            ErrorCode::None => None,
            ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch | ErrorCode::GroupIdNotFound => {
                Some(Turn::Forgotten)
            }
            ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration => Some(Turn::Again),
            // A classic group in its first rebalance cannot be upgraded.
            ErrorCode::UnknownServerError if id == MIXED => Some(Turn::Again),
            _ if is_coming(code) => Some(Turn::Lost),
            other => panic!("{other:?}"),
        }
    }

    fn turn(&mut self, client: &mut Client) -> Option<Turn> {
        let mut request = join_request(&self.id, self.member_id.clone())
            .with_session_timeout_ms(3_000)
            .with_rebalance_timeout_ms(3_000);
        request.protocols[0].metadata = subscription();
        let Some(joined) = client.try_call(JOIN_GROUP, &request) else {
            return Some(Turn::Lost);
        };
        if ErrorCode::from_code(joined.error_code) == ErrorCode::MemberIdRequired {
            self.member_id = joined.member_id;
            return Some(Turn::Again);
        }
        if let Some(turn) = self.outcome(joined.error_code) {
            return Some(turn);
        }
        self.shared.joins.fetch_add(1, Ordering::SeqCst);
        let Some(synced) = client.try_call(SYNC_GROUP, &self.sync_request(&joined)) else {
            return Some(Turn::Lost);
        };
        if let Some(turn) = self.outcome(synced.error_code) {
            return Some(turn);
        }
        if self.id != MIXED {
            assert_eq!(synced.assignment, assignment_of(&joined.member_id));
        }
        self.work(client, &joined)
    }

    /// Commits and heartbeats for a while; then leaves, or joins again.
    fn work(&mut self, client: &mut Client, joined: &JoinGroupResponse) -> Option<Turn> {
        for step in 1.. {
            if let Some(turn) = self.commit(client, &joined.member_id, joined.generation_id) {
                return Some(turn);
            }
            let request = HeartbeatRequest::default()
                .with_group_id(group(&self.id))
                .with_member_id(joined.member_id.clone())
                .with_generation_id(joined.generation_id);
            let Some(beat) = client.try_call(HEARTBEAT, &request) else {
                return Some(Turn::Lost);
            };
            if let Some(turn) = self.outcome(beat.error_code) {
                return Some(turn);
            }
            if self.shared.end.load(Ordering::SeqCst) {
                return None;
            }
            if self.shared.settle.load(Ordering::SeqCst) {
                let generation = i64::from(joined.generation_id);
                self.shared.generation.store(generation, Ordering::SeqCst);
            } else if step > COMMITS {
                break;
            }
        }
        if joined.generation_id % 3 != 0 {
            return Some(Turn::Again);
        }
        let leaving = MemberIdentity::default()
            .with_member_id(joined.member_id.clone())
            .with_group_instance_id(None);
        let leave = LeaveGroupRequest::default()
            .with_group_id(group(&self.id))
            .with_members(vec![leaving]);
        match client.try_call(LEAVE_GROUP, &leave) {
            Some(_) => Some(Turn::Forgotten),
            None => Some(Turn::Lost),
        }
    }

    fn commit(&mut self, client: &mut Client, member_id: &StrBytes, generation_id: i32) -> Option<Turn> {
        let offset = self.shared.sent.fetch_add(1, Ordering::SeqCst) + 1;
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(self.partition)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("kept")));
        let topic = OffsetCommitRequestTopic::default()
            .with_name(name("topic"))
            .with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(group(&self.id))
            .with_member_id(member_id.clone())
            .with_generation_id_or_member_epoch(generation_id)
            .with_topics(vec![topic]);
        let Some(response) = client.try_call(OFFSET_COMMIT, &request) else {
            return Some(Turn::Lost);
        };
        let code = response.topics[0].partitions[0].error_code;
        if code == ErrorCode::StaleMemberEpoch.code() {
            // The next heartbeat tells the epoch.
            return None;
        }
        let turn = self.outcome(code);
        if turn.is_none() {
            self.shared.acknowledged.store(offset, Ordering::SeqCst);
        }
        turn
    }

    /// Joins as a member of the consumer protocol, commits and heartbeats for a while; then leaves, or joins again.
    fn consumer_turn(&mut self, client: &mut Client) -> Option<Turn> {
        if self.member_id.is_empty() {
            self.number += 1;
            self.member_id = text(&format!("{}-{}-{}", self.id, self.partition, self.number));
        }
        let mut owned = Vec::new();
        let mut epoch = 0;
        for step in 0.. {
            let mut request = self
                .heartbeat_request(epoch)
                .with_topic_partitions(Some(owned.clone()));
            if epoch == 0 {
                request.rebalance_timeout_ms = 3_000;
                request.subscribed_topic_names = Some(vec![name("topic")]);
            }
            let Some(beat) = client.try_call(CONSUMER_GROUP_HEARTBEAT, &request) else {
                return Some(Turn::Lost);
            };
            if let Some(turn) = self.outcome(beat.error_code) {
                return Some(turn);
            }
            if epoch == 0 {
                self.shared.joins.fetch_add(1, Ordering::SeqCst);
            }
            epoch = beat.member_epoch;
            owned = told(beat).unwrap_or(owned);
            let member_id = self.member_id.clone();
            if let Some(turn) = self.commit(client, &member_id, epoch) {
                return Some(turn);
            }
            if self.shared.end.load(Ordering::SeqCst) {
                return None;
            }
            if self.shared.settle.load(Ordering::SeqCst) {
                self.shared.generation.store(i64::from(epoch), Ordering::SeqCst);
            } else if step > COMMITS {
                break;
            }
        }
        if epoch % 3 != 0 {
            return Some(Turn::Again);
        }
        match client.try_call(CONSUMER_GROUP_HEARTBEAT, &self.heartbeat_request(-1)) {
            Some(_) => Some(Turn::Forgotten),
            None => Some(Turn::Lost),
        }
    }

    fn heartbeat_request(&self, epoch: i32) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group(&self.id))
            .with_member_id(self.member_id.clone())
            .with_member_epoch(epoch)
            .with_instance_id(None)
            .with_rack_id(None)
            .with_rebalance_timeout_ms(-1)
            .with_subscribed_topic_names(None)
            .with_subscribed_topic_regex(None)
            .with_server_assignor(None)
            .with_topic_partitions(None)
    }

    fn sync_request(&self, joined: &JoinGroupResponse) -> SyncGroupRequest {
        let assignments = joined.members.iter().map(|member| {
            SyncGroupRequestAssignment::default()
                .with_member_id(member.member_id.clone())
                .with_assignment(match self.id == MIXED {
                    true => whole_topic(),
                    false => assignment_of(&member.member_id),
                })
        });
        SyncGroupRequest::default()
            .with_group_id(group(&self.id))
            .with_member_id(joined.member_id.clone())
            .with_generation_id(joined.generation_id)
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text("range")))
            .with_assignments(assignments.collect())
    }
}

/// The group of both protocols; its one classic member may be alone in it.
const MIXED: &str = "g4";

/// What a heartbeat tells its member to have.
fn told(beat: ConsumerGroupHeartbeatResponse) -> Option<Vec<TopicPartitions>> {
    let topics = beat.assignment?.topic_partitions.into_iter();
    let owned = topics.map(|topic| {
        TopicPartitions::default()
            .with_topic_id(topic.topic_id)
            .with_partitions(topic.partitions)
    });
    Some(owned.collect())
}

/// What a consumer of the classic protocol subscribes to (`ConsumerProtocolSubscription`).
fn subscription() -> Bytes {
    let mut bytes = topic_of_protocol();
    // No user data, nothing owned.
    bytes.put_i32(-1);
    bytes.put_i32(0);
    bytes.freeze()
}

/// All that there is (`ConsumerProtocolAssignment`).
fn whole_topic() -> Bytes {
    let mut bytes = topic_of_protocol();
    bytes.put_i32(MEMBERS as i32);
    (0..MEMBERS as i32).for_each(|partition| bytes.put_i32(partition));
    bytes.put_i32(-1);
    bytes.freeze()
}

/// Version 1, and the one topic.
fn topic_of_protocol() -> BytesMut {
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    bytes.put_i32(1);
    bytes.put_i16(5);
    bytes.put_slice(b"topic");
    bytes
}

fn assignment_of(member_id: &StrBytes) -> Bytes {
    Bytes::from(format!("work of {member_id}"))
}

/// The committed offsets of a group, one a member.
fn committed(client: &mut Client, id: &str) -> Vec<i64> {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(name("topic"))
        .with_partition_indexes((0..MEMBERS as i32).collect());
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(group(id))
        .with_topics(Some(vec![topic]));
    let request = OffsetFetchRequest::default().with_groups(vec![asked]);
    let mut offsets = Vec::new();
    wait_until("the coordinator has loaded", || {
        let response = client.call(OFFSET_FETCH, &request);
        let group = &response.groups[0];
        if group.error_code == 0 {
            let partitions = &group.topics[0].partitions;
            offsets = partitions
                .iter()
                .map(|partition| partition.committed_offset)
                .collect();
            return true;
        }
        assert!(is_coming(group.error_code), "{group:?}");
        false
    });
    offsets
}

struct Groups {
    ids: Vec<String>,
    /// By group, then by member.
    shared: Vec<Vec<Arc<Shared>>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Groups {
    fn start(node: &Node, client: &mut Client) -> Groups {
        let ids: Vec<String> = (0..GROUPS.len()).map(|number| format!("g{number}")).collect();
        let mut groups = Groups {
            ids,
            shared: Vec::new(),
            threads: Vec::new(),
        };
        for (id, protocols) in groups.ids.iter().zip(GROUPS) {
            find_coordinator(client, id);
            let mut members = Vec::new();
            for (protocol, partition) in protocols.into_iter().zip(0..) {
                let shared = Arc::new(Shared {
                    acknowledged: AtomicI64::new(-1),
                    sent: AtomicI64::new(-1),
                    joins: AtomicU64::new(0),
                    settle: AtomicBool::new(false),
                    generation: AtomicI64::new(-1),
                    end: AtomicBool::new(false),
                });
                let member = Member {
                    id: id.clone(),
                    protocol,
                    partition,
                    number: 0,
                    member_id: StrBytes::new(),
                    shared: shared.clone(),
                };
                let address = node.address();
                groups.threads.push(thread::spawn(move || member.run(address)));
                members.push(shared);
            }
            groups.shared.push(members);
        }
        groups
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Shared>> {
        self.shared.iter().flatten()
    }

    fn acknowledged(&self) -> Vec<Vec<i64>> {
        let of_group = |members: &Vec<Arc<Shared>>| {
            let offsets = members
                .iter()
                .map(|member| member.acknowledged.load(Ordering::SeqCst));
            offsets.collect()
        };
        self.shared.iter().map(of_group).collect()
    }

    /// Nothing that was acknowledged before is lost, and nothing is there that nobody sent.
    fn check_offsets(&self, client: &mut Client, acknowledged: &[Vec<i64>]) {
        for (number, id) in self.ids.iter().enumerate() {
            for (member, offset) in committed(client, id).into_iter().enumerate() {
                let at_least = acknowledged[number][member];
                let at_most = self.shared[number][member].sent.load(Ordering::SeqCst);
                assert!(
                    (at_least..=at_most).contains(&offset),
                    "{id}, member {member}: {offset} is committed, {at_least} was acknowledged, {at_most} sent"
                );
            }
        }
    }

    /// Every group gets stable with all its members.
    fn settle(&self, client: &mut Client) {
        self.all()
            .for_each(|shared| shared.settle.store(true, Ordering::SeqCst));
        for (number, id) in self.ids.iter().enumerate() {
            wait_until("the group is stable with all members in one generation", || {
                let generations = self.shared[number]
                    .iter()
                    .map(|shared| shared.generation.load(Ordering::SeqCst));
                let generations: std::collections::BTreeSet<i64> = generations.collect();
                let (state, members) = match GROUPS[number].contains(&Protocol::Consumer) {
                    true => describe_consumer_group(client, id),
                    false => describe_classic_group(client, id),
                };
                state == "Stable"
                    && members == MEMBERS
                    && generations.len() == 1
                    && !generations.contains(&-1)
            });
        }
    }

    fn end(self) {
        self.all()
            .for_each(|shared| shared.end.store(true, Ordering::SeqCst));
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// State and number of members.
fn describe_classic_group(client: &mut Client, id: &str) -> (String, usize) {
    let request = DescribeGroupsRequest::default().with_groups(vec![group(id)]);
    let described = client.call(6, &request).groups.remove(0);
    (described.group_state.to_string(), described.members.len())
}

fn describe_consumer_group(client: &mut Client, id: &str) -> (String, usize) {
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group(id)]);
    let described = client.call(CONSUMER_GROUP_DESCRIBE, &request).groups.remove(0);
    (described.group_state.to_string(), described.members.len())
}

#[test]
fn groups_killed_in_joins_syncs_and_commits_lose_no_offset_and_recover() {
    let rounds = std::env::var("KAVKA_KILL_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let mut node = Node::start(&[
        ("group.min.session.timeout.ms", "100"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.consumer.session.timeout.ms", "3000"),
        ("group.consumer.min.session.timeout.ms", "3000"),
        ("group.consumer.heartbeat.interval.ms", "500"),
        ("group.consumer.min.heartbeat.interval.ms", "500"),
        ("group.consumer.assignment.interval.ms", "0"),
        ("offsets.topic.num.partitions", "3"),
    ]);
    let mut client = Client::connect(node.address());
    create(&mut client, "topic", MEMBERS as i32, &[]);
    let groups = Groups::start(&node, &mut client);
    for round in 0..rounds {
        let before: Vec<(u64, i64)> = groups
            .all()
            .map(|shared| {
                (
                    shared.joins.load(Ordering::SeqCst),
                    shared.acknowledged.load(Ordering::SeqCst),
                )
            })
            .collect();
        // Each member has joined and committed again; how often differs, so that the kill meets other states each time.
        wait_until("all members have joined and committed", || {
            groups.all().zip(&before).all(|(shared, (joins, offset))| {
                shared.joins.load(Ordering::SeqCst) > joins + round % 4
                    && shared.acknowledged.load(Ordering::SeqCst) > *offset
            })
        });
        node.kill();
        let acknowledged = groups.acknowledged();
        node.start_again();
        client = Client::connect(node.address());
        groups.check_offsets(&mut client, &acknowledged);
    }
    groups.settle(&mut client);
    let acknowledged = groups.acknowledged();
    groups.check_offsets(&mut client, &acknowledged);
    groups.end();
}
