"""confluent-kafka-python: transactions."""
import concurrent.futures
import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from clients import PATIENCE_SECONDS, consumer, create, produce, take
from results import BOOTSTRAP, check, expect, finish, unique


def started(transactional_id, **config):
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": transactional_id, **config})
    producer.init_transactions(PATIENCE_SECONDS)
    return producer


def send(producer, topic, values, partition=0):
    for value in values:
        producer.produce(topic, value=str(value), partition=partition)
    expect(producer.flush(PATIENCE_SECONDS), 0, "messages left")


def reader(topic, partitions=1, isolation="read_committed"):
    client = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": unique("g"), "enable.auto.commit": False, "isolation.level": isolation})
    client.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    return client


def values(messages):
    return [int(message.value()) for message in messages]


def read(topic, count, partitions=1, isolation="read_committed"):
    """The first `count` values; and no more come."""
    client = reader(topic, partitions, isolation)
    found = values(take(client, count) if count else [])
    late = client.poll(0.5)
    client.close()
    expect(late, None, "a message too many")
    return found


def until(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up waiting for {what}")


def end(topic):
    """The last stable offset."""
    client = reader(topic)
    found = client.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_SECONDS)[1]
    client.close()
    return found


def refused(act):
    """The error of what must fail."""
    try:
        act()
    except KafkaException as error:
        return error.args[0]
    raise AssertionError("it went well")


def commit():
    topic = create(unique("ck-tx"))
    producer = started(unique("tx"))
    producer.begin_transaction()
    send(producer, topic, range(10))
    expect(read(topic, 10, isolation="read_uncommitted"), list(range(10)), "read uncommitted")
    expect(read(topic, 0), [], "read committed")
    producer.commit_transaction(PATIENCE_SECONDS)
    expect(read(topic, 10), list(range(10)), "read committed")
    # The marker takes an offset.
    until("the last stable offset", lambda: end(topic) == 11)


def abort():
    topic = create(unique("ck-tx"))
    producer = started(unique("tx"))
    for first, ends in ((0, producer.abort_transaction), (5, producer.commit_transaction), (10, producer.abort_transaction)):
        producer.begin_transaction()
        send(producer, topic, range(first, first + 5))
        ends(PATIENCE_SECONDS)
    expect(read(topic, 5), list(range(5, 10)), "read committed")
    expect(read(topic, 15, isolation="read_uncommitted"), list(range(15)), "read uncommitted")


def all_or_nothing():
    topics = [create(unique("ck-tx"), 3) for _ in range(2)]
    producer = started(unique("tx"))
    wanted = []
    for number in range(40):
        producer.begin_transaction()
        for topic in topics:
            for partition in range(3):
                producer.produce(topic, value=str(number), partition=partition)
        if number % 3:
            producer.commit_transaction(PATIENCE_SECONDS)
            wanted.append(number)
        else:
            # All of it is on the logs: an abort before that is a gamble with librdkafka. It is sent as soon as AddPartitionsToTxn is,
            # whatever becomes of this (issue 4849): while the last transaction's markers are written that is refused with
            # CONCURRENT_TRANSACTIONS, not asked again once an abort is wanted, and the abort meets what is committed:
            # INVALID_TXN_STATE, which is fatal. And a request that waits to be sent is thrown away with the sequence numbers that it
            # has: the next transaction's records are OUT_OF_ORDER_SEQUENCE_NUMBER.
            expect(producer.flush(PATIENCE_SECONDS), 0, "messages left")
            producer.abort_transaction(PATIENCE_SECONDS)
    for topic in topics:
        client = reader(topic, 3)
        messages = take(client, 3 * len(wanted))
        client.close()
        for partition in range(3):
            expect(values(m for m in messages if m.partition() == partition), wanted, f"{topic}-{partition}")


def fencing():
    topic, name = create(unique("ck-tx")), unique("tx")
    first = started(name)
    first.begin_transaction()
    send(first, topic, [1, 2])
    second = started(name)
    error = refused(lambda: first.commit_transaction(PATIENCE_SECONDS))
    expect((error.code(), error.fatal()), (KafkaError._FENCED, True), f"the first one's end ({error})")
    second.begin_transaction()
    send(second, topic, [3])
    second.commit_transaction(PATIENCE_SECONDS)
    expect(read(topic, 1), [3], "read committed")


def fenced_send():
    topic, name = create(unique("ck-tx")), unique("tx")
    first = started(name)
    second = started(name)

    def goes_on():
        first.begin_transaction()
        first.produce(topic, value="1", partition=0)
        first.commit_transaction(PATIENCE_SECONDS)
    error = refused(goes_on)
    expect((error.code(), error.fatal()), (KafkaError._FENCED, True), f"the first one's transaction ({error})")
    second.begin_transaction()
    send(second, topic, [2])
    second.commit_transaction(PATIENCE_SECONDS)
    expect(read(topic, 1), [2], "read committed")


def timeout():
    topic, name = create(unique("ck-tx")), unique("tx")
    late = started(name, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    late.begin_transaction()
    send(late, topic, [1, 2])
    until("the abort", lambda: end(topic) == 3)
    error = refused(lambda: late.commit_transaction(PATIENCE_SECONDS))
    expect((error.code(), error.fatal()), (KafkaError._FENCED, True), f"the late end ({error})")
    again = started(name)
    again.begin_transaction()
    send(again, topic, [3])
    again.commit_transaction(PATIENCE_SECONDS)
    expect(read(topic, 1), [3], "read committed")


def timeout_too_long():
    error = refused(lambda: started(unique("tx"), **{"transaction.timeout.ms": 1_000_000}))
    expect(error.code(), KafkaError.INVALID_TRANSACTION_TIMEOUT, "error")


def abandoned():
    """One that died with an open transaction is followed at once."""
    topic, name = create(unique("ck-tx")), unique("tx")
    producers = []
    for number in range(4):
        producers.append(started(name))
        producers[-1].begin_transaction()
        send(producers[-1], topic, [number])
        if number % 2:
            producers[-1].commit_transaction(PATIENCE_SECONDS)
    expect(read(topic, 2), [1, 3], "read committed")


def offsets():
    topic, group = create(unique("ck-tx")), unique("g")
    produce(topic, [(None, str(i), 0) for i in range(10)])
    client = consumer(group)
    client.subscribe([topic])
    take(client, 10)
    producer = started(unique("tx"))

    def committed():
        return client.committed([TopicPartition(topic, 0)], timeout=PATIENCE_SECONDS)[0].offset

    before = committed()
    for offset, ends, wanted in ((4, producer.abort_transaction, before), (6, producer.commit_transaction, 6), (8, producer.abort_transaction, 6)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], client.consumer_group_metadata(), PATIENCE_SECONDS)
        ends(PATIENCE_SECONDS)
        # It may be asked for before the marker is there: then it is unstable, and the client tries again.
        expect(committed(), wanted, "committed offset")
    client.close()


def group_fencing():
    """KIP-447: offsets of a member that the group no longer has are refused, and the transaction is aborted."""
    topic, group = create(unique("ck-tx")), unique("g")
    produce(topic, [(None, "0", 0)])
    gone = consumer(group)
    gone.subscribe([topic])
    take(gone, 1)
    stale = gone.consumer_group_metadata()
    gone.close()
    current = consumer(group)
    current.subscribe([topic])
    take(current, 1)
    producer = started(unique("tx"))
    producer.begin_transaction()
    send(producer, topic, [1])
    error = refused(lambda: producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], stale, PATIENCE_SECONDS))
    expect((error.name(), error.txn_requires_abort()), ("UNKNOWN_MEMBER_ID", True), f"offsets of the one that left ({error})")
    producer.abort_transaction(PATIENCE_SECONDS)
    producer.begin_transaction()
    send(producer, topic, [2])
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], current.consumer_group_metadata(), PATIENCE_SECONDS)
    producer.commit_transaction(PATIENCE_SECONDS)
    expect(current.committed([TopicPartition(topic, 0)], timeout=PATIENCE_SECONDS)[0].offset, 1, "committed offset")
    current.close()
    expect(read(topic, 2), [0, 2], "read committed")


def consume_transform_produce():
    source, target, group = create(unique("ck-tx-in"), 2), create(unique("ck-tx-out"), 2), unique("g")
    produce(source, [(None, str(i), i % 2) for i in range(200)])
    done = attempt = 0
    while done < 200:
        client, producer = consumer(group), started(group)
        client.subscribe([source])
        taken = take(client, 50)
        producer.begin_transaction()
        for message in taken:
            producer.produce(target, value=message.value(), partition=message.partition())
        producer.send_offsets_to_transaction(client.position(client.assignment()), client.consumer_group_metadata(), PATIENCE_SECONDS)
        if attempt % 2:
            producer.commit_transaction(PATIENCE_SECONDS)
            done += len(taken)
        else:
            # The next one begins where this one did.
            producer.abort_transaction(PATIENCE_SECONDS)
        attempt += 1
        client.close()
    expect(sorted(read(target, 200, 2)), list(range(200)), "read committed")


CLIENT = f"confluent-kafka {confluent_kafka.__version__}"
TESTS = {"commit": commit, "abort": abort, "all or nothing": all_or_nothing, "fencing": fencing, "fenced send": fenced_send, "timeout": timeout,
         "timeout too long": timeout_too_long, "abandoned": abandoned, "offsets": offsets, "group fencing": group_fencing,
         "consume, transform, produce": consume_transform_produce}
# They mostly wait.
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for feature, test in TESTS.items():
        pool.submit(check, CLIENT, f"transactions: {feature}", test)
finish()
