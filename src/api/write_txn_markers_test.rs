use super::*;

fn add(answer: &mut Answer, producer_id: i64, topic: &str, partition: i32, error: ErrorCode) {
    answer.add(
        ProducerId(producer_id),
        &TopicPartition::new(topic, partition),
        error,
    );
}

/// Producer, topic, partition and error, in the order of the answer.
fn told(answer: &Answer) -> Vec<(i64, String, i32, i16)> {
    let mut told = Vec::new();
    for marker in &answer.value.markers {
        for topic in &marker.topics {
            for partition in &topic.partitions {
                let name = topic.name.to_string();
                told.push((
                    marker.producer_id.0,
                    name,
                    partition.partition_index,
                    partition.error_code,
                ));
            }
        }
    }
    told
}

#[test]
fn partition_is_in_the_answer_once_with_what_came_last() {
    let mut answer = Answer::default();
    let (none, unknown) = (ErrorCode::None, ErrorCode::UnknownTopicOrPartition);
    add(&mut answer, 7, "b", 1, none);
    add(&mut answer, 5, "b", 1, none);
    add(&mut answer, 7, "a", 1, none);
    add(&mut answer, 7, "b", 0, none);
    add(&mut answer, 7, "b", 1, unknown);
    let line = |producer_id, topic: &str, partition, error: ErrorCode| {
        (producer_id, topic.to_owned(), partition, error.code())
    };
    assert_eq!(
        told(&answer),
        [
            line(7, "b", 1, unknown),
            line(7, "b", 0, none),
            line(7, "a", 1, none),
            line(5, "b", 1, none),
        ]
    );
}

/// More than could be compared with each other in the time a test may take.
const MANY: i32 = 200_000;

#[test]
fn answer_grows_with_the_request_however_many_producers_topics_and_partitions() {
    let mut answer = Answer::default();
    for number in 0..MANY {
        add(&mut answer, 1, "t", number, ErrorCode::None);
        add(&mut answer, 2, &number.to_string(), 0, ErrorCode::None);
        add(&mut answer, i64::from(number) + 3, "t", 0, ErrorCode::None);
    }
    let markers = &answer.value.markers;
    assert_eq!(markers.len(), MANY as usize + 2);
    assert_eq!(markers[0].topics[0].partitions.len(), MANY as usize);
    assert_eq!(markers[1].topics.len(), MANY as usize);
}
