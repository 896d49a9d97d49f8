package compat;

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What all tests need, in words that every client from 1.0 on understands. */
public final class Compat {
    public static final String BOOTSTRAP = System.getenv().getOrDefault("BOOTSTRAP", "localhost:9092");
    public static final long PATIENCE_MS = 60_000;

    private Compat() {}

    public static String unique(String prefix) {
        return prefix + "-" + UUID.randomUUID().toString().substring(0, 12);
    }

    /** Pairs of key and value on top of the bootstrap address. */
    public static Properties config(String... pairs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", BOOTSTRAP);
        for (int i = 0; i < pairs.length; i += 2) {
            properties.put(pairs[i], pairs[i + 1]);
        }
        return properties;
    }

    /** Whether the client under test is of this version or newer. */
    public static boolean clientAtLeast(int major, int minor) {
        String[] version = System.getProperty("kafka.clients.version").split("[.]");
        int actual = Integer.parseInt(version[0]) * 1000 + Integer.parseInt(version[1]);
        return actual >= major * 1000 + minor;
    }

    /** A producer that tries again, as new ones do by default: a topic's leader may not know of it yet when the metadata do. */
    public static KafkaProducer<String, String> producer(String... pairs) {
        Properties properties = config("retries", "100");
        properties.putAll(config(pairs));
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    /** A value of null takes a default of ours away. */
    public static KafkaConsumer<String, String> consumer(String group, String... pairs) {
        Properties properties = config("auto.offset.reset", "earliest", "enable.auto.commit", "false", "session.timeout.ms", "10000",
            "heartbeat.interval.ms", "500");
        if (group != null) {
            properties.put("group.id", group);
        }
        for (int i = 0; i < pairs.length; i += 2) {
            if (pairs[i + 1] == null) {
                properties.remove(pairs[i]);
            } else {
                properties.put(pairs[i], pairs[i + 1]);
            }
        }
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    public static AdminClient admin() {
        return AdminClient.create(config());
    }

    public static String createTopic(String prefix, int partitions) throws Exception {
        String topic = unique(prefix);
        try (AdminClient admin = admin()) {
            admin.createTopics(Collections.singleton(new NewTopic(topic, partitions, (short) 1))).all().get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            awaitTopic(admin, topic);
        }
        return topic;
    }

    /** The controller answers a creation before the broker has heard of it. */
    public static void awaitTopic(AdminClient admin, String topic) {
        await(topic, () -> admin.listTopics().names().get().contains(topic));
    }

    /** poll(Duration) where the client has it (2.0 on), else poll(long). */
    @SuppressWarnings("unchecked")
    public static <K, V> ConsumerRecords<K, V> poll(Consumer<K, V> consumer, long millis) {
        try {
            Method byDuration = Consumer.class.getMethod("poll", Duration.class);
            return (ConsumerRecords<K, V>) byDuration.invoke(consumer, Duration.ofMillis(millis));
        } catch (NoSuchMethodException old) {
            try {
                return (ConsumerRecords<K, V>) Consumer.class.getMethod("poll", long.class).invoke(consumer, millis);
            } catch (ReflectiveOperationException error) {
                throw rethrown(error);
            }
        } catch (ReflectiveOperationException error) {
            throw rethrown(error);
        }
    }

    private static RuntimeException rethrown(ReflectiveOperationException error) {
        Throwable cause = error.getCause() == null ? error : error.getCause();
        return cause instanceof RuntimeException ? (RuntimeException) cause : new RuntimeException(cause);
    }

    /** Polls until `count` records are there. */
    public static List<ConsumerRecord<String, String>> take(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        await(count + " records", () -> {
            poll(consumer, 200).forEach(found::add);
            return found.size() >= count;
        });
        return found;
    }

    public static void await(String what, Callable<Boolean> condition) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try {
            while (!condition.call()) {
                if (System.currentTimeMillis() > deadline) {
                    throw new AssertionError("gave up waiting for " + what);
                }
            }
        } catch (RuntimeException | Error error) {
            throw error;
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    /** Sends values "0" to "count-1" with keys "k0".. and waits for all of them. */
    public static List<RecordMetadata> send(String topic, int count, String... producerPairs) throws Exception {
        List<java.util.concurrent.Future<RecordMetadata>> futures = new ArrayList<>();
        List<RecordMetadata> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(producerPairs)) {
            for (int i = 0; i < count; i++) {
                futures.add(producer.send(new ProducerRecord<>(topic, "k" + i, String.valueOf(i))));
            }
            for (java.util.concurrent.Future<RecordMetadata> future : futures) {
                sent.add(future.get(PATIENCE_MS, TimeUnit.MILLISECONDS));
            }
        }
        return sent;
    }

    public static List<Integer> sortedValues(List<ConsumerRecord<String, String>> records) {
        List<Integer> values = new ArrayList<>();
        records.forEach(record -> values.add(Integer.valueOf(record.value())));
        Collections.sort(values);
        return values;
    }

    public static List<Integer> range(int from, int to) {
        Integer[] values = new Integer[to - from];
        for (int i = from; i < to; i++) {
            values[i - from] = i;
        }
        return Arrays.asList(values);
    }

    public static boolean classExists(String name) {
        try {
            Class.forName(name);
            return true;
        } catch (ClassNotFoundException absent) {
            return false;
        }
    }
}
