//! METADATA WRITES: the active controller's state machine, and the service that runs it over raft.
//!
//! ```text
//! service.rs       one task: request -> shard decides -> records to raft -> reply when they are committed
//! shard.rs*        state = the metadata image + soft state; decide(&self) -> records, response, effects; replay
//! topics.rs* brokers.rs* producer_ids.rs* controllers.rs* features.rs* configs.rs*     decisions, one file a concern
//! placement.rs*    where replicas go     partition_change.rs*  leader election, ISR and ELR     heartbeats.rs*  sessions
//! ```
//! `*` = pure: no I/O, clock, threads or randomness.
//!
//! State changes only by replaying records, the same code on the active controller, on the others and at start. What was
//! replayed but is not committed yet is thrown away when the leadership ends.

pub mod context;
pub mod heartbeats;
pub mod placement;
pub mod service;

pub use context::ControllerContext;
pub use service::{ControllerService, ControllerServiceConfig};
