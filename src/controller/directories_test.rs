use uuid::Uuid;

use crate::controller::test_support::*;
use crate::metadata::partition::directory_id;
use crate::protocol::ErrorCode;
use crate::protocol::messages::assign_replicas_to_dirs_request::{DirectoryData, PartitionData, TopicData};
use crate::protocol::messages::{AssignReplicasToDirsRequest, BrokerId};

const SECOND: Uuid = Uuid::from_u128(2000);
const GONE: Uuid = Uuid::from_u128(3000);

/// Brokers with two directories each: `directory_of(id)` and another.
fn fixture_with_two_directories(brokers: i32) -> Fixture {
    let mut fixture = Fixture::new(&[]);
    for id in 1..=brokers {
        let mut registration = registration(id, id.unsigned_abs() as u128);
        registration
            .log_dirs
            .push(Uuid::from_u128(SECOND.as_u128() + id.unsigned_abs() as u128));
        fixture.register(&registration).unwrap();
        fixture.unfence(id);
    }
    fixture
}

fn second_of(broker_id: i32) -> Uuid {
    Uuid::from_u128(SECOND.as_u128() + broker_id.unsigned_abs() as u128)
}

fn request(fixture: &Fixture, broker_id: i32, asked: &[(Uuid, Uuid, &[i32])]) -> AssignReplicasToDirsRequest {
    let mut request = AssignReplicasToDirsRequest::default();
    request.broker_id = BrokerId(broker_id);
    request.broker_epoch = fixture
        .shard
        .image()
        .cluster
        .broker_epoch(broker_id)
        .unwrap_or(-1);
    for (directory_id, topic_id, partitions) in asked {
        let mut topic = TopicData::default();
        topic.topic_id = *topic_id;
        for index in *partitions {
            let mut partition = PartitionData::default();
            partition.partition_index = *index;
            topic.partitions.push(partition);
        }
        let mut directory = DirectoryData::default();
        directory.id = *directory_id;
        directory.topics.push(topic);
        request.directories.push(directory);
    }
    request
}

/// The error of each partition, in the order of the request.
fn errors(response: &crate::protocol::messages::AssignReplicasToDirsResponse) -> Vec<i16> {
    let topics = response
        .directories
        .iter()
        .flat_map(|directory| &directory.topics);
    topics
        .flat_map(|topic| &topic.partitions)
        .map(|partition| partition.error_code)
        .collect()
}

#[test]
fn replicas_of_a_broker_with_several_directories_lie_where_it_says() {
    let mut fixture = fixture_with_two_directories(1);
    let topic = fixture.create_topic("t", 3, 1);
    assert_eq!(fixture.partition("t", 0).directories, [directory_id::UNASSIGNED]);
    let asked = request(
        &fixture,
        1,
        &[(directory_of(1), topic, &[0, 2]), (second_of(1), topic, &[1])],
    );
    let (records, response) = fixture
        .run(|shard, _, _| shard.assign_replicas_to_dirs(&asked))
        .unwrap();
    assert_eq!(names(&records), [("PartitionChangeRecord", 2); 3]);
    assert_eq!(errors(&response), [0, 0, 0]);
    assert_eq!(response.directories[1].id, second_of(1));
    assert_eq!(fixture.partition("t", 0).directories, [directory_of(1)]);
    assert_eq!(fixture.partition("t", 1).directories, [second_of(1)]);
    assert_eq!(fixture.partition("t", 2).directories, [directory_of(1)]);
    // Leadership and ISR stay; nothing is written for what is known.
    assert_eq!(
        (
            fixture.partition("t", 1).leader,
            fixture.partition("t", 1).leader_epoch
        ),
        (1, 0)
    );
    let (records, _) = fixture
        .run(|shard, _, _| shard.assign_replicas_to_dirs(&asked))
        .unwrap();
    assert_eq!(names(&records), []);
}

#[test]
fn directory_that_fails_takes_the_leadership_of_its_own_replicas_only() {
    let mut fixture = fixture_with_two_directories(1);
    let topic = fixture.create_topic("t", 2, 1);
    let asked = request(
        &fixture,
        1,
        &[(directory_of(1), topic, &[0]), (second_of(1), topic, &[1])],
    );
    fixture
        .run(|shard, _, _| shard.assign_replicas_to_dirs(&asked))
        .unwrap();
    let mut heartbeat = fixture.heartbeat_request(1);
    heartbeat.offline_log_dirs = vec![directory_of(1)];
    fixture.heartbeat(heartbeat).unwrap();
    assert_eq!(fixture.partition("t", 0).leader, -1);
    assert_eq!(fixture.partition("t", 1).leader, 1);
}

#[test]
fn replica_put_into_a_directory_that_is_not_online_loses_its_leadership() {
    let mut fixture = fixture_with_two_directories(2);
    let topic = fixture.create_topic("t", 1, 2);
    let before = fixture.partition("t", 0);
    let asked = request(&fixture, before.leader, &[(GONE, topic, &[0])]);
    let (_, response) = fixture
        .run(|shard, _, _| shard.assign_replicas_to_dirs(&asked))
        .unwrap();
    assert_eq!(errors(&response), [0]);
    let after = fixture.partition("t", 0);
    assert_eq!(after.directory_of(before.leader), Some(GONE));
    assert_ne!(after.leader, before.leader);
    assert!(after.leader > 0);
    assert_eq!(after.isr, [after.leader]);
}

#[test]
fn what_is_not_the_brokers_is_answered_by_partition() {
    let mut fixture = fixture_with_two_directories(2);
    let topic = fixture.create_topic("t", 1, 1);
    let other = 3 - fixture.partition("t", 0).leader;
    let asked = request(
        &fixture,
        other,
        &[
            (directory_of(other), Uuid::from_u128(77), &[0]),
            (directory_of(other), topic, &[0, 5]),
        ],
    );
    let (records, response) = fixture
        .run(|shard, _, _| shard.assign_replicas_to_dirs(&asked))
        .unwrap();
    assert_eq!(names(&records), []);
    assert_eq!(
        errors(&response),
        [
            ErrorCode::UnknownTopicId.code(),
            ErrorCode::NotLeaderOrFollower.code(),
            ErrorCode::UnknownTopicOrPartition.code()
        ]
    );
}

#[test]
fn stale_broker_epoch_and_old_metadata_version_are_refused() {
    let mut fixture = fixture_with_two_directories(1);
    let topic = fixture.create_topic("t", 1, 1);
    let mut asked = request(&fixture, 1, &[(directory_of(1), topic, &[0])]);
    asked.broker_epoch -= 1;
    let error = fixture
        .run(|shard, _, _| shard.assign_replicas_to_dirs(&asked))
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::StaleBrokerEpoch);

    // 3.7-IV1: one level before directories are assigned.
    let mut fixture = Fixture::with_features(&[], vec![feature_level("metadata.version", 16)]);
    let error = fixture
        .run(|shard, _, _| shard.assign_replicas_to_dirs(&asked))
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::UnsupportedVersion);
}
