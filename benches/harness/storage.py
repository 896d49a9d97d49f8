"""The benches of the log store: starts over directories that another broker left, and compaction.

Both systems open copies of the same directory. The first of the systems has made it: by default Apache Kafka.
"""
import json
import pathlib
import shutil
import signal
import subprocess
import time

from harness.benches import bench, first_record
from harness.systems import TICKS

BIG = 1 << 30
# Apache Kafka needs minutes to start with ten thousand partitions that it has to recover.
SECONDS_MAX = 900


class Template:
    """A data directory made once a run, and copied for every round."""

    def __init__(self, system):
        self.maker = system
        self.path = pathlib.Path(f"{system.directory}-template-{id(self)}")

    def keep(self):
        """Takes the stopped maker's directory."""
        (self.maker.directory / "data").rename(self.path)

    def copy_to(self, system):
        """Files that are mostly holes (Kafka makes its indexes at full length) stay so."""
        system.fresh()
        shutil.rmtree(system.directory / "data")
        subprocess.run(["cp", "-a", "--sparse=always", self.path, system.directory / "data"], check=True)
        subprocess.run(["sync", "-f", system.directory], check=True)


def start_with(system, properties=""):
    """Starts it with further lines in its server.properties."""
    with open(system.directory / "server.properties", "a") as out:
        out.write(properties)
    return system.start()


def stop_seconds(system):
    start = time.monotonic()
    system.stop()
    return time.monotonic() - start


# ---- recovery

def many_and_big(template, options):
    """Thousands of partitions, some with data that was never flushed, and a large segment that was; then kill -9."""
    system = template.maker
    topics = max(1, int(10 * min(1, options.scale)))
    system.fresh()
    start_with(system, "log.flush.offset.checkpoint.interval.ms=1000\nlog.initial.task.delay.ms=1000\n")
    size = int(BIG * min(1, options.scale))
    system.load("create", topic="big", configs=f"segment.bytes={size}")
    system.load("run", topic="big", producers=1, bytes=int(size * 1.02), partitions=1)
    for number in range(topics):  # one by one: Apache Kafka needs minutes for all of them
        system.load("create", topic=f"many-{number}", partitions=1000)
    time.sleep(5)  # the flushed segment's recovery point is written down
    system.load("run", topic="many-0", producers=4, partitions=1000, bytes=int(40_000_000 * options.scale))
    system.stop(signal.SIGKILL)
    template.keep()


@bench("recovery", rounds=1, seconds=420, systems=("apache", "kavka"), prepare=many_and_big)
def recovery(round, system):
    """Starts with ten thousand partitions on the same directory: after a kill -9 and after a clean end."""
    count = max(1, int(10 * min(1, round.scale))) * 1000
    round.template.copy_to(system)
    round.lower(f"{count} partitions: start after kill -9", "ms", first_record(system, system.spawn, SECONDS_MAX))
    round.lower(f"{count} partitions: start after kill -9, CPU", "s", system.cpu_seconds())
    time.sleep(2)
    round.lower(f"{count} partitions: resident memory", "MiB", system.memory_mib()[0])
    done = system.load("seek", topic="big", count=200)  # a JVM needs a few
    done = system.load("seek", topic="big", count=2000)
    size = f"{BIG * min(1, round.scale) / 2**30:.3g} GiB"
    round.lower(f"random offset in {size}: fetch p50", "us", done["fetch_us"]["p50"])
    round.lower(f"random offset in {size}: fetch p99", "us", done["fetch_us"]["p99"])
    round.lower(f"random offset in {size}: CPU", "us", done["broker_cpu_seconds"] / done["count"] * 1e6)
    round.lower(f"{count} partitions: clean stop", "s", stop_seconds(system))
    round.lower(f"{count} partitions: clean start", "ms", first_record(system, system.spawn, SECONDS_MAX))


# ---- compaction

COMPACTED = "cleanup.policy=compact,segment.bytes=104857600,min.cleanable.dirty.ratio=0.01"


def keyed_log(template, options):
    """A log of keys that come again and again, which nobody has cleaned."""
    system = template.maker
    system.fresh()
    start_with(system, "log.cleaner.enable=false\n")
    system.load("create", topic="compacted", configs=COMPACTED)
    system.load("keyed", topic="compacted", bytes=int(1_000_000_000 * options.scale))
    system.stop()
    template.keep()


class CleanerThread:
    """The broker's cleaner thread, as the kernel knows it."""

    NAMES = {"apache": "kafka-log-clean", "kavka": "log-cleaner-0"}

    def __init__(self, system):
        self.system = system
        self.task = None

    def cpu_seconds(self):
        if self.task is None:
            for task in pathlib.Path(f"/proc/{self.system.process.pid}/task").iterdir():
                if (task / "comm").read_text().strip() == self.NAMES[self.system.kind]:
                    self.task = task
                    break
            else:
                return 0.0
        fields = (self.task / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def is_cleaned(partition, segments):
    """All but the active segment were taken: the checkpoint says up to where."""
    checkpoint = partition.parent / "cleaner-offset-checkpoint"
    if not checkpoint.exists():
        return False
    active = max(int(path.name[:20]) for path in segments)
    for line in checkpoint.read_text().splitlines()[2:]:
        words = line.split()
        if words[:2] == ["compacted", "0"]:
            return int(words[2]) >= active
    return False


def digest(system, partition):
    done = subprocess.run([system.load_binary, "digest", "--directory", partition], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"digest: {done.stderr.strip()}")
    return json.loads(done.stdout)


@bench("compaction", rounds=3, seconds=40, systems=("apache", "kavka"), prepare=keyed_log)
def compaction(round, system):
    """Cleaning of the same log: its speed, and that the same records are left."""
    round.template.copy_to(system)
    partition = system.directory / "data" / "compacted-0"
    segments = sorted(path for path in partition.iterdir() if path.name.endswith(".log"))
    size = sum(path.stat().st_size for path in segments[:-1])
    cleaner = CleanerThread(system)
    began = None
    start_with(system, "log.cleaner.enable=true\nlog.cleaner.backoff.ms=200\n")
    deadline = time.monotonic() + 300
    while not is_cleaned(partition, segments):
        if began is None and cleaner.cpu_seconds() > 0.02:
            began = time.monotonic()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{system.kind}: not cleaned after 300 s\n{system.log_tail()}")
        time.sleep(0.002)
    seconds = time.monotonic() - (began or time.monotonic()) + 0.02
    cpu = cleaner.cpu_seconds()
    system.stop()
    left = digest(system, partition)
    round.higher("cleaning: dirty log", "MB/s", size / 1e6 / seconds)
    round.lower("cleaning: CPU of the cleaner's thread", "s/GB", cpu / (size / 1e9))
    round.lower("records left", "", left["records"])
    round.lower("bytes left", "MB", left["bytes"] / 1e6)
    known = round.shared.setdefault("digest", left["digest"])
    if known != left["digest"]:
        raise RuntimeError(f"{system.kind}: other records are left: {left}, not digest {known}")

