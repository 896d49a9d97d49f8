//! ListConfigResources (key 74), versions 0-1: the names of what has configs, by kind (KIP-714, KIP-1142).
//!
//! - 0: subscriptions to clients' metrics only. 1: kinds of resource; none named: all.

use super::cluster_view::ClusterView;
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::metadata::{ConfigResourceType, MetadataImage};
use crate::protocol::messages::list_config_resources_response::ConfigResource;
use crate::protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use crate::protocol::{ErrorCode, StrBytes};

/// In the order of the answer.
const KINDS: [ConfigResourceType; 5] = [
    ConfigResourceType::Group,
    ConfigResourceType::ClientMetrics,
    ConfigResourceType::BrokerLogger,
    ConfigResourceType::Broker,
    ConfigResourceType::Topic,
];

pub async fn handle(
    context: &RequestContext,
    request: ListConfigResourcesRequest,
) -> Result<Reply<ListConfigResourcesResponse>, ApiError> {
    let mut wanted: Vec<ConfigResourceType> = match context.api_version {
        0 => vec![ConfigResourceType::ClientMetrics],
        _ => request
            .resource_types
            .iter()
            .map(|id| ConfigResourceType::from_id(*id))
            .collect(),
    };
    if wanted.contains(&ConfigResourceType::Unknown) {
        return Err(ErrorCode::UnsupportedVersion.into());
    }
    if wanted.is_empty() {
        wanted.extend(KINDS);
    }
    let image = context.broker.metadata.image();
    let mut response = ListConfigResourcesResponse::default();
    for kind in KINDS.into_iter().filter(|kind| wanted.contains(kind)) {
        let names = names_of(context, &image, kind);
        response.config_resources.extend(names.into_iter().map(|name| {
            ConfigResource::default()
                .with_resource_name(StrBytes::from_string(name))
                .with_resource_type(kind.id())
        }));
    }
    Ok(Reply::Value(response))
}

fn names_of(context: &RequestContext, image: &MetadataImage, kind: ConfigResourceType) -> Vec<String> {
    match kind {
        ConfigResourceType::Topic => {
            let topics = image.topics.iter();
            topics.map(|topic| topic.name.to_string()).collect()
        }
        ConfigResourceType::Broker | ConfigResourceType::BrokerLogger => {
            let listener = context.listener_name();
            let view = ClusterView { image, listener };
            view.alive_nodes().map(|node| node.id().0.to_string()).collect()
        }
        ConfigResourceType::Group | ConfigResourceType::ClientMetrics => image
            .configs
            .iter()
            .filter(|(resource, _)| resource.resource_type == kind)
            .map(|(resource, _)| resource.name.to_string())
            .collect(),
        ConfigResourceType::Unknown => Vec::new(),
    }
}

impl ErrorResponse<ListConfigResourcesRequest> for ListConfigResourcesResponse {
    fn error_response(_: &RequestContext, _: &ListConfigResourcesRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
