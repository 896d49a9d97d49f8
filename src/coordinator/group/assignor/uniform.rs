//! The assignor `uniform` for a group whose members are all subscribed to the same topics. Pure.
//!
//! Balance before stickiness: each member's quota is the number of partitions by the number of members, and one more for
//! as many members as there are partitions left over: for those that have one more already, as far as their places in the order of
//! members allow, else for the last. A member keeps what it has up to its quota; what it gives up and what nobody has goes to
//! members below theirs, in the order of members.
//!
//! The cost is that of what is unassigned and of one look at each member's topics: assignments that stay are shared, not
//! copied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::{GroupAssignment, GroupSpec, TopicPartitions};
use crate::protocol::StrBytes;

pub fn assign(group: &GroupSpec) -> GroupAssignment {
    let Some(first) = group.members.values().next() else {
        return GroupAssignment::new();
    };
    let subscribed = &first.subscribed_topic_ids;

    let (mut unassigned, partition_count) = unassigned_partitions(group, subscribed);
    let least = partition_count / group.members.len();
    let mut extra = partition_count % group.members.len();
    let mut assignment = GroupAssignment::new();
    let mut below_quota: Vec<(StrBytes, usize)> = Vec::new();
    for (index, (member_id, member)) in group.members.iter().enumerate() {
        let may_have_extra = extra > 0;
        let mut room = least + usize::from(may_have_extra);
        let kept = keep(&member.assignment, subscribed, &mut room, &mut unassigned);
        // Who does not fill the larger quota leaves it to a member that may, while enough of them follow.
        let leaves_extra = room > 0 && may_have_extra && group.members.len() - index > extra;
        room -= usize::from(leaves_extra);
        extra -= usize::from(may_have_extra && !leaves_extra);
        if room > 0 {
            below_quota.push((member_id.clone(), room));
        }
        assignment.insert(member_id.clone(), kept);
    }

    let mut rest = unassigned.into_iter();
    for (member_id, room) in below_quota {
        let mut given = rest.by_ref().take(room).peekable();
        if given.peek().is_none() {
            break;
        }
        let partitions = Arc::make_mut(assignment.entry(member_id).or_default());
        for (topic_id, partition) in given {
            partitions.entry(topic_id).or_default().insert(partition);
        }
    }
    assignment
}

/// The partitions that no member has, and the number of all.
fn unassigned_partitions(group: &GroupSpec, subscribed: &BTreeSet<Uuid>) -> (Vec<(Uuid, i32)>, usize) {
    let mut assigned: BTreeMap<Uuid, Vec<bool>> = BTreeMap::new();
    let mut total = 0;
    for topic_id in subscribed {
        let count = usize::try_from(group.partition_count(topic_id)).unwrap_or_default();
        assigned.insert(*topic_id, vec![false; count]);
        total += count;
    }
    for member in group.members.values() {
        for (topic_id, partitions) in member.assignment.iter() {
            let Some(assigned) = assigned.get_mut(topic_id) else {
                continue;
            };
            for partition in partitions {
                let index = usize::try_from(*partition).unwrap_or(usize::MAX);
                if let Some(assigned) = assigned.get_mut(index) {
                    *assigned = true;
                }
            }
        }
    }
    let unassigned = assigned
        .into_iter()
        .flat_map(|(topic_id, assigned)| {
            (0..)
                .zip(assigned)
                .filter_map(move |(partition, assigned)| (!assigned).then_some((topic_id, partition)))
        })
        .collect();
    (unassigned, total)
}

/// What a member keeps of what it has: of the subscribed topics, as many partitions as it has room for. The rest of them
/// goes to `unassigned`.
fn keep(
    present: &Arc<TopicPartitions>,
    subscribed: &BTreeSet<Uuid>,
    room: &mut usize,
    unassigned: &mut Vec<(Uuid, i32)>,
) -> Arc<TopicPartitions> {
    let mut kept = present.clone();
    for (topic_id, partitions) in present.iter() {
        if !subscribed.contains(topic_id) {
            Arc::make_mut(&mut kept).remove(topic_id);
            continue;
        }
        if partitions.len() <= *room {
            *room -= partitions.len();
            continue;
        }
        // What is over is a tail of the set.
        let surplus = partitions
            .iter()
            .skip(*room)
            .map(|partition| (*topic_id, *partition));
        unassigned.extend(surplus);
        let kept = Arc::make_mut(&mut kept);
        if *room == 0 {
            kept.remove(topic_id);
        } else if let (Some(first_over), Some(partitions)) =
            (partitions.iter().nth(*room), kept.get_mut(topic_id))
        {
            partitions.split_off(first_over);
        }
        *room = 0;
    }
    kept
}
