//! A group of a protocol that is not served yet: share (KIP-932), streams (KIP-1071). Pure.
//!
//! Such groups are in logs that Apache Kafka wrote. They are kept: their records stay in the log, and are known here by
//! their keys, so that the group is listed, its offsets live as long as Kafka would let them, and an empty one can be
//! deleted or make room for a classic group.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::records::GroupRecord;
use crate::protocol::records::group::{
    GroupRecordKey, GroupRecordValue, ShareGroupTargetAssignmentMetadataValue,
    StreamsGroupTargetAssignmentMetadataValue,
};
use crate::protocol::{ErrorCode, StrBytes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupKind {
    Share,
    Streams,
}

impl GroupKind {
    /// As ListGroups names the type; the protocol type is the same word.
    pub fn name(self) -> &'static str {
        match self {
            GroupKind::Share => "share",
            GroupKind::Streams => "streams",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Member {
    epoch: i32,
    /// `MemberState` of its kind of group.
    state: i8,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OtherGroup {
    kind: GroupKind,
    group_epoch: i32,
    assignment_epoch: i32,
    members: BTreeMap<StrBytes, Member>,
    /// Keys of the records that are not tombstones, those of the group as a whole last.
    live: BTreeMap<(u8, Bytes), GroupRecordKey>,
    /// The record that has the group's epoch.
    metadata: Option<GroupRecord>,
}

/// Which group a record belongs to; `None`: to a classic or a consumer group, or to offsets.
pub fn owner_of(key: &GroupRecordKey) -> Option<(GroupKind, &StrBytes)> {
    use GroupKind::{Share, Streams};
    Some(match key {
        GroupRecordKey::ShareGroupMetadata(key) => (Share, &key.group_id),
        GroupRecordKey::ShareGroupMemberMetadata(key) => (Share, &key.group_id),
        GroupRecordKey::ShareGroupTargetAssignmentMetadata(key) => (Share, &key.group_id),
        GroupRecordKey::ShareGroupTargetAssignmentMember(key) => (Share, &key.group_id),
        GroupRecordKey::ShareGroupCurrentMemberAssignment(key) => (Share, &key.group_id),
        GroupRecordKey::ShareGroupStatePartitionMetadata(key) => (Share, &key.group_id),
        GroupRecordKey::StreamsGroupMetadata(key) => (Streams, &key.group_id),
        GroupRecordKey::StreamsGroupMemberMetadata(key) => (Streams, &key.group_id),
        GroupRecordKey::StreamsGroupTargetAssignmentMetadata(key) => (Streams, &key.group_id),
        GroupRecordKey::StreamsGroupTargetAssignmentMember(key) => (Streams, &key.group_id),
        GroupRecordKey::StreamsGroupCurrentMemberAssignment(key) => (Streams, &key.group_id),
        GroupRecordKey::StreamsGroupTopology(key) => (Streams, &key.group_id),
        GroupRecordKey::ConsumerGroupMetadata(_)
        | GroupRecordKey::ConsumerGroupPartitionMetadata(_)
        | GroupRecordKey::ConsumerGroupMemberMetadata(_)
        | GroupRecordKey::ConsumerGroupTargetAssignmentMetadata(_)
        | GroupRecordKey::ConsumerGroupTargetAssignmentMember(_)
        | GroupRecordKey::ConsumerGroupCurrentMemberAssignment(_)
        | GroupRecordKey::ConsumerGroupRegularExpression(_)
        | GroupRecordKey::LegacyOffsetCommit(_)
        | GroupRecordKey::OffsetCommit(_)
        | GroupRecordKey::GroupMetadata(_)
        | GroupRecordKey::Unknown(_) => return None,
    })
}

const ASSIGNMENT_RANK: u8 = 1;
const GROUP_RANK: u8 = 2;

/// The member that a record is about, in the order in which a member's records are removed.
fn member_of(key: &GroupRecordKey) -> Option<(u8, &StrBytes)> {
    Some(match key {
        GroupRecordKey::ShareGroupCurrentMemberAssignment(key) => (0, &key.member_id),
        GroupRecordKey::StreamsGroupCurrentMemberAssignment(key) => (0, &key.member_id),
        GroupRecordKey::ShareGroupTargetAssignmentMember(key) => (1, &key.member_id),
        GroupRecordKey::StreamsGroupTargetAssignmentMember(key) => (1, &key.member_id),
        GroupRecordKey::ShareGroupMemberMetadata(key) => (2, &key.member_id),
        GroupRecordKey::StreamsGroupMemberMetadata(key) => (2, &key.member_id),
        _ => return None,
    })
}

/// Tombstones go from the members to the group.
fn rank(key: &GroupRecordKey) -> u8 {
    match key {
        GroupRecordKey::ShareGroupMetadata(_) | GroupRecordKey::StreamsGroupMetadata(_) => GROUP_RANK,
        GroupRecordKey::ShareGroupTargetAssignmentMetadata(_)
        | GroupRecordKey::StreamsGroupTargetAssignmentMetadata(_) => ASSIGNMENT_RANK,
        _ => 0,
    }
}

impl OtherGroup {
    pub fn new(kind: GroupKind) -> Self {
        Self {
            kind,
            group_epoch: 0,
            assignment_epoch: 0,
            members: BTreeMap::new(),
            live: BTreeMap::new(),
            metadata: None,
        }
    }

    pub fn kind(&self) -> GroupKind {
        self.kind
    }

    /// No record of it is left.
    pub fn is_gone(&self) -> bool {
        self.live.is_empty()
    }

    pub fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    /// As ListGroups names the state.
    pub fn state(&self) -> &'static str {
        if self.members.is_empty() {
            return "Empty";
        }
        if self.kind == GroupKind::Share {
            return "Stable";
        }
        let stable = if self.kind == GroupKind::Streams { 1 } else { 0 };
        let reconciled = |member: &Member| member.state == stable && member.epoch == self.assignment_epoch;
        if self.group_epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.values().all(reconciled) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// Empty, and with nothing elsewhere that would be left behind if it went.
    pub fn may_become_classic(&self) -> bool {
        self.kind != GroupKind::Share && self.members.is_empty()
    }

    pub fn replay(&mut self, key: GroupRecordKey, value: Option<(GroupRecordValue, i16)>) {
        let Ok(bytes) = key.encode() else { return };
        self.replay_members(&key, value.as_ref().map(|(value, _)| value));
        if rank(&key) == GROUP_RANK {
            self.metadata = value.as_ref().map(|value| GroupRecord {
                key: key.clone(),
                value: Some(value.clone()),
            });
        }
        match value {
            Some((value, _)) => {
                self.replay_epochs(&value);
                self.live.insert((rank(&key), bytes), key);
            }
            None => {
                self.live.remove(&(rank(&key), bytes));
            }
        }
    }

    fn replay_epochs(&mut self, value: &GroupRecordValue) {
        match value {
            GroupRecordValue::ShareGroupMetadata(value) => self.group_epoch = value.epoch,
            GroupRecordValue::StreamsGroupMetadata(value) => self.group_epoch = value.epoch,
            GroupRecordValue::ShareGroupTargetAssignmentMetadata(value) => {
                self.assignment_epoch = value.assignment_epoch
            }
            GroupRecordValue::StreamsGroupTargetAssignmentMetadata(value) => {
                self.assignment_epoch = value.assignment_epoch
            }
            _ => {}
        }
    }

    fn replay_members(&mut self, key: &GroupRecordKey, value: Option<&GroupRecordValue>) {
        let (member_id, is_membership) = match key {
            GroupRecordKey::ShareGroupMemberMetadata(key) => (&key.member_id, true),
            GroupRecordKey::StreamsGroupMemberMetadata(key) => (&key.member_id, true),
            GroupRecordKey::ShareGroupCurrentMemberAssignment(key) => (&key.member_id, false),
            GroupRecordKey::StreamsGroupCurrentMemberAssignment(key) => (&key.member_id, false),
            _ => return,
        };
        let (epoch, state) = match value {
            Some(GroupRecordValue::ShareGroupCurrentMemberAssignment(value)) => {
                (value.member_epoch, value.state)
            }
            Some(GroupRecordValue::StreamsGroupCurrentMemberAssignment(value)) => {
                (value.member_epoch, value.state)
            }
            Some(_) => {
                self.members.entry(member_id.clone()).or_default();
                return;
            }
            None if is_membership => {
                self.members.remove(member_id);
                return;
            }
            None => return,
        };
        let member = self.members.entry(member_id.clone()).or_default();
        (member.epoch, member.state) = (epoch, state);
    }

    pub fn member_ids(&self) -> impl Iterator<Item = &StrBytes> {
        self.members.keys()
    }

    /// A member has not shown up: its records go, and the group is in another epoch. With the last one the target
    /// assignment is that of nobody.
    pub fn fence(&self, member_id: &StrBytes) -> Vec<GroupRecord> {
        if !self.members.contains_key(member_id) {
            return Vec::new();
        }
        let mut keys: Vec<(u8, &GroupRecordKey)> = self
            .live
            .values()
            .filter_map(|key| Some((member_of(key)?, key)))
            .filter(|((_, owner), _)| *owner == member_id)
            .map(|((order, _), key)| (order, key))
            .collect();
        keys.sort_by_key(|(order, _)| *order);
        let tombstone = |key: &GroupRecordKey| GroupRecord {
            key: key.clone(),
            value: None,
        };
        let keys = keys.into_iter().map(|(_, key)| key);
        let mut records: Vec<GroupRecord> = keys.map(tombstone).collect();
        records.extend(self.next_epoch(self.members.len() == 1));
        records
    }

    /// The group's record of the next epoch, and if it is empty then, that of the assignment.
    fn next_epoch(&self, is_empty: bool) -> Vec<GroupRecord> {
        let Some(mut record) = self.metadata.clone() else {
            return Vec::new();
        };
        let assignment = match &mut record.value {
            Some((GroupRecordValue::ShareGroupMetadata(value), _)) => {
                value.epoch += 1;
                value.metadata_hash = if is_empty { 0 } else { value.metadata_hash };
                let assignment = ShareGroupTargetAssignmentMetadataValue {
                    assignment_epoch: value.epoch,
                    ..Default::default()
                };
                self.assignment_record(assignment.into())
            }
            Some((GroupRecordValue::StreamsGroupMetadata(value), _)) => {
                value.epoch += 1;
                let assignment = StreamsGroupTargetAssignmentMetadataValue {
                    assignment_epoch: value.epoch,
                    ..Default::default()
                };
                self.assignment_record(assignment.into())
            }
            _ => return Vec::new(),
        };
        let assignment = assignment.filter(|_| is_empty);
        std::iter::once(record).chain(assignment).collect()
    }

    fn assignment_record(&self, value: GroupRecordValue) -> Option<GroupRecord> {
        let key = self.live.values().find(|key| rank(key) == ASSIGNMENT_RANK)?;
        Some(GroupRecord {
            key: key.clone(),
            value: Some((value, 0)),
        })
    }

    /// Removes all that the log has of it.
    pub fn tombstones(&self) -> Vec<GroupRecord> {
        let keys = self.live.values().cloned();
        keys.map(|key| GroupRecord { key, value: None }).collect()
    }

    pub fn validate_delete(&self) -> Result<(), ErrorCode> {
        if !self.members.is_empty() {
            return Err(ErrorCode::NonEmptyGroup);
        }
        let has_share_state =
            |key: &GroupRecordKey| matches!(key, GroupRecordKey::ShareGroupStatePartitionMetadata(_));
        match self.live.values().any(has_share_state) {
            // Its state in `__share_group_state` would have to go first.
            true => Err(ErrorCode::GroupDeletionFailed),
            false => Ok(()),
        }
    }

    pub fn validate_offset_delete(&self) -> Result<(), ErrorCode> {
        match self.kind {
            GroupKind::Share => Err(ErrorCode::GroupIdNotFound),
            GroupKind::Streams => Ok(()),
        }
    }

    /// Which topics a member of a streams group consumes is not known here: all.
    pub fn is_subscribed_to_any(&self) -> bool {
        self.kind == GroupKind::Streams && self.has_members()
    }

    pub fn validate_offset_commit(&self, member_id: &StrBytes, member_epoch: i32) -> Result<(), ErrorCode> {
        if self.kind == GroupKind::Share {
            return Err(ErrorCode::GroupIdNotFound);
        }
        // From an admin client.
        if member_epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        self.validate_member(member_id, member_epoch)
    }

    pub fn validate_offset_fetch(
        &self,
        member_id: Option<&StrBytes>,
        member_epoch: i32,
    ) -> Result<(), ErrorCode> {
        match member_id {
            _ if self.kind == GroupKind::Share => Err(ErrorCode::GroupIdNotFound),
            None if member_epoch < 0 => Ok(()),
            None => Err(ErrorCode::UnknownMemberId),
            Some(member_id) => self.validate_member(member_id, member_epoch),
        }
    }

    fn validate_member(&self, member_id: &StrBytes, member_epoch: i32) -> Result<(), ErrorCode> {
        match self.members.get(member_id) {
            None => Err(ErrorCode::UnknownMemberId),
            Some(member) if member.epoch != member_epoch => Err(ErrorCode::StaleMemberEpoch),
            Some(_) => Ok(()),
        }
    }
}
