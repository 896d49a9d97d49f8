use super::*;
use crate::protocol::layout::{Field, Kind, Layout};

/// A body with zeros, empty strings and one element in every array.
fn zeros(layout: &Layout, version: i16) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_fields(
        layout.fields,
        version,
        version >= layout.first_flexible_version,
        &mut bytes,
    );
    bytes
}

fn put_fields(fields: &[Field], version: i16, is_flexible: bool, bytes: &mut Vec<u8>) {
    let is_here = |field: &&Field| field.versions.0 <= version && version <= field.versions.1;
    for field in fields.iter().filter(is_here).filter(|field| field.tag.is_none()) {
        let is_nullable = field.nullable.0 <= version && version <= field.nullable.1;
        put_value(field.kind, version, is_flexible, is_nullable, bytes);
    }
    if is_flexible {
        bytes.push(0);
    }
}

fn put_value(kind: Kind, version: i16, is_flexible: bool, is_nullable: bool, bytes: &mut Vec<u8>) {
    let mut zeros = |count| bytes.extend(std::iter::repeat_n(0, count));
    match kind {
        Kind::Bool | Kind::Int8 => zeros(1),
        Kind::Int16 => zeros(2),
        Kind::Int32 => zeros(4),
        Kind::Int64 | Kind::Float64 => zeros(8),
        Kind::Uuid => zeros(16),
        Kind::String | Kind::Bytes | Kind::Records if is_flexible => bytes.push(1),
        Kind::String => zeros(2),
        Kind::Bytes | Kind::Records => zeros(4),
        Kind::Struct(fields) => {
            if is_nullable {
                bytes.push(1);
            }
            put_fields(fields, version, is_flexible, bytes);
        }
        Kind::Array(element) => {
            match is_flexible {
                true => bytes.push(2),
                false => bytes.extend(1i32.to_be_bytes()),
            }
            put_value(*element, version, is_flexible, false, bytes);
        }
    }
}

fn header(key: i16, version: i16) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(key.to_be_bytes());
    bytes.extend(version.to_be_bytes());
    bytes.extend(7i32.to_be_bytes());
    bytes.extend(3i16.to_be_bytes());
    bytes.extend(b"abc");
    bytes
}

#[test]
fn header_of_a_flexible_request_decoded_skips_its_tagged_fields() {
    let mut bytes = header(18, 3);
    bytes.extend([1, 5, 2, 0xaa, 0xbb, 0x99]);
    let mut frame = Bytes::from(bytes);
    let head = RequestHead::decode(&mut frame).unwrap();
    assert_eq!(head.api_key, ApiKey::ApiVersions);
    assert_eq!((head.api_version, head.correlation_id), (3, 7));
    assert_eq!(head.client_id.as_deref(), Some("abc"));
    assert_eq!(&frame[..], &[0x99]);
}

#[test]
fn header_cut_anywhere_is_an_error() {
    let mut bytes = header(18, 3);
    bytes.extend([1, 5, 2, 0xaa, 0xbb]);
    for length in 0..bytes.len() {
        let mut frame = Bytes::copy_from_slice(&bytes[..length]);
        assert!(RequestHead::decode(&mut frame).is_err(), "{length} bytes");
    }
}

#[test]
fn header_with_an_unknown_key_is_refused() {
    let mut frame = Bytes::from(header(9999, 0));
    assert!(matches!(
        RequestHead::decode(&mut frame),
        Err(RequestError::UnknownApiKey(9999))
    ));
}

fn head(key: ApiKey, version: i16) -> RequestHead {
    RequestHead {
        api_key: key,
        api_version: version,
        correlation_id: 1,
        client_id: None,
    }
}

#[test]
fn api_versions_out_of_range_is_routed_as_version_0() {
    for version in [i16::MIN, -1, 6, 100, i16::MAX] {
        let (row, routed) = route(&head(ApiKey::ApiVersions, version), ListenerScope::Broker).unwrap();
        assert_eq!((row.key, routed), (ApiKey::ApiVersions, 0));
    }
}

#[test]
fn other_versions_out_of_range_are_refused() {
    for row in table::TABLE.iter().filter(|row| row.key != ApiKey::ApiVersions) {
        for version in [row.min_version - 1, row.max_version + 1] {
            for scope in [ListenerScope::Broker, ListenerScope::Controller] {
                assert!(
                    route(&head(row.key, version), scope).is_err(),
                    "{:?} {version}",
                    row.key
                );
            }
        }
    }
}

#[test]
fn a_key_of_the_other_listener_is_refused() {
    for row in table::TABLE
        .iter()
        .filter(|row| !row.is_on(ListenerScope::Broker))
    {
        assert!(route(&head(row.key, row.max_version), ListenerScope::Broker).is_err());
    }
}

/// The seeded twin of the fuzz target `request`: bytes at random behind valid and broken headers.
#[test]
fn random_bytes_never_panic_and_never_reserve_on_trust() {
    let mut random = fastrand::Rng::with_seed(20);
    for _ in 0..40_000 {
        let row = &table::TABLE[random.usize(..table::TABLE.len())];
        let version = random.i16(row.min_version..=row.max_version);
        let mut frame = Vec::new();
        if random.u8(..) > 8 {
            frame.extend(header(row.key.code(), version));
            if row.key.request_header_version(version) >= 2 {
                frame.push(0);
            }
        }
        let length = random.usize(..64);
        // Small numbers are likely lengths; 0xff begins negative and endless ones.
        frame.extend((0..length).map(|_| match random.u8(..4) {
            0 => 0,
            1 => random.u8(..8),
            2 => 0xff,
            _ => random.u8(..),
        }));
        for scope in [ListenerScope::Broker, ListenerScope::Controller] {
            let _ = check_frame(scope, Bytes::copy_from_slice(&frame));
        }
    }
}

/// Well-formed requests of every row and version, and each of them cut and with a byte changed.
#[test]
fn default_request_of_every_version_passes_and_damaged_ones_never_panic() {
    let mut random = fastrand::Rng::with_seed(21);
    for row in table::TABLE {
        let scope = match row.on_broker {
            true => ListenerScope::Broker,
            false => ListenerScope::Controller,
        };
        for version in row.min_version..=row.max_version {
            let mut frame = header(row.key.code(), version);
            if row.key.request_header_version(version) >= 2 {
                frame.push(0);
            }
            let body = crate::protocol::layout::request(row.key.code())
                .map(|layout| zeros(&layout, version))
                .unwrap();
            frame.extend(&body);
            check_frame(scope, Bytes::from(frame.clone()))
                .unwrap_or_else(|error| panic!("{:?} {version}: {error}", row.key));
            for _ in 0..200 {
                let mut damaged = frame.clone();
                damaged.truncate(random.usize(..=frame.len()));
                if let Some(byte) = damaged.len().checked_sub(1).map(|last| random.usize(..=last)) {
                    damaged[byte] = random.u8(..);
                }
                let _ = check_frame(scope, Bytes::from(damaged));
            }
        }
    }
}

#[test]
fn count_that_the_body_cannot_hold_is_refused() {
    let mut frame = header(3, 1);
    frame.extend(i32::MAX.to_be_bytes());
    assert!(matches!(
        check_frame(ListenerScope::Broker, Bytes::from(frame)),
        Err(RequestError::Body { .. })
    ));
}

#[test]
fn bytes_behind_a_request_are_ignored_as_in_kafka() {
    let mut frame = header(3, 1);
    frame.extend((-1i32).to_be_bytes());
    frame.extend(b"behind");
    assert!(check_frame(ListenerScope::Broker, Bytes::from(frame)).is_ok());
}
