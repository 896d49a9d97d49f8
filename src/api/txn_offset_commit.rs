//! TxnOffsetCommit (key 28), versions 0-6: a group's positions as part of a producer's transaction.
//!
//! - 2: leader epoch. 3: flexible; the member and its generation (KIP-447). 4: TRANSACTION_ABORTABLE. 5: adds the group's partition
//!   to the transaction by itself (KIP-890). 6: topics by id.
//!
//! Partitions that do not exist are answered here; the coordinator sees the others, after the transaction coordinator was asked
//! whether the group's partition is in the transaction.

use super::auto_topic_creation::GROUP_METADATA_TOPIC;
use super::committed_topics::{Answer, CommitTopic};
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::coordinator::transaction::{ProducerIdAndEpoch, SupportedOperation, Transaction};
use crate::log::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::messages::txn_offset_commit_response::TxnOffsetCommitResponseTopic;
use crate::protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

const FIRST_VERSION_WITH_TOPIC_IDS: i16 = 6;

pub async fn handle(
    context: &RequestContext,
    mut request: TxnOffsetCommitRequest,
) -> Result<Reply<TxnOffsetCommitResponse>, ApiError> {
    let mut answer = Answer::new(context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS);
    let topics = std::mem::take(&mut request.topics);
    request.topics = answer.take_valid(&context.broker.metadata.image(), topics);
    if request.topics.is_empty() {
        return Ok(Reply::Value(response(answer)));
    }
    let asked = request.topics.clone();
    let committed = commit(context, request).await;
    answer.finish(&asked, committed.map(|committed| committed.topics));
    Ok(Reply::Value(tell_old_clients(
        context.api_version,
        response(answer),
    )))
}

fn response(answer: Answer<TxnOffsetCommitResponseTopic>) -> TxnOffsetCommitResponse {
    TxnOffsetCommitResponse {
        topics: answer.topics,
        ..Default::default()
    }
}

/// An error is one of the whole commit.
async fn commit(
    context: &RequestContext,
    request: TxnOffsetCommitRequest,
) -> Result<TxnOffsetCommitResponse, ErrorCode> {
    let broker = &context.broker;
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let partition = broker.group_coordinator.partition_for(&request.group_id);
    let partition = TopicPartition::new(GROUP_METADATA_TOPIC, partition);
    let transaction = Transaction {
        transactional_id: request.transactional_id.0.clone(),
        producer: ProducerIdAndEpoch {
            producer_id: request.producer_id.0,
            producer_epoch: request.producer_epoch,
        },
    };
    const NO_SEQUENCE: i32 = -1;
    let mut verified = broker
        .transaction_verifier
        .verify(
            transaction,
            supported_operation(context.api_version),
            &[(partition.clone(), NO_SEQUENCE)],
        )
        .await;
    if let Some(error) = verified.errors.remove(&partition) {
        return Err(crate::coordinator::group::operation_error(error));
    }
    let guard = verified.guards.remove(&partition);
    broker
        .group_coordinator
        .commit_transactional_offsets(request, guard, context.api_version >= 6)
        .await
}

fn supported_operation(api_version: i16) -> SupportedOperation {
    match api_version {
        ..=3 => SupportedOperation::DefaultError,
        4 => SupportedOperation::GenericError,
        _ => SupportedOperation::AddPartition,
    }
}

/// Producers before Kafka 2.0 may crash when they are told of a coordinator that loads.
fn tell_old_clients(api_version: i16, mut response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse {
    if api_version < 2 {
        let topics = response.topics.iter_mut();
        for partition in topics.flat_map(|topic| &mut topic.partitions) {
            if partition.error_code == ErrorCode::CoordinatorLoadInProgress.code() {
                partition.error_code = ErrorCode::CoordinatorNotAvailable.code();
            }
        }
    }
    response
}

impl ErrorResponse<TxnOffsetCommitRequest> for TxnOffsetCommitResponse {
    fn error_response(_: &RequestContext, request: &TxnOffsetCommitRequest, error: &ApiError) -> Self {
        let topics = request.topics.iter();
        Self {
            topics: topics.map(|topic| topic.failed(error.code)).collect(),
            ..Default::default()
        }
    }
}
