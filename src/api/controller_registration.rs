//! ControllerRegistration (key 70), version 0: a controller announces its endpoints and features (KIP-919).
//!
//! Needs metadata.version 3.7-IV0.
//!
//! On controller listeners only; the rules are the controller's.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::{ControllerRegistrationRequest, ControllerRegistrationResponse};

pub async fn handle(
    context: &RequestContext,
    request: ControllerRegistrationRequest,
) -> Result<Reply<ControllerRegistrationResponse>, ApiError> {
    let asker = context.for_controller(context.broker.config.controller_quorum_request_timeout_ms);
    let response = context
        .broker
        .controller
        .register_controller(&asker, request)
        .await?;
    Ok(Reply::Value(response))
}

impl ErrorResponse<ControllerRegistrationRequest> for ControllerRegistrationResponse {
    fn error_response(_: &RequestContext, _: &ControllerRegistrationRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        response.error_message = error.message.clone().map(crate::protocol::StrBytes::from_string);
        response
    }
}
