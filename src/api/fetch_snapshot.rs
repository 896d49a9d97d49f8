//! FetchSnapshot (key 59), versions 0-1: a piece of a checkpoint file of the metadata log (KIP-630).
//!
//! - 1: the replica's directory, and where the leader listens (KIP-853).
//!
//! The bytes are any slice of the file, not whole batches. The formatting checkpoint 0-0 is never served.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::fetch_snapshot_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionSnapshot, SnapshotId, TopicSnapshot,
};
use crate::protocol::messages::{FetchSnapshotRequest, FetchSnapshotResponse, TopicName};
use crate::protocol::{ErrorCode, StrBytes};
use crate::raft::rpc::{CurrentLeader, SnapshotFetch};
use crate::raft::{CLUSTER_METADATA_TOPIC_NAME, OffsetAndEpoch, ReplicaKey};

/// The first version that has room for the leader's endpoint.
const FIRST_VERSION_WITH_ENDPOINTS: i16 = 1;

pub async fn handle(
    context: &RequestContext,
    request: FetchSnapshotRequest,
) -> Result<Reply<FetchSnapshotResponse>, ApiError> {
    let raft = &context.broker.raft;
    let Some(first) = request
        .topics
        .first()
        .and_then(|topic| topic.partitions.first().map(|partition| (topic, partition)))
    else {
        return Err(ErrorCode::InvalidRequest.into());
    };
    let Some(fetch) = snapshot_fetch(&request) else {
        let leader = raft.leader_and_epoch();
        let leader = CurrentLeader {
            leader_id: leader.leader_id,
            epoch: leader.epoch,
            endpoints: raft.leader_endpoints(),
        };
        let partition = PartitionSnapshot::default()
            .with_index(first.1.partition)
            .with_error_code(ErrorCode::UnknownTopicOrPartition.code());
        return Ok(Reply::Value(response(context, &first.0.name, &leader, partition)));
    };
    let (id, position) = (fetch.snapshot_id, fetch.position);
    let reply = raft.handle_fetch_snapshot(fetch).await?;
    let leader = &reply.answer.leader;
    let mut partition = PartitionSnapshot::default()
        .with_error_code(reply.answer.error.code())
        .with_current_leader(
            LeaderIdAndEpoch::default()
                .with_leader_id(leader.leader_id_or_sentinel().into())
                .with_leader_epoch(leader.epoch),
        );
    if reply.answer.error == ErrorCode::None {
        partition.snapshot_id = SnapshotId::default()
            .with_end_offset(id.offset)
            .with_epoch(id.epoch);
        partition.size = i64::try_from(reply.size).unwrap_or(i64::MAX);
        partition.position = position;
        partition.unaligned_records = reply.bytes;
    }
    let name = TopicName(StrBytes::from_static_str(CLUSTER_METADATA_TOPIC_NAME));
    Ok(Reply::Value(response(context, &name, leader, partition)))
}

/// `None`: nothing of the metadata partition.
fn snapshot_fetch(request: &FetchSnapshotRequest) -> Option<SnapshotFetch> {
    let topic = request
        .topics
        .iter()
        .find(|topic| topic.name.as_str() == CLUSTER_METADATA_TOPIC_NAME)?;
    let partition = topic
        .partitions
        .iter()
        .find(|partition| partition.partition == 0)?;
    Some(SnapshotFetch {
        cluster_id: request.cluster_id.as_ref().map(|id| id.to_string()),
        replica: ReplicaKey::new(request.replica_id.0, partition.replica_directory_id),
        max_bytes: request.max_bytes,
        current_leader_epoch: partition.current_leader_epoch,
        snapshot_id: OffsetAndEpoch::new(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        position: partition.position,
    })
}

fn response(
    context: &RequestContext,
    name: &TopicName,
    leader: &CurrentLeader,
    partition: PartitionSnapshot,
) -> FetchSnapshotResponse {
    let topic = TopicSnapshot::default()
        .with_name(name.clone())
        .with_partitions(vec![partition]);
    let mut response = FetchSnapshotResponse::default().with_topics(vec![topic]);
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
    response
}

impl ErrorResponse<FetchSnapshotRequest> for FetchSnapshotResponse {
    fn error_response(_: &RequestContext, _: &FetchSnapshotRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
