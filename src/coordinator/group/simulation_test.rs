//! A coordinator and its clients under everything that goes wrong: lost answers, crashes, failed appends, fail-overs by
//! replay, members of both protocols, changing subscriptions and topics. One seed, one run.
//!
//! Invariants, after every step: no partition is with two members; no two clients that do as they are told have one;
//! a committed offset is the last one that was acknowledged. In the end, once nothing goes wrong any more: every client
//! is a member, every partition of a topic that somebody wants is with one who wants it, and the log says the same as memory.
//!
//! `KAVKA_GROUP_SIMULATION_SEEDS` is the number of seeds; a failing run names its own.

use std::collections::{BTreeMap, BTreeSet};

use super::consumer_fixture_test::*;
use super::fixture_test::*;
use super::shard::Group;
use crate::protocol::ErrorCode;
use crate::protocol::messages::ConsumerGroupHeartbeatResponse;

const TOPICS: [(&str, u128); 3] = [("one", 1), ("two", 2), ("three", 3)];

#[derive(Debug, Clone, Default)]
struct Client {
    name: String,
    instance: Option<String>,
    /// 0: to join.
    epoch: i32,
    topics: BTreeSet<&'static str>,
    /// By topic number.
    owned: BTreeMap<u128, BTreeSet<i32>>,
    /// What it has been told last.
    told: BTreeMap<u128, BTreeSet<i32>>,
    is_up: bool,
    incarnation: u32,
    last_beat_ms: i64,
    has_changed: bool,
    /// After an answer that it did not get it says everything again, and is told everything.
    says_all: bool,
}

impl Client {
    fn member_id(&self) -> String {
        format!("{}-{}", self.name, self.incarnation)
    }

    fn forget(&mut self) {
        self.epoch = 0;
        self.owned.clear();
        self.told.clear();
    }
}

struct Simulation {
    seed: u64,
    random: fastrand::Rng,
    fixture: Fixture,
    clients: Vec<Client>,
    partitions: BTreeMap<&'static str, i32>,
    /// Acknowledged commits.
    committed: BTreeMap<(u128, i32), i64>,
    next_offset: i64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut fixture = Fixture::new();
        let mut partitions = BTreeMap::new();
        for (name, number) in TOPICS {
            fixture.topic(name, number, 4);
            partitions.insert(name, 4);
        }
        let clients = (0..5).map(|number| Client {
            name: format!("client{number}"),
            instance: (number < 2).then(|| format!("instance{number}")),
            ..Default::default()
        });
        Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            fixture,
            clients: clients.collect(),
            partitions,
            committed: BTreeMap::new(),
            next_offset: 1,
        }
    }

    fn any_topics(&mut self) -> BTreeSet<&'static str> {
        let mut topics: BTreeSet<&'static str> = TOPICS
            .iter()
            .map(|(name, _)| *name)
            .filter(|_| self.random.bool())
            .collect();
        if topics.is_empty() {
            topics.insert("one");
        }
        topics
    }

    /// One heartbeat, as a client does it. `None`: the answer is lost.
    fn beat(&mut self, index: usize, is_lost: bool) {
        let client = self.clients[index].clone();
        let topics: Vec<&str> = client.topics.iter().copied().collect();
        let member_id = client.member_id();
        let mut beat = match client.epoch {
            0 => joining(&member_id, &topics),
            epoch => request(&member_id, epoch),
        };
        beat.instance_id = client.instance.as_deref().map(text);
        if client.epoch != 0 {
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
            if client.has_changed || client.says_all {
                beat.subscribed_topic_names = Some(names(&topics));
            }
            if client.says_all {
                beat.rebalance_timeout_ms = 30_000;
            }
        }
        let answer = self.fixture.try_beat(&beat);
        // An answer to records that could not be written is an error.
        let is_lost = is_lost || self.fixture.fail.is_some();
        self.clients[index].says_all = is_lost;
        if is_lost {
            return;
        }
        self.clients[index].last_beat_ms = self.fixture.now_ms;
        match answer {
            Ok(answer) => self.told(index, &answer),
            Err(error) => match error.code {
                ErrorCode::UnknownMemberId
                | ErrorCode::FencedMemberEpoch
                | ErrorCode::GroupIdNotFound
                | ErrorCode::FencedInstanceId => self.clients[index].forget(),
                ErrorCode::UnreleasedInstanceId => {}
                code => panic!("seed {}: {member_id} is answered with {code}: {error}", self.seed),
            },
        }
    }

    fn told(&mut self, index: usize, answer: &ConsumerGroupHeartbeatResponse) {
        let client = &mut self.clients[index];
        client.epoch = answer.member_epoch;
        client.has_changed = false;
        if let Some(assignment) = &answer.assignment {
            client.told = assignment
                .topic_partitions
                .iter()
                .map(|topic| {
                    let partitions = topic.partitions.iter().copied().collect();
                    (topic.topic_id.as_u128() - 0x1000, partitions)
                })
                .collect();
        }
        // It has given up what it is not told of by its next heartbeat, and takes what is new.
        client.owned = client.told.clone();
    }

    fn commit(&mut self, index: usize) {
        let client = self.clients[index].clone();
        let Some((topic, partition)) = client
            .owned
            .iter()
            .flat_map(|(topic, partitions)| partitions.iter().map(|partition| (*topic, *partition)))
            .next()
        else {
            return;
        };
        let Some((name, _)) = TOPICS.iter().find(|(_, number)| *number == topic) else {
            return;
        };
        let offset = self.next_offset;
        self.next_offset += 1;
        let mut request = commit("group", name, partition, offset);
        request.member_id = text(&client.member_id());
        request.generation_id_or_member_epoch = client.epoch;
        request.topics[0].topic_id = topic_id(topic);
        let answer = self.fixture.commit_offsets(&request, true);
        if answer.is_ok() && self.fixture.fail.is_none() {
            self.committed.insert((topic, partition), offset);
        }
    }

    fn leave(&mut self, index: usize) {
        let client = self.clients[index].clone();
        if client.epoch == 0 {
            return;
        }
        let epoch = if client.instance.is_some() && self.random.bool() {
            -2
        } else {
            -1
        };
        let mut leaving = request(&client.member_id(), epoch);
        leaving.instance_id = client.instance.as_deref().map(text);
        let _ = self.fixture.try_beat(&leaving);
        self.clients[index].forget();
        self.clients[index].is_up = false;
    }

    fn start(&mut self, index: usize) {
        let topics = self.any_topics();
        let client = &mut self.clients[index];
        client.forget();
        client.is_up = true;
        client.incarnation += 1;
        client.topics = topics;
        client.last_beat_ms = self.fixture.now_ms;
    }

    fn step(&mut self) {
        self.fixture.fail = (self.random.u8(..20) == 0).then_some(ErrorCode::NotEnoughReplicas);
        let index = self.random.usize(..self.clients.len());
        let is_up = self.clients[index].is_up;
        match self.random.u8(..100) {
            0..5 if is_up => self.leave(index),
            5..8 if is_up => {
                // A crash: it has nothing any more, and its coordinator does not know.
                self.clients[index].forget();
                self.clients[index].is_up = false;
            }
            0..30 if !is_up => self.start(index),
            8..13 if is_up => {
                let topics = self.any_topics();
                self.clients[index].topics = topics;
                self.clients[index].has_changed = true;
            }
            13..16 => {
                let (name, number) = TOPICS[self.random.usize(..TOPICS.len())];
                let count = self.partitions[name] + 1;
                if count <= 8 {
                    self.partitions.insert(name, count);
                    self.fixture.topic(name, number, count);
                }
            }
            16..18 => self.fixture = self.fixture.reloaded(),
            18..28 if is_up => self.beat(index, true),
            28..40 if is_up => self.commit(index),
            _ => {}
        }
        self.everybody_beats();
        self.fixture.sleep(1 + self.random.i64(0..800));
        self.check();
    }

    /// Nobody who is up is silent for longer than its session; most are for less than five seconds.
    fn everybody_beats(&mut self) {
        for index in 0..self.clients.len() {
            let silent_ms = self.fixture.now_ms - self.clients[index].last_beat_ms;
            if self.clients[index].is_up && (silent_ms > 5000 || self.random.u8(..4) == 0) {
                self.beat(index, false);
            }
        }
    }

    fn check(&self) {
        let mut holders: BTreeMap<(u128, i32), &str> = BTreeMap::new();
        if let Some(Group::Consumer(group)) = self.fixture.shard.groups.get("group".as_bytes()) {
            for member in group.members().values() {
                let held = member.assigned.iter().chain(&*member.pending_revocation);
                for (topic, partitions) in held {
                    for partition in partitions.keys() {
                        let key = (topic.as_u128(), *partition);
                        let before = holders.insert(key, &member.member_id);
                        assert_eq!(before, None, "seed {}: {key:?} is held twice", self.seed);
                        assert!(group.is_held(*topic, *partition), "seed {}", self.seed);
                    }
                }
            }
            assert_eq!(
                group.held_partitions().count(),
                holders.len(),
                "seed {}",
                self.seed
            );
        }
        let mut owners: BTreeMap<(u128, i32), &str> = BTreeMap::new();
        for client in self.clients.iter().filter(|client| client.is_up) {
            for (topic, partitions) in &client.owned {
                for partition in partitions {
                    let before = owners.insert((*topic, *partition), &client.name);
                    assert_eq!(
                        before, None,
                        "seed {}: {topic}-{partition} is also with {}",
                        self.seed, client.name
                    );
                }
            }
        }
        for ((topic, partition), offset) in &self.committed {
            let (name, _) = TOPICS[*topic as usize - 1];
            let fetched = self.fixture.fetch("group", name, *partition);
            assert_eq!(fetched, *offset, "seed {}: {name}-{partition}", self.seed);
        }
    }

    /// Nothing goes wrong any more.
    fn heal(&mut self) {
        self.fixture.fail = None;
        for index in 0..self.clients.len() {
            if !self.clients[index].is_up {
                self.start(index);
            }
        }
        // Sessions of those who crashed end.
        for _ in 0..80 {
            for index in 0..self.clients.len() {
                self.beat(index, false);
            }
            self.fixture.sleep(1000);
            self.check();
        }
        let group = self.fixture.group();
        assert_eq!(group.state(), "Stable", "seed {}: {group:?}", self.seed);
        assert_eq!(group.len(), self.clients.len(), "seed {}", self.seed);
        let wanted: BTreeSet<&str> = self
            .clients
            .iter()
            .flat_map(|client| client.topics.clone())
            .collect();
        for (name, number) in TOPICS.iter().filter(|(name, _)| wanted.contains(name)) {
            let owners = |partition: i32| {
                let owns = |client: &&Client| {
                    client
                        .owned
                        .get(number)
                        .is_some_and(|partitions| partitions.contains(&partition))
                };
                self.clients.iter().filter(owns).collect::<Vec<_>>()
            };
            for partition in 0..self.partitions[name] {
                let owners = owners(partition);
                assert_eq!(owners.len(), 1, "seed {}: {name}-{partition}", self.seed);
                assert!(owners[0].topics.contains(name), "seed {}", self.seed);
            }
        }
        self.fixture.assert_replays();
    }
}

pub fn seeds() -> u64 {
    let seeds = std::env::var("KAVKA_GROUP_SIMULATION_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(40)
}

#[test]
fn consumer_group_survives_what_goes_wrong() {
    for seed in 0..seeds() {
        let mut simulation = Simulation::new(seed);
        for step in 0..250 {
            simulation.step();
            if step % 50 == 49 {
                simulation.fixture.assert_replays();
            }
        }
        simulation.heal();
    }
}
