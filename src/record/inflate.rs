//! Streaming decompression of a batch's payload, chunk by chunk, with bounded memory.
//!
//! No size that the data declares is trusted: an LZ4 block holds 4 MiB at most, a snappy block may declare no more
//! than its compressed bytes can yield, gzip and zstd are drained through a fixed buffer. Buffers and the zstd
//! context are kept for the thread's next batch, so that the produce path allocates nothing once warm.
//!
//! Accepts what Kafka's readers accept (snappy-java framing and raw snappy; LZ4 frames of independent blocks, with
//! the wrong header checksum of old clients for magic 0; concatenated gzip members and zstd frames).

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{ErrorKind, Read};

use bytes::BytesMut;
use flate2::bufread::GzDecoder;
use zstd::zstd_safe;

use crate::record::compression::{LZ4_MAGIC, LZ4_UNCOMPRESSED_BLOCK, SNAPPY_MAGIC, lz4_header_checksum};
use crate::record::record_batch::read_i32;
use crate::record::varint::{read_varint, read_varlong};
use crate::record::{Compression, RecordError};

/// Output of gzip and zstd at a time.
const CHUNK_SIZE: usize = 64 * 1024;
/// What a thread keeps between batches at most.
const KEPT_BUFFER_SIZE_MAX: usize = 1024 * 1024;
const KEPT_CONTEXT_SIZE_MAX: usize = 4 * 1024 * 1024;
/// A snappy element of three bytes yields 64 at most; anything that declares more cannot be whole.
const SNAPPY_EXPANSION_MAX: usize = 22;
const SNAPPY_HEADER_SIZE: usize = 16;

thread_local! {
    static KEPT: RefCell<Buffers> = RefCell::new(Buffers::default());
}

#[derive(Default)]
struct Buffers {
    output: Vec<u8>,
    zstd: Option<zstd_safe::DCtx<'static>>,
}

enum Codec<'a> {
    Stored,
    Gzip(Option<Box<GzDecoder<&'a [u8]>>>),
    /// `framed`: blocks with a length each; else one raw block.
    Snappy {
        framed: bool,
    },
    Lz4 {
        block_size_max: usize,
        block_checksums: bool,
        content_checksum: bool,
        finished: bool,
    },
    Zstd {
        frame_finished: bool,
    },
}

/// Where the current chunk lies.
enum Chunk<'a> {
    Output(usize),
    Input(&'a [u8]),
}

pub struct Inflater<'a> {
    compression: Compression,
    codec: Codec<'a>,
    /// What is left of the payload (not used by gzip, whose decoder holds it).
    input: &'a [u8],
    chunk: Chunk<'a>,
    buffers: Buffers,
}

impl<'a> Inflater<'a> {
    /// `magic` is that of the batch: LZ4 of magic 0 has a wrong header checksum.
    pub fn new(compression: Compression, payload: &'a [u8], magic: i8) -> Result<Inflater<'a>, RecordError> {
        let mut input = payload;
        let codec = match compression {
            Compression::None => Codec::Stored,
            Compression::Gzip => Codec::Gzip(Some(Box::new(GzDecoder::new(payload)))),
            Compression::Snappy => {
                let framed = read_snappy_header(&mut input);
                Codec::Snappy { framed }
            }
            Compression::Lz4 => read_lz4_header(&mut input, magic == 0)?,
            Compression::Zstd => Codec::Zstd { frame_finished: true },
        };
        let mut buffers = KEPT.with(|kept| kept.try_borrow_mut().map(|mut kept| std::mem::take(&mut *kept)));
        let buffers = buffers.as_mut().map(std::mem::take).unwrap_or_default();
        let mut inflater = Inflater {
            compression,
            codec,
            input,
            chunk: Chunk::Output(0),
            buffers,
        };
        if let Codec::Zstd { .. } = inflater.codec {
            inflater.prepare_zstd()?;
        }
        Ok(inflater)
    }

    /// The bytes that the last [`Inflater::next_chunk`] found.
    #[inline]
    pub fn chunk(&self) -> &[u8] {
        match self.chunk {
            Chunk::Output(size) => &self.buffers.output[..size],
            Chunk::Input(slice) => slice,
        }
    }

    /// Moves to the next chunk, which is not empty; false at the end of the data.
    pub fn next_chunk(&mut self) -> Result<bool, RecordError> {
        // A block may inflate to nothing.
        loop {
            self.chunk = Chunk::Output(0);
            let more = match self.codec {
                Codec::Stored => {
                    self.chunk = Chunk::Input(std::mem::take(&mut self.input));
                    false
                }
                Codec::Gzip(_) => self.next_gzip_chunk()?,
                Codec::Snappy { framed } => self.next_snappy_block(framed)?,
                Codec::Lz4 { .. } => self.next_lz4_block()?,
                Codec::Zstd { .. } => self.next_zstd_chunk()?,
            };
            if !self.chunk().is_empty() {
                return Ok(true);
            }
            if !more {
                return Ok(false);
            }
        }
    }

    fn damaged(&self, reason: impl Display) -> RecordError {
        RecordError::Decompression {
            compression: self.compression,
            reason: reason.to_string(),
        }
    }

    /// Makes room for a block. The buffer only grows to sizes that were checked.
    fn reserve_output(&mut self, size: usize) {
        if self.buffers.output.len() < size {
            self.buffers.output.resize(size, 0);
        }
    }

    fn next_gzip_chunk(&mut self) -> Result<bool, RecordError> {
        self.reserve_output(CHUNK_SIZE);
        let Codec::Gzip(decoder) = &mut self.codec else {
            return Ok(false);
        };
        let Some(member) = decoder else { return Ok(false) };
        let mut size = 0;
        while size < CHUNK_SIZE {
            match member.read(&mut self.buffers.output[size..CHUNK_SIZE]) {
                Ok(0) if size > 0 => break,
                Ok(0) => {
                    // As java.util.zip does, take another member if one follows, and ignore anything else.
                    let rest = *member.get_ref();
                    *decoder = rest
                        .starts_with(&[0x1f, 0x8b])
                        .then(|| Box::new(GzDecoder::new(rest)));
                    return Ok(decoder.is_some());
                }
                Ok(read) => size += read,
                // What came before a missing end counts, as in java.util.zip; the next read fails again.
                Err(error) if size > 0 && error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(self.damaged(error)),
            }
        }
        self.chunk = Chunk::Output(size);
        Ok(true)
    }

    fn next_snappy_block(&mut self, framed: bool) -> Result<bool, RecordError> {
        let block = if framed {
            let Some(size) = read_i32(self.input, 0) else {
                // snappy-java takes a cut length for the end.
                self.input = &[];
                return Ok(false);
            };
            // Streams may be concatenated.
            if read_snappy_header(&mut self.input) {
                return Ok(true);
            }
            match usize::try_from(size)
                .ok()
                .and_then(|size| self.input.get(4..4 + size))
            {
                Some(block) => {
                    self.input = &self.input[4 + block.len()..];
                    block
                }
                None => return Err(self.damaged(format_args!("block of {size} bytes is cut off"))),
            }
        } else {
            std::mem::take(&mut self.input)
        };
        if block.is_empty() {
            return Ok(framed);
        }
        let size = snap::raw::decompress_len(block).map_err(|error| self.damaged(error))?;
        if size > block.len().saturating_mul(SNAPPY_EXPANSION_MAX) {
            return Err(self.damaged(format_args!("block of {} bytes declares {size}", block.len())));
        }
        self.reserve_output(size);
        let inflated = snap::raw::Decoder::new().decompress(block, &mut self.buffers.output);
        let size = inflated.map_err(|error| self.damaged(error))?;
        self.chunk = Chunk::Output(size);
        Ok(true)
    }

    fn next_lz4_block(&mut self) -> Result<bool, RecordError> {
        let Codec::Lz4 {
            block_size_max,
            block_checksums,
            content_checksum,
            finished,
        } = self.codec
        else {
            return Ok(false);
        };
        if finished {
            return Ok(false);
        }
        let ended = "Stream ended prematurely";
        let word = read_i32(self.input, 0)
            .ok_or_else(|| self.damaged(ended))?
            .swap_bytes() as u32;
        let stored = word & LZ4_UNCOMPRESSED_BLOCK != 0;
        let size = (word & !LZ4_UNCOMPRESSED_BLOCK) as usize;
        self.input = &self.input[4..];
        if size == 0 {
            if content_checksum && self.input.len() < 4 {
                return Err(self.damaged(ended));
            }
            self.codec = Codec::Lz4 {
                block_size_max,
                block_checksums,
                content_checksum,
                finished: true,
            };
            return Ok(false);
        }
        if size > block_size_max {
            return Err(self.damaged(format_args!("Block size {size} exceeded max: {block_size_max}")));
        }
        let block = self.input.get(..size).ok_or_else(|| self.damaged(ended))?;
        self.input = &self.input[size..];
        if block_checksums {
            let stored_sum = read_i32(self.input, 0)
                .ok_or_else(|| self.damaged(ended))?
                .swap_bytes() as u32;
            self.input = &self.input[4..];
            if stored_sum != twox_hash::XxHash32::oneshot(0, block) {
                return Err(self.damaged("Block checksum mismatch"));
            }
        }
        if stored {
            self.chunk = Chunk::Input(block);
            return Ok(true);
        }
        self.reserve_output(block_size_max);
        let output = &mut self.buffers.output[..block_size_max];
        let inflated = lz4_flex::block::decompress_into(block, output);
        self.chunk = Chunk::Output(inflated.map_err(|error| self.damaged(error))?);
        Ok(true)
    }

    fn prepare_zstd(&mut self) -> Result<(), RecordError> {
        match &mut self.buffers.zstd {
            Some(context) => {
                let reset = context.reset(zstd_safe::ResetDirective::SessionOnly);
                reset
                    .map(|_| ())
                    .map_err(|code| self.damaged(zstd_safe::get_error_name(code)))
            }
            None => {
                let context = zstd_safe::DCtx::try_create();
                self.buffers.zstd = Some(context.ok_or_else(|| self.damaged("no memory for a context"))?);
                Ok(())
            }
        }
    }

    fn next_zstd_chunk(&mut self) -> Result<bool, RecordError> {
        self.reserve_output(CHUNK_SIZE);
        let Codec::Zstd { frame_finished } = self.codec else {
            return Ok(false);
        };
        if self.input.is_empty() && frame_finished {
            return Ok(false);
        }
        let Some(context) = &mut self.buffers.zstd else {
            return Ok(false);
        };
        let mut input = zstd_safe::InBuffer::around(self.input);
        let mut output = zstd_safe::OutBuffer::around(&mut self.buffers.output[..]);
        let hint = context.decompress_stream(&mut output, &mut input);
        let (read, written) = (input.pos, output.pos());
        let hint = hint.map_err(|code| self.damaged(zstd_safe::get_error_name(code)))?;
        self.input = &self.input[read..];
        self.codec = Codec::Zstd {
            frame_finished: hint == 0,
        };
        self.chunk = Chunk::Output(written);
        if read == 0 && written == 0 && hint != 0 {
            return Err(self.damaged("Truncated source"));
        }
        Ok(true)
    }
}

impl Drop for Inflater<'_> {
    fn drop(&mut self) {
        let mut buffers = std::mem::take(&mut self.buffers);
        if buffers.output.capacity() > KEPT_BUFFER_SIZE_MAX {
            buffers.output = Vec::new();
        }
        buffers.zstd = buffers
            .zstd
            .filter(|context| context.sizeof() <= KEPT_CONTEXT_SIZE_MAX);
        // The thread may be ending, or an outer inflater's buffers may be there already: then these are dropped.
        let _ = KEPT.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut() {
                *kept = buffers;
            }
        });
    }
}

/// What this thread holds for its next batch, with zstd's window; none if the last batch made it too large to keep.
#[cfg(test)]
pub(crate) fn kept_size() -> Option<usize> {
    KEPT.with_borrow(|kept| Some(kept.output.capacity() + kept.zstd.as_ref()?.sizeof()))
}

/// Consumes the header of snappy-java's framing; false if there is none and the payload is one raw block. The
/// versions behind the magic are not looked at, as snappy-java does not.
fn read_snappy_header(input: &mut &[u8]) -> bool {
    let framed = input.len() >= SNAPPY_HEADER_SIZE && input.starts_with(&SNAPPY_MAGIC);
    if framed {
        *input = &input[SNAPPY_HEADER_SIZE..];
    }
    framed
}

fn read_lz4_header<'a>(input: &mut &[u8], ignore_checksum: bool) -> Result<Codec<'a>, RecordError> {
    let damaged = |reason: &str| RecordError::Decompression {
        compression: Compression::Lz4,
        reason: reason.to_string(),
    };
    let ended = || damaged("Stream ended prematurely");
    if read_i32(input, 0).ok_or_else(ended)?.swap_bytes() as u32 != LZ4_MAGIC {
        return Err(damaged("Stream unsupported (invalid magic bytes)"));
    }
    let (&flags, &block_descriptor) = (input.get(4).ok_or_else(ended)?, input.get(5).ok_or_else(ended)?);
    if flags >> 6 != 1 {
        return Err(damaged("Version must be 1"));
    }
    if flags & 0x03 != 0 {
        return Err(damaged("Reserved bits must be 0"));
    }
    if flags & 0x20 == 0 {
        return Err(damaged("Dependent block stream is unsupported"));
    }
    if block_descriptor & 0x8f != 0 {
        return Err(damaged("Reserved bits must be 0"));
    }
    let block_size_max = match block_descriptor >> 4 {
        code @ 4..=7 => 1 << (2 * code + 8),
        _ => return Err(damaged("Block size value must be between 4 and 7")),
    };
    let content_size = if flags & 0x08 != 0 { 8 } else { 0 };
    let descriptor = input.get(4..6 + content_size).ok_or_else(ended)?;
    let &checksum = input.get(6 + content_size).ok_or_else(ended)?;
    if !ignore_checksum && checksum != lz4_header_checksum(descriptor) {
        return Err(damaged("Stream frame descriptor corrupted"));
    }
    *input = &input[7 + content_size..];
    Ok(Codec::Lz4 {
        block_size_max,
        block_checksums: flags & 0x10 != 0,
        content_checksum: flags & 0x04 != 0,
        finished: false,
    })
}

/// Reads the fields of records from an inflater, across its chunks.
pub(crate) struct InflatedReader<'a> {
    inflater: Inflater<'a>,
    position: usize,
    ended: bool,
}

impl<'a> InflatedReader<'a> {
    pub(crate) fn new(inflater: Inflater<'a>) -> InflatedReader<'a> {
        InflatedReader {
            inflater,
            position: 0,
            ended: false,
        }
    }

    /// The unread part of the current chunk; empty only at the end.
    #[inline(always)]
    fn available(&mut self) -> Result<&[u8], RecordError> {
        if self.position >= self.inflater.chunk().len() {
            self.refill()?;
        }
        Ok(&self.inflater.chunk()[self.position..])
    }

    #[inline(never)]
    fn refill(&mut self) -> Result<(), RecordError> {
        if !self.ended {
            self.position = 0;
            self.ended = !self.inflater.next_chunk()?;
        }
        Ok(())
    }

    pub(crate) fn is_at_end(&mut self) -> Result<bool, RecordError> {
        Ok(self.available()?.is_empty())
    }

    #[inline]
    pub(crate) fn read_byte(&mut self) -> Result<Option<u8>, RecordError> {
        let byte = self.available()?.first().copied();
        self.position += usize::from(byte.is_some());
        Ok(byte)
    }

    /// None if the data ends within the number or it is too long.
    #[inline]
    pub(crate) fn read_varint(&mut self) -> Result<Option<i32>, RecordError> {
        if let Some((value, size)) = read_varint(self.available()?) {
            self.position += size;
            return Ok(Some(value));
        }
        let (bytes, size) = self.gather_varint::<5>()?;
        Ok(read_varint(&bytes[..size]).map(|(value, _)| value))
    }

    #[inline]
    pub(crate) fn read_varlong(&mut self) -> Result<Option<i64>, RecordError> {
        if let Some((value, size)) = read_varlong(self.available()?) {
            self.position += size;
            return Ok(Some(value));
        }
        let (bytes, size) = self.gather_varint::<10>()?;
        Ok(read_varlong(&bytes[..size]).map(|(value, _)| value))
    }

    /// The bytes of a number that lies across a chunk's end.
    #[cold]
    fn gather_varint<const SIZE: usize>(&mut self) -> Result<([u8; SIZE], usize), RecordError> {
        let mut bytes = [0; SIZE];
        for index in 0..SIZE {
            match self.read_byte()? {
                Some(byte) => bytes[index] = byte,
                None => return Ok((bytes, index)),
            }
            if bytes[index] < 0x80 {
                return Ok((bytes, index + 1));
            }
        }
        Ok((bytes, SIZE))
    }

    /// Skips `size` bytes; returns how many were missing.
    #[inline]
    pub(crate) fn skip(&mut self, size: usize) -> Result<usize, RecordError> {
        let mut rest = size;
        while rest > 0 {
            let step = self.available()?.len().min(rest);
            if step == 0 {
                break;
            }
            self.position += step;
            rest -= step;
        }
        Ok(rest)
    }

    /// Appends `size` bytes to `buffer`, which grows with what is there, not with what is asked for; returns how
    /// many were missing.
    pub(crate) fn read_into(&mut self, buffer: &mut BytesMut, size: usize) -> Result<usize, RecordError> {
        let mut rest = size;
        while rest > 0 {
            let available = self.available()?;
            let step = available.len().min(rest);
            if step == 0 {
                break;
            }
            buffer.extend_from_slice(&available[..step]);
            self.position += step;
            rest -= step;
        }
        Ok(rest)
    }
}
