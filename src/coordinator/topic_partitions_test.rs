use std::sync::Arc;

use super::*;
use crate::metadata::{MetadataDelta, MetadataProvenance};
use crate::protocol::records::metadata::{MetadataRecord, PartitionRecord, TopicRecord};

const TOPIC: &str = "__consumer_offsets";

fn image(partitions: i32) -> Arc<MetadataImage> {
    let topic_id = uuid::Uuid::from_u128(1);
    let topic = TopicRecord {
        name: TOPIC.into(),
        topic_id,
        ..TopicRecord::default()
    };
    let mut records: Vec<MetadataRecord> = vec![topic.into()];
    records.extend((0..partitions).map(|partition_id| {
        let partition = PartitionRecord {
            partition_id,
            topic_id,
            replicas: vec![1],
            isr: vec![1],
            leader: 1,
            ..PartitionRecord::default()
        };
        partition.into()
    }));
    let mut delta = MetadataDelta::new(Arc::new(MetadataImage::empty()));
    for record in &records {
        delta.replay(record).unwrap();
    }
    Arc::new(delta.apply(MetadataProvenance::default()))
}

/// Seen of Apache Kafka 4.4: groups and transactional ids stay where they are.
#[test]
fn key_stays_when_the_topic_gets_partitions() {
    let cache = MetadataCache::new(MetadataImage::empty());
    let partitions = CoordinatorPartitions::new(TOPIC, 50, cache.clone());
    assert_eq!(partitions.partition_for("hello"), 22);
    cache.store(image(5));
    assert_eq!(partitions.partition_for("hello"), 2);
    cache.store(image(40));
    assert_eq!(partitions.partition_for("hello"), 2);
    // Deleted: what is asked meanwhile finds no leader, wherever it would be.
    cache.store(Arc::new(MetadataImage::empty()));
    assert_eq!(partitions.partition_for("hello"), 2);
    let after_a_restart = CoordinatorPartitions::new(TOPIC, 50, cache.clone());
    cache.store(image(40));
    assert_eq!(after_a_restart.partition_for("hello"), 99_162_322 % 40);
}
