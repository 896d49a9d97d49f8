//! DescribeQuorum (key 55), versions 0-2: voters and observers of the metadata log with their progress; only the leader knows.
//!
//! - 1: times of the last fetch and of the last time caught up (KIP-836). 2: directories, error messages, the voters'
//!   listeners (KIP-853).

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use crate::protocol::messages::{DescribeQuorumRequest, DescribeQuorumResponse, TopicName};
use crate::protocol::{ErrorCode, StrBytes};
use crate::raft::rpc::{QuorumDescription, ReplicaStatus};
use crate::raft::{CLUSTER_METADATA_TOPIC_NAME, Endpoint};

pub async fn handle(
    context: &RequestContext,
    request: DescribeQuorumRequest,
) -> Result<Reply<DescribeQuorumResponse>, ApiError> {
    let version = context.api_version;
    if !is_metadata_partition(&request) {
        return Ok(Reply::Value(unknown_partitions(version, &request)));
    }
    let description = context.broker.raft.handle_describe_quorum().await?;
    Ok(Reply::Value(response(version, description)))
}

fn is_metadata_partition(request: &DescribeQuorumRequest) -> bool {
    match request.topics.as_slice() {
        [topic] => {
            topic.topic_name.as_str() == CLUSTER_METADATA_TOPIC_NAME
                && matches!(topic.partitions.as_slice(), [partition] if partition.partition_index == 0)
        }
        _ => false,
    }
}

fn unknown_partitions(version: i16, request: &DescribeQuorumRequest) -> DescribeQuorumResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic
            .partitions
            .iter()
            .map(|partition| {
                partition_error(
                    version,
                    partition.partition_index,
                    ErrorCode::UnknownTopicOrPartition,
                )
            })
            .collect();
        TopicData::default()
            .with_topic_name(topic.topic_name.clone())
            .with_partitions(partitions)
    });
    DescribeQuorumResponse::default().with_topics(topics.collect())
}

fn partition_error(version: i16, index: i32, error: ErrorCode) -> PartitionData {
    let mut partition = PartitionData::default()
        .with_partition_index(index)
        .with_error_code(error.code());
    if version >= 2 {
        partition.error_message = Some(StrBytes::from_static_str(error.message()));
    }
    partition
}

fn response(version: i16, description: QuorumDescription) -> DescribeQuorumResponse {
    let mut response = DescribeQuorumResponse::default();
    let partition = if description.error == ErrorCode::None {
        if version >= 2 {
            response.nodes = description.nodes.iter().map(node).collect();
        }
        let replicas = |statuses: &[ReplicaStatus]| {
            statuses
                .iter()
                .map(|status| replica_state(version, status))
                .collect()
        };
        PartitionData::default()
            .with_leader_id(description.leader_id.into())
            .with_leader_epoch(description.leader_epoch)
            .with_high_watermark(description.high_watermark)
            .with_current_voters(replicas(&description.voters))
            .with_observers(replicas(&description.observers))
    } else {
        partition_error(version, 0, description.error)
    };
    let topic = TopicData::default()
        .with_topic_name(TopicName(StrBytes::from_static_str(CLUSTER_METADATA_TOPIC_NAME)))
        .with_partitions(vec![partition]);
    response.with_topics(vec![topic])
}

fn replica_state(version: i16, status: &ReplicaStatus) -> ReplicaState {
    let mut state = ReplicaState::default()
        .with_replica_id(status.replica_id.into())
        .with_log_end_offset(status.log_end_offset);
    if version >= 1 {
        state.last_fetch_timestamp = status.last_fetch_timestamp;
        state.last_caught_up_timestamp = status.last_caught_up_timestamp;
    }
    if version >= 2 {
        state.replica_directory_id = status.replica_directory_id;
    }
    state
}

fn node((id, endpoints): &(i32, Vec<Endpoint>)) -> Node {
    let listener = |endpoint: &Endpoint| {
        Listener::default()
            .with_name(StrBytes::from_string(endpoint.name.to_string()))
            .with_host(StrBytes::from_string(endpoint.host.to_string()))
            .with_port(endpoint.port)
    };
    Node::default()
        .with_node_id((*id).into())
        .with_listeners(endpoints.iter().map(listener).collect())
}

impl ErrorResponse<DescribeQuorumRequest> for DescribeQuorumResponse {
    fn error_response(context: &RequestContext, _: &DescribeQuorumRequest, error: &ApiError) -> Self {
        let mut response = Self::default().with_error_code(error.code.code());
        if context.api_version >= 2 {
            response.error_message = Some(StrBytes::from_string(error.message_or_default().to_owned()));
        }
        response
    }
}

#[cfg(test)]
#[path = "describe_quorum_test.rs"]
mod describe_quorum_test;
