//! Kafka's LogValidator: what a leader checks before it appends.
#![allow(clippy::todo)]

use bytes::Bytes;

use crate::log::TopicPartition;
use crate::record::{BatchHeader, Compression, TimestampType};

/// Where an append comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AppendOrigin {
    /// A follower's replication of its leader's bytes.
    Replication,
    /// Group and share coordinators, and transaction markers.
    Coordinator,
    Client,
    RaftLeader,
}

/// What the topic's configuration demands of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidatorConfig {
    /// For messages only.
    pub topic_partition: TopicPartition,
    /// `compression.type`; none is `producer`: keep the producer's codec.
    pub compression: Option<Compression>,
    /// Level of the codec above, where the topic sets one.
    pub compression_level: Option<i32>,
    pub compacted: bool,
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_max_ms: i64,
    /// `max.message.bytes`: a batch above is refused before it is read.
    pub max_message_bytes: i32,
    pub partition_leader_epoch: i32,
}

/// One batch that may be appended. Bytes 0..16 of `records` are not final: write `header.prefix()` instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidatedRecords {
    /// The batch: the producer's bytes where nothing had to change, else new ones.
    pub records: Bytes,
    /// The header as it will be stored, with base offset and leader epoch assigned.
    pub header: BatchHeader,
    pub max_timestamp: i64,
    /// The offset for the time index: of the batch's last record, as Kafka has it; -1 without a time stamp.
    pub shallow_offset_of_max_timestamp: i64,
    /// The append time where the topic's time stamps are LogAppendTime, else -1.
    pub log_append_time_ms: i64,
    /// The bytes were built anew (recompression, offsets).
    pub rewritten: bool,
}

impl ValidatedRecords {
    pub fn last_offset(&self) -> i64 {
        self.header.last_offset()
    }
}

/// A record that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordErrorDetail {
    /// The index of the record in its batch (`batchIndex` on the wire).
    pub batch_index: i32,
    pub message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValidationError {
    /// CORRUPT_MESSAGE
    #[error("{0}")]
    CorruptRecord(String),
    /// INVALID_RECORD
    #[error("{message}")]
    InvalidRecord {
        message: String,
        record_errors: Vec<RecordErrorDetail>,
    },
    /// INVALID_TIMESTAMP
    #[error("{message}")]
    InvalidTimestamp {
        message: String,
        record_errors: Vec<RecordErrorDetail>,
    },
    /// MESSAGE_TOO_LARGE
    #[error("{0}")]
    RecordTooLarge(String),
}

/// Checks the records of one append and assigns offsets from `first_offset` on.
pub fn validate(
    _records: &Bytes,
    _first_offset: i64,
    _config: &ValidatorConfig,
    _now_ms: i64,
    _origin: AppendOrigin,
) -> Result<ValidatedRecords, ValidationError> {
    todo!()
}
