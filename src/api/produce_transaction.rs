//! The part of Produce that concerns transactions: which batches are part of one, and what becomes of those that may not be.

use bytes::Bytes;

use super::RequestContext;
use crate::coordinator::transaction::{ProducerIdAndEpoch, SupportedOperation, Transaction};
use crate::log::TopicPartition;
use crate::protocol::{ApiError, ErrorCode, StrBytes};
use crate::record::BatchHeader;
use crate::replica::{TopicIdPartition, VerificationGuards};

/// Why partitions are not written to.
pub(super) type Refusals = Vec<(TopicPartition, ErrorCode, Option<String>)>;

/// Asks for all transactional batches of a request (which are one producer's) whether they may be written.
pub(super) async fn verify(
    context: &RequestContext,
    transactional_id: Option<StrBytes>,
    entries: &[(TopicIdPartition, Bytes)],
) -> Result<(VerificationGuards, Refusals), ApiError> {
    let (producer, partitions) = transactional_batches(entries)?;
    let (Some(producer), Some(transactional_id)) = (producer, transactional_id) else {
        return Ok(Default::default());
    };
    let transaction = Transaction {
        transactional_id,
        producer,
    };
    let operation = supported_operation(context.api_version);
    let verifier = &context.broker.transaction_verifier;
    let verified = verifier.verify(transaction, operation, &partitions).await;
    let refused = verified.errors.into_iter().map(|(partition, error)| {
        let (error, message) = told(error, operation);
        (partition, error, message)
    });
    Ok((verified.guards, refused.collect()))
}

/// Where transactional batches go, with which first sequence.
type FirstSequences = Vec<(TopicPartition, i32)>;

/// The producer of the transactional batches, and where they go.
fn transactional_batches(
    entries: &[(TopicIdPartition, Bytes)],
) -> Result<(Option<ProducerIdAndEpoch>, FirstSequences), ApiError> {
    let mut producer = None;
    let mut partitions = Vec::new();
    for (id, records) in entries {
        // What cannot be read is refused by the append.
        let Ok(batch) = BatchHeader::parse(records) else {
            continue;
        };
        if !batch.is_transactional() || !batch.has_producer_id() {
            continue;
        }
        let of_batch = ProducerIdAndEpoch {
            producer_id: batch.producer_id,
            producer_epoch: batch.producer_epoch,
        };
        if producer.is_some_and(|producer| producer != of_batch) {
            return Err(ApiError::new(
                ErrorCode::InvalidProducerIdMapping,
                "Transactional records contained more than one producer ID",
            ));
        }
        producer = Some(of_batch);
        partitions.push((id.topic_partition.clone(), batch.base_sequence));
    }
    Ok((producer, partitions))
}

fn supported_operation(api_version: i16) -> SupportedOperation {
    match api_version {
        ..=10 => SupportedOperation::DefaultError,
        11 => SupportedOperation::GenericError,
        _ => SupportedOperation::AddPartition,
    }
}

/// What a producer is told of a coordinator's answer: where it may try again, an error that every client tries again after, and that makes
/// none look for another leader.
fn told(error: ErrorCode, operation: SupportedOperation) -> (ErrorCode, Option<String>) {
    match error {
        ErrorCode::InvalidTxnState => {
            let message = "Partition was not added to the transaction";
            (error, Some(message.to_owned()))
        }
        ErrorCode::NetworkException
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator => not_verified(error),
        ErrorCode::ConcurrentTransactions if !operation.supports_epoch_bump() => not_verified(error),
        error => (error, None),
    }
}

fn not_verified(error: ErrorCode) -> (ErrorCode, Option<String>) {
    let message = format!(
        "Unable to verify the partition has been added to the transaction. Underlying error: {}",
        error.name()
    );
    (ErrorCode::NotEnoughReplicas, Some(message))
}

#[cfg(test)]
#[path = "produce_transaction_test.rs"]
mod produce_transaction_test;
