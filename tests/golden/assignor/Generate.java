// Writes cases.txt: what the assignors of Apache Kafka 4.4.0 answer for seeded random groups, each through a chain of changes.
//
//   java -cp 'LIBS/*' Generate.java | gzip -9n > cases.txt.gz        (LIBS: the jars of org.apache.kafka:kafka_2.13:4.4.0)
//
// The order in which Apache Kafka walks members, topics and partitions is that of hash maps. Here it is made that of ids: members
// come in a LinkedHashMap, partitions in TreeSets, and the topic ids of homogeneous groups are so small that a HashSet has
// them in their order. Topic ids of heterogeneous groups are random: their order is fixed by the algorithm.
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

public class Generate {
    static final Random random = new Random(44);

    static class Member {
        String instance;
        Set<Uuid> subscribed = new TreeSet<>();
        Map<Uuid, Set<Integer>> assignment = new TreeMap<>();
    }

    public static void main(String[] args) {
        for (int chain = 0; chain < 40; chain++) {
            for (ConsumerGroupPartitionAssignor assignor : List.of(new UniformAssignor(), new RangeAssignor())) {
                chain(assignor, true);
                chain(assignor, false);
            }
        }
    }

    static void chain(ConsumerGroupPartitionAssignor assignor, boolean homogeneous) {
        TreeMap<Uuid, Integer> topics = new TreeMap<>();
        int topicCount = 1 + random.nextInt(homogeneous ? 8 : 10);
        for (int i = 0; i < topicCount; i++) addTopic(topics, homogeneous);
        TreeMap<String, Member> members = new TreeMap<>();
        int memberCount = 1 + random.nextInt(random.nextInt(4) == 0 ? 24 : 8);
        for (int i = 0; i < memberCount; i++) addMember(members, topics, homogeneous);
        for (int step = 0; step < 5; step++) {
            run(assignor, homogeneous, topics, members);
            change(topics, members, homogeneous);
        }
    }

    static void addTopic(TreeMap<Uuid, Integer> topics, boolean homogeneous) {
        int partitions = 1 + random.nextInt(random.nextInt(5) == 0 ? 40 : 9);
        Uuid id = new Uuid(0, 1);
        while (homogeneous && topics.containsKey(id)) id = new Uuid(0, id.getLeastSignificantBits() + 1);
        topics.put(homogeneous ? id : new Uuid(random.nextLong(), random.nextLong()), partitions);
    }

    static void addMember(TreeMap<String, Member> members, TreeMap<Uuid, Integer> topics, boolean homogeneous) {
        Member member = new Member();
        if (random.nextInt(3) == 0) member.instance = "instance-" + random.nextInt(1000000);
        subscribe(member, topics, homogeneous);
        members.put(String.format("member-%06d", random.nextInt(1000000)), member);
    }

    static void subscribe(Member member, TreeMap<Uuid, Integer> topics, boolean homogeneous) {
        member.subscribed.clear();
        int share = 1 + random.nextInt(10);
        for (Uuid topic : topics.keySet()) if (homogeneous || random.nextInt(10) < share) member.subscribed.add(topic);
    }

    static void change(TreeMap<Uuid, Integer> topics, TreeMap<String, Member> members, boolean homogeneous) {
        int changes = 1 + random.nextInt(3);
        for (int i = 0; i < changes; i++) {
            List<String> ids = new ArrayList<>(members.keySet());
            List<Uuid> topicIds = new ArrayList<>(topics.keySet());
            switch (random.nextInt(7)) {
                case 0, 1 -> addMember(members, topics, homogeneous);
                case 2 -> { if (ids.size() > 1) members.remove(ids.get(random.nextInt(ids.size()))); }
                case 3 -> topics.merge(topicIds.get(random.nextInt(topicIds.size())), 1 + random.nextInt(6), Integer::sum);
                case 4 -> { if (topics.size() < 14) addTopic(topics, homogeneous); }
                case 5 -> { if (topics.size() > 1) topics.remove(topicIds.get(random.nextInt(topicIds.size()))); }
                default -> {
                    // A static member comes back under another member id, with the assignment of the old one.
                    String id = ids.get(random.nextInt(ids.size()));
                    Member member = members.get(id);
                    if (member.instance != null) {
                        members.remove(id);
                        members.put(String.format("member-%06d", random.nextInt(1000000)), member);
                    } else if (!homogeneous) {
                        subscribe(member, topics, false);
                    }
                }
            }
        }
        for (Member member : members.values()) {
            member.subscribed.retainAll(topics.keySet());
            if (homogeneous) member.subscribed.addAll(topics.keySet());
        }
    }

    static void run(ConsumerGroupPartitionAssignor assignor, boolean homogeneous, TreeMap<Uuid, Integer> topics,
                    TreeMap<String, Member> members) {
        Map<String, MemberSubscriptionAndAssignmentImpl> specs = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        members.forEach((id, member) -> {
            Map<Uuid, Set<Integer>> assignment = new LinkedHashMap<>(member.assignment);
            specs.put(id, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.ofNullable(member.instance),
                new LinkedHashSet<>(member.subscribed), new Assignment(assignment)));
            assignment.forEach((topic, partitions) -> partitions.forEach(partition ->
                inverted.computeIfAbsent(topic, t -> new HashMap<>()).put(partition, id)));
        });
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) { return topics.getOrDefault(topic, -1); }
            public Set<String> racksForPartition(Uuid topic, int partition) { throw new UnsupportedOperationException(); }
        };
        SubscriptionType type = homogeneous ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment target = assignor.assign(new GroupSpecImpl(specs, type, inverted), describer);

        List<Uuid> order = new ArrayList<>(topics.keySet());
        // Topics that members still have and that are gone.
        members.values().forEach(m -> m.assignment.keySet().forEach(t -> { if (!order.contains(t)) order.add(t); }));
        System.out.println("case " + assignor.name() + " " + type);
        for (Uuid topic : order)
            System.out.printf("t %016x%016x %d%n", topic.getMostSignificantBits(), topic.getLeastSignificantBits(),
                topics.getOrDefault(topic, -1));
        members.forEach((id, member) -> {
            Map<Uuid, Set<Integer>> answer = new TreeMap<>();
            MemberAssignment given = target.members().get(id);
            if (given != null) given.partitions().forEach((t, p) -> answer.put(t, new TreeSet<>(p)));
            StringJoiner subscribed = new StringJoiner(",");
            member.subscribed.forEach(t -> subscribed.add("" + order.indexOf(t)));
            System.out.println("m " + id + " " + (member.instance == null ? "-" : member.instance) + " " + or(subscribed.toString())
                + " " + text(order, member.assignment) + " " + text(order, answer));
            member.assignment = answer;
        });
    }

    static String text(List<Uuid> order, Map<Uuid, Set<Integer>> assignment) {
        StringJoiner topics = new StringJoiner(";");
        assignment.forEach((topic, partitions) -> {
            StringJoiner numbers = new StringJoiner(",");
            partitions.forEach(p -> numbers.add("" + p));
            topics.add(order.indexOf(topic) + ":" + numbers);
        });
        return or(topics.toString());
    }

    static String or(String text) { return text.isEmpty() ? "-" : text; }
}
