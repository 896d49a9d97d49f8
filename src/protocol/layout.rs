//! The layout of every message as data, and a walk over untrusted bytes that proves them decodable without reserving
//! anything: lengths and counts fit what is there, nulls stand only where allowed. Strings that are not UTF-8 are counted:
//! Kafka replaces what is wrong in them, [`Layout::replace_invalid_text`] makes the body that it would have seen.
//!
//! The router calls [`check_request`] before any decoder sees a body. Nothing but strings is ever changed, and what is valid
//! costs no more than the check.

use super::java_text;
use super::wire::WireError;

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Records,
    Struct(&'static [Field]),
    Array(&'static Kind),
}

/// A field; version ranges are inclusive, and empty if the first is above the second.
#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub versions: (i16, i16),
    pub nullable: (i16, i16),
    pub tag: Option<u32>,
}

/// A message.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    pub name: &'static str,
    pub versions: (i16, i16),
    pub first_flexible_version: i16,
    pub fields: &'static [Field],
}

include!(concat!(env!("OUT_DIR"), "/layouts.rs"));

/// Checks a request's body. The error says why it is none.
pub fn check_request(api_key: i16, version: i16, body: &[u8]) -> Result<Checked, WireError> {
    match request(api_key) {
        Some(layout) => layout.check(version, body),
        None => Err(WireError::UnsupportedVersion {
            message: "an unknown request",
            version,
        }),
    }
}

/// A request's body with U+FFFD for what is not UTF-8 in its strings.
pub fn replace_invalid_text(api_key: i16, version: i16, body: &[u8]) -> Result<Vec<u8>, WireError> {
    match request(api_key) {
        Some(layout) => layout.replace_invalid_text(version, body),
        None => Err(WireError::UnsupportedVersion {
            message: "an unknown request",
            version,
        }),
    }
}

/// What a walk found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Elements of all arrays: what decoding takes in memory grows with it.
    pub elements: usize,
    /// Bytes behind the message; Kafka does not mind them.
    pub trailing: usize,
    /// Strings that are not UTF-8: no decoder takes them.
    pub invalid_strings: usize,
}

impl Layout {
    /// Walks over the whole of `body`.
    pub fn check(&self, version: i16, body: &[u8]) -> Result<Checked, WireError> {
        self.walk(version, body, None).map(|walk| walk.checked)
    }

    /// `body`, which the check has passed, with U+FFFD for what is not UTF-8 in its strings. An error if one of them gets too
    /// long to be written: Kafka reads it, and cannot name it in its answer.
    pub fn replace_invalid_text(&self, version: i16, body: &[u8]) -> Result<Vec<u8>, WireError> {
        let copy = Copy {
            out: Vec::with_capacity(body.len() + body.len() / 8),
            copied: 0,
        };
        let mut walk = self.walk(version, body, Some(copy))?;
        walk.copy_to(body.len());
        Ok(walk.copy.map(|copy| copy.out).unwrap_or_default())
    }

    fn walk<'a>(&self, version: i16, body: &'a [u8], copy: Option<Copy>) -> Result<Walk<'a>, WireError> {
        if !within(self.versions, version) {
            return Err(WireError::UnsupportedVersion {
                message: self.name,
                version,
            });
        }
        let mut walk = Walk {
            body,
            left: body,
            version,
            flexible: version >= self.first_flexible_version,
            checked: Checked::default(),
            copy,
        };
        walk.fields(self.fields)?;
        walk.checked.trailing = walk.left.len();
        Ok(walk)
    }
}

pub(super) fn within(versions: (i16, i16), version: i16) -> bool {
    versions.0 <= version && version <= versions.1
}

struct Walk<'a> {
    body: &'a [u8],
    left: &'a [u8],
    version: i16,
    flexible: bool,
    checked: Checked,
    copy: Option<Copy>,
}

/// The body as it is written anew.
#[derive(Default)]
struct Copy {
    out: Vec<u8>,
    /// How much of the body is in it.
    copied: usize,
}

fn put_unsigned_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl<'a> Walk<'a> {
    fn take(&mut self, needed: usize) -> Result<&'a [u8], WireError> {
        match self.left.split_at_checked(needed) {
            Some((taken, left)) => {
                self.left = left;
                Ok(taken)
            }
            None => Err(WireError::Truncated {
                needed,
                left: self.left.len(),
            }),
        }
    }

    /// In the body; tagged values are slices of it, too.
    fn position(&self) -> usize {
        self.left.as_ptr() as usize - self.body.as_ptr() as usize
    }

    fn copy_to(&mut self, position: usize) {
        if let Some(copy) = &mut self.copy {
            copy.out.extend_from_slice(&self.body[copy.copied..position]);
            copy.copied = position;
        }
    }

    /// Instead of the string whose length is at `length_at`: `text`, which has just been read, made valid.
    fn copy_replaced(&mut self, length_at: usize, text: &[u8]) -> Result<(), WireError> {
        self.copy_to(length_at);
        let (flexible, position) = (self.flexible, self.position());
        let Some(copy) = &mut self.copy else { return Ok(()) };
        let text = java_text::decode(text);
        let length = i16::try_from(text.len()).map_err(|_| WireError::TooLong(text.len()))?;
        match flexible {
            true => put_unsigned_varint(&mut copy.out, text.len() + 1),
            false => copy.out.extend(length.to_be_bytes()),
        }
        copy.out.extend(text.as_bytes());
        copy.copied = position;
        Ok(())
    }

    /// A tagged value has its size in front, which is known when it is written: it gets a copy of its own.
    fn begin_tagged(&mut self, length_at: usize) -> Option<Vec<u8>> {
        self.copy_to(length_at);
        let copied = self.position();
        let copy = self.copy.as_mut()?;
        copy.copied = copied;
        Some(std::mem::take(&mut copy.out))
    }

    /// `self.left` is what is behind the value.
    fn end_tagged(&mut self, outer: Option<Vec<u8>>) {
        self.copy_to(self.position());
        if let (Some(copy), Some(outer)) = (&mut self.copy, outer) {
            let value = std::mem::replace(&mut copy.out, outer);
            put_unsigned_varint(&mut copy.out, value.len());
            copy.out.extend(value);
        }
    }

    fn unsigned_varint(&mut self) -> Result<u32, WireError> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?[0];
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::LongVarint)
    }

    fn length(&mut self, short: bool, nullable: bool) -> Result<Option<usize>, WireError> {
        let length = if self.flexible {
            i64::from(self.unsigned_varint()?) - 1
        } else if short {
            let bytes = self.take(2)?;
            i64::from(i16::from_be_bytes([bytes[0], bytes[1]]))
        } else {
            let bytes = self.take(4)?;
            i64::from(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        match length {
            -1 if nullable => Ok(None),
            -1 => Err(WireError::UnexpectedNull),
            0.. if length <= i64::from(i32::MAX) => Ok(Some(length as usize)),
            _ => Err(WireError::BadLength(length)),
        }
    }

    fn fields(&mut self, fields: &'static [Field]) -> Result<(), WireError> {
        for field in fields {
            if field.tag.is_none() && within(field.versions, self.version) {
                self.value(field.kind, within(field.nullable, self.version))?;
            }
        }
        if self.flexible {
            self.tagged(fields)
        } else {
            Ok(())
        }
    }

    fn tagged(&mut self, fields: &'static [Field]) -> Result<(), WireError> {
        for _ in 0..self.unsigned_varint()? {
            let tag = self.unsigned_varint()?;
            let length_at = self.position();
            let length = self.unsigned_varint()? as usize;
            let value = self.take(length)?;
            let known = fields
                .iter()
                .find(|field| field.tag == Some(tag) && within(field.versions, self.version));
            let Some(field) = known else { continue };
            let after = std::mem::replace(&mut self.left, value);
            let outer = self.begin_tagged(length_at);
            let nullable = within(field.nullable, self.version);
            match field.kind {
                // Null structs are written differently in tagged fields.
                Kind::Struct(fields) if nullable => match self.unsigned_varint()? {
                    0 => {}
                    _ => self.fields(fields)?,
                },
                kind => self.value(kind, nullable)?,
            }
            match std::mem::replace(&mut self.left, after).len() {
                0 => {}
                left => return Err(WireError::Trailing { left }),
            }
            self.end_tagged(outer);
        }
        Ok(())
    }

    fn value(&mut self, kind: Kind, nullable: bool) -> Result<(), WireError> {
        match kind {
            Kind::Bool | Kind::Int8 => self.take(1)?,
            Kind::Int16 => self.take(2)?,
            Kind::Int32 => self.take(4)?,
            Kind::Int64 | Kind::Float64 => self.take(8)?,
            Kind::Uuid => self.take(16)?,
            Kind::String => {
                let length_at = self.position();
                let length = self.length(true, nullable)?.unwrap_or(0);
                if length > i16::MAX as usize {
                    return Err(WireError::BadLength(length as i64));
                }
                let text = self.take(length)?;
                if std::str::from_utf8(text).is_err() {
                    self.checked.invalid_strings += 1;
                    self.copy_replaced(length_at, text)?;
                }
                text
            }
            Kind::Bytes | Kind::Records => {
                let length = self.length(false, nullable)?.unwrap_or(0);
                self.take(length)?
            }
            Kind::Struct(fields) => {
                if nullable && self.take(1)?[0] as i8 <= -1 {
                    return Ok(());
                }
                return self.fields(fields);
            }
            Kind::Array(element) => return self.array(*element, nullable),
        };
        Ok(())
    }

    fn array(&mut self, element: Kind, nullable: bool) -> Result<(), WireError> {
        let count = self.length(false, nullable)?.unwrap_or(0);
        if count > self.left.len() {
            return Err(WireError::ImpossibleCount {
                count,
                left: self.left.len(),
            });
        }
        self.checked.elements += count;
        (0..count).try_for_each(|_| self.value(element, false))
    }
}
