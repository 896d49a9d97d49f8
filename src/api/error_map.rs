//! Errors of the layers below as error codes: one exhaustive match a layer, without a wildcard (`ReplicaError`'s is beside it).
//!
//! A new variant below does not compile until someone picks its code here. An error that a client would take for fatal never stands in
//! for one that passes: UNKNOWN_SERVER_ERROR is left for what Kafka too throws as no protocol error.
#![deny(clippy::wildcard_enum_match_arm)]

use crate::log::LogError;
use crate::log::validator::ValidationError;
use crate::protocol::ErrorCode;
use crate::replica::ReplicaError;
use crate::replica::fetch_session::SessionError;

pub fn replica_error(error: &ReplicaError) -> ErrorCode {
    error.code().unwrap_or_else(log_error)
}

pub fn log_error(error: &LogError) -> ErrorCode {
    match error {
        LogError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        LogError::CorruptRecord { .. } => ErrorCode::CorruptMessage,
        LogError::RecordTooLarge { .. } => ErrorCode::MessageTooLarge,
        LogError::RecordBatchTooLarge { .. } => ErrorCode::RecordListTooLarge,
        LogError::Validation(error) => validation_error(error),
        LogError::InvalidRecord { .. } => ErrorCode::InvalidRecord,
        LogError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        LogError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        LogError::InvalidTxnState { .. } => ErrorCode::InvalidTxnState,
        LogError::TransactionCoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        // A follower's own: no client asked for it.
        LogError::UnexpectedAppendOffset { .. } => ErrorCode::UnknownServerError,
        LogError::InconsistentTopicId { .. } => ErrorCode::InconsistentTopicId,
        // For a full disk too: Kafka has no code of its own for it, and this is what its producers do with it. The Java client
        // takes it for out-of-date metadata: it asks for them and sends again until `delivery.timeout.ms`. librdkafka does
        // the same, and neither counts it as a reason to give up an idempotent producer.
        LogError::Storage { .. }
        | LogError::NoSpace { .. }
        | LogError::DirectoryOffline { .. }
        | LogError::NoLogDirectory
        | LogError::LockHeld { .. }
        | LogError::ShuttingDown
        | LogError::InvalidLogDirectory { .. } => ErrorCode::KafkaStorageError,
        // Deleted or closed under a request that held it: the client looks for the partition anew.
        LogError::Closed { .. } => ErrorCode::NotLeaderOrFollower,
    }
}

pub fn validation_error(error: &ValidationError) -> ErrorCode {
    match error {
        ValidationError::CorruptRecord(_) => ErrorCode::CorruptMessage,
        ValidationError::InvalidRecord { .. } => ErrorCode::InvalidRecord,
        ValidationError::InvalidTimestamp { .. } => ErrorCode::InvalidTimestamp,
        ValidationError::RecordTooLarge(_) => ErrorCode::MessageTooLarge,
        ValidationError::Unexpected(_) => ErrorCode::UnknownServerError,
    }
}

pub fn session_error(error: SessionError) -> ErrorCode {
    match error {
        SessionError::IdNotFound => ErrorCode::FetchSessionIdNotFound,
        SessionError::InvalidEpoch => ErrorCode::InvalidFetchSessionEpoch,
        SessionError::TopicId => ErrorCode::FetchSessionTopicIdError,
    }
}

#[cfg(test)]
#[path = "error_map_test.rs"]
mod error_map_test;
