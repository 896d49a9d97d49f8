//! One partition's log.
#![allow(clippy::todo, unused_variables)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::{
    AppendOrigin, FetchDataInfo, FetchIsolation, LogAppendInfo, LogConfig, LogError, LogOffsetMetadata,
    ProducerStateSummary, TimestampAndOffset, TopicPartition,
};

/// One partition's log. Shared as `Arc<UnifiedLog>`: appends and other changes take the writer's lock, reads never do.
#[derive(Debug)]
pub struct UnifiedLog {
    topic_partition: TopicPartition,
}

impl UnifiedLog {
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// From `partition.metadata`.
    pub fn topic_id(&self) -> Option<Uuid> {
        todo!()
    }

    /// Writes `partition.metadata`; an error if there is another id in it.
    pub fn assign_topic_id(&self, topic_id: Uuid) -> Result<(), LogError> {
        todo!()
    }

    /// The log directory that holds this partition's folder.
    pub fn parent_dir(&self) -> Arc<Path> {
        todo!()
    }

    /// The partition's folder (it moves when the log is deleted).
    pub fn dir(&self) -> PathBuf {
        todo!()
    }

    pub fn config(&self) -> Arc<LogConfig> {
        todo!()
    }

    pub fn update_config(&self, config: LogConfig) {
        todo!()
    }

    /// Validates, assigns offsets and the leader epoch, checks producer state, appends.
    pub fn append_as_leader(
        &self,
        records: &Bytes,
        leader_epoch: i32,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<LogAppendInfo, LogError> {
        todo!()
    }

    /// Appends what the leader sent, bytes unchanged. Batches of a higher epoch than `leader_epoch` end it (KIP-951
    /// safety: a fetch answered by a newer leader).
    pub fn append_as_follower(&self, records: &Bytes, leader_epoch: i32) -> Result<LogAppendInfo, LogError> {
        todo!()
    }

    /// Appends ready-made batches whose offsets and epochs are set and continue the log: the metadata log.
    pub fn append_prepared(&self, records: &Bytes) -> Result<LogAppendInfo, LogError> {
        todo!()
    }

    /// Ranges of one segment's file from the batch that holds `start_offset` on. With `min_one_message` the first batch
    /// is whole even when it is above `max_bytes`.
    pub fn read(
        &self,
        start_offset: i64,
        max_bytes: usize,
        isolation: FetchIsolation,
        min_one_message: bool,
    ) -> Result<FetchDataInfo, LogError> {
        todo!()
    }

    /// The same, copied.
    pub fn read_bytes(
        &self,
        start_offset: i64,
        max_bytes: usize,
        isolation: FetchIsolation,
        min_one_message: bool,
    ) -> Result<Bytes, LogError> {
        todo!()
    }

    pub fn log_start_offset(&self) -> i64 {
        todo!()
    }

    pub fn log_end_offset(&self) -> i64 {
        todo!()
    }

    pub fn log_end_offset_metadata(&self) -> LogOffsetMetadata {
        todo!()
    }

    pub fn high_watermark(&self) -> i64 {
        todo!()
    }

    /// With its place on disk where that is known.
    pub fn high_watermark_metadata(&self) -> LogOffsetMetadata {
        todo!()
    }

    /// The first unstable offset if it is below the high watermark, else the high watermark.
    pub fn last_stable_offset(&self) -> i64 {
        todo!()
    }

    pub fn last_stable_offset_lag(&self) -> i64 {
        self.high_watermark() - self.last_stable_offset()
    }

    /// Sets it within [log start, log end]; may go back (a follower after truncation). Returns the new one.
    pub fn update_high_watermark(&self, high_watermark: i64) -> i64 {
        todo!()
    }

    /// Raises it only; returns the old one when it moved.
    pub fn maybe_increment_high_watermark(&self, high_watermark: LogOffsetMetadata) -> Option<i64> {
        todo!()
    }

    pub fn latest_epoch(&self) -> Option<i32> {
        todo!()
    }

    /// (epoch, end offset) of the largest epoch at or below the asked one, as OffsetForLeaderEpoch answers it.
    pub fn end_offset_for_epoch(&self, leader_epoch: i32) -> Option<(i32, i64)> {
        todo!()
    }

    /// (epoch, start offset) in order.
    pub fn leader_epochs(&self) -> Vec<(i32, i64)> {
        todo!()
    }

    /// The epoch of the batch at `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        todo!()
    }

    pub fn maybe_assign_epoch_start_offset(
        &self,
        leader_epoch: i32,
        start_offset: i64,
    ) -> Result<(), LogError> {
        todo!()
    }

    /// Removes all at and above `target_offset`; true when something was removed.
    pub fn truncate_to(&self, target_offset: i64) -> Result<bool, LogError> {
        todo!()
    }

    /// Removes all and goes on at `new_offset`.
    pub fn truncate_fully_and_start_at(
        &self,
        new_offset: i64,
        log_start_offset: Option<i64>,
    ) -> Result<(), LogError> {
        todo!()
    }

    /// DeleteRecords, a follower's leader, a snapshot: never above the high watermark (OffsetOutOfRange).
    pub fn maybe_increment_log_start_offset(&self, new_log_start_offset: i64) -> Result<bool, LogError> {
        todo!()
    }

    /// The first record whose time stamp is at or after `timestamp`.
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<TimestampAndOffset>, LogError> {
        todo!()
    }

    /// The record with the largest time stamp (ListOffsets -3).
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimestampAndOffset>, LogError> {
        todo!()
    }

    /// Makes all that was appended durable and moves the recovery point.
    pub fn flush(&self) -> Result<(), LogError> {
        todo!()
    }

    pub fn recovery_point(&self) -> i64 {
        todo!()
    }

    /// Starts a new segment at the log end (if the active one holds anything).
    pub fn roll(&self) -> Result<(), LogError> {
        todo!()
    }

    /// Retention by time, size and log start offset; returns the number of segments removed.
    pub fn delete_old_segments(&self, now_ms: i64) -> Result<usize, LogError> {
        todo!()
    }

    pub fn size_in_bytes(&self) -> u64 {
        todo!()
    }

    pub fn number_of_segments(&self) -> usize {
        todo!()
    }

    /// For DescribeProducers.
    pub fn active_producers(&self) -> Vec<ProducerStateSummary> {
        todo!()
    }

    pub fn remove_expired_producers(&self, now_ms: i64) {
        todo!()
    }
}
