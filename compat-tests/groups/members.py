"""Members of groups, each a client in a process of its own (agents/): how they are built, started, and what they tell.

A member prints `A <generation> <topic:partition,...>` when what it owns changes, `R <topic:partition> <offset>` for each record, commits what
it has printed, prints `F <text>` when a commit fails, and leaves the group when its input ends.
"""
import os
import pathlib
import shutil
import subprocess
import threading
import time

import servers
from results import BOOTSTRAP

AGENTS = pathlib.Path(__file__).resolve().parent / "agents"
CACHE = pathlib.Path(os.environ.get("COMPAT_CACHE", servers.CACHE))
PATIENCE_SECONDS = 60


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up waiting for {what() if callable(what) else what}")
        time.sleep(0.02)


def python_of(name, *packages):
    """The python of the virtual environment that another family uses too."""
    done = subprocess.run([AGENTS.parents[1] / "lib" / "venv", name, *packages], capture_output=True, text=True, check=True,
                          env=dict(os.environ, COMPAT_CACHE=str(CACHE)))
    return done.stdout.strip()


def go_program(name):
    program = CACHE / f"groups-{name}"
    subprocess.run(["go", "build", "-o", program, "."], cwd=AGENTS / name, check=True,
                   env=dict(os.environ, GOFLAGS="-mod=mod", GOTOOLCHAIN="local"))
    return [program]


def java_program(version):
    libs = servers.maven_libs(f"groups-java-{version}", "groups", version)
    classes = CACHE / f"groups-java-{version}" / "classes"
    classes.mkdir(exist_ok=True)
    subprocess.run(["javac", "-nowarn", "--release", "11", "-cp", f"{libs}/*", "-d", classes, AGENTS / "Agent.java"], check=True)
    return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", f"{classes}:{libs}/*", "Agent"]


def node_program():
    directory = CACHE / "kafkajs"
    directory.mkdir(exist_ok=True)
    shutil.copy(AGENTS.parents[1] / "kafkajs" / "package.json", directory)
    shutil.copy(AGENTS / "kafkajs_agent.js", directory)
    if not (directory / "node_modules" / "kafkajs").exists():
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"], cwd=directory, check=True)
    return ["node", directory / "kafkajs_agent.js"]


PROGRAMS = {
    "java 2.8.2": lambda: java_program("2.8.2"),
    "java 3.9.1": lambda: java_program("3.9.1"),
    "java 4.4.0": lambda: java_program("4.4.0"),
    "librdkafka": lambda: [python_of("librdkafka", "confluent-kafka==2.16.1"), AGENTS / "confluent_agent.py"],
    "franz-go": lambda: go_program("franz-go"),
    "sarama": lambda: go_program("sarama"),
    "kafkajs": node_program,
    "aiokafka": lambda: [python_of("aiokafka", "aiokafka==0.14.0", "cramjam"), AGENTS / "aiokafka_agent.py"],
}
_built = {}


def build_all(clients):
    for client in clients:
        _built[client] = [str(word) for word in PROGRAMS[client]()]


class Member:
    def __init__(self, client, topic, group, **options):
        self.client, self.topic, self.group, self.options = client, topic, group, options
        self.records, self.failures, self.errors = [], [], []
        self.owned, self.generation = frozenset(), None
        self.changes = 0
        self.start()

    def start(self):
        command = _built[self.client] + [self.topic, self.group] + [f"{key}={value}" for key, value in self.options.items()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, BOOTSTRAP=BOOTSTRAP))
        self.readers = [threading.Thread(target=self._read, args=(self.process,), daemon=True),
                        threading.Thread(target=self._read_errors, args=(self.process,), daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read(self, process):
        for line in process.stdout:
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind == "R":
                partition, offset = rest.split(" ")
                self.records.append((partition, int(offset)))
            elif kind == "A":
                generation, _, owned = rest.partition(" ")
                self.generation = generation
                self.owned = frozenset(owned.split(",")) - {""}
                self.changes += 1
            else:
                self.failures.append(line.strip())

    def _read_errors(self, process):
        for line in process.stderr:
            self.errors = self.errors[-20:] + [line.strip()]

    def stop(self):
        """As a program that ends in order: with LeaveGroup, if it is no static member."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.client} did not end in 20 s") from None
        self._gone()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._gone()

    def _gone(self):
        for reader in self.readers:
            reader.join(timeout=5)
        self.owned = frozenset()

    def restart(self, **options):
        """The same member again, with other options if wanted."""
        self.stop()
        self.options |= options
        self.start()

    def __str__(self):
        return f"{self.client}: {sorted(self.owned)} {self.failures[-3:]} {self.errors[-3:]}"
