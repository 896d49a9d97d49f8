//! The header of a record batch, and a walk over the batches of a byte slice.
//!
//! ```text
//! base offset i64 | batch length i32 | leader epoch i32 | magic i8 | crc u32 | attributes i16 |
//! last offset delta i32 | base timestamp i64 | max timestamp i64 | producer id i64 | producer epoch i16 |
//! base sequence i32 | record count i32 | records (compressed as a whole)
//! ```
//!
//! The CRC-32C covers all from the attributes on, so that base offset and leader epoch can be written by
//! the broker. Messages of magic 0 and 1 share the first two fields and the place of the magic byte; for
//! them [`BatchHeader`] holds what a log needs, and [`crate::record::legacy`] reads the rest.

use std::fmt;

use bytes::Bytes;

use crate::record::{Compression, RecordError, legacy};

/// Base offset and batch length: what precedes the bytes that the length counts.
pub const LOG_OVERHEAD: usize = 12;
/// Size of a magic 2 batch without records.
pub const RECORD_BATCH_OVERHEAD: usize = 61;

pub const NO_TIMESTAMP: i64 = -1;
pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;
pub const NO_SEQUENCE: i32 = -1;
pub const NO_PARTITION_LEADER_EPOCH: i32 = -1;

pub const MAGIC_OFFSET: usize = 16;
pub const CRC_OFFSET: usize = 17;
pub const ATTRIBUTES_OFFSET: usize = 21;
pub const LAST_OFFSET_DELTA_OFFSET: usize = 23;
pub const BASE_TIMESTAMP_OFFSET: usize = 27;
pub const MAX_TIMESTAMP_OFFSET: usize = 35;
pub const PRODUCER_ID_OFFSET: usize = 43;
pub const PRODUCER_EPOCH_OFFSET: usize = 51;
pub const BASE_SEQUENCE_OFFSET: usize = 53;
pub const RECORDS_COUNT_OFFSET: usize = 57;

pub const COMPRESSION_CODEC_MASK: i16 = 0x07;
pub const TIMESTAMP_TYPE_MASK: i16 = 0x08;
pub const TRANSACTIONAL_MASK: i16 = 0x10;
pub const CONTROL_MASK: i16 = 0x20;
pub const DELETE_HORIZON_MASK: i16 = 0x40;

/// The smallest size that the length field of a batch may hold: an empty message of magic 0.
const MIN_BATCH_LENGTH: i32 = legacy::RECORD_OVERHEAD_V0 as i32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    /// Magic 0 has no time stamps.
    NoTimestampType,
    #[default]
    CreateTime,
    LogAppendTime,
}

impl TimestampType {
    pub fn name(self) -> &'static str {
        match self {
            TimestampType::NoTimestampType => "NoTimestampType",
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }
}

impl fmt::Display for TimestampType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The fixed part of a batch. For magic 0 and 1 the fields that they lack hold Kafka's "none" values,
/// `records_count` is -1, and `base_offset` is the offset field: that of the **last** record of a wrapper
/// ([`legacy::base_offset`] finds the first).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    pub batch_length: i32,
    pub partition_leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    /// With a delete horizon this field holds the horizon.
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which need not hold the whole batch: 61 bytes suffice for
    /// magic 2, and the header's own size for magic 0 and 1.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, RecordError> {
        Self::parse_at(bytes, 0)
    }

    fn parse_at(bytes: &[u8], position: usize) -> Result<BatchHeader, RecordError> {
        let torn = |needed: usize| RecordError::Torn {
            position,
            needed,
            available: bytes.len(),
        };
        let Some(batch_length) = read_i32(bytes, 8) else {
            return Err(torn(LOG_OVERHEAD));
        };
        let too_small = |minimum: i32| RecordError::SizeTooSmall {
            position,
            size: batch_length,
            minimum,
        };
        if batch_length < MIN_BATCH_LENGTH {
            return Err(too_small(MIN_BATCH_LENGTH));
        }
        let Some(&magic) = bytes.get(MAGIC_OFFSET) else {
            return Err(torn(MAGIC_OFFSET + 1));
        };
        match magic {
            0 | 1 => {
                let minimum = legacy::record_overhead(magic as i8);
                if (batch_length as usize) < minimum {
                    return Err(too_small(minimum as i32));
                }
                legacy::parse_header(bytes).ok_or_else(|| torn(LOG_OVERHEAD + minimum))
            }
            2 => {
                let minimum = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD;
                if (batch_length as usize) < minimum {
                    return Err(too_small(minimum as i32));
                }
                match bytes.first_chunk::<RECORD_BATCH_OVERHEAD>() {
                    Some(header) => Ok(Self::from_fixed(header)),
                    None => Err(torn(RECORD_BATCH_OVERHEAD)),
                }
            }
            magic => Err(RecordError::InvalidMagic {
                position,
                magic: magic as i8,
            }),
        }
    }

    fn from_fixed(header: &[u8; RECORD_BATCH_OVERHEAD]) -> BatchHeader {
        BatchHeader {
            base_offset: fixed_i64(header, 0),
            batch_length: fixed_i32(header, 8),
            partition_leader_epoch: fixed_i32(header, 12),
            magic: header[MAGIC_OFFSET] as i8,
            crc: fixed_i32(header, CRC_OFFSET) as u32,
            attributes: fixed_i16(header, ATTRIBUTES_OFFSET),
            last_offset_delta: fixed_i32(header, LAST_OFFSET_DELTA_OFFSET),
            base_timestamp: fixed_i64(header, BASE_TIMESTAMP_OFFSET),
            max_timestamp: fixed_i64(header, MAX_TIMESTAMP_OFFSET),
            producer_id: fixed_i64(header, PRODUCER_ID_OFFSET),
            producer_epoch: fixed_i16(header, PRODUCER_EPOCH_OFFSET),
            base_sequence: fixed_i32(header, BASE_SEQUENCE_OFFSET),
            records_count: fixed_i32(header, RECORDS_COUNT_OFFSET),
        }
    }

    /// The header as bytes (magic 2).
    pub fn encode(&self) -> [u8; RECORD_BATCH_OVERHEAD] {
        let mut header = [0; RECORD_BATCH_OVERHEAD];
        header[..MAGIC_OFFSET].copy_from_slice(&self.prefix());
        header[MAGIC_OFFSET] = self.magic as u8;
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(CRC_OFFSET, &self.crc.to_be_bytes());
        put(ATTRIBUTES_OFFSET, &self.attributes.to_be_bytes());
        put(LAST_OFFSET_DELTA_OFFSET, &self.last_offset_delta.to_be_bytes());
        put(BASE_TIMESTAMP_OFFSET, &self.base_timestamp.to_be_bytes());
        put(MAX_TIMESTAMP_OFFSET, &self.max_timestamp.to_be_bytes());
        put(PRODUCER_ID_OFFSET, &self.producer_id.to_be_bytes());
        put(PRODUCER_EPOCH_OFFSET, &self.producer_epoch.to_be_bytes());
        put(BASE_SEQUENCE_OFFSET, &self.base_sequence.to_be_bytes());
        put(RECORDS_COUNT_OFFSET, &self.records_count.to_be_bytes());
        header
    }

    /// The first 16 bytes, which the CRC does not cover: base offset, length, leader epoch. An append writes
    /// these and then the producer's bytes from 16 on.
    pub fn prefix(&self) -> [u8; MAGIC_OFFSET] {
        let mut prefix = [0; MAGIC_OFFSET];
        prefix[..8].copy_from_slice(&self.base_offset.to_be_bytes());
        prefix[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        prefix[12..].copy_from_slice(&self.partition_leader_epoch.to_be_bytes());
        prefix
    }

    pub fn size_in_bytes(&self) -> usize {
        LOG_OVERHEAD + self.batch_length.max(0) as usize
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(i64::from(self.last_offset_delta))
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset().wrapping_add(1)
    }

    pub fn compression(&self) -> Result<Compression, RecordError> {
        Compression::from_id((self.attributes & COMPRESSION_CODEC_MASK) as u8)
    }

    pub fn is_compressed(&self) -> bool {
        self.attributes & COMPRESSION_CODEC_MASK != 0
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.magic == 0 {
            TimestampType::NoTimestampType
        } else if self.attributes & TIMESTAMP_TYPE_MASK != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    pub fn is_transactional(&self) -> bool {
        self.magic >= 2 && self.attributes & TRANSACTIONAL_MASK != 0
    }

    pub fn is_control(&self) -> bool {
        self.magic >= 2 && self.attributes & CONTROL_MASK != 0
    }

    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.magic >= 2 && self.attributes & DELETE_HORIZON_MASK != 0).then_some(self.base_timestamp)
    }

    pub fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    pub fn has_sequence(&self) -> bool {
        self.base_sequence >= 0
    }

    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            NO_SEQUENCE
        } else {
            increment_sequence(self.base_sequence, self.last_offset_delta)
        }
    }
}

/// Sequences wrap to zero after `i32::MAX`.
pub fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    if sequence > i32::MAX.wrapping_sub(increment) {
        increment
            .wrapping_sub(i32::MAX.wrapping_sub(sequence))
            .wrapping_sub(1)
    } else {
        sequence.wrapping_add(increment)
    }
}

pub fn decrement_sequence(sequence: i32, decrement: i32) -> i32 {
    if sequence < decrement {
        i32::MAX
            .wrapping_sub(decrement.wrapping_sub(sequence))
            .wrapping_add(1)
    } else {
        sequence.wrapping_sub(decrement)
    }
}

/// Whether the checksum of a whole batch (of any magic) is that of its bytes.
pub fn crc_is_valid(batch: &[u8]) -> bool {
    check_crc(batch).is_ok()
}

/// Like [`crc_is_valid`], with both sums in the error.
pub fn check_crc(batch: &[u8]) -> Result<(), RecordError> {
    let header = BatchHeader::parse(batch)?;
    let Some(batch) = batch.get(..header.size_in_bytes()) else {
        return Err(RecordError::Torn {
            position: 0,
            needed: header.size_in_bytes(),
            available: batch.len(),
        });
    };
    let computed = if header.magic >= 2 {
        crc32c::crc32c(&batch[ATTRIBUTES_OFFSET..])
    } else {
        legacy::compute_crc(batch)
    };
    if computed == header.crc {
        Ok(())
    } else {
        Err(RecordError::InvalidCrc {
            stored: header.crc,
            computed,
        })
    }
}

/// The batches of a byte slice in order. Does not check CRCs. Ends after the first error; a batch that is cut
/// off is [`RecordError::Torn`], so that a reader of a file's tail or of a fetch response can tell it from
/// damage. [`Batches::position`] is the end of the last whole batch.
#[derive(Debug, Clone)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    pub fn new(bytes: &'a [u8]) -> Batches<'a> {
        Batches {
            bytes,
            position: 0,
            failed: false,
        }
    }

    /// Bytes of whole batches seen so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The same walk with each batch as a slice that shares `bytes`.
    pub fn of_bytes(bytes: &Bytes) -> impl Iterator<Item = Result<(BatchHeader, Bytes), RecordError>> + '_ {
        Batches::new(bytes).map(|batch| batch.map(|(header, slice)| (header, bytes.slice_ref(slice))))
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<(BatchHeader, &'a [u8]), RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.position..];
        if self.failed || rest.is_empty() {
            return None;
        }
        let batch = BatchHeader::parse_at(rest, self.position).and_then(|header| {
            let size = header.size_in_bytes();
            match rest.get(..size) {
                Some(batch) => Ok((header, batch)),
                None => Err(RecordError::Torn {
                    position: self.position,
                    needed: size,
                    available: rest.len(),
                }),
            }
        });
        match &batch {
            Ok((_, slice)) => self.position += slice.len(),
            Err(_) => self.failed = true,
        }
        Some(batch)
    }
}

pub(crate) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    bytes
        .get(at..)?
        .first_chunk::<4>()
        .map(|chunk| i32::from_be_bytes(*chunk))
}

pub(crate) fn read_i64(bytes: &[u8], at: usize) -> Option<i64> {
    bytes
        .get(at..)?
        .first_chunk::<8>()
        .map(|chunk| i64::from_be_bytes(*chunk))
}

fn fixed_i16(header: &[u8; RECORD_BATCH_OVERHEAD], at: usize) -> i16 {
    i16::from_be_bytes([header[at], header[at + 1]])
}

fn fixed_i32(header: &[u8; RECORD_BATCH_OVERHEAD], at: usize) -> i32 {
    i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn fixed_i64(header: &[u8; RECORD_BATCH_OVERHEAD], at: usize) -> i64 {
    (i64::from(fixed_i32(header, at)) << 32) | i64::from(fixed_i32(header, at + 4) as u32)
}

#[cfg(test)]
#[path = "record_batch_test.rs"]
mod record_batch_test;
