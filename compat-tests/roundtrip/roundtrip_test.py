"""One directory, opened by Apache Kafka 4.4 and by another broker in turns.

A leg: one broker formats and writes, the other opens the same directories, serves all of it, writes more, and the first opens them again. Between
the starts the files are checked as they were left, by kafka-dump-log. An idempotent producer lives through all of it. Whole contents are compared:
every record with offset, leader epoch, time, headers; ranges of both isolation levels; topics, configs, finalized features, groups' offsets.

Against Apache Kafka the other broker is Apache Kafka too, which proves the test.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import servers
from results import check, finish

HERE = pathlib.Path(__file__).resolve().parent
OTHER = {"kavka": "kavka", "apache": "apache"}.get(os.environ.get("COMPAT_AGAINST"))
PROPERTIES = """\
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=200
log.retention.ms=-1
log.flush.start.offset.checkpoint.interval.ms=200
log.flush.offset.checkpoint.interval.ms=500
"""
ADD_PARTITIONS_TO_TXN = 24


class Client:
    """The Java process that writes and reads."""

    def __init__(self, directory):
        self.log = open(directory / "client.log", "w")
        classes = directory / "classes"
        libs = f"{servers.apache_libs()}/*"
        subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", libs, HERE / "RoundTrip.java"], check=True, stdout=self.log, stderr=self.log)
        self.process = subprocess.Popen(
            ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
             f"-Dlog4j2.configurationFile={servers.ROOT / 'compat-tests' / 'apache' / 'log4j2.xml'}", "-Dcompat.log.level=error",
             "-cp", f"{classes}:{libs}", "RoundTrip"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def __call__(self, *words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "OK":
            raise AssertionError(f"{words[0]}: {answer or 'the client ended'}")

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.log.close()


def api_keys(port):
    """The keys that ApiVersions 0 tells of."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        answer = connection.makefile("rb")
        body = answer.read(struct.unpack(">i", answer.read(4))[0])
    count = struct.unpack_from(">i", body, 6)[0]
    return {struct.unpack_from(">h", body, 10 + 6 * i)[0] for i in range(count)}


def until(condition, what, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s")
        time.sleep(0.1)


class Leg:
    def __init__(self, client, directory, kinds, end):
        self.client, self.end = client, end
        self.server = servers.Server(kinds[0], directory)
        text = self.server.properties.read_text().replace(
            f"log.dirs={directory}/data", f"log.dirs={directory}/one,{directory}/two") + PROPERTIES
        self.server.properties.write_text(text)
        self.directory, self.kinds = directory, kinds
        self.contents, self.lines = None, []
        client("bootstrap", self.server.bootstrap)

    def read(self):
        path = self.directory / "contents.txt"
        self.client("contents", path, "true")
        return path.read_text().splitlines()

    def compare(self):
        """What is served is what was served before the stop."""
        now = [line for line in self.read() if not line.startswith("count ")]
        before = [line for line in self.lines if not line.startswith("count ")]
        if now != before:
            lost, new = sorted(set(before) - set(now)), sorted(set(now) - set(before))
            raise AssertionError(f"{self.server.kind}: {len(lost)} facts are gone: {lost[:3]}; {len(new)} are new: {new[:3]}")

    def write(self, round_number, is_first):
        if is_first:
            self.client("create")
        self.client("write", round_number, str(is_first).lower())
        if ADD_PARTITIONS_TO_TXN in api_keys(self.server.port):
            self.client("transactions", round_number)
        if is_first:
            self.client("delete-records")
        # Two compactions: by segments that are left, as the clients see it.
        until(lambda: len(self.segments("compacted-0")) <= 3, f"{self.server.kind} compacts")
        self.lines = self.read()

    def segments(self, partition):
        found = self.directory.glob(f"*/{partition}/*.log")
        return sorted(path for path in found if path.exists())

    def run(self):
        for round_number, kind in enumerate([self.kinds[0], self.kinds[1], self.kinds[0]]):
            self.server.kind = kind
            if round_number == 0:
                self.server.format()
            self.server.start()
            if round_number:
                self.compare()
            self.write(round_number, round_number == 0)
            self.server.stop(self.end)
            self.check_files(kind)
        for line in ("steady 0 99", "steady 1 99", "steady 2 99"):
            if sum(f"'{line}'" in record for record in self.lines) != 1:
                raise AssertionError(f"the producer that lived through it all: {line!r} is not there once")

    def check_files(self, kind):
        """The files as a broker left them, by kafka-dump-log."""
        indexes = sorted(self.directory.glob("*/*/*.index")) + sorted(self.directory.glob("*/*/*.timeindex"))

        def is_closed(path):
            # Those of an active segment are mended by the start. Apache Kafka leaves the metadata log's so after a clean stop too.
            is_active = path.stem == max(path.parent.glob("*.log")).stem
            return not is_active or (self.end == signal.SIGTERM and "__cluster_metadata" not in path.parent.name)
        indexes = [path for path in indexes if is_closed(path)]
        printed = self.dump(indexes, "--index-sanity-check")
        sane = len(re.findall(r"passed sanity check\.|is empty\.", printed))
        if sane < len(indexes):
            raise AssertionError(f"{kind} left {len(indexes)} indexes, {sane} of them sane:\n{printed[-600:]}")
        printed = self.dump(indexes, "--verify-index-only")
        # An index has the time stamp in the header of a batch that compaction emptied; kafka-dump-log looks for one in its records, and finds -1.
        printed = re.sub(r"Found timestamp mismatch in :\S+\n(  Index timestamp: \d+, log timestamp: -1\n)+(?!  )", "", printed)
        doubts = [line for line in printed.splitlines() if not line.startswith("Dumping ") and "is empty." not in line]
        if doubts:
            raise AssertionError(f"{kind} left indexes that are wrong: {doubts[:6]}")
        logs = sorted(self.directory.glob("*/__consumer_offsets-*/*.log"))
        printed = self.dump(logs, "--offsets-decoder")
        for group in ("group-a", "group-b"):
            if f'"group":"{group}"' not in printed:
                raise AssertionError(f"{kind} left no offsets of {group} that the decoder can read")
        transactions = sorted(self.directory.glob("*/__transaction_state-*/*.log"))
        if transactions and '"transactionalId":"' not in self.dump(transactions, "--transaction-log-decoder"):
            raise AssertionError(f"{kind} left no transactions that the decoder can read")
        if kind == "kavka" or OTHER == "kavka":
            self.compare_dumps(logs, "--offsets-decoder")
            self.compare_dumps(transactions, "--transaction-log-decoder")
            files = [path for pattern in ("*.log", "*.snapshot", "*.txnindex") for path in sorted(self.directory.glob(f"*/*/{pattern}"))]
            self.compare_dumps([path for path in files if "__cluster_metadata" not in str(path)], "--deep-iteration")

    def dump(self, files, *flags):
        output = self.directory / "dump.txt"
        self.client("dump-log", output, "--files", ",".join(map(str, files)), *flags)
        return output.read_text()

    def compare_dumps(self, files, *flags):
        """kavka dump-log prints what kafka-dump-log prints."""
        theirs = self.dump(files, *flags)
        done = subprocess.run([servers.kavka_binary(), "dump-log", "--files", ",".join(map(str, files)), *flags], capture_output=True, text=True)
        # Sorted: the files with gaps come at the end in the order of a Java hash map.
        ours, theirs = sorted((done.stdout + done.stderr).splitlines()), sorted(theirs.splitlines())
        if ours != theirs:
            raise AssertionError(f"kavka dump-log {flags}: {next(((a, b) for a, b in zip(ours, theirs) if a != b), 'another length')}")


def leg(client, kinds, end):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="kavka-roundtrip-"))
    trip = Leg(client, directory, kinds, end)
    try:
        trip.run()
        shutil.rmtree(directory, ignore_errors=True)
    except BaseException:
        print(f"in {directory}\n{trip.server.log_tail(30)}")
        if not os.environ.get("KAVKA_COMPAT_KEEP"):
            shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        trip.server.stop(signal.SIGKILL)


def main():
    if OTHER is None:
        print("the round trip starts its own servers")
        raise SystemExit(77)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="kavka-roundtrip-client-"))
    client = Client(directory)
    try:
        legs = {"directory from Apache, clean stops": (("apache", OTHER), signal.SIGTERM),
                "directory from here, clean stops": ((OTHER, "apache"), signal.SIGTERM),
                "directory from Apache, kill -9": (("apache", OTHER), signal.SIGKILL),
                "directory from here, kill -9": ((OTHER, "apache"), signal.SIGKILL)}
        for name, (kinds, end) in legs.items():
            check("round trip", name, lambda kinds=kinds, end=end: leg(client, kinds, end))
    finally:
        client.close()
        if not os.environ.get("KAVKA_COMPAT_KEEP"):
            shutil.rmtree(directory, ignore_errors=True)
    finish()


if __name__ == "__main__":
    main()
