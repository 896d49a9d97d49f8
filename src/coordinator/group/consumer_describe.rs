//! ConsumerGroupDescribe: a consumer group as administrators see it. Pure.

use super::assignor::TopicPartitions;
use super::consumer_group::ConsumerGroup;
use super::consumer_member::{ConsumerMember, without_epochs};
use super::shard::GroupShard;
use crate::metadata::MetadataImage;
use crate::protocol::StrBytes;
use crate::protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions as DescribedTopic,
};
use crate::protocol::messages::{GroupId, TopicName};

const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

impl GroupShard {
    pub fn describe_consumer_group(&self, group_id: &StrBytes) -> DescribedGroup {
        let described = DescribedGroup::default().with_group_id(GroupId(group_id.clone()));
        let group = match self.known_consumer_group(group_id) {
            Ok(group) => group,
            Err(error) => {
                return described
                    .with_error_code(error.code.code())
                    .with_error_message(error.message.map(StrBytes::from_string));
            }
        };
        let default = self.config.consumer_group_assignors.first();
        let default = || StrBytes::from_static_str(default.map_or("uniform", |assignor| assignor.name()));
        let members = group.members().values();
        described
            .with_group_state(StrBytes::from_static_str(group.state()))
            .with_group_epoch(group.group_epoch())
            .with_assignment_epoch(group.assignment_epoch())
            .with_assignor_name(
                group
                    .preferred_server_assignor(None, None)
                    .unwrap_or_else(default),
            )
            .with_members(
                members
                    .map(|member| describe(group, member, &self.image))
                    .collect(),
            )
    }
}

fn describe(group: &ConsumerGroup, member: &ConsumerMember, image: &MetadataImage) -> Member {
    let mut assigned = without_epochs(&member.assigned);
    for (topic_id, partitions) in &*member.pending_revocation {
        assigned.entry(*topic_id).or_default().extend(partitions.keys());
    }
    let names = member.subscribed_topic_names.iter().cloned().map(TopicName);
    let member_type = match member.uses_classic_protocol() {
        true => CLASSIC_MEMBER,
        false => CONSUMER_MEMBER,
    };
    Member::default()
        .with_member_id(member.member_id.clone())
        .with_instance_id(member.instance_id.clone())
        .with_rack_id(member.rack_id.clone())
        .with_member_epoch(member.member_epoch)
        .with_client_id(member.client_id.clone())
        .with_client_host(member.client_host.clone())
        .with_subscribed_topic_names(names.collect())
        .with_subscribed_topic_regex(member.subscribed_topic_regex.clone())
        .with_assignment(assignment(&assigned, image))
        .with_target_assignment(assignment(&group.target(&member.member_id), image))
        .with_member_type(member_type)
}

/// Topics that are gone are left out.
fn assignment(partitions: &TopicPartitions, image: &MetadataImage) -> Assignment {
    let topics = partitions.iter().filter_map(|(topic_id, partitions)| {
        let name = StrBytes::from_string(image.topics.name_of(*topic_id)?.to_string());
        let topic = DescribedTopic::default()
            .with_topic_id(*topic_id)
            .with_topic_name(TopicName(name))
            .with_partitions(partitions.iter().copied().collect());
        Some(topic)
    });
    Assignment::default().with_topic_partitions(topics.collect())
}

#[cfg(test)]
#[path = "consumer_describe_test.rs"]
mod consumer_describe_test;
