//! TxnOffsetCommit (key 28), versions 0-6: a group's positions as part of a producer's transaction.
//!
//! - 2: leader epoch. 3: flexible; the member and its generation (KIP-447). 4: TRANSACTION_ABORTABLE. 5: adds the group's partition
//!   to the transaction by itself (KIP-890). 6: topics by id.
//!
//! Partitions that do not exist are answered here; the coordinator sees the others, after the transaction coordinator was asked
//! whether the group's partition is in the transaction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use uuid::Uuid;

use super::auto_topic_creation::GROUP_METADATA_TOPIC;
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::coordinator::transaction::{ProducerIdAndEpoch, SupportedOperation, Transaction};
use crate::log::TopicPartition;
use crate::metadata::{MetadataImage, TopicImage};
use crate::protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestTopic;
use crate::protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use crate::protocol::messages::{TopicName, TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use crate::protocol::{ErrorCode, StrBytes};

const FIRST_VERSION_WITH_TOPIC_IDS: i16 = 6;

pub async fn handle(
    context: &RequestContext,
    mut request: TxnOffsetCommitRequest,
) -> Result<Reply<TxnOffsetCommitResponse>, ApiError> {
    let by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS;
    let image = context.broker.metadata.image();
    let mut response = Answer::new(by_id);
    let mut valid = Vec::with_capacity(request.topics.len());
    for topic in std::mem::take(&mut request.topics) {
        valid.extend(take_valid(&image, topic, &mut response));
    }
    if valid.is_empty() {
        return Ok(Reply::Value(response.value));
    }
    request.topics = valid;
    let asked = request.topics.clone();
    match commit(context, request).await {
        Ok(committed) => committed
            .topics
            .into_iter()
            .for_each(|topic| response.merge(topic)),
        Err(error) => asked
            .iter()
            .for_each(|topic| response.merge(all_partitions(topic, error))),
    }
    Ok(Reply::Value(tell_old_clients(
        context.api_version,
        response.value,
    )))
}

/// An error is one of the whole commit.
async fn commit(
    context: &RequestContext,
    request: TxnOffsetCommitRequest,
) -> Result<TxnOffsetCommitResponse, ErrorCode> {
    let broker = &context.broker;
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let partition = broker.group_coordinator.partition_for(&request.group_id);
    let partition = TopicPartition::new(GROUP_METADATA_TOPIC, partition);
    let transaction = Transaction {
        transactional_id: request.transactional_id.0.clone(),
        producer: ProducerIdAndEpoch {
            producer_id: request.producer_id.0,
            producer_epoch: request.producer_epoch,
        },
    };
    const NO_SEQUENCE: i32 = -1;
    let mut verified = broker
        .transaction_verifier
        .verify(
            transaction,
            supported_operation(context.api_version),
            &[(partition.clone(), NO_SEQUENCE)],
        )
        .await;
    if let Some(error) = verified.errors.remove(&partition) {
        return Err(crate::coordinator::group::operation_error(error));
    }
    let guard = verified.guards.remove(&partition);
    broker
        .group_coordinator
        .commit_transactional_offsets(request, guard, context.api_version >= 6)
        .await
}

fn supported_operation(api_version: i16) -> SupportedOperation {
    match api_version {
        ..=3 => SupportedOperation::DefaultError,
        4 => SupportedOperation::GenericError,
        _ => SupportedOperation::AddPartition,
    }
}

/// Producers before Kafka 2.0 may crash when they are told of a coordinator that loads.
fn tell_old_clients(api_version: i16, mut response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse {
    if api_version < 2 {
        let topics = response.topics.iter_mut();
        for partition in topics.flat_map(|topic| &mut topic.partitions) {
            if partition.error_code == ErrorCode::CoordinatorLoadInProgress.code() {
                partition.error_code = ErrorCode::CoordinatorNotAvailable.code();
            }
        }
    }
    response
}

/// What of a topic can be committed, with its name and id; the rest is answered.
fn take_valid(
    image: &MetadataImage,
    mut topic: TxnOffsetCommitRequestTopic,
    response: &mut Answer,
) -> Option<TxnOffsetCommitRequestTopic> {
    let by_id = response.by_id;
    let known: Option<Arc<TopicImage>> = match by_id {
        true => image.topics.by_id(topic.topic_id).cloned(),
        false => image.topics.by_name(&topic.name).cloned(),
    };
    let Some(known) = known else {
        let error = match by_id {
            true => ErrorCode::UnknownTopicId,
            false => ErrorCode::UnknownTopicOrPartition,
        };
        response.merge(all_partitions(&topic, error));
        return None;
    };
    topic.topic_id = known.id;
    topic.name = TopicName(StrBytes::from_string(known.name.to_string()));
    let exists = |partition: i32| known.partitions.contains_key(&partition);
    let (valid, invalid) = std::mem::take(&mut topic.partitions)
        .into_iter()
        .partition(|partition| exists(partition.partition_index));
    topic.partitions = invalid;
    if !topic.partitions.is_empty() {
        let unknown = all_partitions(&topic, ErrorCode::UnknownTopicOrPartition);
        response.merge(unknown);
    }
    topic.partitions = valid;
    (!topic.partitions.is_empty()).then_some(topic)
}

fn all_partitions(topic: &TxnOffsetCommitRequestTopic, error: ErrorCode) -> TxnOffsetCommitResponseTopic {
    let partitions = topic
        .partitions
        .iter()
        .map(|partition| TxnOffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: error.code(),
            ..Default::default()
        });
    TxnOffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: partitions.collect(),
        ..Default::default()
    }
}

/// The answer as it grows.
struct Answer {
    by_id: bool,
    value: TxnOffsetCommitResponse,
    /// Where the topics are in it, by name or by id.
    places: HashMap<(Uuid, StrBytes), usize>,
}

impl Answer {
    fn new(by_id: bool) -> Self {
        Self {
            by_id,
            value: Default::default(),
            places: HashMap::new(),
        }
    }

    /// A topic is in the answer once.
    fn merge(&mut self, topic: TxnOffsetCommitResponseTopic) {
        let key = match self.by_id {
            true => (topic.topic_id, StrBytes::default()),
            false => (Uuid::nil(), topic.name.0.clone()),
        };
        let topics = &mut self.value.topics;
        match self.places.entry(key) {
            Entry::Occupied(place) => topics[*place.get()].partitions.extend(topic.partitions),
            Entry::Vacant(place) => {
                place.insert(topics.len());
                topics.push(topic);
            }
        }
    }
}

impl ErrorResponse<TxnOffsetCommitRequest> for TxnOffsetCommitResponse {
    fn error_response(_: &RequestContext, request: &TxnOffsetCommitRequest, error: &ApiError) -> Self {
        let topics = request.topics.iter();
        Self {
            topics: topics.map(|topic| all_partitions(topic, error.code)).collect(),
            ..Default::default()
        }
    }
}

#[cfg(test)]
#[path = "txn_offset_commit_test.rs"]
mod txn_offset_commit_test;
