//! Computes a group's next target assignment: what assignors are told, and the records of what they answer
//! (`TargetAssignmentBuilder`). Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::assignor::{Assignor, GroupSpec, MemberSpec, TopicPartitions, TopicSpec};
use super::consumer_group::{ConsumerGroup, ResolvedRegex};
use super::consumer_member::ConsumerMember;
use super::consumer_records as records;
use super::records::GroupRecord;
use crate::metadata::MetadataImage;
use crate::protocol::StrBytes;

/// Ids of the topics that a member subscribes to and that exist.
pub fn subscribed_topic_ids(
    member: &ConsumerMember,
    regexes: &BTreeMap<StrBytes, Arc<ResolvedRegex>>,
    image: &MetadataImage,
) -> BTreeSet<Uuid> {
    let resolved = member.regex().and_then(|regex| regexes.get(regex));
    let by_regex = resolved.into_iter().flat_map(|resolved| &resolved.topics);
    let names = member.subscribed_topic_names.iter().chain(by_regex);
    names.filter_map(|name| image.topics.id_of(name)).collect()
}

/// A new target, and its records.
pub struct NextTarget {
    pub records: Vec<GroupRecord>,
    pub of_member: Arc<TopicPartitions>,
}

/// The target of `group_epoch`, once `updated` is a member as it is there.
pub fn next_target(
    group: &ConsumerGroup,
    updated: &ConsumerMember,
    (group_epoch, now_ms): (i32, i64),
    assignor: Assignor,
    is_homogeneous: bool,
    image: &MetadataImage,
) -> NextTarget {
    let spec = group_spec(group, updated, is_homogeneous, image);
    let assignment = assignor.assign(&spec);
    let mut written = Vec::new();
    let nothing = Arc::default();
    for member_id in spec.members.keys() {
        let of_member = assignment.get(member_id).unwrap_or(&nothing);
        // What a static member takes over from its instance is written under its own id already.
        if group_target(group, updated, member_id).as_ref() != Some(of_member) {
            written.push(records::target(group.group_id(), member_id, of_member));
        }
    }
    written.push(records::target_metadata(group.group_id(), group_epoch, now_ms));
    NextTarget {
        records: written,
        of_member: assignment.get(&updated.member_id).cloned().unwrap_or_default(),
    }
}

/// The static member whose place `updated` takes.
fn replaced<'a>(group: &'a ConsumerGroup, updated: &ConsumerMember) -> Option<&'a StrBytes> {
    let existing = group.static_member(updated.instance_id.as_ref()?)?;
    Some(&existing.member_id).filter(|member_id| **member_id != updated.member_id)
}

fn group_target(
    group: &ConsumerGroup,
    updated: &ConsumerMember,
    member_id: &StrBytes,
) -> Option<Arc<TopicPartitions>> {
    match replaced(group, updated) {
        Some(replaced) if *member_id == updated.member_id => group.targets().get(replaced).cloned(),
        _ => group.targets().get(member_id).cloned(),
    }
}

/// Names and a pattern.
type Subscription<'a> = (&'a BTreeSet<StrBytes>, Option<&'a StrBytes>);

fn group_spec(
    group: &ConsumerGroup,
    updated: &ConsumerMember,
    is_homogeneous: bool,
    image: &MetadataImage,
) -> GroupSpec {
    let replaced = replaced(group, updated);
    let others = group
        .members()
        .values()
        .map(|member| &**member)
        .filter(|member| member.member_id != updated.member_id && Some(&member.member_id) != replaced);
    // Most members subscribe to the same: its ids are found once.
    let mut known: HashMap<Subscription, Arc<BTreeSet<Uuid>>> = HashMap::new();
    let mut spec = GroupSpec {
        is_homogeneous,
        ..Default::default()
    };
    for member in others.chain([updated]) {
        let subscription = (&*member.subscribed_topic_names, member.regex());
        let topic_ids = known
            .entry(subscription)
            .or_insert_with(|| Arc::new(subscribed_topic_ids(member, group.regexes(), image)));
        let member_spec = MemberSpec {
            instance_id: member.instance_id.clone(),
            subscribed_topic_ids: topic_ids.clone(),
            assignment: group_target(group, updated, &member.member_id).unwrap_or_default(),
        };
        spec.members.insert(member.member_id.clone(), member_spec);
    }
    let topic_ids: BTreeSet<Uuid> = known
        .values()
        .flat_map(|topic_ids| topic_ids.iter().copied())
        .collect();
    let topics = topic_ids
        .into_iter()
        .filter_map(|topic_id| image.topics.by_id(topic_id));
    spec.topics = topics
        .map(|topic| {
            let topic_spec = TopicSpec {
                partition_count: topic.partitions.len() as i32,
            };
            (topic.id, topic_spec)
        })
        .collect();
    spec
}
