//! Every RPC type of Kafka 4.4, under one name each.
//!
//! Each is the kafka-protocol crate's or generated here, never both.

pub use kafka_protocol::messages::{
    BrokerId, GroupId, ProducerId, RequestHeader, ResponseHeader, TopicName, TransactionalId,
};

use crate::protocol::wire::rpc;
use kafka_protocol::protocol::{HeaderVersion, Request};

include!(concat!(env!("OUT_DIR"), "/messages.rs"));
