package compat;

import static compat.Compat.*;
import static org.junit.jupiter.api.Assertions.*;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.junit.jupiter.api.Test;

class ConsumerTest {
    private static final ConsumerRebalanceListener NO_LISTENER = new ConsumerRebalanceListener() {
        @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

        @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
    };

    @Test void subscribe() throws Exception {
        String topic = createTopic("j-subscribe", 3);
        send(topic, 90);
        try (KafkaConsumer<String, String> consumer = consumer(unique("g"))) {
            consumer.subscribe(Collections.singleton(topic));
            assertEquals(range(0, 90), sortedValues(take(consumer, 90)));
        }
    }

    @Test void subscribePattern() throws Exception {
        String prefix = unique("j-pattern");
        String first = createTopic(prefix, 1);
        String second = createTopic(prefix, 1);
        send(first, 5);
        send(second, 5);
        try (KafkaConsumer<String, String> consumer = consumer(unique("g"))) {
            consumer.subscribe(Pattern.compile(prefix + ".*"), NO_LISTENER);
            Set<String> topics = new HashSet<>();
            take(consumer, 10).forEach(record -> topics.add(record.topic()));
            assertEquals(new HashSet<>(Arrays.asList(first, second)), topics);
        }
    }

    @Test void assignAndSeek() throws Exception {
        String topic = createTopic("j-seek", 1);
        send(topic, 50);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            consumer.assign(Collections.singleton(partition));
            consumer.seek(partition, 42);
            assertEquals(42, take(consumer, 8).get(0).offset());
            consumer.seekToBeginning(Collections.singleton(partition));
            assertEquals(0, take(consumer, 50).get(0).offset());
            consumer.seekToEnd(Collections.singleton(partition));
            assertEquals(50, consumer.position(partition));
            assertEquals(Collections.singletonMap(partition, 0L), consumer.beginningOffsets(Collections.singleton(partition)));
            assertEquals(Collections.singletonMap(partition, 50L), consumer.endOffsets(Collections.singleton(partition)));
        }
    }

    @Test void offsetOutOfRangeResets() throws Exception {
        String topic = createTopic("j-range", 1);
        send(topic, 5);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            consumer.assign(Collections.singleton(partition));
            consumer.seek(partition, 1000);
            assertEquals(0, take(consumer, 5).get(0).offset());
        }
    }

    @Test void pauseAndResume() throws Exception {
        String topic = createTopic("j-pause", 2);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        try (KafkaProducer<String, String> producer = producer()) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, i % 2, null, String.valueOf(i)));
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            consumer.assign(Arrays.asList(first, second));
            consumer.seekToBeginning(Arrays.asList(first, second));
            consumer.pause(Collections.singleton(first));
            take(consumer, 5).forEach(record -> assertEquals(1, record.partition()));
            consumer.resume(Collections.singleton(first));
            take(consumer, 5).forEach(record -> assertEquals(0, record.partition()));
        }
    }

    @Test void commitSyncAndResume() throws Exception {
        String topic = createTopic("j-commit", 1);
        String group = unique("g");
        TopicPartition partition = new TopicPartition(topic, 0);
        send(topic, 10);
        try (KafkaConsumer<String, String> consumer = consumer(group)) {
            consumer.subscribe(Collections.singleton(topic));
            take(consumer, 10);
            consumer.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(6, "six")));
        }
        try (KafkaConsumer<String, String> consumer = consumer(group)) {
            consumer.subscribe(Collections.singleton(topic));
            assertEquals(range(6, 10), sortedValues(take(consumer, 4)));
        }
    }

    @Test void commitMetadataIsKept() throws Exception {
        String topic = createTopic("j-metadata", 1);
        String group = unique("g");
        TopicPartition partition = new TopicPartition(topic, 0);
        send(topic, 3);
        try (KafkaConsumer<String, String> consumer = consumer(group)) {
            consumer.assign(Collections.singleton(partition));
            take(consumer, 3);
            consumer.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(3, "a note")));
            OffsetAndMetadata committed = committed(consumer, partition);
            assertEquals(3, committed.offset());
            assertEquals("a note", committed.metadata());
        }
    }

    @Test void commitAsync() throws Exception {
        String topic = createTopic("j-async", 1);
        send(topic, 4);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(unique("g"))) {
            consumer.subscribe(Collections.singleton(topic));
            take(consumer, 4);
            AtomicReference<Map<TopicPartition, OffsetAndMetadata>> told = new AtomicReference<>();
            AtomicReference<Exception> failure = new AtomicReference<>();
            consumer.commitAsync((offsets, error) -> {
                failure.set(error);
                told.set(offsets);
            });
            await("the commit's callback", () -> {
                poll(consumer, 100);
                return told.get() != null;
            });
            assertNull(failure.get());
            assertEquals(4, told.get().get(partition).offset());
            assertEquals(4, committed(consumer, partition).offset());
        }
    }

    @Test void autoCommit() throws Exception {
        String topic = createTopic("j-autocommit", 1);
        String group = unique("g");
        TopicPartition partition = new TopicPartition(topic, 0);
        send(topic, 7);
        try (KafkaConsumer<String, String> consumer = consumer(group, "enable.auto.commit", "true", "auto.commit.interval.ms", "100")) {
            consumer.subscribe(Collections.singleton(topic));
            take(consumer, 7);
            await("the automatic commit", () -> {
                poll(consumer, 50);
                OffsetAndMetadata committed = committed(consumer, partition);
                return committed != null && committed.offset() == 7;
            });
        }
        try (KafkaConsumer<String, String> probe = consumer(group)) {
            assertEquals(7, committed(probe, partition).offset());
        }
    }

    @Test void offsetsForTimes() throws Exception {
        String topic = createTopic("j-times", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer()) {
            for (int i = 0; i < 20; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + 1000 * i, null, "v"));
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            Map<TopicPartition, OffsetAndTimestamp> found = consumer.offsetsForTimes(Collections.singletonMap(partition, 1_700_000_006_500L));
            assertEquals(7, found.get(partition).offset());
            assertEquals(1_700_000_007_000L, found.get(partition).timestamp());
            assertNull(consumer.offsetsForTimes(Collections.singletonMap(partition, 1_800_000_000_000L)).get(partition));
        }
    }

    @Test void listTopics() throws Exception {
        String topic = createTopic("j-list", 2);
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            assertEquals(2, consumer.listTopics().get(topic).size());
        }
    }

    @Test void wakeup() throws Exception {
        String topic = createTopic("j-wakeup", 1);
        try (KafkaConsumer<String, String> consumer = consumer(unique("g"))) {
            consumer.subscribe(Collections.singleton(topic));
            consumer.wakeup();
            assertThrows(WakeupException.class, () -> poll(consumer, 30_000));
        }
    }

    @Test void readCommittedOfPlainRecords() throws Exception {
        String topic = createTopic("j-committed", 1);
        send(topic, 12);
        try (KafkaConsumer<String, String> consumer = consumer(unique("g"), "isolation.level", "read_committed")) {
            consumer.subscribe(Collections.singleton(topic));
            assertEquals(range(0, 12), sortedValues(take(consumer, 12)));
        }
    }

    @Test void maxPollRecords() throws Exception {
        String topic = createTopic("j-max", 1);
        send(topic, 20);
        try (KafkaConsumer<String, String> consumer = consumer(unique("g"), "max.poll.records", "3")) {
            consumer.subscribe(Collections.singleton(topic));
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            await("20 records", () -> {
                int before = found.size();
                poll(consumer, 200).forEach(found::add);
                assertTrue(found.size() - before <= 3);
                return found.size() == 20;
            });
        }
    }

    /** Three members join one after the other, one leaves: each time every partition has exactly one owner. */
    private static void rebalance(String assignor) throws Exception {
        assumeTrue(classExists(assignor));
        String topic = createTopic("j-rebalance", 6);
        String group = unique("g");
        Map<Integer, Set<TopicPartition>> owned = Collections.synchronizedMap(new HashMap<>());
        List<Thread> threads = new ArrayList<>();
        List<AtomicBoolean> stops = new ArrayList<>();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        try {
            for (int member = 0; member < 3; member++) {
                int number = member;
                AtomicBoolean stop = new AtomicBoolean();
                Thread thread = new Thread(() -> {
                    try (KafkaConsumer<String, String> consumer = consumer(group, "partition.assignment.strategy", assignor)) {
                        consumer.subscribe(Collections.singleton(topic), NO_LISTENER);
                        while (!stop.get()) {
                            poll(consumer, 50);
                            owned.put(number, new HashSet<>(consumer.assignment()));
                        }
                        owned.remove(number);
                    } catch (Throwable error) {
                        failure.set(error);
                    }
                });
                stops.add(stop);
                threads.add(thread);
                thread.start();
                int each = 6 / (member + 1);
                await((member + 1) + " members with " + each + " partitions", () -> balanced(owned, number + 1, each, failure));
            }
            stops.get(0).set(true);
            await("2 members with 3 partitions", () -> balanced(owned, 2, 3, failure));
        } finally {
            stops.forEach(stop -> stop.set(true));
            for (Thread thread : threads) {
                thread.join(PATIENCE_MS);
            }
        }
        assertNull(failure.get());
    }

    private static boolean balanced(Map<Integer, Set<TopicPartition>> owned, int members, int each, AtomicReference<Throwable> failure)
            throws InterruptedException {
        if (failure.get() != null) {
            throw new AssertionError(failure.get());
        }
        Thread.sleep(10);
        synchronized (owned) {
            Set<TopicPartition> all = new HashSet<>();
            owned.values().forEach(all::addAll);
            return owned.size() == members && all.size() == 6 && owned.values().stream().allMatch(mine -> mine.size() == each);
        }
    }

    @Test void rebalanceRange() throws Exception { rebalance("org.apache.kafka.clients.consumer.RangeAssignor"); }
    @Test void rebalanceRoundRobin() throws Exception { rebalance("org.apache.kafka.clients.consumer.RoundRobinAssignor"); }
    @Test void rebalanceSticky() throws Exception { rebalance("org.apache.kafka.clients.consumer.StickyAssignor"); }
    @Test void rebalanceCooperativeSticky() throws Exception { rebalance("org.apache.kafka.clients.consumer.CooperativeStickyAssignor"); }

    /** committed(Set) where the client has it (2.4 on), else committed(TopicPartition). */
    @SuppressWarnings("unchecked")
    private static OffsetAndMetadata committed(KafkaConsumer<String, String> consumer, TopicPartition partition) throws Exception {
        try {
            return ((Map<TopicPartition, OffsetAndMetadata>) KafkaConsumer.class.getMethod("committed", Set.class)
                .invoke(consumer, Collections.singleton(partition))).get(partition);
        } catch (NoSuchMethodException old) {
            return (OffsetAndMetadata) KafkaConsumer.class.getMethod("committed", TopicPartition.class).invoke(consumer, partition);
        }
    }
}
