//! What was read, and in which order.

use std::collections::{BTreeMap, HashMap};

use super::index::{Fate, Index, all_reads};
use super::{Kind, Report};
use crate::history::{Body, ClientId, Isolation, Key, Poll, Read, Time};

pub fn check(index: &Index<'_>, report: &mut Report) {
    for (read, isolation, at) in all_reads(index.history) {
        contents(index, read, isolation, at, report);
    }
    for (consumer, events) in consumers(index) {
        follow(index, consumer, events, report);
    }
}

fn contents(index: &Index<'_>, read: &Read, isolation: Isolation, at: Option<Time>, report: &mut Report) {
    let Read { key, offset, value } = read;
    let Some(write) = index.writes.get(value).filter(|write| write.send.key == *key) else {
        report.add(Kind::UnknownValue, format!("{value} in {key} at {offset}"));
        return;
    };
    let never_written = write.transaction.is_none();
    if write.fate == Fate::Aborted && (isolation == Isolation::ReadCommitted || never_written) {
        let id = write
            .transaction
            .map(|transaction| transaction.transactional_id.as_str());
        let detail = format!(
            "{value} in {key} at {offset}, of operation {} of {id:?}",
            write.operation
        );
        report.add(Kind::AbortedRead, detail);
        return;
    }
    let commit = write
        .transaction
        .and_then(|transaction| transaction.commit_invoked);
    if let (Some(at), Some(commit)) = (at, commit)
        && isolation == Isolation::ReadCommitted
        && at < commit
    {
        let detail =
            format!("{value} in {key} at {offset}: read at {at}, its commit was asked for at {commit}");
        report.add(Kind::IntermediateRead, detail);
    }
}

enum Event<'a> {
    Poll(&'a Poll),
    Repositioned,
}

/// What every consumer did, in order.
fn consumers<'a>(index: &Index<'a>) -> BTreeMap<ClientId, Vec<(Time, Event<'a>)>> {
    let mut consumers: BTreeMap<ClientId, Vec<(Time, Event<'a>)>> = BTreeMap::new();
    let mut polled = |poll: &'a Poll| {
        let events = consumers.entry(poll.consumer).or_default();
        events.push((poll.completed, Event::Poll(poll)));
    };
    for operation in &index.history.operations {
        match &operation.body {
            Body::Poll(poll) => polled(poll),
            Body::Transaction(transaction) => transaction.polls().for_each(&mut polled),
            Body::Send(_)
            | Body::Repositioned(_)
            | Body::Member(_)
            | Body::FinalRead(_)
            | Body::GroupOffset(_)
            | Body::Event(_) => {}
        }
    }
    for operation in &index.history.operations {
        if let Body::Repositioned(consumer) = &operation.body {
            let events = consumers.entry(*consumer).or_default();
            events.push((operation.invoked, Event::Repositioned));
        }
    }
    for events in consumers.values_mut() {
        events.sort_by_key(|(time, _)| *time);
    }
    consumers
}

fn follow(index: &Index<'_>, consumer: ClientId, events: Vec<(Time, Event<'_>)>, report: &mut Report) {
    let mut last: HashMap<Key, i64> = HashMap::new();
    for (time, event) in events {
        let poll = match event {
            Event::Poll(poll) => poll,
            Event::Repositioned => {
                last.clear();
                continue;
            }
        };
        for Read { key, offset, .. } in &poll.reads {
            let Some(before) = last.insert(*key, *offset) else {
                continue;
            };
            let reader = format!(
                "consumer {consumer} ({:?}) of {key} at time {time}",
                poll.isolation
            );
            if *offset <= before {
                let detail = format!("{reader}: {offset} after {before}");
                report.add(Kind::NonMonotonicPoll, detail);
            } else if let Some(skipped) = skipped(index, *key, poll.isolation, before, *offset) {
                let detail = format!("{reader}: {offset} after {before}, without {skipped}");
                report.add(Kind::SkippedRead, detail);
            }
        }
    }
}

/// The first record between two offsets that a reader should see.
fn skipped(index: &Index<'_>, key: Key, isolation: Isolation, after: i64, before: i64) -> Option<i64> {
    let truth = index.final_read(key, isolation)?;
    let next = truth.offsets.partition_point(|offset| *offset <= after);
    truth.offsets.get(next).copied().filter(|next| *next < before)
}
