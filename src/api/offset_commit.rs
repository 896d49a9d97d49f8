//! OffsetCommit (key 8), versions 2-10: a group's positions, kept with its coordinator.
//!
//! - 2 to 4 may name a retention. 3: throttle time. 6: leader epoch. 7: static members (KIP-345). 8: flexible. 9: member
//!   epochs of the newer protocol, GROUP_ID_NOT_FOUND (KIP-848). 10: topics by id (KIP-848).
//!
//! Partitions that do not exist are answered here; the coordinator sees the others.

use std::sync::Arc;

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
    let mut response = OffsetCommitResponse::default();
    let mut valid = Vec::with_capacity(request.topics.len());
    for topic in std::mem::take(&mut request.topics) {
        valid.extend(take_valid(&image, by_id, topic, &mut response));
    }
    if valid.is_empty() {
        return Ok(Reply::Value(response));
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
            .for_each(|topic| merge(&mut response, by_id, topic)),
        Err(error) => asked
            .iter()
            .for_each(|topic| merge(&mut response, by_id, all_partitions(topic, error))),
    }
    Ok(Reply::Value(response))
}

/// What of a topic can be committed, with its name and id; the rest is answered.
fn take_valid(
    image: &MetadataImage,
    by_id: bool,
    mut topic: OffsetCommitRequestTopic,
    response: &mut OffsetCommitResponse,
) -> Option<OffsetCommitRequestTopic> {
    let known: Option<Arc<TopicImage>> = match by_id {
        true => image.topics.by_id(topic.topic_id).cloned(),
        false => image.topics.by_name(&topic.name).cloned(),
    };
    let Some(known) = known else {
        let error = match by_id {
            true => ErrorCode::UnknownTopicId,
            false => ErrorCode::UnknownTopicOrPartition,
        };
        merge(response, by_id, all_partitions(&topic, error));
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
        merge(
            response,
            by_id,
            all_partitions(&topic, ErrorCode::UnknownTopicOrPartition),
        );
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

/// A topic is in the answer once.
fn merge(response: &mut OffsetCommitResponse, by_id: bool, topic: OffsetCommitResponseTopic) {
    let same = |known: &&mut OffsetCommitResponseTopic| match by_id {
        true => known.topic_id == topic.topic_id,
        false => known.name == topic.name,
    };
    match response.topics.iter_mut().find(same) {
        Some(known) => known.partitions.extend(topic.partitions),
        None => response.topics.push(topic),
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
