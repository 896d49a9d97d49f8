//! OffsetFetch (key 9), versions 1-10: what groups have committed.
//!
//! - 2: all topics of a group, an error of the whole. 3: throttle time. 5: leader epoch. 6: flexible. 7: stable offsets only,
//!   if asked (KIP-447). 8: many groups (KIP-709). 9: member id and epoch (KIP-848). 10: topics by id.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::metadata::MetadataImage;
use crate::protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use crate::protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use crate::protocol::messages::{OffsetFetchRequest, OffsetFetchResponse, TopicName};
use crate::protocol::{ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    request: OffsetFetchRequest,
) -> Result<Reply<OffsetFetchResponse>, ApiError> {
    let (version, require_stable) = (context.api_version, request.require_stable);
    let mut groups = Vec::new();
    for group in groups_of(version, request) {
        groups.push(fetch_group(context, group, require_stable).await);
    }
    Ok(Reply::Value(in_version(version, groups)))
}

/// Before version 8 the request is about one group.
fn groups_of(version: i16, request: OffsetFetchRequest) -> Vec<OffsetFetchRequestGroup> {
    if version >= 8 {
        return request.groups;
    }
    let topics = request.topics.map(|topics| {
        let topic = |topic: OffsetFetchRequestTopic| {
            OffsetFetchRequestTopics::default()
                .with_name(topic.name)
                .with_partition_indexes(topic.partition_indexes)
        };
        topics.into_iter().map(topic).collect()
    });
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(request.group_id)
        .with_topics(topics);
    vec![group]
}

async fn fetch_group(
    context: &RequestContext,
    mut group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> OffsetFetchResponseGroup {
    let by_id = context.api_version >= 10;
    let image = context.broker.metadata.image();
    let unknown = match by_id {
        true => take_unknown_topics(&image, &mut group),
        false => Vec::new(),
    };
    let asked = group.clone();
    let fetched = context
        .broker
        .group_coordinator
        .fetch_offsets(group, require_stable)
        .await;
    match fetched {
        Ok(mut response) => {
            if by_id && asked.topics.is_none() {
                // Offsets of topics that are gone have no id to be told by.
                response.topics.retain_mut(|topic| {
                    topic.topic_id = image.topics.id_of(&topic.name).unwrap_or_default();
                    !topic.topic_id.is_nil()
                });
            }
            response.topics.extend(unknown);
            response
        }
        Err(error) => group_error(context.api_version, &asked, error),
    }
}

/// Names the topics that are asked for by id; those that are not there are answered.
fn take_unknown_topics(
    image: &MetadataImage,
    group: &mut OffsetFetchRequestGroup,
) -> Vec<OffsetFetchResponseTopics> {
    let mut unknown = Vec::new();
    for topic in group.topics.iter_mut().flatten() {
        match image.topics.name_of(topic.topic_id) {
            Some(name) => topic.name = TopicName(StrBytes::from_string(name.to_string())),
            None => unknown.push(failed_topic(topic, ErrorCode::UnknownTopicId)),
        }
    }
    if let Some(topics) = &mut group.topics {
        topics.retain(|topic| !topic.name.is_empty());
    }
    unknown
}

fn failed_topic(topic: &OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics {
    let partitions = topic.partition_indexes.iter().map(|partition| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(*partition)
            .with_committed_offset(-1)
            .with_committed_leader_epoch(-1)
            .with_metadata(Some(StrBytes::new()))
            .with_error_code(error.code())
    });
    OffsetFetchResponseTopics::default()
        .with_name(topic.name.clone())
        .with_topic_id(topic.topic_id)
        .with_partitions(partitions.collect())
}

/// Version 1 has no place for an error but each partition.
fn group_error(version: i16, group: &OffsetFetchRequestGroup, error: ErrorCode) -> OffsetFetchResponseGroup {
    let failed = OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
    if version >= 2 {
        return failed.with_error_code(error.code());
    }
    let topics = group
        .topics
        .iter()
        .flatten()
        .map(|topic| failed_topic(topic, error));
    failed.with_topics(topics.collect())
}

fn in_version(version: i16, groups: Vec<OffsetFetchResponseGroup>) -> OffsetFetchResponse {
    let response = OffsetFetchResponse::default();
    if version >= 8 {
        return response.with_groups(groups);
    }
    let Some(group) = groups.into_iter().next() else {
        return response;
    };
    let topics = group.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_committed_offset(partition.committed_offset)
                .with_committed_leader_epoch(partition.committed_leader_epoch)
                .with_metadata(partition.metadata)
                .with_error_code(partition.error_code)
        });
        OffsetFetchResponseTopic::default()
            .with_name(topic.name)
            .with_partitions(partitions.collect())
    });
    response
        .with_error_code(group.error_code)
        .with_topics(topics.collect())
}

impl ErrorResponse<OffsetFetchRequest> for OffsetFetchResponse {
    fn error_response(context: &RequestContext, request: &OffsetFetchRequest, error: &ApiError) -> Self {
        let version = context.api_version;
        let groups = groups_of(version, request.clone());
        let failed = groups.iter().map(|group| group_error(version, group, error.code));
        in_version(version, failed.collect())
    }
}

#[cfg(test)]
mod offset_fetch_test {
    use super::*;
    use crate::protocol::messages::GroupId;

    fn request() -> OffsetFetchRequestGroup {
        let topic = OffsetFetchRequestTopics::default()
            .with_name(TopicName(StrBytes::from_static_str("topic")))
            .with_partition_indexes(vec![3]);
        OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(StrBytes::from_static_str("group")))
            .with_topics(Some(vec![topic]))
    }

    #[test]
    fn error_of_the_group_is_told_where_the_version_has_a_place_for_it() {
        let code = ErrorCode::NotCoordinator.code();
        let error = |version| {
            in_version(
                version,
                vec![group_error(version, &request(), ErrorCode::NotCoordinator)],
            )
        };
        assert_eq!(error(1).topics[0].partitions[0].error_code, code);
        assert_eq!(error(1).error_code, 0);
        assert_eq!((error(2).error_code, error(2).topics.len()), (code, 0));
        assert_eq!(error(8).groups[0].error_code, code);
        assert!(error(8).topics.is_empty());
    }

    #[test]
    fn topics_of_an_old_request_are_those_of_its_group() {
        let old = OffsetFetchRequest::default()
            .with_group_id(GroupId(StrBytes::from_static_str("group")))
            .with_topics(None);
        assert_eq!(groups_of(7, old)[0].topics, None);
        let new = OffsetFetchRequest::default().with_groups(vec![request(), request()]);
        assert_eq!(groups_of(8, new).len(), 2);
    }
}
