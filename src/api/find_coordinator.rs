//! FindCoordinator (key 10), versions 0-6: which broker keeps a group, a transactional id or a share group's state.
//!
//! - 1: kind of key. 3: flexible. 4: many keys at once (KIP-699). 5: TRANSACTION_ABORTABLE. 6: share groups (KIP-932).
//!
//! A coordinator lives where the partition of its internal topic leads; a topic that is not there yet is created, and the
//! client asks again. A share group's key names a partition of its state (`group:topic id:partition`). Kafka finds its
//! coordinator by the topic alone, whether or not share groups are switched on (`share.version`); so do we.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::auto_topic_creation::{GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC};
use super::cluster_view::{BrokerNode, ClusterView};
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::controller::ControllerContext;
use crate::coordinator::partition_for::partition_for;
use crate::protocol::messages::find_coordinator_response::Coordinator;
use crate::protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use crate::protocol::{ErrorCode, StrBytes};

const NO_NODE: i32 = -1;
const FIRST_VERSION_WITH_SHARE_GROUPS: i16 = 6;
/// Kafka's limit of an id's text.
const UUID_TEXT_MAX: usize = 24;
/// As Java decodes: padding or none, and bits that are too many are ignored.
const LENIENT_URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Kinds of key (`CoordinatorType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CoordinatorType {
    Group,
    Transaction,
    Share,
}

impl CoordinatorType {
    fn from_id(id: i8) -> Option<Self> {
        match id {
            0 => Some(Self::Group),
            1 => Some(Self::Transaction),
            2 => Some(Self::Share),
            _ => None,
        }
    }
}

pub async fn handle(
    context: &RequestContext,
    request: FindCoordinatorRequest,
) -> Result<Reply<FindCoordinatorResponse>, ApiError> {
    let image = context.broker.metadata.image();
    let view = ClusterView {
        image: &image,
        listener: context.listener_name(),
    };
    let coordinator_type = CoordinatorType::from_id(request.key_type).ok_or(ErrorCode::InvalidRequest)?;
    let mut response = FindCoordinatorResponse::default();
    if context.api_version >= 4 {
        for key in request.coordinator_keys {
            let found = find(context, view, coordinator_type, &key);
            response.coordinators.push(coordinator(key, found));
        }
        return Ok(Reply::Value(response));
    }
    let node = find(context, view, coordinator_type, &request.key)?;
    // Java's name of no error is its message.
    response.error_message = Some(StrBytes::from_static_str(ErrorCode::None.name()));
    response.node_id = node.id();
    response.host = node.host();
    response.port = node.port();
    Ok(Reply::Value(response))
}

fn find<'a>(
    context: &RequestContext,
    view: ClusterView<'a>,
    coordinator_type: CoordinatorType,
    key: &str,
) -> Result<BrokerNode<'a>, ErrorCode> {
    let topic_name = match coordinator_type {
        CoordinatorType::Group => GROUP_METADATA_TOPIC,
        CoordinatorType::Transaction => TRANSACTION_STATE_TOPIC,
        CoordinatorType::Share => {
            let is_asked_rightly = context.api_version >= FIRST_VERSION_WITH_SHARE_GROUPS;
            if !is_asked_rightly || !is_share_partition_key(key) {
                return Err(ErrorCode::InvalidRequest);
            }
            SHARE_GROUP_STATE_TOPIC
        }
    };
    let partition = || match coordinator_type {
        CoordinatorType::Group => context.broker.group_coordinator.partition_for(key),
        CoordinatorType::Transaction => context.broker.transaction_coordinator.partition_for(key),
        CoordinatorType::Share => partition_for(key, partition_count(view, topic_name)),
    };
    leader_of(view, topic_name, partition).unwrap_or_else(|| {
        let internal = ControllerContext::internal();
        context
            .broker
            .auto_topic_creation
            .create(&context.broker, internal, [topic_name.to_owned()]);
        Err(ErrorCode::CoordinatorNotAvailable)
    })
}

/// `SharePartitionKey`: a group, which may have colons, a topic id and a partition.
fn is_share_partition_key(key: &str) -> bool {
    let mut parts = key.rsplitn(3, ':');
    let (Some(partition), Some(topic_id), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let is_id = |text: &str| {
        text.len() <= UUID_TEXT_MAX && LENIENT_URL_SAFE.decode(text).is_ok_and(|bytes| bytes.len() == 16)
    };
    !group.trim().is_empty() && is_id(topic_id) && partition.parse::<i32>().is_ok()
}

fn partition_count(view: ClusterView<'_>, topic_name: &str) -> i32 {
    let topic = view.image.topics.by_name(topic_name);
    topic.map_or(0, |topic| {
        i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)
    })
}

/// Who leads a partition of `topic_name`; `None` if there is no such topic yet.
fn leader_of<'a>(
    view: ClusterView<'a>,
    topic_name: &str,
    partition: impl FnOnce() -> i32,
) -> Option<Result<BrokerNode<'a>, ErrorCode>> {
    let topic = view.image.topics.by_name(topic_name)?;
    let leader = topic
        .partitions
        .get(&partition())
        .and_then(|partition| view.alive_node(partition.leader));
    Some(leader.ok_or(ErrorCode::CoordinatorNotAvailable))
}

fn coordinator(key: StrBytes, found: Result<BrokerNode<'_>, ErrorCode>) -> Coordinator {
    let mut coordinator = Coordinator::default();
    coordinator.key = key;
    coordinator.error_message = Some(StrBytes::new());
    match found {
        Ok(node) => {
            coordinator.node_id = node.id();
            coordinator.host = node.host();
            coordinator.port = node.port();
        }
        Err(error) => {
            coordinator.error_code = error.code();
            coordinator.node_id = BrokerId(NO_NODE);
            coordinator.port = NO_NODE;
        }
    }
    coordinator
}

impl ErrorResponse<FindCoordinatorRequest> for FindCoordinatorResponse {
    fn error_response(context: &RequestContext, request: &FindCoordinatorRequest, error: &ApiError) -> Self {
        let message = StrBytes::from_string(error.message_or_default().to_owned());
        let mut response = Self::default();
        if context.api_version >= 4 {
            for key in &request.coordinator_keys {
                let mut failed = coordinator(key.clone(), Err(error.code));
                failed.error_message = Some(message.clone());
                response.coordinators.push(failed);
            }
            return response;
        }
        response.error_code = error.code.code();
        response.error_message = Some(message);
        response.node_id = BrokerId(NO_NODE);
        response.port = NO_NODE;
        response
    }
}

#[cfg(test)]
#[path = "find_coordinator_test.rs"]
mod find_coordinator_test;
