//! A coordinator and its clients under everything that goes wrong: lost answers, crashes, failed appends, fail-overs by
//! replay, changing subscriptions (by name and by pattern), topics that come, grow and go; members of the consumer protocol,
//! and members of both, which change their protocol one by one: the group is upgraded and downgraded under them. One seed, one run.
//!
//! Invariants, after every step: no partition is with two members; no two clients that do as they are told have one;
//! a committed offset is the last one that was acknowledged. In the end, once nothing goes wrong any more: every client
//! is a member, every partition of a topic that somebody wants is with one who wants it, the group is of the kind that its
//! members ask for, and the log says the same as memory.
//!
//! `KAVKA_GROUP_SIMULATION_SEEDS` is the number of seeds; a failing run names its own.

use std::collections::{BTreeMap, BTreeSet};

use super::consumer_fixture_test::*;
use super::fixture_test::*;
use super::offsets::DeletedTopic;
use super::shard::Group;
use super::simulation_client_test::{Client, Protocol};
use crate::protocol::ErrorCode;

const TOPICS: [&str; 3] = ["one", "two", "three"];
/// With the topics that they match.
const REGEXES: [(&str, &[&str]); 2] = [("t.*", &["two", "three"]), ("(one|three)", &["one", "three"])];

/// Who the clients are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// All of the consumer protocol.
    Consumer,
    /// Of both; those of the classic protocol give up all that they have when they join.
    Eager,
    /// Of both; those of the classic protocol keep what they have while they join.
    Cooperative,
}

pub struct Simulation {
    pub seed: u64,
    pub mix: Mix,
    pub random: fastrand::Rng,
    pub fixture: Fixture,
    pub clients: Vec<Client>,
    /// Those that there are, with their numbers and how many partitions they have.
    pub topics: BTreeMap<&'static str, (u128, i32)>,
    next_topic: u128,
    /// Acknowledged commits.
    committed: BTreeMap<(u128, i32), i64>,
    next_offset: i64,
    /// A static member took its instance's place in a stable classic group, which does not rebalance for it.
    pub was_replaced_quietly: bool,
}

impl Simulation {
    fn new(seed: u64, mix: Mix) -> Self {
        let mut fixture = Fixture::new();
        fixture.requires_known_member_id = seed.is_multiple_of(2);
        fixture.supports_skipping_assignment = true;
        let clients = (0..5).map(|number| {
            let instance = (number < 2).then(|| format!("instance{number}"));
            Client::new(format!("client{number}"), instance)
        });
        let mut simulation = Self {
            seed,
            mix,
            random: fastrand::Rng::with_seed(seed),
            fixture,
            clients: clients.collect(),
            topics: BTreeMap::new(),
            next_topic: 1,
            committed: BTreeMap::new(),
            next_offset: 1,
            was_replaced_quietly: false,
        };
        TOPICS.iter().for_each(|name| simulation.create_topic(name));
        simulation
    }

    fn create_topic(&mut self, name: &'static str) {
        self.fixture.topic(name, self.next_topic, 4);
        self.topics.insert(name, (self.next_topic, 4));
        self.next_topic += 1;
    }

    fn delete_topic(&mut self, name: &str) {
        let Some((number, _)) = self.topics.remove(name) else {
            return;
        };
        self.fixture.delete_topic(number);
        let gone = DeletedTopic {
            id: topic_id(number),
            name: text(name),
        };
        let outcome = self.fixture.shard.on_topics_deleted(&[gone]);
        self.fixture.apply(outcome);
        self.committed.retain(|(topic, _), _| *topic != number);
    }

    fn grow_topic(&mut self, name: &'static str) {
        if let Some((number, count)) = self.topics.get_mut(name)
            && *count < 8
        {
            *count += 1;
            self.fixture.topic(name, *number, *count);
        }
    }

    fn name_of(&self, number: u128) -> Option<&'static str> {
        let mut topics = self.topics.iter();
        topics
            .find(|(_, (known, _))| *known == number)
            .map(|(name, _)| *name)
    }

    /// What a client is to subscribe to.
    fn subscribe(&mut self, index: usize) {
        let mut topics: BTreeSet<&'static str> = TOPICS.into_iter().filter(|_| self.random.bool()).collect();
        if topics.is_empty() {
            topics.insert("one");
        }
        let client = &mut self.clients[index];
        client.regex = None;
        client.has_changed = true;
        // Who speaks the classic protocol matches patterns itself.
        if client.protocol == Protocol::Consumer && self.random.u8(..5) == 0 {
            let (regex, _) = REGEXES[self.random.usize(..REGEXES.len())];
            client.regex = Some(regex);
            topics.clear();
        }
        client.topics = topics;
    }

    fn commit(&mut self, index: usize) {
        let client = self.clients[index].clone();
        let owned = client.owned.iter();
        let mut owned =
            owned.flat_map(|(topic, partitions)| partitions.iter().map(|partition| (*topic, *partition)));
        let Some((topic, partition)) = owned.next() else {
            return;
        };
        let Some(name) = self.name_of(topic) else {
            return;
        };
        let offset = self.next_offset;
        self.next_offset += 1;
        let mut request = commit("group", name, partition, offset);
        request.member_id = text(&client.member_id());
        request.generation_id_or_member_epoch = client.epoch();
        request.group_instance_id = match client.protocol {
            Protocol::Classic => client.instance.as_deref().map(text),
            Protocol::Consumer => None,
        };
        request.topics[0].topic_id = topic_id(topic);
        let answer = self.fixture.commit_offsets(&request, true);
        if answer.is_ok() && self.fixture.fail.is_none() {
            self.committed.insert((topic, partition), offset);
        }
    }

    /// As a program that ends in order.
    fn stop(&mut self, index: usize) {
        let client = self.clients[index].clone();
        match client.protocol {
            Protocol::Classic => self.leave_classic(index),
            Protocol::Consumer if client.epoch() != 0 => {
                let is_to_return = client.instance.is_some() && self.random.bool();
                let mut leaving = request(&client.member_id(), if is_to_return { -2 } else { -1 });
                leaving.instance_id = client.instance.as_deref().map(text);
                let _ = self.fixture.try_beat(&leaving);
            }
            Protocol::Consumer => {}
        }
        self.crash(index);
    }

    /// It has nothing any more, and its coordinator does not know.
    pub fn crash(&mut self, index: usize) {
        self.clients[index].forget();
        self.clients[index].is_up = false;
    }

    fn start(&mut self, index: usize, protocol: Protocol) {
        let client = &mut self.clients[index];
        client.forget();
        client.protocol = protocol;
        client.is_up = true;
        client.incarnation += 1;
        client.last_beat_ms = self.fixture.now_ms;
        self.subscribe(index);
    }

    fn any_protocol(&mut self) -> Protocol {
        match self.mix {
            Mix::Consumer => Protocol::Consumer,
            Mix::Eager | Mix::Cooperative if self.random.u8(..3) == 0 => Protocol::Consumer,
            Mix::Eager | Mix::Cooperative => Protocol::Classic,
        }
    }

    fn fail_over(&mut self) {
        let mut next = self.fixture.reloaded();
        next.requires_known_member_id = self.fixture.requires_known_member_id;
        next.supports_skipping_assignment = self.fixture.supports_skipping_assignment;
        self.fixture = next;
        // Who waits is told that this is no coordinator any more.
        let waiting = self.clients.iter_mut().filter(|client| client.is_waiting());
        waiting.for_each(Client::join_again);
    }

    fn step(&mut self) {
        self.fixture.fail = (self.random.u8(..20) == 0).then_some(ErrorCode::NotEnoughReplicas);
        let index = self.random.usize(..self.clients.len());
        let is_up = self.clients[index].is_up;
        let topic = TOPICS[self.random.usize(..TOPICS.len())];
        match self.random.u8(..100) {
            0..5 if is_up => self.stop(index),
            5..8 if is_up => self.crash(index),
            0..30 if !is_up => {
                let protocol = self.any_protocol();
                self.start(index, protocol);
            }
            8..13 if is_up => self.subscribe(index),
            13..16 => self.grow_topic(topic),
            16..18 => self.fail_over(),
            18..20 if self.topics.contains_key(topic) => self.delete_topic(topic),
            18..20 => self.create_topic(topic),
            20..28 if is_up && self.clients[index].protocol == Protocol::Consumer => self.beat(index, true),
            28..40 if is_up => self.commit(index),
            _ => {}
        }
        self.everybody_goes_on();
        self.fixture.sleep(1 + self.random.i64(0..800));
        self.check();
    }

    /// Nobody who is up is silent for longer than its session; most are for less than five seconds.
    fn everybody_goes_on(&mut self) {
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            if !client.is_up {
                continue;
            }
            let silent_ms = self.fixture.now_ms - client.last_beat_ms;
            match client.protocol {
                Protocol::Classic => {
                    let is_lost = self.random.u8(..20) == 0;
                    self.go_on(index, is_lost);
                }
                Protocol::Consumer if silent_ms > 5000 || self.random.u8(..4) == 0 => self.beat(index, false),
                Protocol::Consumer => {}
            }
        }
    }

    fn check(&self) {
        self.check_members();
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
            let name = self.name_of(*topic).unwrap();
            let fetched = self.fixture.fetch("group", name, *partition);
            assert_eq!(fetched, *offset, "seed {}: {name}-{partition}", self.seed);
        }
    }

    /// No partition is with two members, and what the group has counted is what they have.
    fn check_members(&self) {
        let Some(Group::Consumer(group)) = self.fixture.shard.groups.get("group".as_bytes()) else {
            return;
        };
        let mut holders: BTreeMap<(u128, i32), &str> = BTreeMap::new();
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
        let held = group.held_partitions().count();
        assert_eq!(held, holders.len(), "seed {}", self.seed);
    }

    /// Nothing goes wrong any more.
    fn heal(&mut self) {
        self.fixture.fail = None;
        for name in TOPICS {
            if !self.topics.contains_key(name) {
                self.create_topic(name);
            }
        }
        for index in 0..self.clients.len() {
            if !self.clients[index].is_up {
                let protocol = self.any_protocol();
                self.start(index, protocol);
            }
            // A leader that came back without a rebalance may not know that it leads, and then nobody looks at the topics.
            self.clients[index].join_again();
        }
        self.settle();
        // One by one they become classic, and the group with the last one; then one by one they become consumers.
        let roll = match (self.mix, self.seed % 3) {
            (Mix::Consumer, _) | (_, 0) => return,
            (_, 1) => vec![Protocol::Classic, Protocol::Consumer],
            (_, _) => vec![Protocol::Consumer, Protocol::Classic],
        };
        for protocol in roll {
            for index in 0..self.clients.len() {
                if self.clients[index].protocol != protocol {
                    self.stop(index);
                    self.start(index, protocol);
                    self.go_on_for(1 + index);
                }
            }
            self.settle();
        }
    }

    fn go_on_for(&mut self, seconds: usize) {
        for _ in 0..seconds {
            for index in 0..self.clients.len() {
                let client = &self.clients[index];
                match client.protocol {
                    protocol if !client.is_up => {
                        if self.fixture.now_ms - client.last_beat_ms > 20_000 {
                            self.start(index, protocol);
                        }
                    }
                    Protocol::Consumer => self.beat(index, false),
                    Protocol::Classic => self.go_on(index, false),
                }
            }
            self.fixture.sleep(1000);
            self.check();
        }
    }

    /// Sessions of those who crashed end, everybody becomes a member and gets what it is to have.
    fn settle(&mut self) {
        self.go_on_for(100);
        // Whether such a member wants what it wanted before Kafka does not ask: the next rebalance finds it out.
        if std::mem::take(&mut self.was_replaced_quietly) {
            self.clients.iter_mut().for_each(Client::join_again);
            self.go_on_for(100);
        }
        let has_consumers = self
            .clients
            .iter()
            .any(|client| client.protocol == Protocol::Consumer);
        match self.fixture.shard.groups.get("group".as_bytes()) {
            Some(Group::Consumer(group)) if has_consumers => {
                assert_eq!(group.state(), "Stable", "seed {}: {group:?}", self.seed);
                assert_eq!(group.len(), self.clients.len(), "seed {}", self.seed);
            }
            Some(Group::Classic(group)) if !has_consumers => {
                assert_eq!(group.state().name(), "Stable", "seed {}: {group:?}", self.seed);
                assert_eq!(group.len(), self.clients.len(), "seed {}", self.seed);
            }
            group => panic!("seed {}: {group:?} of {:?}", self.seed, self.clients),
        }
        assert!(
            self.clients.iter().all(Client::is_stable),
            "seed {}: {:?}",
            self.seed,
            self.clients
        );
        self.check_every_partition_has_its_owner();
        self.fixture.assert_replays();
    }

    fn wants(client: &Client, topic: &str) -> bool {
        let by_regex = REGEXES.iter().find(|(regex, _)| client.regex == Some(regex));
        client.topics.contains(topic) || by_regex.is_some_and(|(_, topics)| topics.contains(&topic))
    }

    fn check_every_partition_has_its_owner(&self) {
        for (name, (number, count)) in &self.topics {
            let wanted = self.clients.iter().any(|client| Self::wants(client, name));
            for partition in 0..*count {
                let owns = |client: &&Client| {
                    let partitions = client.owned.get(number);
                    partitions.is_some_and(|partitions| partitions.contains(&partition))
                };
                let owners: Vec<&Client> = self.clients.iter().filter(owns).collect();
                let about = format!("seed {}: {name}-{partition} is with {owners:?}", self.seed);
                assert_eq!(owners.len(), usize::from(wanted), "{about}");
                assert!(owners.iter().all(|owner| Self::wants(owner, name)), "{about}");
            }
        }
    }
}

pub fn seeds() -> u64 {
    let seeds = std::env::var("KAVKA_GROUP_SIMULATION_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(40)
}

fn run(mix: Mix) {
    let first = std::env::var("KAVKA_GROUP_SIMULATION_FIRST").ok();
    let first = first.and_then(|first| first.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds() {
        let mut simulation = Simulation::new(seed, mix);
        for step in 0..250 {
            simulation.step();
            if step % 50 == 49 {
                simulation.fixture.assert_replays();
            }
        }
        simulation.heal();
    }
}

#[test]
fn consumer_group_survives_what_goes_wrong() {
    run(Mix::Consumer);
}

#[test]
fn group_of_both_protocols_survives_what_goes_wrong() {
    run(Mix::Eager);
}

#[test]
fn group_of_both_protocols_with_cooperative_members_survives_what_goes_wrong() {
    run(Mix::Cooperative);
}
