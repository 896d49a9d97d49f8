//! MESSAGES: requests, responses, records, the API key table and error codes. No I/O.
//!
//! Every RPC type has one name, `protocol::messages::X`: the kafka-protocol crate's where it covers Kafka 4.4's versions,
//! else one that `build.rs` generates from `schemas/`. Both speak the crate's `Encodable` and `Decodable`.
//!
//! Bytes from outside go through [`layout::Layout::check`] before the crate's decoders see them: those reserve whatever
//! an array length promises, so that five bytes could ask for gigabytes.

pub mod api_error;
pub mod api_key;
pub mod error_code;
pub mod java_text;
pub mod layout;
pub mod messages;
pub mod records;
mod wire;

pub use api_error::ApiError;
pub use api_key::ApiKey;
pub use error_code::ErrorCode;
pub use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
pub use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, Message, Request, StrBytes, VersionRange,
};
pub use wire::WireError;

/// What generated code names.
mod prelude {
    pub(super) use super::records::UnknownRecord;
    pub(super) use super::wire::*;
    pub(super) use bytes::{Buf, Bytes};
    pub(super) use kafka_protocol::messages::{BrokerId, GroupId, ProducerId, TopicName, TransactionalId};
    pub(super) use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
    pub(super) use kafka_protocol::protocol::{Decodable, Encodable, Message, StrBytes, VersionRange};
    pub(super) use std::collections::BTreeMap;
    pub(super) use uuid::Uuid;
}

#[cfg(test)]
mod protocol_test;
