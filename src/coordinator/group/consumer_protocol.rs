//! An operation of the consumer protocol on its group (KIP-848): a heartbeat, members that leave. Pure; `consumer_groups` finds the
//! group, and writes what comes of it.
//!
//! A heartbeat says what the member wants and has; its answer says what it shall have. In between, in this order: the
//! member's record, if anything about it changed; a new group epoch, if what the group subscribes to changed; a new target
//! assignment, if the group epoch is ahead and the last one is not too young; the member's next step towards it.
//! Nothing waits for anybody: each member goes on with its own heartbeats.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::assignor::{Assignor, TopicPartitions};
use super::config::GroupConfig;
use super::consumer_group::{ConsumerGroup, is_homogeneous};
use super::consumer_member::{
    ConsumerMember, JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH, MemberState, PartitionEpochs,
};
use super::consumer_records as records;
use super::current_assignment::Reconciliation;
use super::group_settings::GroupSettings;
use super::metadata_hash::TopicHashes;
use super::owned;
use super::records::GroupRecord;
use super::shard::{GroupEffect, GroupTimer};
use super::target_assignment::{next_target, subscribed_topic_ids};
use crate::coordinator::runtime::shard::Effect;
use crate::metadata::MetadataImage;
use crate::protocol::messages::consumer_group_heartbeat_response::{
    Assignment, TopicPartitions as ResponseTopic,
};
use crate::protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

/// Who sends a heartbeat.
#[derive(Debug, Clone)]
pub struct HeartbeatContext {
    pub client_id: StrBytes,
    pub client_host: StrBytes,
    /// The member's id, should it have none (version 0).
    pub new_member_id: StrBytes,
}

/// A consumer group at work: the group as it is, and what an operation wants written and done.
pub(super) struct Consumer<'a> {
    pub(super) group: &'a ConsumerGroup,
    pub(super) config: &'a GroupConfig,
    pub(super) settings: GroupSettings,
    pub(super) image: &'a Arc<MetadataImage>,
    pub(super) hashes: &'a mut TopicHashes,
    pub(super) new_topics_version: i64,
    pub(super) is_resolving: bool,
    pub(super) now_ms: i64,
    pub(super) records: Vec<GroupRecord>,
    pub(super) effects: Vec<GroupEffect>,
    /// The topics were looked at for this group epoch.
    pub(super) refreshed: Option<i32>,
    /// Patterns that are to be resolved.
    pub(super) resolve: Option<Vec<StrBytes>>,
}

/// What a member's request changes about it.
pub(super) struct Change {
    pub(super) is_subscription_changed: bool,
    pub(super) group_epoch: i32,
    /// Whether all members subscribe to the same; `None`: as the group is.
    pub(super) is_homogeneous: Option<bool>,
}

pub(super) fn heartbeat_error(error: &ApiError) -> ConsumerGroupHeartbeatResponse {
    // Of what went wrong inside nothing is told.
    let is_told = error.code != ErrorCode::UnknownServerError;
    let message = is_told.then(|| StrBytes::from_string(error.message_or_default().to_owned()));
    ConsumerGroupHeartbeatResponse::default()
        .with_error_code(error.code.code())
        .with_error_message(message)
        .with_member_id(None)
}

/// Member, timers.
impl Consumer<'_> {
    pub(super) fn group_id(&self) -> &StrBytes {
        self.group.group_id()
    }

    /// The member has shown that it lives.
    pub(super) fn schedule_session_timeout(&mut self, member_id: &StrBytes, after_ms: i64) {
        let event = GroupTimer::ConsumerSession {
            group_id: self.group_id().clone(),
            member_id: member_id.clone(),
        };
        self.effects.push(Effect::Schedule { after_ms, event });
    }

    pub(super) fn check_not_full(
        &self,
        member_id: &StrBytes,
        instance_id: Option<&StrBytes>,
    ) -> Result<(), ApiError> {
        let is_replacement = instance_id.is_some_and(|instance| self.group.static_member(instance).is_some());
        let max = self.config.consumer_group_max_size;
        if is_replacement || self.group.len() < max || self.group.member(member_id).is_some() {
            return Ok(());
        }
        let message = format!("The consumer group has reached its maximum capacity of {max} members.");
        Err(ApiError::new(ErrorCode::GroupMaxSizeReached, message))
    }

    /// The member that a heartbeat is from; a new one, if it joins.
    fn dynamic_member(
        &self,
        member_id: &StrBytes,
        member_epoch: i32,
        owned: Option<&TopicPartitions>,
    ) -> Result<ConsumerMember, ApiError> {
        let member = match self.group.member(member_id) {
            Some(member) => (**member).clone(),
            None if member_epoch == JOIN_GROUP_MEMBER_EPOCH => ConsumerMember::new(member_id.clone()),
            None => return Err(unknown_member(self.group, member_id)),
        };
        check_member_epoch(&member, member_epoch, owned)?;
        Ok(member)
    }

    /// The same of a static one, which may take the place of its instance's last incarnation.
    fn static_member(
        &mut self,
        member_id: &StrBytes,
        member_epoch: i32,
        instance_id: &StrBytes,
        owned: Option<&TopicPartitions>,
    ) -> Result<ConsumerMember, ApiError> {
        let existing = self.group.static_member(instance_id).cloned();
        if member_epoch != JOIN_GROUP_MEMBER_EPOCH {
            let existing = self.known_static_member(member_id, instance_id)?;
            check_member_epoch(&existing, member_epoch, owned)?;
            return Ok((*existing).clone());
        }
        let Some(existing) = existing else {
            let known = self.group.member(member_id);
            return Ok(known.map_or_else(
                || ConsumerMember::new(member_id.clone()),
                |known| (**known).clone(),
            ));
        };
        if !existing.uses_classic_protocol() && existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH {
            let message = format!(
                "Static member {member_id} with instance id {instance_id} cannot join the group because the instance \
                 id is owned by {} member.",
                existing.member_id
            );
            return Err(ApiError::new(ErrorCode::UnreleasedInstanceId, message));
        }
        Ok(self.replace_member(&existing, member_id))
    }

    /// The member of an instance, which must be the one that asks.
    pub(super) fn known_static_member(
        &self,
        member_id: &StrBytes,
        instance_id: &StrBytes,
    ) -> Result<Arc<ConsumerMember>, ApiError> {
        let Some(existing) = self.group.static_member(instance_id) else {
            let message = format!("Instance id {instance_id} is unknown.");
            return Err(ApiError::new(ErrorCode::UnknownMemberId, message));
        };
        if existing.member_id != *member_id {
            let message = format!(
                "Static member {member_id} with instance id {instance_id} was fenced by member {}.",
                existing.member_id
            );
            return Err(ApiError::new(ErrorCode::FencedInstanceId, message));
        }
        Ok(existing.clone())
    }

    /// A new incarnation has what the old one had, in epoch 0.
    pub(super) fn replace_member(
        &mut self,
        existing: &ConsumerMember,
        member_id: &StrBytes,
    ) -> ConsumerMember {
        let mut member = existing.clone();
        member.member_id = member_id.clone();
        member.member_epoch = 0;
        member.previous_member_epoch = 0;
        let group_id = self.group_id().clone();
        self.records
            .extend(records::member_tombstones(&group_id, &existing.member_id));
        self.cancel_timers(&existing.member_id);
        self.records.push(records::member_metadata(&group_id, &member));
        let target = self.group.target(&existing.member_id);
        self.records.push(records::target(&group_id, member_id, &target));
        self.records.push(records::current_assignment(&group_id, &member));
        member
    }

    pub(super) fn cancel_timers(&mut self, member_id: &StrBytes) {
        let group_id = self.group_id().clone();
        self.effects.extend(member_timers(&group_id, member_id));
    }
}

/// Cancels what a member has to do in time. Its session stays: should the records not be written, it must still end.
pub(super) fn member_timers(group_id: &StrBytes, member_id: &StrBytes) -> [GroupEffect; 3] {
    let (group_id, member_id) = (group_id.clone(), member_id.clone());
    [
        GroupTimer::ConsumerRebalance {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
            member_epoch: 0,
        },
        GroupTimer::ConsumerJoin {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
        },
        GroupTimer::ConsumerSync { group_id, member_id },
    ]
    .map(Effect::Cancel)
}

fn unknown_member(group: &ConsumerGroup, member_id: &StrBytes) -> ApiError {
    let message = format!(
        "Member {member_id} is not a member of group {}.",
        group.group_id()
    );
    ApiError::new(ErrorCode::UnknownMemberId, message)
}

/// A member may come with its last epoch: the answer that moved it on may be lost.
fn check_member_epoch(
    member: &ConsumerMember,
    member_epoch: i32,
    owned: Option<&TopicPartitions>,
) -> Result<(), ApiError> {
    let current = member.member_epoch;
    if member_epoch == JOIN_GROUP_MEMBER_EPOCH || member_epoch == current {
        return Ok(());
    }
    let comparison = if member_epoch > current {
        "greater"
    } else {
        "smaller"
    };
    let lost_answer = member_epoch == member.previous_member_epoch && is_subset(owned, &member.assigned);
    if member_epoch < current && lost_answer {
        return Ok(());
    }
    let message = format!(
        "The consumer group member has a {comparison} member epoch ({member_epoch}) than the one known by the group \
         coordinator ({current}). The member must abandon all its partitions and rejoin."
    );
    Err(ApiError::new(ErrorCode::FencedMemberEpoch, message))
}

fn is_subset(owned: Option<&TopicPartitions>, assigned: &PartitionEpochs) -> bool {
    owned.is_some_and(|owned| {
        owned.iter().all(|(topic_id, partitions)| {
            let assigned = assigned.get(topic_id);
            assigned.is_some_and(|assigned| {
                partitions
                    .iter()
                    .all(|partition| assigned.contains_key(partition))
            })
        })
    })
}

/// What a member's request changes, step by step.
impl Consumer<'_> {
    /// Writes what changed about the member, and the group epoch that comes of it.
    pub(super) fn change_member(
        &mut self,
        member: &ConsumerMember,
        updated: &ConsumerMember,
    ) -> Result<Change, ApiError> {
        let group_id = self.group_id().clone();
        let mut is_names_changed = false;
        if updated != member {
            self.records.push(records::member_metadata(&group_id, updated));
            is_names_changed = updated.subscribed_topic_names != member.subscribed_topic_names;
        }
        let regex = self.update_regexes(member, updated)?;
        // A member of the classic protocol waits for no pattern, and names no assignor.
        let bump = match updated.uses_classic_protocol() {
            true => is_names_changed || regex.is_updated(),
            false => is_names_changed || regex.is_resolved() || self.is_assignor_changed(member, updated),
        };
        let mut change = Change {
            is_subscription_changed: is_names_changed || regex.is_updated(),
            group_epoch: self.group.group_epoch(),
            is_homogeneous: None,
        };
        if bump || self.group.has_metadata_expired(self.now_ms) {
            self.update_subscription_metadata(bump, member, updated, &mut change);
        }
        Ok(change)
    }

    fn default_assignor(&self) -> Assignor {
        let first = self.config.consumer_group_assignors.first();
        first.copied().unwrap_or(Assignor::Uniform)
    }

    fn is_assignor_changed(&self, member: &ConsumerMember, updated: &ConsumerMember) -> bool {
        let default = || StrBytes::from_static_str(self.default_assignor().name());
        let current = self.group.preferred_server_assignor(None, None);
        let next = self.group.preferred_server_assignor(Some(member), Some(updated));
        current.unwrap_or_else(default) != next.unwrap_or_else(default)
    }

    fn update_subscription_metadata(
        &mut self,
        bump: bool,
        member: &ConsumerMember,
        updated: &ConsumerMember,
        change: &mut Change,
    ) {
        let regexes = self.group.regexes_with(member, updated);
        let topics = self.group.topics_with(member, updated);
        let hash = self.hashes.group_hash(&topics, self.image);
        let is_replacement = updated
            .instance_id
            .as_ref()
            .is_some_and(|instance| self.group.static_member(instance).is_some());
        let is_new = self.group.member(&updated.member_id).is_none() && !is_replacement;
        let members = self.group.len() + usize::from(is_new);
        change.is_homogeneous = Some(is_homogeneous(&regexes, &topics, members));
        if bump || hash != self.group.metadata_hash() {
            change.group_epoch += 1;
            let record = records::group_epoch(self.group_id(), change.group_epoch, hash);
            self.records.push(record);
            tracing::info!(
                group = %self.group_id(), epoch = change.group_epoch, hash, "the group is in a new epoch"
            );
        }
        self.refreshed = Some(change.group_epoch);
        if self.group.has_subscription_metadata_record() {
            let record = records::subscription_metadata_tombstone(self.group_id());
            self.records.push(record);
        }
    }

    /// The target assignment for the member, and its epoch: a new one if it is time for one.
    pub(super) fn target_for(
        &mut self,
        change: &Change,
        member: &ConsumerMember,
        updated: &ConsumerMember,
    ) -> (i32, Arc<TopicPartitions>) {
        let current_epoch = self.group.assignment_epoch();
        let last_ms = self.group.assignment_timestamp_ms();
        let interval_ms = self.settings.assignment_interval_ms;
        // The last one may be from a time that is yet to come: the clock was put back.
        let waits = (last_ms..last_ms.saturating_add(interval_ms)).contains(&self.now_ms);
        let may_assign = last_ms == 0 || !waits;
        if current_epoch >= change.group_epoch || !may_assign {
            return (current_epoch, self.group.target_of(updated));
        }
        let preferred = self.group.preferred_server_assignor(Some(member), Some(updated));
        let assignor = preferred.and_then(|name| Assignor::from_name(&name));
        let next = next_target(
            self.group,
            updated,
            (change.group_epoch, self.now_ms),
            assignor.unwrap_or_else(|| self.default_assignor()),
            change
                .is_homogeneous
                .unwrap_or_else(|| self.group.is_homogeneous()),
            self.image,
        );
        self.records.extend(next.records);
        (change.group_epoch, next.of_member)
    }

    /// The member's next step towards its target.
    pub(super) fn reconcile(
        &mut self,
        member: ConsumerMember,
        (target_epoch, target): (i32, &TopicPartitions),
        has_subscription_changed: bool,
        owned: Option<&TopicPartitions>,
    ) -> Result<ConsumerMember, ApiError> {
        if !has_subscription_changed && member.is_reconciled_to(target_epoch) {
            return Ok(member);
        }
        let subscribed = subscribed_topic_ids(&member, self.group.regexes(), self.image);
        let reconciliation = Reconciliation {
            target_epoch,
            target,
            subscribed_topic_ids: &subscribed,
            has_subscription_changed,
            owned,
            is_held: &|topic_id, partition| self.group.is_held(topic_id, partition),
        };
        let next = reconciliation.next(&member)?;
        if next == member {
            return Ok(member);
        }
        let record = records::current_assignment(self.group_id(), &next);
        self.records.push(record);
        if !next.uses_classic_protocol() {
            self.watch_revocation(&next);
        }
        Ok(next)
    }

    /// A member must give up its partitions within its rebalance timeout.
    fn watch_revocation(&mut self, member: &ConsumerMember) {
        let event = GroupTimer::ConsumerRebalance {
            group_id: self.group_id().clone(),
            member_id: member.member_id.clone(),
            member_epoch: member.member_epoch,
        };
        self.effects.push(match member.state {
            MemberState::UnrevokedPartitions => Effect::Schedule {
                after_ms: i64::from(member.rebalance_timeout_ms),
                event,
            },
            MemberState::Stable | MemberState::UnreleasedPartitions | MemberState::Unknown => {
                Effect::Cancel(event)
            }
        });
    }

    pub(super) fn heartbeat(
        &mut self,
        context: &HeartbeatContext,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<ConsumerGroupHeartbeatResponse, ApiError> {
        let instance_id = request.instance_id.as_ref().map(owned);
        self.check_not_full(&request.member_id, instance_id.as_ref())?;
        let member_id = match request.member_id.is_empty() {
            true => context.new_member_id.clone(),
            false => owned(&request.member_id),
        };
        let owned_partitions = request.topic_partitions.as_ref().map(|topics| {
            let mut owned_partitions = TopicPartitions::new();
            for topic in topics {
                let partitions = owned_partitions.entry(topic.topic_id).or_default();
                partitions.extend(&topic.partitions);
            }
            owned_partitions
        });
        let owned_partitions = owned_partitions.as_ref();
        let member = match &instance_id {
            None => self.dynamic_member(&member_id, request.member_epoch, owned_partitions)?,
            Some(instance_id) => {
                self.static_member(&member_id, request.member_epoch, instance_id, owned_partitions)?
            }
        };
        let updated = updated_member(&member, context, request);
        let change = self.change_member(&member, &updated)?;
        let (target_epoch, target) = self.target_for(&change, &member, &updated);
        let updated = self.reconcile(
            updated,
            (target_epoch, &target),
            change.is_subscription_changed,
            owned_partitions,
        )?;
        let session_timeout_ms = self.settings.session_timeout_ms;
        self.schedule_session_timeout(&updated.member_id, session_timeout_ms);

        let is_subscribing =
            request.subscribed_topic_names.is_some() || request.subscribed_topic_regex.is_some();
        let is_full =
            request.rebalance_timeout_ms != -1 && is_subscribing && request.topic_partitions.is_some();
        let is_assigned =
            request.member_epoch == JOIN_GROUP_MEMBER_EPOCH || is_full || member.assigned != updated.assigned;
        Ok(ConsumerGroupHeartbeatResponse::default()
            .with_error_message(None)
            .with_member_id(Some(updated.member_id.clone()))
            .with_member_epoch(updated.member_epoch)
            .with_heartbeat_interval_ms(self.settings.heartbeat_interval_ms as i32)
            .with_assignment(is_assigned.then(|| assignment(&updated.assigned))))
    }
}

fn assignment(partitions: &PartitionEpochs) -> Assignment {
    let topics = partitions.iter().map(|(topic_id, partitions)| {
        ResponseTopic::default()
            .with_topic_id(*topic_id)
            .with_partitions(partitions.keys().copied().collect())
    });
    Assignment::default().with_topic_partitions(topics.collect())
}

/// What is not said stays as it was.
fn updated_member(
    member: &ConsumerMember,
    context: &HeartbeatContext,
    request: &ConsumerGroupHeartbeatRequest,
) -> ConsumerMember {
    let mut updated = member.clone();
    let set = |field: &mut Option<StrBytes>, value: &Option<StrBytes>| {
        if let Some(value) = value {
            *field = Some(owned(value));
        }
    };
    set(&mut updated.instance_id, &request.instance_id);
    set(&mut updated.rack_id, &request.rack_id);
    set(&mut updated.server_assignor, &request.server_assignor);
    set(
        &mut updated.subscribed_topic_regex,
        &request.subscribed_topic_regex,
    );
    if request.rebalance_timeout_ms != -1 {
        updated.rebalance_timeout_ms = request.rebalance_timeout_ms;
    }
    if let Some(names) = &request.subscribed_topic_names {
        let names: BTreeSet<StrBytes> = names.iter().map(|name| owned(&name.0)).collect();
        if names != *updated.subscribed_topic_names {
            updated.subscribed_topic_names = Arc::new(names);
        }
    }
    updated.client_id = context.client_id.clone();
    updated.client_host = context.client_host.clone();
    updated.classic = None;
    updated
}

/// Leaving, by request or by silence.
impl Consumer<'_> {
    /// Takes members out of the group, which is then in a new epoch.
    pub(super) fn fence_members(&mut self, members: &[Arc<ConsumerMember>]) {
        let group_id = self.group_id().clone();
        for member in members {
            self.records
                .extend(records::member_tombstones(&group_id, &member.member_id));
        }
        let regexes: BTreeSet<StrBytes> = members
            .iter()
            .filter_map(|member| member.regex().cloned())
            .collect();
        let is_unused = |regex: &StrBytes| {
            let leaving = members.iter().filter(|member| member.regex() == Some(regex));
            self.group.subscribers_of_regex(regex) == leaving.count()
        };
        let unused: BTreeSet<StrBytes> = regexes.into_iter().filter(is_unused).collect();
        let tombstones = unused
            .iter()
            .map(|regex| records::regular_expression_tombstone(&group_id, regex));
        self.records.extend(tombstones);
        let topics = self.group.topics_without(members, &unused);
        let hash = self.hashes.group_hash(&topics, self.image);
        let epoch = self.group.group_epoch() + 1;
        self.records.push(records::group_epoch(&group_id, epoch, hash));
        if self.group.len() == members.len() {
            self.records.push(records::target_metadata(&group_id, epoch, 0));
        }
        for member in members {
            self.cancel_timers(&member.member_id);
        }
    }

    /// A static member that means to come back keeps what it has until its session ends.
    pub(super) fn leave_for_a_while(&mut self, member: &ConsumerMember) -> ConsumerGroupHeartbeatResponse {
        let mut leaving = member.clone();
        leaving.member_epoch = LEAVE_GROUP_STATIC_MEMBER_EPOCH;
        leaving.pending_revocation = Arc::default();
        let mut assigned = (*leaving.assigned).clone();
        for epoch in assigned
            .values_mut()
            .flat_map(|partitions| partitions.values_mut())
        {
            *epoch = 0;
        }
        leaving.assigned = Arc::new(assigned);
        let record = records::current_assignment(self.group_id(), &leaving);
        self.records.push(record);
        left(&member.member_id, LEAVE_GROUP_STATIC_MEMBER_EPOCH)
    }
}

pub(super) fn left(member_id: &StrBytes, member_epoch: i32) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse::default()
        .with_error_message(None)
        .with_member_id(Some(member_id.clone()))
        .with_member_epoch(member_epoch)
}

#[cfg(test)]
#[path = "consumer_protocol_test.rs"]
mod consumer_protocol_test;
