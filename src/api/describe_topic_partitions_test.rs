use super::*;
use crate::api::test_cluster::{LISTENER, broker, image, text, topic};
use crate::metadata::MetadataImage;
use crate::protocol::messages::describe_topic_partitions_request::TopicRequest;

fn cluster() -> MetadataImage {
    let mut records = vec![broker(1, LISTENER, false)];
    records.extend(topic("a", 1, 3, &[1]));
    records.extend(topic("b", 2, 1, &[1]));
    image(records)
}

fn request(topics: &[&str], cursor: Option<(&str, i32)>) -> DescribeTopicPartitionsRequest {
    let mut request = DescribeTopicPartitionsRequest::default();
    request.topics = topics
        .iter()
        .map(|name| {
            let mut topic = TopicRequest::default();
            topic.name = TopicName(text(name));
            topic
        })
        .collect();
    request.cursor = cursor.map(|(topic, partition)| {
        let mut cursor = RequestCursor::default();
        cursor.topic_name = TopicName(text(topic));
        cursor.partition_index = partition;
        cursor
    });
    request
}

/// Topics with error and partitions, and the next cursor.
type Page = (Vec<(String, i16, Vec<i32>)>, Option<(String, i32)>);

fn page_of(topics: &[&str], cursor: Option<(&str, i32)>, limit: usize) -> Result<Page, ApiError> {
    let image = cluster();
    let view = ClusterView {
        image: &image,
        listener: LISTENER,
    };
    let request = request(topics, cursor);
    let wanted = wanted_topics(view, &request)?;
    let response = page(
        view,
        wanted,
        request.cursor.as_ref(),
        limit,
        request.topics.is_empty(),
    );
    let topics = response
        .topics
        .iter()
        .map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| partition.partition_index);
            let name = topic.name.as_ref().unwrap().as_str().to_owned();
            (name, topic.error_code, partitions.collect())
        })
        .collect();
    let cursor = response
        .next_cursor
        .map(|cursor| (cursor.topic_name.as_str().to_owned(), cursor.partition_index));
    Ok((topics, cursor))
}

#[test]
fn page_cut_within_a_topic_continues_at_its_next_partition() {
    let first = page_of(&[], None, 2).unwrap();
    assert_eq!(first, (vec![("a".into(), 0, vec![0, 1])], Some(("a".into(), 2))));
    let second = page_of(&[], Some(("a", 2)), 2).unwrap();
    assert_eq!(
        second,
        (vec![("a".into(), 0, vec![2]), ("b".into(), 0, vec![0])], None)
    );
}

#[test]
fn page_cut_between_topics_continues_at_the_next_topic() {
    let page = page_of(&["b", "a"], None, 3).unwrap();
    assert_eq!(
        page,
        (vec![("a".into(), 0, vec![0, 1, 2])], Some(("b".into(), 0)))
    );
}

#[test]
fn cursor_behind_the_last_partition_gives_the_topic_without_partitions() {
    let page = page_of(&[], Some(("a", 7)), 1).unwrap();
    assert_eq!(
        page,
        (vec![("a".into(), 0, vec![]), ("b".into(), 0, vec![0])], None)
    );
}

#[test]
fn named_topics_that_are_missing_or_misnamed_get_their_codes() {
    let page = page_of(&["x", "a b", "b"], None, 10).unwrap();
    let codes: Vec<_> = page.0.iter().map(|topic| (topic.0.as_str(), topic.1)).collect();
    assert_eq!(codes, [("a b", 17), ("b", 0), ("x", 3)]);
}

#[test]
fn cursor_outside_of_the_named_topics_or_negative_is_invalid() {
    for (topics, cursor) in [(&["a"][..], ("zzz", 0)), (&["a"], ("a", -1)), (&[], ("a", -1))] {
        let error = page_of(topics, Some(cursor), 10).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidRequest);
    }
}
