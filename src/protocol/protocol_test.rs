//! Versions of every RPC type against the schema, and round trips of random messages through every type and version.

use super::layout::{self, Field, Kind, Layout, within};
use super::{ApiKey, ErrorCode, Message, VersionRange, WireError};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};
use std::fmt::Debug;

type RoundTrip = fn(&Bytes, i16) -> Result<(Bytes, usize, String), String>;

include!(concat!(env!("OUT_DIR"), "/versions_test.rs"));

/// Decodes, encodes again; the bytes, the size that was computed, and the message in words.
fn round_trip<T: Encodable + Decodable + Debug>(
    bytes: &Bytes,
    version: i16,
) -> Result<(Bytes, usize, String), String> {
    let mut left = bytes.clone();
    let message = T::decode(&mut left, version).map_err(|error| format!("decode: {error}"))?;
    if !left.is_empty() {
        return Err(format!("{} bytes were not read", left.len()));
    }
    let mut again = BytesMut::new();
    message
        .encode(&mut again, version)
        .map_err(|error| format!("encode: {error}"))?;
    let size = message
        .compute_size(version)
        .map_err(|error| format!("size: {error}"))?;
    Ok((again.freeze(), size, format!("{message:?}")))
}

/// Writes random values into a layout.
struct Random {
    random: fastrand::Rng,
    version: i16,
    flexible: bool,
    out: BytesMut,
}

impl Random {
    fn message(layout: &Layout, version: i16, seed: u64) -> Bytes {
        let mut random = Random {
            random: fastrand::Rng::with_seed(seed),
            version,
            flexible: version >= layout.first_flexible_version,
            out: BytesMut::new(),
        };
        random.fields(layout.fields);
        random.out.freeze()
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.put_u8(value as u8);
    }

    fn length(&mut self, length: Option<usize>, short: bool) {
        let length = length.map_or(-1, |length| length as i32);
        match (self.flexible, short) {
            (true, _) => self.varint((length + 1) as u32),
            (false, true) => self.out.put_i16(length as i16),
            (false, false) => self.out.put_i32(length),
        }
    }

    fn fields(&mut self, fields: &'static [Field]) {
        let version = self.version;
        let present = || fields.iter().filter(move |field| within(field.versions, version));
        for field in present().filter(|field| field.tag.is_none()) {
            self.value(field.kind, within(field.nullable, version));
        }
        if !self.flexible {
            return;
        }
        let mut tagged: Vec<&Field> = present().filter(|field| field.tag.is_some()).collect();
        tagged.sort_by_key(|field| field.tag);
        tagged.retain(|_| self.random.bool());
        self.varint(tagged.len() as u32);
        for field in tagged {
            let before = std::mem::take(&mut self.out);
            self.tagged_value(field);
            let value = std::mem::replace(&mut self.out, before);
            self.varint(field.tag.unwrap());
            self.varint(value.len() as u32);
            self.out.extend_from_slice(&value);
        }
    }

    /// A value that is not the default, which is not written again.
    fn tagged_value(&mut self, field: &Field) {
        match field.kind {
            Kind::Array(element) => {
                self.length(Some(1), false);
                self.value(*element, false);
            }
            Kind::Struct(fields) => {
                if within(field.nullable, self.version) {
                    self.out.put_i8(1);
                }
                self.fields(fields);
            }
            Kind::Bool => self.out.put_u8(1),
            Kind::String => {
                self.length(Some(1), true);
                self.out.put_u8(b'x');
            }
            kind => self.value(kind, false),
        }
    }

    fn value(&mut self, kind: Kind, nullable: bool) {
        if nullable && self.random.u8(..4) == 0 {
            match kind {
                Kind::String => self.length(None, true),
                Kind::Struct(_) => self.out.put_i8(-1),
                _ => self.length(None, false),
            }
            return;
        }
        match kind {
            Kind::Bool => self.out.put_u8(u8::from(self.random.bool())),
            Kind::Int8 => self.out.put_i8(self.random.i8(2..)),
            Kind::Int16 => self.out.put_i16(self.random.i16(2..)),
            Kind::Int32 => self.out.put_i32(self.random.i32(3..)),
            Kind::Int64 => self.out.put_i64(self.random.i64(3..)),
            Kind::Float64 => self.out.put_f64(self.random.f64()),
            Kind::Uuid => self.out.put_u128(self.random.u128(1..)),
            Kind::String => {
                let length = self.random.usize(..4);
                self.length(Some(length), true);
                self.out.put_slice(&b"abcd"[..length]);
            }
            Kind::Bytes | Kind::Records => {
                let length = self.random.usize(..4);
                self.length(Some(length), false);
                self.out.put_slice(&[0, 0xff, 7, 9][..length]);
            }
            Kind::Struct(fields) => {
                if nullable {
                    self.out.put_i8(1);
                }
                self.fields(fields);
            }
            Kind::Array(element) => {
                let count = self.random.usize(..3);
                self.length(Some(count), false);
                (0..count).for_each(|_| self.value(*element, false));
            }
        }
    }
}

#[test]
fn every_rpc_type_covers_exactly_the_versions_of_kafka_4_4() {
    let wrong: Vec<_> = versions()
        .into_iter()
        .filter(|(_, expected, actual)| (actual.min, actual.max) != *expected)
        .collect();
    assert!(
        wrong.is_empty(),
        "add to GENERATED_RPCS in codegen/mod.rs: {wrong:?}"
    );
}

#[test]
fn random_message_of_every_version_survives_a_round_trip() {
    let mut failures = Vec::new();
    let mut tried = 0;
    for (layout, round_trip) in round_trips() {
        for version in layout.versions.0..=layout.versions.1 {
            for seed in 0..20 {
                let bytes = Random::message(&layout, version, seed);
                let name = format!("{} v{version} seed {seed}", layout.name);
                tried += 1;
                if let Err(error) = layout.check(version, &bytes) {
                    failures.push(format!("{name}: check: {error}"));
                }
                match round_trip(&bytes, version) {
                    Err(error) => failures.push(format!("{name}: {error}")),
                    Ok((again, _, words)) if again != bytes => {
                        failures.push(format!("{name}: {bytes:?} became {again:?}: {words}"))
                    }
                    Ok((again, size, _)) if again.len() != size => {
                        failures.push(format!("{name}: size {size} for {}", again.len()))
                    }
                    // A tagged field that the type lacks would land here and still survive.
                    Ok((_, _, words))
                        if words
                            .replace("unknown_tagged_fields: {}", "")
                            .contains("unknown_tagged_fields") =>
                    {
                        failures.push(format!("{name}: fields are not known: {words}"))
                    }
                    Ok(_) => {}
                }
            }
        }
    }
    failures.sort();
    assert!(tried > 10_000, "only {tried}");
    assert!(
        failures.is_empty(),
        "{} failures, first: {:#?}",
        failures.len(),
        &failures[..failures.len().min(5)]
    );
}

#[test]
fn damaged_message_is_refused_by_the_check_or_decodes() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut replaced = 0;
    for (layout, round_trip) in round_trips() {
        for version in layout.versions.0..=layout.versions.1 {
            for seed in 0..20 {
                let mut bytes = Random::message(&layout, version, seed).to_vec();
                // In strings, mostly.
                for at in (1..bytes.len()).filter(|_| seed % 2 == 0) {
                    if bytes[at - 1..=at] == *b"ab" {
                        bytes[at] = 0xff;
                    }
                }
                for _ in 0..random.usize(1..4) {
                    if !bytes.is_empty() {
                        let at = random.usize(..bytes.len());
                        bytes[at] = random.u8(..);
                    }
                }
                bytes.truncate(random.usize(..=bytes.len()));
                let Ok(checked) = layout.check(version, &bytes) else {
                    continue;
                };
                if checked.invalid_strings > 0 {
                    replaced += 1;
                    bytes = layout.replace_invalid_text(version, &bytes).unwrap();
                    let now_valid = layout::Checked {
                        invalid_strings: 0,
                        ..checked
                    };
                    assert_eq!(
                        layout.check(version, &bytes),
                        Ok(now_valid),
                        "{} v{version}",
                        layout.name
                    );
                }
                bytes.truncate(bytes.len() - checked.trailing);
                if let Err(error) = round_trip(&Bytes::from(bytes.clone()), version)
                    // What came may not be writable again: a tag twice, a default that was spelled out.
                    && error.starts_with("decode")
                {
                    panic!(
                        "{} v{version}: the check passed but {error}: {bytes:?}",
                        layout.name
                    );
                }
            }
        }
    }
    assert!(replaced > 50, "only {replaced} had strings that are not UTF-8");
}

/// A nullable string, bytes, and in a tagged field an array of structs with a string: the size of the field changes, too.
static ODD_FIELDS: [Field; 4] = [
    odd_field("text", Kind::String, None),
    odd_field("bytes", Kind::Bytes, None),
    odd_field("number", Kind::Int8, None),
    odd_field(
        "tagged",
        Kind::Array(&Kind::Struct(&[odd_field("inner", Kind::String, None)])),
        Some(3),
    ),
];

const fn odd_field(name: &'static str, kind: Kind, tag: Option<u32>) -> Field {
    Field {
        name,
        kind,
        versions: (0, 1),
        nullable: (0, -1),
        tag,
    }
}

const ODD: Layout = Layout {
    name: "Odd",
    versions: (0, 1),
    first_flexible_version: 1,
    fields: &ODD_FIELDS,
};

#[test]
fn string_that_is_not_utf_8_is_replaced_as_java_does_and_nothing_else_is() {
    let classic = [0, 3, b'a', 0xff, b'b', 0, 0, 0, 2, 0xff, 0xfe, 7, 0xff];
    let checked = ODD.check(0, &classic).unwrap();
    assert_eq!((checked.invalid_strings, checked.trailing), (1, 1));
    let expected = [
        0, 5, b'a', 0xef, 0xbf, 0xbd, b'b', 0, 0, 0, 2, 0xff, 0xfe, 7, 0xff,
    ];
    assert_eq!(ODD.replace_invalid_text(0, &classic).unwrap(), expected);
}

#[test]
fn string_that_is_not_utf_8_in_a_tagged_field_changes_the_sizes_around_it() {
    // A valid text, bytes, 7; tag 9 is unknown, tag 3 has an array of two structs, whose second string is wrong.
    let tagged = [3, 2, b'x', 0, 3, 0xff, 0xff, 0];
    let mut body = vec![2, b'a', 2, 0xff, 7, 2, 9, 1, 0xff, 3, tagged.len() as u8];
    body.extend(tagged);
    body.push(0xff);
    assert_eq!(ODD.check(1, &body).unwrap().invalid_strings, 1);
    let tagged = [3, 2, b'x', 0, 7, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 0];
    let mut expected = vec![2, b'a', 2, 0xff, 7, 2, 9, 1, 0xff, 3, tagged.len() as u8];
    expected.extend(tagged);
    expected.push(0xff);
    assert_eq!(ODD.replace_invalid_text(1, &body).unwrap(), expected);
}

#[test]
fn string_that_gets_too_long_for_an_answer_is_refused() {
    let length = i16::MAX;
    let mut body = length.to_be_bytes().to_vec();
    body.extend(std::iter::repeat_n(0xff, length as usize));
    body.extend([0, 0, 0, 0, 7]);
    assert_eq!(ODD.check(0, &body).unwrap().invalid_strings, 1);
    assert_eq!(
        ODD.replace_invalid_text(0, &body),
        Err(WireError::TooLong(3 * length as usize))
    );
}

#[test]
fn request_that_promises_a_huge_array_is_refused_by_the_check() {
    // Metadata v1: an array length of 2^31 - 1 and nothing behind it. The crate's decoder would reserve gigabytes.
    let error = layout::check_request(3, 1, &i32::MAX.to_be_bytes()).unwrap_err();
    assert!(matches!(error, WireError::ImpossibleCount { .. }), "{error}");
    // v12: the same as a varint.
    let error = layout::check_request(3, 12, &[0xff, 0xff, 0xff, 0xff, 0x0f]).unwrap_err();
    assert!(matches!(error, WireError::BadLength(_)), "{error}");
}

#[test]
fn request_with_bytes_behind_its_end_is_valid_as_in_kafka() {
    let mut body = BytesMut::new();
    crate::protocol::messages::HeartbeatRequest::default()
        .encode(&mut body, 4)
        .unwrap();
    assert!(layout::check_request(12, 4, &body).is_ok());
    body.put_u8(0);
    assert_eq!(layout::check_request(12, 4, &body).unwrap().trailing, 1);
}

#[test]
fn api_keys_and_error_codes_are_found_by_number_and_name() {
    assert_eq!(ApiKey::from_code(11), Some(ApiKey::JoinGroup));
    assert_eq!(ApiKey::from_code(4), None);
    assert_eq!(ApiKey::JoinGroup.valid_versions(), 0..=9);
    assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
    assert_eq!(ApiKey::ApiVersions.response_header_version(3), 0);
    assert_eq!(ApiKey::CreateTopics.response_header_version(5), 1);
    assert!(ApiKey::CreateTopics.is_forwardable() && !ApiKey::Produce.is_forwardable());
    assert_eq!(ApiKey::all().count(), 91);
    assert_eq!(ErrorCode::from_code(3).name(), "UNKNOWN_TOPIC_OR_PARTITION");
    assert_eq!(ErrorCode::from_code(-1), ErrorCode::UnknownServerError);
    assert_eq!(ErrorCode::from_code(9999), ErrorCode::UnknownServerError);
    assert_eq!(ErrorCode::None.message(), "NONE");
    assert_eq!(
        ErrorCode::UnknownTopicOrPartition.message(),
        "This server does not host this topic-partition."
    );
}
