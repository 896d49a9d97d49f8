package compat;

import static compat.Compat.PATIENCE_MS;
import static org.junit.jupiter.api.Assertions.*;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.Test;

/** Two halves by name, not found by a plain run: `write`, then a new container on the same volume, then `read`. */
class KeptVolume {
    private static final String TOPIC = "kept-volume";
    private static final int RECORDS = 1000;
    private static final int CONSUMED = 400;

    @Test void write() throws Exception {
        try (AdminClient admin = Compat.admin()) {
            admin.createTopics(Collections.singleton(new NewTopic(TOPIC, 3, (short) 1))).all().get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            Compat.awaitTopic(admin, TOPIC);
        }
        Compat.send(TOPIC, RECORDS);
        try (KafkaConsumer<String, String> member = Compat.consumer(TOPIC, "max.poll.records", "100")) {
            member.subscribe(Collections.singleton(TOPIC));
            Compat.take(member, CONSUMED);
            member.commitSync();
        }
    }

    @Test void read() throws Exception {
        String clusterId = System.getenv("CLUSTER_ID");
        try (AdminClient admin = Compat.admin()) {
            assertEquals(clusterId, admin.describeCluster().clusterId().get(PATIENCE_MS, TimeUnit.MILLISECONDS));
        }
        Set<TopicPartition> partitions = new HashSet<>();
        for (int partition = 0; partition < 3; partition++) {
            partitions.add(new TopicPartition(TOPIC, partition));
        }
        try (KafkaConsumer<String, String> reader = Compat.consumer(null)) {
            reader.assign(partitions);
            List<ConsumerRecord<String, String>> all = Compat.take(reader, RECORDS);
            assertEquals(Compat.range(0, RECORDS), Compat.sortedValues(all));
            assertOrder(all, Collections.emptyMap());
        }
        try (KafkaConsumer<String, String> member = Compat.consumer(TOPIC)) {
            Map<TopicPartition, Long> committed = new HashMap<>();
            for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : member.committed(partitions).entrySet()) {
                committed.put(entry.getKey(), entry.getValue() == null ? 0L : entry.getValue().offset());
            }
            int consumed = (int) committed.values().stream().mapToLong(Long::longValue).sum();
            assertTrue(consumed >= CONSUMED && consumed < RECORDS, "the group had consumed " + consumed);
            member.subscribe(Collections.singleton(TOPIC));
            List<ConsumerRecord<String, String>> rest = Compat.take(member, RECORDS - consumed);
            assertEquals(RECORDS - consumed, rest.size(), "nothing that was committed comes again");
            assertOrder(rest, committed);
        }
        long next = Compat.send(TOPIC, 1).get(0).offset();
        assertTrue(next > 0, "appended after what was kept, at " + next);
        String created = Compat.unique("created-on-first-use");
        Compat.send(created, 1);
        try (KafkaConsumer<String, String> reader = Compat.consumer(null)) {
            assertEquals(System.getenv("NUM_PARTITIONS"), String.valueOf(reader.partitionsFor(created).size()));
        }
    }

    /** Without a gap in offsets, and in each partition in the order of sending. */
    private static void assertOrder(List<ConsumerRecord<String, String>> records, Map<TopicPartition, Long> first) {
        Map<TopicPartition, List<ConsumerRecord<String, String>>> byPartition = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            byPartition.computeIfAbsent(new TopicPartition(record.topic(), record.partition()), any -> new ArrayList<>()).add(record);
        }
        byPartition.forEach((partition, found) -> {
            long offset = first.getOrDefault(partition, 0L);
            int last = -1;
            for (ConsumerRecord<String, String> record : found) {
                assertEquals(offset++, record.offset(), partition.toString());
                assertTrue(Integer.parseInt(record.value()) > last, partition.toString());
                last = Integer.parseInt(record.value());
            }
        });
    }
}
