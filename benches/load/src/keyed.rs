//! Keyed records for a compacted topic, and what is left of them after a cleaning.
//!
//! The digest reads the `.log` files of a stopped broker: two brokers that cleaned the same log must leave the same
//! records, however they cut them into batches and segments.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::Arguments;
use crate::batch::{self, BATCH_HEADER, Codec};
use crate::wire;

/// Distinct batches that are built before the clock starts; sent again in turns.
const BATCHES: usize = 2048;
const IN_FLIGHT: usize = 4;

fn read_answer(stream: &mut TcpStream, topic: &str) -> Result<()> {
    let answer = wire::read_answer(stream)?;
    match wire::read_i16(&answer, wire::produce_error_at(topic)) {
        0 => Ok(()),
        error => bail!("the broker answered a Produce with error {error}"),
    }
}

/// Produces `bytes` of values under keys that come again and again, into partition 0.
pub fn produce(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let topic: String = arguments.require("topic")?;
    let bytes: u64 = arguments.require("bytes")?;
    let record_size: usize = arguments.get("record-size", 512)?;
    let batch_records: usize = arguments.get("batch-records", 32)?;
    let keys: u64 = arguments.get("keys", 100_000)?;
    arguments.finish()?;
    let count = (bytes / (record_size * batch_records) as u64).max(1);
    let mut seed = 7u64;
    let mut next_key = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        format!("key-{:012}", (seed >> 33) % keys)
    };
    let mut batches = Vec::new();
    for _ in 0..count.min(BATCHES as u64) {
        let keys: Vec<String> = (0..batch_records).map(|_| next_key()).collect();
        batches.push(batch::build_keyed(Codec::None, &keys, record_size)?);
    }
    let mut stream = crate::admin::connect_to(address)?;
    let mut waiting = 0;
    for index in 0..count {
        let batch = &batches[index as usize % batches.len()];
        let mut frame = wire::produce_head(&topic, 0, 1, batch.len());
        frame.extend_from_slice(batch);
        std::io::Write::write_all(&mut stream, &frame)?;
        waiting += 1;
        if waiting == IN_FLIGHT {
            read_answer(&mut stream, &topic)?;
            waiting -= 1;
        }
    }
    for _ in 0..waiting {
        read_answer(&mut stream, &topic)?;
    }
    println!("{{\"records\":{}}}", count * batch_records as u64);
    Ok(())
}

fn varint(bytes: &[u8], at: &mut usize) -> Result<i64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = *bytes.get(*at).context("a record is cut off")?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
        shift += 7;
        if shift > 63 {
            bail!("a number of more than 64 bits");
        }
    }
}

/// FNV-1a: enough to tell two logs apart.
struct Digest {
    hash: u64,
    records: u64,
    bytes: u64,
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Offset, time stamp, and all of the record behind its deltas: key, value, headers.
    fn add_batch(&mut self, batch: &[u8]) -> Result<()> {
        if wire::read_i16(batch, 21) & 7 != 0 {
            bail!("a compressed batch: the digest reads none");
        }
        let (base_offset, base_timestamp) = (wire::read_i64(batch, 0), wire::read_i64(batch, 27));
        let mut at = BATCH_HEADER;
        for _ in 0..wire::read_i32(batch, BATCH_HEADER - 4) {
            let length = varint(batch, &mut at)? as usize;
            let end = at + length;
            at += 1; // attributes
            let timestamp = base_timestamp + varint(batch, &mut at)?;
            let offset = base_offset + varint(batch, &mut at)?;
            self.add(&offset.to_be_bytes());
            self.add(&timestamp.to_be_bytes());
            self.add(batch.get(at..end).context("a record is cut off")?);
            self.records += 1;
            at = end;
        }
        Ok(())
    }
}

/// What the segments in a partition's folder hold.
pub fn digest(mut arguments: Arguments) -> Result<()> {
    let directory: PathBuf = arguments.require("directory")?;
    arguments.finish()?;
    let mut segments: Vec<PathBuf> = fs::read_dir(&directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    segments.sort();
    let mut digest = Digest {
        hash: 0xcbf2_9ce4_8422_2325,
        records: 0,
        bytes: 0,
    };
    for path in &segments {
        let content = fs::read(path)?;
        digest.bytes += content.len() as u64;
        let mut at = 0;
        while at < content.len() {
            let size = 12 + wire::read_i32(&content, at + 8) as usize;
            let batch = content.get(at..at + size);
            digest.add_batch(batch.with_context(|| format!("{} ends in a batch", path.display()))?)?;
            at += size;
        }
    }
    println!(
        "{{\"records\":{},\"bytes\":{},\"segments\":{},\"digest\":\"{:016x}\"}}",
        digest.records,
        digest.bytes,
        segments.len(),
        digest.hash
    );
    Ok(())
}
