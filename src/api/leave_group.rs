//! LeaveGroup (key 13), versions 0-5: members leave at once instead of timing out.
//!
//! - 0 to 2 name one member, and have its error as the only one. 1: throttle time. 3: many members, static ones by their
//!   instance id (KIP-345). 4: flexible. 5: reason (KIP-800).

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::leave_group_request::MemberIdentity;
use crate::protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

pub async fn handle(
    context: &RequestContext,
    mut request: LeaveGroupRequest,
) -> Result<Reply<LeaveGroupResponse>, ApiError> {
    if context.api_version < 3 {
        request.members = vec![MemberIdentity::default().with_member_id(request.member_id.clone())];
    }
    let response = context.broker.group_coordinator.leave_group(request).await;
    Ok(Reply::Value(in_version(context.api_version, response)))
}

fn in_version(version: i16, response: LeaveGroupResponse) -> LeaveGroupResponse {
    if version >= 3 {
        return response;
    }
    let member_error = response.members.first().map_or(0, |member| member.error_code);
    let error_code = match response.error_code {
        0 => member_error,
        error_code => error_code,
    };
    LeaveGroupResponse::default().with_error_code(error_code)
}

impl ErrorResponse<LeaveGroupRequest> for LeaveGroupResponse {
    fn error_response(_context: &RequestContext, _request: &LeaveGroupRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}

#[cfg(test)]
mod leave_group_test {
    use super::*;
    use crate::protocol::ErrorCode;
    use crate::protocol::messages::leave_group_response::MemberResponse;

    #[test]
    fn error_of_the_one_member_is_that_of_the_response_before_version_3() {
        let unknown = ErrorCode::UnknownMemberId.code();
        let member = MemberResponse::default().with_error_code(unknown);
        let response = LeaveGroupResponse::default().with_members(vec![member]);
        assert_eq!(in_version(3, response.clone()), response);
        assert_eq!(
            in_version(2, response),
            LeaveGroupResponse::default().with_error_code(unknown)
        );
        let failed = LeaveGroupResponse::default().with_error_code(ErrorCode::NotCoordinator.code());
        assert_eq!(in_version(0, failed.clone()), failed);
    }
}
