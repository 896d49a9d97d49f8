//! Fetch (key 1) of `__cluster_metadata` on the controller listener: how observers and followers replicate the metadata log.
//!
//! - 13: topics by id, which this needs: no older version can name the topic. 15: replica id in ReplicaState (KIP-903).
//! - 17: the replica's directory, and where the leader listens (KIP-853). 18: the replica's high watermark (KIP-1166).
//!
//! No sessions, one topic, one partition. Waits for an append or for the high watermark. Called by the Fetch handler.

use super::{ApiError, Reply, RequestContext};
use crate::protocol::messages::fetch_request::FetchPartition;
use crate::protocol::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData, SnapshotId,
};
use crate::protocol::messages::{FetchRequest, FetchResponse, TopicName};
use crate::protocol::{ErrorCode, StrBytes};
use crate::raft::rpc::{FetchContent, MetadataFetch};
use crate::raft::{CLUSTER_METADATA_TOPIC_ID, CLUSTER_METADATA_TOPIC_NAME, FetchReply, ReplicaKey};

/// The first version that has room for the leader's endpoint.
const FIRST_VERSION_WITH_ENDPOINTS: i16 = 17;

pub async fn handle(
    context: &RequestContext,
    request: FetchRequest,
) -> Result<Reply<FetchResponse>, ApiError> {
    let Some(fetch) = metadata_fetch(&request) else {
        return Ok(Reply::Value(top_level_error(ErrorCode::InvalidRequest)));
    };
    match context.broker.raft.handle_fetch(fetch, request.max_bytes).await {
        Ok(reply) => Ok(Reply::Value(response(context, reply))),
        Err(error) => Ok(Reply::Value(top_level_error(error))),
    }
}

/// `None`: not one fetch of the metadata partition.
fn metadata_fetch(request: &FetchRequest) -> Option<MetadataFetch> {
    let [topic] = request.topics.as_slice() else {
        return None;
    };
    let [partition] = topic.partitions.as_slice() else {
        return None;
    };
    if topic.topic_id != CLUSTER_METADATA_TOPIC_ID || partition.partition != 0 {
        return None;
    }
    Some(MetadataFetch {
        cluster_id: request.cluster_id.as_ref().map(|id| id.to_string()),
        replica: replica_key(request, partition),
        max_wait_ms: request.max_wait_ms,
        current_leader_epoch: partition.current_leader_epoch,
        fetch_offset: partition.fetch_offset,
        last_fetched_epoch: partition.last_fetched_epoch,
        high_watermark: partition.high_watermark,
    })
}

fn replica_key(request: &FetchRequest, partition: &FetchPartition) -> ReplicaKey {
    let id = match request.replica_id.0 {
        -1 => request.replica_state.replica_id.0,
        id => id,
    };
    ReplicaKey::new(id, partition.replica_directory_id)
}

fn top_level_error(error: ErrorCode) -> FetchResponse {
    FetchResponse::default().with_error_code(error.code())
}

fn response(context: &RequestContext, reply: FetchReply) -> FetchResponse {
    let FetchReply { answer, records } = reply;
    let mut partition = PartitionData::default()
        .with_error_code(answer.error.code())
        .with_high_watermark(answer.high_watermark)
        .with_log_start_offset(answer.log_start_offset)
        .with_current_leader(
            LeaderIdAndEpoch::default()
                .with_leader_id(answer.leader.leader_id_or_sentinel().into())
                .with_leader_epoch(answer.leader.epoch),
        )
        .with_records(Some(records));
    match answer.content {
        FetchContent::Nothing | FetchContent::RecordsFrom(_) => {}
        FetchContent::Diverging(end) => {
            partition.diverging_epoch = EpochEndOffset::default()
                .with_epoch(end.epoch)
                .with_end_offset(end.offset);
        }
        FetchContent::Snapshot(id) => {
            partition.snapshot_id = SnapshotId::default()
                .with_epoch(id.epoch)
                .with_end_offset(id.offset);
        }
    }
    let topic = FetchableTopicResponse::default()
        .with_topic(TopicName(StrBytes::from_static_str(CLUSTER_METADATA_TOPIC_NAME)))
        .with_topic_id(CLUSTER_METADATA_TOPIC_ID)
        .with_partitions(vec![partition]);
    let mut response = FetchResponse::default().with_responses(vec![topic]);
    if context.api_version >= FIRST_VERSION_WITH_ENDPOINTS
        && let (Some(leader_id), Some(endpoint)) = (
            answer.leader.leader_id,
            answer.leader.endpoint(context.listener_name()),
        )
    {
        response.node_endpoints = vec![
            NodeEndpoint::default()
                .with_node_id(leader_id.into())
                .with_host(StrBytes::from_string(endpoint.host.to_string()))
                .with_port(endpoint.port.into()),
        ];
    }
    response
}

#[cfg(test)]
#[path = "metadata_fetch_test.rs"]
mod metadata_fetch_test;
