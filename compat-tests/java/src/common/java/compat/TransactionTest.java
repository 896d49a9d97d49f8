package compat;

import static compat.Compat.*;
import static org.junit.jupiter.api.Assertions.*;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.Test;

/** Transactions, by the words that clients have had since 0.11. */
class TransactionTest {
    private static KafkaProducer<String, String> transactional(String id, String... pairs) {
        String[] all = Arrays.copyOf(new String[] {"transactional.id", id, "max.block.ms", "60000"}, 4 + pairs.length);
        System.arraycopy(pairs, 0, all, 4, pairs.length);
        return producer(all);
    }

    private static KafkaProducer<String, String> started(String id, String... pairs) {
        KafkaProducer<String, String> producer = transactional(id, pairs);
        producer.initTransactions();
        return producer;
    }

    private static void sendAll(Producer<String, String> producer, String topic, int partition, int from, int to) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (int i = from; i < to; i++) {
            futures.add(producer.send(new ProducerRecord<>(topic, partition, "k", String.valueOf(i))));
        }
        for (Future<RecordMetadata> future : futures) {
            future.get();
        }
    }

    private static KafkaConsumer<String, String> reader(String topic, String isolation) {
        KafkaConsumer<String, String> consumer = consumer(null, "isolation.level", isolation);
        List<TopicPartition> partitions = new ArrayList<>();
        consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        return consumer;
    }

    private static KafkaConsumer<String, String> committedOnly(String topic) {
        return reader(topic, "read_committed");
    }

    private static long end(KafkaConsumer<String, String> consumer, String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        return consumer.endOffsets(Collections.singleton(partition)).get(partition);
    }

    @Test void committedRecordsAreReadByAllAndOpenOnesByTheUncommittedOnly() throws Exception {
        String topic = createTopic("j-tx", 1);
        try (KafkaProducer<String, String> producer = started(unique("tx"));
             KafkaConsumer<String, String> committed = committedOnly(topic);
             KafkaConsumer<String, String> uncommitted = reader(topic, "read_uncommitted")) {
            producer.beginTransaction();
            sendAll(producer, topic, 0, 0, 10);
            assertEquals(range(0, 10), sortedValues(take(uncommitted, 10)));
            assertEquals(0, end(committed, topic));
            assertEquals(10, end(uncommitted, topic));
            assertTrue(poll(committed, 500).isEmpty());
            producer.commitTransaction();
            assertEquals(range(0, 10), sortedValues(take(committed, 10)));
            // The marker takes an offset.
            await("the last stable offset", () -> end(committed, topic) == 11);
        }
    }

    @Test void abortedRecordsAreNeverReadByTheCommitted() throws Exception {
        String topic = createTopic("j-tx", 1);
        try (KafkaProducer<String, String> producer = started(unique("tx"));
             KafkaConsumer<String, String> committed = committedOnly(topic);
             KafkaConsumer<String, String> uncommitted = reader(topic, "read_uncommitted")) {
            producer.beginTransaction();
            sendAll(producer, topic, 0, 0, 5);
            producer.abortTransaction();
            producer.beginTransaction();
            sendAll(producer, topic, 0, 5, 10);
            producer.commitTransaction();
            assertEquals(range(5, 10), sortedValues(take(committed, 5)));
            assertEquals(range(0, 10), sortedValues(take(uncommitted, 10)));
        }
    }

    @Test void aTransactionIsAllOrNothingOnEveryPartition() throws Exception {
        String topic = createTopic("j-tx", 3);
        String other = createTopic("j-tx", 2);
        try (KafkaProducer<String, String> producer = started(unique("tx"));
             KafkaConsumer<String, String> consumer = committedOnly(topic);
             KafkaConsumer<String, String> otherConsumer = committedOnly(other)) {
            for (int round = 0; round < 4; round++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 3; partition++) {
                    sendAll(producer, topic, partition, round * 10, round * 10 + 1);
                    sendAll(producer, other, partition % 2, round * 10, round * 10 + 1);
                }
                if (round % 2 == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            assertEquals(Arrays.asList(10, 10, 10, 30, 30, 30), sortedValues(take(consumer, 6)));
            assertEquals(Arrays.asList(10, 10, 10, 30, 30, 30), sortedValues(take(otherConsumer, 6)));
        }
    }

    @Test void manyTransactionsInARowKeepTheirOrder() throws Exception {
        String topic = createTopic("j-tx", 1);
        List<String> expected = new ArrayList<>();
        try (KafkaProducer<String, String> producer = started(unique("tx")); KafkaConsumer<String, String> committed = committedOnly(topic)) {
            for (int i = 0; i < 60; i++) {
                producer.beginTransaction();
                Future<RecordMetadata> sent = producer.send(new ProducerRecord<>(topic, 0, "k", String.valueOf(i)));
                if (i % 3 == 2) {
                    // On the log before its abort. The client forgets to drop a record that is not yet on its way if its network
                    // thread, in Sender.maybeSendAndPollTransactionalRequest, asked for incomplete batches before send() and takes
                    // the EndTxn that abortTransaction() has queued since: the next transaction then sends the record and commits it.
                    sent.get();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    expected.add(String.valueOf(i));
                }
            }
            List<String> values = new ArrayList<>();
            for (ConsumerRecord<String, String> record : take(committed, expected.size())) {
                values.add(record.value());
            }
            assertEquals(expected, values);
        }
    }

    @Test void transactionWithoutRecordsEndsEitherWay() throws Exception {
        String topic = createTopic("j-tx", 1);
        try (KafkaProducer<String, String> producer = started(unique("tx")); KafkaConsumer<String, String> committed = committedOnly(topic)) {
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            sendAll(producer, topic, 0, 0, 1);
            producer.commitTransaction();
            assertEquals(range(0, 1), sortedValues(take(committed, 1)));
        }
    }

    /** What a producer that was fenced throws differs between versions; that it throws does not. */
    @Test void secondProducerFencesTheFirstAndAbortsItsTransaction() throws Exception {
        String topic = createTopic("j-tx", 1);
        String id = unique("tx");
        try (KafkaConsumer<String, String> committed = committedOnly(topic)) {
            KafkaProducer<String, String> first = started(id);
            first.beginTransaction();
            sendAll(first, topic, 0, 0, 3);
            try (KafkaProducer<String, String> second = started(id)) {
                assertThrows(KafkaException.class, first::commitTransaction);
                second.beginTransaction();
                sendAll(second, topic, 0, 3, 5);
                second.commitTransaction();
            }
            close(first);
            assertEquals(range(3, 5), sortedValues(take(committed, 2)));
        }
    }

    @Test void fencedProducerCannotSend() throws Exception {
        String topic = createTopic("j-tx", 1);
        String id = unique("tx");
        KafkaProducer<String, String> first = started(id);
        try (KafkaProducer<String, String> second = started(id); KafkaConsumer<String, String> committed = committedOnly(topic)) {
            assertThrows(Exception.class, () -> {
                first.beginTransaction();
                sendAll(first, topic, 0, 0, 1);
                first.commitTransaction();
            });
            second.beginTransaction();
            sendAll(second, topic, 0, 7, 8);
            second.commitTransaction();
            assertEquals(range(7, 8), sortedValues(take(committed, 1)));
        }
        close(first);
    }

    @Test void transactionThatIsOpenForTooLongIsAborted() throws Exception {
        String topic = createTopic("j-tx", 1);
        KafkaProducer<String, String> producer = started(unique("tx"), "transaction.timeout.ms", "1000");
        try (KafkaConsumer<String, String> committed = committedOnly(topic)) {
            producer.beginTransaction();
            sendAll(producer, topic, 0, 0, 3);
            assertEquals(0, end(committed, topic));
            await("the abort", () -> end(committed, topic) == 4);
            assertThrows(KafkaException.class, producer::commitTransaction);
            assertTrue(poll(committed, 500).isEmpty());
        }
        close(producer);
    }

    @Test void timeoutBeyondTheBrokersIsRefused() {
        KafkaProducer<String, String> producer = transactional(unique("tx"), "transaction.timeout.ms", "1000000");
        assertThrows(KafkaException.class, producer::initTransactions);
        close(producer);
    }

    private static Object groupMetadata(Consumer<?, ?> consumer) throws ReflectiveOperationException {
        return Consumer.class.getMethod("groupMetadata").invoke(consumer);
    }

    /** By the consumer's metadata from 2.5 on (KIP-447), else by the group's name. */
    private static void sendOffsets(Producer<?, ?> producer, Map<TopicPartition, OffsetAndMetadata> offsets, KafkaConsumer<?, ?> consumer, String group)
            throws Exception {
        if (clientAtLeast(2, 5)) {
            sendOffsets(producer, offsets, groupMetadata(consumer));
        } else {
            sendOffsetsOfGroup(producer, offsets, group);
        }
    }

    private static void sendOffsets(Producer<?, ?> producer, Map<TopicPartition, OffsetAndMetadata> offsets, Object groupMetadata) throws Exception {
        Class<?> metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
        invoke(Producer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata), producer, offsets, groupMetadata);
    }

    private static void sendOffsetsOfGroup(Producer<?, ?> producer, Map<TopicPartition, OffsetAndMetadata> offsets, String group) throws Exception {
        invoke(Producer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class), producer, offsets, group);
    }

    private static void invoke(java.lang.reflect.Method method, Object target, Object... arguments) throws Exception {
        try {
            method.invoke(target, arguments);
        } catch (InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }

    /** By committed(Set) where the client has it (2.4 on), else by committed(TopicPartition). */
    private static Long committed(KafkaConsumer<String, String> consumer, TopicPartition partition) throws ReflectiveOperationException {
        Object offset = clientAtLeast(2, 4)
            ? ((Map<?, ?>) Consumer.class.getMethod("committed", java.util.Set.class).invoke(consumer, Collections.singleton(partition))).get(partition)
            : Consumer.class.getMethod("committed", TopicPartition.class).invoke(consumer, partition);
        return offset == null ? null : ((OffsetAndMetadata) offset).offset();
    }

    @Test void offsetsAreCommittedWithTheTransactionAndDroppedWithIt() throws Exception {
        String topic = createTopic("j-tx", 1);
        String group = unique("g");
        TopicPartition partition = new TopicPartition(topic, 0);
        send(topic, 10);
        try (KafkaProducer<String, String> producer = started(unique("tx")); KafkaConsumer<String, String> consumer = consumer(group)) {
            consumer.subscribe(Collections.singleton(topic));
            take(consumer, 10);
            producer.beginTransaction();
            sendOffsets(producer, Collections.singletonMap(partition, new OffsetAndMetadata(4)), consumer, group);
            producer.abortTransaction();
            assertNull(committed(consumer, partition));
            producer.beginTransaction();
            sendOffsets(producer, Collections.singletonMap(partition, new OffsetAndMetadata(6, "note")), consumer, group);
            producer.commitTransaction();
            await("the offset", () -> Long.valueOf(6).equals(committed(consumer, partition)));
            producer.beginTransaction();
            sendOffsets(producer, Collections.singletonMap(partition, new OffsetAndMetadata(8)), consumer, group);
            producer.abortTransaction();
            await("the offset", () -> Long.valueOf(6).equals(committed(consumer, partition)));
        }
    }

    private void offsetsOfOneThatLeft(String... protocol) throws Exception {
        String topic = createTopic("j-tx", 1);
        String group = unique("g");
        TopicPartition partition = new TopicPartition(topic, 0);
        send(topic, 1);
        Object stale;
        try (KafkaConsumer<String, String> gone = consumer(group, protocol)) {
            gone.subscribe(Collections.singleton(topic));
            take(gone, 1);
            stale = groupMetadata(gone);
        }
        try (KafkaProducer<String, String> producer = started(unique("tx")); KafkaConsumer<String, String> current = consumer(group, protocol);
             KafkaConsumer<String, String> reader = committedOnly(topic)) {
            current.subscribe(Collections.singleton(topic));
            take(current, 1);
            producer.beginTransaction();
            sendAll(producer, topic, 0, 1, 2);
            // The client may hear of it when it sends the offsets, or when it commits.
            assertThrows(CommitFailedException.class, () -> {
                sendOffsets(producer, Collections.singletonMap(partition, new OffsetAndMetadata(1)), stale);
                producer.commitTransaction();
            });
            producer.abortTransaction();
            assertNull(committed(current, partition));
            producer.beginTransaction();
            sendAll(producer, topic, 0, 2, 3);
            sendOffsets(producer, Collections.singletonMap(partition, new OffsetAndMetadata(1)), groupMetadata(current));
            producer.commitTransaction();
            await("the offset", () -> Long.valueOf(1).equals(committed(current, partition)));
            assertEquals(Arrays.asList(0, 2), sortedValues(take(reader, 2)));
        }
    }

    @Test void offsetsOfAMemberThatLeftAreRefused() throws Exception {
        assumeTrue(clientAtLeast(2, 5), "KIP-447");
        offsetsOfOneThatLeft();
    }

    @Test void offsetsOfAMemberOfAConsumerGroupThatLeftAreRefused() throws Exception {
        assumeTrue(clientAtLeast(4, 0), "KIP-848");
        offsetsOfOneThatLeft("group.protocol", "consumer", "session.timeout.ms", null, "heartbeat.interval.ms", null);
    }

    @Test void offsetsByTheNameOfTheGroupAlone() throws Exception {
        // From 4.0 on the name is wrapped into a ConsumerGroupMetadata.
        assumeTrue(!clientAtLeast(4, 0), "sendOffsetsToTransaction(Map, String) is gone");
        String topic = createTopic("j-tx", 1);
        String group = unique("g");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = started(unique("tx")); KafkaConsumer<String, String> consumer = consumer(group)) {
            producer.beginTransaction();
            sendOffsetsOfGroup(producer, Collections.singletonMap(partition, new OffsetAndMetadata(3)), group);
            producer.abortTransaction();
            assertNull(committed(consumer, partition));
            producer.beginTransaction();
            sendOffsetsOfGroup(producer, Collections.singletonMap(partition, new OffsetAndMetadata(5)), group);
            producer.commitTransaction();
            await("the offset", () -> Long.valueOf(5).equals(committed(consumer, partition)));
        }
    }

    @Test void consumeTransformProduceGivesEachInputOnce() throws Exception {
        String from = createTopic("j-tx-in", 2);
        String to = createTopic("j-tx-out", 2);
        String group = unique("g");
        send(from, 200);
        int done = 0;
        for (int round = 0; done < 200; round++) {
            try (KafkaProducer<String, String> producer = started(group + "-tx"); KafkaConsumer<String, String> consumer = consumer(group)) {
                consumer.subscribe(Collections.singleton(from));
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                await("input", () -> {
                    poll(consumer, 200).forEach(records::add);
                    return !records.isEmpty();
                });
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new java.util.HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(to, record.partition(), record.key(), record.value()));
                    offsets.put(new TopicPartition(from, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                sendOffsets(producer, offsets, consumer, group);
                if (round == 0) {
                    // The next round begins where this one did.
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    done += records.size();
                }
            }
        }
        try (KafkaConsumer<String, String> committed = committedOnly(to)) {
            assertEquals(range(0, 200), sortedValues(take(committed, 200)));
            assertTrue(poll(committed, 500).isEmpty());
        }
    }

    @Test void producerStartedAnewGoesOnAfterAnOpenTransaction() throws Exception {
        String topic = createTopic("j-tx", 1);
        String id = unique("tx");
        KafkaProducer<String, String> abandoned = started(id);
        abandoned.beginTransaction();
        sendAll(abandoned, topic, 0, 0, 2);
        try (KafkaConsumer<String, String> committed = committedOnly(topic)) {
            for (int i = 0; i < 5; i++) {
                try (KafkaProducer<String, String> producer = started(id)) {
                    producer.beginTransaction();
                    sendAll(producer, topic, 0, 10 + i, 11 + i);
                    producer.commitTransaction();
                }
            }
            assertEquals(range(10, 15), sortedValues(take(committed, 5)));
        }
        close(abandoned);
    }

    /** Without a wait for what it cannot send any more. */
    private static void close(KafkaProducer<String, String> producer) {
        try {
            if (clientAtLeast(2, 0)) {
                KafkaProducer.class.getMethod("close", java.time.Duration.class).invoke(producer, java.time.Duration.ZERO);
            } else {
                KafkaProducer.class.getMethod("close", long.class, java.util.concurrent.TimeUnit.class)
                    .invoke(producer, 0L, java.util.concurrent.TimeUnit.MILLISECONDS);
            }
        } catch (ReflectiveOperationException error) {
            throw new RuntimeException(error);
        }
    }
}
