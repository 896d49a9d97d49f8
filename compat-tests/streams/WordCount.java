// Kafka Streams against one node: word count over a repartition topic and a changelog, by two instances; one goes, comes back with an
// empty directory and restores from the changelog. Prints RESULT lines.
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

public class WordCount {
    static final String BOOTSTRAP = System.getenv("BOOTSTRAP");
    static final String RUN = UUID.randomUUID().toString().substring(0, 12);
    static final String APPLICATION = "word-count-" + RUN;
    static final String INPUT = "streams-lines-" + RUN;
    static final String OUTPUT = "streams-counts-" + RUN;
    static final String REPARTITION = APPLICATION + "-by-word-repartition";
    static final String CHANGELOG = APPLICATION + "-counts-changelog";
    static final String[] WORDS = {"jackdaw", "rook", "crow", "raven", "magpie", "jay", "chough"};
    static final long PATIENCE_MS = 60_000;

    static final Map<String, Long> expected = new TreeMap<>();
    static final Map<String, Long> counts = new TreeMap<>();
    static final Random random = new Random(4);
    static boolean failed;

    interface Test { void run() throws Exception; }

    static void check(String feature, Test test) {
        String outcome = "pass", detail = "";
        try {
            test.run();
        } catch (Throwable error) {
            error.printStackTrace(System.out);
            outcome = "fail";
            detail = error.toString().replaceAll("\\s+", " ");
            failed = true;
        }
        System.out.println("RESULT\tkafka streams 4.4\t" + feature + "\t" + outcome + "\t" + detail);
    }

    static void await(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.call()) {
            if (System.currentTimeMillis() > deadline) throw new AssertionError("gave up waiting for " + what);
            Thread.sleep(20);
        }
    }

    static void same(Object expected, Object actual, String what) {
        if (!Objects.equals(expected, actual)) throw new AssertionError(what + ": expected " + expected + ", got " + actual);
    }

    static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(INPUT, Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("by-word", Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(OUTPUT, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    static KafkaStreams start(Path directory) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", BOOTSTRAP);
        properties.put("application.id", APPLICATION);
        properties.put("state.dir", directory.toString());
        properties.put("processing.guarantee", "at_least_once");
        properties.put("commit.interval.ms", "200");
        properties.put("repartition.purge.interval.ms", "500");
        properties.put("consumer.session.timeout.ms", "10000");
        properties.put("consumer.heartbeat.interval.ms", "500");
        properties.put("internal.leave.group.on.close", "true");
        KafkaStreams streams = new KafkaStreams(topology(), properties);
        streams.start();
        return streams;
    }

    static void send(int lines) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", BOOTSTRAP);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < lines; i++) {
                List<String> line = new ArrayList<>();
                for (int word = 0; word < 5; word++) line.add(WORDS[random.nextInt(WORDS.length)]);
                line.forEach(word -> expected.merge(word, 1L, Long::sum));
                producer.send(new ProducerRecord<>(INPUT, "line-" + i, String.join(" ", line)));
            }
        }
    }

    /** What the output topic says last of each word; at least once may count too often, never too seldom, and nothing fails here. */
    static void awaitCounts(KafkaConsumer<String, Long> output) throws Exception {
        await("the counts " + expected, () -> {
            output.poll(Duration.ofMillis(100)).forEach(record -> counts.put(record.key(), record.value()));
            return counts.equals(expected);
        });
    }

    static long earliest(Admin admin, String topic) throws Exception {
        Map<TopicPartition, OffsetSpec> ask = new HashMap<>();
        for (int partition = 0; partition < 3; partition++) ask.put(new TopicPartition(topic, partition), OffsetSpec.earliest());
        return admin.listOffsets(ask).all().get().values().stream().mapToLong(found -> found.offset()).sum();
    }

    public static void main(String[] args) throws Exception {
        Path work = Path.of(args[0]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", BOOTSTRAP);
        try (Admin admin = Admin.create(properties)) {
            admin.createTopics(List.of(new NewTopic(INPUT, 3, (short) 1), new NewTopic(OUTPUT, 1, (short) 1))).all().get();
            run(admin, work);
        }
        System.exit(failed ? 1 : 0);
    }

    static void run(Admin admin, Path work) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", BOOTSTRAP);
        KafkaStreams first = start(work.resolve("first"));
        KafkaStreams[] second = {start(work.resolve("second"))};
        try (KafkaConsumer<String, Long> output = new KafkaConsumer<>(properties, new StringDeserializer(), new LongDeserializer())) {
            output.assign(List.of(new TopicPartition(OUTPUT, 0)));
            output.seekToBeginning(output.assignment());
            check("word-count", () -> {
                send(500);
                awaitCounts(output);
            });
            check("two-instances", () -> await("tasks at both instances", () -> first.state() == KafkaStreams.State.RUNNING
                && second[0].state() == KafkaStreams.State.RUNNING && tasks(first) > 0 && tasks(second[0]) > 0
                && tasks(first) + tasks(second[0]) == 6));
            check("internal-topics", () -> {
                same(List.of("3", "compact"), shape(admin, CHANGELOG, "cleanup.policy"), "changelog");
                same(List.of("3", "delete", "-1", "52428800"), shape(admin, REPARTITION, "cleanup.policy", "retention.ms", "segment.bytes"),
                    "repartition topic");
            });
            check("repartition-purge", () -> await("records of the repartition topic deleted", () -> earliest(admin, REPARTITION) > 0));
            check("instance-leaves", () -> {
                second[0].close(Duration.ofSeconds(30));
                send(200);
                awaitCounts(output);
                await("all tasks at the first instance", () -> tasks(first) == 6);
            });
            check("restore-from-changelog", () -> {
                try (var files = Files.walk(work.resolve("second"))) {
                    files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
                }
                second[0] = start(work.resolve("second"));
                await("the second instance at work", () -> second[0].state() == KafkaStreams.State.RUNNING);
                first.close(Duration.ofSeconds(30));
                send(200);
                awaitCounts(output);
                await("stores to be queried", () -> second[0].state() == KafkaStreams.State.RUNNING && tasks(second[0]) == 6);
                var store = second[0].store(StoreQueryParameters.fromNameAndType("counts",
                    org.apache.kafka.streams.state.QueryableStoreTypes.<String, Long>keyValueStore()));
                for (String word : WORDS) same(expected.get(word), store.get(word), word);
            });
        } finally {
            first.close(Duration.ofSeconds(10));
            second[0].close(Duration.ofSeconds(10));
        }
    }

    static int tasks(KafkaStreams streams) {
        return streams.metadataForLocalThreads().stream().mapToInt(thread -> thread.activeTasks().size()).sum();
    }

    static List<String> shape(Admin admin, String topic, String... keys) throws Exception {
        List<String> found = new ArrayList<>();
        found.add("" + admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        for (String key : keys) found.add(config.get(key).value());
        return found;
    }
}
