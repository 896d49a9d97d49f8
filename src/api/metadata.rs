//! Metadata (key 3), versions 0-13: brokers, topics and partitions as this listener's clients see them.
//!
//! - 0: no topics means all topics; a partition with an unavailable replica is an error. 1: controller, rack, null means all.
//! - 4: the client may forbid auto-creation. 5: offline replicas. 6: LISTENER_NOT_FOUND. 7: leader epochs.
//! - 8: authorized operations (KIP-430; of the cluster in 8-10 only). 9: flexible. 10: topic ids (KIP-516). 12: topics by id.
//! - 13: an error code of the whole response (KIP-1102).
//!
//! The controller id is that of any live broker: brokers forward (KIP-590). An unknown topic that may be created is answered
//! UNKNOWN_TOPIC_OR_PARTITION while it comes to be.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::auto_topic_creation::is_internal;
use super::cluster_view::{BrokerNode, ClusterView, broker_ids};
use super::{ApiError, ErrorResponse, Reply, RequestContext, authorized_operations};
use crate::controller::topic_name;
use crate::metadata::{PartitionRegistration, TopicImage};
use crate::protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use crate::protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use crate::protocol::{ErrorCode, StrBytes};

const NO_ID: i32 = -1;

pub async fn handle(
    context: &RequestContext,
    request: MetadataRequest,
) -> Result<Reply<MetadataResponse>, ApiError> {
    let image = context.broker.metadata.image();
    let view = ClusterView {
        image: &image,
        listener: context.listener_name(),
    };
    let wanted = Wanted::of(context.api_version, &request)?;
    let mut missing = Vec::new();
    let mut topics = match wanted {
        Wanted::All => all_topics(context.api_version, view),
        Wanted::Ids(ids) => topics_by_id(context.api_version, view, ids),
        Wanted::Names(names) => topics_by_name(context.api_version, view, names, &mut missing),
    };
    if context.broker.config.auto_create_topics_enable
        && (request.allow_auto_topic_creation || context.api_version < 4)
    {
        let asker = context.for_controller(context.broker.config.request_timeout_ms);
        context
            .broker
            .auto_topic_creation
            .create(&context.broker, asker, missing);
    }
    if context.api_version >= 8 && request.include_topic_authorized_operations {
        // Of an unknown id there is no name, and nothing that could be allowed.
        for topic in topics.iter_mut().filter(|topic| topic.name.is_some()) {
            topic.topic_authorized_operations = authorized_operations::TOPIC;
        }
    }
    let mut response = MetadataResponse::default();
    response.brokers = view.alive_nodes().map(broker).collect();
    response.cluster_id = Some(StrBytes::from_string(context.broker.cluster_id.clone()));
    response.controller_id = BrokerId(view.random_alive_broker_id().unwrap_or(NO_ID));
    response.topics = topics;
    if (8..=10).contains(&context.api_version) && request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = authorized_operations::CLUSTER;
    }
    Ok(Reply::Value(response))
}

/// Which topics a request names.
enum Wanted {
    All,
    /// Some topic has an id: names play no part then.
    Ids(BTreeSet<Uuid>),
    Names(BTreeSet<StrBytes>),
}

impl Wanted {
    fn of(api_version: i16, request: &MetadataRequest) -> Result<Self, ApiError> {
        let Some(topics) = &request.topics else {
            return Ok(Self::All);
        };
        if topics.is_empty() && api_version == 0 {
            return Ok(Self::All);
        }
        if api_version < 12 {
            let invalid = |message: &str| {
                ApiError::new(
                    ErrorCode::InvalidRequest,
                    format!("{message} for version {api_version}"),
                )
            };
            if topics.iter().any(|topic| topic.name.is_none()) {
                return Err(invalid("Topic name can not be null"));
            }
            if topics.iter().any(|topic| !topic.topic_id.is_nil()) {
                return Err(invalid("Topic IDs are not supported in requests"));
            }
        }
        let ids: BTreeSet<Uuid> = topics
            .iter()
            .map(|topic| topic.topic_id)
            .filter(|id| !id.is_nil())
            .collect();
        if !ids.is_empty() {
            return Ok(Self::Ids(ids));
        }
        topics
            .iter()
            .map(|topic| topic.name.as_ref().map(|name| name.0.clone()))
            .collect::<Option<BTreeSet<_>>>()
            .map(Self::Names)
            // Neither a name nor an id: Kafka trips over it.
            .ok_or_else(|| ErrorCode::UnknownServerError.into())
    }
}

fn all_topics(api_version: i16, view: ClusterView<'_>) -> Vec<MetadataResponseTopic> {
    let topics = view.image.topics.sorted_by_name();
    topics
        .into_iter()
        .map(|topic| existing(api_version, view, topic))
        .collect()
}

fn topics_by_id(api_version: i16, view: ClusterView<'_>, ids: BTreeSet<Uuid>) -> Vec<MetadataResponseTopic> {
    let unknown = |id| {
        let mut topic = MetadataResponseTopic::default();
        topic.error_code = ErrorCode::UnknownTopicId.code();
        topic.name = None;
        topic.topic_id = id;
        topic
    };
    let topic = |id| match view.image.topics.by_id(id) {
        Some(topic) => existing(api_version, view, topic),
        None => unknown(id),
    };
    ids.into_iter().map(topic).collect()
}

/// `missing` gets the names of those that could be created.
fn topics_by_name(
    api_version: i16,
    view: ClusterView<'_>,
    names: BTreeSet<StrBytes>,
    missing: &mut Vec<String>,
) -> Vec<MetadataResponseTopic> {
    let mut topics = Vec::with_capacity(names.len());
    for name in names {
        if let Some(topic) = view.image.topics.by_name(&name) {
            topics.push(existing(api_version, view, topic));
            continue;
        }
        let error = match topic_name::validate(&name) {
            Ok(()) => {
                missing.push(name.to_string());
                ErrorCode::UnknownTopicOrPartition
            }
            Err(_) => ErrorCode::InvalidTopicException,
        };
        let mut topic = MetadataResponseTopic::default();
        topic.error_code = error.code();
        topic.is_internal = is_internal(&name);
        topic.name = Some(TopicName(name));
        topics.push(topic);
    }
    topics
}

fn existing(api_version: i16, view: ClusterView<'_>, image: &TopicImage) -> MetadataResponseTopic {
    let mut topic = MetadataResponseTopic::default();
    topic.name = Some(TopicName(StrBytes::from_string(image.name.to_string())));
    topic.topic_id = image.id;
    topic.is_internal = is_internal(&image.name);
    topic.partitions = image
        .partitions
        .iter()
        .map(|(index, registration)| partition(api_version, view, *index, registration))
        .collect();
    topic
}

fn partition(
    api_version: i16,
    view: ClusterView<'_>,
    index: i32,
    registration: &PartitionRegistration,
) -> MetadataResponsePartition {
    // Version 0 tells of live replicas only.
    let visible = |ids: &[i32]| match api_version {
        0 => ids
            .iter()
            .copied()
            .filter(|id| view.alive_node(*id).is_some())
            .map(BrokerId)
            .collect(),
        _ => broker_ids(ids),
    };
    let mut partition = MetadataResponsePartition::default();
    partition.partition_index = index;
    partition.leader_epoch = registration.leader_epoch;
    partition.replica_nodes = visible(&registration.replicas);
    partition.isr_nodes = visible(&registration.isr);
    partition.offline_replicas = view.offline_replicas(registration);
    let error = match view.node(registration.leader) {
        Some(_)
            if partition.replica_nodes.len() < registration.replicas.len()
                || partition.isr_nodes.len() < registration.isr.len() =>
        {
            ErrorCode::ReplicaNotAvailable
        }
        Some(_) => ErrorCode::None,
        None if view.image.cluster.broker(registration.leader).is_some() && api_version >= 6 => {
            ErrorCode::ListenerNotFound
        }
        None => ErrorCode::LeaderNotAvailable,
    };
    partition.error_code = error.code();
    partition.leader_id = BrokerId(match view.node(registration.leader) {
        Some(node) => node.broker.id,
        None => NO_ID,
    });
    partition
}

fn broker(node: BrokerNode<'_>) -> MetadataResponseBroker {
    let mut broker = MetadataResponseBroker::default();
    broker.node_id = node.id();
    broker.host = node.host();
    broker.port = node.port();
    broker.rack = node.rack();
    broker
}

impl ErrorResponse<MetadataRequest> for MetadataResponse {
    fn error_response(context: &RequestContext, request: &MetadataRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.controller_id = BrokerId(NO_ID);
        response.topics = request
            .topics
            .iter()
            .flatten()
            .map(|asked| {
                let mut topic = MetadataResponseTopic::default();
                topic.error_code = error.code.code();
                // Kafka turns null into the empty string here.
                topic.name = Some(asked.name.clone().unwrap_or_default());
                topic.topic_id = asked.topic_id;
                topic
            })
            .collect();
        if context.api_version >= 13 {
            response.error_code = error.code.code();
        }
        response
    }
}

#[cfg(test)]
#[path = "metadata_test.rs"]
mod metadata_test;
