import java.io.ByteArrayOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The client of the round trip: one process for all of it, so that its idempotent producer lives through the changes of the broker.
 * One command a line on stdin, words split by tabs; the answer is one line, OK or ERROR with a reason.
 */
public final class RoundTrip {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final List<String> PLAIN = List.of("codecs", "segments", "tombstones", "deleted", "steady", "logtime");
    static final List<String> TRANSACTIONAL = List.of("transactions");
    static final long START = 1_700_000_000_000L;

    static String bootstrap;
    static KafkaProducer<byte[], byte[]> steady;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            String answer;
            try {
                run(words);
                answer = "OK";
            } catch (Throwable error) {
                error.printStackTrace();
                answer = "ERROR " + String.valueOf(error).replace('\n', ' ');
            }
            System.setOut(answers);
            answers.println(answer);
            answers.flush();
        }
    }

    static void run(String[] words) throws Exception {
        switch (words[0]) {
            case "bootstrap" -> {
                bootstrap = words[1];
                steady = null;
            }
            case "create" -> create();
            case "write" -> write(words[1], Boolean.parseBoolean(words[2]));
            case "transactions" -> transactions(words[1]);
            case "delete-records" -> deleteRecords();
            case "contents" -> Files.write(Path.of(words[1]), contents(Boolean.parseBoolean(words[2])));
            case "dump-log" -> dumpLog(Path.of(words[1]), Arrays.copyOfRange(words, 2, words.length));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    static Properties config(String... pairs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", ByteArraySerializer.class);
        properties.put("value.serializer", ByteArraySerializer.class);
        properties.put("key.deserializer", ByteArrayDeserializer.class);
        properties.put("value.deserializer", ByteArrayDeserializer.class);
        properties.put("reconnect.backoff.max.ms", "100");
        for (int i = 0; i < pairs.length; i += 2) {
            properties.put(pairs[i], pairs[i + 1]);
        }
        return properties;
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, long timestamp, String key, String value) {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, timestamp, bytes(key), bytes(value));
        record.headers().add("first", bytes("one")).add("first", bytes("again")).add("empty", new byte[0]).add("none", null);
        return record;
    }

    static void create() throws Exception {
        Map<String, Map<String, String>> topics = new LinkedHashMap<>();
        topics.put("codecs", Map.of());
        topics.put("segments", Map.of("segment.bytes", "1048576", "index.interval.bytes", "1024"));
        topics.put("tombstones", Map.of());
        topics.put("deleted", Map.of("segment.bytes", "1048576"));
        topics.put("steady", Map.of());
        topics.put("logtime", Map.of("message.timestamp.type", "LogAppendTime"));
        topics.put("transactions", Map.of());
        // A segment ends when a record's time stamp is 100 ms after its first one's.
        Map<String, String> compacted = Map.of("cleanup.policy", "compact", "segment.ms", "100", "min.cleanable.dirty.ratio", "0.01",
            "delete.retention.ms", "0");
        topics.put("compacted", compacted);
        topics.put("compacted-transactions", compacted);
        try (Admin admin = Admin.create(config())) {
            List<NewTopic> wanted = new ArrayList<>();
            topics.forEach((name, configs) -> wanted.add(new NewTopic(name, 2, (short) 1).configs(configs)));
            admin.createTopics(wanted).all().get(30, TimeUnit.SECONDS);
        }
        // Until all are led: an idempotent producer whose second batch is taken and the first is not comes to no end with Apache Kafka.
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config())) {
            List<TopicPartition> partitions = new ArrayList<>();
            topics.keySet().forEach(topic -> partitions.addAll(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1))));
            consumer.endOffsets(partitions);
        }
    }

    static void write(String round, boolean isFirst) throws Exception {
        long base = START + 1_000_000L * Long.parseLong(round);
        for (String codec : CODECS) {
            for (String idempotent : List.of("true", "false")) {
                try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config("compression.type", codec,
                        "enable.idempotence", idempotent, "linger.ms", "20"))) {
                    List<Future<RecordMetadata>> sent = new ArrayList<>();
                    for (int i = 0; i < 60; i++) {
                        String text = codec + " " + round + " " + i + " " + "x".repeat(i);
                        sent.add(producer.send(record("codecs", i % 2, base + i, i % 3 == 0 ? null : "key " + i, text)));
                        sent.add(producer.send(record("logtime", i % 2, base + i, "key " + i, text)));
                        sent.add(producer.send(record("tombstones", i % 2, base + i, "key " + i, i % 2 == 0 ? null : "")));
                    }
                    finish(producer, sent);
                }
            }
        }
        if (steady == null) {
            steady = new KafkaProducer<>(config("enable.idempotence", "true"));
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            sent.add(steady.send(record("steady", 0, base + i, "key " + i, "steady " + round + " " + i)));
        }
        finish(steady, sent);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config())) {
            sent = new ArrayList<>();
            for (int i = 0; i < 300; i++) {
                sent.add(producer.send(record("segments", 0, base + 10L * i, "key " + i, round + "v".repeat(8_000))));
                sent.add(producer.send(record("deleted", 0, base + 10L * i, "key " + i, round + "d".repeat(8_000))));
            }
            finish(producer, sent);
            compactable(producer, "compacted", round, base);
        }
        commit(round);
    }

    /** The same keys over and over, each pass a segment of its own; some end with a tombstone. */
    static void compactable(KafkaProducer<byte[], byte[]> producer, String topic, String round, long base) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int pass = 0; pass < 6; pass++) {
            for (int i = 0; i < 50; i++) {
                String value = pass == 4 && i % 10 == 0 ? null : round + " pass " + pass + " of " + i;
                if (pass < 5 || i % 10 != 0) {
                    sent.add(producer.send(record(topic, 0, base + 1_000L * pass + i / 25, "key " + i, value)));
                }
            }
            finish(producer, sent);
        }
    }

    static void finish(KafkaProducer<byte[], byte[]> producer, List<Future<RecordMetadata>> sent) throws Exception {
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get(30, TimeUnit.SECONDS);
        }
        sent.clear();
    }

    static void commit(String round) throws Exception {
        for (String group : List.of("group-a", "group-b")) {
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config("group.id", group, "auto.offset.reset", "earliest",
                    "enable.auto.commit", "false", "max.poll.records", "37"))) {
                consumer.subscribe(List.of("codecs"));
                int seen = 0;
                for (long end = System.nanoTime() + 30_000_000_000L; seen < 37 && System.nanoTime() < end; ) {
                    seen += consumer.poll(Duration.ofMillis(200)).count();
                }
                if (seen < 37) {
                    throw new IllegalStateException(group + " got only " + seen + " records");
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (TopicPartition partition : consumer.assignment()) {
                    offsets.put(partition, new OffsetAndMetadata(consumer.position(partition), "round " + round));
                }
                consumer.commitSync(offsets);
            }
        }
    }

    /** Committed and aborted ones, over several partitions, with a group's offsets, and one that is left open. */
    static void transactions(String round) throws Exception {
        long base = START + 1_000_000L * Long.parseLong(round);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config("transactional.id", "id-" + round))) {
            producer.initTransactions();
            for (int i = 0; i < 6; i++) {
                producer.beginTransaction();
                for (int j = 0; j < 20; j++) {
                    producer.send(record("transactions", j % 2, base + j, "key " + j, round + " transaction " + i));
                }
                if (i == 2) {
                    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config("group.id", "group-t"))) {
                        producer.sendOffsetsToTransaction(Map.of(new TopicPartition("codecs", 0), new OffsetAndMetadata(7, "in " + round)),
                            consumer.groupMetadata());
                    }
                }
                if (i % 3 == 1) {
                    // The client may lose track of what is aborted before it is sent.
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            for (int i = 0; i < 2; i++) {
                producer.beginTransaction();
                compactable(producer, "compacted-transactions", round, base + 10_000L * i);
                if (i == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        KafkaProducer<byte[], byte[]> open = new KafkaProducer<>(config("transactional.id", "open-" + round, "transaction.timeout.ms", "900000"));
        open.initTransactions();
        open.beginTransaction();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int j = 0; j < 10; j++) {
            sent.add(open.send(record("transactions", 1, base + j, "key " + j, round + " open")));
        }
        finish(open, sent);
        // Without waiting, or it would abort.
        open.close(Duration.ZERO);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config())) {
            finish(producer, new ArrayList<>(List.of(producer.send(record("transactions", 1, base, "key", round + " behind the open one")))));
        }
    }

    static void deleteRecords() throws Exception {
        try (Admin admin = Admin.create(config())) {
            admin.deleteRecords(Map.of(new TopicPartition("deleted", 0), RecordsToDelete.beforeOffset(150))).all().get(30, TimeUnit.SECONDS);
        }
    }

    /** All that a client can see: one line a fact, in an order that does not depend on the broker. */
    static List<String> contents(boolean withTransactions) throws Exception {
        List<String> lines = new ArrayList<>();
        try (Admin admin = Admin.create(config())) {
            Map<String, TopicDescription> topics =
                new TreeMap<>(admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get(30, TimeUnit.SECONDS));
            for (TopicDescription topic : topics.values()) {
                lines.add("topic " + topic.name() + " " + topic.topicId() + " partitions " + topic.partitions().size());
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic.name());
                admin.describeConfigs(Set.of(resource)).all().get().get(resource).entries().stream()
                    .filter(entry -> entry.source() == org.apache.kafka.clients.admin.ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                    .map(entry -> "config " + topic.name() + " " + entry.name() + "=" + entry.value()).sorted().forEach(lines::add);
            }
            new TreeMap<>(admin.describeFeatures().featureMetadata().get().finalizedFeatures())
                .forEach((name, range) -> lines.add("feature " + name + " " + range.maxVersionLevel()));
            for (String group : List.of("group-a", "group-b", "group-t")) {
                Map<String, String> offsets = new TreeMap<>();
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(30, TimeUnit.SECONDS)
                    .forEach((partition, offset) -> offsets.put(partition.toString(), String.valueOf(offset)));
                offsets.forEach((partition, offset) -> lines.add("offset " + group + " " + partition + " " + offset));
            }
        }
        for (String topic : PLAIN) {
            records(topic, "read_uncommitted", lines);
        }
        for (String topic : TRANSACTIONAL) {
            records(topic, "read_uncommitted", lines);
            records(topic, "read_committed", lines);
        }
        lastValues("compacted", "read_uncommitted", lines);
        lastValues("compacted-transactions", "read_committed", lines);
        return lines;
    }

    static Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> read(String topic, String isolation, List<String> lines) {
        List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> found = new LinkedHashMap<>();
        partitions.forEach(partition -> found.put(partition, new ArrayList<>()));
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config("isolation.level", isolation, "auto.offset.reset", "none"))) {
            consumer.assign(partitions);
            Map<TopicPartition, Long> begins = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            begins.forEach(consumer::seek);
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(topic + " " + isolation + " does not come to its end");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    found.get(new TopicPartition(record.topic(), record.partition())).add(record);
                }
            }
            for (TopicPartition partition : partitions) {
                if (lines != null) {
                    lines.add("range " + partition + " " + isolation + " " + begins.get(partition) + ".." + ends.get(partition));
                }
            }
        }
        return found;
    }

    static void records(String topic, String isolation, List<String> lines) {
        read(topic, isolation, lines).values().stream().flatMap(Collection::stream).forEach(record -> lines.add(text(record, isolation)));
    }

    static String text(ConsumerRecord<byte[], byte[]> record, String isolation) {
        StringBuilder text = new StringBuilder("record ").append(record.topic()).append('-').append(record.partition()).append(' ')
            .append(isolation).append(" @").append(record.offset()).append(" epoch ").append(record.leaderEpoch().orElse(-1)).append(' ')
            .append(record.timestampType()).append(' ').append(record.timestamp());
        text.append(" key ").append(shown(record.key())).append(" value ").append(shown(record.value()));
        for (Header header : record.headers()) {
            text.append(' ').append(header.key()).append('=').append(shown(header.value()));
        }
        return text.toString();
    }

    static String shown(byte[] bytes) {
        if (bytes == null) {
            return "null";
        }
        String text = new String(bytes, StandardCharsets.UTF_8);
        return "'" + (text.length() > 60 ? text.substring(0, 20) + "..." + text.length() + "#" + text.hashCode() : text) + "'";
    }

    /** What compaction must not change; how many records there are is in a line of its own. */
    static void lastValues(String topic, String isolation, List<String> lines) {
        Map<String, String> last = new TreeMap<>();
        int[] count = {0};
        read(topic, isolation, null).values().stream().flatMap(Collection::stream).forEach(record -> {
            count[0]++;
            if (record.value() == null) {
                last.remove(shown(record.key()));
            } else {
                last.put(shown(record.key()), text(record, isolation));
            }
        });
        last.values().forEach(lines::add);
        lines.add("count " + topic + " " + count[0]);
    }

    static void dumpLog(Path output, String[] arguments) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream errors = System.err;
        System.setOut(stream);
        System.setErr(stream);
        try {
            org.apache.kafka.tools.DumpLogSegments.main(arguments);
        } finally {
            System.setErr(errors);
            Files.write(output, printed.toByteArray());
        }
    }
}
