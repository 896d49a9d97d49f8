"""Copies SOURCE to TARGET in transactions, on librdkafka, see exactly_once_test.py."""
import faulthandler
import os
import random
import signal
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

SOURCE, TARGET, GROUP, NAME = sys.argv[1:5]
INSTANCE = sys.argv[5:6]
PATIENCE_SECONDS = 60
# As Java and Go do.
faulthandler.register(signal.SIGQUIT)


class Copier:
    def __init__(self):
        self.changed = False
        # The other strategy, when the only node is gone, leaves librdkafka 2.16 asking a broker that it has given up for the group's coordinator.
        config = {"bootstrap.servers": os.environ["BOOTSTRAP"], "log_level": 3, "metadata.recovery.strategy": "none"}
        group = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000,
                 "heartbeat.interval.ms": 300, "partition.assignment.strategy": "range"}
        if INSTANCE:
            group["group.instance.id"] = INSTANCE[0]
        self.consumer = Consumer(config | group)
        self.producer = Producer(config | {"transactional.id": NAME, "transaction.timeout.ms": 30000})
        self.producer.init_transactions(PATIENCE_SECONDS)
        self.consumer.subscribe([SOURCE], on_assign=self.note, on_revoke=self.note, on_lost=self.note)

    def note(self, *_):
        self.changed = True

    def poll(self):
        """Some messages, all of them from before or all from after a rebalance."""
        found, self.changed = [], False
        message = self.consumer.poll(0.2)
        while message is not None and len(found) < 20:
            if message.error() is None:
                found.append(message)
            message = self.consumer.poll(0)
        if message is not None and message.error() is None:
            found.append(message)
        if self.changed and found:
            self.rewind()
            return []
        return found

    def rewind(self):
        owned = self.consumer.assignment()
        if owned:
            for partition in self.consumer.committed(owned, timeout=PATIENCE_SECONDS):
                self.consumer.seek(TopicPartition(SOURCE, partition.partition, max(partition.offset, 0)))

    def end(self, act):
        while True:
            try:
                return act()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def copy(self, messages):
        self.producer.begin_transaction()
        try:
            offsets = {}
            for message in messages:
                self.producer.produce(TARGET, value=message.value(), partition=message.partition())
                offsets[message.partition()] = message.offset() + 1
            positions = [TopicPartition(SOURCE, partition, offset) for partition, offset in offsets.items()]
            group = self.consumer.consumer_group_metadata()
            self.end(lambda: self.producer.send_offsets_to_transaction(positions, group, PATIENCE_SECONDS))
            if random.random() < 0.9:
                self.end(lambda: self.producer.commit_transaction(PATIENCE_SECONDS))
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            print(f"aborts: {error}", flush=True)
        self.end(lambda: self.producer.abort_transaction(PATIENCE_SECONDS))
        self.rewind()


copier = Copier()
while True:
    messages = copier.poll()
    if messages:
        copier.copy(messages)
