//! DescribeProducers (key 61), version 0: which producers a partition knows, and since where their transactions are open (KIP-664).

use std::collections::HashSet;

use super::error_map::replica_error;
use super::repeats::Repeats;
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::controller::topic_name;
use crate::log::{ProducerStateSummary, TopicPartition};
use crate::protocol::messages::describe_producers_request::TopicRequest;
use crate::protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use crate::protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId};
use crate::protocol::{ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    request: DescribeProducersRequest,
) -> Result<Reply<DescribeProducersResponse>, ApiError> {
    let image = context.broker.metadata.image();
    let mut response = DescribeProducersResponse::default();
    let mut repeats = Repeats::new();
    let mut seen: HashSet<(&str, i32)> = HashSet::new();
    for topic in &request.topics {
        let refusal = match topic_name::validate(&topic.name) {
            Err(message) => Some(ApiError::new(ErrorCode::InvalidTopicException, message)),
            Ok(()) if image.topics.by_name(&topic.name).is_none() => {
                Some(ErrorCode::UnknownTopicOrPartition.into())
            }
            Ok(()) => None,
        };
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for partition in &topic.partition_indexes {
            let described = match &refusal {
                Some(error) => refused(*partition, error),
                None => describe(context, &topic.name, *partition),
            };
            if !seen.insert((&topic.name, *partition)) {
                repeats.add(described.active_producers.len())?;
            }
            partitions.push(described);
        }
        let described = TopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions);
        response.topics.push(described);
    }
    Ok(Reply::Value(response))
}

/// A follower may answer, too.
fn describe(context: &RequestContext, topic: &str, index: i32) -> PartitionResponse {
    let topic_partition = TopicPartition::new(topic, index);
    let mut response = PartitionResponse::default();
    response.partition_index = index;
    response.error_message = None;
    match context.broker.replica_manager.get_partition(&topic_partition) {
        Ok(partition) => {
            let producers = partition.log().active_producers();
            response.active_producers = producers.into_iter().map(producer_state).collect();
        }
        Err(error) => response.error_code = replica_error(&error).code(),
    }
    response
}

fn producer_state(producer: ProducerStateSummary) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(producer.producer_id))
        .with_producer_epoch(i32::from(producer.producer_epoch))
        .with_last_sequence(producer.last_sequence)
        .with_last_timestamp(producer.last_timestamp)
        .with_coordinator_epoch(producer.coordinator_epoch)
        .with_current_txn_start_offset(producer.current_txn_start_offset)
}

fn refused(partition: i32, error: &ApiError) -> PartitionResponse {
    PartitionResponse::default()
        .with_partition_index(partition)
        .with_error_code(error.code.code())
        .with_error_message(Some(StrBytes::from_string(error.message_or_default().to_owned())))
}

impl ErrorResponse<DescribeProducersRequest> for DescribeProducersResponse {
    fn error_response(_: &RequestContext, request: &DescribeProducersRequest, error: &ApiError) -> Self {
        let topic = |topic: &TopicRequest| {
            let partitions = topic.partition_indexes.iter();
            TopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions.map(|partition| refused(*partition, error)).collect())
        };
        Self::default().with_topics(request.topics.iter().map(topic).collect())
    }
}
