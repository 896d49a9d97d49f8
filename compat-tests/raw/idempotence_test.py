"""What an idempotent producer is answered on one partition: error and offset, batch by batch.

    idempotence_test.py             compares with expected/idempotence.txt
    idempotence_test.py --record    writes that file; only ever from Apache Kafka

A step is (sequence, count of records) or (sequence, count, epochs after the first); "delete" deletes all records that there are.
"""
import sys

import transactions_test as raw
import wire

LAST = (1 << 31) - 1
SCENARIOS = {
    "in order": [(0, 3), (3, 2), (5, 1)],
    "each again": [(0, 3), (0, 3), (3, 2), (3, 2), (0, 3)],
    "the last five again": [*((sequence, 1) for sequence in range(7)), *((sequence, 1) for sequence in (6, 5, 4, 3, 2, 1, 0, 7))],
    "a part again": [(0, 4), (0, 2), (1, 2), (2, 2), (2, 4), (4, 1)],
    "a gap": [(0, 1), (2, 1), (1, 1), (2, 1)],
    "does not begin with 0": [(5, 2), (7, 1), (5, 2), (0, 1)],
    "a new epoch": [(0, 2), (0, 1, 1), (2, 1), (1, 1, 1), (3, 1, 2), (0, 1, 2), (1, 1, 1)],
    "a new epoch that does not begin with 0": [(0, 1), (4, 1, 1), (0, 1, 1)],
    "up to the last sequence number": [(LAST - 1, 2), (0, 1), (1, 1), (LAST - 1, 2)],
    "over the last sequence number": [(LAST - 1, 4), (2, 1), (LAST - 1, 4), (3, 1)],
    "one too many after the last": [(LAST, 1), (1, 1), (0, 1)],
    "records deleted": [(0, 2), (2, 1), "delete", (2, 1), (3, 1), (0, 2), (9, 1)],
    "negative sequence": [(-1, 1), (-2, 1), (0, 1)],
    "negative epoch": [(0, 1, -1), (0, 1, -2), (0, 1)],
}


def produce(node, topic, index, producer, step):
    sequence, count, epochs = (*step, 0)[:3]
    records = wire.batch(["x"] * count, producer["producerId"], producer["producerEpoch"] + epochs, sequence)
    answer = node.ask("Produce", 9, transactionalId=None, acks=-1, timeoutMs=5000, topicData=[
        {"name": topic, "partitionData": [{"index": index, "records": records}]}])
    part = answer["responses"][0]["partitionResponses"][0]
    return f"{step}: {raw.error(part['errorCode'])} at {part['baseOffset']}, starts at {part['logStartOffset']}"


def run():
    topic = f"raw-idempotence-{raw.RUN}"
    with wire.Connection(raw.BOOTSTRAP) as node:
        raw.await_coordinators(node)
        raw.create_topic(node, topic, len(SCENARIOS))
        for index, (name, steps) in enumerate(SCENARIOS.items()):
            producer = node.ask("InitProducerId", 4, transactionalId=None, transactionTimeoutMs=0)
            raw.check(producer["errorCode"])
            lines = []
            for step in steps:
                if step == "delete":
                    answer = node.ask("DeleteRecords", 2, timeoutMs=5000, topics=[{"name": topic, "partitions": [
                        {"partitionIndex": index, "offset": -1}]}])
                    lines.append(f"delete: starts at {answer['topics'][0]['partitions'][0]['lowWatermark']}")
                else:
                    lines.append(produce(node, topic, index, producer, step))
            yield name, lines


if __name__ == "__main__":
    sys.exit(0 if raw.record_or_compare(raw.EXPECTED / "idempotence.txt", "idempotent producer", run()) else 1)
