//! Topics, batches and reads in a few words, over raw requests.

use std::net::SocketAddr;

use bytes::Bytes;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use kavka::protocol::messages::{
    CreateTopicsRequest, FetchRequest, InitProducerIdRequest, ProduceRequest, create_topics_request,
    fetch_request, produce_request,
};
use kavka::record::{BatchBuilder, BatchOptions, Batches, Record, records_of};

use super::client::Client;

/// Versions that name topics by name, so that a test need not know ids.
pub const PRODUCE: i16 = 9;
pub const FETCH: i16 = 12;

pub fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// Creates a topic; fails the test when the node refuses.
pub fn create(client: &mut Client, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
    let configs = configs
        .iter()
        .map(|(key, value)| {
            create_topics_request::CreatableTopicConfig::default()
                .with_name(StrBytes::from_string(key.to_string()))
                .with_value(Some(StrBytes::from_string(value.to_string())))
        })
        .collect();
    let creatable = create_topics_request::CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs);
    let response = client.call(
        7,
        &CreateTopicsRequest::default()
            .with_topics(vec![creatable])
            .with_timeout_ms(30_000),
    );
    assert_eq!(
        response.topics[0].error_code, 0,
        "{:?}",
        response.topics[0].error_message
    );
}

/// The id that the node gave a topic.
pub fn id_of(client: &mut Client, topic: &str) -> uuid::Uuid {
    let asked = MetadataRequestTopic::default().with_name(Some(name(topic)));
    let response = client.call(12, &MetadataRequest::default().with_topics(Some(vec![asked])));
    response.topics[0].topic_id
}

/// A producer's identity, and where its sequence is.
#[derive(Debug, Clone, Copy)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
    pub sequence: i32,
}

impl Producer {
    /// An identity of the node's.
    pub fn initialize(client: &mut Client) -> Producer {
        loop {
            let response = client.call(
                4,
                &InitProducerIdRequest::default()
                    .with_transactional_id(None)
                    .with_transaction_timeout_ms(60_000),
            );
            if response.error_code == 0 {
                return Producer {
                    id: response.producer_id.0,
                    epoch: response.producer_epoch,
                    sequence: 0,
                };
            }
            assert_eq!(
                response.error_code, 14,
                "COORDINATOR_LOAD_IN_PROGRESS is the only error to retry"
            );
        }
    }
}

/// A batch of records with these values.
pub fn batch(producer: Option<Producer>, values: &[String]) -> Bytes {
    let mut options = BatchOptions::default();
    if let Some(producer) = producer {
        options.producer_id = producer.id;
        options.producer_epoch = producer.epoch;
        options.base_sequence = producer.sequence;
    }
    let mut builder = BatchBuilder::new(options);
    for value in values {
        builder.append(now_ms(), None, Some(value.as_bytes()), &[]);
    }
    builder.build().unwrap()
}

fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64
}

pub fn produce_request(topic: &str, partition: i32, acks: i16, records: Bytes) -> ProduceRequest {
    let data = produce_request::PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(records));
    let topic = produce_request::TopicProduceData::default()
        .with_name(name(topic))
        .with_partition_data(vec![data]);
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic])
}

/// Produces with acks=all; the base offset, or the error code.
pub fn produce(client: &mut Client, topic: &str, partition: i32, records: Bytes) -> Result<i64, i16> {
    let response = client.call(PRODUCE, &produce_request(topic, partition, -1, records));
    let answer = &response.responses[0].partition_responses[0];
    if answer.error_code == 0 {
        Ok(answer.base_offset)
    } else {
        Err(answer.error_code)
    }
}

/// A batch of one record of this many bytes, which do not compress.
pub fn large_batch(size: usize) -> Bytes {
    let mut value = vec![0; size];
    fastrand::Rng::with_seed(size as u64).fill(&mut value);
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(now_ms(), None, Some(&value), &[]);
    builder.build().unwrap()
}

pub fn fetch_request(topic: &str, partition: i32, offset: i64, max_wait_ms: i32) -> FetchRequest {
    let partition = fetch_request::FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    let topic = fetch_request::FetchTopic::default()
        .with_topic(name(topic))
        .with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

/// All records of a partition from its start to its high watermark.
pub fn read_all(address: SocketAddr, topic: &str, partition: i32) -> Vec<Record> {
    let mut client = Client::connect(address);
    let mut records: Vec<Record> = Vec::new();
    loop {
        let offset = records.last().map_or(0, |record| record.offset + 1);
        let response = client.call(FETCH, &fetch_request(topic, partition, offset, 0));
        assert_eq!(response.error_code, 0);
        let answer = &response.responses[0].partitions[0];
        assert_eq!(answer.error_code, 0, "fetching from offset {offset}");
        if offset >= answer.high_watermark {
            return records;
        }
        let bytes = answer.records.clone().unwrap_or_default();
        for batch in Batches::of_bytes(&bytes) {
            // What a client does: the last batch may be cut.
            let Ok((header, batch)) = batch else { break };
            assert!(kavka::record::crc_is_valid(&batch));
            let read = records_of(&batch).unwrap().map(|record| record.unwrap());
            records.extend(read.filter(|record| record.offset >= offset));
            assert_eq!(
                records.last().map(|record| record.offset),
                Some(header.last_offset())
            );
        }
    }
}

/// The value of a record as text.
pub fn value_of(record: &Record) -> String {
    String::from_utf8(record.value.as_ref().unwrap().to_vec()).unwrap()
}
