"""A word count of Kafka Streams with exactly_once_v2 while its instances and the node are killed: it tells of each word 1, 2, 3 ..., and the truth at the end.

    SEED, STREAMS_ROUNDS (4): an instance, the node, an instance whose directory goes too, the node, and so on
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

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import servers
from results import check, finish

HERE = pathlib.Path(__file__).resolve().parent
KIND = os.environ.get("COMPAT_AGAINST", "kavka")
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
ROUNDS = int(os.environ.get("STREAMS_ROUNDS", 4))
PATIENCE_SECONDS = 90
WORDS = ["jackdaw", "rook", "crow", "raven", "magpie", "jay", "chough"]
INPUT, OUTPUT, APPLICATION = "lines", "counts", "count-words"


class Feeder(threading.Thread):
    def __init__(self, bootstrap, rng):
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 300_000, "log_level": 0})
        self.rng, self.truth, self.ended = rng, dict.fromkeys(WORDS, 0), threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(0.02):
            words = self.rng.choices(WORDS, k=3)
            self.producer.produce(INPUT, value=" ".join(words), partition=self.rng.randrange(3))
            self.producer.poll(0)
            for word in words:
                self.truth[word] += 1

    def end(self):
        self.ended.set()
        self.join()
        if self.producer.flush(PATIENCE_SECONDS):
            raise AssertionError("lines that were not sent")


class Instance:
    def __init__(self, command, directory, log):
        self.command, self.directory, self.log = command, directory, log
        self.start()

    def start(self):
        self.process = subprocess.Popen([*map(str, self.command), APPLICATION, INPUT, OUTPUT, str(self.directory)], stdout=self.log, stderr=subprocess.STDOUT)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Counts:
    """What is told of each word, in its order, read with read_committed as it is written."""

    def __init__(self, bootstrap):
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counts", "isolation.level": "read_committed", "enable.auto.commit": False,
                                  "log_level": 0})
        self.consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in range(2)])
        self.told = {word: 0 for word in WORDS}

    def read(self):
        for message in self.consumer.consume(500, 0.1):
            if message.error() is None:
                word, count = message.key().decode(), int(message.value())
                if count != self.told[word] + 1:
                    raise AssertionError(f"{word}: {count} follows {self.told[word]}")
                self.told[word] = count

    def total(self):
        return sum(self.told.values())

    def until(self, what, condition):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"gave up waiting for {what}: {self.told}")
            self.read()


def run(work, rng):
    libs = servers.maven_libs(f"streams-{servers.APACHE_VERSION}", "streams")
    subprocess.run(["javac", "-nowarn", "-cp", f"{libs}/*", "-d", work, HERE / "CountWords.java"], check=True)
    config = servers.ROOT / "compat-tests" / "apache" / "log4j2.xml"
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={config}", "-Dcompat.log.level=error",
               "-cp", f"{work}:{libs}/*", "CountWords"]
    server = servers.Server(KIND, work / "node", "transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n")
    server.format()
    server.start()
    os.environ["BOOTSTRAP"] = server.bootstrap
    log, instances = open(work / "instances.log", "ab"), []
    try:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(INPUT, 3, 1), NewTopic(OUTPUT, 2, 1)]).values():
            future.result(PATIENCE_SECONDS)
        instances += [Instance(command, work / f"state-{number}", log) for number in range(2)]
        feeder, counts = Feeder(server.bootstrap, rng), Counts(server.bootstrap)
        for number in range(ROUNDS):
            before = counts.total()
            counts.until("more counts", lambda: counts.total() > before + 200)
            time.sleep(rng.uniform(0, 0.5))
            if number % 2:
                print(f"round {number}: the node at {counts.total()} counts", flush=True)
                server.stop(signal.SIGKILL if KIND == "kavka" else signal.SIGTERM)
                server.start()
                continue
            instance = rng.choice(instances)
            instance.kill()
            if number % 4 == 2:
                shutil.rmtree(instance.directory)
            print(f"round {number}: an instance at {counts.total()} counts", flush=True)
            instance.start()
        feeder.end()
        counts.until(f"the truth, {feeder.truth}", lambda: counts.told == feeder.truth)
        time.sleep(1)
        counts.read()
        again = Counts(server.bootstrap)
        again.until("the truth again", lambda: again.told == counts.told)
        print(f"{counts.total()} words", flush=True)
    except BaseException:
        log.flush()
        print((work / "instances.log").read_text(errors="replace")[-8000:], f"\n--- the node\n{server.log_tail(30)}", flush=True)
        raise
    finally:
        for instance in instances:
            instance.kill()
        server.stop(signal.SIGKILL)


def test():
    print(f"SEED={SEED} ROUNDS={ROUNDS}", flush=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix="kavka-streams-"))
    try:
        run(work, random.Random(SEED))
    finally:
        if not os.environ.get("KAVKA_COMPAT_KEEP"):
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    check("kafka streams 4.4", "exactly once: instances and node killed", test)
    sys.exit(finish())
