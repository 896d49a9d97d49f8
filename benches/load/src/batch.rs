//! Record batches (magic 2) built once and sent many times.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// Bytes of a batch's header; the crc is at 17 and covers all from 21.
pub const BATCH_HEADER: usize = 61;
pub const CRC_AT: usize = 17;
pub const CRC_FROM: usize = 21;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl std::str::FromStr for Codec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Codec> {
        Ok(match text {
            "none" => Codec::None,
            "gzip" => Codec::Gzip,
            "snappy" => Codec::Snappy,
            "lz4" => Codec::Lz4,
            "zstd" => Codec::Zstd,
            other => bail!("no codec {other}"),
        })
    }
}

fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)) as u64;
    while zigzag >= 0x80 {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

/// Text that compresses about two to one, different in every record.
fn value(seed: &mut u32, size: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(size + 24);
    while value.len() < size {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        value.extend_from_slice(format!("field{}={seed:08x};", *seed >> 29).as_bytes());
    }
    value.truncate(size);
    value
}

fn compress(codec: Codec, records: &[u8]) -> Result<Vec<u8>> {
    Ok(match codec {
        Codec::None => records.to_vec(),
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
            encoder.write_all(records)?;
            encoder.finish()?
        }
        Codec::Snappy => {
            // The framing of snappy-java, in blocks of 32 KiB.
            let mut out = vec![
                0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1,
            ];
            for block in records.chunks(32 * 1024) {
                let compressed = snap::raw::Encoder::new().compress_vec(block)?;
                out.extend_from_slice(&(compressed.len() as u32).to_be_bytes());
                out.extend_from_slice(&compressed);
            }
            out
        }
        Codec::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(records)?;
            encoder.finish()?
        }
        Codec::Zstd => zstd::bulk::compress(records, 3)?,
    })
}

/// A batch of `count` records without keys, each with a value of `size` bytes.
pub fn build(codec: Codec, count: usize, size: usize) -> Result<Vec<u8>> {
    build_records(codec, (0..count).map(|_| None), size)
}

/// A batch of a record for each of the keys.
pub fn build_keyed(codec: Codec, keys: &[String], size: usize) -> Result<Vec<u8>> {
    build_records(codec, keys.iter().map(|key| Some(key.as_bytes())), size)
}

fn build_records<'a>(
    codec: Codec,
    keys: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    size: usize,
) -> Result<Vec<u8>> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let mut seed = 1;
    let count = keys.len();
    let mut records = Vec::with_capacity(count * (size + 32));
    for (delta, key) in keys.enumerate() {
        let mut body = vec![0u8]; // attributes
        put_varint(&mut body, 0); // time stamp delta
        put_varint(&mut body, delta as i64);
        put_varint(&mut body, key.map_or(-1, |key| key.len() as i64));
        body.extend_from_slice(key.unwrap_or_default());
        let value = value(&mut seed, size);
        put_varint(&mut body, value.len() as i64);
        body.extend_from_slice(&value);
        put_varint(&mut body, 0); // no headers
        put_varint(&mut records, body.len() as i64);
        records.extend_from_slice(&body);
    }
    let payload = compress(codec, &records)?;
    let mut batch = Vec::with_capacity(BATCH_HEADER + payload.len());
    batch.extend_from_slice(&0i64.to_be_bytes()); // base offset
    batch.extend_from_slice(&((BATCH_HEADER - 12 + payload.len()) as i32).to_be_bytes());
    batch.extend_from_slice(&(-1i32).to_be_bytes()); // partition leader epoch
    batch.push(2); // magic
    batch.extend_from_slice(&[0; 4]); // crc
    batch.extend_from_slice(&(codec as i16).to_be_bytes());
    batch.extend_from_slice(&(count as i32 - 1).to_be_bytes());
    batch.extend_from_slice(&now_ms.to_be_bytes());
    batch.extend_from_slice(&now_ms.to_be_bytes());
    batch.extend_from_slice(&(-1i64).to_be_bytes()); // producer id
    batch.extend_from_slice(&(-1i16).to_be_bytes()); // producer epoch
    batch.extend_from_slice(&(-1i32).to_be_bytes()); // base sequence
    batch.extend_from_slice(&(count as i32).to_be_bytes());
    batch.extend_from_slice(&payload);
    let crc = crc32c::crc32c(&batch[CRC_FROM..]);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    Ok(batch)
}
