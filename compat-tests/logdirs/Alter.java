import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartitionReplica;

/** What kafka-reassign-partitions does for log directories: node, then topic, partition and directory, again and again. */
public final class Alter {
    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            for (int i = 1; i < arguments.length; i += 3) {
                TopicPartitionReplica replica = new TopicPartitionReplica(arguments[i], Integer.parseInt(arguments[i + 1]), 1);
                String answer = "moving";
                try {
                    admin.alterReplicaLogDirs(Map.of(replica, arguments[i + 2])).all().get();
                } catch (ExecutionException error) {
                    answer = error.getCause().toString();
                }
                System.out.println(replica + " to " + arguments[i + 2] + ": " + answer);
            }
            System.out.flush();
        }
    }
}
