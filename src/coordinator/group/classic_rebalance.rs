//! How a classic group rebalances, and what its members do in between: SyncGroup, Heartbeat, LeaveGroup, timers. Pure.

use std::collections::HashMap;

use bytes::Bytes;

use super::classic_group::ClassicGroupState::{CompletingRebalance, Dead, Empty, PreparingRebalance, Stable};
use super::classic_protocol::{Classic, Write, append_error, join_error, sync_error, unknown_member_id};
use super::records::GroupRecord;
use super::shard::{GroupPending, GroupReply, GroupTimer};
use super::{owned, owned_bytes};
use crate::coordinator::runtime::shard::{Effect, Token};
use crate::protocol::messages::leave_group_request::MemberIdentity;
use crate::protocol::messages::leave_group_response::MemberResponse;
use crate::protocol::messages::{LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse};
use crate::protocol::{ErrorCode, StrBytes};

/// Rebalancing.
impl Classic<'_> {
    pub(super) fn heartbeat_timer(&self, member_id: &StrBytes) -> GroupTimer {
        GroupTimer::Heartbeat {
            group_id: self.group.group_id().clone(),
            member_id: member_id.clone(),
        }
    }

    pub(super) fn schedule_heartbeat(&mut self, member_id: &StrBytes, after_ms: i64) {
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

    pub(super) fn cancel_heartbeat(&mut self, member_id: &StrBytes) {
        let event = self.heartbeat_timer(member_id);
        self.effects.push(Effect::Cancel(event));
    }

    pub(super) fn schedule_join_completion(&mut self) {
        let event = GroupTimer::CompleteJoin {
            group_id: self.group.group_id().clone(),
        };
        let after_ms = i64::from(self.group.rebalance_timeout_ms());
        self.effects.push(Effect::Schedule { after_ms, event });
    }

    pub(super) fn sync_timer(&self) -> GroupTimer {
        GroupTimer::PendingSync {
            group_id: self.group.group_id().clone(),
            generation_id: self.group.generation_id(),
        }
    }

    pub(super) fn maybe_prepare_rebalance_or_complete_join(&mut self, reason: &str) -> Option<Write> {
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
    pub(super) fn maybe_complete_join_phase(&mut self) -> Option<Write> {
        let complete = self.group.is_in(PreparingRebalance)
            && self.group.previous_state() != Empty
            && self.group.has_all_members_joined();
        if complete { self.complete_join() } else { None }
    }

    pub(super) fn initial_rebalance_elapsed(&mut self, delay_ms: i32, remaining_ms: i32) -> Option<Write> {
        if !self.group.is_in(PreparingRebalance) {
            return None;
        }
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
    pub(super) fn complete_join(&mut self) -> Option<Write> {
        if !self.group.is_in(PreparingRebalance) {
            // The timer of a group that has had this name.
            return None;
        }
        self.effects.push(Effect::Cancel(GroupTimer::CompleteJoin {
            group_id: self.group.group_id().clone(),
        }));
        for member_id in self.group.not_yet_rejoined_dynamic_members() {
            tracing::info!(group = %self.group.group_id(), member = %member_id, "removed a member that has not rejoined");
            self.group.remove(&member_id);
            self.cancel_heartbeat(&member_id);
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

    pub(super) fn pending_sync_elapsed(&mut self, generation_id: i32) -> Option<Write> {
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

    pub(super) fn heartbeat_elapsed(&mut self, member_id: &StrBytes) -> Option<Write> {
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
    pub(super) fn remove_member(&mut self, member_id: &StrBytes) {
        if let Some(token) = self.group.take_awaiting_join(member_id) {
            self.reply(
                token,
                join_error(&unknown_member_id(), ErrorCode::UnknownMemberId),
            );
        }
        self.group.remove(member_id);
    }

    pub(super) fn reset_assignments(&mut self, error: ErrorCode) {
        for member_id in self.group.member_ids() {
            if let Some(member) = self.group.member_mut(&member_id) {
                member.assignment = Bytes::new();
            }
        }
        self.propagate_assignments(Some(error));
    }

    pub(super) fn propagate_assignments(&mut self, error: Option<ErrorCode>) {
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

    pub(super) fn assignment_of(&self, member_id: &StrBytes) -> GroupReply {
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
    pub(super) fn validate_sync(&self, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
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

    pub(super) fn sync(&mut self, request: &SyncGroupRequest, token: Token) -> Option<Write> {
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

    pub(super) fn assignments_stored(
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

    pub(super) fn heartbeat(
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
    pub(super) fn leave(&mut self, identity: &MemberIdentity) -> ErrorCode {
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

    pub(super) fn leave_member(&mut self, member_id: &StrBytes) {
        tracing::info!(group = %self.group.group_id(), member = %member_id, "a member has left");
        self.cancel_heartbeat(member_id);
        self.remove_member(member_id);
    }

    pub(super) fn leave_all(&mut self, members: &[MemberIdentity]) -> (LeaveGroupResponse, Option<Write>) {
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
