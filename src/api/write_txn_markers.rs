//! WriteTxnMarkers (key 27), versions 1-2: ends transactions on partitions of this node.
//!
//! - 1: flexible. 2: the transaction version, by which the log checks the marker's epoch (KIP-1228).
//!
//! Transaction coordinators send it, and administrators to abort a transaction that hangs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

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
    let mut answer = Answer::default();
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
            answer.add(marker.producer_id, &partition, error);
        }
    }
    Ok(Reply::Value(answer.value))
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

/// The answer as it grows, and where in it things are.
#[derive(Default)]
struct Answer {
    value: WriteTxnMarkersResponse,
    producers: HashMap<i64, usize>,
    /// By the place of the producer.
    topics: HashMap<(usize, Arc<str>), usize>,
    /// By the places of the producer and the topic.
    partitions: HashMap<(usize, usize, i32), usize>,
}

impl Answer {
    /// A producer is in the answer once, and so is a topic of it.
    fn add(&mut self, producer_id: ProducerId, partition: &TopicPartition, error: ErrorCode) {
        let producers = &mut self.value.markers;
        let producer = *self.producers.entry(producer_id.0).or_insert_with(|| {
            producers.push(WritableTxnMarkerResult {
                producer_id,
                ..Default::default()
            });
            producers.len() - 1
        });
        let topics = &mut producers[producer].topics;
        let key = (producer, partition.topic.clone());
        let topic = *self.topics.entry(key).or_insert_with(|| {
            topics.push(WritableTxnMarkerTopicResult {
                name: TopicName(StrBytes::from_string(partition.topic.to_string())),
                ..Default::default()
            });
            topics.len() - 1
        });
        let partitions = &mut topics[topic].partitions;
        let result = WritableTxnMarkerPartitionResult {
            partition_index: partition.partition,
            error_code: error.code(),
            ..Default::default()
        };
        // Of two markers for one partition the answer tells of the last.
        match self.partitions.entry((producer, topic, partition.partition)) {
            Entry::Occupied(place) => partitions[*place.get()] = result,
            Entry::Vacant(place) => {
                place.insert(partitions.len());
                partitions.push(result);
            }
        }
    }
}

impl ErrorResponse<WriteTxnMarkersRequest> for WriteTxnMarkersResponse {
    fn error_response(_: &RequestContext, request: &WriteTxnMarkersRequest, error: &ApiError) -> Self {
        let mut answer = Answer::default();
        for marker in &request.markers {
            for partition in partitions_of(marker) {
                answer.add(marker.producer_id, &partition, error.code);
            }
        }
        answer.value
    }
}

#[cfg(test)]
#[path = "write_txn_markers_test.rs"]
mod write_txn_markers_test;
