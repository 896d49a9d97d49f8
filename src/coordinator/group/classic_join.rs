//! How a member gets into a classic group: JoinGroup, and what becomes of a static member that comes back. Pure.

use bytes::Bytes;

use super::classic_group::ClassicGroupState::{CompletingRebalance, Dead, Empty, PreparingRebalance, Stable};
use super::classic_group::{ClassicGroupMember, MemberProtocol};
use super::classic_protocol::{
    Classic, JoinContext, Write, append_error, join_error, sync_error, unknown_member_id,
};
use super::config::NEW_MEMBER_JOIN_TIMEOUT_MS;
use super::records::GroupRecord;
use super::shard::{GroupPending, GroupReply};
use super::{owned, owned_bytes};
use crate::coordinator::runtime::shard::{Effect, Token};
use crate::protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

/// Of a string, in records and in the older versions of requests.
const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// A JoinGroup's content, owned.
pub(super) struct Join {
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
    pub(super) fn new(request: &JoinGroupRequest, token: Token) -> Self {
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

impl Classic<'_> {
    pub(super) fn reply(&mut self, token: Token, reply: GroupReply) {
        self.effects.push(Effect::Reply(token, reply));
    }

    /// New members are let in up to the maximum size. During a rebalance those who have joined count, so that the last
    /// ones to rejoin a group that is too large are turned away.
    pub(super) fn accepts(&self, member_id: &StrBytes) -> bool {
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

    pub(super) fn join(&mut self, context: &JoinContext, join: Join) -> Result<Option<Write>, ApiError> {
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

    pub(super) fn join_new_member(
        &mut self,
        context: &JoinContext,
        join: Join,
    ) -> Result<Option<Write>, ApiError> {
        let prefix = join.group_instance_id.as_ref().unwrap_or(&context.client_id);
        let new_member_id = StrBytes::from_string(format!("{prefix}-{}", context.random));
        if new_member_id.len() > STRING_BYTES_MAX {
            // Kafka cannot write it either, once the member is in the group; here it does not get there.
            let reply = join_error(&unknown_member_id(), ErrorCode::UnknownServerError);
            self.reply(join.token, reply);
            return Ok(None);
        }
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

    pub(super) fn join_existing_member(
        &mut self,
        context: &JoinContext,
        join: Join,
    ) -> Result<Option<Write>, ApiError> {
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
    pub(super) fn current_generation(
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

    pub(super) fn add_member(
        &mut self,
        context: &JoinContext,
        join: Join,
        member_id: StrBytes,
    ) -> Option<Write> {
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
            held: None,
            is_new: true,
            awaiting_join: Some(join.token),
            awaiting_sync: None,
        };
        self.group.add(member, &join.protocol_type);
        self.schedule_heartbeat(&member_id, NEW_MEMBER_JOIN_TIMEOUT_MS);
        self.maybe_prepare_rebalance_or_complete_join(&reason)
    }

    pub(super) fn update_member(&mut self, join: Join) -> Option<Write> {
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
    pub(super) fn take_over(
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
    pub(super) fn replace_static_member(
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

    pub(super) fn static_member_stored(
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

    pub(super) fn restore_static_member(&mut self, old: ClassicGroupMember, new_member_id: &StrBytes) {
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
