"""The stock tools, with their whole output compared with what they printed against Apache Kafka.

expected/<feature>.txt is what Apache Kafka made them print, with ids, times and rates masked. COMPAT_RECORD=1 with --against apache writes it anew;
a run against Apache Kafka without it checks that the files are still true.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import servers
import wire
from results import BOOTSTRAP, check, expect, finish, unique

HERE = pathlib.Path(__file__).resolve().parent
RECORD = os.environ.get("COMPAT_RECORD") == "1" and os.environ.get("COMPAT_AGAINST") == "apache"
CLIENT = "kafka 4.4 tools"
TOOLS = "org.apache.kafka.tools."


def tool(main_class, *arguments, data=None, code=0, timeout=90):
    """Runs a tool against the node; returns what it printed (errors after the output)."""
    done = subprocess.run(
        servers.java_command(TOOLS + main_class, *arguments, libs=os.environ["APACHE_LIBS"], heap="256m",
                             jvm_flags=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]),
        input=data, capture_output=True, text=True, timeout=timeout)
    printed = done.stdout + done.stderr
    if code is not None and done.returncode != code:
        raise AssertionError(f"{main_class} {arguments} ended with {done.returncode}:\n{printed}")
    return printed


class Driver:
    """Many commands in one JVM: Driver.java."""

    def __init__(self):
        self.process = subprocess.Popen(
            servers.java_command("Driver.java", libs=os.environ["APACHE_LIBS"], heap="256m", jvm_flags=["-XX:+UseSerialGC"]),
            cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, main_class, *arguments):
        """What a tool prints, with its exit code where that is not 0."""
        words = [TOOLS + main_class, "--bootstrap-server", BOOTSTRAP, *map(str, arguments)]
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            text, end, code = line.partition("\0")
            printed.append(text)
            if end:
                return "".join(printed) + ("" if code.strip() == "0" else f"exit code {code.strip()}\n")
        raise AssertionError(f"the driver has ended in {main_class} {arguments}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)


GROUPS = "consumer.group.ConsumerGroupCommand"


def sorted_lines(text):
    """Rows come in the order of hash maps."""
    return "\n".join(sorted(text.splitlines()))


def on_node(main_class, *arguments, **options):
    return tool(main_class, "--bootstrap-server", BOOTSTRAP, *arguments, **options)


def masked(text, names):
    """Without what differs from run to run: names made here, ids, addresses, times and rates."""
    for name, mask in names.items():
        text = text.replace(name, mask)
    text = text.replace(BOOTSTRAP, "<node>").replace(BOOTSTRAP.split(":")[1], "<port>")
    text = re.sub(r"TopicId: \S{22}", "TopicId: <uuid>", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>", text)
    text = re.sub(r"\[\d{4}-\d\d-\d\d[^\]]*\] ", "", text)
    text = re.sub(r"\tat .*\n", "", text)
    text = re.sub(r"\s+\(org\.apache\.[\w.$]+\)", "", text)
    # A hint that clients give where group.version is 1.
    text = re.sub(r"The consumer rebalance protocol \(KIP-848\).*\n", "", text)
    text = re.sub(r" +\n", "\n", text)
    return re.sub(r"  +", "  ", text)


def compare(feature, text):
    path = HERE / "expected" / (re.sub(r"[^a-z0-9]+", "-", feature.lower()).strip("-") + ".txt")
    if RECORD:
        path.write_text(text)
        return
    wanted = path.read_text()
    if text != wanted:
        raise AssertionError(f"output differs from Apache Kafka's\n--- Apache Kafka\n{wanted}\n--- here\n{text}")


def same(feature, steps):
    """`steps` returns (names to mask, [printed texts]); all of it is compared."""
    def test():
        names, printed = steps()
        compare(feature, masked("\n".join(printed), names))
    check(CLIENT, feature, test)


def topics():
    topic = unique("tools-topics")
    printed = [
        on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1",
                "--config", "retention.ms=7200000", "--config", "cleanup.policy=compact"),
        on_node("TopicCommand", "--describe", "--topic", topic),
        on_node("TopicCommand", "--list", "--topic", topic),
        on_node("TopicCommand", "--create", "--topic", topic, code=1),
        on_node("TopicCommand", "--create", "--if-not-exists", "--topic", topic),
        on_node("TopicCommand", "--create", "--topic", "bad/name", code=1),
        on_node("TopicCommand", "--create", "--topic", unique("t"), "--replication-factor", "2", code=1).split("\n")[0],
        on_node("TopicCommand", "--create", "--topic", topic + "x", "--config", "retention.ms=never", code=1).split("\n")[0],
        on_node("TopicCommand", "--create", "--topic", topic + "x", "--config", "no.such.key=1", code=1).split("\n")[0],
        on_node("TopicCommand", "--alter", "--topic", topic, "--partitions", "4"),
        on_node("TopicCommand", "--alter", "--topic", topic, "--partitions", "3", code=1).split("\n")[0],
        on_node("TopicCommand", "--describe", "--topic", topic),
        on_node("TopicCommand", "--delete", "--topic", topic),
        on_node("TopicCommand", "--describe", "--topic", topic, code=1).split("\n")[0],
    ]
    return {topic: "<topic>"}, printed


def configs():
    topic = unique("tools-configs")
    on_node("TopicCommand", "--create", "--topic", topic, "--config", "segment.bytes=2097152")
    return {topic: "<topic>"}, [
        on_node("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", topic),
        on_node("ConfigCommand", "--describe", "--all", "--entity-type", "topics", "--entity-name", topic),
    ]


def console():
    topic = unique("tools-console")
    on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "1")
    lines = "k1:v1\nk2:v2\nk3:\n"
    printed = [on_node("ConsoleProducer", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:", data=lines)]
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        printed.append(on_node("ConsoleProducer", "--topic", topic, "--compression-codec", codec, data=f"{codec} one\n{codec} two\n"))
    printed.append(on_node("consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "11", "--property", "print.key=true",
                           "--property", "print.offset=true", "--property", "print.partition=true", "--timeout-ms", "20000"))
    printed.append(on_node("consumer.ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "9", "--max-messages", "2", "--timeout-ms", "20000"))
    return {topic: "<topic>"}, printed


def offsets():
    topic = unique("tools-offsets")
    on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "3")
    on_node("ConsoleProducer", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:",
            data="".join(f"k{i}:{i}\n" for i in range(30)))
    return {topic: "<topic>"}, [on_node("GetOffsetShell", "--topic", topic, *time) for time in
                                ([], ["--time", "earliest"], ["--time", "latest"], ["--time", "0"])]


def groups():
    topic, group, none = unique("tools-groups"), unique("g"), unique("none")
    on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "1")
    on_node("ConsoleProducer", "--topic", topic, data="".join(f"{i}\n" for i in range(10)))
    on_node("consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "4", "--timeout-ms", "30000")
    command = "consumer.group.ConsumerGroupCommand"
    printed = [
        on_node(command, "--list", "--type", "classic").count(group),
        on_node(command, "--describe", "--group", group),
        on_node(command, "--describe", "--group", group, "--members"),
        on_node(command, "--describe", "--group", group, "--members", "--verbose"),
        on_node(command, "--describe", "--group", group, "--state"),
        on_node(command, "--describe", "--group", none, code=None).replace("\n", " ").split("'")[-1],
        on_node(command, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--dry-run"),
        on_node(command, "--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "7", "--execute"),
        on_node(command, "--reset-offsets", "--group", group, "--topic", topic, "--shift-by", "-2", "--export", "--dry-run"),
        on_node(command, "--describe", "--group", group),
        on_node(command, "--delete-offsets", "--group", group, "--topic", topic + ":5", code=None).split("\tat ")[0],
        on_node(command, "--delete-offsets", "--group", none, "--topic", topic, code=None).split("\tat ")[0],
        on_node(command, "--delete-offsets", "--group", group, "--topic", topic + ":0"),
        on_node(command, "--describe", "--group", group, "--offsets", code=None),
        on_node(command, "--delete", "--group", group),
        on_node(command, "--list").count(group),
        on_node(command, "--delete", "--group", group, code=None),
    ]
    return {topic: "<topic>", group: "<group>", none: "<none>"}, [str(text) for text in printed]


def alter_configs():
    topic, group, subscription = unique("tools-alter"), unique("g"), unique("m")
    on_node("TopicCommand", "--create", "--topic", topic)
    command = "ConfigCommand"

    def alter(*arguments, code=0):
        return on_node(command, "--alter", *arguments, code=code).split("\tat ")[0]

    def describe(*arguments):
        return on_node(command, "--describe", *arguments)

    of_topic = ["--entity-type", "topics", "--entity-name", topic]
    of_group = ["--entity-type", "groups", "--entity-name", group]
    of_metrics = ["--entity-type", "client-metrics", "--entity-name", subscription]
    default, own = ["--entity-type", "brokers", "--entity-default"], ["--entity-type", "brokers", "--entity-name", "1"]
    printed = [
        alter(*of_topic, "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]"),
        describe(*of_topic),
        alter(*of_topic, "--delete-config", "retention.ms"),
        describe(*of_topic),
        alter(*of_topic, "--add-config", "retention.ms=never", code=None),
        alter(*of_topic, "--add-config", "no.such.key=1", code=None),
        alter(*of_topic, "--delete-config", "segment.ms", code=None),
        alter("--entity-type", "topics", "--entity-name", topic + "x", "--add-config", "retention.ms=1", code=None),
        alter(*default, "--add-config", "log.retention.ms=3600000,message.max.bytes=2000000"),
        alter(*own, "--add-config", "log.retention.ms=1800000"),
        describe(*default),
        describe(*own),
        "\n".join(line for line in describe("--all", *of_topic).splitlines() if "retention.ms" in line or "max.message" in line),
        alter(*own, "--delete-config", "log.retention.ms"),
        alter(*default, "--delete-config", "log.retention.ms,message.max.bytes"),
        describe(*default),
        describe(*own),
        alter(*default, "--add-config", "node.id=3", code=None),
        alter(*default, "--add-config", "log.retention.ms=x", code=None),
        alter(*own, "--add-config", "num.io.threads=1000", code=None),
        alter(*of_group, "--add-config", "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000"),
        describe(*of_group),
        alter(*of_group, "--add-config", "consumer.session.timeout.ms=1", code=None),
        alter(*of_group, "--delete-config", "consumer.session.timeout.ms,consumer.heartbeat.interval.ms"),
        describe(*of_group),
        alter(*of_metrics, "--add-config", "interval.ms=1000,metrics=[org.apache.kafka.producer.],match=[client_id=a.*]"),
        describe(*of_metrics),
        alter(*of_metrics, "--add-config", "interval.ms=1", code=None),
        on_node("ClientMetricsCommand", "--alter", "--name", subscription, "--metrics", "org.apache.kafka.consumer.", "--interval", "2000"),
        on_node("ClientMetricsCommand", "--describe", "--name", subscription),
        on_node("ClientMetricsCommand", "--list").count(subscription),
        on_node("ClientMetricsCommand", "--delete", "--name", subscription),
        on_node("ClientMetricsCommand", "--list").count(subscription),
        alter("--entity-type", "broker-loggers", "--entity-name", "1", "--add-config", "root=DEBUG"),
        "\n".join(line.strip() for line in describe("--entity-type", "broker-loggers", "--entity-name", "1").splitlines() if "root=" in line),
        alter("--entity-type", "broker-loggers", "--entity-name", "1", "--add-config", "root=INFO"),
        alter("--entity-type", "broker-loggers", "--entity-name", "1", "--add-config", "root=NONE", code=None),
    ]
    names = {topic: "<topic>", group: "<group>", subscription: "<subscription>"}
    return names, [str(text) for text in printed]


def features():
    """Levels that both sides serve; what else there is differs."""
    command, elr = "FeatureCommand", "eligible.leader.replicas.version"

    def described():
        lines = on_node(command, "describe").splitlines()
        shown = [line for line in lines if any(f" {name} " in line for name in (elr, "kraft.version", "metadata.version"))]
        return re.sub(r"Epoch: \d+", "Epoch: <epoch>", "\n".join(shown))

    return {}, [
        described(),
        on_node(command, "upgrade", "--feature", "no.such.version=1", code=1),
        on_node(command, "upgrade", "--feature", f"{elr}=7", code=1),
        on_node(command, "downgrade", "--metadata", "3.3-IV3", code=1),
        on_node(command, "upgrade", "--feature", "metadata.version=32", code=1),
        on_node(command, "downgrade", "--feature", f"{elr}=0", "--dry-run"),
        on_node(command, "downgrade", "--feature", f"{elr}=0"),
        described(),
        on_node(command, "upgrade", "--feature", f"{elr}=1", "--dry-run"),
        on_node(command, "upgrade", "--feature", f"{elr}=1"),
        on_node(command, "disable", "--feature", elr),
        on_node(command, "upgrade", "--feature", f"{elr}=1"),
        on_node(command, "upgrade", "--feature", "kraft.version=1"),
        on_node(command, "downgrade", "--feature", "kraft.version=0", code=1),
        described(),
        on_node(command, "version-mapping", "--release-version", "4.0"),
        on_node(command, "feature-dependencies", "--feature", f"{elr}=1"),
    ]


def reset_offsets():
    """Every form of --reset-offsets, tried and carried out."""
    topic, other, group, second = unique("tools-reset"), unique("tools-reset-other"), unique("g"), unique("h")
    with Driver() as run:
        run("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
        run("TopicCommand", "--create", "--topic", other, "--partitions", "1")
        for name, partition in ((topic, 0), (topic, 1), (other, 0)):
            subprocess.run(["kcat", "-P", "-b", BOOTSTRAP, "-t", name, "-p", str(partition)], input="".join(f"{i}\n" for i in range(10)),
                           text=True, check=True)
        printed = []

        def reset(*arguments, what=("--group", group, "--topic", topic), how="--dry-run"):
            text = run(GROUPS, "--reset-offsets", *what, *arguments, how)
            printed.append(" ".join(["#", *arguments, how]) + "\n" + sorted_lines(text))
            return text

        reset("--to-earliest")
        reset("--to-latest", how="--execute")
        reset("--shift-by", "-4", how="--execute")
        reset("--to-current")
        reset("--shift-by", "100")
        reset("--shift-by", "-100")
        reset("--to-offset", "7", how="--execute")
        reset("--to-offset", "99")
        reset("--to-offset", "-1")
        reset("--to-datetime", "2020-01-01T00:00:00.000")
        reset("--to-datetime", "2120-01-01T00:00:00.000")
        reset("--by-duration", "PT0S")
        reset("--by-duration", "P3650D", how="--execute")
        reset("--to-latest", what=("--group", group, "--topic", f"{topic}:1"), how="--execute")
        reset("--to-latest", what=("--group", group, "--topic", f"{topic}:0,1", "--topic", other), how="--execute")
        exported = reset("--to-current", "--export", what=("--group", group, "--all-topics"))
        reset("--to-earliest", what=("--group", group, "--all-topics"))
        reset("--to-earliest", what=("--group", second, "--topic", other), how="--execute")
        reset("--to-offset", "3", what=("--group", group, "--group", second, "--topic", other), how="--execute")
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write(exported.replace(",10", ",4"))
            file.flush()
            printed.append(sorted_lines(run(GROUPS, "--reset-offsets", "--group", group, "--from-file", file.name, "--dry-run")))
            printed.append(sorted_lines(run(GROUPS, "--reset-offsets", "--group", group, "--from-file", file.name, "--execute")))
        reset("--to-earliest", what=("--group", group, "--topic", unique("none")))
        printed.append(sorted_lines(run(GROUPS, "--describe", "--group", group, "--offsets")))
        printed.append("# delete offsets\n" + sorted_lines(run(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:1", "--topic", other)))
        printed.append(sorted_lines(run(GROUPS, "--describe", "--group", group, "--offsets")))
        printed.append(sorted_lines(run(GROUPS, "--delete-offsets", "--group", group, "--topic", unique("none"))))
        printed.append(sorted_lines(run(GROUPS, "--delete-offsets", "--group", unique("none"), "--topic", topic)))
        printed += [sorted_lines(run(GROUPS, "--delete", "--group", name)) for name in (group, second)]
    text = "\n".join(printed)
    # Names of this run that are not masked below, and the stack traces' source lines.
    text = re.sub(r"none-[0-9a-f]{12}", "<none>", text)
    return {topic: "<topic>", other: "<other>", group: "<group>", second: "<second>"}, [text]


def live_group():
    """A group with members: what the tools show, and what they refuse."""
    topic, group = unique("tools-live"), unique("g")
    with Driver() as run:
        run("TopicCommand", "--create", "--topic", topic, "--partitions", "3")
        members = [subprocess.Popen(["kcat", "-b", BOOTSTRAP, "-X", f"client.id=client-{number}", "-X", "session.timeout.ms=6000",
                                     "-X", "heartbeat.interval.ms=300", "-X", "auto.offset.reset=earliest", "-G", group, topic],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for number in (1, 2)]
        try:
            deadline = time.monotonic() + 60
            while " 2\n" not in (state := re.sub(r" +\n", "\n", run(GROUPS, "--describe", "--group", group, "--state"))) or "Stable" not in state:
                if time.monotonic() > deadline:
                    raise AssertionError(f"the group is not stable: {state}")
            subprocess.run(["kcat", "-P", "-b", BOOTSTRAP, "-t", topic, "-p", "0"], input="1\n2\n3\n", text=True, check=True)
            printed = [state]

            def show(*arguments):
                text = re.sub(r"client-(\d)-[0-9a-f-]{36}", r"client-\1-<uuid>", run(GROUPS, *arguments))
                printed.append(" ".join(["#", *arguments]) + "\n" + sorted_lines(text))

            def is_committed():
                return re.search(rf"{topic} +0 +3 +3 +0 ", run(GROUPS, "--describe", "--group", group))

            await_true("3 records to be committed", is_committed)
            show("--describe", "--group", group)
            show("--describe", "--group", group, "--offsets", "--verbose")
            show("--describe", "--group", group, "--members")
            show("--describe", "--group", group, "--members", "--verbose")
            show("--describe", "--group", group, "--state", "--verbose")
            show("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
            show("--delete", "--group", group)
            show("--delete-offsets", "--group", group, "--topic", topic)
            for state in ("Stable", "stable,Empty", "Dead"):
                listed = run(GROUPS, "--list", "--state", state)
                printed.append(f"# --list --state {state}: {[line for line in listed.splitlines() if group in line or 'rror' in line or 'nvalid' in line]}")
        finally:
            for member in members:
                member.terminate()
                member.wait(timeout=30)
    return {topic: "<topic>", group: "<group>"}, printed


def await_true(what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up waiting for {what}")
        time.sleep(0.1)


def live_consumer_group():
    """The same of the consumer protocol; and what takes all groups."""
    topic, group, simple = unique("tools-live"), unique("g"), unique("s")
    with Driver() as run:
        run("TopicCommand", "--create", "--topic", topic, "--partitions", "3")
        subprocess.run(["kcat", "-P", "-b", BOOTSTRAP, "-t", topic, "-p", "0"], input="1\n2\n3\n", text=True, check=True)
        run(GROUPS, "--reset-offsets", "--group", simple, "--topic", topic, "--to-latest", "--execute")
        member = subprocess.Popen(servers.java_command(
            TOOLS + "consumer.ConsoleConsumer", "--bootstrap-server", BOOTSTRAP, "--topic", topic, "--group", group, "--from-beginning",
            "--consumer-property", "group.protocol=consumer", "--consumer-property", "client.id=client-1",
            "--consumer-property", "auto.commit.interval.ms=200", libs=os.environ["APACHE_LIBS"], heap="128m",
            jvm_flags=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        printed = []

        def shown(*arguments):
            # A member makes its id itself: 22 characters.
            text = re.sub(r"(?<=\s)[A-Za-z0-9_-]{22}(?=\s)", "<member>", run(GROUPS, *arguments))
            return " ".join(["#", *arguments]) + "\n" + sorted_lines(text)

        def listed(*arguments):
            text = shown("--list", *arguments).splitlines()
            return "\n".join(line for line in text if line.startswith(("#", "GROUP", "Error")) or group in line or simple in line)

        try:
            await_true("3 records to be committed",
                       lambda: re.search(rf"{topic} +0 +3 +3 +0 ", run(GROUPS, "--describe", "--group", group)))
            for form in (["--offsets"], ["--offsets", "--verbose"], ["--members"], ["--members", "--verbose"], ["--state"], ["--state", "--verbose"]):
                printed.append(shown("--describe", "--group", group, *form))
            printed += [
                shown("--describe", "--group", group, "--group", simple, "--state"),
                shown("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"),
                shown("--delete", "--group", group),
                shown("--delete-offsets", "--group", group, "--topic", topic),
                listed("--type", "consumer"), listed("--type", "classic"), listed("--type", "Share"), listed("--state"), listed("--type"),
                listed("--state", "Stable", "--type", "consumer"), listed("--state", "Reconciling,Assigning"), listed("--type", "none"),
            ]
        finally:
            member.terminate()
            member.wait(timeout=30)
        await_true("the group to be empty", lambda: "Empty" in run(GROUPS, "--describe", "--group", group, "--state"))
        printed += [
            shown("--describe", "--group", group),
            shown("--describe", "--group", group, "--state", "--verbose"),
            shown("--reset-offsets", "--group", group, "--topic", topic, "--shift-by", "-2"),
            shown("--reset-offsets", "--group", group, "--group", simple, "--all-topics", "--to-offset", "1", "--export", "--execute"),
            shown("--delete-offsets", "--group", group, "--topic", topic),
            shown("--validate-regex", "tools-.*"), shown("--validate-regex", "tools-("),
        ]
        every = [name for name in run(GROUPS, "--list").split() if name not in (group, simple)]
        if every:
            run(GROUPS, "--delete", *(word for name in every for word in ("--group", name)))
        printed += [
            shown("--describe", "--all-groups"), shown("--describe", "--all-groups", "--state"),
            shown("--reset-offsets", "--all-groups", "--all-topics", "--to-earliest", "--execute"),
            shown("--delete", "--all-groups").replace(f"'{group}', '{simple}'", f"'{simple}', '{group}'"),
            shown("--list"), shown("--describe", "--all-groups"),
        ]
    return {topic: "<topic>", group: "<group>", simple: "<simple>"}, printed


def cluster():
    return {}, [re.sub(r"Cluster ID: \S{22}", "Cluster ID: <id>", tool("ClusterTool", "cluster-id", "--bootstrap-server", BOOTSTRAP))]


def delete_records():
    topic, compacted = unique("tools-delete-records"), unique("tools-compacted")
    on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    on_node("TopicCommand", "--create", "--topic", compacted, "--config", "cleanup.policy=compact")
    on_node("ConsoleProducer", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:", data="k1:v\n" * 20)

    def delete(*entries):
        wanted = {"version": 1, "partitions": [{"topic": t, "partition": p, "offset": o} for t, p, o in entries]}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(wanted, file)
            file.flush()
            printed = on_node("DeleteRecordsCommand", "--offset-json-file", file.name, code=None)
        return "\n".join(sorted(printed.splitlines()))

    printed = [
        delete((topic, 1, 0)),
        delete((topic, 1, 7), (topic, 0, 0)),
        delete((topic, 1, 3)),
        on_node("GetOffsetShell", "--topic", topic, "--time", "earliest"),
        delete((topic, 1, 21)),
        delete((topic, 1, -2)),
        delete((topic, 1, -1)),
        delete((compacted, 0, 0)),
    ]
    return {topic: "<topic>", compacted: "<compacted>"}, printed


def log_dirs():
    topic = unique("tools-log-dirs")
    on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    on_node("ConsoleProducer", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:", data="k1:v1\n")

    def described(*arguments):
        lines = on_node("LogDirsCommand", "--describe", *arguments).splitlines()
        found = json.loads(next(line for line in lines if line.startswith("{")))
        for broker in found["brokers"]:
            for log_dir in broker["logDirs"]:
                log_dir["logDir"] = "<dir>" if log_dir["logDir"].startswith("/") else "not absolute"
                log_dir["partitions"].sort(key=lambda partition: partition["partition"])
                for name in ("totalBytes", "usableBytes"):
                    if name in log_dir:
                        log_dir[name] = log_dir[name] > 0
        return "\n".join(line for line in lines if not line.startswith("{")) + "\n" + json.dumps(found, indent=1, sort_keys=True)

    return {topic: "<topic>"}, [described("--topic-list", topic), described("--topic-list", topic, "--broker-list", "1"),
                                described("--topic-list", unique("none")),
                                on_node("LogDirsCommand", "--describe", "--broker-list", "1,9", code=None).split("\tat ")[0]]


def api_versions():
    def test():
        printed = on_node("BrokerApiVersionsCommand")
        expect("Produce(0):" in printed and "ApiVersions(18): 0 to 5 [usable: 5]" in printed, True, f"versions listed: {printed}")
    check(CLIENT, "broker-api-versions", test)


def performance():
    topic = unique("tools-perf")
    on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "3")
    printed = tool("ProducerPerformance", "--topic", topic, "--num-records", "50000", "--record-size", "200", "--throughput", "-1",
                   "--producer-props", f"bootstrap.servers={BOOTSTRAP}", "acks=all")
    expect(printed.strip().splitlines()[-1].startswith("50000 records sent"), True, f"producer's last line: {printed}")
    ends = on_node("GetOffsetShell", "--topic", topic)
    expect(sum(int(line.rsplit(":", 1)[1]) for line in ends.split()), 50000, "end offsets")
    printed = on_node("ConsumerPerformance", "--topic", topic, "--messages", "50000", "--timeout", "60000")
    expect(printed.strip().splitlines()[-1].split(", ")[4], "50000", "records consumed")
    printed = tool("EndToEndLatency", "--bootstrap-server", BOOTSTRAP, "--topic", topic, "--num-records", "100", "--producer-acks", "all",
                   "--record-size", "100")
    expect("Percentiles" in printed, True, printed)


def verifiable():
    topic, group = unique("tools-verifiable"), unique("g")
    on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    printed = on_node("VerifiableProducer", "--topic", topic, "--max-messages", "200", "--acks", "-1")
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    expect(sum(e["name"] == "producer_send_success" for e in events), 200, "sent")
    printed = on_node("VerifiableConsumer", "--topic", topic, "--group-id", group, "--max-messages", "200", "--reset-policy", "earliest")
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    expect(sum(e["count"] for e in events if e["name"] == "records_consumed"), 200, "consumed")
    expect(all(e["success"] for e in events if e["name"] == "offsets_committed"), True, "commits")


def told_alike(printed):
    """Columns are as wide as what they hold; times, ids and offsets of the node are its own."""
    printed = re.sub(r"[ \t]+", " ", printed)
    printed = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z?|\b\d{13}\b", "<time>", printed)
    return "\n".join(line.strip() for line in printed.splitlines() if "SLF4J" not in line)


def transactional_producer(node, name):
    while node.ask("FindCoordinator", 4, keyType=1, coordinatorKeys=[name])["coordinators"][0]["errorCode"]:
        pass
    # A producer id that is like no other number here.
    for _ in range(40):
        node.ask("InitProducerId", 4, transactionalId=None, transactionTimeoutMs=0)
    while True:
        producer = node.ask("InitProducerId", 4, transactionalId=name, transactionTimeoutMs=120000)
        if not producer["errorCode"]:
            return producer


def transactions():
    topic, name = unique("tools-tx"), unique("tx")
    on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "1")

    def command(*arguments, code=0):
        return told_alike(on_node("TransactionsCommand", *arguments, code=code))

    with wire.Connection(BOOTSTRAP) as node:
        producer = transactional_producer(node, name)

        def produce(value, epoch, sequence):
            records = wire.batch([value], producer["producerId"], epoch, sequence, True)
            answer = node.ask("Produce", 12, transactionalId=name, acks=-1, timeoutMs=5000,
                              topicData=[{"name": topic, "partitionData": [{"index": 0, "records": records}]}])
            expect(answer["responses"][0]["partitionResponses"][0]["errorCode"], 0, "produce")

        produce("a", 0, 0)
        ids = {topic: "<topic>", name: "<id>"}
        mine = [line for line in command("list").splitlines() if name in line]
        printed = [
            re.sub(r"\d+", "<n>", mine[0].replace(name, "<id>")),
            command("list", "--duration-filter", "3600000"),
            command("list", "--transactional-id-pattern", name + ".*"),
            command("list", "--transactional-id-pattern", "a)(b", code=1).splitlines()[-1].split("ERROR")[-1],
            re.sub(r"<time> \d+", "<time> <long>", command("describe", "--transactional-id", name)),
            command("describe", "--transactional-id", "none-such", code=None).splitlines()[0],
            command("describe-producers", "--topic", topic, "--partition", "0"),
            command("find-hanging", "--topic", topic, "--max-transaction-timeout", "1"),
            command("abort", "--topic", topic, "--partition", "0", "--start-offset", "9", code=1),
            command("abort", "--topic", topic, "--partition", "0", "--start-offset", "0"),
            command("describe-producers", "--topic", topic, "--partition", "0"),
        ]
        found = node.ask("DescribeTransactions", 0, transactionalIds=[name])["transactionStates"][0]["transactionState"]
        printed.append(f"the coordinator does not know: {found}")
    text = re.sub(rf"\b{producer['producerId']}\b", "<producer>", "\n".join(printed))
    return ids, [text]


def hanging_transactions():
    """Two that no coordinator will ever end: a late batch of a transaction that has ended, and one of a producer that nobody knows."""
    topic, name = unique("tools-hanging"), unique("tx")
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    on_node("TopicCommand", "--create", "--topic", topic, "--partitions", "2")

    def verify(operation):
        answer = node.ask("IncrementalAlterConfigs", 1, resources=[{"resourceType": 4, "resourceName": "1", "configs": [
            {"name": "transaction.partition.verification.enable", "configOperation": operation, "value": None if operation else "false"}]}])
        expect(answer["responses"][0]["errorCode"], 0, "the config of the verification")

    def produce(value, sequence, producer_id, index=0, epoch=0, transactional_id=name, version=11):
        records = wire.batch([value], producer_id, epoch, sequence, True, timestamp=an_hour_ago)
        answer = node.ask("Produce", version, transactionalId=transactional_id, acks=-1, timeoutMs=5000, topicData=[
            {"name": topic, "partitionData": [{"index": index, "records": records}]}])
        expect(answer["responses"][0]["partitionResponses"][0]["errorCode"], 0, f"produce {value}")

    def end(producer_id, epoch=0, transactional_id=name, version=4):
        answer = node.ask("EndTxn", version, transactionalId=transactional_id, producerId=producer_id, producerEpoch=epoch, committed=True)
        expect(answer["errorCode"], 0, "end")
        while (found := node.ask("DescribeTransactions", 0, transactionalIds=[transactional_id]))["transactionStates"][0]["transactionState"] != "CompleteCommit":
            expect(found["transactionStates"][0]["transactionState"], "PrepareCommit", "state")

    def values():
        return [wire.committed_values(node, topic, index) for index in range(2)]

    with wire.Connection(BOOTSTRAP) as node, Driver() as driver:
        mine = transactional_producer(node, name)["producerId"]
        nobody = mine + 700_000
        added = node.ask("AddPartitionsToTxn", 3, v3AndBelowTransactionalId=name, v3AndBelowProducerId=mine, v3AndBelowProducerEpoch=0,
                         v3AndBelowTopics=[{"name": topic, "partitions": [0]}])
        expect(added["resultsByTopicV3AndBelow"][0]["resultsByPartition"][0]["partitionErrorCode"], 0, "add")
        produce("in time", 0, mine)
        end(mine)
        deadline = time.monotonic() + 10
        verify(0)
        try:
            while True:
                try:
                    produce("late", 1, mine)
                    break
                except AssertionError:
                    # The config acts a little later than it is answered.
                    if time.monotonic() > deadline:
                        raise
            produce("of nobody", 0, nobody, index=1, transactional_id=unique("tx"))
        finally:
            verify(1)
        other = unique("tx")
        second = transactional_producer(node, other)["producerId"]
        for index in range(2):
            produce("behind", 0, second, index=index, transactional_id=other, version=12)
        end(second, transactional_id=other, version=5)
        printed = [f"{values()}"]

        def command(*arguments):
            lines = told_alike(driver("TransactionsCommand", *arguments)).splitlines()
            # How long it hangs is in minutes since the time in its batch.
            printed.extend([f"# {' '.join(map(str, arguments))}", *sorted(re.sub(r"<time> \d+$", "<time> <long>", line) for line in lines)])

        command("find-hanging", "--topic", topic)
        command("find-hanging", "--topic", topic, "--partition", "1")
        command("find-hanging", "--broker-id", "1")
        command("find-hanging", "--topic", topic, "--max-transaction-timeout", "100000000")
        command("find-hanging")
        command("abort", "--topic", topic, "--partition", "0", "--start-offset", "2")
        command("find-hanging", "--broker-id", "1")
        command("abort", "--topic", topic, "--partition", "1", "--producer-id", nobody, "--producer-epoch", "0", "--coordinator-epoch", "0")
        command("find-hanging", "--broker-id", "1")
        printed.append(f"{values()}")
    text = "\n".join(printed)
    for number, mask in ((mine, "<producer>"), (nobody, "<nobody>")):
        text = re.sub(rf"\b{number}\b", mask, text)
    return {topic: "<topic>", name: "<id>"}, [text]


def main():
    same("topics", topics)
    same("configs", configs)
    same("alter-configs", alter_configs)
    same("features", features)
    same("console", console)
    same("get-offsets", offsets)
    same("consumer-groups", groups)
    same("consumer-groups reset-offsets", reset_offsets)
    same("consumer-groups live", live_group)
    if os.environ.get("COMPAT_AGAINST") != "other":
        # Ends with the deletion of all groups.
        same("consumer-groups live 848", live_consumer_group)
    same("cluster", cluster)
    same("delete-records", delete_records)
    same("log-dirs", log_dirs)
    same("transactions", transactions)
    same("hanging transactions", hanging_transactions)
    api_versions()
    check(CLIENT, "perf-test", performance)
    check(CLIENT, "verifiable", verifiable)
    finish()


if __name__ == "__main__":
    sys.exit(main())
