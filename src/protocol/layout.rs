//! The layout of every message as data, and a walk over untrusted bytes that proves them decodable without reserving
//! anything: lengths and counts fit what is there, nulls stand only where allowed, strings are UTF-8.
//!
//! The router calls [`check_request`] before any decoder sees a body.

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

/// What a walk found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Elements of all arrays: what decoding takes in memory grows with it.
    pub elements: usize,
    /// Bytes behind the message; Kafka does not mind them.
    pub trailing: usize,
}

impl Layout {
    /// Walks over the whole of `body`.
    pub fn check(&self, version: i16, body: &[u8]) -> Result<Checked, WireError> {
        if !within(self.versions, version) {
            return Err(WireError::UnsupportedVersion {
                message: self.name,
                version,
            });
        }
        let mut walk = Walk {
            left: body,
            version,
            flexible: version >= self.first_flexible_version,
            checked: Checked::default(),
        };
        walk.fields(self.fields)?;
        walk.checked.trailing = walk.left.len();
        Ok(walk.checked)
    }
}

pub(super) fn within(versions: (i16, i16), version: i16) -> bool {
    versions.0 <= version && version <= versions.1
}

struct Walk<'a> {
    left: &'a [u8],
    version: i16,
    flexible: bool,
    checked: Checked,
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
            let length = self.unsigned_varint()? as usize;
            let value = self.take(length)?;
            let known = fields
                .iter()
                .find(|field| field.tag == Some(tag) && within(field.versions, self.version));
            let Some(field) = known else { continue };
            let after = std::mem::replace(&mut self.left, value);
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
                let length = self.length(true, nullable)?.unwrap_or(0);
                if length > i16::MAX as usize {
                    return Err(WireError::BadLength(length as i64));
                }
                let text = self.take(length)?;
                if std::str::from_utf8(text).is_err() {
                    return Err(WireError::NotUtf8);
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
