//! Workers that write: in transactions, with sends and polls in any order, or one record at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use fastrand::Rng;

use super::consumer::Reader;
use super::producer::{Called, Deliveries, TRANSACTION_TIMEOUT, Writer};
use super::{INPUT, MIXED, OUTPUT, Surroundings, keys_of};
use crate::history::{Body, ClientId, Isolation, Key, Outcome, Send, Step, Time, Transaction, Value};

/// One record to each partition, so that all topics are there.
pub fn create_topics(surroundings: &Arc<Surroundings>) -> Result<()> {
    let writer = Writer::idempotent(surroundings)?;
    let mut pending = Pending::default();
    for key in keys_of(&[INPUT, MIXED, OUTPUT]) {
        pending.add(writer.send(key));
    }
    let flushed = writer.flush();
    pending.settle(surroundings, &writer);
    match flushed && pending.sends.is_empty() {
        true => Ok(()),
        false => bail!("the topics could not be made"),
    }
}

/// Less than most commits take.
pub fn commit_patience(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(1..8))
}

pub fn pause(rng: &mut Rng, longest_ms: u64) {
    thread::sleep(Duration::from_millis(rng.u64(0..=longest_ms)));
}

/// A transaction that a worker has begun.
pub struct Ongoing {
    client: ClientId,
    invoked: Time,
    pub transaction: Transaction,
}

impl Ongoing {
    pub fn new(
        surroundings: &Surroundings,
        client: ClientId,
        transactional_id: &str,
        group: Option<&str>,
    ) -> Self {
        Self {
            client,
            invoked: surroundings.recorder.now(),
            transaction: Transaction {
                transactional_id: transactional_id.to_owned(),
                steps: Vec::new(),
                group: group.map(str::to_owned),
                commit_invoked: None,
            },
        }
    }

    pub fn send(&mut self, writer: &Writer, key: Key) -> bool {
        let sent = writer.send(key);
        let was_sent = sent.is_some();
        self.transaction.steps.extend(sent.map(Step::Send));
        was_sent
    }

    /// What the client was told of the sends.
    fn settle(&mut self, deliveries: &Deliveries) {
        let mut deliveries = deliveries.take();
        for step in &mut self.transaction.steps {
            if let Step::Send(send) = step
                && let Some(delivery) = deliveries.remove(&send.value)
                && delivery.acknowledged
            {
                send.acknowledged = Some(delivery.at);
                send.offset = delivery.offset;
            }
        }
    }

    pub fn is_acknowledged(&self) -> bool {
        self.transaction.sends().all(|send| send.acknowledged.is_some())
    }

    /// Commits it if all was acknowledged; what cannot be known afterwards is unknown. Whether the client is still good;
    /// `MustAbort`: it is, and has aborted it.
    pub fn commit(mut self, surroundings: &Surroundings, writer: &Writer) -> Called {
        writer.flush();
        self.settle(&writer.deliveries);
        if !self.is_acknowledged() {
            return self.abort(surroundings, writer);
        }
        self.transaction.commit_invoked = Some(surroundings.recorder.commit_begins());
        let (outcome, called) = match writer.commit() {
            Called::Ok => (Outcome::Ok, Called::Ok),
            // The client's word is not enough: what it asked for may have happened. But an abort of what is committed is refused
            // (INVALID_TXN_STATE), and that breaks the client.
            Called::MustAbort if writer.abort() == Called::Ok => (Outcome::Fail, Called::MustAbort),
            // Also when it was fenced: before that an answer may have got lost. With an unknown outcome the client's successor
            // finds out; this one has no way to.
            Called::MustAbort | Called::Broken => (Outcome::Unknown, Called::Broken),
        };
        self.record(surroundings, outcome);
        called
    }

    /// Asks for a commit and dies soon after: the node may or may not have it, and nobody asks a second time.
    pub fn commit_and_die(mut self, surroundings: &Surroundings, writer: Writer, patience: Duration) {
        writer.flush();
        self.settle(&writer.deliveries);
        if !self.is_acknowledged() {
            return self.abandon(surroundings, writer);
        }
        self.transaction.commit_invoked = Some(surroundings.recorder.commit_begins());
        let outcome = match writer.commit_within(patience) {
            true => Outcome::Ok,
            false => Outcome::Unknown,
        };
        drop(writer);
        self.record(surroundings, outcome);
    }

    /// Nobody asked for a commit, so it is not committed, whatever the node says.
    pub fn abort(mut self, surroundings: &Surroundings, writer: &Writer) -> Called {
        let called = writer.abort();
        self.settle(&writer.deliveries);
        self.record(surroundings, Outcome::Fail);
        match called {
            Called::Ok => Called::MustAbort,
            Called::MustAbort | Called::Broken => Called::Broken,
        }
    }

    /// The client dies with it.
    pub fn abandon(mut self, surroundings: &Surroundings, writer: Writer) {
        let deliveries = writer.deliveries.clone();
        drop(writer);
        self.settle(&deliveries);
        self.record(surroundings, Outcome::Fail);
    }

    fn record(self, surroundings: &Surroundings, outcome: Outcome) {
        let body = Body::Transaction(self.transaction);
        surroundings
            .recorder
            .record(self.client, self.invoked, outcome, body);
    }
}

/// Transactions of one transactional id, with a consumer of its own that is polled within them.
pub fn transactional(surroundings: &Arc<Surroundings>, transactional_id: &str, mut rng: Rng) {
    let recorder = &surroundings.recorder;
    let keys = keys_of(&[INPUT, MIXED]);
    while !recorder.is_stopping() {
        let (Ok(writer), Ok(reader)) = (
            Writer::transactional(surroundings, transactional_id),
            Reader::new(surroundings, Isolation::ReadCommitted, transactional_id),
        ) else {
            pause(&mut rng, 200);
            continue;
        };
        let mut writer = Some(writer);
        let mut follows = None;
        while let Some(current) = writer.take().filter(|_| !recorder.is_stopping()) {
            if follows.is_none() || rng.u8(..20) == 0 {
                let (first, distance) = (rng.usize(..keys.len()), rng.usize(1..keys.len()));
                let followed = [keys[first], keys[(first + distance) % keys.len()]];
                follows = reader.assign_near_ends(&followed, rng.i64(0..50)).ok();
            }
            writer = one_transaction(surroundings, current, &reader, transactional_id, &keys, &mut rng);
            pause(&mut rng, 60);
        }
        // A rival with the same id has a while to itself.
        pause(&mut rng, 2000);
    }
}

/// Gives the client back if it may begin another.
fn one_transaction(
    surroundings: &Arc<Surroundings>,
    writer: Writer,
    reader: &Reader,
    transactional_id: &str,
    keys: &[Key],
    rng: &mut Rng,
) -> Option<Writer> {
    let mut ongoing = Ongoing::new(surroundings, writer.client, transactional_id, None);
    if writer.begin() != Called::Ok {
        return None;
    }
    for _ in 0..rng.usize(1..8) {
        if rng.u8(..4) == 0 {
            let polls = reader.poll(rng.usize(1..6), Duration::from_millis(5));
            ongoing
                .transaction
                .steps
                .extend(polls.into_iter().map(Step::Poll));
        } else if let Some(key) = rng.choice(keys)
            && !ongoing.send(&writer, *key)
        {
            break;
        }
        pause(rng, 2);
    }
    let called = match rng.u16(..1000) {
        0..760 => ongoing.commit(surroundings, &writer),
        760..930 => ongoing.abort(surroundings, &writer),
        930..955 => {
            ongoing.commit_and_die(surroundings, writer, commit_patience(rng));
            return None;
        }
        955..998 => {
            // What is on its way when the client dies may or may not arrive.
            if rng.bool() {
                pause(rng, 20);
            }
            ongoing.abandon(surroundings, writer);
            return None;
        }
        _ => {
            // Longer than the coordinator waits: it aborts what this one then wants to commit.
            writer.flush();
            thread::sleep(TRANSACTION_TIMEOUT + Duration::from_millis(rng.u64(0..3000)));
            ongoing.commit(surroundings, &writer)
        }
    };
    (called != Called::Broken).then_some(writer)
}

/// Sends whose fate is open.
#[derive(Default)]
struct Pending {
    sends: HashMap<Value, Send>,
}

impl Pending {
    fn add(&mut self, send: Option<Send>) {
        self.sends.extend(send.map(|send| (send.value, send)));
    }

    /// Records those whose fate the client was told.
    fn settle(&mut self, surroundings: &Surroundings, writer: &Writer) {
        for (value, delivery) in writer.deliveries.take() {
            let Some(mut send) = self.sends.remove(&value) else {
                continue;
            };
            // A send that failed may be on the log all the same.
            let mut outcome = Outcome::Unknown;
            if delivery.acknowledged {
                outcome = Outcome::Ok;
                (send.acknowledged, send.offset) = (Some(delivery.at), delivery.offset);
            }
            let body = Body::Send(send.clone());
            surroundings
                .recorder
                .record(writer.client, send.invoked, outcome, body);
        }
    }

    fn give_up(self, surroundings: &Surroundings, client: ClientId) {
        for send in self.sends.into_values() {
            let invoked = send.invoked;
            let body = Body::Send(send);
            surroundings
                .recorder
                .record(client, invoked, Outcome::Unknown, body);
        }
    }
}

/// Records outside of transactions, many on their way at a time.
pub fn idempotent(surroundings: &Arc<Surroundings>, _name: &str, mut rng: Rng) {
    const IN_FLIGHT_MAX: usize = 2000;
    let recorder = &surroundings.recorder;
    let keys = keys_of(&[INPUT, MIXED]);
    while !recorder.is_stopping() {
        let Ok(writer) = Writer::idempotent(surroundings) else {
            pause(&mut rng, 200);
            continue;
        };
        let mut pending = Pending::default();
        // The client dies in the end, now and then with sends on their way.
        while !recorder.is_stopping() && rng.u16(..400) > 0 {
            for _ in 0..rng.usize(1..8) {
                let refused = pending.sends.len() > IN_FLIGHT_MAX;
                let key = rng.choice(&keys).filter(|_| !refused);
                pending.add(key.and_then(|key| writer.send(*key)));
            }
            pause(&mut rng, 80);
            pending.settle(surroundings, &writer);
        }
        if recorder.is_stopping() {
            while !pending.sends.is_empty() && writer.flush() {
                pending.settle(surroundings, &writer);
            }
        }
        pending.settle(surroundings, &writer);
        pending.give_up(surroundings, writer.client);
    }
}

#[cfg(test)]
#[path = "writers_test.rs"]
mod writers_test;
