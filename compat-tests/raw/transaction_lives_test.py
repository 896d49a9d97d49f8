"""transaction.version raised and lowered under open transactions, and what is forgotten that nobody uses.

    transaction_lives_test.py             compares with expected/lives.txt
    transaction_lives_test.py --record    writes that file; only ever from Apache Kafka (COMPAT_AGAINST=apache)
"""
import os
import sys
import time

import servers
import transactions_test as raw
import wire

KIND = os.environ.get("COMPAT_AGAINST", "kavka")
UPGRADE, SAFE_DOWNGRADE = 1, 2
IMPATIENT = "transaction.abort.timed.out.transaction.cleanup.interval.ms=100\n"
FORGETFUL = """\
transactional.id.expiration.ms=2000
transaction.remove.expired.transaction.cleanup.interval.ms=200
producer.id.expiration.ms=2000
producer.id.expiration.check.interval.ms=200
log.retention.ms=-1
log.initial.task.delay.ms=200
log.retention.check.interval.ms=200
"""


class Tale:
    """What happens, a line each."""

    def __init__(self, connection):
        self.connection, self.lines = connection, []

    def tell(self, what, producer, request):
        producer.connection = self.connection
        self.lines.append(f"{what}: {raw.cell_of(producer, request)}")

    def producer(self, name, raises_epoch):
        producer = raw.Producer(self.connection, name, raises_epoch)
        producer.init()
        return producer


def set_level(tale, level, upgrade_type):
    answer = tale.connection.ask("UpdateFeatures", 1, timeoutMs=10000, featureUpdates=[
        {"feature": "transaction.version", "maxVersionLevel": level, "upgradeType": upgrade_type}])
    tale.lines.append(f"level {level}: {raw.error(answer['errorCode'])} {[raw.error(result['errorCode']) for result in answer['results']]}")


def raised(tale):
    """From 0 to 2, with transactions open that began before."""
    open_one, ending, idle = (tale.producer(name, False) for name in ("open", "ending", "idle"))
    for producer in (open_one, ending):
        producer.begin()
        tale.tell("at version 0", producer, raw.produce(11))
    set_level(tale, 2, UPGRADE)
    tale.tell("goes on", open_one, raw.produce(11, sequence=1))
    tale.tell("ends as an older client", open_one, raw.end(4, True))
    tale.tell("ends as a current client", ending, raw.end(5, True))
    tale.tell("ends again", ending, raw.end(5, True))
    for producer in (open_one, idle):
        tale.tell("begins as a current client", producer, raw.produce(12, topic=raw.OTHER))
        tale.tell("ends", producer, raw.end(5, False))
    tale.lines.append(f"read: {wire.committed_values(tale.connection, raw.TOPIC)} {wire.committed_values(tale.connection, raw.OTHER)}")


def lowered(tale, level):
    """From 2 down, with transactions open that began before: a safe downgrade, which nothing hinders."""
    current = ("commits", "aborts", "older end", "fenced", "slow")
    producers = {name: tale.producer(name, True) for name in current}
    producers["older"] = tale.producer("older", False)
    for name, producer in producers.items():
        if name == "slow":
            raw.until_final(lambda: tale.connection.ask("InitProducerId", 4, transactionalId=producer.id, transactionTimeoutMs=4000))
            producer.epoch += 1
        if name == "older":
            producer.begin()
        tale.tell(f"{name}, at version 2", producer, raw.produce(11 if name == "older" else 12))
    set_level(tale, level, UPGRADE)
    set_level(tale, level, SAFE_DOWNGRADE)
    for name in ("commits", "aborts"):
        tale.tell(f"{name}, goes on", producers[name], raw.produce(12, sequence=1))
    tale.tell("older, goes on", producers["older"], raw.produce(11, sequence=1))
    tale.tell("commits", producers["commits"], raw.end(5, True))
    tale.tell("aborts", producers["aborts"], raw.end(5, False))
    if level == 0:
        # Records of version 0 cannot say that epochs are raised, so it is refused. Apache Kafka's coordinator also holds on to the
        # transition that it could not write: CONCURRENT_TRANSACTIONS from then on, until it starts again. These stay open here.
        del producers["commits"], producers["aborts"]
    else:
        tale.tell("commits again", producers["commits"], raw.end(5, True))
    tale.tell("older end", producers["older end"], raw.end(4, True))
    tale.tell("older, commits", producers["older"], raw.end(4, True))
    tale.tell("fenced", producers["fenced"], raw.init(4))
    slow, deadline = producers["slow"], time.monotonic() + 20
    while slow.state()["transactionState"] in ("Ongoing", "PrepareAbort") and time.monotonic() < deadline:
        time.sleep(0.05)
    tale.tell("slow", slow, raw.describe)
    for name, producer in producers.items():
        tale.tell(f"{name}, starts anew", producer, raw.init(4))
        state = producer.state()
        producer.producer_id, producer.epoch = state["producerId"], state["producerEpoch"]
        tale.tell(f"{name}, begins as an older client", producer, raw.add(3, [(raw.OTHER, 0)]))
        tale.tell(f"{name}, writes", producer, raw.produce(11, topic=raw.OTHER))
        tale.tell(f"{name}, commits as an older client", producer, raw.end(4, True))
    tale.lines.append(f"read: {wire.committed_values(tale.connection, raw.TOPIC)} {wire.committed_values(tale.connection, raw.OTHER)}")


def producers_of(connection):
    answer = connection.ask("DescribeProducers", 0, topics=[{"name": raw.TOPIC, "partitionIndexes": [0]}])
    return len(answer["topics"][0]["partitions"][0]["activeProducers"])


def forgotten(tale):
    """Transactional ids and producers that are not used; but none with an open transaction."""
    open_one, idle, ended = (tale.producer(name, True) for name in ("open", "idle", "ended"))
    open_one.begin()
    ended.begin()
    ended.end(True)
    ended.settled()
    tale.lines.append(f"producers: {producers_of(tale.connection)}")
    deadline = time.monotonic() + 30
    while raw.error(ended.state()["errorCode"]) == "NONE" and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    for producer in (open_one, idle, ended):
        state = producer.state()
        tale.lines.append(f"{producer.id.split('-')[0]}: {raw.error(state['errorCode'])} {state['transactionState']}")
    while producers_of(tale.connection) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    tale.lines.append(f"producers: {producers_of(tale.connection)}")
    tale.tell("ends as if it were known", ended, raw.end(5, True))
    tale.tell("writes as if it were known", ended, raw.produce(12))
    old_id = ended.producer_id
    ended.init()
    tale.lines.append(f"starts anew: {'the same' if ended.producer_id == old_id else 'another'} {ended.epoch}")
    tale.tell("writes", ended, raw.produce(12))
    tale.tell("ends", ended, raw.end(5, True))
    tale.tell("the open one ends", open_one, raw.end(5, True))
    tale.lines.append(f"read: {wire.committed_values(tale.connection, raw.TOPIC)}")


def tell(tale_of, version, properties=""):
    server = servers.Server(KIND, extra_properties=properties)
    try:
        server.format("--feature", f"transaction.version={version}")
        server.start()
        with wire.Connection(server.bootstrap) as connection:
            raw.create_topics(connection)
            tale = Tale(connection)
            tale_of(tale)
            return tale.lines
    except Exception:
        print(server.log_tail(30))
        raise
    finally:
        server.__exit__()


def run():
    yield "transaction.version raised", tell(raised, 0)
    for level in (1, 0):
        yield f"transaction.version lowered to {level}", tell(lambda tale: lowered(tale, level), 2, IMPATIENT)
    yield "forgotten", tell(forgotten, 2, FORGETFUL)


if __name__ == "__main__":
    sys.exit(0 if raw.record_or_compare(raw.EXPECTED / "lives.txt", "transactions", run()) else 1)
