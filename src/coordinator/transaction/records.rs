//! The records of `__transaction_state`: one key type, values of version 0 (before KIP-915's flexible ones) and 1. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::transaction_state::{
    NO_PRODUCER_EPOCH, TransactionMetadata, TransactionState, TransactionVersion,
};
use crate::log::TopicPartition;
use crate::protocol::records::transaction::transaction_log_value::PartitionsSchema;
use crate::protocol::records::transaction::{
    TransactionLogKey, TransactionLogValue, TransactionRecordKey, TransactionRecordValue,
};
use crate::protocol::{StrBytes, WireError};

/// What became of a transactional id; `None` is a tombstone.
#[derive(Debug, Clone, PartialEq)]
pub struct TransactionRecord {
    pub transactional_id: StrBytes,
    pub metadata: Option<Arc<TransactionMetadata>>,
    /// Of the value.
    pub version: i16,
}

impl TransactionRecord {
    pub fn new(metadata: TransactionMetadata, server_version: TransactionVersion) -> Self {
        Self {
            transactional_id: metadata.transactional_id.clone(),
            metadata: Some(Arc::new(metadata)),
            version: server_version.record_version(),
        }
    }

    pub fn tombstone(transactional_id: StrBytes) -> Self {
        Self {
            transactional_id,
            metadata: None,
            version: 0,
        }
    }

    pub fn encode(&self) -> Result<(Bytes, Option<Bytes>), WireError> {
        let key = TransactionRecordKey::from(TransactionLogKey {
            transactional_id: self.transactional_id.clone(),
        });
        let value = self.metadata.as_deref().map(|metadata| {
            TransactionRecordValue::from(value_of(metadata, self.version)).encode(self.version)
        });
        Ok((key.encode()?, value.transpose()?))
    }

    /// `None`: a record of a kind, or in a state, that is not known.
    pub fn decode(key: Bytes, value: Option<Bytes>) -> Result<Option<Self>, WireError> {
        let key = TransactionRecordKey::decode(key)?;
        let record_type = key.record_type();
        let TransactionRecordKey::TransactionLog(key) = key else {
            return Ok(None);
        };
        let transactional_id = owned(&key.transactional_id);
        let Some(value) = value else {
            return Ok(Some(Self::tombstone(transactional_id)));
        };
        let (value, version) = TransactionRecordValue::decode(record_type, value)?;
        let TransactionRecordValue::TransactionLog(value) = value else {
            return Ok(None);
        };
        let Some(metadata) = metadata_of(&transactional_id, value) else {
            return Ok(None);
        };
        Ok(Some(Self {
            transactional_id,
            metadata: Some(Arc::new(metadata)),
            version,
        }))
    }
}

/// A copy that does not keep the log's buffer alive.
fn owned(text: &StrBytes) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

fn value_of(metadata: &TransactionMetadata, version: i16) -> TransactionLogValue {
    let mut value = TransactionLogValue {
        producer_id: metadata.producer_id,
        producer_epoch: metadata.producer_epoch,
        transaction_timeout_ms: metadata.timeout_ms,
        transaction_status: metadata.state.id(),
        transaction_last_update_timestamp_ms: metadata.last_update_timestamp_ms,
        transaction_start_timestamp_ms: metadata.start_timestamp_ms,
        ..Default::default()
    };
    if version >= 1 {
        value.previous_producer_id = metadata.previous_producer_id;
        value.next_producer_id = metadata.next_producer_id;
        value.client_transaction_version = metadata.client_version.level();
    }
    value.transaction_partitions = match metadata.state {
        TransactionState::Empty => None,
        _ => Some(partitions_of(metadata)),
    };
    value
}

fn partitions_of(metadata: &TransactionMetadata) -> Vec<PartitionsSchema> {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for TopicPartition { topic, partition } in &metadata.partitions {
        by_topic.entry(topic).or_default().push(*partition);
    }
    let topics = by_topic
        .into_iter()
        .map(|(topic, partition_ids)| PartitionsSchema {
            topic: StrBytes::from_string(topic.to_owned()),
            partition_ids,
            ..Default::default()
        });
    topics.collect()
}

fn metadata_of(transactional_id: &StrBytes, value: TransactionLogValue) -> Option<TransactionMetadata> {
    let state = TransactionState::from_id(value.transaction_status)?;
    let topics = value.transaction_partitions.unwrap_or_default();
    let partitions = topics.iter().flat_map(|topic| {
        let name: Arc<str> = Arc::from(&*topic.topic);
        let partition = move |partition: &i32| TopicPartition::new(name.clone(), *partition);
        topic.partition_ids.iter().map(partition)
    });
    Some(TransactionMetadata {
        transactional_id: transactional_id.clone(),
        producer_id: value.producer_id,
        previous_producer_id: value.previous_producer_id,
        next_producer_id: value.next_producer_id,
        producer_epoch: value.producer_epoch,
        last_producer_epoch: NO_PRODUCER_EPOCH,
        timeout_ms: value.transaction_timeout_ms,
        state,
        partitions: match state {
            TransactionState::Empty => Default::default(),
            _ => partitions.collect(),
        },
        start_timestamp_ms: value.transaction_start_timestamp_ms,
        last_update_timestamp_ms: value.transaction_last_update_timestamp_ms,
        client_version: TransactionVersion::from_level(value.client_transaction_version),
    })
}

#[cfg(test)]
#[path = "records_test.rs"]
mod records_test;
