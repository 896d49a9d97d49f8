package compat;

import static compat.Compat.*;
import static org.junit.jupiter.api.Assertions.*;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.junit.jupiter.api.Test;

class AdminTest {
    private static <E extends Throwable> void fails(Class<E> expected, org.junit.jupiter.api.function.Executable call) {
        assertInstanceOf(expected, assertThrows(ExecutionException.class, call).getCause());
    }

    @Test void createListDelete() throws Exception {
        String topic = createTopic("j-admin", 3);
        try (AdminClient admin = admin()) {
            assertTrue(admin.listTopics().names().get().contains(topic));
            admin.deleteTopics(Collections.singleton(topic)).all().get();
            await("the topic to go", () -> !admin.listTopics().names().get().contains(topic));
            fails(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(Collections.singleton(topic)).all().get());
        }
    }

    @Test void creationErrors() throws Exception {
        String topic = createTopic("j-errors", 1);
        try (AdminClient admin = admin()) {
            fails(TopicExistsException.class, () -> admin.createTopics(Collections.singleton(new NewTopic(topic, 1, (short) 1))).all().get());
            fails(InvalidTopicException.class, () -> admin.createTopics(Collections.singleton(new NewTopic("a b", 1, (short) 1))).all().get());
            fails(InvalidPartitionsException.class, () -> admin.createTopics(Collections.singleton(new NewTopic(unique("j"), 0, (short) 1))).all().get());
            fails(InvalidReplicationFactorException.class, () -> admin.createTopics(Collections.singleton(new NewTopic(unique("j"), 1, (short) 3))).all().get());
        }
    }

    @Test void createWithConfigsAndDescribe() throws Exception {
        assumeTrue(clientAtLeast(1, 1));    // DescribeConfigs 1
        String topic = unique("j-config");
        try (AdminClient admin = admin()) {
            NewTopic created = new NewTopic(topic, Collections.singletonMap(0, Collections.singletonList(1)));
            created.configs(Collections.singletonMap("retention.ms", "3600000"));
            admin.createTopics(Collections.singleton(created)).all().get();
            awaitTopic(admin, topic);
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            Config config = admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource);
            assertEquals("3600000", config.get("retention.ms").value());
            assertFalse(config.get("retention.ms").isDefault());
            assertEquals("delete", config.get("cleanup.policy").value());
            assertTrue(config.get("cleanup.policy").isDefault());
        }
    }

    @Test void createPartitions() throws Exception {
        String topic = createTopic("j-grow", 1);
        try (AdminClient admin = admin(); KafkaConsumer<String, String> consumer = consumer(null)) {
            admin.createPartitions(Collections.singletonMap(topic, NewPartitions.increaseTo(4))).all().get();
            await("4 partitions", () -> consumer.partitionsFor(topic).size() == 4);
            fails(InvalidPartitionsException.class, () -> admin.createPartitions(Collections.singletonMap(topic, NewPartitions.increaseTo(2))).all().get());
        }
    }

    @Test void describeCluster() throws Exception {
        try (AdminClient admin = admin()) {
            assertEquals(1, admin.describeCluster().nodes().get().size());
            assertNotNull(admin.describeCluster().clusterId().get());
            assertNotNull(admin.describeCluster().controller().get());
        }
    }

    @Test void describeBrokerConfig() throws Exception {
        assumeTrue(clientAtLeast(1, 1));
        try (AdminClient admin = admin()) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, "1");
            Map<ConfigResource, Config> found = admin.describeConfigs(Arrays.asList(resource)).all().get();
            assertEquals("1", found.get(resource).get("node.id").value());
            assertNotNull(found.get(resource).get("log.retention.hours").value());
        }
    }
}
