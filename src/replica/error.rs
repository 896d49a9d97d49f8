//! What can go wrong with a hosted partition, in Kafka's words.
//!
//! `api::error_map` turns these into wire codes, exhaustively. The coordinators match on them themselves, since they answer
//! with codes of their own (NOT_ENOUGH_REPLICAS becomes COORDINATOR_NOT_AVAILABLE there).

use thiserror::Error;

use crate::log::LogError;

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
