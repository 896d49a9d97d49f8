//! The classic protocol's rules: what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do to a group, and its timers. Pure.
//!
//! A rebalance, as the members see it: JoinGroup is parked until all are in (or the time is up), then answered to all at
//! once, the leader's answer with everybody's metadata; SyncGroup is parked until the leader's brings the assignments and
//! the record with them is committed; Heartbeat tells a member to join again.

use std::collections::HashMap;

use bytes::Bytes;
use uuid::Uuid;

use super::classic_group::ClassicGroupState::{CompletingRebalance, Dead, Empty, PreparingRebalance, Stable};
use super::classic_group::{ClassicGroup, ClassicGroupMember, MemberProtocol};
use super::config::{GroupConfig, NEW_MEMBER_JOIN_TIMEOUT_MS};
use super::records::GroupRecord;
use super::shard::{Group, GroupEffect, GroupOutcome, GroupPending, GroupReply, GroupShard, GroupTimer};
use super::{owned, owned_bytes};
use crate::coordinator::runtime::shard::{Effect, OperationContext, Token};
use crate::protocol::messages::leave_group_request::MemberIdentity;
use crate::protocol::messages::leave_group_response::MemberResponse;
use crate::protocol::messages::{
    JoinGroupRequest, JoinGroupResponse, LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

/// What JoinGroup needs beside the request; what depends on its version is decided by the caller.
#[derive(Debug, Clone)]
pub struct JoinContext {
    pub client_id: StrBytes,
    pub client_host: StrBytes,
    /// A dynamic member must come back with the id it is given (KIP-394; version 4).
    pub requires_known_member_id: bool,
    /// The leader of an unchanged group can be told to skip the assignment (KIP-814; version 9).
    pub supports_skipping_assignment: bool,
    /// For the member id, should one be made.
    pub random: Uuid,
}

const UNKNOWN_MEMBER_ID: &str = "";

/// Records that an operation on a classic group wants written; they describe what is already so.
pub(super) struct Write {
    records: Vec<GroupRecord>,
    pending: Option<GroupPending>,
}

impl Write {
    fn outcome<T>(write: Option<Write>, effects: Vec<GroupEffect>, response: T) -> GroupOutcome<T> {
        let mut outcome = GroupOutcome::of(response);
        outcome.effects = effects;
        if let Some(write) = write {
            outcome.records = write.records;
            outcome.pending = write.pending;
            outcome.replay = false;
        }
        outcome
    }
}

fn join_error(member_id: &StrBytes, error: ErrorCode) -> GroupReply {
    let response = JoinGroupResponse::default()
        .with_member_id(member_id.clone())
        .with_error_code(error.code());
    GroupReply::Join(response)
}

fn unknown_member_id() -> StrBytes {
    StrBytes::from_static_str(UNKNOWN_MEMBER_ID)
}

pub(super) fn sync_error(error: ErrorCode) -> GroupReply {
    GroupReply::Sync(SyncGroupResponse::default().with_error_code(error.code()))
}

/// What the coordinator answers when its records could not be written (`appendGroupMetadataErrorToResponseError`).
fn append_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition | ErrorCode::NotEnoughReplicas | ErrorCode::RequestTimedOut => {
            ErrorCode::CoordinatorNotAvailable
        }
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge | ErrorCode::InvalidFetchSize => {
            ErrorCode::UnknownServerError
        }
        other => other,
    }
}

/// A JoinGroup's content, owned.
struct Join {
    member_id: StrBytes,
    group_instance_id: Option<StrBytes>,
    protocol_type: StrBytes,
    protocols: Vec<MemberProtocol>,
    session_timeout_ms: i32,
    rebalance_timeout_ms: i32,
    reason: StrBytes,
    token: Token,
}

impl Join {
    fn new(request: &JoinGroupRequest, token: Token) -> Self {
        let protocols = request.protocols.iter().map(|protocol| MemberProtocol {
            name: owned(&protocol.name),
            metadata: owned_bytes(&protocol.metadata),
        });
        let reason = request.reason.as_ref().filter(|reason| !reason.is_empty());
        Self {
            member_id: owned(&request.member_id),
            group_instance_id: request.group_instance_id.as_ref().map(owned),
            protocol_type: owned(&request.protocol_type),
            protocols: protocols.collect(),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            reason: reason.map_or(StrBytes::from_static_str("not provided"), owned),
            token,
        }
    }
}

/// A classic group at work: the group, and where its wishes go.
pub(super) struct Classic<'a> {
    group: &'a mut ClassicGroup,
    config: &'a GroupConfig,
    effects: &'a mut Vec<GroupEffect>,
    now_ms: i64,
}

/// Joining.
impl Classic<'_> {
    fn reply(&mut self, token: Token, reply: GroupReply) {
        self.effects.push(Effect::Reply(token, reply));
    }

    /// New members are let in up to the maximum size. During a rebalance those who have joined count, so that the last
    /// ones to rejoin a group that is too large are turned away.
    fn accepts(&self, member_id: &StrBytes) -> bool {
        let max = self.config.group_max_size;
        match self.group.state() {
            Empty | Dead => true,
            PreparingRebalance => {
                let member = self.group.member(member_id);
                member.is_some_and(|member| member.awaiting_join.is_some())
                    || self.group.awaiting_join_count() < max
            }
            CompletingRebalance | Stable => self.group.has_member(member_id) || self.group.len() < max,
        }
    }

    fn join(&mut self, context: &JoinContext, join: Join) -> Result<Option<Write>, ApiError> {
        let is_unknown = join.member_id.is_empty();
        if !self.accepts(&join.member_id) {
            self.group.remove(&join.member_id);
            let reply = join_error(&unknown_member_id(), ErrorCode::GroupMaxSizeReached);
            self.reply(join.token, reply);
            return Ok(None);
        }
        let refused = if self.group.is_in(Dead) {
            Some(ErrorCode::CoordinatorNotAvailable)
        } else if !self
            .group
            .supports_protocols(&join.protocol_type, &join.protocols)
        {
            Some(ErrorCode::InconsistentGroupProtocol)
        } else {
            None
        };
        if let Some(error) = refused {
            self.reply(join.token, join_error(&join.member_id, error));
            return Ok(None);
        }
        if is_unknown {
            self.join_new_member(context, join)
        } else {
            self.join_existing_member(context, join)
        }
    }

    fn join_new_member(&mut self, context: &JoinContext, join: Join) -> Result<Option<Write>, ApiError> {
        let prefix = join.group_instance_id.as_ref().unwrap_or(&context.client_id);
        let new_member_id = StrBytes::from_string(format!("{prefix}-{}", context.random));
        if let Some(instance) = join.group_instance_id.clone() {
            let existing = self.group.static_member_id(&instance).cloned();
            tracing::info!(
                group = %self.group.group_id(), member = %new_member_id, instance = %instance, ?existing,
                state = self.group.state().name(), "a static member with an unknown member id joins"
            );
            return match existing {
                Some(old_member_id) => {
                    self.replace_static_member(context, join, instance, old_member_id, new_member_id)
                }
                None => Ok(self.add_member(context, join, new_member_id)),
            };
        }
        if !context.requires_known_member_id {
            return Ok(self.add_member(context, join, new_member_id));
        }
        // The id is given out; a member it becomes when it comes back with it, before its session times out.
        self.group.add_pending_member(new_member_id.clone());
        self.schedule_heartbeat(&new_member_id, i64::from(join.session_timeout_ms));
        let reply = join_error(&new_member_id, ErrorCode::MemberIdRequired);
        self.reply(join.token, reply);
        Ok(None)
    }

    fn join_existing_member(&mut self, context: &JoinContext, join: Join) -> Result<Option<Write>, ApiError> {
        let member_id = join.member_id.clone();
        if self.group.is_pending_member(&member_id) {
            if join.group_instance_id.is_some() {
                // A static member is never pending; Kafka throws.
                return Err(ErrorCode::UnknownServerError.into());
            }
            return Ok(self.add_member(context, join, member_id));
        }
        if let Err(error) = self
            .group
            .validate_member(&member_id, join.group_instance_id.as_ref())
        {
            self.reply(join.token, join_error(&member_id, error));
            return Ok(None);
        }
        let unchanged = self
            .group
            .member(&member_id)
            .is_some_and(|member| member.protocols == join.protocols);
        match self.group.state() {
            PreparingRebalance => Ok(self.update_member(join)),
            // It may not have got the answer to the same request: tell it again.
            CompletingRebalance if unchanged => {
                let with_members = self.group.is_leader(&member_id);
                let reply = self.current_generation(&member_id, with_members, false);
                self.reply(join.token, GroupReply::Join(reply));
                Ok(None)
            }
            CompletingRebalance => Ok(self.update_member(join)),
            // The leader wants new assignments: topics may have changed.
            Stable if self.group.is_leader(&member_id) || !unchanged => Ok(self.update_member(join)),
            Stable => {
                let reply = self.current_generation(&member_id, false, false);
                self.reply(join.token, GroupReply::Join(reply));
                Ok(None)
            }
            Empty | Dead => {
                self.reply(join.token, join_error(&member_id, ErrorCode::UnknownMemberId));
                Ok(None)
            }
        }
    }

    /// The answer to a JoinGroup in the current generation.
    fn current_generation(
        &self,
        member_id: &StrBytes,
        with_members: bool,
        skip_assignment: bool,
    ) -> JoinGroupResponse {
        let members = if with_members {
            self.group.current_members()
        } else {
            Vec::new()
        };
        JoinGroupResponse::default()
            .with_members(members)
            .with_member_id(member_id.clone())
            .with_generation_id(self.group.generation_id())
            .with_protocol_name(self.group.protocol_name().cloned())
            .with_protocol_type(self.group.protocol_type().cloned())
            .with_leader(self.group.leader_id().cloned().unwrap_or_default())
            .with_skip_assignment(skip_assignment)
    }

    fn add_member(&mut self, context: &JoinContext, join: Join, member_id: StrBytes) -> Option<Write> {
        if self.group.is_in(PreparingRebalance) && self.group.previous_state() == Empty {
            self.group.new_member_added = true;
        }
        let reason = format!("adding new member {member_id}; client reason: {}", join.reason);
        let member = ClassicGroupMember {
            member_id: member_id.clone(),
            group_instance_id: join.group_instance_id,
            client_id: context.client_id.clone(),
            client_host: context.client_host.clone(),
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            session_timeout_ms: join.session_timeout_ms,
            protocols: join.protocols,
            assignment: Bytes::new(),
            is_new: true,
            awaiting_join: Some(join.token),
            awaiting_sync: None,
        };
        self.group.add(member, &join.protocol_type);
        self.schedule_heartbeat(&member_id, NEW_MEMBER_JOIN_TIMEOUT_MS);
        self.maybe_prepare_rebalance_or_complete_join(&reason)
    }

    fn update_member(&mut self, join: Join) -> Option<Write> {
        let reason = format!(
            "member {} joins again; client reason: {}",
            join.member_id, join.reason
        );
        self.take_over(
            &join.member_id,
            join.protocols,
            join.rebalance_timeout_ms,
            join.session_timeout_ms,
            join.token,
        );
        self.maybe_prepare_rebalance_or_complete_join(&reason)
    }

    /// Puts a member's newest JoinGroup in the place of an older one, whose client is gone.
    fn take_over(
        &mut self,
        member_id: &StrBytes,
        protocols: Vec<MemberProtocol>,
        rebalance_timeout_ms: i32,
        session_timeout_ms: i32,
        token: Token,
    ) {
        if let Some(older) = self.group.take_awaiting_join(member_id) {
            let reply = join_error(member_id, ErrorCode::RebalanceInProgress);
            self.reply(older, reply);
        }
        self.group.update_member(
            member_id,
            protocols,
            rebalance_timeout_ms,
            session_timeout_ms,
            Some(token),
        );
    }

    /// A static member came back with a new incarnation: it takes the place of the old one, which is fenced (KIP-345).
    fn replace_static_member(
        &mut self,
        context: &JoinContext,
        join: Join,
        instance: StrBytes,
        old_member_id: StrBytes,
        new_member_id: StrBytes,
    ) -> Result<Option<Write>, ApiError> {
        let old_leader = self.group.leader_id().cloned();
        let Some(old) = self
            .group
            .replace_static_member(&instance, &old_member_id, &new_member_id)
        else {
            return Err(ErrorCode::UnknownServerError.into());
        };
        if let Some(token) = old.awaiting_join {
            self.reply(token, join_error(&old_member_id, ErrorCode::FencedInstanceId));
        }
        if let Some(token) = old.awaiting_sync {
            self.reply(token, sync_error(ErrorCode::FencedInstanceId));
        }
        // The old id's timer finds nobody when it fires. As in Kafka the timeout is the old incarnation's for now.
        self.schedule_heartbeat(&new_member_id, i64::from(old.session_timeout_ms));
        let reason = format!(
            "static member {new_member_id} of {instance} joins again; client reason: {}",
            join.reason
        );
        let token = join.token;
        self.take_over(
            &new_member_id,
            join.protocols,
            join.rebalance_timeout_ms,
            join.session_timeout_ms,
            token,
        );
        match self.group.state() {
            Stable if self.group.protocol_name() == self.group.select_protocol().as_ref() => {
                let records = vec![GroupRecord::group_metadata(self.group, &self.group.assignments())];
                let pending = GroupPending::ReplaceStaticMember {
                    group_id: self.group.group_id().clone(),
                    old: Box::new(old),
                    new_member_id,
                    old_leader,
                    supports_skipping_assignment: context.supports_skipping_assignment,
                    token,
                };
                Ok(Some(Write {
                    records,
                    pending: Some(pending),
                }))
            }
            Stable => Ok(self.maybe_prepare_rebalance_or_complete_join(&reason)),
            // The leader may be assigning to the old id.
            CompletingRebalance => Ok(self.prepare_rebalance(&reason)),
            PreparingRebalance => Ok(self.maybe_complete_join_phase()),
            Empty | Dead => Err(ErrorCode::UnknownServerError.into()),
        }
    }

    fn static_member_stored(
        &mut self,
        old: ClassicGroupMember,
        new_member_id: StrBytes,
        old_leader: Option<StrBytes>,
        supports_skipping_assignment: bool,
        token: Token,
        result: Result<(), ErrorCode>,
    ) {
        if let Err(error) = result {
            self.restore_static_member(old, &new_member_id);
            let response = self
                .current_generation(&unknown_member_id(), false, false)
                .with_leader(old_leader.unwrap_or_default())
                .with_error_code(append_error(error).code());
            self.reply(token, GroupReply::Join(response));
            return;
        }
        // A rebalance that has begun in between answers.
        if !matches!(self.group.state(), Stable | CompletingRebalance) {
            return;
        }
        let is_leader = self.group.is_leader(&new_member_id);
        let response = if supports_skipping_assignment {
            self.current_generation(&new_member_id, is_leader, is_leader)
        } else {
            // An older client would assign if it were told that it leads; with the old leader's id it does not.
            self.current_generation(&new_member_id, false, false)
                .with_leader(old_leader.unwrap_or_default())
        };
        if let Some(waiting) = self.group.take_awaiting_join(&new_member_id) {
            self.reply(waiting, GroupReply::Join(response));
        }
    }

    fn restore_static_member(&mut self, old: ClassicGroupMember, new_member_id: &StrBytes) {
        let Some(instance) = old.group_instance_id.clone() else {
            return;
        };
        if self.group.static_member_id(&instance) != Some(new_member_id) {
            return;
        }
        self.group.update_member(
            new_member_id,
            old.protocols,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            None,
        );
        self.group
            .replace_static_member(&instance, new_member_id, &old.member_id);
        self.schedule_heartbeat(&old.member_id, i64::from(old.session_timeout_ms));
    }
}

/// Rebalancing.
impl Classic<'_> {
    fn heartbeat_timer(&self, member_id: &StrBytes) -> GroupTimer {
        GroupTimer::Heartbeat {
            group_id: self.group.group_id().clone(),
            member_id: member_id.clone(),
        }
    }

    fn schedule_heartbeat(&mut self, member_id: &StrBytes, after_ms: i64) {
        let event = self.heartbeat_timer(member_id);
        self.effects.push(Effect::Schedule { after_ms, event });
    }

    pub(super) fn is_in_any(&self, states: &[super::classic_group::ClassicGroupState]) -> bool {
        states.contains(&self.group.state())
    }

    /// The member has shown that it lives: a session timeout from now it must again.
    pub(super) fn reschedule_heartbeat(&mut self, member_id: &StrBytes) {
        if let Some(member) = self.group.member(member_id) {
            let after_ms = i64::from(member.session_timeout_ms);
            self.schedule_heartbeat(member_id, after_ms);
        }
    }

    fn cancel_heartbeat(&mut self, member_id: &StrBytes) {
        let event = self.heartbeat_timer(member_id);
        self.effects.push(Effect::Cancel(event));
    }

    fn schedule_join_completion(&mut self) {
        let event = GroupTimer::CompleteJoin {
            group_id: self.group.group_id().clone(),
        };
        let after_ms = i64::from(self.group.rebalance_timeout_ms());
        self.effects.push(Effect::Schedule { after_ms, event });
    }

    fn sync_timer(&self) -> GroupTimer {
        GroupTimer::PendingSync {
            group_id: self.group.group_id().clone(),
            generation_id: self.group.generation_id(),
        }
    }

    fn maybe_prepare_rebalance_or_complete_join(&mut self, reason: &str) -> Option<Write> {
        match self.group.can_rebalance() {
            true => self.prepare_rebalance(reason),
            false => self.maybe_complete_join_phase(),
        }
    }

    pub(super) fn prepare_rebalance(&mut self, reason: &str) -> Option<Write> {
        if self.group.is_in(CompletingRebalance) {
            self.reset_assignments(ErrorCode::RebalanceInProgress);
        }
        self.group.clear_pending_sync_members();
        self.effects.push(Effect::Cancel(self.sync_timer()));
        let is_initial = self.group.is_in(Empty);
        if is_initial {
            // Members of a new group start one after the other: give them time, once for all.
            let delay_ms = self.config.group_initial_rebalance_delay_ms;
            let event = GroupTimer::InitialRebalance {
                group_id: self.group.group_id().clone(),
                delay_ms,
                remaining_ms: (self.group.rebalance_timeout_ms() - delay_ms).max(0),
            };
            self.effects.push(Effect::Schedule {
                after_ms: i64::from(delay_ms),
                event,
            });
        }
        self.group.transition_to(PreparingRebalance, self.now_ms);
        tracing::info!(
            group = %self.group.group_id(), generation = self.group.generation_id(), reason, "preparing to rebalance"
        );
        if is_initial {
            None
        } else if self.group.has_all_members_joined() {
            self.complete_join()
        } else {
            self.schedule_join_completion();
            None
        }
    }

    /// The initial rebalance ends by its timer only.
    fn maybe_complete_join_phase(&mut self) -> Option<Write> {
        let complete = self.group.is_in(PreparingRebalance)
            && self.group.previous_state() != Empty
            && self.group.has_all_members_joined();
        if complete { self.complete_join() } else { None }
    }

    fn initial_rebalance_elapsed(&mut self, delay_ms: i32, remaining_ms: i32) -> Option<Write> {
        if !self.group.new_member_added || remaining_ms == 0 {
            return self.complete_join();
        }
        self.group.new_member_added = false;
        let next_delay_ms = self.config.group_initial_rebalance_delay_ms.min(remaining_ms);
        let event = GroupTimer::InitialRebalance {
            group_id: self.group.group_id().clone(),
            delay_ms: next_delay_ms,
            remaining_ms: (remaining_ms - delay_ms).max(0),
        };
        self.effects.push(Effect::Schedule {
            after_ms: i64::from(next_delay_ms),
            event,
        });
        None
    }

    /// Ends the join phase: who has not come is out, unless it is static.
    fn complete_join(&mut self) -> Option<Write> {
        self.effects.push(Effect::Cancel(GroupTimer::CompleteJoin {
            group_id: self.group.group_id().clone(),
        }));
        for member_id in self.group.not_yet_rejoined_dynamic_members() {
            tracing::info!(group = %self.group.group_id(), member = %member_id, "removed a member that has not rejoined");
            self.group.remove(&member_id);
            self.cancel_heartbeat(&member_id);
        }
        if self.group.is_in(Dead) {
            return None;
        }
        if !self.group.maybe_elect_new_joined_leader() && !self.group.is_empty() {
            // Static members only, and none of them came: wait for them until their sessions time out.
            self.schedule_join_completion();
            return None;
        }
        self.group.init_next_generation(self.now_ms);
        if self.group.is_in(Empty) {
            tracing::info!(
                group = %self.group.group_id(), generation = self.group.generation_id(), "the group is now empty"
            );
            return Some(Write {
                records: vec![GroupRecord::group_metadata(self.group, &HashMap::new())],
                pending: None,
            });
        }
        tracing::info!(
            group = %self.group.group_id(), generation = self.group.generation_id(), members = self.group.len(),
            "stabilized the group"
        );
        for member_id in self.group.member_ids() {
            let response = self.current_generation(&member_id, self.group.is_leader(&member_id), false);
            if let Some(token) = self.group.take_awaiting_join(&member_id) {
                self.reply(token, GroupReply::Join(response));
            }
            self.reschedule_heartbeat(&member_id);
            if let Some(member) = self.group.member_mut(&member_id) {
                member.is_new = false;
            }
            self.group.add_pending_sync_member(member_id);
        }
        let after_ms = i64::from(self.group.rebalance_timeout_ms());
        let event = self.sync_timer();
        self.effects.push(Effect::Schedule { after_ms, event });
        None
    }

    fn pending_sync_elapsed(&mut self, generation_id: i32) -> Option<Write> {
        let expected = generation_id == self.group.generation_id()
            && matches!(self.group.state(), CompletingRebalance | Stable)
            && !self.group.pending_sync_members().is_empty();
        if !expected {
            return None;
        }
        for member_id in self.group.pending_sync_members().clone() {
            self.group.remove(&member_id);
            self.cancel_heartbeat(&member_id);
        }
        self.prepare_rebalance("members have not sent SyncGroup in time")
    }

    fn heartbeat_elapsed(&mut self, member_id: &StrBytes) -> Option<Write> {
        if self.group.is_in(Dead) {
            return None;
        }
        if self.group.is_pending_member(member_id) {
            self.group.remove(member_id);
            let complete = self.group.is_in(PreparingRebalance) && self.group.has_all_members_joined();
            return if complete { self.complete_join() } else { None };
        }
        let failed = self
            .group
            .member(member_id)
            .is_some_and(|member| !member.has_satisfied_heartbeat());
        if !failed {
            return None;
        }
        tracing::info!(group = %self.group.group_id(), member = %member_id, "a member has failed");
        self.remove_member(member_id);
        match self.group.state() {
            Stable | CompletingRebalance => {
                self.maybe_prepare_rebalance_or_complete_join("removing a member on heartbeat expiration")
            }
            PreparingRebalance if self.group.has_all_members_joined() => self.complete_join(),
            _ => None,
        }
    }

    /// A new member may be waiting for the rebalance that it is removed from: it is told, and may try again.
    fn remove_member(&mut self, member_id: &StrBytes) {
        if let Some(token) = self.group.take_awaiting_join(member_id) {
            self.reply(
                token,
                join_error(&unknown_member_id(), ErrorCode::UnknownMemberId),
            );
        }
        self.group.remove(member_id);
    }

    fn reset_assignments(&mut self, error: ErrorCode) {
        for member_id in self.group.member_ids() {
            if let Some(member) = self.group.member_mut(&member_id) {
                member.assignment = Bytes::new();
            }
        }
        self.propagate_assignments(Some(error));
    }

    fn propagate_assignments(&mut self, error: Option<ErrorCode>) {
        for member_id in self.group.member_ids() {
            let Some(token) = self.group.take_awaiting_sync(&member_id) else {
                continue;
            };
            let reply = match error {
                Some(error) => sync_error(error),
                None => self.assignment_of(&member_id),
            };
            self.reply(token, reply);
            // Its session may have run out while it waited, which was not held against it.
            self.reschedule_heartbeat(&member_id);
        }
    }

    fn assignment_of(&self, member_id: &StrBytes) -> GroupReply {
        let assignment = self
            .group
            .member(member_id)
            .map(|member| member.assignment.clone());
        let response = SyncGroupResponse::default()
            .with_protocol_type(self.group.protocol_type().cloned())
            .with_protocol_name(self.group.protocol_name().cloned())
            .with_assignment(assignment.unwrap_or_default());
        GroupReply::Sync(response)
    }
}

/// Syncing, staying, leaving.
impl Classic<'_> {
    fn validate_sync(&self, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
        let differs = |asked: Option<&StrBytes>, actual: Option<&StrBytes>| matches!((asked, actual), (Some(asked), Some(actual)) if asked != actual);
        if self.group.is_in(Dead) {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        self.group
            .validate_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation_id != self.group.generation_id() {
            return Err(ErrorCode::IllegalGeneration);
        }
        if differs(request.protocol_type.as_ref(), self.group.protocol_type())
            || differs(request.protocol_name.as_ref(), self.group.protocol_name())
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        match self.group.is_in(PreparingRebalance) {
            true => Err(ErrorCode::RebalanceInProgress),
            false => Ok(()),
        }
    }

    fn sync(&mut self, request: &SyncGroupRequest, token: Token) -> Option<Write> {
        if let Err(error) = self.validate_sync(request) {
            self.reply(token, sync_error(error));
            return None;
        }
        let member_id = owned(&request.member_id);
        self.group.remove_pending_sync_member(&member_id);
        if self.group.pending_sync_members().is_empty() {
            self.effects.push(Effect::Cancel(self.sync_timer()));
        }
        if self.group.is_in(Stable) {
            let reply = self.assignment_of(&member_id);
            self.reply(token, reply);
            return None;
        }
        // CompletingRebalance: parked until the leader's assignment is committed.
        if let Some(older) = self.group.take_awaiting_sync(&member_id) {
            self.reply(older, sync_error(ErrorCode::RebalanceInProgress));
        }
        if let Some(member) = self.group.member_mut(&member_id) {
            member.awaiting_sync = Some(token);
        }
        if !self.group.is_leader(&member_id) {
            return None;
        }
        let mut assignments: HashMap<StrBytes, Bytes> = request
            .assignments
            .iter()
            .map(|assigned| (owned(&assigned.member_id), owned_bytes(&assigned.assignment)))
            .collect();
        for member_id in self.group.member_ids() {
            assignments.entry(member_id).or_default();
        }
        Some(Write {
            records: vec![GroupRecord::group_metadata(self.group, &assignments)],
            pending: Some(GroupPending::StoreAssignments {
                group_id: self.group.group_id().clone(),
                generation_id: self.group.generation_id(),
                assignments,
            }),
        })
    }

    fn assignments_stored(
        &mut self,
        generation_id: i32,
        assignments: &HashMap<StrBytes, Bytes>,
        result: Result<(), ErrorCode>,
    ) -> Option<Write> {
        // Somebody may have joined in between: then the assignment is of no use any more.
        if !self.group.is_in(CompletingRebalance) || generation_id != self.group.generation_id() {
            return None;
        }
        if let Err(error) = result {
            let error = append_error(error);
            self.reset_assignments(error);
            return self.maybe_prepare_rebalance_or_complete_join("the assignment could not be stored");
        }
        for member_id in self.group.member_ids() {
            if let Some(member) = self.group.member_mut(&member_id) {
                member.assignment = assignments.get(&member_id).cloned().unwrap_or_default();
            }
        }
        self.propagate_assignments(None);
        self.group.transition_to(Stable, self.now_ms);
        None
    }

    fn heartbeat(
        &mut self,
        member_id: &StrBytes,
        group_instance_id: Option<&StrBytes>,
        generation_id: i32,
    ) -> ErrorCode {
        if self.group.is_in(Dead) {
            return ErrorCode::CoordinatorNotAvailable;
        }
        if let Err(error) = self.group.validate_member(member_id, group_instance_id) {
            return error;
        }
        if generation_id != self.group.generation_id() {
            return ErrorCode::IllegalGeneration;
        }
        match self.group.state() {
            Empty | Dead => ErrorCode::UnknownMemberId,
            PreparingRebalance => {
                self.reschedule_heartbeat(member_id);
                ErrorCode::RebalanceInProgress
            }
            CompletingRebalance | Stable => {
                self.reschedule_heartbeat(member_id);
                ErrorCode::None
            }
        }
    }

    /// One member of a LeaveGroup. Without a member id it is an administrator who removes a static member.
    fn leave(&mut self, identity: &MemberIdentity) -> ErrorCode {
        let instance = identity.group_instance_id.as_ref();
        if identity.member_id.is_empty() {
            let member_id = instance
                .and_then(|instance| self.group.static_member_id(instance))
                .cloned();
            return match member_id {
                Some(member_id) => {
                    self.leave_member(&member_id);
                    ErrorCode::None
                }
                None => ErrorCode::UnknownMemberId,
            };
        }
        if self.group.is_pending_member(&identity.member_id) {
            self.group.remove(&identity.member_id);
            self.cancel_heartbeat(&identity.member_id);
            return ErrorCode::None;
        }
        match self.group.validate_member(&identity.member_id, instance) {
            Ok(()) => {
                self.leave_member(&identity.member_id);
                ErrorCode::None
            }
            Err(error) => error,
        }
    }

    fn leave_member(&mut self, member_id: &StrBytes) {
        tracing::info!(group = %self.group.group_id(), member = %member_id, "a member has left");
        self.cancel_heartbeat(member_id);
        self.remove_member(member_id);
    }

    fn leave_all(&mut self, members: &[MemberIdentity]) -> (LeaveGroupResponse, Option<Write>) {
        if self.group.is_in(Dead) {
            let error = ErrorCode::CoordinatorNotAvailable.code();
            return (LeaveGroupResponse::default().with_error_code(error), None);
        }
        let mut responses = Vec::with_capacity(members.len());
        let mut any_left = false;
        for identity in members {
            let error = self.leave(identity);
            any_left |= error == ErrorCode::None;
            responses.push(
                MemberResponse::default()
                    .with_member_id(identity.member_id.clone())
                    .with_group_instance_id(identity.group_instance_id.clone())
                    .with_error_code(error.code()),
            );
        }
        let write = match self.group.state() {
            _ if !any_left => None,
            Stable | CompletingRebalance => {
                self.maybe_prepare_rebalance_or_complete_join("members have left by LeaveGroup")
            }
            PreparingRebalance => self.maybe_complete_join_phase(),
            Empty | Dead => None,
        };
        (LeaveGroupResponse::default().with_members(responses), write)
    }
}

/// The operations on a partition's groups.
impl GroupShard {
    pub(super) fn classic<'a>(
        &'a mut self,
        group_id: &StrBytes,
        effects: &'a mut Vec<GroupEffect>,
        now_ms: i64,
    ) -> Option<Classic<'a>> {
        match self.groups.get_mut(group_id)? {
            Group::Classic(group) => Some(Classic {
                group,
                config: &self.config,
                effects,
                now_ms,
            }),
            Group::Other(_) => None,
        }
    }

    /// The reply is parked under `token`.
    pub fn join_group(
        &mut self,
        context: &OperationContext,
        join_context: &JoinContext,
        request: &JoinGroupRequest,
        token: Token,
    ) -> Result<GroupOutcome<()>, ApiError> {
        let mut effects = Vec::new();
        let mut records = Vec::new();
        let group_id = owned(&request.group_id.0);
        match self.groups.get(&group_id) {
            Some(Group::Other(other)) if other.may_become_classic() => {
                // An empty group of a newer protocol makes room; its offsets stay.
                if request.member_id.is_empty() {
                    records = other.tombstones();
                    self.forget_group(context.next_offset, &group_id);
                }
            }
            Some(Group::Other(_)) => {
                let reply = join_error(&unknown_member_id(), ErrorCode::InconsistentGroupProtocol);
                effects.push(Effect::Reply(token, reply));
                return Ok(Write::outcome(None, effects, ()));
            }
            Some(Group::Classic(_)) | None => {}
        }
        let is_new = !matches!(self.groups.get(&group_id), Some(Group::Classic(_)));
        if is_new {
            if !request.member_id.is_empty() {
                let reply = join_error(&request.member_id, ErrorCode::UnknownMemberId);
                effects.push(Effect::Reply(token, reply));
                return Ok(Write::outcome(None, effects, ()));
            }
            self.create_classic_group(context.next_offset, context.now_ms, &group_id);
        }
        let now_ms = context.now_ms;
        let Some(mut classic) = self.classic(&group_id, &mut effects, now_ms) else {
            return Err(ErrorCode::UnknownServerError.into());
        };
        let mut write = classic.join(join_context, Join::new(request, token))?;
        if is_new && write.is_none() {
            // The group is to outlive this coordinator from the start.
            records.push(GroupRecord::empty_group_metadata(classic.group));
            write = Some(Write {
                records,
                pending: Some(GroupPending::CreateGroup { token }),
            });
        }
        Ok(Write::outcome(write, effects, ()))
    }

    pub fn sync_group(
        &mut self,
        context: &OperationContext,
        request: &SyncGroupRequest,
        token: Token,
    ) -> Result<GroupOutcome<()>, ApiError> {
        let mut effects = Vec::new();
        let mut write = None;
        match self.classic(&request.group_id.0, &mut effects, context.now_ms) {
            Some(mut classic) if !classic.group.is_in(Empty) => write = classic.sync(request, token),
            _ => effects.push(Effect::Reply(token, sync_error(ErrorCode::UnknownMemberId))),
        }
        Ok(Write::outcome(write, effects, ()))
    }

    pub fn heartbeat(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        member_id: &StrBytes,
        group_instance_id: Option<&StrBytes>,
        generation_id: i32,
    ) -> GroupOutcome<ErrorCode> {
        let mut effects = Vec::new();
        let error = match self.classic(group_id, &mut effects, context.now_ms) {
            Some(mut classic) => classic.heartbeat(&owned(member_id), group_instance_id, generation_id),
            None => ErrorCode::UnknownMemberId,
        };
        Write::outcome(None, effects, error)
    }

    pub fn leave_group(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        members: &[MemberIdentity],
    ) -> Result<GroupOutcome<LeaveGroupResponse>, ApiError> {
        let mut effects = Vec::new();
        let Some(mut classic) = self.classic(group_id, &mut effects, context.now_ms) else {
            return Err(ErrorCode::UnknownMemberId.into());
        };
        let (response, write) = classic.leave_all(members);
        Ok(Write::outcome(write, effects, response))
    }

    pub(super) fn on_classic_timer(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        timer: &GroupTimer,
    ) -> GroupOutcome<()> {
        let mut effects = Vec::new();
        let write =
            self.classic(group_id, &mut effects, context.now_ms)
                .and_then(|mut classic| match timer {
                    GroupTimer::Heartbeat { member_id, .. } => classic.heartbeat_elapsed(member_id),
                    GroupTimer::CompleteJoin { .. } => classic.complete_join(),
                    GroupTimer::InitialRebalance {
                        delay_ms,
                        remaining_ms,
                        ..
                    } => classic.initial_rebalance_elapsed(*delay_ms, *remaining_ms),
                    GroupTimer::PendingSync { generation_id, .. } => {
                        classic.pending_sync_elapsed(*generation_id)
                    }
                    GroupTimer::Expiration => None,
                });
        Write::outcome(write, effects, ())
    }

    pub(super) fn on_classic_appended(
        &mut self,
        context: &OperationContext,
        pending: GroupPending,
        result: Result<(), ErrorCode>,
    ) -> GroupOutcome<()> {
        let mut effects = Vec::new();
        let mut write = None;
        match pending {
            GroupPending::CreateGroup { token } => {
                if let Err(error) = result {
                    let response = JoinGroupResponse::default().with_error_code(append_error(error).code());
                    effects.push(Effect::Reply(token, GroupReply::Join(response)));
                }
            }
            GroupPending::StoreAssignments {
                group_id,
                generation_id,
                assignments,
            } => {
                if let Some(mut classic) = self.classic(&group_id, &mut effects, context.now_ms) {
                    write = classic.assignments_stored(generation_id, &assignments, result);
                }
            }
            GroupPending::ReplaceStaticMember {
                group_id,
                old,
                new_member_id,
                old_leader,
                supports_skipping_assignment,
                token,
            } => {
                if let Some(mut classic) = self.classic(&group_id, &mut effects, context.now_ms) {
                    classic.static_member_stored(
                        *old,
                        new_member_id,
                        old_leader,
                        supports_skipping_assignment,
                        token,
                        result,
                    );
                }
            }
        }
        Write::outcome(write, effects, ())
    }

    /// Answers all who wait for a group: this is no coordinator any more.
    pub(super) fn on_classic_unloaded(&mut self, now_ms: i64) -> Vec<GroupEffect> {
        let mut effects = Vec::new();
        for group in self.groups.values_mut() {
            let Group::Classic(group) = group else { continue };
            group.transition_to(Dead, now_ms);
            for member_id in group.member_ids() {
                if let Some(token) = group.take_awaiting_join(&member_id) {
                    effects.push(Effect::Reply(
                        token,
                        join_error(&member_id, ErrorCode::NotCoordinator),
                    ));
                }
                if let Some(token) = group.take_awaiting_sync(&member_id) {
                    effects.push(Effect::Reply(token, sync_error(ErrorCode::NotCoordinator)));
                }
            }
        }
        effects
    }

    /// Members of groups from the log get a session timeout to show up; a group that is too large is rebalanced.
    pub(super) fn on_classic_loaded(&mut self, now_ms: i64) -> (Vec<GroupRecord>, Vec<GroupEffect>) {
        let (mut records, mut effects) = (Vec::new(), Vec::new());
        let group_ids: Vec<StrBytes> = self.groups.keys().cloned().collect();
        for group_id in group_ids {
            let Some(mut classic) = self.classic(&group_id, &mut effects, now_ms) else {
                continue;
            };
            for member_id in classic.group.member_ids() {
                classic.reschedule_heartbeat(&member_id);
            }
            if classic.group.len() > classic.config.group_max_size {
                let write = classic.prepare_rebalance("the group from the log is over capacity");
                records.extend(write.into_iter().flat_map(|write| write.records));
            }
        }
        (records, effects)
    }
}

#[cfg(test)]
#[path = "classic_protocol_test.rs"]
mod classic_protocol_test;
