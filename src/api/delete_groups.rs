//! DeleteGroups (key 42), versions 0-3: empty groups, with all their offsets.
//!
//! - 1: throttle time. 2: flexible. 3: GROUP_DELETION_FAILED and messages; before, that error is UNKNOWN_SERVER_ERROR.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::ErrorCode;
use crate::protocol::messages::delete_groups_response::DeletableGroupResult;
use crate::protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, GroupId};

pub async fn handle(
    context: &RequestContext,
    request: DeleteGroupsRequest,
) -> Result<Reply<DeleteGroupsResponse>, ApiError> {
    let group_ids = distinct(request.groups_names);
    let mut results = context.broker.group_coordinator.delete_groups(group_ids).await;
    if context.api_version < 3 {
        for result in &mut results {
            if result.error_code == ErrorCode::GroupDeletionFailed.code() {
                result.error_code = ErrorCode::UnknownServerError.code();
            }
        }
    }
    Ok(Reply::Value(
        DeleteGroupsResponse::default().with_results(results),
    ))
}

/// A group that is named twice is deleted once.
fn distinct(mut group_ids: Vec<GroupId>) -> Vec<GroupId> {
    let mut seen = std::collections::HashSet::new();
    group_ids.retain(|group_id| seen.insert(group_id.clone()));
    group_ids
}

impl ErrorResponse<DeleteGroupsRequest> for DeleteGroupsResponse {
    fn error_response(_context: &RequestContext, request: &DeleteGroupsRequest, error: &ApiError) -> Self {
        let results = request.groups_names.iter().map(|group_id| {
            DeletableGroupResult::default()
                .with_group_id(group_id.clone())
                .with_error_code(error.code.code())
        });
        Self::default().with_results(results.collect())
    }
}
