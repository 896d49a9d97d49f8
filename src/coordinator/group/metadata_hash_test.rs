use std::sync::Arc;

use super::super::consumer_group::SubscriptionCount;
use super::super::fixture_test::text;
use super::*;
use crate::metadata::{MetadataDelta, MetadataProvenance};
use crate::protocol::records::metadata::{
    MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord,
};

fn topic(name: &str, topic_id: Uuid, partitions: i32, replicas: &[i32]) -> Vec<MetadataRecord> {
    let record = TopicRecord {
        name: text(name),
        topic_id,
        ..Default::default()
    };
    let partitions = (0..partitions).map(|partition_id| {
        let record = PartitionRecord {
            topic_id,
            partition_id,
            replicas: replicas.to_vec(),
            isr: replicas.to_vec(),
            leader: replicas[0],
            ..Default::default()
        };
        record.into()
    });
    std::iter::once(record.into()).chain(partitions).collect()
}

fn image(records: Vec<MetadataRecord>) -> MetadataImage {
    let mut delta = MetadataDelta::new(Arc::new(MetadataImage::empty()));
    for record in &records {
        delta.replay(record).unwrap();
    }
    delta.apply(MetadataProvenance::EMPTY)
}

fn hash(names: &[&str], image: &MetadataImage) -> i64 {
    let topics = names
        .iter()
        .map(|name| (text(name), SubscriptionCount::default()));
    TopicHashes::default().group_hash(&topics.collect(), image)
}

fn uuid(text: &str) -> Uuid {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(text)
        .unwrap();
    Uuid::from_slice(&bytes).unwrap()
}

#[test]
fn hash_is_the_one_that_kafka_wrote_for_the_same_topics() {
    let mut records = topic("partitioned", uuid("hMdE3Q7ATXCvLk85o9hD9g"), 3, &[1]);
    records.extend(topic("segments", uuid("c3eOlvBPT_i1QZU6tyr0Uw"), 1, &[1]));
    records.extend(topic("time-order", uuid("lWsmWY83TmSBb3tRPEuaAA"), 1, &[1]));
    let image = image(records);
    assert_eq!(hash(&["partitioned", "segments"], &image), 2542306616966308577);
    assert_eq!(hash(&["time-order", "not-there"], &image), -5079678101245660074);
    assert_eq!(hash(&["not-there"], &image), 0);
}

#[test]
fn racks_of_replicas_are_part_of_it() {
    let broker = |broker_id: i32| -> MetadataRecord {
        RegisterBrokerRecord {
            broker_id,
            rack: Some(text(&format!("rack-{broker_id}"))),
            ..Default::default()
        }
        .into()
    };
    let mut records = vec![broker(1), broker(2)];
    records.extend(topic("orders", Uuid::from_u128(0x1001), 2, &[2, 1]));
    assert_eq!(hash(&["orders"], &image(records)), 1854775401145213034);
}

#[test]
fn topic_that_changed_is_hashed_anew_once_that_is_told() {
    let topic_id = Uuid::from_u128(1);
    let (before, after) = (
        image(topic("orders", topic_id, 1, &[1])),
        image(topic("orders", topic_id, 2, &[1])),
    );
    let topics: SubscribedTopics = [(text("orders"), SubscriptionCount::default())].into();
    let mut hashes = TopicHashes::default();
    let old = hashes.group_hash(&topics, &before);
    assert_eq!(hashes.group_hash(&topics, &after), old);
    hashes.forget(topic_id);
    assert_ne!(hashes.group_hash(&topics, &after), old);
}
