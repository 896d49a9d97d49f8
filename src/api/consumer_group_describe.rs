//! ConsumerGroupDescribe (key 69), versions 0-1: state, epochs and members of groups of the consumer protocol (KIP-848).
//!
//! - 1: by which protocol each member came (KIP-1099).
//!
//! Unsupported while `group.version` is finalized at 0.

use super::{ApiError, ErrorResponse, Reply, RequestContext, authorized_operations};
use crate::protocol::ErrorCode;
use crate::protocol::messages::consumer_group_describe_response::DescribedGroup;
use crate::protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};

pub async fn handle(
    context: &RequestContext,
    request: ConsumerGroupDescribeRequest,
) -> Result<Reply<ConsumerGroupDescribeResponse>, ApiError> {
    let coordinator = &context.broker.group_coordinator;
    if !coordinator.serves_consumer_protocol() {
        return Err(ErrorCode::UnsupportedVersion.into());
    }
    let mut groups = coordinator.describe_consumer_groups(request.group_ids).await;
    if request.include_authorized_operations {
        for group in groups.iter_mut().filter(|group| group.error_code == 0) {
            group.authorized_operations = authorized_operations::GROUP;
        }
    }
    let response = ConsumerGroupDescribeResponse::default().with_groups(groups);
    Ok(Reply::Value(response))
}

impl ErrorResponse<ConsumerGroupDescribeRequest> for ConsumerGroupDescribeResponse {
    fn error_response(
        _context: &RequestContext,
        request: &ConsumerGroupDescribeRequest,
        error: &ApiError,
    ) -> Self {
        let groups = request.group_ids.iter().map(|group_id| {
            DescribedGroup::default()
                .with_group_id(group_id.clone())
                .with_error_code(error.code.code())
        });
        Self::default().with_groups(groups.collect())
    }
}
