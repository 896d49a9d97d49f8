//! Messages of magic 0 and 1 (before Kafka 0.11), read only: single messages and compressed wrappers.
//!
//! ```text
//! offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | [timestamp i64, magic 1] | key | value
//! ```
//!
//! The CRC-32 (IEEE) covers all from the magic byte on. A wrapper's value holds compressed messages; its offset is
//! that of its last inner message. Inner offsets of magic 1 are relative to the first, those of magic 0 absolute.

use bytes::Bytes;

use crate::record::record_batch::{read_i32, read_i64};
use crate::record::{
    BatchHeader, LOG_OVERHEAD, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE,
    NO_TIMESTAMP, Record, RecordError,
};

/// CRC, magic, attributes, key size and value size.
pub const RECORD_OVERHEAD_V0: usize = 14;
/// The same with a time stamp.
pub const RECORD_OVERHEAD_V1: usize = 22;

pub(crate) fn record_overhead(magic: i8) -> usize {
    if magic == 0 {
        RECORD_OVERHEAD_V0
    } else {
        RECORD_OVERHEAD_V1
    }
}

/// The header of a message whose magic byte was seen to be 0 or 1.
pub(crate) fn parse_header(bytes: &[u8]) -> Option<BatchHeader> {
    let magic = *bytes.get(16)? as i8;
    bytes.get(..LOG_OVERHEAD + record_overhead(magic))?;
    let max_timestamp = if magic == 0 {
        NO_TIMESTAMP
    } else {
        read_i64(bytes, 18)?
    };
    Some(BatchHeader {
        base_offset: read_i64(bytes, 0)?,
        batch_length: read_i32(bytes, 8)?,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        magic,
        crc: read_i32(bytes, 12)? as u32,
        attributes: i16::from(*bytes.get(17)?),
        last_offset_delta: 0,
        base_timestamp: max_timestamp,
        max_timestamp,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        base_sequence: NO_SEQUENCE,
        records_count: -1,
    })
}

/// CRC-32 of a whole message.
pub(crate) fn compute_crc(message: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(message.get(16..).unwrap_or_default());
    crc.sum()
}

/// The offset of the first record: for a wrapper, of its first inner message.
pub fn base_offset(message: &Bytes) -> Result<i64, RecordError> {
    Ok(records(message)?.first().map_or(0, |record| record.offset))
}

/// All records of a message, inflated if it is a wrapper.
pub fn records(_message: &Bytes) -> Result<Vec<Record>, RecordError> {
    todo!()
}
