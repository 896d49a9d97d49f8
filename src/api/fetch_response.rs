//! The framing of a Fetch response (key 1, versions 4 to 18), by hand: the crate's encoder copies the records, and ours are not in memory.
//!
//! The answer is a sequence of parts, header bytes and file ranges in turn. All header bytes are written into one buffer and split off it where
//! records stand in between, so an answer costs one allocation however many partitions it has.
//! A test compares the bytes of every version with the crate's encoder.
//!
//! What the versions changed: 5 log start offset; 7 error code and session (KIP-227); 11 preferred read replica (KIP-392); 12 compact forms and tagged
//! fields, diverging epoch (KIP-595); 13 topic ids instead of names (KIP-516); 16 current leader's end point (KIP-951).

use bytes::{BufMut, BytesMut};
use uuid::Uuid;

use super::ResponsePart;
use super::current_leader::LeaderEndpoint;
use crate::protocol::ErrorCode;
use crate::replica::FetchPartitionData;

/// One partition of the answer, with what only the wire knows.
#[derive(Debug, Clone)]
pub struct PartitionAnswer<'a> {
    /// Empty where the id's name is not known; not sent from 13 on.
    pub topic: &'a str,
    pub topic_id: Uuid,
    pub partition: i32,
    pub error: ErrorCode,
    /// Leader id and epoch, beside errors that say that this node does not lead.
    pub current_leader: Option<(i32, i32)>,
    pub data: &'a FetchPartitionData,
}

impl PartitionAnswer<'_> {
    fn is_of_same_topic(&self, other: &Self) -> bool {
        if self.topic_id.is_nil() && other.topic_id.is_nil() {
            self.topic == other.topic
        } else {
            self.topic_id == other.topic_id
        }
    }
}

/// The whole answer. Partitions of one topic that follow each other share its entry; their order is kept.
#[derive(Debug, Clone)]
pub struct FetchAnswerBody<'a> {
    pub error: ErrorCode,
    pub session_id: i32,
    pub partitions: &'a [PartitionAnswer<'a>],
    pub node_endpoints: &'a [LeaderEndpoint],
}

impl FetchAnswerBody<'_> {
    pub fn encode(&self, version: i16) -> Vec<ResponsePart> {
        let mut writer = Writer::new(version, self.partitions.len());
        writer.buffer.put_i32(0); // throttle time
        if version >= 7 {
            writer.buffer.put_i16(self.error.code());
            writer.buffer.put_i32(self.session_id);
        }
        let topics = self.partitions.chunk_by(|one, other| one.is_of_same_topic(other));
        writer.array_length(topics.clone().count());
        for partitions in topics {
            writer.topic(partitions);
        }
        writer.top_level_tags(self.node_endpoints);
        writer.finish()
    }
}

struct Writer {
    version: i16,
    is_flexible: bool,
    buffer: BytesMut,
    parts: Vec<ResponsePart>,
}

impl Writer {
    fn new(version: i16, partitions: usize) -> Self {
        Self {
            version,
            is_flexible: version >= 12,
            buffer: BytesMut::with_capacity(64 + partitions * 96),
            parts: Vec::with_capacity(2 * partitions + 1),
        }
    }

    fn topic(&mut self, partitions: &[PartitionAnswer<'_>]) {
        let Some(first) = partitions.first() else { return };
        if self.version >= 13 {
            self.buffer.put_slice(first.topic_id.as_bytes());
        } else {
            self.string(first.topic);
        }
        self.array_length(partitions.len());
        for partition in partitions {
            self.partition(partition);
        }
        self.no_tags();
    }

    fn partition(&mut self, answer: &PartitionAnswer<'_>) {
        let data = answer.data;
        self.buffer.put_i32(answer.partition);
        self.buffer.put_i16(answer.error.code());
        self.buffer.put_i64(data.high_watermark);
        self.buffer.put_i64(data.last_stable_offset);
        if self.version >= 5 {
            self.buffer.put_i64(data.log_start_offset);
        }
        self.aborted_transactions(data);
        if self.version >= 11 {
            self.buffer.put_i32(data.preferred_read_replica);
        }
        self.records(data);
        self.partition_tags(answer);
    }

    fn aborted_transactions(&mut self, data: &FetchPartitionData) {
        let Some(transactions) = &data.aborted_transactions else {
            return match self.is_flexible {
                true => self.unsigned_varint(0),
                false => self.buffer.put_i32(-1),
            };
        };
        self.array_length(transactions.len());
        for transaction in transactions {
            self.buffer.put_i64(transaction.producer_id);
            self.buffer.put_i64(transaction.first_offset);
            self.no_tags();
        }
    }

    /// Never null: Kafka sends an empty set where there is nothing.
    fn records(&mut self, data: &FetchPartitionData) {
        self.array_length(data.records_size());
        if data.records.iter().all(|slice| slice.length == 0) {
            return;
        }
        self.parts.push(ResponsePart::Bytes(self.buffer.split().freeze()));
        self.parts
            .extend(data.records.iter().cloned().map(ResponsePart::File));
    }

    fn partition_tags(&mut self, answer: &PartitionAnswer<'_>) {
        if !self.is_flexible {
            return;
        }
        let diverging_epoch = answer.data.diverging_epoch;
        // A tagged field that holds its defaults is not sent.
        let current_leader = answer.current_leader.filter(|leader| *leader != (-1, -1));
        let tags = usize::from(diverging_epoch.is_some()) + usize::from(current_leader.is_some());
        self.unsigned_varint(tags);
        if let Some(diverging) = diverging_epoch {
            self.unsigned_varint(0);
            self.unsigned_varint(4 + 8 + 1);
            self.buffer.put_i32(diverging.epoch);
            self.buffer.put_i64(diverging.end_offset);
            self.no_tags();
        }
        if let Some((leader_id, leader_epoch)) = current_leader {
            self.unsigned_varint(1);
            self.unsigned_varint(4 + 4 + 1);
            self.buffer.put_i32(leader_id);
            self.buffer.put_i32(leader_epoch);
            self.no_tags();
        }
    }

    fn top_level_tags(&mut self, node_endpoints: &[LeaderEndpoint]) {
        if !self.is_flexible {
            return;
        }
        if self.version < 16 || node_endpoints.is_empty() {
            return self.unsigned_varint(0);
        }
        // Few and rare: written apart to know their size.
        let mut endpoints = Writer::new(self.version, 0);
        endpoints.array_length(node_endpoints.len());
        for endpoint in node_endpoints {
            endpoints.buffer.put_i32(endpoint.node_id);
            endpoints.string(&endpoint.host);
            endpoints.buffer.put_i32(endpoint.port);
            match &endpoint.rack {
                Some(rack) => endpoints.string(rack),
                None => endpoints.unsigned_varint(0),
            }
            endpoints.no_tags();
        }
        self.unsigned_varint(1);
        self.unsigned_varint(0);
        self.unsigned_varint(endpoints.buffer.len());
        self.buffer.put_slice(&endpoints.buffer);
    }

    fn finish(mut self) -> Vec<ResponsePart> {
        if !self.buffer.is_empty() {
            self.parts.push(ResponsePart::Bytes(self.buffer.freeze()));
        }
        self.parts
    }

    /// Of arrays and, in the same form, of records.
    fn array_length(&mut self, length: usize) {
        match self.is_flexible {
            true => self.unsigned_varint(length + 1),
            // A fetch is bounded by fetch.max.bytes, an i32.
            false => self.buffer.put_i32(length as i32),
        }
    }

    fn string(&mut self, text: &str) {
        match self.is_flexible {
            true => self.unsigned_varint(text.len() + 1),
            // Topic names have at most 249 bytes.
            false => self.buffer.put_i16(text.len() as i16),
        }
        self.buffer.put_slice(text.as_bytes());
    }

    fn no_tags(&mut self) {
        if self.is_flexible {
            self.buffer.put_u8(0);
        }
    }

    fn unsigned_varint(&mut self, value: usize) {
        let mut value = value as u32;
        while value >= 0x80 {
            self.buffer.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.buffer.put_u8(value as u8);
    }
}

#[cfg(test)]
#[path = "fetch_response_test.rs"]
mod fetch_response_test;
