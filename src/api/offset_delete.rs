//! OffsetDelete (key 47), version 0: forgets what a group committed of topics that it does not consume now (KIP-496).
//!
//! Partitions that do not exist are answered here; the coordinator sees the others. An error of the whole group stands alone.

use indexmap::IndexMap;

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::metadata::MetadataImage;
use crate::protocol::ErrorCode;
use crate::protocol::messages::offset_delete_request::OffsetDeleteRequestTopic;
use crate::protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use crate::protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse, TopicName};

pub async fn handle(
    context: &RequestContext,
    mut request: OffsetDeleteRequest,
) -> Result<Reply<OffsetDeleteResponse>, ApiError> {
    let image = context.broker.metadata.image();
    let mut unknown = Vec::new();
    let mut valid = Vec::with_capacity(request.topics.len());
    for topic in std::mem::take(&mut request.topics) {
        valid.extend(take_valid(&image, topic, &mut unknown));
    }
    request.topics = valid;
    // Also without a topic: whether the group may be changed is told first.
    let deleted = context.broker.group_coordinator.delete_offsets(request).await;
    let response = match deleted {
        Ok(deleted) => {
            // A topic is in the answer once.
            let mut topics: IndexMap<TopicName, Vec<OffsetDeleteResponsePartition>> = IndexMap::new();
            for topic in unknown.into_iter().chain(deleted.topics) {
                topics.entry(topic.name).or_default().extend(topic.partitions);
            }
            let topics = topics.into_iter().map(|(name, partitions)| {
                OffsetDeleteResponseTopic::default()
                    .with_name(name)
                    .with_partitions(partitions)
            });
            OffsetDeleteResponse::default().with_topics(topics.collect())
        }
        Err(error) => OffsetDeleteResponse::default().with_error_code(error.code()),
    };
    Ok(Reply::Value(response))
}

/// The partitions of a topic that exist; the others are put into `unknown`.
fn take_valid(
    image: &MetadataImage,
    mut topic: OffsetDeleteRequestTopic,
    unknown: &mut Vec<OffsetDeleteResponseTopic>,
) -> Option<OffsetDeleteRequestTopic> {
    let known = image.topics.by_name(&topic.name);
    let exists = |partition: i32| known.is_some_and(|known| known.partitions.contains_key(&partition));
    let (valid, invalid): (Vec<_>, Vec<_>) = std::mem::take(&mut topic.partitions)
        .into_iter()
        .partition(|partition| exists(partition.partition_index));
    if !invalid.is_empty() {
        let partitions = invalid.into_iter().map(|partition| {
            OffsetDeleteResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(ErrorCode::UnknownTopicOrPartition.code())
        });
        unknown.push(
            OffsetDeleteResponseTopic::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions.collect()),
        );
    }
    topic.partitions = valid;
    (!topic.partitions.is_empty()).then_some(topic)
}

impl ErrorResponse<OffsetDeleteRequest> for OffsetDeleteResponse {
    fn error_response(_context: &RequestContext, _request: &OffsetDeleteRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
