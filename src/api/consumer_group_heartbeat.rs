//! ConsumerGroupHeartbeat (key 68), versions 0-1: joining, staying in and leaving a group of the consumer protocol (KIP-848).
//!
//! - 1: subscription by a regular expression; the client makes its member id (KIP-1082).
//!
//! Unsupported while `group.version` is finalized at 0.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use crate::protocol::{ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> Result<Reply<ConsumerGroupHeartbeatResponse>, ApiError> {
    let coordinator = &context.broker.group_coordinator;
    if !coordinator.serves_consumer_protocol() {
        return Err(ErrorCode::UnsupportedVersion.into());
    }
    let client_id = StrBytes::from_string(context.client_id_or_empty().to_owned());
    let client_host = StrBytes::from_string(context.client_host());
    let response = coordinator
        .consumer_group_heartbeat(client_id, client_host, context.api_version >= 1, request)
        .await;
    Ok(Reply::Value(response))
}

impl ErrorResponse<ConsumerGroupHeartbeatRequest> for ConsumerGroupHeartbeatResponse {
    fn error_response(
        _context: &RequestContext,
        _request: &ConsumerGroupHeartbeatRequest,
        error: &ApiError,
    ) -> Self {
        Self::default()
            .with_error_code(error.code.code())
            .with_error_message(None)
            .with_member_id(None)
    }
}
