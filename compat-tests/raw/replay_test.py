"""Late, repeated and reordered requests of a producer of transaction.version 2 change nothing (KIP-890).

A producer ends some hundred transactions; all that it ever sent is sent again, at random moments, from other connections. What is
read with read_committed must be what it committed, in order, once.
"""
import os
import random
import sys
import time

import transactions_test as raw
import wire
from results import BOOTSTRAP, check, expect, finish

SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
TRANSACTIONS = 150
PARTITIONS = 3


class Replayer:
    """Sends what was sent before; nobody waits for its answers."""

    def __init__(self, rng):
        self.rng = rng
        self.sent = []
        self.connections = [wire.Connection(BOOTSTRAP) for _ in range(3)]

    def note(self, name, version, fields):
        self.sent.append((name, version, fields))

    def replay(self):
        for _ in range(self.rng.choice([0, 0, 1, 3])):
            # Mostly what was sent last, sometimes what is long gone.
            back = min(len(self.sent), self.rng.choice([4, 10, 1000]))
            name, version, fields = self.rng.choice(self.sent[-back:]) if back else (None, 0, None)
            if name:
                connection = self.rng.choice(self.connections)
                connection.send(name, version, **fields)
                if self.rng.random() < 0.5:
                    while connection.waiting:
                        connection.receive()

    def finish(self):
        for connection in self.connections:
            while connection.waiting:
                connection.receive()
            connection.close()


def test():
    rng = random.Random(SEED)
    print(f"SEED={SEED}", flush=True)
    topic, group = f"raw-replay-{raw.RUN}", f"raw-replay-group-{raw.RUN}"
    expected = [[] for _ in range(PARTITIONS)]
    offset = -1
    with wire.Connection(BOOTSTRAP) as node:
        raw.await_coordinators(node)
        raw.check(node.ask("CreateTopics", 7, timeoutMs=10000, topics=[
            {"name": topic, "numPartitions": -1, "replicationFactor": -1, "assignments": [
                {"partitionIndex": index, "brokerIds": [1]} for index in range(PARTITIONS)]}])["topics"][0]["errorCode"])
        producer = raw.Producer(node, "replay", True)
        producer.init()
        replayer = Replayer(rng)

        def ask(name, version, errors_of, **fields):
            """Until it is answered without an error; what passes is tried again, as clients do."""
            replayer.note(name, version, fields)
            deadline = time.monotonic() + 30
            while True:
                replayer.replay()
                answer = node.ask(name, version, **fields)
                error = raw.error(errors_of(answer))
                if error == "NONE":
                    return answer
                passing = raw.PASSING + ("NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION")
                if error not in passing or time.monotonic() > deadline:
                    raise AssertionError(f"{name}: {error}")

        for number in range(TRANSACTIONS):
            commit, written = rng.random() < 0.6, []
            for partition in range(PARTITIONS):
                for sequence in range(rng.randrange(3)):
                    value = f"{number}-{sequence}"
                    records = wire.batch([value], producer.producer_id, producer.epoch, sequence, True)
                    ask("Produce", 12, lambda a: a["responses"][0]["partitionResponses"][0]["errorCode"],
                        transactionalId=producer.id, acks=-1, timeoutMs=5000,
                        topicData=[{"name": topic, "partitionData": [{"index": partition, "records": records}]}])
                    written.append((partition, value))
            if rng.random() < 0.4:
                ask("TxnOffsetCommit", 5, lambda a: a["topics"][0]["partitions"][0]["errorCode"], transactionalId=producer.id,
                    groupId=group, producerId=producer.producer_id, producerEpoch=producer.epoch, topics=[
                        {"name": topic, "partitions": [{"partitionIndex": 0, "committedOffset": number, "committedMetadata": ""}]}])
                written.append(None)
            if not written:
                continue
            ended = ask("EndTxn", 5, lambda a: a["errorCode"], transactionalId=producer.id, producerId=producer.producer_id,
                        producerEpoch=producer.epoch, committed=commit)
            producer.producer_id, producer.epoch = ended["producerId"], ended["producerEpoch"]
            for place in written if commit else []:
                if place is None:
                    offset = number
                else:
                    expected[place[0]].append(place[1])
        replayer.finish()
        found = producer.settled()["transactionState"]
        expect(found in ("CompleteCommit", "CompleteAbort"), True, f"state {found}")
        for partition in range(PARTITIONS):
            expect(wire.committed_values(node, topic, partition), expected[partition], f"partition {partition}")
        answer = node.ask("OffsetFetch", 7, groupId=group, requireStable=True, topics=[{"name": topic, "partitionIndexes": [0]}])
        expect(answer["topics"][0]["partitions"][0]["committedOffset"], offset, "offset")


if __name__ == "__main__":
    check("raw", "late and repeated requests", test)
    sys.exit(finish())
