//! How the logs come to be known at a start: each directory by itself, its folders on several threads; the metadata log by itself.
//!
//! Invariant: a log is in the map only when all of every directory that is online is loaded.

use super::*;

impl LogManager {
    /// Loads all logs, recovering where the last shutdown was not clean; the metadata log's folder is left alone.
    /// `config_of` gives a topic's settings; `is_stray` says for a loaded log whether it does not belong here (its topic id
    /// is not in the metadata image, or this broker is no replica): its folder gets the suffix `-stray`.
    ///
    /// No directory counts as loaded before all of them are and their logs are in the map: an end in between must leave the
    /// checkpoints as they were, and no mark of a clean one.
    pub fn load_logs(
        &self,
        config_of: &(dyn Fn(&str) -> LogConfig + Sync),
        is_stray: &(dyn Fn(&UnifiedLog) -> bool + Sync),
    ) -> Result<(), LogError> {
        let _loading = lock(&self.loading);
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(LogError::ShuttingDown);
        }
        let loaded = Mutex::new(Loaded::default());
        let whole = Mutex::new(Vec::new());
        let fatal = Mutex::new(None);
        thread::scope(|scope| {
            for dir in self.dirs.iter().filter(|dir| dir.dir.is_online()) {
                let (loaded, whole, fatal) = (&loaded, &whole, &fatal);
                scope.spawn(move || match self.load_dir(dir, config_of, is_stray, loaded) {
                    Ok(checkpointed) => lock(whole).push((dir, checkpointed)),
                    Err(error) if dir.dir.is_online() => {
                        lock(fatal).get_or_insert(error);
                    }
                    Err(_) => {}
                });
            }
        });
        if let Some(error) = lock(&fatal).take() {
            return Err(error);
        }
        let Loaded { logs, futures } = std::mem::take(&mut *lock(&loaded));
        let chosen = futures.into_iter().filter_map(|(topic_partition, found)| {
            let future = self.choose_future(&found, logs.get(&topic_partition))?;
            Some((topic_partition, future))
        });
        let future_logs: Logs = chosen.collect();
        lock(&self.is_assigned).take();
        for (dir, checkpointed) in lock(&whole).iter() {
            // Their logs were set aside, or a kill came between their deletion and the checkpoint.
            if checkpointed.iter().any(|tp| !dir.has(&logs, tp)) {
                dir.remember_deletion();
            }
        }
        self.logs.store(Arc::new(logs));
        for topic_partition in future_logs.keys() {
            self.cleaner.manager.pause(topic_partition);
        }
        self.future_logs.store(Arc::new(future_logs));
        for (dir, _) in lock(&whole).iter() {
            dir.loaded.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Lets [`Self::load_logs`] end with an error, soon: after the logs that it is at.
    pub fn stop_loading(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Gives what the checkpoints of the directory have offsets of.
    fn load_dir(
        &self,
        dir: &Arc<ManagedDir>,
        config_of: &(dyn Fn(&str) -> LogConfig + Sync),
        is_stray: &(dyn Fn(&UnifiedLog) -> bool + Sync),
        loaded: &Mutex<Loaded>,
    ) -> Result<Vec<TopicPartition>, LogError> {
        let disk = self.disk();
        let clean_shutdown = dir.path().join(CLEAN_SHUTDOWN);
        if dir.had_clean_shutdown {
            // From here on a crash must be seen as one.
            super::super::open_file_cache::remove_if_exists(disk, &clean_shutdown)
                .and_then(|()| disk.sync_dir(dir.path()))
                .map_err(|error| dir.dir.fail(&clean_shutdown, "deleting", error))?;
        }
        let recovery_points = dir.read_checkpoint(RECOVERY_POINT_CHECKPOINT, disk)?;
        let log_start_offsets = dir.read_checkpoint(LOG_START_OFFSET_CHECKPOINT, disk)?;
        let high_watermarks = dir.read_checkpoint(HIGH_WATERMARK_CHECKPOINT, disk)?;
        let names = disk
            .list(dir.path())
            .map_err(|error| dir.dir.fail(dir.path(), "listing", error))?;
        let folders: VecDeque<Folder> = names
            .iter()
            .filter(|(_, is_directory)| *is_directory)
            .filter_map(|(name, _)| Folder::parse(name.to_str()?))
            .filter(|folder| &*folder.topic_partition.topic != METADATA_TOPIC)
            .collect();
        let queue = Mutex::new(folders);
        let failed = Mutex::new(None);
        let work = || {
            while dir.dir.is_online() && lock(&failed).is_none() {
                let Some(folder) = lock(&queue).pop_front() else {
                    break;
                };
                if self.is_stopping.load(Ordering::Acquire) {
                    lock(&failed).get_or_insert(LogError::ShuttingDown);
                    break;
                }
                let tp = &folder.topic_partition;
                // What they say is of the log, never of a copy that is to take its place.
                let is_current = folder.kind == FolderKind::Current;
                let offset_in = |offsets: &Offsets| match offsets.get(tp) {
                    Some(offset) if is_current => *offset,
                    _ => 0,
                };
                let offsets = CheckpointedOffsets {
                    recovery_point: offset_in(&recovery_points),
                    log_start_offset: offset_in(&log_start_offsets),
                    high_watermark: offset_in(&high_watermarks),
                };
                if let Err(error) =
                    self.load_folder(dir, &folder, offsets, config_of(&tp.topic), is_stray, loaded)
                {
                    lock(&failed).get_or_insert(error);
                }
            }
        };
        let threads = self.config.recovery_threads_per_data_dir.max(1);
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        if let Some(error) = lock(&failed).take() {
            return Err(error);
        }
        let mut checkpointed = self.cleaner.manager.checkpointed(&dir.dir, disk)?;
        checkpointed.extend(recovery_points.into_keys());
        checkpointed.extend(log_start_offsets.into_keys());
        checkpointed.extend(high_watermarks.into_keys());
        Ok(checkpointed)
    }

    fn load_folder(
        &self,
        dir: &Arc<ManagedDir>,
        folder: &Folder,
        offsets: CheckpointedOffsets,
        config: LogConfig,
        is_stray: &(dyn Fn(&UnifiedLog) -> bool + Sync),
        loaded: &Mutex<Loaded>,
    ) -> Result<(), LogError> {
        let path = dir.path().join(&folder.name);
        match folder.kind {
            FolderKind::Deleted => {
                let due_ms = self
                    .context
                    .clock
                    .now_ms()
                    .saturating_add(config.file_delete_delay_ms);
                dir.dir.deferred.delete_at(due_ms, Deletion::Folder { path });
                return Ok(());
            }
            FolderKind::Stray => {
                tracing::warn!("{} is a stray log: it is kept, not served", path.display());
                return Ok(());
            }
            FolderKind::Current | FolderKind::Future => {}
        }
        let log = LogLoader {
            context: &self.context,
            log_dir: &dir.dir,
            topic_partition: folder.topic_partition.clone(),
            path,
            config,
            had_clean_shutdown: dir.had_clean_shutdown,
            log_start_offset: offsets.log_start_offset,
            recovery_point: offsets.recovery_point,
            high_watermark: offsets.high_watermark,
            new_topic_id: None,
        }
        .load()?;
        if is_stray(&log) {
            let folder = log.dir();
            let renamed = self.rename_to_stray(&log)?;
            tracing::warn!(
                "{} belongs to no partition of this node: it is kept as {}, not served. If its records are wanted, they are there; else \
                 remove it",
                folder.display(),
                renamed.display()
            );
            return Ok(());
        }
        let mut loaded = lock(loaded);
        if folder.kind == FolderKind::Future {
            loaded
                .futures
                .entry(folder.topic_partition.clone())
                .or_default()
                .push(log);
            return Ok(());
        }
        let logs = &mut loaded.logs;
        let Some(other) = logs.insert(folder.topic_partition.clone(), Arc::clone(&log)) else {
            return Ok(());
        };
        match self.resolve_duplicate(Arc::clone(&log), Arc::clone(&other)) {
            Some((kept, extra)) => {
                logs.insert(folder.topic_partition.clone(), kept);
                tracing::warn!(
                    "{} was being moved to another log directory when the process ended: {} is set aside",
                    folder.topic_partition,
                    extra.dir().display()
                );
                self.rename_to_stray(&extra).map(|_| ())
            }
            None => Err(LogError::InvalidLogDirectory {
                reason: format!(
                    "Duplicate log directories for {} are found in both {} and {}. It is likely because log directory \
                     failure happened while broker was replacing current replica with future replica. Recover broker \
                     from this failure by manually deleting one of the two directories for this partition. It is \
                     recommended to delete the partition in the log directory that is known to have failed recently.",
                    folder.topic_partition,
                    log.dir().display(),
                    other.dir().display()
                ),
            }),
        }
    }

    pub(in crate::log) fn rename_to_stray(&self, log: &UnifiedLog) -> Result<PathBuf, LogError> {
        let name = Folder::stray_name(&log.topic_partition, Uuid::from_u128(self.random_id()));
        self.rename_folder(log, &name)
    }

    /// Opens or makes `__cluster_metadata-0` in a log directory, which may be none of `log.dirs`. All of it is checked, as
    /// Kafka does: it is small, and nothing else on the node matters as much.
    pub fn open_metadata_log(&self, log_dir: &Path, config: LogConfig) -> Result<Arc<UnifiedLog>, LogError> {
        let dir = match self.dirs.iter().find(|dir| dir.path() == log_dir) {
            Some(dir) => Arc::clone(dir),
            None => {
                let mut metadata_dir = lock(&self.metadata_dir);
                match &*metadata_dir {
                    Some(dir) => Arc::clone(dir),
                    None => {
                        let dir = Arc::new(ManagedDir::open(log_dir, &self.config, self.disk())?);
                        *metadata_dir = Some(Arc::clone(&dir));
                        dir
                    }
                }
            }
        };
        dir.dir.check_online()?;
        let topic_partition = TopicPartition::new(METADATA_TOPIC, 0);
        // Kafka's id of the metadata topic: AAAAAAAAAAAAAAAAAAAAAQ.
        let topic_id = Uuid::from_u128(1);
        let name = topic_partition.to_string();
        self.open_log(&dir, &name, topic_partition, Some(topic_id), config, false)
    }

    pub(in crate::log) fn open_log(
        &self,
        dir: &ManagedDir,
        folder: &str,
        topic_partition: TopicPartition,
        topic_id: Option<Uuid>,
        config: LogConfig,
        is_new: bool,
    ) -> Result<Arc<UnifiedLog>, LogError> {
        let path = dir.path().join(folder);
        // What is in a folder that was there before is not trusted.
        let is_new = is_new && !self.disk().exists(&path);
        if !self.disk().exists(&path) {
            self.disk()
                .create_dir_all(&path)
                .map_err(|error| dir.dir.write_failed(&path, "creating", error))?;
            dir.dir.mark_dirty();
        }
        LogLoader {
            context: &self.context,
            log_dir: &dir.dir,
            topic_partition,
            path,
            config,
            had_clean_shutdown: is_new,
            log_start_offset: 0,
            recovery_point: 0,
            high_watermark: 0,
            new_topic_id: topic_id,
        }
        .load()
    }
}

/// What the directories hold.
#[derive(Debug, Default)]
struct Loaded {
    logs: Logs,
    /// On their way from another directory.
    futures: HashMap<TopicPartition, Vec<Arc<UnifiedLog>>>,
}

#[derive(Debug, Clone, Copy)]
struct CheckpointedOffsets {
    recovery_point: i64,
    log_start_offset: i64,
    high_watermark: i64,
}
