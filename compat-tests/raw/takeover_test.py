"""A directory with open, prepared and finished transactions goes from Apache Kafka to the node under test and back.

Apache Kafka is killed, the node goes on with every transaction where it was; then it is stopped, and Apache Kafka finds what it left.
"""
import os
import signal
import sys
import time

import servers
import transactions_test as raw
import wire
from results import check, expect, finish

KIND = os.environ.get("COMPAT_AGAINST", "kavka")
GROUP = "takeover-group"


def produce(producer, value, sequence, version=12):
    records = wire.batch([value], producer.producer_id, producer.epoch, sequence, True)
    answer = producer.connection.ask("Produce", version, transactionalId=producer.id, acks=-1, timeoutMs=5000, topicData=[
        {"name": raw.TOPIC, "partitionData": [{"index": 0, "records": records}]}])
    raw.check(answer["responses"][0]["partitionResponses"][0]["errorCode"])


def commit_offset(producer, offset):
    answer = producer.connection.ask(
        "TxnOffsetCommit", 5, transactionalId=producer.id, groupId=GROUP, producerId=producer.producer_id,
        producerEpoch=producer.epoch, topics=[{"name": raw.TOPIC, "partitions": [
            {"partitionIndex": 0, "committedOffset": offset, "committedMetadata": ""}]}])
    raw.check(answer["topics"][0]["partitions"][0]["errorCode"])


def committed_offset(connection):
    answer = raw.until_final(lambda: connection.ask("OffsetFetch", 7, groupId=GROUP, requireStable=False, topics=[
        {"name": raw.TOPIC, "partitionIndexes": [0]}]))
    return answer["topics"][0]["partitions"][0]["committedOffset"]


def started(connection, name, raises_epoch=True):
    producer = raw.Producer(connection, name, raises_epoch)
    producer.init()
    return producer


def on(connection, producer):
    """The same producer on another node."""
    other = raw.Producer(connection, "", producer.raises_epoch)
    other.id, other.producer_id, other.epoch, other.topic = producer.id, producer.producer_id, producer.epoch, producer.topic
    return other


def state(producer):
    deadline = time.monotonic() + 30
    while True:
        found = producer.state()
        if raw.error(found["errorCode"]) not in raw.PASSING or time.monotonic() > deadline:
            return found["transactionState"] or raw.error(found["errorCode"])
        time.sleep(0.05)


def until_state(producer, wanted):
    deadline = time.monotonic() + 20
    while state(producer) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    expect(state(producer), wanted, producer.id)


def until_values(node, wanted):
    """The last stable offset may come a little after the state."""
    deadline = time.monotonic() + 20
    while wire.committed_values(node, raw.TOPIC) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    expect(wire.committed_values(node, raw.TOPIC), wanted, "values")


def switch(server, kind, signal_number):
    server.stop(signal_number)
    server.kind = kind
    server.start()


def test():
    server = servers.Server("apache")
    try:
        server.format()
        server.start()
        with wire.Connection(server.bootstrap) as node:
            raw.create_topics(node)
            open_one = started(node, "open")
            produce(open_one, "open-1", 0)
            commit_offset(open_one, 7)
            older = started(node, "older", raises_epoch=False)
            older.add()
            produce(older, "never", 0, version=11)
            prepared = started(node, "prepared")
            produce(prepared, "prepared", 0)
            finished = {}
            for name, commit in (("committed", True), ("aborted", False)):
                finished[name] = started(node, name)
                produce(finished[name], name, 0)
                finished[name].end(commit)
                finished[name].settled()
            prepared.topic = raw.STUCK
            prepared.begin()
            prepared.end(True)
            expect(state(prepared), "PrepareCommit", "prepared")
        switch(server, KIND, signal.SIGKILL)
        with wire.Connection(server.bootstrap) as node:
            open_one, older, prepared = on(node, open_one), on(node, older), on(node, prepared)
            expect(state(open_one), "Ongoing", "open")
            expect(state(older), "Ongoing", "older")
            # Apache Kafka does not wait for a partition that has no leader.
            expect(state(prepared) in ("PrepareCommit", "CompleteCommit" if KIND == "apache" else ""), True, "prepared")
            expect(state(on(node, finished["committed"])), "CompleteCommit", "committed")
            expect(state(on(node, finished["aborted"])), "CompleteAbort", "aborted")
            expect(wire.committed_values(node, raw.TOPIC), [], "before the first open transaction")
            expect(committed_offset(node), -1, "offset")
            produce(open_one, "open-2", 1)
            open_one.end(True)
            until_state(open_one, "CompleteCommit")
            older.init()
            # The partition that nobody leads is given up: the rest of the transaction ends.
            raw.check(node.ask("DeleteTopics", 6, timeoutMs=10000, topics=[{"name": raw.STUCK}])["responses"][0]["errorCode"])
            until_state(prepared, "CompleteCommit")
            until_values(node, ["open-1", "prepared", "committed", "open-2"])
            expect(committed_offset(node), 7, "offset")
            left = started(node, "left-open")
            produce(left, "left-1", 0)
            commit_offset(left, 9)
        switch(server, "apache", signal.SIGKILL)
        with wire.Connection(server.bootstrap) as node:
            left = on(node, left)
            expect(state(left), "Ongoing", "left open")
            expect(state(on(node, open_one)), "CompleteCommit", "open")
            expect(state(on(node, older)), "Empty", "older")
            produce(left, "left-2", 1)
            left.end(True)
            until_state(left, "CompleteCommit")
            until_values(node, ["open-1", "prepared", "committed", "open-2", "left-1", "left-2"])
            expect(committed_offset(node), 9, "offset")
    finally:
        server.stop(signal.SIGKILL)


if __name__ == "__main__":
    check("raw", "takeover of transactions", test)
    sys.exit(finish())
