//! Committed offsets, and those of transactions that are still open. Pure.
//!
//! A commit is a record like any other: it counts once it is below the high watermark, and OffsetFetch reads there. A
//! consumer that asks for stable offsets waits for what is being written, and is told to come back while a transaction
//! is open on a partition.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use super::classic_group::ClassicGroupState::{Empty, PreparingRebalance, Stable};
use super::consumer_group::validate_partition_epoch;
use super::consumer_member::ConsumerMember;
use super::consumer_records;
use super::records::GroupRecord;
use super::shard::{Group, GroupOutcome, GroupShard};
use super::{GroupConfig, owned};
use crate::coordinator::runtime::shard::OperationContext;
use crate::protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use crate::protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use crate::protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use crate::protocol::messages::{OffsetCommitRequest, OffsetCommitResponse, TopicName};
use crate::protocol::{ApiError, ErrorCode, StrBytes};
use crate::timeline::TimelineMap;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OffsetKey {
    pub group: StrBytes,
    pub topic: StrBytes,
    pub partition: i32,
}

/// By group, topic and partition. Keys share the names of their group and topic, which are mostly compared with themselves.
impl Ord for OffsetKey {
    fn cmp(&self, other: &Self) -> Ordering {
        fn names(one: &StrBytes, other: &StrBytes) -> Ordering {
            match one.as_ptr() == other.as_ptr() && one.len() == other.len() {
                true => Ordering::Equal,
                false => one.as_bytes().cmp(other.as_bytes()),
            }
        }
        names(&self.group, &other.group)
            .then_with(|| names(&self.topic, &other.topic))
            .then_with(|| self.partition.cmp(&other.partition))
    }
}

impl PartialOrd for OffsetKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl OffsetKey {
    /// Where a group's keys begin, and where they have ended.
    fn range_of(group: &StrBytes) -> std::ops::Range<OffsetKey> {
        let first = |group: StrBytes| OffsetKey {
            group,
            topic: StrBytes::new(),
            partition: i32::MIN,
        };
        let after = StrBytes::from_string(format!("{group}\0"));
        first(group.clone())..first(after)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OffsetAndMetadata {
    /// Offset of the commit's own record: the newer of two commits wins whatever the order of transactions.
    pub record_offset: i64,
    pub committed_offset: i64,
    /// -1: unknown.
    pub leader_epoch: i32,
    pub metadata: StrBytes,
    pub commit_timestamp_ms: i64,
    /// Of commits that named their own retention.
    pub expire_timestamp_ms: Option<i64>,
    /// Nil: from before topic ids.
    pub topic_id: Uuid,
}

/// A topic that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedTopic {
    pub id: Uuid,
    pub name: StrBytes,
}

#[derive(Debug, Default)]
pub struct Offsets {
    committed: TimelineMap<OffsetKey, OffsetAndMetadata>,
    /// Of open transactions, by producer.
    pending: TimelineMap<(i64, OffsetKey), OffsetAndMetadata>,
    /// The same by partition.
    open: TimelineMap<(OffsetKey, i64), ()>,
}

impl Offsets {
    pub fn get(&self, key: &OffsetKey) -> Option<&OffsetAndMetadata> {
        self.committed.get(key)
    }

    pub fn len(&self) -> usize {
        self.committed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.committed.is_empty()
    }

    /// `None`: the latest.
    fn get_at(&self, key: &OffsetKey, committed: Option<i64>) -> Option<&OffsetAndMetadata> {
        match committed {
            Some(committed) => self.committed.get_at(key, committed),
            None => self.committed.get(key),
        }
    }

    pub fn of_group(&self, group: &StrBytes) -> impl Iterator<Item = (&OffsetKey, &OffsetAndMetadata)> {
        self.committed.range(OffsetKey::range_of(group))
    }

    fn open_of(&self, key: &OffsetKey) -> impl Iterator<Item = &(OffsetKey, i64)> {
        let range = (key.clone(), i64::MIN)..=(key.clone(), i64::MAX);
        self.open.range(range).map(|(open, ())| open)
    }

    pub fn is_in_open_transaction(&self, key: &OffsetKey) -> bool {
        self.open_of(key).next().is_some()
    }

    fn open_of_group(&self, group: &StrBytes) -> impl Iterator<Item = &OffsetKey> {
        let range = OffsetKey::range_of(group);
        let range = (range.start, i64::MIN)..(range.end, i64::MIN);
        self.open.range(range).map(|((key, _), ())| key)
    }

    pub fn has_open_transaction(&self, group: &StrBytes) -> bool {
        self.open_of_group(group).next().is_some()
    }

    /// `producer_id` is -1 outside of transactions.
    pub fn replay(
        &mut self,
        offset: i64,
        producer_id: i64,
        key: OffsetKey,
        value: Option<OffsetAndMetadata>,
    ) {
        match value {
            Some(value) if producer_id == -1 => {
                self.committed.insert(offset, key, value);
            }
            Some(value) => {
                self.open.insert(offset, (key.clone(), producer_id), ());
                self.pending.insert(offset, (producer_id, key), value);
            }
            None => {
                self.committed.remove(offset, &key);
                let open: Vec<_> = self.open_of(&key).cloned().collect();
                for (key, producer_id) in open {
                    self.pending.remove(offset, &(producer_id, key.clone()));
                    self.open.remove(offset, &(key, producer_id));
                }
            }
        }
    }

    pub fn replay_end_transaction_marker(&mut self, offset: i64, producer_id: i64, committed: bool) {
        let before_all = OffsetKey {
            group: StrBytes::new(),
            topic: StrBytes::new(),
            partition: i32::MIN,
        };
        let range = (producer_id, before_all.clone())..(producer_id.saturating_add(1), before_all);
        let ended: Vec<(OffsetKey, OffsetAndMetadata)> = self
            .pending
            .range(range)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        for (key, value) in ended {
            self.pending.remove(offset, &(producer_id, key.clone()));
            self.open.remove(offset, &(key.clone(), producer_id));
            let newer = |existing: &OffsetAndMetadata| existing.record_offset >= value.record_offset;
            if committed && !self.committed.get(&key).is_some_and(newer) {
                self.committed.insert(offset, key, value);
            }
        }
    }

    pub fn commit(&mut self, offset: i64) {
        self.committed.commit(offset);
        self.pending.commit(offset);
        self.open.commit(offset);
    }

    pub fn revert(&mut self, offset: i64) {
        self.committed.revert(offset);
        self.pending.revert(offset);
        self.open.revert(offset);
    }

    /// Tombstones for all of a group's offsets.
    pub fn tombstones_of_group(&self, group: &StrBytes) -> Vec<GroupRecord> {
        let committed = self.of_group(group).map(|(key, _)| key);
        let mut keys: Vec<&OffsetKey> = committed.chain(self.open_of_group(group)).collect();
        keys.sort();
        keys.dedup();
        keys.into_iter().map(GroupRecord::offset_tombstone).collect()
    }

    /// Tombstones for what groups have committed of topics that are gone. A new topic of the same name is another.
    pub fn tombstones_of_topics(&self, topics: &[DeletedTopic]) -> Vec<GroupRecord> {
        let by_name: HashMap<&StrBytes, Uuid> = topics.iter().map(|topic| (&topic.name, topic.id)).collect();
        let gone = |key: &OffsetKey, value: &OffsetAndMetadata| {
            let id = by_name.get(&key.topic);
            id.is_some_and(|id| value.topic_id.is_nil() || value.topic_id == *id)
        };
        let committed = self.committed.iter();
        let pending = self.pending.iter().map(|((_, key), value)| (key, value));
        let mut keys: Vec<&OffsetKey> = committed
            .chain(pending)
            .filter(|(key, value)| gone(key, value))
            .map(|(key, _)| key)
            .collect();
        keys.sort();
        keys.dedup();
        keys.into_iter().map(GroupRecord::offset_tombstone).collect()
    }
}

pub(super) fn utf16_length(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Since when an offset counts as unused: what the retention is measured from. `None`: it does not expire.
fn unused_since_ms(group: &Group, offset: &OffsetAndMetadata) -> Option<i64> {
    match group {
        Group::Classic(group) if group.protocol_type().is_none() => Some(offset.commit_timestamp_ms),
        Group::Classic(group) if group.is_in(Empty) => {
            let since = group.current_state_timestamp_ms();
            Some(since.unwrap_or(offset.commit_timestamp_ms))
        }
        Group::Classic(group)
            if group.uses_consumer_group_protocol()
                && group.knows_subscribed_topics()
                && group.is_in(Stable) =>
        {
            Some(offset.commit_timestamp_ms)
        }
        Group::Classic(_) => None,
        Group::Consumer(_) => Some(offset.commit_timestamp_ms),
        // Which topics a group of another protocol consumes is not known here: it is empty, or its offsets stay.
        Group::Other(group) if !group.has_members() => Some(offset.commit_timestamp_ms),
        Group::Other(_) => None,
    }
}

fn is_expired(group: &Group, offset: &OffsetAndMetadata, now_ms: i64, config: &GroupConfig) -> bool {
    match (unused_since_ms(group, offset), offset.expire_timestamp_ms) {
        (None, _) => false,
        (Some(_), Some(expire_timestamp_ms)) => now_ms >= expire_timestamp_ms,
        (Some(since_ms), None) => now_ms - since_ms >= config.offsets_retention_ms,
    }
}

/// Committing.
impl GroupShard {
    /// Topics have their names and ids set, and exist. `knows_group_id_not_found`: from version 9.
    pub fn commit_offsets(
        &mut self,
        context: &OperationContext,
        request: &OffsetCommitRequest,
        knows_group_id_not_found: bool,
    ) -> Result<GroupOutcome<OffsetCommitResponse>, ApiError> {
        let mut effects = Vec::new();
        let group_id = owned(&request.group_id.0);
        let behind = self.validate_offset_commit(context, &group_id, request, knows_group_id_not_found)?;
        // In the classic protocol a commit is a sign of life too.
        if let Some(mut classic) = self.classic(&group_id, &mut effects, context.now_ms)
            && classic.is_in_any(&[Stable, PreparingRebalance])
        {
            classic.reschedule_heartbeat(&owned(&request.member_id));
        }
        let expire_timestamp_ms = (request.retention_time_ms != -1)
            .then(|| context.now_ms.saturating_add(request.retention_time_ms));
        let mut records = Vec::new();
        let mut response = OffsetCommitResponse::default();
        for topic in &request.topics {
            let name = self.intern(&topic.name.0);
            let mut answer = OffsetCommitResponseTopic::default()
                .with_name(topic.name.clone())
                .with_topic_id(topic.topic_id);
            for partition in &topic.partitions {
                let metadata = partition.committed_metadata.clone().unwrap_or_default();
                let too_large = utf16_length(&metadata) > self.config.offset_metadata_max_bytes;
                let error = match too_large {
                    true => ErrorCode::OffsetMetadataTooLarge,
                    false => ErrorCode::None,
                };
                answer.partitions.push(
                    OffsetCommitResponsePartition::default()
                        .with_partition_index(partition.partition_index)
                        .with_error_code(error.code()),
                );
                if too_large {
                    continue;
                }
                if let Some(member) = &behind {
                    let partition = (&name, topic.topic_id, partition.partition_index);
                    validate_partition_epoch(member, request.generation_id_or_member_epoch, partition)?;
                }
                let key = OffsetKey {
                    group: group_id.clone(),
                    topic: name.clone(),
                    partition: partition.partition_index,
                };
                let value = OffsetAndMetadata {
                    record_offset: -1,
                    committed_offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: owned(&metadata),
                    commit_timestamp_ms: context.now_ms,
                    expire_timestamp_ms,
                    topic_id: topic.topic_id,
                };
                records.push(GroupRecord::offset_commit(&key, &value));
            }
            response.topics.push(answer);
        }
        let mut outcome = GroupOutcome::with_records(records, response);
        outcome.effects = effects;
        Ok(outcome)
    }

    fn validate_offset_commit(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        request: &OffsetCommitRequest,
        knows_group_id_not_found: bool,
    ) -> Result<Option<Arc<ConsumerMember>>, ApiError> {
        let generation_id = request.generation_id_or_member_epoch;
        match self.groups.get(group_id) {
            Some(Group::Classic(group)) => group.validate_offset_commit(
                &request.member_id,
                request.group_instance_id.as_ref(),
                generation_id,
                false,
            )?,
            Some(Group::Consumer(group)) => {
                return group.validate_offset_commit(
                    &request.member_id,
                    request.group_instance_id.as_ref(),
                    generation_id,
                    false,
                    knows_group_id_not_found,
                );
            }
            Some(Group::Other(group)) => group.validate_offset_commit(&request.member_id, generation_id)?,
            // From an admin client, or a consumer without group management: a simple group.
            None if generation_id < 0 => {
                self.create_classic_group(context.next_offset, context.now_ms, group_id);
            }
            None if knows_group_id_not_found => {
                return Err(ApiError::new(
                    ErrorCode::GroupIdNotFound,
                    format!("Group {group_id} not found."),
                ));
            }
            None => return Err(ErrorCode::IllegalGeneration.into()),
        }
        Ok(None)
    }
}

/// Fetching.
impl GroupShard {
    /// `committed`: up to which offset records count; `None`: all, but none of a partition with an open transaction.
    pub fn fetch_offsets(
        &self,
        request: &OffsetFetchRequestGroup,
        committed: Option<i64>,
    ) -> Result<OffsetFetchResponseGroup, ApiError> {
        let mut response = OffsetFetchResponseGroup::default().with_group_id(request.group_id.clone());
        let known = match self.groups.get(&request.group_id.0) {
            None => false,
            Some(Group::Classic(_)) => true,
            Some(Group::Consumer(group)) => {
                group.validate_offset_fetch(request.member_id.as_ref(), request.member_epoch)?;
                true
            }
            Some(Group::Other(group)) => {
                match group.validate_offset_fetch(request.member_id.as_ref(), request.member_epoch) {
                    Ok(()) => true,
                    Err(ErrorCode::GroupIdNotFound) => false,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        response.topics = match &request.topics {
            None if known => self.all_offsets(&request.group_id.0, committed),
            None => Vec::new(),
            Some(topics) => {
                let topics = topics.iter().map(|topic| {
                    let partitions = topic.partition_indexes.iter().map(|partition| {
                        let key = OffsetKey {
                            group: request.group_id.0.clone(),
                            topic: topic.name.0.clone(),
                            partition: *partition,
                        };
                        self.offset_response(&key, topic.topic_id, known, committed)
                    });
                    OffsetFetchResponseTopics::default()
                        .with_name(topic.name.clone())
                        .with_topic_id(topic.topic_id)
                        .with_partitions(partitions.collect())
                });
                topics.collect()
            }
        };
        Ok(response)
    }

    fn all_offsets(&self, group_id: &StrBytes, committed: Option<i64>) -> Vec<OffsetFetchResponseTopics> {
        let keys: Vec<OffsetKey> = match committed {
            Some(committed) => {
                let range = OffsetKey::range_of(group_id);
                let entries = self.offsets.committed.range_at(range, committed);
                entries.into_iter().map(|(key, _)| key.clone()).collect()
            }
            None => self
                .offsets
                .of_group(group_id)
                .map(|(key, _)| key.clone())
                .collect(),
        };
        let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
        for key in keys {
            let partition = self.offset_response(&key, Uuid::nil(), true, committed);
            match topics.last_mut() {
                Some(topic) if topic.name.0 == key.topic => topic.partitions.push(partition),
                _ => topics.push(
                    OffsetFetchResponseTopics::default()
                        .with_name(TopicName(key.topic.clone()))
                        .with_partitions(vec![partition]),
                ),
            }
        }
        topics
    }

    fn offset_response(
        &self,
        key: &OffsetKey,
        topic_id: Uuid,
        group_known: bool,
        committed: Option<i64>,
    ) -> OffsetFetchResponsePartitions {
        let nothing = OffsetFetchResponsePartitions::default()
            .with_partition_index(key.partition)
            .with_committed_offset(-1)
            .with_committed_leader_epoch(-1)
            .with_metadata(Some(StrBytes::new()));
        if !group_known {
            return nothing;
        }
        if committed.is_none() && self.offsets.is_in_open_transaction(key) {
            return nothing.with_error_code(ErrorCode::UnstableOffsetCommit.code());
        }
        let of_another_topic = |value: &OffsetAndMetadata| {
            !value.topic_id.is_nil() && !topic_id.is_nil() && value.topic_id != topic_id
        };
        match self.offsets.get_at(key, committed) {
            Some(value) if !of_another_topic(value) => nothing
                .with_committed_offset(value.committed_offset)
                .with_committed_leader_epoch(value.leader_epoch)
                .with_metadata(Some(value.metadata.clone())),
            _ => nothing,
        }
    }
}

/// Forgetting.
impl GroupShard {
    /// Offsets that nobody has used for the retention time go, and with its last offset an empty group.
    pub(super) fn expire(&self, now_ms: i64) -> Vec<GroupRecord> {
        let mut records = Vec::new();
        for (group_id, group) in &self.groups {
            let mut all_expired = !self.offsets.has_open_transaction(group_id);
            for (key, offset) in self.offsets.of_group(group_id) {
                let in_use = match group {
                    Group::Classic(group) => group.is_subscribed_to(&key.topic),
                    Group::Consumer(group) => group.is_subscribed_to(&key.topic),
                    Group::Other(_) => false,
                };
                if !in_use
                    && is_expired(group, offset, now_ms, &self.config)
                    && !self.offsets.is_in_open_transaction(key)
                {
                    records.push(GroupRecord::offset_tombstone(key));
                } else {
                    all_expired = false;
                }
            }
            match group {
                Group::Classic(group) if all_expired && group.is_in(Empty) => {
                    records.push(GroupRecord::group_tombstone(group_id));
                }
                Group::Consumer(group) if all_expired && group.is_empty() => {
                    records.extend(consumer_records::group_tombstones(group, None));
                }
                Group::Other(group) if all_expired && group.may_become_classic() => {
                    records.extend(group.tombstones());
                }
                // A share group stays although it is empty; Kafka's does too.
                Group::Classic(_) | Group::Consumer(_) | Group::Other(_) => {}
            }
        }
        if !records.is_empty() {
            tracing::info!(tombstones = records.len(), "expired offsets and groups");
        }
        records
    }

    pub fn on_topics_deleted(&mut self, topics: &[DeletedTopic]) -> GroupOutcome<()> {
        let mut outcome = GroupOutcome::with_records(self.offsets.tombstones_of_topics(topics), ());
        outcome.atomic = false;
        outcome
    }
}

#[cfg(test)]
#[path = "offsets_test.rs"]
mod offsets_test;
