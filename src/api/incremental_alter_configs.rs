//! IncrementalAlterConfigs (key 44), versions 0-1: sets, deletes and changes single configs of topics, nodes, loggers, groups and
//! client metrics subscriptions (KIP-339).
//!
//! - 1: flexible.
//!
//! The checks of a broker are in `config_changes`, the rules of what is stored are the controller's.

use super::config_changes::{self, AnsweredResource, AskedChanges, AskedConfig, AskedResource};
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::StrBytes;
use crate::protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use crate::protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

pub async fn handle(
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> Result<Reply<IncrementalAlterConfigsResponse>, ApiError> {
    let answered = config_changes::alter(context, asked(&request)).await?;
    Ok(Reply::Value(response(answered)))
}

fn asked(request: &IncrementalAlterConfigsRequest) -> AskedChanges {
    let resources = request.resources.iter().map(|resource| AskedResource {
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        configs: resource
            .configs
            .iter()
            .map(|config| AskedConfig {
                name: config.name.clone(),
                operation: Some(config.config_operation),
                value: config.value.clone(),
            })
            .collect(),
    });
    AskedChanges {
        resources: resources.collect(),
        validate_only: request.validate_only,
        is_incremental: true,
    }
}

fn response(answered: Vec<AnsweredResource>) -> IncrementalAlterConfigsResponse {
    let responses = answered.into_iter().map(|answered| {
        let error = answered.result.err();
        AlterConfigsResourceResponse::default()
            .with_error_code(error.as_ref().map_or(0, |error| error.code.code()))
            .with_error_message(error.and_then(|error| error.message).map(StrBytes::from_string))
            .with_resource_type(answered.resource_type)
            .with_resource_name(answered.resource_name)
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

impl ErrorResponse<IncrementalAlterConfigsRequest> for IncrementalAlterConfigsResponse {
    fn error_response(
        _: &RequestContext,
        request: &IncrementalAlterConfigsRequest,
        error: &ApiError,
    ) -> Self {
        let resources = asked(request).resources;
        let failed = resources
            .iter()
            .map(|resource| AnsweredResource::new(resource, Err(error.clone())));
        response(failed.collect())
    }
}
