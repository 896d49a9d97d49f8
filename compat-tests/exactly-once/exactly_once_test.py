"""Each input is in the output once, whatever dies: consume, transform, produce under kill -9.

Three clients of different makes copy a topic in transactions, as one group, while a feeder writes to it. Round after round something is killed at
random: a client, or the node (Apache Kafka is killed no node: it loses what it had not flushed of the files' ends as little as kavka, but takes ten
times as long to come back). What is read with read_committed, while it goes on and again at the end, is the input: each once, in its order.

    SEED, EXACTLY_ONCE_ROUNDS (6)
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import servers
import wire
from results import check, expect, finish

HERE = pathlib.Path(__file__).resolve().parent
KIND = os.environ.get("COMPAT_AGAINST", "kavka")
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
ROUNDS = int(os.environ.get("EXACTLY_ONCE_ROUNDS", 6))
PATIENCE_SECONDS = 90
PARTITIONS = 6
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
SMALL_JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
PROPERTIES = "transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n"


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up waiting for {what()}")
        time.sleep(0.02)


class Feeder(threading.Thread):
    """Writes 0, 1, 2 ... to the partitions in turn, each once, whatever happens to the node."""

    def __init__(self, bootstrap, topic, rate):
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 300_000, "log_level": 0})
        self.topic, self.pause = topic, 10 / rate
        self.count, self.failures, self.ended = 0, [], threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(self.pause):
            for _ in range(10):
                self.producer.produce(self.topic, value=str(self.count), partition=self.count % PARTITIONS, on_delivery=self.delivered)
                self.count += 1
            self.producer.poll(0)

    def delivered(self, error, _):
        if error:
            self.failures.append(error)

    def end(self):
        self.ended.set()
        self.join()
        expect(self.producer.flush(PATIENCE_SECONDS), 0, "lines that were not sent")
        expect(self.failures, [], "lines that failed")
        return self.count


class Reader(threading.Thread):
    """Reads all partitions with read_committed while things go on."""

    def __init__(self, bootstrap, topic):
        super().__init__(daemon=True)
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
                                  "isolation.level": "read_committed", "log_level": 0})
        self.consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.values = [[] for _ in range(PARTITIONS)]
        self.failure, self.ended = None, threading.Event()
        self.start()

    def run(self):
        while not self.ended.is_set():
            for message in self.consumer.consume(500, 0.1):
                if message.error() is None:
                    self.values[message.partition()].append(int(message.value()))
                elif message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    self.failure = message.error()
        self.consumer.close()

    def count(self):
        return sum(len(values) for values in self.values)

    def end(self):
        self.ended.set()
        self.join()
        expect(self.failure, None, "the reader's failure")
        return self.values


class Worker:
    """A copying client, started again when it ends."""

    def __init__(self, command, log):
        self.command, self.log, self.starts = [str(word) for word in command], log, 0
        self.process = None
        self.start()

    def start(self):
        self.starts += 1
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT)

    def watch(self):
        if self.process.poll() is not None:
            self.start()

    def pause(self, seconds):
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()


def python_agent():
    return [sys.executable, HERE / "agents" / "confluent_agent.py"]


def java_agent(work):
    libs = f"{servers.apache_libs()}/*"
    subprocess.run(["javac", "-nowarn", "-cp", libs, "-d", work, HERE / "agents" / "Copier.java"], check=True)
    config = servers.ROOT / "compat-tests" / "apache" / "log4j2.xml"
    return ["java", "-Xmx128m", *SMALL_JVM, f"-Dlog4j2.configurationFile={config}", "-Dcompat.log.level=error", "-cp", f"{work}:{libs}", "Copier"]


def go_agent():
    program = servers.CACHE / "exactly-once-franz-go"
    subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "agents" / "franz-go", check=True,
                   env=dict(os.environ, GOFLAGS="-mod=mod", GOTOOLCHAIN="local"))
    return [program]


class Setting:
    """A node, a topic to copy and one to copy to."""

    def __init__(self, work):
        self.work = pathlib.Path(work)
        self.server = servers.Server(KIND, self.work / "node", PROPERTIES)
        self.server.format()
        self.server.start()
        self.bootstrap = self.server.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in self.admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("source", "target")]).values():
            future.result(PATIENCE_SECONDS)
        self.log = open(self.work / "workers.log", "ab")
        self.workers = []

    def worker(self, command):
        self.workers.append(Worker(command, self.log))

    def kill_node(self, rng):
        self.server.stop(signal.SIGKILL)
        time.sleep(rng.uniform(0, 0.7))
        self.server.start()

    def end(self):
        for worker in self.workers:
            worker.kill()
        self.server.stop(signal.SIGKILL)
        self.log.close()

    def state(self):
        """What the node says of the group and the transactions, where everybody stands, and the ends of the logs."""
        with wire.Connection(self.bootstrap) as node:
            groups = node.ask("DescribeGroups", 5, groups=["copiers", "message-copiers"])["groups"]
            listed = node.ask("ListTransactions", 1, durationFilter=-1)["transactionStates"]
            told = node.ask("DescribeTransactions", 0, transactionalIds=[found["transactionalId"] for found in listed])["transactionStates"]
        lines = [f"{group['groupId']} {group['groupState']} {[member['clientId'] for member in group['members']]}" for group in groups]
        lines += map(str, told)
        for worker in self.workers:
            # Java and Go, and Python as it is set here, say where their threads are.
            worker.process.send_signal(signal.SIGQUIT)
        time.sleep(2)
        self.log.flush()
        lines += (self.work / "workers.log").read_text(errors="replace").splitlines()[-800:]
        return "\n".join(line[:300] for line in lines) + f"\n--- the node\n{self.server.log_tail(60)}"


def expect_all(found, count, what, step=PARTITIONS):
    """Partition by partition: each value once and in order."""
    for partition, values in enumerate(found):
        wanted = list(range(partition, count, step))
        if values != wanted:
            lost, seen = sorted(set(wanted) - set(values)), sorted(set(values))
            twice = sorted(value for value in seen if values.count(value) > 1)
            raise AssertionError(f"{what}, partition {partition}: {len(values)} of {len(wanted)} values, {len(lost)} lost: {lost[:5]}, "
                                 f"{len(twice)} more than once: {twice[:5]}, in order: {values == sorted(values)}")


def read_again(bootstrap, topic, count):
    reader = Reader(bootstrap, topic)
    wait_for(lambda: f"{topic}: {reader.count()} of {count}", lambda: reader.count() >= count)
    time.sleep(0.5)
    return reader.end()


def in_setting(test):
    def run():
        print(f"SEED={SEED} ROUNDS={ROUNDS}", flush=True)
        work = tempfile.mkdtemp(prefix="kavka-exactly-once-")
        setting = Setting(work)
        try:
            test(setting, random.Random(SEED))
        except BaseException:
            print(setting.state(), flush=True)
            raise
        finally:
            setting.end()
            if not os.environ.get("KAVKA_COMPAT_KEEP"):
                shutil.rmtree(work, ignore_errors=True)
    return run


def different_clients(setting, rng):
    arguments = ["source", "target", "copiers"]
    os.environ["BOOTSTRAP"] = setting.bootstrap
    # One is a static member, which has its partitions again at once; the others' are fenced and shared.
    setting.worker(python_agent() + arguments + ["copier-librdkafka", "static-1"])
    setting.worker(java_agent(setting.work) + arguments + ["copier-java"])
    setting.worker(go_agent() + arguments + ["copier-franz-go"])
    feeder, reader = Feeder(setting.bootstrap, "source", 400), Reader(setting.bootstrap, "target")

    def more(count):
        def is_there():
            for worker in setting.workers:
                worker.watch()
            return reader.count() >= count
        wait_for(lambda: f"{count} copies, there are {reader.count()} of {feeder.count}", is_there)

    clients = ["librdkafka", "java", "franz-go"]
    kinds = clients + (["node", "node"] if KIND == "kavka" else []) + (["a pause"] if ROUNDS >= 10 else [])
    victims = [victim for _ in range(ROUNDS) for victim in rng.sample(kinds, len(kinds))][:ROUNDS]
    for number, victim in enumerate(victims):
        more(reader.count() + 100)
        time.sleep(rng.uniform(0, 0.6))
        print(f"round {number}: {victim} at {reader.count()} copies", flush=True)
        if victim == "node":
            setting.kill_node(rng)
        elif victim in clients:
            setting.workers[clients.index(victim)].kill()
        else:
            # The others take its partitions over; then it goes on in the middle of its transaction.
            setting.workers[rng.randrange(1, len(clients))].pause(9)
    count = feeder.end()
    more(count)
    time.sleep(1)
    for worker in setting.workers:
        worker.kill()
    print(f"{count} lines, started: {[worker.starts for worker in setting.workers]}", flush=True)
    expect_all(read_again(setting.bootstrap, "source", count), count, "the input")
    expect_all(reader.end(), count, "read as it was written")
    expect_all(read_again(setting.bootstrap, "target", count), count, "read at the end")


def message_copier(setting, rng):
    """As Kafka's own system test: a copier for each partition, with random aborts, until all that there was is copied."""
    count, partitions = 12_000, 3
    producer = Producer({"bootstrap.servers": setting.bootstrap, "enable.idempotence": True, "log_level": 0})
    for value in range(count):
        producer.produce("source", value=str(value), partition=value % partitions)
        producer.poll(0)
    expect(producer.flush(PATIENCE_SECONDS), 0, "lines that were not sent")
    reader = Reader(setting.bootstrap, "target")
    for partition in range(partitions):
        setting.worker(servers.java_command(
            COPIER, "--broker-list", setting.bootstrap, "--input-topic", "source", "--input-partition", partition, "--output-topic", "target",
            "--transactional-id", f"copier-{partition}", "--consumer-group", "message-copiers", "--transaction-size", 20, "--enable-random-aborts",
            # It asks for its position before it fences the one that was killed: the open transaction must time out well before its patience of 60 s.
            "--transaction-timeout", 20_000,
            *(["--use-group-metadata"] if partition else []), heap="128m", jvm_flags=SMALL_JVM))

    def ended():
        return [worker.process.poll() for worker in setting.workers]

    for number in range(ROUNDS):
        copied = reader.count()
        wait_for(lambda: f"more than {copied} copies", lambda: reader.count() > copied + count // (4 * ROUNDS) or None not in ended())
        running = [worker for worker in setting.workers if worker.process.poll() is None]
        if not running:
            break
        if KIND == "kavka" and number % 2:
            setting.kill_node(rng)
        else:
            worker = rng.choice(running)
            worker.kill()
            worker.start()
    wait_for(lambda: f"the copiers' ends, there are {reader.count()} copies, {ended()}", lambda: None not in ended())
    expect(ended(), [0] * partitions, "exit codes of the copiers")
    wait_for(lambda: f"{count} copies, there are {reader.count()}", lambda: reader.count() >= count)
    found = read_again(setting.bootstrap, "target", count)
    expect_all(reader.end()[:partitions], count, "read as it was written", partitions)
    expect_all(found[:partitions], count, "read at the end", partitions)


if __name__ == "__main__":
    check("different clients", "exactly once: kill -9", in_setting(different_clients))
    check("kafka 4.4 tools", "exactly once: TransactionalMessageCopier", in_setting(message_copier))
    sys.exit(finish())
