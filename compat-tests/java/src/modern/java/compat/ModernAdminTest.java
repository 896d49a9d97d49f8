package compat;

import static compat.Compat.*;
import static org.junit.jupiter.api.Assertions.*;

import java.util.Collections;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.Test;

/** Admin calls that came after 1.0. */
class ModernAdminTest {
    @Test void groups() throws Exception {
        String topic = createTopic("j-groups", 2);
        String group = unique("g");
        TopicPartition partition = new TopicPartition(topic, 0);
        send(topic, 6);
        try (AdminClient admin = admin()) {
            try (KafkaConsumer<String, String> consumer = consumer(group)) {
                consumer.subscribe(Collections.singleton(topic));
                take(consumer, 6);
                consumer.commitSync();
                ConsumerGroupDescription description = admin.describeConsumerGroups(Collections.singleton(group)).all().get().get(group);
                assertEquals(1, description.members().size());
                assertEquals(2, description.members().iterator().next().assignment().topicPartitions().size());
                assertEquals("range", description.partitionAssignor());
                assertEquals("consumer", admin.listConsumerGroups().all().get().stream().filter(g -> g.groupId().equals(group))
                    .map(g -> g.isSimpleConsumerGroup() ? "simple" : "consumer").collect(Collectors.joining()));
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            assertEquals(6, offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum());
            admin.alterConsumerGroupOffsets(group, Collections.singletonMap(partition, new OffsetAndMetadata(0, "reset"))).all().get();
            assertEquals("reset", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition).metadata());
            admin.deleteConsumerGroups(Collections.singleton(group)).all().get();
            assertFalse(admin.listConsumerGroups().all().get().stream().map(ConsumerGroupListing::groupId).anyMatch(group::equals));
        }
    }

    @Test void listOffsets() throws Exception {
        String topic = createTopic("j-listoffsets", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        send(topic, 5);
        try (AdminClient admin = admin()) {
            assertEquals(0, offset(admin, partition, OffsetSpec.earliest()).offset());
            assertEquals(5, offset(admin, partition, OffsetSpec.latest()).offset());
            assertEquals(0, offset(admin, partition, OffsetSpec.forTimestamp(1)).offset());
        }
    }

    private static ListOffsetsResult.ListOffsetsResultInfo offset(AdminClient admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Collections.singletonMap(partition, spec)).partitionResult(partition).get();
    }

    @Test void staticMemberReturnsWithoutRebalance() throws Exception {
        String topic = createTopic("j-static", 2);
        String group = unique("g");
        String[] config = {"group.instance.id", "one", "session.timeout.ms", "30000"};
        send(topic, 4);
        int generation;
        try (KafkaConsumer<String, String> consumer = consumer(group, config)) {
            consumer.subscribe(Collections.singleton(topic));
            take(consumer, 4);
            consumer.commitSync();
            generation = consumer.groupMetadata().generationId();
        }
        send(topic, 2);
        try (KafkaConsumer<String, String> consumer = consumer(group, config)) {
            consumer.subscribe(Collections.singleton(topic));
            take(consumer, 2);
            assertEquals(generation, consumer.groupMetadata().generationId());
        }
    }
}
