package compat;

import static compat.Compat.BOOTSTRAP;
import static compat.Compat.PATIENCE_MS;
import static compat.Compat.unique;
import static org.junit.jupiter.api.Assertions.*;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.Test;

/** The code of the usual tutorials of the 1.0 days, unchanged in manner: string configs, poll(long), acks -1, one group of several members. */
class TutorialTest {
    private static Properties producerProps() {
        Properties props = new Properties();
        props.put("bootstrap.servers", BOOTSTRAP);
        props.put("acks", "-1");
        props.put("retries", 3);
        props.put("batch.size", 16384);
        props.put("linger.ms", 1);
        props.put("buffer.memory", 33554432);
        props.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        props.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return props;
    }

    private static Properties consumerProps(String group, boolean autoCommit) {
        Properties props = new Properties();
        props.put("bootstrap.servers", BOOTSTRAP);
        props.put("group.id", group);
        props.put("enable.auto.commit", String.valueOf(autoCommit));
        props.put("auto.commit.interval.ms", "1000");
        props.put("auto.offset.reset", "earliest");
        props.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        props.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return props;
    }

    private static void produce(String topic, int count) throws Exception {
        CountDownLatch acknowledged = new CountDownLatch(count);
        Producer<String, String> producer = new KafkaProducer<>(producerProps());
        for (int i = 0; i < count; i++) {
            producer.send(new ProducerRecord<String, String>(topic, Integer.toString(i), Integer.toString(i)), new Callback() {
                @Override public void onCompletion(RecordMetadata metadata, Exception exception) {
                    if (exception == null) {
                        acknowledged.countDown();
                    }
                }
            });
        }
        producer.close();
        assertTrue(acknowledged.await(PATIENCE_MS, TimeUnit.MILLISECONDS));
    }

    /** Even numbers to partition 0, odd ones to the last. */
    public static class EvenOdd implements Partitioner {
        @Override public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
            List<PartitionInfo> partitions = cluster.partitionsForTopic(topic);
            return Integer.parseInt((String) key) % 2 == 0 ? 0 : partitions.size() - 1;
        }

        @Override public void close() {}

        @Override public void configure(Map<String, ?> configs) {}
    }

    @Test void producerWithCallback() throws Exception {
        produce(unique("tutorial-callback"), 100);
    }

    @Test void producerWithPartitioner() throws Exception {
        String topic = Compat.createTopic("tutorial-partitioner", 3);
        Properties props = producerProps();
        props.put("partitioner.class", EvenOdd.class.getName());
        KafkaProducer<String, String> producer = new KafkaProducer<>(props);
        for (int i = 0; i < 10; i++) {
            RecordMetadata metadata = producer.send(new ProducerRecord<String, String>(topic, Integer.toString(i), "v")).get();
            assertEquals(i % 2 == 0 ? 0 : 2, metadata.partition());
        }
        producer.close();
    }

    @Test void consumerWithAutomaticCommit() throws Exception {
        String topic = unique("tutorial-auto");
        produce(topic, 50);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerProps(unique("g"), true));
        consumer.subscribe(Arrays.asList(topic));
        int found = 0;
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (found < 50 && System.currentTimeMillis() < deadline) {
            ConsumerRecords<String, String> records = consumer.poll(100);
            for (ConsumerRecord<String, String> record : records) {
                assertEquals(record.key(), record.value());
                found++;
            }
        }
        consumer.close();
        assertEquals(50, found);
    }

    @Test void consumerWithManualCommitByPartition() throws Exception {
        String topic = unique("tutorial-manual");
        String group = unique("g");
        produce(topic, 20);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerProps(group, false));
        consumer.subscribe(Arrays.asList(topic));
        int found = 0;
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (found < 20 && System.currentTimeMillis() < deadline) {
            ConsumerRecords<String, String> records = consumer.poll(100);
            for (TopicPartition partition : records.partitions()) {
                List<ConsumerRecord<String, String>> partitionRecords = records.records(partition);
                found += partitionRecords.size();
                long lastOffset = partitionRecords.get(partitionRecords.size() - 1).offset();
                consumer.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(lastOffset + 1)));
            }
        }
        assertEquals(20, consumer.committed(new TopicPartition(topic, 0)).offset());
        consumer.close();
    }

    @Test void consumerWithSeek() throws Exception {
        String topic = unique("tutorial-seek");
        produce(topic, 30);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerProps(unique("g"), false));
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.assign(Arrays.asList(partition));
        consumer.seek(partition, 25);
        Map<Long, String> found = new HashMap<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (found.size() < 5 && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<String, String> record : consumer.poll(100)) {
                found.put(record.offset(), record.value());
            }
        }
        consumer.close();
        assertEquals("25", found.get(25L));
        assertEquals(5, found.size());
    }

    @Test void severalMembersShareTheTopic() throws Exception {
        String topic = Compat.createTopic("tutorial-members", 3);
        String group = unique("g");
        Set<String> values = new ConcurrentSkipListSet<>();
        CountDownLatch done = new CountDownLatch(60);
        Thread[] members = new Thread[3];
        for (int i = 0; i < 3; i++) {
            members[i] = new Thread(() -> {
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerProps(group, true));
                consumer.subscribe(Arrays.asList(topic));
                while (done.getCount() > 0) {
                    for (ConsumerRecord<String, String> record : consumer.poll(50)) {
                        if (values.add(record.value())) {
                            done.countDown();
                        }
                    }
                }
                consumer.close();
            });
            members[i].start();
        }
        produce(topic, 60);
        boolean all = done.await(PATIENCE_MS, TimeUnit.MILLISECONDS);
        while (done.getCount() > 0) {
            done.countDown();
        }
        for (Thread member : members) {
            member.join(PATIENCE_MS);
        }
        assertTrue(all);
    }
}
