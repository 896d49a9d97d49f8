"""The same raw requests to Apache Kafka and to another broker: what consumer groups (KIP-848) answer must be the same.

Requests that are refused, the life of groups, static members, patterns, topics that change, migrations between the
protocols, silent members; then members that do at random what members may do and sometimes what they may not.
CONSUMER_PROTOCOL_SEEDS (10), CONSUMER_PROTOCOL_STEPS (80). Against Apache Kafka the other one is Apache Kafka too, which proves
that the answers do not differ by chance.

Member ids are the client's and the range assignor goes by them, so that answers can be compared whole; ids that a
broker makes up are named by the order in which they appear.
"""
import json
import os
import random
import struct
import time

import servers
from results import check, expect, finish
from wire import Connection

PROPERTIES = """\
group.consumer.assignors=range,uniform
group.consumer.assignment.interval.ms=0
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms={session}
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=500
group.consumer.max.size=5
"""


class Broker:
    """A server, and the topics on it."""

    def __init__(self, server):
        self.server = server
        self.kind = server.kind
        self.connection = Connection(server.bootstrap, timeout=60)
        self.names = {}
        self.ids = {}

    def create_topic(self, name, partitions):
        answer = self.connection.ask("CreateTopics", 7, timeoutMs=30000, topics=[
            {"name": name, "numPartitions": partitions, "replicationFactor": 1}])
        topic, = answer["topics"]
        expect(topic["errorCode"], 0, f"creating {name} on {self.kind}")
        self.names[topic["topicId"]], self.ids[name] = name, topic["topicId"]

    def delete_topic(self, name):
        self.connection.ask("DeleteTopics", 6, timeoutMs=30000, topics=[{"name": name}])

    def create_partitions(self, name, count):
        self.connection.ask("CreatePartitions", 3, timeoutMs=30000, topics=[
            {"name": name, "count": count, "assignments": None}])

    def find_coordinator(self, group):
        self.connection.ask("FindCoordinator", 4, coordinatorKeys=[group])

    def topic_partitions(self, owned):
        """Partitions by topic name."""
        if owned is None:
            return None
        return [{"topicId": self.ids[name], "partitions": list(parts)} for name, parts in sorted(owned.items())]

    def partitions_of(self, assignment):
        found = {}
        for topic in assignment["topicPartitions"]:
            name = self.names.get(topic["topicId"], "?")
            expect(topic.get("topicName", name), name, "the name of a topic's id")
            found[name] = sorted(topic["partitions"])
        return dict(sorted(found.items()))

    def heartbeat(self, group, member, epoch, version=1, instance=None, rack=None, rebalance=-1, names=None,
                  regex=None, assignor=None, owned=None):
        answer = self.connection.ask(
            "ConsumerGroupHeartbeat", version, groupId=group, memberId=member, memberEpoch=epoch, instanceId=instance,
            rackId=rack, rebalanceTimeoutMs=rebalance, subscribedTopicNames=names, subscribedTopicRegex=regex,
            serverAssignor=assignor, topicPartitions=self.topic_partitions(owned))
        assignment = answer["assignment"]
        return {"error": answer["errorCode"], "message": answer["errorMessage"], "member": answer["memberId"],
                "epoch": answer["memberEpoch"], "interval": answer["heartbeatIntervalMs"],
                "assignment": None if assignment is None else self.partitions_of(assignment)}

    def describe(self, groups, version=1):
        answer = self.connection.ask("ConsumerGroupDescribe", version, groupIds=groups)

        def member(got):
            return {**got, "subscribedTopicNames": sorted(got["subscribedTopicNames"]),
                    "assignment": self.partitions_of(got["assignment"]),
                    "targetAssignment": self.partitions_of(got["targetAssignment"])}

        def order(got):
            return got["instanceId"] or "", got["memberId"]
        found = [{**got, "members": sorted(map(member, got["members"]), key=order)} for got in answer["groups"]]
        return sorted(found, key=lambda got: got["groupId"])

    def list_groups(self, states=(), types=()):
        answer = self.connection.ask("ListGroups", 5, statesFilter=list(states), typesFilter=list(types))
        return {"error": answer["errorCode"], "groups": sorted(answer["groups"], key=lambda got: got["groupId"])}

    def describe_classic(self, group):
        got, = self.connection.ask("DescribeGroups", 6, groups=[group])["groups"]
        for member in got["members"]:
            member["memberMetadata"] = member["memberMetadata"].hex()
            # Its topics come in any order.
            del member["memberAssignment"]
        return {**got, "members": sorted(got["members"], key=lambda member: member["memberId"])}

    def delete_group(self, group):
        return self.connection.ask("DeleteGroups", 2, groupsNames=[group])["results"]

    def commit(self, group, member, epoch, topic, partitions, version=9, instance=None):
        offsets = [{"partitionIndex": p, "committedOffset": 7, "committedMetadata": "m"} for p in partitions]
        answer = self.connection.ask(
            "OffsetCommit", version, groupId=group, generationIdOrMemberEpoch=epoch, memberId=member,
            groupInstanceId=instance, topics=[{"name": topic, "topicId": self.ids[topic], "partitions": offsets}])
        return [got["partitions"] for got in answer["topics"]]

    def fetch(self, group, member, epoch, topics, stable=False):
        asked = [{"name": name, "partitionIndexes": list(parts)} for name, parts in topics]
        answer = self.connection.ask("OffsetFetch", 9, requireStable=stable, groups=[
            {"groupId": group, "memberId": member, "memberEpoch": epoch, "topics": asked}])
        return answer["groups"]

    def join(self, group, member, topics, owned=None, instance=None, session=6000, rebalance=5000,
             protocol_type="consumer", protocol="range", metadata=None):
        metadata = subscription(topics, owned or {}) if metadata is None else metadata
        answer = self.connection.ask(
            "JoinGroup", 9, groupId=group, sessionTimeoutMs=session, rebalanceTimeoutMs=rebalance, memberId=member,
            groupInstanceId=instance, protocolType=protocol_type, reason="test",
            protocols=[{"name": protocol, "metadata": metadata}])
        members = [(got["memberId"], got["groupInstanceId"], got["metadata"].hex()) for got in answer["members"]]
        return {"error": answer["errorCode"], "generation": answer["generationId"], "type": answer["protocolType"],
                "protocol": answer["protocolName"], "leader": answer["leader"], "skip": answer["skipAssignment"],
                "member": answer["memberId"], "members": sorted(members, key=str)}

    def sync(self, group, member, generation, instance=None, protocol_type="consumer", protocol="range", assignments=()):
        answer = self.connection.ask(
            "SyncGroup", 5, groupId=group, generationId=generation, memberId=member, groupInstanceId=instance,
            protocolType=protocol_type, protocolName=protocol,
            assignments=[{"memberId": to, "assignment": blob} for to, blob in assignments])
        return {"error": answer["errorCode"], "type": answer["protocolType"], "protocol": answer["protocolName"],
                "assignment": assigned(answer["assignment"])}

    def classic_heartbeat(self, group, member, generation, instance=None):
        answer = self.connection.ask("Heartbeat", 4, groupId=group, generationId=generation, memberId=member,
                                     groupInstanceId=instance)
        return answer["errorCode"]

    def leave(self, group, members):
        answer = self.connection.ask("LeaveGroup", 5, groupId=group, members=[
            {"memberId": member, "groupInstanceId": instance, "reason": "test"} for member, instance in members])
        return {"error": answer["errorCode"], "members": answer["members"]}


def i16(number):
    return struct.pack(">h", number)


def i32(number):
    return struct.pack(">i", number)


def old_string(text):
    return i16(len(text)) + text.encode()


def subscription(topics, owned):
    """ConsumerProtocolSubscription, version 1."""
    out = i16(1) + i32(len(topics)) + b"".join(old_string(topic) for topic in topics) + i32(-1)
    out += i32(len(owned))
    for name, parts in sorted(owned.items()):
        out += old_string(name) + i32(len(parts)) + b"".join(i32(p) for p in parts)
    return out


def assigned(blob):
    """Partitions by topic in a ConsumerProtocolAssignment, with its version."""
    if not blob:
        return None
    at = 0

    def take(form):
        nonlocal at
        value = struct.unpack_from(form, blob, at)[0]
        at += struct.calcsize(form)
        return value
    version, topics = take(">h"), {}
    for _ in range(take(">i")):
        length = take(">h")
        name = blob[at:at + length].decode()
        at += length
        topics[name] = sorted(take(">i") for _ in range(take(">i")))
    return version, dict(sorted(topics.items())), take(">i")


class Made:
    """Ids that a broker made up, by the order in which they came."""

    def __init__(self):
        self.known = {}

    def normal(self, value, given):
        if isinstance(value, dict):
            return {key: self.normal(entry, given) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.normal(entry, given) for entry in value]
        if isinstance(value, str):
            for real, name in self.known.items():
                value = value.replace(real, name)
        return value

    def learn(self, real):
        if real and real not in self.known:
            self.known[real] = f"<made-{len(self.known)}>"


class Differ:
    """Runs each step on both brokers and compares the answers."""

    def __init__(self, brokers):
        self.brokers = brokers
        self.made = [Made() for _ in brokers]
        self.steps = self.differences = 0
        self.trail = []

    def step(self, what, action, learns=None):
        answers = [action(broker, index) for index, broker in enumerate(self.brokers)]
        for made, answer in zip(self.made, answers):
            if learns and learns(answer):
                made.learn(learns(answer))
        normal = [json.dumps(made.normal(answer, None), sort_keys=True) for made, answer in zip(self.made, answers)]
        self.steps += 1
        self.trail.append(what)
        if len(set(normal)) > 1:
            self.differences += 1
            print(f"DIFFERENT {what}")
            for before in self.trail[-8:-1]:
                print(f"      after {before}")
            for broker, answer in zip(self.brokers, normal):
                print(f"      {broker.kind:7} {answer}")
        return answers


def all_brokers(differ, act):
    for broker in differ.brokers:
        act(broker)
    time.sleep(0.4)


def scripted(differ):
    """Every request that is refused, and the usual ways."""
    step = differ.step
    beat = lambda *args, **kw: step(f"heartbeat {args} {kw}", lambda b, _: b.heartbeat(*args, **kw),
                                    learns=(lambda a: a["member"]) if args[1] == "" else None)
    join = dict(rebalance=5000, names=["t12"], owned={})
    for version in (0, 1):
        for member, epoch, extra in [
            ("", 5, {}), ("", -1, {}), ("", 0, {}), ("m", 0, {}), ("m", 0, {"rebalance": 1000}),
            ("m", 0, {"rebalance": 1000, "owned": {"t12": [0]}}), ("m", 0, {"rebalance": 1000, "owned": {}}),
            ("m", -2, {}), ("m", -3, {}), ("m", 1, {}), ("m", -1, {}), ("m", -2, {"instance": "i"}),
            ("m", 0, {**join, "instance": ""}), ("m", 0, {**join, "rack": " "}),
            ("m", 0, {**join, "assignor": "foo"}), ("m", 0, {**join, "assignor": ""}),
            ("m", 3, {"assignor": "foo"}), ("  ", 0, join),
        ]:
            if version == 0 and not member.strip() and extra == join:
                continue
            beat("g-invalid", member, epoch, version=version, **extra)
        beat("", "m", 0, version=version, **join)
    for regex in ("[", "(", "a**", "*", "x{1001}", "(?P<n", "\\", "[z-a]", "(?i"):
        beat("g-regex", "m", 0, rebalance=5000, regex=regex, owned={})
    step("describe nothing", lambda b, _: b.describe(["g-none", ""]))
    step("describe nothing, 0", lambda b, _: b.describe(["g-none"], version=0))
    beat("g-made", "", 0, version=0, **join)
    step("describe made", lambda b, _: b.describe(["g-made"]))

    # A group's life.
    beat("g", "a", 0, **join)
    beat("g", "a", 2)
    beat("g", "a", 2, owned={"t12": list(range(12))})
    beat("g", "a", 2, **{**join, "owned": {"t12": list(range(12))}})
    beat("g", "a", 3)
    beat("g", "a", 1)
    beat("g", "a", 1, owned={})
    beat("g", "b", 0, **join)
    beat("g", "b", 3)
    step("describe", lambda b, _: b.describe(["g"]))
    beat("g", "a", 2)
    beat("g", "a", 2, owned={"t12": list(range(12))})
    beat("g", "a", 2, owned={"t12": list(range(6))})
    beat("g", "b", 3)
    beat("g", "a", 2)
    beat("g", "a", 2, owned={"t12": [0]})
    step("describe", lambda b, _: b.describe(["g"], version=0))
    step("describe as classic", lambda b, _: b.describe_classic("g"))
    step("list", lambda b, _: b.list_groups())
    step("list stable", lambda b, _: b.list_groups(["stable"]))
    step("list consumer", lambda b, _: b.list_groups([], ["consumer"]))
    step("list classic", lambda b, _: b.list_groups([], ["Classic"]))
    step("delete", lambda b, _: b.delete_group("g"))
    for member, epoch in [("a", 3), ("a", 2), ("a", 1), ("a", 4), ("a", -1), ("x", 3), ("", -1), ("", 3)]:
        for parts in ([0], [11], [0, 11]):
            step(f"commit {member} {epoch} {parts}", lambda b, _: b.commit("g", member, epoch, "t12", parts))
        step(f"commit 8 {member} {epoch}", lambda b, _: b.commit("g", member, epoch, "t12", [0], version=8))
        step(f"commit 10 {member} {epoch}", lambda b, _: b.commit("g", member, epoch, "t12", [0], version=10))
        for stable in (False, True):
            step(f"fetch {member} {epoch}", lambda b, _: b.fetch("g", member, epoch, [("t12", [0, 1])], stable))
    step("fetch null", lambda b, _: b.fetch("g", None, -1, [("t12", [0, 1])]))
    step("fetch null 3", lambda b, _: b.fetch("g", None, 3, [("t12", [0, 1])]))
    beat("g", "c", 0, **{**join, "names": ["t4"]})
    beat("g", "c", 4, names=["t4", "t12"])
    step("describe", lambda b, _: b.describe(["g"]))
    beat("g", "d", 0, **{**join, "names": ["missing"]})
    beat("g", "e", 0, **join)
    beat("g", "f", 0, **join)
    beat("g", "e", -1)
    beat("g", "e", -1)
    beat("g", "e", 7)
    for member in "abcd":
        beat("g", member, -1)
    step("describe", lambda b, _: b.describe(["g"]))
    step("commit admin", lambda b, _: b.commit("g", "", -1, "t12", [0]))
    step("delete", lambda b, _: b.delete_group("g"))
    step("delete", lambda b, _: b.delete_group("g"))

    # Static members.
    static = {**join, "instance": "i"}
    beat("gs", "a", 0, **static)
    beat("gs", "b", 0, **static)
    beat("gs", "a", -2, instance="i")
    beat("gs", "a", 2, instance="i")
    beat("gs", "b", -2, instance="i")
    step("describe", lambda b, _: b.describe(["gs"]))
    beat("gs", "b", 0, **static)
    beat("gs", "a", 2, instance="i")
    beat("gs", "a", -1, instance="i")
    beat("gs", "a", -2, instance="i")
    beat("gs", "b", 2, instance="j")
    beat("gs", "b", 2)
    step("describe", lambda b, _: b.describe(["gs"]))
    beat("gs", "b", -1, instance="j")
    beat("gs", "b", -1, instance="i")
    beat("gs", "b", -2, instance="i")

    # Patterns.
    beat("gr", "a", 0, rebalance=5000, regex="t1.*", owned={})
    time.sleep(1)
    beat("gr", "a", 1)
    beat("gr", "b", 0, rebalance=5000, regex="t1.*", owned={}, names=["t4"])
    beat("gr", "c", 0, rebalance=5000, regex="t4|nothing", owned={})
    time.sleep(1)
    step("describe", lambda b, _: b.describe(["gr"]))
    beat("gr", "b", 3, regex="")
    step("describe", lambda b, _: b.describe(["gr"]))
    beat("gr", "a", 2, regex="[")
    beat("gr", "a", -1)
    step("describe", lambda b, _: b.describe(["gr"]))

    # Topics come, grow and go.
    beat("gt", "a", 0, **{**join, "names": ["grows", "comes"]})
    all_brokers(differ, lambda b: b.create_partitions("grows", 4))
    beat("gt", "a", 2)
    all_brokers(differ, lambda b: b.create_topic("comes", 2))
    beat("gt", "a", 3)
    all_brokers(differ, lambda b: b.delete_topic("grows"))
    beat("gt", "a", 4)
    beat("gt", "a", 4, owned={"comes": [0, 1]})
    step("describe", lambda b, _: b.describe(["gt"]))


def migrations(differ):
    step = differ.step
    beat = lambda *args, **kw: step(f"heartbeat {args} {kw}", lambda b, _: b.heartbeat(*args, **kw))
    join = dict(rebalance=5000, names=["t12"], owned={})

    def classic_group(group):
        """A classic group with one member that has all of t12."""
        ids = [answer["member"] for answer in step(
            f"join {group}", lambda b, _: b.join(group, "", ["t12"]), learns=lambda a: a["member"])]
        answers = step(f"join {group} again", lambda b, i: b.join(group, ids[i], ["t12"]))
        generation = answers[0]["generation"]
        blob = i16(1) + i32(1) + old_string("t12") + i32(12) + b"".join(i32(p) for p in range(12)) + i32(-1)
        step(f"sync {group}", lambda b, i: b.sync(group, ids[i], generation, assignments=[(ids[i], blob)]))
        return ids

    def rejoin(group, ids, owned, learns=None):
        answers = step(f"join {group} with {owned}",
                       lambda b, i: b.join(group, ids[i], ["t12"], owned={"t12": owned} if owned else {}))
        generations = [answer["generation"] for answer in answers]
        synced = step(f"sync {group}", lambda b, i: b.sync(group, ids[i], generations[i]))
        step(f"heartbeat {group}", lambda b, i: b.classic_heartbeat(group, ids[i], generations[i]))
        return generations, synced[0]["assignment"]

    ids = classic_group("mg")
    beat("mg", "z", 0, **join)
    step("describe", lambda b, _: b.describe(["mg"]))
    step("describe as classic", lambda b, _: b.describe_classic("mg"))
    step("heartbeat classic", lambda b, i: b.classic_heartbeat("mg", ids[i], 1))
    step("heartbeat stale", lambda b, i: b.classic_heartbeat("mg", ids[i], 7))
    step("heartbeat consumer", lambda b, i: b.classic_heartbeat("mg", "z", 2))
    step("commit classic", lambda b, i: b.commit("mg", ids[i], 1, "t12", [0]))
    step("commit classic stale", lambda b, i: b.commit("mg", ids[i], 0, "t12", [0]))
    step("commit classic newer", lambda b, i: b.commit("mg", ids[i], 9, "t12", [0], version=8))
    rejoin("mg", ids, list(range(12)))
    rejoin("mg", ids, list(range(6)))
    rejoin("mg", ids, list(range(6, 12)))
    beat("mg", "z", 2)
    beat("mg", "z", 2, owned={"t12": list(range(6))})
    beat("mg", "z", 2, owned={"t12": list(range(6, 12))})
    step("describe", lambda b, _: b.describe(["mg"]))
    step("sync other", lambda b, i: b.sync("mg", ids[i], 2, protocol="sticky"))
    step("sync type", lambda b, i: b.sync("mg", ids[i], 2, protocol_type="connect"))
    step("sync stale", lambda b, i: b.sync("mg", ids[i], 1))
    step("sync who", lambda b, i: b.sync("mg", "who", 1))
    step("join connect", lambda b, i: b.join("mg", "", ["t12"], protocol_type="connect"))
    step("join malformed", lambda b, i: b.join("mg", "new", ["t12"], metadata=b"x"))
    step("join other protocol", lambda b, i: b.join("mg", "new", ["t12"], protocol="sticky"))
    step("leave who", lambda b, i: b.leave("mg", [("who", None), ("", "who")]))
    beat("mg", "z", -1)
    step("describe", lambda b, _: b.describe(["mg"]))
    step("list", lambda b, _: b.list_groups())
    step("heartbeat after", lambda b, i: b.classic_heartbeat("mg", ids[i], 2))
    step("describe as classic", lambda b, _: b.describe_classic("mg"))
    answers = step("join after", lambda b, i: b.join("mg", ids[i], ["t12"]))
    step("sync after", lambda b, i: b.sync("mg", ids[i], answers[i]["generation"]))

    # Classic members join a consumer group.
    beat("mc", "~a", 0, **join)
    made = [answer["member"] for answer in step("join asks", lambda b, _: b.join("mc", "", ["t12"]),
                                                learns=lambda a: a["member"])]
    generations, _ = rejoin("mc", made, [])
    beat("mc", "~a", 2)
    beat("mc", "~a", 2, owned={"t12": list(range(6))})
    beat("mc", "~a", 2, owned={"t12": list(range(6, 12))})
    step("heartbeat", lambda b, i: b.classic_heartbeat("mc", made[i], generations[i]))
    rejoin("mc", made, [])
    step("static joins", lambda b, _: b.join("mc", "", ["t12"], instance="s"), learns=lambda a: a["member"])
    step("static fenced", lambda b, _: b.sync("mc", "nobody", 4, instance="s"))
    step("static unknown", lambda b, _: b.sync("mc", "nobody", 4, instance="t"))
    step("describe", lambda b, _: b.describe(["mc"]))
    step("leave all", lambda b, i: b.leave("mc", [(made[i], None), ("", "s"), ("~a", None)]))
    step("describe", lambda b, _: b.describe(["mc"]))
    step("join empty group", lambda b, _: b.join("mc", "", ["t12"]), learns=lambda a: a["member"])
    step("list", lambda b, _: b.list_groups())

    # A static member comes back by the classic protocol: the group is classic again.
    beat("ms", "a", 0, **{**join, "instance": "i"})
    static = [answer["member"] for answer in step(
        "static", lambda b, _: b.join("ms", "", ["t12"], instance="i"), learns=lambda a: a["member"])]
    step("sync", lambda b, i: b.sync("ms", static[i], 2, instance="i"))
    step("describe", lambda b, _: b.describe(["ms"]))
    step("describe as classic", lambda b, _: b.describe_classic("ms"))

    # What cannot be upgraded.
    ids = [answer["member"] for answer in step("join connect", lambda b, _: b.join(
        "mx", "", ["t12"], protocol_type="connect"), learns=lambda a: a["member"])]
    step("join connect", lambda b, i: b.join("mx", ids[i], ["t12"], protocol_type="connect"))
    beat("mx", "a", 0, **join)
    ids = [answer["member"] for answer in step("join malformed", lambda b, _: b.join(
        "my", "", ["t12"], metadata=b"x"), learns=lambda a: a["member"])]
    step("join malformed", lambda b, i: b.join("my", ids[i], ["t12"], metadata=b"x"))
    beat("my", "a", 0, **join)
    beat("my", "a", 1)
    beat("my", "a", -1)


def at_random(differ, seed, steps):
    """Members of one group do what members may do, and sometimes what they may not."""
    rng = random.Random(seed)
    group = f"random-{seed}"
    members = {}
    for number in range(steps):
        name = rng.choice("abcdef")
        state = members.get(name)
        instance = f"i-{name}" if name in "ab" else None
        choice = rng.random()
        request = {}
        if state is None:
            if choice < 0.8:
                epoch = 0
                names = rng.sample(["t12", "t4", "grows"], rng.randint(1, 3))
                request = dict(rebalance=60000, names=names, owned={}, instance=instance)
            else:
                epoch = rng.choice([1, 2, -1, -2])
                request = dict(instance=instance or ("x" if epoch == -2 else None))
        else:
            epoch = state["epoch"]
            request = dict(instance=rng.choice([instance, instance, None]))
            if choice < 0.35:
                request["owned"] = state["owned"]
            elif choice < 0.5:
                request["owned"] = {t: p[:rng.randint(0, len(p))] for t, p in state["owned"].items()}
            elif choice < 0.6:
                epoch = rng.choice([epoch - 1, epoch + 1, 0, epoch - 1])
                request["owned"] = rng.choice([None, {}, state["owned"]])
                if epoch == 0:
                    request.update(rebalance=60000, names=["t12"], owned={})
            elif choice < 0.7:
                request["names"] = rng.sample(["t12", "t4", "grows", "missing"], rng.randint(0, 3))
            elif choice < 0.78:
                epoch = rng.choice([-1, -2]) if instance else -1
                request["instance"] = instance
            elif choice < 0.82:
                request["rack"] = rng.choice(["r1", "r2"])
        answers = differ.step(f"seed {seed} heartbeat {name} {epoch} {request}",
                              lambda b, _: b.heartbeat(group, name, epoch, **request))
        answer = answers[0]
        if answer["error"] in (25, 110, 113, 82):
            members.pop(name, None)
        elif answer["error"] == 0:
            if answer["epoch"] < 0:
                members.pop(name, None)
            else:
                owned = answer["assignment"] if answer["assignment"] is not None else (state or {}).get("owned", {})
                members[name] = {"epoch": answer["epoch"], "owned": owned}
        if number % 5 == 4:
            differ.step(f"seed {seed} describe", lambda b, _: b.describe([group]))
        if members and rng.random() < 0.2:
            name = rng.choice(sorted(members))
            topic, epoch = rng.choice(["t12", "t4"]), members[name]["epoch"] - rng.choice([0, 0, 1, 2])
            part = rng.randrange(4)
            differ.step(f"seed {seed} commit {name} {epoch} {topic}-{part}",
                        lambda b, _: b.commit(group, name, epoch, topic, [part]))


def sessions(differ):
    """Members that are silent, and what is left of their group."""
    join = dict(rebalance=1000, names=["t12"], owned={})
    step = differ.step
    step("a", lambda b, _: b.heartbeat("se", "a", 0, **join))
    step("b", lambda b, _: b.heartbeat("se", "b", 0, **join))
    step("a told", lambda b, _: b.heartbeat("se", "a", 2))
    for _ in range(6):
        time.sleep(0.4)
        for broker in differ.brokers:
            broker.heartbeat("se", "b", 3)
            broker.heartbeat("se", "a", 2)
    step("a did not revoke", lambda b, _: b.heartbeat("se", "a", 2))
    step("describe", lambda b, _: b.describe(["se"]))
    time.sleep(4)
    step("nobody", lambda b, _: b.describe(["se"]))
    step("b", lambda b, _: b.heartbeat("se", "b", 3))


def run(session, *parts):
    properties = PROPERTIES.format(session=session)
    with servers.Server("apache", extra_properties=properties) as apache, \
            servers.Server(OTHER, extra_properties=properties) as other:
        brokers = [Broker(apache), Broker(other)]
        for broker in brokers:
            for name, partitions in [("t12", 12), ("t4", 4), ("grows", 2)]:
                broker.create_topic(name, partitions)
            broker.find_coordinator("g")
            deadline = time.monotonic() + 60
            while broker.heartbeat("warm", "w", 0, rebalance=1000, names=["t12"], owned={})["error"] != 0:
                time.sleep(0.2)
                assert time.monotonic() < deadline, f"{broker.kind} does not serve the consumer protocol"
        differ = Differ(brokers)
        for part in parts:
            part(differ)
        print(f"{differ.steps} requests compared", flush=True)
        expect(differ.differences, 0, "requests that are answered differently")


def seeds(differ):
    for seed in range(int(os.environ.get("CONSUMER_PROTOCOL_SEEDS", "10"))):
        at_random(differ, seed, int(os.environ.get("CONSUMER_PROTOCOL_STEPS", "80")))


OTHER = {"kavka": "kavka", "apache": "apache"}.get(os.environ.get("COMPAT_AGAINST"))
if OTHER:
    check("raw requests", "consumer groups: refusals, life, migrations, at random", lambda: run(45000, scripted, migrations, seeds))
    check("raw requests", "consumer groups: silent members", lambda: run(2500, sessions))
finish()
