//! ListOffsets (key 2), versions 1-11.
//!
//! | version | what changed |
//! | --- | --- |
//! | 1 | one offset by time stamp instead of many |
//! | 2 | isolation level |
//! | 4 | leader epochs (KIP-320) |
//! | 5 | OFFSET_NOT_AVAILABLE (before: LEADER_NOT_AVAILABLE) |
//! | 6 | compact forms |
//! | 7 | -3: the largest time stamp (KIP-734) |
//! | 8 | -4: the earliest local offset (KIP-405) |
//! | 9 | -5: the latest tiered offset (KIP-1005) |
//! | 10 | a timeout, for tiered lookups (KIP-1075) |
//! | 11 | -6: the earliest offset that waits for its upload (KIP-1023) |

use std::collections::HashSet;
use std::sync::Arc;

use indexmap::IndexMap;

use super::error_map::replica_error;
use super::fetch::is_isolation_level;
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::log::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::messages::TopicName;
use crate::protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use crate::protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use crate::replica::{FetchIsolation, OffsetSpec};

const CONSUMER_REPLICA_ID: i32 = -1;
const DEBUGGING_REPLICA_ID: i32 = -2;

pub async fn handle(
    context: &RequestContext,
    request: ListOffsetsRequest,
) -> Result<Reply<ListOffsetsResponse>, ApiError> {
    if !is_isolation_level(request.isolation_level) {
        return Err(ErrorCode::UnknownServerError.into());
    }
    let duplicates = duplicate_partitions(&request);
    // A partition that is named twice is answered once, whether its topic is named once or twice.
    let mut answered = HashSet::new();
    let mut listed: IndexMap<TopicName, Vec<ListOffsetsPartitionResponse>> = IndexMap::new();
    for topic in &request.topics {
        let name: Arc<str> = Arc::from(&**topic.name);
        let answers = listed.entry(topic.name.clone()).or_default();
        for partition in &topic.partitions {
            let topic_partition = TopicPartition {
                topic: name.clone(),
                partition: partition.partition_index,
            };
            if !duplicates.contains(&topic_partition) {
                answers.push(list_offset(context, &request, &topic_partition, partition).await);
            } else if answered.insert(topic_partition) {
                answers.push(failed(partition, ErrorCode::InvalidRequest));
            }
        }
    }
    let mut response = ListOffsetsResponse::default();
    // Of a topic without partitions nothing is said.
    for (name, partitions) in listed
        .into_iter()
        .filter(|(_, partitions)| !partitions.is_empty())
    {
        let mut topic = ListOffsetsTopicResponse::default();
        topic.name = name;
        topic.partitions = partitions;
        response.topics.push(topic);
    }
    Ok(Reply::Value(response))
}

fn duplicate_partitions(request: &ListOffsetsRequest) -> HashSet<TopicPartition> {
    let mut seen = HashSet::new();
    let of_topic = |topic: &ListOffsetsTopic| {
        let name: Arc<str> = Arc::from(&**topic.name);
        let partitions: Vec<_> = topic
            .partitions
            .iter()
            .map(|partition| partition.partition_index)
            .collect();
        partitions.into_iter().map(move |partition| TopicPartition {
            topic: name.clone(),
            partition,
        })
    };
    request
        .topics
        .iter()
        .flat_map(of_topic)
        .filter(|partition| !seen.insert(partition.clone()))
        .collect()
}

/// `None`: the version does not know it.
fn offset_spec(timestamp: i64, version: i16) -> Option<OffsetSpec> {
    let (spec, since) = match timestamp {
        0.. => (OffsetSpec::Timestamp(timestamp), 0),
        -1 => (OffsetSpec::Latest, 1),
        -2 => (OffsetSpec::Earliest, 1),
        -3 => (OffsetSpec::MaxTimestamp, 7),
        -4 => (OffsetSpec::EarliestLocal, 8),
        -5 => (OffsetSpec::LatestTiered, 9),
        -6 => (OffsetSpec::EarliestPendingUpload, 11),
        _ => return None,
    };
    (version >= since).then_some(spec)
}

async fn list_offset(
    context: &RequestContext,
    request: &ListOffsetsRequest,
    topic_partition: &TopicPartition,
    partition: &ListOffsetsPartition,
) -> ListOffsetsPartitionResponse {
    let Some(spec) = offset_spec(partition.timestamp, context.api_version) else {
        return failed(partition, ErrorCode::UnsupportedVersion);
    };
    let isolation = match (request.replica_id.0, request.isolation_level) {
        (CONSUMER_REPLICA_ID, 1) => Some(FetchIsolation::TxnCommitted),
        (CONSUMER_REPLICA_ID, _) => Some(FetchIsolation::HighWatermark),
        _ => None,
    };
    // Any other negative epoch is one that is long over (FENCED_LEADER_EPOCH).
    let current_leader_epoch =
        (partition.current_leader_epoch != -1).then_some(partition.current_leader_epoch);
    let only_from_leader = request.replica_id.0 != DEBUGGING_REPLICA_ID;
    let found = context.broker.replica_manager.find_offset(
        topic_partition,
        spec,
        isolation,
        current_leader_epoch,
        only_from_leader,
    );
    match found.await {
        Ok(Some(found)) => {
            let mut answer = failed(partition, ErrorCode::None);
            answer.timestamp = found.timestamp;
            answer.offset = found.offset;
            if context.api_version >= 4 {
                answer.leader_epoch = found.leader_epoch.unwrap_or(-1);
            }
            answer
        }
        Ok(None) => failed(partition, ErrorCode::None),
        Err(error) => match replica_error(&error) {
            ErrorCode::OffsetNotAvailable if context.api_version < 5 => {
                failed(partition, ErrorCode::LeaderNotAvailable)
            }
            code => failed(partition, code),
        },
    }
}

/// No offset: an error, or nothing at that time.
fn failed(partition: &ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse {
    let mut answer = ListOffsetsPartitionResponse::default();
    answer.partition_index = partition.partition_index;
    answer.error_code = error.code();
    answer.timestamp = -1;
    answer.offset = -1;
    answer.leader_epoch = -1;
    answer
}

impl ErrorResponse<ListOffsetsRequest> for ListOffsetsResponse {
    fn error_response(_: &RequestContext, request: &ListOffsetsRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        for topic in &request.topics {
            let mut failed_topic = ListOffsetsTopicResponse::default();
            failed_topic.name = topic.name.clone();
            failed_topic.partitions = topic
                .partitions
                .iter()
                .map(|partition| failed(partition, error.code))
                .collect();
            response.topics.push(failed_topic);
        }
        response
    }
}

#[cfg(test)]
mod list_offsets_test {
    use super::*;

    #[test]
    fn special_time_stamp_below_its_version_or_unknown_is_refused() {
        let since = [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)];
        for (timestamp, since) in since {
            assert!(offset_spec(timestamp, since).is_some(), "{timestamp}");
            assert_eq!(offset_spec(timestamp, since - 1), None, "{timestamp}");
        }
        assert_eq!(offset_spec(-7, 11), None);
        assert_eq!(offset_spec(0, 1), Some(OffsetSpec::Timestamp(0)));
        assert_eq!(offset_spec(i64::MAX, 1), Some(OffsetSpec::Timestamp(i64::MAX)));
    }

    #[test]
    fn partition_named_twice_is_a_duplicate_over_topics_too() {
        let partition = |index| {
            let mut partition = ListOffsetsPartition::default();
            partition.partition_index = index;
            partition
        };
        let topic = |name: &'static str, partitions: &[i32]| {
            let mut topic = ListOffsetsTopic::default();
            topic.name =
                crate::protocol::messages::TopicName(crate::protocol::StrBytes::from_static_str(name));
            topic.partitions = partitions.iter().map(|index| partition(*index)).collect();
            topic
        };
        let mut request = ListOffsetsRequest::default();
        request.topics = vec![topic("a", &[0, 1, 1]), topic("b", &[0]), topic("a", &[0])];
        let mut duplicates: Vec<_> = duplicate_partitions(&request).into_iter().collect();
        duplicates.sort();
        assert_eq!(
            duplicates,
            [TopicPartition::new("a", 0), TopicPartition::new("a", 1)]
        );
    }
}
