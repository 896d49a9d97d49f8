//! The classic protocol's operations on a partition's groups: requests and timers, in terms of a group at work. Pure.
//!
//! A rebalance, as the members see it: JoinGroup is parked until all are in (or the time is up), then answered to all at
//! once, the leader's answer with everybody's metadata; SyncGroup is parked until the leader's brings the assignments and
//! the record with them is committed; Heartbeat tells a member to join again. The rules are in `classic_join` and
//! `classic_rebalance`.

use uuid::Uuid;

use super::classic_group::ClassicGroup;
use super::classic_group::ClassicGroupState::{Dead, Empty};
use super::classic_join::Join;
use super::config::GroupConfig;
use super::consumer_records;
use super::owned;
use super::records::GroupRecord;
use super::shard::{
    Group, GroupEffect, GroupOutcome, GroupPending, GroupReply, GroupShard, GroupTimer, TIMER_RETRY_MS,
};
use crate::coordinator::runtime::shard::{Effect, OperationContext, Token};
use crate::protocol::messages::leave_group_request::MemberIdentity;
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
    pub(super) records: Vec<GroupRecord>,
    pub(super) pending: Option<GroupPending>,
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

pub(super) fn join_error(member_id: &StrBytes, error: ErrorCode) -> GroupReply {
    let response = JoinGroupResponse::default()
        .with_member_id(member_id.clone())
        .with_error_code(error.code());
    GroupReply::Join(response)
}

pub(super) fn unknown_member_id() -> StrBytes {
    StrBytes::from_static_str(UNKNOWN_MEMBER_ID)
}

pub(super) fn sync_error(error: ErrorCode) -> GroupReply {
    GroupReply::Sync(SyncGroupResponse::default().with_error_code(error.code()))
}

/// What the coordinator answers when its records could not be written (`appendGroupMetadataErrorToResponseError`).
pub(super) fn append_error(error: ErrorCode) -> ErrorCode {
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

/// A classic group at work: the group, and where its wishes go.
pub(super) struct Classic<'a> {
    pub(super) group: &'a mut ClassicGroup,
    pub(super) config: &'a GroupConfig,
    pub(super) effects: &'a mut Vec<GroupEffect>,
    pub(super) now_ms: i64,
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
            Group::Consumer(_) | Group::Other(_) => None,
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
            Some(Group::Consumer(group)) if !group.is_empty() => {
                return self.join_consumer_group(context, join_context, request, token);
            }
            Some(Group::Consumer(group)) => {
                if request.member_id.is_empty() {
                    records = consumer_records::group_tombstones(group, None);
                    self.forget_group(context.next_offset, &group_id);
                }
            }
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
        if let Some(Group::Consumer(group)) = self.groups.get(&request.group_id.0)
            && !group.is_empty()
        {
            return self.sync_consumer_group(request, token);
        }
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
        if let Some(Group::Consumer(_)) = self.groups.get(group_id) {
            return self.heartbeat_to_consumer_group(group_id, member_id, group_instance_id, generation_id);
        }
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
        if let Some(Group::Consumer(_)) = self.groups.get(group_id) {
            return self.leave_consumer_group(context, &owned(group_id), members);
        }
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
                    GroupTimer::Expiration
                    | GroupTimer::ConsumerSession { .. }
                    | GroupTimer::ConsumerRebalance { .. }
                    | GroupTimer::ConsumerJoin { .. }
                    | GroupTimer::ConsumerSync { .. }
                    | GroupTimer::ResolveRegexes { .. } => None,
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
            GroupPending::ConsumerJoin {
                token,
                group_id,
                response,
                session_timeout_ms,
                rebalance_timeout_ms,
                is_downgrade,
            } => {
                // On failure whoever waits gets the operation's error.
                if result.is_ok() {
                    let timeouts = (session_timeout_ms, rebalance_timeout_ms);
                    effects = self.consumer_join_stored(&group_id, *response, timeouts, is_downgrade, token);
                }
            }
            GroupPending::ConsumerSync {
                token,
                group_id,
                member_id,
                response,
                session_timeout_ms,
            } => {
                if result.is_ok() {
                    effects =
                        self.consumer_sync_stored(group_id, member_id, *response, session_timeout_ms, token);
                }
            }
            GroupPending::ConsumerTimer(event) => {
                if result.is_err() {
                    effects.push(Effect::ScheduleIfAbsent {
                        after_ms: TIMER_RETRY_MS,
                        event,
                    });
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
