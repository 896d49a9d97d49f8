//! AllocateProducerIds (key 67), version 0: a block of producer ids for a broker (KIP-730).
//!
//! The block belongs to the broker for ever; ids of a block that it did not use are lost, never given twice.
//!
//! On controller listeners only; the rules are the controller's.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};

pub async fn handle(
    context: &RequestContext,
    request: AllocateProducerIdsRequest,
) -> Result<Reply<AllocateProducerIdsResponse>, ApiError> {
    let asker = context.for_controller(context.broker.config.controller_quorum_request_timeout_ms);
    let response = context
        .broker
        .controller
        .allocate_producer_ids(&asker, request)
        .await?;
    Ok(Reply::Value(response))
}

impl ErrorResponse<AllocateProducerIdsRequest> for AllocateProducerIdsResponse {
    fn error_response(_: &RequestContext, _: &AllocateProducerIdsRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        response
    }
}
