//! One group of the classic protocol: its members, what they support, the generation, and who waits for an answer. Pure.
//!
//! States, and the event of each arrow (`ClassicGroupState`):
//!
//! ```text
//! from                 to                   when
//! (none)               Empty                a first member asks to join; an offset is committed; a log without members is read
//! (none)               Stable               a log with members is read
//! Empty                PreparingRebalance   a member joins: the initial rebalance, held back for a while
//! Stable               PreparingRebalance   a member joins, leaves, fails, or changes what it supports; the leader rejoins
//! CompletingRebalance  PreparingRebalance   the same, or a member does not sync in time
//! PreparingRebalance   CompletingRebalance  all have joined, or the time is up: next generation, JoinGroup is answered
//! PreparingRebalance   Empty                nobody is left when it ends: next generation, without members
//! CompletingRebalance  Stable               the leader's assignment is committed: SyncGroup is answered
//! any                  Dead                 the partition is unloaded
//! ```
//!
//! Everything but the existence of the group and what the last record says is soft state: lost with the coordinator, and
//! made again by the members.
//!
//! Invariants: `awaiting_join` members are counted; `static_members` maps each instance id to a member; a member's
//! protocols are counted in `supported_protocols`; the leader, if any, is a member.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use indexmap::IndexMap;

use super::assignor::TopicPartitions;
use crate::coordinator::partition_for::java_hash_code;
use crate::coordinator::runtime::shard::Token;
use crate::protocol::messages::join_group_response::JoinGroupResponseMember;
use crate::protocol::records::consumer_protocol::ConsumerProtocolSubscription;
use crate::protocol::{Decodable, ErrorCode, StrBytes};

/// The protocol type of consumers.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClassicGroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
    Dead,
}

use ClassicGroupState::{CompletingRebalance, Dead, Empty, PreparingRebalance, Stable};

impl ClassicGroupState {
    /// As clients see it.
    pub fn name(self) -> &'static str {
        match self {
            Empty => "Empty",
            PreparingRebalance => "PreparingRebalance",
            CompletingRebalance => "CompletingRebalance",
            Stable => "Stable",
            Dead => "Dead",
        }
    }

    pub fn may_become(self, next: ClassicGroupState) -> bool {
        match next {
            Empty | CompletingRebalance => self == PreparingRebalance,
            PreparingRebalance => matches!(self, Stable | CompletingRebalance | Empty),
            Stable => self == CompletingRebalance,
            Dead => true,
        }
    }
}

/// A protocol that a member supports, with what it tells the leader for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberProtocol {
    pub name: StrBytes,
    pub metadata: Bytes,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClassicGroupMember {
    pub member_id: StrBytes,
    pub group_instance_id: Option<StrBytes>,
    pub client_id: StrBytes,
    pub client_host: StrBytes,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// In the member's order of preference.
    pub protocols: Vec<MemberProtocol>,
    pub assignment: Bytes,
    /// What it had when its group was downgraded, until it joins: `assignment` is what it was to have then.
    pub held: Option<TopicPartitions>,
    /// Its first JoinGroup has not been answered: its client cannot heartbeat yet.
    pub is_new: bool,
    pub awaiting_join: Option<Token>,
    pub awaiting_sync: Option<Token>,
}

impl ClassicGroupMember {
    pub fn metadata(&self, protocol: &StrBytes) -> Option<Bytes> {
        let found = self.protocols.iter().find(|known| known.name == *protocol);
        found.map(|known| known.metadata.clone())
    }

    /// No heartbeat is expected of a member that waits for the group, unless it is new: that one may be gone.
    pub fn has_satisfied_heartbeat(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }

    fn vote(&self, candidates: &HashSet<&StrBytes>) -> Option<&StrBytes> {
        let mut names = self.protocols.iter().map(|protocol| &protocol.name);
        names.find(|name| candidates.contains(name))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClassicGroup {
    group_id: StrBytes,
    state: ClassicGroupState,
    previous_state: ClassicGroupState,
    /// When the group came into its state; unknown from records before version 2.
    current_state_timestamp_ms: Option<i64>,
    protocol_type: Option<StrBytes>,
    protocol_name: Option<StrBytes>,
    generation_id: i32,
    leader_id: Option<StrBytes>,
    members: IndexMap<StrBytes, ClassicGroupMember>,
    /// Member ids by instance id (KIP-345).
    static_members: HashMap<StrBytes, StrBytes>,
    /// Ids that were given out and have not joined yet (KIP-394).
    pending_join_members: HashSet<StrBytes>,
    /// Members that have not sent SyncGroup in this generation.
    pending_sync_members: BTreeSet<StrBytes>,
    awaiting_join_count: usize,
    /// How many members support each protocol.
    supported_protocols: HashMap<StrBytes, usize>,
    /// Topics that the members consume, where that could be found out.
    subscribed_topics: Option<HashSet<StrBytes>>,
    /// Somebody joined since the initial rebalance was last held back.
    pub new_member_added: bool,
}

impl ClassicGroup {
    pub fn new(group_id: StrBytes, now_ms: i64) -> Self {
        Self::restored(group_id, Empty, 0, None, None, None, Some(now_ms))
    }

    /// As a record says; members are added by `add`.
    pub fn restored(
        group_id: StrBytes,
        state: ClassicGroupState,
        generation_id: i32,
        protocol_type: Option<StrBytes>,
        protocol_name: Option<StrBytes>,
        leader_id: Option<StrBytes>,
        current_state_timestamp_ms: Option<i64>,
    ) -> Self {
        Self {
            group_id,
            state,
            previous_state: Dead,
            current_state_timestamp_ms,
            protocol_type,
            protocol_name,
            generation_id,
            leader_id,
            members: IndexMap::new(),
            static_members: HashMap::new(),
            pending_join_members: HashSet::new(),
            pending_sync_members: BTreeSet::new(),
            awaiting_join_count: 0,
            supported_protocols: HashMap::new(),
            subscribed_topics: None,
            new_member_added: false,
        }
    }

    pub fn group_id(&self) -> &StrBytes {
        &self.group_id
    }

    pub fn state(&self) -> ClassicGroupState {
        self.state
    }

    pub fn previous_state(&self) -> ClassicGroupState {
        self.previous_state
    }

    pub fn is_in(&self, state: ClassicGroupState) -> bool {
        self.state == state
    }

    pub fn current_state_timestamp_ms(&self) -> Option<i64> {
        self.current_state_timestamp_ms
    }

    pub fn protocol_type(&self) -> Option<&StrBytes> {
        self.protocol_type.as_ref()
    }

    pub fn protocol_name(&self) -> Option<&StrBytes> {
        self.protocol_name.as_ref()
    }

    pub fn generation_id(&self) -> i32 {
        self.generation_id
    }

    pub fn leader_id(&self) -> Option<&StrBytes> {
        self.leader_id.as_ref()
    }

    pub fn is_leader(&self, member_id: &StrBytes) -> bool {
        self.leader_id.as_ref() == Some(member_id)
    }

    pub fn members(&self) -> impl Iterator<Item = &ClassicGroupMember> {
        self.members.values()
    }

    pub fn member_ids(&self) -> Vec<StrBytes> {
        self.members.keys().cloned().collect()
    }

    pub fn member(&self, member_id: &StrBytes) -> Option<&ClassicGroupMember> {
        self.members.get(member_id)
    }

    pub fn member_mut(&mut self, member_id: &StrBytes) -> Option<&mut ClassicGroupMember> {
        self.members.get_mut(member_id)
    }

    pub fn has_member(&self, member_id: &StrBytes) -> bool {
        self.members.contains_key(member_id)
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn is_pending_member(&self, member_id: &StrBytes) -> bool {
        self.pending_join_members.contains(member_id)
    }

    pub fn add_pending_member(&mut self, member_id: StrBytes) {
        debug_assert!(!self.has_member(&member_id));
        self.pending_join_members.insert(member_id);
    }

    pub fn static_member_id(&self, group_instance_id: &StrBytes) -> Option<&StrBytes> {
        self.static_members.get(group_instance_id)
    }

    pub fn awaiting_join_count(&self) -> usize {
        self.awaiting_join_count
    }

    pub fn pending_sync_members(&self) -> &BTreeSet<StrBytes> {
        &self.pending_sync_members
    }

    pub fn add_pending_sync_member(&mut self, member_id: StrBytes) {
        self.pending_sync_members.insert(member_id);
    }

    pub fn remove_pending_sync_member(&mut self, member_id: &StrBytes) {
        self.pending_sync_members.remove(member_id);
    }

    pub fn clear_pending_sync_members(&mut self) {
        self.pending_sync_members.clear();
    }

    /// Made by an offset commit, and without a record of its own.
    pub fn is_simple(&self) -> bool {
        self.protocol_type.is_none() && self.is_in(Empty) && self.pending_join_members.is_empty()
    }

    pub fn uses_consumer_group_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// Unless the topics are known, a group of consumers is taken to consume any.
    pub fn is_subscribed_to(&self, topic: &StrBytes) -> bool {
        match &self.subscribed_topics {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_group_protocol(),
        }
    }

    pub fn knows_subscribed_topics(&self) -> bool {
        self.subscribed_topics.is_some()
    }

    pub fn can_rebalance(&self) -> bool {
        self.state.may_become(PreparingRebalance)
    }

    pub fn transition_to(&mut self, state: ClassicGroupState, now_ms: i64) {
        assert!(
            self.state.may_become(state),
            "group {} cannot go from {} to {}",
            self.group_id,
            self.state.name(),
            state.name()
        );
        self.previous_state = self.state;
        self.state = state;
        self.current_state_timestamp_ms = Some(now_ms);
    }

    /// The longest that any member asks for.
    pub fn rebalance_timeout_ms(&self) -> i32 {
        let timeouts = self.members.values().map(|member| member.rebalance_timeout_ms);
        timeouts.max().unwrap_or(0).max(0)
    }

    pub fn has_all_members_joined(&self) -> bool {
        self.members.len() == self.awaiting_join_count && self.pending_join_members.is_empty()
    }

    pub fn add(&mut self, member: ClassicGroupMember, protocol_type: &StrBytes) {
        if let Some(instance) = &member.group_instance_id {
            self.static_members
                .insert(instance.clone(), member.member_id.clone());
        }
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.clone());
        }
        if self.leader_id.is_none() {
            self.leader_id = Some(member.member_id.clone());
        }
        self.count_protocols(&member.protocols, true);
        self.awaiting_join_count += usize::from(member.awaiting_join.is_some());
        self.pending_join_members.remove(&member.member_id);
        self.members.insert(member.member_id.clone(), member);
    }

    /// Also forgets an id that was only given out.
    pub fn remove(&mut self, member_id: &StrBytes) -> Option<ClassicGroupMember> {
        let removed = self.members.swap_remove(member_id);
        if let Some(member) = &removed {
            self.count_protocols(&member.protocols, false);
            self.awaiting_join_count -= usize::from(member.awaiting_join.is_some());
            if let Some(instance) = &member.group_instance_id {
                self.static_members.remove(instance);
            }
        }
        if self.is_leader(member_id) {
            self.leader_id = self.members.keys().next().cloned();
        }
        self.pending_join_members.remove(member_id);
        self.pending_sync_members.remove(member_id);
        removed
    }

    /// Gives a static member a new id, keeping what the old one had. Returns the old one, whose requests are to be fenced.
    pub fn replace_static_member(
        &mut self,
        group_instance_id: &StrBytes,
        old_member_id: &StrBytes,
        new_member_id: &StrBytes,
    ) -> Option<ClassicGroupMember> {
        let (index, _, removed) = self.members.swap_remove_full(old_member_id)?;
        self.awaiting_join_count -= usize::from(removed.awaiting_join.is_some());
        let replacement = ClassicGroupMember {
            member_id: new_member_id.clone(),
            awaiting_join: None,
            awaiting_sync: None,
            is_new: false,
            ..removed.clone()
        };
        let (last, _) = self.members.insert_full(new_member_id.clone(), replacement);
        self.members.swap_indices(index, last);
        if self.is_leader(old_member_id) {
            self.leader_id = Some(new_member_id.clone());
        }
        self.static_members
            .insert(group_instance_id.clone(), new_member_id.clone());
        Some(removed)
    }

    /// Takes over what a JoinGroup says; `awaiting_join` is who waits for its answer.
    pub fn update_member(
        &mut self,
        member_id: &StrBytes,
        protocols: Vec<MemberProtocol>,
        rebalance_timeout_ms: i32,
        session_timeout_ms: i32,
        awaiting_join: Option<Token>,
    ) {
        let Some(member) = self.members.get_mut(member_id) else {
            return;
        };
        let previous = std::mem::replace(&mut member.protocols, protocols.clone());
        member.rebalance_timeout_ms = rebalance_timeout_ms;
        member.session_timeout_ms = session_timeout_ms;
        member.held = None;
        let waited = member.awaiting_join.is_some();
        member.awaiting_join = awaiting_join;
        self.awaiting_join_count += usize::from(awaiting_join.is_some());
        self.awaiting_join_count -= usize::from(waited);
        self.count_protocols(&previous, false);
        self.count_protocols(&protocols, true);
    }

    /// Who waits for the member's JoinGroup; nobody does any more.
    pub fn take_awaiting_join(&mut self, member_id: &StrBytes) -> Option<Token> {
        let token = self.members.get_mut(member_id)?.awaiting_join.take()?;
        self.awaiting_join_count -= 1;
        Some(token)
    }

    pub fn take_awaiting_sync(&mut self, member_id: &StrBytes) -> Option<Token> {
        self.members.get_mut(member_id)?.awaiting_sync.take()
    }

    /// Dynamic members that have not joined the rebalance.
    pub fn not_yet_rejoined_dynamic_members(&self) -> Vec<StrBytes> {
        let late = |member: &&ClassicGroupMember| {
            member.awaiting_join.is_none() && member.group_instance_id.is_none()
        };
        self.members()
            .filter(late)
            .map(|member| member.member_id.clone())
            .collect()
    }

    /// Whether a member that joined leads; elects one if the leader did not join.
    pub fn maybe_elect_new_joined_leader(&mut self) -> bool {
        let Some(leader) = self.leader_id.as_ref().and_then(|id| self.members.get(id)) else {
            return false;
        };
        if leader.awaiting_join.is_some() {
            return true;
        }
        let joined = self
            .members
            .values()
            .find(|member| member.awaiting_join.is_some());
        match joined.map(|member| member.member_id.clone()) {
            Some(member_id) => {
                self.leader_id = Some(member_id);
                true
            }
            None => false,
        }
    }

    fn count_protocols(&mut self, protocols: &[MemberProtocol], add: bool) {
        for protocol in protocols {
            let count = self.supported_protocols.entry(protocol.name.clone()).or_default();
            match add {
                true => *count += 1,
                false => *count = count.saturating_sub(1),
            }
            if *count == 0 {
                self.supported_protocols.remove(&protocol.name);
            }
        }
    }

    /// Whether a member of this type and with these protocols can be in the group.
    pub fn supports_protocols(&self, protocol_type: &StrBytes, protocols: &[MemberProtocol]) -> bool {
        if self.is_in(Empty) {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let by_all = |protocol: &MemberProtocol| {
            self.supported_protocols.get(&protocol.name).copied().unwrap_or(0) == self.members.len()
        };
        self.protocol_type.as_ref() == Some(protocol_type) && protocols.iter().any(by_all)
    }

    /// Each member votes for the first of its protocols that all support; the one with the most votes wins. A tie is
    /// broken as the order of a Java `HashMap` does it.
    pub fn select_protocol(&self) -> Option<StrBytes> {
        let candidates: HashSet<&StrBytes> = self
            .supported_protocols
            .iter()
            .filter(|(_, count)| **count == self.members.len())
            .map(|(name, _)| name)
            .collect();
        let mut votes: IndexMap<&StrBytes, usize> = IndexMap::new();
        for name in self
            .members
            .values()
            .filter_map(|member| member.vote(&candidates))
        {
            *votes.entry(name).or_default() += 1;
        }
        // A Java HashMap has 16 buckets, and twice as many once three quarters are used.
        let mut buckets = 16;
        while votes.len() * 4 > buckets * 3 {
            buckets *= 2;
        }
        let bucket = |name: &StrBytes| {
            let hash = java_hash_code(name) as u32;
            (hash ^ (hash >> 16)) & (buckets as u32 - 1)
        };
        votes
            .into_iter()
            .min_by_key(|(name, count)| (std::cmp::Reverse(*count), bucket(name)))
            .map(|(name, _)| name.clone())
    }

    /// Ends a rebalance: the next generation has the members that are here now.
    pub fn init_next_generation(&mut self, now_ms: i64) {
        // Java's int wraps too.
        self.generation_id = self.generation_id.wrapping_add(1);
        if self.members.is_empty() {
            self.protocol_name = None;
            self.subscribed_topics = self.compute_subscribed_topics();
            self.transition_to(Empty, now_ms);
        } else {
            self.protocol_name = self.select_protocol();
            self.subscribed_topics = self.compute_subscribed_topics();
            self.transition_to(CompletingRebalance, now_ms);
        }
        self.clear_pending_sync_members();
    }

    /// Of a group that was put together from members: the protocol is what they agree on.
    pub fn select_restored_protocol(&mut self) {
        self.protocol_name = self.select_protocol();
        self.refresh_subscribed_topics();
    }

    pub fn refresh_subscribed_topics(&mut self) {
        self.subscribed_topics = self.compute_subscribed_topics();
    }

    fn compute_subscribed_topics(&self) -> Option<HashSet<StrBytes>> {
        if !self.uses_consumer_group_protocol() {
            return None;
        }
        if self.members.is_empty() {
            return Some(HashSet::new());
        }
        let protocol = self.protocol_name.as_ref()?;
        let mut topics = HashSet::new();
        for member in self.members.values() {
            topics.extend(subscribed_topics(member.metadata(protocol)?)?);
        }
        Some(topics)
    }

    /// For the leader, so that it can assign.
    pub fn current_members(&self) -> Vec<JoinGroupResponseMember> {
        let protocol = self.protocol_name.clone().unwrap_or_default();
        self.members
            .values()
            .map(|member| {
                JoinGroupResponseMember::default()
                    .with_member_id(member.member_id.clone())
                    .with_group_instance_id(member.group_instance_id.clone())
                    .with_metadata(member.metadata(&protocol).unwrap_or_default())
            })
            .collect()
    }

    pub fn assignments(&self) -> HashMap<StrBytes, Bytes> {
        self.members()
            .map(|member| (member.member_id.clone(), member.assignment.clone()))
            .collect()
    }

    /// Whether a request's member id and instance id are those of a member.
    pub fn validate_member(
        &self,
        member_id: &StrBytes,
        group_instance_id: Option<&StrBytes>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance) = group_instance_id {
            match self.static_members.get(instance) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(current) if current != member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        match self.has_member(member_id) {
            true => Ok(()),
            false => Err(ErrorCode::UnknownMemberId),
        }
    }

    /// Whether an offset commit is welcome (`ClassicGroup.validateOffsetCommit`).
    pub fn validate_offset_commit(
        &self,
        member_id: &StrBytes,
        group_instance_id: Option<&StrBytes>,
        generation_id: i32,
        is_transactional: bool,
    ) -> Result<(), ErrorCode> {
        if self.is_in(Dead) {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        // An admin client, or a consumer that manages its partitions itself.
        if generation_id < 0 && self.is_in(Empty) {
            return Ok(());
        }
        if generation_id >= 0 || !member_id.is_empty() || group_instance_id.is_some() {
            self.validate_member(member_id, group_instance_id)?;
            if generation_id != self.generation_id {
                return Err(ErrorCode::IllegalGeneration);
            }
        } else if !is_transactional && !self.is_in(Empty) {
            return Err(ErrorCode::UnknownMemberId);
        }
        if !is_transactional && self.is_in(CompletingRebalance) {
            return Err(ErrorCode::RebalanceInProgress);
        }
        Ok(())
    }

    pub fn validate_delete(&self) -> Result<(), ErrorCode> {
        match self.state {
            Dead => Err(ErrorCode::GroupIdNotFound),
            Stable | PreparingRebalance | CompletingRebalance => Err(ErrorCode::NonEmptyGroup),
            Empty => Ok(()),
        }
    }
}

/// Topics in a subscription of the consumer protocol; only its first version's part is read, which all versions have.
fn subscribed_topics(mut metadata: Bytes) -> Option<Vec<StrBytes>> {
    if metadata.len() < 2 {
        return None;
    }
    let version = i16::from_be_bytes([metadata[0], metadata[1]]);
    if version < 0 {
        return None;
    }
    bytes::Buf::advance(&mut metadata, 2);
    let subscription = ConsumerProtocolSubscription::decode(&mut metadata, 0).ok()?;
    Some(subscription.topics.iter().map(super::owned).collect())
}

#[cfg(test)]
#[path = "classic_group_test.rs"]
mod classic_group_test;
