package compat;

import static compat.Compat.*;
import static org.junit.jupiter.api.Assertions.*;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.junit.jupiter.api.Test;

class ProducerTest {
    private static List<ConsumerRecord<String, String>> all(String topic, int count) {
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            return take(consumer, count);
        }
    }

    private static void acks(String acks) throws Exception {
        String topic = createTopic("j-acks", 1);
        List<RecordMetadata> sent = send(topic, 100, "acks", acks, "enable.idempotence", "false");
        assertEquals(range(0, 100), sortedValues(all(topic, 100)));
        if (!acks.equals("0")) {
            for (int i = 0; i < 100; i++) {
                assertEquals(i, sent.get(i).offset());
            }
        }
    }

    @Test void acks0() throws Exception { acks("0"); }
    @Test void acks1() throws Exception { acks("1"); }
    @Test void acksAll() throws Exception { acks("all"); }
    @Test void acksMinusOne() throws Exception { acks("-1"); }

    private static void compression(String codec) throws Exception {
        assumeTrue(!codec.equals("zstd") || clientAtLeast(2, 1));
        String topic = createTopic("j-" + codec, 1);
        send(topic, 1000, "compression.type", codec, "linger.ms", "50", "enable.idempotence", "false");
        assertEquals(range(0, 1000), sortedValues(all(topic, 1000)));
    }

    @Test void compressionNone() throws Exception { compression("none"); }
    @Test void compressionGzip() throws Exception { compression("gzip"); }
    @Test void compressionSnappy() throws Exception { compression("snappy"); }
    @Test void compressionLz4() throws Exception { compression("lz4"); }
    @Test void compressionZstd() throws Exception { compression("zstd"); }

    @Test void callbacksComeInOrder() throws Exception {
        String topic = createTopic("j-callback", 1);
        List<Long> offsets = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger errors = new AtomicInteger();
        try (KafkaProducer<String, String> producer = producer("acks", "all")) {
            for (int i = 0; i < 500; i++) {
                producer.send(new ProducerRecord<>(topic, "v" + i), (metadata, error) -> {
                    if (error != null) {
                        errors.incrementAndGet();
                    } else {
                        offsets.add(metadata.offset());
                    }
                });
            }
            producer.flush();
        }
        assertEquals(0, errors.get());
        for (int i = 0; i < 500; i++) {
            assertEquals(i, offsets.get(i));
        }
    }

    @Test void idempotentProducer() throws Exception {
        String topic = createTopic("j-idempotent", 1);
        List<RecordMetadata> sent = send(topic, 1000, "enable.idempotence", "true", "acks", "all", "max.in.flight.requests.per.connection", "1");
        assertEquals(999, sent.get(999).offset());
        assertEquals(range(0, 1000), sortedValues(all(topic, 1000)));
    }

    @Test void headersRepeatedAndNull() throws Exception {
        String topic = createTopic("j-headers", 1);
        try (KafkaProducer<String, String> producer = producer()) {
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, "k", "v");
            record.headers().add("a", "1".getBytes()).add("a", "2".getBytes()).add("empty", new byte[0]).add("null", null);
            producer.send(record).get();
        }
        Header[] headers = all(topic, 1).get(0).headers().toArray();
        assertEquals(4, headers.length);
        assertEquals("a", headers[1].key());
        assertEquals("2", new String(headers[1].value()));
        assertEquals(0, headers[2].value().length);
        assertNull(headers[3].value());
    }

    @Test void nullKeysAndValues() throws Exception {
        String topic = createTopic("j-nulls", 1);
        try (KafkaProducer<String, String> producer = producer()) {
            producer.send(new ProducerRecord<>(topic, null, "v"));
            producer.send(new ProducerRecord<>(topic, "k", null));
            producer.send(new ProducerRecord<>(topic, "", "")).get();
        }
        List<ConsumerRecord<String, String>> records = all(topic, 3);
        assertNull(records.get(0).key());
        assertNull(records.get(1).value());
        assertEquals("", records.get(2).key());
        assertEquals("", records.get(2).value());
    }

    /** The partition is the number in the key. */
    public static class ByNumber implements Partitioner {
        @Override public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
            return Integer.parseInt((String) key) % cluster.partitionsForTopic(topic).size();
        }

        @Override public void close() {}

        @Override public void configure(Map<String, ?> configs) {}
    }

    @Test void customPartitioner() throws Exception {
        String topic = createTopic("j-partitioner", 4);
        try (KafkaProducer<String, String> producer = producer("partitioner.class", ByNumber.class.getName())) {
            for (int i = 0; i < 40; i++) {
                producer.send(new ProducerRecord<>(topic, String.valueOf(i), String.valueOf(i)));
            }
        }
        for (ConsumerRecord<String, String> record : all(topic, 40)) {
            assertEquals(Integer.parseInt(record.key()) % 4, record.partition());
        }
    }

    @Test void partitionAndTimestampOfTheCaller() throws Exception {
        String topic = createTopic("j-explicit", 3);
        try (KafkaProducer<String, String> producer = producer()) {
            RecordMetadata sent = producer.send(new ProducerRecord<>(topic, 2, 1_700_000_000_123L, "k", "v")).get();
            assertEquals(2, sent.partition());
            assertEquals(3, producer.partitionsFor(topic).size());
        }
        ConsumerRecord<String, String> record = all(topic, 1).get(0);
        assertEquals(2, record.partition());
        assertEquals(1_700_000_000_123L, record.timestamp());
    }

    @Test void largeRecord() throws Exception {
        String topic = createTopic("j-large", 1);
        byte[] value = new byte[900_000];
        new Random(7).nextBytes(value);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config(), new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(topic, value)).get();
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config("fetch.max.bytes", "1000", "max.partition.fetch.bytes", "1000"),
                 new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(Collections.singleton(partition));
            consumer.seekToBeginning(Collections.singleton(partition));
            List<byte[]> found = new ArrayList<>();
            await("the large record", () -> {
                poll(consumer, 200).forEach(record -> found.add(record.value()));
                return !found.isEmpty();
            });
            assertArrayEquals(value, found.get(0));
        }
    }

    @Test void recordTooLargeForTheBroker() throws Exception {
        String topic = createTopic("j-toolarge", 1);
        try (KafkaProducer<String, String> producer = producer("max.request.size", "5000000")) {
            String value = new String(new char[2_000_000]).replace('\0', 'x');
            ExecutionException error = assertThrows(ExecutionException.class,
                () -> producer.send(new ProducerRecord<>(topic, value)).get(PATIENCE_MS, TimeUnit.MILLISECONDS));
            assertInstanceOf(RecordTooLargeException.class, error.getCause());
        }
    }

    @Test void invalidTopicName() {
        assumeTrue(clientAtLeast(2, 0));    // 1.x goes on asking until it times out
        try (KafkaProducer<String, String> producer = producer()) {
            ExecutionException error = assertThrows(ExecutionException.class,
                () -> producer.send(new ProducerRecord<>("not/allowed", "v")).get(PATIENCE_MS, TimeUnit.MILLISECONDS));
            assertInstanceOf(InvalidTopicException.class, error.getCause());
        }
    }

    @Test void topicIsCreatedOnFirstUse() throws Exception {
        String topic = unique("j-auto");
        send(topic, 3);
        assertEquals(range(0, 3), sortedValues(all(topic, 3)));
    }
}
