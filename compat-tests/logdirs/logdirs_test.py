"""A node with two log directories: kafka-log-dirs, the moves that kafka-reassign-partitions asks for, and directories that fail.

expected/ is what Apache Kafka made the tools print; COMPAT_RECORD=1 with --against apache writes it anew, a run against Apache Kafka without it checks
that it is still true.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import servers
from results import Absent, check, finish

HERE = pathlib.Path(__file__).resolve().parent
KIND = {"kavka": "kavka", "apache": "apache"}.get(os.environ.get("COMPAT_AGAINST"))
RECORD = os.environ.get("COMPAT_RECORD") == "1" and KIND == "apache"
CLIENT = "kafka 4.4 tools, log dirs"
PROPERTIES = "replica.high.watermark.checkpoint.interval.ms=500\nlog.initial.task.delay.ms=100\nlog.flush.offset.checkpoint.interval.ms=500\n" \
    "kavka.log.scrub.interval.ms=1000\nkavka.log.scrub.io.max.bytes.per.second=100000000\n"


class Node:
    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="kavka-logdirs-"))
        self.server = servers.Server(KIND, self.directory)
        text = self.server.properties.read_text().replace(
            f"log.dirs={self.directory}/data", f"log.dirs={self.directory}/one,{self.directory}/two") + PROPERTIES
        self.server.properties.write_text(text)
        self.server.format()
        self.server.start()

    def close(self):
        self.server.stop(signal.SIGKILL)
        subprocess.run(["rm", "-rf", str(self.directory)], check=False)

    def tool(self, main_class, *arguments, data=None, code=0):
        done = subprocess.run(
            servers.java_command(main_class, "--bootstrap-server", self.server.bootstrap, *arguments, libs=os.environ["APACHE_LIBS"], heap="256m",
                                 jvm_flags=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]),
            input=data, capture_output=True, text=True, timeout=90)
        printed = done.stdout + done.stderr
        if code is not None and done.returncode != code:
            raise AssertionError(f"{main_class} {arguments} ended with {done.returncode}:\n{printed}")
        return printed

    def topics(self, *arguments, **options):
        return self.tool("org.apache.kafka.tools.TopicCommand", *arguments, **options)

    def log_dirs(self, *arguments):
        """What kafka-log-dirs --describe prints, the JSON in order and without sizes of file systems."""
        printed = self.tool("org.apache.kafka.tools.LogDirsCommand", "--describe", *arguments)
        lines = printed.splitlines()
        described = json.loads(lines[-1])
        for broker in described["brokers"]:
            broker["logDirs"].sort(key=lambda entry: entry["logDir"])
            for entry in broker["logDirs"]:
                entry["partitions"].sort(key=lambda partition: partition["partition"])
        return lines[:-1], described

    def move(self, *moves):
        """(topic, partition, directory's name) each, by AlterReplicaLogDirs; what is answered."""
        words = [str(word) for topic, partition, name in moves for word in (topic, partition, self.directory / name)]
        command = servers.java_command("Alter", self.server.bootstrap, *words, libs=os.environ["APACHE_LIBS"], heap="128m")
        # From its source, without a build.
        command[command.index("Alter")] = str(HERE / "Alter.java")
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
        return done.stdout

    def produce(self, topic, count, size=1000):
        data = "".join(f"{index}{'v' * size}\n" for index in range(count))
        self.tool("org.apache.kafka.tools.ConsoleProducer", "--topic", topic, data=data)

    def count(self, topic, count):
        printed = self.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", str(count),
                            "--timeout-ms", "20000")
        return sum(line.endswith("v") for line in printed.splitlines())

    def place_of(self, partition):
        found = [path.parent.name for path in self.directory.glob(f"*/{partition}") if path.is_dir()]
        return found[0] if len(found) == 1 else found

    def masked(self, text):
        text = text.replace(str(self.directory), "<dir>").replace(self.server.bootstrap, "<node>")
        return re.sub(r"\[\d{4}-\d\d-\d\d[^\]]*\] ", "", text)


def until(condition, what, timeout=40):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s")
        time.sleep(0.2)


def compare(name, text):
    path = HERE / "expected" / f"{name}.txt"
    if RECORD:
        path.write_text(text)
    elif text != path.read_text():
        raise AssertionError(f"output differs from Apache Kafka's\n--- Apache Kafka\n{path.read_text()}\n--- here\n{text}")


def moves(node):
    node.topics("--create", "--topic", "moving", "--partitions", "1")
    node.produce("moving", 2000)
    start = node.place_of("moving-0")
    other = "two" if start == "one" else "one"
    first, described = node.log_dirs("--topic-list", "moving")
    printed = [*first, json.dumps(described, indent=1)]
    printed.append(node.move(("moving", 0, other)))
    until(lambda: node.place_of("moving-0") == other, "the move")
    first, described = node.log_dirs("--topic-list", "moving")
    printed += [*first, json.dumps(described, indent=1)]
    # Where it is already, where there is nothing, and what there is not.
    printed.append(node.move(("moving", 0, other), ("moving", 0, "three"), ("moving", 1, start), ("missing", 0, start)))
    text = node.masked("\n".join(printed))
    # Which of the two the topic began in is chance where both had as many logs.
    text = text.replace(f"<dir>/{start}", "<start>").replace(f"<dir>/{other}", "<target>")
    text = re.sub(r'"(size)": \d+', r'"\1": "<bytes>"', text)
    compare("moves", text)
    if node.count("moving", 2000) != 2000:
        raise AssertionError("records are missing after the move")


def moves_over_a_restart(node):
    """Moves under load; some of them are cut by a kill -9, and go on."""
    node.topics("--create", "--topic", "cut", "--partitions", "4")
    node.produce("cut", 20_000)
    wishes = []
    for partition in range(4):
        other = "two" if node.place_of(f"cut-{partition}") == "one" else "one"
        wishes.append((f"cut-{partition}", other))
    node.move(*(("cut", index, wish[1]) for index, wish in enumerate(wishes)))
    node.server.stop(signal.SIGKILL)
    node.server.start()
    until(lambda: all(node.place_of(name) == wish for name, wish in wishes), f"the moves after a kill -9 {wishes}")
    if node.count("cut", 20_000) != 20_000:
        raise AssertionError("records are missing after the moves")


def damage_is_found(node):
    """A byte of a closed segment turns; only kavka looks."""
    if KIND != "kavka":
        raise Absent("no scrub")
    node.topics("--create", "--topic", "damaged", "--partitions", "1", "--config", "segment.bytes=1048576")
    node.produce("damaged", 3000)
    segments = sorted(node.directory.glob("*/damaged-0/*.log"))
    if len(segments) < 2:
        raise AssertionError(f"segments: {segments}")
    with open(segments[0], "r+b") as segment:
        segment.seek(500_000)
        byte = segment.read(1)[0]
        segment.seek(500_000)
        segment.write(bytes([byte ^ 1]))
    said = re.compile(r"damaged-0: offsets (\d+) to (\d+) in .*damaged on disk")
    until(lambda: said.search(node.server.log_path.read_text()), "the scrub")
    first, last = map(int, said.search(node.server.log_path.read_text()).groups())

    def read(offset, count):
        printed = node.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "damaged", "--partition", "0", "--offset", str(offset),
                            "--max-messages", str(count), "--timeout-ms", "10000", code=None)
        return sum(line.endswith("v") for line in printed.splitlines()), printed
    found, printed = read(0, 3000)
    if found != first or "corrupt" not in printed.lower():
        raise AssertionError(f"{found} records before the damage at {first}:\n{printed[-500:]}")
    found, printed = read(last + 1, 3000 - last - 1)
    if found != 3000 - last - 1:
        raise AssertionError(f"{found} records behind the damage up to {last}:\n{printed[-500:]}")


def one_directory_fails(node):
    node.topics("--create", "--topic", "failing", "--partitions", "6")
    node.produce("failing", 60)
    in_two = {index for index in range(6) if node.place_of(f"failing-{index}") == "two"}
    if not in_two or len(in_two) == 6:
        raise AssertionError(f"all partitions are in one directory: {in_two}")
    # Files in it can be made no more.
    (node.directory / "two").rename(node.directory / "gone")
    (node.directory / "two").write_text("")

    def leaders():
        printed = node.topics("--describe", "--topic", "failing")
        found = re.findall(r"Partition: (\d+)\s+Leader: (\S+)", printed)
        return {int(index): leader for index, leader in found}
    wanted = {index: "none" if index in in_two else "1" for index in range(6)}
    until(lambda: leaders() == wanted, f"leaders {wanted}")
    described = node.log_dirs()[1]["brokers"][0]["logDirs"]
    errors = {pathlib.Path(entry["logDir"]).name: entry["error"] for entry in described}
    if errors["one"] is not None or "KafkaStorageException" not in str(errors["two"]):
        raise AssertionError(f"errors of the directories: {errors}")
    # The others go on.
    node.topics("--create", "--topic", "after", "--partitions", "1")
    node.produce("after", 10)
    # Without a group: the coordinator of one may have been in the directory that failed.
    printed = node.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "after", "--partition", "0", "--offset", "earliest",
                        "--max-messages", "10", "--timeout-ms", "20000")
    if sum(line.endswith("v") for line in printed.splitlines()) != 10:
        raise AssertionError(f"a new topic is not served:\n{printed[-500:]}")


def last_directory_fails(node):
    process = node.server.process
    (node.directory / "one").rename(node.directory / "gone too")
    (node.directory / "one").write_text("")
    until(lambda: process.poll() is not None, "the end of the node")
    if process.returncode in (0, -signal.SIGSEGV, -signal.SIGABRT):
        raise AssertionError(f"ended with {process.returncode}")
    if KIND == "kavka" and "the node cannot go on: the metadata log directory" not in node.server.log_path.read_text():
        raise AssertionError(f"no clear message:\n{node.server.log_tail()}")


def main():
    if KIND is None:
        print("starts its own servers")
        raise SystemExit(77)
    node = Node()
    try:
        check(CLIENT, "moves between log dirs", lambda: moves(node))
        check(CLIENT, "moves over kill -9", lambda: moves_over_a_restart(node))
        check(CLIENT, "damage is found", lambda: damage_is_found(node))
        check(CLIENT, "one log dir fails", lambda: one_directory_fails(node))
        check(CLIENT, "the last log dir fails", lambda: last_directory_fails(node))
    finally:
        if os.environ.get("KAVKA_COMPAT_KEEP"):
            print(node.server.log_tail(60))
        node.close()
    finish()


if __name__ == "__main__":
    main()
