//! Appending: what a leader assigns and checks, what a follower takes over, and the write itself.
//!
//! Order of one append, all under the writer's lock: validate and assign offsets; note new leader epochs; roll if the
//! segment is full; check producers; write once; publish the new log end; take over producer state and transactions. An
//! append that fails before the write changes nothing but epochs and segments; one whose write fails for want of room is cut
//! off again, so that it can be sent again; after any other failure the directory is offline, and what was written of it
//! lies behind the published end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::log_maintenance::NeedsSnapshot;
use super::log_segment::{LogSegment, RollParams};
use super::producer_state::{BatchMetadata, CompletedTxn, MarkerRecord, ProducerAppendInfo};
use super::transaction_index::AbortedTxn;
use super::unified_log::Writer;
use super::validator::{self, ValidatorConfig};
use super::verification::{TransactionCheck, VerificationGuard, VerificationRequest};
use super::{AppendOrigin, LogAppendInfo, LogError, LogOffsetMetadata, UnifiedLog};
use crate::record::control_record::end_transaction_marker_of;
use crate::record::{
    BatchHeader, Batches, NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, RecordError, crc_is_valid,
};

/// The bytes before the magic byte, which the broker may set: the CRC covers what follows it.
const PREFIX_BYTES: usize = 16;

/// One batch of an append: the header as it is stored, and its bytes (whose first 16 may differ).
type Batch = (BatchHeader, Bytes);

/// What the checks of producers found.
#[derive(Default)]
struct ProducerChanges {
    updated: BTreeMap<i64, ProducerAppendInfo>,
    completed: Vec<CompletedTxn>,
    duplicate: Option<BatchMetadata>,
}

impl UnifiedLog {
    /// Validates, assigns offsets and the leader epoch, checks producer state, appends.
    pub fn append_as_leader(
        &self,
        records: &Bytes,
        leader_epoch: i32,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<LogAppendInfo, LogError> {
        self.append_checked(
            records,
            leader_epoch,
            origin,
            now_ms,
            &TransactionCheck::default(),
        )
    }

    /// The same, with what the append says of its transaction.
    pub fn append_checked(
        &self,
        records: &Bytes,
        leader_epoch: i32,
        origin: AppendOrigin,
        now_ms: i64,
        check: &TransactionCheck,
    ) -> Result<LogAppendInfo, LogError> {
        if records.is_empty() {
            return Ok(self.nothing_appended());
        }
        let settings = self.settings.load();
        let config = ValidatorConfig {
            partition_leader_epoch: leader_epoch,
            ..settings.validator.clone()
        };
        let mut writer = self.lock()?;
        self.check_room()?;
        let first_offset = self.log_end_offset();
        let validated = validator::validate(records, first_offset, &config, now_ms, origin)?;
        let header = validated.header;
        let mut info = LogAppendInfo {
            first_offset,
            last_offset: header.last_offset(),
            last_leader_epoch: leader_epoch,
            max_timestamp: validated.max_timestamp,
            log_append_time: validated.log_append_time_ms,
            log_start_offset: self.log_start_offset(),
            valid_bytes: header.size_in_bytes(),
            duplicate: false,
            log_end_offset: first_offset,
        };
        let prefix = header.prefix();
        let batch = [(header, validated.records)];
        let parts = [&prefix[..], &batch[0].1[PREFIX_BYTES..header.size_in_bytes()]];
        self.append(&mut writer, &batch, &parts, (origin, check), now_ms, &mut info)?;
        drop(writer);
        self.flush_if_due()?;
        Ok(info)
    }

    /// Appends what the leader sent, bytes unchanged. A batch of a higher epoch than `leader_epoch` ends it: it was
    /// fetched from a newer leader than the one this replica follows.
    pub fn append_as_follower(&self, records: &Bytes, leader_epoch: i32) -> Result<LogAppendInfo, LogError> {
        self.append_given(records, AppendOrigin::Replication, Some(leader_epoch))
    }

    /// Appends ready-made batches whose offsets and epochs are set and continue the log: the metadata log.
    pub fn append_prepared(&self, records: &Bytes) -> Result<LogAppendInfo, LogError> {
        self.append_given(records, AppendOrigin::RaftLeader, None)
    }

    /// Before the coordinator is asked whether a producer may open a transaction here: see [`VerificationGuard`]. `None`: it is open.
    pub fn start_verification(
        &self,
        request: &VerificationRequest,
        now_ms: i64,
    ) -> Result<Option<VerificationGuard>, LogError> {
        let mut writer = self.lock()?;
        writer.producer_state.start_verification(request, now_ms)
    }

    fn nothing_appended(&self) -> LogAppendInfo {
        LogAppendInfo {
            first_offset: -1,
            last_offset: -1,
            last_leader_epoch: NO_PARTITION_LEADER_EPOCH,
            max_timestamp: NO_TIMESTAMP,
            log_append_time: NO_TIMESTAMP,
            log_start_offset: self.log_start_offset(),
            valid_bytes: 0,
            duplicate: false,
            log_end_offset: self.log_end_offset(),
        }
    }

    fn append_given(
        &self,
        records: &Bytes,
        origin: AppendOrigin,
        epoch_limit: Option<i32>,
    ) -> Result<LogAppendInfo, LogError> {
        let (batches, mut info) = self.analyze_given(records, epoch_limit)?;
        let Some((first, _)) = batches.first() else {
            return Ok(info);
        };
        let mut writer = self.lock()?;
        if origin != AppendOrigin::RaftLeader {
            self.check_room()?;
        }
        let expected = self.log_end_offset();
        // Older formats have no first offset in the header: there the last one must do.
        let (first_offset, first_or_last) = (first.base_offset, first.base_offset);
        let continues = if origin == AppendOrigin::RaftLeader {
            first_or_last == expected
        } else {
            first_or_last >= expected
        };
        if !continues {
            return Err(LogError::UnexpectedAppendOffset {
                topic_partition: self.topic_partition.clone(),
                first_offset,
                expected,
            });
        }
        let parts = [&records[..info.valid_bytes]];
        let now_ms = self.context.clock.now_ms();
        let origin = (origin, &TransactionCheck::default());
        self.append(&mut writer, &batches, &parts, origin, now_ms, &mut info)?;
        drop(writer);
        self.flush_if_due()?;
        Ok(info)
    }

    /// Kafka's analyzeAndValidateRecords for batches that have their offsets: CRCs, growing offsets. Bytes of a batch that
    /// is cut off at the end (a fetch's last one) are left out.
    fn analyze_given(
        &self,
        records: &Bytes,
        epoch_limit: Option<i32>,
    ) -> Result<(Vec<Batch>, LogAppendInfo), LogError> {
        let mut info = self.nothing_appended();
        let mut batches: Vec<Batch> = Vec::new();
        for batch in Batches::of_bytes(records) {
            let (header, bytes) = match batch {
                Ok(batch) => batch,
                Err(RecordError::Torn { .. }) => break,
                Err(error) => {
                    return Err(LogError::CorruptRecord {
                        reason: format!("{error} in append to {}", self.topic_partition),
                    });
                }
            };
            let epoch = header.partition_leader_epoch;
            if epoch_limit.is_some_and(|limit| epoch != NO_PARTITION_LEADER_EPOCH && epoch > limit) {
                break;
            }
            if !crc_is_valid(&bytes) {
                return Err(LogError::CorruptRecord {
                    reason: format!(
                        "Record is corrupt (stored crc = {}) in topic partition {}.",
                        header.crc, self.topic_partition
                    ),
                });
            }
            if batches
                .last()
                .is_some_and(|(previous, _)| previous.last_offset() >= header.last_offset())
            {
                return Err(LogError::UnexpectedAppendOffset {
                    topic_partition: self.topic_partition.clone(),
                    first_offset: header.base_offset,
                    expected: info.last_offset + 1,
                });
            }
            if batches.is_empty() {
                info.first_offset = header.base_offset;
            }
            info.last_offset = header.last_offset();
            info.last_leader_epoch = epoch;
            info.max_timestamp = info.max_timestamp.max(header.max_timestamp);
            info.valid_bytes += header.size_in_bytes();
            batches.push((header, bytes));
        }
        Ok((batches, info))
    }

    fn append(
        &self,
        writer: &mut Writer,
        batches: &[Batch],
        parts: &[&[u8]],
        origin: (AppendOrigin, &TransactionCheck),
        now_ms: i64,
        info: &mut LogAppendInfo,
    ) -> Result<(), LogError> {
        self.pay_debts(writer)?;
        for (header, _) in batches.iter().filter(|(header, _)| header.magic >= 2) {
            let known = self.latest_epoch();
            if known != Some(header.partition_leader_epoch) {
                self.assign_epoch(writer, header.partition_leader_epoch, header.base_offset)?;
            }
        }
        let config = self.config();
        let segment_size = config.segment_size().max(0) as usize;
        if info.valid_bytes > segment_size {
            return Err(LogError::RecordBatchTooLarge {
                topic_partition: self.topic_partition.clone(),
                size: info.valid_bytes,
                max: segment_size,
            });
        }
        let params = RollParams {
            max_segment_ms: config.segment_ms,
            max_segment_bytes: segment_size as u64,
            max_timestamp_in_messages: info.max_timestamp,
            max_offset_in_messages: info.last_offset,
            messages_size: info.valid_bytes as u64,
            now_ms,
        };
        let segment = self.maybe_roll(writer, &params, info.first_offset)?;

        let changes = self.check_producers(writer, batches, origin, &segment)?;
        if let Some(duplicate) = changes.duplicate {
            info.duplicate = true;
            info.first_offset = duplicate.first_offset();
            info.last_offset = duplicate.last_offset;
            info.log_append_time = duplicate.timestamp;
            return Ok(());
        }

        segment.set_room_aside(info.valid_bytes as u64, || {
            self.log_dir.has_plenty_of_room(&*self.context.disk)
        });
        let headers: Vec<BatchHeader> = batches.iter().map(|(header, _)| *header).collect();
        segment.append(&headers, parts).map_err(|error| {
            self.log_dir
                .write_failed(&segment.log_handle().path(), "appending to", error)
        })?;
        info.log_end_offset = info.last_offset + 1;
        self.publish_log_end(info.log_end_offset, &segment);
        self.apply_producers(writer, &changes, info.log_end_offset, &segment)
    }

    /// The metadata log goes on with what little is left: it is small, and without it nothing can be deleted.
    fn check_room(&self) -> Result<(), LogError> {
        self.log_dir.check_room(&*self.context.disk, &*self.context.clock)
    }

    pub(crate) fn publish_log_end(&self, log_end_offset: i64, active: &LogSegment) {
        self.log_end.store(LogOffsetMetadata {
            message_offset: log_end_offset,
            segment_base_offset: active.base_offset(),
            relative_position_in_segment: active.size() as i64,
        });
    }

    /// Starts a new segment if these messages do not belong into the active one.
    fn maybe_roll(
        &self,
        writer: &mut Writer,
        params: &RollParams,
        first_offset: i64,
    ) -> Result<Arc<LogSegment>, LogError> {
        let active = self.active_segment();
        let should_roll = active.should_roll(params).map_err(|error| {
            self.log_dir
                .scan_error(&active.log_handle().path(), "reading", error)
        })?;
        if should_roll {
            self.roll_segment(writer, Some(first_offset), NeedsSnapshot::Always)
        } else {
            Ok(active)
        }
    }

    /// Duplicates, sequences and epochs of the producers of these batches; where their transactions begin and end.
    fn check_producers(
        &self,
        writer: &Writer,
        batches: &[Batch],
        (origin, check): (AppendOrigin, &TransactionCheck),
        segment: &LogSegment,
    ) -> Result<ProducerChanges, LogError> {
        let mut changes = ProducerChanges::default();
        let mut position = segment.size();
        for (header, bytes) in batches {
            if header.has_producer_id() {
                let state = &writer.producer_state;
                if origin == AppendOrigin::Client
                    && let Some(entry) = state.entry(header.producer_id)
                    && let Some(duplicate) = entry.find_duplicate(header)
                {
                    return Ok(ProducerChanges {
                        duplicate: Some(duplicate),
                        ..ProducerChanges::default()
                    });
                }
                state.check_verified(header, check)?;
                let first_offset = LogOffsetMetadata {
                    message_offset: header.base_offset,
                    segment_base_offset: segment.base_offset(),
                    relative_position_in_segment: position as i64,
                };
                let marker = marker_of(header, bytes).map_err(|error| LogError::InvalidRecord {
                    reason: error.to_string(),
                })?;
                let marker = marker.map(|marker| MarkerRecord {
                    transaction_version: check.marker_version,
                    ..marker
                });
                let completed = changes
                    .updated
                    .entry(header.producer_id)
                    .or_insert_with(|| state.prepare_update(header.producer_id, origin))
                    .append(header, marker.as_ref(), first_offset)?;
                changes.completed.extend(completed);
            }
            position += header.size_in_bytes() as u64;
        }
        Ok(changes)
    }

    fn apply_producers(
        &self,
        writer: &mut Writer,
        changes: &ProducerChanges,
        log_end_offset: i64,
        segment: &LogSegment,
    ) -> Result<(), LogError> {
        for update in changes.updated.values() {
            writer.producer_state.update(update);
        }
        for completed in &changes.completed {
            complete_transaction(&mut writer.producer_state, completed, segment).map_err(|error| {
                self.log_dir
                    .fail(&segment.txn_index.handle().path(), "appending to", error)
            })?;
        }
        writer.producer_state.update_map_end_offset(log_end_offset);
        self.publish_first_unstable(writer);
        Ok(())
    }

    /// `flush.messages`.
    fn flush_if_due(&self) -> Result<(), LogError> {
        let unflushed = self.log_end_offset() - self.recovery_point.load(Ordering::Acquire);
        if unflushed >= self.config().flush_messages {
            self.flush()
        } else {
            Ok(())
        }
    }
}

/// The marker in a control batch of a producer; `None` for data, and for a marker whose record was cleaned.
pub(crate) fn marker_of(header: &BatchHeader, batch: &Bytes) -> Result<Option<MarkerRecord>, RecordError> {
    if !header.is_control() {
        return Ok(None);
    }
    let marker = end_transaction_marker_of(batch)?;
    Ok(marker.map(|marker| MarkerRecord {
        marker,
        timestamp: header.max_timestamp,
        transaction_version: 0,
    }))
}

/// Ends a transaction in the producer state; an aborted one goes into the segment's transaction index.
pub(crate) fn complete_transaction(
    state: &mut super::producer_state::ProducerState,
    completed: &CompletedTxn,
    segment: &LogSegment,
) -> std::io::Result<()> {
    if completed.is_aborted {
        segment.mark_indexes_dirty();
        segment.txn_index.append(&AbortedTxn {
            producer_id: completed.producer_id,
            first_offset: completed.first_offset,
            last_offset: completed.last_offset,
            last_stable_offset: state.last_stable_offset(completed),
        })?;
    }
    state.complete_txn(completed);
    Ok(())
}
