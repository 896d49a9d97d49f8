//! One record of a magic 2 batch, and the records of a batch of any magic.
//!
//! ```text
//! size varint | attributes i8 | timestamp delta varlong | offset delta varint | key | value | header count varint |
//! (header key, header value)*          each of these: size varint (negative: null) and bytes
//! ```

use bytes::{Bytes, BytesMut};

use crate::record::error::InvalidRecord;
use crate::record::inflate::{InflatedReader, Inflater};
use crate::record::varint::{read_varint, read_varlong};
use crate::record::{BatchHeader, RECORD_BATCH_OVERHEAD, RecordError, TimestampType, legacy};

/// A header: keys may repeat, and their order is kept.
pub type Header = (Bytes, Option<Bytes>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    pub offset: i64,
    /// The batch's append time where its time stamp type is LogAppendTime; -1 for magic 0.
    pub timestamp: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
}

/// A record as it lies in its batch: checked in full, nothing copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRecord<'a> {
    pub attributes: i8,
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub header_count: i32,
    /// The encoded headers, checked.
    pub headers: &'a [u8],
}

/// Reads the record (with its size) at the front of `bytes`; returns what it takes.
#[inline(always)]
pub fn parse_record(bytes: &[u8]) -> Result<(RawRecord<'_>, usize), InvalidRecord> {
    let (size, prefix) = read_varint(bytes).ok_or(InvalidRecord::PrematureEnd)?;
    let rest = &bytes[prefix..];
    let size = usize::try_from(size).map_err(|_| InvalidRecord::NegativeSize(size))?;
    let Some(body) = rest.get(..size) else {
        return Err(InvalidRecord::Size {
            expected: size,
            available: rest.len(),
        });
    };
    Ok((parse_body(body)?, prefix + size))
}

/// Reads a record's body, which must fill `body`.
#[inline(always)]
pub fn parse_body(body: &[u8]) -> Result<RawRecord<'_>, InvalidRecord> {
    let mut cursor = Cursor { rest: body };
    let attributes = cursor.byte()? as i8;
    let timestamp_delta = cursor.varlong()?;
    let offset_delta = cursor.varint()?;
    let key = cursor.sized()?;
    let value = cursor.sized()?;
    let header_count = cursor.varint()?;
    if header_count < 0 || header_count as usize > cursor.rest.len() {
        return Err(InvalidRecord::HeaderCount(header_count));
    }
    let headers = cursor.rest;
    for _ in 0..header_count {
        cursor.header()?;
    }
    if !cursor.rest.is_empty() {
        let read = body.len() - cursor.rest.len();
        return Err(InvalidRecord::SizeMismatch {
            expected: body.len(),
            read,
        });
    }
    Ok(RawRecord {
        attributes,
        timestamp_delta,
        offset_delta,
        key,
        value,
        header_count,
        headers,
    })
}

impl<'a> RawRecord<'a> {
    /// The headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        let mut cursor = Cursor { rest: self.headers };
        // They were checked when the record was parsed.
        (0..self.header_count).map_while(move |_| cursor.header().ok())
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    fn byte(&mut self) -> Result<u8, InvalidRecord> {
        let (&byte, rest) = self.rest.split_first().ok_or(InvalidRecord::Structure)?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<i32, InvalidRecord> {
        let (value, size) = read_varint(self.rest).ok_or(InvalidRecord::Structure)?;
        self.rest = &self.rest[size..];
        Ok(value)
    }

    #[inline(always)]
    fn varlong(&mut self) -> Result<i64, InvalidRecord> {
        let (value, size) = read_varlong(self.rest).ok_or(InvalidRecord::Structure)?;
        self.rest = &self.rest[size..];
        Ok(value)
    }

    /// Bytes behind their size; null if that is negative.
    #[inline(always)]
    fn sized(&mut self) -> Result<Option<&'a [u8]>, InvalidRecord> {
        let Ok(size) = usize::try_from(self.varint()?) else {
            return Ok(None);
        };
        let (bytes, rest) = self.rest.split_at_checked(size).ok_or(InvalidRecord::Structure)?;
        self.rest = rest;
        Ok(Some(bytes))
    }

    fn header(&mut self) -> Result<(&'a [u8], Option<&'a [u8]>), InvalidRecord> {
        let size = self.varint()?;
        let size = usize::try_from(size).map_err(|_| InvalidRecord::HeaderKeySize(size))?;
        let (key, rest) = self.rest.split_at_checked(size).ok_or(InvalidRecord::Structure)?;
        self.rest = rest;
        Ok((key, self.sized()?))
    }
}

/// The records of one batch, in order; ends after the first error.
#[derive(Debug)]
pub struct Records {
    header: BatchHeader,
    source: Source,
    remaining: i32,
}

#[derive(Debug)]
enum Source {
    /// Uncompressed, or inflated: records share these bytes.
    Payload(Bytes),
    Ready(std::vec::IntoIter<Record>),
}

/// The records of one whole batch (of any magic). Does not check the batch's CRC. Keys and values share the
/// bytes of an uncompressed batch; a compressed one is inflated, with what Kafka can hold as the limit.
pub fn records_of(batch: &Bytes) -> Result<Records, RecordError> {
    records_of_bounded(batch, i32::MAX as usize)
}

/// Like [`records_of`]; fails if the payload inflates to more than `inflated_size_max`.
pub fn records_of_bounded(batch: &Bytes, inflated_size_max: usize) -> Result<Records, RecordError> {
    let header = BatchHeader::parse(batch)?;
    let size = header.size_in_bytes();
    if batch.len() < size {
        return Err(RecordError::Torn {
            position: 0,
            needed: size,
            available: batch.len(),
        });
    }
    if header.magic < 2 {
        let records = legacy::records(&batch.slice(..size), inflated_size_max)?;
        return Ok(Records {
            header,
            remaining: records.len() as i32,
            source: Source::Ready(records.into_iter()),
        });
    }
    if header.records_count < 0 {
        return Err(InvalidRecord::Count(header.records_count).into());
    }
    let payload = batch.slice(RECORD_BATCH_OVERHEAD..size);
    let payload = if header.records_count > 0 && header.is_compressed() {
        inflate_records(&header, &payload, inflated_size_max)?
    } else {
        payload
    };
    Ok(Records {
        header,
        remaining: header.records_count,
        source: Source::Payload(payload),
    })
}

fn inflate_records(header: &BatchHeader, payload: &[u8], limit: usize) -> Result<Bytes, RecordError> {
    let mut inflater = Inflater::new(header.compression()?, payload, header.magic)?;
    let mut inflated = BytesMut::new();
    while inflater.next_chunk()? {
        if inflated.len() + inflater.chunk().len() > limit {
            return Err(RecordError::InflatedTooLarge { limit });
        }
        inflated.extend_from_slice(inflater.chunk());
    }
    Ok(inflated.freeze())
}

impl Records {
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    fn next_of(&mut self) -> Result<Option<Record>, RecordError> {
        let payload = match &mut self.source {
            Source::Ready(records) => return Ok(records.next()),
            Source::Payload(payload) => payload,
        };
        let (raw, size) = parse_record(payload)?;
        let record = to_record(&self.header, &raw, payload);
        *payload = payload.slice(size..);
        if self.remaining == 1 && !payload.is_empty() {
            return Err(InvalidRecord::RecordsRemaining.into());
        }
        Ok(Some(record))
    }
}

/// `owner` holds the bytes that `raw` borrows.
fn to_record(header: &BatchHeader, raw: &RawRecord<'_>, owner: &Bytes) -> Record {
    Record {
        offset: header.base_offset.wrapping_add(i64::from(raw.offset_delta)),
        timestamp: record_timestamp(header, raw.timestamp_delta),
        key: raw.key.map(|key| owner.slice_ref(key)),
        value: raw.value.map(|value| owner.slice_ref(value)),
        headers: raw
            .headers()
            .map(|(key, value)| (owner.slice_ref(key), value.map(|value| owner.slice_ref(value))))
            .collect(),
    }
}

#[inline]
pub(crate) fn record_timestamp(header: &BatchHeader, timestamp_delta: i64) -> i64 {
    match header.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp,
        _ => header.base_timestamp.wrapping_add(timestamp_delta),
    }
}

impl Iterator for Records {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining <= 0 {
            return None;
        }
        let record = self.next_of().transpose();
        self.remaining = if matches!(record, Some(Ok(_))) {
            self.remaining - 1
        } else {
            0
        };
        record
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.remaining).ok())
    }
}

/// What a check needs to know of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordShape {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    /// Negative: null.
    pub(crate) key_size: i32,
    pub(crate) value_size: i32,
}

/// Walks the records of an uncompressed payload; checks each in full, and that they fill it.
pub(crate) fn walk_payload<'a>(
    payload: &'a [u8],
    count: i32,
    mut visit: impl FnMut(&RawRecord<'a>),
) -> Result<(), RecordError> {
    let mut rest = payload;
    for _ in 0..count {
        let (record, size) = parse_record(rest)?;
        rest = &rest[size..];
        visit(&record);
    }
    if count > 0 && !rest.is_empty() {
        return Err(InvalidRecord::RecordsRemaining.into());
    }
    Ok(())
}

/// Walks the records of a compressed payload without keeping any. As Kafka's reader that skips keys and values, it
/// does not compare a record's declared size with its fields.
pub(crate) fn walk_inflated(
    inflater: Inflater<'_>,
    count: i32,
    record_size_max: i32,
    mut visit: impl FnMut(&RecordShape),
) -> Result<(), RecordError> {
    let mut reader = InflatedReader::new(inflater);
    for _ in 0..count {
        read_size(&mut reader, record_size_max)?;
        let shape = read_shape(&mut reader)?;
        visit(&shape);
    }
    if count > 0 && !reader.is_at_end()? {
        return Err(InvalidRecord::RecordsRemaining.into());
    }
    Ok(())
}

/// Walks the records of a compressed payload in full, one at a time in a reused buffer.
pub(crate) fn walk_inflated_records(
    inflater: Inflater<'_>,
    count: i32,
    record_size_max: i32,
    mut visit: impl FnMut(&RawRecord<'_>),
) -> Result<(), RecordError> {
    let mut reader = InflatedReader::new(inflater);
    let mut body = BytesMut::new();
    for _ in 0..count {
        let size = read_size(&mut reader, record_size_max)?;
        body.clear();
        if reader.read_into(&mut body, size)? > 0 {
            return Err(InvalidRecord::SizeAtEnd(size).into());
        }
        visit(&parse_body(&body)?);
    }
    if count > 0 && !reader.is_at_end()? {
        return Err(InvalidRecord::RecordsRemaining.into());
    }
    Ok(())
}

#[inline]
fn read_size(reader: &mut InflatedReader<'_>, record_size_max: i32) -> Result<usize, RecordError> {
    let size = reader.read_varint()?.ok_or(InvalidRecord::PrematureEnd)?;
    if size > record_size_max {
        return Err(InvalidRecord::SizeTooLarge {
            size,
            maximum: record_size_max,
        }
        .into());
    }
    Ok(usize::try_from(size).map_err(|_| InvalidRecord::NegativeSize(size))?)
}

#[inline]
fn read_shape(reader: &mut InflatedReader<'_>) -> Result<RecordShape, RecordError> {
    reader.read_byte()?;
    let timestamp_delta = reader.read_varlong()?.ok_or(InvalidRecord::Structure)?;
    let offset_delta = reader.read_varint()?.ok_or(InvalidRecord::Structure)?;
    let key_size = skip_sized(reader)?;
    let value_size = skip_sized(reader)?;
    let header_count = reader.read_varint()?.ok_or(InvalidRecord::Structure)?;
    if header_count < 0 {
        return Err(InvalidRecord::HeaderCount(header_count).into());
    }
    for _ in 0..header_count {
        let size = skip_sized(reader)?;
        if size < 0 {
            return Err(InvalidRecord::HeaderKeySize(size).into());
        }
        skip_sized(reader)?;
    }
    Ok(RecordShape {
        timestamp_delta,
        offset_delta,
        key_size,
        value_size,
    })
}

#[inline]
fn skip_sized(reader: &mut InflatedReader<'_>) -> Result<i32, RecordError> {
    let size = reader.read_varint()?.ok_or(InvalidRecord::Structure)?;
    let missing = reader.skip(size.max(0) as usize)?;
    if missing > 0 {
        return Err(InvalidRecord::CutOff(missing).into());
    }
    Ok(size)
}

#[cfg(test)]
#[path = "record_test.rs"]
mod record_test;
