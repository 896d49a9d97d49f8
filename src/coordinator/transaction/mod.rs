//! Transactions by transactional id, on the partitions of `__transaction_state`.
//!
//! ```text
//! service            the async front: which partition, which operation, errors as answers; late transactions
//!   marker_sender    carries a decided transaction to its partitions, until all have its marker
//!     local_markers  writes markers to the partitions of this node
//! verifier           asks whether a producer may write to partitions of this node
//! shard*             the state machine of one partition: transactional ids; init, add, end, complete, list, expire
//!   transaction_state*   one transactional id: its states and their transitions
//! records*           the records of all this
//! config             the settings that matter here
//! ```
//! `*` = pure.

pub mod config;
pub mod local_markers;
pub mod marker_sender;
pub mod records;
pub mod service;
pub mod shard;
pub mod transaction_state;
pub mod verifier;

pub use config::TransactionConfig;
pub use local_markers::{LocalMarkerWriter, LocalMarkers};
pub use marker_sender::{MarkerResults, MarkerSender, MarkerWriter};
pub use records::TransactionRecord;
pub use service::{Transaction, TransactionCoordinatorParts, TransactionCoordinatorService};
pub use shard::{MarkerSink, TransactionMarkers, TransactionShard, TransactionShardConfig};
pub use transaction_state::{ProducerIdAndEpoch, TransactionMetadata, TransactionState, TransactionVersion};
pub use verifier::{SupportedOperation, TransactionVerifier, Verified};

use std::sync::Arc;

use super::topic_partitions::CoordinatorPartitions;
use crate::metadata::MetadataCache;

/// The internal topic.
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";

/// `__transaction_state` and its partitions; before there is one, as many as Kafka makes unless told otherwise.
fn transaction_state_partitions(metadata: MetadataCache) -> Arc<CoordinatorPartitions> {
    const KAFKA_DEFAULT: i32 = 50;
    Arc::new(CoordinatorPartitions::new(
        TRANSACTION_STATE_TOPIC,
        KAFKA_DEFAULT,
        metadata,
    ))
}

#[cfg(test)]
mod simulation_test;
