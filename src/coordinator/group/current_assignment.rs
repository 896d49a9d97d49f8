//! How a member gets from what it has to what the target gives it (`CurrentAssignmentBuilder`). Pure.
//!
//! First it gives up what is not its any more, in its old epoch; once it has said that it has, it goes into the target's
//! epoch and gets what is free; what others have yet to give up, it gets later. So no partition is ever with two members.
//!
//! ```text
//! state                 it goes on when                                       else
//! Stable                its epoch is not the target's                         topics that it does not subscribe to any more go
//! UnrevokedPartitions   a heartbeat names none of what is to be revoked       the same
//! UnreleasedPartitions  always: what has become free is added
//! Unknown               it has no partitions (it joins anew), else it is fenced
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::assignor::TopicPartitions;
use super::consumer_member::{ConsumerMember, MemberState, PartitionEpochs};
use crate::protocol::{ApiError, ErrorCode};

/// What a member is to be reconciled with.
pub struct Reconciliation<'a> {
    pub target_epoch: i32,
    pub target: &'a TopicPartitions,
    /// By names and pattern, of topics that exist.
    pub subscribed_topic_ids: &'a BTreeSet<Uuid>,
    pub has_subscription_changed: bool,
    /// What the member says that it has; `None`: as before.
    pub owned: Option<&'a TopicPartitions>,
    /// Whether a member, this one too, has the partition or has not given it up yet.
    pub is_held: &'a dyn Fn(Uuid, i32) -> bool,
}

impl Reconciliation<'_> {
    /// The member's next step; itself if there is none.
    pub fn next(&self, member: &ConsumerMember) -> Result<ConsumerMember, ApiError> {
        match member.state {
            MemberState::Stable if member.member_epoch != self.target_epoch => {
                Ok(self.step(member, member.member_epoch))
            }
            MemberState::UnrevokedPartitions if !self.owns_any_of(&member.pending_revocation) => {
                Ok(self.step(member, member.member_epoch))
            }
            MemberState::Stable | MemberState::UnrevokedPartitions if self.has_subscription_changed => {
                Ok(self.drop_unsubscribed(member))
            }
            MemberState::Stable | MemberState::UnrevokedPartitions => Ok(member.clone()),
            MemberState::UnreleasedPartitions => Ok(self.step(member, member.member_epoch)),
            MemberState::Unknown if self.owned.is_some_and(|owned| owned.is_empty()) => {
                Ok(self.step(member, self.target_epoch))
            }
            MemberState::Unknown => Err(ApiError::new(
                ErrorCode::FencedMemberEpoch,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
            )),
        }
    }

    /// A member that does not say what it has may have any of it.
    fn owns_any_of(&self, revoked: &PartitionEpochs) -> bool {
        let Some(owned) = self.owned else { return true };
        owned.iter().any(|(topic_id, partitions)| {
            let revoked = revoked.get(topic_id);
            revoked.is_some_and(|revoked| partitions.iter().any(|partition| revoked.contains_key(partition)))
        })
    }

    /// Revokes at once what is not subscribed to any more, before the next target is there.
    fn drop_unsubscribed(&self, member: &ConsumerMember) -> ConsumerMember {
        let mut assigned = (*member.assigned).clone();
        let mut revoked = (*member.pending_revocation).clone();
        // Kafka takes a member without any topic for a changed one, also where it had nothing.
        let has_nothing = self.subscribed_topic_ids.is_empty() && revoked.is_empty();
        for (topic_id, partitions) in &*member.assigned {
            if !self.subscribed_topic_ids.contains(topic_id) {
                assigned.remove(topic_id);
                revoked.entry(*topic_id).or_default().extend(partitions);
            }
        }
        if assigned.len() == member.assigned.len() && !has_nothing {
            return member.clone();
        }
        let mut next = member.clone();
        next.advance_to(member.member_epoch);
        next.assigned = Arc::new(assigned);
        if !revoked.is_empty() && self.owns_any_of(&revoked) {
            next.state = MemberState::UnrevokedPartitions;
            next.pending_revocation = Arc::new(revoked);
        }
        next
    }

    fn step(&self, member: &ConsumerMember, member_epoch: i32) -> ConsumerMember {
        let none = BTreeSet::new();
        let mut kept = PartitionEpochs::new();
        let mut revoked = PartitionEpochs::new();
        let mut added: Vec<(Uuid, i32)> = Vec::new();
        let mut has_unreleased = false;
        let topic_ids: BTreeSet<&Uuid> = self.target.keys().chain(member.assigned.keys()).collect();
        for topic_id in topic_ids {
            let is_subscribed = self.subscribed_topic_ids.contains(topic_id);
            let target = self
                .target
                .get(topic_id)
                .filter(|_| is_subscribed)
                .unwrap_or(&none);
            let assigned = member.assigned.get(topic_id);
            for (partition, epoch) in assigned.into_iter().flatten() {
                let side = match target.contains(partition) {
                    true => &mut kept,
                    false => &mut revoked,
                };
                side.entry(*topic_id).or_default().insert(*partition, *epoch);
            }
            let had_until_now = member.pending_revocation.get(topic_id);
            for partition in target {
                if assigned.is_some_and(|assigned| assigned.contains_key(partition)) {
                    continue;
                }
                let was_its_own = had_until_now.is_some_and(|partitions| partitions.contains_key(partition));
                match (self.is_held)(*topic_id, *partition) && !was_its_own {
                    true => has_unreleased = true,
                    false => added.push((*topic_id, *partition)),
                }
            }
        }
        let mut next = member.clone();
        if !revoked.is_empty() && self.owns_any_of(&revoked) {
            next.advance_to(member_epoch);
            next.state = MemberState::UnrevokedPartitions;
            next.assigned = Arc::new(kept);
            next.pending_revocation = Arc::new(revoked);
            return next;
        }
        for (topic_id, partition) in added {
            let partitions = kept.entry(topic_id).or_default();
            partitions.insert(partition, self.target_epoch);
        }
        next.advance_to(self.target_epoch);
        next.state = match has_unreleased {
            true => MemberState::UnreleasedPartitions,
            false => MemberState::Stable,
        };
        next.assigned = Arc::new(kept);
        next.pending_revocation = Arc::default();
        next
    }
}

#[cfg(test)]
#[path = "current_assignment_test.rs"]
mod current_assignment_test;
