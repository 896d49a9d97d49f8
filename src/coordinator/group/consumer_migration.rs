//! A group in use changes its protocol: classic to consumer when the first member of the consumer protocol joins, and
//! back when the last one leaves (`group.consumer.migration.policy`, KIP-848). Pure.
//!
//! Upgraded, a group keeps its members, which go on in the classic protocol (`consumer_classic`), and their assignments;
//! its generation is its epoch. Downgraded, it has what the target assignment gave its members, and rebalances unless that
//! target is up to date.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::assignor::TopicPartitions;
use super::classic_group::ClassicGroupState::{Empty, Stable};
use super::classic_group::{CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicGroupMember};
use super::classic_protocol::{join_error, sync_error};
use super::config::GroupConfig;
use super::consumer_group::ConsumerGroup;
use super::consumer_member::{
    ClassicMemberMetadata, ConsumerMember, MemberState, PartitionEpochs, with_epoch, without_epochs,
};
use super::consumer_protocol::member_timers;
use super::consumer_records as records;
use super::embedded_protocol as embedded;
use super::metadata_hash::TopicHashes;
use super::records::GroupRecord;
use super::shard::{Group, GroupEffect, GroupOutcome, GroupShard, GroupTimer};
use crate::coordinator::runtime::shard::{Effect, OperationContext};
use crate::metadata::MetadataImage;
use crate::protocol::records::consumer_protocol::ConsumerProtocolSubscription;
use crate::protocol::{ApiError, ErrorCode, StrBytes};

fn cannot_upgrade(group: &ClassicGroup, why: &str) -> ApiError {
    let group_id = group.group_id();
    tracing::info!(group = %group_id, why, "a classic group cannot become a consumer group");
    let message = format!("Cannot upgrade classic group {group_id} to consumer group because {why}.");
    ApiError::new(ErrorCode::GroupIdNotFound, message)
}

pub(super) fn validate_upgrade(group: &ClassicGroup, config: &GroupConfig) -> Result<(), ApiError> {
    let why = if !config.consumer_group_migration_policy.upgrade {
        "online upgrade is disabled"
    } else if !group.uses_consumer_group_protocol() {
        "the group does not use the consumer embedded protocol"
    } else if group.len() > config.consumer_group_max_size {
        "the group size exceeds the consumer group maximum size"
    } else {
        return Ok(());
    };
    Err(cannot_upgrade(group, why))
}

/// Members that wait for a rebalance are to join again: what they wait for will not come.
pub(super) fn dismiss_for_rebalance(group: &mut ClassicGroup) -> Vec<GroupEffect> {
    let mut effects = Vec::new();
    for member_id in group.member_ids() {
        if let Some(token) = group.take_awaiting_join(&member_id) {
            let reply = join_error(&member_id, ErrorCode::RebalanceInProgress);
            effects.push(Effect::Reply(token, reply));
        }
        if let Some(token) = group.take_awaiting_sync(&member_id) {
            effects.push(Effect::Reply(token, sync_error(ErrorCode::RebalanceInProgress)));
        }
    }
    effects
}

/// Timers of a classic group that is about to be none. Those of its members find none when they fire, and are needed should
/// the records not be written.
pub(super) fn cancel_classic_timers(group: &ClassicGroup) -> Vec<GroupEffect> {
    let group_id = group.group_id();
    vec![
        Effect::Cancel(GroupTimer::CompleteJoin {
            group_id: group_id.clone(),
        }),
        Effect::Cancel(GroupTimer::PendingSync {
            group_id: group_id.clone(),
            generation_id: group.generation_id(),
        }),
    ]
}

/// Members of an upgraded group have their own session timeouts.
pub(super) fn session_timers(group: &ConsumerGroup) -> Vec<GroupEffect> {
    let members = group.members().values();
    members
        .map(|member| Effect::Schedule {
            after_ms: member
                .classic
                .as_ref()
                .map_or(0, |classic| i64::from(classic.session_timeout_ms)),
            event: GroupTimer::ConsumerSession {
                group_id: group.group_id().clone(),
                member_id: member.member_id.clone(),
            },
        })
        .collect()
}

/// The consumer group that a classic one becomes. Its records are `consumer_records::whole_group`.
pub(super) fn to_consumer_group(
    classic: &ClassicGroup,
    image: &MetadataImage,
    hashes: &mut TopicHashes,
) -> Result<ConsumerGroup, ApiError> {
    let epoch = classic.generation_id();
    let mut group = ConsumerGroup::converted(classic.group_id().clone(), epoch);
    let mut claimed = BTreeMap::new();
    for classic_member in classic.members() {
        let assigned = assigned_partitions(classic, classic_member, image)?;
        let subscription = subscription_of(classic, classic_member)?;
        let member = upgraded_member(classic, classic_member, &subscription, &assigned);
        match &classic_member.held {
            Some(held) => {
                let existing = held
                    .iter()
                    .filter(|(topic_id, _)| image.topics.by_id(**topic_id).is_some());
                let held = existing
                    .map(|(topic_id, held)| (*topic_id, held.clone()))
                    .collect();
                claimed.insert(member.member_id.clone(), held);
            }
            None if !is_eager(classic) => {
                let owned = embedded::owned_partitions(&subscription, image);
                claimed.insert(member.member_id.clone(), owned);
            }
            None => {}
        }
        if let Some((topic_id, partition)) = first_held(&group, &assigned) {
            // A client's assignor gave it to two members. Both would keep it; Kafka fails there.
            let (group, member) = (classic.group_id(), &member.member_id);
            tracing::warn!(%group, %member, %topic_id, partition, "a partition has two owners: the group stays classic");
            return Err(ErrorCode::UnknownServerError.into());
        }
        group.put_target(member.member_id.clone(), Some(Arc::new(assigned)));
        group.put_member(member.member_id.clone(), Some(Arc::new(member)));
    }
    keep_what_is_not_given_up(&mut group, &claimed);
    let hash = match is_target_up_to_date(&group, image) {
        true => hashes.group_hash(group.subscribed_topics(), image),
        false => METADATA_HASH_OF_NOTHING,
    };
    group.set_metadata_hash(hash);
    Ok(group)
}

/// With this hash a group that has topics goes into a new epoch when they are next looked at.
const METADATA_HASH_OF_NOTHING: i64 = 0;

/// Whether the classic group's last assignment is one of what its members subscribe to now: upgraded in the midst of a
/// rebalance, or before its leader has seen that topics changed, it is not. Then the group needs a target of its own, which
/// Kafka makes only when the member that brings the upgrade changes a subscription. A static member that comes back does not.
fn is_target_up_to_date(group: &ConsumerGroup, image: &MetadataImage) -> bool {
    let mut assigned: BTreeMap<Uuid, usize> = BTreeMap::new();
    for (member_id, target) in group.targets() {
        let names = group
            .member(member_id)
            .map(|member| &*member.subscribed_topic_names);
        for (topic_id, partitions) in &**target {
            let topic = image.topics.by_id(*topic_id);
            let is_wanted = topic.zip(names).is_some_and(|(topic, names)| {
                let exists = |partition| topic.partitions.contains_key(partition);
                names.contains(topic.name.as_bytes()) && partitions.iter().all(exists)
            });
            if !is_wanted {
                return false;
            }
            *assigned.entry(*topic_id).or_default() += partitions.len();
        }
    }
    let mut topics = group
        .subscribed_topics()
        .keys()
        .filter_map(|name| image.topics.by_name(name));
    topics.all(|topic| assigned.get(&topic.id).copied().unwrap_or_default() == topic.partitions.len())
}

/// Members of these revoke all that they have before they join. What one says that it has nevertheless was given to it in a
/// generation that is over, and that it never had: librdkafka tells of it when the next rebalance comes before the application took it.
const EAGER_PROTOCOLS: [&str; 3] = ["range", "roundrobin", "sticky"];

fn is_eager(group: &ClassicGroup) -> bool {
    group
        .protocol_name()
        .is_some_and(|protocol| EAGER_PROTOCOLS.contains(&&**protocol))
}

/// Partitions by the member that they are to be put to or taken from.
type ByMember = BTreeMap<StrBytes, Vec<(Uuid, i32)>>;

/// A cooperative member that has not heard of its assignment yet still has what it said that it has when it joined, and nobody
/// is to have that before it has joined again without it. Kafka hands it out at once: then two members have it for a while.
fn keep_what_is_not_given_up(group: &mut ConsumerGroup, claimed: &BTreeMap<StrBytes, TopicPartitions>) {
    let (mut taken, mut kept) = (ByMember::new(), ByMember::new());
    let mut holders = HashMap::new();
    for (member_id, member) in group.members() {
        let assigned = member.assigned.iter();
        let assigned =
            assigned.flat_map(|(topic_id, held)| held.keys().map(|partition| (*topic_id, *partition)));
        holders.extend(assigned.map(|partition| (partition, member_id.clone())));
    }
    for (member_id, topics) in claimed {
        let partitions = topics
            .iter()
            .flat_map(|(topic_id, partitions)| partitions.iter().map(|partition| (*topic_id, *partition)));
        for (topic_id, partition) in partitions {
            let is_claimed_by = |holder: &StrBytes| {
                let claims = claimed.get(holder);
                has(claims.and_then(|topics| topics.get(&topic_id)), partition)
            };
            let key = (topic_id, partition);
            if let Some(holder) = holders.get(&key) {
                if holder == member_id || is_claimed_by(holder) {
                    continue;
                }
                // A downgrade has promised it to that member, which cannot have it yet.
                taken.entry(holder.clone()).or_default().push(key);
            }
            kept.entry(member_id.clone()).or_default().push(key);
            holders.insert(key, member_id.clone());
        }
    }
    // Taken first: the group counts who has a partition.
    for (member_id, partitions) in taken {
        change(group, member_id, |waiting| {
            for (topic_id, partition) in partitions {
                remove(&mut waiting.assigned, topic_id, partition);
            }
            waiting.state = MemberState::UnreleasedPartitions;
        });
    }
    for (member_id, partitions) in kept {
        change(group, member_id, |keeping| {
            let epoch = keeping.member_epoch;
            let pending = Arc::make_mut(&mut keeping.pending_revocation);
            for (topic_id, partition) in partitions {
                pending.entry(topic_id).or_default().insert(partition, epoch);
            }
            keeping.state = MemberState::UnrevokedPartitions;
        });
    }
}

fn change(group: &mut ConsumerGroup, member_id: StrBytes, change: impl FnOnce(&mut ConsumerMember)) {
    if let Some(member) = group.member(&member_id) {
        let mut changed = (**member).clone();
        change(&mut changed);
        group.put_member(member_id, Some(Arc::new(changed)));
    }
}

fn has(partitions: Option<&BTreeSet<i32>>, partition: i32) -> bool {
    partitions.is_some_and(|partitions| partitions.contains(&partition))
}

fn remove(assigned: &mut Arc<PartitionEpochs>, topic_id: Uuid, partition: i32) {
    let assigned = Arc::make_mut(assigned);
    if let Some(partitions) = assigned.get_mut(&topic_id) {
        partitions.remove(&partition);
        if partitions.is_empty() {
            assigned.remove(&topic_id);
        }
    }
}

fn first_held(group: &ConsumerGroup, assigned: &TopicPartitions) -> Option<(Uuid, i32)> {
    assigned.iter().find_map(|(topic_id, partitions)| {
        let held = partitions
            .iter()
            .find(|partition| group.is_held(*topic_id, **partition));
        held.map(|partition| (*topic_id, *partition))
    })
}

const MALFORMED: &str = "the embedded consumer protocol is malformed";

fn assigned_partitions(
    classic: &ClassicGroup,
    member: &ClassicGroupMember,
    image: &MetadataImage,
) -> Result<TopicPartitions, ApiError> {
    if member.assignment.is_empty() {
        return Ok(TopicPartitions::new());
    }
    let assignment =
        embedded::assignment(&member.assignment).map_err(|_| cannot_upgrade(classic, MALFORMED))?;
    if assignment.user_data.as_ref().is_some_and(|data| !data.is_empty()) {
        // It would be lost.
        let group_id = classic.group_id();
        let message = format!(
            "Cannot upgrade classic group {group_id} to consumer group because an unsupported custom assignor is in \
             use. Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
        );
        return Err(ApiError::new(ErrorCode::GroupIdNotFound, message));
    }
    Ok(embedded::assigned_partitions(&assignment, image))
}

fn subscription_of(
    classic: &ClassicGroup,
    classic_member: &ClassicGroupMember,
) -> Result<ConsumerProtocolSubscription, ApiError> {
    // A group that has not come to its first generation has no protocol; Kafka fails there.
    let protocol = classic.protocol_name().ok_or(ErrorCode::UnknownServerError)?;
    let metadata = classic_member.metadata(protocol).unwrap_or_default();
    embedded::subscription(&metadata).map_err(|_| cannot_upgrade(classic, MALFORMED))
}

fn upgraded_member(
    classic: &ClassicGroup,
    classic_member: &ClassicGroupMember,
    subscription: &ConsumerProtocolSubscription,
    assigned: &TopicPartitions,
) -> ConsumerMember {
    let epoch = classic.generation_id();
    let rack_id = subscription.rack_id.as_ref().filter(|rack| !rack.is_empty());
    let mut member = ConsumerMember::new(classic_member.member_id.clone());
    member.member_epoch = epoch;
    member.previous_member_epoch = epoch;
    member.state = MemberState::Stable;
    member.instance_id = classic_member.group_instance_id.clone();
    member.rack_id = rack_id.map(super::owned);
    member.rebalance_timeout_ms = classic_member.rebalance_timeout_ms;
    member.client_id = classic_member.client_id.clone();
    member.client_host = classic_member.client_host.clone();
    member.subscribed_topic_names = Arc::new(embedded::topics(subscription));
    member.assigned = Arc::new(with_epoch(assigned, epoch));
    member.classic = Some(Arc::new(ClassicMemberMetadata {
        session_timeout_ms: classic_member.session_timeout_ms,
        protocols: classic_member.protocols.clone(),
    }));
    member
}

/// Whether the group is to be classic again once `leaving` are gone.
pub(super) fn may_downgrade_without(
    group: &ConsumerGroup,
    leaving: &[Arc<ConsumerMember>],
    config: &GroupConfig,
) -> bool {
    let left = group.len() - leaving.len();
    group.all_use_classic_protocol_except(leaving) && left > 0 && may_downgrade(group, left, config)
}

/// Whether it is once the static member `replaced` speaks the classic protocol.
pub(super) fn may_downgrade_with_replaced(
    group: &ConsumerGroup,
    replaced: &Arc<ConsumerMember>,
    config: &GroupConfig,
) -> bool {
    !replaced.uses_classic_protocol()
        && group.all_use_classic_protocol_except(std::slice::from_ref(replaced))
        && may_downgrade(group, group.len(), config)
}

fn may_downgrade(group: &ConsumerGroup, members: usize, config: &GroupConfig) -> bool {
    let why_not = if !config.consumer_group_migration_policy.downgrade {
        "the online downgrade is disabled"
    } else if members > config.group_max_size {
        "its group size is greater than classic group max size"
    } else {
        return true;
    };
    tracing::info!(group = %group.group_id(), why_not, "a consumer group cannot become a classic group");
    false
}

fn held_partitions(member: &ConsumerMember) -> TopicPartitions {
    let mut held = without_epochs(&member.assigned);
    for (topic_id, partitions) in &*member.pending_revocation {
        held.entry(*topic_id).or_default().extend(partitions.keys());
    }
    held
}

fn classic_member(member: &ConsumerMember) -> ClassicGroupMember {
    let classic = member.classic.as_deref();
    ClassicGroupMember {
        member_id: member.member_id.clone(),
        group_instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        session_timeout_ms: classic.map_or(0, |classic| classic.session_timeout_ms),
        protocols: classic
            .map(|classic| classic.protocols.clone())
            .unwrap_or_default(),
        assignment: Default::default(),
        held: Some(held_partitions(member)),
        is_new: false,
        awaiting_join: None,
        awaiting_sync: None,
    }
}

/// The classic group that a consumer group becomes without `leaving`, and with `joining` in its instance's place.
fn to_classic_group(
    group: &ConsumerGroup,
    leaving: &[Arc<ConsumerMember>],
    joining: Option<&ConsumerMember>,
    image: &MetadataImage,
    now_ms: i64,
) -> Result<ClassicGroup, ApiError> {
    let group_id = group.group_id();
    let protocol_type = StrBytes::from_static_str(CONSUMER_PROTOCOL_TYPE);
    let mut classic = ClassicGroup::restored(
        group_id.clone(),
        Stable,
        group.group_epoch(),
        Some(protocol_type.clone()),
        None,
        None,
        Some(now_ms),
    );
    let replaced = joining.and_then(|joining| group.static_member(joining.instance_id.as_ref()?));
    let is_leaving = |member: &ConsumerMember| {
        let mut leaving = leaving.iter().chain(replaced);
        leaving.any(|leaving| leaving.member_id == member.member_id)
    };
    for member in group.members().values().filter(|member| !is_leaving(member)) {
        classic.add(classic_member(member), &protocol_type);
    }
    if let Some(joining) = joining {
        classic.add(classic_member(joining), &protocol_type);
    }
    classic.select_restored_protocol();
    let malformed = |_| {
        let message =
            format!("Cannot downgrade the classic group {group_id}: the consumer protocol is malformed.");
        ApiError::new(ErrorCode::GroupIdNotFound, message)
    };
    let protocol = classic.protocol_name().cloned().unwrap_or_default();
    for member_id in classic.member_ids() {
        let target_id = match (joining, replaced) {
            (Some(joining), Some(replaced)) if joining.member_id == member_id => &replaced.member_id,
            _ => &member_id,
        };
        let target = group.target(target_id);
        if let Some(member) = classic.member_mut(&member_id) {
            let metadata = member.metadata(&protocol).unwrap_or_default();
            let version = embedded::version(&metadata).map_err(malformed)?;
            member.assignment = embedded::serialize_assignment(&target, version, image).map_err(malformed)?;
        }
    }
    Ok(classic)
}

impl GroupShard {
    /// Puts a classic group in the place of a consumer group: its records describe what is already so.
    pub(super) fn downgrade<T>(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        leaving: &[Arc<ConsumerMember>],
        joining: Option<&ConsumerMember>,
        rebalance_reason: Option<&str>,
        response: T,
    ) -> Result<GroupOutcome<T>, ApiError> {
        let group = self.known_consumer_group(group_id)?;
        let replaced = joining.and_then(|joining| group.static_member(joining.instance_id.as_ref()?));
        let renamed = joining.zip(replaced);
        let renamed = renamed.map(|(joining, replaced)| (&replaced.member_id, &joining.member_id));
        let mut written = records::group_tombstones(group, renamed);
        let classic = to_classic_group(group, leaving, joining, &self.image, context.now_ms)?;
        written.push(GroupRecord::group_metadata(&classic, &classic.assignments()));
        let mut effects: Vec<GroupEffect> = group
            .members()
            .keys()
            .flat_map(|member_id| member_timers(group_id, member_id))
            .collect();
        self.put_group(context.next_offset, group_id, Group::Classic(Box::new(classic)));
        tracing::info!(group = %group_id, "converted a consumer group to a classic group");
        if let Some(mut classic) = self.classic(group_id, &mut effects, context.now_ms) {
            for member_id in classic.group.member_ids() {
                classic.reschedule_heartbeat(&member_id);
            }
            if let Some(reason) = rebalance_reason {
                // Nobody has joined yet, so it writes nothing.
                let write = classic.prepare_rebalance(reason);
                written.extend(write.into_iter().flat_map(|write| write.records));
            }
        }
        let mut outcome = GroupOutcome::with_records(written, response);
        outcome.replay = false;
        outcome.effects = effects;
        Ok(outcome)
    }
}

impl ClassicGroup {
    pub(super) fn is_in_empty_state(&self) -> bool {
        self.is_in(Empty)
    }
}

#[cfg(test)]
#[path = "consumer_migration_test.rs"]
mod consumer_migration_test;
