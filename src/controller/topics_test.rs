use uuid::Uuid;

use super::new_topic_id;
use crate::controller::placement::ControllerRandom;
use crate::controller::test_support::*;
use crate::metadata::ConfigResource;
use crate::protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use crate::protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use crate::protocol::messages::delete_topics_request::DeleteTopicState;
use crate::protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreatePartitionsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    TopicName,
};
use crate::protocol::records::metadata::MetadataRecord;
use crate::protocol::{ApiError, ErrorCode};
use crate::raft::VersionedRecord;

/// Code and message of each topic's result; the records must be none.
fn refused(fixture: &mut Fixture, topics: Vec<CreatableTopic>) -> Vec<(ErrorCode, String)> {
    let (records, response) = fixture.create(&create_request(topics)).unwrap();
    assert!(records.is_empty(), "{records:?}");
    response
        .topics
        .iter()
        .map(|topic| {
            let message = topic
                .error_message
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            (ErrorCode::from_code(topic.error_code), message)
        })
        .collect()
}

fn refused_one(topic: CreatableTopic) -> (ErrorCode, String) {
    refused(&mut Fixture::with_brokers(3), vec![topic]).remove(0)
}

fn assigned(name: &str, assignments: &[(i32, &[i32])]) -> CreatableTopic {
    let mut topic = topic(name, -1, -1);
    for (partition_index, broker_ids) in assignments {
        let mut assignment = CreatableReplicaAssignment::default();
        assignment.partition_index = *partition_index;
        assignment.broker_ids = broker_ids.iter().map(|id| BrokerId(*id)).collect();
        topic.assignments.push(assignment);
    }
    topic
}

#[test]
fn create_writes_topic_configs_and_partitions_in_kafkas_order() {
    let mut fixture = Fixture::with_brokers(1);
    let wanted = with_config(topic("foo", 2, 1), "retention.ms", Some("5000"));
    let wanted = with_config(wanted, "min.insync.replicas", Some("1"));
    let (records, response) = fixture.create(&create_request(vec![wanted])).unwrap();
    assert_eq!(
        names(&records),
        [
            ("TopicRecord", 0),
            ("ConfigRecord", 0),
            ("ConfigRecord", 0),
            ("ClearElrRecord", 0),
            ("PartitionRecord", 2),
            ("PartitionRecord", 2)
        ]
    );
    let MetadataRecord::Partition(partition) = &records[5].0 else {
        panic!("{:?}", records[5]);
    };
    assert_eq!(partition.partition_id, 1);
    assert_eq!(
        (
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch
        ),
        (1, 0, 0)
    );
    assert_eq!((&partition.replicas, &partition.isr), (&vec![1], &vec![1]));
    assert_eq!(
        partition.directories,
        [directory_of(1)],
        "a broker with one directory: it is known"
    );
    assert_eq!(partition.eligible_leader_replicas, None);

    let result = &response.topics[0];
    assert_eq!((result.error_code, &result.error_message), (0, &None));
    assert_eq!((result.num_partitions, result.replication_factor), (2, 1));
    assert_eq!(Some(result.topic_id), fixture.shard.image().topics.id_of("foo"));
    let configs = result.configs.as_ref().unwrap();
    assert!(configs.is_sorted_by(|left, right| left.name <= right.name));
    let of = |name: &str| {
        configs
            .iter()
            .find(|config| config.name.as_str() == name)
            .unwrap()
    };
    let retention = of("retention.ms");
    assert_eq!(retention.value.as_ref().unwrap().as_str(), "5000");
    assert_eq!(
        (
            retention.config_source,
            retention.read_only,
            retention.is_sensitive
        ),
        (1, false, false)
    );
    assert_eq!(of("cleanup.policy").config_source, 5);
    assert_eq!(fixture.shard.image().configs.topic_overrides("foo").len(), 2);
}

#[test]
fn defaults_come_from_the_nodes_file() {
    let mut fixture = Fixture::new(&[("num.partitions", "3"), ("default.replication.factor", "2")]);
    for id in 1..=2 {
        fixture.register(&registration(id, 1)).unwrap();
        fixture.unfence(id);
    }
    let (_, response) = fixture
        .create(&create_request(vec![topic("foo", -1, -1)]))
        .unwrap();
    assert_eq!(
        (
            response.topics[0].num_partitions,
            response.topics[0].replication_factor
        ),
        (3, 2)
    );
}

#[test]
fn broker_with_several_directories_leaves_the_choice_to_itself() {
    let mut fixture = Fixture::new(&[]);
    let mut request = registration(1, 1);
    request.log_dirs.push(Uuid::from_u128(5000));
    fixture.register(&request).unwrap();
    fixture.unfence(1);
    fixture.create_topic("foo", 1, 1);
    assert_eq!(
        fixture.partition("foo", 0).directories,
        [crate::metadata::partition::directory_id::UNASSIGNED]
    );
}

#[test]
fn fenced_replica_is_not_in_the_isr() {
    let mut fixture = Fixture::with_brokers(2);
    fixture.fence(2);
    let wanted = assigned("foo", &[(0, &[2, 1])]);
    fixture.create(&create_request(vec![wanted])).unwrap();
    let partition = fixture.partition("foo", 0);
    assert_eq!(
        (partition.replicas, partition.isr, partition.leader),
        (vec![2, 1], vec![1], 1)
    );
}

#[test]
fn validate_only_answers_the_same_and_writes_nothing() {
    let mut fixture = Fixture::with_brokers(1);
    let mut request = create_request(vec![topic("foo", 1, 1)]);
    request.validate_only = true;
    let (records, response) = fixture.create(&request).unwrap();
    assert!(records.is_empty());
    assert_eq!(response.topics[0].error_code, 0);
    assert!(!response.topics[0].topic_id.is_nil());
    assert!(fixture.shard.image().topics.is_empty());
}

#[test]
fn illegal_names_are_refused_with_kafkas_words() {
    let long = "a".repeat(250);
    let cases = [
        ("", "the empty string is not allowed".to_owned()),
        (".", "'.' is not allowed".to_owned()),
        ("..", "'..' is not allowed".to_owned()),
        (
            &long,
            format!("the length of '{long}' is longer than the max allowed length 249"),
        ),
        (
            "a b",
            "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
                .to_owned(),
        ),
    ];
    for (name, reason) in cases {
        assert_eq!(
            refused_one(topic(name, 1, 1)),
            (
                ErrorCode::InvalidTopicException,
                format!("Topic name is invalid: {reason}")
            )
        );
    }
}

#[test]
fn existing_and_colliding_names_are_refused() {
    let mut fixture = Fixture::with_brokers(1);
    fixture.create_topic("foo.bar", 1, 1);
    assert_eq!(
        refused(&mut fixture, vec![topic("foo.bar", 1, 1), topic("foo_bar", 1, 1)]),
        [
            (
                ErrorCode::TopicAlreadyExists,
                "Topic 'foo.bar' already exists.".to_owned()
            ),
            (
                ErrorCode::InvalidTopicException,
                "Topic 'foo_bar' collides with existing topic: foo.bar".to_owned()
            )
        ]
    );
    // Gone, the name is free again.
    let id = fixture.shard.image().topics.id_of("foo.bar").unwrap();
    delete(&mut fixture, &by_id(&[id])).unwrap();
    fixture.create_topic("foo_bar", 1, 1);
}

#[test]
fn duplicates_and_the_metadata_topic_are_refused_beside_a_good_topic() {
    let mut fixture = Fixture::with_brokers(1);
    let request = create_request(vec![
        topic("twice", 1, 1),
        topic("good", 1, 1),
        topic("twice", 1, 1),
        topic("__cluster_metadata", 1, 1),
    ]);
    let (_, response) = fixture.create(&request).unwrap();
    let results: Vec<_> = response
        .topics
        .iter()
        .map(|topic| {
            let message = topic.error_message.as_ref().map(ToString::to_string);
            (topic.name.to_string(), topic.error_code, message)
        })
        .collect();
    assert_eq!(
        results,
        [
            ("good".to_owned(), 0, None),
            ("twice".to_owned(), 42, Some("Duplicate topic name.".to_owned())),
            (
                "__cluster_metadata".to_owned(),
                42,
                Some("Creation of internal topic __cluster_metadata is prohibited.".to_owned())
            )
        ]
    );
    assert_eq!(fixture.shard.image().topics.len(), 1);
}

#[test]
fn impossible_counts_are_refused() {
    assert_eq!(
        refused_one(topic("foo", 0, 1)),
        (
            ErrorCode::InvalidPartitions,
            "Number of partitions was set to an invalid non-positive value.".to_owned()
        )
    );
    assert_eq!(
        refused_one(topic("foo", 1, 0)),
        (
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.".to_owned()
        )
    );
    assert_eq!(
        refused_one(topic("foo", 1, 4)),
        (
            ErrorCode::InvalidReplicationFactor,
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached \
             because only 3 broker(s) are registered or some brokers have all their log directories cordoned."
                .to_owned()
        )
    );
    let mut fixture = Fixture::with_brokers(1);
    fixture.fence(1);
    assert_eq!(
        refused(&mut fixture, vec![topic("foo", 1, 1)]),
        [(
            ErrorCode::InvalidReplicationFactor,
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced.".to_owned()
        )]
    );
}

#[test]
fn too_many_partitions_refuse_the_whole_request() {
    let mut fixture = Fixture::with_brokers(1);
    let request = create_request(vec![topic("good", 1, 1), topic("foo", 10_000, 1)]);
    let error = fixture.create(&request).unwrap_err();
    assert_eq!(
        error,
        ApiError::new(
            ErrorCode::PolicyViolation,
            "Excessively large number of partitions per request."
        )
    );
    // Ten thousand fit, but not together with the topic's own record.
    let error = fixture
        .create(&create_request(vec![topic("foo", 10_000, 1)]))
        .unwrap_err();
    assert_eq!(
        error,
        ApiError::new(
            ErrorCode::PolicyViolation,
            "Unable to perform excessively large batch operation."
        )
    );
    fixture.create_topic("foo", 9_999, 1);
}

#[test]
fn bad_configs_are_refused() {
    assert_eq!(
        refused_one(with_config(topic("foo", 1, 1), "retention.ms", None)),
        (
            ErrorCode::InvalidConfig,
            "Null value not supported for topic configs: retention.ms".to_owned()
        )
    );
    assert_eq!(
        refused_one(with_config(topic("foo", 1, 1), "no.such.key", Some("1"))),
        (
            ErrorCode::InvalidConfig,
            "Unknown topic config name: no.such.key".to_owned()
        )
    );
    let (code, message) = refused_one(with_config(topic("foo", 1, 1), "retention.ms", Some("soon")));
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(
        message.starts_with("Invalid value soon for configuration retention.ms"),
        "{message}"
    );
    let (code, message) = refused_one(with_config(
        topic("foo", 1, 1),
        "follower.replication.throttled.replicas",
        Some(&"0:1,".repeat(10_000)),
    ));
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(message.contains("32767"), "{message}");
}

#[test]
fn manual_assignment_is_taken_as_it_is() {
    let mut fixture = Fixture::with_brokers(3);
    let wanted = assigned("foo", &[(1, &[3, 1]), (0, &[2, 3])]);
    fixture.create(&create_request(vec![wanted])).unwrap();
    assert_eq!(fixture.partition("foo", 0).replicas, [2, 3]);
    let second = fixture.partition("foo", 1);
    assert_eq!(
        (second.replicas, second.isr, second.leader),
        (vec![3, 1], vec![3, 1], 3)
    );
}

#[test]
fn wrong_manual_assignments_are_refused() {
    let mut numbered = assigned("foo", &[(0, &[1])]);
    numbered.num_partitions = 1;
    assert_eq!(
        refused_one(numbered),
        (
            ErrorCode::InvalidRequest,
            "A manual partition assignment was specified, but numPartitions was not set to -1.".to_owned()
        )
    );
    let mut replicated = assigned("foo", &[(0, &[1])]);
    replicated.replication_factor = 1;
    assert_eq!(
        refused_one(replicated),
        (
            ErrorCode::InvalidRequest,
            "A manual partition assignment was specified, but replication factor was not set to -1."
                .to_owned()
        )
    );
    let invalid = |message: &str| (ErrorCode::InvalidReplicaAssignment, message.to_owned());
    type Assignments<'a> = &'a [(i32, &'a [i32])];
    let cases: [(Assignments<'_>, &str); 6] = [
        (
            &[(0, &[1]), (0, &[2])],
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            &[(0, &[])],
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            &[(0, &[7])],
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        (
            &[(0, &[1, 1])],
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            &[(0, &[1, 2]), (1, &[1])],
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with \
             previous partitions, which have 2 replica(s).",
        ),
        (
            &[(0, &[1]), (2, &[1])],
            "partitions should be a consecutive 0-based integer sequence",
        ),
    ];
    for (assignments, message) in cases {
        assert_eq!(refused_one(assigned("foo", assignments)), invalid(message));
    }
    let mut fixture = Fixture::with_brokers(1);
    fixture.fence(1);
    assert_eq!(
        refused(&mut fixture, vec![assigned("foo", &[(0, &[1])])]),
        [invalid(
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled \
             shutdown."
        )]
    );
}

#[test]
fn topic_ids_are_neither_reserved_nor_look_like_an_option() {
    struct Numbers(Vec<u128>);
    impl ControllerRandom for Numbers {
        fn next_below(&mut self, _: usize) -> usize {
            0
        }
        fn next_u128(&mut self) -> u128 {
            self.0.remove(0)
        }
    }
    // 62 in the top six bits is a dash in url-safe base64.
    let mut random = Numbers(vec![0xf8 << 120 | 7, 5]);
    let id = new_topic_id(&mut random);
    assert!(random.0.is_empty());
    assert_eq!(id.get_version_num(), 4);
    assert_eq!(id.as_u128() & 0xff, 5);
}

fn delete(
    fixture: &mut Fixture,
    request: &DeleteTopicsRequest,
) -> Result<(Vec<VersionedRecord>, DeleteTopicsResponse), ApiError> {
    fixture.run(|shard, _, context| shard.delete_topics(context, request))
}

fn state(name: Option<&str>, topic_id: Uuid) -> DeleteTopicState {
    let mut state = DeleteTopicState::default();
    state.name = name.map(|name| TopicName(text(name)));
    state.topic_id = topic_id;
    state
}

fn by_id(ids: &[Uuid]) -> DeleteTopicsRequest {
    let mut request = DeleteTopicsRequest::default();
    request.topics = ids.iter().map(|id| state(None, *id)).collect();
    request
}

/// Name, id, code, message, sorted.
fn results(response: &DeleteTopicsResponse) -> Vec<(Option<String>, Uuid, i16, Option<String>)> {
    let mut results: Vec<_> = response
        .responses
        .iter()
        .map(|result| {
            (
                result.name.as_ref().map(|name| name.to_string()),
                result.topic_id,
                result.error_code,
                result.error_message.as_ref().map(|message| message.to_string()),
            )
        })
        .collect();
    results.sort();
    results
}

#[test]
fn delete_by_name_and_by_id_removes_topics_with_their_configs() {
    let mut fixture = Fixture::with_brokers(1);
    let request = create_request(vec![with_config(topic("foo", 2, 1), "retention.ms", Some("5"))]);
    fixture.create(&request).unwrap();
    let foo = fixture.shard.image().topics.id_of("foo").unwrap();
    let bar = fixture.create_topic("bar", 1, 1);
    let mut request = by_id(&[bar]);
    request.topics.push(state(Some("foo"), Uuid::nil()));
    let (records, response) = delete(&mut fixture, &request).unwrap();
    assert_eq!(names(&records), [("RemoveTopicRecord", 0); 2]);
    assert_eq!(
        results(&response),
        [
            (Some("bar".into()), bar, 0, None),
            (Some("foo".into()), foo, 0, None)
        ]
    );
    assert!(fixture.shard.image().topics.is_empty());
    assert!(
        fixture
            .shard
            .image()
            .configs
            .get(&ConfigResource::topic("foo"))
            .is_none()
    );
    assert!(!fixture.shard.indexes().has_leaderships(1));
}

#[test]
fn delete_answers_what_is_unknown_or_ambiguous() {
    let mut fixture = Fixture::with_brokers(1);
    let foo = fixture.create_topic("foo", 1, 1);
    let unknown = Uuid::from_u128(0xabcdef);
    let twice = Uuid::from_u128(0xabcdee);
    let mut request = by_id(&[foo, unknown, twice, twice, Uuid::nil()]);
    request.topics.push(state(Some("both"), unknown));
    request.topics.push(state(Some("foo"), Uuid::nil()));
    request.topics.push(state(Some("none"), Uuid::nil()));
    request.topics.push(state(Some("dup"), Uuid::nil()));
    request.topics.push(state(Some("dup"), Uuid::nil()));
    let (records, response) = delete(&mut fixture, &request).unwrap();
    assert!(records.is_empty());
    let message = |text: &str| Some(text.to_owned());
    let mut expected = vec![
        (
            None,
            Uuid::nil(),
            42,
            message("Neither topic name nor id were specified."),
        ),
        (None, twice, 42, message("Duplicate topic id.")),
        (None, unknown, 100, message(ErrorCode::UnknownTopicId.message())),
        (
            message("both"),
            unknown,
            42,
            message("You may not specify both topic name and topic id."),
        ),
        (
            message("foo"),
            foo,
            42,
            message("The provided topic name maps to an ID that was already supplied."),
        ),
        (
            message("none"),
            Uuid::nil(),
            3,
            message(ErrorCode::UnknownTopicOrPartition.message()),
        ),
        (message("dup"), Uuid::nil(), 42, message("Duplicate topic name.")),
    ];
    expected.sort();
    assert_eq!(results(&response), expected);
    assert_eq!(fixture.shard.image().topics.len(), 1);
}

#[test]
fn delete_is_refused_when_the_node_forbids_it() {
    let mut fixture = Fixture::new(&[("delete.topic.enable", "false")]);
    let error = delete(&mut fixture, &by_id(&[])).unwrap_err();
    assert_eq!(error, ErrorCode::TopicDeletionDisabled.into());
    fixture.context.api_version = 2;
    let error = delete(&mut fixture, &by_id(&[])).unwrap_err();
    assert_eq!(
        error,
        ApiError::new(ErrorCode::InvalidRequest, "Topic deletion is disabled.")
    );
}

fn more(name: &str, count: i32, assignments: Option<&[&[i32]]>) -> CreatePartitionsTopic {
    let mut topic = CreatePartitionsTopic::default();
    topic.name = TopicName(text(name));
    topic.count = count;
    topic.assignments = assignments.map(|assignments| {
        assignments
            .iter()
            .map(|ids| {
                let mut assignment = CreatePartitionsAssignment::default();
                assignment.broker_ids = ids.iter().map(|id| BrokerId(*id)).collect();
                assignment
            })
            .collect()
    });
    topic
}

fn grow(
    fixture: &mut Fixture,
    topics: Vec<CreatePartitionsTopic>,
) -> Result<(Vec<VersionedRecord>, CreatePartitionsResponse), ApiError> {
    let mut request = CreatePartitionsRequest::default();
    request.topics = topics;
    fixture.run(|shard, inputs, _| shard.create_partitions(inputs, &request))
}

#[test]
fn create_partitions_adds_behind_those_there() {
    let mut fixture = Fixture::with_brokers(2);
    fixture.create_topic("foo", 1, 2);
    let (records, response) = grow(&mut fixture, vec![more("foo", 3, None)]).unwrap();
    assert_eq!(names(&records), [("PartitionRecord", 2); 2]);
    assert_eq!(response.results[0].error_code, 0);
    assert_eq!(response.results[0].error_message, None);
    assert_eq!(fixture.partition("foo", 2).replicas.len(), 2);
    grow(&mut fixture, vec![more("foo", 4, Some(&[&[2, 1]]))]).unwrap();
    assert_eq!(fixture.partition("foo", 3).replicas, [2, 1]);
}

#[test]
fn create_partitions_refuses_what_does_not_grow() {
    let mut fixture = Fixture::with_brokers(1);
    fixture.create_topic("foo", 2, 1);
    let mut refused = |topic: CreatePartitionsTopic| {
        let (records, response) = grow(&mut fixture, vec![topic]).unwrap();
        assert!(records.is_empty());
        let result = &response.results[0];
        (
            ErrorCode::from_code(result.error_code),
            result.error_message.as_ref().map(|message| message.to_string()),
        )
    };
    assert_eq!(
        refused(more("bar", 3, None)),
        (ErrorCode::UnknownTopicOrPartition, None)
    );
    assert_eq!(
        refused(more("foo", 2, None)),
        (
            ErrorCode::InvalidPartitions,
            Some("Topic already has 2 partition(s).".to_owned())
        )
    );
    for count in [1, -1] {
        assert_eq!(
            refused(more("foo", count, None)),
            (
                ErrorCode::InvalidPartitions,
                Some(format!(
                    "The topic foo currently has 2 partition(s); {count} would not be an increase."
                ))
            )
        );
    }
    assert_eq!(
        refused(more("foo", 4, Some(&[&[1]]))),
        (
            ErrorCode::InvalidReplicaAssignment,
            Some(
                "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
                    .to_owned()
            )
        )
    );
    assert_eq!(
        refused(more("foo", 3, Some(&[&[1, 1]]))).0,
        ErrorCode::InvalidReplicaAssignment
    );
    let error = grow(&mut fixture, vec![more("foo", 10_003, None)]).unwrap_err();
    assert_eq!(
        error,
        ApiError::new(
            ErrorCode::PolicyViolation,
            "Excessively large number of additional partitions per request."
        )
    );
}

#[test]
fn create_partitions_named_twice_is_refused_once() {
    let mut fixture = Fixture::with_brokers(1);
    fixture.create_topic("foo", 1, 1);
    let (records, response) = grow(&mut fixture, vec![more("foo", 2, None), more("foo", 3, None)]).unwrap();
    assert!(records.is_empty());
    assert_eq!(response.results.len(), 1);
    assert_eq!(response.results[0].error_code, 42);
}
