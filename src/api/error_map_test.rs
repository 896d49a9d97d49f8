//! Every pair of error and code, pinned.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::log::TopicPartition;

fn reason() -> String {
    String::from("why")
}

fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

#[test]
fn log_errors_have_kafkas_codes() {
    let (offset, size, max) = (9, 9, 5);
    let topic_partition = partition;
    let storage = LogError::Storage {
        dir: PathBuf::new(),
        path: PathBuf::new(),
        operation: "writing",
        source: Arc::new(io::Error::other("x")),
    };
    let no_space = LogError::NoSpace {
        dir: PathBuf::new(),
        path: PathBuf::new(),
        operation: "writing",
    };
    let out_of_range = LogError::OffsetOutOfRange {
        topic_partition: topic_partition(),
        offset,
        log_start_offset: 0,
        log_end_offset: 5,
    };
    let unexpected = LogError::UnexpectedAppendOffset {
        topic_partition: partition(),
        first_offset: 1,
        expected: 2,
    };
    let id = uuid::Uuid::from_u128(5);
    let other_id = LogError::InconsistentTopicId {
        topic_partition: partition(),
        topic_id: id,
        current: id,
    };
    let pairs = [
        (out_of_range, 1),
        (LogError::CorruptRecord { reason: reason() }, 2),
        (
            LogError::RecordTooLarge {
                topic_partition: partition(),
                size,
                max,
            },
            10,
        ),
        (
            LogError::RecordBatchTooLarge {
                topic_partition: partition(),
                size,
                max,
            },
            18,
        ),
        (LogError::Validation(ValidationError::CorruptRecord(reason())), 2),
        (LogError::InvalidRecord { reason: reason() }, 87),
        (LogError::OutOfOrderSequence { reason: reason() }, 45),
        (LogError::InvalidProducerEpoch { reason: reason() }, 47),
        (LogError::InvalidTxnState { reason: reason() }, 48),
        (LogError::TransactionCoordinatorFenced { reason: reason() }, 52),
        (unexpected, -1),
        (other_id, 103),
        (storage, 56),
        (no_space, 56),
        (LogError::DirectoryOffline { dir: PathBuf::new() }, 56),
        (LogError::NoLogDirectory, 56),
        (LogError::LockHeld { path: PathBuf::new() }, 56),
        (LogError::InvalidLogDirectory { reason: reason() }, 56),
        (
            LogError::Closed {
                topic_partition: partition(),
            },
            6,
        ),
    ];
    for (error, code) in pairs {
        assert_eq!(log_error(&error).code(), code, "{error:?}");
        assert_eq!(replica_error(&ReplicaError::Log(error)).code(), code);
    }
}

#[test]
fn validation_errors_have_kafkas_codes() {
    let (message, record_errors) = (reason, Vec::new);
    let pairs = [
        (ValidationError::CorruptRecord(reason()), 2),
        (
            ValidationError::InvalidRecord {
                message: message(),
                record_errors: record_errors(),
            },
            87,
        ),
        (
            ValidationError::InvalidTimestamp {
                message: message(),
                record_errors: record_errors(),
            },
            32,
        ),
        (ValidationError::RecordTooLarge(reason()), 10),
        (ValidationError::Unexpected(reason()), -1),
    ];
    for (error, code) in pairs {
        assert_eq!(validation_error(&error).code(), code, "{error:?}");
    }
}

#[test]
fn replica_errors_have_kafkas_codes() {
    let partition = reason;
    let pairs = [
        (
            ReplicaError::UnknownTopicOrPartition {
                partition: partition(),
            },
            3,
        ),
        (ReplicaError::UnknownTopicId, 100),
        (ReplicaError::InconsistentTopicId, 103),
        (
            ReplicaError::NotLeaderOrFollower {
                partition: partition(),
            },
            6,
        ),
        (
            ReplicaError::FencedLeaderEpoch {
                requested: 1,
                current: 2,
            },
            74,
        ),
        (
            ReplicaError::UnknownLeaderEpoch {
                requested: 2,
                current: 1,
            },
            75,
        ),
        (
            ReplicaError::OffsetNotAvailable {
                partition: partition(),
            },
            78,
        ),
        (
            ReplicaError::NotEnoughReplicas {
                partition: partition(),
                in_sync: 1,
                required: 2,
            },
            19,
        ),
        (
            ReplicaError::NotEnoughReplicasAfterAppend {
                partition: partition(),
            },
            20,
        ),
        (ReplicaError::RequestTimedOut, 7),
        (ReplicaError::InvalidRequiredAcks { acks: 2 }, 21),
        (ReplicaError::InvalidTopic { topic: reason() }, 17),
        (
            ReplicaError::OffsetOutOfRange {
                partition: partition(),
                offset: 1,
            },
            1,
        ),
        (
            ReplicaError::PolicyViolation {
                partition: partition(),
            },
            44,
        ),
        (
            ReplicaError::KafkaStorage {
                partition: partition(),
            },
            56,
        ),
    ];
    for (error, code) in pairs {
        assert_eq!(replica_error(&error).code(), code, "{error:?}");
    }
}

#[test]
fn session_errors_have_kafkas_codes() {
    assert_eq!(session_error(SessionError::IdNotFound).code(), 70);
    assert_eq!(session_error(SessionError::InvalidEpoch).code(), 71);
    assert_eq!(session_error(SessionError::TopicId).code(), 106);
}
