//! DeleteTopics (key 20), versions 1-6: done by the controller, answered when the records are committed.
//!
//! - 3: TOPIC_DELETION_DISABLED. 4: flexible. 5: messages. 6: topics by name or by id (KIP-516).
//!
//! The rules are the controller's; the same on broker and controller listeners.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::StrBytes;
use crate::protocol::messages::delete_topics_response::DeletableTopicResult;
use crate::protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};

pub async fn handle(
    context: &RequestContext,
    request: DeleteTopicsRequest,
) -> Result<Reply<DeleteTopicsResponse>, ApiError> {
    let asker = context.for_controller(request.timeout_ms);
    let response = context.broker.controller.delete_topics(&asker, request).await?;
    context.broker.wait_until_published().await;
    Ok(Reply::Value(response))
}

impl ErrorResponse<DeleteTopicsRequest> for DeleteTopicsResponse {
    fn error_response(context: &RequestContext, request: &DeleteTopicsRequest, error: &ApiError) -> Self {
        let mut result = DeletableTopicResult::default();
        result.error_code = error.code.code();
        if context.api_version >= 5 {
            result.error_message = error.message.clone().map(StrBytes::from_string);
        }
        let mut response = Self::default();
        if context.api_version >= 6 {
            for topic in &request.topics {
                result.name = topic.name.clone();
                result.topic_id = topic.topic_id;
                response.responses.push(result.clone());
            }
        } else {
            for name in &request.topic_names {
                result.name = Some(name.clone());
                response.responses.push(result.clone());
            }
        }
        response
    }
}
