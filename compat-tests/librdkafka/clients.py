"""What the tests of confluent-kafka-python share."""
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from results import BOOTSTRAP, expect

PATIENCE_SECONDS = 60


# One for all tests: an admin client that is collected ends the requests that it has under way.
ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})


def create(topic, partitions=1, config=None):
    for future in ADMIN.create_topics([NewTopic(topic, partitions, 1, config=config or {})]).values():
        future.result(PATIENCE_SECONDS)
    return topic


def produce(topic, messages, **config):
    """Sends (key, value, partition) and returns the acknowledged (partition, offset)."""
    reports = []

    def delivered(error, message):
        reports.append(error if error else (message.partition(), message.offset()))

    producer = Producer({"bootstrap.servers": BOOTSTRAP, **config})
    for key, value, partition in messages:
        producer.produce(topic, value=value, key=key, partition=partition, on_delivery=delivered)
        producer.poll(0)
    expect(producer.flush(PATIENCE_SECONDS), 0, "messages left")
    errors = [r for r in reports if not isinstance(r, tuple)]
    expect(errors, [], "delivery errors")
    return reports


def consumer(group, **config):
    return Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, **config})


def take(client, count):
    found, deadline = [], time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(found)} of {count} messages in {PATIENCE_SECONDS} s")
        message = client.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise AssertionError(str(message.error()))
        found.append(message)
    return found
