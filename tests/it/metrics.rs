//! What monitoring sees of a node: the page of `kavka.metrics.listener`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use bytes::Bytes;
use kavka::record::{BatchBuilder, BatchOptions};

use super::support::client::Client;
use super::support::node::{Node, PATIENCE, wait_until};
use super::support::ports::Port;
use super::support::topic::{self, produce};

fn ask(port: u16, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may be closed before all is written.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn page(port: u16) -> String {
    let answer = ask(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", body.len())),
        "{head}"
    );
    body.to_owned()
}

/// The value of a gauge, whatever its labels are.
fn value(page: &str, name: &str) -> Option<f64> {
    let line = page.lines().find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

/// A record of this key with a value of so many bytes.
fn keyed(key: &str, size: usize) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_700_000_000_000, Some(key.as_bytes()), Some(&vec![7; size]), &[]);
    builder.build().unwrap()
}

const UNCLEANABLE: &str = "kafka_log_logcleanermanager_uncleanable_partitions_count";
const UNCLEANABLE_BYTES: &str = "kafka_log_logcleanermanager_uncleanable_bytes";
const KNOWN_BAD: &str = "kavka_log_knownbad_ranges";

#[test]
fn partition_whose_cleaning_fails_shows_in_the_gauges() {
    let taken = Port::free();
    let port = taken.number();
    let listener = format!("127.0.0.1:{port}");
    let node = Node::start(&[
        ("kavka.metrics.listener", &listener),
        ("log.cleaner.backoff.ms", "100"),
    ]);
    let before = page(port);
    assert_eq!(value(&before, UNCLEANABLE), Some(0.0), "{before}");
    assert_eq!(value(&before, KNOWN_BAD), Some(0.0));
    assert_eq!(
        value(&before, "kafka_log_logmanager_offlinelogdirectorycount"),
        Some(0.0)
    );
    let directory = std::path::absolute(node.data()).unwrap();
    let offline = format!(
        "kafka_log_logmanager_logdirectoryoffline{{logdirectory=\"{}\"}} 0",
        directory.display()
    );
    assert!(before.contains(&offline), "{before}");

    let mut client = Client::connect(node.address());
    let configs = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0"),
        ("segment.bytes", "1048576"),
    ];
    topic::create(&mut client, "t", 1, &configs);
    produce(&mut client, "t", 0, keyed("a", 700_000)).unwrap();
    let path = node.data().join("t-0").join("00000000000000000000.log");
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(10_000)).unwrap();
    file.write_all(b"x").unwrap();
    drop(file);
    // It does not fit into the segment, which is closed then.
    produce(&mut client, "t", 0, keyed("a", 700_000)).unwrap();
    wait_until(
        "the partition counts as uncleanable, and its damage is known",
        || {
            let page = page(port);
            value(&page, UNCLEANABLE) == Some(1.0) && value(&page, KNOWN_BAD) == Some(1.0)
        },
    );
    assert!(value(&page(port), UNCLEANABLE_BYTES).unwrap() > 700_000.0);
}

#[test]
fn what_is_no_request_for_metrics_is_refused() {
    let taken = Port::free();
    let port = taken.number();
    let node = Node::start(&[("kavka.metrics.listener", &format!("127.0.0.1:{port}"))]);
    assert!(ask(port, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask(port, b"DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    let endless = [b"GET /metrics HTTP/1.1\r\nX: ", &[b'x'; 20_000][..]].concat();
    let answer = ask(port, &endless);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
        "{answer}"
    );
    let head = ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert!(!head.contains("Content-Length: 0\r\n"), "{head}");
    topic::create(&mut Client::connect(node.address()), "t", 1, &[]);
}

#[test]
fn connections_that_ask_nothing_hold_up_nobody_who_does() {
    let taken = Port::free();
    let port = taken.number();
    let _node = Node::start(&[("kavka.metrics.listener", &format!("127.0.0.1:{port}"))]);
    let mut silent = Vec::new();
    for more in [4, 60, 200] {
        for _ in 0..more {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(b"GET /met").unwrap();
            silent.push(stream);
        }
        let asked = Instant::now();
        page(port);
        assert!(asked.elapsed() < PATIENCE / 6, "{:?}", asked.elapsed());
    }
    // The oldest made room.
    wait_until("a silent connection is closed", || {
        silent[0].set_nonblocking(true).unwrap();
        silent[0]
            .read(&mut [0])
            .map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |read| read == 0)
    });
    let newest = silent.last_mut().unwrap();
    newest.write_all(b"rics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    newest.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}
