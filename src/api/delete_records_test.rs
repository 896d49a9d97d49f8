use std::time::{Duration, Instant};

use super::*;

/// As Apache Kafka 4.4 groups them.
#[test]
fn results_of_a_topic_stand_together_where_it_came_first() {
    let mut answers = Answers::default();
    for (topic, partition) in [("zz", 1), ("aa", 1), ("zz", 0)] {
        let partition = TopicPartition::new(topic, partition);
        answers.add(
            &partition,
            INVALID_LOW_WATERMARK,
            ErrorCode::UnknownTopicOrPartition,
        );
    }
    let response = answers.into_response();
    let topics: Vec<(&str, Vec<i32>)> = response
        .topics
        .iter()
        .map(|topic| {
            let partitions = topic.partitions.iter();
            (
                topic.name.as_str(),
                partitions.map(|result| result.partition_index).collect(),
            )
        })
        .collect();
    assert_eq!(topics, [("zz", vec![1, 0]), ("aa", vec![1])]);
}

#[test]
fn results_of_many_topics_take_no_longer_each() {
    let began = Instant::now();
    let mut answers = Answers::default();
    for number in 0..200_000 {
        let partition = TopicPartition::new(format!("topic-{number}"), 0);
        answers.add(&partition, INVALID_LOW_WATERMARK, ErrorCode::None);
    }
    assert_eq!(answers.into_response().topics.len(), 200_000);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
