//! Replacing segments by the one that a cleaning made of them, so that a crash at any step leaves either all of the old
//! ones or the new one.
//!
//! ```text
//!  files                                           a start after a crash
//!  1  old, new.cleaned (written, synced)           removes .cleaned
//!  2  old, new.cleaned -> new.swap                 removes .cleaned and the .swap beside it; all .swap: goes on
//!  3  old -> old.deleted, new.swap                 removes what is left of the old ones, goes on
//!  4  new.swap -> new                              renames what is left
//! ```
//!
//! The folder is synced between the steps: after power loss too their order is the one above. Appends wait for none of it;
//! truncation, retention and closing do (`removal`). Readers see the old list or the new one; old files stay readable for
//! `file.delete.delay.ms`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::log_cleaner_filter::LastRecord;
use super::log_dir::Deletion;
use super::log_segment::LogSegment;
use super::open_file_cache::{CLEANED_SUFFIX, DELETED_SUFFIX, FileKind, SWAP_SUFFIX, file_name};
use super::transaction_index::AbortedTxn;
use super::unified_log::Segments;
use super::{LogError, UnifiedLog};

impl UnifiedLog {
    /// An empty segment whose files end in `.cleaned`, over what an earlier cleaning left.
    pub(crate) fn create_cleaned_segment(&self, base_offset: i64) -> io::Result<Arc<LogSegment>> {
        let mut files = self.segment_files();
        files.suffix = CLEANED_SUFFIX;
        let segment = LogSegment::create(&files, base_offset, &self.segment_config())?;
        segment.txn_index.handle().remove()?;
        Ok(Arc::new(segment))
    }

    /// Counts truncations: a cleaning that saw another number must not replace anything.
    pub(crate) fn truncations(&self) -> u64 {
        self.lock_any().truncations
    }

    /// The lowest offset that the log was truncated to since the last call; `i64::MAX` when it was not.
    pub(crate) fn take_lowest_truncation(&self) -> i64 {
        self.lowest_truncation.swap(i64::MAX, Ordering::AcqRel)
    }

    /// The last records of the producers whose last batch lies below `end_offset`.
    pub(crate) fn last_records_of_producers(&self, end_offset: i64) -> Vec<(i64, LastRecord)> {
        let writer = self.lock_any();
        let entries = writer.producer_state.entries();
        entries
            .filter(|entry| entry.last_data_offset() < end_offset)
            .map(|entry| {
                let last_data_offset = Some(entry.last_data_offset()).filter(|offset| *offset >= 0);
                let last = LastRecord {
                    last_data_offset,
                    producer_epoch: entry.producer_epoch,
                };
                (entry.producer_id, last)
            })
            .collect()
    }

    /// The aborted transactions that touch [start, upper bound), by the indexes of `segments`, the first of which holds
    /// the start.
    pub(crate) fn collect_aborted(
        &self,
        segments: &[Arc<LogSegment>],
        start_offset: i64,
        upper_bound: i64,
    ) -> io::Result<Vec<AbortedTxn>> {
        let mut aborted = Vec::new();
        for segment in segments {
            let (found, complete) = segment
                .txn_index
                .collect_aborted_txns(start_offset, upper_bound)?;
            aborted.extend(found);
            if complete {
                break;
            }
        }
        Ok(aborted)
    }

    /// Puts `cleaned`, whose files are synced, in the place of `old`; false (and nothing is done) when the log was
    /// truncated, closed or lost one of them since.
    pub(crate) fn replace_segments(
        &self,
        cleaned: &Arc<LogSegment>,
        old: &[Arc<LogSegment>],
        truncations: u64,
    ) -> Result<bool, LogError> {
        let _removal = self.lock_removal();
        {
            let writer = self.lock_any();
            let is_as_before = self.position_of(&self.segments.load(), old).is_some();
            if writer.closed || writer.truncations != truncations || !is_as_before {
                return Ok(false);
            }
        }
        self.log_dir.check_online()?;
        self.sync_folder()?;
        self.rename(cleaned, SWAP_SUFFIX)?;
        self.sync_folder()?;
        let snapshots = self.publish_replacement(cleaned, old);
        for segment in old {
            self.rename(segment, DELETED_SUFFIX)?;
        }
        let snapshots = self.rename_snapshots(&snapshots)?;
        self.sync_folder()?;
        self.rename(cleaned, "")?;
        self.sync_folder()?;
        let due_ms = self
            .context
            .clock
            .now_ms()
            .saturating_add(self.config().file_delete_delay_ms);
        self.log_dir.deferred.delete_at(
            due_ms,
            Deletion::Segments {
                segments: old.to_vec(),
                snapshots,
            },
        );
        Ok(true)
    }

    /// Where these very segments are in the list, one after the other and before the active one.
    fn position_of(&self, segments: &Segments, wanted: &[Arc<LogSegment>]) -> Option<usize> {
        let wanted_first = wanted.first()?;
        let first = segments
            .iter()
            .position(|segment| Arc::ptr_eq(segment, wanted_first))?;
        let found = segments.get(first..first + wanted.len())?;
        let same = found.iter().zip(wanted).all(|(a, b)| Arc::ptr_eq(a, b));
        (same && first + wanted.len() < segments.len()).then_some(first)
    }

    /// The new list. Gives the offsets of the producer snapshots that go with the segments that leave no one behind.
    fn publish_replacement(&self, cleaned: &Arc<LogSegment>, old: &[Arc<LogSegment>]) -> Vec<i64> {
        let mut writer = self.lock_any();
        let mut segments = Segments::clone(&self.segments.load());
        if let Some(first) = self.position_of(&segments, old) {
            segments.splice(first..first + old.len(), [Arc::clone(cleaned)]);
            self.segments.store(Arc::new(segments));
        }
        old.iter()
            .map(|segment| segment.base_offset())
            .filter(|offset| *offset != cleaned.base_offset())
            .filter(|offset| writer.producer_state.remove_snapshot(*offset))
            .collect()
    }

    fn rename_snapshots(&self, offsets: &[i64]) -> Result<Vec<PathBuf>, LogError> {
        let mut renamed = Vec::new();
        for offset in offsets {
            let name = file_name(*offset, FileKind::ProducerSnapshot);
            let path = self.dir.path().join(&name);
            let deleted = self.dir.path().join(name + DELETED_SUFFIX);
            match self.context.disk.rename(&path, &deleted) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.log_dir.fail(&path, "renaming", error));
                }
                _ => renamed.push(deleted),
            }
        }
        Ok(renamed)
    }

    fn rename(&self, segment: &LogSegment, suffix: &'static str) -> Result<(), LogError> {
        segment
            .change_suffix(suffix)
            .map_err(|error| self.log_dir.fail(&segment.log_handle().path(), "renaming", error))
    }

    fn sync_folder(&self) -> Result<(), LogError> {
        self.dir.mark_dirty();
        self.dir
            .sync_if_dirty(&*self.context.disk)
            .map_err(|error| self.log_dir.fail(&self.dir.path(), "flushing", error))
    }
}
