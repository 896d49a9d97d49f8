//! The hash of the topics that a group subscribes to: when it changes, the group is assigned anew (KIP-1101). Pure.
//!
//! XXH3-64 over fields as hash4j puts them into bytes, so that a group keeps its hash when the coordinator is another
//! broker of the cluster: numbers little-endian; a string as its UTF-16 units and their count.

use std::collections::{BTreeSet, HashMap};

use uuid::Uuid;

use super::consumer_group::SubscribedTopics;
use crate::metadata::MetadataImage;
use crate::metadata::topics::TopicImage;
use crate::protocol::StrBytes;
use twox_hash::XxHash3_64;

const TOPIC_HASH_MAGIC: u8 = 0;

/// Hashes of topics that did not change since; to be told of those that did.
#[derive(Debug, Default)]
pub struct TopicHashes {
    by_id: HashMap<Uuid, i64>,
}

impl TopicHashes {
    pub fn forget(&mut self, topic_id: Uuid) {
        self.by_id.remove(&topic_id);
    }

    /// Of the topics that exist; 0 if there are none.
    pub fn group_hash(&mut self, topics: &SubscribedTopics, image: &MetadataImage) -> i64 {
        let mut bytes = Vec::with_capacity(topics.len() * 8);
        // By name in the order of UTF-16, which for topic names is that of bytes.
        for topic in topics.keys().filter_map(|name| image.topics.by_name(name)) {
            let hash = *self
                .by_id
                .entry(topic.id)
                .or_insert_with(|| topic_hash(topic, image));
            bytes.extend_from_slice(&hash.to_le_bytes());
        }
        match bytes.is_empty() {
            true => 0,
            false => XxHash3_64::oneshot(&bytes) as i64,
        }
    }
}

/// Racks of a partition's replicas, as far as brokers are registered with one.
fn racks_of(topic: &TopicImage, partition: i32, image: &MetadataImage) -> BTreeSet<StrBytes> {
    let replicas = topic
        .partitions
        .get(&partition)
        .map(|partition| &partition.replicas);
    let brokers = replicas
        .into_iter()
        .flatten()
        .filter_map(|id| image.cluster.broker(*id));
    let racks = brokers.filter_map(|broker| broker.rack.as_deref());
    racks
        .map(|rack| StrBytes::from_string(rack.to_string()))
        .collect()
}

fn topic_hash(topic: &TopicImage, image: &MetadataImage) -> i64 {
    let mut bytes = vec![TOPIC_HASH_MAGIC];
    let (most, least) = topic.id.as_u64_pair();
    bytes.extend_from_slice(&most.to_le_bytes());
    bytes.extend_from_slice(&least.to_le_bytes());
    put_string(&mut bytes, &topic.name);
    bytes.extend_from_slice(&(topic.partitions.len() as i32).to_le_bytes());
    for partition in 0..topic.partitions.len() as i32 {
        bytes.extend_from_slice(&partition.to_le_bytes());
        for rack in racks_of(topic, partition, image) {
            let length = rack.encode_utf16().count() as i32;
            bytes.extend_from_slice(&length.to_le_bytes());
            put_string(&mut bytes, &rack);
        }
    }
    XxHash3_64::oneshot(&bytes) as i64
}

fn put_string(bytes: &mut Vec<u8>, text: &str) {
    let mut length = 0i32;
    for unit in text.encode_utf16() {
        bytes.extend_from_slice(&unit.to_le_bytes());
        length += 1;
    }
    bytes.extend_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
#[path = "metadata_hash_test.rs"]
mod metadata_hash_test;
