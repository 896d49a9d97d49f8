//! BrokerRegistration (key 62), versions 0-4: a broker announces itself (KIP-631).
//!
//! - 1: migration flag. 2: log directories (KIP-858). 3: the epoch it had before (KIP-966). 4: cordoned directories (KIP-1066).
//!
//! On controller listeners only; the rules are the controller's.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::{BrokerRegistrationRequest, BrokerRegistrationResponse};

pub async fn handle(
    context: &RequestContext,
    request: BrokerRegistrationRequest,
) -> Result<Reply<BrokerRegistrationResponse>, ApiError> {
    let asker = context.for_controller(context.broker.config.controller_quorum_request_timeout_ms);
    let response = context.broker.controller.register_broker(&asker, request).await?;
    Ok(Reply::Value(response))
}

impl ErrorResponse<BrokerRegistrationRequest> for BrokerRegistrationResponse {
    fn error_response(_: &RequestContext, _: &BrokerRegistrationRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        response.broker_epoch = -1;
        response
    }
}
