//! Members of a group that consume, transform and produce: each input leads to one output, in one transaction with the offsets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use rdkafka::TopicPartitionList;

use super::consumer::Reader;
use super::producer::{Called, Writer};
use super::writers::{Ongoing, commit_patience, pause};
use super::{INPUT, OUTPUT, PARTITIONS, Surroundings};
use crate::history::{Isolation, Key, Poll, Read, Step};

pub const GROUP: &str = "processors";

pub fn process(surroundings: &Arc<Surroundings>, transactional_id: &str, mut rng: Rng) {
    while !surroundings.recorder.is_stopping() {
        let Ok(reader) = Reader::member(surroundings, Isolation::ReadCommitted, GROUP, false) else {
            continue;
        };
        if reader.subscribe(&[INPUT]).is_err() {
            continue;
        }
        member(surroundings, transactional_id, &reader, &mut rng);
        pause(&mut rng, 200);
    }
}

/// One member, until it leaves: with an error, as killed, or because the time is over.
fn member(surroundings: &Arc<Surroundings>, transactional_id: &str, reader: &Reader, rng: &mut Rng) {
    let mut writer = None;
    while !surroundings.recorder.is_stopping() {
        let current = match writer.take() {
            Some(writer) => writer,
            // The successor ends what its predecessor left open; only then are the committed offsets final.
            None => match Writer::transactional(surroundings, transactional_id) {
                Ok(writer) if reader.rewind().is_ok() => writer,
                _ => return,
            },
        };
        let Some(inputs) = inputs(reader, rng) else {
            if reader.has_lost_its_place() {
                return;
            }
            writer = Some(current);
            continue;
        };
        let Some(metadata) = reader.group_metadata() else {
            return;
        };
        let group = Some(GROUP);
        let mut ongoing = Ongoing::new(surroundings, current.client, transactional_id, group);
        if current.begin() != Called::Ok {
            return;
        }
        let Ok(offsets) = offsets_behind(surroundings, &inputs.reads) else {
            return;
        };
        let outputs = inputs.reads.len();
        ongoing.transaction.steps.push(Step::Poll(inputs));
        let is_sent = (0..outputs).all(|_| {
            let partition = rng.u16(..PARTITIONS);
            let key = Key {
                topic: OUTPUT,
                partition,
            };
            ongoing.send(&current, key)
        });
        let told = match is_sent {
            true => current.send_offsets(&offsets, &metadata),
            false => Called::MustAbort,
        };
        let called = match (told, rng.u8(..100)) {
            (Called::Ok, 0..85) => ongoing.commit(surroundings, &current),
            (Called::Ok, 85..94) | (Called::MustAbort, _) => ongoing.abort(surroundings, &current),
            (Called::Ok, 94..97) => {
                ongoing.commit_and_die(surroundings, current, commit_patience(rng));
                continue;
            }
            (Called::Ok, _) | (Called::Broken, _) => {
                ongoing.abandon(surroundings, current);
                match rng.bool() {
                    true => return,
                    false => continue,
                }
            }
        };
        match called {
            Called::Ok => writer = Some(current),
            Called::MustAbort if reader.rewind().is_ok() => writer = Some(current),
            Called::MustAbort => return,
            Called::Broken => {}
        }
        pause(rng, 60);
    }
}

/// Of what was polled only what belongs to the present assignment.
fn inputs(reader: &Reader, rng: &mut Rng) -> Option<Poll> {
    let mut polls = reader.poll(rng.usize(1..10), Duration::from_millis(100));
    polls.pop().filter(|poll| !poll.reads.is_empty())
}

fn offsets_behind(surroundings: &Surroundings, reads: &[Read]) -> Result<TopicPartitionList> {
    let mut behind: BTreeMap<Key, i64> = BTreeMap::new();
    for read in reads {
        behind.insert(read.key, read.offset + 1);
    }
    surroundings.offsets(&Vec::from_iter(behind))
}
