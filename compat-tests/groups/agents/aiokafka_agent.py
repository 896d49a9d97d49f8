"""A member of a group on aiokafka, see groups_test.py."""
import asyncio
import os
import sys

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError


class Listener(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked):
        print("A -", flush=True)

    async def on_partitions_assigned(self, assigned):
        print("A - " + ",".join(sorted(f"{p.topic}:{p.partition}" for p in assigned)), flush=True)


async def main():
    topic, group = sys.argv[1:3]
    consumer = AIOKafkaConsumer(bootstrap_servers=os.environ["BOOTSTRAP"], group_id=group, auto_offset_reset="earliest",
                                enable_auto_commit=False, session_timeout_ms=6000, heartbeat_interval_ms=300,
                                partition_assignment_strategy=(RangePartitionAssignor,))
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    try:
        while not ended.done():
            batches = await consumer.getmany(timeout_ms=50)
            for partition, records in batches.items():
                for record in records:
                    print(f"R {partition.topic}:{partition.partition} {record.offset}")
            if batches:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    print(f"F {error!r}")
            sys.stdout.flush()
    finally:
        await consumer.stop()


asyncio.run(main())
