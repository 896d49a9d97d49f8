//! DescribeTopicPartitions (key 75), version 0 (KIP-966): partitions with their eligible leader replicas, in pages.
//!
//! Topics come sorted by name, as Java sorts; a page ends at the lesser of the request's limit and
//! `max.request.partition.size.limit`, and the cursor says where the next begins.

use std::collections::BTreeSet;

use super::auto_topic_creation::is_internal;
use super::cluster_view::{ClusterView, broker_ids};
use super::{ApiError, ErrorResponse, Reply, RequestContext, authorized_operations};
use crate::controller::topic_name;
use crate::metadata::{PartitionRegistration, TopicImage};
use crate::protocol::messages::describe_topic_partitions_request::Cursor as RequestCursor;
use crate::protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use crate::protocol::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
};
use crate::protocol::{ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> Result<Reply<DescribeTopicPartitionsResponse>, ApiError> {
    let image = context.broker.metadata.image();
    let view = ClusterView {
        image: &image,
        listener: context.listener_name(),
    };
    let topics = wanted_topics(view, &request)?;
    let limit = context
        .broker
        .config
        .max_request_partition_size_limit
        .min(request.response_partition_limit)
        .max(1);
    Ok(Reply::Value(page(
        view,
        topics,
        request.cursor.as_ref(),
        limit as usize,
        request.topics.is_empty(),
    )))
}

/// From the cursor's topic on, sorted.
fn wanted_topics(
    view: ClusterView<'_>,
    request: &DescribeTopicPartitionsRequest,
) -> Result<BTreeSet<StrBytes>, ApiError> {
    let from = request
        .cursor
        .as_ref()
        .map_or("", |cursor| cursor.topic_name.as_str());
    let topics: BTreeSet<StrBytes> = if request.topics.is_empty() {
        let all = view.image.topics.iter().filter(|topic| &*topic.name >= from);
        all.map(|topic| StrBytes::from_string(topic.name.to_string()))
            .collect()
    } else {
        let named = request.topics.iter().filter(|topic| topic.name.as_str() >= from);
        named.map(|topic| topic.name.0.clone()).collect()
    };
    let Some(cursor) = &request.cursor else {
        return Ok(topics);
    };
    if !request.topics.is_empty() && !topics.contains(&cursor.topic_name.0) {
        return Err(ApiError::new(
            ErrorCode::InvalidRequest,
            format!(
                "DescribeTopicPartitionsRequest topic list should contain the cursor topic: {}",
                cursor.topic_name.as_str()
            ),
        ));
    }
    if cursor.partition_index < 0 {
        return Err(ApiError::new(
            ErrorCode::InvalidRequest,
            format!(
                "DescribeTopicPartitionsRequest cursor partition must be valid: {}",
                cursor.partition_index
            ),
        ));
    }
    Ok(topics)
}

fn page(
    view: ClusterView<'_>,
    topics: BTreeSet<StrBytes>,
    cursor: Option<&RequestCursor>,
    limit: usize,
    is_all: bool,
) -> DescribeTopicPartitionsResponse {
    let mut response = DescribeTopicPartitionsResponse::default();
    let mut left = limit;
    for name in topics {
        if left == 0 {
            response.next_cursor = Some(cursor_at(name, 0));
            break;
        }
        let first = cursor
            .filter(|cursor| cursor.topic_name.0 == name)
            .map_or(0, |cursor| cursor.partition_index as usize);
        match view.image.topics.by_name(&name) {
            Some(image) => {
                let end = image.partitions.len().min(first.saturating_add(left));
                let topic = existing(view, image, first, end);
                left -= topic.partitions.len();
                response.topics.push(topic);
                if end < image.partitions.len() {
                    response.next_cursor = Some(cursor_at(name, end as i32));
                    break;
                }
            }
            None if is_all => {}
            None => response.topics.push(missing(name)),
        }
    }
    response
}

fn cursor_at(topic: StrBytes, partition: i32) -> Cursor {
    let mut cursor = Cursor::default();
    cursor.topic_name = TopicName(topic);
    cursor.partition_index = partition;
    cursor
}

fn existing(
    view: ClusterView<'_>,
    image: &TopicImage,
    first: usize,
    end: usize,
) -> DescribeTopicPartitionsResponseTopic {
    let mut topic = DescribeTopicPartitionsResponseTopic::default();
    topic.name = Some(TopicName(StrBytes::from_string(image.name.to_string())));
    topic.topic_id = image.id;
    topic.is_internal = is_internal(&image.name);
    topic.topic_authorized_operations = authorized_operations::TOPIC;
    topic.partitions = (first..end)
        .filter_map(|index| image.partitions.get_key_value(&(index as i32)))
        .map(|(index, registration)| partition(view, *index, registration))
        .collect();
    topic
}

fn missing(name: StrBytes) -> DescribeTopicPartitionsResponseTopic {
    let error = match topic_name::validate(&name) {
        Ok(()) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    };
    let mut topic = DescribeTopicPartitionsResponseTopic::default();
    topic.error_code = error.code();
    topic.is_internal = is_internal(&name);
    topic.name = Some(TopicName(name));
    topic.topic_authorized_operations = authorized_operations::TOPIC;
    topic
}

fn partition(
    view: ClusterView<'_>,
    index: i32,
    registration: &PartitionRegistration,
) -> DescribeTopicPartitionsResponsePartition {
    let mut partition = DescribeTopicPartitionsResponsePartition::default();
    partition.partition_index = index;
    partition.leader_id = BrokerId(view.node(registration.leader).map_or(-1, |node| node.broker.id));
    partition.leader_epoch = registration.leader_epoch;
    partition.replica_nodes = broker_ids(&registration.replicas);
    partition.isr_nodes = broker_ids(&registration.isr);
    partition.offline_replicas = view.offline_replicas(registration);
    partition.eligible_leader_replicas = Some(broker_ids(&registration.elr));
    partition.last_known_elr = Some(broker_ids(&registration.last_known_elr));
    partition
}

impl ErrorResponse<DescribeTopicPartitionsRequest> for DescribeTopicPartitionsResponse {
    fn error_response(
        _: &RequestContext,
        request: &DescribeTopicPartitionsRequest,
        error: &ApiError,
    ) -> Self {
        let mut response = Self::default();
        response.topics = request
            .topics
            .iter()
            .map(|asked| {
                let mut topic = DescribeTopicPartitionsResponseTopic::default();
                topic.error_code = error.code.code();
                topic.name = Some(asked.name.clone());
                topic
            })
            .collect();
        response
    }
}

#[cfg(test)]
#[path = "describe_topic_partitions_test.rs"]
mod describe_topic_partitions_test;
