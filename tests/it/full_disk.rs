//! A node on a file system that is really full: a small tmpfs in mount and user namespaces of its own.
//!
//! It needs no privileges where the kernel lets users make namespaces. Where it does not, these tests fail: set
//! KAVKA_SKIP_FULL_DISK=1 to say that this machine cannot run them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use kavka::protocol::messages::{
    DeleteRecordsRequest, DeleteTopicsRequest, MetadataRequest, delete_records_request,
};

use crate::support::client::Client;
use crate::support::node::{Node, wait_until};
use crate::support::topic::{self, batch, fetch_request, produce, read_all, value_of};

const KAFKA_STORAGE_ERROR: i16 = 56;
const MOUNT: &str = "/mnt";

/// A process that holds a mount namespace with a tmpfs at /mnt.
struct SmallDisk {
    holder: Child,
    has_user_namespace: bool,
}

impl SmallDisk {
    /// `None`: this machine cannot, and says so.
    fn of_mebibytes(size: u32) -> Option<SmallDisk> {
        let script =
            format!("mount -t tmpfs -o size={size}m,mode=0777 tmpfs {MOUNT} && echo ready && exec cat");
        // Without user namespaces it needs root, who needs none.
        for has_user_namespace in [true, false] {
            let namespaces = if has_user_namespace { "-rm" } else { "-m" };
            let mut holder = Command::new("unshare")
                .args([namespaces, "sh", "-c", &script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("unshare (util-linux)");
            let mut line = String::new();
            let pipe = holder.stdout.take().unwrap();
            BufReader::new(pipe).read_line(&mut line).unwrap();
            let disk = SmallDisk {
                holder,
                has_user_namespace,
            };
            if line.trim() == "ready" {
                return Some(disk);
            }
        }
        assert!(
            std::env::var("KAVKA_SKIP_FULL_DISK").is_ok(),
            "no user and mount namespaces here; KAVKA_SKIP_FULL_DISK=1 skips the tests that need them"
        );
        eprintln!("SKIPPED: no user and mount namespaces here");
        None
    }

    fn launcher(&self) -> Vec<String> {
        let pid = self.holder.id().to_string();
        let user: &[&str] = match self.has_user_namespace {
            true => &["-U", "--preserve-credentials"],
            false => &[],
        };
        let command = [&["nsenter", "-t", &pid, "-m"], user, &["--"]].concat();
        command.into_iter().map(str::to_owned).collect()
    }

    /// The path of a file on it, from outside.
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{MOUNT}/{name}", self.holder.id()))
    }

    /// Takes what room is left.
    fn fill(&self) {
        let file = std::fs::File::create(self.path("filler")).unwrap();
        let chunk = [1u8; 4096];
        while std::io::Write::write_all(&mut &file, &chunk).is_ok() {}
    }

    fn remove_filler(&self) {
        std::fs::remove_file(self.path("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn delete_records(client: &mut Client, name: &str, offset: i64) -> i16 {
    let mut partition = delete_records_request::DeleteRecordsPartition::default();
    partition.offset = offset;
    let mut wanted = delete_records_request::DeleteRecordsTopic::default();
    wanted.name = topic::name(name);
    wanted.partitions = vec![partition];
    let mut request = DeleteRecordsRequest::default();
    request.timeout_ms = 10_000;
    request.topics = vec![wanted];
    client.call(2, &request).topics[0].partitions[0].error_code
}

const SETTINGS: [(&str, &str); 6] = [
    ("log.dirs", "/mnt/data"),
    ("log.segment.bytes", "1048576"),
    ("log.segment.delete.delay.ms", "0"),
    ("log.initial.task.delay.ms", "100"),
    ("log.retention.check.interval.ms", "300"),
    ("kavka.metadata.log.reserve.bytes", "524288"),
];

/// Values of 50 KiB that tell their number.
fn value(number: usize) -> String {
    format!("{number}-{}", "v".repeat(50_000))
}

fn number_of(value: &str) -> usize {
    value.split('-').next().unwrap().parse().unwrap()
}

/// Produces until the node refuses; the number of the next.
fn produce_until_full(client: &mut Client, name: &str, first: usize) -> usize {
    for number in first.. {
        match produce(client, name, 0, batch(None, &[value(number)])) {
            Ok(_) => {}
            Err(code) => {
                assert_eq!(code, KAFKA_STORAGE_ERROR);
                return number;
            }
        }
    }
    unreachable!()
}

fn check_all_there(node: &Node, name: &str, count: usize) {
    let numbers: Vec<usize> = read_all(node.address(), name, 0)
        .iter()
        .map(|record| number_of(&value_of(record)))
        .collect();
    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
}

#[test]
fn full_disk_refuses_producers_only_and_needs_no_restart() {
    let Some(disk) = SmallDisk::of_mebibytes(12) else {
        return;
    };
    let node = Node::start_through(disk.launcher(), &SETTINGS);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "t", 1, &[]);
    topic::create(&mut client, "doomed", 1, &[]);
    wait_until("the reserve is made", || {
        std::fs::metadata(disk.path("data/.kavka_reserve")).is_ok_and(|file| file.len() == 524_288)
    });
    produce(&mut client, "doomed", 0, batch(None, &[value(0)])).unwrap();
    let count = produce_until_full(&mut client, "t", 0);
    assert!(count > 100, "{count}");
    disk.fill();
    // All else goes on.
    check_all_there(&node, "t", count);
    let refused = produce(&mut client, "doomed", 0, batch(None, &[value(1)]));
    assert_eq!(refused, Err(KAFKA_STORAGE_ERROR));
    let metadata = client.call(12, &MetadataRequest::default().with_topics(None));
    assert_eq!(metadata.topics.len(), 2);
    topic::create(&mut client, "made-on-a-full-disk", 1, &[]);
    let deletion = DeleteTopicsRequest::default()
        .with_topic_names(vec![topic::name("doomed")])
        .with_timeout_ms(10_000);
    assert_eq!(client.call(5, &deletion).responses[0].error_code, 0);
    // Room comes from outside: nobody has to start anything anew.
    disk.remove_filler();
    assert_eq!(delete_records(&mut client, "t", count as i64 - 1), 0);
    wait_until("producers are served again", || {
        produce(&mut client, "t", 0, batch(None, &[value(count)])).is_ok()
    });
    wait_until("the topic that was made on a full disk is served", || {
        produce(&mut client, "made-on-a-full-disk", 0, batch(None, &[value(0)])).is_ok()
    });
    let fetched = client.call(topic::FETCH, &fetch_request("t", 0, count as i64, 0));
    assert_eq!(
        fetched.responses[0].partitions[0].high_watermark,
        count as i64 + 1
    );
    wait_until("the reserve is made again", || {
        std::fs::metadata(disk.path("data/.kavka_reserve")).is_ok_and(|file| file.len() == 524_288)
    });
    assert!(!node.output().contains("offline"), "no directory went offline");
}

#[test]
fn node_starts_on_a_full_disk_and_serves_reads_and_deletes() {
    let Some(disk) = SmallDisk::of_mebibytes(12) else {
        return;
    };
    let mut node = Node::start_through(disk.launcher(), &SETTINGS);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "t", 1, &[]);
    wait_until("the reserve is made", || {
        std::fs::metadata(disk.path("data/.kavka_reserve")).is_ok_and(|file| file.len() == 524_288)
    });
    let count = produce_until_full(&mut client, "t", 0);
    disk.fill();
    node.kill();
    // Twice: the second start finds no reserve.
    for _ in 0..2 {
        node.start_again();
        check_all_there(&node, "t", count);
        let mut client = Client::connect(node.address());
        let refused = produce(&mut client, "t", 0, batch(None, &[value(count)]));
        assert_eq!(refused, Err(KAFKA_STORAGE_ERROR));
        node.kill();
    }
    node.start_again();
    let mut client = Client::connect(node.address());
    assert_eq!(delete_records(&mut client, "t", count as i64 - 1), 0);
    wait_until("what was deleted has made room", || {
        produce(&mut client, "t", 0, batch(None, &[value(count)])).is_ok()
    });
    node.terminate();
    node.start_again();
    let mut client = Client::connect(node.address());
    let fetched = client.call(topic::FETCH, &fetch_request("t", 0, count as i64 - 1, 0));
    let answer = &fetched.responses[0].partitions[0];
    assert_eq!(
        (answer.error_code, answer.log_start_offset),
        (0, count as i64 - 1)
    );
    assert_eq!(answer.high_watermark, count as i64 + 1);
}
