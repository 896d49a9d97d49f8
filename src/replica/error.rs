//! What can go wrong with a hosted partition, in Kafka's words.
//!
//! `ReplicaError::code` has the wire codes, exhaustively; what is the log's own, `api::error_map` and the coordinators turn into codes,
//! each as its requests want it. Coordinators answer with codes of their own besides (NOT_ENOUGH_REPLICAS becomes
//! COORDINATOR_NOT_AVAILABLE there).

use thiserror::Error;

use crate::log::LogError;
use crate::protocol::ErrorCode;

#[derive(Debug, Clone, Error)]
pub enum ReplicaError {
    #[error("this server does not host this topic-partition: {partition}")]
    UnknownTopicOrPartition { partition: String },
    #[error("this server does not host this topic ID")]
    UnknownTopicId,
    #[error("the log's topic ID did not match the topic ID in the request")]
    InconsistentTopicId,
    #[error("this server is not the leader for {partition}")]
    NotLeaderOrFollower { partition: String },
    #[error("leader epoch {requested} is older than the current {current}")]
    FencedLeaderEpoch { requested: i32, current: i32 },
    #[error("leader epoch {requested} is newer than the current {current}")]
    UnknownLeaderEpoch { requested: i32, current: i32 },
    #[error("the leader of {partition} has no high watermark of its epoch yet")]
    OffsetNotAvailable { partition: String },
    #[error("{in_sync} in-sync replicas of {partition} are fewer than min.insync.replicas {required}")]
    NotEnoughReplicas {
        partition: String,
        in_sync: usize,
        required: i32,
    },
    #[error("appended to {partition}, but to fewer in-sync replicas than required")]
    NotEnoughReplicasAfterAppend { partition: String },
    #[error("not acknowledged by all in-sync replicas within the request's timeout")]
    RequestTimedOut,
    #[error("required acks {acks} is none of -1, 0, 1")]
    InvalidRequiredAcks { acks: i16 },
    #[error("cannot append to internal topic {topic}")]
    InvalidTopic { topic: String },
    #[error("offset {offset} of {partition} is below the log start, or of an epoch that is not known")]
    OffsetOutOfRange { partition: String, offset: i64 },
    #[error("records of {partition} cannot be deleted: its cleanup.policy is compact alone")]
    PolicyViolation { partition: String },
    #[error("the log directory of {partition} is offline")]
    KafkaStorage { partition: String },
    #[error(transparent)]
    Log(#[from] LogError),
}

impl ReplicaError {
    /// Kafka's code. `Err`: the log's own error, whose code depends on who asked.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn code(&self) -> Result<ErrorCode, &LogError> {
        let code = match self {
            Self::UnknownTopicOrPartition { .. } => ErrorCode::UnknownTopicOrPartition,
            Self::UnknownTopicId => ErrorCode::UnknownTopicId,
            Self::InconsistentTopicId => ErrorCode::InconsistentTopicId,
            Self::NotLeaderOrFollower { .. } => ErrorCode::NotLeaderOrFollower,
            Self::FencedLeaderEpoch { .. } => ErrorCode::FencedLeaderEpoch,
            Self::UnknownLeaderEpoch { .. } => ErrorCode::UnknownLeaderEpoch,
            Self::OffsetNotAvailable { .. } => ErrorCode::OffsetNotAvailable,
            Self::NotEnoughReplicas { .. } => ErrorCode::NotEnoughReplicas,
            Self::NotEnoughReplicasAfterAppend { .. } => ErrorCode::NotEnoughReplicasAfterAppend,
            Self::RequestTimedOut => ErrorCode::RequestTimedOut,
            Self::InvalidRequiredAcks { .. } => ErrorCode::InvalidRequiredAcks,
            Self::InvalidTopic { .. } => ErrorCode::InvalidTopicException,
            Self::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            Self::PolicyViolation { .. } => ErrorCode::PolicyViolation,
            Self::KafkaStorage { .. } => ErrorCode::KafkaStorageError,
            Self::Log(error) => return Err(error),
        };
        Ok(code)
    }
}
