//! One member of a consumer group (KIP-848): what it asks for, its epoch, and the partitions that it has. Pure.
//!
//! A member's epoch says which target assignment it has reached. Its states, and what brings it into each
//! (`CurrentAssignmentBuilder`; the rules are in `current_assignment`):
//!
//! ```text
//! Stable                it has what the target of its epoch gives it
//! UnrevokedPartitions   it must give partitions up before it goes on; it stays in its epoch until it has said that it has
//! UnreleasedPartitions  it is in the target's epoch, but partitions of its are still with others
//! Unknown               a state of a later version; it must start anew
//! ```
//!
//! Members never change: a change is a new one that shares what stayed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::assignor::TopicPartitions;
use super::classic_group::MemberProtocol;
use super::{owned, owned_bytes};
use crate::protocol::StrBytes;
use crate::protocol::records::group::consumer_group_current_member_assignment_value::TopicPartitions as AssignedTopic;
use crate::protocol::records::group::{
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue,
};

/// Joins.
pub const JOIN_GROUP_MEMBER_EPOCH: i32 = 0;
/// Leaves.
pub const LEAVE_GROUP_MEMBER_EPOCH: i32 = -1;
/// A static member leaves and means to come back.
pub const LEAVE_GROUP_STATIC_MEMBER_EPOCH: i32 = -2;

/// Partitions with the epoch in which the member got each, by topic id.
pub type PartitionEpochs = BTreeMap<Uuid, BTreeMap<i32, i32>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    Stable,
    UnrevokedPartitions,
    UnreleasedPartitions,
    Unknown,
}

impl MemberState {
    pub fn value(self) -> i8 {
        match self {
            Self::Stable => 0,
            Self::UnrevokedPartitions => 1,
            Self::UnreleasedPartitions => 2,
            Self::Unknown => 127,
        }
    }

    pub fn from_value(value: i8) -> Self {
        match value {
            0 => Self::Stable,
            1 => Self::UnrevokedPartitions,
            2 => Self::UnreleasedPartitions,
            _ => Self::Unknown,
        }
    }
}

/// What a member has that speaks the classic protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassicMemberMetadata {
    pub session_timeout_ms: i32,
    pub protocols: Vec<MemberProtocol>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ConsumerMember {
    pub member_id: StrBytes,
    pub member_epoch: i32,
    pub previous_member_epoch: i32,
    pub state: MemberState,
    pub instance_id: Option<StrBytes>,
    pub rack_id: Option<StrBytes>,
    pub rebalance_timeout_ms: i32,
    pub client_id: StrBytes,
    pub client_host: StrBytes,
    pub subscribed_topic_names: Arc<BTreeSet<StrBytes>>,
    /// Empty or absent: none.
    pub subscribed_topic_regex: Option<StrBytes>,
    pub server_assignor: Option<StrBytes>,
    pub assigned: Arc<PartitionEpochs>,
    pub pending_revocation: Arc<PartitionEpochs>,
    /// Of a member that speaks the classic protocol.
    pub classic: Option<Arc<ClassicMemberMetadata>>,
}

impl ConsumerMember {
    pub fn new(member_id: StrBytes) -> Self {
        Self {
            member_id,
            member_epoch: 0,
            previous_member_epoch: -1,
            state: MemberState::Stable,
            instance_id: None,
            rack_id: None,
            rebalance_timeout_ms: -1,
            client_id: StrBytes::new(),
            client_host: StrBytes::new(),
            subscribed_topic_names: Arc::default(),
            subscribed_topic_regex: Some(StrBytes::new()),
            server_assignor: None,
            assigned: Arc::default(),
            pending_revocation: Arc::default(),
            classic: None,
        }
    }

    pub fn uses_classic_protocol(&self) -> bool {
        self.classic.is_some()
    }

    /// The pattern that it subscribes to, if any.
    pub fn regex(&self) -> Option<&StrBytes> {
        let regex = self.subscribed_topic_regex.as_ref();
        regex.filter(|regex| !regex.is_empty())
    }

    pub fn is_reconciled_to(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.member_epoch == target_epoch
    }

    /// Since which epoch it has the partition, or had it until it has given it up.
    pub fn epoch_of(&self, topic_id: Uuid, partition: i32) -> Option<i32> {
        let of = |partitions: &PartitionEpochs| partitions.get(&topic_id)?.get(&partition).copied();
        of(&self.assigned).or_else(|| of(&self.pending_revocation))
    }

    /// Goes into an epoch, remembering the one before.
    pub fn advance_to(&mut self, member_epoch: i32) {
        self.previous_member_epoch = self.member_epoch;
        self.member_epoch = member_epoch;
    }

    pub fn update_metadata(&mut self, value: &ConsumerGroupMemberMetadataValue) {
        self.instance_id = value.instance_id.as_ref().map(owned);
        self.rack_id = value.rack_id.as_ref().map(owned);
        self.client_id = owned(&value.client_id);
        self.client_host = owned(&value.client_host);
        self.subscribed_topic_names = Arc::new(value.subscribed_topic_names.iter().map(owned).collect());
        self.subscribed_topic_regex = value.subscribed_topic_regex.as_ref().map(owned);
        self.rebalance_timeout_ms = value.rebalance_timeout_ms;
        self.server_assignor = value.server_assignor.as_ref().map(owned);
        self.classic = value.classic_member_metadata.as_ref().map(|classic| {
            let protocols = classic.supported_protocols.iter().map(|protocol| MemberProtocol {
                name: owned(&protocol.name),
                metadata: owned_bytes(&protocol.metadata),
            });
            Arc::new(ClassicMemberMetadata {
                session_timeout_ms: classic.session_timeout_ms,
                protocols: protocols.collect(),
            })
        });
    }

    pub fn update_assignment(&mut self, value: &ConsumerGroupCurrentMemberAssignmentValue) {
        self.member_epoch = value.member_epoch;
        self.previous_member_epoch = value.previous_member_epoch;
        self.state = MemberState::from_value(value.state);
        self.assigned = Arc::new(from_record(&value.assigned_partitions, value.member_epoch));
        self.pending_revocation = Arc::new(from_record(
            &value.partitions_pending_revocation,
            value.member_epoch,
        ));
    }

    /// What is left of it once its assignment is removed, until it is removed itself.
    pub fn forget_assignment(&mut self) {
        self.member_epoch = LEAVE_GROUP_MEMBER_EPOCH;
        self.previous_member_epoch = LEAVE_GROUP_MEMBER_EPOCH;
        self.assigned = Arc::default();
        self.pending_revocation = Arc::default();
    }
}

/// Before 4.4 there were no epochs in the record: then the member's own counts.
fn from_record(topics: &[AssignedTopic], member_epoch: i32) -> PartitionEpochs {
    let mut partitions = PartitionEpochs::new();
    for topic in topics {
        let epochs = topic.assignment_epochs.as_ref();
        let epochs = epochs.filter(|epochs| epochs.len() == topic.partitions.len());
        let epoch_at = |index: usize| epochs.map_or(member_epoch.max(0), |epochs| epochs[index]);
        let with_epochs = topic.partitions.iter().enumerate();
        let with_epochs = with_epochs.map(|(index, partition)| (*partition, epoch_at(index)));
        partitions.insert(topic.topic_id, with_epochs.collect());
    }
    partitions
}

pub fn to_record(partitions: &PartitionEpochs) -> Vec<AssignedTopic> {
    let topics = partitions.iter().map(|(topic_id, partitions)| AssignedTopic {
        topic_id: *topic_id,
        partitions: partitions.keys().copied().collect(),
        assignment_epochs: Some(partitions.values().copied().collect()),
        ..Default::default()
    });
    topics.collect()
}

pub fn with_epoch(partitions: &TopicPartitions, epoch: i32) -> PartitionEpochs {
    let topics = partitions.iter().map(|(topic_id, partitions)| {
        let partitions = partitions.iter().map(|partition| (*partition, epoch));
        (*topic_id, partitions.collect())
    });
    topics.collect()
}

pub fn without_epochs(partitions: &PartitionEpochs) -> TopicPartitions {
    let topics = partitions.iter();
    topics
        .map(|(topic_id, partitions)| (*topic_id, partitions.keys().copied().collect()))
        .collect()
}
