//! The coordinator on a log that is a vector, with partitions that take or refuse markers as the test says.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::*;
use crate::coordinator::runtime::TransactionEnd;
use crate::coordinator::runtime::context::context_test::MemoryLog;
use crate::coordinator::transaction::{MarkerResults, TransactionState};
use crate::metadata::MetadataProvenance;
use crate::protocol::records::metadata::{FeatureLevelRecord, MetadataRecord, PartitionRecord, TopicRecord};
use crate::replica::{ProducerIdAllocator, ProducerIdBlock};

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
    /// The next try is answered when this is done.
    held: Mutex<Option<oneshot::Receiver<()>>>,
}

impl MarkerWriter for Partitions {
    fn write(
        &self,
        end: TransactionEnd,
        partitions: Vec<TopicPartition>,
    ) -> Pin<Box<dyn Future<Output = MarkerResults> + Send>> {
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

fn image(version: i16) -> MetadataImage {
    let mut records = topic(TRANSACTION_STATE_TOPIC, 1);
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
        let partitions = Arc::new(Partitions::default());
        let clock = Arc::new(TestClock::default());
        let service = TransactionCoordinatorService::new(TransactionCoordinatorParts {
            node_id: 1,
            config: TransactionConfig::default(),
            log: MemoryLog::new(true),
            clock: clock.clone(),
            metadata: MetadataCache::new(image(version)),
            producer_ids: ProducerIdManager::new(Arc::new(Ids), clock.clone()),
            marker_writer: partitions.clone(),
            executor: Handle::current(),
        });
        service.runtime.elect(0, EPOCH);
        let fixture = Fixture {
            service,
            partitions,
            clock,
        };
        fixture.until_loaded().await;
        fixture
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
