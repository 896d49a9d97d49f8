//! Images for the tests of handlers: built from records, as on a node.

use std::sync::Arc;

use uuid::Uuid;

use crate::metadata::{MetadataDelta, MetadataImage, MetadataProvenance};
use crate::protocol::StrBytes;
use crate::protocol::records::metadata::register_broker_record::BrokerEndpoint;
use crate::protocol::records::metadata::{
    ConfigRecord, MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord,
};

pub const LISTENER: &str = "PLAINTEXT";

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn topic_id(number: u128) -> Uuid {
    Uuid::from_u128(1000 + number)
}

pub fn image(records: Vec<MetadataRecord>) -> MetadataImage {
    let mut delta = MetadataDelta::new(Arc::new(MetadataImage::empty()));
    for record in &records {
        delta.replay(record).unwrap();
    }
    delta.apply(MetadataProvenance::EMPTY)
}

/// A broker with one listener called `listener` at `host-<id>:<9000 + id>`.
pub fn broker(id: i32, listener: &str, fenced: bool) -> MetadataRecord {
    let mut endpoint = BrokerEndpoint::default();
    endpoint.name = text(listener);
    endpoint.host = text(&format!("host-{id}"));
    endpoint.port = 9000 + id as u16;
    let mut record = RegisterBrokerRecord::default();
    record.broker_id = id;
    record.broker_epoch = 1;
    record.end_points = vec![endpoint];
    record.rack = Some(text(&format!("rack-{id}")));
    record.fenced = fenced;
    record.log_dirs = vec![Uuid::from_u128(500 + id as u128)];
    MetadataRecord::RegisterBroker(record)
}

/// A topic of `partitions` partitions on `replicas`, all in sync, the first leading.
pub fn topic(name: &str, number: u128, partitions: i32, replicas: &[i32]) -> Vec<MetadataRecord> {
    let mut record = TopicRecord::default();
    record.name = text(name);
    record.topic_id = topic_id(number);
    let mut records = vec![MetadataRecord::Topic(record)];
    for partition_id in 0..partitions {
        let mut record = PartitionRecord::default();
        record.partition_id = partition_id;
        record.topic_id = topic_id(number);
        record.replicas = replicas.to_vec();
        record.isr = replicas.to_vec();
        record.leader = replicas[0];
        record.leader_epoch = 3;
        record.directories = replicas
            .iter()
            .map(|id| Uuid::from_u128(500 + *id as u128))
            .collect();
        records.push(MetadataRecord::Partition(record));
    }
    records
}

pub fn topic_config(topic: &str, name: &str, value: &str) -> MetadataRecord {
    let mut record = ConfigRecord::default();
    record.resource_type = 2;
    record.resource_name = text(topic);
    record.name = text(name);
    record.value = Some(text(value));
    MetadataRecord::Config(record)
}
