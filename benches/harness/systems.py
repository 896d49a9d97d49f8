"""The systems under test: Apache Kafka with the flags of its own start script, kavka, and the bare program (the limit).

Every round gets fresh directories; a node's formatted directory is made once and copied, so that a round costs no format.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import servers
from harness import peers

ROOT = servers.ROOT
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

# kafka-server-start.sh and kafka-run-class.sh of 4.4 (heap, JVM performance options).
KAFKA_JVM_FLAGS = (
    "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15")


def target_directory():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def build_load():
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "kavka-load"], cwd=ROOT, check=True,
                   stdout=sys.stderr)
    return target_directory() / "release" / "kavka-load"


def stat_cpu_seconds(pid):
    """User and system seconds of a process, all its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_bytes(pid):
    """(resident, proportional) bytes of a process."""
    resident = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    proportional = resident
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            proportional = int(line.split()[1]) * 1024
    return resident, proportional


class System:
    """One system; `fresh()` gives it an empty, formatted directory, `start()` a process."""

    def __init__(self, kind, directory, load, properties=()):
        self.kind = kind
        self.load_binary = load
        self.directory = directory / kind
        self.template = directory / f"{kind}-formatted"
        self.process = None
        self.topics = 0
        self.cleared = 0
        shutil.rmtree(self.directory, ignore_errors=True)
        if kind == "bare" or kind in peers.PEERS:
            self.server = None
            self.directory.mkdir(parents=True)
            self.port = servers.free_ports(1)[0]
        else:
            self.server = servers.Server(kind, self.directory, extra_properties="".join(f"{line}\n" for line in properties))
            self.port = self.server.port
            self.server.format()
            shutil.copytree(self.directory, self.template)
        self.address = f"127.0.0.1:{self.port}"

    @property
    def log_path(self):
        return self.directory / "server.log"

    def fresh(self, formatted=True):
        self.stop()
        self.clear()
        if self.template.exists():
            shutil.copytree(self.template, self.directory)
            if not formatted:
                shutil.rmtree(self.directory / "data", ignore_errors=True)
        else:
            self.directory.mkdir(parents=True)

    def clear(self):
        """Removes the directory. Thousands of files are only moved aside until the run ends: ext4 is slow to create files
        for minutes after so many were removed."""
        data = self.directory / "data"
        if data.exists() and sum(1 for _ in data.iterdir()) > 500:
            self.cleared += 1
            self.directory.rename(f"{self.directory}-cleared-{self.cleared}")
        shutil.rmtree(self.directory, ignore_errors=True)

    def command(self):
        if self.kind == "apache":
            return servers.java_command("kafka.Kafka", self.server.properties, heap="1G", log_level="info",
                                        jvm_flags=KAFKA_JVM_FLAGS)
        if self.kind == "kavka":
            return [servers.kavka_binary(), self.server.properties]
        if self.kind in peers.PEERS:
            return peers.command(self.kind, self.address, self.directory)
        return [self.load_binary, "bare", "--address", self.address, "--directory", self.directory]

    def unformatted_command(self):
        """kavka by its development defaults, on the ports of this system: it formats on its first start."""
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.server.controller_port}"
        return [servers.kavka_binary(), "--override", f"listeners={listeners}",
                "--override", f"advertised.listeners={listeners}", "--override", f"log.dirs={self.directory}/data",
                "--override", f"controller.quorum.bootstrap.servers=127.0.0.1:{self.server.controller_port}"]

    def spawn(self, command=None):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(list(map(str, command or self.command())), stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, cwd=self.directory)
        return self

    def start(self):
        """A process that has acknowledged a record (the bare program: that listens)."""
        self.spawn()
        if self.server is None:
            self.wait_until_it_listens()
        else:
            self.load("first", topic="warm-up-first", timeout=60)
        return self

    def wait_until_it_listens(self, timeout=20):
        deadline = time.monotonic() + timeout
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError(f"{self.kind} did not listen\n{self.log_tail()}") from None
                time.sleep(0.05)

    def stop(self, signal_number=signal.SIGTERM):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGKILL if self.kind == "bare" else signal_number)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def cpu_seconds(self):
        return stat_cpu_seconds(self.process.pid)

    def memory_mib(self):
        resident, proportional = memory_bytes(self.process.pid)
        return resident / 2**20, proportional / 2**20

    def load_command(self, command, **options):
        words = [self.load_binary, command, "--address", self.address]
        for name, value in options.items():
            words += [f"--{name.replace('_', '-')}", value]
        return list(map(str, words))

    def load(self, command, **options):
        """Runs the load generator; its last line, and what the broker's process spent meanwhile."""
        before = self.cpu_seconds()
        done = subprocess.run(self.load_command(command, **options), capture_output=True, text=True,
                              env=os.environ | {"RUST_BACKTRACE": "0"})
        if done.returncode != 0:
            raise RuntimeError(f"load {command} {options}: {done.stderr.strip()}\n{self.log_tail()}")
        result = json.loads(done.stdout.splitlines()[-1])
        result["broker_cpu_seconds"] = self.cpu_seconds() - before
        return result

    def topic(self, partitions=6):
        """A new topic; its name."""
        self.topics += 1
        name = f"load-{self.topics}"
        if self.kind == "bare":
            self.fresh()
            self.start()
        else:
            try:
                self.load("create", topic=name, partitions=partitions)
            except RuntimeError:
                # A peer that does not answer it as Kafka does may make topics by itself.
                if self.kind not in peers.PEERS:
                    raise
        return name

    def log_tail(self, lines=15):
        if not self.log_path.exists():
            return ""
        return "\n".join(line[:300] for line in self.log_path.read_text(errors="replace").splitlines()[-lines:])
