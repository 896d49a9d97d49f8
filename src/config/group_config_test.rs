//! Messages are those that Apache Kafka 4.4 answered.

use super::*;

fn validate(entries: &[(&str, &str)]) -> Result<(), String> {
    let config = KafkaConfig::development_defaults().unwrap();
    let settings = entries
        .iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect();
    validate_group_config(&config, &settings).map_err(|error| error.to_string())
}

#[test]
fn every_bound_is_a_key_of_the_node_and_of_groups() {
    for (name, bound) in BOUNDS {
        assert!(ConfigDefinition::group().get(name).is_some(), "{name}");
        let keys = match bound {
            Bound::Range(min, max) => vec![min, max],
            Bound::Max(key) | Bound::Min(key) => vec![key],
        };
        for key in keys {
            assert!(ConfigDefinition::broker().get(key).is_some(), "{key}");
        }
    }
}

#[test]
fn values_beyond_the_nodes_bounds_are_refused() {
    for (key, text, message) in [
        (
            "consumer.session.timeout.ms",
            "1",
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            "consumer.heartbeat.interval.ms",
            "100000",
            "consumer.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive.",
        ),
        (
            "consumer.session.timeout.ms",
            "x",
            "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT",
        ),
        (
            "share.delivery.count.limit",
            "1",
            "Invalid value 1 for configuration share.delivery.count.limit: Value must be at least 2",
        ),
        (
            "share.partition.max.record.locks",
            "2147483647",
            "share.partition.max.record.locks must be in the range 100 to 4000 inclusive.",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
        (
            "streams.task.offset.interval.ms",
            "1",
            "streams.task.offset.interval.ms must be greater than or equal to 15000",
        ),
        (
            "streams.assignor.name",
            "nope",
            "streams.assignor.name 'nope' is not a registered task assignor. Registered assignors are: [sticky].",
        ),
        (
            "streams.rack.aware.assignment.tags",
            "a,a",
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
        (
            "share.isolation.level",
            "x",
            "Invalid value x for configuration share.isolation.level: String must be one of: read_committed, read_uncommitted",
        ),
        ("nope", "1", "Unknown group config name: nope"),
        (
            "errors.deadletterqueue.topic.name",
            "__x",
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
    ] {
        assert_eq!(validate(&[(key, text)]), Err(message.to_owned()), "{key}={text}");
    }
}

#[test]
fn resets_are_earliest_latest_or_a_duration_back() {
    for good in [
        "earliest",
        "latest",
        "by_duration:PT1H",
        "by_duration:p1dt2h3m4.5s",
        "by_duration:PT0S",
        "by_duration:P2D",
    ] {
        assert_eq!(validate(&[("share.auto.offset.reset", good)]), Ok(()), "{good}");
    }
    for bad in [
        "nope",
        "by_duration:",
        "by_duration:PXX",
        "by_duration:-PT1H",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:PT1H1D",
        "by_duration:PT1.5H",
    ] {
        let message = format!(
            "Invalid value {bad} for configuration share.auto.offset.reset: Invalid value `{bad}` for configuration \
             share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format \
             'by_duration:<PnDTnHnMn.nS>'."
        );
        assert_eq!(validate(&[("share.auto.offset.reset", bad)]), Err(message));
    }
}

#[test]
fn values_within_the_bounds_are_taken() {
    for entries in [
        &[
            ("consumer.session.timeout.ms", "45000"),
            ("consumer.heartbeat.interval.ms", "15000"),
        ][..],
        &[("consumer.assignment.interval.ms", "0")],
        &[
            ("share.auto.offset.reset", "by_duration:PT1H"),
            ("share.isolation.level", "read_committed"),
        ],
        &[
            ("streams.num.warmup.replicas", "20"),
            ("streams.rack.aware.assignment.tags", "a,b"),
        ],
        &[],
    ] {
        assert_eq!(validate(entries), Ok(()), "{entries:?}");
    }
}

#[test]
fn session_has_to_outlast_a_heartbeat() {
    let config = KafkaConfig::development_with(&[
        ("group.consumer.min.session.timeout.ms", "1000"),
        ("group.consumer.session.timeout.ms", "45000"),
    ])
    .unwrap();
    let settings: BTreeMap<String, String> =
        [("consumer.session.timeout.ms".to_owned(), "5000".to_owned())].into();
    let refused = validate_group_config(&config, &settings).map_err(|error| error.to_string());
    assert_eq!(
        refused,
        Err("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms".to_owned())
    );
}
