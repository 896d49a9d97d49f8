use std::io::{Read, Write};
use std::sync::Mutex;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::oneshot;

use super::*;
use crate::api::{Answer, RequestError, ResponseFrame, ResponsePart};
use crate::config::SecurityProtocol;
use crate::io::clock::SystemClock;
use crate::io::disk::{Disk, DiskFile, FileSlice, OpenMode, SystemDisk};
use crate::io::stalling_disk::{StallingCall, StallingDisk};
use crate::network::Handling;

/// Answers by the first byte of a request: `e`cho, `l`ater (when `release` says), `n`othing, `f`ile, a `g`reat file, `b`ad, `p`anic.
#[derive(Default)]
struct Puppet {
    later: Mutex<Vec<oneshot::Sender<()>>>,
    file: Option<Arc<dyn DiskFile>>,
    frames: Mutex<Vec<Bytes>>,
}

fn framed(bytes: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(bytes.len() as i32);
    frame.put_slice(bytes);
    frame.freeze()
}

impl Puppet {
    fn release(&self, index: usize) {
        self.later.lock().unwrap().remove(index).send(()).unwrap();
    }

    fn waiting(&self) -> usize {
        self.later.lock().unwrap().len()
    }

    fn answer(&self, frame: Bytes) -> Result<Answer, RequestError> {
        self.frames.lock().unwrap().push(frame.clone());
        match frame.first() {
            Some(b'e') => Ok(Answer::Ready(ResponseFrame::from_bytes(framed(&frame)))),
            Some(b'n') => Ok(Answer::Nothing),
            Some(b'l') => {
                let (sender, receiver) = oneshot::channel();
                self.later.lock().unwrap().push(sender);
                Ok(Answer::Later(Box::pin(async move {
                    receiver.await.unwrap();
                    Ok(ResponseFrame::from_bytes(framed(&frame)))
                })))
            }
            Some(b'f') => {
                let slice = |position, length| {
                    ResponsePart::File(FileSlice {
                        file: self.file.clone().unwrap(),
                        position,
                        length,
                    })
                };
                let head = Bytes::from_static(b"\0\0\0\x0ahead");
                let parts = vec![
                    ResponsePart::Bytes(head),
                    slice(2, 3),
                    ResponsePart::Bytes(Bytes::from_static(b"-")),
                    slice(6, 2),
                ];
                Ok(Answer::Ready(ResponseFrame { parts }))
            }
            Some(b'g') => Ok(Answer::Ready(ResponseFrame {
                parts: vec![ResponsePart::File(FileSlice {
                    file: self.file.clone().unwrap(),
                    position: 0,
                    length: 1 << 30,
                })],
            })),
            Some(b'p') => panic!("asked to"),
            _ => Err(RequestError::Header("bad")),
        }
    }
}

impl RequestHandler for Puppet {
    fn handle<'a>(&'a self, _: &'a Arc<ConnectionContext>, frame: Bytes) -> Handling<'a> {
        Box::pin(async move { self.answer(frame) })
    }
}

fn config() -> NetworkConfig {
    NetworkConfig {
        socket_listen_backlog_size: 50,
        socket_receive_buffer_bytes: 102_400,
        socket_send_buffer_bytes: 102_400,
        socket_request_max_bytes: 4 * 1024 * 1024,
        queued_max_request_bytes: -1,
        connections_max_idle_ms: 600_000,
        max_connections: i32::MAX,
        max_connections_per_ip: i32::MAX,
        max_connections_per_ip_overrides: String::new(),
        inter_broker_listener_name: "PLAINTEXT".to_owned(),
        open_connections_max: usize::MAX,
        request_bytes_max: usize::MAX,
    }
}

#[test]
fn buffers_are_the_systems_unless_a_size_was_asked_for() {
    let sizes_with = |overrides: &[(&str, &str)]| {
        let config = NetworkConfig::from(&KafkaConfig::development_with(overrides).unwrap());
        (
            config.socket_receive_buffer_bytes,
            config.socket_send_buffer_bytes,
        )
    };
    assert_eq!(sizes_with(&[]), (-1, -1));
    assert_eq!(
        sizes_with(&[("socket.send.buffer.bytes", "102400")]),
        (-1, 102_400)
    );
    assert_eq!(
        sizes_with(&[("socket.receive.buffer.bytes", "102400")]),
        (102_400, -1)
    );
    let left_to_the_system = [
        ("socket.receive.buffer.bytes", "-1"),
        ("socket.send.buffer.bytes", "-1"),
    ];
    assert_eq!(sizes_with(&left_to_the_system), (-1, -1));
}

fn endpoint(host: &str, port: u16) -> Endpoint {
    Endpoint {
        listener_name: "PLAINTEXT".to_owned(),
        security_protocol: SecurityProtocol::Plaintext,
        host: host.to_owned(),
        port,
    }
}

struct Node {
    puppet: Arc<Puppet>,
    server: SocketServer,
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
}

impl Node {
    fn start(config: NetworkConfig, puppet: Puppet) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let puppet = Arc::new(puppet);
        let bound = BoundListener::bind(&endpoint("127.0.0.1", 0), ListenerScope::Broker, &config).unwrap();
        let address = bound.local_address();
        let mut server = SocketServer::new(config, puppet.clone(), Arc::new(SystemClock::new())).unwrap();
        server.start(vec![bound], runtime.handle()).unwrap();
        Self {
            puppet,
            server,
            address,
            runtime,
        }
    }

    fn connect(&self) -> std::net::TcpStream {
        let stream = std::net::TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

fn send(stream: &mut std::net::TcpStream, request: &[u8]) {
    stream.write_all(&framed(request)).unwrap();
}

fn receive(stream: &mut std::net::TcpStream) -> Vec<u8> {
    let mut size = [0; 4];
    stream.read_exact(&mut size).unwrap();
    let mut body = vec![0; i32::from_be_bytes(size) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}

/// The peer closes without another byte.
fn assert_closed(stream: &mut std::net::TcpStream) {
    let mut byte = [0; 1];
    assert!(
        matches!(stream.read(&mut byte), Ok(0))
            || matches!(stream.read(&mut byte), Err(e) if e.kind() == io::ErrorKind::ConnectionReset)
    );
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn requests_in_one_write_are_answered_in_order() {
    let node = Node::start(config(), Puppet::default());
    let mut stream = node.connect();
    let mut bytes = Vec::new();
    for number in 0..500 {
        bytes.extend(framed(format!("e{number}").as_bytes()));
    }
    stream.write_all(&bytes).unwrap();
    for number in 0..500 {
        assert_eq!(receive(&mut stream), format!("e{number}").into_bytes());
    }
}

#[test]
fn requests_in_single_bytes_and_in_megabytes_come_whole() {
    let node = Node::start(config(), Puppet::default());
    let mut stream = node.connect();
    for byte in framed(b"e-slow").iter() {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(receive(&mut stream), b"e-slow");
    for size in [4095, 4096, 4097, 100_000, 1024 * 1024, 1024 * 1024 + 1, 3_000_000] {
        let mut request: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        request[0] = b'e';
        let mut sender = stream.try_clone().unwrap();
        let sent = request.clone();
        let writer = std::thread::spawn(move || {
            send(&mut sender, &sent);
            send(&mut sender, b"e-next");
        });
        assert!(receive(&mut stream) == request, "{size}");
        assert_eq!(receive(&mut stream), b"e-next");
        writer.join().unwrap();
    }
}

/// Requests of all sizes, many in flight: what arrives together is read ahead, answered together, and stays in order.
#[test]
fn requests_in_flight_of_mixed_sizes_are_answered_each_and_in_order() {
    let node = Node::start(config(), Puppet::default());
    let mut random = fastrand::Rng::with_seed(11);
    let requests: Vec<Vec<u8>> = (0..200u8)
        .map(|index| {
            let size = match random.u8(0..4) {
                0 => random.usize(2..50),
                1 => random.usize(2..5_000),
                2 => 20_000,
                _ => random.usize(2..60_000),
            };
            let mut request = vec![index; size];
            request[0] = b'e';
            request
        })
        .collect();
    let mut stream = node.connect();
    let mut sender = stream.try_clone().unwrap();
    let bytes: Vec<u8> = requests.iter().flat_map(|request| framed(request)).collect();
    let sending = std::thread::spawn(move || {
        let mut left = &bytes[..];
        while !left.is_empty() {
            let (now, rest) = left.split_at(left.len().min(random.usize(1..100_000)));
            sender.write_all(now).unwrap();
            left = rest;
        }
    });
    for request in &requests {
        assert_eq!(receive(&mut stream), *request);
    }
    sending.join().unwrap();
}

/// A client that lost the answer to a produce would send it again. The end of a connection is a request that is refused, one
/// that panics (a mistake of ours), or a size that cannot be.
#[test]
fn answers_before_a_request_that_ends_the_connection_are_sent() {
    let node = Node::start(config(), Puppet::default());
    for bad in [
        framed(b"bad"),
        framed(b"p"),
        Bytes::from_static(b"\x7f\xff\xff\xff"),
        Bytes::from_static(b"\xff\xff\xff\xff"),
    ] {
        for before in ["e", "ee", "l", "el", "le", "ll", "ele"] {
            let mut stream = node.connect();
            let mut bytes = Vec::new();
            for request in before.bytes() {
                bytes.extend_from_slice(&framed(&[request]));
            }
            bytes.extend_from_slice(&bad);
            stream.write_all(&bytes).unwrap();
            let later = before.matches('l').count();
            wait_until("handled", || node.puppet.waiting() == later);
            for _ in 0..later {
                node.puppet.release(0);
            }
            for request in before.bytes() {
                assert_eq!(receive(&mut stream), [request], "{before} before {bad:?}");
            }
            let mut rest = Vec::new();
            // Closed, or reset where what was sent is left unread.
            stream.read_to_end(&mut rest).ok();
            assert!(rest.is_empty());
        }
    }
}

#[test]
fn later_answers_let_the_next_request_start_and_keep_their_order() {
    let node = Node::start(config(), Puppet::default());
    let mut stream = node.connect();
    for request in [&b"l1"[..], b"l2", b"n", b"e3"] {
        send(&mut stream, request);
    }
    wait_until("all four handled", || {
        node.puppet.frames.lock().unwrap().len() == 4
    });
    node.puppet.release(1);
    node.puppet.release(0);
    for answer in [&b"l1"[..], b"l2", b"e3"] {
        assert_eq!(receive(&mut stream), answer);
    }
}

#[test]
fn later_answers_beyond_the_bound_stop_the_reading() {
    let node = Node::start(config(), Puppet::default());
    let mut stream = node.connect();
    let bound = crate::network::connection::PENDING_ANSWERS_MAX;
    for _ in 0..bound + 1 {
        send(&mut stream, b"l");
    }
    wait_until("as many as may wait", || node.puppet.waiting() == bound);
    node.puppet.release(0);
    assert_eq!(receive(&mut stream), b"l");
    wait_until("one more", || node.puppet.waiting() == bound);
}

#[test]
fn file_ranges_are_sent_between_the_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    let test_file = |is_real| -> Arc<dyn DiskFile> {
        let file = std::fs::File::open(&path).unwrap();
        Arc::new(TestFile { file, is_real })
    };
    let gathered = SystemDisk::new().open(&path, OpenMode::Read).unwrap();
    for file in [test_file(true), test_file(false), gathered] {
        let puppet = Puppet {
            file: Some(file),
            ..Puppet::default()
        };
        let node = Node::start(config(), puppet);
        let mut stream = node.connect();
        send(&mut stream, b"f");
        assert_eq!(receive(&mut stream), b"head234-67");
        send(&mut stream, b"e");
        assert_eq!(receive(&mut stream), b"e");
    }
}

/// More of them than workers, by sendfile and copied.
#[test]
fn reads_that_wait_for_a_disk_hold_up_no_other_connection() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    let disk = StallingDisk::new(Arc::new(SystemDisk::new()));
    let puppet = Puppet {
        file: Some(disk.open(&path, OpenMode::Read).unwrap()),
        ..Puppet::default()
    };
    let node = Node::start(config(), puppet);
    disk.stall(directory.path(), StallingCall::Read);
    let mut readers: Vec<_> = (0..5).map(|_| node.connect()).collect();
    for reader in &mut readers {
        send(reader, b"f");
    }
    wait_until("all of them hang", || disk.hanging() == 5);
    let mut other = node.connect();
    for _ in 0..20 {
        let began = Instant::now();
        send(&mut other, b"e");
        assert_eq!(receive(&mut other), b"e");
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(disk.hanging(), 5);
    disk.release();
    for reader in &mut readers {
        assert_eq!(receive(reader), b"head234-67");
    }
}

#[test]
fn bad_sizes_and_refused_requests_close_their_connection_only() {
    let node = Node::start(config(), Puppet::default());
    let mut other = node.connect();
    let too_large = (4 * 1024 * 1024 + 1i32).to_be_bytes();
    for bytes in [
        &[0xff; 8][..],
        &[0x80, 0, 0, 0],
        &too_large,
        &framed(b"bad"),
        &framed(b""),
        &framed(b"p"),
    ] {
        let mut stream = node.connect();
        stream.write_all(bytes).unwrap();
        assert_closed(&mut stream);
        send(&mut other, b"e");
        assert_eq!(receive(&mut other), b"e");
    }
}

fn node_with_idle_limit(connections_max_idle_ms: i64, puppet: Puppet) -> Node {
    let config = NetworkConfig {
        connections_max_idle_ms,
        ..config()
    };
    Node::start(config, puppet)
}

#[test]
fn idle_connection_is_closed_in_the_middle_of_a_frame_too() {
    let node = node_with_idle_limit(150, Puppet::default());
    let mut idle = node.connect();
    assert_closed(&mut idle);
    let mut half_open = node.connect();
    half_open.write_all(&[0, 0, 0]).unwrap();
    assert_closed(&mut half_open);
}

/// Apache Kafka 4.4 closes a connection whose fetch waits for longer than `connections.max.idle.ms`.
#[test]
fn connection_that_waits_for_its_answer_is_closed_when_nothing_moves() {
    let node = node_with_idle_limit(150, Puppet::default());
    let mut waiting = node.connect();
    send(&mut waiting, b"l");
    assert_closed(&mut waiting);
    wait_until("its request is given up", || {
        let later = node.puppet.later.lock().unwrap();
        later.iter().all(oneshot::Sender::is_closed)
    });
}

#[test]
fn peer_that_does_not_read_its_answer_is_idle_but_a_slow_one_is_not() {
    let file = Arc::new(EndlessFile);
    let weak = Arc::downgrade(&file);
    let puppet = Puppet {
        file: Some(file),
        ..Puppet::default()
    };
    let node = node_with_idle_limit(300, puppet);
    let mut deaf = node.connect();
    send(&mut deaf, b"g");
    wait_until("its answer is begun", || weak.strong_count() == 2);
    wait_until("the answer and its file are given up", || {
        weak.strong_count() == 1
    });
    drop(deaf);
    let mut slow = node.connect();
    send(&mut slow, b"g");
    let mut buffer = vec![0; 256 * 1024];
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        assert!(slow.read(&mut buffer).unwrap() > 0);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn connection_over_the_address_limit_is_closed() {
    let node = Node::start(
        NetworkConfig {
            max_connections_per_ip: 1,
            ..config()
        },
        Puppet::default(),
    );
    let mut first = node.connect();
    send(&mut first, b"e");
    receive(&mut first);
    assert_closed(&mut node.connect());
    drop(first);
    wait_until("the place is free again", || {
        let mut stream = node.connect();
        stream.write_all(&framed(b"e")).is_ok() && stream.read(&mut [0; 4]).is_ok_and(|count| count > 0)
    });
}

#[test]
fn connection_over_the_total_waits_for_its_turn() {
    let node = Node::start(
        NetworkConfig {
            max_connections: 1,
            ..config()
        },
        Puppet::default(),
    );
    let mut first = node.connect();
    send(&mut first, b"e1");
    receive(&mut first);
    let mut second = node.connect();
    send(&mut second, b"e2");
    send(&mut first, b"e3");
    assert_eq!(receive(&mut first), b"e3");
    assert_eq!(node.puppet.frames.lock().unwrap().len(), 2);
    drop(first);
    assert_eq!(receive(&mut second), b"e2");
}

/// Brokers must always reach each other: the client that was used least recently makes room, even in the middle of a request.
#[test]
fn broker_over_the_total_is_let_in_and_the_least_used_client_is_closed() {
    let config = NetworkConfig {
        max_connections: 2,
        inter_broker_listener_name: "BROKERS".to_owned(),
        ..config()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listeners = ["CLIENTS", "BROKERS"].map(|name| {
        let endpoint = Endpoint {
            listener_name: name.to_owned(),
            ..endpoint("127.0.0.1", 0)
        };
        BoundListener::bind(&endpoint, ListenerScope::Broker, &config).unwrap()
    });
    let [clients, brokers] = [listeners[0].local_address(), listeners[1].local_address()];
    let handler = Arc::new(Puppet::default());
    let mut server = SocketServer::new(config, handler, Arc::new(SystemClock::new())).unwrap();
    server.start(Vec::from(listeners), runtime.handle()).unwrap();
    let connect = |address, request: &[u8]| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        send(&mut stream, b"e");
        receive(&mut stream);
        send(&mut stream, request);
        stream
    };
    let mut least_used = connect(clients, b"l");
    let mut other = connect(clients, b"e");
    receive(&mut other);
    let mut broker = connect(brokers, b"e");
    receive(&mut broker);
    assert_closed(&mut least_used);
    send(&mut other, b"e");
    assert_eq!(receive(&mut other), b"e");
}

#[test]
fn request_memory_in_use_holds_other_requests_back() {
    let node = Node::start(
        NetworkConfig {
            queued_max_request_bytes: 10,
            ..config()
        },
        Puppet::default(),
    );
    let mut holder = node.connect();
    holder.write_all(&[0, 0, 0, 10, b'e']).unwrap();
    wait_until("all memory is reserved", || {
        node.server.shared.broker_limits.memory.free_bytes() == Some(0)
    });
    let mut held = node.connect();
    send(&mut held, b"e2");
    holder.write_all(b"123456789").unwrap();
    assert_eq!(receive(&mut holder), b"e123456789");
    assert_eq!(receive(&mut held), b"e2");
    let large = [b'e'; 100];
    send(&mut held, &large);
    assert_eq!(receive(&mut held), large);
}

/// What comes slowly fills the memory, however large a share of it the configuration allows: the slowest makes room.
#[test]
fn large_requests_over_the_memory_close_the_one_that_is_at_it_for_longest() {
    let node = Node::start(
        NetworkConfig {
            request_bytes_max: 1_000_000,
            ..config()
        },
        Puppet::default(),
    );
    let quota = node.server.shared.broker_limits.quota.clone();
    let begin = |size: usize, sent: usize, total: usize| {
        let mut stream = node.connect();
        let request = framed(&vec![b'e'; size]);
        stream.write_all(&request[..4 + sent]).unwrap();
        wait_until("it is read", || quota.request_bytes() == total);
        (stream, request.slice(4 + sent..))
    };
    let (mut slowest, _) = begin(800_000, 500_000, 500_000);
    let (mut other, rest_of_other) = begin(600_000, 400_000, 900_000);
    // Small ones are not counted.
    let mut small = node.connect();
    send(&mut small, b"e");
    assert_eq!(receive(&mut small), b"e");
    let (mut last, rest_of_last) = begin(300_000, 200_000, 600_000);
    assert_closed(&mut slowest);
    for (stream, rest, size) in [
        (&mut other, rest_of_other, 600_000),
        (&mut last, rest_of_last, 300_000),
    ] {
        stream.write_all(&rest).unwrap();
        assert_eq!(receive(stream).len(), size);
    }
    wait_until("all is given back", || quota.request_bytes() == 0);
}

/// What comes with the requests before it, too, and before anything else comes.
#[test]
fn part_of_a_large_request_behind_a_small_one_is_counted() {
    let node = Node::start(config(), Puppet::default());
    let quota = node.server.shared.broker_limits.quota.clone();
    let mut stream = node.connect();
    let large = framed(&vec![b'e'; 400_000]);
    let (begin, rest) = large.split_at(4 + 150_000);
    stream.write_all(&[&framed(b"e")[..], begin].concat()).unwrap();
    wait_until("it is counted", || quota.request_bytes() == 150_000);
    assert_eq!(receive(&mut stream), b"e");
    stream.write_all(rest).unwrap();
    assert_eq!(receive(&mut stream).len(), 400_000);
    wait_until("all is given back", || quota.request_bytes() == 0);
}

#[test]
fn shutdown_sends_what_is_pending_and_closes() {
    let node = Node::start(config(), Puppet::default());
    let mut stream = node.connect();
    let mut idle = node.connect();
    send(&mut stream, b"l");
    wait_until("handled", || node.puppet.waiting() == 1);
    let ended = node.runtime.spawn(node.server.shutdown(Duration::from_secs(20)));
    assert_closed(&mut idle);
    wait_until("nobody is let in any more", || {
        std::net::TcpStream::connect(node.address).is_err()
    });
    node.puppet.release(0);
    assert_eq!(receive(&mut stream), b"l");
    assert_closed(&mut stream);
    node.runtime.block_on(ended).unwrap();
}

#[test]
fn shutdown_beyond_its_grace_closes_what_is_busy() {
    let node = Node::start(config(), Puppet::default());
    let mut stream = node.connect();
    send(&mut stream, b"l");
    wait_until("handled", || node.puppet.waiting() == 1);
    node.runtime
        .block_on(node.server.shutdown(Duration::from_millis(20)));
    assert_closed(&mut stream);
}

#[test]
fn port_in_use_is_named_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error =
        BoundListener::bind(&endpoint("127.0.0.1", port), ListenerScope::Broker, &config()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot listen on PLAINTEXT://127.0.0.1:{port}: Address already in use (os error 98)")
    );
}

#[test]
fn wildcard_listener_takes_ipv4_connections() {
    let bound = BoundListener::bind(&endpoint("", 0), ListenerScope::Broker, &config()).unwrap();
    let port = bound.local_address().port();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
}

#[derive(Debug)]
struct TestFile {
    file: std::fs::File,
    is_real: bool,
}

/// As many bytes as are asked for.
#[derive(Debug)]
struct EndlessFile;

impl DiskFile for EndlessFile {
    fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(buffer.len())
    }
    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }
    fn write_all_vectored_at(&self, _: &[&[u8]], _: u64) -> io::Result<()> {
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(1 << 30)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn as_file(&self) -> Option<&std::fs::File> {
        None
    }
}

impl DiskFile for TestFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.file, buffer, position)
    }
    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }
    fn write_all_vectored_at(&self, _: &[&[u8]], _: u64) -> io::Result<()> {
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(10)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn as_file(&self) -> Option<&std::fs::File> {
        self.is_real.then_some(&self.file)
    }
}
