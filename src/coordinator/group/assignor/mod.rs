//! What server-side assignors are given, and what they answer (KIP-848). Pure.
//!
//! An assignor is a function `assign(&GroupSpec) -> GroupAssignment`. Every member of the specification is in the answer,
//! with an empty assignment if need be; every partition of a topic that somebody subscribes to is given to exactly one of
//! its subscribers; the same specification always has the same answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::protocol::StrBytes;

/// Partitions by topic id. A topic without partitions is not in it.
pub type TopicPartitions = BTreeMap<Uuid, BTreeSet<i32>>;

/// What each member is to have, by member id. Shared: an assignment that stays as it is need not be copied.
pub type GroupAssignment = BTreeMap<StrBytes, Arc<TopicPartitions>>;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemberSpec {
    /// Of a static member.
    pub instance_id: Option<StrBytes>,
    pub rack_id: Option<StrBytes>,
    /// Topics that exist, by names and regular expressions. Members with one subscription share it, mostly.
    pub subscribed_topic_ids: Arc<BTreeSet<Uuid>>,
    /// The target until now; may name partitions of topics that are gone or not subscribed to any more.
    pub assignment: Arc<TopicPartitions>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopicSpec {
    pub partition_count: i32,
    /// Racks of the replicas, by partition; shorter or empty where they are not known.
    pub racks: Vec<BTreeSet<StrBytes>>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupSpec {
    pub members: BTreeMap<StrBytes, MemberSpec>,
    /// All topics that members subscribe to.
    pub topics: BTreeMap<Uuid, TopicSpec>,
    /// All members subscribe to the same topics.
    pub is_homogeneous: bool,
}
