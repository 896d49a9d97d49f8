"""State x request -> answer of the transaction coordinator, by raw requests.

    transactions_test.py                     compares with expected/transactions.txt, a RESULT line a state
    transactions_test.py --record            writes that file; only ever from Apache Kafka

Each cell has a transactional id of its own, brought into its state by the requests of a current client (epochs are raised at every
end) or of an older one. What stays in a prepared state has a partition whose leader nobody reaches: a broker that is only registered.
"""
import os
import pathlib
import sys
import threading
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import wire  # noqa: E402

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
EXPECTED = pathlib.Path(__file__).resolve().parent / "expected"
ERRORS = wire.error_names()
RUN = uuid.uuid4().hex[:8]
TOPIC = f"raw-tx-{RUN}"
OTHER = f"raw-tx-other-{RUN}"
STUCK = f"raw-tx-stuck-{RUN}"
GROUP = f"raw-tx-group-{RUN}"
NOBODY = 77
PASSING = ("CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")


class Producer:
    """A transactional id and who holds it."""

    def __init__(self, connection, name, raises_epoch):
        self.connection = connection
        self.id = f"{name}-{RUN}"
        self.raises_epoch = raises_epoch
        self.producer_id, self.epoch = -1, -1
        self.topic = TOPIC

    def init(self):
        answer = until_final(lambda: self.connection.ask(
            "InitProducerId", 4, transactionalId=self.id, transactionTimeoutMs=60000))
        check(answer["errorCode"])
        self.producer_id, self.epoch = answer["producerId"], answer["producerEpoch"]

    def add(self, topic=None):
        topic = topic or self.topic
        answer = until_final(lambda: self.connection.ask("AddPartitionsToTxn", 3, **self.old_add(topic)))
        check(answer["resultsByTopicV3AndBelow"][0]["resultsByPartition"][0]["partitionErrorCode"])

    def old_add(self, topic):
        return dict(v3AndBelowTransactionalId=self.id, v3AndBelowProducerId=self.producer_id,
                    v3AndBelowProducerEpoch=self.epoch, v3AndBelowTopics=[{"name": topic, "partitions": [0]}])

    def begin(self):
        if not self.raises_epoch:
            return self.add()
        if self.topic == STUCK:
            answer = until_final(lambda: self.connection.ask("AddPartitionsToTxn", 5, transactions=[
                {"transactionalId": self.id, "producerId": self.producer_id, "producerEpoch": self.epoch,
                 "topics": [{"name": STUCK, "partitions": [0]}]}]))
            return check(answer["resultsByTransaction"][0]["topicResults"][0]["resultsByPartition"][0]["partitionErrorCode"])
        records = wire.batch(["a"], self.producer_id, self.epoch, 0, True)
        answer = self.connection.ask("Produce", 12, transactionalId=self.id, acks=1, timeoutMs=5000, topicData=[
            {"name": self.topic, "partitionData": [{"index": 0, "records": records}]}])
        check(answer["responses"][0]["partitionResponses"][0]["errorCode"])

    def end(self, commit):
        version = 5 if self.raises_epoch else 4
        answer = self.connection.ask("EndTxn", version, transactionalId=self.id, producerId=self.producer_id,
                                     producerEpoch=self.epoch, committed=commit)
        check(answer["errorCode"])
        if self.raises_epoch:
            self.producer_id, self.epoch = answer["producerId"], answer["producerEpoch"]

    def state(self):
        return self.connection.ask("DescribeTransactions", 0, transactionalIds=[self.id])["transactionStates"][0]

    def settled(self):
        """The state once no marker is on its way."""
        deadline = time.monotonic() + (0 if self.topic == STUCK else 10)
        while True:
            state = self.state()
            if not state["transactionState"].startswith("Prepare") or time.monotonic() > deadline:
                return state
            time.sleep(0.01)


def check(code):
    if code != 0:
        raise RuntimeError(f"the setting failed: {ERRORS.get(code, code)}")


def until_final(ask):
    deadline = time.monotonic() + 30
    while True:
        answer = ask()
        if ERRORS.get(answer.get("errorCode", 0)) not in PASSING or time.monotonic() > deadline:
            return answer
        time.sleep(0.02)


def setting(state):
    def bring(producer):
        if state == "unknown":
            producer.producer_id, producer.epoch = 1_000_000, 3
            return
        if state.startswith("prepare"):
            producer.topic = STUCK
        producer.init()
        producer.init()
        if state == "empty":
            return
        producer.begin()
        if state == "ongoing":
            return
        producer.end("commit" in state)
        if state.startswith("complete"):
            producer.settled()
    return bring


STATES = ["unknown", "empty", "ongoing", "prepare-commit", "prepare-abort", "complete-commit", "complete-abort"]


def error(code):
    return ERRORS.get(code, str(code))


def with_producer(producer, answer):
    found = answer["producerId"]
    name = {-1: "-1", producer.producer_id: "same"}.get(found, "other")
    return f"{error(answer['errorCode'])} {name} {answer['producerEpoch']}"


def init(version, timeout=60000, **given):
    def ask(p):
        fields = {}
        if "epoch" in given:
            fields = dict(producerId=p.producer_id + given.get("id", 0), producerEpoch=p.epoch + given["epoch"])
        return with_producer(p, p.connection.ask("InitProducerId", version, transactionalId=p.id,
                                                 transactionTimeoutMs=timeout, **fields))
    return ask


def end(version, commit, epoch=0, producer_id=0):
    def ask(p):
        answer = p.connection.ask("EndTxn", version, transactionalId=p.id, producerId=p.producer_id + producer_id,
                                  producerEpoch=p.epoch + epoch, committed=commit)
        return with_producer(p, answer) if version >= 5 else error(answer["errorCode"])
    return ask


def partitions(topics):
    return " ".join(f"{t['name'].replace('-' + RUN, '')}-{q['partitionIndex']}:{error(q['partitionErrorCode'])}"
                    for t in sorted(topics, key=lambda t: t["name"]) for q in t["resultsByPartition"])


def add(version, topics, epoch=0, producer_id=0):
    def ask(p):
        fields = p.old_add(TOPIC)
        fields["v3AndBelowProducerId"] += producer_id
        fields["v3AndBelowProducerEpoch"] += epoch
        fields["v3AndBelowTopics"] = [{"name": name, "partitions": [index]} for name, index in topics]
        return partitions(p.connection.ask("AddPartitionsToTxn", version, **fields)["resultsByTopicV3AndBelow"])
    return ask


def add_by_broker(version, verify, topic, epoch=0, producer_id=0):
    def ask(p):
        answer = p.connection.ask("AddPartitionsToTxn", version, transactions=[
            {"transactionalId": p.id, "producerId": p.producer_id + producer_id, "producerEpoch": p.epoch + epoch,
             "verifyOnly": verify, "topics": [{"name": topic or p.topic, "partitions": [0]}]}])
        return f"{error(answer['errorCode'])} " + " ".join(
            partitions(t["topicResults"]) for t in answer["resultsByTransaction"])
    return ask


def add_offsets(version, epoch=0, producer_id=0):
    def ask(p):
        return error(p.connection.ask(
            "AddOffsetsToTxn", version, transactionalId=p.id, producerId=p.producer_id + producer_id,
            producerEpoch=p.epoch + epoch, groupId=f"{GROUP}-{p.id}")["errorCode"])
    return ask


def commit_offsets(version, epoch=0, producer_id=0, topic=TOPIC, **member):
    def ask(p):
        answer = p.connection.ask(
            "TxnOffsetCommit", version, transactionalId=p.id, groupId=f"{GROUP}-{p.id}",
            producerId=p.producer_id + producer_id, producerEpoch=p.epoch + epoch, **member,
            topics=[{"name": topic, "partitions": [{"partitionIndex": 0, "committedOffset": 5, "committedMetadata": "m"}]}])
        return " ".join(error(q["errorCode"]) for t in answer["topics"] for q in t["partitions"])
    return ask


def produce(version, epoch=0, producer_id=0, sequence=0, topic=None, transactional_id=True):
    def ask(p):
        records = wire.batch(["x"], p.producer_id + producer_id, p.epoch + epoch, sequence, True)
        answer = p.connection.ask("Produce", version, transactionalId=p.id if transactional_id else None, acks=1,
                                  timeoutMs=5000, topicData=[
                                      {"name": topic or TOPIC, "partitionData": [{"index": 0, "records": records}]}])
        part = answer["responses"][0]["partitionResponses"][0]
        message = part.get("errorMessage")
        appended = "" if part["errorCode"] else " appended"
        return error(part["errorCode"]) + appended + (f" ({message})" if message else "")
    return ask


def describe(p):
    s = p.state()
    return (f"{error(s['errorCode'])} {s['transactionState']} {s['transactionTimeoutMs']} epoch {s['producerEpoch']} "
            f"started {'at a time' if s['transactionStartTimeMs'] > 0 else s['transactionStartTimeMs']} "
            + " ".join(f"{t['topic'].replace('-' + RUN, '')}{t['partitions']}" for t in s["topics"]))


def listed(**filters):
    def ask(p):
        filled = {k: (f"{p.id}.*" if v == "pattern" else v) for k, v in filters.items()}
        answer = p.connection.ask("ListTransactions", 2, **filled)
        mine = [t["transactionState"] for t in answer["transactionStates"] if t["transactionalId"] == p.id]
        return f"{error(answer['errorCode'])} {mine} unknown {answer['unknownStateFilters']}"
    return ask


REQUESTS = {
    "InitProducerId 0": init(0),
    "InitProducerId 4": init(4),
    "InitProducerId 5, its own": init(5, epoch=0),
    "InitProducerId 4, the epoch before": init(4, epoch=-1),
    "InitProducerId 3, the epoch before": init(3, epoch=-1),
    "InitProducerId 4, a later epoch": init(4, epoch=1),
    "InitProducerId 4, another's": init(4, epoch=0, id=5000),
    "InitProducerId 4, no timeout": init(4, timeout=0),
    "InitProducerId 4, timeout too long": init(4, timeout=900_001),
    "AddPartitionsToTxn 3": add(3, [(OTHER, 0)]),
    "AddPartitionsToTxn 3, the same": add(3, [(TOPIC, 0)]),
    "AddPartitionsToTxn 3, none such": add(3, [(OTHER, 0), ("no-such", 0), (TOPIC, 9)]),
    "AddPartitionsToTxn 3, internal": add(3, [(OTHER, 0), ("__transaction_state", 0)]),
    "AddPartitionsToTxn 1, the epoch before": add(1, [(OTHER, 0)], epoch=-1),
    "AddPartitionsToTxn 2, the epoch before": add(2, [(OTHER, 0)], epoch=-1),
    "AddPartitionsToTxn 3, a later epoch": add(3, [(OTHER, 0)], epoch=1),
    "AddPartitionsToTxn 3, another's": add(3, [(OTHER, 0)], producer_id=5000),
    "AddPartitionsToTxn 4, verify": add_by_broker(4, True, None),
    "AddPartitionsToTxn 5, verify": add_by_broker(5, True, OTHER),
    "AddPartitionsToTxn 5, verify, the epoch before": add_by_broker(5, True, None, epoch=-1),
    "AddPartitionsToTxn 5, verify, another's": add_by_broker(5, True, None, producer_id=5000),
    "AddPartitionsToTxn 5": add_by_broker(5, False, OTHER),
    "AddPartitionsToTxn 5, the epoch before": add_by_broker(5, False, OTHER, epoch=-1),
    "AddPartitionsToTxn 5, none such": add_by_broker(5, False, "no-such"),
    "AddOffsetsToTxn 3": add_offsets(3),
    "AddOffsetsToTxn 1, the epoch before": add_offsets(1, epoch=-1),
    "AddOffsetsToTxn 4, another's": add_offsets(4, producer_id=5000),
    "EndTxn 4, commit": end(4, True),
    "EndTxn 4, abort": end(4, False),
    "EndTxn 1, commit, the epoch before": end(1, True, epoch=-1),
    "EndTxn 4, commit, the epoch before": end(4, True, epoch=-1),
    "EndTxn 4, abort, the epoch before": end(4, False, epoch=-1),
    "EndTxn 4, commit, another's": end(4, True, producer_id=5000),
    "EndTxn 5, commit": end(5, True),
    "EndTxn 5, abort": end(5, False),
    "EndTxn 5, commit, the epoch before": end(5, True, epoch=-1),
    "EndTxn 5, abort, the epoch before": end(5, False, epoch=-1),
    "EndTxn 5, commit, two epochs before": end(5, True, epoch=-2),
    "EndTxn 5, commit, a later epoch": end(5, True, epoch=1),
    "EndTxn 5, abort, another's": end(5, False, producer_id=5000),
    "TxnOffsetCommit 3": commit_offsets(3),
    "TxnOffsetCommit 4": commit_offsets(4),
    "TxnOffsetCommit 5": commit_offsets(5),
    "TxnOffsetCommit 5, the epoch before": commit_offsets(5, epoch=-1),
    "TxnOffsetCommit 4, the epoch before": commit_offsets(4, epoch=-1),
    "TxnOffsetCommit 5, another's": commit_offsets(5, producer_id=5000),
    "TxnOffsetCommit 5, none such": commit_offsets(5, topic="no-such"),
    "TxnOffsetCommit 5, of a member": commit_offsets(5, memberId="m", generationIdOrMemberEpoch=3),
    "Produce 9": produce(9),
    "Produce 10": produce(10),
    "Produce 11": produce(11),
    "Produce 12": produce(12, topic=OTHER),
    "Produce 11, not added": produce(11, topic=OTHER),
    "Produce 12, sequence 3": produce(12, topic=OTHER, sequence=3),
    "Produce 12, the epoch before": produce(12, epoch=-1),
    "Produce 11, the epoch before": produce(11, epoch=-1, topic=OTHER),
    "Produce 12, a later epoch": produce(12, epoch=1, topic=OTHER),
    "Produce 12, another's": produce(12, producer_id=5000, topic=OTHER),
    "Produce 12, no id": produce(12, transactional_id=False),
    "DescribeTransactions": describe,
    "ListTransactions, by pattern": listed(transactionalIdPattern="pattern"),
    "ListTransactions, a long time": listed(durationFilter=3_600_000),
    "ListTransactions, by states": listed(stateFilters=["Ongoing", "PrepareCommit", "Odd"]),
    "ListTransactions, a bad pattern": listed(transactionalIdPattern="a)(b"),
}


def cell(connection, protocol, state, number, request):
    producer = Producer(connection, f"{protocol}-{state}-{number}", protocol == "current")
    setting(state)(producer)
    return cell_of(producer, request)


def cell_of(producer, request):
    """The answer, and the state after it."""
    answer = request(producer)
    after = producer.settled()
    return f"{answer} -> {after['transactionState'] or error(after['errorCode'])} {after['producerEpoch']}"


def register_nobody(connection):
    """A broker that has topics and no process."""
    cluster = connection.ask("DescribeCluster", 1)["clusterId"]
    features = connection.ask("ApiVersions", 4, clientSoftwareName="raw", clientSoftwareVersion="1")["supportedFeatures"]
    quorum = connection.ask("DescribeQuorum", 2, topics=[{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}])
    listener = quorum["nodes"][0]["listeners"][0]
    controller = wire.Connection(f"{listener['host']}:{listener['port']}")
    answer = controller.ask(
        "BrokerRegistration", 4, brokerId=NOBODY, clusterId=cluster, incarnationId=uuid.uuid4(), logDirs=[uuid.uuid4()],
        listeners=[{"name": "PLAINTEXT", "host": "127.0.0.1", "port": 1, "securityProtocol": 0}],
        features=[{"name": f["name"], "minSupportedVersion": f["minVersion"], "maxSupportedVersion": f["maxVersion"]}
                  for f in features])
    check(answer["errorCode"])

    def beat():
        found = controller.ask("BrokerHeartbeat", 1, brokerId=NOBODY, brokerEpoch=answer["brokerEpoch"],
                               currentMetadataOffset=1 << 40, wantFence=False)
        check(found["errorCode"])
        return not found["isFenced"]

    deadline = time.monotonic() + 8
    while not beat():
        if time.monotonic() > deadline:
            raise RuntimeError("it stays fenced")

    def live():
        while True:
            time.sleep(1)
            try:
                beat()
            except OSError:
                return  # the node is gone

    threading.Thread(target=live, daemon=True).start()


def await_coordinators(connection):
    for key, kind in ((GROUP, 0), ("x", 1)):
        deadline = time.monotonic() + 30
        while connection.ask("FindCoordinator", 4, keyType=kind, coordinatorKeys=[key])["coordinators"][0]["errorCode"]:
            if time.monotonic() > deadline:
                raise RuntimeError("no coordinator")
            time.sleep(0.05)
    # Both have loaded all their partitions.
    for number in range(30):
        Producer(connection, f"warm-{number}", True).init()
        until_final(lambda: connection.ask("OffsetFetch", 7, groupId=f"warm-{number}", topics=None, requireStable=True))


def create_topics(connection):
    await_coordinators(connection)
    register_nobody(connection)
    create_topic(connection, STUCK, broker=NOBODY)
    create_topic(connection, TOPIC)
    create_topic(connection, OTHER)


def create_topic(connection, name, partitions=1, broker=1):
    answer = connection.ask("CreateTopics", 7, timeoutMs=10000, topics=[
        {"name": name, "numPartitions": -1, "replicationFactor": -1, "assignments": [
            {"partitionIndex": index, "brokerIds": [broker]} for index in range(partitions)]}])
    check(answer["topics"][0]["errorCode"])
    if broker == NOBODY:
        return
    # The broker leads its partitions a little later than the metadata say.
    deadline = time.monotonic() + 30
    for index in range(partitions):
        while connection.ask("ListOffsets", 5, replicaId=-1, topics=[
                {"name": name, "partitions": [{"partitionIndex": index, "timestamp": -1}]}])["topics"][0]["partitions"][0]["errorCode"]:
            if time.monotonic() > deadline:
                raise RuntimeError("no topic")
            time.sleep(0.02)


def run(bootstrap=BOOTSTRAP, protocols=("current", "older")):
    """(section, lines)"""
    with wire.Connection(bootstrap) as connection:
        create_topics(connection)
        for protocol in protocols:
            for state in STATES:
                lines = [f"{name}: {cell(connection, protocol, state, number, request)}"
                         for number, (name, request) in enumerate(REQUESTS.items())]
                yield f"{state}, {protocol} client", lines


def read_expected(path):
    sections, name = {}, None
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            name = line[2:]
            sections[name] = []
        elif line:
            sections[name].append(line)
    return sections


def record_or_compare(path, kind, sections):
    """Whether all is as in the file, or it is written now. `kind` names the results."""
    if "--record" in sys.argv:
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(f"# {name}\n" + "\n".join(lines) + "\n" for name, lines in sections))
        return True
    expected, failed = read_expected(path), False
    for name, lines in sections:
        differing = [f"{mine} <> {theirs}" for mine, theirs in zip(lines, expected.get(name, [])) if mine != theirs]
        if len(lines) != len(expected.get(name, [])):
            differing.append("not as many lines")
        failed |= bool(differing)
        for line in differing:
            print(f"{name}: {line}")
        print(f"RESULT\traw\t{kind}: {name}\t{'fail' if differing else 'pass'}\t{len(differing)} differ", flush=True)
    return not failed


if __name__ == "__main__":
    sys.exit(0 if record_or_compare(EXPECTED / "transactions.txt", "transactions", run()) else 1)
