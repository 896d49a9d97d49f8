"""Offsets that are committed in a transaction: who may, when they are seen, what becomes of them.

    transactional_offsets_test.py             compares with expected/offsets.txt
    transactional_offsets_test.py --record    writes that file; only ever from Apache Kafka
"""
import sys
import time

import transactions_test as raw
import wire


class Group:
    """A group, and producers that commit for it."""

    def __init__(self, node, name):
        self.node, self.id, self.lines = node, f"raw-offsets-{name}-{raw.RUN}", []
        self.member = {}

    def join(self, instance=None):
        fields = dict(groupId=self.id, sessionTimeoutMs=60000, rebalanceTimeoutMs=60000, protocolType="consumer", groupInstanceId=instance,
                      protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}])
        joined = self.node.ask("JoinGroup", 5, memberId="", **fields)
        if raw.error(joined["errorCode"]) == "MEMBER_ID_REQUIRED":
            joined = self.node.ask("JoinGroup", 5, memberId=joined["memberId"], **fields)
        raw.check(joined["errorCode"])
        self.member = dict(memberId=joined["memberId"], generationIdOrMemberEpoch=joined["generationId"], groupInstanceId=instance)
        raw.check(self.node.ask("SyncGroup", 3, groupId=self.id, generationId=joined["generationId"], memberId=joined["memberId"],
                                groupInstanceId=instance, assignments=[{"memberId": joined["memberId"], "assignment": b""}])["errorCode"])

    def tell(self, what, found):
        self.lines.append(f"{what}: {found}")

    def producer(self, name):
        producer = raw.Producer(self.node, f"{self.id}-{name}", True)
        producer.init()
        return producer

    def commit_in(self, producer, offset, version=5, topic=raw.TOPIC, metadata="m", **member):
        fields = dict(producer_fields(producer), groupId=self.id, topics=[{"name": topic, "partitions": [
            {"partitionIndex": 0, "committedOffset": offset, "committedMetadata": metadata}]}])
        answer = self.node.ask("TxnOffsetCommit", version, **fields, **{**self.member, **member})
        return raw.error(answer["topics"][0]["partitions"][0]["errorCode"])

    def commit(self, offset):
        answer = self.node.ask("OffsetCommit", 7, groupId=self.id, topics=[{"name": raw.TOPIC, "partitions": [
            {"partitionIndex": 0, "committedOffset": offset, "committedMetadata": ""}]}], **self.member)
        return raw.error(answer["topics"][0]["partitions"][0]["errorCode"])

    def fetch(self, stable):
        answer = raw.until_final(lambda: self.node.ask("OffsetFetch", 7, groupId=self.id, requireStable=stable, topics=[
            {"name": raw.TOPIC, "partitionIndexes": [0]}]))
        part = answer["topics"][0]["partitions"][0]
        return f"{raw.error(part['errorCode'])} {part['committedOffset']} {part['metadata']!r}"

    def look(self, what):
        self.tell(what, f"stable {self.fetch(True)}, any {self.fetch(False)}")

    def end(self, producer, commit):
        producer.end(commit)
        # The group has its marker when the transaction is complete.
        producer.settled()

    def state(self):
        group = self.node.ask("DescribeGroups", 5, groups=[self.id])["groups"][0]
        return f"{raw.error(group['errorCode'])} {group['groupState']}"


def producer_fields(producer):
    return dict(transactionalId=producer.id, producerId=producer.producer_id, producerEpoch=producer.epoch)


def seen(group):
    first = group.producer("first")
    group.look("nothing yet")
    group.tell("in a transaction", group.commit_in(first, 5))
    group.look("open")
    group.tell("again", group.commit_in(first, 6, metadata=""))
    group.look("open")
    group.end(first, True)
    group.look("committed")
    group.tell("in the next", group.commit_in(first, 9))
    group.look("open")
    group.end(first, False)
    group.look("aborted")
    group.tell("no such topic", group.commit_in(first, 9, topic="no-such"))
    group.tell("metadata too large", group.commit_in(first, 9, metadata="x" * 5000))
    group.tell("negative", group.commit_in(first, -5))
    group.look("open")
    group.end(first, False)
    group.look("aborted")


def overlapping(group):
    first, second = group.producer("first"), group.producer("second")
    group.tell("of one", group.commit_in(first, 5))
    group.tell("of another", group.commit_in(second, 7))
    group.look("both open")
    group.end(second, True)
    group.look("the later one committed")
    group.end(first, True)
    group.look("the earlier one committed")
    group.tell("in a transaction", group.commit_in(first, 11))
    group.tell("without one", group.commit(13))
    group.look("open")
    group.end(first, True)
    group.look("committed")


def members(group):
    first = group.producer("first")
    group.join()
    generation = group.member["generationIdOrMemberEpoch"]
    for version in (3, 5):
        for what, member in (("of the member", {}), ("of an earlier generation", {"generationIdOrMemberEpoch": generation - 1}),
                             ("of a later generation", {"generationIdOrMemberEpoch": generation + 1}), ("of another member", {"memberId": "another"}),
                             ("with an instance", {"groupInstanceId": "none-such"}), ("of nobody", {"memberId": "", "generationIdOrMemberEpoch": -1}),
                             ("of nobody in a generation", {"memberId": ""}), ("of the member in none", {"generationIdOrMemberEpoch": -1})):
            if version == 3:
                raw.check(group.node.ask("AddOffsetsToTxn", 3, groupId=group.id, **producer_fields(first))["errorCode"])
            group.tell(f"version {version}, {what}", group.commit_in(first, version, version, **member))
            group.end(first, True)
            group.look("committed")


def static_members(group):
    first = group.producer("first")
    group.join("instance")
    for what, member in (("of the member", {}), ("of another member of the instance", {"memberId": "another"}), ("without the instance", {"groupInstanceId": None}),
                         ("of another instance", {"groupInstanceId": "another"})):
        group.tell(what, group.commit_in(first, 5, **member))
    group.end(first, False)
    before = dict(group.member)
    group.join("instance")
    group.tell("of the one before", group.commit_in(first, 6, **before))
    group.tell("of the one that came back", group.commit_in(first, 7))
    group.end(first, True)
    group.look("committed")


def deleted(group):
    first = group.producer("first")
    group.tell("in a transaction", group.commit_in(first, 5))
    group.tell("the group", group.state())
    answer = group.node.ask("OffsetDelete", 0, groupId=group.id, topics=[{"name": raw.TOPIC, "partitions": [{"partitionIndex": 0}]}])
    group.tell("the offset deleted", f"{raw.error(answer['errorCode'])} {[raw.error(p['errorCode']) for t in answer['topics'] for p in t['partitions']]}")
    group.look("open")
    group.end(first, True)
    group.look("committed")
    group.tell("in a transaction", group.commit_in(first, 8))
    answer = group.node.ask("DeleteGroups", 2, groupsNames=[group.id])
    group.tell("the group deleted", raw.error(answer["results"][0]["errorCode"]))
    group.look("open")
    group.end(first, True)
    time.sleep(0.1)
    group.look("committed")
    group.tell("the group", group.state())


def run():
    with wire.Connection(raw.BOOTSTRAP) as node:
        raw.await_coordinators(node)
        raw.create_topic(node, raw.TOPIC)
        for name, tale in (("seen", seen), ("overlapping", overlapping), ("members", members), ("static members", static_members), ("deleted", deleted)):
            group = Group(node, name.replace(" ", "-"))
            tale(group)
            yield name, group.lines


if __name__ == "__main__":
    sys.exit(0 if raw.record_or_compare(raw.EXPECTED / "offsets.txt", "transactional offsets", run()) else 1)
