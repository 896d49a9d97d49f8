//! The coordinator on a log that is a vector, with partitions that take or refuse markers as the test says.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::Poll;

use bytes::Bytes;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::*;
use crate::coordinator::runtime::TransactionEnd;
use crate::coordinator::runtime::context::context_test::MemoryLog;
use crate::coordinator::transaction::{MarkerResults, TransactionState};
use crate::log::TransactionCheck;
use crate::metadata::MetadataProvenance;
use crate::protocol::records::metadata::{FeatureLevelRecord, MetadataRecord, PartitionRecord, TopicRecord};
use crate::replica::disk_gate::POOLED_A_DIR_MAX;
use crate::replica::{
    DiskGate, LeaderOffsets, PartitionListener, Pass, ProducerIdAllocator, ProducerIdBlock, ReplicaError,
};

/// Leads the only partition of `__transaction_state`.
const EPOCH: i32 = 3;

#[derive(Default)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        1_000_000 + self.0.load(Ordering::SeqCst)
    }
    fn monotonic_ms(&self) -> i64 {
        0
    }
}

struct Ids;

impl ProducerIdAllocator for Ids {
    fn allocate(&self) -> Pin<Box<dyn Future<Output = Option<ProducerIdBlock>> + Send>> {
        Box::pin(async {
            Some(ProducerIdBlock {
                first: 7,
                length: 1000,
            })
        })
    }
}

#[derive(Default)]
struct Partitions {
    written: Mutex<Vec<(TransactionEnd, Vec<TopicPartition>)>>,
    /// Answers of the next tries; afterwards all is taken.
    refusals: Mutex<Vec<ErrorCode>>,
    refuses_all: Mutex<bool>,
    /// The next tries that panic, before anything is written.
    panics: AtomicI64,
    /// The next try is answered when this is done.
    held: Mutex<Option<oneshot::Receiver<()>>>,
}

impl MarkerWriter for Partitions {
    fn write(
        &self,
        end: TransactionEnd,
        partitions: Vec<TopicPartition>,
    ) -> Pin<Box<dyn Future<Output = MarkerResults> + Send>> {
        if self.panics.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Box::pin(async { panic!("as the test wants it") });
        }
        let refusal = match *self.refuses_all.lock().unwrap() {
            true => Some(ErrorCode::NotLeaderOrFollower),
            false => self.refusals.lock().unwrap().pop(),
        };
        let error = refusal.unwrap_or(ErrorCode::None);
        self.written.lock().unwrap().push((end, partitions.clone()));
        let results = partitions
            .into_iter()
            .map(|partition| (partition, error))
            .collect();
        let held = self.held.lock().unwrap().take();
        Box::pin(async move {
            if let Some(held) = held {
                let _ = held.await;
            }
            results
        })
    }
}

/// A log for each of two partitions; at the gate of the first all wait once the test says so.
struct TwoLogs {
    logs: [Arc<MemoryLog>; 2],
    gate: DiskGate,
    is_shut: AtomicBool,
}

const DIRECTORY: &str = "/first";

impl TwoLogs {
    fn new() -> Arc<Self> {
        let (dirs, clock) = ([PathBuf::from(DIRECTORY)], Arc::new(TestClock::default()));
        Arc::new(Self {
            logs: [MemoryLog::new(true), MemoryLog::new(true)],
            gate: DiskGate::new(&dirs, 2, clock),
            is_shut: AtomicBool::new(false),
        })
    }

    fn of(&self, topic_partition: &TopicPartition) -> &MemoryLog {
        &self.logs[topic_partition.partition as usize]
    }

    /// Until what comes back is dropped.
    async fn shut(&self) -> Vec<Pass<'_>> {
        let mut passes = Vec::new();
        for _ in 0..POOLED_A_DIR_MAX {
            passes.extend(self.gate.pass(Path::new(DIRECTORY), true).await);
        }
        // Nothing goes in beside the pool either.
        passes.extend(self.gate.pass(Path::new(DIRECTORY), false).await);
        self.is_shut.store(true, Ordering::SeqCst);
        passes
    }
}

impl PartitionLog for TwoLogs {
    fn append(
        &self,
        topic_partition: &TopicPartition,
        leader_epoch: i32,
        batch: Bytes,
        check: TransactionCheck,
    ) -> Result<i64, ReplicaError> {
        self.of(topic_partition)
            .append(topic_partition, leader_epoch, batch, check)
    }
    fn read(&self, topic_partition: &TopicPartition, start: i64, max: usize) -> Result<Bytes, ReplicaError> {
        self.of(topic_partition).read(topic_partition, start, max)
    }
    fn leader_offsets(&self, topic_partition: &TopicPartition) -> Result<LeaderOffsets, ReplicaError> {
        self.of(topic_partition).leader_offsets(topic_partition)
    }
    fn gate(&self, topic_partition: &TopicPartition) -> Option<(&DiskGate, Arc<Path>)> {
        let is_shut = topic_partition.partition == 0 && self.is_shut.load(Ordering::SeqCst);
        is_shut.then(|| (&self.gate, Path::new(DIRECTORY).into()))
    }
    fn max_message_bytes(&self, topic_partition: &TopicPartition) -> usize {
        self.of(topic_partition).max_message_bytes(topic_partition)
    }
    fn add_listener(&self, topic_partition: &TopicPartition, listener: Arc<dyn PartitionListener>) -> bool {
        self.of(topic_partition).add_listener(topic_partition, listener)
    }
    fn remove_listener(&self, topic_partition: &TopicPartition, listener: &Arc<dyn PartitionListener>) {
        self.of(topic_partition)
            .remove_listener(topic_partition, listener);
    }
}

fn topic(name: &str, number: u128) -> Vec<MetadataRecord> {
    let topic_id = Uuid::from_u128(number);
    vec![
        MetadataRecord::Topic(TopicRecord {
            name: StrBytes::from_string(name.to_owned()),
            topic_id,
            ..Default::default()
        }),
        MetadataRecord::Partition(PartitionRecord {
            partition_id: 0,
            topic_id,
            replicas: vec![1],
            isr: vec![1],
            leader: 1,
            leader_epoch: EPOCH,
            directories: vec![Uuid::from_u128(5)],
            ..Default::default()
        }),
    ]
}

/// With so many partitions of the coordinator's topic, one or two.
fn image(version: i16, partitions: i32) -> MetadataImage {
    let mut records = topic(TRANSACTION_STATE_TOPIC, 1);
    if partitions > 1
        && let Some(MetadataRecord::Partition(first)) = records.last().cloned()
    {
        records.push(MetadataRecord::Partition(PartitionRecord {
            partition_id: 1,
            ..first
        }));
    }
    records.extend(topic("t", 2));
    if version > 0 {
        records.push(MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: StrBytes::from_static_str(TransactionVersion::FEATURE_NAME),
            feature_level: version,
            ..Default::default()
        }));
    }
    let mut delta = MetadataDelta::new(Arc::new(MetadataImage::empty()));
    for record in &records {
        delta.replay(record).unwrap();
    }
    delta.apply(MetadataProvenance::EMPTY)
}

struct Fixture {
    service: Arc<TransactionCoordinatorService>,
    partitions: Arc<Partitions>,
    clock: Arc<TestClock>,
}

impl Fixture {
    async fn new(version: i16) -> Fixture {
        let fixture = Self::on(MemoryLog::new(true), version, 1);
        fixture.until_loaded().await;
        fixture
    }

    fn on(log: Arc<dyn PartitionLog>, version: i16, coordinator_partitions: i32) -> Fixture {
        let partitions = Arc::new(Partitions::default());
        let clock = Arc::new(TestClock::default());
        let service = TransactionCoordinatorService::new(TransactionCoordinatorParts {
            node_id: 1,
            config: TransactionConfig::default(),
            log,
            clock: clock.clone(),
            metadata: MetadataCache::new(image(version, coordinator_partitions)),
            producer_ids: ProducerIdManager::new(Arc::new(Ids), clock.clone()),
            marker_writer: partitions.clone(),
            executor: Handle::current(),
        });
        for partition in 0..coordinator_partitions {
            service.runtime.elect(partition, EPOCH);
        }
        Fixture {
            service,
            partitions,
            clock,
        }
    }

    async fn until_loaded(&self) {
        while self.service.describe(id()).await == Err(ErrorCode::CoordinatorLoadInProgress) {
            tokio::task::yield_now().await;
        }
    }

    async fn init(&self) -> Result<ProducerIdAndEpoch, ErrorCode> {
        self.service.init_producer_id(id(), 60_000, None).await
    }

    async fn add(&self, producer: ProducerIdAndEpoch) -> Result<(), ErrorCode> {
        let partitions = [TopicPartition::new("t", 0)].into();
        let version = self.service.transaction_version();
        self.service
            .add_partitions(transaction(producer), partitions, version)
            .await
    }

    async fn commit(&self, producer: ProducerIdAndEpoch) -> Result<ProducerIdAndEpoch, ErrorCode> {
        let version = self.service.transaction_version();
        self.service
            .end_transaction(transaction(producer), true, version)
            .await
    }

    async fn until(&self, state: TransactionState) {
        loop {
            match self.service.describe(id()).await {
                Ok(metadata) if metadata.state == state => return,
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    fn markers(&self) -> Vec<(i16, i32, bool)> {
        let written = self.partitions.written.lock().unwrap();
        let short =
            |end: &TransactionEnd| (end.producer.producer_epoch, end.coordinator_epoch, end.committed);
        written.iter().map(|(end, _)| short(end)).collect()
    }
}

fn id() -> StrBytes {
    StrBytes::from_static_str("tx")
}

fn transaction(producer: ProducerIdAndEpoch) -> Transaction {
    Transaction {
        transactional_id: id(),
        producer,
    }
}

fn producer(producer_epoch: i16) -> ProducerIdAndEpoch {
    ProducerIdAndEpoch {
        producer_id: 7,
        producer_epoch,
    }
}

#[tokio::test]
async fn transaction_ends_on_its_partitions_and_the_next_one_may_begin() {
    // Epochs: of the marker, after the end.
    for (version, marker_epoch) in [(0, 0), (1, 0), (2, 1)] {
        let fixture = Fixture::new(version).await;
        assert_eq!(fixture.init().await, Ok(producer(0)));
        assert_eq!(fixture.add(producer(0)).await, Ok(()));
        assert_eq!(fixture.commit(producer(0)).await, Ok(producer(marker_epoch)));
        fixture.until(TransactionState::CompleteCommit).await;
        assert_eq!(fixture.markers(), [(marker_epoch, EPOCH, true)]);
        assert_eq!(fixture.add(producer(marker_epoch)).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn marker_that_is_refused_is_sent_again() {
    let fixture = Fixture::new(0).await;
    fixture.init().await.unwrap();
    fixture.add(producer(0)).await.unwrap();
    *fixture.partitions.refusals.lock().unwrap() =
        vec![ErrorCode::NotLeaderOrFollower, ErrorCode::NotEnoughReplicas];
    fixture.commit(producer(0)).await.unwrap();
    assert_eq!(
        fixture.add(producer(0)).await,
        Err(ErrorCode::ConcurrentTransactions)
    );
    fixture.until(TransactionState::CompleteCommit).await;
    assert_eq!(fixture.markers().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn marker_whose_way_panics_is_sent_again() {
    let fixture = Fixture::new(2).await;
    fixture.init().await.unwrap();
    fixture.add(producer(0)).await.unwrap();
    fixture.partitions.panics.store(2, Ordering::SeqCst);
    fixture.commit(producer(0)).await.unwrap();
    let completed = fixture.until(TransactionState::CompleteCommit);
    let completed = tokio::time::timeout(Duration::from_secs(10), completed).await;
    assert!(completed.is_ok(), "the transaction stays prepared");
    assert_eq!(fixture.markers().len(), 1);
    assert!(fixture.service.ended(&id()).is_none());
    assert_eq!(fixture.add(producer(1)).await, Ok(()));
}

/// The answer to a marker of an earlier coordinator comes when this node is the coordinator again.
#[tokio::test(start_paused = true)]
async fn marker_that_is_fenced_late_is_sent_with_the_epoch_of_now() {
    let fixture = Fixture::new(0).await;
    fixture.init().await.unwrap();
    fixture.add(producer(0)).await.unwrap();
    let (release, held) = oneshot::channel();
    *fixture.partitions.held.lock().unwrap() = Some(held);
    *fixture.partitions.refusals.lock().unwrap() = vec![ErrorCode::TransactionCoordinatorFenced];
    fixture.commit(producer(0)).await.unwrap();
    while fixture.markers().is_empty() {
        tokio::task::yield_now().await;
    }
    fixture.service.runtime.resign(0, Some(EPOCH + 1));
    assert_eq!(fixture.commit(producer(0)).await, Err(ErrorCode::NotCoordinator));
    fixture.service.runtime.elect(0, EPOCH + 2);
    fixture.until_loaded().await;
    release.send(()).unwrap();
    let completed = fixture.until(TransactionState::CompleteCommit);
    let completed = tokio::time::timeout(Duration::from_secs(10), completed).await;
    assert!(completed.is_ok(), "the transaction stays prepared");
    assert_eq!(fixture.markers(), [(0, EPOCH, true), (0, EPOCH + 2, true)]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_end_of_a_transaction_is_told_when_its_markers_are_there() {
    let fixture = Fixture::new(2).await;
    fixture.init().await.unwrap();
    assert!(fixture.service.ended(&id()).is_none());
    fixture.add(producer(0)).await.unwrap();
    let (release, held) = oneshot::channel();
    *fixture.partitions.held.lock().unwrap() = Some(held);
    fixture.commit(producer(0)).await.unwrap();
    let mut waiting = [(); 2].map(|()| fixture.service.ended(&id()).unwrap());
    for waiting in &mut waiting {
        let early = tokio::time::timeout(Duration::from_secs(1), waiting).await;
        assert!(early.is_err(), "told before the markers were written");
    }
    assert_eq!(
        fixture.add(producer(1)).await,
        Err(ErrorCode::ConcurrentTransactions)
    );
    release.send(()).unwrap();
    for waiting in waiting {
        let told = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        assert!(told.is_ok(), "not told of the end");
    }
    assert_eq!(fixture.add(producer(1)).await, Ok(()));
    assert!(fixture.service.ended(&id()).is_none());
}

#[tokio::test(start_paused = true)]
async fn decided_transaction_goes_on_where_the_next_coordinator_loads_it() {
    let fixture = Fixture::new(0).await;
    fixture.init().await.unwrap();
    fixture.add(producer(0)).await.unwrap();
    *fixture.partitions.refuses_all.lock().unwrap() = true;
    fixture.commit(producer(0)).await.unwrap();
    fixture.service.runtime.resign(0, Some(EPOCH + 1));
    assert_eq!(fixture.commit(producer(0)).await, Err(ErrorCode::NotCoordinator));
    // The task of the first coordinator may still be at it, or has given up: either way there is one.
    fixture.service.runtime.elect(0, EPOCH + 2);
    fixture.until_loaded().await;
    *fixture.partitions.refuses_all.lock().unwrap() = false;
    fixture.until(TransactionState::CompleteCommit).await;
    assert_eq!(fixture.markers().last(), Some(&(0, EPOCH + 2, true)));
}

/// Unlike `yield_now`, which waits until no task is ready.
async fn behind_those_that_are_ready() {
    let mut is_first = true;
    std::future::poll_fn(|context| match std::mem::replace(&mut is_first, false) {
        true => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}

/// Ends a transaction, lets its task go on for so many turns, and then begins and ends another with the same epoch at once, in the same
/// millisecond. Whether it could begin.
async fn end_another_after(turns: usize) -> bool {
    let fixture = Fixture::new(0).await;
    fixture.init().await.unwrap();
    fixture.add(producer(0)).await.unwrap();
    let (release, held) = oneshot::channel();
    *fixture.partitions.held.lock().unwrap() = Some(held);
    fixture.commit(producer(0)).await.unwrap();
    while fixture.markers().is_empty() {
        tokio::task::yield_now().await;
    }
    release.send(()).unwrap();
    for _ in 0..turns {
        behind_those_that_are_ready().await;
    }
    let (added, committed) = tokio::join!(fixture.add(producer(0)), fixture.commit(producer(0)));
    if added.is_err() {
        assert_eq!(
            added,
            Err(ErrorCode::ConcurrentTransactions),
            "after {turns} turns"
        );
        return false;
    }
    assert_eq!(committed, Ok(producer(0)), "after {turns} turns");
    let ended = fixture.until(TransactionState::CompleteCommit);
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
    assert!(ended.is_ok(), "no end after {turns} turns");
    assert_eq!(fixture.markers().len(), 2, "after {turns} turns");
    true
}

#[tokio::test(start_paused = true)]
async fn transaction_that_follows_at_once_has_its_markers_sent_too() {
    let mut begun = 0;
    for turns in 0..30 {
        begun += usize::from(tokio::spawn(end_another_after(turns)).await.unwrap());
    }
    assert!(begun > 0);
}

#[tokio::test]
async fn late_transaction_is_aborted_and_its_producer_fenced() {
    for version in [0, 2] {
        let fixture = Fixture::new(version).await;
        fixture.init().await.unwrap();
        fixture.add(producer(0)).await.unwrap();
        fixture.service.abort_timed_out().await;
        assert!(fixture.markers().is_empty());
        fixture.clock.0.store(60_001, Ordering::SeqCst);
        fixture.service.abort_timed_out().await;
        fixture.until(TransactionState::CompleteAbort).await;
        assert_eq!(fixture.markers(), [(1, EPOCH, false)]);
        assert_eq!(fixture.add(producer(0)).await, Err(ErrorCode::ProducerFenced));
    }
}

#[tokio::test(start_paused = true)]
async fn late_transaction_is_aborted_while_another_partition_hangs() {
    let log = TwoLogs::new();
    let fixture = Fixture::on(log.clone(), 0, 2);
    let service = &fixture.service;
    let names = (0..).map(|number| StrBytes::from_string(format!("tx-{number}")));
    let id_of = |partition| {
        let mut names = names.clone();
        names
            .find(|name| service.partition_for(name) == partition)
            .unwrap()
    };
    let ids = [id_of(0), id_of(1)];
    for transactional_id in &ids {
        while service.describe(transactional_id.clone()).await == Err(ErrorCode::CoordinatorLoadInProgress) {
            tokio::task::yield_now().await;
        }
        let producer = service
            .init_producer_id(transactional_id.clone(), 60_000, None)
            .await;
        let transaction = Transaction {
            transactional_id: transactional_id.clone(),
            producer: producer.unwrap(),
        };
        let partitions = [TopicPartition::new("t", 0)].into();
        let added = service.add_partitions(transaction, partitions, TransactionVersion::V0);
        added.await.unwrap();
    }
    fixture.clock.0.store(60_001, Ordering::SeqCst);
    let _shut = log.shut().await;
    let round = tokio::time::timeout(Duration::from_secs(60), service.abort_timed_out());
    assert!(
        round.await.is_ok(),
        "the round waits for the partition that hangs"
    );
    let ended = async {
        while service.describe(ids[1].clone()).await.unwrap().state != TransactionState::CompleteAbort {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
    assert!(ended.is_ok(), "the transaction is open");
    let first = tokio::time::timeout(Duration::from_secs(10), service.describe(ids[0].clone()));
    assert!(first.await.is_err(), "the first partition should hang");
}

#[tokio::test]
async fn second_instance_aborts_the_transaction_of_the_first() {
    let fixture = Fixture::new(2).await;
    fixture.init().await.unwrap();
    fixture.add(producer(0)).await.unwrap();
    assert_eq!(fixture.init().await, Err(ErrorCode::ConcurrentTransactions));
    fixture.until(TransactionState::CompleteAbort).await;
    assert_eq!(fixture.init().await, Ok(producer(2)));
    assert_eq!(fixture.commit(producer(0)).await, Err(ErrorCode::ProducerFenced));
}

#[tokio::test]
async fn bad_arguments_are_refused() {
    let fixture = Fixture::new(2).await;
    let init = |id: &'static str, timeout_ms| {
        fixture
            .service
            .init_producer_id(StrBytes::from_static_str(id), timeout_ms, None)
    };
    assert_eq!(init("", 1).await, Err(ErrorCode::InvalidRequest));
    assert_eq!(init("tx", 0).await, Err(ErrorCode::InvalidTransactionTimeout));
    assert_eq!(
        init("tx", 900_001).await,
        Err(ErrorCode::InvalidTransactionTimeout)
    );
    let unknown = fixture.commit(producer(0)).await;
    assert_eq!(unknown, Err(ErrorCode::InvalidProducerIdMapping));
    assert_eq!(
        fixture.service.describe(id()).await.err(),
        Some(ErrorCode::TransactionalIdNotFound)
    );
}
