//! OffsetDelete (key 47), version 0: forgets what a group committed of topics that it does not consume now (KIP-496).
//!
//! Partitions that do not exist are answered here; the coordinator sees the others. An error of the whole group stands alone.

use indexmap::IndexMap;

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::metadata::MetadataImage;
use crate::protocol::ErrorCode;
use crate::protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use crate::protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use crate::protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse, TopicName};

pub async fn handle(
    context: &RequestContext,
    mut request: OffsetDeleteRequest,
) -> Result<Reply<OffsetDeleteResponse>, ApiError> {
    let image = context.broker.metadata.image();
    let mut unknown = Unknown::default();
    let mut valid = Vec::with_capacity(request.topics.len());
    for topic in std::mem::take(&mut request.topics) {
        valid.extend(take_valid(&image, topic, &mut unknown));
    }
    request.topics = valid;
    // Also without a topic: whether the group may be changed is told first.
    let deleted = context.broker.group_coordinator.delete_offsets(request).await;
    let response = match deleted {
        Ok(deleted) => OffsetDeleteResponse::default().with_topics(unknown.merged_with(deleted.topics)),
        Err(error) => OffsetDeleteResponse::default().with_error_code(error.code()),
    };
    Ok(Reply::Value(response))
}

/// What does not exist: a topic once, as it was named first.
#[derive(Default)]
struct Unknown {
    topics: IndexMap<TopicName, Vec<OffsetDeleteResponsePartition>>,
}

impl Unknown {
    /// A topic that does not exist is answered without partitions, too.
    fn add(&mut self, topic: &TopicName, partitions: Vec<OffsetDeleteRequestPartition>) {
        let partitions = partitions.into_iter().map(|partition| {
            OffsetDeleteResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(ErrorCode::UnknownTopicOrPartition.code())
        });
        self.topics.entry(topic.clone()).or_default().extend(partitions);
    }

    /// As with Kafka: what the coordinator says stands as it is, a topic as often as it was named, unless there is something
    /// to merge it with.
    fn merged_with(self, deleted: Vec<OffsetDeleteResponseTopic>) -> Vec<OffsetDeleteResponseTopic> {
        if self.topics.is_empty() {
            return deleted;
        }
        let mut topics = self.topics;
        for topic in deleted {
            topics.entry(topic.name).or_default().extend(topic.partitions);
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            OffsetDeleteResponseTopic::default()
                .with_name(name)
                .with_partitions(partitions)
        });
        topics.collect()
    }
}

/// The partitions of a topic that exist; the others are put into `unknown`.
fn take_valid(
    image: &MetadataImage,
    mut topic: OffsetDeleteRequestTopic,
    unknown: &mut Unknown,
) -> Option<OffsetDeleteRequestTopic> {
    let Some(known) = image.topics.by_name(&topic.name) else {
        unknown.add(&topic.name, topic.partitions);
        return None;
    };
    let (valid, invalid): (Vec<_>, Vec<_>) = std::mem::take(&mut topic.partitions)
        .into_iter()
        .partition(|partition| known.partitions.contains_key(&partition.partition_index));
    if !invalid.is_empty() {
        unknown.add(&topic.name, invalid);
    }
    topic.partitions = valid;
    (!topic.partitions.is_empty()).then_some(topic)
}

impl ErrorResponse<OffsetDeleteRequest> for OffsetDeleteResponse {
    fn error_response(_context: &RequestContext, _request: &OffsetDeleteRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
