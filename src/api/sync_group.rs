//! SyncGroup (key 14), versions 0-5: the leader hands in the assignments, each member gets its own.
//!
//! - 1: throttle time. 3: static members (KIP-345). 4: flexible. 5: protocol type and name, which must then be there (KIP-559).
//!
//! The answer waits until the assignments are committed.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::ErrorCode;
use crate::protocol::messages::{SyncGroupRequest, SyncGroupResponse};

pub async fn handle(
    context: &RequestContext,
    request: SyncGroupRequest,
) -> Result<Reply<SyncGroupResponse>, ApiError> {
    let names_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    if context.api_version >= 5 && !names_protocol {
        return Err(ErrorCode::InconsistentGroupProtocol.into());
    }
    let response = context.broker.group_coordinator.sync_group(request).await;
    Ok(Reply::Value(response))
}

impl ErrorResponse<SyncGroupRequest> for SyncGroupResponse {
    fn error_response(_context: &RequestContext, _request: &SyncGroupRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
