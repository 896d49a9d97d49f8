// Makes vectors.jsonl: appends, good and bad, and what Apache Kafka's own LogValidator says of them.
//   java -cp '<jars of kafka_2.13 4.4.0>/*' Vectors.java > vectors.jsonl
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Base64;
import java.util.Random;
import java.util.zip.CRC32C;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class Vectors {
    static final long NOW = 1_700_000_000_000L;
    static final Random random = new Random(44);
    static final ObjectMapper mapper = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < 1000; i++)
            System.out.println(mapper.writeValueAsString(vector()));
    }

    static boolean chance(double probability) {
        return random.nextDouble() < probability;
    }

    static void varlong(ByteArrayOutputStream out, long value) {
        long rest = (value << 1) ^ (value >> 63);
        while ((rest & ~0x7fL) != 0) {
            out.write((int) (rest & 0x7f) | 0x80);
            rest >>>= 7;
        }
        out.write((int) rest);
    }

    static void sized(ByteArrayOutputStream out, int size) {
        if (size < 0) {
            varlong(out, size);
            return;
        }
        byte[] bytes = new byte[size];
        random.nextBytes(bytes);
        if (chance(0.5)) Arrays.fill(bytes, (byte) 'a');
        varlong(out, size);
        out.write(bytes, 0, size);
    }

    static int size() {
        return chance(0.1) ? -1 : chance(0.02) ? 3000 : random.nextInt(20);
    }

    static ObjectNode vector() throws Exception {
        CompressionType source = CompressionType.forId(random.nextInt(5));
        String[] types = {"producer", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"};
        String configured = types[random.nextInt(types.length)];
        CompressionType target = configured.equals("producer") ? source
            : configured.equals("uncompressed") ? CompressionType.NONE : CompressionType.forName(configured);
        boolean compacted = chance(0.2);
        TimestampType timestampType = chance(0.25) ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        long before = chance(0.2) ? 100_000 : Long.MAX_VALUE;
        long after = chance(0.2) ? 2_000 : 3_600_000;
        AppendOrigin origin = chance(0.15) ? AppendOrigin.COORDINATOR : AppendOrigin.CLIENT;
        int recordMax = chance(0.05) ? 1000 : Integer.MAX_VALUE - 8;

        int count = 1 + random.nextInt(6);
        long baseTimestamp = NOW - random.nextInt(chance(0.3) ? 200_000 : 1000);
        if (chance(0.05)) baseTimestamp = -1;
        if (chance(0.02)) baseTimestamp = -5;
        long maxTimestamp = RecordBatch.NO_TIMESTAMP;
        boolean anomaly = chance(0.45);
        boolean allKeys = chance(0.4);
        ByteArrayOutputStream payload = new ByteArrayOutputStream();
        for (int i = 0; i < count; i++) {
            ByteArrayOutputStream body = new ByteArrayOutputStream();
            long delta = baseTimestamp < 0 ? 0 : i == 0 ? 0 : random.nextInt(4000) - 500;
            maxTimestamp = Math.max(maxTimestamp, baseTimestamp + delta);
            body.write(anomaly && chance(0.05) ? random.nextInt(256) : 0);
            varlong(body, delta);
            varlong(body, anomaly && chance(0.08) ? i + random.nextInt(5) - 2 : i);
            sized(body, allKeys ? random.nextInt(20) : size());
            sized(body, size());
            int headers = chance(0.7) ? 0 : random.nextInt(4);
            varlong(body, anomaly && chance(0.03) ? random.nextInt(200) - 100 : headers);
            for (int h = 0; h < headers; h++) {
                // Text, since Kafka decodes keys when it writes a batch anew.
                String key = "header" + random.nextInt(3);
                if (anomaly && chance(0.05)) {
                    varlong(body, -1);
                } else {
                    varlong(body, key.length());
                    body.write(key.getBytes());
                }
                sized(body, size());
            }
            int bodySize = body.size() + (anomaly && chance(0.06) ? random.nextInt(9) - 4 : 0);
            varlong(payload, anomaly && chance(0.02) ? -3 : bodySize);
            payload.write(body.toByteArray());
        }
        byte[] plain = payload.toByteArray();
        if (anomaly && chance(0.1)) plain = Arrays.copyOf(plain, random.nextInt(plain.length));
        if (anomaly && chance(0.1)) plain = Arrays.copyOf(plain, plain.length + 1 + random.nextInt(5));
        ByteBufferOutputStream compressed = new ByteBufferOutputStream(512);
        try (OutputStream out = Compression.of(source).build().wrapForOutput(compressed, (byte) 2)) {
            out.write(plain);
        }
        compressed.buffer().flip();
        byte[] records = new byte[compressed.buffer().remaining()];
        compressed.buffer().get(records);
        if (source != CompressionType.NONE && anomaly && chance(0.12) && records.length > 8)
            records = Arrays.copyOf(records, records.length - 1 - random.nextInt(Math.min(8, records.length - 1)));
        if (source != CompressionType.NONE && anomaly && chance(0.12) && records.length > 20)
            records[random.nextInt(20)] ^= (byte) (1 << random.nextInt(8));

        ByteBuffer batch = ByteBuffer.allocate(61 + records.length);
        int attributes = source.id;
        if (chance(0.06)) attributes |= 0x08;
        boolean producer = chance(0.3);
        if (producer && chance(0.3)) attributes |= 0x10;
        // Control batches of coordinators are whole and uncompressed; Kafka would lose the flag of others.
        boolean control = origin == AppendOrigin.CLIENT ? anomaly && chance(0.05)
            : !anomaly && source == CompressionType.NONE && chance(0.3);
        if (control) attributes |= 0x20;
        int declared = anomaly && chance(0.12) ? count + random.nextInt(4) - 2 : count;
        int lastDelta = anomaly && chance(0.08) ? count + random.nextInt(4) - 3 : declared - 1;
        if (anomaly && chance(0.03)) lastDelta = -1;
        if (chance(0.1)) maxTimestamp += random.nextInt(3) - 1;
        batch.putLong(0).putInt(49 + records.length).putInt(chance(0.5) ? -1 : 7).put((byte) 2).putInt(0);
        batch.putShort((short) attributes).putInt(lastDelta).putLong(baseTimestamp).putLong(maxTimestamp);
        batch.putLong(producer ? 17 : -1).putShort((short) (producer ? 3 : -1));
        batch.putInt(producer ? (chance(0.1) ? -1 : random.nextInt(100)) : -1).putInt(declared).put(records);
        CRC32C crc = new CRC32C();
        crc.update(batch.array(), 21, batch.capacity() - 21);
        batch.putInt(17, (int) crc.getValue());
        batch.rewind();
        byte[] sent = batch.array().clone();
        if (chance(0.04)) {
            sent = Arrays.copyOf(sent, sent.length * 2);
            System.arraycopy(sent, 0, sent, sent.length / 2, sent.length / 2);
        }

        ObjectNode node = mapper.createObjectNode();
        node.put("records", Base64.getEncoder().encodeToString(sent));
        node.put("compressionType", configured).put("compacted", compacted).put("timestampType", timestampType.name);
        node.put("beforeMaxMs", before).put("afterMaxMs", after).put("origin", origin.name());
        node.put("maxDecompressedMessageBytes", recordMax).put("firstOffset", 100).put("leaderEpoch", 9).put("now", NOW);
        ObjectNode result = node.putObject("result");
        Time time = stopped();
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(100);
        try {
            LogValidator validator = new LogValidator(MemoryRecords.readableRecords(ByteBuffer.wrap(sent)),
                new TopicPartition("topic", 3), time, source, Compression.of(target).build(), compacted, (byte) 2,
                timestampType, before, after, 9, origin, recordMax);
            LogValidator.ValidationResult validated =
                validator.validateMessagesAndAssignOffsets(offset, new Recorder(), BufferSupplier.create());
            ByteBuffer buffer = validated.validatedRecords().buffer().duplicate();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            result.put("records", Base64.getEncoder().encodeToString(bytes));
            result.put("rewritten", validated.messageSizeMaybeChanged());
            result.put("maxTimestamp", validated.maxTimestampMs()).put("nextOffset", offset.value);
        } catch (RecordValidationException e) {
            result.put("error", Errors.forException(e.invalidException()).name());
            result.put("message", e.invalidException().getMessage());
            ArrayNode errors = result.putArray("recordErrors");
            e.recordErrors().forEach(error -> errors.addObject().put("index", error.batchIndex).put("message", error.message));
        } catch (Exception | org.xerial.snappy.SnappyError e) {
            result.put("error", Errors.forException(e).name()).put("message", e.getMessage());
            result.put("class", e.getClass().getSimpleName());
        }
        return node;
    }

    /** Kafka's clock, stopped at NOW. */
    static Time stopped() {
        return (Time) Proxy.newProxyInstance(Vectors.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, args) -> method.getName().equals("milliseconds") ? (Object) NOW
                : method.getName().equals("nanoseconds") ? (Object) 0L : null);
    }

    static class Recorder implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() {}
        public void recordInvalidOffset() {}
        public void recordInvalidSequence() {}
        public void recordInvalidChecksums() {}
        public void recordNoKeyCompactedTopic() {}
    }
}
