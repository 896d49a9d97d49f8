//! The partitions that this node coordinates, a task for each.
//!
//! States of a partition: absent (not the coordinator) -> loading -> active -> absent; failed while it cannot be loaded, or
//! after a panic, until it is loaded again. Only an active one takes operations.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use super::context::{Answer, ContextConfig, Event, PartitionContext};
use super::loader::{LoadError, Loaded, load};
use super::log::{PartitionLog, error_code};
use super::shard::{CoordinatorShard, OperationContext, Outcome, Token, TopicChanges, TransactionEnd};
use super::without_panic::without_panic;
use crate::io::clock::Clock;
use crate::log::TopicPartition;
use crate::metadata::{LocalReplicaChanges, MetadataCache, MetadataImage};
use crate::protocol::{ApiError, ErrorCode};
use crate::replica::{PartitionListener, Pass};

#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// The internal topic.
    pub topic: Arc<str>,
    pub context: ContextConfig,
    pub load_buffer_bytes: usize,
    /// Partitions that load at one time.
    pub loads_at_once: usize,
}

/// Operations that wait for a partition's task; beyond that, who asks waits.
const QUEUE_LENGTH: usize = 1024;
/// Operations that a task takes before it appends what they wrote.
const OPERATIONS_A_TURN: usize = 256;

/// After this long a log that could not be read is tried again: a full disk may have room by then.
const LOAD_RETRY: Duration = Duration::from_secs(1);
/// A load that panics is tried again ever more seldom: it costs all of the log each time.
const LOAD_RETRY_MAX: Duration = Duration::from_secs(60);

const LOADING: u8 = 0;
const ACTIVE: u8 = 1;
const FAILED: u8 = 2;

/// What the runtime and the partition's listener share with its task.
struct Shared {
    leader_epoch: AtomicI32,
    state: AtomicU8,
    stopped: AtomicBool,
    high_watermark: AtomicI64,
    /// The task looks at the high watermark before it waits again: it need not be told of what its own appends did to it.
    is_awake: AtomicBool,
    /// What the task has not heard of the metadata yet.
    metadata: Mutex<Option<(Arc<MetadataImage>, TopicChanges)>>,
    /// Rung when the high watermark or the metadata moved, or the task shall stop.
    bell: Notify,
}

impl Shared {
    fn metadata(&self) -> MutexGuard<'_, Option<(Arc<MetadataImage>, TopicChanges)>> {
        self.metadata.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

impl PartitionListener for Shared {
    fn on_high_watermark_updated(&self, _topic_partition: &TopicPartition, high_watermark: i64) {
        self.high_watermark.fetch_max(high_watermark, Ordering::SeqCst);
        if !self.is_awake.load(Ordering::SeqCst) {
            self.bell.notify_one();
        }
    }
    // Leadership comes and goes with the metadata, not with the replica.
    fn on_failed(&self, _topic_partition: &TopicPartition) {}
    fn on_deleted(&self, _topic_partition: &TopicPartition) {}
    fn on_become_follower(&self, _topic_partition: &TopicPartition) {}
}

struct PartitionHandle<S: CoordinatorShard> {
    shared: Arc<Shared>,
    events: mpsc::Sender<Event<S>>,
}

impl<S: CoordinatorShard> Clone for PartitionHandle<S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            events: self.events.clone(),
        }
    }
}

impl<S: CoordinatorShard> PartitionHandle<S> {
    fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.bell.notify_one();
    }

    fn check_active(&self) -> Result<(), ApiError> {
        match self.shared.state.load(Ordering::Acquire) {
            ACTIVE => Ok(()),
            LOADING => Err(ErrorCode::CoordinatorLoadInProgress.into()),
            _ => Err(ErrorCode::NotCoordinator.into()),
        }
    }
}

/// What all tasks of a runtime use.
struct Common<S> {
    config: RuntimeConfig,
    log: Arc<dyn PartitionLog>,
    clock: Arc<dyn Clock>,
    metadata: MetadataCache,
    new_shard: Box<dyn Fn() -> S + Send + Sync>,
    loads: Semaphore,
}

pub struct CoordinatorRuntime<S: CoordinatorShard> {
    common: Arc<Common<S>>,
    executor: Handle,
    partitions: Mutex<BTreeMap<i32, PartitionHandle<S>>>,
    next_token: AtomicU64,
}

impl<S: CoordinatorShard> CoordinatorRuntime<S> {
    /// Tasks run on `executor`; nothing runs before the first election.
    pub fn new(
        config: RuntimeConfig,
        log: Arc<dyn PartitionLog>,
        clock: Arc<dyn Clock>,
        metadata: MetadataCache,
        executor: Handle,
        new_shard: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        let loads = Semaphore::new(config.loads_at_once.max(1));
        Self {
            common: Arc::new(Common {
                config,
                log,
                clock,
                metadata,
                new_shard: Box::new(new_shard),
                loads,
            }),
            executor,
            partitions: Mutex::new(BTreeMap::new()),
            next_token: AtomicU64::new(0),
        }
    }

    fn partitions(&self) -> MutexGuard<'_, BTreeMap<i32, PartitionHandle<S>>> {
        // No code of ours panics while it holds the lock; a map of handles has no state in between either.
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partition(&self, partition: i32) -> Result<PartitionHandle<S>, ApiError> {
        let handle = self.partitions().get(&partition).cloned();
        let handle = handle.ok_or(ErrorCode::NotCoordinator)?;
        handle.check_active()?;
        Ok(handle)
    }

    /// This node leads the partition: load it, unless that is done already.
    pub fn elect(&self, partition: i32, leader_epoch: i32) {
        let mut partitions = self.partitions();
        if let Some(handle) = partitions.get(&partition) {
            let previous = handle
                .shared
                .leader_epoch
                .fetch_max(leader_epoch, Ordering::AcqRel);
            if previous < leader_epoch {
                // One that could not be loaded is loaded again at once.
                handle.shared.bell.notify_one();
            }
            return;
        }
        let shared = Arc::new(Shared {
            leader_epoch: AtomicI32::new(leader_epoch),
            state: AtomicU8::new(LOADING),
            stopped: AtomicBool::new(false),
            high_watermark: AtomicI64::new(-1),
            is_awake: AtomicBool::new(false),
            metadata: Mutex::new(None),
            bell: Notify::new(),
        });
        let (events, receiver) = mpsc::channel(QUEUE_LENGTH);
        let topic_partition = TopicPartition {
            topic: self.common.config.topic.clone(),
            partition,
        };
        self.executor.spawn(run(
            self.common.clone(),
            topic_partition,
            shared.clone(),
            receiver,
        ));
        partitions.insert(partition, PartitionHandle { shared, events });
    }

    /// Another node leads the partition, or none (`None`: it is gone).
    pub fn resign(&self, partition: i32, leader_epoch: Option<i32>) {
        let mut partitions = self.partitions();
        let Some(handle) = partitions.get(&partition) else {
            return;
        };
        let current = handle.shared.leader_epoch.load(Ordering::Acquire);
        if leader_epoch.is_none_or(|epoch| current < epoch) {
            handle.stop();
            partitions.remove(&partition);
        }
    }

    /// Follows what the metadata says of the topic's partitions. One that is gone comes first: its topic may be there anew.
    pub fn on_local_changes(&self, changes: &LocalReplicaChanges) {
        let topic = &self.common.config.topic;
        for (_, _, partition) in changes.deletes.iter().filter(|(name, ..)| name == topic) {
            self.resign(*partition, None);
        }
        for leader in changes.elected_leaders.iter().filter(|info| info.topic == *topic) {
            self.elect(leader.partition, leader.registration.leader_epoch);
        }
        for follower in changes.followers.iter().filter(|info| info.topic == *topic) {
            self.resign(follower.partition, Some(follower.registration.leader_epoch));
        }
    }

    /// With which epoch this node leads the partition; `None`: it does not.
    pub fn leader_epoch(&self, partition: i32) -> Option<i32> {
        let partitions = self.partitions();
        let handle = partitions.get(&partition)?;
        Some(handle.shared.leader_epoch.load(Ordering::Acquire))
    }

    /// Partitions that are coordinated here, loading ones too.
    pub fn partition_ids(&self) -> Vec<i32> {
        self.partitions().keys().copied().collect()
    }

    /// Tells all partitions; each hears of it before its next operation.
    pub fn on_metadata_update(&self, image: &Arc<MetadataImage>, changes: &TopicChanges) {
        for handle in self.partitions().values() {
            let mut metadata = handle.shared.metadata();
            let mut all = metadata.take().map(|(_, changes)| changes).unwrap_or_default();
            all.merge(changes.clone());
            *metadata = Some((image.clone(), all));
            drop(metadata);
            handle.shared.bell.notify_one();
        }
    }

    pub fn shutdown(&self) {
        for (_, handle) in std::mem::take(&mut *self.partitions()) {
            handle.stop();
        }
    }

    async fn send(&self, partition: i32, event: Event<S>) -> Result<(), ApiError> {
        let handle = self.partition(partition)?;
        let sent = handle.events.send(event).await;
        sent.map_err(|_| ErrorCode::NotCoordinator.into())
    }

    /// Runs an operation; its response comes once its records are committed.
    pub async fn write<T: Send + 'static>(
        &self,
        partition: i32,
        operation: impl FnOnce(&mut S, &OperationContext) -> Result<Outcome<S, T>, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (sender, receiver) = oneshot::channel();
        let event = Event::Write {
            parked: None,
            operation: Box::new(move |shard, context| finish(operation(shard, context), sender)),
        };
        self.send(partition, event).await?;
        receiver
            .await
            .unwrap_or_else(|_| Err(ErrorCode::NotCoordinator.into()))
    }

    /// Runs an operation that is answered by a parked reply, whenever the shard gives it. An error comes only if there
    /// has been no reply.
    pub async fn write_parked(
        &self,
        partition: i32,
        operation: impl FnOnce(&mut S, &OperationContext, Token) -> Result<Outcome<S, ()>, ApiError>
        + Send
        + 'static,
    ) -> Result<S::Reply, ApiError> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let (parked, mut reply) = oneshot::channel();
        let (sender, mut written) = oneshot::channel();
        let event = Event::Write {
            parked: Some((token, parked)),
            operation: Box::new(move |shard, context| finish(operation(shard, context, token), sender)),
        };
        self.send(partition, event).await?;
        let not_coordinator = || ErrorCode::NotCoordinator.into();
        let failed = tokio::select! {
            biased;
            reply = &mut reply => match reply {
                Ok(reply) => return Ok(reply),
                // It will not come any more: the operation has failed, and says why.
                Err(_) => written.await,
            },
            written = &mut written => match written {
                Ok(Ok(())) => return reply.await.map_err(|_| not_coordinator()),
                failed => failed,
            },
        };
        match failed {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Err(not_coordinator()),
        }
    }

    /// Writes a transaction's marker; the shard hears of it. Comes back once the marker is committed.
    pub async fn end_transaction(&self, partition: i32, end: TransactionEnd) -> Result<(), ApiError> {
        let (sender, receiver) = oneshot::channel();
        let answer: Answer = Box::new(move |result| {
            let _ = sender.send(result.map_err(ApiError::from));
        });
        self.send(partition, Event::EndTransaction { end, answer })
            .await?;
        receiver
            .await
            .unwrap_or_else(|_| Err(ErrorCode::NotCoordinator.into()))
    }

    /// Reads what is committed.
    pub async fn read<T: Send + 'static>(
        &self,
        partition: i32,
        operation: impl FnOnce(&S, i64) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (sender, receiver) = oneshot::channel();
        let event = Event::Read(Box::new(move |shard, committed| {
            // Who asked may be gone.
            let _ = sender.send(operation(shard, committed));
        }));
        self.send(partition, event).await?;
        receiver.await.map_err(|_| ErrorCode::NotCoordinator.into())
    }
}

/// Ties an operation's response to the fate of its records.
fn finish<S: CoordinatorShard, T: Send + 'static>(
    result: Result<Outcome<S, T>, ApiError>,
    sender: oneshot::Sender<Result<T, ApiError>>,
) -> Outcome<S, Option<Answer>> {
    match result {
        Ok(outcome) => outcome.map(|response| {
            let answer: Answer = Box::new(move |result| {
                let _ = sender.send(result.map(|()| response).map_err(ApiError::from));
            });
            Some(answer)
        }),
        Err(error) => {
            let _ = sender.send(Err(error));
            Outcome::of(None)
        }
    }
}

/// Why a partition is served no longer.
enum Ended {
    Stopped,
    OutOfSync,
}

/// A partition's task. It ends when it is stopped, and by nothing else: nobody would start it again.
async fn run<S: CoordinatorShard>(
    common: Arc<Common<S>>,
    topic_partition: TopicPartition,
    shared: Arc<Shared>,
    mut events: mpsc::Receiver<Event<S>>,
) {
    let listener: Arc<dyn PartitionListener> = shared.clone();
    let mut told = None;
    let mut retry_of_panic = LOAD_RETRY;
    shared.state.store(LOADING, Ordering::Release);
    loop {
        let leader_epoch = shared.leader_epoch.load(Ordering::Acquire);
        let serving = load_and_serve(&common, &topic_partition, &shared, &listener, &mut events);
        let retry = match without_panic(serving).await {
            Some(Ok(Ended::Stopped)) => break,
            Some(Ok(Ended::OutOfSync)) => {
                told = None;
                shared.state.store(LOADING, Ordering::Release);
                continue;
            }
            Some(Err(error)) => {
                let (retry, message) = (retry_after(&error), error.to_string());
                // A disk that stays full is told of once, not every second for each partition.
                if told.as_ref() != Some(&message) {
                    tracing::error!(partition = %topic_partition, error = message, "the coordinator cannot be loaded");
                    told = Some(message);
                }
                retry
            }
            None => {
                told = None;
                if shared.state.load(Ordering::Acquire) == ACTIVE {
                    retry_of_panic = LOAD_RETRY;
                }
                let retry = retry_of_panic;
                retry_of_panic = (2 * retry).min(LOAD_RETRY_MAX);
                tracing::error!(
                    partition = %topic_partition,
                    "the coordinator panicked, which is a mistake of ours: what was under way is answered NOT_COORDINATOR, \
                     and the partition is loaded again in {} s", retry.as_secs()
                );
                Some(retry)
            }
        };
        shared.state.store(FAILED, Ordering::Release);
        match wait_to_load_again(retry, leader_epoch, &shared, &mut events).await {
            Again::Stopped => break,
            Again::Elected => shared.state.store(LOADING, Ordering::Release),
            // Failed until it has succeeded: who asks for all groups goes on without these.
            Again::Due => {}
        }
    }
    common.log.remove_listener(&topic_partition, &listener);
}

/// `None`: what the log says, it will say again; as in Kafka the next election tries.
fn retry_after(error: &LoadError) -> Option<Duration> {
    match error {
        // A damaged range, say.
        LoadError::Log(ErrorCode::UnknownServerError) => None,
        LoadError::Log(_) => Some(LOAD_RETRY),
        LoadError::Batch(_) | LoadError::Record { .. } | LoadError::NoKey(_) | LoadError::Stopped => None,
    }
}

/// Why a load is tried again, or not.
enum Again {
    Due,
    /// In another leader epoch.
    Elected,
    Stopped,
}

/// `leader_epoch`: in which the last try was begun. What was sent while the partition was active, and is too late, is dropped, which
/// tells those who wait for it.
async fn wait_to_load_again<S: CoordinatorShard>(
    retry: Option<Duration>,
    leader_epoch: i32,
    shared: &Shared,
    events: &mut mpsc::Receiver<Event<S>>,
) -> Again {
    let mut pause = pin!(async {
        match retry {
            Some(retry) => tokio::time::sleep(retry).await,
            None => std::future::pending().await,
        }
    });
    loop {
        if shared.is_stopped() {
            return Again::Stopped;
        }
        if shared.leader_epoch.load(Ordering::Acquire) != leader_epoch {
            return Again::Elected;
        }
        tokio::select! {
            () = &mut pause => return Again::Due,
            () = shared.bell.notified() => {}
            event = events.recv() => if event.is_none() { return Again::Stopped },
        }
    }
}

/// From the log to the partition's end, or to where it must be loaded again.
async fn load_and_serve<S: CoordinatorShard>(
    common: &Arc<Common<S>>,
    topic_partition: &TopicPartition,
    shared: &Arc<Shared>,
    listener: &Arc<dyn PartitionListener>,
    events: &mut mpsc::Receiver<Event<S>>,
) -> Result<Ended, LoadError> {
    listen(common.log.as_ref(), topic_partition, listener)?;
    let (shard, loaded) = match load_partition(common, topic_partition, shared).await {
        Err(LoadError::Stopped) => return Ok(Ended::Stopped),
        loaded => loaded?,
    };
    let mut context = PartitionContext::new(
        topic_partition.clone(),
        shared.leader_epoch.load(Ordering::Acquire),
        common.config.context.clone(),
        common.log.clone(),
        common.clock.clone(),
        shard,
        loaded.end_offset,
        loaded.high_watermark,
    );
    context.start(&common.metadata.image());
    shared.state.store(ACTIVE, Ordering::Release);
    let ended = serve(common, topic_partition, &mut context, shared, events).await;
    context.unload();
    match ended {
        Ended::OutOfSync if shared.is_stopped() => Ok(Ended::Stopped),
        ended => Ok(ended),
    }
}

/// Before the log is read: a high watermark that moves afterwards must be heard of. The log may be another than at the last
/// try, or not have been there then.
fn listen(
    log: &dyn PartitionLog,
    topic_partition: &TopicPartition,
    listener: &Arc<dyn PartitionListener>,
) -> Result<(), LoadError> {
    log.remove_listener(topic_partition, listener);
    if log.add_listener(topic_partition, listener.clone()) {
        return Ok(());
    }
    let offsets = log.leader_offsets(topic_partition);
    // It may have come in between.
    let error = offsets
        .err()
        .map_or(ErrorCode::NotLeaderOrFollower, |error| error_code(&error));
    Err(LoadError::Log(error))
}

async fn load_partition<S: CoordinatorShard>(
    common: &Arc<Common<S>>,
    topic_partition: &TopicPartition,
    shared: &Arc<Shared>,
) -> Result<(S, Loaded), LoadError> {
    let Ok(_permit) = common.loads.acquire().await else {
        return Err(LoadError::Stopped);
    };
    let (common, shared) = (common.clone(), shared.clone());
    let partition = topic_partition.clone();
    let loading = tokio::task::spawn_blocking(move || {
        let started_ms = common.clock.monotonic_ms();
        let mut shard = (common.new_shard)();
        let loaded = load(
            &mut shard,
            common.log.as_ref(),
            &partition,
            common.config.load_buffer_bytes,
            &|| shared.is_stopped(),
        )?;
        tracing::info!(
            %partition, records = loaded.records, end_offset = loaded.end_offset,
            ms = common.clock.monotonic_ms() - started_ms, "loaded a coordinator"
        );
        Ok((shard, loaded))
    });
    match loading.await {
        Ok(loaded) => loaded,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The executor is shutting down.
            Err(_) => Err(LoadError::Stopped),
        },
    }
}

fn hear_of_metadata<S: CoordinatorShard>(context: &mut PartitionContext<S>, shared: &Shared) {
    let heard = shared.metadata().take();
    if let Some((image, changes)) = heard {
        context.on_metadata_update(&image, &changes);
    }
}

/// A turn appends, which may hang: the control plane goes on without this thread then. It says when it gets on, for a long one is not
/// to be taken for a disk that hangs.
async fn through_the_gate<S: CoordinatorShard, T>(
    common: &Common<S>,
    topic_partition: &TopicPartition,
    turn: impl FnOnce(&dyn Fn()) -> T,
) -> T {
    let Some((gate, log_dir)) = common.log.gate(topic_partition) else {
        return turn(&|| {});
    };
    let pass = gate.pass(&log_dir, false).await;
    match &pass {
        Some(Pass::Pooled(_permit)) => tokio::task::block_in_place(|| turn(&|| {})),
        Some(Pass::Inline(inside)) => turn(&|| inside.gets_on()),
        None => turn(&|| {}),
    }
}

/// Serves until stopped, or out of sync with the log.
async fn serve<S: CoordinatorShard>(
    common: &Common<S>,
    topic_partition: &TopicPartition,
    context: &mut PartitionContext<S>,
    shared: &Shared,
    events: &mut mpsc::Receiver<Event<S>>,
) -> Ended {
    let high_watermark = || shared.high_watermark.load(Ordering::SeqCst);
    let mut arrived = Vec::new();
    loop {
        // Its log may be another's by now.
        if shared.is_stopped() {
            return Ended::Stopped;
        }
        let turn = |gets_on: &dyn Fn()| {
            hear_of_metadata(context, shared);
            // Events append, too: as the leader that this node is now.
            context.set_leader_epoch(shared.leader_epoch.load(Ordering::Acquire));
            for event in arrived.drain(..) {
                context.handle(event);
                gets_on();
            }
            context.on_high_watermark(high_watermark());
            context.on_time();
            gets_on();
            context.settle(&high_watermark)
        };
        shared.is_awake.store(true, Ordering::SeqCst);
        let settled = through_the_gate(common, topic_partition, turn).await;
        shared.is_awake.store(false, Ordering::SeqCst);
        if settled.is_err() {
            return Ended::OutOfSync;
        }
        if context.is_behind(high_watermark()) {
            continue;
        }
        let wait = context.next_deadline_ms().map(|deadline| {
            let left = (deadline - common.clock.monotonic_ms()).max(0);
            Duration::from_millis(left as u64)
        });
        tokio::select! {
            biased;
            () = shared.bell.notified() => {}
            event = events.recv() => {
                let Some(event) = event else { return Ended::Stopped };
                arrived.push(event);
                // Others who are about to ask do so first: one write serves them all.
                tokio::task::yield_now().await;
                while arrived.len() < OPERATIONS_A_TURN
                    && let Ok(event) = events.try_recv()
                {
                    arrived.push(event);
                }
            }
            () = tokio::time::sleep(wait.unwrap_or(Duration::from_secs(3600))) => {}
        }
    }
}

#[cfg(test)]
#[path = "runtime_test.rs"]
mod runtime_test;
