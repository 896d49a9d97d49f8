//! DescribeCluster (key 60), versions 0-2: the cluster's id, its controller and its brokers, or on a controller listener its
//! controllers.
//!
//! - 1: the endpoint type that the client means to talk to (KIP-919). 2: fenced brokers on demand (KIP-1073).

use super::cluster_view::{BrokerNode, ClusterView};
use super::{ApiError, ErrorResponse, ListenerScope, Reply, RequestContext, authorized_operations};
use crate::protocol::messages::describe_cluster_response::DescribeClusterBroker;
use crate::protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};
use crate::protocol::{ErrorCode, StrBytes};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub async fn handle(
    context: &RequestContext,
    request: DescribeClusterRequest,
) -> Result<Reply<DescribeClusterResponse>, ApiError> {
    let own_type = match context.scope() {
        ListenerScope::Broker => BROKERS,
        ListenerScope::Controller => CONTROLLERS,
    };
    check_endpoint_type(own_type, request.endpoint_type, context.api_version)?;
    let mut response = DescribeClusterResponse::default();
    response.endpoint_type = own_type;
    response.cluster_id = StrBytes::from_string(context.broker.cluster_id.clone());
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = authorized_operations::CLUSTER;
    }
    let image = context.broker.metadata.image();
    let view = ClusterView {
        image: &image,
        listener: context.listener_name(),
    };
    match context.scope() {
        ListenerScope::Broker => {
            response.controller_id = BrokerId(view.random_alive_broker_id().unwrap_or(-1));
            response.brokers = brokers(view, context.api_version >= 2 && request.include_fenced_brokers);
        }
        ListenerScope::Controller => {
            let metadata_version = image.features.metadata_version_or_minimum();
            if !metadata_version.is_controller_registration_supported() {
                return Err(ApiError::new(
                    ErrorCode::UnsupportedVersion,
                    "Direct-to-controller communication is not supported with the current MetadataVersion.",
                ));
            }
            response.brokers = controllers(view);
            let leader = context.broker.raft.leader_and_epoch().leader_id.map(BrokerId);
            let is_listed = |id: &BrokerId| response.brokers.iter().any(|node| node.broker_id == *id);
            response.controller_id = leader.filter(is_listed).unwrap_or(BrokerId(-1));
        }
    }
    Ok(Reply::Value(response))
}

/// Version 0 cannot say which it means, and means brokers; its clients know neither of the two codes.
fn check_endpoint_type(own: i8, wanted: i8, api_version: i16) -> Result<(), ApiError> {
    let code = |code| match api_version {
        0 => ErrorCode::InvalidRequest,
        _ => code,
    };
    let name = |endpoint_type| match endpoint_type {
        BROKERS => "BROKER",
        _ => "CONTROLLER",
    };
    match wanted {
        BROKERS | CONTROLLERS if wanted == own => Ok(()),
        BROKERS | CONTROLLERS => Err(ApiError::new(
            code(ErrorCode::MismatchedEndpointType),
            format!(
                "The request was sent to an endpoint of type {}, but we wanted an endpoint of type {}",
                name(own),
                name(wanted)
            ),
        )),
        _ => Err(ApiError::new(
            code(ErrorCode::UnsupportedEndpointType),
            format!("Unsupported endpoint type {wanted}"),
        )),
    }
}

fn brokers(view: ClusterView<'_>, with_fenced: bool) -> Vec<DescribeClusterBroker> {
    let nodes = view.image.cluster.brokers.keys().filter_map(|id| view.node(*id));
    nodes
        .filter(|node| with_fenced || !node.broker.fenced)
        .map(|node: BrokerNode<'_>| {
            let mut broker = DescribeClusterBroker::default();
            broker.broker_id = node.id();
            broker.host = node.host();
            broker.port = node.port();
            broker.rack = node.rack();
            broker.is_fenced = node.broker.fenced;
            broker
        })
        .collect()
}

/// The registered controllers that have this listener.
fn controllers(view: ClusterView<'_>) -> Vec<DescribeClusterBroker> {
    let mut controllers = Vec::new();
    for registration in view.image.cluster.controllers.values() {
        let endpoint = registration
            .listeners
            .iter()
            .find(|endpoint| &*endpoint.name == view.listener);
        if let Some(endpoint) = endpoint {
            let mut controller = DescribeClusterBroker::default();
            controller.broker_id = BrokerId(registration.id);
            controller.host = StrBytes::from_string(endpoint.host.to_string());
            controller.port = i32::from(endpoint.port);
            controllers.push(controller);
        }
    }
    controllers
}

impl ErrorResponse<DescribeClusterRequest> for DescribeClusterResponse {
    fn error_response(_: &RequestContext, _: &DescribeClusterRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        response.error_message = error.message.clone().map(StrBytes::from_string);
        response.controller_id = BrokerId(-1);
        response
    }
}

#[cfg(test)]
#[path = "describe_cluster_test.rs"]
mod describe_cluster_test;
