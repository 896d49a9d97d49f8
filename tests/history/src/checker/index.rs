//! A history by value, by place and by reader.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::history::{
    Body, ClientId, FinalRead, History, Isolation, Key, Operation, Outcome, Poll, Read, Send, Time,
    Transaction, Value,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Committed,
    /// Not committed; of a send outside of transactions: never written.
    Aborted,
    Unknown,
}

pub struct Write<'a> {
    pub send: &'a Send,
    pub client: ClientId,
    /// Its operation's place in the history.
    pub operation: usize,
    /// `None`: a send outside of transactions.
    pub transaction: Option<&'a Transaction>,
    pub fate: Fate,
}

pub struct Index<'a> {
    pub history: &'a History,
    pub writes: HashMap<Value, Write<'a>>,
    /// Every place that an acknowledgement or a reader told of, in order, each once.
    pub placements: Vec<(Key, i64, Value)>,
    /// Of several the first.
    pub offset_of: HashMap<Value, i64>,
    /// All that any reader saw, with the isolation of the strictest.
    pub seen: HashMap<Value, Isolation>,
    pub final_reads: BTreeMap<(Key, bool), FinalTruth<'a>>,
    /// Operations of unknown outcome that turned out to be committed transactions.
    pub found_committed: HashSet<usize>,
}

/// What a partition held at the end for readers of one isolation.
pub struct FinalTruth<'a> {
    pub read: &'a FinalRead,
    pub offsets: Vec<i64>,
    pub values: HashSet<Value>,
}

impl FinalTruth<'_> {
    pub fn reached_end(&self) -> bool {
        self.read.position >= self.read.end
    }
}

fn final_key(key: Key, isolation: Isolation) -> (Key, bool) {
    (key, isolation == Isolation::ReadCommitted)
}

/// Every read of a history, with its isolation and, unless it is a final one, when it was over.
pub fn all_reads(history: &History) -> impl Iterator<Item = (&Read, Isolation, Option<Time>)> {
    let of_poll = |poll: &'_ Poll| (poll.isolation, poll.completed);
    history.operations.iter().flat_map(move |operation| {
        let parts: Vec<(&[Read], Isolation, Option<Time>)> = match &operation.body {
            Body::Poll(poll) => {
                let (isolation, completed) = of_poll(poll);
                vec![(&poll.reads, isolation, Some(completed))]
            }
            Body::Transaction(transaction) => {
                let polls = transaction.polls();
                polls
                    .map(|poll| (poll.reads.as_slice(), poll.isolation, Some(poll.completed)))
                    .collect()
            }
            Body::FinalRead(read) => vec![(&read.reads, read.isolation, None)],
            Body::Send(_)
            | Body::Repositioned(_)
            | Body::Member(_)
            | Body::GroupOffset(_)
            | Body::Event(_) => Vec::new(),
        };
        let reads = parts.into_iter();
        reads.flat_map(|(reads, isolation, at)| reads.iter().map(move |read| (read, isolation, at)))
    })
}

impl<'a> Index<'a> {
    pub fn new(history: &'a History) -> Self {
        let mut index = Self {
            history,
            writes: writes(history),
            placements: Vec::new(),
            offset_of: HashMap::new(),
            seen: HashMap::new(),
            final_reads: final_reads(history),
            found_committed: HashSet::new(),
        };
        index.place();
        index.decide();
        index
    }

    pub fn final_read(&self, key: Key, isolation: Isolation) -> Option<&FinalTruth<'a>> {
        self.final_reads.get(&final_key(key, isolation))
    }

    fn place(&mut self) {
        for (read, isolation, _) in all_reads(self.history) {
            self.placements.push((read.key, read.offset, read.value));
            let seen = self.seen.entry(read.value).or_insert(isolation);
            if isolation == Isolation::ReadCommitted {
                *seen = isolation;
            }
        }
        let acknowledged = self.writes.values().filter_map(|write| {
            let offset = write.send.offset?;
            Some((write.send.key, offset, write.send.value))
        });
        self.placements.extend(acknowledged);
        self.placements.sort_unstable();
        self.placements.dedup();
        for (_, offset, value) in &self.placements {
            self.offset_of.entry(*value).or_insert(*offset);
        }
    }

    /// What is unknown is taken as committed when a reader of committed records saw any of it.
    fn decide(&mut self) {
        let seen = |value: &Value| self.seen.get(value) == Some(&Isolation::ReadCommitted);
        let found = self
            .writes
            .iter()
            .filter(|(value, write)| write.fate == Fate::Unknown && seen(value));
        let found: HashSet<usize> = found.map(|(_, write)| write.operation).collect();
        for write in self.writes.values_mut() {
            if found.contains(&write.operation) {
                write.fate = Fate::Committed;
            }
        }
        self.found_committed = found
            .into_iter()
            .filter(|operation| matches!(self.history.operations[*operation].body, Body::Transaction(_)))
            .collect();
    }

    pub fn is_committed(&self, operation: usize) -> bool {
        self.history.operations[operation].outcome == Outcome::Ok || self.found_committed.contains(&operation)
    }

    /// Committed transactions, with their operations' places.
    pub fn committed_transactions(&self) -> impl Iterator<Item = (usize, &'a Transaction)> {
        let operations = self.history.operations.iter().enumerate();
        operations.filter_map(|(place, operation)| match &operation.body {
            Body::Transaction(transaction) if self.is_committed(place) => Some((place, transaction)),
            _ => None,
        })
    }
}

fn writes(history: &History) -> HashMap<Value, Write<'_>> {
    let mut writes = HashMap::new();
    for (place, operation) in history.operations.iter().enumerate() {
        let Operation { client, outcome, .. } = operation;
        let fate = match outcome {
            Outcome::Ok => Fate::Committed,
            Outcome::Fail => Fate::Aborted,
            Outcome::Unknown => Fate::Unknown,
        };
        let write = |send, transaction| Write {
            send,
            client: *client,
            operation: place,
            transaction,
            fate,
        };
        match &operation.body {
            Body::Send(send) => {
                writes.insert(send.value, write(send, None));
            }
            Body::Transaction(transaction) => {
                for send in transaction.sends() {
                    writes.insert(send.value, write(send, Some(transaction)));
                }
            }
            Body::Poll(_)
            | Body::Repositioned(_)
            | Body::Member(_)
            | Body::FinalRead(_)
            | Body::GroupOffset(_)
            | Body::Event(_) => {}
        }
    }
    writes
}

fn final_reads(history: &History) -> BTreeMap<(Key, bool), FinalTruth<'_>> {
    let reads = history
        .operations
        .iter()
        .filter_map(|operation| match &operation.body {
            Body::FinalRead(read) => Some(read),
            _ => None,
        });
    let truth = |read: &'_ FinalRead| {
        let mut offsets: Vec<i64> = read.reads.iter().map(|read| read.offset).collect();
        offsets.sort_unstable();
        let values = read.reads.iter().map(|read| read.value).collect();
        (offsets, values)
    };
    reads
        .map(|read| {
            let (offsets, values) = truth(read);
            let truth = FinalTruth {
                read,
                offsets,
                values,
            };
            (final_key(read.key, read.isolation), truth)
        })
        .collect()
}
