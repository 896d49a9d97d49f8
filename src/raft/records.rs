//! Batches of the metadata log and of snapshots: their bytes from records and back. Pure.
//!
//! Magic 2, never compressed, no producer, one time stamp for the whole batch, one kind of record in a batch: framed metadata
//! records without keys, or control records.

use bytes::{Bytes, BytesMut};

use super::control::ControlRecord;
use super::{CommittedBatch, MetadataRecord, VersionedRecord};
use crate::record::{BatchBuilder, BatchHeader, BatchOptions, crc_is_valid, records_of};

/// Kafka's `MAX_BATCH_SIZE_BYTES`.
pub const MAX_BATCH_SIZE_BYTES: usize = 8 * 1024 * 1024;

/// What is wrong with a batch, in words: whoever knows the file adds its name.
pub type BatchError = String;

fn builder(base_offset: i64, epoch: i32, is_control: bool) -> BatchBuilder {
    BatchBuilder::new(BatchOptions {
        base_offset,
        partition_leader_epoch: epoch,
        is_control,
        ..BatchOptions::default()
    })
}

pub fn encode_data_batch(
    base_offset: i64,
    epoch: i32,
    timestamp: i64,
    records: &[VersionedRecord],
) -> Result<Bytes, BatchError> {
    let mut batch = builder(base_offset, epoch, false);
    let mut value = BytesMut::new();
    for (record, version) in records {
        value.clear();
        record
            .encode_framed(*version, &mut value)
            .map_err(|error| error.to_string())?;
        batch.append(timestamp, None, Some(&value), &[]);
    }
    batch.build().map_err(|error| error.to_string())
}

pub fn encode_control_batch(
    base_offset: i64,
    epoch: i32,
    timestamp: i64,
    records: &[ControlRecord],
) -> Result<Bytes, BatchError> {
    let mut batch = builder(base_offset, epoch, true);
    for record in records {
        let value = record.encode_value().map_err(|error| error.to_string())?;
        batch.append(timestamp, Some(&record.control_type().key()), Some(&value), &[]);
    }
    batch.build().map_err(|error| error.to_string())
}

/// A batch with its records decoded; one of the two lists is empty.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedBatch {
    pub header: BatchHeader,
    pub records: Vec<MetadataRecord>,
    pub control_records: Vec<ControlRecord>,
}

impl DecodedBatch {
    pub fn into_committed(self) -> CommittedBatch {
        CommittedBatch {
            base_offset: self.header.base_offset,
            last_offset: self.header.last_offset(),
            epoch: self.header.partition_leader_epoch,
            append_timestamp: self.header.max_timestamp,
            size_in_bytes: self.header.size_in_bytes(),
            records: self.records,
        }
    }
}

/// Checks the CRC and decodes every record. Data records must be as the raft writer makes them.
pub fn decode_batch(header: BatchHeader, batch: &Bytes) -> Result<DecodedBatch, BatchError> {
    if !crc_is_valid(batch) {
        return Err(format!(
            "the batch at offset {} fails its CRC",
            header.base_offset
        ));
    }
    let mut decoded = DecodedBatch {
        header,
        records: Vec::new(),
        control_records: Vec::new(),
    };
    let at = |offset: i64, reason: &str| format!("the record at offset {offset}: {reason}");
    for record in records_of(batch).map_err(|error| error.to_string())? {
        let record = record.map_err(|error| error.to_string())?;
        let Some(value) = record.value else {
            return Err(at(record.offset, "has no value"));
        };
        if header.is_control() {
            let Some(key) = record.key else {
                return Err(at(record.offset, "is a control record without a key"));
            };
            let control =
                ControlRecord::decode(&key, &value).map_err(|error| at(record.offset, &error.to_string()))?;
            decoded.control_records.push(control);
        } else {
            if record.key.is_some() {
                return Err(at(record.offset, "has a key"));
            }
            if !record.headers.is_empty() {
                return Err(at(record.offset, "has headers"));
            }
            let (record, _version) = MetadataRecord::decode_framed(value)
                .map_err(|error| at(record.offset, &error.to_string()))?;
            decoded.records.push(record);
        }
    }
    Ok(decoded)
}

#[cfg(test)]
#[path = "records_test.rs"]
mod records_test;
