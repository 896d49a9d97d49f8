//! Transactions by transactional id, on the partitions of `__transaction_state`.
//!
//! ```text
//! service            (to come) the async front: which partition, which operation, errors as answers; late transactions
//!   marker_sender    (to come) carries a decided transaction to its partitions, until all have its marker
//! shard*             the state machine of one partition: transactional ids; init, add, end, complete, list, expire
//!   transaction_state*   one transactional id: its states and their transitions
//! records*           the records of all this
//! ```
//! `*` = pure.

pub mod records;
pub mod shard;
pub mod transaction_state;

pub use records::TransactionRecord;
pub use shard::{MarkerSink, TransactionMarkers, TransactionShard, TransactionShardConfig};
pub use transaction_state::{TransactionMetadata, TransactionState, TransactionVersion};

/// The internal topic.
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";
