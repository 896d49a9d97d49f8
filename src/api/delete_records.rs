//! DeleteRecords (key 21), versions 0-2: moves log start offsets up; answered when the live replicas have followed.
//!
//! - 1: nothing but how throttling is counted. 2: flexible.
//!
//! Records go at once for clients; their segments go with the next pass of retention. -1 stands for the high watermark. Refused: topics with
//! `cleanup.policy=compact` alone (POLICY_VIOLATION), internal topics (INVALID_TOPIC_EXCEPTION), offsets above the high watermark.

use std::sync::Arc;

use indexmap::IndexMap;

use super::error_map::replica_error;
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::log::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::messages::TopicName;
use crate::protocol::messages::delete_records_request::DeleteRecordsRequest;
use crate::protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};

const INVALID_LOW_WATERMARK: i64 = -1;

pub async fn handle(
    context: &RequestContext,
    request: DeleteRecordsRequest,
) -> Result<Reply<DeleteRecordsResponse>, ApiError> {
    let timeout_ms = request.timeout_ms.max(0) as u64;
    let image = context.broker.metadata.image();
    // A partition that is named twice is answered once, and what was said last counts, as in Kafka's map.
    let mut wanted: IndexMap<TopicPartition, i64> = IndexMap::new();
    for topic in &request.topics {
        let name: Arc<str> = Arc::from(&**topic.name);
        for partition in &topic.partitions {
            let topic = name.clone();
            let partition_index = partition.partition_index;
            wanted.insert(
                TopicPartition {
                    topic,
                    partition: partition_index,
                },
                partition.offset,
            );
        }
    }
    let is_known = |partition: &TopicPartition| {
        let topic = image.topics.by_name(&partition.topic);
        topic.is_some_and(|topic| topic.partitions.contains_key(&partition.partition))
    };
    let (known, unknown): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|(partition, _)| is_known(partition));

    let mut answers = Answers::default();
    if !known.is_empty() {
        let replicas = context.broker.replica_manager.clone();
        // Leader epochs are written anew where records go: no work for a thread that serves connections.
        let deleted = tokio::task::spawn_blocking(move || replicas.delete_records(known)).await;
        let deleted =
            deleted.map_err(|error| ApiError::new(ErrorCode::UnknownServerError, error.to_string()))?;
        for (partition, result) in deleted.completed(timeout_ms).await {
            let error = result.error.as_ref().map_or(ErrorCode::None, replica_error);
            answers.add(&partition, result.low_watermark, error);
        }
    }
    for (partition, _) in unknown {
        let error = ErrorCode::UnknownTopicOrPartition;
        answers.add(&partition, INVALID_LOW_WATERMARK, error);
    }
    Ok(Reply::Value(answers.into_response()))
}

/// Results by topic, in the order in which their topics came.
#[derive(Default)]
struct Answers(IndexMap<Arc<str>, Vec<DeleteRecordsPartitionResult>>);

impl Answers {
    fn add(&mut self, partition: &TopicPartition, low_watermark: i64, error: ErrorCode) {
        let mut result = DeleteRecordsPartitionResult::default();
        result.partition_index = partition.partition;
        result.low_watermark = low_watermark;
        result.error_code = error.code();
        self.0.entry(partition.topic.clone()).or_default().push(result);
    }

    fn into_response(self) -> DeleteRecordsResponse {
        let topics = self.0.into_iter().map(|(name, partitions)| {
            let mut topic = DeleteRecordsTopicResult::default();
            topic.name = TopicName(name.to_string().into());
            topic.partitions = partitions;
            topic
        });
        let mut response = DeleteRecordsResponse::default();
        response.topics = topics.collect();
        response
    }
}

impl ErrorResponse<DeleteRecordsRequest> for DeleteRecordsResponse {
    fn error_response(_: &RequestContext, request: &DeleteRecordsRequest, error: &ApiError) -> Self {
        let mut answers = Answers::default();
        for topic in &request.topics {
            let name: Arc<str> = Arc::from(&**topic.name);
            for partition in &topic.partitions {
                let partition = TopicPartition {
                    topic: name.clone(),
                    partition: partition.partition_index,
                };
                answers.add(&partition, INVALID_LOW_WATERMARK, error.code);
            }
        }
        answers.into_response()
    }
}

#[cfg(test)]
#[path = "delete_records_test.rs"]
mod delete_records_test;
