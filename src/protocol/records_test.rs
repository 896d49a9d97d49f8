//! Records that Apache Kafka 4.4 and 3.9 wrote: each decodes into a known type and encodes into the same bytes.

use super::group::{GroupRecordKey, GroupRecordValue};
use super::metadata::{FeatureLevelRecord, MetadataRecord, TopicRecord};
use super::share::{ShareRecordKey, ShareRecordValue};
use super::transaction::{TransactionRecordKey, TransactionRecordValue};
use super::{control, group};
use crate::protocol::{Decodable, Encodable, StrBytes, WireError};
use base64::Engine;
use bytes::{Bytes, BytesMut};
use serde_json::Value;
use std::fmt::Debug;
use std::path::Path;

fn golden(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(path);
    serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap()
}

fn bytes_of(value: &Value) -> Option<Bytes> {
    let text = value.as_str()?;
    Some(
        base64::engine::general_purpose::STANDARD
            .decode(text)
            .unwrap()
            .into(),
    )
}

/// Nothing in the message was left as raw bytes.
fn assert_all_known(message: &impl Debug) {
    let words = format!("{message:?}").replace("unknown_tagged_fields: {}", "");
    assert!(!words.contains("nknown"), "{words}");
}

/// `(key, value, control type)` of every record of a partition folder.
fn records_of(folder: &str) -> Vec<(Option<Bytes>, Option<Bytes>, Option<String>)> {
    golden(folder)["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| {
            let control = record["control"].as_str().map(String::from);
            (bytes_of(&record["key"]), bytes_of(&record["value"]), control)
        })
        .collect()
}

#[test]
fn metadata_records_of_kafka_decode_and_encode_to_the_same_bytes() {
    for (folder, count) in [
        ("single/expected/__cluster_metadata-0.json", 285),
        ("cluster3/node-1/expected/__cluster_metadata-0.json", 70),
        ("old-3.9/expected/__cluster_metadata-0.json", 43),
    ] {
        let mut seen = 0;
        for (_, value, _) in records_of(folder)
            .into_iter()
            .filter(|(_, _, control)| control.is_none())
        {
            let value = value.unwrap();
            let (record, version) = MetadataRecord::decode_framed(value.clone()).unwrap();
            assert_all_known(&record);
            let mut again = BytesMut::new();
            record.encode_framed(version, &mut again).unwrap();
            assert_eq!(again.freeze(), value, "{record:?}");
            seen += 1;
        }
        assert_eq!(seen, count, "{folder}");
    }
}

/// Type numbers, versions and order of a partition folder's records, as Kafka's own dump tool says.
fn dumped(folder: &str) -> Vec<(String, Option<String>)> {
    golden(folder)
        .as_array()
        .unwrap()
        .iter()
        .filter(|record| record["key"].is_object())
        .map(|record| {
            let of = |part: &str, field: &str| record[part][field].as_str().map(String::from);
            (of("key", "type").unwrap(), of("value", "version"))
        })
        .collect()
}

macro_rules! coordinator_golden {
    ($folder:expr, $key:ty, $value:ty) => {{
        let mut seen = Vec::new();
        for (key, value, _) in records_of(&format!("{}.json", $folder))
            .into_iter()
            .filter(|(_, _, control)| control.is_none())
        {
            let key_bytes = key.unwrap();
            let key = <$key>::decode(key_bytes.clone()).unwrap();
            assert_all_known(&key);
            assert_eq!(key.encode().unwrap(), key_bytes);
            let version = value.map(|value_bytes| {
                let (value, version) = <$value>::decode(key.record_type(), value_bytes.clone())
                    .unwrap_or_else(|e| panic!("{key:?} {value_bytes:?}: {e}"));
                assert_all_known(&value);
                assert_eq!(value.encode(version).unwrap(), value_bytes, "{value:?}");
                version.to_string()
            });
            seen.push((key.record_type().to_string(), version));
        }
        assert!(!seen.is_empty());
        assert_eq!(seen, dumped(&format!("{}.decoded.json", $folder)), "{}", $folder);
    }};
}

#[test]
fn coordinator_records_of_kafka_decode_and_encode_to_the_same_bytes() {
    for partition in 0..3 {
        let folder = format!("single/expected/__consumer_offsets-{partition}");
        coordinator_golden!(folder, GroupRecordKey, GroupRecordValue);
    }
    for partition in 0..2 {
        let folder = format!("single/expected/__transaction_state-{partition}");
        coordinator_golden!(folder, TransactionRecordKey, TransactionRecordValue);
        let folder = format!("single/expected/__share_group_state-{partition}");
        coordinator_golden!(folder, ShareRecordKey, ShareRecordValue);
    }
    coordinator_golden!(
        "old-3.9/expected/__consumer_offsets-1",
        GroupRecordKey,
        GroupRecordValue
    );
    coordinator_golden!(
        "old-3.9/expected/__transaction_state-0",
        TransactionRecordKey,
        TransactionRecordValue
    );
}

#[test]
fn control_records_of_kafka_decode_and_encode_to_the_same_bytes() {
    fn same<T: Encodable + Decodable + Debug>(bytes: &Bytes, version: i16) {
        let mut left = bytes.clone();
        let record = T::decode(&mut left, version).unwrap();
        assert!(left.is_empty());
        assert_all_known(&record);
        let mut again = BytesMut::new();
        record.encode(&mut again, version).unwrap();
        assert_eq!(again.freeze(), *bytes, "{record:?}");
    }
    let mut seen = Vec::new();
    for (_, value, control) in records_of("single/expected/__cluster_metadata-0.json") {
        let (value, Some(control)) = (value.unwrap(), control) else {
            continue;
        };
        // Every control record begins with its version.
        let version = i16::from_be_bytes([value[0], value[1]]);
        match control.as_str() {
            "LEADER_CHANGE" => same::<control::LeaderChangeMessage>(&value, version),
            "KRAFT_VERSION" => same::<control::KRaftVersionRecord>(&value, version),
            "KRAFT_VOTERS" => same::<control::VotersRecord>(&value, version),
            other => panic!("{other}"),
        }
        seen.push((control, version));
    }
    let seen: Vec<_> = seen
        .iter()
        .map(|(name, version)| (name.as_str(), *version))
        .collect();
    let expected = [
        ("LEADER_CHANGE", 0),
        ("KRAFT_VERSION", 0),
        ("KRAFT_VOTERS", 0),
        ("LEADER_CHANGE", 0),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn framed_record_has_frame_version_key_and_version_first() {
    let record = MetadataRecord::from(FeatureLevelRecord {
        name: StrBytes::from_static_str("kraft.version"),
        feature_level: 1,
        ..Default::default()
    });
    let mut bytes = BytesMut::new();
    record.encode_framed(0, &mut bytes).unwrap();
    assert_eq!(&bytes[..], b"\x01\x0c\x00\x0ekraft.version\x00\x01\x00");
    assert_eq!(
        MetadataRecord::decode_framed(bytes.freeze()).unwrap(),
        (record, 0)
    );
}

#[test]
fn metadata_record_of_unknown_type_or_version_is_kept_raw() {
    for framed in [&b"\x01\x7f\x03rest"[..], b"\x01\x02\x09rest"] {
        let (record, version) = MetadataRecord::decode_framed(Bytes::from_static(framed)).unwrap();
        assert!(matches!(record, MetadataRecord::Unknown(_)), "{record:?}");
        let mut again = BytesMut::new();
        record.encode_framed(version, &mut again).unwrap();
        assert_eq!(&again[..], framed);
    }
}

#[test]
fn metadata_record_that_is_damaged_is_refused() {
    let decode = |bytes: &'static [u8]| MetadataRecord::decode_framed(Bytes::from_static(bytes)).unwrap_err();
    assert_eq!(decode(b""), WireError::Truncated { needed: 1, left: 0 });
    assert_eq!(decode(b"\x02\x02\x00"), WireError::UnsupportedFrame(2));
    assert_eq!(
        decode(b"\x01\xff\xff\xff\xff\x0f\x00"),
        WireError::BadLength(u32::MAX.into())
    );
    assert_eq!(decode(b"\x01\xff\xff\xff\xff\xff\x00"), WireError::LongVarint);
    let mut bytes = BytesMut::new();
    MetadataRecord::from(TopicRecord::default())
        .encode_framed(0, &mut bytes)
        .unwrap();
    bytes.extend_from_slice(b"x");
    assert_eq!(
        MetadataRecord::decode_framed(bytes.freeze()).unwrap_err(),
        WireError::Trailing { left: 1 }
    );
}

#[test]
fn array_count_beyond_the_bytes_is_refused_before_anything_is_reserved() {
    // GroupMetadataValue v0: empty protocol type, generation, null protocol and leader, then 2^31 - 1 members.
    let mut bytes = vec![0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
    bytes.extend_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(
        GroupRecordValue::decode(2, bytes.into()).unwrap_err(),
        WireError::ImpossibleCount {
            count: i32::MAX as usize,
            left: 0
        }
    );
}

#[test]
fn field_that_a_version_lacks_is_skipped_if_ignorable_and_refused_if_not() {
    let value = group::OffsetCommitValue {
        offset: 5,
        leader_epoch: 3,
        ..Default::default()
    };
    let mut bytes = BytesMut::new();
    value.encode(&mut bytes, 0).unwrap();
    assert_eq!(
        group::OffsetCommitValue::decode(&mut bytes.freeze(), 0)
            .unwrap()
            .leader_epoch,
        -1
    );

    let partition = super::metadata::PartitionRecord {
        directories: vec![uuid::Uuid::from_u128(1)],
        ..Default::default()
    };
    let error = partition.encode(&mut BytesMut::new(), 0).unwrap_err();
    assert_eq!(
        error.downcast_ref::<WireError>(),
        Some(&WireError::NotInVersion {
            field: "PartitionRecord.directories",
            version: 0
        })
    );
    assert!(partition.encode(&mut BytesMut::new(), 1).is_ok());
    assert!(partition.encode(&mut BytesMut::new(), 3).is_err());
}

/// Bytes of all records of some logs that Apache Kafka wrote, damaged: they decode or they do not, and never panic; what
/// decodes encodes, and then decodes to the same.
#[test]
fn damaged_record_is_refused_or_stays_what_it_decodes_to() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut damage = |bytes: &Bytes| {
        let mut bytes = bytes.to_vec();
        for _ in 0..random.usize(1..4) {
            if !bytes.is_empty() {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
        bytes.truncate(random.usize(..=bytes.len()));
        Bytes::from(bytes)
    };
    for (_, value, control) in records_of("single/expected/__cluster_metadata-0.json") {
        let (Some(value), None) = (value, control) else {
            continue;
        };
        for _ in 0..100 {
            let Ok((record, version)) = MetadataRecord::decode_framed(damage(&value)) else {
                continue;
            };
            let mut again = BytesMut::new();
            if record.encode_framed(version, &mut again).is_ok() {
                let decoded = MetadataRecord::decode_framed(again.freeze());
                // NaN, in a quota, is not equal to itself.
                assert_eq!(
                    format!("{decoded:?}"),
                    format!("{:?}", Ok::<_, WireError>((record, version)))
                );
            }
        }
    }
    for partition in 0..3 {
        for (key, value, _) in records_of(&format!("single/expected/__consumer_offsets-{partition}.json")) {
            let (Some(key), Some(value)) = (key, value) else {
                continue;
            };
            for _ in 0..100 {
                let Ok(decoded) = GroupRecordKey::decode(damage(&key)) else {
                    continue;
                };
                assert_eq!(
                    GroupRecordKey::decode(decoded.encode().unwrap()).unwrap(),
                    decoded
                );
                let Ok((decoded, version)) = GroupRecordValue::decode(decoded.record_type(), damage(&value))
                else {
                    continue;
                };
                if let Ok(again) = decoded.encode(version) {
                    assert_eq!(
                        GroupRecordValue::decode(decoded.record_type(), again).unwrap(),
                        (decoded, version)
                    );
                }
            }
        }
    }
}
