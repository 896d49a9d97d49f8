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

use super::partition_for::partition_for;
use crate::metadata::MetadataCache;

/// The internal topic.
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";

/// The partition of `__transaction_state` that a transactional id belongs to.
fn partition_of(metadata: &MetadataCache, transactional_id: &str) -> i32 {
    const KAFKA_DEFAULT: usize = 50;
    let image = metadata.load();
    let topic = image.topics.by_name(TRANSACTION_STATE_TOPIC);
    let partitions = topic.map_or(KAFKA_DEFAULT, |topic| topic.partitions.len());
    partition_for(transactional_id, i32::try_from(partitions).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod simulation_test;
