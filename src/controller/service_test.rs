//! The service over a raft of memory: what is appended is committed when the test says so.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use uuid::Uuid;

use super::{ControllerLog, ControllerService, ControllerServiceConfig};
use crate::config::KafkaConfig;
use crate::controller::context::ControllerContext;
use crate::controller::shard::{Inputs, Outcome, Shard};
use crate::controller::test_support::*;
use crate::io::clock::SystemClock;
use crate::metadata::broker_lifecycle_manager::BrokerLifecycleManager;
use crate::metadata::{
    BrokerLifecycleConfig, BrokerState, MetadataCache, MetadataLoader, MetadataLoaderConfig,
};
use crate::protocol::ErrorCode;
use crate::protocol::messages::update_features_request::FeatureUpdateKey;
use crate::protocol::messages::{
    AllocateProducerIdsRequest, BrokerId, ControllerRegistrationRequest, CreateTopicsRequest,
    UpdateFeaturesRequest,
};
use crate::protocol::records::metadata::MetadataRecord;
use crate::raft::{CommittedBatch, LeaderAndEpoch, OffsetAndEpoch, RaftError, RaftListener, VersionedRecord};

const NODE: i32 = 1;

#[derive(Default)]
struct State {
    listeners: Vec<Box<dyn RaftListener>>,
    leader_epoch: Option<i32>,
    log_end_offset: i64,
    high_watermark: i64,
    pending: Vec<CommittedBatch>,
    /// Commit as soon as appended.
    is_eager: bool,
    resigned: Vec<i32>,
    appended: Vec<MetadataRecord>,
    refuse: Option<RaftError>,
    refused: usize,
}

/// Raft of one, in memory.
#[derive(Default, Clone)]
struct MemoryRaft {
    state: Arc<Mutex<State>>,
}

impl MemoryRaft {
    fn eager() -> Self {
        let raft = Self::default();
        raft.state.lock().unwrap().is_eager = true;
        raft
    }

    fn register(&self, listener: Box<dyn RaftListener>) {
        self.state.lock().unwrap().listeners.push(listener);
    }

    /// This node wins an election: a LeaderChange batch is written and committed, then the leadership begins.
    fn lead(&self, epoch: i32) {
        let mut state = self.state.lock().unwrap();
        state.leader_epoch = Some(epoch);
        let offset = state.log_end_offset;
        state.log_end_offset += 1;
        state.pending.push(CommittedBatch {
            base_offset: offset,
            last_offset: offset,
            epoch,
            append_timestamp: 1,
            size_in_bytes: 50,
            records: Vec::new(),
        });
        commit(&mut state, usize::MAX);
        change_leader(&mut state, Some(NODE), epoch);
    }

    /// Another node wins; what is not committed is cut off.
    fn lose(&self, epoch: i32) {
        let mut state = self.state.lock().unwrap();
        state.leader_epoch = None;
        state.pending.clear();
        state.log_end_offset = state.high_watermark;
        change_leader(&mut state, Some(9), epoch);
    }

    fn commit_all(&self) {
        commit(&mut self.state.lock().unwrap(), usize::MAX);
    }

    fn commit_one(&self) {
        commit(&mut self.state.lock().unwrap(), 1);
    }

    fn appended(&self) -> Vec<&'static str> {
        self.state
            .lock()
            .unwrap()
            .appended
            .iter()
            .map(|record| record.name())
            .collect()
    }

    fn pending(&self) -> usize {
        self.state.lock().unwrap().pending.len()
    }
}

fn commit(state: &mut State, count: usize) {
    let count = count.min(state.pending.len());
    let batches: Vec<_> = state.pending.drain(..count).collect();
    let Some(last) = batches.last() else { return };
    state.high_watermark = last.last_offset + 1;
    for listener in &mut state.listeners {
        listener.handle_commit(batches.clone());
    }
}

fn change_leader(state: &mut State, leader_id: Option<i32>, epoch: i32) {
    for listener in &mut state.listeners {
        listener.handle_leader_change(LeaderAndEpoch { leader_id, epoch });
    }
}

impl ControllerLog for MemoryRaft {
    fn append(&self, epoch: i32, records: Vec<VersionedRecord>) -> Result<i64, RaftError> {
        let mut state = self.state.lock().unwrap();
        if let Some(error) = state.refuse.clone() {
            state.refused += 1;
            return Err(error);
        }
        if state.leader_epoch != Some(epoch) {
            return Err(RaftError::NotLeader {
                epoch,
                current_epoch: epoch + 1,
            });
        }
        let base_offset = state.log_end_offset;
        let last_offset = base_offset + records.len() as i64 - 1;
        state.log_end_offset = last_offset + 1;
        let records: Vec<MetadataRecord> = records.into_iter().map(|(record, _)| record).collect();
        state.appended.extend(records.iter().cloned());
        state.pending.push(CommittedBatch {
            base_offset,
            last_offset,
            epoch,
            append_timestamp: 2,
            size_in_bytes: 100,
            records,
        });
        if state.is_eager {
            commit(&mut state, usize::MAX);
        }
        Ok(last_offset)
    }

    /// As late as it can be: nothing is written before it is committed.
    #[allow(clippy::misnamed_getters)]
    fn log_end_offset(&self) -> i64 {
        self.state.lock().unwrap().high_watermark
    }

    fn kraft_version(&self) -> i16 {
        1
    }

    fn resign(&self, epoch: i32) {
        self.state.lock().unwrap().resigned.push(epoch);
    }
}

impl crate::metadata::loader::SnapshotDoor for MemoryRaft {
    fn high_watermark(&self) -> Option<i64> {
        Some(self.state.lock().unwrap().high_watermark)
    }

    fn create_snapshot(
        &self,
        _: OffsetAndEpoch,
        _: i64,
        _: &mut dyn Iterator<Item = VersionedRecord>,
    ) -> Result<bool, RaftError> {
        Ok(true)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap()
}

fn start(raft: &MemoryRaft, runtime: &tokio::runtime::Runtime, config: &[(&str, &str)]) -> ControllerService {
    let levels = vec![
        feature_level("metadata.version", 33),
        feature_level("eligible.leader.replicas.version", 1),
    ];
    start_with(raft, runtime, config, levels, None)
}

fn start_with(
    raft: &MemoryRaft,
    runtime: &tokio::runtime::Runtime,
    config: &[(&str, &str)],
    bootstrap_records: Vec<VersionedRecord>,
    own_registration: Option<ControllerRegistrationRequest>,
) -> ControllerService {
    // No NoOp records unless a test asks for them.
    let mut settings = vec![("metadata.max.idle.interval.ms", "0")];
    settings.extend(config);
    let (service, listener, task) = ControllerService::build(
        ControllerServiceConfig {
            config: Arc::new(KafkaConfig::development_with(&settings).unwrap()),
            cluster_id: CLUSTER_ID.to_owned(),
            bootstrap_records,
            own_broker_incarnation: None,
            own_registration,
            on_fatal: Box::new(|reason| panic!("{reason}")),
        },
        Arc::new(raft.clone()),
        Arc::new(SystemClock::new()),
    );
    runtime.spawn(task);
    raft.register(listener);
    service
}

async fn active(service: &ControllerService) {
    let mut epoch = service.active_epoch();
    tokio::time::timeout(Duration::from_secs(20), epoch.wait_for(Option::is_some))
        .await
        .unwrap()
        .unwrap();
}

async fn inactive(service: &ControllerService) {
    let mut epoch = service.active_epoch();
    tokio::time::timeout(Duration::from_secs(20), epoch.wait_for(Option::is_none))
        .await
        .unwrap()
        .unwrap();
}

async fn until(condition: impl Fn() -> bool) {
    tokio::time::timeout(Duration::from_secs(20), async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

fn context() -> ControllerContext {
    ControllerContext::internal()
}

/// An unfenced broker.
async fn broker(service: &ControllerService) -> i64 {
    let response = service
        .register_broker(&context(), registration(1, 1))
        .await
        .unwrap();
    let heartbeat = crate::protocol::messages::BrokerHeartbeatRequest {
        broker_id: BrokerId(1),
        broker_epoch: response.broker_epoch,
        current_metadata_offset: i64::MAX,
        ..Default::default()
    };
    let answer = service.broker_heartbeat(&context(), heartbeat).await.unwrap();
    assert!(!answer.is_fenced);
    response.broker_epoch
}

fn create(name: &str) -> CreateTopicsRequest {
    create_request(vec![topic(name, 1, 1)])
}

#[test]
fn empty_log_is_bootstrapped_on_the_first_leadership_only() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        assert!(!service.is_active());
        raft.lead(1);
        active(&service).await;
        let bootstrap = [
            "BeginTransactionRecord",
            "FeatureLevelRecord",
            "FeatureLevelRecord",
            "ConfigRecord",
            "EndTransactionRecord",
        ];
        assert_eq!(raft.appended(), bootstrap);
        raft.lose(2);
        inactive(&service).await;
        raft.lead(3);
        active(&service).await;
        assert_eq!(raft.appended(), bootstrap);
    });
}

#[test]
fn level_that_brings_registrations_of_controllers_makes_the_leader_register() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let own = ControllerRegistrationRequest::default().with_controller_id(1);
    let level = feature_level("metadata.version", 14);
    let service = start_with(&raft, &runtime, &[], vec![level], Some(own));
    runtime.block_on(async {
        raft.lead(1);
        active(&service).await;
        let before = raft.appended().len();
        for (level, written) in [
            (14, vec!["FeatureLevelRecord"]),
            (15, vec!["FeatureLevelRecord", "RegisterControllerRecord"]),
        ] {
            let start = raft.appended().len();
            let update = FeatureUpdateKey::default()
                .with_feature(text("metadata.version"))
                .with_max_version_level(level)
                .with_upgrade_type(1);
            let request = UpdateFeaturesRequest::default().with_feature_updates(vec![update]);
            let response = service.update_features(&context(), request).await.unwrap();
            assert_eq!((response.error_code, response.error_message), (0, None));
            until(|| raft.appended().len() == start + written.len()).await;
            assert_eq!(raft.appended()[start..], written);
        }
        assert_eq!(raft.appended().len(), before + 3);
    });
}

#[test]
fn reply_waits_for_the_commit() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        raft.lead(1);
        broker(&service).await;
        raft.state.lock().unwrap().is_eager = false;
        let writer = service.clone();
        let first = tokio::spawn(async move { writer.create_topics(&context(), create("foo")).await });
        until(|| raft.pending() == 1).await;
        // No records, but what it saw is not committed: it waits too.
        let writer = service.clone();
        let second = tokio::spawn(async move { writer.create_topics(&context(), create("foo")).await });
        let writer = service.clone();
        let third = tokio::spawn(async move { writer.create_topics(&context(), create("bar")).await });
        until(|| raft.pending() == 2).await;
        assert!(!first.is_finished() && !second.is_finished());
        raft.commit_one();
        assert_eq!(first.await.unwrap().unwrap().topics[0].error_code, 0);
        let again = second.await.unwrap().unwrap();
        assert_eq!(again.topics[0].error_code, ErrorCode::TopicAlreadyExists.code());
        assert!(!third.is_finished());
        raft.commit_all();
        assert_eq!(third.await.unwrap().unwrap().topics[0].error_code, 0);
    });
}

#[test]
fn lost_leadership_answers_not_controller_and_forgets_what_was_not_committed() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        raft.lead(1);
        broker(&service).await;
        raft.state.lock().unwrap().is_eager = false;
        let writer = service.clone();
        let lost = tokio::spawn(async move { writer.create_topics(&context(), create("foo")).await });
        until(|| raft.pending() == 1).await;
        raft.lose(2);
        let error = lost.await.unwrap().unwrap_err();
        assert_eq!(error.code, ErrorCode::NotController);
        assert_eq!(
            error.message.unwrap(),
            "The active controller appears to be node 9."
        );
        let error = service
            .create_topics(&context(), create("foo"))
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::NotController);
        raft.state.lock().unwrap().is_eager = true;
        raft.lead(3);
        active(&service).await;
        let response = service.create_topics(&context(), create("foo")).await.unwrap();
        assert_eq!(response.topics[0].error_code, 0, "the first one never was");
    });
}

#[test]
fn refused_append_ends_the_leadership() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        raft.lead(1);
        broker(&service).await;
        raft.state.lock().unwrap().refuse = Some(RaftError::Log("x".to_owned()));
        let error = service
            .create_topics(&context(), create("foo"))
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::NotController);
        inactive(&service).await;
        assert_eq!(raft.state.lock().unwrap().resigned, [1]);
    });
}

/// Apache Kafka 4.4 gives the same answer, and its leadership up.
#[test]
fn append_above_the_size_of_a_batch_is_refused_and_the_leadership_goes_on() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        raft.lead(1);
        broker(&service).await;
        raft.state.lock().unwrap().refuse = Some(RaftError::RecordBatchTooLarge {
            size: 9_000_123,
            max: 8_388_608,
        });
        let error = service
            .create_topics(&context(), create("foo"))
            .await
            .unwrap_err();
        assert_eq!(error, ErrorCode::UnknownServerError.into());
        raft.state.lock().unwrap().refuse = None;
        let created = service.create_topics(&context(), create("foo")).await.unwrap();
        assert_eq!(created.topics[0].error_code, 0);
        assert!(raft.state.lock().unwrap().resigned.is_empty());
    });
}

fn registration_changes(raft: &MemoryRaft) -> usize {
    let appended = raft.appended();
    appended
        .iter()
        .filter(|name| **name == "BrokerRegistrationChangeRecord")
        .count()
}

#[test]
fn heartbeat_that_waits_past_its_deadline_behind_long_work_keeps_the_session() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[("broker.session.timeout.ms", "1000")]);
    runtime.block_on(async {
        raft.lead(1);
        let broker_epoch = broker(&service).await;
        let before = registration_changes(&raft);
        let session_is_over = std::time::Instant::now() + Duration::from_millis(1100);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = service.clone();
        let long_work = tokio::spawn(async move {
            let work = move |_: &mut Shard, _: &mut Inputs<'_>| {
                released.recv().ok();
                Ok(Outcome::of(Vec::new(), ()))
            };
            busy.submit(&context(), work).await
        });
        until(|| std::time::Instant::now() > session_is_over).await;
        let waiting = service.clone();
        let heartbeat = tokio::spawn(async move {
            let context = ControllerContext {
                deadline_ms: Some(-1),
                ..context()
            };
            let request = crate::protocol::messages::BrokerHeartbeatRequest {
                broker_id: BrokerId(1),
                broker_epoch,
                ..Default::default()
            };
            waiting.broker_heartbeat(&context, request).await
        });
        until(|| !service.contacts.0.lock().unwrap().is_empty()).await;
        drop(release);
        long_work.await.unwrap().unwrap();
        let error = heartbeat.await.unwrap().unwrap_err();
        assert_eq!(error.code, ErrorCode::RequestTimedOut);
        assert_eq!(registration_changes(&raft), before);
    });
}

#[test]
fn broker_that_cannot_be_fenced_on_a_full_disk_is_fenced_when_there_is_room() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[("broker.session.timeout.ms", "300")]);
    runtime.block_on(async {
        raft.lead(1);
        broker(&service).await;
        let before = registration_changes(&raft);
        raft.state.lock().unwrap().refuse = Some(RaftError::BufferFull { pending: 1 });
        until(|| raft.state.lock().unwrap().refused > 1).await;
        assert_eq!(registration_changes(&raft), before);
        raft.state.lock().unwrap().refuse = None;
        until(|| registration_changes(&raft) == before + 1).await;
    });
}

#[test]
fn append_refused_for_a_full_disk_can_be_tried_again_at_the_same_leader() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        raft.lead(1);
        broker(&service).await;
        raft.state.lock().unwrap().refuse = Some(RaftError::BufferFull { pending: 1 });
        let error = service
            .create_topics(&context(), create("foo"))
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::NotController);
        raft.state.lock().unwrap().refuse = None;
        let created = service.create_topics(&context(), create("foo")).await.unwrap();
        assert_eq!(created.topics[0].error_code, 0);
        assert!(raft.state.lock().unwrap().resigned.is_empty());
    });
}

#[test]
fn request_past_its_deadline_is_not_decided() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        raft.lead(1);
        broker(&service).await;
        let context = ControllerContext {
            deadline_ms: Some(-1),
            ..context()
        };
        let error = service.create_topics(&context, create("foo")).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::RequestTimedOut);
    });
}

#[test]
fn idle_leader_writes_no_op_records() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[("metadata.max.idle.interval.ms", "1")]);
    runtime.block_on(async {
        raft.lead(1);
        active(&service).await;
        until(|| {
            raft.appended()
                .iter()
                .filter(|name| **name == "NoOpRecord")
                .count()
                >= 3
        })
        .await;
    });
}

#[test]
fn silent_broker_is_fenced() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let settings = [
        ("broker.session.timeout.ms", "20"),
        ("broker.heartbeat.interval.ms", "10"),
    ];
    let service = start(&raft, &runtime, &settings);
    runtime.block_on(async {
        raft.lead(1);
        broker(&service).await;
        until(|| {
            raft.appended().last() == Some(&"BrokerRegistrationChangeRecord")
                && raft
                    .appended()
                    .iter()
                    .filter(|name| **name == "BrokerRegistrationChangeRecord")
                    .count()
                    == 2
        })
        .await;
    });
}

#[test]
fn standby_replays_what_another_controller_writes_and_takes_over() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let first = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        raft.lead(1);
        broker(&first).await;
        first.create_topics(&context(), create("foo")).await.unwrap();
        // A second service that reads the same log.
        let batches: Vec<CommittedBatch> = {
            let mut state = raft.state.lock().unwrap();
            let records = std::mem::take(&mut state.appended);
            vec![CommittedBatch {
                base_offset: 1,
                last_offset: records.len() as i64,
                epoch: 1,
                append_timestamp: 2,
                size_in_bytes: 100,
                records,
            }]
        };
        let standby_raft = MemoryRaft::eager();
        let standby = start(&standby_raft, &runtime, &[]);
        {
            let mut state = standby_raft.state.lock().unwrap();
            state.log_end_offset = batches[0].last_offset + 1;
            state.pending = batches;
            commit(&mut state, usize::MAX);
        }
        standby_raft.lead(2);
        active(&standby).await;
        let response = standby.create_topics(&context(), create("foo")).await.unwrap();
        assert_eq!(
            response.topics[0].error_code,
            ErrorCode::TopicAlreadyExists.code()
        );
        assert!(standby_raft.appended().is_empty(), "no second bootstrap");
    });
}

#[test]
fn broker_epochs_differ_though_earlier_records_wait_for_the_disk() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        raft.lead(1);
        active(&service).await;
        raft.state.lock().unwrap().is_eager = false;
        let end = raft.state.lock().unwrap().log_end_offset;
        let mut answers = Vec::new();
        for id in 1..=2 {
            let service = service.clone();
            answers.push(tokio::spawn(async move {
                service.register_broker(&context(), registration(id, 1)).await
            }));
            until(|| raft.pending() == id as usize).await;
        }
        raft.commit_all();
        for (index, answer) in (0..).zip(answers) {
            assert_eq!(answer.await.unwrap().unwrap().broker_epoch, end + index);
        }
    });
}

/// The same over the real raft and a real disk; then a crash and a start from what is there.
#[test]
fn node_over_real_raft_starts_and_starts_again_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    {
        let node = RealNode::start(directory.path(), &runtime, 1, true);
        runtime.block_on(async {
            node.serve().await;
            let response = node
                .service
                .create_topics(&context(), create("foo"))
                .await
                .unwrap();
            assert_eq!(response.topics[0].error_code, 0);
            until(|| node.loader.cache().load().topics.by_name("foo").is_some()).await;
        });
        node.raft.shutdown();
    }
    let node = RealNode::start(directory.path(), &runtime, 2, false);
    runtime.block_on(async {
        let started = std::time::Instant::now();
        node.serve().await;
        // Its own crashed self is no other broker: no session has to end first.
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
        let image = node.loader.cache().image();
        assert_eq!(image.configs.iter().count(), 1, "the cluster's minimum");
        let response = node
            .service
            .create_topics(&context(), create("foo"))
            .await
            .unwrap();
        assert_eq!(
            response.topics[0].error_code,
            ErrorCode::TopicAlreadyExists.code()
        );
        until(|| {
            let image = node.loader.cache().load();
            image
                .topics
                .by_name("foo")
                .is_some_and(|topic| topic.partitions[&0].leader == 1)
        })
        .await;
        node.lifecycle.controlled_shutdown().await;
        assert_eq!(node.lifecycle.state(), BrokerState::ShuttingDown);
    });
    node.raft.shutdown();
}

struct RealNode {
    raft: crate::raft::RaftClient,
    service: ControllerService,
    loader: MetadataLoader,
    lifecycle: BrokerLifecycleManager,
}

impl RealNode {
    fn start(
        directory: &std::path::Path,
        runtime: &tokio::runtime::Runtime,
        incarnation: u128,
        format: bool,
    ) -> Self {
        use crate::io::disk::{Disk, SystemDisk};
        use crate::log::{LogConfig, LogManager, LogManagerConfig};
        use crate::raft::storage::{BootstrapCheckpoint, BootstrapVoter, write_bootstrap_checkpoint};
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
        let clock: Arc<dyn crate::io::clock::Clock> = Arc::new(SystemClock::new());
        let directory_id = directory_of(NODE);
        let bootstrap_records = vec![
            feature_level("metadata.version", 33),
            feature_level("eligible.leader.replicas.version", 1),
        ];
        if format {
            let checkpoint = BootstrapCheckpoint {
                kraft_version: 1,
                voters: Some(vec![BootstrapVoter {
                    voter_id: NODE,
                    voter_directory_id: directory_id,
                    endpoints: Vec::new(),
                }]),
                records: bootstrap_records.clone(),
            };
            write_bootstrap_checkpoint(&disk, directory, &checkpoint, 1).unwrap();
        }
        let manager = LogManager::open(
            LogManagerConfig::new(vec![directory.to_owned()]),
            disk.clone(),
            clock.clone(),
        )
        .unwrap();
        let log = manager
            .open_metadata_log(directory, LogConfig::default())
            .unwrap();
        let raft = crate::raft::RaftClient::start(
            crate::raft::RaftConfig::new(NODE, directory_id, CLUSTER_ID),
            log,
            disk,
            clock.clone(),
        )
        .unwrap();
        let mut request = registration(NODE, incarnation);
        request.incarnation_id = Uuid::from_u128(incarnation);
        let service = ControllerService::start(
            ControllerServiceConfig {
                config: Arc::new(KafkaConfig::development_defaults().unwrap()),
                cluster_id: CLUSTER_ID.to_owned(),
                bootstrap_records,
                own_broker_incarnation: Some(request.incarnation_id),
                own_registration: Some(ControllerRegistrationRequest::default()),
                on_fatal: Box::new(|reason| panic!("{reason}")),
            },
            raft.clone(),
            clock.clone(),
            runtime.handle(),
        );
        let loader = MetadataLoader::start(
            MetadataLoaderConfig {
                max_bytes_between_snapshots: usize::MAX,
                max_snapshot_interval_ms: 0,
                faults_are_fatal: true,
                on_fatal: Box::new(|reason| panic!("{reason}")),
            },
            Arc::new(raft.clone()),
            clock.clone(),
            MetadataCache::default(),
        )
        .unwrap();
        raft.register(loader.listener());
        let lifecycle = BrokerLifecycleManager::start(
            BrokerLifecycleConfig {
                broker_id: NODE,
                cluster_id: CLUSTER_ID.to_owned(),
                incarnation_id: request.incarnation_id,
                listeners: Vec::new(),
                features: request.features,
                rack: None,
                log_dirs: request.log_dirs,
                previous_broker_epoch: -1,
                heartbeat_interval_ms: 2000,
                session_timeout_ms: 9000,
                initial_registration_timeout_ms: 60_000,
            },
            Arc::new(service.clone()),
            loader.published_offset(),
            clock,
            runtime.handle(),
        );
        Self {
            raft,
            service,
            loader,
            lifecycle,
        }
    }

    async fn serve(&self) {
        let started = std::time::Instant::now();
        assert!(self.lifecycle.caught_up().await);
        self.lifecycle.set_ready_to_unfence().await;
        assert!(self.lifecycle.unfenced().await);
        eprintln!("from raft to unfenced: {:?}", started.elapsed());
    }
}

#[test]
fn producer_ids_and_controller_registration_are_served() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    runtime.block_on(async {
        raft.lead(1);
        let epoch = broker(&service).await;
        let mut request = AllocateProducerIdsRequest::default();
        request.broker_id = BrokerId(1);
        request.broker_epoch = epoch;
        let block = service.allocate_producer_ids(&context(), request).await.unwrap();
        assert_eq!(block.producer_id_start.0, 0);
        let mut request = ControllerRegistrationRequest::default();
        request.controller_id = 1;
        request.incarnation_id = Uuid::from_u128(5);
        let response = service.register_controller(&context(), request).await.unwrap();
        assert_eq!((response.error_code, response.error_message), (0, None));
        assert_eq!(raft.appended().last(), Some(&"RegisterControllerRecord"));
    });
}

/// Controller, loader and broker life cycle together: from an empty log to a broker that serves, and down again.
#[test]
fn node_starts_and_stops() {
    let runtime = runtime();
    let raft = MemoryRaft::eager();
    let service = start(&raft, &runtime, &[]);
    let clock: Arc<dyn crate::io::clock::Clock> = Arc::new(SystemClock::new());
    let loader = MetadataLoader::start(
        MetadataLoaderConfig {
            max_bytes_between_snapshots: usize::MAX,
            max_snapshot_interval_ms: 0,
            faults_are_fatal: true,
            on_fatal: Box::new(|reason| panic!("{reason}")),
        },
        Arc::new(raft.clone()),
        clock.clone(),
        MetadataCache::default(),
    )
    .unwrap();
    raft.register(loader.listener());
    let request = registration(1, 1);
    let lifecycle = BrokerLifecycleManager::start(
        BrokerLifecycleConfig {
            broker_id: 1,
            cluster_id: CLUSTER_ID.to_owned(),
            incarnation_id: request.incarnation_id,
            listeners: Vec::new(),
            features: request.features,
            rack: None,
            log_dirs: request.log_dirs,
            previous_broker_epoch: -1,
            heartbeat_interval_ms: 2000,
            session_timeout_ms: 9000,
            initial_registration_timeout_ms: 60_000,
        },
        Arc::new(service.clone()),
        loader.published_offset(),
        clock,
        runtime.handle(),
    );
    runtime.block_on(async {
        let started = std::time::Instant::now();
        raft.lead(1);
        assert!(lifecycle.caught_up().await);
        lifecycle.set_ready_to_unfence().await;
        assert!(lifecycle.unfenced().await);
        // Nothing waits for a timer but one interval of 10 ms at most.
        assert!(
            started.elapsed() < Duration::from_secs(2),
            "{:?}",
            started.elapsed()
        );
        eprintln!("start took {:?}", started.elapsed());
        assert_eq!(lifecycle.state(), BrokerState::Running);
        service.create_topics(&context(), create("foo")).await.unwrap();
        until(|| loader.cache().load().topics.by_name("foo").is_some()).await;
        assert!(loader.cache().load().cluster.is_active(1));
        lifecycle.controlled_shutdown().await;
        assert_eq!(lifecycle.state(), BrokerState::ShuttingDown);
        until(|| !loader.cache().load().cluster.is_active(1)).await;
        let image = loader.cache().image();
        let partition = &image.topics.by_name("foo").unwrap().partitions[&0];
        assert_eq!((partition.leader, partition.elr.as_slice()), (-1, &[1][..]));
    });
}
