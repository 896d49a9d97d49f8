//! The clients of `simulation_test`: what a consumer of each protocol does that follows its protocol's rules.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};

use super::assignor::TopicPartitions;
use super::classic_group::ClassicGroupState;
use super::consumer_fixture_test::*;
use super::embedded_protocol as embedded;
use super::fixture_test::*;
use super::simulation_test::{Mix, Simulation};
use crate::coordinator::runtime::shard::Token;
use crate::protocol::messages::join_group_request::JoinGroupRequestProtocol;
use crate::protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use crate::protocol::messages::{
    ConsumerGroupHeartbeatResponse, GroupId, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use crate::protocol::records::consumer_protocol::ConsumerProtocolSubscription;
use crate::protocol::records::consumer_protocol::consumer_protocol_subscription::TopicPartition;
use crate::protocol::{Encodable, ErrorCode, StrBytes};

/// Partitions by the number of their topic.
pub type Owned = BTreeMap<u128, BTreeSet<i32>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    #[default]
    Consumer,
    Classic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Out,
    Joining(Token),
    Syncing(Token),
    Stable,
}

/// What a member of the classic protocol knows.
#[derive(Debug, Clone, Default)]
struct ClassicSide {
    member_id: StrBytes,
    generation: i32,
    phase: Phase,
    /// What a leader has assigned: when it is no more what there is, it joins again.
    assigned_of: Option<BTreeMap<&'static str, (u128, i32)>>,
}

#[derive(Debug, Clone, Default)]
pub struct Client {
    pub name: String,
    pub instance: Option<String>,
    pub protocol: Protocol,
    pub topics: BTreeSet<&'static str>,
    /// Instead of `topics`.
    pub regex: Option<&'static str>,
    pub owned: Owned,
    pub is_up: bool,
    pub incarnation: u32,
    pub last_beat_ms: i64,
    /// Its subscription, and nobody has been told.
    pub has_changed: bool,
    /// Of the consumer protocol; 0: to join.
    epoch: i32,
    /// After an answer that it did not get it says everything again, and is told everything.
    says_all: bool,
    classic: ClassicSide,
}

impl Client {
    pub fn new(name: String, instance: Option<String>) -> Self {
        Self {
            name,
            instance,
            ..Default::default()
        }
    }

    pub fn member_id(&self) -> String {
        match self.protocol {
            Protocol::Consumer => format!("{}-{}", self.name, self.incarnation),
            Protocol::Classic => self.classic.member_id.to_string(),
        }
    }

    /// Epoch or generation.
    pub fn epoch(&self) -> i32 {
        match self.protocol {
            Protocol::Consumer => self.epoch,
            Protocol::Classic => self.classic.generation,
        }
    }

    pub fn forget(&mut self) {
        self.epoch = 0;
        self.owned.clear();
        self.classic = ClassicSide::default();
    }

    /// To join once more, as the member that it is.
    pub fn join_again(&mut self) {
        self.classic.phase = Phase::Out;
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.classic.phase, Phase::Joining(_) | Phase::Syncing(_))
    }

    pub fn is_stable(&self) -> bool {
        self.protocol == Protocol::Consumer || self.classic.phase == Phase::Stable
    }
}

/// Of the consumer protocol.
impl Simulation {
    /// One heartbeat, as a client does it.
    pub fn beat(&mut self, index: usize, is_lost: bool) {
        let client = self.clients[index].clone();
        let topics: Vec<&str> = client.topics.iter().copied().collect();
        let member_id = client.member_id();
        let mut beat = request(&member_id, client.epoch);
        beat.instance_id = client.instance.as_deref().map(text);
        let says_all = client.epoch == 0 || client.says_all;
        if says_all || client.has_changed {
            beat.subscribed_topic_names = Some(names(&topics));
            beat.subscribed_topic_regex = Some(text(client.regex.unwrap_or_default()));
        }
        if says_all {
            beat.rebalance_timeout_ms = 30_000;
        }
        let owned: Vec<(u128, Vec<i32>)> = client
            .owned
            .iter()
            .map(|(topic, partitions)| (*topic, partitions.iter().copied().collect()))
            .collect();
        let owned: Vec<(u128, &[i32])> = owned
            .iter()
            .map(|(topic, partitions)| (*topic, &partitions[..]))
            .collect();
        beat.topic_partitions = owning(&owned);
        let answer = self.fixture.try_beat(&beat);
        // An answer to records that could not be written is an error.
        let is_lost = is_lost || self.fixture.fail.is_some();
        self.clients[index].says_all = is_lost;
        if is_lost {
            return;
        }
        self.clients[index].last_beat_ms = self.fixture.now_ms;
        let code = match &answer {
            Ok(answer) => ErrorCode::from_code(answer.error_code),
            Err(error) => error.code,
        };
        match (code, answer) {
            (ErrorCode::None, Ok(answer)) => self.told(index, &answer),
            (
                ErrorCode::UnknownMemberId
                | ErrorCode::FencedMemberEpoch
                | ErrorCode::GroupIdNotFound
                | ErrorCode::FencedInstanceId,
                _,
            ) => self.clients[index].forget(),
            (ErrorCode::UnreleasedInstanceId, _) => {}
            // A classic group that is not far enough to be upgraded. A client ends there; somebody starts it again.
            (ErrorCode::UnknownServerError, _) if self.mix != Mix::Consumer && client.epoch == 0 => {
                self.crash(index);
            }
            (code, answer) => panic!(
                "seed {}: {member_id} is answered with {code}: {answer:?}",
                self.seed
            ),
        }
    }

    fn told(&mut self, index: usize, answer: &ConsumerGroupHeartbeatResponse) {
        let client = &mut self.clients[index];
        client.epoch = answer.member_epoch;
        client.has_changed = false;
        // It has given up what it is not told of by its next heartbeat, and takes what is new.
        if let Some(assignment) = &answer.assignment {
            let topics = assignment.topic_partitions.iter();
            client.owned = topics
                .map(|topic| {
                    (
                        number_of(topic.topic_id),
                        topic.partitions.iter().copied().collect(),
                    )
                })
                .collect();
        }
    }
}

fn number_of(topic_id: uuid::Uuid) -> u128 {
    topic_id.as_u128() - topic_id_base()
}

fn topic_id_base() -> u128 {
    topic_id(0).as_u128()
}

/// Of the classic protocol.
impl Simulation {
    /// The next step of a client that follows the classic protocol.
    pub fn go_on(&mut self, index: usize, is_lost: bool) {
        match self.clients[index].classic.phase {
            Phase::Out => self.join(index),
            Phase::Joining(token) => {
                if let Some(response) = self.fixture.joined(token) {
                    match is_lost {
                        true => self.clients[index].join_again(),
                        false => self.on_joined(index, &response),
                    }
                }
            }
            Phase::Syncing(token) => {
                if let Some(response) = self.fixture.synced(token) {
                    match is_lost {
                        true => self.clients[index].join_again(),
                        false => self.on_synced(index, &response),
                    }
                }
            }
            Phase::Stable => self.stay(index),
        }
    }

    fn stay(&mut self, index: usize) {
        let client = &self.clients[index];
        let topics_changed =
            (client.classic.assigned_of.as_ref()).is_some_and(|assigned| *assigned != self.topics);
        if client.has_changed || topics_changed {
            self.clients[index].join_again();
            return self.join(index);
        }
        let silent_ms = self.fixture.now_ms - client.last_beat_ms;
        if silent_ms <= 2500 && self.random.bool() {
            return;
        }
        let (member_id, instance) = (client.classic.member_id.clone(), client.instance.clone());
        let generation = client.classic.generation;
        let code = self
            .fixture
            .heartbeat_with(&member_id, instance.as_deref(), generation);
        self.clients[index].last_beat_ms = self.fixture.now_ms;
        if code != ErrorCode::None {
            self.on_error(index, code);
        }
    }

    /// What an error means to a classic consumer.
    fn on_error(&mut self, index: usize, code: ErrorCode) {
        let client = &mut self.clients[index];
        client.join_again();
        match code {
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => client.forget(),
            ErrorCode::IllegalGeneration => client.owned.clear(),
            ErrorCode::RebalanceInProgress | ErrorCode::CoordinatorNotAvailable => {}
            code => panic!("seed {}: {client:?} is answered with {code}", self.seed),
        }
    }

    fn join(&mut self, index: usize) {
        let (mix, topics) = (self.mix, self.topics.clone());
        let client = &mut self.clients[index];
        match mix {
            Mix::Cooperative => {
                let wants = |number: &u128| {
                    let mut wanted = client.topics.iter();
                    wanted.any(|topic| topics.get(topic).is_some_and(|(id, _)| id == number))
                };
                client.owned.retain(|number, _| wants(number));
            }
            Mix::Eager | Mix::Consumer => client.owned.clear(),
        }
        client.has_changed = false;
        client.classic.assigned_of = None;
        client.last_beat_ms = self.fixture.now_ms;
        let name = if mix == Mix::Cooperative {
            "cooperative-sticky"
        } else {
            "range"
        };
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text(name))
            .with_metadata(subscription(&client.topics, &client.owned, &topics));
        let request = join("group")
            .with_member_id(client.classic.member_id.clone())
            .with_group_instance_id(client.instance.as_deref().map(text))
            .with_protocols(vec![protocol]);
        let is_returning = request.group_instance_id.is_some() && request.member_id.is_empty();
        match self.fixture.try_join(request) {
            Ok(token) => {
                self.clients[index].classic.phase = Phase::Joining(token);
                self.was_replaced_quietly |= is_returning && self.is_stable_classic_group();
            }
            Err(error) => self.on_error(index, error.code),
        }
    }

    fn is_stable_classic_group(&self) -> bool {
        let group = self.fixture.shard.classic_group("group");
        group.is_some_and(|group| group.state() == ClassicGroupState::Stable)
    }

    fn on_joined(&mut self, index: usize, response: &JoinGroupResponse) {
        let client = &mut self.clients[index];
        client.last_beat_ms = self.fixture.now_ms;
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => {
                client.classic.member_id = response.member_id.clone();
                return client.join_again();
            }
            code => return self.on_error(index, code),
        }
        client.classic.member_id = response.member_id.clone();
        client.classic.generation = response.generation_id;
        let mut assignments = Vec::new();
        if response.leader == response.member_id {
            client.classic.assigned_of = Some(self.topics.clone());
            if !response.skip_assignment {
                assignments = self.assign(response);
            }
        }
        let request = SyncGroupRequest::default()
            .with_group_id(GroupId(text("group")))
            .with_member_id(response.member_id.clone())
            .with_group_instance_id(self.clients[index].instance.as_deref().map(text))
            .with_generation_id(response.generation_id)
            .with_protocol_type(response.protocol_type.clone())
            .with_protocol_name(response.protocol_name.clone())
            .with_assignments(assignments);
        match self.fixture.try_sync_with(request) {
            Ok(token) => self.clients[index].classic.phase = Phase::Syncing(token),
            Err(error) => self.on_error(index, error.code),
        }
    }

    /// What a leader makes of it: ranges; a partition that another one has it gets when that one has given it up.
    fn assign(&self, response: &JoinGroupResponse) -> Vec<SyncGroupRequestAssignment> {
        let image = &self.fixture.shard.image;
        let mut members = BTreeMap::new();
        let mut owners = BTreeMap::new();
        for member in &response.members {
            let subscription = embedded::subscription(&member.metadata).unwrap();
            for (topic_id, partitions) in embedded::owned_partitions(&subscription, image) {
                for partition in partitions {
                    owners.insert((topic_id, partition), member.member_id.clone());
                }
            }
            members.insert(member.member_id.clone(), embedded::topics(&subscription));
        }
        let mut assigned: BTreeMap<StrBytes, TopicPartitions> = members
            .keys()
            .map(|member_id| (member_id.clone(), TopicPartitions::new()))
            .collect();
        for (name, (number, count)) in &self.topics {
            let subscribers: Vec<&StrBytes> = members
                .iter()
                .filter(|(_, topics)| topics.contains(name.as_bytes()))
                .map(|(member_id, _)| member_id)
                .collect();
            for partition in (0..*count).filter(|_| !subscribers.is_empty()) {
                let place = partition as usize * subscribers.len() / *count as usize;
                let owner = owners.get(&(topic_id(*number), partition));
                if owner.is_none_or(|owner| owner == subscribers[place]) {
                    let partitions = assigned.get_mut(subscribers[place]).unwrap();
                    partitions.entry(topic_id(*number)).or_default().insert(partition);
                }
            }
        }
        let assignments = assigned.iter().map(|(member_id, partitions)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(member_id.clone())
                .with_assignment(embedded::serialize_assignment(partitions, 1, image).unwrap())
        });
        assignments.collect()
    }

    fn on_synced(&mut self, index: usize, response: &SyncGroupResponse) {
        let code = ErrorCode::from_code(response.error_code);
        if code != ErrorCode::None {
            return self.on_error(index, code);
        }
        let image = &self.fixture.shard.image;
        let assigned = match response.assignment.is_empty() {
            true => TopicPartitions::new(),
            false => {
                embedded::assigned_partitions(&embedded::assignment(&response.assignment).unwrap(), image)
            }
        };
        let assigned: Owned = assigned
            .into_iter()
            .map(|(topic, partitions)| (number_of(topic), partitions))
            .collect();
        let client = &mut self.clients[index];
        client.last_beat_ms = self.fixture.now_ms;
        let is_assigned = |topic: &u128, partition| {
            assigned
                .get(topic)
                .is_some_and(|has: &BTreeSet<i32>| has.contains(partition))
        };
        let has_revoked = client
            .owned
            .iter()
            .any(|(topic, partitions)| !partitions.iter().all(|partition| is_assigned(topic, partition)));
        client.owned = assigned;
        // What it has given up others are to get.
        client.classic.phase = if has_revoked { Phase::Out } else { Phase::Stable };
    }

    pub fn leave_classic(&mut self, index: usize) {
        let client = &self.clients[index];
        if client.instance.is_none() && !client.classic.member_id.is_empty() {
            let member_id = client.classic.member_id.clone();
            let _ = self.fixture.leave(&[leaving(&member_id)]);
        }
    }
}

/// What is owned of topics that are no more goes unmentioned.
fn subscription(
    wanted: &BTreeSet<&'static str>,
    owned: &Owned,
    topics: &BTreeMap<&'static str, (u128, i32)>,
) -> Bytes {
    let owned = topics.iter().filter_map(|(name, (number, _))| {
        Some(TopicPartition {
            topic: text(name),
            partitions: owned.get(number)?.iter().copied().collect(),
        })
    });
    let subscription = ConsumerProtocolSubscription {
        topics: wanted.iter().map(|topic| text(topic)).collect(),
        owned_partitions: owned.collect(),
        ..Default::default()
    };
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    subscription.encode(&mut bytes, 1).unwrap();
    bytes.freeze()
}
