//! Carries decided transactions to their partitions: a marker for each, again and again until it is written, then the coordinator
//! is told that the transaction is complete.
//!
//! One task a transaction; a transaction has one at a time, however often its partition is loaded. The next transaction of a producer that
//! keeps its epoch is another one, and may be decided before the task of this one has heard that it is complete. The way to a
//! partition's leader is behind [`MarkerWriter`].
//!
//! A marker carries the epoch with which the coordinator leads, so that one of an earlier coordinator is refused by the partition.
//!
//! A panic in the way to a partition counts as a refusal; whatever ends a task, its transaction is not left as one that has a task.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::shard::{MarkerSink, TransactionMarkers, TransactionShard};
use super::transaction_state::{ProducerIdAndEpoch, TransactionVersion};
use crate::coordinator::runtime::without_panic::without_panic;
use crate::coordinator::runtime::{CoordinatorRuntime, TransactionEnd, TransactionalProducer};
use crate::coordinator::topic_partitions::CoordinatorPartitions;
use crate::log::TopicPartition;
use crate::metadata::MetadataCache;
use crate::protocol::{ErrorCode, StrBytes};

/// Between two tries at what was refused.
const RETRY_BACKOFF: Duration = Duration::from_millis(100);

/// What became of the markers of one transaction.
pub type MarkerResults = Vec<(TopicPartition, ErrorCode)>;

/// The way to partitions' leaders.
pub trait MarkerWriter: Send + Sync + 'static {
    /// Comes back when all are written and replicated, or refused.
    fn write(
        &self,
        end: TransactionEnd,
        partitions: Vec<TopicPartition>,
    ) -> Pin<Box<dyn Future<Output = MarkerResults> + Send>>;
}

/// One transaction of a transactional id: its producer's id and epoch, and when it was decided.
type Decided = (i64, i16, i64);

/// A transaction that has a task, and who waits for its end.
struct InFlight {
    decided: Decided,
    waiting: Vec<oneshot::Sender<()>>,
}

/// The task of a transaction, as long as it runs. Dropped, it makes room for another and tells those who wait.
struct Task<'a> {
    sender: &'a MarkerSender,
    markers: &'a TransactionMarkers,
    is_given_up: bool,
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        // Given up, another task of this transaction may have begun.
        if !self.is_given_up {
            remove(&mut self.sender.in_flight(), self.markers);
        }
    }
}

pub struct MarkerSender {
    writer: Arc<dyn MarkerWriter>,
    metadata: MetadataCache,
    partitions: Arc<CoordinatorPartitions>,
    executor: Handle,
    runtime: OnceLock<Weak<CoordinatorRuntime<TransactionShard>>>,
    /// By transactional id; mostly one each.
    in_flight: Mutex<HashMap<StrBytes, Vec<InFlight>>>,
    weak: Weak<MarkerSender>,
}

impl MarkerSender {
    pub fn new(
        writer: Arc<dyn MarkerWriter>,
        metadata: MetadataCache,
        partitions: Arc<CoordinatorPartitions>,
        executor: Handle,
    ) -> Arc<Self> {
        Arc::new_cyclic(|weak| Self {
            writer,
            metadata,
            partitions,
            executor,
            runtime: OnceLock::new(),
            in_flight: Mutex::new(HashMap::new()),
            weak: weak.clone(),
        })
    }

    /// The runtime that is told of ends. Before that nothing is sent.
    pub fn attach(&self, runtime: &Arc<CoordinatorRuntime<TransactionShard>>) {
        let _ = self.runtime.set(Arc::downgrade(runtime));
    }

    fn runtime(&self) -> Option<Arc<CoordinatorRuntime<TransactionShard>>> {
        self.runtime.get().and_then(Weak::upgrade)
    }

    fn in_flight(&self) -> MutexGuard<'_, HashMap<StrBytes, Vec<InFlight>>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes back when the transaction of this id that was decided last has ended, or is given up. `None`: there is none.
    pub fn ended(&self, transactional_id: &StrBytes) -> Option<oneshot::Receiver<()>> {
        let mut in_flight = self.in_flight();
        let last = in_flight.get_mut(transactional_id)?.last_mut()?;
        let (sender, receiver) = oneshot::channel();
        // Those who have gone meanwhile make room: a client may ask again and again while markers cannot be written.
        last.waiting.retain(|waiting| !waiting.is_closed());
        last.waiting.push(sender);
        Some(receiver)
    }

    fn coordinator_epoch(&self, partition: i32) -> Option<i32> {
        self.runtime()?.leader_epoch(partition)
    }

    /// Ends the task of a transaction that can do no more with `epoch`, unless this node coordinates it in another one by now: then a
    /// task for it was asked for and not begun.
    fn give_up(&self, task: &mut Task<'_>, partition: i32, epoch: Option<i32>) -> bool {
        let mut in_flight = self.in_flight();
        let current = self.coordinator_epoch(partition);
        task.is_given_up = current.is_none() || current == epoch;
        if task.is_given_up {
            remove(&mut in_flight, task.markers);
        }
        task.is_given_up
    }

    async fn run(self: Arc<Self>, markers: TransactionMarkers) {
        let partition = self.partitions.partition_for(&markers.transactional_id);
        let mut left = markers.partitions.clone();
        let mut task = Task {
            sender: &self,
            markers: &markers,
            is_given_up: false,
        };
        loop {
            let Some(coordinator_epoch) = self.coordinator_epoch(partition) else {
                match self.give_up(&mut task, partition, None) {
                    true => return,
                    false => continue,
                }
            };
            match self.write_markers(&markers, coordinator_epoch, &mut left).await {
                Progress::Written => {}
                // A newer coordinator, which may be this node again, or a newer epoch of the producer has taken over.
                Progress::Fenced => match self.give_up(&mut task, partition, Some(coordinator_epoch)) {
                    true => return,
                    false => continue,
                },
                Progress::Left => {
                    tokio::time::sleep(RETRY_BACKOFF).await;
                    continue;
                }
            }
            match self.complete(partition, &markers).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(transactional_id = %markers.transactional_id, %error, "the end could not be written yet");
                    tokio::time::sleep(RETRY_BACKOFF).await;
                }
            }
        }
    }

    async fn write_markers(
        &self,
        markers: &TransactionMarkers,
        coordinator_epoch: i32,
        left: &mut BTreeSet<TopicPartition>,
    ) -> Progress {
        let image = self.metadata.image();
        // A partition whose topic is gone needs no marker.
        left.retain(|partition| {
            let topic = image.topics.by_name(&partition.topic);
            topic.is_some_and(|topic| topic.partitions.contains_key(&partition.partition))
        });
        if left.is_empty() {
            return Progress::Written;
        }
        let end = TransactionEnd {
            producer: TransactionalProducer {
                producer_id: markers.producer_id,
                producer_epoch: markers.producer_epoch,
            },
            coordinator_epoch,
            committed: markers.commit,
            transaction_version: markers.transaction_version.level(),
        };
        let partitions = left.iter().cloned().collect();
        let Some(results) = without_panic(async { self.writer.write(end, partitions).await }).await else {
            tracing::error!(transactional_id = %markers.transactional_id, "a panic while markers were written: they wait");
            return Progress::Left;
        };
        for (partition, error) in results {
            match error {
                ErrorCode::None | ErrorCode::UnsupportedForMessageFormat => {
                    left.remove(&partition);
                }
                ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced => {
                    tracing::info!(
                        transactional_id = %markers.transactional_id, %partition, %error,
                        "a marker was refused: its transaction has another coordinator or producer by now"
                    );
                    return Progress::Fenced;
                }
                error => {
                    tracing::debug!(transactional_id = %markers.transactional_id, %partition, %error, "a marker waits");
                }
            }
        }
        match left.is_empty() {
            true => Progress::Written,
            false => Progress::Left,
        }
    }

    async fn complete(&self, partition: i32, markers: &TransactionMarkers) -> Result<(), ErrorCode> {
        let runtime = self.runtime().ok_or(ErrorCode::NotCoordinator)?;
        let producer = ProducerIdAndEpoch {
            producer_id: markers.producer_id,
            producer_epoch: markers.producer_epoch,
        };
        let (transactional_id, decided_ms) = (markers.transactional_id.clone(), markers.decided_ms);
        let level = self
            .metadata
            .load()
            .features
            .level(TransactionVersion::FEATURE_NAME);
        let version = TransactionVersion::from_level(level);
        let written = runtime.write(partition, move |shard, context| {
            shard.complete(context, &transactional_id, producer, decided_ms, version)
        });
        match written.await {
            // The transactional id is gone: there is nothing left to end.
            Err(error) if error.code == ErrorCode::InvalidProducerIdMapping => Ok(()),
            result => result.map_err(|error| error.code),
        }
    }
}

enum Progress {
    Written,
    Left,
    Fenced,
}

fn decided(markers: &TransactionMarkers) -> Decided {
    (markers.producer_id, markers.producer_epoch, markers.decided_ms)
}

fn remove(in_flight: &mut HashMap<StrBytes, Vec<InFlight>>, markers: &TransactionMarkers) {
    if let Some(transactions) = in_flight.get_mut(&markers.transactional_id) {
        transactions.retain(|transaction| transaction.decided != decided(markers));
        if transactions.is_empty() {
            in_flight.remove(&markers.transactional_id);
        }
    }
}

impl MarkerSink for MarkerSender {
    fn send(&self, markers: TransactionMarkers) {
        let Some(sender) = self.weak.upgrade() else {
            return;
        };
        let mut in_flight = self.in_flight();
        let transactions = in_flight.entry(markers.transactional_id.clone()).or_default();
        let decided = decided(&markers);
        if transactions
            .iter()
            .any(|transaction| transaction.decided == decided)
        {
            return;
        }
        transactions.push(InFlight {
            decided,
            waiting: Vec::new(),
        });
        drop(in_flight);
        self.executor.spawn(sender.run(markers));
    }
}
