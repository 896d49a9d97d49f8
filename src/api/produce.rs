//! Produce (key 0), versions 3-13.
//!
//! | version | what changed |
//! | --- | --- |
//! | 3 | transactional id; batches of magic 2 only, exactly one a partition |
//! | 5 | log start offset |
//! | 7 | ZStandard (KIP-110) |
//! | 8 | record errors and a message (KIP-467) |
//! | 9 | compact forms |
//! | 10 | current leader and its end point (KIP-951) |
//! | 11 | TRANSACTION_ABORTABLE (KIP-890) |
//! | 12 | a transactional batch adds its partition to the transaction (KIP-890) |
//! | 13 | topic ids (KIP-516) |
//!
//! Two stages: once the records are appended their order is fixed, and the connection's next request may start while this one waits
//! for replicas. With acks=0 there is no answer; an error closes the connection, so that the client looks for its leader anew.
//!
//! The first transactional batch for a partition is appended once its transaction coordinator has said that it may (`produce_transaction`).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::current_leader::CurrentLeaders;
use super::error_map::replica_error;
use super::produce_transaction::{self, Refusals};
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::log::TopicPartition;
use crate::metadata::MetadataImage;
use crate::protocol::messages::produce_request::ProduceRequest;
use crate::protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, NodeEndpoint, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use crate::protocol::messages::{BrokerId, TopicName};
use crate::protocol::{ErrorCode, StrBytes};
use crate::replica::{AppendResult, Appended, TopicIdPartition};

/// `AdminUtils.ADMIN_CLIENT_ID`: the one client that may write to internal topics.
const ADMIN_CLIENT_ID: &str = "__admin_client";
const FIRST_VERSION_WITH_TOPIC_IDS: i16 = 13;

pub async fn handle(
    context: &RequestContext,
    request: ProduceRequest,
) -> Result<Reply<ProduceResponse>, ApiError> {
    let acks = request.acks;
    if let Err(error) = check_transactional(&request) {
        return if acks == 0 {
            Ok(Reply::CloseConnection)
        } else {
            Err(error)
        };
    }
    let timeout_ms = request.timeout_ms.max(0) as u64;
    let internal_topics_allowed = context.client_id_or_empty() == ADMIN_CLIENT_ID;
    let transactional_id = request.transactional_id.as_ref().map(|id| id.0.clone());
    let (mut shape, mut entries) = sort_out(context.api_version, request, &context.broker.metadata.image());
    let guards = match produce_transaction::verify(context, transactional_id, &entries).await {
        Ok((guards, refusals)) => {
            shape.refuse(&mut entries, refusals);
            guards
        }
        Err(_) if acks == 0 => return Ok(Reply::CloseConnection),
        Err(error) => return Err(error),
    };
    let replica_manager = &context.broker.replica_manager;
    let appended = replica_manager
        .append_records(timeout_ms, acks, internal_topics_allowed, entries, &guards)
        .await;
    if acks == 0 {
        return Ok(without_answer(context, &shape, appended));
    }
    let version = context.api_version;
    let leaders = CurrentLeaders::new(context);
    if appended.is_complete() {
        return Ok(Reply::Value(shape.response(
            version,
            appended.into_results(),
            leaders,
        )));
    }
    Ok(Reply::TwoStage(Box::pin(async move {
        shape.response(version, appended.completed().await, leaders)
    })))
}

fn without_answer(context: &RequestContext, shape: &Shape, appended: Appended) -> Reply<ProduceResponse> {
    let results = appended.into_results();
    let refused = shape.refused().map(|(_, error)| *error);
    let failed = results
        .iter()
        .filter_map(|(_, result)| result.error.as_ref())
        .map(replica_error);
    match refused.chain(failed).next() {
        None => Reply::Nothing,
        Some(error) => {
            tracing::info!(
                client_id = context.client_id_or_empty(), correlation_id = context.correlation_id, %error,
                "closing connection due to error during produce request with acks=0"
            );
            Reply::CloseConnection
        }
    }
}

/// What becomes of one partition of the request.
enum Place {
    /// Not appended.
    Refused(i32, ErrorCode, Option<String>),
    /// Its result is the next of the appended.
    Appended(i32),
}

/// The request's topics and partitions without its records, in order: what the answer is filled into.
struct Shape {
    topics: Vec<(TopicName, Uuid, Vec<Place>)>,
}

fn sort_out(
    version: i16,
    request: ProduceRequest,
    image: &MetadataImage,
) -> (Shape, Vec<(TopicIdPartition, Bytes)>) {
    let is_by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS;
    let is_single = matches!(request.topic_data.as_slice(), [topic] if topic.partition_data.len() == 1);
    let mut entries: Vec<(TopicIdPartition, Bytes)> = Vec::new();
    let mut seen: HashMap<(Uuid, i32), usize> = HashMap::new();
    let mut refused: HashSet<(TopicName, Uuid, i32)> = HashSet::new();
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for topic in request.topic_data {
        let known = if is_by_id {
            image.topics.by_id(topic.topic_id)
        } else {
            image.topics.by_name(&topic.name)
        };
        let mut places = Vec::with_capacity(topic.partition_data.len());
        for partition in topic.partition_data {
            let index = partition.index;
            let Some(known) = known.filter(|topic| topic.partitions.contains_key(&index)) else {
                let is_unknown_id = is_by_id && known.is_none();
                let error = if is_unknown_id {
                    ErrorCode::UnknownTopicId
                } else {
                    ErrorCode::UnknownTopicOrPartition
                };
                if is_single || refused.insert((topic.name.clone(), topic.topic_id, index)) {
                    places.push(Place::Refused(index, error, None));
                }
                continue;
            };
            match check_records(version, partition.records) {
                Ok(records) => {
                    // Of a partition that is named twice, Kafka appends what was said last, and answers once.
                    if !is_single {
                        match seen.entry((known.id, index)) {
                            Entry::Occupied(first) => {
                                entries[*first.get()].1 = records;
                                continue;
                            }
                            Entry::Vacant(place) => place.insert(entries.len()),
                        };
                    }
                    places.push(Place::Appended(index));
                    let name: Arc<str> = known.name.clone();
                    entries.push((TopicIdPartition::new(known.id, name, index), records));
                }
                Err((error, message)) => places.push(Place::Refused(index, error, message)),
            }
        }
        topics.push((topic.name, topic.topic_id, places));
    }
    (Shape { topics }, entries)
}

/// Bytes that are no batch of any format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Corrupt {
    #[error("Record size {0} is less than the minimum record overhead (14)")]
    Length(i32),
    #[error("Invalid magic found in record: {0}")]
    Magic(i8),
}

impl Corrupt {
    fn into_error(self) -> ApiError {
        ApiError::new(ErrorCode::CorruptMessage, self.to_string())
    }
}

impl From<Corrupt> for Refusal {
    fn from(_: Corrupt) -> Self {
        (ErrorCode::CorruptMessage, None)
    }
}

type Refusal = (ErrorCode, Option<String>);

/// `ProduceRequest.validateRecords`: exactly one batch, of magic 2, in a codec of the version. Returns the batch without what trails it
/// (a batch that is cut short, which Kafka trims too).
fn check_records(version: i16, records: Option<Bytes>) -> Result<Bytes, Refusal> {
    const INVALID_RECORD: Refusal = (ErrorCode::InvalidRecord, None);
    let records = records.unwrap_or_default();
    let Some((size, magic)) = first_batch(&records)? else {
        return Err(INVALID_RECORD);
    };
    if magic != 2 {
        return Err(INVALID_RECORD);
    }
    if version < 7 {
        match attributes(&records) & 0x07 {
            ..ZSTD => {}
            ZSTD => return Err((ErrorCode::UnsupportedCompressionType, None)),
            // Kafka has no name for such a codec and fails in general.
            _ => return Err((ErrorCode::UnknownServerError, None)),
        }
    }
    if first_batch(&records[size..])?.is_some() {
        return Err(INVALID_RECORD);
    }
    Ok(records.slice(..size))
}

const ZSTD: i16 = 4;
const ATTRIBUTES_OFFSET: usize = 21;

/// Size and magic of the first whole batch (`ByteBufferLogInputStream`); `None` where it is cut short.
fn first_batch(records: &[u8]) -> Result<Option<(usize, u8)>, Corrupt> {
    const SIZE_OFFSET: usize = 8;
    const LOG_OVERHEAD: usize = 12;
    const RECORD_OVERHEAD_V0: i32 = 14;
    const MAGIC_OFFSET: usize = 16;
    let Some(&[a, b, c, d]) = records.get(SIZE_OFFSET..LOG_OVERHEAD) else {
        return Ok(None);
    };
    let length = i32::from_be_bytes([a, b, c, d]);
    if length < RECORD_OVERHEAD_V0 {
        return Err(Corrupt::Length(length));
    }
    let Some(magic) = records.get(MAGIC_OFFSET) else {
        return Ok(None);
    };
    if *magic > 2 {
        return Err(Corrupt::Magic(*magic as i8));
    }
    let size = LOG_OVERHEAD + length as usize;
    Ok((size <= records.len()).then_some((size, *magic)))
}

/// Of a batch of magic 2 that `first_batch` found (it has 26 bytes at least).
fn attributes(batch: &[u8]) -> i16 {
    match batch.get(ATTRIBUTES_OFFSET..ATTRIBUTES_OFFSET + 2) {
        Some(&[high, low]) => i16::from_be_bytes([high, low]),
        _ => 0,
    }
}

fn is_transactional(batch: &[u8]) -> bool {
    const TRANSACTIONAL: i16 = 0x10;
    attributes(batch) & TRANSACTIONAL != 0
}

/// Transactional records need a transactional id. Kafka looks for them in the first batch of every partition before all else, so a first
/// batch that is none of any format fails the whole request.
fn check_transactional(request: &ProduceRequest) -> Result<(), ApiError> {
    let partitions = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    for records in partitions.filter_map(|partition| partition.records.as_ref()) {
        let first = first_batch(records).map_err(Corrupt::into_error)?;
        if matches!(first, Some((_, 2))) && is_transactional(records) {
            return match request.transactional_id {
                Some(_) => Ok(()),
                None => Err(ErrorCode::TransactionalIdAuthorizationFailed.into()),
            };
        }
    }
    Ok(())
}

impl Shape {
    /// Takes out of `entries`, which are those of the places in order, what may not be appended.
    fn refuse(&mut self, entries: &mut Vec<(TopicIdPartition, Bytes)>, refusals: Refusals) {
        if refusals.is_empty() {
            return;
        }
        let places = self.topics.iter_mut().flat_map(|(_, _, places)| places);
        let appended = places.filter(|place| matches!(place, Place::Appended(_)));
        let refusals: HashMap<&TopicPartition, (ErrorCode, &Option<String>)> = refusals
            .iter()
            .map(|(partition, error, message)| (partition, (*error, message)))
            .collect();
        let mut kept = Vec::with_capacity(entries.len());
        for (place, entry) in appended.zip(std::mem::take(entries)) {
            let partition = &entry.0.topic_partition;
            match refusals.get(partition) {
                Some((error, message)) => {
                    *place = Place::Refused(partition.partition, *error, (*message).clone());
                }
                None => kept.push(entry),
            }
        }
        *entries = kept;
    }

    fn refused(&self) -> impl Iterator<Item = (i32, &ErrorCode)> {
        self.topics
            .iter()
            .flat_map(|(_, _, places)| places)
            .filter_map(|place| match place {
                Place::Refused(index, error, _) => Some((*index, error)),
                Place::Appended(_) => None,
            })
    }

    fn response(
        self,
        version: i16,
        results: Vec<(TopicIdPartition, AppendResult)>,
        mut leaders: CurrentLeaders,
    ) -> ProduceResponse {
        // In the order of the places.
        let mut results = results.into_iter();
        let mut response = ProduceResponse::default();
        // Of a topic without partitions nothing is said.
        for (name, topic_id, places) in self
            .topics
            .into_iter()
            .filter(|(_, _, places)| !places.is_empty())
        {
            let mut topic = TopicProduceResponse::default();
            topic.name = name;
            topic.topic_id = topic_id;
            for place in places {
                topic.partition_responses.push(match place {
                    Place::Refused(index, error, message) => {
                        refused(version, index, error, message.as_deref())
                    }
                    Place::Appended(index) => match results.next() {
                        Some((id, result)) => appended(version, &id, result, &mut leaders),
                        // Every entry has its result.
                        None => refused(version, index, ErrorCode::UnknownServerError, None),
                    },
                });
            }
            response.responses.push(topic);
        }
        if version >= 10 {
            response.node_endpoints = node_endpoints(leaders);
        }
        response
    }
}

fn refused(version: i16, index: i32, error: ErrorCode, message: Option<&str>) -> PartitionProduceResponse {
    let mut partition = PartitionProduceResponse::default();
    partition.index = index;
    partition.error_code = error.code();
    partition.base_offset = -1;
    partition.log_append_time_ms = -1;
    partition.log_start_offset = -1;
    if version >= 8 {
        partition.error_message = message.map(|message| StrBytes::from_string(message.to_owned()));
    }
    partition
}

fn appended(
    version: i16,
    id: &TopicIdPartition,
    result: AppendResult,
    leaders: &mut CurrentLeaders,
) -> PartitionProduceResponse {
    let error = result.error.as_ref().map_or(ErrorCode::None, replica_error);
    let mut partition = PartitionProduceResponse::default();
    partition.index = id.topic_partition.partition;
    partition.error_code = error.code();
    partition.base_offset = result.base_offset;
    partition.log_append_time_ms = result.log_append_time_ms;
    partition.log_start_offset = result.log_start_offset;
    if version >= 8 {
        partition.error_message = result.error_message.map(StrBytes::from_string);
        let of_wire = |error: crate::replica::RecordError| {
            let mut record = BatchIndexAndErrorMessage::default();
            record.batch_index = error.batch_index;
            record.batch_index_error_message = error.message.map(StrBytes::from_string);
            record
        };
        partition.record_errors = result.record_errors.into_iter().map(of_wire).collect();
    }
    if version >= 10 && error == ErrorCode::NotLeaderOrFollower {
        let (leader_id, leader_epoch) = leaders.of(id);
        partition.current_leader.leader_id = BrokerId(leader_id);
        partition.current_leader.leader_epoch = leader_epoch;
    }
    partition
}

fn node_endpoints(leaders: CurrentLeaders) -> Vec<NodeEndpoint> {
    let of_wire = |endpoint: super::current_leader::LeaderEndpoint| {
        let mut node = NodeEndpoint::default();
        node.node_id = BrokerId(endpoint.node_id);
        node.host = endpoint.host;
        node.port = endpoint.port;
        node.rack = endpoint.rack;
        node
    };
    leaders.into_endpoints().into_iter().map(of_wire).collect()
}

impl ErrorResponse<ProduceRequest> for ProduceResponse {
    fn error_response(context: &RequestContext, request: &ProduceRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        for requested in &request.topic_data {
            let mut topic = TopicProduceResponse::default();
            topic.name = requested.name.clone();
            topic.topic_id = requested.topic_id;
            for requested in &requested.partition_data {
                let message = error.message.as_deref();
                topic.partition_responses.push(refused(
                    context.api_version,
                    requested.index,
                    error.code,
                    message,
                ));
            }
            response.responses.push(topic);
        }
        response
    }
}

#[cfg(test)]
#[path = "produce_test.rs"]
mod produce_test;
