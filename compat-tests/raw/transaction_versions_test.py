"""State x request -> answer at transaction.version 0 and 1, as transactions_test.py has it for 2; and at all three for epochs that are used up.

    transaction_versions_test.py             compares with expected/transactions-<version>.txt and expected/exhausted-<version>.txt
    transaction_versions_test.py --record    writes those files; only ever from Apache Kafka (COMPAT_AGAINST=apache)

Each version has a node of its own. Epochs are used up by records in `__transaction_state` that say so: the one client that may write to internal
topics puts them there, and the node is started again.
"""
import os
import struct
import sys
import time

import servers
import transactions_test as raw
import wire

KIND = os.environ.get("COMPAT_AGAINST", "kavka")
PROPERTIES = "transaction.abort.timed.out.transaction.cleanup.interval.ms=100\n"
STATES = {"empty": 0, "ongoing": 1, "complete-commit": 4, "complete-abort": 5}
EPOCHS = [32765, 32766, 32767]
FIRST_PRODUCER_ID = 5_000_000


def late(producer):
    """The coordinator aborts an open transaction."""
    deadline = time.monotonic() + 10
    while producer.state()["transactionState"] in ("Ongoing", "PrepareAbort") and time.monotonic() < deadline:
        time.sleep(0.01)
    return "waited"


REQUESTS = {
    "InitProducerId 4": raw.init(4),
    "InitProducerId 5, its own": raw.init(5, epoch=0),
    "InitProducerId 5, the epoch before": raw.init(5, epoch=-1),
    "EndTxn 4, commit": raw.end(4, True),
    "EndTxn 4, abort": raw.end(4, False),
    "EndTxn 5, commit": raw.end(5, True),
    "EndTxn 5, abort": raw.end(5, False),
    "EndTxn 5, commit, the epoch before": raw.end(5, True, epoch=-1),
    "EndTxn 5, abort, the epoch before": raw.end(5, False, epoch=-1),
    "AddPartitionsToTxn 3": raw.add(3, [(raw.OTHER, 0)]),
    "TxnOffsetCommit 5": raw.commit_offsets(5),
    "Produce 12": raw.produce(12, topic=raw.OTHER),
    "Produce 12, the epoch before": raw.produce(12, epoch=-1, topic=raw.OTHER),
    "its time is over": late,
}


class Exhausted(raw.Producer):
    """One whose producer id and epoch a record has."""

    def __init__(self, state, epoch, number, raises_epoch):
        name = f"{state}-{epoch}-{number}"
        super().__init__(None, name, raises_epoch)
        self.producer_id, self.epoch = FIRST_PRODUCER_ID + number_of(name), epoch
        self.state_id = STATES[state]
        self.timeout_ms = 50 if list(REQUESTS)[number] == "its time is over" else 60_000

    def partition(self, partitions=5):
        code = 0
        for letter in self.id:
            code = (31 * code + ord(letter)) & 0xFFFFFFFF
        return min(code, (1 << 32) - code) % partitions

    def record(self):
        now = int(time.time() * 1000)
        name, topic = self.id.encode(), raw.TOPIC.encode()
        partitions = struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">ii", 1, 0)
        value = struct.pack(">hqhib", 0, self.producer_id, self.epoch, self.timeout_ms, self.state_id)
        value += partitions if self.state_id == 1 else struct.pack(">i", -1 if self.state_id == 0 else 0)
        value += struct.pack(">qq", now, -1 if self.state_id == 0 else now)
        return struct.pack(">hh", 0, len(name)) + name, value


def number_of(name):
    """A number for a name, by which no two cells have the same producer id."""
    return list(f"{state}-{epoch}-{number}" for state in STATES for epoch in EPOCHS for number in range(len(REQUESTS))).index(name)


# What needs records of a later version than 0. Apache Kafka answers UNSUPPORTED_VERSION once, and CONCURRENT_TRANSACTIONS from then on.
BEYOND_0 = ("EndTxn 5", "TxnOffsetCommit 5", "Produce 12")


def cells(state, version=2):
    # No producer is ever given the last epoch, which stands for one that was fenced.
    epochs = EPOCHS[:-1] if state == "ongoing" else EPOCHS
    return [(name, Exhausted(state, epoch, number, version == 2)) for epoch in epochs for number, name in enumerate(REQUESTS)
            if version or not name.startswith(BEYOND_0)]


def write_records(bootstrap):
    partitions = {}
    for state in STATES:
        for _, producer in cells(state):
            partitions.setdefault(producer.partition(), []).append(producer.record())
    with wire.Connection(bootstrap, client_id="__admin_client") as admin:
        answer = admin.ask("Produce", 11, acks=-1, timeoutMs=10000, topicData=[{"name": "__transaction_state", "partitionData": [
            {"index": index, "records": wire.batch(records)} for index, records in partitions.items()]}])
        for part in answer["responses"][0]["partitionResponses"]:
            raw.check(part["errorCode"])


def look(producer, ids):
    found = producer.settled()
    return f"{found['transactionState'] or raw.error(found['errorCode'])} {ids(found['producerId'])} {found['producerEpoch']}"


def exhausted(connection, name, producer):
    """The request, the same again, then a client that starts anew and does a transaction."""
    producer.connection = connection
    seen = [producer.producer_id]

    def ids(number):
        if number == -1:
            return "-1"
        if number not in seen:
            seen.append(number)
        return "ABCDE"[seen.index(number)]

    steps = [look(producer, ids)]
    request, epoch = REQUESTS[name], producer.epoch
    for _ in range(2):
        answer = request(producer)
        steps += [answer, look(producer, ids)]
    producer.init()
    steps.append(f"started {ids(producer.producer_id)} {producer.epoch}")
    producer.begin()
    producer.end(True)
    steps.append(look(producer, ids))
    return f"{epoch}, {name}: " + " -> ".join(steps)


def run_exhausted(bootstrap, version):
    with wire.Connection(bootstrap) as connection:
        raw.await_coordinators(connection)
        # The node has a block of producer ids.
        raw.Producer(connection, "first", True).init()
        for state in STATES:
            yield f"{state}, epochs used up", [exhausted(connection, name, producer) for name, producer in cells(state, version)]


def test(version):
    server = servers.Server(KIND, extra_properties=PROPERTIES)
    as_expected = True
    try:
        server.format("--feature", f"transaction.version={version}")
        server.start()
        if version < 2:
            sections = raw.run(server.bootstrap, ["older"])
            as_expected &= raw.record_or_compare(raw.EXPECTED / f"transactions-{version}.txt", f"transaction.version {version}", sections)
        else:
            with wire.Connection(server.bootstrap) as connection:
                raw.create_topics(connection)
        write_records(server.bootstrap)
        server.stop()
        server.start()
        sections = run_exhausted(server.bootstrap, version)
        as_expected &= raw.record_or_compare(raw.EXPECTED / f"exhausted-{version}.txt", f"transaction.version {version}", sections)
    except Exception:
        print(server.log_tail(30))
        raise
    finally:
        server.__exit__()
    return as_expected


if __name__ == "__main__":
    sys.exit(0 if all([test(version) for version in (0, 1, 2)]) else 1)
