//! Records as JSON, as Kafka's `JsonConverter` classes write them: driven by the schemas, so that every record that Kafka has is
//! printed without code of its own.
//!
//! Fields come in the schema's order with a small first letter; those that the version does not have are left out, and so is a
//! tagged field that is not on the wire. Bytes are base64, uuids Kafka's text.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::config::value::java_double;
use crate::log::meta_properties::directory_id_text;

/// The build's own parser of the schema files; it stops at a mistake, which the build has then met first.
#[allow(dead_code)]
#[path = "../protocol/codegen/schema.rs"]
mod schema;

use schema::{Field, Message, Struct, Type};

static RECORDS: &str = include_str!("../protocol/schemas/records.schema");

/// A JSON value; objects keep their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(i64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Why bytes are not the record they should be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("unexpected end")]
    Short,
    #[error("non-nullable field {0} was serialized as null")]
    Null(String),
    #[error("a length of {0}")]
    Length(i64),
    #[error("text that is not UTF-8")]
    Utf8,
    #[error("Unknown version {version} of {name}")]
    Version { name: String, version: i16 },
    #[error("{0} bytes too many")]
    Trailing(usize),
}

impl Json {
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Json> {
        match self {
            Json::Object(fields) => fields
                .iter_mut()
                .find(|(field, _)| field == name)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(value) => out.push_str(&value.to_string()),
            Json::Double(value) => out.push_str(&java_double(*value)),
            Json::Text(text) => write_text(text, out),
            Json::Bytes(bytes) => write_text(&STANDARD.encode(bytes), out),
            Json::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Json::Object(fields) => {
                out.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }
}

/// Jackson's escapes: the short ones, and upper-case hexadecimal for other control characters.
fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => out.push_str(&format!("\\u{:04X}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

fn messages() -> &'static [Message] {
    static MESSAGES: OnceLock<Vec<Message>> = OnceLock::new();
    MESSAGES.get_or_init(|| schema::parse(RECORDS))
}

/// The record named `name`.
pub(super) fn by_name(name: &str) -> Option<&'static Message> {
    messages().iter().find(|message| message.name == name)
}

/// The record of a kind (`metadata`, `coordinator-key`, `coordinator-value`) and a module that has this number.
pub(super) fn by_key(kind: &str, module: &str, key: i16) -> Option<&'static Message> {
    messages()
        .iter()
        .find(|message| message.kind == kind && message.module == module && message.key == Some(key))
}

/// `FeatureLevelRecord` as `FEATURE_LEVEL_RECORD`.
pub(super) fn screaming_snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for (index, character) in name.chars().enumerate() {
        if index > 0 && character.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(character.to_ascii_uppercase());
    }
    out
}

/// Decodes a whole message body of `version`; all bytes must be used.
pub(super) fn decode(message: &Message, version: i16, bytes: &[u8]) -> Result<Json, DecodeError> {
    let mut reader = Reader { rest: bytes };
    let json = decode_prefix(message, version, &mut reader)?;
    if reader.rest.is_empty() {
        Ok(json)
    } else {
        Err(DecodeError::Trailing(reader.rest.len()))
    }
}

/// Decodes a message body at the front of the bytes.
pub(super) fn decode_prefix(
    message: &Message,
    version: i16,
    reader: &mut Reader<'_>,
) -> Result<Json, DecodeError> {
    if version < message.versions.min || version > message.versions.max {
        return Err(DecodeError::Version {
            name: message.name.clone(),
            version,
        });
    }
    let is_flexible = version >= message.flexible.min && version <= message.flexible.max;
    read_struct(message, &message.structs[0], version, is_flexible, reader)
}

/// A walk over bytes.
pub(super) struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (front, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Short)
    }

    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let byte = self.array::<1>()?[0];
            value |= u32::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Length(i64::from(value)))
    }

    /// The length of a string, bytes or array; `None` is null.
    fn length(&mut self, is_flexible: bool, is_short: bool) -> Result<Option<usize>, DecodeError> {
        let length = if is_flexible {
            i64::from(self.unsigned_varint()?) - 1
        } else if is_short {
            i64::from(self.i16()?)
        } else {
            i64::from(i32::from_be_bytes(self.array()?))
        };
        match length {
            -1 => Ok(None),
            length if length < -1 || length > self.rest.len() as i64 => Err(DecodeError::Length(length)),
            length => Ok(Some(length as usize)),
        }
    }
}

fn read_struct(
    message: &Message,
    definition: &Struct,
    version: i16,
    is_flexible: bool,
    reader: &mut Reader<'_>,
) -> Result<Json, DecodeError> {
    let mut values: Vec<Option<Json>> = vec![None; definition.fields.len()];
    let exists = |field: &Field| version >= field.versions.min && version <= field.versions.max;
    for (index, field) in definition.fields.iter().enumerate() {
        if field.tag.is_none() && exists(field) {
            values[index] = Some(read_field(message, field, version, is_flexible, reader)?);
        }
    }
    if is_flexible {
        for _ in 0..reader.unsigned_varint()? {
            let tag = reader.unsigned_varint()?;
            let size = reader.unsigned_varint()? as usize;
            let mut tagged = Reader {
                rest: reader.take(size)?,
            };
            let known = definition
                .fields
                .iter()
                .position(|field| field.tag == Some(tag) && exists(field));
            if let Some(index) = known {
                let field = &definition.fields[index];
                values[index] = Some(read_field(message, field, version, is_flexible, &mut tagged)?);
            }
        }
    }
    let named = definition.fields.iter().zip(values);
    let fields = named.filter_map(|(field, value)| Some((small_first_letter(&field.name), value?)));
    Ok(Json::Object(fields.collect()))
}

fn read_field(
    message: &Message,
    field: &Field,
    version: i16,
    is_flexible: bool,
    reader: &mut Reader<'_>,
) -> Result<Json, DecodeError> {
    let is_nullable = version >= field.nullable.min && version <= field.nullable.max;
    if let (Type::Struct(_), true) = (&field.kind, is_nullable) {
        // Null is a byte of -1, but in a tagged field a varint of 0.
        let is_null = match field.tag {
            Some(_) => reader.unsigned_varint()? == 0,
            None => reader.array::<1>()?[0] as i8 == -1,
        };
        if is_null {
            return Ok(Json::Null);
        }
    }
    match read_value(message, &field.kind, version, is_flexible, reader)? {
        Json::Null if !is_nullable => Err(DecodeError::Null(small_first_letter(&field.name))),
        value => Ok(value),
    }
}

fn read_value(
    message: &Message,
    kind: &Type,
    version: i16,
    is_flexible: bool,
    reader: &mut Reader<'_>,
) -> Result<Json, DecodeError> {
    match kind {
        Type::Primitive(name) => read_primitive(name, is_flexible, reader),
        Type::Struct(name) => match message.structs.iter().find(|definition| definition.name == *name) {
            Some(definition) => read_struct(message, definition, version, is_flexible, reader),
            None => Ok(Json::Null),
        },
        Type::Array(element) => {
            let Some(length) = reader.length(is_flexible, false)? else {
                return Ok(Json::Null);
            };
            (0..length)
                .map(|_| read_value(message, element, version, is_flexible, reader))
                .collect::<Result<_, _>>()
                .map(Json::Array)
        }
    }
}

fn read_primitive(name: &str, is_flexible: bool, reader: &mut Reader<'_>) -> Result<Json, DecodeError> {
    Ok(match name {
        "bool" => Json::Bool(reader.array::<1>()?[0] != 0),
        "int8" => Json::Number(i64::from(i8::from_be_bytes(reader.array()?))),
        "int16" => Json::Number(i64::from(reader.i16()?)),
        "uint16" => Json::Number(i64::from(u16::from_be_bytes(reader.array()?))),
        "int32" => Json::Number(i64::from(i32::from_be_bytes(reader.array()?))),
        "uint32" => Json::Number(i64::from(u32::from_be_bytes(reader.array()?))),
        "int64" => Json::Number(i64::from_be_bytes(reader.array()?)),
        "float64" => Json::Double(f64::from_be_bytes(reader.array()?)),
        "uuid" => Json::Text(directory_id_text(uuid::Uuid::from_bytes(reader.array()?))),
        "string" => match reader.length(is_flexible, true)? {
            Some(length) => {
                let text = std::str::from_utf8(reader.take(length)?).map_err(|_| DecodeError::Utf8)?;
                Json::Text(text.to_owned())
            }
            None => Json::Null,
        },
        // "bytes" and "records"
        _ => match reader.length(is_flexible, false)? {
            Some(length) => Json::Bytes(reader.take(length)?.to_vec()),
            None => Json::Null,
        },
    })
}

fn small_first_letter(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_ascii_lowercase().to_string() + characters.as_str()
    })
}
