//! UpdateFeatures (key 57), versions 0-2: raises and lowers finalized feature levels (KIP-584, KIP-778).
//!
//! - 1: upgrade types and validateOnly; version 0 cannot ask for a downgrade (its flag says nothing, as in Kafka).
//!   2: no results by feature.
//!
//! The rules are the controller's; the same on broker and controller listeners.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::StrBytes;
use crate::protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};

pub async fn handle(
    context: &RequestContext,
    request: UpdateFeaturesRequest,
) -> Result<Reply<UpdateFeaturesResponse>, ApiError> {
    let asker = context.for_controller(request.timeout_ms);
    let response = context
        .broker
        .controller
        .update_features(&asker.without_deadline(), request)
        .await?;
    context.broker.wait_until_published().await;
    Ok(Reply::Value(response))
}

impl ErrorResponse<UpdateFeaturesRequest> for UpdateFeaturesResponse {
    fn error_response(_: &RequestContext, _: &UpdateFeaturesRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        response.error_message = error.message.clone().map(StrBytes::from_string);
        response
    }
}
