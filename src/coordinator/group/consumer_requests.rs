//! The service's part of the consumer protocol: what of a ConsumerGroupHeartbeat can be judged without the group, and
//! ConsumerGroupDescribe over partitions. Knows the version where Kafka's rules do.

use super::assignor::Assignor;
use super::config::GroupConfig;
use super::consumer_classic::uuid_text;
use super::consumer_member::{
    JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH,
};
use super::consumer_protocol::{HeartbeatContext, heartbeat_error};
use super::service::{GroupCoordinatorService, operation_error, random_uuid};
use crate::protocol::messages::consumer_group_describe_response::DescribedGroup;
use crate::protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, GroupId};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

/// What `group.consumer.assignors` names and a request may ask for.
fn check_assignor(name: &str, assignors: &[Assignor]) -> Result<(), ApiError> {
    if assignors.iter().any(|assignor| assignor.name() == name) {
        return Ok(());
    }
    // In the order of a Java set of their names.
    let supported = Assignor::ALL
        .iter()
        .filter(|assignor| assignors.contains(assignor));
    let supported: Vec<&str> = supported.map(|assignor| assignor.name()).collect();
    let message = format!(
        "ServerAssignor {name} is not supported. Supported assignors: {}.",
        supported.join(", ")
    );
    Err(ApiError::new(ErrorCode::UnsupportedAssignor, message))
}

/// In Kafka's order (`throwIfConsumerGroupHeartbeatRequestIsInvalid`).
pub(super) fn validate_heartbeat(
    request: &ConsumerGroupHeartbeatRequest,
    needs_member_id: bool,
    config: &GroupConfig,
) -> Result<(), ApiError> {
    let invalid = |message: &str| Err(ApiError::new(ErrorCode::InvalidRequest, message));
    let is_blank = |text: &StrBytes| text.trim().is_empty();
    let epoch = request.member_epoch;
    let names_member = needs_member_id || epoch > 0 || epoch == LEAVE_GROUP_MEMBER_EPOCH;
    if names_member && is_blank(&request.member_id) {
        return invalid("MemberId can't be empty.");
    }
    if is_blank(&request.group_id.0) {
        return invalid("GroupId can't be empty.");
    }
    if request.instance_id.as_ref().is_some_and(is_blank) {
        return invalid("InstanceId can't be empty.");
    }
    if request.rack_id.as_ref().is_some_and(is_blank) {
        return invalid("RackId can't be empty.");
    }
    if epoch == JOIN_GROUP_MEMBER_EPOCH {
        if request.rebalance_timeout_ms == -1 {
            return invalid("RebalanceTimeoutMs must be provided in first request.");
        }
        if request
            .topic_partitions
            .as_ref()
            .is_none_or(|topics| !topics.is_empty())
        {
            return invalid("TopicPartitions must be empty when (re-)joining.");
        }
        if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
            return invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            );
        }
    } else if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH {
        if request.instance_id.is_none() {
            return invalid("InstanceId can't be null.");
        }
    } else if epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH {
        return invalid("MemberEpoch is invalid.");
    }
    match &request.server_assignor {
        Some(name) => check_assignor(name, &config.consumer_group_assignors),
        None => Ok(()),
    }
}

impl GroupCoordinatorService {
    /// Whether members may come by the consumer protocol: `group.version` is finalized, and the node is not told otherwise.
    pub fn serves_consumer_protocol(&self) -> bool {
        let features = &self.metadata.image().features;
        features.level("group.version") >= 1 && self.config.serves_consumer_protocol
    }

    /// `needs_member_id`: from version 1 the client makes its own.
    pub async fn consumer_group_heartbeat(
        &self,
        client_id: StrBytes,
        client_host: StrBytes,
        needs_member_id: bool,
        request: ConsumerGroupHeartbeatRequest,
    ) -> ConsumerGroupHeartbeatResponse {
        if let Err(error) = validate_heartbeat(&request, needs_member_id, &self.config) {
            return heartbeat_error(&error);
        }
        let partition = self.partition_for(&request.group_id);
        let client = HeartbeatContext {
            client_id,
            client_host,
            new_member_id: uuid_text(random_uuid()),
        };
        let result = self.runtime.write(partition, move |shard, operation| {
            shard.consumer_group_heartbeat(operation, &client, &request)
        });
        result.await.unwrap_or_else(|error| {
            let code = operation_error(error.code);
            match code == error.code && code != ErrorCode::UnknownServerError {
                true => heartbeat_error(&error),
                // Of what went wrong inside nothing is told.
                false => ConsumerGroupHeartbeatResponse::default()
                    .with_error_code(code.code())
                    .with_error_message(None)
                    .with_member_id(None),
            }
        })
    }

    pub async fn describe_consumer_groups(&self, group_ids: Vec<GroupId>) -> Vec<DescribedGroup> {
        let failed = |group_id: StrBytes, error: ErrorCode| {
            DescribedGroup::default()
                .with_group_id(GroupId(group_id))
                .with_error_code(error.code())
        };
        let (named, nameless): (Vec<GroupId>, Vec<GroupId>) =
            group_ids.into_iter().partition(|group_id| !group_id.is_empty());
        let mut described: Vec<DescribedGroup> = nameless
            .into_iter()
            .map(|group_id| failed(group_id.0, ErrorCode::InvalidGroupId))
            .collect();
        for (partition, group_ids) in self.by_partition(named) {
            let asked = group_ids.clone();
            let result = self.runtime.read(partition, move |shard, _| {
                let describe = |group_id: &StrBytes| shard.describe_consumer_group(group_id);
                asked.iter().map(describe).collect::<Vec<_>>()
            });
            match result.await {
                Ok(groups) => described.extend(groups),
                Err(error) => {
                    let error = operation_error(error.code);
                    described.extend(group_ids.into_iter().map(|group_id| failed(group_id, error)));
                }
            }
        }
        described
    }
}

#[cfg(test)]
#[path = "consumer_requests_test.rs"]
mod consumer_requests_test;
