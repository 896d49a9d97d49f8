//! Why bytes are not a record batch or not a record.

use crate::record::Compression;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end before the batch does: a torn tail of a file, or the cut end of a fetch response.
    #[error("batch at position {position} is cut off: {needed} bytes needed, {available} there")]
    Torn {
        position: usize,
        needed: usize,
        available: usize,
    },
    #[error("record size {size} at position {position} is less than the minimum record overhead ({minimum})")]
    SizeTooSmall {
        position: usize,
        size: i32,
        minimum: i32,
    },
    #[error("invalid magic {magic} in batch at position {position}")]
    InvalidMagic { position: usize, magic: i8 },
    #[error("record is corrupt (stored crc = {stored}, computed crc = {computed})")]
    InvalidCrc { stored: u32, computed: u32 },
    #[error("unknown compression type id: {0}")]
    UnknownCompression(u8),
    #[error("{compression} data is damaged: {reason}")]
    Decompression {
        compression: Compression,
        reason: String,
    },
    #[error("{compression} failed: {reason}")]
    Compression {
        compression: Compression,
        reason: String,
    },
    #[error("inflated size exceeds the limit of {limit} bytes")]
    InflatedTooLarge { limit: usize },
    #[error("invalid message of magic 0 or 1: {0}")]
    InvalidLegacyMessage(&'static str),
    #[error("a batch cannot hold this: {0}")]
    InvalidBatch(&'static str),
    #[error("{0}")]
    InvalidRecord(InvalidRecord),
    #[error("control record: {0}")]
    InvalidControlRecord(&'static str),
}

/// How a record inside a batch breaks the format. The texts are Kafka's: clients see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    #[error("Found invalid record structure")]
    Structure,
    #[error("Found invalid record count {0} in magic v2 batch")]
    Count(i32),
    #[error("Invalid record size: {0} is negative.")]
    NegativeSize(i32),
    #[error("Invalid record size: {size} exceeds the configured maximum record size of {maximum}.")]
    SizeTooLarge { size: i32, maximum: i32 },
    #[error("Invalid record size: expected {0} bytes in record payload, but the record payload reached EOF.")]
    SizeAtEnd(usize),
    #[error(
        "Invalid record size: expected {expected} bytes in record payload, but instead the buffer has only {available} remaining bytes."
    )]
    Size { expected: usize, available: usize },
    #[error(
        "Invalid record size: expected to read {expected} bytes in record payload, but instead read {read}"
    )]
    SizeMismatch { expected: usize, read: usize },
    #[error("Found invalid number of record headers {0}")]
    HeaderCount(i32),
    #[error("Invalid negative header key size {0}")]
    HeaderKeySize(i32),
    #[error("Reached end of input stream before skipping all bytes. Remaining bytes:{0}")]
    CutOff(usize),
    #[error("Incorrect declared batch size, premature EOF reached")]
    PrematureEnd,
    #[error("Incorrect declared batch size, records still remaining in file")]
    RecordsRemaining,
}

impl From<InvalidRecord> for RecordError {
    fn from(invalid: InvalidRecord) -> RecordError {
        RecordError::InvalidRecord(invalid)
    }
}
