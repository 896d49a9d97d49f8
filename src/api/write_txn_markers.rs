//! WriteTxnMarkers (key 27), versions 1-2: ends transactions on partitions of this node.
//!
//! - 1: flexible. 2: the transaction version, by which the log checks the marker's epoch (KIP-1228).
//!
//! Transaction coordinators send it, and administrators to abort a transaction that hangs.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::coordinator::runtime::{TransactionEnd, TransactionalProducer};
use crate::log::TopicPartition;
use crate::protocol::messages::write_txn_markers_request::WritableTxnMarker;
use crate::protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use crate::protocol::messages::{ProducerId, TopicName, WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use crate::protocol::{ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    request: WriteTxnMarkersRequest,
) -> Result<Reply<WriteTxnMarkersResponse>, ApiError> {
    let mut response = WriteTxnMarkersResponse::default();
    for marker in &request.markers {
        let end = TransactionEnd {
            producer: TransactionalProducer {
                producer_id: marker.producer_id.0,
                producer_epoch: marker.producer_epoch,
            },
            coordinator_epoch: marker.coordinator_epoch,
            committed: marker.transaction_result,
            transaction_version: i16::from(marker.transaction_version),
        };
        let written = context
            .broker
            .markers
            .write_here(end, partitions_of(marker))
            .await;
        for (partition, error) in written {
            add(&mut response, marker.producer_id, &partition, error);
        }
    }
    Ok(Reply::Value(response))
}

fn partitions_of(marker: &WritableTxnMarker) -> Vec<TopicPartition> {
    let mut partitions = Vec::new();
    for topic in &marker.topics {
        for partition in &topic.partition_indexes {
            partitions.push(TopicPartition::new(topic.name.as_str(), *partition));
        }
    }
    partitions
}

/// A producer is in the answer once, and so is a topic of it.
fn add(
    response: &mut WriteTxnMarkersResponse,
    producer_id: ProducerId,
    partition: &TopicPartition,
    error: ErrorCode,
) {
    let producers = &mut response.markers;
    let position = producers
        .iter()
        .position(|known| known.producer_id == producer_id);
    let position = position.unwrap_or_else(|| {
        producers.push(WritableTxnMarkerResult {
            producer_id,
            ..Default::default()
        });
        producers.len() - 1
    });
    let topics = &mut producers[position].topics;
    let position = topics.iter().position(|known| *known.name.0 == *partition.topic);
    let position = position.unwrap_or_else(|| {
        topics.push(WritableTxnMarkerTopicResult {
            name: TopicName(StrBytes::from_string(partition.topic.to_string())),
            ..Default::default()
        });
        topics.len() - 1
    });
    let partitions = &mut topics[position].partitions;
    let result = WritableTxnMarkerPartitionResult {
        partition_index: partition.partition,
        error_code: error.code(),
        ..Default::default()
    };
    // Of two markers for one partition the answer tells of the last.
    match partitions
        .iter_mut()
        .find(|known| known.partition_index == partition.partition)
    {
        Some(known) => *known = result,
        None => partitions.push(result),
    }
}

impl ErrorResponse<WriteTxnMarkersRequest> for WriteTxnMarkersResponse {
    fn error_response(_: &RequestContext, request: &WriteTxnMarkersRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        for marker in &request.markers {
            for partition in partitions_of(marker) {
                add(&mut response, marker.producer_id, &partition, error.code);
            }
        }
        response
    }
}
