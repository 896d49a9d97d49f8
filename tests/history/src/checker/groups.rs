//! Groups. Consume, transform, produce: each input is consumed by one committed transaction of a group. Where members only
//! read, each record is given to one of them, at least once, before the group is past it.
//!
//! A consumer that is moved may go on anywhere, so an offset of its group that is too high would be seen by nobody who looks
//! at one consumer. A group begins at the beginning.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::index::Index;
use super::{Kind, Report};
use crate::history::{Body, ClientId, GroupOffset, Isolation, Key, Member};

type Groups<'a, T> = BTreeMap<(&'a str, Key), T>;

pub fn check(index: &Index<'_>, report: &mut Report) {
    let mut offsets = offsets(index);
    report.counts.group_offsets = offsets.len();
    for ((group, key), (isolation, given)) in given(index, &offsets) {
        let offset = offsets.remove(&(group, key));
        let place = Place { index, group, key };
        each_was_given(&place, isolation, &given, offset, report);
    }
    let mut consumed = consumed(index);
    // What is left is of groups that consume in transactions.
    for place in offsets.keys() {
        consumed.entry(*place).or_default();
    }
    for ((group, key), mut inputs) in consumed {
        inputs.sort_unstable();
        let offset = offsets.get(&(group, key)).copied();
        let place = Place { index, group, key };
        each_was_consumed_once(&place, &inputs, offset, report);
    }
}

struct Place<'a> {
    index: &'a Index<'a>,
    group: &'a str,
    key: Key,
}

impl Place<'_> {
    /// Of the records before `past` those that are not `there`.
    fn missing(&self, isolation: Isolation, past: i64, there: impl Fn(&i64) -> bool) -> Vec<i64> {
        let Some(truth) = self.index.final_read(self.key, isolation) else {
            return Vec::new();
        };
        let before = truth.offsets.iter().take_while(|offset| **offset < past);
        before.filter(|offset| !there(offset)).copied().collect()
    }
}

fn each_was_given(
    place: &Place<'_>,
    isolation: Isolation,
    given: &BTreeSet<i64>,
    offset: Option<Option<i64>>,
    report: &mut Report,
) {
    let Place { group, key, .. } = place;
    report.counts.records_given += given.len();
    let given_to = given.last().map_or(0, |last| last + 1);
    let past = given_to.max(offset.flatten().unwrap_or(0));
    for missing in place.missing(isolation, past, |offset| given.contains(offset)) {
        let detail = format!("{group}: {key} at {missing}; the group got to {past}");
        report.add(Kind::Unread, detail);
    }
    match offset {
        Some(None) => report.add(Kind::LostCommit, format!("{group}: {key} has no offset")),
        // What was given and is not committed would be given again.
        Some(Some(offset)) if offset > 0 && !given.contains(&(offset - 1)) => {
            let detail = format!("{group}: {key}: {offset}, and nobody was given what is before it");
            report.add(Kind::InventedCommit, detail);
        }
        Some(Some(_)) | None => {}
    }
}

fn each_was_consumed_once(
    place: &Place<'_>,
    inputs: &[(i64, usize)],
    offset: Option<Option<i64>>,
    report: &mut Report,
) {
    let Place { group, key, .. } = place;
    report.counts.inputs_processed += inputs.len();
    for pair in inputs.windows(2) {
        if let [(offset, first), (other, second)] = pair
            && offset == other
        {
            let detail = format!("{group}: {key} at {offset}, by operations {first} and {second}");
            report.add(Kind::ProcessedTwice, detail);
        }
    }
    let consumed_to = inputs.last().map_or(0, |(last, _)| last + 1);
    let past = consumed_to.max(offset.flatten().unwrap_or(0));
    let processed: HashSet<i64> = inputs.iter().map(|(offset, _)| *offset).collect();
    for missing in place.missing(Isolation::ReadCommitted, past, |offset| {
        processed.contains(offset)
    }) {
        let detail = format!("{group}: {key} at {missing}; the group got to {past}");
        report.add(Kind::Unprocessed, detail);
    }
    let kind = match offset {
        None => return,
        Some(Some(offset)) if offset == consumed_to => return,
        Some(Some(offset)) if offset > consumed_to => Kind::InventedCommit,
        Some(_) => Kind::LostCommit,
    };
    let detail = format!("{group}: {key}: {offset:?}, its transactions consumed up to {consumed_to}");
    report.add(kind, detail);
}

/// Where groups stood at the end; `None`: nowhere.
fn offsets<'a>(index: &Index<'a>) -> Groups<'a, Option<i64>> {
    let operations = index.history.operations.iter();
    let offsets = operations.filter_map(|operation| match &operation.body {
        Body::GroupOffset(GroupOffset { group, key, offset }) => Some(((group.as_str(), *key), *offset)),
        _ => None,
    });
    offsets.collect()
}

/// What members were given outside of transactions, also of partitions of which it was nothing.
fn given<'a>(index: &Index<'a>, offsets: &Groups<'a, Option<i64>>) -> Groups<'a, (Isolation, BTreeSet<i64>)> {
    let operations = || index.history.operations.iter();
    let members: HashMap<ClientId, &'a Member> = operations()
        .filter_map(|operation| match &operation.body {
            Body::Member(member) => Some((member.consumer, member)),
            _ => None,
        })
        .collect();
    let isolations: HashMap<&str, Isolation> = members
        .values()
        .map(|member| (member.group.as_str(), member.isolation))
        .collect();
    let mut given: Groups<'a, (Isolation, BTreeSet<i64>)> = BTreeMap::new();
    for (group, key) in offsets.keys() {
        if let Some(isolation) = isolations.get(group) {
            given.insert((group, *key), (*isolation, BTreeSet::new()));
        }
    }
    for operation in operations() {
        if let Body::Poll(poll) = &operation.body
            && let Some(member) = members.get(&poll.consumer)
        {
            for read in &poll.reads {
                let place = (member.group.as_str(), read.key);
                let (_, given) = given
                    .entry(place)
                    .or_insert_with(|| (member.isolation, BTreeSet::new()));
                given.insert(read.offset);
            }
        }
    }
    given
}

/// The inputs of committed transactions, with their operations.
fn consumed<'a>(index: &Index<'a>) -> Groups<'a, Vec<(i64, usize)>> {
    let mut consumed: Groups<'a, Vec<(i64, usize)>> = BTreeMap::new();
    for (operation, transaction) in index.committed_transactions() {
        let Some(group) = &transaction.group else {
            continue;
        };
        for read in transaction.polls().flat_map(|poll| &poll.reads) {
            let inputs = consumed.entry((group, read.key)).or_default();
            inputs.push((read.offset, operation));
        }
    }
    consumed
}
