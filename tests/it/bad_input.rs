//! What a client must never send: the node answers as Apache Kafka does or closes that connection, with one line in its log, and
//! nobody else notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::{Decodable, StrBytes};
use kavka::protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, CreateTopicsResponse, DescribeGroupsResponse,
};

use super::support::client::{Client, encode_request};
use super::support::node::{Node, PATIENCE, wait_until};

/// A request's bytes without a size: header version 1 with a null client id, then `rest`.
fn request(key: i16, version: i16, rest: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    bytes.put_i16(key);
    bytes.put_i16(version);
    bytes.put_i32(5);
    bytes.put_i16(-1);
    bytes.put_slice(rest);
    bytes.to_vec()
}

fn framed(request: &[u8]) -> Vec<u8> {
    let mut frame = (request.len() as i32).to_be_bytes().to_vec();
    frame.extend(request);
    frame
}

fn connect(node: &Node) -> TcpStream {
    let stream = TcpStream::connect(node.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends `bytes`; the node closes without an answer.
fn assert_closed(node: &Node, what: &str, bytes: &[u8]) {
    let mut stream = connect(node);
    // The node may close before all is written.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => assert!(answer.is_empty(), "{what}: answered with {answer:?}"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}"),
    }
}

fn assert_serves(client: &mut Client) {
    let response: MetadataResponse = client.call(12, &MetadataRequest::default().with_topics(None));
    assert_eq!(response.brokers.len(), 1);
}

#[test]
fn malformed_requests_close_their_connection_with_a_line_and_harm_no_other() {
    let node = Node::start(&[("socket.request.max.bytes", "100000")]);
    let mut other = Client::connect(node.address());
    let bad: &[(&str, Vec<u8>, &str)] = &[
        ("negative size", (-1i32).to_be_bytes().to_vec(), "-1"),
        ("size over the limit", 100_001i32.to_be_bytes().to_vec(), "100001"),
        (
            "text instead of a size",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            "1195725856",
        ),
        ("no header", framed(&[]), "header"),
        ("header cut short", framed(&request(3, 12, &[])[..7]), "header"),
        ("unknown key", framed(&request(999, 0, &[])), "999"),
        ("negative key", framed(&request(-5, 0, &[])), "-5"),
        ("version above the range", framed(&request(3, 99, &[0; 8])), "99"),
        (
            "version removed in 4.0",
            framed(&request(0, 2, &[0; 8])),
            "Produce",
        ),
        (
            "key of the controller listener",
            framed(&request(52, 2, &[0; 8])),
            "Vote",
        ),
        ("body cut short", framed(&request(3, 1, &[0, 0])), "Metadata"),
        (
            "count of two billion",
            framed(&request(3, 1, &i32::MAX.to_be_bytes())),
            "2147483647",
        ),
    ];
    for (what, bytes, in_log) in bad {
        let before = node.output().len();
        assert_closed(&node, what, bytes);
        wait_until(&format!("the log tells of: {what}"), || {
            // The node logs a few such lines a second: one that was left out is asked for again.
            node.output()[before..].contains(in_log) || {
                assert_closed(&node, what, bytes);
                false
            }
        });
        assert_serves(&mut other);
    }
}

/// Java reads what is not UTF-8 with U+FFFD for what is wrong, and Kafka goes on: in names, and in the client's own.
#[test]
fn text_that_is_not_utf_8_is_replaced_and_answered() {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    // CreateTopics v4: a topic "a", byte 0xff, one partition and replica, no assignments and configs; 1 s; create it.
    let body = b"\0\0\0\x01\0\x02a\xff\0\0\0\x01\0\x01\0\0\0\0\0\0\0\0\0\0\x03\xe8\0";
    let mut bytes = vec![0, 19, 0, 4, 0, 0, 0, 5, 0, 2, b'c', 0xff];
    bytes.extend(body);
    client.stream().write_all(&framed(&bytes)).unwrap();
    let mut frame = client.receive_frame();
    assert_eq!(frame.get_i32(), 5);
    let response = CreateTopicsResponse::decode(&mut frame, 4).unwrap();
    assert_eq!(response.topics[0].name.as_str(), "a\u{fffd}");
    assert_eq!(response.topics[0].error_code, 17, "INVALID_TOPIC_EXCEPTION");
    // DescribeGroups v0 of a group of that name.
    let bytes = request(15, 0, &[0, 0, 0, 1, 0, 3, 0xc3, b'g', 0xff]);
    client.stream().write_all(&framed(&bytes)).unwrap();
    let mut frame = client.receive_frame();
    assert_eq!(frame.get_i32(), 5);
    let response = DescribeGroupsResponse::decode(&mut frame, 0).unwrap();
    assert_eq!(response.groups[0].group_id.as_str(), "\u{fffd}g\u{fffd}");
    assert_serves(&mut client);
}

#[test]
fn random_bytes_harm_nobody() {
    let node = Node::start(&[]);
    let mut other = Client::connect(node.address());
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..300 {
        let mut stream = connect(&node);
        let length = random.usize(1..2000);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        if round % 2 == 0 {
            // A size and a key that make the node look further.
            let key = random.i16(0..95);
            let version = random.i16(0..14);
            bytes = framed(&request(key, version, &bytes));
        }
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // Answered or closed, but never left hanging.
        let _ = stream.read_to_end(&mut Vec::new());
        if round % 50 == 0 {
            assert_serves(&mut other);
        }
    }
    assert_serves(&mut other);
    assert!(!node.output().contains("panicked"), "{}", node.output());
}

/// KIP-511: version 0, error 35, the one entry that helps, and no tagged fields in the header.
#[test]
fn api_versions_above_the_range_is_answered_in_version_0() {
    let node = Node::start(&[]);
    for version in [6, 99, i16::MAX, -1] {
        let mut stream = connect(&node);
        let unknown_body = [0, 1, 2, 3];
        stream
            .write_all(&framed(&request(18, version, &unknown_body)))
            .unwrap();
        let mut answer = [0; 20];
        stream.read_exact(&mut answer).unwrap();
        let expected = [0, 0, 0, 16, 0, 0, 0, 5, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 5];
        assert_eq!(answer, expected, "version {version}");
        // The connection goes on.
        stream
            .write_all(&encode_request(0, 6, &ApiVersionsRequest::default()))
            .unwrap();
        let mut size = [0; 4];
        stream.read_exact(&mut size).unwrap();
        assert!(i32::from_be_bytes(size) > 100);
    }
}

#[test]
fn api_versions_with_a_bad_software_name_or_meant_for_another_node_is_refused() {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    let mut asked = ApiVersionsRequest::default();
    asked.client_software_name = StrBytes::from_static_str("kavka-it");
    asked.client_software_version = StrBytes::from_static_str("1.0");
    let mut code = |asked: &ApiVersionsRequest| -> i16 {
        let response: ApiVersionsResponse = client.call(5, asked);
        assert_eq!(response.api_keys.is_empty(), response.error_code != 0);
        response.error_code
    };
    assert_eq!(code(&asked), 0);
    asked.node_id = 1;
    assert_eq!(code(&asked), 42, "a node without its cluster");
    asked.cluster_id = Some(StrBytes::from_static_str("another"));
    assert_eq!(code(&asked), 129, "another cluster");
    asked.node_id = -1;
    asked.cluster_id = None;
    asked.client_software_name = StrBytes::from_static_str("-bad-");
    assert_eq!(code(&asked), 42, "a bad name");
}

#[test]
fn half_open_and_slow_connections_are_closed_when_idle_and_do_not_hold_others_up() {
    let node = Node::start(&[("connections.max.idle.ms", "1000")]);
    let mut waiting: Vec<TcpStream> = Vec::new();
    for index in 0..300 {
        let mut stream = connect(&node);
        // Nothing, half a size, a size and nothing, a promise of megabytes and one byte.
        let begin: &[u8] = match index % 4 {
            0 => &[],
            1 => &[0, 0],
            2 => &[0, 0, 0, 20],
            _ => &[5, 0, 0, 0, 1],
        };
        stream.write_all(begin).unwrap();
        waiting.push(stream);
    }
    let mut other = Client::connect(node.address());
    assert_serves(&mut other);
    for mut stream in waiting {
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    }
    let mut other = Client::connect(node.address());
    assert_serves(&mut other);
    drop(other);
}

/// What is promised costs nothing: 2,000 connections announce 100 MB each.
#[test]
fn promised_megabytes_cost_no_memory() {
    let node = Node::start(&[]);
    let mut promising = Vec::new();
    for _ in 0..2_000 {
        let mut stream = connect(&node);
        stream.write_all(&100_000_000i32.to_be_bytes()).unwrap();
        stream.write_all(&[0; 10]).unwrap();
        promising.push(stream);
    }
    let mut other = Client::connect(node.address());
    assert_serves(&mut other);
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process_id())).unwrap();
    let resident_kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap();
    assert!(resident_kib < 200 * 1024, "{resident_kib} KiB resident");
}

#[test]
fn connections_over_the_limit_of_their_address_are_closed() {
    let node = Node::start(&[("max.connections.per.ip", "5")]);
    let mut kept: Vec<Client> = Vec::new();
    // The start of the node may have left a connection that is about to end.
    wait_until("five connections are served", || {
        let mut client = Client::connect(node.address());
        client
            .stream()
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        client
            .stream()
            .write_all(&encode_request(0, 1, &ApiVersionsRequest::default()))
            .unwrap();
        if client.try_receive_frame().is_some() {
            kept.push(client);
        }
        kept.len() == 5
    });
    let mut sixth = connect(&node);
    assert!(matches!(sixth.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert_serves(&mut kept[0]);
}
