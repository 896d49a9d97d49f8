//! kill -9 in the middle of creating and deleting topics: what was acknowledged holds, what was not is whole or not at all.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kafka_protocol::messages::MetadataRequest;
use kavka::protocol::messages::{CreateTopicsRequest, DeleteTopicsRequest, create_topics_request};

use super::restart::rounds;
use super::support::client::Client;
use super::support::node::{Node, wait_until};
use super::support::topic::{batch, name, produce};

const PARTITIONS: i32 = 3;

#[derive(Default)]
struct Topics {
    created: usize,
    there: BTreeSet<String>,
    /// Asked for and not answered yet.
    in_flight: Option<String>,
}

/// `None`: the node is gone.
fn create(client: &mut Client, topic: &str) -> Option<i16> {
    let creatable = create_topics_request::CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(PARTITIONS)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![creatable])
        .with_timeout_ms(30_000);
    Some(client.try_call(7, &request)?.topics[0].error_code)
}

fn delete(client: &mut Client, topic: &str) -> Option<i16> {
    let request = DeleteTopicsRequest::default()
        .with_topic_names(vec![name(topic)])
        .with_timeout_ms(30_000);
    Some(client.try_call(5, &request)?.responses[0].error_code)
}

/// Creates two topics for each that it deletes, until the node is gone.
fn change_until_gone(address: SocketAddr, topics: &Mutex<Topics>, answered: &AtomicUsize) {
    let mut client = Client::connect(address);
    loop {
        let (topic, deletes) = {
            let mut topics = topics.lock().unwrap();
            let oldest = topics.there.first().cloned();
            let chosen = match oldest {
                Some(oldest) if answered.load(Ordering::Relaxed) % 3 == 2 => {
                    topics.there.remove(&oldest);
                    (oldest, true)
                }
                _ => {
                    topics.created += 1;
                    (format!("topic-{:05}", topics.created), false)
                }
            };
            topics.in_flight = Some(chosen.0.clone());
            chosen
        };
        let code = if deletes {
            delete(&mut client, &topic)
        } else {
            create(&mut client, &topic)
        };
        let Some(code) = code else { return };
        assert_eq!(code, 0, "{topic}, deleted: {deletes}");
        let mut topics = topics.lock().unwrap();
        topics.in_flight = None;
        if !deletes {
            topics.there.insert(topic);
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

fn topics_of(client: &mut Client) -> BTreeSet<String> {
    let response = client.call(12, &MetadataRequest::default().with_topics(None));
    response
        .topics
        .iter()
        .map(|topic| {
            assert_eq!(topic.partitions.len(), PARTITIONS as usize);
            topic.name.as_ref().unwrap().to_string()
        })
        .collect()
}

#[test]
fn kill_among_creations_and_deletions_keeps_what_was_acknowledged() {
    let mut node = Node::start(&[]);
    let topics: Arc<Mutex<Topics>> = Arc::default();
    let answered: Arc<AtomicUsize> = Arc::default();
    for round in 0..rounds("KAVKA_KILL_ROUNDS", 5) {
        let goal = answered.load(Ordering::Relaxed) + 10;
        let changing = {
            let (address, topics, answered) = (node.address(), topics.clone(), answered.clone());
            thread::spawn(move || change_until_gone(address, &topics, &answered))
        };
        wait_until("some topics were created and deleted", || {
            answered.load(Ordering::Relaxed) >= goal || changing.is_finished()
        });
        // Somewhere in the next change: they take about a millisecond.
        thread::sleep(Duration::from_micros(300 * (round as u64 % 8)));
        node.kill();
        changing.join().unwrap();
        node.start_again();
        let mut client = Client::connect(node.address());
        let found = topics_of(&mut client);
        let mut topics = topics.lock().unwrap();
        if let Some(undecided) = topics.in_flight.take()
            && found.contains(&undecided)
        {
            topics.there.insert(undecided);
        }
        assert_eq!(found, topics.there, "round {round}");
        for topic in topics.there.iter().rev().take(3) {
            for partition in 0..PARTITIONS {
                produce(&mut client, topic, partition, batch(None, &["value".to_owned()])).unwrap();
            }
        }
    }
}
