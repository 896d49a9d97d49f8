//! Workers that only read, and the readings at the end, which all else is held against.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;

use super::consumer::Reader;
use super::processors::GROUP;
use super::writers::pause;
use super::{INPUT, MIXED, OUTPUT, Surroundings, keys_of};
use crate::history::{Body, FinalRead, GroupOffset, Isolation, Key, Outcome};

pub const ALL: [u16; 3] = [INPUT, MIXED, OUTPUT];
/// After the last client is gone: transactions must time out, offsets load, the last markers be written.
const PATIENCE: Duration = Duration::from_secs(60);

fn isolation_of(name: &str) -> Isolation {
    match name {
        "committed" => Isolation::ReadCommitted,
        _ => Isolation::ReadUncommitted,
    }
}

fn poll_and_record(surroundings: &Surroundings, reader: &Reader, patience: Duration) {
    let recorder = &surroundings.recorder;
    let invoked = recorder.now();
    let polls = reader.poll(200, patience);
    // Of what came before the last move nothing is committed: it belongs to somebody else, or is read again.
    let last = polls.last().map(|poll| poll.reads.clone()).unwrap_or_default();
    for poll in polls {
        if !poll.reads.is_empty() {
            recorder.record(reader.client, invoked, Outcome::Ok, Body::Poll(poll));
        }
    }
    reader.store(&last);
}

/// Before its first member: see `consumer` on why it must not look its beginning up.
pub fn begin_group(surroundings: &Arc<Surroundings>, group: &str, topics: &[u16]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let reader = Reader::new(surroundings, Isolation::ReadCommitted, group)?;
    loop {
        match reader.commit_beginnings(&keys_of(topics)) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Reads all partitions; begins anew now and then, at the beginning or near the end.
pub fn assigned(surroundings: &Arc<Surroundings>, name: &str, mut rng: Rng) {
    let keys = keys_of(&ALL);
    let beginnings: Vec<(Key, i64)> = keys.iter().map(|key| (*key, 0)).collect();
    let mut distance = None;
    while !surroundings.recorder.is_stopping() {
        let reader = Reader::new(surroundings, isolation_of(name), "assigned");
        let assign = |reader: &Reader| match distance {
            None => reader.assign(&beginnings),
            Some(distance) => reader.assign_near_ends(&keys, distance),
        };
        let Some(reader) = reader.ok().filter(|reader| assign(reader).is_ok()) else {
            pause(&mut rng, 200);
            continue;
        };
        while !surroundings.recorder.is_stopping() && rng.u16(..600) > 0 {
            poll_and_record(surroundings, &reader, Duration::from_millis(50));
        }
        distance = Some(rng.i64(0..500));
    }
}

/// Groups whose members only read; they are named like what they see.
pub const GROUPS: [&str; 2] = ["committed", "uncommitted"];

/// Reads what its group gives it; dies now and then, so that the group moves.
pub fn subscribed(surroundings: &Arc<Surroundings>, name: &str, mut rng: Rng) {
    while !surroundings.recorder.is_stopping() {
        let reader = Reader::member(surroundings, isolation_of(name), name, true);
        let Some(reader) = reader.ok().filter(|reader| reader.subscribe(&ALL).is_ok()) else {
            pause(&mut rng, 200);
            continue;
        };
        reader.joins(name);
        while !surroundings.recorder.is_stopping() && !reader.has_lost_its_place() && rng.u16(..400) > 0 {
            poll_and_record(surroundings, &reader, Duration::from_millis(50));
        }
    }
}

/// Every partition from its beginning, by readers of both isolations.
pub fn read_to_the_end(surroundings: &Arc<Surroundings>) -> Result<()> {
    let committed = Reader::new(surroundings, Isolation::ReadCommitted, "end")?;
    let uncommitted = Reader::new(surroundings, Isolation::ReadUncommitted, "end")?;
    let deadline = Instant::now() + PATIENCE;
    for key in keys_of(&ALL) {
        let (mut stable, mut end) = ends(&committed, &uncommitted, key, deadline)?;
        while stable < end && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(100));
            (stable, end) = ends(&committed, &uncommitted, key, deadline)?;
        }
        read_partition(
            surroundings,
            &committed,
            Isolation::ReadCommitted,
            key,
            stable,
            end,
        )?;
        read_partition(
            surroundings,
            &uncommitted,
            Isolation::ReadUncommitted,
            key,
            end,
            end,
        )?;
    }
    Ok(())
}

/// Where the groups stand, once their members are gone and no transaction is open.
pub fn ask_for_offsets(surroundings: &Arc<Surroundings>) -> Result<()> {
    let groups = GROUPS.map(|group| (group, &ALL[..]));
    for (group, topics) in groups.into_iter().chain([(GROUP, &[INPUT][..])]) {
        let reader = Reader::new(surroundings, Isolation::ReadCommitted, group)?;
        let invoked = surroundings.recorder.now();
        let deadline = Instant::now() + PATIENCE;
        let offsets = loop {
            match reader.committed(&keys_of(topics)) {
                Ok(offsets) => break offsets,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        };
        for (key, offset) in offsets {
            let end = GroupOffset {
                group: group.to_owned(),
                key,
                offset,
            };
            let body = Body::GroupOffset(end);
            surroundings
                .recorder
                .record(reader.client, invoked, Outcome::Ok, body);
        }
    }
    Ok(())
}

/// The last stable offset and the high watermark, once the node tells.
fn ends(committed: &Reader, uncommitted: &Reader, key: Key, deadline: Instant) -> Result<(i64, i64)> {
    loop {
        match (committed.end(key), uncommitted.end(key)) {
            (Ok(stable), Ok(end)) => return Ok((stable, end)),
            (Err(error), _) | (_, Err(error)) if Instant::now() > deadline => return Err(error),
            _ => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn read_partition(
    surroundings: &Surroundings,
    reader: &Reader,
    isolation: Isolation,
    key: Key,
    reachable: i64,
    end: i64,
) -> Result<()> {
    let invoked = surroundings.recorder.now();
    reader.assign(&[(key, 0)])?;
    let mut reads = Vec::new();
    let mut position = 0;
    let mut patient_until = Instant::now() + PATIENCE;
    while Instant::now() < patient_until {
        match reader.next(Duration::from_millis(100)) {
            Some(Ok(read)) => {
                position = read.offset + 1;
                reads.push(read);
                patient_until = Instant::now() + PATIENCE;
            }
            Some(Err(_)) => {
                position = reachable;
                break;
            }
            None => {}
        }
    }
    let read = FinalRead {
        key,
        isolation,
        reads,
        position,
        end,
    };
    let body = Body::FinalRead(read);
    surroundings
        .recorder
        .record(reader.client, invoked, Outcome::Ok, body);
    Ok(())
}
