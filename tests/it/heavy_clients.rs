//! Clients that ask for far more than others: they wait for themselves, in bounded memory, and nobody waits for them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use kavka::protocol::messages::FetchRequest;

use super::support::client::{Client, encode_request};
use super::support::node::{Node, PATIENCE};
use super::support::process::{resident_kib, resident_peak_kib, threads};
use super::support::topic::{self, batch, fetch_request, large_batch, name, produce};

fn small_round_trip(client: &mut Client) {
    let offset = produce(client, "small", 0, batch(None, &["value".to_owned()])).unwrap();
    let fetched = client.call(topic::FETCH, &fetch_request("small", 0, offset, 0));
    assert_eq!(fetched.responses[0].partitions[0].error_code, 0);
}

fn node_with_a_small_topic() -> (Node, Client) {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "small", 1, &[]);
    small_round_trip(&mut client);
    (node, client)
}

/// Hundreds of thousands of elements a request, on more connections than the node has threads.
#[test]
fn bulky_requests_take_turns_among_themselves() {
    const CONNECTIONS: usize = 6;
    const ELEMENTS: usize = 200_000;
    let (node, mut client) = node_with_a_small_topic();
    let address = node.address();
    let asked = MetadataRequestTopic::default().with_name(Some(name("missing")));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![asked; ELEMENTS]))
        .with_allow_auto_topic_creation(false);
    let frame = encode_request(4, 1, &request);
    let answered: Arc<AtomicUsize> = Arc::default();
    let bulky: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut connection = Client::connect(address);
            let (frame, answered) = (frame.clone(), answered.clone());
            thread::spawn(move || {
                connection.stream().write_all(&frame).unwrap();
                let response = connection.receive_frame();
                answered.fetch_add(1, Ordering::Relaxed);
                response.len()
            })
        })
        .collect();
    let mut round_trips = 0;
    while answered.load(Ordering::Relaxed) < CONNECTIONS {
        small_round_trip(&mut client);
        round_trips += 1;
    }
    for thread in bulky {
        thread.join().unwrap();
    }
    // Where bulky requests occupy all threads, there is hardly one for each of them.
    assert!(
        round_trips > 10 * CONNECTIONS,
        "{round_trips} round trips meanwhile"
    );
    let response: MetadataResponse = client.call(12, &MetadataRequest::default().with_topics(None));
    assert_eq!(response.topics.len(), 1);
}

/// Fetches of megabytes that nobody reads wait in files, not in memory.
#[test]
fn unread_fetches_cost_no_memory_and_no_threads() {
    const READERS: usize = 200;
    const PIPELINED: usize = 10;
    let (node, mut client) = node_with_a_small_topic();
    topic::create(&mut client, "large", 1, &[]);
    for _ in 0..20 {
        produce(&mut client, "large", 0, large_batch(900_000)).unwrap();
    }
    let before = (resident_kib(node.process_id()), threads(node.process_id()));
    let mut request = fetch_request("large", 0, 0, 0);
    request.topics[0].partitions[0].partition_max_bytes = 50 << 20;
    let mut frames = Vec::new();
    for correlation_id in 1..=PIPELINED as i32 {
        frames.extend_from_slice(&encode_request(topic::FETCH, correlation_id, &request));
    }
    let mut readers: Vec<TcpStream> = (0..READERS)
        .map(|_| {
            let mut stream = TcpStream::connect(node.address()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&frames).unwrap();
            stream
        })
        .collect();
    // Each has begun to get its answer.
    for reader in &mut readers {
        let mut size = [0; 4];
        reader.read_exact(&mut size).unwrap();
        assert!(u32::from_be_bytes(size) > 18_000_000);
    }
    let started = Instant::now();
    for _ in 0..20 {
        small_round_trip(&mut client);
    }
    assert!(started.elapsed() < PATIENCE / 6, "{:?}", started.elapsed());
    let grown = resident_kib(node.process_id()).saturating_sub(before.0);
    assert!(grown < 64 * 1024, "{grown} KiB more are resident");
    assert!(threads(node.process_id()) <= before.1 + 1);
    // One that reads after all gets all.
    let mut rest = vec![0; 18_000_000 * PIPELINED];
    readers[0].read_exact(&mut rest).unwrap();
}

/// A session remembers its partitions; there is a bound on what all sessions may.
#[test]
fn sessions_of_very_many_partitions_are_bounded() {
    const PARTITIONS: i32 = 50_000;
    let (node, mut client) = node_with_a_small_topic();
    let mut request: FetchRequest = fetch_request("small", 0, 0, 0).with_session_epoch(0);
    let template = request.topics[0].partitions[0].clone();
    request.topics[0].partitions = (0..PARTITIONS)
        .map(|partition| template.clone().with_partition(partition))
        .collect();
    let with_a_session = (0..60)
        .filter(|_| {
            let response = client.call(11, &request);
            assert_eq!(response.error_code, 0);
            response.session_id != 0
        })
        .count();
    assert!((1..60).contains(&with_a_session), "{with_a_session} sessions");
    let peak = resident_peak_kib(node.process_id());
    assert!(peak < 700 * 1024, "{peak} KiB were resident");
    small_round_trip(&mut client);
}
