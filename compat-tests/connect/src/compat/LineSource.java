package compat;

import java.io.RandomAccessFile;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** Lines of a file to a topic; the source offset is the position in the file. */
public class LineSource extends SourceConnector {
    private Map<String, String> config;

    @Override public String version() { return "1"; }

    @Override public void start(Map<String, String> config) { this.config = config; }

    @Override public void stop() {}

    @Override public Class<? extends Task> taskClass() { return LineTask.class; }

    @Override public List<Map<String, String>> taskConfigs(int maxTasks) { return Collections.singletonList(config); }

    @Override public ConfigDef config() { return LineSink.definition("topic"); }

    public static class LineTask extends SourceTask {
        private String file;
        private String topic;
        private long position;

        @Override public String version() { return "1"; }

        @Override public void start(Map<String, String> config) {
            file = config.get("file");
            topic = config.get("topic");
            Map<String, Object> offset = context.offsetStorageReader().offset(Collections.singletonMap("file", file));
            position = offset == null ? 0 : (Long) offset.get("position");
        }

        @Override public List<SourceRecord> poll() throws InterruptedException {
            List<SourceRecord> records = new ArrayList<>();
            try (RandomAccessFile lines = new RandomAccessFile(file, "r")) {
                lines.seek(position);
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    position = lines.getFilePointer();
                    records.add(new SourceRecord(Collections.singletonMap("file", file), Collections.singletonMap("position", position),
                        topic, Schema.STRING_SCHEMA, line));
                }
            } catch (java.io.IOException error) {
                throw new org.apache.kafka.connect.errors.ConnectException(error);
            }
            if (records.isEmpty()) {
                Thread.sleep(50);
                return null;
            }
            return records;
        }

        @Override public void stop() {}
    }
}
