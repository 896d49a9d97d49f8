//! The consumer groups among a partition's groups: which group an operation is for, what it makes of a classic one, who leaves,
//! whose time is over (KIP-848). What happens within one group is `consumer_protocol`'s. Pure.
//!
//! An operation sees the group as it is and changes nothing of it: what it wants written is replayed, and only what it found
//! out besides (`remember_work`) is kept at once.

use std::sync::Arc;

use super::consumer_group::ConsumerGroup;
use super::consumer_member::{
    ConsumerMember, JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    MemberState,
};
use super::consumer_migration as migration;
use super::consumer_protocol::{Consumer, HeartbeatContext, heartbeat_error, left};
use super::consumer_records as records;
use super::group_settings::GroupSettings;
use super::owned;
use super::records::GroupRecord;
use super::shard::{Group, GroupEffect, GroupOutcome, GroupPending, GroupShard, GroupTimer, TIMER_RETRY_MS};
use crate::coordinator::runtime::shard::{Effect, OperationContext};
use crate::protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

/// After Kafka's `METADATA_REFRESH_INTERVAL_MS`: topics are looked at when they change, not by the clock.
pub(super) const METADATA_REFRESH_INTERVAL_MS: i64 = i32::MAX as i64;

/// The operations on a partition's groups.
impl GroupShard {
    pub fn consumer_group(&self, group_id: &str) -> Option<&ConsumerGroup> {
        match self.groups.get(group_id.as_bytes()) {
            Some(Group::Consumer(group)) => Some(group),
            _ => None,
        }
    }

    pub(super) fn known_consumer_group(&self, group_id: &StrBytes) -> Result<&ConsumerGroup, ApiError> {
        match self.groups.get(group_id) {
            Some(Group::Consumer(group)) => Ok(group),
            Some(_) => Err(not_a_consumer_group(group_id)),
            None => Err(ApiError::new(
                ErrorCode::GroupIdNotFound,
                format!("Group {group_id} not found."),
            )),
        }
    }

    /// A group at work; `converted`: one that the shard does not have yet.
    pub(super) fn consumer<'a>(
        &'a mut self,
        converted: Option<&'a ConsumerGroup>,
        group_id: &StrBytes,
        now_ms: i64,
    ) -> Result<Consumer<'a>, ApiError> {
        let group = match (converted, self.groups.get(group_id)) {
            (Some(group), _) => group,
            (None, Some(Group::Consumer(group))) => group,
            (None, _) => return Err(not_a_consumer_group(group_id)),
        };
        Ok(Consumer {
            group,
            config: &self.config,
            settings: GroupSettings::of(group_id, &self.config, &self.image),
            image: &self.image,
            hashes: &mut self.topic_hashes,
            new_topics_version: self.new_topics_version,
            is_resolving: self.resolving.contains(group_id),
            now_ms,
            records: Vec::new(),
            effects: Vec::new(),
            refreshed: None,
            resolve: None,
        })
    }

    /// A valid request: `service` has looked at what does not need the group.
    pub fn consumer_group_heartbeat(
        &mut self,
        context: &OperationContext,
        client: &HeartbeatContext,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<GroupOutcome<ConsumerGroupHeartbeatResponse>, ApiError> {
        let group_id = owned(&request.group_id.0);
        if matches!(
            request.member_epoch,
            LEAVE_GROUP_MEMBER_EPOCH | LEAVE_GROUP_STATIC_MEMBER_EPOCH
        ) {
            return self.consumer_group_leave(context, &group_id, request);
        }
        let is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH;
        let mut effects = Vec::new();
        let mut outcome =
            match self.join_or_stay(context, client, request, (&group_id, is_joining), &mut effects) {
                Ok((written, response)) => GroupOutcome::with_records(written, response),
                Err(error) => {
                    // The group stays classic and keeps its timers, but those who waited for a rebalance have been told,
                    // as by Kafka, to join again.
                    effects.retain(|effect| matches!(effect, Effect::Reply(..)));
                    if effects.is_empty() {
                        return Err(error);
                    }
                    GroupOutcome::of(heartbeat_error(&error))
                }
            };
        outcome.effects = effects;
        Ok(outcome)
    }

    /// What a heartbeat writes, and its answer. When it fails, `effects` are those of an upgrade that did not come about.
    fn join_or_stay(
        &mut self,
        context: &OperationContext,
        client: &HeartbeatContext,
        request: &ConsumerGroupHeartbeatRequest,
        (group_id, is_joining): (&StrBytes, bool),
        effects: &mut Vec<GroupEffect>,
    ) -> Result<(Vec<GroupRecord>, ConsumerGroupHeartbeatResponse), ApiError> {
        let mut written = Vec::new();
        let converted = self.group_to_join(context, group_id, is_joining, &mut written, effects)?;
        let mut consumer = self.consumer(converted.as_ref(), group_id, context.now_ms)?;
        let response = consumer.heartbeat(client, request)?;
        written.append(&mut consumer.records);
        effects.append(&mut consumer.effects);
        let (refreshed, resolve) = (consumer.refreshed, consumer.resolve.take());
        self.remember_work(context, group_id, refreshed, resolve, effects);
        Ok((written, response))
    }

    /// Keeps what an operation found out and does not write.
    pub(super) fn remember_work(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        refreshed: Option<i32>,
        resolve: Option<Vec<StrBytes>>,
        effects: &mut Vec<GroupEffect>,
    ) {
        if let Some(epoch) = refreshed
            && let Some(Group::Consumer(group)) = self.groups.get_mut(group_id)
        {
            group.set_refresh(context.now_ms + METADATA_REFRESH_INTERVAL_MS, epoch);
        }
        if let Some(regexes) = resolve {
            self.resolving.insert(group_id.clone());
            effects.push(Effect::Schedule {
                after_ms: 0,
                event: GroupTimer::ResolveRegexes {
                    group_id: group_id.clone(),
                    regexes,
                },
            });
        }
    }

    /// The group that a heartbeat goes to. `Some`: one that was not, or not of this kind, with the records that make it so.
    fn group_to_join(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        is_joining: bool,
        written: &mut Vec<GroupRecord>,
        effects: &mut Vec<GroupEffect>,
    ) -> Result<Option<ConsumerGroup>, ApiError> {
        match self.groups.get_mut(group_id) {
            Some(Group::Consumer(_)) => Ok(None),
            None if is_joining => Ok(Some(ConsumerGroup::new(group_id.clone()))),
            None => {
                let message = format!("Consumer group {group_id} not found.");
                Err(ApiError::new(ErrorCode::GroupIdNotFound, message))
            }
            Some(Group::Classic(classic)) if is_joining && classic.is_in_empty_state() => {
                written.push(GroupRecord::group_tombstone(group_id));
                effects.extend(migration::cancel_classic_timers(classic));
                Ok(Some(ConsumerGroup::new(group_id.clone())))
            }
            Some(Group::Classic(classic)) if is_joining => {
                migration::validate_upgrade(classic, &self.config)?;
                effects.extend(migration::dismiss_for_rebalance(classic));
                let converted = migration::to_consumer_group(classic, &self.image, &mut self.topic_hashes)?;
                written.push(GroupRecord::group_tombstone(group_id));
                written.extend(records::whole_group(&converted));
                effects.extend(migration::cancel_classic_timers(classic));
                effects.extend(migration::session_timers(&converted));
                tracing::info!(group = %group_id, now_ms = context.now_ms, "converted a classic group to a consumer group");
                Ok(Some(converted))
            }
            Some(_) => Err(not_a_consumer_group(group_id)),
        }
    }

    fn consumer_group_leave(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<GroupOutcome<ConsumerGroupHeartbeatResponse>, ApiError> {
        let group = self.known_consumer_group(group_id)?;
        let member = match &request.instance_id {
            None => group.known_member(&request.member_id)?.clone(),
            Some(instance_id) => {
                let mut consumer = self.consumer(None, group_id, context.now_ms)?;
                let member = consumer.known_static_member(&request.member_id, instance_id)?;
                if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH {
                    let response = consumer.leave_for_a_while(&member);
                    return Ok(GroupOutcome::with_records(consumer.records, response));
                }
                member
            }
        };
        tracing::info!(group = %group_id, member = %member.member_id, "a member has left");
        let response = left(&owned(&request.member_id), request.member_epoch);
        self.fence_consumer_members(context, group_id, &[member], response)
    }

    /// Takes members out; who is left may speak the classic protocol only: then the group is classic again.
    pub(super) fn fence_consumer_members<T>(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        members: &[Arc<ConsumerMember>],
        response: T,
    ) -> Result<GroupOutcome<T>, ApiError> {
        if members.is_empty() {
            return Ok(GroupOutcome::of(response));
        }
        let group = self.known_consumer_group(group_id)?;
        if migration::may_downgrade_without(group, members, &self.config) {
            let reason = format!("Downgrade group {group_id} from consumer to classic for member leaving.");
            return self.downgrade(context, group_id, members, None, Some(&reason), response);
        }
        let mut consumer = self.consumer(None, group_id, context.now_ms)?;
        consumer.fence_members(members);
        let mut outcome = GroupOutcome::with_records(consumer.records, response);
        outcome.effects = consumer.effects;
        Ok(outcome)
    }

    /// A member did not do what it had to in time.
    pub(super) fn on_consumer_timer(
        &mut self,
        context: &OperationContext,
        timer: &GroupTimer,
    ) -> GroupOutcome<()> {
        let (group_id, member_id, epoch, reason) = match timer {
            GroupTimer::ConsumerSession { group_id, member_id } => {
                (group_id, member_id, None, "its session expired")
            }
            GroupTimer::ConsumerRebalance {
                group_id,
                member_id,
                member_epoch,
            } => (
                group_id,
                member_id,
                Some(*member_epoch),
                "it has not revoked its partitions in time",
            ),
            GroupTimer::ConsumerJoin { group_id, member_id } => {
                (group_id, member_id, None, "it has not joined in time")
            }
            GroupTimer::ConsumerSync { group_id, member_id } => {
                (group_id, member_id, None, "it has not synced in time")
            }
            GroupTimer::ResolveRegexes { group_id, regexes } => {
                return self.resolve_regexes(context, group_id, regexes);
            }
            GroupTimer::Heartbeat { .. }
            | GroupTimer::InitialRebalance { .. }
            | GroupTimer::CompleteJoin { .. }
            | GroupTimer::PendingSync { .. }
            | GroupTimer::Expiration => return GroupOutcome::of(()),
        };
        let member = self.known_consumer_group(group_id).ok();
        let member = member.and_then(|group| group.member(member_id)).cloned();
        let Some(member) = member.filter(|member| epoch.is_none_or(|epoch| member.member_epoch == epoch))
        else {
            return GroupOutcome::of(());
        };
        tracing::info!(group = %group_id, member = %member_id, reason, "a member is fenced");
        let fenced = self.fence_consumer_members(context, group_id, &[member], ());
        let mut outcome = fenced.unwrap_or_else(|error| {
            // The downgrade that it brings may fail. The timer is to try again, as Kafka's.
            tracing::warn!(group = %group_id, member = %member_id, %error, "a member could not be fenced");
            let mut outcome = GroupOutcome::of(());
            outcome.effects.push(Effect::ScheduleIfAbsent {
                after_ms: TIMER_RETRY_MS,
                event: timer.clone(),
            });
            outcome
        });
        outcome.pending = Some(GroupPending::ConsumerTimer(timer.clone()));
        outcome
    }

    /// Members of groups from the log have a session timeout to show up, and what they had to revoke theirs.
    pub(super) fn on_consumers_loaded(&self) -> Vec<GroupEffect> {
        let mut effects = Vec::new();
        for (group_id, group) in &self.groups {
            let Group::Consumer(group) = group else { continue };
            let settings = GroupSettings::of(group_id, &self.config, &self.image);
            for member in group.members().values() {
                effects.push(Effect::Schedule {
                    after_ms: settings.session_timeout_ms,
                    event: GroupTimer::ConsumerSession {
                        group_id: group_id.clone(),
                        member_id: member.member_id.clone(),
                    },
                });
                if member.state == MemberState::UnrevokedPartitions {
                    effects.push(Effect::Schedule {
                        after_ms: i64::from(member.rebalance_timeout_ms),
                        event: GroupTimer::ConsumerRebalance {
                            group_id: group_id.clone(),
                            member_id: member.member_id.clone(),
                            member_epoch: member.member_epoch,
                        },
                    });
                }
            }
        }
        effects
    }
}

pub(super) fn not_a_consumer_group(group_id: &StrBytes) -> ApiError {
    let message = format!("Group {group_id} is not a consumer group.");
    ApiError::new(ErrorCode::GroupIdNotFound, message)
}
