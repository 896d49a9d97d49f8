//! The same for a classic group: members that join, sync, stay, leave and crash while answers are lost, appends fail and the
//! coordinator changes. Invariants as in `simulation_test`: no partition with two clients that do as they are told;
//! committed offsets never go back; in the end everybody is in one generation and every partition has one owner.

use std::collections::{BTreeMap, BTreeSet};

use super::fixture_test::*;
use super::simulation_test::seeds;
use crate::coordinator::runtime::shard::Token;
use crate::protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use crate::protocol::{ErrorCode, StrBytes};

const PARTITIONS: i32 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Out,
    Joining(Token),
    Syncing(Token),
    Stable,
}

#[derive(Debug, Clone, Default)]
struct Client {
    instance: Option<String>,
    member_id: String,
    generation: i32,
    phase: Phase,
    owned: BTreeSet<i32>,
    is_up: bool,
    last_beat_ms: i64,
}

impl Client {
    /// Everything is to begin anew, with the id that it has.
    fn out(&mut self) {
        self.phase = Phase::Out;
        self.owned.clear();
    }

    fn forget(&mut self) {
        self.out();
        self.member_id.clear();
    }
}

struct Simulation {
    seed: u64,
    random: fastrand::Rng,
    fixture: Fixture,
    clients: Vec<Client>,
    committed: BTreeMap<i32, i64>,
    next_offset: i64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut fixture = Fixture::new();
        fixture.requires_known_member_id = seed.is_multiple_of(2);
        let clients = (0..4).map(|number| Client {
            instance: (number == 0).then(|| "instance".to_owned()),
            ..Default::default()
        });
        Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            fixture,
            clients: clients.collect(),
            committed: BTreeMap::new(),
            next_offset: 1,
        }
    }

    fn join(&mut self, index: usize) {
        let client = &self.clients[index];
        let request = join("group")
            .with_member_id(text(&client.member_id))
            .with_group_instance_id(client.instance.as_deref().map(text));
        let joining = self.fixture.try_join(request);
        self.clients[index].last_beat_ms = self.fixture.now_ms;
        match joining {
            Ok(token) => self.clients[index].phase = Phase::Joining(token),
            Err(_) => self.clients[index].forget(),
        }
    }

    fn on_joined(&mut self, index: usize, response: &JoinGroupResponse) {
        let client = &mut self.clients[index];
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => {
                client.member_id = response.member_id.to_string();
                return client.out();
            }
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => return client.forget(),
            _ => return client.out(),
        }
        client.member_id = response.member_id.to_string();
        client.generation = response.generation_id;
        let mut assignments: BTreeMap<StrBytes, Vec<String>> = BTreeMap::new();
        for partition in 0..PARTITIONS.min(response.members.len() as i32 * PARTITIONS) {
            let member = &response.members[partition as usize % response.members.len()];
            let assigned = assignments.entry(member.member_id.clone()).or_default();
            assigned.push(partition.to_string());
        }
        let assignments: Vec<(StrBytes, String)> = assignments
            .into_iter()
            .map(|(member, assigned)| (member, assigned.join(",")))
            .collect();
        let assignments: Vec<(&StrBytes, &str)> = assignments
            .iter()
            .map(|(member, assigned)| (member, &**assigned))
            .collect();
        let mut request = sync("group", response, &assignments);
        request.group_instance_id = self.clients[index].instance.as_deref().map(text);
        let token = self.fixture.sync_with(request);
        self.clients[index].phase = Phase::Syncing(token);
    }

    fn on_synced(&mut self, index: usize, response: &SyncGroupResponse) {
        let client = &mut self.clients[index];
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {
                let assigned = std::str::from_utf8(&response.assignment).unwrap();
                let partitions = assigned.split(',').filter(|text| !text.is_empty());
                client.owned = partitions.map(|partition| partition.parse().unwrap()).collect();
                client.phase = Phase::Stable;
                client.last_beat_ms = self.fixture.now_ms;
            }
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => client.forget(),
            _ => client.out(),
        }
    }

    fn heartbeat(&mut self, index: usize) {
        let client = self.clients[index].clone();
        self.clients[index].last_beat_ms = self.fixture.now_ms;
        let instance = client.instance.as_deref();
        match self
            .fixture
            .heartbeat_with(&text(&client.member_id), instance, client.generation)
        {
            ErrorCode::None => {}
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => self.clients[index].forget(),
            _ => self.clients[index].out(),
        }
    }

    fn go_on(&mut self, index: usize, is_lost: bool) {
        match self.clients[index].phase {
            Phase::Out => self.join(index),
            Phase::Joining(token) => {
                if let Some(response) = self.fixture.joined(token) {
                    match is_lost {
                        true => self.clients[index].out(),
                        false => self.on_joined(index, &response),
                    }
                }
            }
            Phase::Syncing(token) => {
                if let Some(response) = self.fixture.synced(token) {
                    match is_lost {
                        true => self.clients[index].out(),
                        false => self.on_synced(index, &response),
                    }
                }
            }
            Phase::Stable => {
                let silent_ms = self.fixture.now_ms - self.clients[index].last_beat_ms;
                if silent_ms > 2500 || self.random.bool() {
                    self.heartbeat(index);
                }
            }
        }
    }

    fn commit(&mut self, index: usize) {
        let client = self.clients[index].clone();
        let Some(partition) = client.owned.first().copied() else {
            return;
        };
        let offset = self.next_offset;
        self.next_offset += 1;
        let mut request = commit("group", "topic", partition, offset);
        request.member_id = text(&client.member_id);
        request.group_instance_id = client.instance.as_deref().map(text);
        request.generation_id_or_member_epoch = client.generation;
        let answer = self.fixture.commit_offsets(&request, true);
        if answer.is_ok() && self.fixture.fail.is_none() {
            self.committed.insert(partition, offset);
        }
    }

    fn step(&mut self) {
        self.fixture.fail = (self.random.u8(..20) == 0).then_some(ErrorCode::NotEnoughReplicas);
        let index = self.random.usize(..self.clients.len());
        let is_up = self.clients[index].is_up;
        match self.random.u8(..100) {
            0..4 if is_up => {
                let member_id = text(&self.clients[index].member_id);
                let _ = self.fixture.leave(&[leaving(&member_id)]);
                self.clients[index].forget();
                self.clients[index].is_up = false;
            }
            4..8 if is_up => {
                self.clients[index].forget();
                self.clients[index].is_up = false;
            }
            0..40 if !is_up => self.clients[index].is_up = true,
            8..10 => {
                let requires_known_member_id = self.fixture.requires_known_member_id;
                self.fixture = self.fixture.reloaded();
                self.fixture.requires_known_member_id = requires_known_member_id;
                // Who waits is told that this is no coordinator any more.
                for client in &mut self.clients {
                    if matches!(client.phase, Phase::Joining(_) | Phase::Syncing(_)) {
                        client.out();
                    }
                }
            }
            10..40 if is_up => self.commit(index),
            _ => {}
        }
        for index in 0..self.clients.len() {
            if self.clients[index].is_up {
                let is_lost = self.random.u8(..20) == 0;
                self.go_on(index, is_lost);
            }
        }
        self.fixture.sleep(1 + self.random.i64(0..800));
        self.check();
    }

    fn check(&self) {
        let mut owners: BTreeMap<i32, usize> = BTreeMap::new();
        for (index, client) in self.clients.iter().enumerate() {
            for partition in &client.owned {
                let before = owners.insert(*partition, index);
                assert_eq!(
                    before, None,
                    "seed {}: {partition}: {:?}",
                    self.seed, self.clients
                );
            }
        }
        for (partition, offset) in &self.committed {
            assert_eq!(
                self.fixture.fetch("group", "topic", *partition),
                *offset,
                "seed {}",
                self.seed
            );
        }
    }

    fn heal(&mut self) {
        self.fixture.fail = None;
        for _ in 0..150 {
            for index in 0..self.clients.len() {
                self.clients[index].is_up = true;
                self.go_on(index, false);
            }
            self.fixture.sleep(1000);
            self.check();
        }
        let generations: BTreeSet<i32> = self.clients.iter().map(|client| client.generation).collect();
        assert_eq!(generations.len(), 1, "seed {}: {:?}", self.seed, self.clients);
        let owned: BTreeSet<i32> = self
            .clients
            .iter()
            .flat_map(|client| client.owned.clone())
            .collect();
        assert_eq!(
            owned.len() as i32,
            PARTITIONS,
            "seed {}: {:?}",
            self.seed,
            self.clients
        );
        assert_eq!(self.fixture.state(), "Stable", "seed {}", self.seed);
        assert_eq!(
            self.fixture.shard.classic_group("group").unwrap().len(),
            self.clients.len(),
            "seed {}",
            self.seed
        );
        let reloaded = self.fixture.reloaded();
        let loaded = reloaded.shard.classic_group("group").unwrap();
        assert_eq!(
            loaded.generation_id(),
            self.clients[0].generation,
            "seed {}",
            self.seed
        );
        assert_eq!(loaded.len(), self.clients.len(), "seed {}", self.seed);
    }
}

#[test]
fn classic_group_survives_what_goes_wrong() {
    for seed in 0..seeds() {
        let mut simulation = Simulation::new(seed);
        for _ in 0..250 {
            simulation.step();
        }
        simulation.heal();
    }
}
