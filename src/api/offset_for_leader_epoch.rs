//! OffsetForLeaderEpoch (key 23), versions 2-4.
//!
//! | version | what changed |
//! | --- | --- |
//! | 2 | current leader epoch, so that a stale client is fenced (KIP-320) |
//! | 3 | replica id: consumers ask too |
//! | 4 | compact forms |

use super::error_map::replica_error;
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::log::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition,
};
use crate::protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};

pub async fn handle(
    context: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> Result<Reply<OffsetForLeaderEpochResponse>, ApiError> {
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in &request.topics {
        let mut result = OffsetForLeaderTopicResult::default();
        result.topic = topic.topic.clone();
        result.partitions = topic
            .partitions
            .iter()
            .map(|partition| end_offset(context, &topic.topic, partition))
            .collect();
        response.topics.push(result);
    }
    Ok(Reply::Value(response))
}

fn end_offset(context: &RequestContext, topic: &str, partition: &OffsetForLeaderPartition) -> EpochEndOffset {
    let topic_partition = TopicPartition::new(topic, partition.partition);
    // Any other negative epoch is one that is long over (FENCED_LEADER_EPOCH).
    let current_leader_epoch =
        (partition.current_leader_epoch != -1).then_some(partition.current_leader_epoch);
    let found = context.broker.replica_manager.last_offset_for_leader_epoch(
        &topic_partition,
        current_leader_epoch,
        partition.leader_epoch,
    );
    match found {
        Ok(found) => {
            let mut answer = answer(partition, ErrorCode::None);
            if let Some((leader_epoch, end_offset)) = found {
                answer.leader_epoch = leader_epoch;
                answer.end_offset = end_offset;
            }
            answer
        }
        Err(error) => answer(partition, replica_error(&error)),
    }
}

/// Epoch and offset unknown.
fn answer(partition: &OffsetForLeaderPartition, error: ErrorCode) -> EpochEndOffset {
    let mut answer = EpochEndOffset::default();
    answer.error_code = error.code();
    answer.partition = partition.partition;
    answer.leader_epoch = -1;
    answer.end_offset = -1;
    answer
}

impl ErrorResponse<OffsetForLeaderEpochRequest> for OffsetForLeaderEpochResponse {
    fn error_response(_: &RequestContext, request: &OffsetForLeaderEpochRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        for topic in &request.topics {
            let mut result = OffsetForLeaderTopicResult::default();
            result.topic = topic.topic.clone();
            result.partitions = topic
                .partitions
                .iter()
                .map(|partition| answer(partition, error.code))
                .collect();
            response.topics.push(result);
        }
        response
    }
}
