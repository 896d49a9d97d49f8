//! OffsetFetch (key 9), versions 1-10: what groups have committed.
//!
//! - 2: all topics of a group, an error of the whole. 3: throttle time. 5: leader epoch. 6: flexible. 7: stable offsets only,
//!   if asked (KIP-447). 8: many groups (KIP-709). 9: member id and epoch (KIP-848). 10: topics by id.

use std::collections::HashSet;

use super::repeats::{ENTRY_BYTES, Repeats};
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

/// Of committed metadata, beyond which it is looked at whether it is repeated.
const SMALL_BYTES: usize = 16 * 1024 * 1024;

pub async fn handle(
    context: &RequestContext,
    request: OffsetFetchRequest,
) -> Result<Reply<OffsetFetchResponse>, ApiError> {
    let (version, require_stable) = (context.api_version, request.require_stable);
    let mut groups = Vec::new();
    let mut repeats = Repeats::new();
    let mut seen = HashSet::new();
    for group in groups_of(version, request) {
        let is_first = seen.insert(group.group_id.clone());
        let fetched = fetch_group(context, group, require_stable).await;
        repeats.add(repeated_entries(&fetched, is_first))?;
        groups.push(fetched);
    }
    Ok(Reply::Value(in_version(version, groups)))
}

/// How much of an answer was given before: all of it if its group was, else partitions that are named more than once.
fn repeated_entries(group: &OffsetFetchResponseGroup, is_first: bool) -> usize {
    let metadata =
        |entry: &OffsetFetchResponsePartitions| entry.metadata.as_ref().map_or(0, |text| text.len());
    let all = group
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |entry| (&topic.name, entry)));
    if !is_first {
        return all.map(|(_, entry)| 1 + metadata(entry) / ENTRY_BYTES).sum();
    }
    // Small, however often: without what was committed with the offsets an answer is no larger than its request.
    let total: usize = all.clone().map(|(_, entry)| metadata(entry)).sum();
    if total < SMALL_BYTES {
        return 0;
    }
    let mut seen = HashSet::new();
    let again = all.filter(|(name, entry)| !seen.insert((*name, entry.partition_index)));
    again.map(|(_, entry)| metadata(entry) / ENTRY_BYTES).sum()
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
    fn what_is_named_again_counts_with_what_was_committed_with_it() {
        let entry = |partition| {
            OffsetFetchResponsePartitions::default()
                .with_partition_index(partition)
                .with_metadata(Some(StrBytes::from_string("m".repeat(20 * ENTRY_BYTES))))
        };
        let group = |partitions: Vec<i32>| {
            let topic = OffsetFetchResponseTopics::default()
                .with_name(TopicName(StrBytes::from_static_str("topic")))
                .with_partitions(partitions.into_iter().map(entry).collect());
            OffsetFetchResponseGroup::default().with_topics(vec![topic])
        };
        assert_eq!(repeated_entries(&group(vec![0, 1]), true), 0);
        assert_eq!(repeated_entries(&group(vec![0, 1]), false), 2 * 21);
        let many = SMALL_BYTES as i32 / (20 * ENTRY_BYTES as i32) + 1;
        assert_eq!(repeated_entries(&group((0..many).collect()), true), 0);
        assert_eq!(
            repeated_entries(&group(vec![0; many as usize]), true),
            20 * (many as usize - 1)
        );
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
