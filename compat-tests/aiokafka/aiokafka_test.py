"""aiokafka: produce in every compression, consume, groups, commits, admin."""
import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from results import BOOTSTRAP, check, expect, finish, unique

PATIENCE_SECONDS = 60


def run(test):
    return lambda: asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


async def create(topic, partitions=1):
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
        expect([error[1] for error in answer.topic_errors], [0], "creation errors")
    finally:
        await admin.close()
    return topic


async def produce(topic, values, **config):
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, **config) as producer:
        futures = [await producer.send(topic, value=v, key=str(i).encode(), headers=[("h", b"1"), ("h", b"2")])
                   for i, v in enumerate(values)]
        return [await f for f in futures]


def consumer(*topics, group=None):
    return AIOKafkaConsumer(*topics, bootstrap_servers=BOOTSTRAP, group_id=group, auto_offset_reset="earliest",
                            enable_auto_commit=False, session_timeout_ms=10000)


def compression(codec):
    async def test():
        topic = await create(unique("aio-" + (codec or "none")))
        values = [f"{i}-{'x' * (i % 60)}".encode() for i in range(1000)]
        await produce(topic, values, compression_type=codec)
        async with consumer(topic) as client:
            found = [await client.getone() for _ in values]
        expect([m.value for m in found], values, "values")
        expect(list(found[0].headers), [("h", b"1"), ("h", b"2")], "headers")
    return run(test)


async def idempotent():
    topic = await create(unique("aio-idempotent"))
    sent = await produce(topic, [str(i).encode() for i in range(200)], enable_idempotence=True)
    expect([m.offset for m in sent], list(range(200)), "offsets")


async def group_and_commit():
    topic, group = await create(unique("aio-group"), 2), unique("g")
    await produce(topic, [str(i).encode() for i in range(50)])
    async with consumer(topic, group=group) as client:
        found = [await client.getone() for _ in range(50)]
        await client.commit()
    expect(sorted(int(m.value) for m in found), list(range(50)), "values")
    await produce(topic, [b"late"])
    async with consumer(topic, group=group) as client:
        expect((await client.getone()).value, b"late", "after the commit")


async def two_members():
    topic, group = await create(unique("aio-members"), 4), unique("g")
    async with consumer(topic, group=group) as first, consumer(topic, group=group) as second:
        while not (len(first.assignment()) == 2 and len(second.assignment()) == 2):
            await asyncio.gather(first.getmany(timeout_ms=100), second.getmany(timeout_ms=100))
        expect(len(first.assignment() | second.assignment()), 4, "partitions owned")


async def offsets():
    topic = await create(unique("aio-offsets"))
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as producer:
        for i in range(10):
            await producer.send_and_wait(topic, str(i).encode(), timestamp_ms=1_700_000_000_000 + i * 1000)
    partition = TopicPartition(topic, 0)
    async with consumer() as client:
        client.assign([partition])
        expect((await client.end_offsets([partition]))[partition], 10, "end offset")
        expect((await client.offsets_for_times({partition: 1_700_000_003_500}))[partition].offset, 4, "offset by time")
        client.seek(partition, 8)
        expect([(await client.getone()).value for _ in range(2)], [b"8", b"9"], "after the seek")


CLIENT = f"aiokafka {aiokafka.__version__}"
for codec in (None, "gzip", "snappy", "lz4", "zstd"):
    check(CLIENT, f"compression {codec or 'none'}", compression(codec))
check(CLIENT, "idempotent producer", run(idempotent))
check(CLIENT, "group, commit", run(group_and_commit))
check(CLIENT, "two members", run(two_members))
check(CLIENT, "offsets", run(offsets))
finish()
