//! METADATA WRITES: the active controller's state machine, and the service that runs it over raft.
//!
//! ```text
//! service.rs worker.rs   one task: request -> shard decides -> records to raft -> reply when they are committed
//! shard.rs*      state = the metadata image + soft state; decide(&self) -> records, response, effects; replay
//! topics.rs* brokers.rs* directories.rs* producer_ids.rs* controllers.rs* features.rs* configs.rs* activation.rs*     decisions, one file a concern
//! elections.rs* partition_change.rs*   who leads, ISR and ELR         placement.rs*   where replicas go
//! heartbeats.rs*   sessions            indexes.rs*   which partitions concern which broker
//! ```
//! `*` = pure: no I/O, clock, threads or randomness.
//!
//! State changes only by replaying records, the same code on the active controller, on the others and at start. What was
//! replayed but is not committed yet is thrown away when the leadership ends.

pub mod activation;
pub mod brokers;
pub mod configs;
pub mod context;
pub mod controllers;
pub mod directories;
pub mod elections;
pub mod features;
pub mod heartbeats;
pub mod indexes;
pub mod partition_change;
pub mod placement;
pub mod producer_ids;
pub mod service;
pub mod shard;
pub mod topic_name;
pub mod topics;
mod worker;

pub use context::ControllerContext;
pub use service::{ControllerLog, ControllerService, ControllerServiceConfig};

#[cfg(test)]
mod test_support;
