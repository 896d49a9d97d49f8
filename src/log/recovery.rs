//! What a start does to one partition's folder (Kafka's LogLoader): finish or undo what a crash interrupted, recover the
//! segments that may be torn, and build the log from what is left.
//!
//! After a clean shutdown nothing is read but the tail of the active segment. After any other end the segments from the
//! recovery point on are read whole: their batches are checked, their indexes, leader epochs and producer snapshots built
//! anew, and the log ends before the first batch that is not whole. A segment of which an index is missing is recovered in
//! either case. What lies below the recovery point is taken as it is, as Kafka does; where an index of it must be built
//! anew, a batch that is damaged was durable once: it is kept and known as bad (Kafka cuts the segment there).

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::batch_scanner::{BatchScanner, ScanError};
use super::checkpoint::{self, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA};
use super::damage::bad_range;
use super::known_bad::{BadRange, KnownBad};
use super::leader_epoch_cache::LeaderEpochCache;
use super::log_append::{complete_transaction, marker_of};
use super::log_dir::{Deletion, LogContext, LogDir};
use super::log_read::floor_segment;
use super::log_segment::{LogSegment, SegmentFiles};
use super::offset_index::fits_in_segment;
use super::offset_order::Misplaced;
use super::open_file_cache::{DELETED_SUFFIX, FileKind, PartitionDir, file_name, remove_if_exists};
use super::producer_files::ProducerFiles;
use super::producer_state::ProducerState;
use super::unified_log::{Debts, LoadedLog, Segments, UnifiedLog, segment_config};
use super::{AppendOrigin, LogConfig, LogError, LogOffsetMetadata, TopicPartition};
use crate::record::crc_is_valid;
use recovery_damage::Walk;
use recovery_listing::Listing;

/// How a log is opened.
pub(crate) struct LogLoader<'a> {
    pub context: &'a Arc<LogContext>,
    pub log_dir: &'a Arc<LogDir>,
    pub topic_partition: TopicPartition,
    /// The partition's folder, which is there.
    pub path: PathBuf,
    pub config: LogConfig,
    pub had_clean_shutdown: bool,
    /// From `log-start-offset-checkpoint`, else 0.
    pub log_start_offset: i64,
    /// From `recovery-point-offset-checkpoint`, else 0.
    pub recovery_point: i64,
    /// From `replication-offset-checkpoint`, else 0.
    pub high_watermark: i64,
    /// For a new log: its id, which is written down.
    pub new_topic_id: Option<Uuid>,
}

/// What the recovery of one segment came to.
enum Recovered {
    Whole {
        bytes_cut: u64,
        next_offset: i64,
    },
    /// An offset in it is too far from its base: it has to be split.
    Overflows,
}

/// What is known of a segment before it is recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// Not below the recovery point: a batch that is not whole was never durable.
    Unflushed { next_base_offset: Option<i64> },
    /// Below it: the next start takes its indexes as they are, so a recovery that is killed must leave them missing.
    Durable,
    /// The same with a segment behind it, that begins at this offset: nothing of it is torn.
    DurableAndClosed { next_base_offset: i64 },
}

/// The state of a load in progress.
struct Loading<'a> {
    loader: &'a LogLoader<'a>,
    dir: Arc<PartitionDir>,
    segments: Segments,
    epochs: LeaderEpochCache,
    /// The file must be written: it says something else of offsets that are there.
    epochs_changed: bool,
    /// From here on the file has epochs without batches: left in it, as every start drops them.
    epochs_behind_from: i64,
    snapshots: BTreeSet<i64>,
    /// From here on indexes that were built anew are not durable (a full disk did not take them, or they are a split's), and the
    /// recovery point goes back; `i64::MAX`: all are.
    indexes_behind_from: i64,
    known_bad: KnownBad,
    /// The base of the first segment that a split left without indexes for `recover_log`; `i64::MAX`: none.
    unrecovered_from: i64,
}

impl LogLoader<'_> {
    pub fn load(mut self) -> Result<Arc<UnifiedLog>, LogError> {
        loop {
            if let Some(log) = self.try_load()? {
                close_if_damaged(&log)?;
                return Ok(log);
            }
            // Without a clean shutdown there is no such doubt.
            self.had_clean_shutdown = false;
        }
    }

    /// `None`: the log is not as a clean shutdown left it.
    fn try_load(&self) -> Result<Option<Arc<UnifiedLog>>, LogError> {
        let dir = PartitionDir::new(self.path.clone());
        if !self.had_clean_shutdown {
            // The process that died may not have synced what it made.
            dir.mark_dirty();
            self.log_dir.mark_dirty();
        }
        let mut listing = self.list()?;
        if self.finish_interrupted_cleaning(&dir, &mut listing)? {
            listing = self.list()?;
        }
        let topic_id = self.read_topic_id()?;
        let (epochs, epochs_lost) = self.read_epochs()?;
        let mut loading = Loading {
            loader: self,
            dir,
            segments: Vec::new(),
            epochs,
            epochs_changed: false,
            epochs_behind_from: i64::MAX,
            snapshots: listing.snapshots.clone(),
            indexes_behind_from: i64::MAX,
            known_bad: KnownBad::default(),
            unrecovered_from: i64::MAX,
        };
        loading.load_segments(&listing)?;
        let mut left_end = None;
        if self.had_clean_shutdown {
            left_end = loading.end_as_it_was_left()?;
            if left_end.is_none() {
                return Ok(None);
            }
        }
        let (recovery_point, log_end_offset) = loading.recover_log(left_end)?;
        if epochs_lost {
            loading.rebuild_epochs()?;
        }
        loading.finish(topic_id, recovery_point, log_end_offset).map(Some)
    }

    fn fail(&self, path: &Path, operation: &'static str, error: io::Error) -> LogError {
        self.log_dir.fail(path, operation, error)
    }

    fn read_topic_id(&self) -> Result<Option<Uuid>, LogError> {
        let path = self.path.join(PARTITION_METADATA);
        let text = checkpoint::read_text(&*self.context.disk, &path)
            .map_err(|error| self.fail(&path, "reading", error))?;
        let text = text.as_deref();
        match text.map(checkpoint::parse_partition_metadata) {
            None => Ok(None),
            Some(Ok(topic_id)) => Ok(topic_id),
            // Cut off or ended with zeros by a power loss before the log's first flush (it is made without a sync): the id
            // comes anew.
            Some(Err(error)) if text.is_some_and(is_cut_off) => {
                tracing::warn!("{}: {error}; it was never flushed", path.display());
                Ok(None)
            }
            Some(Err(error)) => {
                let source = io::Error::new(io::ErrorKind::InvalidData, error);
                Err(self.fail(&path, "reading", source))
            }
        }
    }

    /// The cache, and whether its file could not be read and the batches must tell.
    fn read_epochs(&self) -> Result<(LeaderEpochCache, bool), LogError> {
        let path = self.path.join(LEADER_EPOCH_CHECKPOINT);
        let text = checkpoint::read_text(&*self.context.disk, &path)
            .map_err(|error| self.fail(&path, "reading", error))?;
        match text.as_deref().map(checkpoint::parse_epochs) {
            None => Ok((LeaderEpochCache::default(), false)),
            Some(Ok(entries)) => Ok((LeaderEpochCache::from_entries(entries), false)),
            Some(Err(error)) => {
                tracing::warn!(
                    "{}: {error}; reading the leader epochs from the batches",
                    path.display()
                );
                Ok((LeaderEpochCache::default(), true))
            }
        }
    }
}

impl Loading<'_> {
    fn files(&self) -> SegmentFiles<'_> {
        SegmentFiles {
            cache: &self.loader.context.cache,
            dir: &self.dir,
            suffix: "",
        }
    }

    fn fail(&self, segment: &LogSegment, operation: &'static str, error: ScanError) -> LogError {
        self.loader
            .log_dir
            .scan_error(&segment.log_handle().path(), operation, error)
    }

    fn producer_files(&self) -> ProducerFiles<'_> {
        ProducerFiles {
            context: self.loader.context,
            log_dir: self.loader.log_dir,
            dir: &self.dir,
        }
    }

    fn new_producer_state(&self, snapshots: BTreeSet<i64>) -> ProducerState {
        let config = &self.loader.context.producer_state;
        ProducerState::new(
            self.loader.topic_partition.clone(),
            config.max_transaction_timeout_ms,
            config.producer_id_expiration_ms,
            snapshots,
        )
    }

    fn load_segments(&mut self, listing: &Listing) -> Result<(), LogError> {
        let context = self.loader.context;
        // From here on all are recovered in order by `recover_log`; out of order a later segment's leader epoch would hide
        // that it began in an earlier one.
        let recovered_later = (!self.loader.had_clean_shutdown).then(|| {
            let floor = listing.segments.range(..=self.loader.recovery_point).next_back();
            floor.map_or(i64::MIN, |(base_offset, _)| *base_offset)
        });
        let mut with_log = listing
            .segments
            .iter()
            .filter(|(_, kinds)| kinds.contains(&FileKind::Log))
            .map(|(base_offset, _)| *base_offset)
            .skip(1);
        for (base_offset, kinds) in &listing.segments {
            if !kinds.contains(&FileKind::Log) {
                for kind in kinds {
                    let path = self.dir.path().join(file_name(*base_offset, *kind));
                    tracing::warn!("removing {}, which has no log file", path.display());
                    remove_if_exists(&*context.disk, &path)
                        .map_err(|error| self.loader.fail(&path, "deleting", error))?;
                }
                continue;
            }
            let has_txn_index = kinds.contains(&FileKind::TransactionIndex);
            let next_base_offset = with_log.next();
            let left_end =
                Some(self.loader.recovery_point).filter(|end| self.loader.had_clean_shutdown && *end > 0);
            let limit = next_base_offset.or(left_end).unwrap_or(i64::MAX);
            let config = segment_config(&self.loader.config, context);
            let path = self.dir.path().join(file_name(*base_offset, FileKind::Log));
            let opened =
                LogSegment::open(&self.files(), *base_offset, &config, has_txn_index).and_then(|segment| {
                    let is_sane = kinds.contains(&FileKind::OffsetIndex)
                        && kinds.contains(&FileKind::TimeIndex)
                        && segment.txn_index.sanity_check(limit)?
                        && !segment.has_stale_indexes()?;
                    Ok((segment, is_sane))
                });
            let (segment, is_sane) = opened.map_err(|error| self.loader.fail(&path, "opening", error))?;
            let mut pieces = vec![Arc::new(segment)];
            let may_overflow =
                next_base_offset.is_some_and(|next| !fits_in_segment(*base_offset, next.saturating_sub(1)));
            if may_overflow {
                pieces = self.split_if_it_overflows(&pieces[0], next_base_offset)?;
            }
            let is_trusted = recovered_later.is_none_or(|first| *base_offset < first);
            if is_trusted && !is_sane {
                tracing::warn!(
                    "an index of {} is missing or damaged: building it anew",
                    path.display()
                );
            }
            if is_trusted && (!is_sane || pieces.len() > 1) {
                self.push_with_new_indexes(pieces, next_base_offset)?;
            } else {
                if pieces.len() > 1 {
                    self.unrecovered_from = self.unrecovered_from.min(*base_offset);
                    self.indexes_behind_from = self.indexes_behind_from.min(*base_offset);
                }
                self.segments.extend(pieces);
            }
        }
        Ok(())
    }

    /// Segments below the recovery point, and where the next one begins if there is one.
    fn push_with_new_indexes(
        &mut self,
        segments: Segments,
        next_base_offset: Option<i64>,
    ) -> Result<(), LogError> {
        for (index, segment) in segments.iter().enumerate() {
            let next = segments.get(index + 1).map(|next| next.base_offset());
            let durability = match next.or(next_base_offset) {
                Some(next_base_offset) => Durability::DurableAndClosed { next_base_offset },
                None => Durability::Durable,
            };
            match self.recover_segment(segment, durability)? {
                Recovered::Whole { .. } => {
                    self.make_indexes_durable(segment)?;
                    self.segments.push(Arc::clone(segment));
                }
                Recovered::Overflows => {
                    let pieces = self.split_if_it_overflows(segment, next_base_offset)?;
                    self.push_with_new_indexes(pieces, next_base_offset)?;
                }
            }
        }
        Ok(())
    }

    /// Of a segment below the recovery point: no flush comes by there, and a start takes its indexes as they are. Where a
    /// full disk does not take them, the recovery point goes back until a flush has written them.
    fn make_indexes_durable(&mut self, segment: &LogSegment) -> Result<(), LogError> {
        let Err(error) = segment.flush_indexes() else {
            return Ok(());
        };
        let path = segment.log_handle().path();
        let error = self.loader.log_dir.write_failed(&path, "flushing", error);
        if !error.is_no_space() {
            return Err(error);
        }
        self.indexes_behind_from = self.indexes_behind_from.min(segment.base_offset());
        Ok(())
    }

    /// `None`: offsets do not follow each other, and `misplaced` is not known.
    fn try_recover_segment(
        &mut self,
        segment: &Arc<LogSegment>,
        durability: Durability,
        misplaced: Option<&[Misplaced]>,
    ) -> Result<Option<Recovered>, LogError> {
        let mut snapshots = self.snapshots.clone();
        // Those behind a segment whose records are all there stay: after a clean shutdown nothing else tells of producers.
        let behind = match durability {
            Durability::Unflushed { .. } => BTreeSet::new(),
            Durability::Durable | Durability::DurableAndClosed { .. } => {
                snapshots.split_off(&segment.base_offset().saturating_add(1))
            }
        };
        let mut state = self.new_producer_state(snapshots);
        if !self.segments.is_empty() {
            let before: Segments = self
                .segments
                .iter()
                .filter(|s| s.base_offset() <= segment.base_offset())
                .cloned()
                .collect();
            self.producer_files().rebuild(
                &mut state,
                &before,
                self.loader.log_start_offset,
                segment.base_offset(),
                false,
            )?;
        } else {
            state.start_empty(segment.base_offset());
        }
        let size = segment.size();
        let (valid, next_offset) = match self.recover_batches(segment, durability, &mut state, misplaced)? {
            Walk::Ended { valid, next_offset } => (valid, next_offset),
            Walk::Overflows => return Ok(Some(Recovered::Overflows)),
            Walk::InDoubt => return Ok(None),
        };
        let io = |error: io::Error| self.fail(segment, "recovering", error.into());
        if valid < size {
            // Durably: what is cut must not come back behind what is written next.
            segment
                .set_size(valid)
                .and_then(|()| segment.flush_log())
                .map_err(io)?;
        }
        segment.on_recovered().map_err(io)?;
        if !behind.contains(&next_offset) {
            self.producer_files().take_snapshot_if_there_is_room(&mut state)?;
        }
        self.snapshots = state.snapshots().clone();
        self.snapshots.extend(behind);
        Ok(Some(Recovered::Whole {
            bytes_cut: size - valid,
            next_offset,
        }))
    }

    fn recover_batches(
        &mut self,
        segment: &Arc<LogSegment>,
        durability: Durability,
        state: &mut ProducerState,
        misplaced: Option<&[Misplaced]>,
    ) -> Result<Walk, LogError> {
        let fail = |error: ScanError| {
            self.loader
                .log_dir
                .scan_error(&segment.log_handle().path(), "recovering", error)
        };
        match durability {
            Durability::Unflushed { .. } => segment.start_recovery(),
            Durability::Durable | Durability::DurableAndClosed { .. } => segment.start_rebuild(),
        }
        .map_err(|error| fail(error.into()))?;
        if segment.size() == 0 {
            return Ok(Walk::Ended {
                valid: 0,
                next_offset: segment.base_offset(),
            });
        }
        let file = segment.file().map_err(|error| fail(error.into()))?;
        let size = segment.size();
        let mut scanner = BatchScanner::new(Arc::clone(&file), 0, size);
        let mut next_offset = segment.base_offset();
        let mut valid = 0;
        while valid < size {
            if let Some(found) = misplaced
                .into_iter()
                .flatten()
                .find(|found| found.bytes.start == valid)
            {
                (valid, next_offset) = (found.bytes.end, found.offsets.end);
                scanner = BatchScanner::new(Arc::clone(&file), valid, size);
                self.note_damage(segment, BadRange::of(segment, found.clone()));
                continue;
            }
            let whole = match scanner.next_batch() {
                Ok(Some((batch, bytes))) => {
                    let header = &batch.header;
                    let has_right_checksum = crc_is_valid(&bytes);
                    let is_whole = has_right_checksum && header.base_offset >= next_offset;
                    let fits = segment.fits(header.last_offset());
                    if is_whole && !fits && self.overflows(segment, durability.next_base_offset())? {
                        return Ok(Walk::Overflows);
                    }
                    let next = durability.next_base_offset();
                    let follows = is_whole && fits && next.is_none_or(|next| header.last_offset() < next);
                    if has_right_checksum && !follows && misplaced.is_none() {
                        return Ok(Walk::InDoubt);
                    }
                    let marker = if header.has_producer_id() {
                        marker_of(header, &bytes)
                    } else {
                        Ok(None)
                    };
                    if is_whole && fits && marker.is_ok() {
                        Some((batch, marker.ok().flatten()))
                    } else {
                        log_invalid(segment, valid, &"its checksum or its offsets are not right");
                        None
                    }
                }
                Ok(None) => None,
                Err(ScanError::Record(error)) => {
                    log_invalid(segment, valid, &error);
                    None
                }
                Err(error) => return Err(fail(error)),
            };
            let Some((batch, marker)) = whole else {
                let Durability::DurableAndClosed { next_base_offset } = durability else {
                    break;
                };
                let range = bad_range(segment, valid, next_offset..next_base_offset)
                    .map_err(|error| fail(error.into()))?;
                (valid, next_offset) = (range.end_position, range.end_offset);
                scanner = BatchScanner::new(Arc::clone(&file), valid, size);
                self.note_damage(segment, range);
                continue;
            };
            let header = &batch.header;
            segment
                .recover_batch(&batch)
                .map_err(|error| fail(error.into()))?;
            if header.magic >= 2 {
                // The batches are right where the file is not: it may be older than they are, or of a time before a
                // truncation. (Kafka adds epochs above the latest only.)
                let epoch = header.partition_leader_epoch;
                if epoch >= 0 && self.epochs.epoch_for_offset(header.base_offset) != Some(epoch) {
                    self.epochs_changed |= self.epochs.assign(epoch, header.base_offset);
                }
            }
            if header.has_producer_id() {
                let mut update = state.prepare_update(header.producer_id, AppendOrigin::Replication);
                let first_offset = LogOffsetMetadata {
                    message_offset: header.base_offset,
                    segment_base_offset: segment.base_offset(),
                    relative_position_in_segment: batch.position as i64,
                };
                let completed = update.append(header, marker.as_ref(), first_offset)?;
                state.update(&update);
                if let Some(completed) = completed {
                    complete_transaction(state, &completed, segment).map_err(|error| fail(error.into()))?;
                }
            }
            next_offset = header.next_offset();
            state.update_map_end_offset(next_offset);
            valid = batch.end();
        }
        Ok(Walk::Ended { valid, next_offset })
    }

    /// A clean shutdown leaves whole batches up to the recovery point. What was changed since is recovered like after a crash:
    /// appends behind a torn tail would be acknowledged, never read, and gone with the next recovery. (Kafka appends there.)
    /// Gives the log end offset; `None` if the log was changed.
    fn end_as_it_was_left(&mut self) -> Result<Option<i64>, LogError> {
        let Some(last) = self.segments.last().cloned() else {
            return Ok(Some(self.loader.log_start_offset));
        };
        let recovery_point = self.loader.recovery_point;
        let found = match last.read_end() {
            // A directory may come without checkpoints.
            Ok((end, true)) if end == recovery_point || recovery_point == 0 => {
                self.split_last_if_it_overflows(end)?;
                return Ok(Some(end));
            }
            Ok((end, true)) => format!("it ends at {end}"),
            Ok((end, false)) => format!("it ends at {end}, in the middle of its last file"),
            Err(ScanError::Record(error)) => error.to_string(),
            Err(error) => return Err(self.fail(&last, "reading", error)),
        };
        tracing::warn!(
            "{}: the log is not as the clean shutdown left it, with its end at {recovery_point}: {found}; it is recovered \
             like after a crash",
            self.loader.topic_partition
        );
        Ok(None)
    }

    /// Recovers what may be torn. `left_end`: where a clean shutdown left the end. Gives the recovery point and the log end offset.
    fn recover_log(&mut self, left_end: Option<i64>) -> Result<(i64, i64), LogError> {
        let checkpoint = self.loader.recovery_point;
        if !self.loader.had_clean_shutdown {
            let first = floor_segment(&self.segments, checkpoint.min(self.unrecovered_from)).unwrap_or(0);
            let unflushed: Segments = self.segments.get(first..).unwrap_or_default().to_vec();
            self.remove_snapshots_above(
                unflushed
                    .first()
                    .map_or(checkpoint, |segment| segment.base_offset()),
            )?;
            self.segments.truncate(first);
            let mut waiting: VecDeque<Arc<LogSegment>> = unflushed.into();
            while let Some(segment) = waiting.pop_front() {
                if segment.size() > 0 {
                    tracing::info!(
                        "{}: recovering the unflushed segment {}",
                        self.loader.topic_partition,
                        segment.base_offset()
                    );
                }
                self.segments.push(Arc::clone(&segment));
                let next_base_offset = waiting.front().map(|next| next.base_offset());
                let durability = Durability::Unflushed { next_base_offset };
                let (bytes_cut, end_offset) = match self.recover_segment(&segment, durability)? {
                    Recovered::Whole {
                        bytes_cut,
                        next_offset,
                    } => (bytes_cut, next_offset),
                    Recovered::Overflows => {
                        self.segments.pop();
                        // Those of the pieces below the recovery point would never be synced.
                        self.indexes_behind_from = self.indexes_behind_from.min(segment.base_offset());
                        let pieces = self.split_if_it_overflows(&segment, next_base_offset)?;
                        pieces
                            .into_iter()
                            .rev()
                            .for_each(|piece| waiting.push_front(piece));
                        continue;
                    }
                };
                // A later segment begins where this one ended when it was made. One that begins before is of another
                // time: power loss undid its removal.
                let is_overlapped = waiting
                    .front()
                    .is_some_and(|next| next.base_offset() < end_offset);
                if bytes_cut > 0 || is_overlapped {
                    tracing::warn!(
                        "{}: segment {} was torn or damaged; the log ends at {}",
                        self.loader.topic_partition,
                        segment.base_offset(),
                        end_offset
                    );
                    self.remove_segments(waiting.make_contiguous())?;
                    break;
                }
            }
        }
        let log_start_offset = self.loader.log_start_offset;
        let mut log_end_offset = None;
        if let Some(last) = self.segments.last() {
            let end = match left_end {
                Some(end) => end,
                None => last
                    .read_next_offset()
                    .map_err(|error| self.fail(last, "reading", error))?,
            };
            last.mend_indexes()
                .map_err(|error| self.fail(last, "building an index of", error.into()))?;
            if end >= log_start_offset {
                log_end_offset = Some(end);
            } else {
                tracing::warn!(
                    "{}: the log ends at {end}, below its start {log_start_offset}: removing all segments",
                    self.loader.topic_partition
                );
                let all = std::mem::take(&mut self.segments);
                self.remove_segments(&all)?;
                self.epochs.clear();
                self.epochs_changed = true;
            }
        }
        if self.segments.is_empty() {
            let config = segment_config(&self.loader.config, self.loader.context);
            let segment = LogSegment::create(&self.files(), log_start_offset, &config).map_err(|error| {
                let path = self.dir.path();
                self.loader
                    .log_dir
                    .write_failed(&path, "creating a segment in", error)
            })?;
            self.segments.push(Arc::new(segment));
        }
        match log_end_offset {
            Some(end) if self.loader.had_clean_shutdown => Ok((end, end)),
            end => {
                let end = end.unwrap_or(log_start_offset);
                Ok((checkpoint.min(end), end))
            }
        }
    }

    /// Recovery takes these anew. Those that are there may be of a time before a truncation, brought back by power loss.
    fn remove_snapshots_above(&mut self, offset: i64) -> Result<(), LogError> {
        for stale in self.snapshots.split_off(&offset.saturating_add(1)) {
            let path = self.dir.path().join(file_name(stale, FileKind::ProducerSnapshot));
            self.dir.mark_dirty();
            remove_if_exists(&*self.loader.context.disk, &path)
                .map_err(|error| self.loader.fail(&path, "deleting", error))?;
        }
        Ok(())
    }

    fn remove_segments(&mut self, segments: &[Arc<LogSegment>]) -> Result<(), LogError> {
        if segments.is_empty() {
            return Ok(());
        }
        let mut snapshots = Vec::new();
        for segment in segments {
            segment
                .change_suffix(DELETED_SUFFIX)
                .map_err(|error| self.fail(segment, "renaming", error.into()))?;
            if self.snapshots.remove(&segment.base_offset()) {
                snapshots.push(
                    self.dir
                        .path()
                        .join(file_name(segment.base_offset(), FileKind::ProducerSnapshot)),
                );
            }
        }
        let context = self.loader.context;
        let due_ms = context
            .clock
            .now_ms()
            .saturating_add(self.loader.config.file_delete_delay_ms);
        for path in &snapshots {
            remove_if_exists(&*context.disk, path)
                .map_err(|error| self.loader.fail(path, "deleting", error))?;
        }
        // Durably: a power loss must not bring them back behind what is written next.
        self.dir.mark_dirty();
        self.dir
            .sync_if_dirty(&*context.disk)
            .map_err(|error| self.loader.fail(&self.dir.path(), "flushing", error))?;
        self.loader.log_dir.deferred.delete_at(
            due_ms,
            Deletion::Segments {
                segments: segments.to_vec(),
                snapshots: Vec::new(),
            },
        );
        Ok(())
    }

    /// The epochs file is damaged: the batches' headers say the same.
    fn rebuild_epochs(&mut self) -> Result<(), LogError> {
        for segment in self.segments.clone() {
            let mut scanner = segment
                .headers_from(0)
                .map_err(|error| self.fail(&segment, "reading", error))?;
            while let Some(batch) = scanner
                .next_batch()
                .map_err(|error| self.fail(&segment, "reading", error))?
            {
                let epoch = batch.header.partition_leader_epoch;
                if epoch >= 0 && self.epochs.latest_epoch().is_none_or(|latest| epoch > latest) {
                    self.epochs.assign(epoch, batch.header.base_offset);
                }
            }
        }
        self.epochs_changed = true;
        Ok(())
    }

    /// A leader that had nothing to write left its epoch at the log end.
    fn drop_epochs_without_batches(&mut self, log_end_offset: i64) {
        let last = self.epochs.entries().last().copied();
        if self.epochs.truncate_from_end(log_end_offset) {
            // Beyond the end the file speaks of records that are lost.
            if last.is_some_and(|last| last.start_offset == log_end_offset) {
                self.epochs_behind_from = log_end_offset;
            } else {
                self.epochs_changed = true;
            }
        }
    }

    fn finish(
        mut self,
        topic_id: Option<Uuid>,
        recovery_point: i64,
        log_end_offset: i64,
    ) -> Result<Arc<UnifiedLog>, LogError> {
        let loader = self.loader;
        let log_start_offset = loader.log_start_offset.max(self.segments[0].base_offset());
        self.drop_epochs_without_batches(log_end_offset);
        self.epochs_changed |= self.epochs.truncate_from_start(loader.log_start_offset);
        let disk = &*loader.context.disk;
        let mut debts = Debts {
            recovery_point: self.indexes_behind_from < recovery_point,
            ..Debts::default()
        };
        let recovery_point = recovery_point.min(self.indexes_behind_from);
        if self.epochs_changed {
            let path = self.dir.path().join(LEADER_EPOCH_CHECKPOINT);
            let text = checkpoint::format_epochs(self.epochs.entries());
            match disk.write_atomically(&path, text.as_bytes()) {
                Ok(()) => self.epochs_behind_from = i64::MAX,
                Err(error) => {
                    let error = loader.log_dir.write_failed(&path, "writing", error);
                    // A full disk does not keep a node from serving what it has.
                    debts.epochs = error.is_no_space();
                    if !debts.epochs {
                        return Err(error);
                    }
                }
            }
        }
        let bases: Vec<i64> = self
            .segments
            .iter()
            .map(|segment| segment.base_offset())
            .collect();
        for stray in ProducerState::stray_snapshots(&self.snapshots, &bases) {
            self.snapshots.remove(&stray);
            let path = self.dir.path().join(file_name(stray, FileKind::ProducerSnapshot));
            remove_if_exists(disk, &path).map_err(|error| loader.fail(&path, "deleting", error))?;
        }
        let mut producer_state = self.new_producer_state(self.snapshots.clone());
        self.producer_files().rebuild(
            &mut producer_state,
            &self.segments,
            log_start_offset,
            log_end_offset,
            loader.had_clean_shutdown,
        )?;
        let active = &self.segments[self.segments.len() - 1];
        let log_end = LogOffsetMetadata {
            message_offset: log_end_offset,
            segment_base_offset: active.base_offset(),
            relative_position_in_segment: active.size() as i64,
        };
        let mut unsynced_metadata = !loader.had_clean_shutdown;
        if let (None, Some(new_id)) = (topic_id, loader.new_topic_id) {
            let path = self.dir.path().join(PARTITION_METADATA);
            let text = checkpoint::format_partition_metadata(new_id);
            disk.replace(&path, text.as_bytes())
                .map_err(|error| loader.log_dir.write_failed(&path, "writing", error))?;
            self.dir.mark_dirty();
            unsynced_metadata = true;
        }
        UnifiedLog::from_loaded(LoadedLog {
            topic_partition: loader.topic_partition.clone(),
            context: Arc::clone(loader.context),
            log_dir: Arc::clone(loader.log_dir),
            dir: self.dir,
            config: loader.config.clone(),
            topic_id: topic_id.or(loader.new_topic_id),
            segments: self.segments,
            epochs: self.epochs,
            producer_state,
            log_start_offset,
            log_end,
            recovery_point,
            high_watermark: loader.high_watermark,
            unsynced_metadata,
            unsynced_epochs: !loader.had_clean_shutdown && !self.epochs_changed,
            epochs_behind_from: self.epochs_behind_from,
            debts,
            known_bad: self.known_bad,
        })
    }
}

impl Durability {
    fn next_base_offset(self) -> Option<i64> {
        match self {
            Durability::DurableAndClosed { next_base_offset } => Some(next_base_offset),
            Durability::Unflushed { next_base_offset } => next_base_offset,
            Durability::Durable => None,
        }
    }
}

fn log_invalid(segment: &LogSegment, position: u64, error: &dyn fmt::Display) {
    tracing::warn!(
        "invalid batch in {} at byte {position}: {error}",
        segment.log_handle().path().display()
    );
}

/// Where a clean start does not read it, and the scrub does.
fn close_if_damaged(log: &UnifiedLog) -> Result<(), LogError> {
    if !log.known_bad.is_in(&log.active_segment()) {
        return Ok(());
    }
    match log.roll() {
        // Fetches of it are refused for as long as the node runs.
        Err(error) if error.is_no_space() => Ok(()),
        result => result,
    }
}

fn is_cut_off(partition_metadata: &str) -> bool {
    partition_metadata.trim_end_matches('\0').len() < checkpoint::PARTITION_METADATA_LENGTH
}

#[path = "recovery_damage.rs"]
mod recovery_damage;
#[path = "recovery_listing.rs"]
mod recovery_listing;
#[path = "recovery_split.rs"]
mod recovery_split;

#[cfg(test)]
#[path = "recovery_test.rs"]
mod recovery_test;

#[cfg(test)]
#[path = "recovery_damage_test.rs"]
mod recovery_damage_test;
