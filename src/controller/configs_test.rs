//! Answers are those that Apache Kafka 4.4 gave.

use super::*;
use crate::controller::test_support::*;

fn resource(kind: ConfigResourceType, name: &str) -> ConfigResource {
    ConfigResource::new(kind, name)
}

fn incremental(
    resource: &ConfigResource,
    changes: &[(&str, AlterOperation, Option<&str>)],
) -> ResourceAlteration {
    let changes = changes.iter().map(|(name, operation, value)| ConfigAlteration {
        name: (*name).to_owned(),
        operation: *operation,
        value: value.map(str::to_owned),
    });
    ResourceAlteration {
        resource: resource.clone(),
        changes: ResourceChanges::Incremental(changes.collect()),
    }
}

fn complete(resource: &ConfigResource, settings: &[(&str, &str)]) -> ResourceAlteration {
    let settings = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
    ResourceAlteration {
        resource: resource.clone(),
        changes: ResourceChanges::Complete(settings.collect()),
    }
}

type Answer = Result<(), (ErrorCode, String)>;

/// Records written, and the answers.
fn alter(fixture: &mut Fixture, alterations: &[ResourceAlteration]) -> (Vec<VersionedRecord>, Vec<Answer>) {
    let (records, answers) = fixture
        .run(|shard, _, _| shard.alter_configs(alterations, false))
        .unwrap();
    let answer = |answer: Result<(), ApiError>| {
        answer.map_err(|error| (error.code, error.message.unwrap_or_default()))
    };
    (records, answers.into_iter().map(answer).collect())
}

fn change(
    fixture: &mut Fixture,
    resource: &ConfigResource,
    name: &str,
    operation: AlterOperation,
    value: Option<&str>,
) -> Result<usize, (ErrorCode, String)> {
    let alteration = incremental(resource, &[(name, operation, value)]);
    let (records, mut answers) = alter(fixture, &[alteration]);
    answers.remove(0).map(|()| records.len())
}

fn value_of(fixture: &Fixture, resource: &ConfigResource, name: &str) -> Option<String> {
    let settings = fixture.shard.image().configs.get(resource)?;
    settings.get(name).cloned()
}

fn with_topic() -> (Fixture, ConfigResource) {
    let mut fixture = Fixture::with_brokers(1);
    fixture.create_topic("ct", 1, 1);
    (fixture, ConfigResource::topic("ct"))
}

const SET: AlterOperation = AlterOperation::Set;
const DELETE: AlterOperation = AlterOperation::Delete;
const APPEND: AlterOperation = AlterOperation::Append;
const SUBTRACT: AlterOperation = AlterOperation::Subtract;

#[test]
fn topic_is_changed_key_by_key() {
    let (mut fixture, topic) = with_topic();
    assert_eq!(
        change(&mut fixture, &topic, "retention.ms", SET, Some("7200000")),
        Ok(1)
    );
    // The same again is nothing.
    assert_eq!(
        change(&mut fixture, &topic, "retention.ms", SET, Some("7200000")),
        Ok(0)
    );
    assert_eq!(
        change(&mut fixture, &topic, "segment.ms", SET, Some("60000")),
        Ok(1)
    );
    assert_eq!(
        value_of(&fixture, &topic, "retention.ms").as_deref(),
        Some("7200000")
    );
    assert_eq!(
        change(&mut fixture, &topic, "retention.ms", DELETE, Some("ignored")),
        Ok(1)
    );
    assert_eq!(value_of(&fixture, &topic, "retention.ms"), None);
    assert_eq!(value_of(&fixture, &topic, "segment.ms").as_deref(), Some("60000"));
    // A key that nobody knows can be deleted, not set.
    assert_eq!(change(&mut fixture, &topic, "nope", DELETE, None), Ok(0));
    assert_eq!(
        change(&mut fixture, &topic, "nope", SET, Some("1")),
        Err((
            ErrorCode::InvalidConfig,
            "Unknown topic config name: nope".to_owned()
        ))
    );
}

#[test]
fn lists_are_appended_to_and_subtracted_from() {
    let (mut fixture, topic) = with_topic();
    let policy = "cleanup.policy";
    for (operation, value, expected) in [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ] {
        change(&mut fixture, &topic, policy, operation, Some(value)).unwrap();
        assert_eq!(value_of(&fixture, &topic, policy).as_deref(), Some(expected));
    }
    assert_eq!(
        change(&mut fixture, &topic, policy, APPEND, Some("nope")),
        Err((
            ErrorCode::InvalidConfig,
            "Invalid value nope for configuration cleanup.policy: String must be one of: compact, delete"
                .to_owned()
        ))
    );
    assert_eq!(
        change(&mut fixture, &topic, "retention.ms", SUBTRACT, Some("5")),
        Err((
            ErrorCode::InvalidConfig,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.".to_owned()
        ))
    );
    let subscription = resource(ConfigResourceType::ClientMetrics, "m");
    assert_eq!(
        change(&mut fixture, &subscription, "metrics", APPEND, Some("a")),
        Err((
            ErrorCode::InvalidConfig,
            "Can't APPEND to key metrics because its type is not LIST.".to_owned()
        ))
    );
}

#[test]
fn each_resource_is_changed_or_refused_by_itself() {
    let (mut fixture, topic) = with_topic();
    let set = |resource: &ConfigResource| incremental(resource, &[("retention.ms", SET, Some("1000"))]);
    let others = ["missing", "", "bad name"].map(ConfigResource::topic);
    let (records, answers) = alter(
        &mut fixture,
        &[set(&others[0]), set(&topic), set(&others[1]), set(&others[2])],
    );
    assert_eq!(names(&records), [("ConfigRecord", 0)]);
    let name = "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, '.', \
                '_' and '-'";
    assert_eq!(
        answers,
        [
            Err((
                ErrorCode::UnknownTopicOrPartition,
                "The topic 'missing' does not exist.".to_owned()
            )),
            Ok(()),
            Err((
                ErrorCode::InvalidRequest,
                "Default topic resources are not allowed.".to_owned()
            )),
            Err((ErrorCode::InvalidTopicException, name.to_owned())),
        ]
    );
}

#[test]
fn topic_is_checked_over_what_the_nodes_set() {
    let (mut fixture, topic) = with_topic();
    let default = ConfigResource::broker_default();
    assert_eq!(
        change(
            &mut fixture,
            &default,
            "log.cleaner.max.compaction.lag.ms",
            SET,
            Some("5")
        ),
        Ok(1)
    );
    let message = "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)";
    assert_eq!(
        change(&mut fixture, &topic, "min.compaction.lag.ms", SET, Some("10")),
        Err((ErrorCode::InvalidConfig, message.to_owned()))
    );
    let tiered = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.";
    assert_eq!(
        change(&mut fixture, &topic, "remote.storage.enable", SET, Some("true")),
        Err((ErrorCode::InvalidConfig, tiered.to_owned()))
    );
    assert_eq!(
        change(&mut fixture, &topic, "remote.storage.enable", SET, Some("false")),
        Ok(1)
    );
}

#[test]
fn complete_configs_replace_what_was_there() {
    let (mut fixture, topic) = with_topic();
    alter(
        &mut fixture,
        &[complete(&topic, &[("retention.ms", "1"), ("segment.ms", "2")])],
    );
    let (records, answers) = alter(&mut fixture, &[complete(&topic, &[("segment.ms", "2")])]);
    assert_eq!((records.len(), answers), (1, vec![Ok(())]));
    assert_eq!(value_of(&fixture, &topic, "retention.ms"), None);
    assert_eq!(value_of(&fixture, &topic, "segment.ms").as_deref(), Some("2"));
    alter(&mut fixture, &[complete(&topic, &[])]);
    assert_eq!(fixture.shard.image().configs.get(&topic), None);
}

#[test]
fn minimum_of_replicas_is_the_clusters_while_replicas_are_eligible_by_it() {
    let (mut fixture, topic) = with_topic();
    let minimum = "min.insync.replicas";
    let (records, _) = alter(&mut fixture, &[incremental(&topic, &[(minimum, SET, Some("2"))])]);
    assert_eq!(names(&records), [("ConfigRecord", 0), ("ClearElrRecord", 0)]);
    assert_eq!(
        change(&mut fixture, &ConfigResource::broker(1), minimum, SET, Some("2")),
        Err((
            ErrorCode::InvalidConfig,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.".to_owned()
        ))
    );
    let default = ConfigResource::broker_default();
    assert_eq!(change(&mut fixture, &default, minimum, SET, Some("2")), Ok(2));
    let removed = (
        ErrorCode::InvalidConfig,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.".to_owned(),
    );
    assert_eq!(
        change(&mut fixture, &default, minimum, DELETE, None),
        Err(removed.clone())
    );
    let (records, answers) = alter(&mut fixture, &[complete(&default, &[])]);
    assert_eq!((records.len(), answers), (0, vec![Err(removed)]));
}

#[test]
fn nodes_are_known_ones() {
    let mut fixture = Fixture::with_brokers(1);
    // Written again although it is the same.
    for _ in 0..2 {
        let own = ConfigResource::broker(1);
        assert_eq!(
            change(&mut fixture, &own, "log.retention.ms", SET, Some("1")),
            Ok(1)
        );
    }
    for (name, code, message) in [
        ("7", ErrorCode::BrokerIdNotRegistered, "No node with id 7 found."),
        (
            "x",
            ErrorCode::InvalidRequest,
            "Unable to parse broker name as a base 10 number.",
        ),
        ("-1", ErrorCode::InvalidRequest, "Invalid negative broker ID."),
    ] {
        let node = resource(ConfigResourceType::Broker, name);
        assert_eq!(
            change(&mut fixture, &node, "log.retention.ms", SET, Some("1")),
            Err((code, message.to_owned()))
        );
    }
}

#[test]
fn groups_and_subscriptions_are_stored_as_they_are_checked() {
    let mut fixture = Fixture::with_brokers(1);
    let group = resource(ConfigResourceType::Group, "gg");
    let timeout = "consumer.session.timeout.ms";
    assert_eq!(change(&mut fixture, &group, timeout, SET, Some("50000")), Ok(1));
    assert_eq!(value_of(&fixture, &group, timeout).as_deref(), Some("50000"));
    assert_eq!(
        change(&mut fixture, &group, timeout, SET, Some("1")),
        Err((
            ErrorCode::InvalidConfig,
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.".to_owned()
        ))
    );
    let nameless = resource(ConfigResourceType::Group, "");
    assert_eq!(
        change(&mut fixture, &nameless, timeout, SET, Some("50000")),
        Err((
            ErrorCode::InvalidRequest,
            "Default group resources are not allowed.".to_owned()
        ))
    );
    let subscription = resource(ConfigResourceType::ClientMetrics, "m1");
    assert_eq!(
        change(&mut fixture, &subscription, "interval.ms", SET, Some("1000")),
        Ok(1)
    );
    assert_eq!(
        change(&mut fixture, &subscription, "interval.ms", SET, Some("1")).map_err(|error| error.0),
        Err(ErrorCode::InvalidRequest)
    );
    assert_eq!(
        change(&mut fixture, &subscription, "match", SET, Some("foo=bar")),
        Err((
            ErrorCode::InvalidConfig,
            "Illegal client matching pattern: foo=bar".to_owned()
        ))
    );
}

#[test]
fn value_that_is_too_long_is_refused_and_validate_only_writes_nothing() {
    let (mut fixture, topic) = with_topic();
    let long = "x".repeat(VALUE_LENGTH_MAX + 1);
    let refused = change(&mut fixture, &topic, "retention.ms", SET, Some(&long)).unwrap_err();
    assert!(
        refused
            .1
            .contains("exceeds the maximum value size of 32767 bytes"),
        "{refused:?}"
    );
    let alteration = incremental(&topic, &[("retention.ms", SET, Some("1"))]);
    let (records, answers) = fixture
        .run(|shard, _, _| shard.alter_configs(&[alteration], true))
        .unwrap();
    assert_eq!((records.len(), answers), (0, vec![Ok(())]));
    assert_eq!(value_of(&fixture, &topic, "retention.ms"), None);
}
