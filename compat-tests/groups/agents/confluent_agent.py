"""A member of a group on librdkafka, see groups_test.py."""
import os
import sys
import threading

from confluent_kafka import Consumer, KafkaException


def main():
    topic, group = sys.argv[1:3]
    options = dict(option.split("=", 1) for option in sys.argv[3:])
    config = {"bootstrap.servers": os.environ["BOOTSTRAP"], "group.id": group, "auto.offset.reset": "earliest",
              "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 2000, "log_level": 3}
    if "instance" in options:
        config["group.instance.id"] = options["instance"]
    if options.get("protocol") == "consumer":
        config["group.protocol"] = "consumer"
        if "assignor" in options:
            config["group.remote.assignor"] = options["assignor"]
    else:
        config |= {"session.timeout.ms": int(options.get("session", 6000)), "heartbeat.interval.ms": 300,
                   "partition.assignment.strategy": options.get("assignor", "range")}
    consumer = Consumer(config)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    consumer.subscribe(["^" + topic[4:] if topic.startswith("re2:") else topic])
    known = None
    while not ended.is_set():
        messages = consumer.consume(200, 0.1)
        now = ",".join(sorted(f"{p.topic}:{p.partition}" for p in consumer.assignment()))
        if now != known:
            print("A - " + now)
        known = now
        got = [message for message in messages if message.error() is None]
        for message in got:
            print(f"R {message.topic()}:{message.partition()} {message.offset()}")
        if got:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                print(f"F {error}")
        sys.stdout.flush()
    consumer.close()


if __name__ == "__main__":
    main()
