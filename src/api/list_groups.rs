//! ListGroups (key 16), versions 0-5: the groups that this broker coordinates.
//!
//! - 1: throttle time. 3: flexible. 4: states, and a filter for them (KIP-518). 5: types, and a filter for them (KIP-848).

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::{ListGroupsRequest, ListGroupsResponse};

pub async fn handle(
    context: &RequestContext,
    request: ListGroupsRequest,
) -> Result<Reply<ListGroupsResponse>, ApiError> {
    let groups = context
        .broker
        .group_coordinator
        .list_groups(request.states_filter, request.types_filter)
        .await?;
    Ok(Reply::Value(ListGroupsResponse::default().with_groups(groups)))
}

impl ErrorResponse<ListGroupsRequest> for ListGroupsResponse {
    fn error_response(_context: &RequestContext, _request: &ListGroupsRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}
