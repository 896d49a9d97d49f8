//! Histories as a right Kafka would give them: a log in memory, clients that take turns, decided by a seed.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::check;
use crate::history::*;

pub const KEYS: u16 = 4;
/// What the group consumes, and where it produces to.
pub const INPUT: Key = key(0);
pub const OUTPUT: Key = key(3);
pub const GROUP: &str = "group";
/// Its members only read.
pub const READERS: &str = "readers";

pub const fn key(partition: u16) -> Key {
    Key { topic: 0, partition }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Open,
    Committed,
    Aborted,
}

/// One record or marker of the log.
struct Entry {
    value: Option<Value>,
    writer: usize,
}

/// A transaction that goes on.
struct Open {
    client: ClientId,
    invoked: Time,
    writer: usize,
    keys: Vec<Key>,
    transaction: Transaction,
}

struct Consumer {
    id: ClientId,
    isolation: Isolation,
    positions: BTreeMap<Key, i64>,
}

/// Two members share the partitions, until they change them or one dies.
struct Readers {
    rng: Rng,
    members: [Consumer; 2],
    is_turned: bool,
    /// Behind what members were given since they have their partitions.
    stored: BTreeMap<Key, i64>,
    committed: BTreeMap<Key, i64>,
}

impl Readers {
    fn keys(&self, member: usize) -> Vec<Key> {
        let turn = usize::from(self.is_turned);
        let partitions = (0..KEYS).filter(|partition| (usize::from(*partition) + turn) % 2 == member);
        partitions.map(key).collect()
    }
}

pub struct Model {
    rng: Rng,
    now: Time,
    next_value: Value,
    next_client: ClientId,
    logs: BTreeMap<Key, Vec<Entry>>,
    writers: Vec<State>,
    group_position: i64,
    pub history: History,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            now: 0,
            next_value: 0,
            next_client: 0,
            logs: (0..KEYS).map(|partition| (key(partition), Vec::new())).collect(),
            writers: Vec::new(),
            group_position: 0,
            history: History::default(),
        }
    }

    fn tick(&mut self) -> Time {
        self.now += 1;
        self.now
    }

    fn client(&mut self) -> ClientId {
        self.next_client += 1;
        self.next_client
    }

    fn record(&mut self, client: ClientId, invoked: Time, outcome: Outcome, body: Body) {
        let completed = Some(self.tick());
        self.history.operations.push(Operation {
            client,
            invoked,
            completed,
            outcome,
            body,
        });
    }

    fn append(&mut self, key: Key, value: Option<Value>, writer: usize) -> i64 {
        let log = self.logs.get_mut(&key).unwrap();
        log.push(Entry { value, writer });
        log.len() as i64 - 1
    }

    fn send(&mut self, key: Key, writer: usize) -> Send {
        self.next_value += 1;
        let value = self.next_value;
        let invoked = self.tick();
        let offset = self.append(key, Some(value), writer);
        let told = self.rng.u8(..10) > 0;
        let acknowledged = Some(self.tick());
        Send {
            key,
            value,
            invoked,
            acknowledged,
            offset: told.then_some(offset),
        }
    }

    fn writer(&mut self, state: State) -> usize {
        self.writers.push(state);
        self.writers.len() - 1
    }

    fn plain_send(&mut self, client: ClientId) {
        let key = key(self.rng.u16(..KEYS - 1));
        let writer = self.writer(State::Committed);
        let mut send = self.send(key, writer);
        let mut outcome = Outcome::Ok;
        if self.rng.u8(..10) == 0 {
            outcome = Outcome::Unknown;
            (send.acknowledged, send.offset) = (None, None);
        }
        self.record(client, send.invoked, outcome, Body::Send(send));
    }

    /// Up to `limit` records from `position` on, and where the reader then stands.
    fn read(&self, key: Key, position: i64, isolation: Isolation, limit: usize) -> (Vec<Read>, i64) {
        let mut reads = Vec::new();
        let mut next = position;
        for (offset, entry) in self.logs[&key].iter().enumerate().skip(position as usize) {
            let state = self.writers[entry.writer];
            if reads.len() == limit || (isolation == Isolation::ReadCommitted && state == State::Open) {
                break;
            }
            next = offset as i64 + 1;
            let visible = isolation == Isolation::ReadUncommitted || state == State::Committed;
            reads.extend(entry.value.filter(|_| visible).map(|value| Read {
                key,
                offset: offset as i64,
                value,
            }));
        }
        (reads, next)
    }

    fn poll(&mut self, consumer: &mut Consumer, keys: &[Key]) -> Poll {
        let mut reads = Vec::new();
        for key in keys {
            let limit = self.rng.usize(1..5);
            let position = consumer.positions.entry(*key).or_default();
            let (found, next) = self.read(*key, *position, consumer.isolation, limit);
            *position = next;
            reads.extend(found);
        }
        Poll {
            consumer: consumer.id,
            isolation: consumer.isolation,
            completed: self.tick(),
            reads,
        }
    }

    fn begin(&mut self, client: ClientId, transactional_id: &str, group: Option<&str>) -> Open {
        Open {
            client,
            invoked: self.tick(),
            writer: self.writer(State::Open),
            keys: Vec::new(),
            transaction: Transaction {
                transactional_id: transactional_id.to_owned(),
                steps: Vec::new(),
                group: group.map(str::to_owned),
                commit_invoked: None,
            },
        }
    }

    fn send_in(&mut self, open: &mut Open, key: Key) {
        let send = self.send(key, open.writer);
        open.transaction.steps.push(Step::Send(send));
        if !open.keys.contains(&key) {
            open.keys.push(key);
        }
    }

    /// Whether it was committed.
    fn end(&mut self, mut open: Open) -> bool {
        let (state, outcome) = match self.rng.u8(..10) {
            0..=5 => (State::Committed, Outcome::Ok),
            6..=7 => (State::Aborted, Outcome::Fail),
            8 => (State::Committed, Outcome::Unknown),
            _ => (State::Aborted, Outcome::Unknown),
        };
        if outcome != Outcome::Fail {
            open.transaction.commit_invoked = Some(self.tick());
        }
        self.writers[open.writer] = state;
        for key in open.keys {
            self.append(key, None, open.writer);
        }
        let body = Body::Transaction(open.transaction);
        self.record(open.client, open.invoked, outcome, body);
        state == State::Committed
    }

    /// One transaction that consumes, transforms and produces; without input there is none.
    fn process(&mut self, consumer: &mut Consumer) {
        consumer.positions.insert(INPUT, self.group_position);
        let client = self.client();
        let mut open = self.begin(client, "processor", Some(GROUP));
        let poll = self.poll(consumer, &[INPUT]);
        for _ in &poll.reads {
            self.send_in(&mut open, OUTPUT);
        }
        let consumed_to = poll.reads.last().map(|read| read.offset + 1);
        open.transaction.steps.push(Step::Poll(poll));
        let Some(consumed_to) = consumed_to else {
            self.writers[open.writer] = State::Aborted;
            return;
        };
        if self.end(open) {
            self.group_position = consumed_to;
        } else {
            let now = self.tick();
            self.record(consumer.id, now, Outcome::Ok, Body::Repositioned(consumer.id));
        }
    }

    fn readers(&mut self, seed: u64) -> Readers {
        let members = [(); 2].map(|()| self.consumer(Isolation::ReadCommitted));
        for member in &members {
            self.join(member.id);
        }
        Readers {
            rng: Rng::with_seed(seed),
            members,
            is_turned: false,
            stored: BTreeMap::new(),
            committed: (0..KEYS).map(|partition| (key(partition), 0)).collect(),
        }
    }

    fn join(&mut self, consumer: ClientId) {
        let member = Member {
            consumer,
            group: READERS.to_owned(),
            isolation: Isolation::ReadCommitted,
        };
        let now = self.tick();
        self.record(consumer, now, Outcome::Ok, Body::Member(member));
    }

    /// A member polls, commits, or the group moves.
    fn group_turn(&mut self, readers: &mut Readers) {
        let number = readers.rng.usize(..2);
        match readers.rng.u8(..10) {
            0..=6 => {
                let invoked = self.tick();
                let mut reads = Vec::new();
                for key in readers.keys(number) {
                    let limit = readers.rng.usize(1..5);
                    let position = readers.members[number]
                        .positions
                        .entry(key)
                        .or_insert(readers.committed[&key]);
                    let (found, next) = self.read(key, *position, Isolation::ReadCommitted, limit);
                    *position = next;
                    readers
                        .stored
                        .extend(found.last().map(|read| (key, read.offset + 1)));
                    reads.extend(found);
                }
                let poll = Poll {
                    consumer: readers.members[number].id,
                    isolation: Isolation::ReadCommitted,
                    completed: self.tick(),
                    reads,
                };
                self.record(poll.consumer, invoked, Outcome::Ok, Body::Poll(poll));
            }
            7..=8 => readers.committed.extend(&readers.stored),
            _ => self.rebalance(readers, number),
        }
    }

    fn rebalance(&mut self, readers: &mut Readers, died: usize) {
        if readers.rng.bool() {
            readers.committed.extend(&readers.stored);
            readers.is_turned = !readers.is_turned;
        } else {
            readers.members[died].id = self.client();
            self.join(readers.members[died].id);
        }
        readers.stored.clear();
        for member in &mut readers.members {
            member.positions.clear();
            let now = self.tick();
            self.record(member.id, now, Outcome::Ok, Body::Repositioned(member.id));
        }
    }

    fn ask_for_offsets(&mut self, readers: &Readers) {
        let offset = |group: &str, key, offset| GroupOffset {
            group: group.to_owned(),
            key,
            offset: Some(offset),
        };
        let readers_offsets = readers.committed.iter();
        let mut offsets: Vec<GroupOffset> = readers_offsets
            .map(|(key, committed)| offset(READERS, *key, *committed))
            .collect();
        offsets.push(offset(GROUP, INPUT, self.group_position));
        for offset in offsets {
            let now = self.tick();
            self.record(0, now, Outcome::Ok, Body::GroupOffset(offset));
        }
    }

    fn read_finally(&mut self) {
        for (partition, isolation) in (0..KEYS).flat_map(|partition| {
            [Isolation::ReadCommitted, Isolation::ReadUncommitted].map(|isolation| (partition, isolation))
        }) {
            let key = key(partition);
            let (reads, position) = self.read(key, 0, isolation, usize::MAX);
            let end = self.logs[&key].len() as i64;
            let read = FinalRead {
                key,
                isolation,
                reads,
                position,
                end,
            };
            let now = self.tick();
            self.record(0, now, Outcome::Ok, Body::FinalRead(read));
        }
    }

    fn consumer(&mut self, isolation: Isolation) -> Consumer {
        Consumer {
            id: self.client(),
            isolation,
            positions: BTreeMap::new(),
        }
    }

    fn run(&mut self, seed: u64, turns: usize) {
        let all: Vec<Key> = (0..KEYS).map(key).collect();
        let isolations = [Isolation::ReadCommitted, Isolation::ReadUncommitted];
        let mut consumers = isolations.map(|isolation| self.consumer(isolation));
        let mut attached = self.consumer(Isolation::ReadCommitted);
        let mut processor = self.consumer(Isolation::ReadCommitted);
        let senders = [self.client(), self.client()];
        let ids = ["a", "b", "c"];
        let mut clients = ids.map(|_| self.client());
        let mut open: [Option<Open>; 3] = [None, None, None];
        let mut readers = self.readers(seed);
        for _ in 0..turns {
            if readers.rng.bool() {
                self.group_turn(&mut readers);
            }
            match self.rng.u8(..10) {
                0..=1 => {
                    let sender = senders[self.rng.usize(..2)];
                    self.plain_send(sender);
                }
                2 => {
                    let consumer = &mut consumers[self.rng.usize(..2)];
                    let invoked = self.tick();
                    let poll = self.poll(consumer, &all);
                    self.record(consumer.id, invoked, Outcome::Ok, Body::Poll(poll));
                }
                3 => self.process(&mut processor),
                _ => {
                    let id = self.rng.usize(..3);
                    match (open[id].take(), self.rng.u8(..4)) {
                        (None, _) => {
                            if self.rng.u8(..4) == 0 {
                                clients[id] = self.client();
                            }
                            open[id] = Some(self.begin(clients[id], ids[id], None));
                        }
                        (Some(ongoing), 0) => {
                            self.end(ongoing);
                        }
                        (Some(mut ongoing), 1) => {
                            let poll = self.poll(&mut attached, &all);
                            ongoing.transaction.steps.push(Step::Poll(poll));
                            open[id] = Some(ongoing);
                        }
                        (Some(mut ongoing), _) => {
                            let key = key(self.rng.u16(..KEYS));
                            self.send_in(&mut ongoing, key);
                            open[id] = Some(ongoing);
                        }
                    }
                }
            }
        }
        for ongoing in open.into_iter().flatten() {
            self.end(ongoing);
        }
        self.read_finally();
        self.ask_for_offsets(&readers);
    }
}

pub fn good_history(seed: u64) -> History {
    let mut model = Model::new(seed);
    model.run(seed, 600);
    model.history
}

#[test]
fn histories_of_a_right_log_have_no_anomalies() {
    for seed in 0..200 {
        let report = check(&good_history(seed));
        assert!(report.anomalies.is_empty(), "seed {seed}: {report}");
    }
}

#[test]
fn histories_of_a_right_log_have_something_of_everything() {
    let counts = check(&good_history(1)).counts;
    assert!(counts.transactions_committed > 10, "{counts:?}");
    assert!(counts.transactions_aborted > 5, "{counts:?}");
    assert!(counts.transactions_unknown > 5, "{counts:?}");
    assert!(counts.transactions_found_committed > 2, "{counts:?}");
    assert!(
        counts.reads > 50 && counts.reads_in_transactions > 50,
        "{counts:?}"
    );
    assert!(
        counts.inputs_processed > 20 && counts.dependencies > 20,
        "{counts:?}"
    );
    assert!(counts.records_given > 50, "{counts:?}");
    assert_eq!(counts.group_offsets, usize::from(KEYS) + 1);
    assert!(
        counts.records_uncommitted > counts.records_committed,
        "{counts:?}"
    );
    assert!(counts.interleaved > 0, "{counts:?}");
}

#[test]
fn a_history_read_from_its_file_is_the_same() {
    let history = good_history(2);
    let mut file = Vec::new();
    history.write(&mut file).unwrap();
    assert_eq!(History::read(file.as_slice()).unwrap(), history);
}
