// Copies SOURCE to TARGET in transactions, on the official Java client, see exactly_once_test.py.
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class Copier {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        config.put("group.id", args[2]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("isolation.level", "read_committed");
        config.put("session.timeout.ms", "6000");
        config.put("heartbeat.interval.ms", "300");
        config.put("max.poll.records", "20");
        config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        if (args.length > 4) config.put("group.instance.id", args[4]);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        config = new Properties();
        config.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        config.put("transactional.id", args[3]);
        config.put("transaction.timeout.ms", "30000");
        KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        consumer.subscribe(List.of(args[0]));
        Random random = new Random();
        try {
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                try {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<String, String> record : records) {
                        producer.send(new ProducerRecord<>(args[1], record.partition(), null, record.value()));
                        offsets.put(new TopicPartition(args[0], record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    if (random.nextInt(10) > 0) {
                        commit(producer);
                        continue;
                    }
                } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException fatal) {
                    throw fatal;
                } catch (KafkaException error) {
                    System.out.println("aborts: " + error);
                }
                producer.abortTransaction();
                rewind(consumer);
            }
        } catch (KafkaException error) {
            error.printStackTrace(System.out);
            System.out.flush();
            // No close: what is open is ended by the next one of this name.
            Runtime.getRuntime().halt(1);
        }
    }

    static void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (org.apache.kafka.common.errors.TimeoutException again) {
                System.out.println("commits again: " + again);
            }
        }
    }

    static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            consumer.seek(partition, offset == null ? 0 : offset.offset());
        }
    }
}
