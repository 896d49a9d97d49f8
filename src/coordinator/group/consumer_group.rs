//! One consumer group (KIP-848): its members, its epochs, what it subscribes to, and the target assignment. Pure.
//!
//! ```text
//! group epoch        moves whenever members, subscriptions or their topics change
//! assignment epoch   the group epoch that the target assignment was made for; never above it
//! member epoch       the assignment epoch that the member has reached (`current_assignment`)
//!
//! state         when
//! Empty         nobody is in it
//! Assigning     the group epoch is above the assignment epoch
//! Reconciling   a member is not where the target wants it
//! Stable        all are
//! ```
//!
//! All of it but `refresh` comes from records. A record's change can be taken back: `replay`
//! says what was there before ([`Previous`]).
//!
//! Invariants: what is counted by assignor, protocol, topic and pattern is what `members` say; `partition_epochs` has
//! every partition that a member has or has not given up yet, once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::assignor::TopicPartitions;
use super::classic_group::{CONSUMER_PROTOCOL_TYPE, MemberProtocol};
use super::consumer_member::{ConsumerMember, LEAVE_GROUP_MEMBER_EPOCH, MemberState, PartitionEpochs};
use super::owned;
use crate::coordinator::partition_for::java_hash_code;
use crate::protocol::records::group::{GroupRecordKey, GroupRecordValue};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

/// How many members subscribe to a topic by its name, and how many patterns match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionCount {
    pub by_name: usize,
    pub by_regex: usize,
}

pub type SubscribedTopics = BTreeMap<StrBytes, SubscriptionCount>;

/// The topics that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedRegex {
    pub topics: BTreeSet<StrBytes>,
    /// Offset of the metadata that was looked at.
    pub version: i64,
    pub timestamp_ms: i64,
}

/// What a record changed, as it was before it.
#[derive(Debug, Clone, PartialEq)]
pub enum Previous {
    Member(StrBytes, Option<Arc<ConsumerMember>>),
    Target(StrBytes, Option<Arc<TopicPartitions>>),
    Regex(StrBytes, Option<Arc<ResolvedRegex>>),
    Epoch { group_epoch: i32, metadata_hash: i64 },
    TargetMetadata { epoch: i32, timestamp_ms: i64 },
    SubscriptionMetadata(bool),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ConsumerGroup {
    group_id: StrBytes,
    group_epoch: i32,
    metadata_hash: i64,
    assignment_epoch: i32,
    /// 0: a target may be computed at once.
    assignment_timestamp_ms: i64,
    members: BTreeMap<StrBytes, Arc<ConsumerMember>>,
    target: BTreeMap<StrBytes, Arc<TopicPartitions>>,
    regexes: BTreeMap<StrBytes, Arc<ResolvedRegex>>,
    /// The log has a record of before 4.1, which is to be removed.
    has_subscription_metadata_record: bool,
    static_members: HashMap<StrBytes, StrBytes>,
    server_assignors: HashMap<StrBytes, usize>,
    subscribed_topics: SubscribedTopics,
    subscribed_regexes: BTreeMap<StrBytes, usize>,
    classic_member_count: usize,
    classic_protocols: HashMap<StrBytes, usize>,
    partition_epochs: HashMap<(Uuid, i32), i32>,
    /// When the topics' metadata is to be looked at again, and the group epoch for which that was found out. Not in the log.
    refresh: (i64, i32),
}

impl ConsumerGroup {
    pub fn new(group_id: StrBytes) -> Self {
        Self {
            group_id,
            group_epoch: 1,
            metadata_hash: 0,
            assignment_epoch: 1,
            assignment_timestamp_ms: 0,
            members: BTreeMap::new(),
            target: BTreeMap::new(),
            regexes: BTreeMap::new(),
            has_subscription_metadata_record: false,
            static_members: HashMap::new(),
            server_assignors: HashMap::new(),
            subscribed_topics: BTreeMap::new(),
            subscribed_regexes: BTreeMap::new(),
            classic_member_count: 0,
            classic_protocols: HashMap::new(),
            partition_epochs: HashMap::new(),
            refresh: (0, 0),
        }
    }

    /// A group in this epoch, with its target; members are added by `put_member` and `put_target`.
    pub fn converted(group_id: StrBytes, epoch: i32) -> Self {
        Self {
            group_epoch: epoch,
            assignment_epoch: epoch,
            ..Self::new(group_id)
        }
    }

    pub fn group_id(&self) -> &StrBytes {
        &self.group_id
    }

    pub fn group_epoch(&self) -> i32 {
        self.group_epoch
    }

    pub fn metadata_hash(&self) -> i64 {
        self.metadata_hash
    }

    pub fn set_metadata_hash(&mut self, metadata_hash: i64) {
        self.metadata_hash = metadata_hash;
    }

    pub fn assignment_epoch(&self) -> i32 {
        self.assignment_epoch
    }

    pub fn assignment_timestamp_ms(&self) -> i64 {
        self.assignment_timestamp_ms
    }

    pub fn members(&self) -> &BTreeMap<StrBytes, Arc<ConsumerMember>> {
        &self.members
    }

    pub fn member(&self, member_id: &StrBytes) -> Option<&Arc<ConsumerMember>> {
        self.members.get(member_id)
    }

    pub fn known_member(&self, member_id: &StrBytes) -> Result<&Arc<ConsumerMember>, ApiError> {
        self.members.get(member_id).ok_or_else(|| {
            let message = format!("Member {member_id} is not a member of group {}.", self.group_id);
            ApiError::new(ErrorCode::UnknownMemberId, message)
        })
    }

    pub fn static_member(&self, instance_id: &StrBytes) -> Option<&Arc<ConsumerMember>> {
        self.members.get(self.static_members.get(instance_id)?)
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// As clients see it.
    pub fn state(&self) -> &'static str {
        let is_reconciled = |member: &Arc<ConsumerMember>| member.is_reconciled_to(self.assignment_epoch);
        if self.members.is_empty() {
            "Empty"
        } else if self.group_epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.values().all(is_reconciled) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    pub fn is_reconciled_but_for(&self, member: &ConsumerMember) -> bool {
        let mut others = self
            .members
            .values()
            .filter(|other| other.member_id != member.member_id);
        others.all(|other| other.is_reconciled_to(self.assignment_epoch))
    }

    pub fn targets(&self) -> &BTreeMap<StrBytes, Arc<TopicPartitions>> {
        &self.target
    }

    pub fn target(&self, member_id: &StrBytes) -> Arc<TopicPartitions> {
        self.target.get(member_id).cloned().unwrap_or_default()
    }

    /// A static member has what its instance had.
    pub fn target_of(&self, member: &ConsumerMember) -> Arc<TopicPartitions> {
        match &member.instance_id {
            None => self.target(&member.member_id),
            Some(instance_id) => match self.static_members.get(instance_id) {
                Some(member_id) => self.target(member_id),
                None => Arc::default(),
            },
        }
    }

    pub fn has_subscription_metadata_record(&self) -> bool {
        self.has_subscription_metadata_record
    }

    pub fn subscribed_topics(&self) -> &SubscribedTopics {
        &self.subscribed_topics
    }

    pub fn is_subscribed_to(&self, topic: &StrBytes) -> bool {
        self.subscribed_topics.contains_key(topic)
    }

    pub fn is_homogeneous(&self) -> bool {
        is_homogeneous(
            &self.subscribed_regexes,
            &self.subscribed_topics,
            self.members.len(),
        )
    }

    pub fn regexes(&self) -> &BTreeMap<StrBytes, Arc<ResolvedRegex>> {
        &self.regexes
    }

    /// The patterns, and how many members subscribe to each.
    pub fn subscribed_regexes(&self) -> &BTreeMap<StrBytes, usize> {
        &self.subscribed_regexes
    }

    pub fn subscribers_of_regex(&self, regex: &StrBytes) -> usize {
        self.subscribed_regexes.get(regex).copied().unwrap_or(0)
    }

    /// Whether a member has the partition, or has not given it up yet.
    pub fn is_held(&self, topic_id: Uuid, partition: i32) -> bool {
        // -1 is that of nobody, and of a member whose assignment is removed.
        let epoch = self.partition_epochs.get(&(topic_id, partition));
        epoch.is_some_and(|epoch| *epoch != -1)
    }

    pub fn held_partitions(&self) -> impl Iterator<Item = &(Uuid, i32)> {
        self.partition_epochs.keys()
    }

    pub fn has_metadata_expired(&self, now_ms: i64) -> bool {
        let (deadline_ms, epoch) = self.refresh;
        now_ms >= deadline_ms || self.group_epoch < epoch
    }

    pub fn set_refresh(&mut self, deadline_ms: i64, group_epoch: i32) {
        self.refresh = (deadline_ms, group_epoch);
    }

    /// Its topics may have changed: the next heartbeat looks.
    pub fn request_metadata_refresh(&mut self) {
        self.refresh = (0, 0);
    }

    /// The assignor that most members want, if any names one; of equals the first in the order of a Java `HashMap`.
    pub fn preferred_server_assignor(
        &self,
        leaving: Option<&ConsumerMember>,
        coming: Option<&ConsumerMember>,
    ) -> Option<StrBytes> {
        let mut counts = self.server_assignors.clone();
        count_assignor(&mut counts, leaving, coming);
        let bucket = |name: &StrBytes| {
            let hash = java_hash_code(name) as u32;
            (hash ^ (hash >> 16)) & 15
        };
        let counts = counts.into_iter();
        counts
            .min_by_key(|(name, count)| (std::cmp::Reverse(*count), bucket(name), name.clone()))
            .map(|(name, _)| name)
    }

    /// How the patterns are subscribed to once `member` has become `updated`.
    pub fn regexes_with(
        &self,
        member: &ConsumerMember,
        updated: &ConsumerMember,
    ) -> BTreeMap<StrBytes, usize> {
        let mut counts = self.subscribed_regexes.clone();
        if member.regex() != updated.regex() {
            count(&mut counts, member.regex(), false);
            count(&mut counts, updated.regex(), true);
        }
        counts
    }

    /// What the group subscribes to once `member` has become `updated`.
    pub fn topics_with(&self, member: &ConsumerMember, updated: &ConsumerMember) -> SubscribedTopics {
        let mut topics = self.subscribed_topics.clone();
        subscribe_by_name(&mut topics, member, false);
        subscribe_by_name(&mut topics, updated, true);
        if let Some(regex) = member.regex()
            && updated.regex() != Some(regex)
            && self.subscribers_of_regex(regex) == 1
            && let Some(resolved) = self.regexes.get(regex)
        {
            subscribe_by_regex(&mut topics, resolved, false);
        }
        topics
    }

    /// What the group subscribes to once these are gone.
    pub fn topics_without(
        &self,
        members: &[Arc<ConsumerMember>],
        regexes: &BTreeSet<StrBytes>,
    ) -> SubscribedTopics {
        let mut topics = self.subscribed_topics.clone();
        for member in members {
            subscribe_by_name(&mut topics, member, false);
        }
        for resolved in regexes.iter().filter_map(|regex| self.regexes.get(regex)) {
            subscribe_by_regex(&mut topics, resolved, false);
        }
        topics
    }
}

/// Members that speak the classic protocol.
impl ConsumerGroup {
    /// Whether a member of this type and with these protocols can be in the group.
    pub fn supports_classic_protocols(&self, protocol_type: &StrBytes, protocols: &[MemberProtocol]) -> bool {
        if **protocol_type != *CONSUMER_PROTOCOL_TYPE {
            return false;
        }
        if self.is_empty() {
            return !protocols.is_empty();
        }
        protocols.iter().any(|protocol| {
            let count = self.classic_protocols.get(&protocol.name);
            count.copied().unwrap_or(0) == self.classic_member_count
        })
    }

    pub fn all_use_classic_protocol_except(&self, members: &[Arc<ConsumerMember>]) -> bool {
        let classic = members.iter().filter(|member| member.uses_classic_protocol());
        self.classic_member_count - classic.count() == self.members.len() - members.len()
    }

    /// Whether all that the member waits for is still with others.
    pub fn waits_for_unreleased_partition(&self, member: &ConsumerMember) -> bool {
        if member.state != MemberState::UnreleasedPartitions {
            return false;
        }
        let target = self.target(&member.member_id);
        target.iter().any(|(topic_id, partitions)| {
            let assigned = member.assigned.get(topic_id);
            let has = |partition: &i32| assigned.is_some_and(|assigned| assigned.contains_key(partition));
            partitions
                .iter()
                .any(|partition| !has(partition) && self.is_held(*topic_id, *partition))
        })
    }
}

/// What offset requests need.
impl ConsumerGroup {
    /// Whether a commit is welcome: it is then one of the current epoch (`None`), or one whose partitions must have been
    /// the member's since the epoch that it names (KIP-1251).
    pub fn validate_offset_commit(
        &self,
        member_id: &StrBytes,
        group_instance_id: Option<&StrBytes>,
        member_epoch: i32,
        is_transactional: bool,
        knows_member_epochs: bool,
    ) -> Result<Option<Arc<ConsumerMember>>, ApiError> {
        // From an admin client.
        if member_epoch < 0 && self.is_empty() {
            return Ok(None);
        }
        if is_transactional && member_epoch == -1 && member_id.is_empty() && group_instance_id.is_none() {
            return Ok(None);
        }
        let member = self.known_member(member_id)?;
        if !is_transactional && !member.uses_classic_protocol() && !knows_member_epochs {
            return Err(ApiError::new(
                ErrorCode::UnsupportedVersion,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            ));
        }
        if member_epoch == member.member_epoch {
            return Ok(None);
        }
        if member_epoch < member.member_epoch {
            return Ok(Some(member.clone()));
        }
        let what = if member.uses_classic_protocol() {
            "generation id"
        } else {
            "member epoch"
        };
        let message = format!(
            "Received {what} {member_epoch} is newer than current member epoch {}.",
            member.member_epoch
        );
        Err(ApiError::new(stale(member), message))
    }

    pub fn validate_offset_fetch(
        &self,
        member_id: Option<&StrBytes>,
        member_epoch: i32,
    ) -> Result<(), ApiError> {
        let member = match member_id {
            None if member_epoch < 0 => return Ok(()),
            // Kafka fails there.
            None => return Err(ErrorCode::UnknownServerError.into()),
            Some(member_id) => self.known_member(member_id)?,
        };
        if member_epoch == member.member_epoch {
            return Ok(());
        }
        let what = if member.uses_classic_protocol() {
            "generation id"
        } else {
            "member epoch"
        };
        let message = format!(
            "The received {what} {member_epoch} does not match the expected member epoch {}.",
            member.member_epoch
        );
        Err(ApiError::new(stale(member), message))
    }

    pub fn validate_delete(&self) -> Result<(), ErrorCode> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(ErrorCode::NonEmptyGroup),
        }
    }
}

fn stale(member: &ConsumerMember) -> ErrorCode {
    match member.uses_classic_protocol() {
        true => ErrorCode::IllegalGeneration,
        false => ErrorCode::StaleMemberEpoch,
    }
}

/// Whether a commit of an older epoch may name the partition.
pub fn validate_partition_epoch(
    member: &ConsumerMember,
    member_epoch: i32,
    (topic, topic_id, partition): (&StrBytes, Uuid, i32),
) -> Result<(), ApiError> {
    let message = match member.epoch_of(topic_id, partition) {
        None => format!("Partition {topic}-{partition} is not assigned or pending revocation for member."),
        Some(epoch) if member_epoch < epoch => {
            let what = if member.uses_classic_protocol() {
                "generation id"
            } else {
                "member epoch"
            };
            format!(
                "Received {what} {member_epoch} is older than assignment epoch {epoch} for partition {topic}-{partition}."
            )
        }
        Some(_) => return Ok(()),
    };
    Err(ApiError::new(stale(member), message))
}

/// Changes.
impl ConsumerGroup {
    /// Applies a record of this group. `None`: it changes nothing. A group's own tombstone is not for here.
    pub fn replay(&mut self, key: &GroupRecordKey, value: Option<&GroupRecordValue>) -> Option<Previous> {
        match (key, value) {
            (
                GroupRecordKey::ConsumerGroupMetadata(_),
                Some(GroupRecordValue::ConsumerGroupMetadata(value)),
            ) => Some(self.put_epoch(value.epoch, value.metadata_hash)),
            (GroupRecordKey::ConsumerGroupPartitionMetadata(_), value) => {
                let previous = self.has_subscription_metadata_record;
                self.has_subscription_metadata_record = value.is_some();
                Some(Previous::SubscriptionMetadata(previous))
            }
            (GroupRecordKey::ConsumerGroupMemberMetadata(key), value) => {
                self.replay_member(&key.member_id, value)
            }
            (GroupRecordKey::ConsumerGroupTargetAssignmentMetadata(_), value) => {
                let (epoch, timestamp_ms) = match value {
                    Some(GroupRecordValue::ConsumerGroupTargetAssignmentMetadata(value)) => {
                        (value.assignment_epoch, value.assignment_timestamp)
                    }
                    _ => (-1, 0),
                };
                Some(self.put_target_metadata(epoch, timestamp_ms))
            }
            (GroupRecordKey::ConsumerGroupTargetAssignmentMember(key), value) => {
                let target = match value {
                    Some(GroupRecordValue::ConsumerGroupTargetAssignmentMember(value)) => {
                        let topics = value.topic_partitions.iter();
                        let topics =
                            topics.map(|topic| (topic.topic_id, topic.partitions.iter().copied().collect()));
                        Some(Arc::new(topics.collect()))
                    }
                    _ => None,
                };
                Some(self.put_target(owned(&key.member_id), target))
            }
            (GroupRecordKey::ConsumerGroupCurrentMemberAssignment(key), value) => {
                self.replay_current_assignment(&key.member_id, value)
            }
            (GroupRecordKey::ConsumerGroupRegularExpression(key), value) => {
                let resolved = match value {
                    Some(GroupRecordValue::ConsumerGroupRegularExpression(value)) => {
                        Some(Arc::new(ResolvedRegex {
                            topics: value.topics.iter().map(owned).collect(),
                            version: value.version,
                            timestamp_ms: value.timestamp,
                        }))
                    }
                    _ => None,
                };
                Some(self.put_regex(owned(&key.regular_expression), resolved))
            }
            (_, _) => None,
        }
    }

    fn replay_member(&mut self, member_id: &StrBytes, value: Option<&GroupRecordValue>) -> Option<Previous> {
        let existing = self.members.get(member_id).cloned();
        match value {
            Some(GroupRecordValue::ConsumerGroupMemberMetadata(value)) => {
                let mut member = match &existing {
                    Some(member) => (**member).clone(),
                    None => ConsumerMember::new(owned(member_id)),
                };
                member.update_metadata(value);
                Some(self.put_member(member.member_id.clone(), Some(Arc::new(member))))
            }
            Some(_) => None,
            None => existing.map(|member| self.put_member(member.member_id.clone(), None)),
        }
    }

    fn replay_current_assignment(
        &mut self,
        member_id: &StrBytes,
        value: Option<&GroupRecordValue>,
    ) -> Option<Previous> {
        let existing = self.members.get(member_id).cloned();
        let mut member = match (&existing, value) {
            (Some(member), _) => (**member).clone(),
            (None, Some(_)) => ConsumerMember::new(owned(member_id)),
            (None, None) => return None,
        };
        match value {
            Some(GroupRecordValue::ConsumerGroupCurrentMemberAssignment(value)) => {
                member.update_assignment(value)
            }
            Some(_) => return None,
            None => member.forget_assignment(),
        }
        Some(self.put_member(member.member_id.clone(), Some(Arc::new(member))))
    }

    /// Takes a change back.
    pub fn restore(&mut self, previous: Previous) {
        match previous {
            Previous::Member(member_id, member) => self.put_member(member_id, member),
            Previous::Target(member_id, target) => self.put_target(member_id, target),
            Previous::Regex(regex, resolved) => self.put_regex(regex, resolved),
            Previous::Epoch {
                group_epoch,
                metadata_hash,
            } => self.put_epoch(group_epoch, metadata_hash),
            Previous::TargetMetadata { epoch, timestamp_ms } => self.put_target_metadata(epoch, timestamp_ms),
            Previous::SubscriptionMetadata(has_record) => {
                let previous = self.has_subscription_metadata_record;
                self.has_subscription_metadata_record = has_record;
                Previous::SubscriptionMetadata(previous)
            }
        };
    }

    fn put_epoch(&mut self, group_epoch: i32, metadata_hash: i64) -> Previous {
        Previous::Epoch {
            group_epoch: std::mem::replace(&mut self.group_epoch, group_epoch),
            metadata_hash: std::mem::replace(&mut self.metadata_hash, metadata_hash),
        }
    }

    fn put_target_metadata(&mut self, epoch: i32, timestamp_ms: i64) -> Previous {
        Previous::TargetMetadata {
            epoch: std::mem::replace(&mut self.assignment_epoch, epoch),
            timestamp_ms: std::mem::replace(&mut self.assignment_timestamp_ms, timestamp_ms),
        }
    }

    pub fn put_target(&mut self, member_id: StrBytes, target: Option<Arc<TopicPartitions>>) -> Previous {
        let previous = match target {
            Some(target) => self.target.insert(member_id.clone(), target),
            None => self.target.remove(&member_id),
        };
        Previous::Target(member_id, previous)
    }

    fn put_regex(&mut self, regex: StrBytes, resolved: Option<Arc<ResolvedRegex>>) -> Previous {
        let previous = self.regexes.remove(&regex);
        if let Some(previous) = &previous {
            subscribe_by_regex(&mut self.subscribed_topics, previous, false);
        }
        if let Some(resolved) = resolved {
            subscribe_by_regex(&mut self.subscribed_topics, &resolved, true);
            self.regexes.insert(regex.clone(), resolved);
        }
        Previous::Regex(regex, previous)
    }

    pub fn put_member(&mut self, member_id: StrBytes, member: Option<Arc<ConsumerMember>>) -> Previous {
        let previous = self.members.remove(&member_id);
        if let Some(previous) = &previous {
            self.count_member(previous, false);
        }
        if let Some(member) = member {
            self.count_member(&member, true);
            self.members.insert(member_id.clone(), member);
        }
        Previous::Member(member_id, previous)
    }

    /// Adds what a member has and wants to what is counted, or takes it out.
    fn count_member(&mut self, member: &Arc<ConsumerMember>, add: bool) {
        subscribe_by_name(&mut self.subscribed_topics, member, add);
        count(&mut self.subscribed_regexes, member.regex(), add);
        match add {
            true => count_assignor(&mut self.server_assignors, None, Some(member)),
            false => count_assignor(&mut self.server_assignors, Some(member), None),
        }
        if let Some(instance_id) = &member.instance_id {
            match add {
                true => {
                    let (instance_id, member_id) = (instance_id.clone(), member.member_id.clone());
                    self.static_members.insert(instance_id, member_id);
                }
                // Another member may have taken the instance over.
                false if self.static_members.get(instance_id) == Some(&member.member_id) => {
                    self.static_members.remove(instance_id);
                }
                false => {}
            }
        }
        if let Some(classic) = &member.classic {
            match add {
                true => self.classic_member_count += 1,
                false => self.classic_member_count -= 1,
            }
            for protocol in &classic.protocols {
                count_name(&mut self.classic_protocols, &protocol.name, add);
            }
        }
        self.count_partitions(&member.assigned, member.member_epoch, add);
        self.count_partitions(&member.pending_revocation, member.member_epoch, add);
    }

    fn count_partitions(&mut self, partitions: &PartitionEpochs, epoch: i32, add: bool) {
        for (topic_id, partitions) in partitions {
            for partition in partitions.keys() {
                let key = (*topic_id, *partition);
                let current = self.partition_epochs.get(&key).copied();
                match (add, current) {
                    (true, Some(current)) if current >= epoch => tracing::error!(
                        group = %self.group_id, %topic_id, partition, epoch, current,
                        "a partition is given to a member while another has it"
                    ),
                    (true, _) => {
                        self.partition_epochs.insert(key, epoch);
                    }
                    (false, Some(current)) if current == epoch => {
                        self.partition_epochs.remove(&key);
                    }
                    (false, _) => {}
                }
            }
        }
    }
}

fn count_name(counts: &mut HashMap<StrBytes, usize>, name: &StrBytes, add: bool) {
    let count = counts.entry(name.clone()).or_default();
    *count = if add { *count + 1 } else { count.saturating_sub(1) };
    if *count == 0 {
        counts.remove(name);
    }
}

fn count_assignor(
    counts: &mut HashMap<StrBytes, usize>,
    leaving: Option<&ConsumerMember>,
    coming: Option<&ConsumerMember>,
) {
    if let Some(name) = leaving.and_then(|member| member.server_assignor.as_ref()) {
        count_name(counts, name, false);
    }
    if let Some(name) = coming.and_then(|member| member.server_assignor.as_ref()) {
        count_name(counts, name, true);
    }
}

fn count(counts: &mut BTreeMap<StrBytes, usize>, regex: Option<&StrBytes>, add: bool) {
    let Some(regex) = regex else { return };
    let count = counts.entry(regex.clone()).or_default();
    *count = if add { *count + 1 } else { count.saturating_sub(1) };
    if *count == 0 {
        counts.remove(regex);
    }
}

fn subscribe(topics: &mut SubscribedTopics, topic: &StrBytes, change: impl Fn(&mut SubscriptionCount)) {
    let count = topics.entry(topic.clone()).or_default();
    change(count);
    if *count == SubscriptionCount::default() {
        topics.remove(topic);
    }
}

fn subscribe_by_name(topics: &mut SubscribedTopics, member: &ConsumerMember, add: bool) {
    for topic in &*member.subscribed_topic_names {
        subscribe(topics, topic, |count| match add {
            true => count.by_name += 1,
            false => count.by_name = count.by_name.saturating_sub(1),
        });
    }
}

pub fn subscribe_by_regex(topics: &mut SubscribedTopics, resolved: &ResolvedRegex, add: bool) {
    for topic in &resolved.topics {
        subscribe(topics, topic, |count| match add {
            true => count.by_regex += 1,
            false => count.by_regex = count.by_regex.saturating_sub(1),
        });
    }
}

/// Whether all members subscribe to the same topics, as Kafka finds it out (`ConsumerGroup.subscriptionType`).
pub fn is_homogeneous(
    regexes: &BTreeMap<StrBytes, usize>,
    topics: &SubscribedTopics,
    members: usize,
) -> bool {
    match regexes.values().next() {
        None => topics.values().all(|count| count.by_name == members),
        Some(subscribers) => {
            *subscribers == members
                && topics
                    .values()
                    .all(|count| count.by_regex == 1 && count.by_name == 0)
        }
    }
}

/// A member that is gone has this epoch in between.
pub fn is_removed(member: &ConsumerMember) -> bool {
    member.member_epoch == LEAVE_GROUP_MEMBER_EPOCH
}
