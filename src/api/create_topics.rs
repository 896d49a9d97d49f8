//! CreateTopics (key 19), versions 2-7: made by the controller, answered when the records are committed.
//!
//! - 4: -1 asks for the defaults (KIP-464). 5: the configs come back (KIP-525), flexible. 6: quota errors. 7: topic ids.
//!
//! The rules are the controller's; the same on broker and controller listeners.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::StrBytes;
use crate::protocol::messages::create_topics_response::CreatableTopicResult;
use crate::protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

pub async fn handle(
    context: &RequestContext,
    request: CreateTopicsRequest,
) -> Result<Reply<CreateTopicsResponse>, ApiError> {
    let asker = context.for_controller(request.timeout_ms);
    let response = context.broker.controller.create_topics(&asker, request).await?;
    context.broker.wait_until_published().await;
    Ok(Reply::Value(response))
}

impl ErrorResponse<CreateTopicsRequest> for CreateTopicsResponse {
    fn error_response(_: &RequestContext, request: &CreateTopicsRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.topics = request
            .topics
            .iter()
            .map(|asked| {
                let mut topic = CreatableTopicResult::default();
                topic.name = asked.name.clone();
                topic.error_code = error.code.code();
                topic.error_message = error.message.clone().map(StrBytes::from_string);
                topic
            })
            .collect();
        response
    }
}
