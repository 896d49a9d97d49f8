//! BeginQuorumEpoch (key 53), versions 0-1: the leader of the metadata log tells a voter of its epoch (KIP-595).
//!
//! - 1: directories, the sender's endpoints, and where the leader listens (KIP-853).

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::begin_quorum_epoch_request::LeaderEndpoint;
use crate::protocol::messages::begin_quorum_epoch_response::{NodeEndpoint, PartitionData, TopicData};
use crate::protocol::messages::{self, BeginQuorumEpochResponse, TopicName};
use crate::protocol::{ErrorCode, StrBytes};
use crate::raft::rpc::{Answer, BeginQuorumEpochRequest};
use crate::raft::{CLUSTER_METADATA_TOPIC_NAME, Endpoint, ReplicaKey};

/// The first version that has room for the leader's endpoint.
const FIRST_VERSION_WITH_ENDPOINTS: i16 = 1;

pub async fn handle(
    context: &RequestContext,
    request: messages::BeginQuorumEpochRequest,
) -> Result<Reply<BeginQuorumEpochResponse>, ApiError> {
    let request = quorum_request(&request).ok_or(ErrorCode::InvalidRequest)?;
    match context.broker.raft.handle_begin_quorum_epoch(request).await? {
        Answer::QuorumEpoch { error, leader } => {
            let partition = PartitionData::default()
                .with_error_code(error.code())
                .with_leader_id(leader.leader_id_or_sentinel().into())
                .with_leader_epoch(leader.epoch);
            let topic = TopicData::default()
                .with_topic_name(TopicName(StrBytes::from_static_str(CLUSTER_METADATA_TOPIC_NAME)))
                .with_partitions(vec![partition]);
            let mut response = BeginQuorumEpochResponse::default().with_topics(vec![topic]);
            if context.api_version >= FIRST_VERSION_WITH_ENDPOINTS
                && let (Some(leader_id), Some(endpoint)) =
                    (leader.leader_id, leader.endpoint(context.listener_name()))
            {
                response.node_endpoints = vec![
                    NodeEndpoint::default()
                        .with_node_id(leader_id.into())
                        .with_host(StrBytes::from_string(endpoint.host.to_string()))
                        .with_port(endpoint.port),
                ];
            }
            Ok(Reply::Value(response))
        }
        _ => Err(ErrorCode::UnknownServerError.into()),
    }
}

/// `None`: not of the metadata partition, and of it alone.
fn quorum_request(request: &messages::BeginQuorumEpochRequest) -> Option<BeginQuorumEpochRequest> {
    let [topic] = request.topics.as_slice() else {
        return None;
    };
    let [partition] = topic.partitions.as_slice() else {
        return None;
    };
    if topic.topic_name.as_str() != CLUSTER_METADATA_TOPIC_NAME || partition.partition_index != 0 {
        return None;
    }
    let voter_id = request.voter_id.0;
    Some(BeginQuorumEpochRequest {
        cluster_id: request.cluster_id.as_ref().map(|id| id.to_string()),
        voter: (voter_id >= 0).then(|| ReplicaKey::new(voter_id, partition.voter_directory_id)),
        leader_id: partition.leader_id.0,
        leader_epoch: partition.leader_epoch,
        leader_endpoints: request.leader_endpoints.iter().map(endpoint).collect(),
    })
}

fn endpoint(endpoint: &LeaderEndpoint) -> Endpoint {
    Endpoint {
        name: endpoint.name.as_str().into(),
        host: endpoint.host.as_str().into(),
        port: endpoint.port,
    }
}

impl ErrorResponse<messages::BeginQuorumEpochRequest> for BeginQuorumEpochResponse {
    fn error_response(_: &RequestContext, _: &messages::BeginQuorumEpochRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
