//! DescribeTransactions (key 65), version 0: what this node's transaction coordinator knows of transactional ids (KIP-664).

use std::collections::HashSet;

use super::repeats::Repeats;
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::coordinator::transaction::TransactionMetadata;
use crate::protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use crate::protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TopicName, TransactionalId,
};
use crate::protocol::{ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    request: DescribeTransactionsRequest,
) -> Result<Reply<DescribeTransactionsResponse>, ApiError> {
    let mut response = DescribeTransactionsResponse::default();
    let mut repeats = Repeats::new();
    let mut seen: HashSet<StrBytes> = HashSet::new();
    for transactional_id in request.transactional_ids {
        let coordinator = &context.broker.transaction_coordinator;
        let is_first = seen.insert(transactional_id.0.clone());
        let described = match coordinator.describe(transactional_id.0.clone()).await {
            Ok(metadata) => describe(&metadata),
            Err(error) => refused(transactional_id, error),
        };
        if !is_first {
            let topics = described.topics.iter();
            repeats.add(topics.map(|topic| 1 + topic.partitions.len()).sum())?;
        }
        response.transaction_states.push(described);
    }
    Ok(Reply::Value(response))
}

fn describe(metadata: &TransactionMetadata) -> TransactionState {
    let mut topics: Vec<TopicData> = Vec::new();
    // Sorted, so the partitions of a topic come together.
    for partition in &metadata.partitions {
        match topics.last_mut() {
            Some(topic) if *topic.topic.0 == *partition.topic => topic.partitions.push(partition.partition),
            _ => topics.push(
                TopicData::default()
                    .with_topic(TopicName(StrBytes::from_string(partition.topic.to_string())))
                    .with_partitions(vec![partition.partition]),
            ),
        }
    }
    TransactionState::default()
        .with_transactional_id(TransactionalId(metadata.transactional_id.clone()))
        .with_transaction_state(StrBytes::from_static_str(metadata.state.name()))
        .with_transaction_timeout_ms(metadata.timeout_ms)
        .with_transaction_start_time_ms(metadata.start_timestamp_ms)
        .with_producer_id(ProducerId(metadata.producer_id))
        .with_producer_epoch(metadata.producer_epoch)
        .with_topics(topics)
}

fn refused(transactional_id: TransactionalId, error: ErrorCode) -> TransactionState {
    TransactionState::default()
        .with_transactional_id(transactional_id)
        .with_error_code(error.code())
}

impl ErrorResponse<DescribeTransactionsRequest> for DescribeTransactionsResponse {
    fn error_response(_: &RequestContext, request: &DescribeTransactionsRequest, error: &ApiError) -> Self {
        let ids = request.transactional_ids.iter();
        Self::default().with_transaction_states(ids.map(|id| refused(id.clone(), error.code)).collect())
    }
}
