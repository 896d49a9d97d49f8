//! Messages of magic 0 and 1 (before Kafka 0.11), read only: single messages and compressed wrappers.
//!
//! ```text
//! offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | [timestamp i64, magic 1] | key | value
//! ```
//!
//! The CRC-32 (IEEE) covers all from the magic byte on. A wrapper's value holds compressed messages; its offset is
//! that of its last inner message. Inner offsets of magic 1 are relative to the first, those of magic 0 absolute.

use bytes::{Bytes, BytesMut};

use crate::record::inflate::Inflater;
use crate::record::record_batch::{read_i32, read_i64};
use crate::record::{
    BatchHeader, Batches, Compression, LOG_OVERHEAD, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Record, RecordError, TimestampType,
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
    let header = BatchHeader::parse(message)?;
    if !header.is_compressed() {
        return Ok(header.base_offset);
    }
    let records = records(message, i32::MAX as usize)?;
    Ok(records.first().map_or(header.base_offset, |record| record.offset))
}

/// All records of a whole message: itself, or if it is a wrapper the messages in it.
pub fn records(message: &Bytes, inflated_size_max: usize) -> Result<Vec<Record>, RecordError> {
    let header = BatchHeader::parse(message)?;
    let body = Message::parse(message, &header)?;
    if !header.is_compressed() {
        return Ok(vec![body.into_record(header.base_offset, header.max_timestamp)]);
    }
    let compression = header.compression()?;
    if compression == Compression::Zstd {
        return Err(RecordError::InvalidLegacyMessage("zstd needs magic 2"));
    }
    let value = body
        .value
        .ok_or(RecordError::InvalidLegacyMessage("a wrapper without a value"))?;
    let inner = inflate(compression, &value, header.magic, inflated_size_max)?;
    unwrap(&header, &inner)
}

/// Offsets and time stamps of the messages in a wrapper.
fn unwrap(wrapper: &BatchHeader, inner: &Bytes) -> Result<Vec<Record>, RecordError> {
    let mut records = Vec::new();
    for message in Batches::of_bytes(inner) {
        let (header, bytes) = match message {
            Ok(message) => message,
            // As Kafka's reader, take what is cut off for the end.
            Err(RecordError::Torn { .. }) => break,
            Err(error) => return Err(error),
        };
        if header.magic > 1 || header.is_compressed() {
            return Err(RecordError::InvalidLegacyMessage(
                "inner messages must be plain ones of magic 0 or 1",
            ));
        }
        let timestamp = match wrapper.timestamp_type() {
            TimestampType::LogAppendTime if header.magic == 1 => wrapper.max_timestamp,
            _ => header.max_timestamp,
        };
        records.push(Message::parse(&bytes, &header)?.into_record(header.base_offset, timestamp));
    }
    let Some(last) = records.last() else {
        return Err(RecordError::InvalidLegacyMessage(
            "a wrapper without inner messages",
        ));
    };
    // A wrapper of magic 1 says the last one's offset, its inner messages count from 0. Some producers
    // (old librdkafka) leave 0 there.
    if wrapper.magic == 1 && wrapper.base_offset != 0 {
        let first_offset = wrapper.base_offset.wrapping_sub(last.offset);
        if first_offset < 0 {
            return Err(RecordError::InvalidLegacyMessage(
                "a wrapper's offset is below its last inner offset",
            ));
        }
        for record in &mut records {
            record.offset = record.offset.wrapping_add(first_offset);
        }
    }
    Ok(records)
}

fn inflate(compression: Compression, value: &[u8], magic: i8, limit: usize) -> Result<Bytes, RecordError> {
    let mut inflater = Inflater::new(compression, value, magic)?;
    let mut inflated = BytesMut::new();
    while inflater.next_chunk()? {
        if inflated.len() + inflater.chunk().len() > limit {
            return Err(RecordError::InflatedTooLarge { limit });
        }
        inflated.extend_from_slice(inflater.chunk());
    }
    Ok(inflated.freeze())
}

struct Message {
    key: Option<Bytes>,
    value: Option<Bytes>,
}

impl Message {
    fn parse(message: &Bytes, header: &BatchHeader) -> Result<Message, RecordError> {
        // The smallest overhead counts a key and a value size of four bytes each.
        let mut position = LOG_OVERHEAD + record_overhead(header.magic) - 8;
        let key = take_sized(message, &mut position)?;
        let value = take_sized(message, &mut position)?;
        Ok(Message { key, value })
    }

    fn into_record(self, offset: i64, timestamp: i64) -> Record {
        Record {
            offset,
            timestamp,
            key: self.key,
            value: self.value,
            headers: Vec::new(),
        }
    }
}

/// Bytes behind their size; null if that is negative.
fn take_sized(message: &Bytes, position: &mut usize) -> Result<Option<Bytes>, RecordError> {
    let cut_off = RecordError::InvalidLegacyMessage("key or value reaches beyond the message");
    let Some(size) = read_i32(message, *position) else {
        return Err(cut_off);
    };
    *position += 4;
    let Ok(size) = usize::try_from(size) else {
        return Ok(None);
    };
    if message.len() - *position < size {
        return Err(cut_off);
    }
    let bytes = message.slice(*position..*position + size);
    *position += size;
    Ok(Some(bytes))
}
