"""The benches: each a function of one round on one system, registered by name.

All sizes are of record values (1 GB = 10^9 bytes); CPU is the broker process's own, user and system.
"""
import json
import os
import pathlib
import re
import subprocess
import time

import servers
from harness import peers

BENCHES = {}
GB = 1e9
MB = 1_000_000


class Bench:
    def __init__(self, name, function, rounds, seconds, systems, starts, prepare):
        self.name, self.function, self.rounds, self.systems = name, function, rounds, systems
        self.seconds, self.starts, self.prepare = seconds, starts, prepare


def bench(name, rounds=5, seconds=60, systems=("apache", "kavka", "bare"), starts=False, prepare=None, with_peers=False):
    """`seconds`: about how long a round of all systems takes on two quiet cores. `starts`: the function starts the system
    itself. `prepare` makes, once a run, the directory that each round of both systems begins with."""
    def register(function):
        taking_part = systems + (tuple(peers.installed()) if with_peers else ())
        BENCHES[name] = Bench(name, function, rounds, seconds, taking_part, starts or prepare is not None, prepare)
        return function
    return register


class Round:
    """What a bench function gets beside the system: where its figures go, and how large it may be."""

    def __init__(self, figures, bench_name, system, options, template=None, shared=None):
        self.template, self.shared = template, {} if shared is None else shared
        self.figures, self.bench_name, self.system, self.scale = figures, bench_name, system, options.scale
        self.match = re.compile(options.match)

    def wants(self, figure):
        return self.match.search(figure)

    def lower(self, figure, unit, value):
        self.figures.add(self.bench_name, figure, unit, "lower", self.system.kind, value)

    def higher(self, figure, unit, value):
        self.figures.add(self.bench_name, figure, unit, "higher", self.system.kind, value)

    def bytes(self, megabytes):
        return int(megabytes * MB * self.scale)

    def seconds(self, seconds):
        return max(2.0, seconds * self.scale)


def warm_megabytes(system, megabytes):
    """A JVM needs work before it is at its best; the others only their first pages."""
    return megabytes if system.kind == "apache" else megabytes / 5


def produce(round, system, label, megabytes, warm_up=0, **options):
    """Closed loop; CPU for a GB and throughput."""
    partitions = options.setdefault("partitions", 6)
    options.setdefault("producers", 4)
    topic = system.topic(partitions)
    if not round.wants(f"produce {label}"):
        return topic
    if system.kind in peers.PEERS:
        megabytes, warm_up = megabytes / peers.SHARE_OF_BYTES, 0
    if warm_up:
        system.load("run", topic=topic, bytes=round.bytes(warm_megabytes(system, warm_up)), **options)
    done = system.load("run", topic=topic, bytes=round.bytes(megabytes), **options)
    size = done["produced_bytes"]
    round.lower(f"produce {label}: CPU", "s/GB", done["broker_cpu_seconds"] / (size / GB))
    round.higher(f"produce {label}: throughput", "MB/s", size / MB / done["seconds"])
    return topic


def fetch(round, system, label, topic, megabytes, warm_up=0, **options):
    options.setdefault("partitions", 6)
    options.setdefault("consumers", 1)
    if not round.wants(f"fetch {label}"):
        return
    if warm_up:
        system.load("run", topic=topic, bytes=round.bytes(warm_megabytes(system, warm_up)), **options)
    done = system.load("run", topic=topic, bytes=round.bytes(megabytes), **options)
    size = done["fetched_bytes"]
    round.lower(f"fetch {label}: CPU", "s/GB", done["broker_cpu_seconds"] / (size / GB))
    round.higher(f"fetch {label}: throughput", "MB/s", size / MB / done["seconds"])


def first_record(system, spawn, timeout=120):
    """Milliseconds from the exec of the broker to its first acknowledged record."""
    waiter = subprocess.Popen(system.load_command("first", topic="first", timeout=timeout), stdout=subprocess.PIPE,
                              text=True)
    try:
        waiter.stdout.readline()  # ready
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        spawn()
        answer = waiter.communicate(timeout=timeout + 30)[0]
    finally:
        waiter.kill()
        waiter.wait()
    if waiter.returncode != 0:
        raise RuntimeError(f"{system.kind}: no record acknowledged after the start\n{system.log_tail()}")
    return (json.loads(answer)["acknowledged_ns"] - before) / 1e6


def binary_mib(system):
    if system.kind == "kavka":
        return servers.kavka_binary().stat().st_size / 2**20
    return sum(jar.stat().st_size for jar in servers.apache_libs().glob("*.jar")) / 2**20


def image_mib(system):
    """What a container's image must hold: kavka's (docker/Dockerfile) has the program and the libraries that it is linked with, and
    no more; Kafka's the jars and a JVM, here the one that runs it, and a system below that is not counted."""
    if system.kind == "kavka":
        linked = subprocess.run(["ldd", servers.kavka_binary()], capture_output=True, text=True).stdout
        libraries = {pathlib.Path(path) for path in re.findall(r"/\S+", linked)}
        return binary_mib(system) + sum(library.stat().st_size for library in libraries) / 2**20
    settings = subprocess.run(["java", "-XshowSettings:properties", "-version"], capture_output=True, text=True).stderr
    home = pathlib.Path(re.search(r"java\.home = (\S+)", settings)[1])
    # A development kit's own parts are none of what a broker needs.
    parts = (path for folder in ("bin", "lib", "conf") for path in (home / folder).rglob("*"))
    kept = (path for path in parts if path.is_file() and path.name not in ("src.zip", "ct.sym"))
    return binary_mib(system) + sum(path.stat().st_size for path in kept) / 2**20


@bench("startup", seconds=21, systems=("apache", "kavka"), starts=True)
def startup(round, system):
    elapsed = first_record(system, system.spawn)
    round.lower("start to first acknowledged record", "ms", elapsed)
    round.lower("start: CPU", "s", system.cpu_seconds())
    time.sleep(3)
    before = system.cpu_seconds()
    time.sleep(3)
    round.lower("idle: CPU", "% of a core", (system.cpu_seconds() - before) / 3 * 100)
    resident, proportional = system.memory_mib()
    round.lower("idle: resident memory", "MiB", resident)
    round.lower("idle: proportional memory", "MiB", proportional)
    round.lower("program (jars without the JVM)", "MiB", binary_mib(system))
    round.lower("image (without a system's own files)", "MiB", image_mib(system))
    if system.kind == "kavka":
        system.stop()
        system.fresh(formatted=False)
        command = system.unformatted_command()
        round.lower("start, not formatted before, to first record", "ms",
                    first_record(system, lambda: system.spawn(command)))


@bench("produce", seconds=42, with_peers=True)
def bench_produce(round, system):
    produce(round, system, "1 KiB", 1000, warm_up=800)
    produce(round, system, "100 B", 300, warm_up=150, record_size=100)
    produce(round, system, "1 KiB, batches of 256 KiB", 1500, warm_up=200, batch_records=256)


@bench("fetch", seconds=55)
def bench_fetch(round, system):
    topic = system.topic(6)
    system.load("run", topic=topic, producers=4, partitions=6, bytes=round.bytes(600))
    fetch(round, system, "1 KiB", topic, 6000, warm_up=4000)
    fetch(round, system, "1 KiB, 10 consumers", topic, 8000, consumers=10)
    fetch(round, system, "1 KiB, 64 KiB a partition", topic, 3000, warm_up=500, partition_max_bytes=65536)


@bench("fanout", seconds=34)
def fanout(round, system):
    """One producer, ten consumers that follow the tail."""
    topic = system.topic(6)
    options = {"topic": topic, "producers": 1, "consumers": 10, "partitions": 6}
    system.load("run", bytes=round.bytes(warm_megabytes(system, 150)), **options)
    done = system.load("run", bytes=round.bytes(200), **options)
    fetched = done["fetched_bytes"]
    round.lower("tail, as fast as it goes: CPU for a GB fetched", "s/GB", done["broker_cpu_seconds"] / (fetched / GB))
    round.higher("tail, as fast as it goes: fetched", "MB/s", fetched / MB / done["seconds"])
    options["topic"] = system.topic(6)  # the bare program wants batches of one size
    done = system.load("run", rate=100, batch_records=160, seconds=round.seconds(5), **options)
    fetched = done["fetched_bytes"]
    round.lower("tail at 16 MB/s: CPU for a GB fetched", "s/GB", done["broker_cpu_seconds"] / (fetched / GB))
    round.lower("tail at 16 MB/s: end to end p50", "us", done["end_to_end_us"]["p50"])
    round.lower("tail at 16 MB/s: end to end p99", "us", done["end_to_end_us"]["p99"])


@bench("mixed", rounds=3, seconds=20)
def mixed(round, system):
    """Four producers and two consumers that follow them, as fast as it goes."""
    options = {"topic": system.topic(6), "producers": 4, "consumers": 2, "partitions": 6}
    system.load("run", bytes=round.bytes(warm_megabytes(system, 300)), **options)
    done = system.load("run", bytes=round.bytes(500), **options)
    moved = done["produced_bytes"] + done["fetched_bytes"]
    round.lower("produced and fetched twice: CPU for a GB moved", "s/GB", done["broker_cpu_seconds"] / (moved / GB))
    round.higher("produced and fetched twice: moved", "MB/s", moved / MB / done["seconds"])


@bench("latency", seconds=44)
def latency(round, system):
    """A fixed rate (open loop, corrected) that Kafka holds with about half a core."""
    topic = system.topic(6)
    options = {"topic": topic, "producers": 8, "consumers": 1, "partitions": 6, "batch_records": 4,
               "rate": LATENCY_RATE}
    system.load("run", seconds=round.seconds(8 if system.kind == "apache" else 2), **options)
    done = system.load("run", seconds=round.seconds(8), skip_ms=500, **options)
    round.lower("broker cores used", "cores", done["broker_cpu_seconds"] / done["seconds"])
    for name, key in (("produce", "produce_us"), ("end to end", "end_to_end_us")):
        for shown, quantile in (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999")):
            round.lower(f"{name} {shown}", "us", done[key][quantile])


LATENCY_RATE = 2000


@bench("connections", rounds=5, seconds=15, systems=("apache", "kavka"))
def connections(round, system):
    """Memory of idle connections."""
    count = int(5000 * min(1, round.scale))
    time.sleep(1)
    before = system.memory_mib()[0]
    holder = subprocess.Popen(system.load_command("connect", connections=count), stdout=subprocess.PIPE,
                              stdin=subprocess.PIPE, text=True)
    try:
        seconds = json.loads(holder.stdout.readline())["seconds"]
        time.sleep(1)
        after = system.memory_mib()[0]
        cpu = system.cpu_seconds()
        time.sleep(2)
        round.lower(f"{count} idle connections: CPU", "% of a core", (system.cpu_seconds() - cpu) / 2 * 100)
    finally:
        holder.kill()
        holder.communicate()
    round.lower(f"{count} idle connections: memory more", "MiB", after - before)
    round.higher("connections accepted", "1/s", count / seconds)


@bench("partitions", rounds=1, seconds=90, systems=("apache", "kavka"))
def partitions(round, system):
    """Ten thousand partitions: their creation, memory and idle CPU; `recovery` starts with as many."""
    topics = max(1, int(10 * min(1, round.scale)))
    count = topics * 1000
    done = system.load("create", topic="many", topics=topics, partitions=1000, batch=1)
    round.lower(f"{count} partitions: created in", "s", done["seconds"])
    time.sleep(3)
    round.lower(f"{count} partitions: resident memory", "MiB", system.memory_mib()[0])
    cpu = system.cpu_seconds()
    time.sleep(3)
    round.lower(f"{count} partitions: idle CPU", "% of a core", (system.cpu_seconds() - cpu) / 3 * 100)


@bench("sizes", rounds=3, seconds=60)
def sizes(round, system):
    for label, size, megabytes in (("10 B", 10, 60), ("100 B", 100, 250), ("1 KiB", 1024, 500),
                                   ("100 KiB", 102_400, 1000)):
        topic = produce(round, system, label, megabytes, warm_up=megabytes / 2, record_size=size)
        fetch(round, system, label, topic, megabytes * 4, warm_up=megabytes, record_size=size)


@bench("compression", rounds=3, seconds=40)
def compression(round, system):
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(round, system, codec, 300, warm_up=150, compression=codec)


@bench("acks", rounds=3, seconds=21)
def acks(round, system):
    for value in (0, 1, -1):
        produce(round, system, f"acks={'all' if value == -1 else value}", 400, warm_up=200, acks=value)


@bench("by-partitions", rounds=3, seconds=45)
def by_partitions(round, system):
    for count in (1, 6, 100, 1000):
        produce(round, system, f"{count} partitions", 400, warm_up=200, partitions=count)


@bench("by-connections", rounds=3, seconds=28)
def by_connections(round, system):
    for count in (1, 50, 1000):
        produce(round, system, f"{count} connections", 400, warm_up=200, producers=count)


def tool(main_class, *arguments):
    done = subprocess.run(servers.java_command(main_class, *arguments, heap="512m"), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{main_class}: {done.stdout[-600:]}{done.stderr[-600:]}")
    return done.stdout


@bench("tools", rounds=3, seconds=70, systems=("apache", "kavka"))
def tools(round, system):
    """The stock tools: on a small machine the Java clients are the limit, the broker's CPU is the figure."""
    topic = system.topic(6)
    records = int(600_000 * round.scale)
    size = records * 1024
    bootstrap = f"bootstrap.servers={system.address}"
    for name, count in (("warm-up", records // 3), ("measured", records)):
        cpu = system.cpu_seconds()
        text = tool("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", count,
                    "--record-size", 1024, "--throughput", -1, "--producer-props", bootstrap)
        cpu = system.cpu_seconds() - cpu
    last = text.strip().splitlines()[-1]
    round.lower("kafka-producer-perf-test: CPU", "s/GB", cpu / (size / GB))
    round.higher("kafka-producer-perf-test: throughput", "MB/s", float(re.search(r"\(([\d.]+) MB/sec\)", last)[1]))
    round.lower("kafka-producer-perf-test: p99", "ms", float(re.search(r"([\d.]+) ms 99th", last)[1]))
    cpu = system.cpu_seconds()
    text = tool("org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", system.address, "--topic", topic,
                "--num-records", records)
    cpu = system.cpu_seconds() - cpu
    columns = dict(zip(*([cell.strip() for cell in line.split(",")] for line in text.strip().splitlines()[-2:])))
    round.lower("kafka-consumer-perf-test: CPU", "s/GB", cpu / (size / GB))
    round.higher("kafka-consumer-perf-test: throughput", "MB/s",
                 float(columns.get("fetch.MB.sec") or columns["MB.sec"]))
    text = tool("org.apache.kafka.tools.EndToEndLatency", "--bootstrap-server", system.address, "--topic",
                system.topic(1), "--num-records", int(3000 * min(1, round.scale)) or 500, "--producer-acks", "1",
                "--record-size", 1024)
    round.lower("kafka-e2e-latency: mean", "ms", float(re.search(r"Avg latency: ([\d.]+)", text)[1]))
    round.lower("kafka-e2e-latency: p99", "ms", float(re.search(r"99th = (\d+)", text)[1]))


def with_properties(system, *lines):
    """The system's node again, with more in its file; `fresh()` forgets it."""
    system.stop()
    with open(system.server.properties, "a") as properties:
        properties.writelines(f"{line}\n" for line in lines)
    system.start()


@bench("groups", rounds=3, seconds=90, systems=("apache", "kavka"))
def groups(round, system):
    """500 members that join one group at once, commits, and the load of a partition with a million of them."""
    # With the delays, which let members come together, the delays would be measured.
    with_properties(system, "group.initial.rebalance.delay.ms=0", "group.consumer.assignment.interval.ms=0",
                    "group.consumer.max.size=1000", "offsets.topic.num.partitions=1",
                    "group.consumer.min.heartbeat.interval.ms=50", "group.consumer.heartbeat.interval.ms=100")
    members = max(10, int(500 * min(1, round.scale)))
    topic = system.topic(members)
    for protocol in ("classic", "consumer"):
        if not round.wants(f"join {protocol}"):
            continue
        for group in ("warm-up", "measured"):
            done = system.load("join", topic=topic, members=members, protocol=protocol, group=f"{protocol}-{group}")
        round.lower(f"{members} members join one {protocol} group", "ms", done["seconds"] * 1000)
        round.lower(f"{members} members join one {protocol} group: CPU", "s", done["broker_cpu_seconds"])
    if round.wants("commits"):
        system.load("commits", topic=topic, seconds=round.seconds(5))
        done = system.load("commits", topic=topic, seconds=round.seconds(5))
        round.higher("commits, 32 connections", "/s", done["commits"] / done["seconds"])
        round.lower("commits: CPU", "s/million", done["broker_cpu_seconds"] / done["commits"] * 1e6)
    if round.wants("load"):
        load_of_a_million(round, system)


def load_of_a_million(round, system):
    """From the start of the node to the first committed offset that it answers; and what of it is the load, as the node's own log tells."""
    partitions = 1000
    topic = system.topic(partitions)
    commits = max(10_000, int(1_000_000 * round.scale))
    system.load("fill", topic=topic, partitions=partitions, commits=commits)
    system.stop()
    log_before = system.log_path.stat().st_size
    waiter = subprocess.Popen(system.load_command("fetched", topic=topic, group="fill-0"), stdout=subprocess.PIPE, text=True)
    try:
        waiter.stdout.readline()  # ready
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        system.spawn()
        answer = json.loads(waiter.communicate(timeout=150)[0])
    finally:
        waiter.kill()
        waiter.wait()
    if answer["offset"] <= 0:
        raise RuntimeError(f"{system.kind}: no offset is there after the start: {answer}")
    round.lower("start with a million commits to the first offset", "ms", (answer["fetched_ns"] - before) / 1e6)
    with open(system.log_path, "rb") as log:
        log.seek(log_before)
        text = log.read().decode(errors="replace")
    told = re.search(r"Finished loading of metadata from __consumer_offsets-0 with epoch \d+ in (\d+)ms", text) \
        or re.search(r"loaded a coordinator .*__consumer_offsets-0.* ms=(\d+)", re.sub("\x1b\\[[0-9;]*m", "", text))
    if told:
        round.lower("load of a million commits", "ms", float(told[1]))


TRANSACTION_RATE = 500
TRANSACTION_BYTES_PER_SECOND = 100 * 10**6


@bench("transactions", rounds=3, seconds=85, systems=("apache", "kavka"))
def transactions(round, system):
    """Small transactions (one record, then the commit) of one producer and of 50; large ones that are committed every 100 ms."""
    topic = system.topic(6)
    options = {"topic": topic, "partitions": 6}
    system.load("transactions", producers=50, seconds=round.seconds(8 if system.kind == "apache" else 2), **options)
    for producers in (1, 50):
        label = f"{producers} producer{'s' if producers > 1 else ''}"
        if not round.wants(f"transactions {label}"):
            continue
        done = system.load("transactions", producers=producers, seconds=round.seconds(5), **options)
        count = done["transactions"]
        round.higher(f"small transactions, {label}", "/s", count / done["seconds"])
        round.lower(f"small transactions, {label}: CPU", "s/million", done["broker_cpu_seconds"] / count * 1e6)
        transaction_latency(round, label, done)
    if round.wants("transactions rate"):
        # In a closed loop who does more waits longer for its turn: latencies compare at a rate that both hold.
        done = system.load("transactions", producers=50, rate=TRANSACTION_RATE, seconds=round.seconds(5), **options)
        transaction_latency(round, f"50 producers, {TRANSACTION_RATE}/s", done)
    if not round.wants("transactions 100 ms"):
        return
    options |= {"producers": 4, "interval_ms": 100, "record_size": 1024, "batch_records": 16}
    system.load("transactions", seconds=round.seconds(4 if system.kind == "apache" else 1), **options)
    done = system.load("transactions", seconds=round.seconds(5), **options)
    size = done["produced_bytes"]
    round.higher("1 KiB, 4 producers, a commit every 100 ms: throughput", "MB/s", size / MB / done["seconds"])
    round.lower("1 KiB, 4 producers, a commit every 100 ms: CPU", "s/GB", done["broker_cpu_seconds"] / (size / GB))
    # As above: at one rate, not at twice Kafka's.
    done = system.load("transactions", bytes_per_second=TRANSACTION_BYTES_PER_SECOND, seconds=round.seconds(5), **options)
    size = done["produced_bytes"]
    label = f"1 KiB, 4 producers at {TRANSACTION_BYTES_PER_SECOND // MB} MB/s, a commit every 100 ms"
    round.lower(f"{label}: CPU", "s/GB", done["broker_cpu_seconds"] / (size / GB))
    transaction_latency(round, label, done, names=("commit",))


def transaction_latency(round, label, done, names=("commit", "transaction")):
    for name in names:
        for quantile in ("p50", "p99"):
            round.lower(f"{label}: {name} {quantile}", "us", done[f"{name}_us"][quantile])


@bench("cold", rounds=3, seconds=40)
def cold(round, system):
    """Reads from the disk, the page cache dropped before."""
    topic = system.topic(6)
    system.load("run", topic=topic, producers=4, partitions=6, bytes=round.bytes(1000))
    if not drop_page_cache():
        return
    fetch(round, system, "1 KiB from disk", topic, 1000)


def drop_page_cache():
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("1\n")
        return True
    except OSError:
        return False
