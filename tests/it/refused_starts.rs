//! Starts that cannot be: each ends soon, with exit code 1 and one line that says what is wrong and where.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::node::{Node, PATIENCE, kavka_command};
use crate::support::ports::Port;

/// A node that is never started as a `Node`, since it must not start.
struct Refused {
    directory: tempfile::TempDir,
    _ports: [Port; 2],
    properties: Vec<(String, String)>,
}

impl Refused {
    /// A combined node with ports of its own and the log directory `data` of its own.
    fn new(changes: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ports = [Port::free(), Port::free()];
        let [port, controller_port] = &ports;
        let listeners = format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}");
        let mut refused = Self {
            properties: vec![
                ("process.roles".into(), "broker,controller".into()),
                ("node.id".into(), "1".into()),
                ("listeners".into(), listeners),
                ("controller.listener.names".into(), "CONTROLLER".into()),
                (
                    "controller.quorum.bootstrap.servers".into(),
                    format!("127.0.0.1:{controller_port}"),
                ),
                (
                    "log.dirs".into(),
                    directory.path().join("data").display().to_string(),
                ),
            ],
            directory,
            _ports: ports,
        };
        for (key, value) in changes {
            refused.set(key, value);
        }
        refused
    }

    fn set(&mut self, key: &str, value: impl ToString) {
        self.properties.retain(|(known, _)| known != key);
        self.properties.push((key.to_owned(), value.to_string()));
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// What stands on stderr, which is one line, after an end with exit code 1.
    fn line(&self) -> String {
        let path = self.directory.path().join("server.properties");
        let text: Vec<String> = self
            .properties
            .iter()
            .map(|(key, value)| format!("{key}={value}\n"))
            .collect();
        std::fs::write(&path, text.concat()).unwrap();
        line_of(&[&path])
    }
}

fn line_of(arguments: &[&Path]) -> String {
    let mut child = kavka_command(arguments).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("the node started: {arguments:?}");
            }
        }
    };
    let (mut line, mut log) = (String::new(), String::new());
    child.stderr.take().unwrap().read_to_string(&mut line).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(status.code(), Some(1), "{line}{log}");
    assert_eq!(line.lines().count(), 1, "not one line: {line}");
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    line.trim_end().to_owned()
}

#[test]
fn port_in_use_is_named_with_its_listener() {
    let node = Node::start(&[]);
    for (own, taken) in [("PLAINTEXT", node.port), ("CONTROLLER", node.controller_port)] {
        let other = Port::free();
        let (port, controller_port) = match own {
            "PLAINTEXT" => (taken, other.number()),
            _ => (other.number(), taken),
        };
        let listeners = format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}");
        let mut refused = Refused::new(&[("listeners", &listeners)]);
        refused.set(
            "controller.quorum.bootstrap.servers",
            format!("127.0.0.1:{controller_port}"),
        );
        assert_eq!(
            refused.line(),
            format!("cannot listen on {own}://127.0.0.1:{taken}: Address already in use (os error 98)")
        );
    }
}

#[test]
fn directory_of_a_running_node_is_refused() {
    let node = Node::start(&[]);
    let data = node.data().display().to_string();
    let line = Refused::new(&[("log.dirs", &data)]).line();
    assert!(line.contains(&data) && line.contains(".lock"), "{line}");
}

#[test]
fn directory_of_another_node_is_refused() {
    let mut node = Node::start(&[]);
    node.terminate();
    let data = node.data().display().to_string();
    let line = Refused::new(&[("node.id", "2"), ("log.dirs", &data)]).line();
    assert!(
        line.contains("node") && line.contains('1') && line.contains('2'),
        "{line}"
    );
    assert!(line.contains(&data), "{line}");
}

#[test]
fn directories_of_two_clusters_are_refused() {
    let mut first = Node::start(&[]);
    let mut second = Node::start(&[]);
    first.terminate();
    second.terminate();
    let [first, second] = [first.data(), second.data()].map(|data| data.display().to_string());
    let line = Refused::new(&[("log.dirs", &format!("{first},{second}"))]).line();
    // Directories are looked at in the order of their names.
    let named = std::cmp::max(&first, &second);
    assert!(line.contains("cluster.id") && line.contains(named), "{line}");
}

/// What no user may write to, root not either.
#[test]
fn directory_that_cannot_be_made_or_written_is_refused() {
    for dir in ["/proc/kavka", "/dev/null", "/dev/null/data"] {
        let line = Refused::new(&[("log.dirs", dir)]).line();
        assert!(line.contains(dir), "{line}");
    }
}

#[test]
fn directory_with_foreign_or_broken_files_is_refused() {
    let refused = Refused::new(&[]);
    std::fs::create_dir(refused.data()).unwrap();
    std::fs::write(refused.data().join("letter.txt"), "dear").unwrap();
    let line = refused.line();
    assert!(
        line.contains("is not empty") && line.contains("kavka format"),
        "{line}"
    );

    for text in [
        "",
        "garbage",
        "version=7\n",
        "version=1\nnode.id=x\ncluster.id=y\n",
        "version=1\nnode.id=1\n",
    ] {
        std::fs::write(refused.data().join("meta.properties"), text).unwrap();
        let line = refused.line();
        assert!(
            line.contains("meta.properties") || line.contains(&*refused.data().display().to_string()),
            "{line}"
        );
    }
}

#[test]
fn file_and_values_that_make_no_sense_are_named() {
    let missing = Path::new("/nowhere/server.properties");
    assert!(line_of(&[missing]).contains("/nowhere/server.properties"));
    let directory = tempfile::tempdir().unwrap();
    assert!(line_of(&[directory.path()]).contains(&*directory.path().display().to_string()));
    for (key, value) in [
        ("num.partitions", "0"),
        ("num.partitions", "many"),
        ("num.partitions", "99999999999999999999"),
        ("log.retention.bytes", "1GB"),
        ("socket.request.max.bytes", "0"),
        ("log.cleaner.min.cleanable.ratio", "1.5"),
        ("compression.type", "brotli"),
        ("node.id", "-1"),
        ("auto.create.topics.enable", "yes"),
        ("kavka.metrics.listener", "9404"),
        ("kavka.metrics.listener", "localhost:99999"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092"),
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:70000,CONTROLLER://127.0.0.1:9093",
        ),
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
    ] {
        let line = Refused::new(&[(key, value)]).line();
        // A list is named by the entry that is wrong, and Kafka's own words on an advertised listener name only its address.
        let value = match key {
            "advertised.listeners" => "0.0.0.0",
            "listeners" => "PLAINTEXT://127.0.0.1:70000",
            _ => value,
        };
        assert!(
            line.contains(key) && line.contains(value),
            "{key}={value}: {line}"
        );
    }
}
