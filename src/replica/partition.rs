//! One hosted partition: the log, who leads it, and those who wait for it.
//!
//! A thin shell around `replica_state`: it holds the state under locks, does what the rules say to the log, and tells waiters and listeners.
//!
//! Locks, always taken in this order: `state` (read by appends and fetches for their whole length, so that a change of leadership waits
//! for them and none goes on under an old epoch), `followers`, then whatever the log does. Waiters and listeners are told after `state` is free.
//!
//! Must never: append unless it leads; let the leader's high watermark go back; call a listener with a lock held but the listeners' own.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use arc_swap::ArcSwap;
use bytes::Bytes;
use uuid::Uuid;

use crate::log::{
    AppendOrigin, FetchDataInfo, LogAppendInfo, LogError, LogManager, LogOffsetMetadata, TopicPartition,
    TransactionCheck, UnifiedLog, VerificationGuard, VerificationRequest,
};
use crate::metadata::{MetadataCache, PartitionRegistration};
use crate::replica::ReplicaError;
use crate::replica::fetch::{
    DivergingEpoch, FetchIsolation, FetchParams, FetchPartition, OffsetResult, OffsetSpec,
};
use crate::replica::purgatory::{Visible, WaitList};
use crate::replica::replica_state::{FollowerState, IsrState, PartitionState, high_watermark_candidate};

/// `DeleteRecordsRequest.HIGH_WATERMARK`.
const DELETE_UP_TO_HIGH_WATERMARK: i64 = -1;

/// Who wants to know what happens to a partition (`PartitionListener`); the coordinators do. Called inline from the
/// thread that caused the event, in order for a partition: must be quick, never block and never call back into the partition.
pub trait PartitionListener: Send + Sync + 'static {
    fn on_high_watermark_updated(&self, topic_partition: &TopicPartition, high_watermark: i64);
    /// The log directory went offline.
    fn on_failed(&self, topic_partition: &TopicPartition);
    fn on_deleted(&self, topic_partition: &TopicPartition);
    fn on_become_follower(&self, topic_partition: &TopicPartition);
}

/// What all partitions of a node share.
#[derive(Clone)]
pub(crate) struct PartitionContext {
    pub node_id: i32,
    pub replica_lag_time_max_ms: i64,
    pub metadata: MetadataCache,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderOffsets {
    pub log_start_offset: i64,
    pub last_stable_offset: i64,
    pub high_watermark: i64,
    pub log_end_offset: i64,
}

/// What a fetch found, with the offsets as they were before the read.
pub(crate) struct ReadInfo {
    pub data: FetchDataInfo,
    pub diverging_epoch: Option<DivergingEpoch>,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// It reads in a segment before the last one that it may see: there is more, whatever it got (DelayedFetch completes at once).
    pub is_behind: bool,
}

#[derive(Default)]
struct Listeners {
    listeners: Vec<Arc<dyn PartitionListener>>,
    last_high_watermark: i64,
}

/// Why a partition is hosted no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Deleted,
    Offline,
}

pub struct Partition {
    topic_partition: TopicPartition,
    topic_id: Uuid,
    context: PartitionContext,
    /// Another one after a move to another log directory, which holds `state` alone.
    log: ArcSwap<UnifiedLog>,
    state: RwLock<PartitionState>,
    followers: Mutex<Vec<FollowerState>>,
    listeners: Mutex<Listeners>,
    ended: OnceLock<Ended>,
    pub(crate) waiters: Arc<WaitList>,
}

impl Partition {
    pub(crate) fn new(topic_id: Uuid, log: Arc<UnifiedLog>, context: PartitionContext) -> Self {
        Self {
            topic_partition: log.topic_partition().clone(),
            topic_id,
            context,
            log: ArcSwap::from(log),
            state: RwLock::default(),
            followers: Mutex::default(),
            listeners: Mutex::default(),
            ended: OnceLock::new(),
            waiters: Arc::default(),
        }
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub fn topic_id(&self) -> Option<Uuid> {
        (!self.topic_id.is_nil()).then_some(self.topic_id)
    }

    pub fn log(&self) -> Arc<UnifiedLog> {
        self.log.load_full()
    }

    pub fn leader_epoch(&self) -> i32 {
        self.state().leader_epoch
    }

    pub fn is_leader(&self) -> bool {
        self.leads(&self.state())
    }

    /// The log's offsets if this node leads the partition.
    pub fn leader_offsets(&self) -> Result<LeaderOffsets, ReplicaError> {
        let state = self.state();
        self.check_leads(&state)?;
        Ok(LeaderOffsets {
            log_start_offset: self.log.load().log_start_offset(),
            last_stable_offset: self.log.load().last_stable_offset(),
            high_watermark: self.log.load().high_watermark(),
            log_end_offset: self.log.load().log_end_offset(),
        })
    }

    /// -1 unless it leads.
    pub(crate) fn log_start_offset_if_leader(&self) -> i64 {
        if self.is_leader() {
            self.log.load().log_start_offset()
        } else {
            -1
        }
    }

    fn state(&self) -> RwLockReadGuard<'_, PartitionState> {
        // A panic under this lock is in the log, which guards its own state: what is here stays true.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn followers(&self) -> MutexGuard<'_, Vec<FollowerState>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leads(&self, state: &PartitionState) -> bool {
        state.leader_id == self.context.node_id
    }

    /// To those who still hold it, what `ReplicaManager::get_partition` says to those who ask anew.
    fn not_leader(&self) -> ReplicaError {
        let partition = self.topic_partition.to_string();
        match self.ended.get() {
            Some(Ended::Offline) => ReplicaError::KafkaStorage { partition },
            Some(Ended::Deleted) if !self.is_in_metadata() => {
                ReplicaError::UnknownTopicOrPartition { partition }
            }
            Some(Ended::Deleted) | None => ReplicaError::NotLeaderOrFollower { partition },
        }
    }

    fn is_in_metadata(&self) -> bool {
        let image = self.context.metadata.load();
        let topic = image.topics.by_name(&self.topic_partition.topic);
        topic.is_some_and(|topic| topic.partitions.contains_key(&self.topic_partition.partition))
    }

    fn check_leads(&self, state: &PartitionState) -> Result<(), ReplicaError> {
        if self.leads(state) {
            Ok(())
        } else {
            Err(self.not_leader())
        }
    }

    /// `localLogWithEpochOrThrow`: the epoch first, then the role.
    fn check_access(
        &self,
        state: &PartitionState,
        epoch: Option<i32>,
        only_leader: bool,
    ) -> Result<(), ReplicaError> {
        state.check_leader_epoch(epoch)?;
        if only_leader {
            self.check_leads(state)
        } else {
            Ok(())
        }
    }
}

/// Roles.
impl Partition {
    /// True if it was not the leader before.
    pub(crate) fn make_leader(
        &self,
        registration: &PartitionRegistration,
        now_ms: i64,
    ) -> Result<bool, LogError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if registration.partition_epoch < state.partition_epoch {
            return Ok(false);
        }
        let is_new_leader = !self.leads(&state);
        let is_new_leader_epoch = registration.leader_epoch > state.leader_epoch;
        let epoch_start_offset = if is_new_leader_epoch {
            let log_end_offset = self.log.load().log_end_offset();
            // So that followers that have records of an epoch between find where to truncate.
            self.log
                .load()
                .maybe_assign_epoch_start_offset(registration.leader_epoch, log_end_offset)?;
            Some(log_end_offset)
        } else {
            state.leader_epoch_start_offset
        };
        state.follow_metadata(registration);
        state.leader_epoch_start_offset = epoch_start_offset;
        self.reset_followers(&state, is_new_leader_epoch.then_some(is_new_leader), now_ms);
        // The ISR may be down to one.
        let high_watermark = self.maybe_increment_high_watermark(&state, now_ms);
        drop(state);

        if is_new_leader {
            // It may have gone back while this node followed.
            self.listeners().last_high_watermark = -1;
        }
        if is_new_leader_epoch {
            self.waiters.on_state_change();
        }
        if let Some(high_watermark) = high_watermark {
            self.announce_high_watermark(Visible::Unknown, high_watermark);
        }
        Ok(is_new_leader)
    }

    fn reset_followers(&self, state: &PartitionState, new_epoch: Option<bool>, now_ms: i64) {
        let mut followers = self.followers();
        let remote = |id: &i32| *id != self.context.node_id;
        followers.retain(|follower| state.replicas.contains(&follower.replica_id));
        for id in state.replicas.iter().filter(|id| remote(id)) {
            if !followers.iter().any(|follower| follower.replica_id == *id) {
                followers.push(FollowerState::new(*id));
            }
        }
        let Some(is_new_leader) = new_epoch else { return };
        let end = state.leader_epoch_start_offset.unwrap_or(-1);
        for follower in followers.iter_mut() {
            let in_sync = state.isr.isr().contains(&follower.replica_id);
            follower.reset(now_ms, end, is_new_leader, in_sync);
        }
    }

    /// True if the leader epoch is new: the fetcher has to start anew.
    pub(crate) fn make_follower(&self, registration: &PartitionRegistration) -> bool {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if registration.partition_epoch < state.partition_epoch {
            return false;
        }
        let is_new_leader_epoch = registration.leader_epoch > state.leader_epoch;
        let led = self.leads(&state);
        state.follow_metadata(registration);
        // Only a leader knows who is in sync.
        state.isr = IsrState::default();
        state.leader_epoch_start_offset = None;
        self.followers().clear();
        drop(state);

        if is_new_leader_epoch || led {
            self.waiters.on_state_change();
            self.for_each_listener(|listener| listener.on_become_follower(&self.topic_partition));
        }
        is_new_leader_epoch
    }

    /// It is hosted no more: nobody may append or read through what others still hold.
    pub(crate) fn on_deleted(&self) {
        self.step_down(Ended::Deleted);
        self.for_each_listener(|listener| listener.on_deleted(&self.topic_partition));
    }

    pub(crate) fn on_offline(&self) {
        self.step_down(Ended::Offline);
        self.for_each_listener(|listener| listener.on_failed(&self.topic_partition));
    }

    fn step_down(&self, ended: Ended) {
        // The first reason stays.
        let _ = self.ended.set(ended);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.leader_id = crate::metadata::NO_LEADER;
        state.leader_epoch_start_offset = None;
        drop(state);
        self.waiters.on_state_change();
    }

    pub(crate) fn add_listener(&self, listener: Arc<dyn PartitionListener>) {
        self.listeners().listeners.push(listener);
    }

    pub(crate) fn remove_listener(&self, listener: &Arc<dyn PartitionListener>) {
        self.listeners()
            .listeners
            .retain(|other| !Arc::ptr_eq(other, listener));
    }

    fn for_each_listener(&self, call: impl Fn(&dyn PartitionListener)) {
        for listener in &self.listeners().listeners {
            call(listener.as_ref());
        }
    }
}

/// Appends and the high watermark.
impl Partition {
    /// `check` is what the append says of its transaction.
    pub(crate) fn append_as_leader(
        &self,
        records: &Bytes,
        origin: AppendOrigin,
        required_acks: i16,
        expected_epoch: Option<i32>,
        now_ms: i64,
        check: &TransactionCheck,
    ) -> Result<LogAppendInfo, ReplicaError> {
        let state = self.state();
        self.check_access(&state, expected_epoch, true)?;
        if required_acks == -1 {
            self.check_min_isr(&state)?;
        }
        let info = self
            .log
            .load()
            .append_checked(records, state.leader_epoch, origin, now_ms, check)?;
        let high_watermark = self.maybe_increment_high_watermark(&state, now_ms);
        drop(state);

        let visible = match origin {
            _ if info.duplicate => Visible::Bytes(0),
            AppendOrigin::Coordinator => Visible::Marker(info.valid_bytes),
            _ => Visible::Bytes(info.valid_bytes),
        };
        match high_watermark {
            Some(high_watermark) => self.announce_high_watermark(visible, high_watermark),
            None => self.waiters.on_append(visible, None),
        }
        Ok(info)
    }

    /// `maybeStartTransactionVerification`; `None`: the transaction is open here.
    pub(crate) fn start_verification(
        &self,
        request: &VerificationRequest,
        now_ms: i64,
    ) -> Result<Option<VerificationGuard>, ReplicaError> {
        let state = self.state();
        self.check_leads(&state)?;
        Ok(self.log.load().start_verification(request, now_ms)?)
    }

    fn check_min_isr(&self, state: &PartitionState) -> Result<(), ReplicaError> {
        let min_insync_replicas = self.log.load().config().min_insync_replicas;
        let in_sync = state.isr.isr().len();
        if in_sync < state.effective_min_isr(min_insync_replicas) {
            return Err(ReplicaError::NotEnoughReplicas {
                partition: self.topic_partition.to_string(),
                in_sync,
                required: min_insync_replicas,
            });
        }
        Ok(())
    }

    /// The new high watermark if it moved.
    fn maybe_increment_high_watermark(&self, state: &PartitionState, now_ms: i64) -> Option<i64> {
        let leader_end_offset = self.log.load().log_end_offset_metadata();
        let lag = self.context.replica_lag_time_max_ms;
        let candidate = high_watermark_candidate(
            state,
            self.log.load().config().min_insync_replicas,
            leader_end_offset,
            &self.followers(),
            |follower| {
                follower.is_caught_up(leader_end_offset.message_offset, now_ms, lag)
                    && self.is_isr_eligible(follower)
            },
        )?;
        self.log
            .load()
            .maybe_increment_high_watermark(candidate)
            .map(|_| self.log.load().high_watermark())
    }

    /// Not fenced, not shutting down, and fetching as the incarnation that is registered (KIP-841, KIP-903).
    fn is_isr_eligible(&self, follower: &FollowerState) -> bool {
        let image = self.context.metadata.load();
        let is_current = |epoch: i64| follower.broker_epoch == -1 || follower.broker_epoch == epoch;
        image.cluster.is_active(follower.replica_id)
            && image
                .cluster
                .broker_epoch(follower.replica_id)
                .is_some_and(is_current)
    }

    fn announce_high_watermark(&self, visible: Visible, high_watermark: i64) {
        self.waiters.on_high_watermark(visible, high_watermark);
        let mut listeners = self.listeners();
        // Two appends may come here in either order: listeners hear of the larger one only, once.
        if high_watermark > listeners.last_high_watermark {
            listeners.last_high_watermark = high_watermark;
            for listener in &listeners.listeners {
                listener.on_high_watermark_updated(&self.topic_partition, high_watermark);
            }
        }
    }

    /// Whether all that must have acknowledged what ends at `required_offset` (`checkEnoughReplicasReachOffset`).
    /// `Ok(false)`: not yet.
    pub(crate) fn is_replicated(&self, required_offset: i64) -> Result<bool, ReplicaError> {
        let state = self.state();
        self.check_leads(&state)?;
        if self.log.load().high_watermark() < required_offset {
            return Ok(false);
        }
        if state.effective_min_isr(self.log.load().config().min_insync_replicas)
            > state.isr.maximal_isr_size()
        {
            // The ISR shrank after the append.
            let partition = self.topic_partition.to_string();
            return Err(ReplicaError::NotEnoughReplicasAfterAppend { partition });
        }
        Ok(true)
    }
}

/// The move to another log directory.
impl Partition {
    /// The log directory, once no swap is under way.
    pub(crate) fn settled_log_dir(&self) -> Arc<Path> {
        let _no_swap = self.state();
        self.log.load().parent_dir()
    }

    /// Copies up to about `max_bytes` more into the log in the other directory; returns how many. What the log has lost meanwhile the copy
    /// loses first (KIP-101: by leader epochs).
    pub(crate) fn copy_to_future(&self, future: &UnifiedLog, max_bytes: usize) -> Result<usize, LogError> {
        let current = self.log();
        let common_end = match future.latest_epoch() {
            Some(epoch) => match current.end_offset_for_epoch(epoch) {
                Some((known, end)) if known == epoch => end,
                Some((known, end)) => end.min(future.end_offset_for_epoch(known).map_or(end, |(_, end)| end)),
                None => current.log_end_offset(),
            },
            None => current.log_end_offset(),
        };
        if common_end < future.log_end_offset() {
            future.truncate_to(common_end)?;
        }
        if future.log_end_offset() < current.log_start_offset() {
            future.truncate_fully_and_start_at(current.log_start_offset(), None)?;
        }
        let records = current.read_bytes(future.log_end_offset(), max_bytes, FetchIsolation::LogEnd, true)?;
        let copied = if records.is_empty() {
            0
        } else {
            append_copied(future, &records)?
        };
        future.update_high_watermark(current.high_watermark());
        let log_start_offset = current.log_start_offset().min(future.high_watermark());
        future.maybe_increment_log_start_offset(log_start_offset)?;
        Ok(copied)
    }

    /// Copies what is left and puts the copy in the place of the log, if `may_swap` still says so and there is not too much. Appends and
    /// reads wait meanwhile.
    pub(crate) fn replace_with_future(
        &self,
        logs: &LogManager,
        max_bytes: usize,
        may_swap: impl FnOnce() -> bool,
    ) -> Result<bool, LogError> {
        let Some(future) = logs.future(&self.topic_partition) else {
            return Ok(false);
        };
        // What is durable before the lock is taken is not waited for under it.
        future.flush()?;
        let state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if !may_swap() {
            return Ok(false);
        }
        let current = self.log();
        while self.copy_to_future(&future, max_bytes)? > 0 {}
        if future.log_end_offset() != current.log_end_offset() {
            return Ok(false);
        }
        for (epoch, start_offset) in current.leader_epochs() {
            if future.latest_epoch().is_none_or(|latest| epoch > latest) {
                future.maybe_assign_epoch_start_offset(epoch, start_offset)?;
            }
        }
        self.log
            .store(logs.replace_current_with_future(&self.topic_partition)?);
        drop(state);
        self.waiters.on_state_change();
        Ok(true)
    }
}

/// The log start may lie within the first batch that there is: then the copy begins below it.
fn append_copied(future: &UnifiedLog, records: &Bytes) -> Result<usize, LogError> {
    let appended = match future.append_as_follower(records, i32::MAX) {
        Err(LogError::UnexpectedAppendOffset {
            first_offset,
            expected,
            ..
        }) if first_offset < expected && future.log_start_offset() == future.log_end_offset() => {
            future.truncate_fully_and_start_at(first_offset, None)?;
            future.append_as_follower(records, i32::MAX)?
        }
        outcome => outcome?,
    };
    Ok(appended.valid_bytes)
}

/// DeleteRecords.
impl Partition {
    /// Moves the log start offset (`deleteRecordsOnLeader`); -1 stands for the high watermark. Returns the offset that is meant and the low
    /// watermark.
    pub(crate) fn delete_records_on_leader(&self, offset: i64) -> Result<(i64, i64), ReplicaError> {
        let state = self.state();
        self.check_leads(&state)?;
        if !self.log.load().config().is_deleting() {
            let partition = self.topic_partition.to_string();
            return Err(ReplicaError::PolicyViolation { partition });
        }
        let offset = match offset {
            DELETE_UP_TO_HIGH_WATERMARK => self.log.load().high_watermark(),
            offset => offset,
        };
        if offset < 0 {
            return Err(self.out_of_range(offset));
        }
        self.log.load().maybe_increment_log_start_offset(offset)?;
        Ok((offset, self.low_watermark()))
    }

    /// The smallest log start offset of the replicas on live brokers.
    pub(crate) fn low_watermark_if_leader(&self) -> Result<i64, ReplicaError> {
        let state = self.state();
        self.check_leads(&state)?;
        Ok(self.low_watermark())
    }

    fn low_watermark(&self) -> i64 {
        let image = self.context.metadata.load();
        let is_alive = |follower: &&FollowerState| image.cluster.alive_broker(follower.replica_id).is_some();
        let followers = self.followers();
        let starts = followers
            .iter()
            .filter(is_alive)
            .map(|follower| follower.log_start_offset);
        starts.fold(self.log.load().log_start_offset(), i64::min)
    }
}

/// Reads.
impl Partition {
    /// A fetch by a consumer or a follower. `is_first_read`: a fetch that waited reads again without telling its position again.
    pub(crate) fn fetch_records(
        &self,
        params: &FetchParams,
        request: &FetchPartition,
        max_bytes: usize,
        min_one_message: bool,
        is_first_read: bool,
        now_ms: i64,
    ) -> Result<ReadInfo, ReplicaError> {
        let state = self.state();
        let only_leader = params.is_from_follower() || !params.allow_follower;
        self.check_access(&state, request.current_leader_epoch, only_leader)?;
        if params.is_from_follower() {
            self.check_is_replica(&state, params.replica_id, request)?;
        }
        let leader_end_offset = self.log.load().log_end_offset();
        let info = self.read(request, params.isolation, max_bytes, min_one_message)?;
        if params.is_from_follower() && is_first_read && info.diverging_epoch.is_none() {
            let position = info.data.fetch_offset_metadata;
            let moved =
                self.record_follower_fetch(&state, params, request, position, leader_end_offset, now_ms)?;
            drop(state);
            if let Some(high_watermark) = moved {
                self.announce_high_watermark(Visible::Unknown, high_watermark);
            }
        }
        Ok(info)
    }

    fn check_is_replica(
        &self,
        state: &PartitionState,
        replica_id: i32,
        request: &FetchPartition,
    ) -> Result<(), ReplicaError> {
        // The leader itself is none of its followers.
        if state.replicas.contains(&replica_id) && replica_id != self.context.node_id {
            return Ok(());
        }
        // With an epoch the follower is ahead of us (a reassignment that we have not heard of): it must come again.
        Err(match request.current_leader_epoch {
            Some(requested) => ReplicaError::UnknownLeaderEpoch {
                requested,
                current: state.leader_epoch,
            },
            None => self.not_leader(),
        })
    }

    /// Returns the new high watermark if it moved.
    fn record_follower_fetch(
        &self,
        state: &PartitionState,
        params: &FetchParams,
        request: &FetchPartition,
        position: LogOffsetMetadata,
        leader_end_offset: i64,
        now_ms: i64,
    ) -> Result<Option<i64>, ReplicaError> {
        let registered = self
            .context
            .metadata
            .load()
            .cluster
            .broker_epoch(params.replica_id);
        if params.replica_epoch != -1 && registered.is_some_and(|epoch| epoch > params.replica_epoch) {
            // A fetch of an incarnation that is gone says nothing of the one that is registered now (KIP-903).
            return Err(self.not_leader());
        }
        let mut followers = self.followers();
        let follower = followers
            .iter_mut()
            .find(|follower| follower.replica_id == params.replica_id);
        let Some(follower) = follower else { return Ok(None) };
        let before = follower.log_end_offset.message_offset;
        let starts_later = follower.log_start_offset < request.log_start_offset;
        follower.record_fetch(
            position,
            request.log_start_offset,
            now_ms,
            leader_end_offset,
            params.replica_epoch,
        );
        drop(followers);
        if starts_later {
            self.waiters.on_low_watermark(self.low_watermark());
        }
        if before == position.message_offset {
            return Ok(None);
        }
        Ok(self.maybe_increment_high_watermark(state, now_ms))
    }

    fn read(
        &self,
        request: &FetchPartition,
        isolation: FetchIsolation,
        max_bytes: usize,
        min_one_message: bool,
    ) -> Result<ReadInfo, ReplicaError> {
        // Before the read: what is appended meanwhile must not make a follower look as if it lagged.
        let mut info = ReadInfo {
            data: FetchDataInfo::empty(LogOffsetMetadata::offset_only(request.fetch_offset)),
            diverging_epoch: None,
            high_watermark: self.log.load().high_watermark(),
            last_stable_offset: self.log.load().last_stable_offset(),
            log_start_offset: self.log.load().log_start_offset(),
            is_behind: false,
        };
        if let Some(last_fetched_epoch) = request.last_fetched_epoch {
            info.diverging_epoch =
                self.diverging_epoch(request, last_fetched_epoch, info.log_start_offset)?;
            if info.diverging_epoch.is_some() {
                return Ok(info);
            }
        }
        info.data = self
            .log
            .load()
            .read(request.fetch_offset, max_bytes, isolation, min_one_message)?;
        if info.data.first_entry_incomplete {
            // Clients make progress by the first-message rule alone; a part of a batch is of no use to them.
            info.data.slices.clear();
        }
        let end = match isolation {
            FetchIsolation::LogEnd => self.log.load().log_end_offset_metadata(),
            FetchIsolation::HighWatermark => self.log.load().high_watermark_metadata(),
            FetchIsolation::TxnCommitted => self.log.load().last_stable_offset_metadata(),
        };
        let start = &info.data.fetch_offset_metadata;
        info.is_behind = start.message_offset < end.message_offset
            && !start.is_offset_only()
            && !end.is_offset_only()
            && start.on_older_segment(&end);
        Ok(info)
    }

    /// KIP-595's truncation on fetch: where the fetcher's log left ours, if it did.
    fn diverging_epoch(
        &self,
        request: &FetchPartition,
        last_fetched_epoch: i32,
        log_start_offset: i64,
    ) -> Result<Option<DivergingEpoch>, ReplicaError> {
        let known = self.log.load().end_offset_for_epoch(last_fetched_epoch);
        let Some((epoch, end_offset)) = known.filter(|(epoch, end)| *epoch >= 0 && *end >= 0) else {
            return Err(self.out_of_range(request.fetch_offset));
        };
        if request.fetch_offset < log_start_offset {
            return Err(self.out_of_range(request.fetch_offset));
        }
        let diverges = epoch < last_fetched_epoch || end_offset < request.fetch_offset;
        Ok(diverges.then_some(DivergingEpoch { epoch, end_offset }))
    }

    fn out_of_range(&self, offset: i64) -> ReplicaError {
        ReplicaError::OffsetOutOfRange {
            partition: self.topic_partition.to_string(),
            offset,
        }
    }

    /// `None`: there is no such offset. `isolation` is `None` for followers and the debugging consumer.
    pub(crate) fn list_offset(
        &self,
        spec: OffsetSpec,
        isolation: Option<FetchIsolation>,
        current_leader_epoch: Option<i32>,
        only_leader: bool,
    ) -> Result<Option<OffsetResult>, ReplicaError> {
        let state = self.state();
        self.check_access(&state, current_leader_epoch, only_leader)?;
        let last_fetchable_offset = match isolation {
            Some(FetchIsolation::TxnCommitted) => self.log.load().last_stable_offset(),
            Some(FetchIsolation::HighWatermark) => self.log.load().high_watermark(),
            Some(FetchIsolation::LogEnd) | None => self.log.load().log_end_offset(),
        };
        // A new leader's high watermark may lag behind what clients saw from the one before: better no answer than one that goes back.
        let epoch_start = state.leader_epoch_start_offset.filter(|_| isolation.is_some());
        let lags = epoch_start.is_some_and(|start| start > self.log.load().high_watermark());
        let not_available = || ReplicaError::OffsetNotAvailable {
            partition: self.topic_partition.to_string(),
        };

        let found = match spec {
            OffsetSpec::Latest if lags => return Err(not_available()),
            OffsetSpec::Latest => {
                return Ok(Some(OffsetResult {
                    timestamp: -1,
                    offset: last_fetchable_offset,
                    leader_epoch: Some(state.leader_epoch),
                }));
            }
            OffsetSpec::Earliest | OffsetSpec::EarliestLocal => return Ok(Some(self.earliest_offset())),
            // Nothing is tiered.
            OffsetSpec::LatestTiered | OffsetSpec::EarliestPendingUpload => {
                return Ok(Some(OffsetResult {
                    timestamp: -1,
                    offset: -1,
                    leader_epoch: None,
                }));
            }
            OffsetSpec::MaxTimestamp => self.log.load().offset_of_max_timestamp()?,
            OffsetSpec::Timestamp(timestamp) => self.log.load().offset_for_timestamp(timestamp)?,
        };
        match found.filter(|found| found.offset < last_fetchable_offset) {
            Some(found) => Ok(Some(OffsetResult {
                timestamp: found.timestamp,
                offset: found.offset,
                leader_epoch: found.leader_epoch,
            })),
            None if lags => Err(not_available()),
            None => Ok(None),
        }
    }

    fn earliest_offset(&self) -> OffsetResult {
        let offset = self.log.load().log_start_offset();
        // The epoch is known only if the first entry of the cache reaches down to the log start (older formats have none).
        let first = self.log.load().leader_epochs().first().copied();
        let leader_epoch = first
            .filter(|(_, start)| *start <= offset)
            .map(|(epoch, _)| epoch);
        OffsetResult {
            timestamp: -1,
            offset,
            leader_epoch,
        }
    }

    /// (epoch, end offset); `None` where the epoch is not known.
    pub(crate) fn last_offset_for_leader_epoch(
        &self,
        current_leader_epoch: Option<i32>,
        leader_epoch: i32,
    ) -> Result<Option<(i32, i64)>, ReplicaError> {
        let state = self.state();
        self.check_access(&state, current_leader_epoch, true)?;
        Ok(self.log.load().end_offset_for_epoch(leader_epoch))
    }
}
