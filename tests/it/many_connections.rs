//! Ten thousand connections that do nothing, or stop in the middle of something, cost little and hold nobody up.
//!
//! They are opened by a process of their own: both ends of as many would not fit under the limit of open files that common machines have.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use kavka::network::descriptors::raise_soft_limit;
use kavka::protocol::messages::ApiVersionsRequest;

use super::support::client::{Client, encode_request};
use super::support::node::{Node, wait_until};
use super::support::process::{descriptors, resident_kib, soft_limit_of_descriptors, threads};
use super::support::topic::{self, batch, fetch_request, produce};

const CONNECTIONS: usize = 10_000;
/// Where the generator connects; set in its own process only.
const TARGET: &str = "KAVKA_IT_CONNECTIONS_TO";
/// A debug build took 18 MiB without connections, and 60 MiB with them: 4 KiB for each.
const RESIDENT_MAX_KIB: u64 = 150 * 1024;

/// The generator: run by the test below, in a process of its own, until its input ends.
#[test]
#[ignore = "only a part of another test"]
fn connection_generator() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let target: SocketAddr = target.parse().unwrap();
    raise_soft_limit();
    let api_versions = encode_request(0, 1, &ApiVersionsRequest::default());
    let connections: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|index| {
            let mut stream = TcpStream::connect(target).unwrap();
            match index % 5 {
                // Nothing at all.
                0 => {}
                // Within the length.
                1 => stream.write_all(&[0, 0]).unwrap(),
                // Within the header.
                2 => stream.write_all(&[0, 0, 0, 40, 0, 3, 0, 12, 0]).unwrap(),
                // At the begin of a promised hundred megabytes.
                3 => stream.write_all(&[5, 0, 0, 0, 0, 0, 0, 9, 0, 0]).unwrap(),
                // After a request that was served.
                _ => {
                    stream.write_all(&api_versions).unwrap();
                    let mut size = [0; 4];
                    stream.read_exact(&mut size).unwrap();
                    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
                    stream.read_exact(&mut answer).unwrap();
                }
            }
            stream
        })
        .collect();
    println!("{} connections are open", connections.len());
    let _ = std::io::stdin().read(&mut [0]);
}

/// Starts the generator and waits until all is open.
fn open_connections(address: SocketAddr) -> (Child, BufReader<ChildStdout>) {
    let mut generator = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "many_connections::connection_generator",
            "--ignored",
            "--nocapture",
        ])
        .env(TARGET, address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(generator.stdout.take().unwrap());
    let is_open = output
        .by_ref()
        .lines()
        .map_while(Result::ok)
        .any(|line| line.ends_with("connections are open"));
    assert!(is_open, "the generator ended: {:?}", generator.wait());
    (generator, output)
}

/// How long a produce and a fetch take, sorted.
fn round_trips(client: &mut Client) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..200)
        .map(|number| {
            let started = Instant::now();
            let offset = produce(client, "t", 0, batch(None, &[number.to_string()])).unwrap();
            let fetched = client.call(topic::FETCH, &fetch_request("t", 0, offset, 1_000));
            assert_eq!(fetched.responses[0].partitions[0].high_watermark, offset + 1);
            started.elapsed()
        })
        .collect();
    times.sort();
    times
}

#[test]
fn ten_thousand_idle_and_half_open_connections_cost_little_and_hold_nobody_up() {
    let node = Node::start_with_soft_limit(500, &[]);
    let process = node.process_id();
    assert!(soft_limit_of_descriptors(process).is_none_or(|limit| limit > CONNECTIONS as u64));
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "t", 1, &[]);
    round_trips(&mut client);
    let (descriptors_before, threads_before) = (descriptors(process), threads(process));
    // Twice: the second must find all free that the first had.
    for round in 0..2 {
        let (mut generator, mut output) = open_connections(node.address());
        wait_until("the node has accepted all", || {
            descriptors(process) >= descriptors_before + CONNECTIONS
        });
        let times = round_trips(&mut client);
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        let resident = resident_kib(process);
        println!("round {round}: median {median:?}, worst {worst:?}, {resident} KiB resident");
        assert!(median < Duration::from_millis(50), "{median:?}");
        assert!(worst < Duration::from_secs(2), "{worst:?}");
        assert!(resident < RESIDENT_MAX_KIB, "{resident} KiB resident");
        assert!(threads(process) <= threads_before + 1);
        // A new client is served, too.
        round_trips(&mut Client::connect(node.address()));
        drop(generator.stdin.take());
        output.read_to_string(&mut String::new()).unwrap();
        assert!(generator.wait().unwrap().success());
        wait_until("all are closed", || descriptors(process) <= descriptors_before);
    }
    round_trips(&mut client);
}

/// Connections beyond the limit of open files cost the oldest idle ones their place, and never a log its files: else one client could
/// take all log directories offline.
#[test]
fn connections_beyond_the_limit_of_open_files_close_the_least_used_ones() {
    const LIMIT: u32 = 400;
    let script = format!("ulimit -n {LIMIT} && exec \"$0\" \"$@\"");
    let node = Node::start_through(vec!["sh".to_owned(), "-c".to_owned(), script], &[]);
    let mut client = Client::connect(node.address());
    for topic in 0..10 {
        topic::create(&mut client, &format!("t{topic}"), 10, &[]);
    }
    let mut flood = Vec::new();
    for index in 0..2 * LIMIT {
        flood.push(TcpStream::connect(node.address()).unwrap());
        if index % 10 == 0 {
            // In use all the time, so never the least recently used.
            produce(&mut client, "t0", 0, batch(None, &["value".to_owned()])).unwrap();
        }
    }
    // All files are opened, in turns.
    for topic in 0..10 {
        for partition in 0..10 {
            produce(
                &mut client,
                &format!("t{topic}"),
                partition,
                batch(None, &["value".to_owned()]),
            )
            .unwrap();
        }
    }
    topic::create(&mut client, "late", 1, &[]);
    assert!(
        Client::connect(node.address())
            .call(0, &ApiVersionsRequest::default())
            .error_code
            == 0
    );
    assert_eq!(flood[0].read(&mut [0]).unwrap_or(0), 0, "the oldest was closed");
    assert!(!node.output().contains("offline"), "{}", node.output());
}
