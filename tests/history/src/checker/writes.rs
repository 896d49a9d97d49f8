//! What became of what was written.

use std::collections::{BTreeMap, HashMap};

use super::index::{Fate, Index, Write};
use super::{Kind, Report};
use crate::history::{ClientId, FinalRead, Isolation, Key, Time, Value};

pub fn check(index: &Index<'_>, report: &mut Report) {
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        ends(index, isolation, report);
        missing(index, isolation, report);
    }
    places(index, report);
    order_of_clients(index, report);
    order_in_time(index, report);
}

/// Every partition that was written to was read to its end.
fn ends(index: &Index<'_>, isolation: Isolation, report: &mut Report) {
    let mut keys: Vec<Key> = index.writes.values().map(|write| write.send.key).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let Some(truth) = index.final_read(key, isolation) else {
            report.add(
                Kind::Stuck,
                format!("{key} was not read at the end as {isolation:?}"),
            );
            continue;
        };
        let FinalRead { position, end, .. } = truth.read;
        if !truth.reached_end() {
            let detail = format!("a reader of {key} as {isolation:?} stands at {position}, the end is {end}");
            report.add(Kind::Stuck, detail);
        }
        let records = match isolation {
            Isolation::ReadCommitted => &mut report.counts.records_committed,
            Isolation::ReadUncommitted => &mut report.counts.records_uncommitted,
        };
        *records += truth.values.len();
    }
}

/// Whether a reader must see it at the end.
fn is_expected(index: &Index<'_>, write: &Write<'_>, isolation: Isolation) -> bool {
    let seen = index.seen.contains_key(&write.send.value);
    let acknowledged = write.send.acknowledged.is_some();
    match (isolation, write.transaction) {
        (_, None) => acknowledged || seen,
        (Isolation::ReadCommitted, Some(_)) => write.fate == Fate::Committed,
        // What is aborted stays on the log.
        (Isolation::ReadUncommitted, Some(_)) => write.fate == Fate::Committed || acknowledged || seen,
    }
}

fn is_missing(index: &Index<'_>, write: &Write<'_>, isolation: Isolation) -> bool {
    let Some(truth) = index.final_read(write.send.key, isolation) else {
        return false;
    };
    if truth.values.contains(&write.send.value) {
        return false;
    }
    let offset = index.offset_of.get(&write.send.value);
    truth.reached_end() || offset.is_some_and(|offset| *offset < truth.read.position)
}

fn missing(index: &Index<'_>, isolation: Isolation, report: &mut Report) {
    let mut by_operation: BTreeMap<usize, Vec<&Write<'_>>> = BTreeMap::new();
    let expected = index
        .writes
        .values()
        .filter(|write| is_expected(index, write, isolation));
    for write in expected.filter(|write| is_missing(index, write, isolation)) {
        by_operation.entry(write.operation).or_default().push(write);
    }
    for (operation, mut missing) in by_operation {
        missing.sort_unstable_by_key(|write| write.send.invoked);
        let details: Vec<String> = missing.iter().map(|write| describe(index, write)).collect();
        let details = details.join(", ");
        match missing[0].transaction {
            Some(transaction) if isolation == Isolation::ReadCommitted => {
                let there = transaction.sends().filter(|send| {
                    let truth = index.final_read(send.key, isolation);
                    truth.is_some_and(|truth| truth.values.contains(&send.value))
                });
                let there: Vec<Value> = there.map(|send| send.value).collect();
                let kind = match there.is_empty() {
                    true => Kind::Lost,
                    false => Kind::TornTransaction,
                };
                let id = &transaction.transactional_id;
                report.add(
                    kind,
                    format!("transaction {operation} of {id}: {there:?} there, missing {details}"),
                );
            }
            _ => report.add(Kind::Lost, format!("{details}, as {isolation:?}")),
        }
    }
}

fn describe(index: &Index<'_>, write: &Write<'_>) -> String {
    let send = write.send;
    let offset = index.offset_of.get(&send.value);
    format!(
        "{} ({} at {offset:?}, sent at {})",
        send.value, send.key, send.invoked
    )
}

/// One value a place, one place a value.
fn places(index: &Index<'_>, report: &mut Report) {
    for pair in index.placements.windows(2) {
        let [(key, offset, first), (other_key, other_offset, second)] = pair else {
            continue;
        };
        if (key, offset) == (other_key, other_offset) {
            let detail = format!("{key} at {offset}: {first} and {second}");
            report.add(Kind::InconsistentOffset, detail);
        }
    }
    let mut by_value: Vec<_> = index
        .placements
        .iter()
        .map(|(key, at, value)| (*value, *key, *at))
        .collect();
    by_value.sort_unstable();
    for pair in by_value.windows(2) {
        let [(value, key, offset), (other_value, other_key, other_offset)] = pair else {
            continue;
        };
        if value == other_value {
            let detail = format!("{value}: {key} at {offset} and {other_key} at {other_offset}");
            report.add(Kind::Duplicate, detail);
        }
    }
}

/// What one client sends to a partition lies there in that order.
fn order_of_clients(index: &Index<'_>, report: &mut Report) {
    let placed = index.writes.values().filter_map(|write| {
        let offset = index.offset_of.get(&write.send.value)?;
        Some((
            write.client,
            write.send.key,
            write.send.invoked,
            *offset,
            write.send.value,
        ))
    });
    let mut placed: Vec<(ClientId, Key, Time, i64, Value)> = placed.collect();
    placed.sort_unstable();
    let mut highest: HashMap<(ClientId, Key), (i64, Value)> = HashMap::new();
    for (client, key, _, offset, value) in placed {
        let highest = highest.entry((client, key)).or_insert((offset, value));
        if offset < highest.0 {
            let (before, earlier) = *highest;
            let detail =
                format!("client {client} sent {earlier} then {value} to {key}: at {before} and {offset}");
            report.add(Kind::Reordered, detail);
        } else {
            *highest = (offset, value);
        }
    }
}

/// What is acknowledged before something else is sent lies before it, whoever sent it.
fn order_in_time(index: &Index<'_>, report: &mut Report) {
    let mut at: Option<Key> = None;
    let mut latest_sent: Option<(Time, ClientId, Value)> = None;
    for (key, offset, value) in &index.placements {
        let first = index.offset_of.get(value) == Some(offset);
        let Some(write) = index.writes.get(value).filter(|_| first) else {
            continue;
        };
        if at != Some(*key) {
            at = Some(*key);
            latest_sent = None;
        }
        if let (Some(acknowledged), Some((sent, client, later))) = (write.send.acknowledged, latest_sent)
            && acknowledged < sent
            // The order of one client's is judged above.
            && client != write.client
        {
            let detail =
                format!("{key}: {value} at {offset} was acknowledged before {later} below it was sent");
            report.add(Kind::Reordered, detail);
        }
        latest_sent = latest_sent.max(Some((write.send.invoked, write.client, *value)));
    }
}
