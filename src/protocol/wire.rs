//! How generated types read and write themselves: Kafka's primitive encodings over a [`Sink`] and a [`Reader`].
//!
//! Lengths from the wire are checked against the bytes that are left before anything is reserved. `v` is the version of
//! the message, `flexible` says that it uses compact lengths and tagged fields (KIP-482).

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::{BrokerId, GroupId, ProducerId, TopicName, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Why bytes are no message, or a message cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("{needed} bytes are needed where {left} are left")]
    Truncated { needed: usize, left: usize },
    #[error("{left} bytes follow the end")]
    Trailing { left: usize },
    #[error("length {0} is not allowed")]
    BadLength(i64),
    #[error("an array of {count} elements cannot be in {left} bytes")]
    ImpossibleCount { count: usize, left: usize },
    #[error("null where it is not allowed")]
    UnexpectedNull,
    #[error("a string is not UTF-8")]
    NotUtf8,
    #[error("a varint is too long")]
    LongVarint,
    #[error("a value of {0} bytes is too long for its encoding")]
    TooLong(usize),
    #[error("{field} is set but version {version} does not have it")]
    NotInVersion { field: &'static str, version: i16 },
    #[error("version {version} of {message} is not supported")]
    UnsupportedVersion { message: &'static str, version: i16 },
    #[error("frame version {0} is not supported")]
    UnsupportedFrame(u32),
}

pub(crate) type WireResult<T> = Result<T, WireError>;

pub(crate) fn not_in_version(field: &'static str, version: i16) -> WireError {
    WireError::NotInVersion { field, version }
}

/// Where bytes go.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

pub(crate) struct BufSink<'a, B>(pub(crate) &'a mut B);

impl<B: BufMut> Sink for BufSink<'_, B> {
    fn put(&mut self, bytes: &[u8]) {
        self.0.put_slice(bytes);
    }
}

/// Counts instead of writing.
#[derive(Default)]
pub(crate) struct CountSink(pub(crate) usize);

impl Sink for CountSink {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

pub(crate) fn put_unsigned_varint(w: &mut dyn Sink, mut value: u32) {
    let mut bytes = [0; 5];
    let mut length = 0;
    while value >= 0x80 {
        bytes[length] = value as u8 | 0x80;
        value >>= 7;
        length += 1;
    }
    bytes[length] = value as u8;
    w.put(&bytes[..=length]);
}

/// Bytes being read, never beyond their end.
pub(crate) struct Reader {
    bytes: Bytes,
    position: usize,
}

impl Reader {
    pub(crate) fn new(bytes: Bytes) -> Reader {
        Reader { bytes, position: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    fn advance(&mut self, needed: usize) -> WireResult<usize> {
        let left = self.left();
        if needed > left {
            return Err(WireError::Truncated { needed, left });
        }
        let start = self.position;
        self.position += needed;
        Ok(start)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> WireResult<[u8; N]> {
        let start = self.advance(N)?;
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[start..start + N]);
        Ok(out)
    }

    pub(crate) fn take(&mut self, length: usize) -> WireResult<Bytes> {
        let start = self.advance(length)?;
        Ok(self.bytes.slice(start..start + length))
    }

    /// Whatever is left.
    pub(crate) fn rest(&mut self) -> Bytes {
        let rest = self.bytes.slice(self.position..);
        self.position = self.bytes.len();
        rest
    }

    /// Everything must have been read.
    pub(crate) fn end(&self) -> WireResult<()> {
        match self.left() {
            0 => Ok(()),
            left => Err(WireError::Trailing { left }),
        }
    }

    pub(crate) fn unsigned_varint(&mut self) -> WireResult<u32> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::LongVarint)
    }

    /// Length of a string, byte string or array; `None`: null.
    fn length(&mut self, flexible: bool, short: bool) -> WireResult<Option<usize>> {
        let length = if flexible {
            i64::from(self.unsigned_varint()?) - 1
        } else if short {
            i64::from(i16::from_be_bytes(self.array()?))
        } else {
            i64::from(i32::from_be_bytes(self.array()?))
        };
        match length {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) if length <= i32::MAX as usize => Ok(Some(length)),
                _ => Err(WireError::BadLength(length)),
            },
        }
    }

    pub(crate) fn tag_count(&mut self) -> WireResult<u32> {
        self.unsigned_varint()
    }

    /// The next tagged field: its tag and its bytes.
    pub(crate) fn tag(&mut self) -> WireResult<(u32, Reader)> {
        let tag = self.unsigned_varint()?;
        let length = self.unsigned_varint()? as usize;
        Ok((tag, Reader::new(self.take(length)?)))
    }
}

/// A value that has one encoding for each version of the message it is in.
pub(crate) trait Wire: Sized {
    fn write(&self, w: &mut dyn Sink, v: i16, flexible: bool) -> WireResult<()>;
    fn read(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Self>;

    /// The value where null could stand too.
    fn write_present(&self, w: &mut dyn Sink, v: i16, flexible: bool) -> WireResult<()> {
        self.write(w, v, flexible)
    }
    fn write_null(w: &mut dyn Sink, flexible: bool);
    fn read_nullable(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Option<Self>>;
}

pub(crate) fn write_nullable<T: Wire>(
    value: &Option<T>,
    may_be_null: bool,
    w: &mut dyn Sink,
    v: i16,
    flexible: bool,
) -> WireResult<()> {
    match value {
        Some(value) if may_be_null => value.write_present(w, v, flexible),
        Some(value) => value.write(w, v, flexible),
        None if may_be_null => {
            T::write_null(w, flexible);
            Ok(())
        }
        None => Err(WireError::UnexpectedNull),
    }
}

pub(crate) fn read_nullable<T: Wire>(
    may_be_null: bool,
    r: &mut Reader,
    v: i16,
    flexible: bool,
) -> WireResult<Option<T>> {
    if may_be_null {
        T::read_nullable(r, v, flexible)
    } else {
        T::read(r, v, flexible).map(Some)
    }
}

/// A nullable struct in a tagged field: a varint of 0 is null, of 1 goes before the struct.
pub(crate) fn write_tagged_struct<T: Wire>(value: &Option<T>, w: &mut dyn Sink, v: i16) -> WireResult<()> {
    put_unsigned_varint(w, u32::from(value.is_some()));
    value.as_ref().map_or(Ok(()), |value| value.write(w, v, true))
}

pub(crate) fn read_tagged_struct<T: Wire>(r: &mut Reader, v: i16) -> WireResult<Option<T>> {
    match r.unsigned_varint()? {
        0 => Ok(None),
        _ => T::read(r, v, true).map(Some),
    }
}

/// Null is no value of these types; the schemas never ask for it.
macro_rules! never_null {
    () => {
        fn write_null(_w: &mut dyn Sink, _flexible: bool) {}
        fn read_nullable(_r: &mut Reader, _v: i16, _flexible: bool) -> WireResult<Option<Self>> {
            Err(WireError::UnexpectedNull)
        }
    };
}

macro_rules! number {
    ($($ty:ty),*) => { $(
        impl Wire for $ty {
            fn write(&self, w: &mut dyn Sink, _v: i16, _flexible: bool) -> WireResult<()> {
                w.put(&self.to_be_bytes());
                Ok(())
            }
            fn read(r: &mut Reader, _v: i16, _flexible: bool) -> WireResult<Self> {
                Ok(<$ty>::from_be_bytes(r.array()?))
            }
            never_null!();
        }
    )* };
}

number!(i8, i16, u16, i32, u32, i64, f64);

impl Wire for bool {
    fn write(&self, w: &mut dyn Sink, _v: i16, _flexible: bool) -> WireResult<()> {
        w.put(&[u8::from(*self)]);
        Ok(())
    }
    fn read(r: &mut Reader, _v: i16, _flexible: bool) -> WireResult<Self> {
        let [byte] = r.array()?;
        Ok(byte != 0)
    }
    never_null!();
}

impl Wire for Uuid {
    fn write(&self, w: &mut dyn Sink, _v: i16, _flexible: bool) -> WireResult<()> {
        w.put(self.as_bytes());
        Ok(())
    }
    fn read(r: &mut Reader, _v: i16, _flexible: bool) -> WireResult<Self> {
        Ok(Uuid::from_bytes(r.array()?))
    }
    never_null!();
}

/// Length + 1 as a varint.
fn put_compact_length(w: &mut dyn Sink, length: usize) -> WireResult<()> {
    match i32::try_from(length) {
        Ok(length) => {
            put_unsigned_varint(w, length as u32 + 1);
            Ok(())
        }
        Err(_) => Err(WireError::TooLong(length)),
    }
}

impl Wire for StrBytes {
    fn write(&self, w: &mut dyn Sink, _v: i16, flexible: bool) -> WireResult<()> {
        match i16::try_from(self.len()) {
            // Kafka limits compact strings to the same length.
            Err(_) => return Err(WireError::TooLong(self.len())),
            Ok(_) if flexible => put_compact_length(w, self.len())?,
            Ok(length) => w.put(&length.to_be_bytes()),
        }
        w.put(self.as_bytes());
        Ok(())
    }
    fn read(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Self> {
        Self::read_nullable(r, v, flexible)?.ok_or(WireError::UnexpectedNull)
    }
    fn write_null(w: &mut dyn Sink, flexible: bool) {
        w.put(if flexible { &[0] } else { &[0xff, 0xff] });
    }
    fn read_nullable(r: &mut Reader, _v: i16, flexible: bool) -> WireResult<Option<Self>> {
        let Some(length) = r.length(flexible, true)? else {
            return Ok(None);
        };
        if length > i16::MAX as usize {
            return Err(WireError::BadLength(length as i64));
        }
        StrBytes::from_utf8(r.take(length)?)
            .map(Some)
            .map_err(|_| WireError::NotUtf8)
    }
}

impl Wire for Bytes {
    fn write(&self, w: &mut dyn Sink, _v: i16, flexible: bool) -> WireResult<()> {
        match i32::try_from(self.len()) {
            Err(_) => return Err(WireError::TooLong(self.len())),
            Ok(_) if flexible => put_compact_length(w, self.len())?,
            Ok(length) => w.put(&length.to_be_bytes()),
        }
        w.put(self);
        Ok(())
    }
    fn read(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Self> {
        Self::read_nullable(r, v, flexible)?.ok_or(WireError::UnexpectedNull)
    }
    fn write_null(w: &mut dyn Sink, flexible: bool) {
        w.put(if flexible { &[0] } else { &[0xff; 4] });
    }
    fn read_nullable(r: &mut Reader, _v: i16, flexible: bool) -> WireResult<Option<Self>> {
        match r.length(flexible, false)? {
            None => Ok(None),
            Some(length) => r.take(length).map(Some),
        }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn write(&self, w: &mut dyn Sink, v: i16, flexible: bool) -> WireResult<()> {
        match i32::try_from(self.len()) {
            Err(_) => return Err(WireError::TooLong(self.len())),
            Ok(_) if flexible => put_compact_length(w, self.len())?,
            Ok(length) => w.put(&length.to_be_bytes()),
        }
        self.iter().try_for_each(|element| element.write(w, v, flexible))
    }
    fn read(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Self> {
        Self::read_nullable(r, v, flexible)?.ok_or(WireError::UnexpectedNull)
    }
    fn write_null(w: &mut dyn Sink, flexible: bool) {
        w.put(if flexible { &[0] } else { &[0xff; 4] });
    }
    fn read_nullable(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Option<Self>> {
        let Some(count) = r.length(flexible, false)? else {
            return Ok(None);
        };
        // No element takes less than a byte; what is reserved at once is small whatever the count says.
        if count > r.left() {
            return Err(WireError::ImpossibleCount {
                count,
                left: r.left(),
            });
        }
        let mut elements = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            elements.push(T::read(r, v, flexible)?);
        }
        Ok(Some(elements))
    }
}

/// The crate's newtypes are written as what they hold.
macro_rules! newtype {
    ($($outer:ident: $inner:ty),*) => { $(
        impl Wire for $outer {
            fn write(&self, w: &mut dyn Sink, v: i16, flexible: bool) -> WireResult<()> {
                self.0.write(w, v, flexible)
            }
            fn read(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Self> {
                <$inner>::read(r, v, flexible).map($outer)
            }
            fn write_null(w: &mut dyn Sink, flexible: bool) {
                <$inner>::write_null(w, flexible)
            }
            fn read_nullable(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Option<Self>> {
                Ok(<$inner>::read_nullable(r, v, flexible)?.map($outer))
            }
        }
    )* };
}

newtype!(TopicName: StrBytes, GroupId: StrBytes, TransactionalId: StrBytes, BrokerId: i32, ProducerId: i64);

/// Writes the tagged fields of a struct in the order of their tags, known and unknown ones merged.
pub(crate) struct TagWriter<'a> {
    w: &'a mut dyn Sink,
    unknown: std::iter::Peekable<std::collections::btree_map::Iter<'a, i32, Bytes>>,
}

impl<'a> TagWriter<'a> {
    pub(crate) fn begin(
        w: &'a mut dyn Sink,
        unknown: &'a BTreeMap<i32, Bytes>,
        known_count: usize,
    ) -> TagWriter<'a> {
        put_unsigned_varint(w, (known_count + unknown.len()) as u32);
        TagWriter {
            w,
            unknown: unknown.iter().peekable(),
        }
    }

    fn unknown_below(&mut self, limit: i64) {
        while let Some((tag, bytes)) = self.unknown.next_if(|(tag, _)| i64::from(**tag) < limit) {
            put_unsigned_varint(self.w, *tag as u32);
            put_unsigned_varint(self.w, bytes.len() as u32);
            self.w.put(bytes);
        }
    }

    pub(crate) fn field(
        &mut self,
        tag: u32,
        write: &dyn Fn(&mut dyn Sink) -> WireResult<()>,
    ) -> WireResult<()> {
        self.unknown_below(i64::from(tag));
        let mut size = CountSink::default();
        write(&mut size)?;
        put_unsigned_varint(self.w, tag);
        put_unsigned_varint(self.w, size.0 as u32);
        write(self.w)
    }

    pub(crate) fn end(mut self) {
        self.unknown_below(i64::MAX);
    }
}

/// A message: a struct with versions of its own.
pub(crate) trait Versioned: Wire {
    const NAME: &'static str;
    const MIN: i16;
    const MAX: i16;
    const FIRST_FLEXIBLE: i16;

    fn knows(version: i16) -> bool {
        (Self::MIN..=Self::MAX).contains(&version)
    }
}

pub(crate) fn write_message<T: Versioned>(message: &T, w: &mut dyn Sink, version: i16) -> WireResult<()> {
    if !T::knows(version) {
        return Err(WireError::UnsupportedVersion {
            message: T::NAME,
            version,
        });
    }
    message.write(w, version, version >= T::FIRST_FLEXIBLE)
}

pub(crate) fn read_message<T: Versioned>(r: &mut Reader, version: i16) -> WireResult<T> {
    if !T::knows(version) {
        return Err(WireError::UnsupportedVersion {
            message: T::NAME,
            version,
        });
    }
    T::read(r, version, version >= T::FIRST_FLEXIBLE)
}

/// Null structs are an int8 of -1, present ones where null is allowed follow an int8 of 1.
macro_rules! struct_nulls {
    () => {
        fn write_present(&self, w: &mut dyn Sink, v: i16, flexible: bool) -> WireResult<()> {
            w.put(&[1]);
            self.write(w, v, flexible)
        }
        fn write_null(w: &mut dyn Sink, _flexible: bool) {
            w.put(&[0xff]);
        }
        fn read_nullable(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Option<Self>> {
            match i8::read(r, v, flexible)? {
                ..0 => Ok(None),
                _ => Self::read(r, v, flexible).map(Some),
            }
        }
    };
}

/// The crate's traits for a generated message.
macro_rules! message {
    ($name:ident, $min:literal, $max:literal, $first_flexible:literal) => {
        impl Versioned for $name {
            const NAME: &'static str = stringify!($name);
            const MIN: i16 = $min;
            const MAX: i16 = $max;
            const FIRST_FLEXIBLE: i16 = $first_flexible;
        }
        impl Message for $name {
            const VERSIONS: VersionRange = VersionRange {
                min: $min,
                max: $max,
            };
            const DEPRECATED_VERSIONS: Option<VersionRange> = None;
        }
        impl Encodable for $name {
            fn encode<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> anyhow::Result<()> {
                Ok(write_message(self, &mut BufSink(buf), version)?)
            }
            fn compute_size(&self, version: i16) -> anyhow::Result<usize> {
                let mut size = CountSink::default();
                write_message(self, &mut size, version)?;
                Ok(size.0)
            }
        }
        impl Decodable for $name {
            fn decode<B: ByteBuf>(buf: &mut B, version: i16) -> anyhow::Result<Self> {
                let mut r = Reader::new(buf.peek_bytes(0..buf.remaining()));
                let message = read_message(&mut r, version)?;
                buf.advance(r.position());
                Ok(message)
            }
        }
    };
}

/// Key and header versions of a generated request and its response.
macro_rules! rpc {
    ($request:ident, $response:ident, $key:literal, $request_flexible:literal, $response_flexible:literal) => {
        impl HeaderVersion for $request {
            fn header_version(version: i16) -> i16 {
                if version >= $request_flexible { 2 } else { 1 }
            }
        }
        impl HeaderVersion for $response {
            fn header_version(version: i16) -> i16 {
                if version >= $response_flexible { 1 } else { 0 }
            }
        }
        impl Request for $request {
            const KEY: i16 = $key;
            type Response = $response;
        }
    };
}

pub(crate) use {message, rpc, struct_nulls};
