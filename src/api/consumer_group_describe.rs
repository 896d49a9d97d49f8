//! ConsumerGroupDescribe (key 69), versions 0-1: state, epochs and members of groups of the consumer protocol (KIP-848).
//!
//! - 1: by which protocol each member came (KIP-1099).
//!
//! Unsupported while `group.version` is finalized at 0.

use super::repeats::{as_named, each_once};
use super::{ApiError, ErrorResponse, Reply, RequestContext, authorized_operations};
use crate::protocol::ErrorCode;
use crate::protocol::messages::consumer_group_describe_response::DescribedGroup;
use crate::protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, GroupId};

pub async fn handle(
    context: &RequestContext,
    request: ConsumerGroupDescribeRequest,
) -> Result<Reply<ConsumerGroupDescribeResponse>, ApiError> {
    let coordinator = &context.broker.group_coordinator;
    if !coordinator.serves_consumer_protocol() {
        return Err(ErrorCode::UnsupportedVersion.into());
    }
    let mut groups = coordinator
        .describe_consumer_groups(each_once(&request.group_ids))
        .await;
    if groups.len() < request.group_ids.len() {
        let (named, nameless): (Vec<GroupId>, Vec<GroupId>) = request
            .group_ids
            .into_iter()
            .partition(|group_id| !group_id.is_empty());
        let nameless = nameless.into_iter().map(|group_id| group_id.0);
        let all = nameless.chain(coordinator.in_order_of_answer(named));
        groups = as_named(groups, all, |group| &group.group_id, |group| group.members.len())?;
    }
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
