//! The five codecs, as Kafka writes and reads them: names, ids, and compression in one go.
//!
//! Inflating is [`crate::record::inflate`]'s. What is written here reads on any Kafka client: gzip members, snappy in
//! snappy-java's framing, LZ4 frames of independent 64 KiB blocks, zstd frames.

use std::fmt;
use std::io::Write;

use crate::record::RecordError;
use crate::record::inflate::Inflater;

/// What snappy-java starts a stream with, followed by version and lowest compatible version.
pub(crate) const SNAPPY_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const SNAPPY_VERSION: u32 = 1;
const SNAPPY_BLOCK_SIZE: usize = 32 * 1024;

pub(crate) const LZ4_MAGIC: u32 = 0x184D_2204;
/// Version 1, independent blocks, no checksums, no content size.
const LZ4_FLAGS: u8 = 0x60;
/// Blocks of 64 KiB at most.
const LZ4_BLOCK_DESCRIPTOR: u8 = 0x40;
const LZ4_BLOCK_SIZE: usize = 64 * 1024;
pub(crate) const LZ4_UNCOMPRESSED_BLOCK: u32 = 0x8000_0000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    pub const ALL: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    /// The id in the attributes of a batch.
    pub fn id(self) -> u8 {
        self as u8
    }

    pub fn from_id(id: u8) -> Result<Compression, RecordError> {
        Self::ALL
            .get(usize::from(id))
            .copied()
            .ok_or(RecordError::UnknownCompression(id))
    }

    /// The name in configurations and in dumps.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    pub fn from_name(name: &str) -> Option<Compression> {
        Self::ALL
            .into_iter()
            .find(|compression| compression.name() == name)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Compresses a payload in one go. `level` none is the codec's default in Kafka (gzip 6, zstd 3); snappy has no
/// levels, and LZ4 is always written by the fast compressor.
pub fn compress(
    compression: Compression,
    level: Option<i32>,
    payload: &[u8],
) -> Result<Vec<u8>, RecordError> {
    let failed = |error: &dyn fmt::Display| RecordError::Compression {
        compression,
        reason: error.to_string(),
    };
    match compression {
        Compression::None => Ok(payload.to_vec()),
        Compression::Gzip => {
            let level = level
                .and_then(|level| u32::try_from(level).ok())
                .unwrap_or(6)
                .min(9);
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
            encoder
                .write_all(payload)
                .and_then(|()| encoder.finish())
                .map_err(|error| failed(&error))
        }
        Compression::Snappy => compress_snappy(payload).map_err(|error| failed(&error)),
        Compression::Lz4 => compress_lz4(payload).map_err(|error| failed(&error)),
        Compression::Zstd => {
            let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
            zstd::bulk::compress(payload, level).map_err(|error| failed(&error))
        }
    }
}

fn compress_snappy(payload: &[u8]) -> Result<Vec<u8>, snap::Error> {
    let mut encoder = snap::raw::Encoder::new();
    let mut block = vec![0; snap::raw::max_compress_len(SNAPPY_BLOCK_SIZE.min(payload.len()))];
    let mut out = Vec::with_capacity(payload.len() / 2 + 16);
    out.extend_from_slice(&SNAPPY_MAGIC);
    out.extend_from_slice(&SNAPPY_VERSION.to_be_bytes());
    out.extend_from_slice(&SNAPPY_VERSION.to_be_bytes());
    for chunk in payload.chunks(SNAPPY_BLOCK_SIZE) {
        let size = encoder.compress(chunk, &mut block)?;
        out.extend_from_slice(&(size as u32).to_be_bytes());
        out.extend_from_slice(&block[..size]);
    }
    Ok(out)
}

fn compress_lz4(payload: &[u8]) -> Result<Vec<u8>, lz4_flex::block::CompressError> {
    let descriptor = [LZ4_FLAGS, LZ4_BLOCK_DESCRIPTOR];
    let block_size = LZ4_BLOCK_SIZE.min(payload.len());
    let mut block = vec![0; lz4_flex::block::get_maximum_output_size(block_size)];
    let mut out = Vec::with_capacity(payload.len() / 2 + 16);
    out.extend_from_slice(&LZ4_MAGIC.to_le_bytes());
    out.extend_from_slice(&descriptor);
    out.push(lz4_header_checksum(&descriptor));
    for chunk in payload.chunks(LZ4_BLOCK_SIZE) {
        let size = lz4_flex::block::compress_into(chunk, &mut block)?;
        if size < chunk.len() {
            out.extend_from_slice(&(size as u32).to_le_bytes());
            out.extend_from_slice(&block[..size]);
        } else {
            out.extend_from_slice(&(chunk.len() as u32 | LZ4_UNCOMPRESSED_BLOCK).to_le_bytes());
            out.extend_from_slice(chunk);
        }
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    Ok(out)
}

/// The second byte of the descriptor's xxHash32.
pub(crate) fn lz4_header_checksum(descriptor: &[u8]) -> u8 {
    (twox_hash::XxHash32::oneshot(0, descriptor) >> 8) as u8
}

/// Inflates a whole payload of a magic 2 batch; fails as soon as it becomes larger than `limit`.
pub fn decompress(compression: Compression, payload: &[u8], limit: usize) -> Result<Vec<u8>, RecordError> {
    let mut inflater = Inflater::new(compression, payload, 2)?;
    let mut out = Vec::new();
    while inflater.next_chunk()? {
        if out.len() + inflater.chunk().len() > limit {
            return Err(RecordError::InflatedTooLarge { limit });
        }
        out.extend_from_slice(inflater.chunk());
    }
    Ok(out)
}

#[cfg(test)]
#[path = "compression_test.rs"]
mod compression_test;
