//! BrokerHeartbeat (key 63), versions 0-2: a broker is alive, wants to be unfenced, or to leave (KIP-631).
//!
//! - 1: offline log directories (KIP-858). 2: cordoned log directories (KIP-1066).
//!
//! On controller listeners only; the rules are the controller's.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::{BrokerHeartbeatRequest, BrokerHeartbeatResponse};

pub async fn handle(
    context: &RequestContext,
    request: BrokerHeartbeatRequest,
) -> Result<Reply<BrokerHeartbeatResponse>, ApiError> {
    let asker = context.for_controller(context.broker.config.broker_heartbeat_interval_ms / 2);
    let response = context
        .broker
        .controller
        .broker_heartbeat(&asker, request)
        .await?;
    Ok(Reply::Value(response))
}

impl ErrorResponse<BrokerHeartbeatRequest> for BrokerHeartbeatResponse {
    fn error_response(_: &RequestContext, _: &BrokerHeartbeatRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        response.is_fenced = true;
        response
    }
}
