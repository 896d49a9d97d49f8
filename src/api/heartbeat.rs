//! Heartbeat (key 12), versions 0-4: a member shows that it lives, and learns of a rebalance.
//!
//! - 1: throttle time. 3: static members (KIP-345). 4: flexible.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::{HeartbeatRequest, HeartbeatResponse};

pub async fn handle(
    context: &RequestContext,
    request: HeartbeatRequest,
) -> Result<Reply<HeartbeatResponse>, ApiError> {
    let response = context.broker.group_coordinator.heartbeat(request).await;
    Ok(Reply::Value(response))
}

impl ErrorResponse<HeartbeatRequest> for HeartbeatResponse {
    fn error_response(_context: &RequestContext, _request: &HeartbeatRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
