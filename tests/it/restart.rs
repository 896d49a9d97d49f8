//! What is promised over restarts: after kill -9 every acknowledged record is there, in order, once; after SIGTERM nothing is recovered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::{Client, encode_request};
use crate::support::node::{Node, PATIENCE, wait_until};
use crate::support::topic::{self, Producer, batch, produce, read_all, value_of};

/// Duplicates of a batch that was appended, but whose answer the kill took away, are answered with this or success.
const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;

/// Connects again and again until the node is back.
fn reconnect(address: SocketAddr, stop: &AtomicBool) -> Option<Client> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(client) = Client::try_connect(address) {
            return Some(client);
        }
        if stop.load(Ordering::Relaxed) && Instant::now() > deadline {
            return None;
        }
        assert!(Instant::now() < deadline, "the node does not come back");
        thread::sleep(Duration::from_millis(5));
    }
}

/// An idempotent producer that sends numbered records until it is told to stop; returns how many were acknowledged.
fn produce_until(
    address: SocketAddr,
    topic: &str,
    partition: i32,
    acknowledged: &AtomicU64,
    stop: &AtomicBool,
) -> u64 {
    let mut client = Client::connect(address);
    let mut producer = Producer::initialize(&mut client);
    let mut next = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let count = 1 + next % 7;
        let values: Vec<String> = (next..next + count)
            .map(|number| format!("{partition}-{number}"))
            .collect();
        let records = batch(Some(producer), &values);
        // The same batch with the same sequence until it is acknowledged: the broker keeps it once.
        loop {
            let request = topic::produce_request(topic, partition, -1, records.clone());
            match client.try_call(topic::PRODUCE, &request) {
                Some(response) => {
                    let code = response.responses[0].partition_responses[0].error_code;
                    if code == 0 || code == DUPLICATE_SEQUENCE_NUMBER {
                        break;
                    }
                    // Retriable while the partition comes back: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, ...
                    assert!(
                        [3, 5, 6, 13].contains(&code),
                        "produce was answered with error {code}"
                    );
                    thread::sleep(Duration::from_millis(2));
                }
                None => match reconnect(address, stop) {
                    Some(again) => client = again,
                    None => return next,
                },
            }
        }
        next += count;
        acknowledged.store(next, Ordering::Release);
        producer.sequence += count as i32;
    }
    next
}

/// How often, unless the environment says.
pub fn rounds(variable: &str, default: usize) -> usize {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[test]
fn kill_under_load_keeps_every_acknowledged_record_once_and_in_order() {
    const PARTITIONS: i32 = 3;
    let mut node = Node::start(&[("log.segment.bytes", "1048576")]);
    topic::create(&mut Client::connect(node.address()), "killed", PARTITIONS, &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged: Vec<Arc<AtomicU64>> = (0..PARTITIONS).map(|_| Arc::default()).collect();
    let producers: Vec<_> = (0..PARTITIONS)
        .map(|partition| {
            let (stop, acknowledged, address) = (
                stop.clone(),
                acknowledged[partition as usize].clone(),
                node.address(),
            );
            thread::spawn(move || produce_until(address, "killed", partition, &acknowledged, &stop))
        })
        .collect();
    for _ in 0..rounds("KAVKA_KILL_ROUNDS", 3) {
        let goal: Vec<u64> = acknowledged
            .iter()
            .map(|count| count.load(Ordering::Acquire) + 500)
            .collect();
        wait_until("500 more records are acknowledged", || {
            acknowledged
                .iter()
                .zip(&goal)
                .all(|(count, goal)| count.load(Ordering::Acquire) >= *goal)
                || producers.iter().any(|producer| producer.is_finished())
        });
        node.kill();
        node.start_again();
    }
    stop.store(true, Ordering::Relaxed);
    let sent: Vec<u64> = producers
        .into_iter()
        .map(|producer| producer.join().unwrap())
        .collect();
    node.kill();
    node.start_again();
    for (partition, sent) in sent.iter().enumerate() {
        let found: Vec<String> = read_all(node.address(), "killed", partition as i32)
            .iter()
            .map(value_of)
            .collect();
        let wanted: Vec<String> = (0..*sent).map(|number| format!("{partition}-{number}")).collect();
        if let Some(index) = (0..found.len().max(wanted.len())).find(|i| found.get(*i) != wanted.get(*i)) {
            let around = |values: &[String]| {
                values
                    .iter()
                    .skip(index.saturating_sub(3))
                    .take(12)
                    .cloned()
                    .collect::<Vec<_>>()
            };
            panic!(
                "partition {partition} has {} records for {} that were acknowledged; from {index} on {:?} instead of {:?}",
                found.len(),
                wanted.len(),
                around(&found),
                around(&wanted)
            );
        }
    }
}

#[test]
fn producer_ids_are_never_given_twice_over_kills() {
    let mut node = Node::start(&[]);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let mut client = Client::connect(node.address());
        for _ in 0..20 {
            assert!(
                seen.insert(Producer::initialize(&mut client).id),
                "a producer id was given twice"
            );
        }
        node.kill();
        node.start_again();
    }
}

#[test]
fn clean_shutdown_is_quick_and_keeps_everything() {
    let mut node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "kept", 2, &[("segment.bytes", "1048576")]);
    for number in 0..100 {
        produce(
            &mut client,
            "kept",
            number % 2,
            batch(None, &[number.to_string()]),
        )
        .unwrap();
    }
    drop(client);
    let took = node.terminate();
    assert!(took < Duration::from_secs(1), "SIGTERM took {took:?}");
    assert!(
        node.data().join(".kafka_cleanshutdown").exists(),
        "no clean-shutdown file"
    );
    node.start_again();
    for partition in 0..2 {
        let values: Vec<String> = read_all(node.address(), "kept", partition)
            .iter()
            .map(value_of)
            .collect();
        let wanted: Vec<String> = (0..100)
            .filter(|n| n % 2 == partition)
            .map(|n| n.to_string())
            .collect();
        assert_eq!(values, wanted);
    }
}

#[test]
fn acks_zero_gets_no_answer_and_is_kept() {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "silent", 1, &[]);
    let request = topic::produce_request("silent", 0, 0, batch(None, &["a".to_owned()]));
    let frame = encode_request(topic::PRODUCE, 77, &request);
    std::io::Write::write_all(client.stream(), &frame).unwrap();
    // The next answer on the connection is that of the next request.
    assert_eq!(
        produce(&mut client, "silent", 0, batch(None, &["b".to_owned()])),
        Ok(1)
    );
    let values: Vec<String> = read_all(node.address(), "silent", 0)
        .iter()
        .map(value_of)
        .collect();
    assert_eq!(values, ["a", "b"]);
}
