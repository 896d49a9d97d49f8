//! Kill -9 in the middle of joins, syncs and commits: no acknowledged offset is lost, and the groups come back by themselves.
//!
//! Members of several groups join, sync, commit, leave and join again without a pause, each on a thread of its own, while the node is killed
//! and started again. `KAVKA_KILL_ROUNDS` kills (3; `scripts/test-long`: 20).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use kavka::protocol::messages::leave_group_request::MemberIdentity;
use kavka::protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kavka::protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kavka::protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kavka::protocol::messages::{
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

const GROUPS: usize = 4;
const MEMBERS: usize = 3;
const LEAVE_GROUP: i16 = 5;
/// Commits of one member between two joins.
const COMMITS: u64 = 20;

/// What a member and the test know of one another.
struct Shared {
    /// The last offset that was acknowledged, and the last that was sent. Each member commits its own partition.
    acknowledged: AtomicI64,
    sent: AtomicI64,
    joins: AtomicU64,
    /// Stay, do not leave or join without need.
    settle: AtomicBool,
    /// Generation of the last heartbeat that was answered without error; only while settling.
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
    partition: i32,
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
                match self.turn(&mut client) {
                    None | Some(Turn::Again) => {}
                    Some(Turn::Forgotten) => self.member_id = StrBytes::new(),
                    Some(Turn::Lost) => break,
                }
            }
        }
    }

    /// What an error of a request means to the member; `None`: no error.
    fn outcome(code: i16) -> Option<Turn> {
        match ErrorCode::from_code(code) {
            ErrorCode::None => None,
            ErrorCode::UnknownMemberId => Some(Turn::Forgotten),
            ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration => Some(Turn::Again),
            _ if is_coming(code) => Some(Turn::Lost),
            other => panic!("{other:?}"),
        }
    }

    fn turn(&mut self, client: &mut Client) -> Option<Turn> {
        let request = join_request(&self.id, self.member_id.clone())
            .with_session_timeout_ms(3_000)
            .with_rebalance_timeout_ms(3_000);
        let Some(joined) = client.try_call(JOIN_GROUP, &request) else {
            return Some(Turn::Lost);
        };
        if ErrorCode::from_code(joined.error_code) == ErrorCode::MemberIdRequired {
            self.member_id = joined.member_id;
            return Some(Turn::Again);
        }
        if let Some(turn) = Self::outcome(joined.error_code) {
            return Some(turn);
        }
        self.shared.joins.fetch_add(1, Ordering::SeqCst);
        let Some(synced) = client.try_call(SYNC_GROUP, &self.sync_request(&joined)) else {
            return Some(Turn::Lost);
        };
        if let Some(turn) = Self::outcome(synced.error_code) {
            return Some(turn);
        }
        assert_eq!(synced.assignment, assignment_of(&joined.member_id));
        self.work(client, &joined)
    }

    /// Commits and heartbeats for a while; then leaves, or joins again.
    fn work(&mut self, client: &mut Client, joined: &JoinGroupResponse) -> Option<Turn> {
        for step in 1.. {
            if let Some(turn) = self.commit(client, joined) {
                return Some(turn);
            }
            let request = HeartbeatRequest::default()
                .with_group_id(group(&self.id))
                .with_member_id(joined.member_id.clone())
                .with_generation_id(joined.generation_id);
            let Some(beat) = client.try_call(HEARTBEAT, &request) else {
                return Some(Turn::Lost);
            };
            if let Some(turn) = Self::outcome(beat.error_code) {
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

    fn commit(&mut self, client: &mut Client, joined: &JoinGroupResponse) -> Option<Turn> {
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
            .with_member_id(joined.member_id.clone())
            .with_generation_id_or_member_epoch(joined.generation_id)
            .with_topics(vec![topic]);
        let Some(response) = client.try_call(OFFSET_COMMIT, &request) else {
            return Some(Turn::Lost);
        };
        let turn = Self::outcome(response.topics[0].partitions[0].error_code);
        if turn.is_none() {
            self.shared.acknowledged.store(offset, Ordering::SeqCst);
        }
        turn
    }

    fn sync_request(&self, joined: &JoinGroupResponse) -> SyncGroupRequest {
        let assignments = joined.members.iter().map(|member| {
            SyncGroupRequestAssignment::default()
                .with_member_id(member.member_id.clone())
                .with_assignment(assignment_of(&member.member_id))
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
        let ids: Vec<String> = (0..GROUPS).map(|number| format!("g{number}")).collect();
        let mut groups = Groups {
            ids,
            shared: Vec::new(),
            threads: Vec::new(),
        };
        for id in &groups.ids {
            find_coordinator(client, id);
            let mut members = Vec::new();
            for partition in 0..MEMBERS as i32 {
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
                    partition,
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
                let request = DescribeGroupsRequest::default().with_groups(vec![group(id)]);
                let described = client.call(6, &request).groups.remove(0);
                let generations = self.shared[number]
                    .iter()
                    .map(|shared| shared.generation.load(Ordering::SeqCst));
                let generations: std::collections::BTreeSet<i64> = generations.collect();
                described.group_state.as_str() == "Stable"
                    && described.members.len() == MEMBERS
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

#[test]
fn groups_killed_in_joins_syncs_and_commits_lose_no_offset_and_recover() {
    let rounds = std::env::var("KAVKA_KILL_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let mut node = Node::start(&[
        ("group.min.session.timeout.ms", "100"),
        ("group.initial.rebalance.delay.ms", "0"),
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
