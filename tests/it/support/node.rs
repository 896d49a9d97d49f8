//! A kavka process with its own directory and ports; killed when dropped.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::ports::Port;

/// How long a test waits for a condition before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running node.
pub struct Node {
    child: Option<Child>,
    pub port: u16,
    pub controller_port: u16,
    _ports: [Port; 2],
    directory: Arc<TempDir>,
    overrides: Vec<(String, String)>,
    /// What the process is started through: a command that runs its arguments.
    launcher: Vec<String>,
    is_read: bool,
    output: Arc<Mutex<String>>,
}

/// Waits until `condition` holds; fails the test with `what` when it does not in time.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "gave up waiting until {what}");
        std::thread::yield_now();
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Node {
    /// Starts a node on an empty directory; `overrides` are added to the properties of a combined node.
    pub fn start(overrides: &[(&str, &str)]) -> Node {
        Node::start_through(Vec::new(), overrides)
    }

    /// The same with a soft limit of open files, as a shell would set it.
    pub fn start_with_soft_limit(descriptors: u32, overrides: &[(&str, &str)]) -> Node {
        let script = format!("ulimit -S -n {descriptors} && exec \"$0\" \"$@\"");
        Node::start_through(vec!["sh".to_owned(), "-c".to_owned(), script], overrides)
    }

    /// The same through another command, which becomes the node (exec).
    pub fn start_through(launcher: Vec<String>, overrides: &[(&str, &str)]) -> Node {
        let mut node = Node::new(launcher, overrides);
        node.start_again();
        node
    }

    /// The same with an output that nobody reads: writing to it fails.
    pub fn start_unread(overrides: &[(&str, &str)]) -> Node {
        let mut node = Node::new(Vec::new(), overrides);
        node.is_read = false;
        node.start_again();
        node
    }

    /// Starts node 1 on a copy of a data directory; with `static_quorum` its controller stands in controller.quorum.voters.
    pub fn start_on(data: &Path, static_quorum: bool) -> Node {
        let mut node = Node::new(Vec::new(), &[]);
        if static_quorum {
            let voters = format!("1@127.0.0.1:{}", node.controller_port);
            node.overrides
                .push(("controller.quorum.voters".to_owned(), voters));
        }
        copy_dir(data, &node.data());
        node.start_again();
        node
    }

    fn new(launcher: Vec<String>, overrides: &[(&str, &str)]) -> Node {
        let ports = [Port::free(), Port::free()];
        let overrides = overrides
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect::<Vec<_>>();
        Node {
            child: None,
            port: ports[0].number(),
            controller_port: ports[1].number(),
            _ports: ports,
            directory: Arc::new(tempfile::tempdir().unwrap()),
            overrides,
            launcher,
            is_read: true,
            output: Arc::default(),
        }
    }

    /// The node's log directory.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn properties_path(&self) -> PathBuf {
        self.directory.path().join("server.properties")
    }

    fn write_properties(&self) {
        let mut text = format!(
            "process.roles=broker,controller\nnode.id=1\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
             log.dirs={data}\n\
             offsets.topic.num.partitions=5\noffsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n",
            port = self.port,
            controller = self.controller_port,
            data = self.data().display(),
        );
        for (key, value) in &self.overrides {
            text.push_str(&format!("{key}={value}\n"));
        }
        std::fs::write(self.properties_path(), text).unwrap();
    }

    /// Starts the process (again) on the same directory and ports, and waits until it answers.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "the node is running");
        self.write_properties();
        let mut command = kavka_command(&[self.properties_path().as_path()]);
        if let [program, arguments @ ..] = self.launcher.as_slice() {
            let mut launched = Command::new(program);
            launched
                .args(arguments)
                .arg(command.get_program())
                .args(command.get_args());
            command = captured(launched);
        }
        let mut child = command.spawn().unwrap();
        for pipe in [
            child
                .stdout
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
            child
                .stderr
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        ]
        .into_iter()
        .flatten()
        .filter(|_| self.is_read)
        {
            let output = Arc::clone(&self.output);
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    let mut output = output.lock().unwrap();
                    output.push_str(&line);
                    output.push('\n');
                }
            });
        }
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address()).is_err() {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("kavka ended with {status}:\n{}", self.output());
            }
            assert!(
                Instant::now() < deadline,
                "kavka does not listen:\n{}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        self.child = Some(child);
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// All that the node has printed.
    pub fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    pub fn process_id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM; returns how long the node took to end, which must be with exit code 0.
    pub fn terminate(&mut self) -> Duration {
        let mut child = self.child.take().unwrap();
        let started = Instant::now();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let deadline = started + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(
                    status.success(),
                    "kavka ended with {status} on SIGTERM:\n{}",
                    self.output()
                );
                return started.elapsed();
            }
            assert!(
                Instant::now() < deadline,
                "kavka does not end on SIGTERM:\n{}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            if let Ok(Some(status)) = child.try_wait() {
                eprintln!("the node had ended with {status}");
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the node printed:\n{}", self.output());
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            // Read and written, not copied: the originals may be read-only.
            std::fs::write(&target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// The binary under test with `arguments`, its output captured.
pub fn kavka_command(arguments: &[&Path]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kavka"));
    command.args(arguments);
    captured(command)
}

fn captured(mut command: Command) -> Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}
