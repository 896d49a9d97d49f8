//! A log's way from one log directory to another: the `-future` folder that a copy grows in, and the swap.
//!
//! ```text
//!  files                                        a start after a crash
//!  1  from/t-0, to/t-0.<id>-future              goes on copying; a compacted log's copy begins anew
//!  2  from/t-0, to/t-0                          the same log twice: the one that lacks nothing stays, the other is set aside (-stray)
//!  3  from/t-0.<id>-delete, to/t-0              done; removes what is left
//! ```
//!
//! Who copies, and when the swap may be, is the replica layer's. All of the copy is on the device before step 2, so that a power loss finds
//! it whole. (Kafka leaves it in the page cache, and refuses to start at step 2.)
//! Invariants: a partition has one future log at most, in another directory than its current one; its cleaning is paused meanwhile.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::log_dir::Deletion;
use super::log_folder::Folder;
use super::log_manager::{Logs, ManagedDir};
use super::{LogError, LogManager, TopicPartition, UnifiedLog};

/// Says for a log whether the metadata has it where it is.
pub struct IsAssigned(Box<dyn Fn(&UnifiedLog) -> bool + Send + Sync>);

impl fmt::Debug for IsAssigned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IsAssigned")
    }
}

impl LogManager {
    /// Before the logs are loaded: a crash in the middle of a move leaves two of one partition.
    pub fn set_assigned(&self, is_assigned: impl Fn(&UnifiedLog) -> bool + Send + Sync + 'static) {
        *super::log_manager::lock(&self.is_assigned) = Some(IsAssigned(Box::new(is_assigned)));
    }

    /// The entry of `log.dirs` that is meant by an absolute path.
    pub fn find_log_dir(&self, absolute: &Path) -> Option<&PathBuf> {
        let is_it = |dir: &&PathBuf| {
            std::path::absolute(dir).is_ok_and(|dir| dir.as_os_str() == absolute.as_os_str())
        };
        self.log_dirs().iter().find(is_it)
    }

    /// A topic's name may be too long for the folder of a move (KAFKA-4893).
    pub fn can_be_moved(topic_partition: &TopicPartition) -> bool {
        Folder::future_name_fits(topic_partition)
    }

    pub fn has_offline_log_dirs(&self) -> bool {
        self.live_log_dirs().len() < self.log_dirs().len()
    }

    /// The log that is on its way from another directory.
    pub fn future(&self, topic_partition: &TopicPartition) -> Option<Arc<UnifiedLog>> {
        self.future_logs.load().get(topic_partition).cloned()
    }

    pub fn all_futures(&self) -> Vec<Arc<UnifiedLog>> {
        self.future_logs.load().values().cloned().collect()
    }

    /// Where a log is to be made when the partition comes (AlterReplicaLogDirs of one that is not here yet). Not kept over a restart, as in
    /// Kafka.
    pub fn set_preferred_log_dir(&self, topic_partition: &TopicPartition, log_dir: &Path) {
        let mut preferred = super::log_manager::lock(&self.preferred_dirs);
        if preferred.len() < PREFERRED_MAX || preferred.contains_key(topic_partition) {
            preferred.insert(topic_partition.clone(), log_dir.to_path_buf());
        }
    }

    pub(super) fn managed_dir(&self, log_dir: &Path) -> Result<Arc<ManagedDir>, LogError> {
        let found = self.dirs.iter().find(|dir| dir.path() == log_dir);
        let dir = found.ok_or_else(|| LogError::DirectoryOffline {
            dir: log_dir.to_path_buf(),
        })?;
        dir.dir.check_online()?;
        Ok(Arc::clone(dir))
    }

    /// Begins a copy of a log in another directory: empty, from the log's start on. Its cleaning is paused: a copy of which a part was taken before
    /// a cleaning and a part after it could have a value without the tombstone that followed.
    pub fn create_future(&self, current: &UnifiedLog, log_dir: &Path) -> Result<Arc<UnifiedLog>, LogError> {
        let topic_partition = current.topic_partition();
        loop {
            // May wait for a cleaning to end, so before the lock.
            self.cleaner.manager.pause(topic_partition);
            let _changes = self.lock_changes();
            // Another copy may have ended in between, and with it the pause.
            if self.cleaner.manager.is_paused(topic_partition) {
                let made = self.make_future(current, log_dir);
                self.resume_cleaning_without_copy(topic_partition);
                return made;
            }
        }
    }

    /// Under `changes`: else a copy that is made meanwhile would be of a log that is cleaned.
    fn resume_cleaning_without_copy(&self, topic_partition: &TopicPartition) {
        if self.future(topic_partition).is_none() {
            self.cleaner.manager.resume(topic_partition);
        }
    }

    /// Under `changes`.
    fn make_future(&self, current: &UnifiedLog, log_dir: &Path) -> Result<Arc<UnifiedLog>, LogError> {
        let topic_partition = current.topic_partition();
        // Deleted while the lock was waited for: the copy would be taken for one of the next log of that name.
        if !self
            .get(topic_partition)
            .is_some_and(|log| std::ptr::eq(&*log, current))
        {
            return Err(current.closed());
        }
        if let Some(future) = self.future(topic_partition) {
            return Ok(future);
        }
        if self.has_offline_log_dirs() {
            // There may be one in it.
            return Err(LogError::DirectoryOffline {
                dir: log_dir.to_path_buf(),
            });
        }
        let dir = self.managed_dir(log_dir)?;
        self.prepare_for_new_log(&dir)?;
        let name = Folder::future_name(topic_partition, Uuid::from_u128(self.random_id()));
        let config = (*current.config()).clone();
        let future = self.open_log(
            &dir,
            &name,
            topic_partition.clone(),
            current.topic_id(),
            config,
            true,
        )?;
        future.truncate_fully_and_start_at(current.log_start_offset(), None)?;
        self.future_logs.rcu(|futures| with(futures, &future));
        Ok(future)
    }

    /// For a copy that a start found. While its directory was offline nothing kept the log from being cleaned, beyond the copy's end: what
    /// the copy has may be values whose tombstones are gone, or records of aborted transactions without their markers.
    pub fn begin_copy_anew_if_cleaned(
        &self,
        current: &UnifiedLog,
        future: &UnifiedLog,
    ) -> Result<(), LogError> {
        let is_empty = future.log_end_offset() == future.log_start_offset();
        // It may be compacted no longer.
        let was_compacted = || Ok::<_, LogError>(self.cleaner.manager.cleaned_to(current)?.is_some());
        if is_empty || !(current.config().is_compacted() || was_compacted()?) {
            return Ok(());
        }
        future.truncate_fully_and_start_at(current.log_start_offset(), None)
    }

    /// Gives up a copy.
    pub fn delete_future(&self, topic_partition: &TopicPartition) -> Result<(), LogError> {
        let removed = {
            let _changes = self.lock_changes();
            let removed = self.take_future(topic_partition);
            self.resume_cleaning_without_copy(topic_partition);
            removed
        };
        match removed {
            Some(future) if future.log_dir.is_online() => self.set_aside_for_deletion(&future),
            _ => Ok(()),
        }
    }

    pub(super) fn take_future(&self, topic_partition: &TopicPartition) -> Option<Arc<UnifiedLog>> {
        let mut removed = None;
        self.future_logs.rcu(|futures| {
            let mut futures = Logs::clone(futures);
            removed = futures.remove(topic_partition);
            futures
        });
        removed
    }

    /// Renames the folder to `-delete`; its files go after `file.delete.delay.ms`. At once where a full disk does not take
    /// the name: who still reads is told that the log is closed.
    pub(super) fn set_aside_for_deletion(&self, log: &UnifiedLog) -> Result<(), LogError> {
        let delay_ms = log.config().file_delete_delay_ms;
        let name = Folder::deleted_name(&log.topic_partition, Uuid::from_u128(self.random_id()));
        log.mark_closed();
        let Some(path) = self.move_folder_if_there_is_room(log, &name)? else {
            let path = log.dir();
            tracing::info!("{}: no room for another name, removing it", log.topic_partition);
            return self
                .disk()
                .remove_dir_all(&path)
                .map_err(|error| log.log_dir.fail(&path, "deleting", error));
        };
        let due_ms = self.context.clock.now_ms().saturating_add(delay_ms);
        log.log_dir.deferred.delete_at(due_ms, Deletion::Folder { path });
        Ok(())
    }

    /// Puts the copy in the place of the log, if there is one. The caller sees to it that it lacks nothing and that nobody appends meanwhile.
    pub fn replace_current_with_future(
        &self,
        topic_partition: &TopicPartition,
    ) -> Result<Arc<UnifiedLog>, LogError> {
        let _changes = self.lock_changes();
        let Some(future) = self.future(topic_partition) else {
            return Err(LogError::Closed {
                topic_partition: topic_partition.clone(),
            });
        };
        let current = self.get(topic_partition);
        if let Some(current) = &current {
            // A net: whatever made it so, another topic's records must not take their place.
            if current.topic_id() != future.topic_id() {
                return Err(LogError::InconsistentTopicId {
                    topic_partition: topic_partition.clone(),
                    topic_id: future.topic_id().unwrap_or_default(),
                    current: current.topic_id().unwrap_or_default(),
                });
            }
            future.update_high_watermark(current.high_watermark());
        }
        future.flush()?;
        {
            // It goes on being written to, and a flush that a roll asked for looks for its files by their names.
            let _flushing = future.lock_flushing();
            self.move_folder(&future, &topic_partition.to_string())?;
        }
        // Before the log leaves the map: what a directory's checkpoint has of others is taken out of it.
        let cleaned_to = match &current {
            Some(current) => self.cleaner.manager.cleaned_to(current),
            None => Ok(None),
        };
        self.logs.rcu(|logs| with(logs, &future));
        self.take_future(topic_partition);
        self.cleaner.manager.resume(topic_partition);
        // The new log counts: what fails from here on concerns the old directory, or costs the next start some work.
        if let Err(error) = self.finish_replacement(current.as_deref(), &future, cleaned_to) {
            tracing::warn!("{topic_partition}: moved to another log directory, but: {error}");
        }
        Ok(future)
    }

    fn finish_replacement(
        &self,
        current: Option<&UnifiedLog>,
        future: &UnifiedLog,
        cleaned_to: Result<Option<i64>, LogError>,
    ) -> Result<(), LogError> {
        let Some(current) = current else {
            return self.checkpoint_dir_of(future);
        };
        let left = self.managed_dir(&current.parent_dir());
        if let Ok(left) = &left {
            left.remember_deletion();
        }
        // The copy's own truncations cut nothing that was cleaned, those of the log did.
        let lost_from = current.take_lowest_truncation();
        future.take_lowest_truncation();
        let moved = match cleaned_to {
            Ok(Some(offset)) => self.cleaner.manager.checkpoint(future, offset.min(lost_from)),
            other => other.map(|_| ()),
        };
        let checkpointed = self.checkpoint_dir_of(future);
        let forgotten = left.and_then(|left| self.forget_deleted(&left));
        let deleted = self.set_aside_for_deletion(current);
        moved.and(checkpointed).and(forgotten).and(deleted)
    }

    fn checkpoint_dir_of(&self, log: &UnifiedLog) -> Result<(), LogError> {
        let dir = self.managed_dir(&log.parent_dir())?;
        self.write_checkpoints(&dir)
    }

    /// Two folders of one partition: the process ended in the middle of a swap, if the one has all that the other has. Gives the one that
    /// lacks nothing, and the other.
    pub(super) fn resolve_duplicate(
        &self,
        one: Arc<UnifiedLog>,
        other: Arc<UnifiedLog>,
    ) -> Option<(Arc<UnifiedLog>, Arc<UnifiedLog>)> {
        // Both lack nothing, as a rule: then the move was as good as done.
        let rank = |log: &Arc<UnifiedLog>| (log.log_end_offset(), self.is_meant(log));
        let (longer, shorter) = if rank(&one) >= rank(&other) {
            (one, other)
        } else {
            (other, one)
        };
        let last = shorter.log_end_offset() - 1;
        // An old log whose folder could not be set aside: retention of the moved one may have passed it by.
        let is_deleted = shorter.log_end_offset() <= longer.log_start_offset();
        let is_prefix = shorter.log_start_offset() > last
            || is_deleted
            || longer.epoch_for_offset(last) == shorter.epoch_for_offset(last);
        if !one_topic(&longer, &shorter) || !is_prefix {
            return None;
        }
        take_over_start(&longer, &shorter);
        Some((longer, shorter))
    }

    /// Whether the metadata has it where it is.
    fn is_meant(&self, log: &UnifiedLog) -> bool {
        let is_assigned = super::log_manager::lock(&self.is_assigned);
        is_assigned
            .as_ref()
            .is_some_and(|is_assigned| (is_assigned.0)(log))
    }

    /// The copy of a partition that goes on. Where one could not be set aside when another was begun there are several: none of them has
    /// what the log has not, so that is no reason to end a start.
    pub(super) fn choose_future(
        &self,
        found: &[Arc<UnifiedLog>],
        current: Option<&Arc<UnifiedLog>>,
    ) -> Option<Arc<UnifiedLog>> {
        let rank = |future: &&Arc<UnifiedLog>| {
            let is_of_log = current.is_some_and(|current| one_topic(current, future));
            // Without the log the copy may be what the controller has accepted in its place.
            let is_meant = current.is_none() && self.is_meant(future);
            (is_of_log, is_meant, future.log_end_offset())
        };
        let kept = found.iter().max_by_key(rank)?;
        for extra in found.iter().filter(|extra| !Arc::ptr_eq(extra, kept)) {
            match self.rename_to_stray(extra) {
                Ok(renamed) => tracing::warn!(
                    "{}: of its copies in {} and {} the latter is set aside, as {}",
                    kept.topic_partition(),
                    kept.dir().display(),
                    extra.parent_dir().display(),
                    renamed.display()
                ),
                // Its directory is offline now.
                Err(error) => {
                    tracing::warn!("{}: a copy is not set aside: {error}", kept.topic_partition());
                }
            }
        }
        Some(Arc::clone(kept))
    }
}

/// What was deleted from one is deleted: the copy's checkpoints may be older than its name.
fn take_over_start(kept: &UnifiedLog, dropped: &UnifiedLog) {
    let start = kept.log_start_offset().max(dropped.log_start_offset());
    let known = kept.high_watermark().max(dropped.high_watermark());
    kept.update_high_watermark(known.max(start));
    if let Err(error) = kept.maybe_increment_log_start_offset(start.min(kept.high_watermark())) {
        tracing::warn!(
            "{}: {error}; it is tried again with the next deletion",
            kept.topic_partition()
        );
    }
}

/// How many partitions may have a wish for their directory before they are made.
const PREFERRED_MAX: usize = 10_000;

fn one_topic(one: &UnifiedLog, other: &UnifiedLog) -> bool {
    one.topic_id().is_some() && one.topic_id() == other.topic_id()
}

fn with(logs: &Arc<Logs>, log: &Arc<UnifiedLog>) -> Logs {
    let mut logs = Logs::clone(logs);
    logs.insert(log.topic_partition().clone(), Arc::clone(log));
    logs
}

#[cfg(test)]
#[path = "log_move_test.rs"]
mod log_move_test;
