// One instance of a word count with Kafka Streams, exactly once: CountWords.java APPLICATION INPUT OUTPUT DIRECTORY. It goes on until it is killed.
import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;

public class CountWords {
    public static void main(String[] args) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("by-word", Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(args[2], Produced.with(Serdes.String(), Serdes.String()));
        Properties config = new Properties();
        config.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        config.put("application.id", args[0]);
        config.put("state.dir", args[3]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("commit.interval.ms", "100");
        // Every count is told, not the last one of many.
        config.put("statestore.cache.max.bytes", "0");
        config.put("repartition.purge.interval.ms", "500");
        config.put("consumer.session.timeout.ms", "6000");
        config.put("consumer.heartbeat.interval.ms", "300");
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("goes on after " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
    }
}
