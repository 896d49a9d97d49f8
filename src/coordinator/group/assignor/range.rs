//! The assignor `range`. Pure.
//!
//! Each topic's partitions are cut into as many contiguous ranges as it has subscribers, the first ones longer by one, and
//! dealt in the order of members. Topics with as many partitions and the same subscribers are cut alike: joins find the
//! same partition number of each at one member.
//!
//! Members stand in the order of their instance ids, those without one after them by member id: a static member that
//! comes back under another member id has the same place, and so the same partitions. What members have now counts for
//! nothing.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use uuid::Uuid;

use super::{GroupAssignment, GroupSpec, MemberSpec, TopicPartitions};
use crate::protocol::StrBytes;

/// A topic while its ranges are dealt.
struct Topic {
    partition_count: i32,
    subscribers: i32,
    /// Subscribers that have been dealt a range.
    dealt: i32,
    next: i32,
}

impl Topic {
    /// The next range; empty once the partitions are at an end.
    fn deal(&mut self) -> std::ops::Range<i32> {
        let extra = i32::from(self.dealt < self.partition_count % self.subscribers);
        let start = self.next;
        self.next = self
            .partition_count
            .min(start + self.partition_count / self.subscribers + extra);
        self.dealt += 1;
        start..self.next
    }
}

pub fn assign(group: &GroupSpec) -> GroupAssignment {
    let mut dealing: HashMap<Uuid, Topic> = HashMap::new();
    for member in group.members.values() {
        for topic_id in member.subscribed_topic_ids.iter() {
            match dealing.entry(*topic_id) {
                Entry::Occupied(mut topic) => topic.get_mut().subscribers += 1,
                Entry::Vacant(place) => {
                    place.insert(Topic {
                        partition_count: group.partition_count(topic_id),
                        subscribers: 1,
                        dealt: 0,
                        next: 0,
                    });
                }
            }
        }
    }

    let mut assignment = GroupAssignment::new();
    for (member_id, member) in in_dealing_order(group) {
        let mut partitions = TopicPartitions::new();
        for topic_id in member.subscribed_topic_ids.iter() {
            let range = dealing.get_mut(topic_id).map(Topic::deal).unwrap_or_default();
            if !range.is_empty() {
                partitions.insert(*topic_id, range.collect());
            }
        }
        assignment.insert(member_id.clone(), Arc::new(partitions));
    }
    assignment
}

fn in_dealing_order(group: &GroupSpec) -> Vec<(&StrBytes, &MemberSpec)> {
    let mut members: Vec<_> = group.members.iter().collect();
    members.sort_by(
        |(left_id, left), (right_id, right)| match (&left.instance_id, &right.instance_id) {
            (Some(left), Some(right)) => compare_as_java(left, right),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => compare_as_java(left_id, right_id),
        },
    );
    members
}

/// Java orders strings by UTF-16 units, which is not the order of code points beyond the first plane.
fn compare_as_java(left: &str, right: &str) -> Ordering {
    left.encode_utf16().cmp(right.encode_utf16())
}
