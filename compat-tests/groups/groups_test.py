"""Groups whose members are different clients: all in one classic group, rolling bounces under load, static members, the consumer protocol,
a group that is moved from one protocol to the other and back, subscriptions by regular expression."""
import collections
import contextlib
import itertools
import subprocess
import threading
import time

import servers
from members import Member, build_all, wait_for
from results import BOOTSTRAP, check, expect, finish, unique

ALL = ["java 4.4.0", "java 3.9.1", "java 2.8.2", "librdkafka", "franz-go", "sarama", "kafkajs", "aiokafka"]
TRIO = ["java 4.4.0", "librdkafka", "franz-go"]
BOUNCES = 10


def create_topic(topic, partitions):
    # kcat has no admin part: the stock tool.
    done = subprocess.run(
        servers.java_command("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", BOOTSTRAP, "--create", "--topic", topic,
                             "--partitions", partitions, heap="128m", jvm_flags=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]),
        capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)


class Load:
    """Produces lines at a steady rate until it is ended; every line is acknowledged then."""

    def __init__(self, topic, rate=200):
        self.process = subprocess.Popen(["kcat", "-P", "-b", BOOTSTRAP, "-t", topic, "-X", "linger.ms=5", "-X", "sticky.partitioning.linger.ms=0"],
                                        stdin=subprocess.PIPE, text=True)
        self.count, self.ended, self.pause = 0, threading.Event(), 1 / rate
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.ended.wait(self.pause):
            self.process.stdin.write(f"{self.count}\n")
            self.process.stdin.flush()
            self.count += 1

    def end(self):
        self.ended.set()
        self.thread.join()
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(timeout=30)
        expect(self.process.returncode, 0, "kcat's exit code")
        return self.count


@contextlib.contextmanager
def group_of(clients, partitions, **options):
    topic, group = unique("groups"), unique("g")
    create_topic(topic, partitions)
    members = [Member(client, topic, group, **options) for client in clients]
    try:
        yield topic, members
    finally:
        for member in members:
            member.kill()


def await_shared(members, partitions):
    """Each partition has one owner, and no member has two more than another."""
    def is_shared():
        owned = list(itertools.chain.from_iterable(member.owned for member in members))
        sizes = [len(member.owned) for member in members]
        return len(owned) == partitions == len(set(owned)) and max(sizes) - min(sizes) <= 1
    wait_for(lambda: f"{partitions} partitions shared: " + "; ".join(map(str, members)), is_shared)


def await_all_read(members, count, once=True):
    """Every record was read; `once`: none twice, unless a commit failed and the client said so."""
    def read():
        return list(itertools.chain.from_iterable(member.records for member in members))
    def gaps():
        """Of each partition, what is missing before the last record that was read."""
        offsets = collections.defaultdict(set)
        for partition, offset in read():
            offsets[partition].add(offset)
        return {partition: sorted(set(range(max(seen))) - seen)[:5] for partition, seen in offsets.items() if len(seen) <= max(seen)}

    wait_for(lambda: f"{count} records, of which {len(set(read()))} are read, gaps: {gaps()}; " + "; ".join(map(str, members)),
             lambda: len(set(read())) >= count)
    found = read()
    expect(len(set(found)), count, "records read")
    if once and not any(member.failures for member in members):
        expect(len(found), count, "records read, each once")


def mixed():
    """Every client in one group; one leaves, one dies, both come back."""
    with group_of(ALL, 16) as (topic, members):
        await_shared(members, 16)
        load = Load(topic)
        wait_for("records at every member", lambda: all(member.records for member in members))
        members[1].stop()
        await_shared(members[:1] + members[2:], 16)
        members[4].kill()
        others = [member for i, member in enumerate(members) if i not in (1, 4)]
        await_shared(others, 16)
        members[1].start()
        members[4].start()
        await_shared(members, 16)
        # What the killed one had read and not committed is read again.
        await_all_read(members, load.end(), once=False)


def bounce(bounces=BOUNCES, **options):
    def test():
        with group_of(TRIO, 6, **options) as (topic, members):
            await_shared(members, 6)
            load = Load(topic)
            for _ in range(bounces):
                for member in members:
                    member.restart()
                    # The next one goes when this one has work again.
                    wait_for(f"work at {member}", lambda: member.owned)
            await_shared(members, 6)
            await_all_read(members, load.end())
    return test


def static_restart(client, **options):
    """A static member goes and comes back: it has its partitions again, and the others have not noticed."""
    def test():
        with group_of([], 4) as (topic, members):
            members += [Member(client, topic, topic, instance=f"instance-{number}", session=20000, **options) for number in (1, 2)]
            await_shared(members, 4)
            # Rebalances of the start may still be under way at a member that has what it shall have.
            seen = []

            def is_settled():
                seen.append([(member.changes, member.generation, member.owned) for member in members])
                time.sleep(1)
                return len(seen) > 1 and seen[-1] == seen[-2]
            wait_for(lambda: "no more changes: " + "; ".join(map(str, members)), is_settled)
            before = members[1].owned
            members[1].restart()
            wait_for("the same partitions again", lambda: members[1].owned == before)
            expect((members[0].changes, members[0].generation, members[0].owned), seen[-1][0], "what the other member saw")
            load = Load(topic)
            wait_for("records at both", lambda: all(member.records for member in members))
            await_all_read(members, load.end())
    return test


def migration():
    """Classic members become members of the consumer protocol one by one while they read, and classic ones again."""
    with group_of(["java 4.4.0", "librdkafka", "java 4.4.0"], 6, protocol="classic", assignor="range") as (topic, members):
        await_shared(members, 6)
        load = Load(topic)
        for protocol, assignor in (("consumer", "uniform"), ("classic", "range")):
            for member in members:
                member.restart(protocol=protocol, assignor=assignor)
                await_shared(members, 6)
        await_all_read(members, load.end())


def regular_expression(client):
    def test():
        prefix = unique("regex")
        first, second = f"{prefix}.one", f"{prefix}.two"
        create_topic(first, 2)
        create_topic(f"x{prefix}.one", 1)
        members = [Member(client, f"re2:{prefix}\\.(one|two)", prefix, protocol="consumer")]
        try:
            wait_for(lambda: str(members[0]), lambda: members[0].owned == {f"{first}:0", f"{first}:1"})
            create_topic(second, 1)
            wait_for(lambda: str(members[0]), lambda: members[0].owned == {f"{first}:0", f"{first}:1", f"{second}:0"})
        finally:
            members[0].kill()
    return test


def at_once(tests):
    """Tests that mostly wait."""
    threads = [threading.Thread(target=check, args=test) for test in tests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    build_all(ALL)
    check("mixed classic group", "mixed-group", mixed)
    check("mixed classic group", "rolling-bounce", bounce(assignor="range"))
    check("mixed classic group", "rolling-bounce-cooperative", bounce(bounces=4, assignor="cooperative-sticky"))
    at_once([(client, "static-restart", static_restart(client, assignor="range")) for client in TRIO])
    check("mixed consumer group", "rolling-bounce", bounce(protocol="consumer"))
    check("mixed consumer group", "migration", migration)
    at_once([(client, "static-restart-848", static_restart(client, protocol="consumer")) for client in ("java 4.4.0", "librdkafka")]
            + [(client, "regular-expression", regular_expression(client)) for client in ("java 4.4.0", "librdkafka")])
    finish()


if __name__ == "__main__":
    main()
