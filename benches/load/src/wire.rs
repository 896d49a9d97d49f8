//! The handful of requests the generator speaks, in versions without tagged fields: Produce 8, Fetch 11, Metadata 4,
//! CreateTopics 4, ApiVersions 0. Requests are written, answers are read at fixed places: one topic a request.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, bail};

pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
pub const METADATA: i16 = 3;
pub const API_VERSIONS: i16 = 18;
pub const CREATE_TOPICS: i16 = 19;

/// Where the correlation id is, in a frame with its length before it.
pub const CORRELATION_AT: usize = 8;
const CLIENT_ID: &[u8] = b"kavka-load";

/// Builds a frame: length, header version 1, body.
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    pub fn new(api_key: i16, version: i16) -> Request {
        let mut request = Request { bytes: vec![0; 4] };
        request.i16(api_key).i16(version).i32(0).string(CLIENT_ID);
        request
    }

    /// With header version 2: tagged fields, none here. What follows has compact lengths.
    pub fn flexible(api_key: i16, version: i16) -> Request {
        let mut request = Request::new(api_key, version);
        request.i8(0);
        request
    }

    pub fn bytes(&mut self, value: &[u8]) -> &mut Request {
        self.bytes.extend_from_slice(value);
        self
    }

    /// The compact length of an array: one more than it has, as a varint.
    pub fn length(&mut self, count: usize) -> &mut Request {
        let mut rest = count + 1;
        while rest >= 0x80 {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
        self
    }

    pub fn compact_string(&mut self, value: &[u8]) -> &mut Request {
        self.length(value.len()).bytes(value)
    }

    pub fn i8(&mut self, value: i8) -> &mut Request {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn i16(&mut self, value: i16) -> &mut Request {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn i32(&mut self, value: i32) -> &mut Request {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn i64(&mut self, value: i64) -> &mut Request {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn string(&mut self, value: &[u8]) -> &mut Request {
        self.i16(value.len() as i16);
        self.bytes.extend_from_slice(value);
        self
    }

    /// The frame; `following` bytes of the body are sent after it.
    pub fn frame(mut self, following: usize) -> Vec<u8> {
        let length = (self.bytes.len() - 4 + following) as i32;
        self.bytes[..4].copy_from_slice(&length.to_be_bytes());
        self.bytes
    }
}

/// What goes before a batch in a Produce request of one partition.
pub fn produce_head(topic: &str, partition: i32, acks: i16, batch: usize) -> Vec<u8> {
    let mut request = Request::new(PRODUCE, 8);
    request
        .i16(-1) // no transactional id
        .i16(acks)
        .i32(30_000)
        .i32(1)
        .string(topic.as_bytes())
        .i32(1)
        .i32(partition)
        .i32(batch as i32);
    request.frame(batch)
}

pub struct FetchLimits {
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub partition_max_bytes: i32,
}

/// A Fetch of every given partition, outside of any session.
pub fn fetch(topic: &str, partitions: &[(i32, i64)], limits: &FetchLimits) -> Vec<u8> {
    let mut request = Request::new(FETCH, 11);
    request
        .i32(-1) // a consumer
        .i32(limits.max_wait_ms)
        .i32(limits.min_bytes)
        .i32(limits.max_bytes)
        .i8(0) // read uncommitted
        .i32(0)
        .i32(-1) // no session
        .i32(1)
        .string(topic.as_bytes())
        .i32(partitions.len() as i32);
    for (partition, offset) in partitions {
        request
            .i32(*partition)
            .i32(-1) // current leader epoch
            .i64(*offset)
            .i64(-1) // log start offset
            .i32(limits.partition_max_bytes);
    }
    request.i32(0).string(b""); // forgotten topics, rack
    request.frame(0)
}

pub fn read_i16(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub fn read_i32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub fn read_i64(bytes: &[u8], at: usize) -> i64 {
    (i64::from(read_i32(bytes, at)) << 32) | i64::from(read_i32(bytes, at + 4) as u32)
}

/// Where the first partition's error code is in a Produce answer (frame without its length).
pub fn produce_error_at(topic: &str) -> usize {
    4 + 4 + 2 + topic.len() + 4 + 4
}

/// Bytes before a Fetch answer's first partition (frame without its length).
pub fn fetch_answer_head(topic: &str) -> usize {
    4 + 4 + 2 + 4 + 4 + 2 + topic.len() + 4
}

/// One request and its answer on a blocking socket.
pub fn call(stream: &mut TcpStream, frame: &[u8]) -> Result<Vec<u8>> {
    stream.write_all(frame)?;
    read_answer(stream)
}

/// The next answer, without its length.
pub fn read_answer(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = i32::from_be_bytes(length);
    if !(4..=100_000_000).contains(&length) {
        bail!("an answer of {length} bytes");
    }
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// Reads an answer from its start to its end.
pub struct Answer<'a> {
    bytes: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Without the correlation id.
    pub fn new(bytes: &'a [u8]) -> Answer<'a> {
        Answer { bytes: &bytes[4..] }
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        if self.bytes.len() < count {
            bail!("the answer ends early");
        }
        let (taken, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        Ok(taken)
    }

    pub fn i8(&mut self) -> Result<i8> {
        Ok(self.take(1)?[0] as i8)
    }

    /// A compact length; of null it is 0.
    pub fn length(&mut self) -> Result<usize> {
        let mut length = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.take(1)?[0];
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(length.saturating_sub(1));
            }
        }
        bail!("a length that does not end")
    }

    pub fn compact_string(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    pub fn i16(&mut self) -> Result<i16> {
        Ok(read_i16(self.take(2)?, 0))
    }

    pub fn i32(&mut self) -> Result<i32> {
        Ok(read_i32(self.take(4)?, 0))
    }

    /// A string, or the empty one for null.
    pub fn string(&mut self) -> Result<&'a [u8]> {
        let length = self.i16()?;
        self.take(length.max(0) as usize)
    }
}
