//! One partition's log: its offsets, its segments, what producers and leader epochs it has seen (Kafka's UnifiedLog).
//!
//! ```text
//!  first segment's   log_start      last_stable        high_watermark         log_end
//!  base offset       _offset        _offset                                   _offset
//!       |               |               |                    |                   |
//!       v       <=      v       <=      v         <=         v         <=        v
//!       [ deleted later ][ consumers (read_committed) ][ read_uncommitted ][ replicas ]
//!
//!  recovery_point <= log_end: all below is on the device; a start after a crash reads again what is above.
//! ```
//!
//! | offset | moved by |
//! | --- | --- |
//! | log_start_offset | DeleteRecords, retention, the leader's answer to a follower (up); truncation to below it (down) |
//! | last_stable_offset | an open or unreplicated transaction holds it at its first offset, else it is the high watermark |
//! | high_watermark | the replica layer, when replicas have the records (up); truncation (down) |
//! | log_end_offset | appends (up); truncation (down) |
//! | recovery_point | `flush` (up); truncation (down) |
//!
//! Concurrency: one lock for all that changes the log (`writer`). What readers need is published: segments, log end, high
//! watermark, first unstable offset, log start. Readers take none of the writer's locks, and may see a log that is one
//! append old. Files of segments that were removed stay readable for `file.delete.delay.ms`.
//!
//! Never: knows who the leader is, waits for replicas, speaks of error codes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use uuid::Uuid;

use super::checkpoint::{self, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA};
use super::known_bad::KnownBad;
use super::leader_epoch_cache::LeaderEpochCache;
use super::log_dir::{LogContext, LogDir};
use super::log_segment::{LogSegment, SegmentConfig, SegmentFiles};
use super::open_file_cache::PartitionDir;
use super::producer_state::ProducerState;
use super::published::Published;
use super::validator::ValidatorConfig;
use super::{LogConfig, LogError, LogOffsetMetadata, ProducerStateSummary, Reserve, TopicPartition};
use crate::record::{Compression, NO_PARTITION_LEADER_EPOCH, TimestampType};

/// The segments in order of their base offsets; never empty. The last one is active.
pub(crate) type Segments = Vec<Arc<LogSegment>>;

/// What the writer alone may change.
#[derive(Debug)]
pub(crate) struct Writer {
    pub producer_state: ProducerState,
    /// Closed or deleted: nothing may be appended.
    pub closed: bool,
    /// Counts truncations, so that a flush that ran meanwhile does not move the recovery point over what is gone.
    pub truncations: u64,
    /// Small files that were replaced without a sync; `flush` makes up for it before the recovery point moves.
    pub unsynced_epochs: bool,
    pub unsynced_metadata: bool,
    /// From this offset on the epochs in memory are not those of the file; `i64::MAX`: they are.
    pub epochs_behind_from: i64,
    /// What a full disk did not take and what must be there before anything is appended.
    pub debts: Debts,
    /// A full disk did not take the producer snapshot of a roll; retention takes one.
    pub lacks_snapshot: bool,
}

/// Files that say less, or more, than is true: no harm as long as the log does not grow.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Debts {
    /// `leader-epoch-checkpoint` is behind the cache.
    pub epochs: bool,
    /// `recovery-point-offset-checkpoint` is above what a truncation left.
    pub recovery_point: bool,
}

/// Settings in force, with what is derived from them once.
#[derive(Debug)]
pub(crate) struct Settings {
    pub config: Arc<LogConfig>,
    pub validator: ValidatorConfig,
}

impl Settings {
    pub fn new(topic_partition: &TopicPartition, config: LogConfig) -> Self {
        let compression = match config.compression_type.as_str() {
            "producer" => None,
            "uncompressed" => Some(Compression::None),
            name => Compression::from_name(name),
        };
        let compression_level = match compression {
            Some(Compression::Gzip) => Some(config.compression_gzip_level),
            Some(Compression::Lz4) => Some(config.compression_lz4_level),
            Some(Compression::Zstd) => Some(config.compression_zstd_level),
            Some(Compression::None | Compression::Snappy) | None => None,
        };
        let validator = ValidatorConfig {
            topic_partition: topic_partition.clone(),
            compression,
            compression_level,
            compacted: config.is_compacted(),
            timestamp_type: if config.message_timestamp_type == "LogAppendTime" {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            timestamp_before_max_ms: config.message_timestamp_before_max_ms,
            timestamp_after_max_ms: config.message_timestamp_after_max_ms,
            max_message_bytes: config.max_message_bytes,
            max_decompressed_message_bytes: config.max_decompressed_message_bytes,
            partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        };
        Self {
            config: Arc::new(config),
            validator,
        }
    }
}

/// One partition's log. Shared as `Arc<UnifiedLog>`.
#[derive(Debug)]
pub struct UnifiedLog {
    pub(crate) topic_partition: TopicPartition,
    pub(crate) context: Arc<LogContext>,
    pub(crate) log_dir: Arc<LogDir>,
    pub(crate) dir: Arc<PartitionDir>,
    pub(crate) settings: ArcSwap<Settings>,
    pub(crate) topic_id: ArcSwapOption<Uuid>,
    pub(crate) segments: ArcSwap<Segments>,
    pub(crate) log_end: Published<LogOffsetMetadata>,
    pub(crate) high_watermark: Published<LogOffsetMetadata>,
    pub(crate) first_unstable: Published<Option<LogOffsetMetadata>>,
    pub(crate) log_start_offset: AtomicI64,
    pub(crate) recovery_point: AtomicI64,
    pub(crate) last_flush_ms: AtomicI64,
    pub(crate) epochs: RwLock<LeaderEpochCache>,
    pub(crate) writer: Mutex<Writer>,
    /// The lowest offset that the log was truncated to since the cleaner asked; `i64::MAX`: it was not.
    pub(crate) lowest_truncation: AtomicI64,
    /// Held by whoever syncs: those who come meanwhile find that one sync has done it for all of them.
    pub(crate) flushing: Mutex<()>,
    /// Held while segments are removed or replaced; taken before `writer`, which appends alone need.
    pub(crate) removal: Mutex<()>,
    /// Damage that was found in closed segments.
    pub(crate) known_bad: KnownBad,
    pub(crate) weak: Weak<UnifiedLog>,
}

/// What a start found: everything to build the log from.
pub(crate) struct LoadedLog {
    pub topic_partition: TopicPartition,
    pub context: Arc<LogContext>,
    pub log_dir: Arc<LogDir>,
    pub dir: Arc<PartitionDir>,
    pub config: LogConfig,
    pub topic_id: Option<Uuid>,
    pub segments: Segments,
    pub epochs: LeaderEpochCache,
    pub producer_state: ProducerState,
    pub log_start_offset: i64,
    pub log_end: LogOffsetMetadata,
    pub recovery_point: i64,
    pub high_watermark: i64,
    pub unsynced_metadata: bool,
    pub unsynced_epochs: bool,
    pub epochs_behind_from: i64,
    pub debts: Debts,
    pub known_bad: KnownBad,
}

impl UnifiedLog {
    pub(crate) fn from_loaded(loaded: LoadedLog) -> Result<Arc<Self>, LogError> {
        let now_ms = loaded.context.clock.now_ms();
        let log = Arc::new_cyclic(|weak| UnifiedLog {
            settings: ArcSwap::from_pointee(Settings::new(&loaded.topic_partition, loaded.config)),
            topic_partition: loaded.topic_partition,
            context: loaded.context,
            log_dir: loaded.log_dir,
            dir: loaded.dir,
            topic_id: ArcSwapOption::from(loaded.topic_id.map(Arc::new)),
            segments: ArcSwap::from_pointee(loaded.segments),
            log_end: Published::new(loaded.log_end),
            high_watermark: Published::new(LogOffsetMetadata::offset_only(loaded.log_start_offset)),
            first_unstable: Published::new(None),
            log_start_offset: AtomicI64::new(loaded.log_start_offset),
            recovery_point: AtomicI64::new(loaded.recovery_point),
            last_flush_ms: AtomicI64::new(now_ms),
            epochs: RwLock::new(loaded.epochs),
            writer: Mutex::new(Writer {
                producer_state: loaded.producer_state,
                closed: false,
                truncations: 0,
                unsynced_epochs: loaded.unsynced_epochs,
                unsynced_metadata: loaded.unsynced_metadata,
                epochs_behind_from: loaded.epochs_behind_from,
                debts: loaded.debts,
                lacks_snapshot: false,
            }),
            lowest_truncation: AtomicI64::new(i64::MAX),
            flushing: Mutex::new(()),
            removal: Mutex::new(()),
            known_bad: loaded.known_bad,
            weak: Weak::clone(weak),
        });
        log.update_high_watermark(loaded.high_watermark);
        Ok(log)
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// From `partition.metadata`.
    pub fn topic_id(&self) -> Option<Uuid> {
        self.topic_id.load().as_deref().copied()
    }

    /// Writes `partition.metadata`; an error if there is another id in it.
    pub fn assign_topic_id(&self, topic_id: Uuid) -> Result<(), LogError> {
        let mut writer = self.lock()?;
        match self.topic_id() {
            Some(current) if current == topic_id => return Ok(()),
            Some(current) => {
                return Err(LogError::InconsistentTopicId {
                    topic_partition: self.topic_partition.clone(),
                    topic_id,
                    current,
                });
            }
            None => {}
        }
        let path = self.dir.path().join(PARTITION_METADATA);
        let text = checkpoint::format_partition_metadata(topic_id);
        self.context
            .disk
            .replace(&path, text.as_bytes())
            .map_err(|error| self.log_dir.write_failed(&path, "writing", error))?;
        self.dir.mark_dirty();
        writer.unsynced_metadata = true;
        self.topic_id.store(Some(Arc::new(topic_id)));
        Ok(())
    }

    /// Whether what is left of a `partition.metadata` that does not tell the topic's id may have told this one.
    pub fn may_have_told(&self, topic_id: Uuid) -> bool {
        let path = self.dir.path().join(PARTITION_METADATA);
        match self.context.disk.read(&path) {
            Ok(left) => {
                let end = left
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |last| last + 1);
                checkpoint::format_partition_metadata(topic_id)
                    .as_bytes()
                    .starts_with(&left[..end])
            }
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// The log directory that holds this partition's folder.
    pub fn parent_dir(&self) -> Arc<Path> {
        Arc::clone(self.log_dir.path())
    }

    /// The partition's folder (it moves when the log is deleted).
    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_path_buf()
    }

    pub fn config(&self) -> Arc<LogConfig> {
        Arc::clone(&self.settings.load().config)
    }

    pub fn update_config(&self, config: LogConfig) {
        self.settings
            .store(Arc::new(Settings::new(&self.topic_partition, config)));
    }

    /// Makes room for the metadata log on a full disk; false when there is nothing to give up.
    pub fn give_up_reserve(&self) -> bool {
        self.context.reserve.get().is_some_and(Reserve::give_up)
    }

    // ---- locks

    /// The writer's lock, if the log may be changed.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Writer>, LogError> {
        self.log_dir.check_online()?;
        let writer = self.lock_any();
        if writer.closed {
            return Err(self.closed());
        }
        Ok(writer)
    }

    pub(crate) fn closed(&self) -> LogError {
        LogError::Closed {
            topic_partition: self.topic_partition.clone(),
        }
    }

    pub(crate) fn lock_any(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by whoever syncs the log's files, or gives their folder another name while the log goes on.
    pub(crate) fn lock_flushing(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by whoever removes or replaces segments, or closes the log: the list then only grows at its end.
    pub(crate) fn lock_removal(&self) -> MutexGuard<'_, ()> {
        self.removal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- offsets

    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset.load(Ordering::Acquire)
    }

    pub fn log_end_offset(&self) -> i64 {
        self.log_end.load().message_offset
    }

    pub fn log_end_offset_metadata(&self) -> LogOffsetMetadata {
        self.log_end.load()
    }

    pub fn high_watermark(&self) -> i64 {
        self.high_watermark.load().message_offset
    }

    /// With its place on disk where that is known.
    pub fn high_watermark_metadata(&self) -> LogOffsetMetadata {
        self.high_watermark.load()
    }

    /// The first unstable offset if it is below the high watermark, else the high watermark.
    pub fn last_stable_offset(&self) -> i64 {
        self.last_stable_offset_metadata().message_offset
    }

    /// With its place on disk where that is known.
    pub fn last_stable_offset_metadata(&self) -> LogOffsetMetadata {
        let high_watermark = self.high_watermark_metadata();
        match self.first_unstable.load() {
            Some(first) if first.message_offset < high_watermark.message_offset => first,
            _ => high_watermark,
        }
    }

    pub fn last_stable_offset_lag(&self) -> i64 {
        self.high_watermark() - self.last_stable_offset()
    }

    pub fn recovery_point(&self) -> i64 {
        self.recovery_point.load(Ordering::Acquire)
    }

    /// Sets it within [log start, log end]; may go back (a follower after truncation). Returns the new one.
    pub fn update_high_watermark(&self, high_watermark: i64) -> i64 {
        let mut writer = self.lock_any();
        self.set_high_watermark(&mut writer, LogOffsetMetadata::offset_only(high_watermark))
    }

    pub(crate) fn set_high_watermark(&self, writer: &mut Writer, wanted: LogOffsetMetadata) -> i64 {
        let log_end = self.log_end.load();
        let log_start_offset = self.log_start_offset();
        let new = if wanted.message_offset < log_start_offset {
            LogOffsetMetadata::offset_only(log_start_offset)
        } else if wanted.message_offset >= log_end.message_offset {
            log_end
        } else {
            wanted
        };
        self.high_watermark.store(new);
        writer
            .producer_state
            .on_high_watermark_updated(new.message_offset);
        self.publish_first_unstable(writer);
        new.message_offset
    }

    /// Raises it only; returns the old one when it moved. An offset above the log end counts as the log end.
    pub fn maybe_increment_high_watermark(&self, high_watermark: LogOffsetMetadata) -> Option<i64> {
        let mut writer = self.lock_any();
        let old = self.high_watermark.load();
        let is_newer = old.message_offset < high_watermark.message_offset
            || (old.message_offset == high_watermark.message_offset
                && !high_watermark.is_offset_only()
                && old.on_older_segment(&high_watermark));
        if !is_newer {
            return None;
        }
        self.set_high_watermark(&mut writer, high_watermark);
        Some(old.message_offset)
    }

    /// The offset that holds back the last stable offset, for readers.
    pub(crate) fn publish_first_unstable(&self, writer: &Writer) {
        let log_start_offset = self.log_start_offset();
        let first = writer.producer_state.first_unstable_offset().map(|first| {
            if first.message_offset < log_start_offset {
                LogOffsetMetadata::offset_only(log_start_offset)
            } else {
                first
            }
        });
        self.first_unstable.store(first);
    }

    // ---- leader epochs

    pub(crate) fn with_epochs<T>(&self, read: impl FnOnce(&LeaderEpochCache) -> T) -> T {
        read(&self.epochs.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn latest_epoch(&self) -> Option<i32> {
        self.with_epochs(LeaderEpochCache::latest_epoch)
    }

    /// (epoch, end offset) of the largest epoch at or below the asked one, as OffsetForLeaderEpoch answers it.
    pub fn end_offset_for_epoch(&self, leader_epoch: i32) -> Option<(i32, i64)> {
        let log_end_offset = self.log_end_offset();
        self.with_epochs(|epochs| epochs.end_offset_for(leader_epoch, log_end_offset))
    }

    /// (epoch, start offset) in order.
    pub fn leader_epochs(&self) -> Vec<(i32, i64)> {
        self.with_epochs(|epochs| {
            epochs
                .entries()
                .iter()
                .map(|entry| (entry.epoch, entry.start_offset))
                .collect()
        })
    }

    /// The epoch of the batch at `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.with_epochs(|epochs| epochs.epoch_for_offset(offset))
    }

    pub fn maybe_assign_epoch_start_offset(
        &self,
        leader_epoch: i32,
        start_offset: i64,
    ) -> Result<(), LogError> {
        let mut writer = self.lock()?;
        self.assign_epoch(&mut writer, leader_epoch, start_offset)
    }

    /// Notes where an epoch starts. At the log end that writes no file: what the file lacks lies above the recovery point,
    /// where a start after a crash finds it in the batches, and an epoch without batches is dropped by every start (Kafka's
    /// too). `flush` and `close` write the file before anything relies on it.
    pub(crate) fn assign_epoch(
        &self,
        writer: &mut Writer,
        epoch: i32,
        start_offset: i64,
    ) -> Result<(), LogError> {
        let last = self.with_epochs(|epochs| epochs.entries().last().copied());
        let follows = last.is_none_or(|last| last.epoch < epoch && last.start_offset <= start_offset);
        if !follows || start_offset < self.log_end_offset() {
            return self.change_epochs(writer, |epochs| epochs.assign(epoch, start_offset));
        }
        let mut epochs = self.epochs.write().unwrap_or_else(PoisonError::into_inner);
        if epochs.assign(epoch, start_offset) {
            writer.epochs_behind_from = writer.epochs_behind_from.min(start_offset);
        }
        Ok(())
    }

    /// Changes the cache and writes its file if `change` says so. On a full disk the file is written before the next append:
    /// entries that it lacks are of epochs without records, and those that it has too many are dropped by a start, as they
    /// lie outside of the log.
    pub(crate) fn change_epochs(
        &self,
        writer: &mut Writer,
        change: impl FnOnce(&mut LeaderEpochCache) -> bool,
    ) -> Result<(), LogError> {
        let is_changed = change(&mut self.epochs.write().unwrap_or_else(PoisonError::into_inner));
        if !is_changed {
            return Ok(());
        }
        match self.write_epochs(writer) {
            Err(error) if error.is_no_space() => {
                writer.debts.epochs = true;
                Ok(())
            }
            result => result,
        }
    }

    /// While the log holds no record that is counted as durable, the file is not synced: a crash that loses it loses nothing
    /// that a start would not find in the batches.
    fn write_epochs(&self, writer: &mut Writer) -> Result<(), LogError> {
        let entries = self.with_epochs(|epochs| epochs.entries().to_vec());
        let path = self.dir.path().join(LEADER_EPOCH_CHECKPOINT);
        let text = checkpoint::format_epochs(&entries);
        let nothing_durable = self.recovery_point() <= self.log_start_offset();
        let written = if nothing_durable {
            self.dir.mark_dirty();
            writer.unsynced_epochs = true;
            self.context.disk.replace(&path, text.as_bytes())
        } else {
            self.context.disk.write_atomically(&path, text.as_bytes())
        };
        written.map_err(|error| self.log_dir.write_failed(&path, "writing", error))?;
        writer.epochs_behind_from = i64::MAX;
        writer.unsynced_epochs = nothing_durable;
        writer.debts.epochs = false;
        Ok(())
    }

    /// Before an append: writes what a full disk did not take.
    pub(crate) fn pay_debts(&self, writer: &mut Writer) -> Result<(), LogError> {
        if writer.debts.epochs {
            self.write_epochs(writer)?;
        }
        if writer.debts.recovery_point {
            self.context.checkpoint_recovery_points(&self.log_dir)?;
            writer.debts.recovery_point = false;
        }
        Ok(())
    }

    // ---- segments

    pub(crate) fn active_segment(&self) -> Arc<LogSegment> {
        let segments = self.segments.load();
        Arc::clone(&segments[segments.len() - 1])
    }

    pub(crate) fn segment_files(&self) -> SegmentFiles<'_> {
        SegmentFiles {
            cache: &self.context.cache,
            dir: &self.dir,
            suffix: "",
        }
    }

    pub(crate) fn segment_config(&self) -> SegmentConfig {
        segment_config(&self.config(), &self.context)
    }

    pub fn size_in_bytes(&self) -> u64 {
        self.segments.load().iter().map(|segment| segment.size()).sum()
    }

    pub fn number_of_segments(&self) -> usize {
        self.segments.load().len()
    }

    /// Base offsets of the segments, in order.
    pub fn segment_base_offsets(&self) -> Vec<i64> {
        self.segments
            .load()
            .iter()
            .map(|segment| segment.base_offset())
            .collect()
    }

    // ---- producers

    /// For DescribeProducers.
    pub fn active_producers(&self) -> Vec<ProducerStateSummary> {
        self.lock_any().producer_state.summaries()
    }

    pub fn remove_expired_producers(&self, now_ms: i64) {
        let expiration_ms = self.context.producer_id_expiration_ms();
        let mut after = None;
        loop {
            // Appends come in between.
            let mut writer = self.lock_any();
            writer.producer_state.set_producer_id_expiration_ms(expiration_ms);
            after = writer.producer_state.expire_some(after, now_ms);
            if after.is_none() {
                break;
            }
        }
    }

    /// An open transaction that should have been aborted long ago.
    pub fn has_late_transaction(&self, now_ms: i64) -> bool {
        self.lock_any().producer_state.has_late_transaction(now_ms)
    }

    /// The order of the offsets in this file's header, and of the segments.
    pub fn check_invariants(&self) {
        let writer = self.lock_any();
        let segments = self.segments.load();
        let (start, end) = (self.log_start_offset(), self.log_end_offset());
        let (stable, high) = (self.last_stable_offset(), self.high_watermark());
        let partition = &self.topic_partition;
        assert!(!segments.is_empty(), "{partition}: no segment");
        assert!(
            segments[0].base_offset() <= start,
            "{partition}: first segment above log start {start}"
        );
        assert!(
            start <= high,
            "{partition}: log start {start} above high watermark {high}"
        );
        assert!(
            stable <= high,
            "{partition}: last stable {stable} above high watermark {high}"
        );
        assert!(
            high <= end,
            "{partition}: high watermark {high} above log end {end}"
        );
        assert!(
            self.recovery_point() <= end,
            "{partition}: recovery point above log end {end}"
        );
        assert!(
            segments
                .windows(2)
                .all(|pair| pair[0].base_offset() < pair[1].base_offset()),
            "{partition}: segments out of order"
        );
        let active = &segments[segments.len() - 1];
        assert!(
            active.base_offset() <= end,
            "{partition}: active segment above log end {end}"
        );
        let expected = LogOffsetMetadata {
            message_offset: end,
            segment_base_offset: active.base_offset(),
            relative_position_in_segment: active.size() as i64,
        };
        assert_eq!(
            self.log_end.load(),
            expected,
            "{partition}: log end is not the active segment's"
        );
        assert_eq!(
            writer.producer_state.map_end_offset(),
            end,
            "{partition}: producer state is not at the end"
        );
        self.with_epochs(|epochs| {
            let entries = epochs.entries();
            assert!(
                entries.windows(2).all(|pair| {
                    pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset
                }),
                "{partition}: leader epochs out of order"
            );
        });
    }
}

pub(crate) fn segment_config(config: &LogConfig, context: &LogContext) -> SegmentConfig {
    SegmentConfig {
        index_interval_bytes: config.index_interval_bytes.max(0) as usize,
        max_index_size: config.segment_index_bytes.max(0) as usize,
        roll_jitter_ms: config.random_segment_jitter(context.jitter()),
        now_ms: context.clock.now_ms(),
    }
}
