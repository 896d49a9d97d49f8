//! Who reads which partition in a group of the consumer protocol: the server-side assignors of KIP-848. Pure.
//!
//! ```text
//! range            contiguous ranges, the same of every topic where topics have as many partitions
//! uniform          balanced and sticky: all members subscribed to the same topics, or
//!   uniform_heterogeneous    to different ones
//! ```
//!
//! Every member of the specification is in the answer, with an empty assignment if need be; every partition of a topic that
//! somebody subscribes to is given to exactly one of its subscribers; the same specification always has the same answer.
//!
//! They are Apache Kafka's, step for step, so that the same group gets the same assignment from both. What Apache Kafka
//! leaves to the order of a hash map is the order of ids here: members by id, topics by id, partitions by number.
//! Racks: Apache Kafka 4.4 hands them to its assignors, and neither of the two looks at them, so a specification has none.
//!
//! Must never: read the metadata image by itself, remember anything between two calls.

mod range;
mod uniform;
mod uniform_heterogeneous;

use std::cmp::Ordering;
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
    /// Topics that exist, by names and regular expressions. Members with one subscription share it, mostly.
    pub subscribed_topic_ids: Arc<BTreeSet<Uuid>>,
    /// The target until now; may name partitions of topics that are gone or not subscribed to any more.
    pub assignment: Arc<TopicPartitions>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopicSpec {
    pub partition_count: i32,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupSpec {
    pub members: BTreeMap<StrBytes, MemberSpec>,
    /// All topics that members subscribe to.
    pub topics: BTreeMap<Uuid, TopicSpec>,
    /// All members subscribe to the same topics. Apache Kafka decides it by the subscribed names: one that has no topic counts.
    pub is_homogeneous: bool,
}

impl GroupSpec {
    /// None, of a topic that is not there.
    fn partition_count(&self, topic_id: &Uuid) -> i32 {
        self.topics.get(topic_id).map_or(0, |topic| topic.partition_count)
    }
}

/// The assignors by name, in the order of the default of `group.consumer.assignors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Assignor {
    Uniform,
    Range,
}

impl Assignor {
    pub const ALL: [Assignor; 2] = [Assignor::Uniform, Assignor::Range];

    pub fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    pub fn from_name(name: &str) -> Option<Assignor> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }

    /// The new target assignment of the group.
    pub fn assign(self, group: &GroupSpec) -> GroupAssignment {
        match self {
            Assignor::Range => range::assign(group),
            Assignor::Uniform if group.is_homogeneous => uniform::assign(group),
            Assignor::Uniform => uniform_heterogeneous::assign(group),
        }
    }
}

/// As Java's `Uuid.compareTo`: by the signed values of the two halves.
fn compare_topic_ids(left: &Uuid, right: &Uuid) -> Ordering {
    let signed = |id: &Uuid| {
        let (most, least) = id.as_u64_pair();
        (most.cast_signed(), least.cast_signed())
    };
    signed(left).cmp(&signed(right))
}

#[cfg(test)]
mod assignor_test;
#[cfg(test)]
mod golden_test;
