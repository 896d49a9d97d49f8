// A member of a group on kafkajs, see groups_test.py. kafkajs has no range assignor of its own; this one is named as the others' is.
const { Kafka, logLevel, AssignerProtocol: { MemberMetadata, MemberAssignment } } = require('kafkajs')

const [topic, groupId] = process.argv.slice(2)
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  async assign({ members }) {
    const assignments = new Map(members.map(member => [member.memberId, {}]))
    const subscribers = new Map()
    for (const { memberId, memberMetadata } of members) {
      for (const name of MemberMetadata.decode(memberMetadata).topics) {
        subscribers.set(name, [...(subscribers.get(name) || []), memberId].sort())
      }
    }
    await cluster.addMultipleTargetTopics([...subscribers.keys()])
    for (const [name, ids] of subscribers) {
      const partitions = cluster.findTopicPartitionMetadata(name).map(p => p.partitionId).sort((a, b) => a - b)
      ids.forEach((id, i) => {
        const each = Math.floor(partitions.length / ids.length), extra = partitions.length % ids.length
        const start = i * each + Math.min(i, extra)
        const mine = partitions.slice(start, start + each + (i < extra ? 1 : 0))
        if (mine.length) assignments.get(id)[name] = mine
      })
    }
    return [...assignments].map(([memberId, assignment]) =>
      ({ memberId, memberAssignment: MemberAssignment.encode({ version: 0, assignment, userData: Buffer.alloc(0) }) }))
  },
  protocol: ({ topics }) => ({ name: 'range', metadata: MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }) }),
})

async function main() {
  const kafka = new Kafka({ clientId: 'agent', brokers: [process.env.BOOTSTRAP], logLevel: logLevel.NOTHING })
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 300, rebalanceTimeout: 30000, partitionAssigners: [range] })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    console.log('A - ' + (payload.memberAssignment[topic] || []).map(p => `${topic}:${p}`).sort().join(',')))
  consumer.on(consumer.events.REBALANCING, () => console.log('A -'))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (const message of batch.messages) {
        console.log(`R ${topic}:${batch.partition} ${message.offset}`)
        resolveOffset(message.offset)
      }
      try {
        await consumer.commitOffsets([{ topic, partition: batch.partition, offset: String(Number(batch.lastOffset()) + 1) }])
      } catch (error) {
        console.log('F ' + error)
      }
      await heartbeat()
    },
  })
  process.stdin.resume()
  process.stdin.on('end', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
}

main().catch(error => { console.log('E ' + error); process.exit(1) })
