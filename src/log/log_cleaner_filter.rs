//! Which batches and records a cleaning keeps, and how a batch looks that lost some of its records. Pure.
//!
//! Owns the rules of Kafka's `Cleaner` and `MemoryRecords.filterTo`: the latest record of a key stays, a tombstone until its
//! batch's delete horizon (KIP-534: set when it is first cleaned, kept in the base time stamp), a marker until its
//! transaction is empty and its horizon over; the last batch of an active producer and the last one of the cleaned range stay
//! even without records. Offsets never change; a batch that loses nothing keeps its bytes.
//! Difference: a compressed message set of magic 0 or 1 that loses records becomes a batch of magic 2 (kavka writes no other).

use std::collections::HashMap;

use bytes::Bytes;

use super::log_cleaner_transactions::CleanedTransactions;
use super::offset_map::OffsetMap;
use crate::record::compression::decompress;
use crate::record::record::{record_timestamp, walk_payload};
use crate::record::record_batch::check_crc;
use crate::record::{
    BatchBuilder, BatchHeader, BatchOptions, Header, RECORD_BATCH_OVERHEAD, RawRecord, RecordError,
    TimestampType, empty_batch, legacy,
};

/// The most that a batch may inflate to.
const INFLATED_SIZE_MAX: usize = i32::MAX as usize;

/// What must stay so that an active producer is known after the cleaning: the batch with its last sequence, or if there is
/// none the marker with its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastRecord {
    pub last_data_offset: Option<i64>,
    pub producer_epoch: i16,
}

/// What becomes of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Retained {
    Nothing,
    /// Byte by byte.
    AsItIs,
    Rewritten(Bytes),
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterStats {
    pub messages_read: u64,
    pub messages_retained: u64,
    /// Records without a key: a compacted log should have none.
    pub invalid_messages: u64,
}

/// The settings of one cleaning.
#[derive(Debug)]
pub(crate) struct BatchFilter<'a> {
    pub map: &'a OffsetMap,
    pub now_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// Tombstones of magic 0 and 1 have no horizon: they stay while their segment is young.
    pub retain_legacy_deletes: bool,
    pub last_records: &'a HashMap<i64, LastRecord>,
    /// The end of what is cleaned: the last batch before it stays, so that the log's end is not forgotten.
    pub upper_bound_offset: i64,
}

/// Why a batch stays even if it loses all its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retention {
    /// It goes, records and all.
    Delete,
    DeleteEmpty,
    RetainEmpty,
}

impl BatchFilter<'_> {
    pub fn filter(
        &self,
        header: &BatchHeader,
        batch: &Bytes,
        transactions: &mut CleanedTransactions,
        stats: &mut FilterStats,
    ) -> Result<Retained, RecordError> {
        check_crc(batch)?;
        let can_discard = if header.is_control() {
            transactions.on_control_batch(header, batch)?
        } else {
            transactions.on_data_batch(header)
        };
        let discard_records = if header.is_control() {
            can_discard
                && header
                    .delete_horizon_ms()
                    .is_some_and(|horizon| horizon <= self.now_ms)
        } else {
            can_discard
        };
        let retention = self.retention_of(header, discard_records);
        if retention == Retention::Delete {
            return Ok(Retained::Nothing);
        }
        let marker_of_empty_transaction = can_discard && header.is_control();
        let retained = if header.magic < 2 {
            self.filter_legacy(header, batch, stats)?
        } else {
            self.filter_records(header, batch, discard_records, marker_of_empty_transaction, stats)?
        };
        if retained == Retained::Nothing && retention == Retention::RetainEmpty {
            let options = options_of(header, header.base_offset);
            let empty = empty_batch(options, header.last_offset(), header.max_timestamp)?;
            return Ok(Retained::Rewritten(empty));
        }
        Ok(retained)
    }

    fn retention_of(&self, header: &BatchHeader, discard_records: bool) -> Retention {
        let is_last_of_producer = header.has_producer_id()
            && self
                .last_records
                .get(&header.producer_id)
                .is_some_and(|last| match last.last_data_offset {
                    Some(offset) => header.last_offset() == offset,
                    None => header.is_control() && header.producer_epoch == last.producer_epoch,
                });
        if is_last_of_producer || header.next_offset() == self.upper_bound_offset {
            Retention::RetainEmpty
        } else if discard_records {
            Retention::Delete
        } else {
            Retention::DeleteEmpty
        }
    }

    /// Whether a data record stays.
    fn retains(
        &self,
        header: &BatchHeader,
        offset: i64,
        key: Option<&[u8]>,
        has_value: bool,
        stats: &mut FilterStats,
    ) -> bool {
        if offset > self.map.latest_offset() {
            return true;
        }
        let Some(key) = key else {
            stats.invalid_messages += 1;
            return false;
        };
        let is_latest = self.map.get(key).is_none_or(|latest| offset >= latest);
        let retains_delete = || {
            if header.magic < 2 {
                self.retain_legacy_deletes
            } else {
                header
                    .delete_horizon_ms()
                    .is_none_or(|horizon| self.now_ms < horizon)
            }
        };
        is_latest && (has_value || retains_delete())
    }

    fn filter_records(
        &self,
        header: &BatchHeader,
        batch: &Bytes,
        discard_records: bool,
        marker_of_empty_transaction: bool,
        stats: &mut FilterStats,
    ) -> Result<Retained, RecordError> {
        let payload = &batch[RECORD_BATCH_OVERHEAD..header.size_in_bytes()];
        let inflated;
        let payload = if header.is_compressed() && header.records_count > 0 {
            inflated = decompress(header.compression()?, payload, INFLATED_SIZE_MAX)?;
            &inflated[..]
        } else {
            payload
        };
        let mut retained: Vec<RawRecord<'_>> = Vec::new();
        let mut has_tombstone = false;
        walk_payload(payload, header.records_count, |record| {
            stats.messages_read += 1;
            let offset = header.base_offset + i64::from(record.offset_delta);
            let stays = !discard_records
                && (header.is_control()
                    || self.retains(header, offset, record.key, record.value.is_some(), stats));
            if stays {
                has_tombstone |= record.value.is_none();
                retained.push(*record);
            }
        })?;
        stats.messages_retained += retained.len() as u64;
        if retained.is_empty() {
            return Ok(Retained::Nothing);
        }
        let needs_horizon =
            (has_tombstone || marker_of_empty_transaction) && header.delete_horizon_ms().is_none();
        if retained.len() == header.records_count as usize && !needs_horizon {
            return Ok(Retained::AsItIs);
        }
        let mut options = options_of(header, header.base_offset);
        if needs_horizon {
            options.delete_horizon_ms = Some(self.now_ms.saturating_add(self.delete_retention_ms));
        }
        let mut builder = BatchBuilder::new(options);
        for record in &retained {
            let offset = header.base_offset + i64::from(record.offset_delta);
            builder.append_raw(offset, record_timestamp(header, record.timestamp_delta), record);
        }
        // The last sequence follows from the last offset: a producer must find the one it knows.
        builder.override_last_offset(header.last_offset());
        builder.build().map(Retained::Rewritten)
    }

    fn filter_legacy(
        &self,
        header: &BatchHeader,
        batch: &Bytes,
        stats: &mut FilterStats,
    ) -> Result<Retained, RecordError> {
        let records = legacy::records(batch, INFLATED_SIZE_MAX)?;
        let count = records.len();
        stats.messages_read += count as u64;
        let mut retained = records;
        retained.retain(|record| {
            self.retains(
                header,
                record.offset,
                record.key.as_deref(),
                record.value.is_some(),
                stats,
            )
        });
        stats.messages_retained += retained.len() as u64;
        let Some(first) = retained.first() else {
            return Ok(Retained::Nothing);
        };
        if retained.len() == count {
            return Ok(Retained::AsItIs);
        }
        let mut builder = BatchBuilder::new(options_of(header, first.offset));
        for record in &retained {
            builder.append_with_offset(
                record.offset,
                record.timestamp,
                record.key.as_deref(),
                record.value.as_deref(),
                &header_refs(&record.headers),
            );
        }
        builder.override_last_offset(header.last_offset());
        builder.build().map(Retained::Rewritten)
    }
}

fn header_refs(headers: &[Header]) -> Vec<crate::record::HeaderRef<'_>> {
    headers
        .iter()
        .map(|(key, value)| (&key[..], value.as_deref()))
        .collect()
}

/// All of a batch's header that does not follow from its records; without tombstones a horizon that is set stays.
fn options_of(header: &BatchHeader, base_offset: i64) -> BatchOptions {
    let timestamp_type = match header.timestamp_type() {
        TimestampType::NoTimestampType => TimestampType::CreateTime,
        known => known,
    };
    BatchOptions {
        base_offset,
        partition_leader_epoch: header.partition_leader_epoch,
        compression: header.compression().unwrap_or_default(),
        compression_level: None,
        timestamp_type,
        log_append_time_ms: header.max_timestamp,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        is_transactional: header.is_transactional(),
        is_control: header.is_control(),
        delete_horizon_ms: header.delete_horizon_ms(),
    }
}

#[cfg(test)]
#[path = "log_cleaner_filter_test.rs"]
mod log_cleaner_filter_test;
