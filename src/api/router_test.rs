use super::*;

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
