//! The records of `__consumer_offsets` that consumer groups are made of, in the versions Kafka 4.4 writes. Pure.

use std::sync::Arc;

use super::assignor::TopicPartitions;
use super::consumer_group::{ConsumerGroup, ResolvedRegex};
use super::consumer_member::{ConsumerMember, to_record};
use super::records::GroupRecord;
use crate::protocol::StrBytes;
use crate::protocol::records::group::consumer_group_member_metadata_value::{
    ClassicMemberMetadata, ClassicProtocol,
};
use crate::protocol::records::group::consumer_group_target_assignment_member_value::TopicPartition;
use crate::protocol::records::group::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue, ConsumerGroupPartitionMetadataKey, ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue, ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue, ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue, GroupRecordKey, GroupRecordValue,
};

fn record(key: impl Into<GroupRecordKey>, value: impl Into<GroupRecordValue>) -> GroupRecord {
    GroupRecord {
        key: key.into(),
        value: Some((value.into(), 0)),
    }
}

pub fn member_metadata(group_id: &StrBytes, member: &ConsumerMember) -> GroupRecord {
    let classic = member.classic.as_ref().map(|classic| ClassicMemberMetadata {
        session_timeout_ms: classic.session_timeout_ms,
        supported_protocols: classic
            .protocols
            .iter()
            .map(|protocol| ClassicProtocol {
                name: protocol.name.clone(),
                metadata: protocol.metadata.clone(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    });
    let value = ConsumerGroupMemberMetadataValue {
        instance_id: member.instance_id.clone(),
        rack_id: member.rack_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        subscribed_topic_names: member.subscribed_topic_names.iter().cloned().collect(),
        subscribed_topic_regex: member.subscribed_topic_regex.clone(),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        server_assignor: member.server_assignor.clone(),
        classic_member_metadata: classic,
        ..Default::default()
    };
    record(member_metadata_key(group_id, &member.member_id), value)
}

fn member_metadata_key(group_id: &StrBytes, member_id: &StrBytes) -> ConsumerGroupMemberMetadataKey {
    ConsumerGroupMemberMetadataKey {
        group_id: group_id.clone(),
        member_id: member_id.clone(),
    }
}

pub fn member_metadata_tombstone(group_id: &StrBytes, member_id: &StrBytes) -> GroupRecord {
    GroupRecord::tombstone(member_metadata_key(group_id, member_id))
}

pub fn group_epoch(group_id: &StrBytes, epoch: i32, metadata_hash: i64) -> GroupRecord {
    let key = ConsumerGroupMetadataKey {
        group_id: group_id.clone(),
    };
    let value = ConsumerGroupMetadataValue {
        epoch,
        metadata_hash,
        ..Default::default()
    };
    record(key, value)
}

pub fn group_epoch_tombstone(group_id: &StrBytes) -> GroupRecord {
    GroupRecord::tombstone(ConsumerGroupMetadataKey {
        group_id: group_id.clone(),
    })
}

/// Of a record that Kafka 4.0 wrote.
pub fn subscription_metadata_tombstone(group_id: &StrBytes) -> GroupRecord {
    GroupRecord::tombstone(ConsumerGroupPartitionMetadataKey {
        group_id: group_id.clone(),
    })
}

pub fn target_metadata(group_id: &StrBytes, assignment_epoch: i32, timestamp_ms: i64) -> GroupRecord {
    let key = ConsumerGroupTargetAssignmentMetadataKey {
        group_id: group_id.clone(),
    };
    let value = ConsumerGroupTargetAssignmentMetadataValue {
        assignment_epoch,
        assignment_timestamp: timestamp_ms,
        ..Default::default()
    };
    record(key, value)
}

pub fn target_metadata_tombstone(group_id: &StrBytes) -> GroupRecord {
    GroupRecord::tombstone(ConsumerGroupTargetAssignmentMetadataKey {
        group_id: group_id.clone(),
    })
}

fn target_key(group_id: &StrBytes, member_id: &StrBytes) -> ConsumerGroupTargetAssignmentMemberKey {
    ConsumerGroupTargetAssignmentMemberKey {
        group_id: group_id.clone(),
        member_id: member_id.clone(),
    }
}

pub fn target(group_id: &StrBytes, member_id: &StrBytes, partitions: &TopicPartitions) -> GroupRecord {
    let topics = partitions.iter().map(|(topic_id, partitions)| TopicPartition {
        topic_id: *topic_id,
        partitions: partitions.iter().copied().collect(),
        ..Default::default()
    });
    let value = ConsumerGroupTargetAssignmentMemberValue {
        topic_partitions: topics.collect(),
        ..Default::default()
    };
    record(target_key(group_id, member_id), value)
}

pub fn target_tombstone(group_id: &StrBytes, member_id: &StrBytes) -> GroupRecord {
    GroupRecord::tombstone(target_key(group_id, member_id))
}

fn current_assignment_key(
    group_id: &StrBytes,
    member_id: &StrBytes,
) -> ConsumerGroupCurrentMemberAssignmentKey {
    ConsumerGroupCurrentMemberAssignmentKey {
        group_id: group_id.clone(),
        member_id: member_id.clone(),
    }
}

pub fn current_assignment(group_id: &StrBytes, member: &ConsumerMember) -> GroupRecord {
    let value = ConsumerGroupCurrentMemberAssignmentValue {
        member_epoch: member.member_epoch,
        previous_member_epoch: member.previous_member_epoch,
        state: member.state.value(),
        assigned_partitions: to_record(&member.assigned),
        partitions_pending_revocation: to_record(&member.pending_revocation),
        ..Default::default()
    };
    record(current_assignment_key(group_id, &member.member_id), value)
}

pub fn current_assignment_tombstone(group_id: &StrBytes, member_id: &StrBytes) -> GroupRecord {
    GroupRecord::tombstone(current_assignment_key(group_id, member_id))
}

fn regex_key(group_id: &StrBytes, regex: &StrBytes) -> ConsumerGroupRegularExpressionKey {
    ConsumerGroupRegularExpressionKey {
        group_id: group_id.clone(),
        regular_expression: regex.clone(),
    }
}

pub fn regular_expression(group_id: &StrBytes, regex: &StrBytes, resolved: &ResolvedRegex) -> GroupRecord {
    let value = ConsumerGroupRegularExpressionValue {
        topics: resolved.topics.iter().cloned().collect(),
        version: resolved.version,
        timestamp: resolved.timestamp_ms,
        ..Default::default()
    };
    record(regex_key(group_id, regex), value)
}

pub fn regular_expression_tombstone(group_id: &StrBytes, regex: &StrBytes) -> GroupRecord {
    GroupRecord::tombstone(regex_key(group_id, regex))
}

/// Removes a member, in the order in which its records may go.
pub fn member_tombstones(group_id: &StrBytes, member_id: &StrBytes) -> [GroupRecord; 3] {
    [
        current_assignment_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_metadata_tombstone(group_id, member_id),
    ]
}

/// Removes a group. `renamed`: a member whose records were written under another id just before.
pub fn group_tombstones(group: &ConsumerGroup, renamed: Option<(&StrBytes, &StrBytes)>) -> Vec<GroupRecord> {
    let group_id = group.group_id();
    let member_ids = || {
        group.members().keys().map(|member_id| match renamed {
            Some((old, new)) if old == member_id => new,
            _ => member_id,
        })
    };
    let mut records = Vec::with_capacity(3 * group.len() + 3);
    records.extend(member_ids().map(|member_id| current_assignment_tombstone(group_id, member_id)));
    records.extend(member_ids().map(|member_id| target_tombstone(group_id, member_id)));
    records.push(target_metadata_tombstone(group_id));
    records.extend(member_ids().map(|member_id| member_metadata_tombstone(group_id, member_id)));
    let regexes = group.regexes().keys();
    records.extend(regexes.map(|regex| regular_expression_tombstone(group_id, regex)));
    records.push(subscription_metadata_tombstone(group_id));
    records.push(group_epoch_tombstone(group_id));
    records
}

/// All of a group that has just been made of a classic one.
pub fn whole_group(group: &ConsumerGroup) -> Vec<GroupRecord> {
    let group_id = group.group_id();
    let members = || group.members().values();
    let mut records = Vec::with_capacity(3 * group.len() + 2);
    records.extend(members().map(|member| member_metadata(group_id, member)));
    records.push(group_epoch(group_id, group.group_epoch(), group.metadata_hash()));
    let targets = members().map(|member| (member, group.target(&member.member_id)));
    records.extend(targets.map(|(member, of_member): (_, Arc<TopicPartitions>)| {
        target(group_id, &member.member_id, &of_member)
    }));
    records.push(target_metadata(
        group_id,
        group.assignment_epoch(),
        group.assignment_timestamp_ms(),
    ));
    records.extend(members().map(|member| current_assignment(group_id, member)));
    records
}
