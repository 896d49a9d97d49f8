//! Kafka's LogValidator, with the checks of UnifiedLog before it: what a leader checks before it appends.
//!
//! Accepts and refuses exactly what Kafka 4.4 does, with its texts. The common path copies no payload and allocates
//! nothing: a walk over the records, inflating in a stream, and a new header. New bytes are made only where the
//! topic asks for another codec or for LogAppendTime, or the producer's header has a wrong max time stamp.
//!
//! Never assigns sequences, never looks at producer state (that is `producer_state`'s), never reads the clock.

use std::fmt;

use bytes::{Bytes, BytesMut};

pub use crate::log::AppendOrigin;
use crate::log::TopicPartition;
use crate::record::inflate::Inflater;
use crate::record::record::{
    RecordShape, record_timestamp, walk_inflated, walk_inflated_records, walk_payload,
};
use crate::record::record_batch::{
    ATTRIBUTES_OFFSET, COMPRESSION_CODEC_MASK, CONTROL_MASK, CRC_OFFSET, DELETE_HORIZON_MASK,
    TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK,
};
use crate::record::{
    BatchBuilder, BatchHeader, BatchOptions, Batches, Compression, InvalidRecord, NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD, RawRecord, RecordError, TimestampType, crc_is_valid,
};

/// Details of refused records that an error carries at most: a compressed batch may hold far more records than an
/// answer can name.
const RECORD_ERRORS_MAX: usize = 100_000;

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
    /// `max.decompressed.message.bytes`: limit of a single record in a compressed batch.
    pub max_decompressed_message_bytes: i32,
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

    /// Gives the batch other offsets than it was validated with, so that an append may validate before it takes the
    /// log's lock and learn its first offset afterwards. (The CRC does not cover offsets.)
    pub fn assign_first_offset(&mut self, first_offset: i64) {
        let last_offset = first_offset + i64::from(self.header.records_count) - 1;
        self.header.base_offset = last_offset.wrapping_sub(i64::from(self.header.last_offset_delta));
        if self.shallow_offset_of_max_timestamp >= 0 {
            self.shallow_offset_of_max_timestamp = last_offset;
        }
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
    /// UNKNOWN_SERVER_ERROR: where Kafka throws what is no protocol error (damaged compressed data).
    #[error("{0}")]
    Unexpected(String),
}

impl ValidationError {
    fn invalid_record(message: impl Into<String>) -> ValidationError {
        ValidationError::InvalidRecord {
            message: message.into(),
            record_errors: Vec::new(),
        }
    }
}

impl From<RecordError> for ValidationError {
    fn from(error: RecordError) -> ValidationError {
        match error {
            RecordError::InvalidRecord(invalid) => ValidationError::invalid_record(invalid.to_string()),
            RecordError::Torn { .. } | RecordError::InvalidLegacyMessage(_) => {
                ValidationError::invalid_record(error.to_string())
            }
            RecordError::SizeTooSmall { size, minimum, .. } => ValidationError::CorruptRecord(format!(
                "Record size {size} is less than the minimum record overhead ({minimum})"
            )),
            RecordError::InvalidMagic { magic, .. } => {
                ValidationError::CorruptRecord(format!("Invalid magic found in record: {magic}"))
            }
            RecordError::InvalidCrc { .. } => ValidationError::CorruptRecord(error.to_string()),
            RecordError::Decompression { .. } => {
                ValidationError::Unexpected("Failed to decompress record stream".to_string())
            }
            RecordError::UnknownCompression(id) => {
                ValidationError::Unexpected(format!("Unknown compression type id: {id}"))
            }
            RecordError::Compression { .. }
            | RecordError::InflatedTooLarge { .. }
            | RecordError::InvalidBatch(_)
            | RecordError::InvalidControlRecord(_) => ValidationError::Unexpected(error.to_string()),
        }
    }
}

/// Checks the records of one append and assigns offsets from `first_offset` on.
pub fn validate(
    records: &Bytes,
    first_offset: i64,
    config: &ValidatorConfig,
    now_ms: i64,
    origin: AppendOrigin,
) -> Result<ValidatedRecords, ValidationError> {
    let (header, batch) = analyze(records, config, origin)?;
    let source = header.compression()?;
    let target = config.compression.unwrap_or(source);
    validate_batch(&header, config, origin)?;
    // Control records stay uncompressed where they are.
    let in_place = source == target || (source == Compression::None && header.is_control());
    let mut checker = RecordChecker::new(&header, config, now_ms);
    let payload = &batch[RECORD_BATCH_OVERHEAD..];
    if !in_place {
        return rewrite(checker, payload, first_offset, source, target);
    }
    if header.records_count < 0 {
        return Err(RecordError::from(InvalidRecord::Count(header.records_count)).into());
    }
    if source == Compression::None {
        walk_payload(payload, header.records_count, |record| checker.check_full(record))?;
    } else if header.records_count > 0 {
        let inflater = Inflater::new(source, payload, header.magic)?;
        let size_max = config.max_decompressed_message_bytes;
        walk_inflated(inflater, header.records_count, size_max, |shape| {
            checker.check_partial(shape)
        })?;
    }
    // With a codec in play Kafka builds the batch anew if its offsets are not 0, 1, 2...; having skipped keys and
    // values it cannot, and fails. (Without one it does not look at them.)
    let compressed = source != Compression::None;
    if compressed && checker.offsets_out_of_order && checker.errors.is_empty() {
        return Err(ValidationError::Unexpected(
            "key is skipped in PartialDefaultRecord".to_string(),
        ));
    }
    let max_timestamp = checker.finish()?;
    Ok(assign(
        &header,
        batch,
        first_offset,
        config,
        now_ms,
        max_timestamp,
    ))
}

/// UnifiedLog's checks of every batch, and LogValidator's that there is one. Ignores a batch that is cut off at the
/// end, as Kafka does.
fn analyze(
    records: &Bytes,
    config: &ValidatorConfig,
    origin: AppendOrigin,
) -> Result<(BatchHeader, Bytes), ValidationError> {
    let partition = &config.topic_partition;
    let mut first = None;
    let mut more = false;
    for batch in Batches::of_bytes(records) {
        let (header, batch) = match batch {
            Ok(batch) => batch,
            Err(RecordError::Torn { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        if origin == AppendOrigin::RaftLeader
            && header.partition_leader_epoch != config.partition_leader_epoch
        {
            return Err(ValidationError::invalid_record(format!(
                "Append from Raft leader did not set the batch epoch correctly, expected {} but the batch has {}",
                config.partition_leader_epoch, header.partition_leader_epoch
            )));
        }
        if header.magic >= 2 && origin == AppendOrigin::Client && header.base_offset != 0 {
            return Err(ValidationError::invalid_record(format!(
                "The baseOffset of the record batch in the append to {partition} should be 0, but it is {}",
                header.base_offset
            )));
        }
        if header.size_in_bytes() > config.max_message_bytes.max(0) as usize {
            return Err(ValidationError::RecordTooLarge(format!(
                "The record batch size in the append to {partition} is {} bytes which exceeds the maximum configured \
                 value of {}).",
                header.size_in_bytes(),
                config.max_message_bytes
            )));
        }
        if !crc_is_valid(&batch) {
            return Err(ValidationError::CorruptRecord(format!(
                "Record is corrupt (stored crc = {}) in topic partition {partition}.",
                header.crc
            )));
        }
        header.compression()?;
        more |= first.is_some();
        first.get_or_insert((header, batch));
    }
    let Some((header, batch)) = first else {
        return Err(ValidationError::invalid_record(
            "Record batch has no batches at all",
        ));
    };
    if header.magic < 2 {
        // Kafka refuses these before the log sees them (ProduceRequest.validateRecords).
        return Err(ValidationError::invalid_record(
            "Produce requests are only allowed to contain record batches with magic version 2",
        ));
    }
    if more {
        return Err(ValidationError::invalid_record(
            "Compressed outer record has more than one batch",
        ));
    }
    Ok((header, batch))
}

/// LogValidator's checks of the header of a client's batch.
fn validate_batch(
    header: &BatchHeader,
    config: &ValidatorConfig,
    origin: AppendOrigin,
) -> Result<(), ValidationError> {
    if origin != AppendOrigin::Client {
        return Ok(());
    }
    let partition = &config.topic_partition;
    let (base_offset, last_offset, count) = (header.base_offset, header.last_offset(), header.records_count);
    let count_from_offsets = i64::from(header.last_offset_delta) + 1;
    if count_from_offsets <= 0 {
        return Err(ValidationError::invalid_record(format!(
            "Batch has an invalid offset range: [{base_offset}, {last_offset}] in topic partition {partition}"
        )));
    }
    if count <= 0 {
        return Err(ValidationError::invalid_record(format!(
            "Invalid reported count for record batch: {count} in topic partition {partition}"
        )));
    }
    if count_from_offsets != i64::from(count) {
        return Err(ValidationError::invalid_record(format!(
            "Inconsistent batch offset range [{base_offset}, {last_offset}] and count of records {count} in topic \
             partition {partition}"
        )));
    }
    if header.is_control() {
        return Err(ValidationError::invalid_record(format!(
            "Clients are not allowed to write control records in topic partition {partition}"
        )));
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        return Err(ValidationError::invalid_record(format!(
            "Invalid sequence number {} in record batch with producerId {} in topic partition {partition}",
            header.base_sequence, header.producer_id
        )));
    }
    Ok(())
}

/// The checks of each record, and what they add up to.
struct RecordChecker<'a> {
    header: BatchHeader,
    config: &'a ValidatorConfig,
    now_ms: i64,
    /// The index of the next record.
    index: i32,
    max_timestamp: i64,
    offsets_out_of_order: bool,
    errors: Vec<RecordErrorDetail>,
    errors_total: usize,
    timestamp_refused: bool,
}

impl<'a> RecordChecker<'a> {
    fn new(header: &BatchHeader, config: &'a ValidatorConfig, now_ms: i64) -> RecordChecker<'a> {
        RecordChecker {
            header: *header,
            config,
            now_ms,
            index: 0,
            max_timestamp: NO_TIMESTAMP,
            offsets_out_of_order: false,
            errors: Vec::new(),
            errors_total: 0,
            timestamp_refused: false,
        }
    }

    #[inline]
    fn check_full(&mut self, record: &RawRecord<'_>) {
        let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i32);
        let shape = RecordShape {
            timestamp_delta: record.timestamp_delta,
            offset_delta: record.offset_delta,
            key_size: size(record.key),
            value_size: size(record.value),
        };
        self.check(&shape, "DefaultRecord", 0);
    }

    #[inline]
    fn check_partial(&mut self, shape: &RecordShape) {
        self.check(shape, "PartialDefaultRecord", -1);
    }

    /// `null_size` is how Kafka prints the size of a null in its class of record `name`.
    #[inline]
    fn check(&mut self, shape: &RecordShape, name: &str, null_size: i32) {
        let timestamp = record_timestamp(&self.header, shape.timestamp_delta);
        if self.config.compacted && shape.key_size < 0 {
            self.refuse(format!(
                "Compacted topic cannot accept message without key in topic partition {}",
                self.config.topic_partition
            ));
        } else if self.config.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
            if self.is_out_of_range(timestamp) {
                self.refuse_out_of_range(shape, timestamp);
            }
        } else if self.header.timestamp_type() == TimestampType::LogAppendTime {
            let or_null = |size: i32| if size < 0 { null_size } else { size };
            self.timestamp_refused = true;
            self.refuse(format!(
                "Invalid timestamp type in message {name}(offset={}, timestamp={timestamp}, key={} bytes, value={} \
                 bytes). Producer should not set timestamp type to LogAppendTime.",
                self.offset(shape),
                or_null(shape.key_size),
                or_null(shape.value_size),
            ));
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.offsets_out_of_order |= shape.offset_delta != self.index;
        self.index = self.index.wrapping_add(1);
    }

    fn offset(&self, shape: &RecordShape) -> i64 {
        self.header
            .base_offset
            .wrapping_add(i64::from(shape.offset_delta))
    }

    #[inline]
    fn is_out_of_range(&self, timestamp: i64) -> bool {
        let difference = self.now_ms.wrapping_sub(timestamp);
        difference > self.config.timestamp_before_max_ms
            || difference.wrapping_neg() > self.config.timestamp_after_max_ms
    }

    #[cold]
    fn refuse_out_of_range(&mut self, shape: &RecordShape, timestamp: i64) {
        self.timestamp_refused = true;
        self.refuse(format!(
            "Timestamp {timestamp} of message with offset {} is out of range. The timestamp should be within [{}, {}]",
            self.offset(shape),
            self.now_ms.wrapping_sub(self.config.timestamp_before_max_ms),
            self.now_ms.wrapping_add(self.config.timestamp_after_max_ms),
        ));
    }

    #[cold]
    fn refuse(&mut self, message: String) {
        self.errors_total += 1;
        if self.errors.len() < RECORD_ERRORS_MAX {
            self.errors.push(RecordErrorDetail {
                batch_index: self.index,
                message: Some(message),
            });
        }
    }

    /// The max time stamp of the batch's records, if none was refused.
    fn finish(self) -> Result<i64, ValidationError> {
        if self.errors.is_empty() {
            return Ok(self.max_timestamp);
        }
        if self.timestamp_refused {
            return Err(ValidationError::InvalidTimestamp {
                message: "One or more records have been rejected due to invalid timestamp".to_string(),
                record_errors: self.errors,
            });
        }
        let shown: Vec<String> = self
            .errors
            .iter()
            .take(3)
            .map(RecordErrorDetail::to_string)
            .collect();
        Err(ValidationError::InvalidRecord {
            message: format!(
                "One or more records have been rejected due to {} record errors in total, and only showing the first \
                 three errors at most: [{}]",
                self.errors_total,
                shown.join(", ")
            ),
            record_errors: self.errors,
        })
    }
}

impl fmt::Display for RecordErrorDetail {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RecordError(batchIndex={}, message=", self.batch_index)?;
        match &self.message {
            Some(message) => write!(formatter, "'{message}')"),
            None => write!(formatter, "null)"),
        }
    }
}

/// Gives the batch its offsets, epoch and time stamps; its payload stays.
fn assign(
    header: &BatchHeader,
    batch: Bytes,
    first_offset: i64,
    config: &ValidatorConfig,
    now_ms: i64,
    max_timestamp: i64,
) -> ValidatedRecords {
    let log_append_time = config.timestamp_type == TimestampType::LogAppendTime;
    let max_timestamp = if log_append_time { now_ms } else { max_timestamp };
    let last_offset = first_offset + i64::from(header.records_count) - 1;
    let mut assigned = BatchHeader {
        base_offset: last_offset.wrapping_sub(i64::from(header.last_offset_delta)),
        partition_leader_epoch: config.partition_leader_epoch,
        ..*header
    };
    let mut records = batch;
    if header.timestamp_type() != config.timestamp_type || header.max_timestamp != max_timestamp {
        let kept = COMPRESSION_CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK;
        assigned.attributes =
            header.attributes & kept | if log_append_time { TIMESTAMP_TYPE_MASK } else { 0 };
        assigned.max_timestamp = max_timestamp;
        let mut rewritten = BytesMut::from(&records[..]);
        rewritten[..RECORD_BATCH_OVERHEAD].copy_from_slice(&assigned.encode());
        assigned.crc = crc32c::crc32c(&rewritten[ATTRIBUTES_OFFSET..]);
        rewritten[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&assigned.crc.to_be_bytes());
        records = rewritten.freeze();
    }
    validated(records, assigned, log_append_time.then_some(now_ms), false)
}

fn validated(
    records: Bytes,
    header: BatchHeader,
    log_append_time_ms: Option<i64>,
    rewritten: bool,
) -> ValidatedRecords {
    let max_timestamp = header.max_timestamp;
    ValidatedRecords {
        records,
        header,
        max_timestamp,
        shallow_offset_of_max_timestamp: if max_timestamp > NO_TIMESTAMP {
            header.last_offset()
        } else {
            -1
        },
        log_append_time_ms: log_append_time_ms.unwrap_or(NO_TIMESTAMP),
        rewritten,
    }
}

/// Builds the batch anew with the topic's codec.
fn rewrite(
    mut checker: RecordChecker<'_>,
    payload: &[u8],
    first_offset: i64,
    source: Compression,
    target: Compression,
) -> Result<ValidatedRecords, ValidationError> {
    let (header, config, now_ms) = (checker.header, checker.config, checker.now_ms);
    let log_append_time = config.timestamp_type == TimestampType::LogAppendTime;
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: first_offset,
        partition_leader_epoch: config.partition_leader_epoch,
        compression: target,
        compression_level: config.compression_level,
        timestamp_type: config.timestamp_type,
        log_append_time_ms: now_ms,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        is_transactional: header.is_transactional(),
        is_control: header.is_control(),
        delete_horizon_ms: None,
    });
    let mut visit = |record: &RawRecord<'_>| {
        checker.check_full(record);
        if checker.errors.is_empty() {
            let timestamp = record_timestamp(&header, record.timestamp_delta);
            builder.append_raw(builder.next_offset(), timestamp, record);
        }
    };
    if header.records_count < 0 {
        return Err(RecordError::from(InvalidRecord::Count(header.records_count)).into());
    }
    if source == Compression::None {
        walk_payload(payload, header.records_count, &mut visit)?;
    } else {
        let inflater = Inflater::new(source, payload, header.magic)?;
        let size_max = config.max_decompressed_message_bytes;
        walk_inflated_records(inflater, header.records_count, size_max, &mut visit)?;
    }
    checker.finish()?;
    let records = builder.build()?;
    if records.len() > config.max_message_bytes.max(0) as usize {
        return Err(ValidationError::RecordTooLarge(format!(
            "Message batch size is {} bytes in append to partition {} which exceeds the maximum configured size of {}.",
            records.len(),
            config.topic_partition,
            config.max_message_bytes
        )));
    }
    let header = BatchHeader::parse(&records)?;
    Ok(validated(
        records,
        header,
        log_append_time.then_some(now_ms),
        true,
    ))
}

#[cfg(test)]
#[path = "validator_test.rs"]
mod validator_test;
