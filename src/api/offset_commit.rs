//! OffsetCommit (key 8), versions 2-10: a group's positions, kept with its coordinator.
//!
//! - 2 to 4 may name a retention. 3: throttle time. 6: leader epoch. 7: static members (KIP-345). 8: flexible. 9: member
//!   epochs of the newer protocol, GROUP_ID_NOT_FOUND (KIP-848). 10: topics by id (KIP-848).
//!
//! Partitions that do not exist are answered here; the coordinator sees the others.

use super::committed_topics::{Answer, CommitTopic};
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};

pub async fn handle(
    context: &RequestContext,
    mut request: OffsetCommitRequest,
) -> Result<Reply<OffsetCommitResponse>, ApiError> {
    let mut answer = Answer::new(context.api_version >= 10);
    let topics = std::mem::take(&mut request.topics);
    request.topics = answer.take_valid(&context.broker.metadata.image(), topics);
    if !request.topics.is_empty() {
        let asked = request.topics.clone();
        let committed = context
            .broker
            .group_coordinator
            .commit_offsets(request, context.api_version >= 9)
            .await;
        answer.finish(&asked, committed.map(|committed| committed.topics));
    }
    Ok(Reply::Value(
        OffsetCommitResponse::default().with_topics(answer.topics),
    ))
}

impl ErrorResponse<OffsetCommitRequest> for OffsetCommitResponse {
    fn error_response(_context: &RequestContext, request: &OffsetCommitRequest, error: &ApiError) -> Self {
        let topics = request.topics.iter().map(|topic| topic.failed(error.code));
        Self::default().with_topics(topics.collect())
    }
}
