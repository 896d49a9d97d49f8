//! OffsetDelete: forgetting what a group committed of topics that it does not consume. Pure.
//!
//! | group | |
//! | --- | --- |
//! | none, dead, or a share group | GROUP_ID_NOT_FOUND |
//! | classic, empty | every partition |
//! | classic, with members of another protocol than consumers' | NON_EMPTY_GROUP |
//! | with consumers | partitions of topics that nobody is subscribed to; the others GROUP_SUBSCRIBED_TO_TOPIC |

use super::classic_group::ClassicGroup;
use super::classic_group::ClassicGroupState::{Dead, Empty};
use super::offsets::OffsetKey;
use super::records::GroupRecord;
use super::shard::{Group, GroupOutcome, GroupShard};
use crate::protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use crate::protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use crate::protocol::{ErrorCode, StrBytes};

impl ClassicGroup {
    pub(super) fn validate_offset_delete(&self) -> Result<(), ErrorCode> {
        if self.is_in(Dead) {
            return Err(ErrorCode::GroupIdNotFound);
        }
        if !self.is_in(Empty) && !self.uses_consumer_group_protocol() {
            return Err(ErrorCode::NonEmptyGroup);
        }
        Ok(())
    }
}

impl GroupShard {
    /// Topics and partitions exist. An error is one of the whole group.
    pub fn delete_offsets(
        &self,
        request: &OffsetDeleteRequest,
    ) -> Result<GroupOutcome<OffsetDeleteResponse>, ErrorCode> {
        let group_id = &request.group_id.0;
        let group = self.groups.get(group_id).ok_or(ErrorCode::GroupIdNotFound)?;
        match group {
            Group::Classic(group) => group.validate_offset_delete()?,
            Group::Consumer(_) => {}
            Group::Other(group) => group.validate_offset_delete()?,
        }
        let is_subscribed_to = |topic: &StrBytes| match group {
            Group::Classic(group) => group.is_subscribed_to(topic),
            Group::Consumer(group) => group.is_subscribed_to(topic),
            Group::Other(group) => group.is_subscribed_to_any(),
        };
        let mut records = Vec::new();
        let mut response = OffsetDeleteResponse::default();
        for topic in &request.topics {
            let error = match is_subscribed_to(&topic.name.0) {
                true => ErrorCode::GroupSubscribedToTopic,
                false => ErrorCode::None,
            };
            let mut answer = OffsetDeleteResponseTopic::default().with_name(topic.name.clone());
            for partition in &topic.partitions {
                answer.partitions.push(
                    OffsetDeleteResponsePartition::default()
                        .with_partition_index(partition.partition_index)
                        .with_error_code(error.code()),
                );
                let key = OffsetKey {
                    group: group_id.clone(),
                    topic: topic.name.0.clone(),
                    partition: partition.partition_index,
                };
                let is_there = self.offsets.get(&key).is_some() || self.offsets.is_in_open_transaction(&key);
                if error == ErrorCode::None && is_there {
                    records.push(GroupRecord::offset_tombstone(&key));
                }
            }
            response.topics.push(answer);
        }
        Ok(GroupOutcome::with_records(records, response))
    }
}

#[cfg(test)]
#[path = "offset_delete_test.rs"]
mod offset_delete_test;
