//! ApiVersions (key 18), versions 0-5: what this listener serves, and which features the cluster has.
//!
//! - 1: throttle time. 3: software name and version of the client (KIP-511), flexible, features (KIP-584).
//! - 4: features whose lowest level is 0 are listed (KIP-1022); older clients cannot read them.
//! - 5: the client says whom it means to talk to; the wrong cluster or node must bootstrap again (KIP-1242);
//!   brokers only check it.
//!
//! A request above the range is answered in version 0 with UNSUPPORTED_VERSION and the one entry that helps: ApiVersions' own.
//! The response's header is always version 0.

use super::table::{self, ApiRow};
use super::{ApiError, ErrorResponse, ListenerScope, Reply, RequestContext};
use crate::metadata::features::SUPPORTED_FEATURES;
use crate::metadata::metadata_version::KRAFT_VERSION;
use crate::metadata::{MetadataImage, MetadataVersion};
use crate::protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use crate::protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use crate::protocol::{ApiKey, ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    request: ApiVersionsRequest,
) -> Result<Reply<ApiVersionsResponse>, ApiError> {
    if context.requested_version != context.api_version {
        return Err(ErrorCode::UnsupportedVersion.into());
    }
    if context.api_version >= 5 && request.cluster_id.is_none() != (request.node_id == -1) {
        return Err(ErrorCode::InvalidRequest.into());
    }
    if context.api_version >= 3 {
        if !is_software_token(&request.client_software_name)
            || !is_software_token(&request.client_software_version)
        {
            return Err(ErrorCode::InvalidRequest.into());
        }
        remember_client(context, &request);
    }
    if context.api_version >= 5
        && context.scope() == ListenerScope::Broker
        && is_meant_for_another(context, &request)
    {
        return Err(ErrorCode::RebootstrapRequired.into());
    }
    let image = context.broker.metadata.load();
    let kraft_version = context.broker.raft.kraft_version();
    Ok(Reply::Value(response(context, &image, kraft_version)))
}

fn response(context: &RequestContext, image: &MetadataImage, kraft_version: i16) -> ApiVersionsResponse {
    let mut response = ApiVersionsResponse::default();
    response.api_keys = table::rows(context.scope()).map(entry).collect();
    response.supported_features = SUPPORTED_FEATURES
        .iter()
        .filter(|(_, range)| context.api_version >= 4 || range.min > 0)
        .map(|(name, range)| {
            let mut feature = SupportedFeatureKey::default();
            feature.name = StrBytes::from_static_str(name);
            feature.min_version = range.min;
            feature.max_version = range.max;
            feature
        })
        .collect();
    response.finalized_features_epoch = image.offset();
    response.finalized_features = finalized(image, kraft_version);
    response
}

fn finalized(image: &MetadataImage, kraft_version: i16) -> Vec<FinalizedFeatureKey> {
    let feature = |name: StrBytes, level: i16| {
        let mut feature = FinalizedFeatureKey::default();
        feature.name = name;
        feature.min_version_level = level;
        feature.max_version_level = level;
        feature
    };
    let mut features: Vec<_> = image
        .features
        .finalized
        .iter()
        .map(|(name, level)| feature(StrBytes::from_string(name.clone()), *level))
        .collect();
    if let Some(version) = image.features.metadata_version {
        features.push(feature(
            StrBytes::from_static_str(MetadataVersion::FEATURE_NAME),
            version.level(),
        ));
    }
    if kraft_version > 0 {
        features.push(feature(StrBytes::from_static_str(KRAFT_VERSION), kraft_version));
    }
    features
}

fn entry(row: &ApiRow) -> ApiVersion {
    let mut entry = ApiVersion::default();
    entry.api_key = row.key.code();
    entry.min_version = row.advertised_min_version;
    entry.max_version = row.max_version;
    entry
}

/// Letters and digits, with `-` and `.` inside.
fn is_software_token(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'.';
    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(is_inside)
}

fn remember_client(context: &RequestContext, request: &ApiVersionsRequest) {
    let copy = |text: &StrBytes| StrBytes::from_string(text.to_string());
    context
        .connection
        .client_information
        .get_or_init(|| super::context::ClientInformation {
            software_name: copy(&request.client_software_name),
            software_version: copy(&request.client_software_version),
        });
}

/// Cluster and node come together or not at all.
fn is_meant_for_another(context: &RequestContext, request: &ApiVersionsRequest) -> bool {
    match &request.cluster_id {
        Some(cluster_id) => {
            **cluster_id != *context.broker.cluster_id || request.node_id != context.broker.node_id
        }
        None => false,
    }
}

impl ErrorResponse<ApiVersionsRequest> for ApiVersionsResponse {
    fn error_response(_: &RequestContext, _: &ApiVersionsRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        if error.code == ErrorCode::UnsupportedVersion {
            response.api_keys = table::row(ApiKey::ApiVersions).map(entry).into_iter().collect();
        }
        response
    }
}

#[cfg(test)]
#[path = "api_versions_test.rs"]
mod api_versions_test;
