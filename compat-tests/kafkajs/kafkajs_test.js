// kafkajs: produce, consume, groups, commits, admin.
const crypto = require('crypto')
const assert = require('assert')
const { Kafka, CompressionTypes, logLevel, KafkaJSProtocolError } = require('kafkajs')
const { version } = require('kafkajs/package.json')

const PATIENCE_MS = 60000
const kafka = new Kafka({ clientId: 'compat', brokers: [process.env.BOOTSTRAP || 'localhost:9092'], logLevel: logLevel.ERROR })
const unique = prefix => `${prefix}-${crypto.randomBytes(6).toString('hex')}`
let failed = false

async function check(feature, test) {
  let outcome = 'pass', detail = '', timer
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no end in ${PATIENCE_MS} ms`)), PATIENCE_MS) })
  try {
    await Promise.race([test(), late])
  } catch (error) {
    console.log(error)
    outcome = 'fail'
    detail = String(error.message).replace(/\s+/g, ' ').slice(0, 300)
    failed = true
  } finally {
    clearTimeout(timer)
  }
  console.log(`RESULT\tkafkajs ${version}\t${feature}\t${outcome}\t${detail}`)
}

async function withAdmin(use) {
  const admin = kafka.admin()
  await admin.connect()
  try { return await use(admin) } finally { await admin.disconnect() }
}

async function create(topic, numPartitions = 1) {
  await withAdmin(admin => admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1 }], waitForLeaders: true }))
  return topic
}

async function produce(topic, messages, options = {}) {
  const { idempotent, ...send } = options
  const producer = kafka.producer({ idempotent, maxInFlightRequests: idempotent ? 1 : undefined, allowAutoTopicCreation: true })
  await producer.connect()
  try { return await producer.send({ topic, messages, acks: -1, ...send }) } finally { await producer.disconnect() }
}

// Consumes until `count` messages are there, commits them, leaves.
async function consume(topic, groupId, count) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 500 })
  await consumer.connect()
  const found = []
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          found.push(message)
          await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
          if (found.length === count) resolve()
        },
      })
    })
  } finally {
    await consumer.disconnect()
  }
  return found
}

function compression(type) {
  return async () => {
    const topic = await create(unique('kjs-compression'))
    const messages = [...Array(200).keys()].map(i => ({ key: `k${i}`, value: `${i} ${'x'.repeat(i % 50)}`, headers: { h: ['1', '2'] } }))
    await produce(topic, messages, { compression: type })
    const found = await consume(topic, unique('g'), 200)
    assert.deepStrictEqual(found.map(m => m.value.toString()), messages.map(m => m.value))
    assert.deepStrictEqual(found[0].headers.h.map(String), ['1', '2'])
  }
}

async function groupAndCommit() {
  const topic = await create(unique('kjs-group'), 3)
  const groupId = unique('g')
  await produce(topic, [...Array(30).keys()].map(i => ({ key: String(i), value: String(i) })))
  const found = await consume(topic, groupId, 30)
  assert.deepStrictEqual(found.map(m => Number(m.value)).sort((a, b) => a - b), [...Array(30).keys()])
  await produce(topic, [{ value: 'late' }])
  const late = await consume(topic, groupId, 1)
  assert.strictEqual(late[0].value.toString(), 'late')
}

async function autoCreate() {
  const topic = unique('kjs-auto')
  await produce(topic, [{ value: 'a' }])
  assert.strictEqual((await consume(topic, unique('g'), 1))[0].value.toString(), 'a')
}

async function adminCalls() {
  const topic = await create(unique('kjs-admin'), 2)
  await withAdmin(async admin => {
    assert.ok((await admin.listTopics()).includes(topic))
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.strictEqual(topics[0].partitions.length, 2)
    assert.strictEqual((await admin.describeCluster()).brokers.length, 1)
    await produce(topic, [{ value: 'a', partition: 0 }])
    const offsets = await admin.fetchTopicOffsets(topic)
    assert.deepStrictEqual(offsets.map(o => [o.partition, o.high]).sort(), [[0, '1'], [1, '0']])
    await assert.rejects(admin.createTopics({ topics: [{ topic: 'not/allowed', numPartitions: 1, replicationFactor: 1 }] }))
    await admin.deleteTopics({ topics: [topic] })
    while ((await admin.listTopics()).includes(topic)) await new Promise(setImmediate)
  })
}

async function main() {
  await check('compression none', compression(CompressionTypes.None))
  await check('compression gzip', compression(CompressionTypes.GZIP))
  await check('idempotent producer', async () => {
    const topic = await create(unique('kjs-idempotent'))
    const [answer] = await produce(topic, [{ value: 'a' }, { value: 'b' }], { idempotent: true })
    assert.strictEqual(answer.baseOffset, '0')
  })
  await check('group, commit', groupAndCommit)
  await check('auto-create', autoCreate)
  await check('admin', adminCalls)
  process.exit(failed ? 1 : 0)
}

main()
