//! The light reader of offset commits against the generated one.

use bytes::Bytes;
use uuid::Uuid;

use super::parse;
use crate::coordinator::group::GroupShard;
use crate::coordinator::group::offsets::{OffsetAndMetadata, OffsetKey};
use crate::coordinator::runtime::shard::CoordinatorShard;
use crate::protocol::StrBytes;
use crate::protocol::records::group::{
    GroupMetadataKey, GroupRecordKey, GroupRecordValue, OffsetCommitKey, OffsetCommitValue,
};

fn encoded(version: i16, metadata: &str, topic_id: Uuid) -> (Bytes, Bytes) {
    let key = GroupRecordKey::from(OffsetCommitKey {
        group: StrBytes::from_static_str("grüppe"),
        topic: StrBytes::from_static_str("topic"),
        partition: 7,
    });
    let value = OffsetCommitValue {
        offset: 1 << 40,
        leader_epoch: if version >= 3 { 5 } else { -1 },
        metadata: StrBytes::from_string(metadata.to_owned()),
        commit_timestamp: 1234,
        expire_timestamp: if version == 1 { 4321 } else { -1 },
        topic_id,
        ..Default::default()
    };
    let value = GroupRecordValue::from(value).encode(version).unwrap();
    (key.encode().unwrap(), value)
}

fn fully_decoded(key: &Bytes, value: &Bytes) -> OffsetAndMetadata {
    let key = GroupRecordKey::decode(key.clone()).unwrap();
    match GroupRecordValue::decode(key.record_type(), value.clone())
        .unwrap()
        .0
    {
        GroupRecordValue::OffsetCommit(value) => OffsetAndMetadata::from_record(9, value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_version_reads_as_the_generated_reader_reads_it() {
    let id = Uuid::from_u128(77);
    for version in 0..=4 {
        for metadata in ["", "méta", "x".repeat(126).as_str()] {
            let topic_ids = if version == 4 {
                vec![Uuid::nil(), id]
            } else {
                vec![Uuid::nil()]
            };
            for topic_id in topic_ids {
                let (key, value) = encoded(version, metadata, topic_id);
                let commit = parse(&key, Some(&value)).unwrap_or_else(|| panic!("version {version}"));
                assert_eq!(
                    (commit.group, commit.topic, commit.partition),
                    ("grüppe", "topic", 7)
                );
                let read = commit.value.unwrap().to_owned(9);
                assert_eq!(read, fully_decoded(&key, &value), "version {version}");
                assert_eq!(read.topic_id, topic_id);
            }
        }
    }
}

#[test]
fn tombstone_is_a_commit_without_value() {
    let (key, _) = encoded(4, "", Uuid::nil());
    assert_eq!(parse(&key, None).unwrap().value, None);
}

#[test]
fn what_is_not_known_is_left_to_the_full_reader() {
    let (key, value) = encoded(4, &"x".repeat(200), Uuid::from_u128(1));
    assert_eq!(parse(&key, Some(&value)), None, "a length of two bytes");
    let (key, value) = encoded(4, "m", Uuid::from_u128(1));
    for cut in 0..value.len() {
        assert_eq!(parse(&key, Some(&value[..cut])), None, "value of {cut} bytes");
    }
    for cut in 0..key.len() {
        assert_eq!(parse(&key[..cut], Some(&value)), None, "key of {cut} bytes");
    }
    let longer = [&value[..], &[0]].concat();
    assert_eq!(parse(&key, Some(&longer)), None);
    let newer = [&[0, 5], &value[2..]].concat();
    assert_eq!(parse(&key, Some(&newer)), None);
    let group = GroupRecordKey::from(GroupMetadataKey {
        group: StrBytes::from_static_str("g"),
    });
    assert_eq!(parse(&group.encode().unwrap(), None), None);
}

#[test]
fn raw_replay_leaves_the_same_state_as_the_decoded_one() {
    let (key, value) = encoded(4, "m", Uuid::from_u128(3));
    let mut raw = GroupShard::new(Default::default());
    let mut decoded = GroupShard::new(Default::default());
    for shard in [&mut raw, &mut decoded] {
        shard.commit(100);
    }
    for (offset, value) in [(1, Some(&value)), (2, None), (3, Some(&value))] {
        assert!(raw.replay_raw(offset, -1, &key, value.map(|value| &value[..])));
        let record = GroupShard::decode(key.clone(), value.cloned()).unwrap().unwrap();
        decoded.replay(offset, -1, record);
    }
    let key = OffsetKey {
        group: StrBytes::from_static_str("grüppe"),
        topic: StrBytes::from_static_str("topic"),
        partition: 7,
    };
    assert_eq!(raw.offsets().get(&key), decoded.offsets().get(&key));
    assert_eq!(raw.offsets().get(&key).unwrap().record_offset, 3);
    assert!(raw.classic_group("grüppe").is_some());
    assert_eq!(raw.classic_group("grüppe"), decoded.classic_group("grüppe"));
}
