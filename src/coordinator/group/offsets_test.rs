//! Commits, fetches, expiry: what groups may commit, when it counts, when it goes.

use super::super::GroupConfig;
use super::super::fixture_test::*;
use super::*;
use crate::coordinator::runtime::shard::CoordinatorShard;
use crate::protocol::messages::GroupId;
use crate::protocol::records::group::{GroupRecordKey, GroupRecordValue};

fn key(group: &str, topic: &str, partition: i32) -> OffsetKey {
    OffsetKey {
        group: text(group),
        topic: text(topic),
        partition,
    }
}

fn value(offset: i64, record_offset: i64) -> OffsetAndMetadata {
    OffsetAndMetadata {
        record_offset,
        committed_offset: offset,
        leader_epoch: -1,
        metadata: StrBytes::new(),
        commit_timestamp_ms: 1_000_000,
        expire_timestamp_ms: None,
        topic_id: Uuid::nil(),
    }
}

fn topics_of(fixture: &Fixture, group: &str) -> Vec<(String, Vec<i32>)> {
    let request = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(None);
    let committed = Some(fixture.committed as i64);
    let topics = fixture.shard.fetch_offsets(&request, committed).unwrap().topics;
    topics
        .into_iter()
        .map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| partition.partition_index);
            (topic.name.to_string(), partitions.collect())
        })
        .collect()
}

#[test]
fn commit_from_outside_makes_a_simple_group_and_is_written_as_kafka_writes_it() {
    let mut fixture = Fixture::new();
    let mut request = commit("simple", "topic", 3, 42);
    request.topics[0].topic_id = Uuid::from_u128(7);
    request.topics[0].partitions[0].committed_leader_epoch = 5;
    let response = fixture.commit_offsets(&request, true).unwrap();
    assert_eq!(response.topics[0].partitions[0].error_code, 0);
    let [record] = &fixture.log[..] else {
        panic!("{:?}", fixture.log)
    };
    let Some((GroupRecordValue::OffsetCommit(written), 4)) = &record.value else {
        panic!("{record:?}")
    };
    assert_eq!(
        (written.offset, written.leader_epoch, &*written.metadata),
        (42, 5, "note")
    );
    assert_eq!(
        (written.commit_timestamp, written.topic_id),
        (fixture.now_ms, Uuid::from_u128(7))
    );
    assert_eq!(fixture.fetch("simple", "topic", 3), 42);
    assert!(fixture.shard.classic_group("simple").unwrap().is_simple());
    assert_eq!(fixture.fetch("simple", "topic", 4), -1);
    assert_eq!(fixture.fetch("other", "topic", 3), -1);
}

#[test]
fn commit_with_a_retention_is_written_in_the_version_that_has_it() {
    let mut fixture = Fixture::new();
    let request = commit("simple", "topic", 0, 1).with_retention_time_ms(5000);
    fixture.commit_offsets(&request, false).unwrap();
    let Some((GroupRecordValue::OffsetCommit(written), 1)) = &fixture.log[0].value else {
        panic!("{:?}", fixture.log)
    };
    assert_eq!(written.expire_timestamp, fixture.now_ms + 5000);
    // It expires then, whatever the retention of the node.
    fixture.now_ms += 4999;
    assert!(fixture.shard.expire(fixture.now_ms).is_empty());
    fixture.now_ms += 1;
    assert_eq!(fixture.shard.expire(fixture.now_ms).len(), 2);
}

#[test]
fn commit_is_checked_against_the_group() {
    let mut fixture = Fixture::new();
    let unknown = commit("none", "topic", 0, 1).with_generation_id_or_member_epoch(1);
    assert_eq!(
        fixture.commit_offsets(&unknown, true),
        Err(ErrorCode::GroupIdNotFound)
    );
    assert_eq!(
        fixture.commit_offsets(&unknown, false),
        Err(ErrorCode::IllegalGeneration)
    );
    let members = fixture.stable_group(1);
    let good = commit_as(&members[0], "topic", 0, 5);
    assert!(fixture.commit_offsets(&good, true).is_ok());
    let outside = commit("group", "topic", 0, 1);
    assert_eq!(
        fixture.commit_offsets(&outside, true),
        Err(ErrorCode::UnknownMemberId)
    );
    let stranger = good.clone().with_member_id(text("stranger"));
    assert_eq!(
        fixture.commit_offsets(&stranger, true),
        Err(ErrorCode::UnknownMemberId)
    );
    let late = good.clone().with_generation_id_or_member_epoch(0);
    assert_eq!(
        fixture.commit_offsets(&late, true),
        Err(ErrorCode::IllegalGeneration)
    );
    let instance = good.clone().with_group_instance_id(Some(text("i")));
    assert_eq!(
        fixture.commit_offsets(&instance, true),
        Err(ErrorCode::UnknownMemberId)
    );
    // During the join phase the old generation may still commit, while completing it may not.
    let other = fixture.join(join("group"));
    assert!(fixture.commit_offsets(&good, true).is_ok());
    fixture.join(rejoin(&members[0]));
    assert_eq!(fixture.joined(other).unwrap().generation_id, 2);
    let current = good.with_generation_id_or_member_epoch(2);
    assert_eq!(
        fixture.commit_offsets(&current, true),
        Err(ErrorCode::RebalanceInProgress)
    );
    assert_eq!(fixture.fetch("group", "topic", 0), 5);
}

#[test]
fn metadata_that_is_too_long_is_refused_for_its_partition_only() {
    let mut fixture = Fixture::with(GroupConfig {
        offset_metadata_max_bytes: 3,
        ..Default::default()
    });
    let mut request = commit("simple", "topic", 0, 1);
    let mut long = request.topics[0].partitions[0].clone();
    long.partition_index = 1;
    // Java counts UTF-16 units: three here.
    request.topics[0].partitions[0].committed_metadata = Some(text("é€a"));
    request.topics[0].partitions.push(long);
    let response = fixture.commit_offsets(&request, true).unwrap();
    let codes: Vec<i16> = response.topics[0]
        .partitions
        .iter()
        .map(|p| p.error_code)
        .collect();
    assert_eq!(codes, [0, ErrorCode::OffsetMetadataTooLarge.code()]);
    assert_eq!(fixture.log.len(), 1);
    assert_eq!((utf16_length("é€a"), utf16_length("😀")), (3, 2));
}

#[test]
fn commit_counts_once_it_is_below_the_high_watermark() {
    let mut fixture = Fixture::new();
    fixture
        .commit_offsets(&commit("simple", "topic", 0, 1), true)
        .unwrap();
    fixture.hold = true;
    fixture
        .commit_offsets(&commit("simple", "topic", 0, 2), true)
        .unwrap();
    assert_eq!(fixture.fetch("simple", "topic", 0), 1);
    // Who wants stable offsets sees the newest, and waits for it (the runtime's part).
    assert_eq!(fixture.fetch_at("simple", "topic", 0, None).0, 2);
    fixture.commit();
    assert_eq!(fixture.fetch("simple", "topic", 0), 2);
}

#[test]
fn commit_that_cannot_be_written_is_taken_back_with_the_group_it_made() {
    let mut fixture = Fixture::new();
    fixture.fail = Some(ErrorCode::NotEnoughReplicas);
    fixture
        .commit_offsets(&commit("simple", "topic", 0, 1), true)
        .unwrap();
    assert_eq!(fixture.fetch_at("simple", "topic", 0, None).0, -1);
    assert!(fixture.shard.classic_group("simple").is_none());
    assert!(fixture.shard.offsets().is_empty());
}

#[test]
fn all_offsets_of_a_group_are_fetched_and_no_other_groups() {
    let mut fixture = Fixture::new();
    for (group, topic, partition) in [
        ("a", "x", 1),
        ("a", "x", 0),
        ("a", "y", 0),
        ("ab", "x", 0),
        ("", "x", 0),
    ] {
        fixture
            .commit_offsets(&commit(group, topic, partition, 9), true)
            .unwrap();
    }
    let expected = [("x".to_string(), vec![0, 1]), ("y".to_string(), vec![0])];
    assert_eq!(topics_of(&fixture, "a"), expected);
    assert_eq!(topics_of(&fixture, "ab"), [("x".to_string(), vec![0])]);
    assert_eq!(topics_of(&fixture, ""), [("x".to_string(), vec![0])]);
    assert_eq!(topics_of(&fixture, "none"), []);
}

#[test]
fn offset_of_a_topic_of_the_same_name_but_another_id_is_not_given() {
    let mut fixture = Fixture::new();
    let mut request = commit("simple", "topic", 0, 5);
    request.topics[0].topic_id = Uuid::from_u128(1);
    fixture.commit_offsets(&request, true).unwrap();
    let committed = |id: u128| {
        let topic = crate::protocol::messages::offset_fetch_request::OffsetFetchRequestTopics::default()
            .with_name(TopicName(text("topic")))
            .with_topic_id(Uuid::from_u128(id))
            .with_partition_indexes(vec![0]);
        let request = OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(text("simple")))
            .with_topics(Some(vec![topic]));
        fixture.shard.fetch_offsets(&request, None).unwrap().topics[0].partitions[0].committed_offset
    };
    assert_eq!((committed(1), committed(2), committed(0)), (5, -1, 5));
}

mod transactions {
    use super::*;

    #[test]
    fn offset_of_a_transaction_counts_when_it_commits() {
        let mut offsets = Offsets::default();
        let partition = key("g", "t", 0);
        offsets.replay(0, -1, partition.clone(), Some(value(1, 0)));
        offsets.replay(1, 7, partition.clone(), Some(value(2, 1)));
        assert!(offsets.is_in_open_transaction(&partition) && offsets.has_open_transaction(&text("g")));
        assert_eq!(offsets.get(&partition).unwrap().committed_offset, 1);
        offsets.replay_end_transaction_marker(2, 7, true);
        assert_eq!(offsets.get(&partition).unwrap().committed_offset, 2);
        assert!(!offsets.is_in_open_transaction(&partition));
    }

    #[test]
    fn offset_of_an_aborted_transaction_is_dropped() {
        let mut offsets = Offsets::default();
        let partition = key("g", "t", 0);
        offsets.replay(0, 7, partition.clone(), Some(value(2, 0)));
        offsets.replay_end_transaction_marker(1, 7, false);
        assert_eq!(offsets.get(&partition), None);
        assert!(!offsets.has_open_transaction(&text("g")));
    }

    #[test]
    fn later_commit_outside_of_the_transaction_stays() {
        let mut offsets = Offsets::default();
        let partition = key("g", "t", 0);
        offsets.replay(0, 7, partition.clone(), Some(value(2, 0)));
        offsets.replay(1, -1, partition.clone(), Some(value(3, 1)));
        offsets.replay_end_transaction_marker(2, 7, true);
        assert_eq!(offsets.get(&partition).unwrap().committed_offset, 3);
    }

    #[test]
    fn tombstone_ends_what_is_pending_too() {
        let mut offsets = Offsets::default();
        let partition = key("g", "t", 0);
        offsets.replay(0, 7, partition.clone(), Some(value(2, 0)));
        offsets.replay(1, -1, partition.clone(), None);
        assert!(!offsets.is_in_open_transaction(&partition));
        offsets.replay_end_transaction_marker(2, 7, true);
        assert_eq!(offsets.get(&partition), None);
    }

    #[test]
    fn transaction_is_taken_back_by_a_revert() {
        let mut offsets = Offsets::default();
        let partition = key("g", "t", 0);
        offsets.replay(0, 7, partition.clone(), Some(value(2, 0)));
        offsets.replay_end_transaction_marker(1, 7, true);
        offsets.revert(1);
        assert!(offsets.is_in_open_transaction(&partition) && offsets.get(&partition).is_none());
    }

    #[test]
    fn fetch_of_stable_offsets_says_that_a_transaction_is_open() {
        let mut fixture = Fixture::new();
        fixture
            .commit_offsets(&commit("simple", "topic", 0, 1), true)
            .unwrap();
        let record = GroupRecord::offset_commit(&key("simple", "topic", 0), &value(9, -1));
        fixture.shard.replay(1, 7, record);
        assert_eq!(
            fixture.fetch_at("simple", "topic", 0, None),
            (-1, ErrorCode::UnstableOffsetCommit)
        );
        assert_eq!(
            fixture.fetch_at("simple", "topic", 0, Some(2)),
            (1, ErrorCode::None)
        );
        // Nor does it expire meanwhile.
        assert!(fixture.shard.expire(i64::MAX / 2).is_empty());
    }
}

mod expiry {
    use super::*;

    const RETENTION: i64 = 7 * 24 * 3600 * 1000;

    fn keys(records: &[GroupRecord]) -> Vec<&'static str> {
        assert!(records.iter().all(|record| record.value.is_none()));
        let mut names: Vec<_> = records.iter().map(|record| record.key.name()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn simple_group_goes_with_its_last_offset() {
        let mut fixture = Fixture::new();
        fixture
            .commit_offsets(&commit("simple", "topic", 0, 1), true)
            .unwrap();
        fixture.now_ms += 1000;
        fixture
            .commit_offsets(&commit("simple", "topic", 1, 1), true)
            .unwrap();
        fixture.now_ms += RETENTION - 1000;
        let expired = fixture.shard.expire(fixture.now_ms);
        assert_eq!(keys(&expired), ["OffsetCommitKey"]);
        let expired = fixture.shard.expire(fixture.now_ms + 1000);
        assert_eq!(
            keys(&expired),
            ["GroupMetadataKey", "OffsetCommitKey", "OffsetCommitKey"]
        );
    }

    #[test]
    fn empty_groups_offsets_expire_from_when_it_became_empty() {
        let mut fixture = Fixture::new();
        let members = fixture.stable_group(1);
        fixture
            .commit_offsets(&commit_as(&members[0], "topic", 0, 1), true)
            .unwrap();
        fixture.now_ms += RETENTION;
        assert!(
            fixture.shard.expire(fixture.now_ms).is_empty(),
            "the group consumes any topic"
        );
        fixture.leave(&[leaving(&members[0].member_id)]).unwrap();
        fixture.now_ms += RETENTION - 1;
        assert!(fixture.shard.expire(fixture.now_ms).is_empty());
        let expired = fixture.shard.expire(fixture.now_ms + 1);
        assert_eq!(keys(&expired), ["GroupMetadataKey", "OffsetCommitKey"]);
    }

    #[test]
    fn live_group_keeps_offsets_of_what_it_consumes_and_loses_the_others() {
        const SUBSCRIPTION: &[u8] = b"\0\0\0\0\0\x01\0\x03foo\xff\xff\xff\xff";
        let mut fixture = Fixture::new();
        let token = fixture.join(join("group").with_protocols(vec![protocol("range", SUBSCRIPTION)]));
        fixture.sleep(3000);
        let joined = fixture.joined(token).unwrap();
        fixture.sync_all(std::slice::from_ref(&joined));
        for topic in ["foo", "bar"] {
            fixture
                .commit_offsets(&commit_as(&joined, topic, 0, 1), true)
                .unwrap();
        }
        let expired = fixture.shard.expire(fixture.now_ms + RETENTION);
        assert_eq!(expired, [GroupRecord::offset_tombstone(&key("group", "bar", 0))]);
    }

    #[test]
    fn group_of_another_kind_of_client_keeps_its_offsets_while_it_lives() {
        let mut fixture = Fixture::new();
        let token = fixture.join(join("group").with_protocol_type(text("connect")));
        fixture.sleep(3000);
        let joined = fixture.joined(token).unwrap();
        fixture.sync_all(std::slice::from_ref(&joined));
        fixture
            .commit_offsets(&commit_as(&joined, "topic", 0, 1), true)
            .unwrap();
        assert!(fixture.shard.expire(fixture.now_ms + 10 * RETENTION).is_empty());
    }

    #[test]
    fn expiry_runs_by_itself_and_again() {
        let mut fixture = Fixture::new();
        fixture
            .commit_offsets(&commit("simple", "topic", 0, 1), true)
            .unwrap();
        let mut fixture = fixture.reloaded();
        fixture.now_ms += RETENTION;
        fixture.sleep(600_000);
        assert_eq!(fixture.log.len(), 3);
        assert!(fixture.shard.classic_group("simple").is_none());
        fixture
            .commit_offsets(&commit("simple", "topic", 0, 1), true)
            .unwrap();
        fixture.sleep(RETENTION + 600_000);
        assert_eq!(fixture.log.len(), 6);
    }
}

#[test]
fn offsets_of_a_deleted_topic_go_unless_a_new_one_has_its_name() {
    let mut fixture = Fixture::new();
    let commit_of = |group: &str, topic: &str, id: u128| {
        let mut request = commit(group, topic, 0, 1);
        request.topics[0].topic_id = Uuid::from_u128(id);
        request
    };
    fixture.commit_offsets(&commit_of("a", "gone", 1), true).unwrap();
    fixture.commit_offsets(&commit_of("b", "gone", 0), true).unwrap();
    fixture.commit_offsets(&commit_of("c", "gone", 2), true).unwrap();
    fixture.commit_offsets(&commit_of("a", "stays", 3), true).unwrap();
    let deleted = DeletedTopic {
        id: Uuid::from_u128(1),
        name: text("gone"),
    };
    let outcome = fixture.shard.on_topics_deleted(&[deleted]);
    assert!(!outcome.atomic);
    fixture.apply(outcome);
    assert_eq!(fixture.fetch("a", "gone", 0), -1);
    assert_eq!(fixture.fetch("b", "gone", 0), -1);
    assert_eq!(fixture.fetch("c", "gone", 0), 1);
    assert_eq!(fixture.fetch("a", "stays", 0), 1);
}

#[test]
fn log_makes_the_same_offsets_again() {
    let mut fixture = Fixture::new();
    let members = fixture.stable_group(1);
    fixture
        .commit_offsets(&commit_as(&members[0], "topic", 0, 5), true)
        .unwrap();
    fixture
        .commit_offsets(&commit("simple", "topic", 1, 6), true)
        .unwrap();
    let reloaded = fixture.reloaded();
    assert_eq!(reloaded.fetch("group", "topic", 0), 5);
    assert_eq!(reloaded.fetch("simple", "topic", 1), 6);
    assert!(matches!(fixture.log[0].key, GroupRecordKey::GroupMetadata(_)));
}
