package compat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** Records' values as lines at the end of a file. */
public class LineSink extends SinkConnector {
    private Map<String, String> config;

    static ConfigDef definition(String... more) {
        ConfigDef definition = new ConfigDef().define("file", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "");
        for (String key : more) definition.define(key, ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "");
        return definition;
    }

    @Override public String version() { return "1"; }

    @Override public void start(Map<String, String> config) { this.config = config; }

    @Override public void stop() {}

    @Override public Class<? extends Task> taskClass() { return LineTask.class; }

    @Override public List<Map<String, String>> taskConfigs(int maxTasks) { return Collections.nCopies(maxTasks, config); }

    @Override public ConfigDef config() { return definition(); }

    public static class LineTask extends SinkTask {
        private Path file;

        @Override public String version() { return "1"; }

        @Override public void start(Map<String, String> config) { file = Path.of(config.get("file")); }

        @Override public void put(Collection<SinkRecord> records) {
            List<String> lines = new ArrayList<>();
            records.forEach(record -> lines.add((String) record.value()));
            try {
                Files.write(file, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new ConnectException(error);
            }
        }

        @Override public void stop() {}
    }
}
