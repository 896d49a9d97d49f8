use super::*;

/// More than could be compared with each other in the time a test may take.
const TOPICS: u128 = 200_000;

macro_rules! topic_is_in_the_answer_once_in_the_order_of_the_request_however_many {
    ($test:ident, $topic:ident, $partition:ident) => {
        #[test]
        fn $test() {
            let topic = |number: u128, name: String, partition: i32| {
                let partition = $partition::default().with_partition_index(partition);
                $topic::default()
                    .with_name(TopicName(StrBytes::from_string(name)))
                    .with_topic_id(Uuid::from_u128(number))
                    .with_partitions(vec![partition])
            };
            for by_id in [false, true] {
                let mut answer = Answer::new(by_id);
                for partition in [0, 1] {
                    for number in 1..=TOPICS {
                        // What the answer does not go by is the same for all.
                        answer.merge(match by_id {
                            true => topic(number, String::new(), partition),
                            false => topic(0, number.to_string(), partition),
                        });
                    }
                }
                let told = answer.topics.iter().zip(1..);
                for (topic, number) in told.clone() {
                    match by_id {
                        true => assert_eq!(topic.topic_id, Uuid::from_u128(number)),
                        false => assert_eq!(*topic.name.0, *number.to_string()),
                    }
                    let partitions = topic.partitions.iter();
                    let partitions: Vec<_> = partitions
                        .map(|partition| partition.partition_index)
                        .collect();
                    assert_eq!(partitions, [0, 1]);
                }
                assert_eq!(told.count() as u128, TOPICS);
            }
        }
    };
}

topic_is_in_the_answer_once_in_the_order_of_the_request_however_many!(
    offset_commit_has_a_topic_in_the_answer_once_in_the_order_of_the_request_however_many,
    OffsetCommitResponseTopic,
    OffsetCommitResponsePartition
);
topic_is_in_the_answer_once_in_the_order_of_the_request_however_many!(
    txn_offset_commit_has_a_topic_in_the_answer_once_in_the_order_of_the_request_however_many,
    TxnOffsetCommitResponseTopic,
    TxnOffsetCommitResponsePartition
);

#[test]
fn coordinators_answer_is_merged_only_where_something_was_answered_before() {
    let topic = |name: &'static str, partition: i32| {
        let partition = OffsetCommitResponsePartition::default().with_partition_index(partition);
        OffsetCommitResponseTopic::default()
            .with_name(TopicName(StrBytes::from_static_str(name)))
            .with_partitions(vec![partition])
    };
    let finished = |before: &[OffsetCommitResponseTopic]| {
        let mut answer = Answer::new(false);
        before.iter().for_each(|refused| answer.merge(refused.clone()));
        let committed = vec![topic("a", 0), topic("b", 0), topic("a", 1)];
        answer.finish::<OffsetCommitRequestTopic>(&[], Ok(committed));
        let topics = answer.topics.iter();
        topics
            .map(|topic| (topic.name.0.to_string(), topic.partitions.len()))
            .collect::<Vec<_>>()
    };
    let told = |topics: &[(&str, usize)]| -> Vec<(String, usize)> {
        let topics = topics.iter();
        topics.map(|(name, count)| (name.to_string(), *count)).collect()
    };
    assert_eq!(finished(&[]), told(&[("a", 1), ("b", 1), ("a", 1)]));
    assert_eq!(
        finished(&[topic("unknown", 0)]),
        told(&[("unknown", 1), ("a", 2), ("b", 1)])
    );
    assert_eq!(finished(&[topic("b", 7)]), told(&[("b", 2), ("a", 2)]));
}
