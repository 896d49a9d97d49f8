// A member of a group on the official Java client, see groups_test.py. Compiles with every client from 2.8 on.
import java.time.Duration;
import java.util.*;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Agent {
    private static volatile boolean ended;

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 2; i < args.length; i++) options.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        Properties config = new Properties();
        config.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        config.put("group.id", args[1]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("metadata.max.age.ms", "2000");
        if (options.containsKey("instance")) config.put("group.instance.id", options.get("instance"));
        if ("consumer".equals(options.get("protocol"))) {
            config.put("group.protocol", "consumer");
            if (options.containsKey("assignor")) config.put("group.remote.assignor", options.get("assignor"));
        } else {
            config.put("session.timeout.ms", options.getOrDefault("session", "6000"));
            config.put("heartbeat.interval.ms", "300");
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer."
                + (options.getOrDefault("assignor", "range").equals("range") ? "RangeAssignor" : "CooperativeStickyAssignor"));
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        Thread ender = new Thread(() -> {
            try {
                while (System.in.read() != -1) { }
            } catch (java.io.IOException ended) {
                // The same as the end.
            }
            ended = true;
            consumer.wakeup();
        });
        ender.setDaemon(true);
        ender.start();
        subscribe(consumer, args[0]);
        String known = null;
        try {
            while (!ended) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                String now = consumer.groupMetadata().generationId() + " " + consumer.assignment().stream()
                    .map(partition -> partition.topic() + ":" + partition.partition()).sorted().collect(Collectors.joining(","));
                if (!now.equals(known)) System.out.println("A " + now);
                known = now;
                for (ConsumerRecord<String, String> record : records)
                    System.out.println("R " + record.topic() + ":" + record.partition() + " " + record.offset());
                if (!records.isEmpty()) commit(consumer);
                System.out.flush();
            }
        } catch (WakeupException end) {
            // What was read is committed.
        } finally {
            consumer.close();
        }
    }

    private static void commit(KafkaConsumer<String, String> consumer) {
        for (int attempt = 0; ; attempt++) {
            try {
                consumer.commitSync();
                return;
            } catch (WakeupException again) {
                if (attempt > 2) throw again;
            } catch (Exception error) {
                System.out.println("F " + error);
                return;
            }
        }
    }

    private static void subscribe(KafkaConsumer<String, String> consumer, String topic) throws Exception {
        if (topic.startsWith("re2:")) {
            Class<?> pattern = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            KafkaConsumer.class.getMethod("subscribe", pattern)
                .invoke(consumer, pattern.getConstructor(String.class).newInstance(topic.substring(4)));
        } else if (topic.startsWith("^")) {
            consumer.subscribe(Pattern.compile(topic));
        } else {
            consumer.subscribe(Collections.singleton(topic));
        }
    }
}
