//! JoinGroup (key 11), versions 0-9: a member enters a classic group, or a new generation of it.
//!
//! - 0 has one timeout for session and rebalance. 1: a rebalance timeout. 2: throttle time. 4: a member must come back with
//!   the id it is given (KIP-394). 5: static members (KIP-345). 6: flexible. 7: protocol type, null protocol name. 8: reason.
//!   9: the leader may be told to skip the assignment (KIP-814).
//!
//! The answer waits until all members have joined.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::coordinator::group::service::JoiningClient;
use crate::protocol::StrBytes;
use crate::protocol::messages::{JoinGroupRequest, JoinGroupResponse};

pub async fn handle(
    context: &RequestContext,
    mut request: JoinGroupRequest,
) -> Result<Reply<JoinGroupResponse>, ApiError> {
    if context.api_version == 0 {
        request.rebalance_timeout_ms = request.session_timeout_ms;
    }
    let client = JoiningClient {
        client_id: StrBytes::from_string(context.client_id_or_empty().to_owned()),
        client_host: StrBytes::from_string(context.client_host()),
        requires_known_member_id: context.api_version >= 4,
        supports_skipping_assignment: context.api_version >= 9,
    };
    let response = context.broker.group_coordinator.join_group(client, request).await;
    Ok(Reply::Value(in_version(context.api_version, response)))
}

/// No protocol is null from version 7 on, and empty before.
fn in_version(version: i16, mut response: JoinGroupResponse) -> JoinGroupResponse {
    response.protocol_name = match response.protocol_name {
        None if version < 7 => Some(StrBytes::new()),
        Some(name) if version >= 7 && name.is_empty() => None,
        name => name,
    };
    response
}

impl ErrorResponse<JoinGroupRequest> for JoinGroupResponse {
    fn error_response(context: &RequestContext, _request: &JoinGroupRequest, error: &ApiError) -> Self {
        in_version(
            context.api_version,
            Self::default().with_error_code(error.code.code()),
        )
    }
}

#[cfg(test)]
mod join_group_test {
    use super::*;

    #[test]
    fn protocol_that_is_missing_is_null_or_empty_as_the_version_has_it() {
        let none = JoinGroupResponse::default().with_protocol_name(None);
        assert_eq!(in_version(6, none.clone()).protocol_name, Some(StrBytes::new()));
        assert_eq!(in_version(7, none).protocol_name, None);
        let empty = JoinGroupResponse::default().with_protocol_name(Some(StrBytes::new()));
        assert_eq!(in_version(9, empty).protocol_name, None);
        let range = JoinGroupResponse::default().with_protocol_name(Some(StrBytes::from_static_str("range")));
        assert_eq!(in_version(9, range.clone()), range);
    }
}
