//! AssignReplicasToDirs (key 73), version 0: in which of its log directories a broker has its replicas (KIP-858).
//!
//! On controller listeners only; the rules are the controller's.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};

pub async fn handle(
    context: &RequestContext,
    request: AssignReplicasToDirsRequest,
) -> Result<Reply<AssignReplicasToDirsResponse>, ApiError> {
    let asker = context.for_controller(context.broker.config.controller_quorum_request_timeout_ms);
    let response = context
        .broker
        .controller
        .assign_replicas_to_dirs(&asker, request)
        .await?;
    Ok(Reply::Value(response))
}

impl ErrorResponse<AssignReplicasToDirsRequest> for AssignReplicasToDirsResponse {
    fn error_response(_: &RequestContext, _: &AssignReplicasToDirsRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        response
    }
}
