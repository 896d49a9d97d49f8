//! Groups and their committed offsets, on the partitions of `__consumer_offsets`.
//!
//! ```text
//! service           the async front: which partition, which operation, errors as answers
//! shard*            the state machine of one partition: groups by id; list, describe, delete, expire, replay
//!   classic_protocol* the classic protocol's requests and timers on it
//!     classic_join* classic_rebalance*   its rules
//!   classic_group*  one classic group: members, protocols, generation, the states and their transitions
//!   consumer_groups*    the consumer protocol's requests and timers (KIP-848): which group, in and out of it
//!   consumer_protocol*  one such operation on its group
//!     consumer_regexes* subscriptions by pattern      consumer_classic* members of the classic protocol among others
//!     consumer_migration*  from the classic protocol and back   consumer_requests, consumer_describe*   judging, telling
//!   consumer_group* consumer_member*   one consumer group, one member
//!     current_assignment*  how a member gets to its target    target_assignment*  what assignors are told, and answer
//!     metadata_hash* group_settings* embedded_protocol*
//!   other_group*    share and streams groups: kept, listed, deleted when empty; not served yet
//!   assignor/*      who reads what in a group of the consumer protocol
//!   subscription_regex*   topics by regular expression, in the syntax of RE2/J
//!   offsets*        committed offsets, those of open transactions, expiry
//!   offset_delete*  deleting offsets on request
//!   transactional_offsets*   commits in a transaction
//! records* consumer_records*   the records of all this
//! config            the settings that matter here
//! ```
//! `*` = pure.

pub mod assignor;
pub mod classic_group;
mod classic_join;
mod classic_protocol;
mod classic_rebalance;
pub mod config;
mod consumer_classic;
mod consumer_describe;
pub mod consumer_group;
mod consumer_groups;
pub mod consumer_member;
mod consumer_migration;
pub mod consumer_protocol;
mod consumer_records;
mod consumer_regexes;
mod consumer_requests;
mod current_assignment;
mod embedded_protocol;
mod group_settings;
mod metadata_hash;
mod offset_delete;
mod offset_replay;
pub mod offsets;
pub mod other_group;
pub mod records;
pub mod service;
pub mod shard;
pub mod subscription_regex;
pub mod target_assignment;
mod transactional_offsets;

pub use config::GroupConfig;
pub use records::GroupRecord;
pub use service::GroupCoordinatorService;
pub use service::operation_error;
pub use shard::GroupShard;

use crate::protocol::StrBytes;
use bytes::Bytes;

/// The internal topic.
pub const GROUP_METADATA_TOPIC: &str = "__consumer_offsets";

/// A copy that does not keep the request's frame alive.
fn owned(text: &StrBytes) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

fn owned_bytes(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

#[cfg(test)]
mod consumer_fixture_test;
#[cfg(test)]
mod fixture_test;
#[cfg(test)]
mod simulation_classic_test;
#[cfg(test)]
mod simulation_client_test;
#[cfg(test)]
mod simulation_test;
#[cfg(test)]
mod timers_test;
