//! CreatePartitions (key 37), versions 0-3: done by the controller, answered when the records are committed.
//!
//! - 2: flexible. 3: quota errors.
//!
//! The rules are the controller's; the same on broker and controller listeners.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::StrBytes;
use crate::protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use crate::protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

pub async fn handle(
    context: &RequestContext,
    request: CreatePartitionsRequest,
) -> Result<Reply<CreatePartitionsResponse>, ApiError> {
    let asker = context.for_controller(request.timeout_ms);
    let response = context
        .broker
        .controller
        .create_partitions(&asker, request)
        .await?;
    context.broker.wait_until_published().await;
    Ok(Reply::Value(response))
}

impl ErrorResponse<CreatePartitionsRequest> for CreatePartitionsResponse {
    fn error_response(_: &RequestContext, request: &CreatePartitionsRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.results = request
            .topics
            .iter()
            .map(|asked| {
                let mut result = CreatePartitionsTopicResult::default();
                result.name = asked.name.clone();
                result.error_code = error.code.code();
                result.error_message = error.message.clone().map(StrBytes::from_string);
                result
            })
            .collect();
        response
    }
}
