//! Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, served as
//! far as they go (KIP-848, online migration). Pure.
//!
//! To such a member its epoch is a generation in which it is alone: JoinGroup reconciles it as a heartbeat of the consumer
//! protocol does, SyncGroup tells what it has, Heartbeat tells it to join again when there is more to do. It assigns
//! nothing, whatever it supports.

use std::sync::Arc;

use uuid::Uuid;

use super::classic_group::{CONSUMER_PROTOCOL_TYPE, MemberProtocol};
use super::classic_protocol::{JoinContext, sync_error};
use super::consumer_group::ConsumerGroup;
use super::consumer_member::{ClassicMemberMetadata, ConsumerMember, MemberState, without_epochs};
use super::consumer_migration as migration;
use super::consumer_protocol::Consumer;
use super::embedded_protocol as embedded;
use super::shard::{Group, GroupEffect, GroupOutcome, GroupPending, GroupReply, GroupShard, GroupTimer};
use super::{owned, owned_bytes};
use crate::coordinator::runtime::shard::{Effect, OperationContext, Token};
use crate::protocol::messages::leave_group_request::MemberIdentity;
use crate::protocol::messages::leave_group_response::MemberResponse;
use crate::protocol::messages::{
    JoinGroupRequest, JoinGroupResponse, LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

/// As Kafka prints a random id.
pub fn uuid_text(id: Uuid) -> StrBytes {
    use base64::Engine;
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(id.as_bytes());
    StrBytes::from_string(text)
}

fn first_protocol(member: &ConsumerMember) -> Option<&MemberProtocol> {
    member.classic.as_ref()?.protocols.first()
}

fn consumer_type() -> StrBytes {
    StrBytes::from_static_str(CONSUMER_PROTOCOL_TYPE)
}

fn inconsistent(message: String) -> ApiError {
    ApiError::new(ErrorCode::InconsistentGroupProtocol, message)
}

impl Consumer<'_> {
    /// A member that joins; nobody's epoch is looked at.
    fn joining_member(
        &mut self,
        member_id: &StrBytes,
        instance_id: Option<&StrBytes>,
        is_unknown: bool,
    ) -> Result<ConsumerMember, ApiError> {
        let known_or_new = |group: &ConsumerGroup| match group.member(member_id) {
            Some(member) => (**member).clone(),
            None => ConsumerMember::new(member_id.clone()),
        };
        match instance_id {
            None => Ok(known_or_new(self.group)),
            Some(instance_id) if !is_unknown => {
                let member = self.known_static_member(member_id, instance_id)?;
                Ok((*member).clone())
            }
            Some(instance_id) => match self.group.static_member(instance_id).cloned() {
                Some(existing) => Ok(self.replace_member(&existing, member_id)),
                None => Ok(known_or_new(self.group)),
            },
        }
    }

    fn validate_classic_join(
        &self,
        member_id: &StrBytes,
        request: &JoinGroupRequest,
        protocols: &[MemberProtocol],
    ) -> Result<(), ApiError> {
        self.check_not_full(member_id, request.group_instance_id.as_ref())?;
        match self
            .group
            .supports_classic_protocols(&request.protocol_type, protocols)
        {
            true => Ok(()),
            false => Err(inconsistent(format!(
                "Member {member_id}'s protocols are not supported."
            ))),
        }
    }
}

impl GroupShard {
    /// JoinGroup to a consumer group that is not empty. The reply is parked under `token`.
    pub(super) fn join_consumer_group(
        &mut self,
        context: &OperationContext,
        join_context: &JoinContext,
        request: &JoinGroupRequest,
        token: Token,
    ) -> Result<GroupOutcome<()>, ApiError> {
        let group_id = owned(&request.group_id.0);
        if self.config.consumer_group_migration_policy.is_disabled() {
            return Err(inconsistent(format!(
                "Cannot join the consumer group {group_id} with the classic protocol because the group migration is disabled."
            )));
        }
        let is_unknown = request.member_id.is_empty();
        let member_id = match is_unknown {
            true => uuid_text(join_context.random),
            false => owned(&request.member_id),
        };
        let instance_id = request.group_instance_id.as_ref().map(owned);
        let protocols: Vec<MemberProtocol> = request
            .protocols
            .iter()
            .map(|protocol| MemberProtocol {
                name: owned(&protocol.name),
                metadata: owned_bytes(&protocol.metadata),
            })
            .collect();
        let mut consumer = self.consumer(None, &group_id, context.now_ms)?;
        consumer.validate_classic_join(&member_id, request, &protocols)?;
        if join_context.requires_known_member_id && is_unknown && instance_id.is_none() {
            let response = JoinGroupResponse::default()
                .with_member_id(member_id)
                .with_error_code(ErrorCode::MemberIdRequired.code());
            let mut outcome = GroupOutcome::of(());
            outcome.effects = vec![Effect::Reply(token, GroupReply::Join(response))];
            return Ok(outcome);
        }
        let member = consumer.joining_member(&member_id, instance_id.as_ref(), is_unknown)?;
        let replaced = instance_id
            .as_ref()
            .and_then(|instance_id| consumer.group.static_member(instance_id));
        let is_downgrade = replaced.is_some_and(|replaced| {
            migration::may_downgrade_with_replaced(consumer.group, replaced, consumer.config)
        });
        // Another member may still have what the target gives to this one, and a stable classic group would hand it out at once;
        // Kafka's does.
        let is_unreconciled =
            is_downgrade && replaced.is_some_and(|replaced| !consumer.group.is_reconciled_but_for(replaced));
        let metadata = protocols.first().map(|protocol| protocol.metadata.clone());
        let subscription = embedded::subscription(&metadata.unwrap_or_default()).map_err(|_| {
            inconsistent("Malformed embedded consumer protocol in subscription deserialization.".to_owned())
        })?;
        let mut updated = member.clone();
        updated.instance_id = instance_id.or(updated.instance_id);
        let rack_id = subscription.rack_id.as_ref().filter(|rack| !rack.is_empty());
        updated.rack_id = rack_id.map(owned).or(updated.rack_id);
        if request.rebalance_timeout_ms != -1 {
            updated.rebalance_timeout_ms = request.rebalance_timeout_ms;
        }
        updated.subscribed_topic_names = Arc::new(embedded::topics(&subscription));
        updated.subscribed_topic_regex = Some(StrBytes::new());
        updated.client_id = join_context.client_id.clone();
        updated.client_host = join_context.client_host.clone();
        updated.classic = Some(Arc::new(ClassicMemberMetadata {
            session_timeout_ms: request.session_timeout_ms,
            protocols,
        }));
        let change = consumer.change_member(&member, &updated)?;
        let has_stale_target = consumer.group.assignment_epoch() < change.group_epoch;
        let (target_epoch, target) = match is_downgrade {
            true => (
                consumer.group.assignment_epoch(),
                consumer.group.target_of(&updated),
            ),
            false => consumer.target_for(&change, &member, &updated),
        };
        if !(is_downgrade && has_stale_target) {
            let owned_partitions = embedded::owned_partitions(&subscription, consumer.image);
            let target = (target_epoch, &*target);
            updated = consumer.reconcile(
                updated,
                target,
                change.is_subscription_changed,
                Some(&owned_partitions),
            )?;
        }
        let response = JoinGroupResponse::default()
            .with_member_id(updated.member_id.clone())
            .with_generation_id(updated.member_epoch)
            .with_protocol_type(Some(consumer_type()))
            .with_protocol_name(first_protocol(&updated).map(|protocol| protocol.name.clone()));
        let (written, mut effects) = (
            std::mem::take(&mut consumer.records),
            std::mem::take(&mut consumer.effects),
        );
        let (refreshed, resolve) = (consumer.refreshed, consumer.resolve.take());
        self.remember_work(context, &group_id, refreshed, resolve, &mut effects);
        let mut outcome = if is_downgrade {
            let why = if has_stale_target {
                Some("with stale assignment")
            } else if is_unreconciled {
                Some("before its members have their assignments")
            } else {
                None
            };
            let reason = why.map(|why| format!("Downgrade group {group_id} from consumer to classic {why}."));
            let reason = reason.as_deref();
            self.downgrade(context, &group_id, &[], Some(&updated), reason, ())?
        } else {
            GroupOutcome::of(())
        };
        outcome.records.splice(0..0, written);
        outcome.effects.splice(0..0, effects);
        outcome.pending = Some(GroupPending::ConsumerJoin {
            token,
            group_id,
            response: Box::new(response),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            is_downgrade,
        });
        Ok(outcome)
    }

    /// A JoinGroup's records are committed: SyncGroup is to follow in time. Else whoever waits is told by the error.
    pub(super) fn consumer_join_stored(
        &self,
        group_id: &StrBytes,
        response: JoinGroupResponse,
        (session_timeout_ms, rebalance_timeout_ms): (i32, i32),
        is_downgrade: bool,
        token: Token,
    ) -> Vec<GroupEffect> {
        let (group_id, member_id) = (group_id.clone(), response.member_id.clone());
        let mut effects = vec![Effect::Cancel(GroupTimer::ConsumerJoin {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
        })];
        if !is_downgrade {
            effects.push(Effect::Schedule {
                after_ms: i64::from(session_timeout_ms),
                event: GroupTimer::ConsumerSession {
                    group_id: group_id.clone(),
                    member_id: member_id.clone(),
                },
            });
            effects.push(Effect::Schedule {
                after_ms: i64::from(rebalance_timeout_ms),
                event: GroupTimer::ConsumerSync { group_id, member_id },
            });
        }
        effects.push(Effect::Reply(token, GroupReply::Join(response)));
        effects
    }

    fn known_classic_member(
        &self,
        group_id: &StrBytes,
        member_id: &StrBytes,
        instance_id: Option<&StrBytes>,
        generation_id: i32,
    ) -> Result<(Arc<ConsumerMember>, i32), ApiError> {
        let group = self.known_consumer_group(group_id)?;
        let member = match instance_id {
            None => group.known_member(member_id)?,
            Some(instance_id) => {
                let member = group.static_member(instance_id);
                let member = member.ok_or(ErrorCode::UnknownMemberId)?;
                match member.member_id == *member_id {
                    true => member,
                    false => return Err(ErrorCode::FencedInstanceId.into()),
                }
            }
        };
        let session_timeout_ms = match &member.classic {
            Some(classic) => classic.session_timeout_ms,
            None => return Err(ErrorCode::UnknownMemberId.into()),
        };
        match member.member_epoch == generation_id {
            true => Ok((member.clone(), session_timeout_ms)),
            false => Err(ErrorCode::IllegalGeneration.into()),
        }
    }

    pub(super) fn sync_consumer_group(
        &mut self,
        request: &SyncGroupRequest,
        token: Token,
    ) -> Result<GroupOutcome<()>, ApiError> {
        let group_id = owned(&request.group_id.0);
        let (member, session_timeout_ms) = self.known_classic_member(
            &group_id,
            &request.member_id,
            request.group_instance_id.as_ref(),
            request.generation_id,
        )?;
        let first = first_protocol(&member).ok_or(ErrorCode::UnknownServerError)?;
        let differs = |asked: Option<&StrBytes>, own: &str| asked.is_some_and(|asked| **asked != *own);
        if differs(request.protocol_type.as_ref(), CONSUMER_PROTOCOL_TYPE)
            || differs(request.protocol_name.as_ref(), &first.name)
        {
            return Err(ErrorCode::InconsistentGroupProtocol.into());
        }
        let mut outcome = GroupOutcome::of(());
        let group = self.known_consumer_group(&group_id)?;
        if group.assignment_epoch() > member.member_epoch && member.state != MemberState::UnrevokedPartitions
        {
            outcome.effects = vec![
                join_deadline(&group_id, &member),
                Effect::Reply(token, sync_error(ErrorCode::RebalanceInProgress)),
            ];
            return Ok(outcome);
        }
        let version = embedded::version(&first.metadata).map_err(|_| ErrorCode::UnknownServerError)?;
        let assignment =
            embedded::serialize_assignment(&without_epochs(&member.assigned), version, &self.image)
                .map_err(|_| ErrorCode::UnknownServerError)?;
        let response = SyncGroupResponse::default()
            .with_protocol_type(request.protocol_type.clone())
            .with_protocol_name(request.protocol_name.clone())
            .with_assignment(assignment);
        outcome.pending = Some(GroupPending::ConsumerSync {
            token,
            group_id,
            member_id: member.member_id.clone(),
            response: Box::new(response),
            session_timeout_ms,
        });
        Ok(outcome)
    }

    pub(super) fn consumer_sync_stored(
        &self,
        group_id: StrBytes,
        member_id: StrBytes,
        response: SyncGroupResponse,
        session_timeout_ms: i32,
        token: Token,
    ) -> Vec<GroupEffect> {
        vec![
            Effect::Cancel(GroupTimer::ConsumerSync {
                group_id: group_id.clone(),
                member_id: member_id.clone(),
            }),
            Effect::Schedule {
                after_ms: i64::from(session_timeout_ms),
                event: GroupTimer::ConsumerSession { group_id, member_id },
            },
            Effect::Reply(token, GroupReply::Sync(response)),
        ]
    }

    pub(super) fn heartbeat_to_consumer_group(
        &mut self,
        group_id: &StrBytes,
        member_id: &StrBytes,
        instance_id: Option<&StrBytes>,
        generation_id: i32,
    ) -> GroupOutcome<ErrorCode> {
        let known = self.known_classic_member(group_id, member_id, instance_id, generation_id);
        let (member, session_timeout_ms) = match known {
            Ok(known) => known,
            Err(error) => return GroupOutcome::of(error.code),
        };
        let Some(Group::Consumer(group)) = self.groups.get(group_id) else {
            return GroupOutcome::of(ErrorCode::UnknownMemberId);
        };
        let has_more_to_do = member.member_epoch < group.assignment_epoch()
            || member.state == MemberState::UnrevokedPartitions
            || (member.state == MemberState::UnreleasedPartitions
                && !group.waits_for_unreleased_partition(&member));
        let mut outcome = GroupOutcome::of(match has_more_to_do {
            true => ErrorCode::RebalanceInProgress,
            false => ErrorCode::None,
        });
        outcome.effects.push(Effect::Schedule {
            after_ms: i64::from(session_timeout_ms),
            event: GroupTimer::ConsumerSession {
                group_id: group_id.clone(),
                member_id: member.member_id.clone(),
            },
        });
        if has_more_to_do {
            outcome.effects.push(join_deadline(group_id, &member));
        }
        outcome
    }

    /// LeaveGroup, also of members of the consumer protocol: an administrator does not know which they are.
    pub(super) fn leave_consumer_group(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        identities: &[MemberIdentity],
    ) -> Result<GroupOutcome<LeaveGroupResponse>, ApiError> {
        let group = self.known_consumer_group(group_id)?;
        let mut leaving: Vec<Arc<ConsumerMember>> = Vec::new();
        let mut responses = Vec::with_capacity(identities.len());
        for identity in identities {
            let error = match leaving_member(group, identity) {
                Ok(member) => {
                    if !leaving.iter().any(|known| known.member_id == member.member_id) {
                        leaving.push(member.clone());
                    }
                    ErrorCode::None
                }
                Err(error) => error,
            };
            responses.push(
                MemberResponse::default()
                    .with_member_id(identity.member_id.clone())
                    .with_group_instance_id(identity.group_instance_id.clone())
                    .with_error_code(error.code()),
            );
        }
        let response = LeaveGroupResponse::default().with_members(responses);
        self.fence_consumer_members(context, group_id, &leaving, response)
    }
}

fn leaving_member<'a>(
    group: &'a ConsumerGroup,
    identity: &MemberIdentity,
) -> Result<&'a Arc<ConsumerMember>, ErrorCode> {
    let Some(instance_id) = &identity.group_instance_id else {
        return group
            .member(&identity.member_id)
            .ok_or(ErrorCode::UnknownMemberId);
    };
    let member = group
        .static_member(instance_id)
        .ok_or(ErrorCode::UnknownMemberId)?;
    match identity.member_id.is_empty() || identity.member_id == member.member_id {
        true => Ok(member),
        false => Err(ErrorCode::FencedInstanceId),
    }
}

/// From when it is first told, a member has its rebalance timeout to join again.
fn join_deadline(group_id: &StrBytes, member: &ConsumerMember) -> GroupEffect {
    Effect::ScheduleIfAbsent {
        after_ms: i64::from(member.rebalance_timeout_ms),
        event: GroupTimer::ConsumerJoin {
            group_id: group_id.clone(),
            member_id: member.member_id.clone(),
        },
    }
}
