//! Builds a magic 2 batch from records: for coordinators, raft, recompression and tests.
//!
//! Invariants: offsets rise; the base time stamp is the first record's (or the delete horizon); the built batch has a
//! valid CRC. What cannot be a batch is an error of [`BatchBuilder::build`], never a panic.

use bytes::{BufMut, Bytes, BytesMut};

use crate::record::compression::compress;
use crate::record::record_batch::{
    ATTRIBUTES_OFFSET, CONTROL_MASK, CRC_OFFSET, DELETE_HORIZON_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK,
};
use crate::record::varint::{put_varint, put_varlong, size_of_varint, size_of_varlong};
use crate::record::{
    BatchHeader, Compression, LOG_OVERHEAD, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID,
    NO_SEQUENCE, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD, RawRecord, RecordError, TimestampType,
};

/// A header to append.
pub type HeaderRef<'a> = (&'a [u8], Option<&'a [u8]>);

/// What a batch's header says beside what follows from its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchOptions {
    pub base_offset: i64,
    pub partition_leader_epoch: i32,
    pub compression: Compression,
    /// None: the codec's default level.
    pub compression_level: Option<i32>,
    pub timestamp_type: TimestampType,
    /// The max time stamp of a LogAppendTime batch.
    pub log_append_time_ms: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub is_transactional: bool,
    pub is_control: bool,
    pub delete_horizon_ms: Option<i64>,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions {
            base_offset: 0,
            partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
            compression: Compression::None,
            compression_level: None,
            timestamp_type: TimestampType::CreateTime,
            log_append_time_ms: NO_TIMESTAMP,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            is_transactional: false,
            is_control: false,
            delete_horizon_ms: None,
        }
    }
}

impl BatchOptions {
    fn attributes(&self) -> i16 {
        let mut attributes = i16::from(self.compression.id());
        let mut set = |mask: i16, on: bool| attributes |= if on { mask } else { 0 };
        set(
            TIMESTAMP_TYPE_MASK,
            self.timestamp_type == TimestampType::LogAppendTime,
        );
        set(TRANSACTIONAL_MASK, self.is_transactional);
        set(CONTROL_MASK, self.is_control);
        set(DELETE_HORIZON_MASK, self.delete_horizon_ms.is_some());
        attributes
    }

    fn check_producer(&self) -> Result<(), RecordError> {
        let invalid = |what| Err(RecordError::InvalidBatch(what));
        if self.producer_id == NO_PRODUCER_ID {
            return if self.is_transactional {
                invalid("a transaction needs a producer id")
            } else {
                Ok(())
            };
        }
        if self.producer_epoch < 0 {
            return invalid("a producer id needs an epoch");
        }
        if self.base_sequence < 0 && !self.is_control {
            return invalid("a producer id needs a sequence");
        }
        Ok(())
    }

    fn header(&self) -> BatchHeader {
        BatchHeader {
            base_offset: self.base_offset,
            batch_length: 0,
            partition_leader_epoch: self.partition_leader_epoch,
            magic: 2,
            crc: 0,
            attributes: self.attributes(),
            last_offset_delta: 0,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            records_count: 0,
        }
    }
}

/// A batch without records: what compaction leaves to keep a producer's last sequence and the offsets.
pub fn empty_batch(
    options: BatchOptions,
    last_offset: i64,
    max_timestamp: i64,
) -> Result<Bytes, RecordError> {
    let options = BatchOptions {
        compression: Compression::None,
        delete_horizon_ms: None,
        ..options
    };
    let last_offset_delta = offset_delta(&options, last_offset)?;
    let header = BatchHeader {
        last_offset_delta,
        max_timestamp,
        ..options.header()
    };
    finish(header, BytesMut::zeroed(RECORD_BATCH_OVERHEAD))
}

fn offset_delta(options: &BatchOptions, offset: i64) -> Result<i32, RecordError> {
    let delta = offset
        .checked_sub(options.base_offset)
        .and_then(|delta| i32::try_from(delta).ok());
    let delta = delta.filter(|delta| *delta >= 0);
    delta.ok_or(RecordError::InvalidBatch("an offset is out of the batch's range"))
}

/// Writes the header into the first 61 bytes of `batch`.
fn finish(mut header: BatchHeader, mut batch: BytesMut) -> Result<Bytes, RecordError> {
    let length = i32::try_from(batch.len() - LOG_OVERHEAD);
    header.batch_length = length.map_err(|_| RecordError::InvalidBatch("it would be larger than 2 GiB"))?;
    batch[..RECORD_BATCH_OVERHEAD].copy_from_slice(&header.encode());
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_OFFSET..]);
    batch[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_be_bytes());
    Ok(batch.freeze())
}

#[derive(Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// Room for the header, then the records.
    batch: BytesMut,
    count: i32,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    last_offset: Option<i64>,
    failure: Option<RecordError>,
}

impl BatchBuilder {
    pub fn new(options: BatchOptions) -> BatchBuilder {
        BatchBuilder {
            options,
            batch: BytesMut::zeroed(RECORD_BATCH_OVERHEAD),
            count: 0,
            base_timestamp: options.delete_horizon_ms,
            max_timestamp: NO_TIMESTAMP,
            last_offset: None,
            failure: None,
        }
    }

    pub fn options(&self) -> &BatchOptions {
        &self.options
    }

    /// Appends a record with the next offset.
    pub fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) {
        self.append_with_offset(self.next_offset(), timestamp, key, value, headers);
    }

    /// Appends a record with an offset of its own, above those before it (compaction leaves gaps).
    pub fn append_with_offset(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) {
        let mut encoded = BytesMut::new();
        for (key, value) in headers {
            put_sized(&mut encoded, Some(key));
            put_sized(&mut encoded, *value);
        }
        self.append_encoded(offset, timestamp, key, value, headers.len(), &encoded);
    }

    /// Appends a record of another batch with a new offset.
    pub fn append_raw(&mut self, offset: i64, timestamp: i64, record: &RawRecord<'_>) {
        let count = record.header_count.max(0) as usize;
        self.append_encoded(offset, timestamp, record.key, record.value, count, record.headers);
    }

    fn append_encoded(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        header_count: usize,
        headers: &[u8],
    ) {
        if self.failure.is_some() {
            return;
        }
        let in_order = self.last_offset.is_none_or(|last_offset| offset > last_offset);
        let delta = offset_delta(&self.options, offset).ok().filter(|_| in_order);
        let (Some(delta), Some(count)) = (delta, self.count.checked_add(1)) else {
            self.failure = Some(RecordError::InvalidBatch(
                "an offset is out of the batch's range or order",
            ));
            return;
        };
        if timestamp < NO_TIMESTAMP {
            self.failure = Some(RecordError::InvalidBatch("a time stamp is negative"));
            return;
        }
        let timestamp_delta = timestamp.wrapping_sub(*self.base_timestamp.get_or_insert(timestamp));
        let size = body_size(delta, timestamp_delta, key, value, header_count, headers.len());
        if self.batch.len() + size > i32::MAX as usize - 16 {
            self.failure = Some(RecordError::InvalidBatch("it would be larger than 2 GiB"));
            return;
        }
        put_varint(&mut self.batch, size as i32);
        self.batch.put_u8(0);
        put_varlong(&mut self.batch, timestamp_delta);
        put_varint(&mut self.batch, delta);
        put_sized(&mut self.batch, key);
        put_sized(&mut self.batch, value);
        put_varint(&mut self.batch, header_count as i32);
        self.batch.put_slice(headers);
        self.count = count;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.last_offset = Some(offset);
    }

    /// Lets the batch end at an offset above its last record's, as compaction does.
    pub fn override_last_offset(&mut self, last_offset: i64) {
        self.last_offset = Some(last_offset);
    }

    pub fn count(&self) -> i32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset.map_or(self.options.base_offset, |last_offset| {
            last_offset.wrapping_add(1)
        })
    }

    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// The size of the batch if it were built now without compression.
    pub fn estimated_size_in_bytes(&self) -> usize {
        self.batch.len()
    }

    /// Whether the batch stays within `batch_size_max` (uncompressed) with one more record.
    pub fn has_room_for(
        &self,
        batch_size_max: usize,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) -> bool {
        let delta = offset_delta(&self.options, self.next_offset()).unwrap_or(i32::MAX);
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp.unwrap_or(timestamp));
        let headers_size: usize = headers
            .iter()
            .map(|(key, value)| sized(Some(key)) + sized(*value))
            .sum();
        let size = body_size(delta, timestamp_delta, key, value, headers.len(), headers_size);
        self.batch.len() + size_of_varlong(size as i64) + size <= batch_size_max
    }

    /// The finished batch with its CRC. A batch without records is an error: see [`empty_batch`].
    pub fn build(self) -> Result<Bytes, RecordError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.options.check_producer()?;
        let Some(last_offset) = self.last_offset.filter(|_| self.count > 0) else {
            return Err(RecordError::InvalidBatch("it has no records"));
        };
        let header = BatchHeader {
            last_offset_delta: offset_delta(&self.options, last_offset)?,
            base_timestamp: self.base_timestamp.unwrap_or(NO_TIMESTAMP),
            max_timestamp: match self.options.timestamp_type {
                TimestampType::LogAppendTime => self.options.log_append_time_ms,
                _ => self.max_timestamp,
            },
            records_count: self.count,
            ..self.options.header()
        };
        if self.options.compression == Compression::None {
            return finish(header, self.batch);
        }
        let payload = &self.batch[RECORD_BATCH_OVERHEAD..];
        let compressed = compress(self.options.compression, self.options.compression_level, payload)?;
        let mut batch = BytesMut::with_capacity(RECORD_BATCH_OVERHEAD + compressed.len());
        batch.put_bytes(0, RECORD_BATCH_OVERHEAD);
        batch.put_slice(&compressed);
        finish(header, batch)
    }
}

fn body_size(
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    header_count: usize,
    headers_size: usize,
) -> usize {
    1 + size_of_varint(offset_delta)
        + size_of_varlong(timestamp_delta)
        + sized(key)
        + sized(value)
        + size_of_varlong(header_count as i64)
        + headers_size
}

/// The size of bytes and of their size.
fn sized(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| size_of_varlong(bytes.len() as i64) + bytes.len())
}

fn put_sized(buffer: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_varlong(buffer, bytes.len() as i64);
            buffer.put_slice(bytes);
        }
        None => put_varint(buffer, -1),
    }
}

#[cfg(test)]
#[path = "batch_builder_test.rs"]
mod batch_builder_test;
