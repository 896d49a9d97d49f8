"""Starts and stops the broker under test: kavka, or Apache Kafka from Maven.

Every server gets a directory and free ports of its own; every process is ended by its own handle.
"""
import fcntl
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("KAVKA_COMPAT_CACHE", ROOT / "compat-tests" / ".cache"))
APACHE_VERSION = "4.4.0"
CLUSTER_ID = "a2F2a2EtY29tcGF0LXRlc"

SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
log.dirs={directory}/data
offsets.topic.num.partitions=5
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=500
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=500
"""


# Ports are this process's until it ends.
_port_locks = []


def free_ports(count):
    """Ports that no other test gets (tests/it/support/ports.rs), and that the system gives to no client: a connection that is
    tried until a server listens may else connect to itself."""
    folder = pathlib.Path(tempfile.gettempdir()) / "kavka-test-ports"
    folder.mkdir(exist_ok=True)
    ports = []
    for port in random.sample(range(10_000, 32_768), 32_768 - 10_000):
        if len(ports) == count:
            break
        lock = open(folder / str(port), "a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _port_locks.append(lock)
        ports.append(port)
    if len(ports) < count:
        raise RuntimeError("no port is free")
    return ports


def maven_libs(name, folder, version=APACHE_VERSION):
    """The folder with the jars that a pom.xml under compat-tests names, brought from Maven once; None without Maven."""
    libs = CACHE / name
    stamp = libs / ".complete"
    if not stamp.exists():
        if shutil.which("mvn") is None:
            return None
        libs.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mvn", "-q", "-B", "-Dstyle.color=never", "dependency:copy-dependencies", f"-DoutputDirectory={libs}",
             f"-Dkafka.version={version}"],
            cwd=ROOT / "compat-tests" / folder, check=True, stdout=sys.stderr)
        stamp.touch()
    return libs


def apache_libs():
    """The folder with the jars of Apache Kafka."""
    return maven_libs(f"apache-{APACHE_VERSION}", "apache")


def java_command(main_class, *arguments, heap="512m", libs=None, log_level="error", jvm_flags=()):
    """The command that runs a class of Apache Kafka."""
    libs = libs or apache_libs()
    return ["java", f"-Xmx{heap}", "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={ROOT / 'compat-tests' / 'apache' / 'log4j2.xml'}",
            f"-Dcompat.log.level={log_level}", *jvm_flags,
            "-cp", f"{libs}/*", main_class, *map(str, arguments)]


def kavka_binary():
    """The binary under test: $KAVKA_BIN, else a release build of this tree."""
    if os.environ.get("KAVKA_BIN"):
        return pathlib.Path(os.environ["KAVKA_BIN"]).resolve()
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True, stdout=sys.stderr)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "kavka"


class Server:
    """One node of `kind` ("kavka" or "apache") in a directory of its own."""

    def __init__(self, kind, directory=None, extra_properties="", quiet=True):
        self.kind = kind
        self.own_directory = directory is None
        self.directory = pathlib.Path(directory or tempfile.mkdtemp(prefix=f"kavka-compat-{kind}-"))
        self.port, self.controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.properties = self.directory / "server.properties"
        self.log_path = self.directory / "server.log"
        self.process = None
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties.write_text(
            SERVER_PROPERTIES.format(port=self.port, controller_port=self.controller_port,
                                     directory=self.directory) + extra_properties)

    def format(self, *more):
        arguments = ["format", "-t", CLUSTER_ID, "-c", self.properties, "--standalone", "--ignore-formatted", *more]
        if self.kind == "apache":
            command = java_command("kafka.tools.StorageTool", *arguments)
        else:
            command = [kavka_binary(), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"format of {self.kind} failed:\n{done.stdout}{done.stderr}")

    def start(self, timeout=60):
        if self.kind == "apache":
            command = java_command("kafka.Kafka", self.properties, heap="1g", log_level="info")
        else:
            command = [kavka_binary(), self.properties]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.kind} ended with {self.process.returncode}:\n{self.log_tail()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.kind} did not listen on {self.bootstrap} in {timeout} s:\n{self.log_tail()}")

    def log_tail(self, lines=15):
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else "(there is no log)"
        return "\n".join(line[:300] for line in text.splitlines()[-lines:])

    def stop(self, signal_number=signal.SIGTERM):
        if self.process is None:
            return
        self.process.send_signal(signal_number)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def __enter__(self):
        try:
            self.format()
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        self.stop()
        if self.own_directory and not os.environ.get("KAVKA_COMPAT_KEEP"):
            shutil.rmtree(self.directory, ignore_errors=True)
