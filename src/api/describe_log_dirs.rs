//! DescribeLogDirs (key 35), versions 1-5: what lies in each log directory of this node, and how much room is left.
//!
//! - 2: flexible. 3: a top-level error. 4: total and usable bytes (KIP-827). 5: whether a directory is cordoned (KIP-1066).
//!
//! A directory that is offline answers KAFKA_STORAGE_ERROR alone. No directory is cordoned here: `cordoned.log.dirs` is refused at start.

use std::collections::HashSet;
use std::sync::Arc;

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::log::{LogDirDescription, TopicPartition};
use crate::protocol::messages::TopicName;
use crate::protocol::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use crate::protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use crate::protocol::{ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    request: DescribeLogDirsRequest,
) -> Result<Reply<DescribeLogDirsResponse>, ApiError> {
    let wanted = request.topics.map(|topics| {
        let of_topic =
            |topic: crate::protocol::messages::describe_log_dirs_request::DescribableLogDirTopic| {
                let name: Arc<str> = Arc::from(&**topic.topic);
                topic.partitions.into_iter().map(move |partition| TopicPartition {
                    topic: name.clone(),
                    partition,
                })
            };
        topics.into_iter().flat_map(of_topic).collect::<HashSet<_>>()
    });
    let logs = context.broker.replica_manager.log_manager().clone();
    // Asks the file systems, one of which may be slow.
    let described = tokio::task::spawn_blocking(move || logs.describe_log_dirs(wanted.as_ref())).await;
    let described =
        described.map_err(|error| ApiError::new(ErrorCode::UnknownServerError, error.to_string()))?;
    let mut response = DescribeLogDirsResponse::default();
    response.results = described.into_iter().map(result_of).collect();
    Ok(Reply::Value(response))
}

fn result_of(dir: LogDirDescription) -> DescribeLogDirsResult {
    let mut result = DescribeLogDirsResult::default();
    result.log_dir = StrBytes::from_string(dir.path.display().to_string());
    result.total_bytes = -1;
    result.usable_bytes = -1;
    let Some(content) = dir.content else {
        result.error_code = ErrorCode::KafkaStorageError.code();
        return result;
    };
    result.total_bytes = content.total_bytes;
    result.usable_bytes = content.usable_bytes;
    let mut topic = DescribeLogDirsTopic::default();
    // In the order of the partitions.
    for replica in content.replicas {
        let mut partition = DescribeLogDirsPartition::default();
        partition.partition_index = replica.topic_partition.partition;
        partition.partition_size = i64::try_from(replica.size_in_bytes).unwrap_or(i64::MAX);
        partition.offset_lag = replica.offset_lag;
        partition.is_future_key = replica.is_future;
        if **topic.name != *replica.topic_partition.topic {
            if !topic.partitions.is_empty() {
                result.topics.push(std::mem::take(&mut topic));
            }
            topic.name = TopicName(replica.topic_partition.topic.to_string().into());
        }
        topic.partitions.push(partition);
    }
    if !topic.partitions.is_empty() {
        result.topics.push(topic);
    }
    result
}

impl ErrorResponse<DescribeLogDirsRequest> for DescribeLogDirsResponse {
    fn error_response(_: &RequestContext, _: &DescribeLogDirsRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        response
    }
}
