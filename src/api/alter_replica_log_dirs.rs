//! AlterReplicaLogDirs (key 34), versions 1-2: replicas of this node move to other log directories of it (KIP-113).
//!
//! - 2: flexible.
//!
//! Answered when the moves have begun; DescribeLogDirs tells how far they are. A partition that is not here answers REPLICA_NOT_AVAILABLE, and is
//! made in that directory when it comes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{ApiError, ErrorResponse, Reply, RequestContext, error_map};
use crate::log::TopicPartition;
use crate::protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use crate::protocol::messages::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, TopicName};
use crate::protocol::{ErrorCode, StrBytes};
use crate::replica::AlterLogDirError;

pub async fn handle(
    context: &RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> Result<Reply<AlterReplicaLogDirsResponse>, ApiError> {
    let wishes = wishes_of(&request);
    let replicas = context.broker.replica_manager.clone();
    // Makes folders, and may wait for a cleaning to end.
    let altered = tokio::task::spawn_blocking(move || {
        let alter = |(topic_partition, dir): (TopicPartition, PathBuf)| {
            let outcome = replicas.alter_replica_log_dir(&topic_partition, &dir);
            if let Err(error) = &outcome {
                tracing::warn!(partition = %topic_partition, dir = %dir.display(), %error, "unable to alter log dirs");
            }
            let code = outcome.map_or_else(|error| code_of(&error), |()| ErrorCode::None);
            (topic_partition, code)
        };
        wishes.into_iter().map(alter).collect::<Vec<_>>()
    });
    let altered = altered
        .await
        .map_err(|error| ApiError::new(ErrorCode::UnknownServerError, error.to_string()))?;
    Ok(Reply::Value(response_of(altered)))
}

/// The last wish for a partition counts.
fn wishes_of(request: &AlterReplicaLogDirsRequest) -> BTreeMap<TopicPartition, PathBuf> {
    let mut wishes = BTreeMap::new();
    for dir in &request.dirs {
        for topic in &dir.topics {
            for partition in &topic.partitions {
                let topic_partition = TopicPartition::new(&**topic.name, *partition);
                wishes.insert(topic_partition, PathBuf::from(&*dir.path));
            }
        }
    }
    wishes
}

fn code_of(error: &AlterLogDirError) -> ErrorCode {
    match error {
        AlterLogDirError::TopicNameTooLong => ErrorCode::InvalidTopicException,
        AlterLogDirError::LogDirNotFound { .. } => ErrorCode::LogDirNotFound,
        AlterLogDirError::LogDirOffline { .. } => ErrorCode::KafkaStorageError,
        AlterLogDirError::ReplicaNotAvailable { .. } => ErrorCode::ReplicaNotAvailable,
        AlterLogDirError::Replica(error) => error_map::replica_error(error),
        AlterLogDirError::Log(error) => error_map::log_error(error),
    }
}

/// `altered` is in the order of the partitions.
fn response_of(altered: Vec<(TopicPartition, ErrorCode)>) -> AlterReplicaLogDirsResponse {
    let mut response = AlterReplicaLogDirsResponse::default();
    for (topic_partition, code) in altered {
        let mut partition = AlterReplicaLogDirPartitionResult::default();
        partition.partition_index = topic_partition.partition;
        partition.error_code = code.code();
        let is_same_topic = response
            .results
            .last()
            .is_some_and(|topic| **topic.topic_name == *topic_partition.topic);
        if !is_same_topic {
            let mut topic = AlterReplicaLogDirTopicResult::default();
            topic.topic_name = TopicName(StrBytes::from_string(topic_partition.topic.to_string()));
            response.results.push(topic);
        }
        if let Some(topic) = response.results.last_mut() {
            topic.partitions.push(partition);
        }
    }
    response
}

impl ErrorResponse<AlterReplicaLogDirsRequest> for AlterReplicaLogDirsResponse {
    fn error_response(_: &RequestContext, request: &AlterReplicaLogDirsRequest, error: &ApiError) -> Self {
        let failed = wishes_of(request).into_keys();
        response_of(
            failed
                .map(|topic_partition| (topic_partition, error.code))
                .collect(),
        )
    }
}
