//! OffsetCommit (key 8), versions 2-10: a group's positions, kept with its coordinator.
//!
//! - 2 to 4 may name a retention. 3: throttle time. 6: leader epoch. 7: static members (KIP-345). 8: flexible. 9: member
//!   epochs of the newer protocol, GROUP_ID_NOT_FOUND (KIP-848). 10: topics by id (KIP-848).
//!
//! Partitions that do not exist are answered here; the coordinator sees the others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use uuid::Uuid;

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::metadata::{MetadataImage, TopicImage};
use crate::protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use crate::protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use crate::protocol::messages::{OffsetCommitRequest, OffsetCommitResponse, TopicName};
use crate::protocol::{ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    mut request: OffsetCommitRequest,
) -> Result<Reply<OffsetCommitResponse>, ApiError> {
    let by_id = context.api_version >= 10;
    let image = context.broker.metadata.image();
    let mut response = Answer::new(by_id);
    let mut valid = Vec::with_capacity(request.topics.len());
    for topic in std::mem::take(&mut request.topics) {
        valid.extend(take_valid(&image, topic, &mut response));
    }
    if valid.is_empty() {
        return Ok(Reply::Value(response.value));
    }
    request.topics = valid;
    let asked = request.topics.clone();
    let committed = context
        .broker
        .group_coordinator
        .commit_offsets(request, context.api_version >= 9)
        .await;
    match committed {
        Ok(committed) => committed
            .topics
            .into_iter()
            .for_each(|topic| response.merge(topic)),
        Err(error) => asked
            .iter()
            .for_each(|topic| response.merge(all_partitions(topic, error))),
    }
    Ok(Reply::Value(response.value))
}

/// What of a topic can be committed, with its name and id; the rest is answered.
fn take_valid(
    image: &MetadataImage,
    mut topic: OffsetCommitRequestTopic,
    response: &mut Answer,
) -> Option<OffsetCommitRequestTopic> {
    let by_id = response.by_id;
    let known: Option<Arc<TopicImage>> = match by_id {
        true => image.topics.by_id(topic.topic_id).cloned(),
        false => image.topics.by_name(&topic.name).cloned(),
    };
    let Some(known) = known else {
        let error = match by_id {
            true => ErrorCode::UnknownTopicId,
            false => ErrorCode::UnknownTopicOrPartition,
        };
        response.merge(all_partitions(&topic, error));
        return None;
    };
    topic.topic_id = known.id;
    topic.name = TopicName(StrBytes::from_string(known.name.to_string()));
    let exists = |partition: i32| known.partitions.contains_key(&partition);
    let (valid, invalid) = std::mem::take(&mut topic.partitions)
        .into_iter()
        .partition(|partition| exists(partition.partition_index));
    topic.partitions = invalid;
    if !topic.partitions.is_empty() {
        response.merge(all_partitions(&topic, ErrorCode::UnknownTopicOrPartition));
    }
    topic.partitions = valid;
    (!topic.partitions.is_empty()).then_some(topic)
}

fn all_partitions(topic: &OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic {
    let partitions = topic.partitions.iter().map(|partition| {
        OffsetCommitResponsePartition::default()
            .with_partition_index(partition.partition_index)
            .with_error_code(error.code())
    });
    OffsetCommitResponseTopic::default()
        .with_name(topic.name.clone())
        .with_topic_id(topic.topic_id)
        .with_partitions(partitions.collect())
}

/// The answer as it grows.
struct Answer {
    by_id: bool,
    value: OffsetCommitResponse,
    /// Where the topics are in it, by name or by id.
    places: HashMap<(Uuid, StrBytes), usize>,
}

impl Answer {
    fn new(by_id: bool) -> Self {
        Self {
            by_id,
            value: Default::default(),
            places: HashMap::new(),
        }
    }

    /// A topic is in the answer once.
    fn merge(&mut self, topic: OffsetCommitResponseTopic) {
        let key = match self.by_id {
            true => (topic.topic_id, StrBytes::default()),
            false => (Uuid::nil(), topic.name.0.clone()),
        };
        let topics = &mut self.value.topics;
        match self.places.entry(key) {
            Entry::Occupied(place) => topics[*place.get()].partitions.extend(topic.partitions),
            Entry::Vacant(place) => {
                place.insert(topics.len());
                topics.push(topic);
            }
        }
    }
}

impl ErrorResponse<OffsetCommitRequest> for OffsetCommitResponse {
    fn error_response(_context: &RequestContext, request: &OffsetCommitRequest, error: &ApiError) -> Self {
        let topics = request
            .topics
            .iter()
            .map(|topic| all_partitions(topic, error.code));
        Self::default().with_topics(topics.collect())
    }
}

#[cfg(test)]
#[path = "offset_commit_test.rs"]
mod offset_commit_test;
