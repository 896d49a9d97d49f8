//! Asks transaction coordinators whether a producer may write to partitions of this node, or to add them to its transaction (Kafka's
//! AddPartitionsToTxnManager and the part of its ReplicaManager that asks).
//!
//! What may be written comes back with a guard to show to the log; a partition on which the transaction is open needs none.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::service::{Transaction, TransactionCoordinatorService};
use super::transaction_state::TransactionVersion;
use crate::config::KafkaConfig;
use crate::log::{LogError, TopicPartition, VerificationRequest};
use crate::protocol::ErrorCode;
use crate::replica::{ReplicaError, ReplicaManager, VerificationGuards};

/// What a client's version of a request lets the broker do (`TransactionSupportedOperation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupportedOperation {
    /// Partitions must have been added; the client takes INVALID_TXN_STATE for one that was not.
    DefaultError,
    /// The same, and the client takes TRANSACTION_ABORTABLE.
    GenericError,
    /// The write itself adds the partition (`transaction.version` 2).
    AddPartition,
}

impl SupportedOperation {
    pub fn supports_epoch_bump(self) -> bool {
        self == Self::AddPartition
    }
}

#[derive(Debug, Default)]
pub struct Verified {
    pub guards: VerificationGuards,
    /// Partitions that may not be written to, by the word of their transaction coordinator or their own.
    pub errors: HashMap<TopicPartition, ErrorCode>,
}

pub struct TransactionVerifier {
    replica_manager: Arc<ReplicaManager>,
    coordinator: Arc<TransactionCoordinatorService>,
    /// `add.partitions.to.txn.retry.backoff.ms`, and for how long.
    retry_backoff: Duration,
    retry_max: Duration,
}

/// After the first time, which comes at once.
const FIRST_BACKOFF: Duration = Duration::from_millis(1);

impl TransactionVerifier {
    pub fn new(
        replica_manager: Arc<ReplicaManager>,
        coordinator: Arc<TransactionCoordinatorService>,
        config: &KafkaConfig,
    ) -> Self {
        let millis = |value: i32| Duration::from_millis(u64::try_from(value).unwrap_or(0));
        let retry_max = config.add_partitions_to_txn_retry_backoff_max_ms;
        Self {
            replica_manager,
            coordinator,
            retry_backoff: millis(config.add_partitions_to_txn_retry_backoff_ms),
            retry_max: millis(retry_max.min(config.request_timeout_ms)),
        }
    }

    /// `partitions` are led here, each with the first sequence that is to be written (-1: none).
    pub async fn verify(
        &self,
        transaction: Transaction,
        operation: SupportedOperation,
        partitions: &[(TopicPartition, i32)],
    ) -> Verified {
        if !self.replica_manager.verifies_transactions() && !operation.supports_epoch_bump() {
            return Verified::default();
        }
        let deadline = Instant::now() + self.retry_max;
        let mut backoff = Duration::ZERO;
        loop {
            let requests = requests(&transaction, operation, partitions);
            let begun = self.begin(&requests).await;
            if begun.guards.is_empty() {
                return begun;
            }
            let asked = begun.guards.keys().cloned().collect();
            let answers = self.ask(transaction.clone(), operation, asked).await;
            let is_refused =
                |answer: &(TopicPartition, ErrorCode)| answer.1 == ErrorCode::ConcurrentTransactions;
            let is_late = Instant::now() >= deadline || !operation.supports_epoch_bump();
            if is_late {
                return sorted_out(begun, answers, operation);
            }
            if answers.iter().any(is_refused) {
                self.wait_for_end(&transaction, &mut backoff).await;
            } else if !self.has_lost_guards(&requests, &begun.guards).await {
                return sorted_out(begun, answers, operation);
            } else {
                self.pause(&mut backoff).await;
            }
        }
    }

    /// The markers of a transaction are mostly written in no time: who asks meanwhile goes on when they are.
    async fn wait_for_end(&self, transaction: &Transaction, backoff: &mut Duration) {
        let ended = self.coordinator.ended(&transaction.transactional_id);
        match ended {
            // It has ended, or is given up, or takes long: the coordinator is asked again.
            Some(ended) => drop(tokio::time::timeout(self.retry_backoff, ended).await),
            // It has ended since, or this is not its coordinator any more.
            None => return self.pause(backoff).await,
        }
        self.lengthen(backoff);
    }

    /// Not at all the first time.
    async fn pause(&self, backoff: &mut Duration) {
        if !backoff.is_zero() {
            tokio::time::sleep(*backoff).await;
        }
        self.lengthen(backoff);
    }

    fn lengthen(&self, backoff: &mut Duration) {
        *backoff = (*backoff * 2).clamp(FIRST_BACKOFF, self.retry_backoff.max(FIRST_BACKOFF));
    }

    /// Guards, and the partitions that know a later epoch of the producer.
    async fn begin(&self, requests: &[(TopicPartition, VerificationRequest)]) -> Verified {
        let mut begun = Verified::default();
        for (partition, request) in requests {
            let started = self.replica_manager.start_verification(partition, *request);
            match started.await {
                Ok(Some(guard)) => {
                    begun.guards.insert(partition.clone(), guard);
                }
                Err(ReplicaError::Log(LogError::InvalidProducerEpoch { .. })) => {
                    let error = ErrorCode::InvalidProducerEpoch;
                    begun.errors.insert(partition.clone(), error);
                }
                // Open; or it cannot be begun: then the append fails, too, and says why.
                Ok(None) | Err(_) => {}
            }
        }
        begun
    }

    /// With version 2 a producer goes on at once after a transaction's end. Then the marker of that end may come after the guard was taken and
    /// before the coordinator is ready for the next transaction: the guard is gone, and another is needed.
    async fn has_lost_guards(
        &self,
        requests: &[(TopicPartition, VerificationRequest)],
        guards: &VerificationGuards,
    ) -> bool {
        let now = self.begin(requests).await.guards;
        now.iter()
            .any(|(partition, guard)| guards.get(partition) != Some(guard))
    }

    async fn ask(
        &self,
        transaction: Transaction,
        operation: SupportedOperation,
        partitions: BTreeSet<TopicPartition>,
    ) -> Vec<(TopicPartition, ErrorCode)> {
        let all = |error: ErrorCode| {
            let partitions = partitions.iter().cloned();
            partitions.map(|partition| (partition, error)).collect()
        };
        if operation.supports_epoch_bump() {
            let client_version = TransactionVersion::V2;
            let added = self
                .coordinator
                .add_partitions(transaction, partitions.clone(), client_version)
                .await;
            return all(added.err().unwrap_or(ErrorCode::None));
        }
        let verified = self
            .coordinator
            .verify_partitions(transaction, partitions.clone())
            .await;
        verified.unwrap_or_else(all)
    }
}

fn requests(
    transaction: &Transaction,
    operation: SupportedOperation,
    partitions: &[(TopicPartition, i32)],
) -> Vec<(TopicPartition, VerificationRequest)> {
    let request = |(partition, base_sequence): &(TopicPartition, i32)| {
        let request = VerificationRequest {
            producer_id: transaction.producer.producer_id,
            producer_epoch: transaction.producer.producer_epoch,
            base_sequence: *base_sequence,
            supports_epoch_bump: operation.supports_epoch_bump(),
        };
        (partition.clone(), request)
    };
    partitions.iter().map(request).collect()
}

fn sorted_out(
    mut verified: Verified,
    answers: Vec<(TopicPartition, ErrorCode)>,
    operation: SupportedOperation,
) -> Verified {
    for (partition, error) in answers {
        if error != ErrorCode::None {
            verified.guards.remove(&partition);
            verified.errors.insert(partition, told(error, operation));
        }
    }
    verified
}

/// What becomes of a coordinator's answer on its way to a client.
fn told(error: ErrorCode, operation: SupportedOperation) -> ErrorCode {
    match error {
        // Producers expect this one here.
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        // And older ones do not know this one.
        ErrorCode::TransactionAbortable if operation == SupportedOperation::DefaultError => {
            ErrorCode::InvalidTxnState
        }
        error => error,
    }
}
