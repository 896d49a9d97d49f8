//! The transaction coordinator's front: finds the partition, runs the operation, turns errors into the answers Kafka gives.
//!
//! Knows no request versions: what depends on them comes as an argument. Follows the metadata to learn which partitions of
//! `__transaction_state` this node leads. Aborts transactions that are open for longer than their producers said.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::marker_sender::{MarkerSender, MarkerWriter};
use super::shard::{Answer, TransactionShard, TransactionShardConfig};
use super::transaction_state::{ProducerIdAndEpoch, TransactionMetadata, TransactionVersion};
use super::{TRANSACTION_STATE_TOPIC, TransactionConfig, transaction_state_partitions};
use crate::coordinator::runtime::context::ContextConfig;
use crate::coordinator::runtime::{CoordinatorRuntime, PartitionLog, RuntimeConfig};
use crate::coordinator::topic_partitions::CoordinatorPartitions;
use crate::io::clock::Clock;
use crate::log::TopicPartition;
use crate::metadata::{MetadataCache, MetadataDelta, MetadataImage, MetadataPublisher};
use crate::protocol::{ApiError, ErrorCode, StrBytes};
use crate::record::{Compression, NO_SEQUENCE};
use crate::replica::ProducerIdManager;

pub struct TransactionCoordinatorService {
    node_id: i32,
    config: TransactionConfig,
    metadata: MetadataCache,
    partitions: Arc<CoordinatorPartitions>,
    clock: Arc<dyn Clock>,
    producer_ids: Arc<ProducerIdManager>,
    runtime: Arc<CoordinatorRuntime<TransactionShard>>,
    /// The runtime's shards have it too; it must live as long as they may ask.
    markers: Arc<MarkerSender>,
}

/// What a transaction is asked for by: AddPartitionsToTxn, EndTxn and the like.
#[derive(Debug, Clone)]
pub struct Transaction {
    pub transactional_id: StrBytes,
    pub producer: ProducerIdAndEpoch,
}

/// The parts that the coordinator is built on.
pub struct TransactionCoordinatorParts {
    pub node_id: i32,
    pub config: TransactionConfig,
    pub log: Arc<dyn PartitionLog>,
    pub clock: Arc<dyn Clock>,
    pub metadata: MetadataCache,
    pub producer_ids: Arc<ProducerIdManager>,
    pub marker_writer: Arc<dyn MarkerWriter>,
    /// The data plane's: coordinators and markers append.
    pub executor: Handle,
}

impl TransactionCoordinatorService {
    /// Register it as a metadata publisher after the replica manager.
    pub fn new(parts: TransactionCoordinatorParts) -> Arc<Self> {
        let partitions = transaction_state_partitions(parts.metadata.clone());
        let markers = MarkerSender::new(
            parts.marker_writer,
            parts.metadata.clone(),
            partitions.clone(),
            parts.executor.clone(),
        );
        let shard_config = Arc::new(TransactionShardConfig {
            transactional_id_expiration_ms: parts.config.transactional_id_expiration_ms,
            expiration_check_interval_ms: parts.config.remove_expired_interval_ms,
        });
        let sink = markers.clone();
        let runtime = Arc::new(CoordinatorRuntime::new(
            RuntimeConfig {
                topic: TRANSACTION_STATE_TOPIC.into(),
                context: ContextConfig {
                    compression: Compression::None,
                    base_sequence: NO_SEQUENCE,
                    write_timeout_ms: parts.config.write_timeout_ms,
                },
                load_buffer_bytes: parts.config.load_buffer_bytes,
                loads_at_once: 4,
            },
            parts.log,
            parts.clock.clone(),
            parts.metadata.clone(),
            parts.executor.clone(),
            move || TransactionShard::new(shard_config.clone(), sink.clone()),
        ));
        markers.attach(&runtime);
        let service = Arc::new(Self {
            node_id: parts.node_id,
            config: parts.config,
            metadata: parts.metadata,
            partitions,
            clock: parts.clock,
            producer_ids: parts.producer_ids,
            runtime,
            markers,
        });
        parts
            .executor
            .spawn(abort_late_transactions(Arc::downgrade(&service)));
        service
    }

    /// The partition of `__transaction_state` that a transactional id belongs to; its leader is the id's coordinator.
    pub fn partition_for(&self, transactional_id: &str) -> i32 {
        self.partitions.partition_for(transactional_id)
    }

    /// The finalized `transaction.version`.
    pub fn transaction_version(&self) -> TransactionVersion {
        let image = self.metadata.load();
        TransactionVersion::from_level(image.features.level(TransactionVersion::FEATURE_NAME))
    }

    async fn new_producer_id(&self) -> Result<i64, ErrorCode> {
        let id = self.producer_ids.generate().await;
        id.ok_or(ErrorCode::CoordinatorLoadInProgress)
    }

    /// Of a transactional id that is not null.
    pub async fn init_producer_id(
        &self,
        transactional_id: StrBytes,
        timeout_ms: i32,
        expected: Option<ProducerIdAndEpoch>,
    ) -> Result<ProducerIdAndEpoch, ErrorCode> {
        if transactional_id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        if timeout_ms <= 0 || timeout_ms > self.config.max_timeout_ms {
            return Err(ErrorCode::InvalidTransactionTimeout);
        }
        let partition = self.partition_for(&transactional_id);
        let mut new_producer_id = None;
        loop {
            let (id, version) = (transactional_id.clone(), self.transaction_version());
            let answer = self.runtime.write(partition, move |shard, context| {
                shard.init_producer_id(context, &id, timeout_ms, expected, new_producer_id, version)
            });
            match answer.await.map_err(operation_error)? {
                Answer::Ready(answer) => return answer,
                Answer::NeedsProducerId => new_producer_id = Some(self.new_producer_id().await?),
            }
        }
    }

    pub async fn add_partitions(
        &self,
        transaction: Transaction,
        partitions: BTreeSet<TopicPartition>,
        client_version: TransactionVersion,
    ) -> Result<(), ErrorCode> {
        let partition = self.check(&transaction)?;
        let version = self.transaction_version();
        let added = self.runtime.write(partition, move |shard, context| {
            shard.add_partitions(
                context,
                &transaction.transactional_id,
                transaction.producer,
                &partitions,
                client_version,
                version,
            )
        });
        added.await.map_err(operation_error)
    }

    /// Whether the partitions are in the transaction. An error is one of all of them.
    pub async fn verify_partitions(
        &self,
        transaction: Transaction,
        partitions: BTreeSet<TopicPartition>,
    ) -> Result<Vec<(TopicPartition, ErrorCode)>, ErrorCode> {
        let partition = self.check(&transaction)?;
        let verified = self.runtime.write(partition, move |shard, _| {
            shard.verify_partitions(&transaction.transactional_id, transaction.producer, &partitions)
        });
        verified.await.map_err(operation_error)
    }

    /// Answers once the decision is committed; the markers follow.
    pub async fn end_transaction(
        &self,
        transaction: Transaction,
        commit: bool,
        client_version: TransactionVersion,
    ) -> Result<ProducerIdAndEpoch, ErrorCode> {
        let partition = self.check(&transaction)?;
        let mut new_producer_id = None;
        loop {
            let (transaction, version) = (transaction.clone(), self.transaction_version());
            let answer = self.runtime.write(partition, move |shard, context| {
                shard.end(
                    context,
                    &transaction.transactional_id,
                    transaction.producer,
                    commit,
                    client_version,
                    new_producer_id,
                    version,
                )
            });
            match answer.await.map_err(operation_error)? {
                Answer::Ready(producer) => return Ok(producer),
                Answer::NeedsProducerId => new_producer_id = Some(self.new_producer_id().await?),
            }
        }
    }

    /// Comes back when the transaction of this id that is being ended here has its markers. `None`: there is none.
    pub fn ended(&self, transactional_id: &StrBytes) -> Option<oneshot::Receiver<()>> {
        self.markers.ended(transactional_id)
    }

    fn check(&self, transaction: &Transaction) -> Result<i32, ErrorCode> {
        match transaction.transactional_id.is_empty() {
            true => Err(ErrorCode::InvalidRequest),
            false => Ok(self.partition_for(&transaction.transactional_id)),
        }
    }

    pub async fn describe(&self, transactional_id: StrBytes) -> Result<Arc<TransactionMetadata>, ErrorCode> {
        if transactional_id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let partition = self.partition_for(&transactional_id);
        let found = self
            .runtime
            .read(partition, move |shard, _| shard.get(&transactional_id).cloned());
        let found = found.await.map_err(operation_error)?;
        found.ok_or(ErrorCode::TransactionalIdNotFound)
    }

    /// All that are coordinated here and pass.
    pub async fn list(
        &self,
        filter: impl Fn(&TransactionMetadata) -> bool + Clone + Send + 'static,
    ) -> Result<Vec<Arc<TransactionMetadata>>, ErrorCode> {
        let mut all = Vec::new();
        for partition in self.runtime.partition_ids() {
            let filter = filter.clone();
            let listed = self.runtime.read(partition, move |shard, _| shard.list(filter));
            match listed.await {
                Ok(listed) => all.extend(listed),
                Err(error) if error.code == ErrorCode::NotCoordinator => {}
                Err(error) => return Err(operation_error(error)),
            }
        }
        Ok(all)
    }

    /// One round over all partitions, at the same time: one that hangs holds up no other, and the round no longer than an operation may take.
    async fn abort_timed_out(self: &Arc<Self>) {
        let patience = Duration::from_millis(u64::try_from(self.config.write_timeout_ms).unwrap_or(0));
        let mut rounds = JoinSet::new();
        for partition in self.runtime.partition_ids() {
            let service = self.clone();
            rounds.spawn(async move {
                let round = service.abort_timed_out_of(partition);
                if tokio::time::timeout(patience, round).await.is_err() {
                    tracing::warn!(
                        partition,
                        "late transactions could not be aborted in time; they are tried again"
                    );
                }
            });
        }
        while rounds.join_next().await.is_some() {}
    }

    async fn abort_timed_out_of(&self, partition: i32) {
        let now_ms = self.clock.now_ms();
        let late = self
            .runtime
            .read(partition, move |shard, _| shard.timed_out(now_ms));
        let Ok(late) = late.await else {
            return;
        };
        for (transactional_id, producer) in late {
            if let Err(error) = self.abort_late(partition, &transactional_id, producer).await {
                tracing::info!(%transactional_id, %error, "a late transaction could not be aborted");
            }
        }
    }

    async fn abort_late(
        &self,
        partition: i32,
        transactional_id: &StrBytes,
        producer: ProducerIdAndEpoch,
    ) -> Result<(), ErrorCode> {
        let mut new_producer_id = None;
        loop {
            let (id, version) = (transactional_id.clone(), self.transaction_version());
            let answer = self.runtime.write(partition, move |shard, context| {
                shard.abort_timed_out(context, &id, producer, new_producer_id, version)
            });
            match answer.await.map_err(operation_error)? {
                Answer::Ready(()) => return Ok(()),
                Answer::NeedsProducerId => new_producer_id = Some(self.new_producer_id().await?),
            }
        }
    }

    pub fn shutdown(&self) {
        self.runtime.shutdown();
    }
}

async fn abort_late_transactions(service: Weak<TransactionCoordinatorService>) {
    loop {
        let Some(interval_ms) = service
            .upgrade()
            .map(|service| service.config.abort_timed_out_interval_ms)
        else {
            return;
        };
        tokio::time::sleep(Duration::from_millis(interval_ms)).await;
        let Some(service) = service.upgrade() else {
            return;
        };
        service.abort_timed_out().await;
    }
}

/// What clients are told of an operation that failed (`TransactionStateManager.appendTransactionToLog`).
fn operation_error(error: ApiError) -> ErrorCode {
    match error.code {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::UnknownServerError,
        other => other,
    }
}

impl MetadataPublisher for TransactionCoordinatorService {
    fn name(&self) -> &'static str {
        "TransactionCoordinator"
    }

    fn on_metadata_update(&self, delta: &MetadataDelta, _image: &Arc<MetadataImage>) {
        let changes = delta.topics_delta().local_changes(self.node_id);
        self.runtime.on_local_changes(&changes);
    }
}

#[cfg(test)]
#[path = "service_test.rs"]
mod service_test;
