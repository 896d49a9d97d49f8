//! The state machine of one partition of `__consumer_offsets`: its groups and their offsets. Pure.
//!
//! What is on the log is applied by `replay` and nothing else, with one exception that is Kafka's too: a classic group is
//! soft state between its records, so its records describe it and are not replayed into it while it lives here.
//!
//! Groups that came or went with records that are not committed yet are remembered, so that `revert` can undo it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::classic_group::ClassicGroupState::{CompletingRebalance, Empty, PreparingRebalance, Stable};
use super::classic_group::{CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicGroupMember, MemberProtocol};
use super::classic_protocol::sync_error;
use super::config::GroupConfig;
use super::consumer_group::{ConsumerGroup, Previous};
use super::consumer_records;
use super::metadata_hash::TopicHashes;
use super::offsets::{OffsetAndMetadata, Offsets};
use super::other_group::{OtherGroup, owner_of};
use super::records::{GroupRecord, consumer_group_of};
use super::{owned, owned_bytes};
use crate::coordinator::runtime::shard::{
    CoordinatorShard, Effect, OperationContext, Outcome, Token, TopicChanges,
};
use crate::coordinator::runtime::timer::TimerEvent;
use crate::metadata::MetadataImage;
use crate::protocol::messages::delete_groups_response::DeletableGroupResult;
use crate::protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use crate::protocol::messages::list_groups_response::ListedGroup;
use crate::protocol::messages::{GroupId, JoinGroupResponse, SyncGroupResponse};
use crate::protocol::records::group::{GroupMetadataValue, GroupRecordKey, GroupRecordValue};
use crate::protocol::{ErrorCode, StrBytes, WireError};

/// Kafka's default for all three of the newer protocols.
const OTHER_GROUP_SESSION_TIMEOUT_MS: i64 = 45_000;

pub type GroupOutcome<T> = Outcome<GroupShard, T>;
pub type GroupEffect = Effect<GroupTimer, GroupReply>;

/// The answer to a parked request.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupReply {
    Join(JoinGroupResponse),
    Sync(SyncGroupResponse),
}

/// A timer whose records could not be written fires again after this long.
pub(super) const TIMER_RETRY_MS: i64 = 500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupTimer {
    /// A member has not shown that it lives.
    Heartbeat { group_id: StrBytes, member_id: StrBytes },
    /// The members of a new group had time to come.
    InitialRebalance {
        group_id: StrBytes,
        delay_ms: i32,
        remaining_ms: i32,
    },
    /// The members had time to rejoin.
    CompleteJoin { group_id: StrBytes },
    /// The members had time to sync.
    PendingSync { group_id: StrBytes, generation_id: i32 },
    /// Time to look for offsets that expired.
    Expiration,
    /// A member of a consumer group has not shown that it lives.
    ConsumerSession { group_id: StrBytes, member_id: StrBytes },
    /// It had time to give its partitions up in this epoch.
    ConsumerRebalance {
        group_id: StrBytes,
        member_id: StrBytes,
        member_epoch: i32,
    },
    /// One of the classic protocol had time to join again.
    ConsumerJoin { group_id: StrBytes, member_id: StrBytes },
    /// And then to sync.
    ConsumerSync { group_id: StrBytes, member_id: StrBytes },
    /// A consumer group's patterns are to be resolved.
    ResolveRegexes {
        group_id: StrBytes,
        regexes: Vec<StrBytes>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupTimerKey {
    Heartbeat(StrBytes, StrBytes),
    /// A group waits in one join phase at a time.
    Join(StrBytes),
    Sync(StrBytes),
    Expiration,
    ConsumerSession(StrBytes, StrBytes),
    ConsumerRebalance(StrBytes, StrBytes),
    ConsumerJoin(StrBytes, StrBytes),
    ConsumerSync(StrBytes, StrBytes),
    ResolveRegexes(StrBytes),
}

impl TimerEvent for GroupTimer {
    type Key = GroupTimerKey;

    fn key(&self) -> GroupTimerKey {
        match self {
            GroupTimer::Heartbeat { group_id, member_id } => {
                GroupTimerKey::Heartbeat(group_id.clone(), member_id.clone())
            }
            GroupTimer::InitialRebalance { group_id, .. } | GroupTimer::CompleteJoin { group_id } => {
                GroupTimerKey::Join(group_id.clone())
            }
            GroupTimer::PendingSync { group_id, .. } => GroupTimerKey::Sync(group_id.clone()),
            GroupTimer::Expiration => GroupTimerKey::Expiration,
            GroupTimer::ConsumerSession { group_id, member_id } => {
                GroupTimerKey::ConsumerSession(group_id.clone(), member_id.clone())
            }
            GroupTimer::ConsumerRebalance {
                group_id, member_id, ..
            } => GroupTimerKey::ConsumerRebalance(group_id.clone(), member_id.clone()),
            GroupTimer::ConsumerJoin { group_id, member_id } => {
                GroupTimerKey::ConsumerJoin(group_id.clone(), member_id.clone())
            }
            GroupTimer::ConsumerSync { group_id, member_id } => {
                GroupTimerKey::ConsumerSync(group_id.clone(), member_id.clone())
            }
            GroupTimer::ResolveRegexes { group_id, .. } => GroupTimerKey::ResolveRegexes(group_id.clone()),
        }
    }
}

/// What is to be done once records are committed, or could not be.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupPending {
    CreateGroup {
        token: Token,
    },
    StoreAssignments {
        group_id: StrBytes,
        generation_id: i32,
        assignments: HashMap<StrBytes, Bytes>,
    },
    ReplaceStaticMember {
        group_id: StrBytes,
        old: Box<ClassicGroupMember>,
        new_member_id: StrBytes,
        old_leader: Option<StrBytes>,
        supports_skipping_assignment: bool,
        token: Token,
    },
    /// The answer to a JoinGroup of a member of a consumer group.
    ConsumerJoin {
        token: Token,
        group_id: StrBytes,
        response: Box<JoinGroupResponse>,
        session_timeout_ms: i32,
        rebalance_timeout_ms: i32,
        is_downgrade: bool,
    },
    /// A timer has fired: it is to fire again if that could not be written.
    ConsumerTimer(GroupTimer),
    /// And to its SyncGroup.
    ConsumerSync {
        token: Token,
        group_id: StrBytes,
        member_id: StrBytes,
        response: Box<SyncGroupResponse>,
        session_timeout_ms: i32,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Group {
    Classic(Box<ClassicGroup>),
    Consumer(Box<ConsumerGroup>),
    Other(Box<OtherGroup>),
}

impl Group {
    fn state(&self) -> &'static str {
        match self {
            Group::Classic(group) => group.state().name(),
            Group::Consumer(group) => group.state(),
            Group::Other(group) => group.state(),
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Group::Classic(_) => "classic",
            Group::Consumer(_) => CONSUMER_PROTOCOL_TYPE,
            Group::Other(group) => group.kind().name(),
        }
    }
}

/// How to take back what an uncommitted record did.
#[derive(Debug)]
enum Undo {
    Remove(StrBytes),
    Restore(StrBytes, Group),
    Consumer(StrBytes, Previous),
}

pub struct GroupShard {
    pub(super) config: Arc<GroupConfig>,
    pub(super) groups: HashMap<StrBytes, Group>,
    pub(super) offsets: Offsets,
    undo: VecDeque<(i64, Undo)>,
    /// Records from the log are not taken back, so nothing is remembered of them.
    pub(super) is_loaded: bool,
    pub(super) image: Arc<MetadataImage>,
    pub(super) topic_hashes: TopicHashes,
    /// Offset of the metadata that last had a new topic, or that this shard began with.
    pub(super) new_topics_version: i64,
    /// Groups whose patterns are being resolved.
    pub(super) resolving: HashSet<StrBytes>,
    /// Topic names in use, so that a million offsets of one topic share its name.
    topics: HashSet<StrBytes>,
}

impl GroupShard {
    pub fn new(config: Arc<GroupConfig>) -> Self {
        Self {
            config,
            groups: HashMap::new(),
            offsets: Offsets::default(),
            undo: VecDeque::new(),
            is_loaded: false,
            image: Arc::new(MetadataImage::empty()),
            topic_hashes: TopicHashes::default(),
            new_topics_version: -1,
            resolving: HashSet::new(),
            topics: HashSet::new(),
        }
    }

    pub fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    pub fn classic_group(&self, group_id: &str) -> Option<&ClassicGroup> {
        match self.groups.get(group_id.as_bytes()) {
            Some(Group::Classic(group)) => Some(group),
            _ => None,
        }
    }

    pub(super) fn intern(&mut self, topic: &str) -> StrBytes {
        if let Some(known) = self.topics.get(topic.as_bytes()) {
            return known.clone();
        }
        let topic = StrBytes::from_string(topic.to_owned());
        self.topics.insert(topic.clone());
        topic
    }

    pub(super) fn create_classic_group(&mut self, offset: i64, now_ms: i64, group_id: &StrBytes) {
        let group = ClassicGroup::new(group_id.clone(), now_ms);
        self.put_group(offset, group_id, Group::Classic(Box::new(group)));
    }

    pub(super) fn put_group(&mut self, offset: i64, group_id: &StrBytes, group: Group) {
        let undo = match self.groups.insert(group_id.clone(), group) {
            Some(previous) => Undo::Restore(group_id.clone(), previous),
            None => Undo::Remove(group_id.clone()),
        };
        if self.is_loaded {
            self.undo.push_back((offset, undo));
        }
    }

    pub(super) fn forget_group(&mut self, offset: i64, group_id: &StrBytes) {
        if let Some(group) = self.groups.remove(group_id)
            && self.is_loaded
        {
            self.undo
                .push_back((offset, Undo::Restore(group_id.clone(), group)));
        }
    }
}

/// Looking at groups, and deleting them.
impl GroupShard {
    /// Filters are empty (all) or name states and types, in any case.
    pub fn list_groups(&self, states: &[StrBytes], types: &[StrBytes]) -> Vec<ListedGroup> {
        let lower = |names: &[StrBytes]| -> HashSet<String> {
            names.iter().map(|name| name.to_lowercase()).collect()
        };
        let states: HashSet<String> = lower(states).into_iter().map(|name| name.trim().into()).collect();
        let types = lower(types);
        let wanted = |group: &Group| {
            (states.is_empty() || states.contains(&group.state().to_lowercase()))
                && (types.is_empty() || types.contains(group.type_name()))
        };
        let listed = self.groups.iter().filter(|(_, group)| wanted(group));
        listed
            .map(|(group_id, group)| {
                let protocol_type = match group {
                    Group::Classic(group) => group.protocol_type().cloned().unwrap_or_default(),
                    Group::Consumer(_) => StrBytes::from_static_str(CONSUMER_PROTOCOL_TYPE),
                    Group::Other(group) => StrBytes::from_static_str(group.kind().name()),
                };
                ListedGroup::default()
                    .with_group_id(GroupId(group_id.clone()))
                    .with_protocol_type(protocol_type)
                    .with_group_state(StrBytes::from_static_str(group.state()))
                    .with_group_type(StrBytes::from_static_str(group.type_name()))
            })
            .collect()
    }

    /// `knows_group_id_not_found`: from version 6; before, a group that is not there is a dead one.
    pub fn describe_group(&self, group_id: &StrBytes, knows_group_id_not_found: bool) -> DescribedGroup {
        let described = DescribedGroup::default().with_group_id(GroupId(group_id.clone()));
        let reason = match self.groups.get(group_id) {
            Some(Group::Classic(group)) => return describe_classic(group, described),
            Some(Group::Consumer(_) | Group::Other(_)) => {
                format!("Group {group_id} is not a classic group.")
            }
            None => format!("Group {group_id} not found."),
        };
        let dead = described.with_group_state(StrBytes::from_static_str("Dead"));
        match knows_group_id_not_found {
            true => dead
                .with_error_code(ErrorCode::GroupIdNotFound.code())
                .with_error_message(Some(StrBytes::from_string(reason))),
            false => dead,
        }
    }

    pub fn delete_groups(&mut self, group_ids: &[StrBytes]) -> GroupOutcome<Vec<DeletableGroupResult>> {
        let (mut records, mut results) = (Vec::new(), Vec::new());
        for group_id in group_ids {
            let (deletable, tombstones) = match self.groups.get(group_id) {
                None => (Err(ErrorCode::GroupIdNotFound), Vec::new()),
                Some(Group::Classic(group)) => (
                    group.validate_delete(),
                    vec![GroupRecord::group_tombstone(group_id)],
                ),
                Some(Group::Consumer(group)) => (
                    group.validate_delete(),
                    consumer_records::group_tombstones(group, None),
                ),
                Some(Group::Other(group)) => (group.validate_delete(), group.tombstones()),
            };
            let error = deletable.err().unwrap_or(ErrorCode::None);
            if error == ErrorCode::None {
                records.extend(self.offsets.tombstones_of_group(group_id));
                records.extend(tombstones);
            }
            results.push(
                DeletableGroupResult::default()
                    .with_group_id(GroupId(group_id.clone()))
                    .with_error_code(error.code()),
            );
        }
        GroupOutcome::with_records(records, results)
    }
}

fn describe_classic(group: &ClassicGroup, described: DescribedGroup) -> DescribedGroup {
    let protocol = group.protocol_name().filter(|_| group.is_in(Stable));
    let members = group.members().map(|member| {
        let metadata = protocol.and_then(|protocol| member.metadata(protocol));
        DescribedGroupMember::default()
            .with_member_id(member.member_id.clone())
            .with_group_instance_id(member.group_instance_id.clone())
            .with_client_id(member.client_id.clone())
            .with_client_host(member.client_host.clone())
            .with_member_metadata(metadata.unwrap_or_default())
            .with_member_assignment(member.assignment.clone())
    });
    described
        .with_group_state(StrBytes::from_static_str(group.state().name()))
        .with_protocol_type(group.protocol_type().cloned().unwrap_or_default())
        .with_protocol_data(protocol.cloned().unwrap_or_default())
        .with_members(members.collect())
}

/// Replaying.
impl GroupShard {
    fn replay_group_metadata(&mut self, offset: i64, group_id: StrBytes, value: GroupMetadataValue) {
        let group_id = owned(&group_id);
        let protocol_type = owned(&value.protocol_type);
        let protocol = value.protocol.as_ref().map(owned);
        let state = if value.members.is_empty() { Empty } else { Stable };
        let mut group = ClassicGroup::restored(
            group_id.clone(),
            state,
            value.generation,
            (!protocol_type.is_empty()).then(|| protocol_type.clone()),
            protocol.clone(),
            value.leader.as_ref().map(owned),
            (value.current_state_timestamp != -1).then_some(value.current_state_timestamp),
        );
        for member in value.members {
            // Before version 1 there was one timeout for both.
            let rebalance_timeout_ms = match member.rebalance_timeout {
                -1 => member.session_timeout,
                timeout => timeout,
            };
            let loaded = ClassicGroupMember {
                member_id: owned(&member.member_id),
                group_instance_id: member.group_instance_id.as_ref().map(owned),
                client_id: owned(&member.client_id),
                client_host: owned(&member.client_host),
                rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout,
                protocols: vec![MemberProtocol {
                    name: protocol.clone().unwrap_or_default(),
                    metadata: owned_bytes(&member.subscription),
                }],
                assignment: owned_bytes(&member.assignment),
                held: None,
                is_new: false,
                awaiting_join: None,
                awaiting_sync: None,
            };
            group.add(loaded, &protocol_type);
        }
        group.refresh_subscribed_topics();
        self.put_group(offset, &group_id, Group::Classic(Box::new(group)));
    }

    /// What a record changes can be taken back without a copy of the group.
    fn replay_consumer_group(
        &mut self,
        offset: i64,
        group_id: &StrBytes,
        key: &GroupRecordKey,
        value: Option<&GroupRecordValue>,
    ) {
        let is_consumer_group = matches!(self.groups.get(group_id), Some(Group::Consumer(_)));
        if value.is_none() && (!is_consumer_group || matches!(key, GroupRecordKey::ConsumerGroupMetadata(_)))
        {
            // A tombstone of what is not there, or is something else by now; or of the group.
            if is_consumer_group {
                self.forget_group(offset, group_id);
            }
            return;
        }
        let group_id = match self.groups.get_key_value(group_id) {
            Some((known, _)) => known.clone(),
            None => owned(group_id),
        };
        if !is_consumer_group {
            let group = ConsumerGroup::new(group_id.clone());
            self.put_group(offset, &group_id, Group::Consumer(Box::new(group)));
        }
        if let Some(Group::Consumer(group)) = self.groups.get_mut(&group_id)
            && let Some(previous) = group.replay(key, value)
            && self.is_loaded
        {
            self.undo.push_back((offset, Undo::Consumer(group_id, previous)));
        }
    }

    fn replay_other_group(
        &mut self,
        offset: i64,
        key: GroupRecordKey,
        value: Option<(GroupRecordValue, i16)>,
    ) {
        let Some((kind, group_id)) = owner_of(&key) else {
            return;
        };
        let group_id = owned(group_id);
        let mut group = match self.groups.get_mut(&group_id) {
            // A log may have thousands of records of a group: only what may be taken back is copied.
            Some(Group::Other(group)) if group.kind() == kind && !self.is_loaded => {
                group.replay(key, value);
                if group.is_gone() {
                    self.forget_group(offset, &group_id);
                }
                return;
            }
            Some(Group::Other(group)) if group.kind() == kind => group.clone(),
            // A tombstone of what is not there, or is something else by now.
            _ if value.is_none() => return,
            _ => Box::new(OtherGroup::new(kind)),
        };
        group.replay(key, value);
        match group.is_gone() {
            true => self.forget_group(offset, &group_id),
            false => self.put_group(offset, &group_id, Group::Other(group)),
        }
    }
}

impl CoordinatorShard for GroupShard {
    type Record = GroupRecord;
    type Timer = GroupTimer;
    type Reply = GroupReply;
    type Pending = GroupPending;

    fn encode(record: &GroupRecord) -> Result<(Bytes, Option<Bytes>), WireError> {
        let value = record.value.as_ref();
        let value = value.map(|(value, version)| value.encode(*version)).transpose()?;
        Ok((record.key.encode()?, value))
    }

    fn decode(key: Bytes, value: Option<Bytes>) -> Result<Option<GroupRecord>, WireError> {
        let key = GroupRecordKey::decode(key)?;
        if matches!(key, GroupRecordKey::Unknown(_)) {
            return Ok(None);
        }
        let value = value
            .map(|value| GroupRecordValue::decode(key.record_type(), value))
            .transpose()?;
        Ok(Some(GroupRecord { key, value }))
    }

    fn replay_raw(&mut self, offset: i64, producer_id: i64, key: &[u8], value: Option<&[u8]>) -> bool {
        self.replay_raw_offset(offset, producer_id, key, value)
    }

    fn replay(&mut self, offset: i64, producer_id: i64, record: GroupRecord) {
        if let Some(group_id) = consumer_group_of(&record.key) {
            let value = record.value.as_ref().map(|(value, _)| value);
            self.replay_consumer_group(offset, group_id, &record.key, value);
            return;
        }
        if owner_of(&record.key).is_some() {
            self.replay_other_group(offset, record.key, record.value);
            return;
        }
        let value = record.value.map(|(value, _)| value);
        match (record.key, value) {
            (GroupRecordKey::OffsetCommit(key), value) => {
                let value = match value {
                    Some(GroupRecordValue::OffsetCommit(value)) => {
                        Some(OffsetAndMetadata::from_record(offset, value))
                    }
                    Some(_) => return,
                    None => None,
                };
                self.replay_offset(
                    offset,
                    producer_id,
                    (&key.group, &key.topic, key.partition),
                    value,
                );
            }
            (GroupRecordKey::LegacyOffsetCommit(key), value) => {
                let value = match value {
                    Some(GroupRecordValue::LegacyOffsetCommit(value)) => {
                        Some(OffsetAndMetadata::from_legacy_record(offset, value))
                    }
                    Some(_) => return,
                    None => None,
                };
                self.replay_offset(
                    offset,
                    producer_id,
                    (&key.group, &key.topic, key.partition),
                    value,
                );
            }
            (GroupRecordKey::GroupMetadata(key), Some(GroupRecordValue::GroupMetadata(value))) => {
                self.replay_group_metadata(offset, key.group, value);
            }
            (GroupRecordKey::GroupMetadata(key), None) => {
                // An upgraded group's tombstone may come after the records of what it became.
                if let Some(Group::Classic(_)) = self.groups.get(&key.group) {
                    self.forget_group(offset, &key.group);
                }
            }
            // A value under another's key, which `decode` does not make.
            (_, _) => {}
        }
    }

    fn replay_end_transaction_marker(&mut self, offset: i64, producer_id: i64, committed: bool) {
        self.offsets
            .replay_end_transaction_marker(offset, producer_id, committed);
    }

    fn commit(&mut self, offset: i64) {
        self.offsets.commit(offset);
        while self.undo.front().is_some_and(|(changed, _)| *changed < offset) {
            self.undo.pop_front();
        }
    }

    fn revert(&mut self, offset: i64) -> Vec<GroupEffect> {
        self.offsets.revert(offset);
        let mut effects = Vec::new();
        while self.undo.back().is_some_and(|(changed, _)| *changed >= offset) {
            match self.undo.pop_back() {
                Some((_, Undo::Restore(group_id, group))) => {
                    let timers = match &group {
                        Group::Classic(classic) => classic_timers(classic),
                        Group::Consumer(_) | Group::Other(_) => Vec::new(),
                    };
                    if let Some(Group::Classic(mut replaced)) = self.groups.insert(group_id, group) {
                        effects.extend(dismiss(&mut replaced));
                    }
                    // Last: those of the phase have the keys of those that go.
                    effects.extend(timers);
                }
                Some((_, Undo::Consumer(group_id, previous))) => {
                    if let Some(Group::Consumer(group)) = self.groups.get_mut(&group_id) {
                        group.restore(previous);
                    }
                }
                Some((_, Undo::Remove(group_id))) => {
                    if let Some(Group::Classic(mut group)) = self.groups.remove(&group_id) {
                        effects.extend(dismiss(&mut group));
                    }
                }
                None => {}
            }
        }
        effects
    }

    fn on_loaded(&mut self, context: &OperationContext, image: &Arc<MetadataImage>) -> GroupOutcome<()> {
        self.is_loaded = true;
        self.image = image.clone();
        self.new_topics_version = image.offset();
        let (records, mut effects) = self.on_classic_loaded(context.now_ms);
        effects.extend(self.on_consumers_loaded());
        effects.extend(self.watch_other_members());
        effects.push(self.next_expiration());
        let mut outcome = GroupOutcome::with_records(records, ());
        outcome.replay = false;
        outcome.effects = effects;
        outcome
    }

    /// Groups that consume a topic that changed look at it with their next heartbeat.
    fn on_metadata_update(&mut self, image: &Arc<MetadataImage>, changes: &TopicChanges) {
        self.image = image.clone();
        if changes.has_new_topics {
            self.new_topics_version = image.offset();
        }
        for topic in changes.topics.keys() {
            self.topic_hashes.forget(*topic);
        }
        let names: HashSet<&str> = changes.topics.values().map(|name| &**name).collect();
        for group in self.groups.values_mut() {
            let Group::Consumer(group) = group else { continue };
            let topics = group.subscribed_topics();
            let is_concerned = match names.len() < topics.len() {
                true => names.iter().any(|name| topics.contains_key(name.as_bytes())),
                false => topics.keys().any(|topic| names.contains(&**topic)),
            };
            if is_concerned {
                group.request_metadata_refresh();
            }
        }
    }

    fn on_unloaded(&mut self, context: &OperationContext) -> Vec<GroupEffect> {
        self.on_classic_unloaded(context.now_ms)
    }

    fn on_timer(&mut self, context: &OperationContext, event: GroupTimer) -> GroupOutcome<()> {
        match &event {
            GroupTimer::Heartbeat { group_id, member_id }
                if matches!(self.groups.get(group_id), Some(Group::Other(_))) =>
            {
                GroupOutcome::with_records(self.fence_other_member(group_id, member_id), ())
            }
            GroupTimer::Heartbeat { group_id, .. }
            | GroupTimer::InitialRebalance { group_id, .. }
            | GroupTimer::CompleteJoin { group_id }
            | GroupTimer::PendingSync { group_id, .. } => self.on_classic_timer(context, group_id, &event),
            GroupTimer::ConsumerSession { .. }
            | GroupTimer::ConsumerRebalance { .. }
            | GroupTimer::ConsumerJoin { .. }
            | GroupTimer::ConsumerSync { .. }
            | GroupTimer::ResolveRegexes { .. } => self.on_consumer_timer(context, &event),
            GroupTimer::Expiration => {
                let mut outcome = GroupOutcome::with_records(self.expire(context.now_ms), ());
                outcome.atomic = false;
                outcome.effects = vec![self.next_expiration()];
                outcome
            }
        }
    }

    fn on_appended(
        &mut self,
        context: &OperationContext,
        pending: GroupPending,
        result: Result<(), ErrorCode>,
    ) -> GroupOutcome<()> {
        self.on_classic_appended(context, pending, result)
    }
}

impl GroupShard {
    /// Members of groups that are not served yet cannot show that they live: they time out as in Kafka.
    fn watch_other_members(&self) -> Vec<GroupEffect> {
        let mut effects = Vec::new();
        for (group_id, group) in &self.groups {
            let Group::Other(group) = group else { continue };
            effects.extend(group.member_ids().map(|member_id| Effect::Schedule {
                after_ms: OTHER_GROUP_SESSION_TIMEOUT_MS,
                event: GroupTimer::Heartbeat {
                    group_id: group_id.clone(),
                    member_id: member_id.clone(),
                },
            }));
        }
        effects
    }

    fn fence_other_member(&self, group_id: &StrBytes, member_id: &StrBytes) -> Vec<GroupRecord> {
        match self.groups.get(group_id) {
            Some(Group::Other(group)) => {
                tracing::info!(group = %group_id, member = %member_id, "a member has failed");
                group.fence(member_id)
            }
            _ => Vec::new(),
        }
    }

    fn next_expiration(&self) -> GroupEffect {
        Effect::Schedule {
            after_ms: self.config.offsets_retention_check_interval_ms,
            event: GroupTimer::Expiration,
        }
    }
}

/// Timers of a classic group that is back: those of its phase were cancelled when it went, those of its members may have
/// found another kind of group since.
fn classic_timers(group: &ClassicGroup) -> Vec<GroupEffect> {
    let group_id = group.group_id();
    let mut effects: Vec<GroupEffect> = group
        .members()
        .map(|member| Effect::ScheduleIfAbsent {
            after_ms: i64::from(member.session_timeout_ms),
            event: GroupTimer::Heartbeat {
                group_id: group_id.clone(),
                member_id: member.member_id.clone(),
            },
        })
        .collect();
    let phase = match group.state() {
        PreparingRebalance => Some(GroupTimer::CompleteJoin {
            group_id: group_id.clone(),
        }),
        CompletingRebalance | Stable if !group.pending_sync_members().is_empty() => {
            Some(GroupTimer::PendingSync {
                group_id: group_id.clone(),
                generation_id: group.generation_id(),
            })
        }
        _ => None,
    };
    effects.extend(phase.map(|event| Effect::Schedule {
        after_ms: i64::from(group.rebalance_timeout_ms()),
        event,
    }));
    effects
}

/// Tells those who wait for a group that could not be created, or must go again, to try again. Its phase ends with it: the
/// next group of this name is in another.
fn dismiss(group: &mut ClassicGroup) -> Vec<GroupEffect> {
    let group_id = group.group_id().clone();
    let mut effects = vec![
        Effect::Cancel(GroupTimer::CompleteJoin {
            group_id: group_id.clone(),
        }),
        Effect::Cancel(GroupTimer::PendingSync {
            group_id,
            generation_id: group.generation_id(),
        }),
    ];
    for member_id in group.member_ids() {
        if let Some(token) = group.take_awaiting_join(&member_id) {
            let response = JoinGroupResponse::default()
                .with_member_id(member_id.clone())
                .with_error_code(ErrorCode::CoordinatorNotAvailable.code());
            effects.push(Effect::Reply(token, GroupReply::Join(response)));
        }
        if let Some(token) = group.take_awaiting_sync(&member_id) {
            effects.push(Effect::Reply(
                token,
                sync_error(ErrorCode::CoordinatorNotAvailable),
            ));
        }
    }
    effects
}

#[cfg(test)]
#[path = "shard_test.rs"]
mod shard_test;
