"""confluent-kafka-python: producer, consumer, groups, commits, admin."""
import threading
import time

import confluent_kafka
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, NewPartitions

from clients import ADMIN, PATIENCE_SECONDS, consumer, create, produce, take
from results import BOOTSTRAP, check, expect, finish, unique


def produce_and_consume():
    topic = create(unique("ck-basic"), 3)
    produce(topic, [(f"k{i}", f"v{i}", i % 3) for i in range(300)], **{"enable.idempotence": True})
    client = consumer(unique("g"))
    client.subscribe([topic])
    messages = take(client, 300)
    client.close()
    expect(sorted(int(m.value()[1:]) for m in messages), list(range(300)), "values")
    for partition in range(3):
        offsets = [m.offset() for m in messages if m.partition() == partition]
        expect(offsets, list(range(100)), f"offsets of partition {partition}")


def commit_and_resume():
    topic, group = create(unique("ck-commit")), unique("g")
    produce(topic, [(None, str(i), 0) for i in range(10)])
    first = consumer(group)
    first.subscribe([topic])
    fourth = take(first, 4)[-1]
    first.commit(message=fourth, asynchronous=False)
    first.close()
    probe = consumer(group)
    committed = probe.committed([TopicPartition(topic, 0)], timeout=PATIENCE_SECONDS)
    expect(committed[0].offset, 4, "committed offset")
    probe.close()
    second = consumer(group)
    second.subscribe([topic])
    expect([m.value() for m in take(second, 6)], [str(i).encode() for i in range(4, 10)], "values after the commit")
    second.close()


def commit_with_metadata():
    topic, group = create(unique("ck-metadata")), unique("g")
    produce(topic, [(None, "x", 0)])
    client = consumer(group)
    client.assign([TopicPartition(topic, 0)])
    client.commit(offsets=[TopicPartition(topic, 0, 1, "note of the commit")], asynchronous=False)
    kept = client.committed([TopicPartition(topic, 0)], timeout=PATIENCE_SECONDS)[0]
    client.close()
    expect((kept.offset, kept.metadata), (1, "note of the commit"))


def rebalance(strategy):
    def test():
        topic, group = create(unique("ck-rebalance"), 4), unique("g")
        config = {"partition.assignment.strategy": strategy, "session.timeout.ms": 10000, "heartbeat.interval.ms": 500}
        members = [consumer(group, **config) for _ in range(2)]
        owned = [set(), set()]
        stop = threading.Event()

        def run(index):
            members[index].subscribe([topic])
            while not stop.is_set():
                members[index].poll(0.1)
                owned[index] = {p.partition for p in members[index].assignment()}

        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        try:
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not (len(owned[0]) == 2 and len(owned[1]) == 2 and owned[0] | owned[1] == {0, 1, 2, 3}):
                if time.monotonic() > deadline:
                    raise AssertionError(f"not balanced: {owned}")
                time.sleep(0.05)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            for member in members:
                member.close()
    return test


def seek_and_watermarks():
    topic = create(unique("ck-seek"))
    produce(topic, [(None, str(i), 0) for i in range(20)])
    client = consumer(unique("g"))
    client.assign([TopicPartition(topic, 0, 0)])
    expect(client.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_SECONDS), (0, 20), "watermarks")
    take(client, 1)
    client.seek(TopicPartition(topic, 0, 15))
    expect([m.value() for m in take(client, 5)], [str(i).encode() for i in range(15, 20)], "after the seek")
    client.close()


def offsets_for_times():
    topic = create(unique("ck-times"))
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for i in range(10):
        producer.produce(topic, value=str(i), partition=0, timestamp=1_700_000_000_000 + 1000 * i)
    producer.flush(PATIENCE_SECONDS)
    client = consumer(unique("g"))
    found = client.offsets_for_times([TopicPartition(topic, 0, 1_700_000_004_500)], timeout=PATIENCE_SECONDS)
    expect(found[0].offset, 5, "offset of the time")
    client.close()


def static_member():
    topic, group = create(unique("ck-static")), unique("g")
    produce(topic, [(None, "a", 0)])
    for _ in range(2):
        client = consumer(group, **{"group.instance.id": "instance-1", "session.timeout.ms": 10000})
        client.subscribe([topic])
        expect(take(client, 1)[0].value(), b"a")
        client.close()


def admin_topics():
    client, topic = ADMIN, unique("ck-admin")
    create(topic, 2, {"retention.ms": "12345"})
    expect(len(client.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions), 2, "partitions")
    for future in client.create_partitions([NewPartitions(topic, 5)]).values():
        future.result(PATIENCE_SECONDS)
    expect(len(client.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions), 5, "partitions after growth")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    expect(client.describe_configs([resource])[resource].result(PATIENCE_SECONDS)["retention.ms"].value, "12345", "config")
    try:
        create(topic)
        raise AssertionError("a topic was created twice")
    except confluent_kafka.KafkaException as error:
        expect(error.args[0].code(), KafkaError.TOPIC_ALREADY_EXISTS, "error")
    for future in client.delete_topics([topic]).values():
        future.result(PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while topic in client.list_topics(timeout=PATIENCE_SECONDS).topics:
        if time.monotonic() > deadline:
            raise AssertionError("the topic is still listed")


def admin_groups():
    topic, group = create(unique("ck-groups")), unique("g")
    produce(topic, [(None, "a", 0)])
    member = consumer(group)
    member.subscribe([topic])
    member.commit(message=take(member, 1)[0], asynchronous=False)
    client = ADMIN
    described = client.describe_consumer_groups([group])[group].result(PATIENCE_SECONDS)
    expect((described.state.name, len(described.members)), ("STABLE", 1), "group")
    member.close()
    listed = client.list_consumer_groups().result(PATIENCE_SECONDS)
    expect(group in [g.group_id for g in listed.valid], True, "group listed")
    client.delete_consumer_groups([group])[group].result(PATIENCE_SECONDS)
    listed = client.list_consumer_groups().result(PATIENCE_SECONDS)
    expect(group in [g.group_id for g in listed.valid], False, "group listed after deletion")


CLIENT = f"confluent-kafka {confluent_kafka.__version__}"
check(CLIENT, "produce, consume", produce_and_consume)
check(CLIENT, "commit, resume", commit_and_resume)
check(CLIENT, "commit metadata", commit_with_metadata)
for strategy in ("range", "roundrobin", "cooperative-sticky"):
    check(CLIENT, f"rebalance {strategy}", rebalance(strategy))
check(CLIENT, "seek, watermarks", seek_and_watermarks)
check(CLIENT, "offsets by time", offsets_for_times)
check(CLIENT, "static member", static_member)
check(CLIENT, "admin topics", admin_topics)
check(CLIENT, "admin groups", admin_groups)
finish()
