"""State x request -> answer of classic groups, and what becomes of their offsets, by raw requests.

    groups_test.py                     compares with expected/groups.txt, a RESULT line a section
    groups_test.py --record            writes that file; only ever from Apache Kafka

Each cell has a group of its own. The node that is asked what expires looks for expired offsets all the time, so that a commit with a
retention time of its own (OffsetCommit version 2) shows within a second which offsets do. The node of the cells does not: it would take
a group away that is empty and has no offsets, now and then before its cell has asked.
"""
import os
import pathlib
import re
import select
import struct
import sys
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import servers  # noqa: E402
import wire  # noqa: E402

KIND = os.environ.get("COMPAT_AGAINST", "apache")
EXPECTED = pathlib.Path(__file__).resolve().parent / "expected" / "groups.txt"
ERRORS = wire.error_names()
PROPERTIES = """\
group.min.session.timeout.ms=1000
group.initial.rebalance.delay.ms=0
group.max.size=3
offset.metadata.max.bytes=10
"""
LOOKS_FOR_EXPIRED = "offsets.retention.check.interval.ms=200\n"
PASSING = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS")
RETENTION_MS = 300
TOPICS = ("a", "b")
# A member's id would be too long for a string with what is added to it.
LONG_NAME = "i" * 32_766
# A JoinGroup that is not answered by then waits for others.
PARKED_SECONDS = 0.5


def error(code):
    return ERRORS.get(code, str(code))


def subscription(*topics):
    """ConsumerProtocolSubscription, version 0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Node:
    def __init__(self, server):
        self.server = server
        self.connection = wire.Connection(server.bootstrap)
        self.number = 0
        self.waiting = []

    def ask(self, name, version, **fields):
        return self.connection.ask(name, version, **fields)

    def new_group(self):
        self.number += 1
        return f"group-{self.number}"

    def ask_or_wait(self, name, version, **fields):
        """None: not answered at once. The connection stays open until the end."""
        connection = wire.Connection(self.server.bootstrap)
        self.waiting.append(connection)
        connection.send(name, version, **fields)
        readable, _, _ = select.select([connection.socket], [], [], PARKED_SECONDS)
        return connection.receive() if readable else None

    def until(self, what, condition, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"gave up waiting for {what}")
            time.sleep(0.02)

    def park(self, group):
        """A new member waits in the group."""
        before = self.members(group)
        connection = wire.Connection(self.server.bootstrap)
        self.waiting.append(connection)
        connection.send("JoinGroup", 3, **self.join_fields(group))
        self.until("the new member", lambda: self.members(group) > before)

    def members(self, group):
        return len(self.ask("DescribeGroups", 4, groups=[group])["groups"][0]["members"])

    def join_fields(self, group, member="", instance=None, session=30000, kind="consumer", protocols=(("range", ("a",)),)):
        return dict(groupId=group, memberId=member, groupInstanceId=instance, sessionTimeoutMs=session, rebalanceTimeoutMs=60000,
                    protocolType=kind, protocols=[
                        {"name": name, "metadata": subscription(*what) if isinstance(what, tuple) else what} for name, what in protocols])

    def join(self, group, **options):
        # Version 3 asks for no id that is known.
        version = 5 if options.get("instance") else 3
        joined = self.ask("JoinGroup", version, **self.join_fields(group, **options))
        assert joined["errorCode"] == 0, error(joined["errorCode"])
        return joined

    def sync(self, group, joined):
        synced = self.ask("SyncGroup", 3, groupId=group, generationId=joined["generationId"], memberId=joined["memberId"],
                          assignments=[{"memberId": joined["memberId"], "assignment": b"all"}])
        assert synced["errorCode"] == 0, error(synced["errorCode"])

    def stable(self, group, **options):
        joined = self.join(group, **options)
        self.sync(group, joined)
        return joined["memberId"], joined["generationId"]

    def leave(self, group, member):
        self.ask("LeaveGroup", 3, groupId=group, members=[{"memberId": member}])

    def commit(self, group, offsets, member="", generation=-1, version=8, retention=-1, metadata="m", instance=None):
        topics = [{"name": topic, "partitions": [{"partitionIndex": 0, "committedOffset": offset, "committedMetadata": metadata}]}
                  for topic, offset in offsets.items()]
        answer = self.ask("OffsetCommit", version, groupId=group, generationIdOrMemberEpoch=generation, memberId=member,
                          retentionTimeMs=retention, topics=topics, **({"groupInstanceId": instance} if version >= 7 else {}))
        return " ".join(error(topic["partitions"][0]["errorCode"]) for topic in answer["topics"])

    def fetch(self, group, stable=False, version=7, topics=TOPICS):
        asked = None if topics is None else [{"name": topic, "partitionIndexes": [0]} for topic in topics]
        answer = self.ask("OffsetFetch", version, groupId=group, topics=asked, **({"requireStable": stable} if version >= 7 else {}))
        found = {topic["name"]: topic["partitions"][0] for topic in answer["topics"]}
        shown = [f"{name} {part['committedOffset']}" + (f" {error(part['errorCode'])}" if part["errorCode"] else "")
                 for name, part in sorted(found.items())]
        return ", ".join(shown + ([error(answer["errorCode"])] if answer["errorCode"] else [])) or "nothing"

    def state(self, group):
        found = self.ask("DescribeGroups", 4, groups=[group])["groups"][0]
        return f"{found['groupState']} {found['protocolType']!r} {len(found['members'])}"


def no_group(node, group):
    return "nobody", 0


def simple_group(node, group):
    node.commit(group, {"a": 1, "b": 1})
    return "nobody", 0


def empty_group(node, group):
    member, generation = node.stable(group)
    node.leave(group, member)
    return member, generation


def completing_group(node, group):
    joined = node.join(group)
    return joined["memberId"], joined["generationId"]


def stable_group(node, group):
    return node.stable(group)


def preparing_group(node, group):
    member, generation = node.stable(group)
    node.park(group)
    return member, generation


def static_group(node, group):
    return node.stable(group, instance="i")


def connect_group(node, group):
    return node.stable(group, kind="connect", protocols=(("sessioned", b"x"),))


def full_group(node, group):
    """Of three members, in the middle of their first rebalance but one."""
    member, generation = node.stable(group)
    for _ in range(2):
        node.park(group)
    return member, generation


STATES = {"none": no_group, "simple": simple_group, "empty": empty_group, "completing": completing_group, "stable": stable_group,
          "preparing": preparing_group, "static": static_group, "connect": connect_group, "full": full_group}


def heartbeat(ids=None, later=0, instance=None):
    def request(node, group, member, generation):
        answer = node.ask("Heartbeat", 3, groupId=group, generationId=generation + later, memberId=member if ids is None else ids,
                          groupInstanceId=instance)
        return error(answer["errorCode"])
    return request


def sync(ids=None, later=0, instance=None, version=5, kind="consumer", protocol="range"):
    def request(node, group, member, generation):
        member = member if ids is None else ids
        named = {"protocolType": kind, "protocolName": protocol} if version >= 5 else {}
        answer = node.ask_or_wait("SyncGroup", version, groupId=group, generationId=generation + later, memberId=member,
                                  groupInstanceId=instance, assignments=[{"memberId": member, "assignment": b"mine"}], **named)
        return "waits" if answer is None else f"{error(answer['errorCode'])} {bytes(answer['assignment'] or b'').decode()}"
    return request


def join(ids=None, version=5, **options):
    def request(node, group, member, generation):
        fields = node.join_fields(group, member=member if ids is None else ids, **options)
        if version < 5:
            del fields["groupInstanceId"]
        answer = node.ask_or_wait("JoinGroup", version, **fields)
        if answer is None:
            return "waits"
        given = {member: "the same", "": "none"}.get(answer["memberId"], "another")
        leads = answer["leader"] == answer["memberId"] != ""
        more = answer["generationId"] - generation if answer["generationId"] >= 0 else "none"
        return f"{error(answer['errorCode'])} generation +{more}, id {given}, leads {leads}, {len(answer['members'])} members, {answer['protocolName']!r}"
    return request


def leave(*who, version=3):
    def request(node, group, member, generation):
        if version < 3:
            return error(node.ask("LeaveGroup", version, groupId=group, memberId=member if who[0][0] == "me" else who[0][0])["errorCode"])
        members = [{"memberId": member if given == "me" else given, "groupInstanceId": instance} for given, instance in who]
        answer = node.ask("LeaveGroup", version, groupId=group, members=members)
        each = " ".join(error(left["errorCode"]) for left in answer["members"])
        return f"{error(answer['errorCode'])}: {each}; then {node.state(group)}"
    return request


def commit(ids=None, later=0, instance=None, version=8, generation_is=None, metadata="m"):
    def request(node, group, member, generation):
        generation = generation + later if generation_is is None else generation_is
        return node.commit(group, {"a": 7}, member=member if ids is None else ids, generation=generation, version=version,
                           instance=instance, metadata=metadata)
    return request


def delete_offsets(topic):
    def request(node, group, member, generation):
        answer = node.ask("OffsetDelete", 0, groupId=group, topics=[{"name": topic, "partitions": [{"partitionIndex": 0}]}])
        each = " ".join(error(found["partitions"][0]["errorCode"]) for found in answer["topics"])
        return f"{error(answer['errorCode'])}: {each}"
    return request


def delete(node, group, member, generation):
    answer = node.ask("DeleteGroups", 2, groupsNames=[group])
    return f"{error(answer['results'][0]['errorCode'])}; then {node.state(group)}"


REQUESTS = {
    "describe": lambda node, group, member, generation: node.state(group),
    "fetch": lambda node, group, member, generation: node.fetch(group),
    "fetch all": lambda node, group, member, generation: node.fetch(group, topics=None),
    "heartbeat": heartbeat(),
    "heartbeat, earlier generation": heartbeat(later=-1),
    "heartbeat, later generation": heartbeat(later=1),
    "heartbeat, unknown member": heartbeat(ids="who"),
    "heartbeat, no member": heartbeat(ids=""),
    "heartbeat, as i": heartbeat(instance="i"),
    "heartbeat, other as i": heartbeat(ids="who", instance="i"),
    "heartbeat, as j": heartbeat(instance="j"),
    "sync": sync(),
    "sync, version 3": sync(version=3),
    "sync, earlier generation": sync(later=-1),
    "sync, later generation": sync(later=1),
    "sync, unknown member": sync(ids="who"),
    "sync, other as i": sync(ids="who", instance="i"),
    "sync, as j": sync(instance="j"),
    "sync, other type": sync(kind="connect"),
    "sync, other protocol": sync(protocol="sticky"),
    "join, new": join(ids=""),
    "join, new, version 3": join(ids="", version=3),
    "join, new, as i": join(ids="", instance="i"),
    "join, new, as j": join(ids="", instance="j"),
    "join, unknown member": join(ids="who"),
    "join, unknown as i": join(ids="who", instance="i"),
    "join, again": join(),
    "join, again, as i": join(instance="i"),
    "join, again, version 7": join(version=7),
    "join, again with more topics": join(protocols=(("range", ("a", "b")),)),
    "join, other type": join(ids="", version=3, kind="connect"),
    "join, no type": join(ids="", version=3, kind=""),
    "join, no protocols": join(ids="", version=3, protocols=()),
    "join, other protocol": join(ids="", version=3, protocols=(("sticky", ("a",)),)),
    "join, short session": join(ids="", version=3, session=999),
    "join, long session": join(ids="", version=3, session=1800001),
    "leave": leave(("me", None)),
    "leave, version 2": leave(("me", None), version=2),
    "leave, unknown, version 2": leave(("who", None), version=2),
    "leave, unknown": leave(("who", None)),
    "leave, as i": leave(("", "i")),
    "leave, other as i": leave(("who", "i")),
    "leave, as j and me": leave(("", "j"), ("me", None)),
    "leave, nobody": leave(),
    "commit": commit(),
    "commit, earlier generation": commit(later=-1),
    "commit, later generation": commit(later=1),
    "commit, unknown member": commit(ids="who"),
    "commit, unknown member, version 9": commit(ids="who", version=9),
    "commit, no member": commit(ids="", generation_is=-1),
    "commit, no member, version 9": commit(ids="", generation_is=-1, version=9),
    "commit, other as i": commit(ids="who", instance="i"),
    "commit, as j": commit(instance="j"),
    "commit, version 2": commit(version=2),
    "commit, long metadata": commit(metadata="12345678901"),
    "commit, longest metadata": commit(metadata="1234567890"),
    "delete offsets of a": delete_offsets("a"),
    "delete offsets of b": delete_offsets("b"),
    "delete offsets of none": delete_offsets("none"),
    "delete": delete,
}


def long_ids(node):
    """Apache Kafka lets such a member into a group of others, too, and has no answer for any of them then."""
    for state in ("none", "simple", "empty"):
        group = node.new_group()
        member, generation = STATES[state](node, group)
        yield f"{state}: {join(ids='', instance=LONG_NAME)(node, group, member, generation)}"


REPEATED = {
    "a twice": [("a", 0), ("a", 0, 0)], "a around b": [("a", 0), ("b", 0), ("a", 0)], "none, a twice": [("none", 0), ("a", 0), ("a", 0)],
    "a that is not there, then a": [("a", 9), ("b", 0), ("a", 0), ("b", 0)], "none, without partitions": [("none",), ("a", 0), ("a", 0)],
    "none alone, without partitions": [("none",)], "a without partitions": [("a",), ("a", 0)], "none thrice": [("none", 1), ("none", 2), ("none",)],
}


def repeated_topics(node):
    """Topics that are named more than once: what was refused before the coordinator was asked is merged with what it says."""
    def shown(answer):
        each = [f"{topic['name']} " + ", ".join(f"{part['partitionIndex']} {error(part['errorCode'])}" for part in topic["partitions"])
                for topic in answer["topics"]]
        return "; ".join(each) or "nothing"

    group = node.new_group()
    for name, topics in REPEATED.items():
        asked = [{"name": topic, "partitions": [{"partitionIndex": partition} for partition in partitions]} for topic, *partitions in topics]
        to_commit = [dict(topic, partitions=[dict(part, committedOffset=1) for part in topic["partitions"]]) for topic in asked]
        for member, generation in (("", -1), ("who", 1)):
            answer = node.ask("OffsetCommit", 8, groupId=group, generationIdOrMemberEpoch=generation, memberId=member, topics=to_commit)
            yield f"commit, {name}, member {member!r}: {shown(answer)}"
        yield f"delete, {name}: {shown(node.ask('OffsetDelete', 0, groupId=group, topics=asked))}"


def invalid(node):
    """Requests to a group that has no name."""
    def line(name, request):
        return f"{name}: {request(node, '', 'm', 1)}"
    yield from (line(name, REQUESTS[name]) for name in (
        "describe", "fetch", "heartbeat", "sync", "join, new", "commit", "commit, no member", "delete offsets of a", "delete",
        "leave, version 2"))


def expiry(node):
    """Which offsets go when their retention is over."""
    kept, short = dict(version=8), dict(version=2, retention=RETENTION_MS)
    lines = []

    def setting(name, brings):
        group = node.new_group()
        lines.append((name, group, brings(group), node.fetch(group)))

    def member_of(group, **options):
        member, generation = node.stable(group, **options)
        return dict(member=member, generation=generation)

    def left(group, **commits):
        member = member_of(group)
        done = node.commit(group, {"a": 1, "b": 2}, **member, **commits)
        node.leave(group, member["member"])
        return done

    both = {"a": 1, "b": 2}
    setting("simple, kept", lambda group: node.commit(group, both, **kept))
    setting("simple", lambda group: node.commit(group, both, **short))
    setting("simple, one kept", lambda group: node.commit(group, {"a": 1}, **short) + " " + node.commit(group, {"b": 2}, **kept))
    setting("simple, committed again", lambda group: node.commit(group, both, **short) + " " + node.commit(group, both, **kept))
    setting("empty", lambda group: left(group, **short))
    setting("empty, kept", lambda group: left(group, **kept))
    setting("live, subscribed to a", lambda group: node.commit(group, both, **member_of(group), **short))
    setting("live, subscribed to nothing", lambda group: node.commit(
        group, both, **member_of(group, protocols=(("range", ()),)), **short))
    setting("live, subscription that is none", lambda group: node.commit(
        group, both, **member_of(group, protocols=(("range", b"x"),)), **short))
    setting("live, connect", lambda group: node.commit(
        group, both, **member_of(group, kind="connect", protocols=(("sessioned", b"x"),)), **short))

    def completing(group):
        joined = node.join(group)
        return node.commit(group, both, member=joined["memberId"], generation=joined["generationId"], **short)
    setting("completing", completing)

    def preparing(group):
        done = node.commit(group, both, **member_of(group), **short)
        node.park(group)
        return done
    setting("preparing", preparing)
    # Ten looks and more after the last retention is over.
    time.sleep(RETENTION_MS / 1000 + 2.5)
    for name, group, done, before in lines:
        yield f"{name}: {done}; {before}; then {node.fetch(group)}; {node.state(group)}"


def stable_fetches(node):
    """OffsetFetch beside a transaction that is open (KIP-447)."""
    group, transaction = node.new_group(), "transaction"

    def lines(when):
        for stable in (False, True):
            yield f"{when}, stable {stable}: {node.fetch(group, stable)}"
            yield f"{when}, stable {stable}, all: {node.fetch(group, stable, topics=None)}"
        yield f"{when}, version 6: {node.fetch(group, version=6)}"

    def passing(ask):
        answers = []

        def has_passed():
            answers.append(ask())
            return error(answers[-1]["errorCode"]) not in PASSING
        node.until("what passes", has_passed)
        assert answers[-1]["errorCode"] == 0, error(answers[-1]["errorCode"])
        return answers[-1]

    def begin(offsets):
        producer = passing(lambda: node.ask("InitProducerId", 3, transactionalId=transaction, transactionTimeoutMs=60000))
        ids = dict(transactionalId=transaction, producerId=producer["producerId"], producerEpoch=producer["producerEpoch"])
        passing(lambda: node.ask("AddOffsetsToTxn", 3, groupId=group, **ids))
        answer = node.ask("TxnOffsetCommit", 3, groupId=group, topics=[
            {"name": topic, "partitions": [{"partitionIndex": 0, "committedOffset": offset, "committedMetadata": ""}]}
            for topic, offset in offsets.items()], **ids)
        return ids, " ".join(error(topic["partitions"][0]["errorCode"]) for topic in answer["topics"])

    def end(ids, commit):
        passing(lambda: node.ask("EndTxn", 3, committed=commit, **ids))
        node.until("the marker", lambda: "UNSTABLE" not in node.fetch(group, True))

    passing(lambda: node.ask("FindCoordinator", 3, key=transaction, keyType=1))
    yield from lines("nothing")
    ids, done = begin({"a": 3})
    yield f"in a transaction: {done}"
    yield from lines("only in it")
    yield f"state: {node.state(group)}"
    yield f"delete: {delete(node, group, '', 0)}"
    ids, done = begin({"a": 4})
    end(ids, False)
    yield from lines("aborted")
    node.commit(group, {"a": 1, "b": 2})
    ids, _ = begin({"a": 5})
    yield from lines("committed before")
    node.commit(group, {"a": 6, "b": 7}, version=2, retention=RETENTION_MS)
    yield from lines("committed beside")
    # What is in an open transaction does not expire, nor does its group.
    time.sleep(RETENTION_MS / 1000 + 1.5)
    yield from lines("retention over")
    end(ids, True)
    node.until("the rest to expire", lambda: node.state(group).startswith("Dead"))
    yield f"at last: {node.fetch(group)}; {node.state(group)}"


def topic_deletion(node):
    """Offsets of a topic that is deleted."""
    groups = {"simple": node.new_group(), "live": node.new_group(), "third": node.new_group()}
    member, generation = node.stable(groups["live"], protocols=(("range", ("b",)),))
    for name, group in groups.items():
        as_member = dict(member=member, generation=generation) if name == "live" else {}
        node.commit(group, {"a": 1, "b": 2}, **as_member)
    create_topics(node, ["gone"])
    for name, group in groups.items():
        as_member = dict(member=member, generation=generation) if name == "live" else {}
        yield f"{name}: {node.commit(group, {'gone': 3}, **as_member)}; {node.fetch(group, topics=None)}"
    yield f"deleted: {error(node.ask('DeleteTopics', 4, topicNames=['gone'], timeoutMs=10000)['responses'][0]['errorCode'])}"
    for name, group in groups.items():
        node.until("the offsets to go", lambda: "gone" not in node.fetch(group, topics=None))
        yield f"{name}: {node.fetch(group, topics=None)}; {node.fetch(group, topics=['gone', 'b'])}"
    yield f"commit: {node.commit(groups['simple'], {'gone': 4})}"
    create_topics(node, ["gone"])
    yield f"again: {node.fetch(groups['simple'], topics=['gone'])}; {node.commit(groups['simple'], {'gone': 4})}"
    yield f"again: {node.fetch(groups['simple'], topics=['gone'])}"


def create_topics(node, names):
    answer = node.ask("CreateTopics", 4, timeoutMs=10000, topics=[
        {"name": name, "numPartitions": 1, "replicationFactor": 1} for name in names])
    for topic in answer["topics"]:
        assert topic["errorCode"] == 0, error(topic["errorCode"])

    def is_known(name):
        found = node.ask("Metadata", 8, topics=[{"name": name}], allowAutoTopicCreation=False)["topics"][0]
        return found["errorCode"] == 0 and found["partitions"]
    for name in names:
        node.until(f"topic {name}", lambda: is_known(name))


def cells(node, state):
    for name, request in REQUESTS.items():
        group = node.new_group()
        member, generation = STATES[state](node, group)
        yield f"{name}: {request(node, group, member, generation)}"


def sections_of_cells(node):
    for state in STATES:
        yield f"classic group, {state}", cells(node, state)
    yield "group without a name", invalid(node)
    yield "member whose id would be too long", long_ids(node)
    yield "topics named more than once", repeated_topics(node)


def sections_of_expiry(node):
    yield "expiry", expiry(node)
    yield "requireStable", stable_fetches(node)
    yield "deleted topic", topic_deletion(node)


def run():
    yield from run_on(PROPERTIES, sections_of_cells)
    yield from run_on(PROPERTIES + LOOKS_FOR_EXPIRED, sections_of_expiry)


def run_on(properties, sections):
    with servers.Server(KIND, extra_properties=properties) as server:
        node = Node(server)
        create_topics(node, list(TOPICS))
        for number in range(20):
            group = f"warm-{number}"
            node.until("the coordinators", lambda: node.ask("FindCoordinator", 3, key=group, keyType=0)["errorCode"] == 0)
            node.until("the coordinators", lambda: node.fetch(group, True) == "a -1, b -1")
        # Nothing is slow any more because it is done for the first time.
        for state in STATES:
            member, generation = STATES[state](node, group := node.new_group())
            join(ids="", version=3)(node, group, member, generation)
            node.leave(group, member)
        for name, lines in sections(node):
            yield name, [re.sub(r" +$", "", line) for line in lines]


def read_expected():
    found, name = {}, None
    for line in EXPECTED.read_text().splitlines():
        if line.startswith("# "):
            name = line[2:]
            found[name] = []
        elif line:
            found[name].append(line)
    return found


def main():
    if "--record" in sys.argv:
        EXPECTED.write_text("\n".join(f"# {name}\n" + "\n".join(lines) + "\n" for name, lines in run()))
        return 0
    expected, failed = read_expected(), False
    for name, lines in run():
        wanted = expected.get(name, [])
        differing = [f"{mine} <> {theirs}" for mine, theirs in zip(lines, wanted) if mine != theirs]
        if len(lines) != len(wanted):
            differing.append("not as many lines")
        failed |= bool(differing)
        for line in differing:
            print(f"{name}: {line}")
        print(f"RESULT\traw\tgroups: {name}\t{'fail' if differing else 'pass'}\t{len(differing)} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
