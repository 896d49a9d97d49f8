//! Replays a partition's log into a shard.

use bytes::Bytes;

use super::log::{PartitionLog, error_code};
use super::shard::CoordinatorShard;
use crate::log::TopicPartition;
use crate::protocol::{ErrorCode, WireError};
use crate::record::control_record::{ControlRecordType, end_transaction_marker_of};
use crate::record::record::parse_record;
use crate::record::{BatchHeader, Batches, InvalidRecord, RECORD_BATCH_OVERHEAD, RecordError, records_of};

/// Why a partition could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("reading the log: {0}")]
    Log(ErrorCode),
    #[error("a batch does not decode: {0}")]
    Batch(#[from] RecordError),
    #[error("the record at offset {offset} does not decode: {error}")]
    Record { offset: i64, error: WireError },
    #[error("the record at offset {0} has no key")]
    NoKey(i64),
    #[error("stopped")]
    Stopped,
}

/// Where loading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// Offset after the last record of the log.
    pub end_offset: i64,
    pub high_watermark: i64,
    pub records: u64,
}

/// Replays all there is. Blocks on the disk. `is_stopped` is asked between reads.
pub fn load<S: CoordinatorShard>(
    shard: &mut S,
    log: &dyn PartitionLog,
    topic_partition: &TopicPartition,
    buffer_bytes: usize,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Loaded, LoadError> {
    let offsets = |log: &dyn PartitionLog| {
        log.leader_offsets(topic_partition)
            .map_err(|error| LoadError::Log(error_code(&error)))
    };
    let mut loaded = Loaded {
        end_offset: offsets(log)?.log_start_offset,
        high_watermark: 0,
        records: 0,
    };
    loop {
        if is_stopped() {
            return Err(LoadError::Stopped);
        }
        let bytes = log
            .read(topic_partition, loaded.end_offset, buffer_bytes)
            .map_err(|error| LoadError::Log(error_code(&error)))?;
        if bytes.is_empty() {
            break;
        }
        // Told before they are replayed: a shard need not remember how it was before a record that is committed.
        shard.commit(offsets(log)?.high_watermark);
        for batch in Batches::of_bytes(&bytes) {
            let (header, batch) = match batch {
                Ok(batch) => batch,
                // The buffer ends within a batch that the next read will begin with.
                Err(RecordError::Torn { position, .. }) if position > 0 => break,
                Err(error) => return Err(error.into()),
            };
            if header.is_control() {
                if let Some(marker) = end_transaction_marker_of(&batch)? {
                    let committed = marker.control_type == ControlRecordType::Commit;
                    shard.replay_end_transaction_marker(header.base_offset, header.producer_id, committed);
                }
            } else {
                let producer_id = if header.is_transactional() {
                    header.producer_id
                } else {
                    -1
                };
                loaded.records += replay_batch(shard, &header, &batch, producer_id)?;
            }
            loaded.end_offset = header.next_offset();
        }
    }
    loaded.high_watermark = offsets(log)?.high_watermark.min(loaded.end_offset);
    shard.commit(loaded.high_watermark);
    Ok(loaded)
}

fn replay_batch<S: CoordinatorShard>(
    shard: &mut S,
    header: &BatchHeader,
    batch: &Bytes,
    producer_id: i64,
) -> Result<u64, LoadError> {
    if header.magic < 2 || header.is_compressed() || header.records_count < 0 {
        return replay_records(shard, batch, producer_id);
    }
    // Millions of them: nothing is allocated for a record before it is known what it says.
    let mut rest = &batch[RECORD_BATCH_OVERHEAD..];
    for _ in 0..header.records_count {
        let (record, size) = parse_record(rest).map_err(RecordError::from)?;
        rest = &rest[size..];
        let offset = header.base_offset.wrapping_add(i64::from(record.offset_delta));
        let key = record.key.ok_or(LoadError::NoKey(offset))?;
        if !shard.replay_raw(offset, producer_id, key, record.value) {
            let value = record.value.map(|value| batch.slice_ref(value));
            replay_record(shard, offset, producer_id, batch.slice_ref(key), value)?;
        }
    }
    if header.records_count > 0 && !rest.is_empty() {
        return Err(RecordError::from(InvalidRecord::RecordsRemaining).into());
    }
    Ok(u64::from(header.records_count.unsigned_abs()))
}

/// Of a batch that has to be inflated, or of an old format.
fn replay_records<S: CoordinatorShard>(
    shard: &mut S,
    batch: &Bytes,
    producer_id: i64,
) -> Result<u64, LoadError> {
    let mut count = 0;
    for record in records_of(batch)? {
        let record = record?;
        let offset = record.offset;
        let key = record.key.ok_or(LoadError::NoKey(offset))?;
        if !shard.replay_raw(offset, producer_id, &key, record.value.as_deref()) {
            replay_record(shard, offset, producer_id, key, record.value)?;
        }
        count += 1;
    }
    Ok(count)
}

fn replay_record<S: CoordinatorShard>(
    shard: &mut S,
    offset: i64,
    producer_id: i64,
    key: Bytes,
    value: Option<Bytes>,
) -> Result<(), LoadError> {
    match S::decode(key, value) {
        Ok(Some(record)) => shard.replay(offset, producer_id, record),
        // Written by a newer version; Kafka passes over it too.
        Ok(None) => tracing::warn!(offset, "ignoring a record of an unknown type"),
        Err(error) => return Err(LoadError::Record { offset, error }),
    }
    Ok(())
}
