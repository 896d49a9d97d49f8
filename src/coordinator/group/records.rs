//! The records of `__consumer_offsets` that classic groups and offsets are made of, in the versions Kafka 4.4 writes. Pure.

use uuid::Uuid;

use super::classic_group::ClassicGroup;
use super::offsets::{OffsetAndMetadata, OffsetKey};
use crate::protocol::StrBytes;
use crate::protocol::records::group::group_metadata_value::MemberMetadata;
use crate::protocol::records::group::{
    GroupMetadataKey, GroupMetadataValue, GroupRecordKey, GroupRecordValue, OffsetCommitKey,
    OffsetCommitValue,
};
use bytes::Bytes;
use std::collections::HashMap;

/// A key, and a value with its version; `None` is a tombstone.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRecord {
    pub key: GroupRecordKey,
    pub value: Option<(GroupRecordValue, i16)>,
}

const GROUP_METADATA_VALUE_VERSION: i16 = 3;
const OFFSET_COMMIT_VALUE_VERSION: i16 = 4;
/// The only version with an expire timestamp, for commits that name their retention (OffsetCommit 2 to 4).
const OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY: i16 = 1;

impl GroupRecord {
    pub fn tombstone(key: impl Into<GroupRecordKey>) -> Self {
        Self {
            key: key.into(),
            value: None,
        }
    }

    pub fn offset_commit(key: &OffsetKey, offset: &OffsetAndMetadata) -> Self {
        let value = OffsetCommitValue {
            offset: offset.committed_offset,
            leader_epoch: offset.leader_epoch,
            metadata: offset.metadata.clone(),
            commit_timestamp: offset.commit_timestamp_ms,
            expire_timestamp: offset.expire_timestamp_ms.unwrap_or(-1),
            topic_id: offset.topic_id,
            ..Default::default()
        };
        let version = match offset.expire_timestamp_ms {
            Some(_) => OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY,
            None => OFFSET_COMMIT_VALUE_VERSION,
        };
        Self {
            key: offset_commit_key(key).into(),
            value: Some((value.into(), version)),
        }
    }

    pub fn offset_tombstone(key: &OffsetKey) -> Self {
        Self::tombstone(offset_commit_key(key))
    }

    /// What a group is once its members have these assignments.
    pub fn group_metadata(group: &ClassicGroup, assignments: &HashMap<StrBytes, Bytes>) -> Self {
        let protocol = group.protocol_name().cloned();
        let members = group
            .members()
            .map(|member| MemberMetadata {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout: member.rebalance_timeout_ms,
                session_timeout: member.session_timeout_ms,
                subscription: protocol
                    .as_ref()
                    .and_then(|name| member.metadata(name))
                    .unwrap_or_default(),
                assignment: assignments.get(&member.member_id).cloned().unwrap_or_default(),
                ..Default::default()
            })
            .collect();
        let value = GroupMetadataValue {
            protocol_type: group.protocol_type().cloned().unwrap_or_default(),
            generation: group.generation_id(),
            protocol,
            leader: group.leader_id().cloned(),
            current_state_timestamp: group.current_state_timestamp_ms().unwrap_or(-1),
            members,
            ..Default::default()
        };
        Self::group_metadata_value(group.group_id(), value)
    }

    /// What is written for a group that has just been created and has no member yet.
    pub fn empty_group_metadata(group: &ClassicGroup) -> Self {
        let value = GroupMetadataValue {
            protocol: None,
            leader: None,
            current_state_timestamp: group.current_state_timestamp_ms().unwrap_or(-1),
            ..Default::default()
        };
        Self::group_metadata_value(group.group_id(), value)
    }

    fn group_metadata_value(group_id: &StrBytes, value: GroupMetadataValue) -> Self {
        Self {
            key: group_metadata_key(group_id).into(),
            value: Some((value.into(), GROUP_METADATA_VALUE_VERSION)),
        }
    }

    pub fn group_tombstone(group_id: &StrBytes) -> Self {
        Self::tombstone(group_metadata_key(group_id))
    }
}

/// The consumer group that a record belongs to.
pub fn consumer_group_of(key: &GroupRecordKey) -> Option<&StrBytes> {
    match key {
        GroupRecordKey::ConsumerGroupMetadata(key) => Some(&key.group_id),
        GroupRecordKey::ConsumerGroupPartitionMetadata(key) => Some(&key.group_id),
        GroupRecordKey::ConsumerGroupMemberMetadata(key) => Some(&key.group_id),
        GroupRecordKey::ConsumerGroupTargetAssignmentMetadata(key) => Some(&key.group_id),
        GroupRecordKey::ConsumerGroupTargetAssignmentMember(key) => Some(&key.group_id),
        GroupRecordKey::ConsumerGroupCurrentMemberAssignment(key) => Some(&key.group_id),
        GroupRecordKey::ConsumerGroupRegularExpression(key) => Some(&key.group_id),
        _ => None,
    }
}

fn group_metadata_key(group_id: &StrBytes) -> GroupMetadataKey {
    GroupMetadataKey {
        group: group_id.clone(),
    }
}

fn offset_commit_key(key: &OffsetKey) -> OffsetCommitKey {
    OffsetCommitKey {
        group: key.group.clone(),
        topic: key.topic.clone(),
        partition: key.partition,
    }
}

impl OffsetAndMetadata {
    pub fn from_record(record_offset: i64, value: OffsetCommitValue) -> Self {
        Self {
            record_offset,
            committed_offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: super::owned(&value.metadata),
            commit_timestamp_ms: value.commit_timestamp,
            expire_timestamp_ms: (value.expire_timestamp != -1).then_some(value.expire_timestamp),
            topic_id: value.topic_id,
        }
    }

    /// An offset of the time before leader epochs and topic ids.
    pub fn from_legacy_record(
        record_offset: i64,
        value: crate::protocol::records::group::LegacyOffsetCommitValue,
    ) -> Self {
        Self {
            record_offset,
            committed_offset: value.offset,
            leader_epoch: -1,
            metadata: super::owned(&value.metadata),
            commit_timestamp_ms: value.commit_timestamp,
            expire_timestamp_ms: None,
            topic_id: Uuid::nil(),
        }
    }
}
