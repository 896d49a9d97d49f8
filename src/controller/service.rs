//! The service around the controller's state machine: requests in, records to raft, replies when they are committed.
//!
//! One task owns the shard. It takes raft's calls before requests, one event a turn. A request is decided on the newest
//! state, its records are replayed and handed to raft at once, its reply waits until they are committed; a request
//! without records waits too if what it saw is not committed yet. When the leadership ends, everything that waits is
//! answered NOT_CONTROLLER and the state returns to the last committed one.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use super::configs::ResourceAlteration;
use super::context::ControllerContext;
use super::shard::{Effect, Inputs, Outcome, Shard, ShardConfig};
use super::worker::{RaftEvent, Worker, WorkerConfig};
use crate::config::KafkaConfig;
use crate::io::clock::Clock;
use crate::metadata::ControllerChannel;
use crate::metadata::broker_lifecycle_manager::ChannelFuture;
use crate::protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
    BrokerRegistrationResponse, ControllerRegistrationRequest, ControllerRegistrationResponse,
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use crate::protocol::{ApiError, ErrorCode};
use crate::raft::{
    CommittedBatch, LeaderAndEpoch, RaftClient, RaftError, RaftListener, SnapshotContents, VersionedRecord,
};

/// Requests that may wait for the task; more wait in their callers.
const REQUESTS_MAX: usize = 1024;
/// Calls of raft that may wait for the task; raft waits when there are more.
const RAFT_EVENTS_MAX: usize = 1024;

/// What the controller needs of raft.
pub trait ControllerLog: Send + Sync + 'static {
    /// Hands over one atomic batch; the offset of its last record. Does not wait for the disk.
    fn append(&self, epoch: i32, records: Vec<VersionedRecord>) -> Result<i64, RaftError>;
    /// The end of what is written; what was appended may lie behind it.
    fn log_end_offset(&self) -> i64;
    fn kraft_version(&self) -> i16;
    fn resign(&self, epoch: i32);
}

impl ControllerLog for RaftClient {
    fn append(&self, epoch: i32, records: Vec<VersionedRecord>) -> Result<i64, RaftError> {
        RaftClient::append(self, epoch, records)
    }

    fn log_end_offset(&self) -> i64 {
        RaftClient::log_end_offset(self)
    }

    fn kraft_version(&self) -> i16 {
        RaftClient::kraft_version(self)
    }

    fn resign(&self, epoch: i32) {
        RaftClient::resign(self, epoch);
    }
}

/// What the controller is built of.
pub struct ControllerServiceConfig {
    pub config: Arc<KafkaConfig>,
    pub cluster_id: String,
    /// Data records of the bootstrap checkpoint, for an empty log (FeatureLevel and SCRAM records).
    pub bootstrap_records: Vec<VersionedRecord>,
    /// The incarnation of the broker in this process, if there is one.
    pub own_broker_incarnation: Option<Uuid>,
    /// This controller's own registration, written when it becomes active and the log has another or none.
    pub own_registration: Option<ControllerRegistrationRequest>,
    /// Must make the node end; called once with the reason.
    pub on_fatal: Box<dyn Fn(&str) + Send + Sync>,
}

/// The controller of this node, active or not; clones are handles to the same task. Every call is answered when its records
/// are committed; NOT_CONTROLLER when another node is active.
#[derive(Clone)]
pub struct ControllerService {
    requests: mpsc::Sender<Operation>,
    clock: Arc<dyn Clock>,
    contacts: Arc<Contacts>,
    active_epoch: watch::Receiver<Option<i32>>,
}

/// When brokers were heard of, for the task to take: a heartbeat that waits behind other requests is one all the same.
#[derive(Debug, Default)]
pub(super) struct Contacts(Mutex<HashMap<(i32, i64), i64>>);

impl Contacts {
    /// Of brokers and their epochs, which nobody has checked yet.
    const UNTAKEN_MAX: usize = 10_000;

    fn note(&self, broker_id: i32, broker_epoch: i64, now_ms: i64) {
        let mut contacts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if contacts.len() < Self::UNTAKEN_MAX {
            contacts.insert((broker_id, broker_epoch), now_ms);
        }
    }

    pub fn take(&self) -> HashMap<(i32, i64), i64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request for the task, its type erased: `run` gets the state, or why it will not be decided.
pub(super) struct Operation {
    pub deadline_ms: Option<i64>,
    pub run: RunOperation,
}

type RunOperation = Box<dyn FnOnce(Result<(&mut Shard, &mut Inputs<'_>), ApiError>) -> Decided + Send>;

/// Called with the outcome of the commit.
pub(super) type Complete = Box<dyn FnOnce(Result<(), ApiError>) + Send>;

/// A decision, its response inside of `complete`.
pub(super) struct Decided {
    pub records: Vec<VersionedRecord>,
    pub is_atomic: bool,
    pub effects: Vec<Effect>,
    /// `None`: answered already.
    pub complete: Option<Complete>,
}

impl Decided {
    fn answered() -> Self {
        Self {
            records: Vec::new(),
            is_atomic: true,
            effects: Vec::new(),
            complete: None,
        }
    }

    /// Of an outcome that nobody waits for.
    pub fn unattended(outcome: Outcome<()>) -> Self {
        Self {
            records: outcome.records,
            is_atomic: outcome.is_atomic,
            effects: outcome.effects,
            complete: None,
        }
    }
}

impl ControllerService {
    /// Starts the task on `runtime` and registers with raft.
    pub fn start(
        config: ControllerServiceConfig,
        raft: RaftClient,
        clock: Arc<dyn Clock>,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (service, listener, task) = Self::build(config, Arc::new(raft.clone()), clock);
        runtime.spawn(task);
        raft.register(listener);
        service
    }

    /// The service, what raft has to call, and the task that has to run.
    pub fn build(
        config: ControllerServiceConfig,
        log: Arc<dyn ControllerLog>,
        clock: Arc<dyn Clock>,
    ) -> (
        Self,
        Box<dyn RaftListener>,
        impl Future<Output = ()> + Send + 'static,
    ) {
        let (requests, request_queue) = mpsc::channel(REQUESTS_MAX);
        let (events, event_queue) = mpsc::channel(RAFT_EVENTS_MAX);
        let (active_sender, active_epoch) = watch::channel(None);
        let shard = Shard::new(ShardConfig {
            config: config.config,
            cluster_id: config.cluster_id,
            own_broker_incarnation: config.own_broker_incarnation,
        });
        let contacts = Arc::new(Contacts::default());
        let worker = Worker::new(
            shard,
            WorkerConfig {
                bootstrap_records: config.bootstrap_records,
                own_registration: config.own_registration,
                on_fatal: config.on_fatal,
            },
            log,
            clock.clone(),
            contacts.clone(),
            active_sender,
        );
        let service = Self {
            requests,
            clock,
            contacts,
            active_epoch,
        };
        let task = worker.run(event_queue, request_queue);
        (service, Box::new(Listener { events }), task)
    }

    /// Whether this node is the active controller.
    pub fn is_active(&self) -> bool {
        self.active_epoch.borrow().is_some()
    }

    /// The epoch in which this node is the active controller, to wait on.
    pub fn active_epoch(&self) -> watch::Receiver<Option<i32>> {
        self.active_epoch.clone()
    }

    /// Hands a decision to the task and waits for its commit.
    async fn submit<T, Decide>(&self, context: &ControllerContext, decide: Decide) -> Result<T, ApiError>
    where
        T: Send + 'static,
        Decide: FnOnce(&mut Shard, &mut Inputs<'_>) -> Result<Outcome<T>, ApiError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel::<Result<T, ApiError>>();
        let run: RunOperation = Box::new(move |state| {
            let decided = state.and_then(|(shard, inputs)| decide(shard, inputs));
            match decided {
                Ok(outcome) => Decided {
                    records: outcome.records,
                    is_atomic: outcome.is_atomic,
                    effects: outcome.effects,
                    complete: Some(Box::new(move |committed| {
                        // Nobody listens when the caller's connection is gone.
                        let _ = reply.send(committed.map(|()| outcome.response));
                    })),
                },
                Err(error) => {
                    let _ = reply.send(Err(error));
                    Decided::answered()
                }
            }
        });
        let operation = Operation {
            deadline_ms: context.deadline_ms,
            run,
        };
        let not_controller = || ApiError::from(ErrorCode::NotController);
        self.requests
            .send(operation)
            .await
            .map_err(|_| not_controller())?;
        answer.await.unwrap_or_else(|_| Err(not_controller()))
    }

    /// Duplicates, `__cluster_metadata` and all of Kafka's other rules included; authorization is the caller's.
    pub async fn create_topics(
        &self,
        context: &ControllerContext,
        request: CreateTopicsRequest,
    ) -> Result<CreateTopicsResponse, ApiError> {
        self.submit(context, move |shard, inputs| {
            shard.create_topics(inputs, &request)
        })
        .await
    }

    /// By name or by id; duplicates and `delete.topic.enable` included.
    pub async fn delete_topics(
        &self,
        context: &ControllerContext,
        request: DeleteTopicsRequest,
    ) -> Result<DeleteTopicsResponse, ApiError> {
        let caller = context.clone();
        self.submit(context, move |shard, _| shard.delete_topics(&caller, &request))
            .await
    }

    pub async fn create_partitions(
        &self,
        context: &ControllerContext,
        request: CreatePartitionsRequest,
    ) -> Result<CreatePartitionsResponse, ApiError> {
        self.submit(context, move |shard, inputs| {
            shard.create_partitions(inputs, &request)
        })
        .await
    }

    pub async fn register_broker(
        &self,
        context: &ControllerContext,
        request: BrokerRegistrationRequest,
    ) -> Result<BrokerRegistrationResponse, ApiError> {
        let caller = context.clone();
        self.submit(context, move |shard, inputs| {
            let outcome = shard.register_broker(inputs, &caller, &request)?;
            tracing::info!(
                broker_id = request.broker_id.0,
                broker_epoch = outcome.response.broker_epoch,
                records = outcome.records.len(),
                "controller: registering a broker"
            );
            Ok(outcome)
        })
        .await
    }

    pub async fn broker_heartbeat(
        &self,
        context: &ControllerContext,
        request: BrokerHeartbeatRequest,
    ) -> Result<BrokerHeartbeatResponse, ApiError> {
        // It counts however long the task is at other things, and whatever becomes of the request.
        let now_ms = self.clock.monotonic_ms();
        self.contacts
            .note(request.broker_id.0, request.broker_epoch, now_ms);
        self.submit(context, move |shard, _| shard.broker_heartbeat(&request))
            .await
    }

    pub async fn allocate_producer_ids(
        &self,
        context: &ControllerContext,
        request: AllocateProducerIdsRequest,
    ) -> Result<AllocateProducerIdsResponse, ApiError> {
        self.submit(context, move |shard, _| shard.allocate_producer_ids(&request))
            .await
    }

    pub async fn assign_replicas_to_dirs(
        &self,
        context: &ControllerContext,
        request: AssignReplicasToDirsRequest,
    ) -> Result<AssignReplicasToDirsResponse, ApiError> {
        self.submit(context, move |shard, _| shard.assign_replicas_to_dirs(&request))
            .await
    }

    pub async fn register_controller(
        &self,
        context: &ControllerContext,
        request: ControllerRegistrationRequest,
    ) -> Result<ControllerRegistrationResponse, ApiError> {
        self.submit(context, move |shard, _| shard.register_controller(&request))
            .await
    }

    /// All levels, or none: what is refused is said in the answer.
    pub async fn update_features(
        &self,
        context: &ControllerContext,
        request: UpdateFeaturesRequest,
    ) -> Result<UpdateFeaturesResponse, ApiError> {
        let api_version = context.api_version;
        self.submit(context, move |shard, inputs| {
            Ok(shard.update_features(inputs, api_version, &request))
        })
        .await
    }

    /// Each resource by itself; answers in the order asked.
    pub async fn alter_configs(
        &self,
        context: &ControllerContext,
        alterations: Vec<ResourceAlteration>,
        validate_only: bool,
    ) -> Result<Vec<Result<(), ApiError>>, ApiError> {
        self.submit(context, move |shard, _| {
            shard.alter_configs(&alterations, validate_only)
        })
        .await
    }
}

/// The broker of this process talks to it without a socket.
impl ControllerChannel for ControllerService {
    fn ready(&self) -> ChannelFuture<'_, ()> {
        let mut active_epoch = self.active_epoch.clone();
        Box::pin(async move {
            // An error means that the task has ended; the next request says so.
            let _ = active_epoch.wait_for(Option::is_some).await;
        })
    }

    fn register(
        &self,
        request: BrokerRegistrationRequest,
    ) -> ChannelFuture<'_, Result<BrokerRegistrationResponse, ApiError>> {
        Box::pin(async move {
            self.register_broker(&ControllerContext::internal(), request)
                .await
        })
    }

    fn heartbeat(
        &self,
        request: BrokerHeartbeatRequest,
    ) -> ChannelFuture<'_, Result<BrokerHeartbeatResponse, ApiError>> {
        Box::pin(async move {
            self.broker_heartbeat(&ControllerContext::internal(), request)
                .await
        })
    }
}

/// What raft calls.
struct Listener {
    events: mpsc::Sender<RaftEvent>,
}

impl Listener {
    fn hand_over(&self, event: RaftEvent) {
        match self.events.try_send(event) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            // Raft's own thread: it may wait.
            Err(mpsc::error::TrySendError::Full(event)) => {
                let _ = self.events.blocking_send(event);
            }
        }
    }
}

impl RaftListener for Listener {
    fn handle_commit(&mut self, batches: Vec<CommittedBatch>) {
        self.hand_over(RaftEvent::Commit(batches));
    }

    fn handle_load_snapshot(&mut self, snapshot: SnapshotContents) {
        self.hand_over(RaftEvent::Snapshot(snapshot));
    }

    fn handle_leader_change(&mut self, leader: LeaderAndEpoch) {
        self.hand_over(RaftEvent::LeaderChange(leader));
    }

    fn handle_fatal_error(&mut self, error: &RaftError) {
        self.hand_over(RaftEvent::Fatal(error.to_string()));
    }

    fn begin_shutdown(&mut self) {
        self.hand_over(RaftEvent::Shutdown);
    }
}

#[cfg(test)]
#[path = "service_test.rs"]
mod service_test;
