//! AddPartitionsToTxn (key 24), versions 0-5: partitions become part of a producer's transaction, or are looked for in it.
//!
//! - 0 to 3 come from clients: 2 PRODUCER_FENCED, 3 flexible.
//! - 4 and 5 come from brokers: many transactions at once, verification (KIP-890); 5 TRANSACTION_ABORTABLE.
//!
//! Either all partitions of a transaction are added or none: where one does not exist, the others are OPERATION_NOT_ATTEMPTED.

use std::collections::{BTreeSet, HashMap};

use indexmap::{IndexMap, IndexSet};

use super::{ApiError, ErrorResponse, Reply, RequestContext, auto_topic_creation};
use crate::coordinator::transaction::{ProducerIdAndEpoch, Transaction, TransactionVersion};
use crate::log::TopicPartition;
use crate::metadata::MetadataImage;
use crate::protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use crate::protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use crate::protocol::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, TopicName};
use crate::protocol::{ErrorCode, StrBytes};

/// From here on it comes from brokers.
const FIRST_BROKER_VERSION: i16 = 4;

pub async fn handle(
    context: &RequestContext,
    request: AddPartitionsToTxnRequest,
) -> Result<Reply<AddPartitionsToTxnResponse>, ApiError> {
    let is_client = context.api_version < FIRST_BROKER_VERSION;
    let mut response = AddPartitionsToTxnResponse::default();
    for transaction in transactions_of(context.api_version, request) {
        let topics = add(context, is_client, &transaction).await?;
        if is_client {
            response.results_by_topic_v3_and_below = topics;
        } else {
            let result = AddPartitionsToTxnResult::default()
                .with_transactional_id(transaction.transactional_id)
                .with_topic_results(topics);
            response.results_by_transaction.push(result);
        }
    }
    Ok(Reply::Value(response))
}

/// A client's request as one of a broker.
fn transactions_of(
    api_version: i16,
    request: AddPartitionsToTxnRequest,
) -> Vec<AddPartitionsToTxnTransaction> {
    if api_version >= FIRST_BROKER_VERSION {
        return request.transactions;
    }
    vec![
        AddPartitionsToTxnTransaction::default()
            .with_transactional_id(request.v3_and_below_transactional_id)
            .with_producer_id(request.v3_and_below_producer_id)
            .with_producer_epoch(request.v3_and_below_producer_epoch)
            .with_topics(request.v3_and_below_topics),
    ]
}

async fn add(
    context: &RequestContext,
    is_client: bool,
    requested: &AddPartitionsToTxnTransaction,
) -> Result<Vec<AddPartitionsToTxnTopicResult>, ApiError> {
    let image = context.broker.metadata.image();
    let refusal = |topic: &str, partition: i32| refusal(&image, is_client, topic, partition);
    let any_refused = requested.topics.iter().any(|topic| {
        let mut partitions = topic.partitions.iter();
        partitions.any(|partition| refusal(&topic.name, *partition).is_some())
    });
    if any_refused {
        return Ok(results(&requested.topics, |topic, partition| {
            refusal(topic, partition).unwrap_or(ErrorCode::OperationNotAttempted)
        }));
    }
    let partitions: BTreeSet<TopicPartition> = partitions_of(&requested.topics).collect();
    let transaction = Transaction {
        transactional_id: requested.transactional_id.0.clone(),
        producer: ProducerIdAndEpoch {
            producer_id: requested.producer_id.0,
            producer_epoch: requested.producer_epoch,
        },
    };
    let coordinator = &context.broker.transaction_coordinator;
    if requested.verify_only {
        return Ok(
            match coordinator.verify_partitions(transaction, partitions).await {
                Ok(verified) => {
                    let verified: HashMap<TopicPartition, ErrorCode> = verified.into_iter().collect();
                    results(&requested.topics, |topic, index| {
                        let found = verified.get(&TopicPartition::new(topic, index));
                        found.copied().unwrap_or(ErrorCode::UnknownServerError)
                    })
                }
                Err(error) => results(&requested.topics, |_, _| error),
            },
        );
    }
    let client_version = match is_client {
        true => TransactionVersion::V0,
        false => TransactionVersion::V2,
    };
    let error = match coordinator
        .add_partitions(transaction, partitions, client_version)
        .await
    {
        Ok(()) => ErrorCode::None,
        // Older clients know no other word for it.
        Err(ErrorCode::ProducerFenced) if context.api_version < 2 => ErrorCode::InvalidProducerEpoch,
        // `transaction.version` 0 knows no such requests: an error of all of it.
        Err(ErrorCode::UnsupportedVersion) => return Err(ErrorCode::UnsupportedVersion.into()),
        Err(error) => error,
    };
    Ok(results(&requested.topics, |_, _| error))
}

fn refusal(image: &MetadataImage, is_client: bool, topic: &str, partition: i32) -> Option<ErrorCode> {
    // Kafka's clients have no business in its own topics: nobody is authorized for them.
    if is_client && auto_topic_creation::is_internal(topic) {
        return Some(ErrorCode::TopicAuthorizationFailed);
    }
    let known = image.topics.by_name(topic);
    let exists = known.is_some_and(|known| known.partitions.contains_key(&partition));
    (!exists).then_some(ErrorCode::UnknownTopicOrPartition)
}

fn partitions_of(topics: &[AddPartitionsToTxnTopic]) -> impl Iterator<Item = TopicPartition> {
    topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|partition| TopicPartition::new(topic.name.as_str(), *partition))
    })
}

fn results(
    topics: &[AddPartitionsToTxnTopic],
    error_of: impl Fn(&str, i32) -> ErrorCode,
) -> Vec<AddPartitionsToTxnTopicResult> {
    // A partition that is named twice is answered once, and of a topic without partitions nothing is said.
    let mut partitions: IndexMap<&TopicName, IndexSet<i32>> = IndexMap::new();
    for topic in topics.iter().filter(|topic| !topic.partitions.is_empty()) {
        partitions
            .entry(&topic.name)
            .or_default()
            .extend(&topic.partitions);
    }
    let result = |(topic, partitions): (&TopicName, IndexSet<i32>)| {
        let partitions = partitions.into_iter().map(|partition| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(partition)
                .with_partition_error_code(error_of(topic, partition).code())
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_string())))
            .with_results_by_partition(partitions.collect())
    };
    partitions.into_iter().map(result).collect()
}

impl ErrorResponse<AddPartitionsToTxnRequest> for AddPartitionsToTxnResponse {
    fn error_response(
        context: &RequestContext,
        request: &AddPartitionsToTxnRequest,
        error: &ApiError,
    ) -> Self {
        let response = Self::default();
        if context.api_version < FIRST_BROKER_VERSION {
            let topics = results(&request.v3_and_below_topics, |_, _| error.code);
            return response.with_results_by_topic_v3_and_below(topics);
        }
        response.with_error_code(error.code.code())
    }
}
