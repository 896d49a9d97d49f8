"""What is answered to strings that are not UTF-8: Java replaces what is wrong in them.

    text_test.py             compares with expected/text.txt
    text_test.py --record    writes that file; only ever from Apache Kafka

Here "\\udcff" in a string is the byte 0xff: it goes to the broker as it is.
"""
import sys

import transactions_test as raw
import wire

# Bytes alone, a character cut short, a surrogate (one character to Java), an overlong form, and what is valid in between.
ODD = "a\udcff\u00e9\udce2\udc82z\udced\udca0\udc80.\udcc0\udc80"
TOPIC = f"raw-text-{raw.RUN}"
GROUP = f"g{raw.RUN}"


def shown(value):
    return ascii(value).replace(raw.RUN, "RUN")


def names(node):
    for version in (1, 12):
        answer = node.ask("Metadata", version, topics=[{"name": ODD}])
        topic = answer["topics"][0]
        yield f"Metadata {version}: {raw.error(topic['errorCode'])} {shown(topic['name'])}"
    for version in (4, 7):
        answer = node.ask("CreateTopics", version, timeoutMs=5000, topics=[
            {"name": ODD, "numPartitions": 1, "replicationFactor": 1}])
        topic = answer["topics"][0]
        yield f"CreateTopics {version}: {raw.error(topic['errorCode'])} {shown(topic['name'])} {shown(topic['errorMessage'])}"
    answer = node.ask("CreateTopics", 7, timeoutMs=5000, topics=[
        {"name": TOPIC + "-2", "numPartitions": 1, "replicationFactor": 1,
         "configs": [{"name": "x" + ODD, "value": ODD}]}])
    topic = answer["topics"][0]
    yield f"CreateTopics, config: {raw.error(topic['errorCode'])} {shown(topic['errorMessage'])}"
    answer = node.ask("DeleteTopics", 4, topicNames=[ODD], timeoutMs=5000)["responses"][0]
    yield f"DeleteTopics: {raw.error(answer['errorCode'])} {shown(answer['name'])}"
    for version in (3, 9):
        answer = node.ask("Produce", version, acks=1, timeoutMs=5000, topicData=[
            {"name": ODD, "partitionData": [{"index": 0, "records": wire.batch(["\u00e9"])}]}])["responses"][0]
        yield f"Produce {version}: {raw.error(answer['partitionResponses'][0]['errorCode'])} {shown(answer['name'])}"


def coordinators(node):
    for version, fields in ((2, {"key": ODD}), (4, {"coordinatorKeys": [ODD]})):
        answer = node.ask("FindCoordinator", version, keyType=0, **fields)
        found = answer["coordinators"][0] if version == 4 else answer
        yield f"FindCoordinator {version}: {raw.error(found['errorCode'])} {shown(found.get('key'))}"


def groups(node):
    group = GROUP + ODD
    for version in (7, 8):
        answer = node.ask("OffsetCommit", version, groupId=group, generationIdOrMemberEpoch=-1, memberId="", topics=[
            {"name": TOPIC, "partitions": [{"partitionIndex": 0, "committedOffset": version, "committedMetadata": ODD}]}])
        yield f"OffsetCommit {version}: {raw.error(answer['topics'][0]['partitions'][0]['errorCode'])}"
        answer = node.ask("OffsetFetch", version, **(
            {"groups": [{"groupId": group, "topics": [{"name": TOPIC, "partitionIndexes": [0]}]}]} if version == 8 else
            {"groupId": group, "topics": [{"name": TOPIC, "partitionIndexes": [0]}]}))
        part = (answer["groups"][0] if version == 8 else answer)["topics"][0]["partitions"][0]
        yield f"OffsetFetch {version}: {part['committedOffset']} {shown(part['metadata'])}"
    listed = node.ask("ListGroups", 4)["groups"]
    yield f"ListGroups: {[shown(found['groupId']) for found in listed if raw.RUN in found['groupId']]}"
    found = node.ask("DescribeGroups", 4, groups=[group])["groups"][0]
    yield f"DescribeGroups: {raw.error(found['errorCode'])} {found['groupState']} {shown(found['groupId'])}"


def run():
    with wire.Connection(raw.BOOTSTRAP, client_id=ODD) as node:
        raw.await_coordinators(node)
        raw.create_topic(node, TOPIC, 1)
        yield "names", list(names(node))
        yield "coordinators", list(coordinators(node))
        yield "groups", list(groups(node))


if __name__ == "__main__":
    sys.exit(0 if raw.record_or_compare(raw.EXPECTED / "text.txt", "not UTF-8", run()) else 1)
