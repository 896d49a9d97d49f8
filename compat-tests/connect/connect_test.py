"""Two distributed Connect workers against one node: internal topics, a file source, a file sink, the REST interface, a worker that goes
and comes back, offsets read and altered."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import servers
from results import BOOTSTRAP, check, expect, finish, unique

CLIENT = "kafka connect 4.4"
PATIENCE_SECONDS = 60

WORKER_PROPERTIES = """\
bootstrap.servers={bootstrap}
group.id={name}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic={name}-configs
offset.storage.topic={name}-offsets
status.storage.topic={name}-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
offset.storage.partitions=5
status.storage.replication.factor=1
status.storage.partitions=3
offset.flush.interval.ms=500
session.timeout.ms=10000
heartbeat.interval.ms=500
scheduled.rebalance.max.delay.ms=0
listeners=http://127.0.0.1:{port}
rest.advertised.host.name=127.0.0.1
plugin.discovery=service_load
"""


def wait_for(what, condition):
    """The condition's value once it is true; what is not there yet may fail."""
    deadline, error = time.monotonic() + PATIENCE_SECONDS, None
    while time.monotonic() < deadline:
        try:
            value = condition()
            if value:
                return value
        except (OSError, urllib.error.HTTPError, KeyError, IndexError) as failure:
            error = failure
        time.sleep(0.1)
    raise AssertionError(f"gave up waiting for {what}: {error}")


class Worker:
    def __init__(self, directory, libs, name, number):
        self.port, = servers.free_ports(1)
        self.log_path = directory / f"worker-{number}.log"
        properties = directory / f"worker-{number}.properties"
        properties.write_text(WORKER_PROPERTIES.format(bootstrap=BOOTSTRAP, name=name, port=self.port))
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                servers.java_command("org.apache.kafka.connect.cli.ConnectDistributed", properties, libs=libs,
                                     heap="384m", log_level="warn", jvm_flags=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]),
                stdout=log, stderr=subprocess.STDOUT)

    def ask(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def get(self, path):
        return self.ask("GET", path)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def states(worker, connector):
    status = worker.get(f"/connectors/{connector}/status")
    return [status["connector"]["state"]] + [task["state"] for task in status["tasks"]]


class Run:
    def __init__(self, directory, libs):
        self.directory, self.libs = directory, libs
        self.name, self.topic = unique("connect"), unique("connect-lines")
        self.source_file, self.sink_file = directory / "in.txt", directory / "out.txt"
        self.workers = [Worker(directory, libs, self.name, number) for number in (1, 2)]

    def stop(self):
        for worker in self.workers:
            worker.stop()

    def write(self, first, last):
        with open(self.source_file, "a") as file:
            file.writelines(f"line {number}\n" for number in range(first, last))

    def await_lines(self, count):
        """At least once: each line is there, and in the order of their first coming."""
        wanted = [f"line {number}" for number in range(count)]
        wait_for(f"{count} lines", lambda: list(dict.fromkeys(self.sink_file.read_text().splitlines())) == wanted)

    def workers_start(self):
        for worker in self.workers:
            wait_for("the REST interface", lambda: worker.get("/")["kafka_cluster_id"])
            expect(worker.get("/")["version"], "4.4.0", "version")
        expect(self.workers[0].get("/connectors"), [], "connectors")

    def source_and_sink(self):
        self.write(0, 100)
        source = {"connector.class": "compat.LineSource", "tasks.max": "1",
                  "file": str(self.source_file), "topic": self.topic}
        sink = {"connector.class": "compat.LineSink", "tasks.max": "2",
                "file": str(self.sink_file), "topics": self.topic}
        # Through either worker: the one that does not lead forwards.
        for worker, connector, config in zip(self.workers, ("source", "sink"), (source, sink)):
            wait_for(f"{connector} created", lambda: worker.ask("PUT", f"/connectors/{connector}/config", config))
        wait_for("both to run", lambda: states(self.workers[0], "source") == ["RUNNING"] * 2
                 and states(self.workers[0], "sink") in (["RUNNING"] * 2, ["RUNNING"] * 3))
        self.await_lines(100)

    def rebalance(self):
        """A worker goes: the other has all; it comes back: work is shared again."""
        self.workers[1].stop()
        self.write(100, 200)
        wait_for("all at the first worker", lambda: self.placed() == {f"127.0.0.1:{self.workers[0].port}"})
        self.await_lines(200)
        self.workers[1] = Worker(directory=self.directory, libs=self.libs, name=self.name, number=3)
        wait_for("work at both workers", lambda: len(self.placed()) == 2)
        self.write(200, 300)
        self.await_lines(300)

    def placed(self):
        found = set()
        for connector in ("source", "sink"):
            status = self.workers[0].get(f"/connectors/{connector}/status")
            if any(part["state"] != "RUNNING" for part in [status["connector"], *status["tasks"]]):
                return set()
            found |= {part["worker_id"] for part in [status["connector"], *status["tasks"]]}
        return found

    def offsets(self):
        """The sink's offsets are those of its group: read, reset (the group is deleted) and altered while it is stopped."""
        worker = self.workers[0]

        def committed():
            found = worker.get("/connectors/sink/offsets")["offsets"]
            return [entry["offset"]["kafka_offset"] for entry in found]
        wait_for("the sink's offsets", lambda: committed() == [300])
        size = self.source_file.stat().st_size
        wait_for("the source's position",
                 lambda: worker.get("/connectors/source/offsets")["offsets"][0]["offset"]["position"] == size)
        worker.ask("PUT", "/connectors/sink/stop")
        wait_for("the sink to stop", lambda: states(worker, "sink") == ["STOPPED"])
        altered = {"offsets": [{"partition": {"kafka_topic": self.topic, "kafka_partition": 0}, "offset": {"kafka_offset": 290}}]}
        wait_for("the offsets to be altered", lambda: worker.ask("PATCH", "/connectors/sink/offsets", altered))
        expect(committed(), [290], "altered offsets")
        removed = {"offsets": [{"partition": {"kafka_topic": self.topic, "kafka_partition": 0}, "offset": None}]}
        worker.ask("PATCH", "/connectors/sink/offsets", removed)
        expect(committed(), [], "removed offsets")
        worker.ask("PATCH", "/connectors/sink/offsets", altered)
        worker.ask("DELETE", "/connectors/sink/offsets")
        expect(committed(), [], "reset offsets")
        worker.ask("PUT", "/connectors/sink/resume")
        wait_for("the sink to have read all again", lambda: len(self.sink_file.read_text().splitlines()) >= 600)

    def delete(self):
        for connector in ("source", "sink"):
            self.workers[1].ask("DELETE", f"/connectors/{connector}")
        wait_for("no connectors", lambda: self.workers[0].get("/connectors") == [])


def with_connectors(directory, libs):
    """The worker's jars and the connectors of src/, as a folder of jars."""
    classes, together = directory / "classes", directory / "libs"
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True)
    together.mkdir()
    sources = sorted((pathlib.Path(__file__).parent / "src" / "compat").glob("*.java"))
    subprocess.run(["javac", "--release", "11", "-cp", f"{libs}/*", "-d", classes, *sources], check=True)
    (services / "org.apache.kafka.connect.source.SourceConnector").write_text("compat.LineSource\n")
    (services / "org.apache.kafka.connect.sink.SinkConnector").write_text("compat.LineSink\n")
    subprocess.run(["jar", "cf", together / "compat-connectors.jar", "-C", classes, "."], check=True)
    for jar in libs.glob("*.jar"):
        (together / jar.name).symlink_to(jar)
    return together


def main():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="kavka-compat-connect-"))
    libs = servers.maven_libs(f"connect-{servers.APACHE_VERSION}", "connect")
    run = Run(directory, with_connectors(directory, libs))
    try:
        check(CLIENT, "workers-start", run.workers_start)
        check(CLIENT, "source-and-sink", run.source_and_sink)
        check(CLIENT, "rebalance", run.rebalance)
        check(CLIENT, "offsets", run.offsets)
        check(CLIENT, "delete", run.delete)
    finally:
        run.stop()
        for log in sorted(directory.glob("worker-*.log")):
            for line in log.read_text(errors="replace").splitlines()[-25:]:
                print(f"{log.name}: {line[:300]}")
        shutil.rmtree(directory, ignore_errors=True)
    finish()


if __name__ == "__main__":
    sys.exit(main())
