//! The partitions that this node hosts, and what the metadata makes of them.
//!
//! Follows the metadata as a publisher: at the first image it has the logs loaded (strays are set aside), then in every delta it deletes first,
//! for a name may come back with another topic id, then leads, then follows, then takes over changed topic settings.
//! Appends are in `delayed_produce`, fetches in `delayed_fetch`.
//!
//! Must never: delete a log whose topic id is not the one that was deleted, or do file work with the table of partitions locked.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use bytes::Bytes;
use tokio::sync::watch;
use uuid::Uuid;

use crate::io::clock::Clock;
use crate::log::{
    AppendOrigin, FetchIsolation, LogConfig, LogError, LogManager, TopicPartition, TransactionCheck,
    UnifiedLog, VerificationGuard, VerificationRequest,
};
use crate::metadata::partition::directory_id;
use crate::metadata::{
    ConfigResourceType, MetadataCache, MetadataDelta, MetadataImage, MetadataPublisher, PartitionInfo,
};
use crate::replica::alter_log_dirs::{Moves, assignment_differs};
use crate::replica::disk_gate::DiskGate;
use crate::replica::fetch_session_cache::FetchSessionCache;
use crate::replica::partition::PartitionContext;
use crate::replica::{
    DirectoryAssignments, OffsetResult, OffsetSpec, Partition, PartitionListener, ReplicaError,
    TopicIdPartition,
};

/// Makes a topic's settings out of its overrides: the node's settings are in it.
pub type TopicLogConfig = Arc<dyn Fn(&BTreeMap<String, String>) -> LogConfig + Send + Sync>;

#[derive(Debug, Clone)]
pub struct ReplicaManagerConfig {
    pub node_id: i32,
    pub replica_lag_time_max_ms: i64,
    pub max_incremental_fetch_session_cache_slots: usize,
    /// Threads of the runtime that requests run on.
    pub data_workers: usize,
    /// `transaction.partition.verification.enable`, until `set_transaction_verification`.
    pub transaction_partition_verification_enable: bool,
    /// `directory.id` of the log directories.
    pub directory_ids: BTreeMap<PathBuf, Uuid>,
    /// `num.replica.alter.log.dirs.threads`.
    pub alter_log_dirs_threads: usize,
}

#[derive(Clone)]
enum Hosted {
    Online(Arc<Partition>),
    /// In a log directory that is offline.
    Offline,
    /// A full disk did not take its log: tried again now and then.
    WithoutRoom,
}

type HostedPartitions = HashMap<Arc<str>, HashMap<i32, Hosted>>;

pub struct ReplicaManager {
    pub(crate) config: ReplicaManagerConfig,
    pub(crate) clock: Arc<dyn Clock>,
    log_manager: Arc<LogManager>,
    pub(crate) metadata: MetadataCache,
    pub(crate) directories: Arc<DirectoryAssignments>,
    pub(crate) moves: Moves,
    pub(crate) weak: Weak<Self>,
    topic_log_config: TopicLogConfig,
    hosted: RwLock<HostedPartitions>,
    /// Held while partitions are made, led or deleted.
    changes: Mutex<()>,
    has_some_without_room: AtomicBool,
    verifies_transactions: AtomicBool,
    fetch_sessions: FetchSessionCache,
    /// Between requests and the files.
    pub(crate) gate: DiskGate,
    /// `None` until the first image was published.
    started: watch::Sender<Option<Result<(), LogError>>>,
}

impl ReplicaManager {
    pub fn new(
        config: ReplicaManagerConfig,
        log_manager: Arc<LogManager>,
        metadata: MetadataCache,
        topic_log_config: TopicLogConfig,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let fetch_sessions = FetchSessionCache::new(config.max_incremental_fetch_session_cache_slots);
        let directories = DirectoryAssignments::new(config.node_id, config.directory_ids.clone());
        let verifies_transactions = AtomicBool::new(config.transaction_partition_verification_enable);
        let gate = DiskGate::new(log_manager.log_dirs(), config.data_workers, clock.clone());
        Arc::new_cyclic(|weak| Self {
            gate,
            directories,
            moves: Moves::default(),
            weak: weak.clone(),
            config,
            clock,
            log_manager,
            metadata,
            topic_log_config,
            hosted: RwLock::default(),
            changes: Mutex::default(),
            has_some_without_room: AtomicBool::new(false),
            verifies_transactions,
            fetch_sessions,
            started: watch::Sender::new(None),
        })
    }

    /// Returns when the first image was published, its logs are loaded and led; an error means that the node cannot start.
    pub async fn wait_until_started(&self) -> Result<(), LogError> {
        let mut started = self.started.subscribe();
        match started.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            // The sender lives as long as `self`.
            Err(_) => Ok(()),
        }
    }

    pub fn fetch_sessions(&self) -> &FetchSessionCache {
        &self.fetch_sessions
    }

    /// What the controller is told of the replicas' directories; somebody has to run it.
    pub fn directory_assignments(&self) -> &Arc<DirectoryAssignments> {
        &self.directories
    }

    /// Whether a transaction is opened on a partition only with a guard (`transaction.partition.verification.enable`).
    pub fn verifies_transactions(&self) -> bool {
        self.verifies_transactions.load(Ordering::Relaxed)
    }

    pub fn set_transaction_verification(&self, is_enabled: bool) {
        self.verifies_transactions.store(is_enabled, Ordering::Relaxed);
    }

    pub fn log_manager(&self) -> &Arc<LogManager> {
        &self.log_manager
    }

    /// A partition that is hosted here, whatever its role.
    pub fn get_partition(&self, topic_partition: &TopicPartition) -> Result<Arc<Partition>, ReplicaError> {
        let (topic, partition) = (&topic_partition.topic, topic_partition.partition);
        match self
            .hosted()
            .get(topic)
            .and_then(|partitions| partitions.get(&partition))
        {
            Some(Hosted::Online(partition)) => return Ok(partition.clone()),
            Some(Hosted::Offline | Hosted::WithoutRoom) => {
                return Err(ReplicaError::KafkaStorage {
                    partition: topic_partition.to_string(),
                });
            }
            None => {}
        }
        let image = self.metadata.load();
        let exists = image
            .topics
            .by_name(topic)
            .is_some_and(|image| image.partitions.contains_key(&partition));
        let partition = topic_partition.to_string();
        Err(if exists {
            // Elsewhere: the client has to look for it.
            ReplicaError::NotLeaderOrFollower { partition }
        } else {
            ReplicaError::UnknownTopicOrPartition { partition }
        })
    }

    /// The same, unless it is of another topic of that name: that is the error `differs`. (A nil id is any topic's.)
    pub(crate) fn partition_of_topic(
        &self,
        id: &TopicIdPartition,
        differs: ReplicaError,
    ) -> Result<Arc<Partition>, ReplicaError> {
        let partition = self.get_partition(&id.topic_partition)?;
        let is_other = |known| !id.topic_id.is_nil() && id.topic_id != known;
        if partition.topic_id().is_some_and(is_other) {
            return Err(differs);
        }
        Ok(partition)
    }

    /// All partitions that are online, in no order.
    pub fn online_partitions(&self) -> Vec<Arc<Partition>> {
        let hosted = self.hosted();
        let all = hosted.values().flat_map(HashMap::values);
        all.filter_map(|hosted| match hosted {
            Hosted::Online(partition) => Some(partition.clone()),
            Hosted::Offline | Hosted::WithoutRoom => None,
        })
        .collect()
    }

    fn hosted(&self) -> RwLockReadGuard<'_, HostedPartitions> {
        self.hosted.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn hosted_mut(&self) -> RwLockWriteGuard<'_, HostedPartitions> {
        self.hosted.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: there is no such offset. `isolation` is `None` for followers and the debugging consumer. Reads files, which may
    /// be on a disk that stalls.
    pub async fn find_offset(
        &self,
        topic_partition: &TopicPartition,
        spec: OffsetSpec,
        isolation: Option<FetchIsolation>,
        current_leader_epoch: Option<i32>,
        only_from_leader: bool,
    ) -> Result<Option<OffsetResult>, ReplicaError> {
        let partition = self.get_partition(topic_partition)?;
        let log_dir = partition.log().parent_dir();
        let work = move || partition.list_offset(spec, isolation, current_leader_epoch, only_from_leader);
        let found = self.gate.run(&log_dir, false, work).await;
        found.unwrap_or(Err(ReplicaError::RequestTimedOut))
    }

    /// (epoch, end offset); `None` where the epoch is not known.
    pub fn last_offset_for_leader_epoch(
        &self,
        topic_partition: &TopicPartition,
        current_leader_epoch: Option<i32>,
        leader_epoch: i32,
    ) -> Result<Option<(i32, i64)>, ReplicaError> {
        self.get_partition(topic_partition)?
            .last_offset_for_leader_epoch(current_leader_epoch, leader_epoch)
    }

    /// Writes `replication-offset-checkpoint` of every log dir; the server calls it every
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub fn checkpoint_high_watermarks(&self) {
        if let Err(error) = self.log_manager.checkpoint_high_watermarks() {
            tracing::error!(%error, "could not write the high watermark checkpoints");
        }
    }

    /// A log directory went offline: its partitions answer KAFKA_STORAGE_ERROR from here on. For the log manager's listener, which is called
    /// in the middle of an append: so it returns at once and the work is done on a thread of its own.
    pub fn on_log_dir_failure(self: &Arc<Self>, log_dir: &Path) {
        let (manager, log_dir) = (self.clone(), log_dir.to_path_buf());
        let work = move || manager.take_offline(&log_dir);
        if let Err(error) = std::thread::Builder::new()
            .name("log-dir-failure".into())
            .spawn(work)
        {
            tracing::error!(%error, "no thread to take a failed log directory offline");
        }
    }

    fn take_offline(&self, log_dir: &Path) {
        let mut failed = Vec::new();
        for partitions in self.hosted_mut().values_mut() {
            for hosted in partitions.values_mut() {
                if let Hosted::Online(partition) = hosted
                    && *partition.log().parent_dir() == *log_dir
                {
                    failed.push(partition.clone());
                    *hosted = Hosted::Offline;
                }
            }
        }
        for partition in failed {
            partition.on_offline();
        }
    }

    /// Wakes all that wait and writes the high watermarks. The log manager is shut down after it.
    pub fn shutdown(&self) {
        self.moves.stop();
        for partition in self.online_partitions() {
            partition.waiters.on_state_change();
        }
        self.checkpoint_high_watermarks();
    }
}

/// The coordinators' doors.
impl ReplicaManager {
    /// What stands before the files, for those who run on the data plane.
    pub fn gate(&self) -> &DiskGate {
        &self.gate
    }

    /// Appends one ready batch (offsets are assigned here) as the leader of `leader_epoch`; returns the offset after it.
    /// It is committed once the partition's high watermark reaches that offset: see `add_partition_listener`.
    pub fn append_coordinator_batch(
        &self,
        topic_partition: &TopicPartition,
        leader_epoch: i32,
        batch: Bytes,
        check: TransactionCheck,
    ) -> Result<i64, ReplicaError> {
        const ALL_REPLICAS: i16 = -1;
        let partition = self.get_partition(topic_partition)?;
        let (origin, now_ms) = (AppendOrigin::Coordinator, self.clock.now_ms());
        let check = TransactionCheck {
            must_be_verified: self.verifies_transactions(),
            ..check
        };
        let epoch = Some(leader_epoch);
        let info = partition.append_as_leader(&batch, origin, ALL_REPLICAS, epoch, now_ms, &check)?;
        Ok(info.last_offset + 1)
    }

    /// The guard with which a coordinator's or a client's batch may open a transaction on a partition, once its transaction coordinator has
    /// said so; `None`: the transaction is open. The log's writer is asked, which may be at a disk that stalls.
    pub async fn start_verification(
        &self,
        topic_partition: &TopicPartition,
        request: VerificationRequest,
    ) -> Result<Option<VerificationGuard>, ReplicaError> {
        let partition = self.get_partition(topic_partition)?;
        let log_dir = partition.log().parent_dir();
        let now_ms = self.clock.now_ms();
        let work = move || partition.start_verification(&request, now_ms);
        let started = self.gate.run(&log_dir, false, work).await;
        started.unwrap_or(Err(ReplicaError::RequestTimedOut))
    }

    /// Whole batches from `start_offset` up to the log end, at most about `max_bytes` but at least one batch, copied:
    /// for loading a coordinator. Empty at the end of the log.
    pub fn read_coordinator_batches(
        &self,
        topic_partition: &TopicPartition,
        start_offset: i64,
        max_bytes: usize,
    ) -> Result<Bytes, ReplicaError> {
        let partition = self.get_partition(topic_partition)?;
        // Fails with NOT_LEADER_OR_FOLLOWER where the partition moved while its coordinator loads.
        partition.leader_offsets()?;
        Ok(partition
            .log()
            .read_bytes(start_offset, max_bytes, FetchIsolation::LogEnd, true)?)
    }

    /// Hears of high watermark changes, deletion and loss of leadership. False: not hosted here, or offline.
    pub fn add_partition_listener(
        &self,
        topic_partition: &TopicPartition,
        listener: Arc<dyn PartitionListener>,
    ) -> bool {
        match self.get_partition(topic_partition) {
            Ok(partition) => {
                partition.add_listener(listener);
                true
            }
            Err(_) => false,
        }
    }

    pub fn remove_partition_listener(
        &self,
        topic_partition: &TopicPartition,
        listener: &Arc<dyn PartitionListener>,
    ) {
        if let Ok(partition) = self.get_partition(topic_partition) {
            partition.remove_listener(listener);
        }
    }
}

/// Following the metadata.
impl ReplicaManager {
    /// Whether a log that was found on disk does not belong here (`LogManager.isStrayReplica`).
    fn is_stray(&self, image: &MetadataImage, log: &UnifiedLog) -> bool {
        let TopicPartition { topic, partition } = log.topic_partition();
        let Some(topic_id) = log.topic_id().or_else(|| self.adopt(image, log)) else {
            tracing::warn!(%topic, partition, "log has no topic id and is none of this directory by the metadata: stray");
            return true;
        };
        match image.topics.partition(topic_id, *partition) {
            Some(registration) => !registration.replicas.contains(&self.config.node_id),
            None => true,
        }
    }

    /// A log whose `partition.metadata` is lost, empty or cut off belongs to the topic of its name if the metadata has that partition in its directory,
    /// and neither what is left of the file nor the log's epochs are of an earlier topic of that name.
    /// (Apache Kafka sets it aside when the file is lost, and then has none of its records; else it does not start.)
    fn adopt(&self, image: &MetadataImage, log: &UnifiedLog) -> Option<Uuid> {
        let TopicPartition { topic, partition } = log.topic_partition();
        let topic_id = image.topics.by_name(topic)?.id;
        let registration = image.topics.partition(topic_id, *partition)?;
        let directory = registration.directory_of(self.config.node_id)?;
        // Of a directory that the metadata does not know yet the topic's log may be in another one.
        let is_here = match directory {
            directory_id::MIGRATING | directory_id::UNASSIGNED => self.log_manager.log_dirs().len() == 1,
            directory => self.directories.id_of(&log.parent_dir()) == Some(directory),
        };
        // An earlier topic of that name has epochs that this one has not come to, if it was led more often.
        let is_older = log
            .latest_epoch()
            .is_none_or(|epoch| epoch <= registration.leader_epoch);
        if !is_here || !is_older || !log.may_have_told(topic_id) {
            return None;
        }
        tracing::warn!(
            %topic, partition,
            "partition.metadata is lost or cut off: by the metadata the log, which ends at offset {}, is of topic id {topic_id}",
            log.log_end_offset()
        );
        if let Err(error) = log.assign_topic_id(topic_id) {
            tracing::warn!(%topic, partition, "partition.metadata is not written: {error}; the next start tries again");
        }
        Some(topic_id)
    }

    fn load_logs(&self, image: &Arc<MetadataImage>) -> Result<(), LogError> {
        let (assigned, directories, node_id) = (image.clone(), self.directories.clone(), self.config.node_id);
        self.log_manager.set_assigned(move |log| {
            let partition = log.topic_partition().partition;
            let registration = log
                .topic_id()
                .and_then(|id| assigned.topics.partition(id, partition));
            let directory = registration.and_then(|registration| registration.directory_of(node_id));
            directory.is_some() && directory == directories.id_of(&log.parent_dir())
        });
        let config_of = |topic: &str| (self.topic_log_config)(&image.configs.topic_overrides(topic));
        self.log_manager
            .load_logs(&config_of, &|log| self.is_stray(image, log))
    }

    fn delete_partition(&self, topic: &Arc<str>, topic_id: Uuid, partition: i32) {
        let topic_partition = TopicPartition {
            topic: topic.clone(),
            partition,
        };
        let hosted = {
            let mut hosted = self.hosted_mut();
            let Some(partitions) = hosted.get_mut(topic) else {
                return;
            };
            let is_other = matches!(
                partitions.get(&partition),
                Some(Hosted::Online(partition)) if partition.topic_id().is_some_and(|id| id != topic_id)
            );
            if is_other {
                return;
            }
            let removed = partitions.remove(&partition);
            if partitions.is_empty() {
                hosted.remove(topic);
            }
            removed
        };
        let what = match hosted {
            Some(Hosted::Online(partition)) => {
                partition.on_deleted();
                "deleted"
            }
            // Whoever waited was told when it went offline. A topic made anew by this name must not find its log.
            Some(Hosted::Offline) => {
                "deleted, but for its files in a log directory that is offline: a start that finds them renames them to -stray"
            }
            Some(Hosted::WithoutRoom) | None => return,
        };
        self.cancel_move(&topic_partition, None);
        match self.log_manager.async_delete(&topic_partition) {
            Ok(()) => tracing::info!(partition = %topic_partition, "{what}"),
            Err(error) => tracing::error!(partition = %topic_partition, %error, "could not delete"),
        }
    }

    /// The partition, made with its log if it is new here; `None` if it is offline or cannot be made.
    fn get_or_create_partition(&self, info: &PartitionInfo, image: &MetadataImage) -> Option<Arc<Partition>> {
        let topic_partition = TopicPartition {
            topic: info.topic.clone(),
            partition: info.partition,
        };
        let known = self
            .hosted()
            .get(&info.topic)
            .and_then(|partitions| partitions.get(&info.partition))
            .cloned();
        match known {
            Some(Hosted::Online(partition)) if partition.topic_id() == Some(info.topic_id) => {
                return Some(partition);
            }
            Some(Hosted::Online(partition)) => {
                let known = partition.topic_id();
                tracing::error!(partition = %topic_partition, ?known, named = %info.topic_id, "topic id differs");
                return None;
            }
            Some(Hosted::Offline) => return None,
            Some(Hosted::WithoutRoom) | None => {}
        }
        let created = self.create_partition(&topic_partition, info, image);
        let hosted = match &created {
            Ok(partition) => Hosted::Online(partition.clone()),
            Err(error) if error.is_no_space() => {
                tracing::debug!(partition = %topic_partition, %error, "could not make the log yet");
                self.has_some_without_room.store(true, Ordering::Release);
                Hosted::WithoutRoom
            }
            Err(error) => {
                tracing::error!(partition = %topic_partition, %error, "could not open the log");
                Hosted::Offline
            }
        };
        self.hosted_mut()
            .entry(info.topic.clone())
            .or_default()
            .insert(info.partition, hosted);
        created.ok()
    }

    fn create_partition(
        &self,
        topic_partition: &TopicPartition,
        info: &PartitionInfo,
        image: &MetadataImage,
    ) -> Result<Arc<Partition>, LogError> {
        let topic_id = info.topic_id;
        let config = (self.topic_log_config)(&image.configs.topic_overrides(&topic_partition.topic));
        let assigned = info.registration.directory_of(self.config.node_id);
        let wish = self.directory_of_new_log(topic_partition, topic_id, assigned)?;
        let log =
            self.log_manager
                .get_or_create_in(topic_partition, Some(topic_id), config, wish.as_deref())?;
        let actual = self.directories.id_of(&log.parent_dir());
        if let Some(actual) = assignment_differs(assigned, actual) {
            self.directories
                .assign(topic_id, topic_partition.partition, actual, None);
        }
        let context = PartitionContext {
            node_id: self.config.node_id,
            replica_lag_time_max_ms: self.config.replica_lag_time_max_ms,
            metadata: self.metadata.clone(),
        };
        Ok(Arc::new(Partition::new(topic_id, log, context)))
    }

    /// Where a log that is not there is to be made; `None` where that is left to us. An error where it may be there already, in a directory
    /// that is offline: an empty one in its place would lose all that was acknowledged.
    fn directory_of_new_log(
        &self,
        topic_partition: &TopicPartition,
        topic_id: Uuid,
        assigned: Option<Uuid>,
    ) -> Result<Option<PathBuf>, LogError> {
        let logs = &self.log_manager;
        if logs.get(topic_partition).is_some() {
            return Ok(None);
        }
        let wish = assigned.and_then(|id| self.directories.dir_of(id)).cloned();
        if let Some(future) = logs.future(topic_partition)
            && wish.as_deref() == Some(&*future.parent_dir())
            && future.topic_id() == Some(topic_id)
        {
            // The controller has accepted that the copy is the log; the directory of the old one is gone.
            logs.replace_current_with_future(topic_partition)?;
            return Ok(None);
        }
        let is_online = wish.as_ref().is_some_and(|dir| logs.is_log_dir_online(dir));
        let is_unknown =
            assigned.is_none_or(|id| id == directory_id::UNASSIGNED || id == directory_id::MIGRATING);
        let is_start = self.started.borrow().is_none();
        if !is_online && logs.has_offline_log_dirs() && (is_start || !is_unknown) {
            return Err(LogError::DirectoryOffline {
                dir: wish.unwrap_or_default(),
            });
        }
        Ok(wish.filter(|_| is_online))
    }

    fn make_leader(&self, info: &PartitionInfo, image: &MetadataImage) {
        let Some(partition) = self.get_or_create_partition(info, image) else {
            return;
        };
        if let Err(error) = partition.make_leader(&info.registration, self.clock.now_ms()) {
            tracing::error!(partition = %partition.topic_partition(), %error, "could not become the leader");
            self.mark_offline(&partition);
        }
    }

    /// Makes the logs that a full disk did not take. Called every second or so; costs nothing when there are none.
    pub fn make_what_found_no_room(&self) {
        if !self.has_some_without_room.load(Ordering::Acquire) {
            return;
        }
        let _changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_some_without_room.store(false, Ordering::Release);
        let mut waiting = Vec::new();
        for (topic, partitions) in self.hosted().iter() {
            let without_room = |hosted: &Hosted| matches!(hosted, Hosted::WithoutRoom);
            let indexes = partitions.iter().filter(|(_, hosted)| without_room(hosted));
            waiting.extend(indexes.map(|(index, _)| (topic.clone(), *index)));
        }
        let image = self.metadata.image();
        for (topic, partition) in waiting {
            let found = image.topics.by_name(&topic).and_then(|topic| {
                let registration = topic.partitions.get(&partition)?;
                Some((topic.id, registration.clone()))
            });
            // One that is gone from the metadata goes with the delta that says so.
            let Some((topic_id, registration)) = found else {
                continue;
            };
            let info = PartitionInfo {
                topic,
                topic_id,
                partition,
                registration,
            };
            if info.registration.leader == self.config.node_id {
                self.make_leader(&info, &image);
            } else if let Some(partition) = self.get_or_create_partition(&info, &image) {
                partition.make_follower(&info.registration);
            }
        }
    }

    fn mark_offline(&self, partition: &Partition) {
        let TopicPartition {
            topic,
            partition: index,
        } = partition.topic_partition();
        if let Some(hosted) = self
            .hosted_mut()
            .get_mut(topic)
            .and_then(|partitions| partitions.get_mut(index))
        {
            *hosted = Hosted::Offline;
        }
        partition.on_offline();
    }

    /// The node's defaults of topics changed. Logs that are offline keep what they had.
    pub fn update_log_configs(&self, image: &MetadataImage) {
        let config_of = |topic: &str| (self.topic_log_config)(&image.configs.topic_overrides(topic));
        self.log_manager.update_configs(&config_of);
    }

    fn update_topic_config(&self, topic: &str, image: &MetadataImage) {
        let config = (self.topic_log_config)(&image.configs.topic_overrides(topic));
        self.log_manager.update_topic_config(topic, config.clone());
        let partitions: Vec<_> = match self.hosted().get(topic) {
            Some(partitions) => partitions.values().cloned().collect(),
            None => return,
        };
        for hosted in partitions {
            if let Hosted::Online(partition) = hosted {
                partition.log().update_config(config.clone());
            }
        }
    }
}

impl MetadataPublisher for ReplicaManager {
    fn name(&self) -> &'static str {
        "ReplicaManager"
    }

    fn on_metadata_update(&self, delta: &MetadataDelta, image: &Arc<MetadataImage>) {
        let _changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = self.started.borrow().is_none();
        if is_first && let Err(error) = self.load_logs(image) {
            match error {
                LogError::ShuttingDown => tracing::info!("loading the logs ends early: the node shuts down"),
                _ => tracing::error!(%error, "could not load the logs"),
            }
            self.started.send_replace(Some(Err(error)));
        }
        if matches!(&*self.started.borrow(), Some(Err(_))) {
            return;
        }
        let changes = delta.topics_delta().local_changes(self.config.node_id);
        for (topic, topic_id, partition) in &changes.deletes {
            self.delete_partition(topic, *topic_id, *partition);
        }
        if !changes.deletes.is_empty()
            && let Err(error) = self.log_manager.forget_deletions()
        {
            tracing::error!(%error, "deleted partitions stay in the checkpoints of their log directory");
        }
        for info in &changes.leaders {
            self.make_leader(info, image);
        }
        for info in &changes.followers {
            if let Some(partition) = self.get_or_create_partition(info, image) {
                partition.make_follower(&info.registration);
            }
        }
        for resource in delta.changed_configs() {
            if resource.resource_type == ConfigResourceType::Topic {
                self.update_topic_config(&resource.name, image);
            }
        }
        if is_first {
            self.resume_moves();
            self.started.send_replace(Some(Ok(())));
        }
    }
}

#[cfg(test)]
#[path = "replica_manager_test.rs"]
mod replica_manager_test;
