//! The kavka under test: a process on a directory and ports that stay the same over its deaths.

use std::fs::{self, File, OpenOptions};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::PARTITIONS;

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Node {
    program: PathBuf,
    directory: PathBuf,
    /// Removed when the run is over.
    _temporary: Option<TempDir>,
    port: u16,
    controller_port: u16,
    child: Option<Child>,
}

/// Systems give clients none of these: a client that tries a port again and again until the node listens there may else connect to
/// itself, and keep the node from it.
const PORTS: Range<u16> = 10_000..32_768;

fn free_port() -> Result<(TcpListener, u16)> {
    for _ in PORTS {
        let port = fastrand::u16(PORTS);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok((listener, port));
        }
    }
    bail!("no port of {PORTS:?} is free")
}

impl Node {
    pub fn start(program: &Path, directory: Option<PathBuf>) -> Result<Node> {
        let (temporary, directory) = match directory {
            Some(directory) => (None, directory),
            None => {
                let temporary = tempfile::tempdir()?;
                let directory = temporary.path().to_owned();
                (Some(temporary), directory)
            }
        };
        fs::create_dir_all(&directory)?;
        // Both are held until both are known.
        let ((first, port), (second, controller_port)) = (free_port()?, free_port()?);
        drop((first, second));
        let mut node = Node {
            program: program.to_owned(),
            directory,
            _temporary: temporary,
            port,
            controller_port,
            child: None,
        };
        node.start_again()?;
        Ok(node)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Small segments, so that logs roll; late transactions are looked for every second.
    fn write_properties(&self) -> Result<PathBuf> {
        let (port, controller) = (self.port, self.controller_port);
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
             log.dirs={data}\n\
             num.partitions={PARTITIONS}\n\
             log.segment.bytes=1048576\n\
             offsets.topic.num.partitions=5\noffsets.topic.replication.factor=1\n\
             transaction.state.log.num.partitions=5\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             transaction.abort.timed.out.transaction.cleanup.interval.ms=1000\n\
             group.initial.rebalance.delay.ms=0\n",
            data = self.directory.join("data").display(),
        );
        let path = self.directory.join("server.properties");
        fs::write(&path, text)?;
        Ok(path)
    }

    fn output(&self) -> Result<File> {
        let path = self.directory.join("output.log");
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| path.display().to_string())
    }

    /// Starts the process on what it left, and waits until it listens.
    pub fn start_again(&mut self) -> Result<()> {
        let properties = self.write_properties()?;
        let child = Command::new(&self.program)
            .arg(properties)
            .stdin(Stdio::null())
            .stdout(self.output()?)
            .stderr(self.output()?)
            .spawn()
            .with_context(|| self.program.display().to_string())?;
        self.child = Some(child);
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address()).is_err() {
            self.expect_running()?;
            if Instant::now() > deadline {
                bail!("kavka does not listen; see {}", self.directory.display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub fn expect_running(&mut self) -> Result<()> {
        let ended = match &mut self.child {
            Some(child) => child.try_wait()?,
            None => None,
        };
        if let Some(status) = ended {
            let output = fs::read_to_string(self.directory.join("output.log"))?;
            let last: Vec<&str> = output.lines().rev().take(30).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            bail!("kavka ended with {status}:\n{}", last.join("\n"));
        }
        Ok(())
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
