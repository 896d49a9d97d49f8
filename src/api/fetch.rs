//! Fetch (key 1), versions 4-18.
//!
//! | version | what changed |
//! | --- | --- |
//! | 4 | isolation level (KIP-98) |
//! | 5 | log start offset |
//! | 7 | incremental sessions (KIP-227) |
//! | 9 | current leader epoch (KIP-320) |
//! | 10 | ZStandard (KIP-110): 4.x looks at no batch, and sends an older client what there is |
//! | 11 | rack, preferred read replica (KIP-392) |
//! | 12 | compact forms, last fetched epoch and diverging epoch (KIP-595) |
//! | 13 | topic ids (KIP-516) |
//! | 15 | replica state with the broker's epoch (KIP-903) |
//! | 16 | current leader's end point (KIP-951) |
//! | 17, 18 | a follower's directory id and high watermark: for KRaft voters only |
//!
//! On the controller listener it reads the metadata log: `metadata_fetch`.
//!
//! What we do differently: nothing on the wire. A session's partitions are looked at in memory, and no record is.

use std::sync::Arc;

use indexmap::IndexMap;
use uuid::Uuid;

use super::current_leader::CurrentLeaders;
use super::error_map::{replica_error, session_error};
use super::fetch_response::{FetchAnswerBody, PartitionAnswer};
use super::{ApiError, ErrorResponse, ListenerScope, Reply, RequestContext, ResponsePart, metadata_fetch};
use crate::metadata::MetadataImage;
use crate::protocol::ErrorCode;
use crate::protocol::messages::fetch_request::{self, FetchRequest};
use crate::protocol::messages::fetch_response::{FetchResponse, FetchableTopicResponse, PartitionData};
use crate::replica::fetch_session::{
    FetchAnswer, FetchContext, FetchMetadata, INVALID_SESSION_ID, SessionError, SessionPartition,
};
use crate::replica::{
    FetchIsolation, FetchParams, FetchPartition, FetchPartitionData, ReplicaError, TopicIdPartition,
};

const FIRST_VERSION_WITH_SESSIONS: i16 = 7;
const FIRST_VERSION_WITH_TOPIC_IDS: i16 = 13;

pub async fn handle(
    context: &RequestContext,
    request: FetchRequest,
) -> Result<Reply<FetchResponse>, ApiError> {
    if context.scope() == ListenerScope::Controller {
        return metadata_fetch::handle(context, request).await;
    }
    let broker = &context.broker;
    let image = broker.metadata.image();
    let params = params(context, &request);
    let isolation_level = request.isolation_level;
    let uses_topic_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS;
    let topic_name = |topic_id: Uuid| image.topics.name_of(topic_id);
    let fetch_context = broker.replica_manager.fetch_sessions().new_context(
        session_metadata(context.api_version, &request),
        uses_topic_ids,
        requested_partitions(&request, uses_topic_ids, &image),
        &forgotten_partitions(&request, uses_topic_ids),
        &topic_name,
        context.now_ms,
    );
    drop(request);
    let (outcome, partitions) = match fetch_context {
        FetchContext::Error(error) => return Ok(session_failed(context, error, INVALID_SESSION_ID)),
        FetchContext::Sessionless(partitions) => (SessionOutcome::None, partitions),
        FetchContext::Full(partitions) => (SessionOutcome::Create, partitions),
        FetchContext::Incremental {
            session_id,
            epoch,
            partitions,
        } => (SessionOutcome::Incremental { session_id, epoch }, partitions),
    };
    let (interesting, erroneous) = sort_out(partitions, &image);
    // Kafka looks at the level only when there is something to read; the session has moved on by then.
    if !interesting.is_empty() && !is_isolation_level(isolation_level) {
        return Err(ErrorCode::UnknownServerError.into());
    }
    let mut answers = fetch(context, &params, interesting).await;
    answers.extend(erroneous);
    let sessions = broker.replica_manager.fetch_sessions();
    let session_id = match outcome {
        SessionOutcome::None => INVALID_SESSION_ID,
        SessionOutcome::Create => sessions.maybe_create(
            params.is_from_follower(),
            uses_topic_ids,
            &answers,
            broker.clock.now_ms(),
        ),
        SessionOutcome::Incremental { session_id, epoch } => {
            if let Err(error) = sessions.finish_incremental(session_id, epoch, &mut answers) {
                return Ok(session_failed(context, error, session_id));
            }
            session_id
        }
    };
    Ok(Reply::Encoded(encode(
        context,
        session_id,
        params.is_from_follower(),
        &answers,
    )))
}

enum SessionOutcome {
    None,
    Create,
    Incremental { session_id: i32, epoch: i32 },
}

fn session_failed(context: &RequestContext, error: SessionError, session_id: i32) -> Reply<FetchResponse> {
    let body = FetchAnswerBody {
        error: session_error(error),
        session_id,
        partitions: &[],
        node_endpoints: &[],
    };
    Reply::Encoded(body.encode(context.api_version))
}

fn params(context: &RequestContext, request: &FetchRequest) -> FetchParams {
    let version = context.api_version;
    let replica_id = if version >= 15 {
        request.replica_state.replica_id.0
    } else {
        request.replica_id.0
    };
    let replica_epoch = if version >= 15 {
        request.replica_state.replica_epoch
    } else {
        -1
    };
    let max_bytes = request
        .max_bytes
        .min(context.broker.config.fetch_max_bytes)
        .max(0);
    let isolation = match (replica_id, request.isolation_level) {
        (FetchParams::ORDINARY_CONSUMER_ID, 1) => FetchIsolation::TxnCommitted,
        (FetchParams::ORDINARY_CONSUMER_ID, _) => FetchIsolation::HighWatermark,
        _ => FetchIsolation::LogEnd,
    };
    FetchParams {
        replica_id,
        replica_epoch,
        max_wait_ms: request.max_wait_ms.max(0) as u64,
        min_bytes: request.min_bytes.clamp(0, max_bytes) as usize,
        max_bytes: max_bytes as usize,
        isolation,
        // From 11 on a consumer knows what to do with an answer of a follower; a debugging one may read anywhere.
        allow_follower: version >= 11 || replica_id < FetchParams::ORDINARY_CONSUMER_ID,
    }
}

/// `IsolationLevel`: read_uncommitted and read_committed. Kafka takes any other for a bug, its own.
pub(super) fn is_isolation_level(level: i8) -> bool {
    matches!(level, 0 | 1)
}

fn session_metadata(version: i16, request: &FetchRequest) -> FetchMetadata {
    if version < FIRST_VERSION_WITH_SESSIONS {
        return FetchMetadata::LEGACY;
    }
    FetchMetadata {
        session_id: request.session_id,
        epoch: request.session_epoch,
    }
}

/// By id from 13 on; the id of a topic that is not known here stays without a name.
fn topic_of(
    topic: &str,
    topic_id: Uuid,
    uses_topic_ids: bool,
    image: &MetadataImage,
) -> (Uuid, Option<Arc<str>>) {
    if uses_topic_ids {
        return (topic_id, image.topics.name_of(topic_id));
    }
    // The image's own string where there is one: no copy.
    let known = image.topics.by_name(topic).map(|topic| topic.name.clone());
    (Uuid::nil(), Some(known.unwrap_or_else(|| Arc::from(topic))))
}

/// A partition that is named twice counts once, with what was said last.
fn requested_partitions(
    request: &FetchRequest,
    uses_topic_ids: bool,
    image: &MetadataImage,
) -> Vec<(SessionPartition, FetchPartition)> {
    let count = request.topics.iter().map(|topic| topic.partitions.len()).sum();
    let mut all = IndexMap::with_capacity(count);
    for fetch_topic in &request.topics {
        let (topic_id, topic) = topic_of(&fetch_topic.topic, fetch_topic.topic_id, uses_topic_ids, image);
        for requested in &fetch_topic.partitions {
            let partition = SessionPartition {
                topic_id,
                topic: topic.clone(),
                partition: requested.partition,
            };
            all.insert(partition, fetch_partition(requested));
        }
    }
    all.into_iter().collect()
}

fn fetch_partition(requested: &fetch_request::FetchPartition) -> FetchPartition {
    let optional = |epoch: i32| (epoch >= 0).then_some(epoch);
    FetchPartition {
        fetch_offset: requested.fetch_offset,
        log_start_offset: requested.log_start_offset,
        max_bytes: requested.partition_max_bytes,
        current_leader_epoch: optional(requested.current_leader_epoch),
        last_fetched_epoch: optional(requested.last_fetched_epoch),
    }
}

fn forgotten_partitions(request: &FetchRequest, uses_topic_ids: bool) -> Vec<SessionPartition> {
    let mut all = Vec::new();
    for forgotten in &request.forgotten_topics_data {
        let topic: Option<Arc<str>> = (!uses_topic_ids).then(|| Arc::from(&**forgotten.topic));
        let topic_id = if uses_topic_ids {
            forgotten.topic_id
        } else {
            Uuid::nil()
        };
        let partition = |partition: &i32| SessionPartition {
            topic_id,
            topic: topic.clone(),
            partition: *partition,
        };
        all.extend(forgotten.partitions.iter().map(partition));
    }
    all
}

/// What can be read, and the answers to what is refused before: they follow in the answer.
fn sort_out(
    partitions: Vec<(SessionPartition, FetchPartition)>,
    image: &MetadataImage,
) -> (Vec<(TopicIdPartition, FetchPartition)>, Vec<FetchAnswer>) {
    let mut interesting = Vec::with_capacity(partitions.len());
    let mut erroneous = Vec::new();
    for (partition, request) in partitions {
        match resolve(&partition, image) {
            Ok(id) => interesting.push((id, request)),
            Err(error) => erroneous.push(FetchAnswer {
                partition,
                request,
                data: refused(error),
            }),
        }
    }
    (interesting, erroneous)
}

async fn fetch(
    context: &RequestContext,
    params: &FetchParams,
    partitions: Vec<(TopicIdPartition, FetchPartition)>,
) -> Vec<FetchAnswer> {
    if partitions.is_empty() {
        return Vec::new();
    }
    let replica_manager = &context.broker.replica_manager;
    let result = replica_manager.fetch_messages(params, &partitions).await;
    let answer = |((id, data), (_, request)): ((TopicIdPartition, _), (_, FetchPartition))| FetchAnswer {
        partition: SessionPartition {
            topic_id: id.topic_id,
            topic: Some(id.topic_partition.topic),
            partition: id.topic_partition.partition,
        },
        request,
        data,
    };
    result.into_iter().zip(partitions).map(answer).collect()
}

fn resolve(partition: &SessionPartition, image: &MetadataImage) -> Result<TopicIdPartition, ReplicaError> {
    let Some(topic) = &partition.topic else {
        return Err(ReplicaError::UnknownTopicId);
    };
    let known = image.topics.by_name(topic);
    if !known.is_some_and(|topic| topic.partitions.contains_key(&partition.partition)) {
        let partition = format!("{topic}-{}", partition.partition);
        return Err(ReplicaError::UnknownTopicOrPartition { partition });
    }
    Ok(TopicIdPartition::new(
        partition.topic_id,
        topic.clone(),
        partition.partition,
    ))
}

/// As Kafka answers before it reads: an empty list of aborted transactions, where an error of the read itself has none.
fn refused(error: ReplicaError) -> FetchPartitionData {
    FetchPartitionData {
        aborted_transactions: Some(Vec::new()),
        ..FetchPartitionData::failed(error)
    }
}

fn error_code(data: &FetchPartitionData, version: i16) -> ErrorCode {
    match data.error.as_ref().map_or(ErrorCode::None, replica_error) {
        // Clients of that time take a code that they do not know for a fatal one.
        ErrorCode::KafkaStorageError if version <= 5 => ErrorCode::NotLeaderOrFollower,
        error => error,
    }
}

fn encode(
    context: &RequestContext,
    session_id: i32,
    is_from_follower: bool,
    answers: &[FetchAnswer],
) -> Vec<ResponsePart> {
    let version = context.api_version;
    let mut leaders: Option<CurrentLeaders> = None;
    let mut partitions = Vec::with_capacity(answers.len());
    for answer in answers {
        let SessionPartition {
            topic_id,
            topic,
            partition,
        } = &answer.partition;
        let error = error_code(&answer.data, version);
        let moved = matches!(
            error,
            ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch
        );
        let current_leader = match topic {
            Some(topic) if moved && version >= 16 => {
                let id = TopicIdPartition::new(*topic_id, topic.clone(), *partition);
                Some(
                    leaders
                        .get_or_insert_with(|| CurrentLeaders::new(context))
                        .of(&id),
                )
            }
            _ => None,
        };
        partitions.push(PartitionAnswer {
            topic: topic.as_deref().unwrap_or(""),
            topic_id: *topic_id,
            partition: *partition,
            error,
            current_leader,
            data: &answer.data,
        });
    }
    // A follower knows where brokers are.
    let leaders = leaders.filter(|_| !is_from_follower);
    let node_endpoints = leaders.map(CurrentLeaders::into_endpoints).unwrap_or_default();
    FetchAnswerBody {
        error: ErrorCode::None,
        session_id,
        partitions: &partitions,
        node_endpoints: &node_endpoints,
    }
    .encode(version)
}

impl ErrorResponse<FetchRequest> for FetchResponse {
    /// Partitions are listed up to 12 only: an answer with names to a request with ids could not be told apart from one of old.
    fn error_response(context: &RequestContext, request: &FetchRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        let code = error.code.code();
        if context.api_version >= FIRST_VERSION_WITH_SESSIONS {
            response.error_code = code;
            response.session_id = request.session_id;
        }
        if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS {
            return response;
        }
        for requested in &request.topics {
            let mut topic = FetchableTopicResponse::default();
            topic.topic = requested.topic.clone();
            for requested in &requested.partitions {
                let mut partition = PartitionData::default();
                partition.partition_index = requested.partition;
                partition.error_code = code;
                partition.high_watermark = -1;
                partition.aborted_transactions = Some(Vec::new());
                partition.records = Some(bytes::Bytes::new());
                topic.partitions.push(partition);
            }
            response.responses.push(topic);
        }
        response
    }
}
