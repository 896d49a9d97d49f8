//! Vote (key 52), versions 0-2: a candidate for the lead of the metadata log asks for this node's vote (KIP-595).
//!
//! - 1: directories of candidate and voter, and where the leader listens (KIP-853). 2: pre-votes (KIP-996).

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::vote_response::{NodeEndpoint, PartitionData, TopicData};
use crate::protocol::messages::{self, TopicName, VoteResponse};
use crate::protocol::{ErrorCode, StrBytes};
use crate::raft::rpc::{Answer, VoteRequest};
use crate::raft::{CLUSTER_METADATA_TOPIC_NAME, ReplicaKey};

/// The first version that has room for the leader's endpoint.
const FIRST_VERSION_WITH_ENDPOINTS: i16 = 1;

pub async fn handle(
    context: &RequestContext,
    request: messages::VoteRequest,
) -> Result<Reply<VoteResponse>, ApiError> {
    let vote = vote_request(&request).ok_or(ErrorCode::InvalidRequest)?;
    match context.broker.raft.handle_vote(vote).await? {
        Answer::Vote {
            error,
            leader,
            vote_granted,
        } => {
            let partition = PartitionData::default()
                .with_error_code(error.code())
                .with_leader_id(leader.leader_id_or_sentinel().into())
                .with_leader_epoch(leader.epoch)
                .with_vote_granted(vote_granted);
            let topic = TopicData::default()
                .with_topic_name(TopicName(StrBytes::from_static_str(CLUSTER_METADATA_TOPIC_NAME)))
                .with_partitions(vec![partition]);
            let mut response = VoteResponse::default().with_topics(vec![topic]);
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

/// `None`: not one vote on the metadata partition.
fn vote_request(request: &messages::VoteRequest) -> Option<VoteRequest> {
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
    Some(VoteRequest {
        cluster_id: request.cluster_id.as_ref().map(|id| id.to_string()),
        voter: (voter_id >= 0).then(|| ReplicaKey::new(voter_id, partition.voter_directory_id)),
        candidate: ReplicaKey::new(partition.replica_id.0, partition.replica_directory_id),
        candidate_epoch: partition.replica_epoch,
        last_epoch: partition.last_offset_epoch,
        last_epoch_end_offset: partition.last_offset,
        pre_vote: partition.pre_vote,
    })
}

impl ErrorResponse<messages::VoteRequest> for VoteResponse {
    fn error_response(_: &RequestContext, _: &messages::VoteRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
