//! Answers and tombstones for each kind and state of group, as Apache Kafka 4.4 gives them.

use super::super::fixture_test::*;
use super::*;
use crate::coordinator::runtime::shard::CoordinatorShard;
use crate::protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use crate::protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use crate::protocol::messages::{GroupId, OffsetCommitRequest, TopicName};
use crate::protocol::records::group::{
    ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue, ShareGroupMetadataKey, ShareGroupMetadataValue,
};

fn request(group: &str, topics: &[(&str, &[i32])]) -> OffsetDeleteRequest {
    let topics = topics.iter().map(|(topic, partitions)| {
        let partitions = partitions
            .iter()
            .map(|partition| OffsetDeleteRequestPartition::default().with_partition_index(*partition));
        OffsetDeleteRequestTopic::default()
            .with_name(TopicName(text(topic)))
            .with_partitions(partitions.collect())
    });
    OffsetDeleteRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(topics.collect())
}

/// Answered codes in order, and how many records were written.
fn delete(
    fixture: &mut Fixture,
    group: &str,
    topics: &[(&str, &[i32])],
) -> Result<(Vec<ErrorCode>, usize), ErrorCode> {
    let outcome = fixture.shard.delete_offsets(&request(group, topics))?;
    let before = fixture.log.len();
    let response = fixture.apply(outcome);
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    let codes = partitions.map(|partition| ErrorCode::from_code(partition.error_code));
    Ok((codes.collect(), fixture.log.len() - before))
}

fn commit(fixture: &mut Fixture, group: &str, topic: &str, partition: i32) {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(5);
    let topic = OffsetCommitRequestTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    fixture.commit_offsets(&request, true).unwrap();
}

#[test]
fn offsets_of_an_empty_group_are_deleted_where_there_are_any() {
    let mut fixture = Fixture::new();
    commit(&mut fixture, "g", "t", 0);
    commit(&mut fixture, "g", "t", 1);
    let deleted = delete(&mut fixture, "g", &[("t", &[0, 7]), ("u", &[0])]);
    assert_eq!(deleted, Ok((vec![ErrorCode::None; 3], 1)));
    assert_eq!((fixture.fetch("g", "t", 0), fixture.fetch("g", "t", 1)), (-1, 5));
    // The group stays, with nothing in it.
    assert_eq!(
        delete(&mut fixture, "g", &[("t", &[1])]),
        Ok((vec![ErrorCode::None], 1))
    );
    assert_eq!(delete(&mut fixture, "g", &[]), Ok((Vec::new(), 0)));
}

#[test]
fn group_that_is_not_there_is_not_found() {
    let mut fixture = Fixture::new();
    assert_eq!(
        delete(&mut fixture, "nope", &[("t", &[0])]),
        Err(ErrorCode::GroupIdNotFound)
    );
}

#[test]
fn group_of_another_protocol_with_members_is_not_empty() {
    let mut fixture = Fixture::new();
    commit(&mut fixture, "group", "t", 0);
    fixture.join(join("group").with_protocol_type(text("connect")));
    assert_eq!(
        delete(&mut fixture, "group", &[("t", &[0])]),
        Err(ErrorCode::NonEmptyGroup)
    );
}

#[test]
fn consumers_whose_topics_cannot_be_read_are_taken_to_consume_all() {
    let mut fixture = Fixture::new();
    commit(&mut fixture, "group", "t", 0);
    fixture.stable_group(1);
    assert_eq!(
        delete(&mut fixture, "group", &[("t", &[0])]),
        Ok((vec![ErrorCode::GroupSubscribedToTopic], 0))
    );
}

#[test]
fn consumers_keep_the_offsets_of_their_topics_only() {
    let mut fixture = Fixture::new();
    commit(&mut fixture, "group", "t", 0);
    commit(&mut fixture, "group", "u", 0);
    // Version 0 of a subscription to "t", without user data.
    let subscription = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff";
    fixture.join(join("group").with_protocols(vec![protocol("range", subscription)]));
    fixture.sleep(6000);
    let deleted = delete(&mut fixture, "group", &[("u", &[0]), ("t", &[0])]);
    assert_eq!(
        deleted,
        Ok((vec![ErrorCode::None, ErrorCode::GroupSubscribedToTopic], 1))
    );
    assert_eq!(
        (fixture.fetch("group", "t", 0), fixture.fetch("group", "u", 0)),
        (5, -1)
    );
}

#[test]
fn groups_of_the_newer_protocols_are_asked_for_their_topics() {
    let mut fixture = Fixture::new();
    let records = [
        GroupRecord {
            key: ConsumerGroupMetadataKey { group_id: text("n") }.into(),
            value: Some((ConsumerGroupMetadataValue::default().into(), 0)),
        },
        GroupRecord {
            key: ConsumerGroupMemberMetadataKey {
                group_id: text("n"),
                member_id: text("m"),
            }
            .into(),
            value: Some((
                ConsumerGroupMemberMetadataValue {
                    subscribed_topic_names: vec![text("t")],
                    ..Default::default()
                }
                .into(),
                0,
            )),
        },
        GroupRecord {
            key: ShareGroupMetadataKey { group_id: text("s") }.into(),
            value: Some((ShareGroupMetadataValue::default().into(), 0)),
        },
    ];
    for (offset, record) in (0..).zip(records) {
        fixture.shard.replay(offset, -1, record);
    }
    assert_eq!(
        delete(&mut fixture, "n", &[("u", &[0]), ("t", &[0])]),
        Ok((vec![ErrorCode::None, ErrorCode::GroupSubscribedToTopic], 0))
    );
    assert_eq!(
        delete(&mut fixture, "s", &[("u", &[0])]),
        Err(ErrorCode::GroupIdNotFound)
    );
}
