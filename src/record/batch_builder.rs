//! Builds a magic 2 batch from records: for coordinators, raft, recompression and tests.

use bytes::Bytes;

use crate::record::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, RecordError,
    TimestampType,
};

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
            log_append_time_ms: -1,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            is_transactional: false,
            is_control: false,
            delete_horizon_ms: None,
        }
    }
}

#[derive(Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
}

impl BatchBuilder {
    pub fn new(options: BatchOptions) -> BatchBuilder {
        BatchBuilder { options }
    }

    pub fn options(&self) -> &BatchOptions {
        &self.options
    }

    /// Appends a record with the next offset.
    pub fn append(
        &mut self,
        _timestamp: i64,
        _key: Option<&[u8]>,
        _value: Option<&[u8]>,
        _headers: &[(&[u8], Option<&[u8]>)],
    ) {
        todo!()
    }

    /// Appends a record with an offset of its own, above those before it (compaction leaves gaps).
    pub fn append_with_offset(
        &mut self,
        _offset: i64,
        _timestamp: i64,
        _key: Option<&[u8]>,
        _value: Option<&[u8]>,
        _headers: &[(&[u8], Option<&[u8]>)],
    ) {
        todo!()
    }

    pub fn count(&self) -> i32 {
        todo!()
    }

    /// The size of the batch if it were built now without compression.
    pub fn estimated_size_in_bytes(&self) -> usize {
        todo!()
    }

    /// Whether a record of these sizes would keep the batch within `max_batch_size` (uncompressed).
    pub fn has_room_for(&self, _max_batch_size: usize, _record_size_upper_bound: usize) -> bool {
        todo!()
    }

    /// The finished batch with its CRC.
    pub fn build(self) -> Result<Bytes, RecordError> {
        todo!()
    }
}
