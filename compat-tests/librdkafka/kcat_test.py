"""kcat: metadata, produce and consume in every compression, keys, headers, offsets by time, groups."""
import json
import subprocess

from results import BOOTSTRAP, check, expect, finish, unique


def kcat(*arguments, data=None, timeout=60):
    done = subprocess.run(["kcat", "-b", BOOTSTRAP, *arguments], input=data, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise AssertionError(f"kcat {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def metadata():
    brokers = json.loads(kcat("-L", "-J"))["brokers"]
    expect(len(brokers), 1, "brokers")


def auto_created_topic():
    topic = unique("kcat-auto")
    kcat("-P", "-t", topic, data="one\ntwo\n")
    expect(kcat("-C", "-t", topic, "-e", "-q"), "one\ntwo\n")
    topics = [t["topic"] for t in json.loads(kcat("-L", "-J"))["topics"]]
    expect(topic in topics, True, "topic listed")


def compression(codec):
    def test():
        topic = unique(f"kcat-{codec}")
        lines = "".join(f"line {i} {'x' * (i % 50)}\n" for i in range(2000))
        kcat("-P", "-t", topic, "-z", codec, data=lines)
        expect(kcat("-C", "-t", topic, "-e", "-q"), lines)
    return test


def keys_headers_and_nulls():
    topic = unique("kcat-keys")
    kcat("-P", "-t", topic, "-K", "=", "-H", "a=1", "-H", "a=2", "-H", "b=", data="k1=v1\nk2=v2\n")
    kcat("-P", "-t", topic, "-K", "=", "-Z", data="k3=\n")
    records = [json.loads(line) for line in kcat("-C", "-t", topic, "-e", "-q", "-J").splitlines()]
    expect([(r["key"], r["payload"]) for r in records], [("k1", "v1"), ("k2", "v2"), ("k3", None)])
    expect(records[0]["headers"], ["a", "1", "a", "2", "b", ""])


def acks(level):
    def test():
        topic = unique(f"kcat-acks{level.strip('-')}")
        kcat("-P", "-t", topic, "-X", f"acks={level}", data="".join(f"{i}\n" for i in range(100)))
        expect(len(kcat("-C", "-t", topic, "-e", "-q").splitlines()), 100)
    return test


def idempotent_producer():
    topic = unique("kcat-idempotent")
    kcat("-P", "-t", topic, "-X", "enable.idempotence=true", data="".join(f"{i}\n" for i in range(500)))
    expect(kcat("-C", "-t", topic, "-e", "-q").split(), [str(i) for i in range(500)])


def offsets():
    topic = unique("kcat-offsets")
    kcat("-P", "-t", topic, "-p", "0", data="".join(f"{i}\n" for i in range(10)))
    expect(kcat("-C", "-t", topic, "-p", "0", "-o", "7", "-e", "-q").split(), ["7", "8", "9"])
    expect(kcat("-C", "-t", topic, "-p", "0", "-o", "-2", "-e", "-q").split(), ["8", "9"])
    expect(kcat("-Q", "-t", f"{topic}:0:-1").split()[-1], "10")
    expect(kcat("-Q", "-t", f"{topic}:0:-2").split()[-1], "0")
    expect(kcat("-Q", "-t", f"{topic}:0:1").split()[-1], "0")


def group():
    topic, group_id = unique("kcat-group"), unique("g")
    kcat("-P", "-t", topic, data="".join(f"{i}\n" for i in range(20)))
    consume = ("-G", group_id, topic, "-e", "-q", "-X", "auto.offset.reset=earliest")
    expect(len(kcat(*consume).split()), 20)
    kcat("-P", "-t", topic, data="late\n")
    expect(kcat(*consume).split(), ["late"])


def unknown_topic_without_creation():
    done = subprocess.run(["kcat", "-b", BOOTSTRAP, "-C", "-t", unique("kcat-absent"), "-e", "-q",
                           "-X", "allow.auto.create.topics=false"], capture_output=True, text=True, timeout=60)
    expect("Unknown topic" in done.stderr, True, f"told of the unknown topic ({done.stderr})")


CLIENT = "kcat"
check(CLIENT, "metadata", metadata)
check(CLIENT, "auto-create", auto_created_topic)
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    check(CLIENT, f"compression {codec}", compression(codec))
check(CLIENT, "keys, headers, nulls", keys_headers_and_nulls)
for level in ("0", "1", "-1"):
    check(CLIENT, f"acks {level}", acks(level))
check(CLIENT, "idempotent producer", idempotent_producer)
check(CLIENT, "offsets", offsets)
check(CLIENT, "group", group)
check(CLIENT, "unknown topic", unknown_topic_without_creation)
finish()
