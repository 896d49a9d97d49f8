//! What members of the classic protocol put into JoinGroup and get from SyncGroup: subscriptions and assignments of the
//! type `consumer` (`ConsumerProtocol`). Pure.

use std::collections::BTreeSet;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::assignor::TopicPartitions;
use super::owned;
use crate::metadata::MetadataImage;
use crate::protocol::records::consumer_protocol::consumer_protocol_assignment::TopicPartition;
use crate::protocol::records::consumer_protocol::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use crate::protocol::{Decodable, Encodable, StrBytes};

const HIGHEST_VERSION: i16 = 3;

/// Bytes that are no subscription or assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The version, as far as it is known here: later ones only add.
pub fn version(bytes: &Bytes) -> Result<i16, Malformed> {
    match bytes.get(..2) {
        Some(version) => match i16::from_be_bytes([version[0], version[1]]) {
            version if version < 0 => Err(Malformed),
            version => Ok(version.min(HIGHEST_VERSION)),
        },
        None => Err(Malformed),
    }
}

fn decode<T: Decodable>(bytes: &Bytes) -> Result<T, Malformed> {
    let version = version(bytes)?;
    let mut body = bytes.clone();
    body.advance(2);
    T::decode(&mut body, version).map_err(|_| Malformed)
}

pub fn subscription(bytes: &Bytes) -> Result<ConsumerProtocolSubscription, Malformed> {
    decode(bytes)
}

pub fn assignment(bytes: &Bytes) -> Result<ConsumerProtocolAssignment, Malformed> {
    decode(bytes)
}

/// Topics that do not exist any more are left out.
pub fn serialize_assignment(
    partitions: &TopicPartitions,
    version: i16,
    image: &MetadataImage,
) -> Result<Bytes, Malformed> {
    let topics = partitions.iter().filter_map(|(topic_id, partitions)| {
        let name = image.topics.name_of(*topic_id)?;
        Some(TopicPartition {
            topic: StrBytes::from_string(name.to_string()),
            partitions: partitions.iter().copied().collect(),
        })
    });
    let assignment = ConsumerProtocolAssignment {
        assigned_partitions: topics.collect(),
        user_data: None,
    };
    let mut bytes = BytesMut::new();
    bytes.put_i16(version);
    assignment.encode(&mut bytes, version).map_err(|_| Malformed)?;
    Ok(bytes.freeze())
}

/// The partitions of an assignment, by topic id.
pub fn assigned_partitions(
    assignment: &ConsumerProtocolAssignment,
    image: &MetadataImage,
) -> TopicPartitions {
    let topics = assignment.assigned_partitions.iter();
    by_topic_id(topics.map(|topic| (&topic.topic, &topic.partitions)), image)
}

/// What a member says that it has.
pub fn owned_partitions(
    subscription: &ConsumerProtocolSubscription,
    image: &MetadataImage,
) -> TopicPartitions {
    let topics = subscription.owned_partitions.iter();
    by_topic_id(topics.map(|topic| (&topic.topic, &topic.partitions)), image)
}

fn by_topic_id<'a>(
    topics: impl Iterator<Item = (&'a StrBytes, &'a Vec<i32>)>,
    image: &MetadataImage,
) -> TopicPartitions {
    let topics = topics.filter_map(|(topic, partitions)| {
        let partitions: BTreeSet<i32> = partitions.iter().copied().collect();
        Some((image.topics.id_of(topic)?, partitions))
    });
    topics.collect()
}

pub fn topics(subscription: &ConsumerProtocolSubscription) -> BTreeSet<StrBytes> {
    subscription.topics.iter().map(owned).collect()
}
