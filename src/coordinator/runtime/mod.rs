//! The machinery under every coordinator: a state machine for each partition of an internal topic, kept on its log.
//!
//! ```text
//! shard     what a state machine is (the trait) and what its operations yield
//! runtime   which partitions are coordinated here; hands operations to them
//!   context one partition's task: loads, runs operations, appends, answers once committed, fires timers
//!     loader  replays a partition's log into a shard
//!     timer   deadlines by key
//! log       the door to the partition's log, and the replica manager behind it
//! without_panic  keeps a panic from ending the task around it
//! ```
//!
//! An operation reads and changes the shard, and yields records. Those are replayed into the shard, appended to the log as
//! one batch with those of the operations next to it, and the operation's answer leaves when the high watermark passes
//! them. An append that fails takes the changes back. An operation without records waits for what it may have seen.

pub mod context;
pub mod loader;
pub mod log;
#[allow(clippy::module_inception)]
pub mod runtime;
pub mod shard;
pub mod timer;
pub(crate) mod without_panic;

pub use log::{PartitionLog, ReplicaLog};
pub use runtime::{CoordinatorRuntime, RuntimeConfig};
pub use shard::{
    CoordinatorShard, Effect, OperationContext, Outcome, TransactionEnd, TransactionalAppend,
    TransactionalProducer,
};
pub use timer::TimerEvent;
