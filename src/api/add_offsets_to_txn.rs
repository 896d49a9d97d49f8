//! AddOffsetsToTxn (key 25), versions 0-4: a group's offsets become part of a producer's transaction.
//!
//! - 2: PRODUCER_FENCED. 3: flexible. 4: TRANSACTION_ABORTABLE (KIP-890).
//!
//! What is added is the partition of `__consumer_offsets` that keeps the group.

use std::collections::BTreeSet;

use super::auto_topic_creation::GROUP_METADATA_TOPIC;
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::coordinator::transaction::{ProducerIdAndEpoch, Transaction, TransactionVersion};
use crate::log::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

pub async fn handle(
    context: &RequestContext,
    request: AddOffsetsToTxnRequest,
) -> Result<Reply<AddOffsetsToTxnResponse>, ApiError> {
    let broker = &context.broker;
    let partition = broker.group_coordinator.partition_for(&request.group_id);
    let transaction = Transaction {
        transactional_id: request.transactional_id.0,
        producer: ProducerIdAndEpoch {
            producer_id: request.producer_id.0,
            producer_epoch: request.producer_epoch,
        },
    };
    let partitions = BTreeSet::from([TopicPartition::new(GROUP_METADATA_TOPIC, partition)]);
    // A client of version 2 does not ask: TxnOffsetCommit adds the partition.
    let client_version = TransactionVersion::V0;
    let added = broker
        .transaction_coordinator
        .add_partitions(transaction, partitions, client_version)
        .await;
    match added {
        Ok(()) => Ok(Reply::Value(AddOffsetsToTxnResponse::default())),
        // Older clients know no other word for it.
        Err(ErrorCode::ProducerFenced) if context.api_version < 2 => {
            Err(ErrorCode::InvalidProducerEpoch.into())
        }
        Err(error) => Err(error.into()),
    }
}

impl ErrorResponse<AddOffsetsToTxnRequest> for AddOffsetsToTxnResponse {
    fn error_response(_: &RequestContext, _: &AddOffsetsToTxnRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
