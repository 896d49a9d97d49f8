//! DescribeGroups (key 15), versions 0-6: state and members of classic groups.
//!
//! - 1: throttle time. 3: authorized operations. 4: static members (KIP-345). 5: flexible. 6: GROUP_ID_NOT_FOUND with a
//!   message; before, a group that is not there is described as dead (KIP-1043).

use super::repeats::{as_named, each_once};
use super::{ApiError, ErrorResponse, Reply, RequestContext, authorized_operations};
use crate::protocol::messages::describe_groups_response::DescribedGroup;
use crate::protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

pub async fn handle(
    context: &RequestContext,
    request: DescribeGroupsRequest,
) -> Result<Reply<DescribeGroupsResponse>, ApiError> {
    let coordinator = &context.broker.group_coordinator;
    let mut groups = coordinator
        .describe_groups(each_once(&request.groups), context.api_version >= 6)
        .await;
    if groups.len() < request.groups.len() {
        let named = coordinator.in_order_of_answer(request.groups);
        groups = as_named(
            groups,
            named,
            |group| &group.group_id,
            |group| group.members.len(),
        )?;
    }
    if context.api_version >= 3 && request.include_authorized_operations {
        for group in groups.iter_mut().filter(|group| group.error_code == 0) {
            group.authorized_operations = authorized_operations::GROUP;
        }
    }
    Ok(Reply::Value(
        DescribeGroupsResponse::default().with_groups(groups),
    ))
}

impl ErrorResponse<DescribeGroupsRequest> for DescribeGroupsResponse {
    fn error_response(_context: &RequestContext, request: &DescribeGroupsRequest, error: &ApiError) -> Self {
        let groups = request.groups.iter().map(|group_id| {
            DescribedGroup::default()
                .with_group_id(group_id.clone())
                .with_error_code(error.code.code())
        });
        Self::default().with_groups(groups.collect())
    }
}
