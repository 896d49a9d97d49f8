use super::*;
use crate::api::test_cluster::{image, text, topic, topic_config};

fn described(resource_type: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResult {
    let mut records = topic("t", 1, 1, &[1]);
    records.push(topic_config("t", "retention.ms", "5"));
    let image = image(records);
    let config = KafkaConfig::development_defaults().unwrap();
    let mut resource = DescribeConfigsResource::default();
    resource.resource_type = resource_type;
    resource.resource_name = text(name);
    resource.configuration_keys = keys.map(|keys| keys.iter().map(|key| text(key)).collect());
    let configs = describe(&image, &config, &resource);
    result(resource, configs, true)
}

fn message(result: &DescribeConfigsResult) -> &str {
    result.error_message.as_deref().unwrap()
}

#[test]
fn topic_shows_its_own_value_and_source_of_the_keys_asked_for() {
    let result = described(2, "t", Some(&["retention.ms", "bogus"]));
    assert_eq!(
        (result.error_code, message(&result), result.configs.len()),
        (0, "", 1)
    );
    let retention = &result.configs[0];
    assert_eq!(retention.value.as_deref(), Some("5"));
    assert_eq!((retention.config_source, retention.config_type), (1, 5));
    assert_eq!(retention.synonyms[0].source, 1);
}

#[test]
fn empty_list_of_keys_means_all_of_them() {
    assert_eq!(
        described(2, "t", Some(&[])).configs.len(),
        described(2, "t", None).configs.len()
    );
    assert!(described(2, "t", None).configs.len() > 30);
}

/// Code and message as Apache Kafka 4.4 gave them.
#[test]
fn resource_that_is_none_gets_kafkas_code_and_message() {
    let general = ErrorCode::InvalidRequest.message();
    for (resource_type, name, code, expected) in [
        (2, "missing", 3, ""),
        (
            2,
            "a b",
            17,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (
            4,
            "2",
            42,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (4, "x", 42, "Broker id must be an integer, but it is: x"),
        (8, "", 42, "Broker id must not be empty"),
        (8, "2", 42, "Unexpected broker id, expected 1 but received 2"),
        (16, "", 42, "Client metrics subscription name must not be empty"),
        (32, "", 42, "Group name must not be empty"),
        (0, "foo", 42, general),
        (99, "foo", 42, general),
    ] {
        let result = described(resource_type, name, None);
        assert_eq!(
            (result.error_code, message(&result)),
            (code, expected),
            "{resource_type} {name}"
        );
        assert!(result.configs.is_empty());
    }
}

#[test]
fn client_metrics_subscription_that_is_not_set_shows_defaults() {
    let result = described(16, "foo", None);
    let values: Vec<_> = result
        .configs
        .iter()
        .map(|config| {
            (
                config.name.as_str(),
                config.value.as_deref().unwrap(),
                config.config_type,
            )
        })
        .collect();
    assert_eq!(
        values,
        [("interval.ms", "300000", 3), ("match", "", 7), ("metrics", "", 7)]
    );
}

#[test]
fn group_shows_the_nodes_keys_as_synonyms() {
    let result = described(
        32,
        "g",
        Some(&[
            "consumer.session.timeout.ms",
            "share.auto.offset.reset",
            "streams.assignor.name",
        ]),
    );
    let synonyms: Vec<_> = result
        .configs
        .iter()
        .map(|config| (config.value.as_deref().unwrap(), config.synonyms[0].name.as_str()))
        .collect();
    assert_eq!(
        synonyms,
        [
            ("45000", "group.consumer.session.timeout.ms"),
            ("latest", "share.auto.offset.reset"),
            ("sticky", "group.streams.assignors")
        ]
    );
}

/// As Apache Kafka 4.4 answers it.
#[test]
fn one_unknown_type_fails_the_whole_request() {
    let resource = |resource_type: i8| {
        let mut resource = DescribeConfigsResource::default();
        resource.resource_type = resource_type;
        resource.resource_name = text("1");
        resource
    };
    let code = ErrorCode::InvalidRequest;
    for unknown in [0, 99] {
        let refused = check_types(&[resource(2), resource(unknown), resource(4)]);
        assert_eq!(refused, Err(ApiError::new(code, code.message())));
    }
    assert_eq!(check_types(&[resource(2), resource(4)]), Ok(()));
}

#[test]
fn repeats_beyond_the_bound_are_refused() {
    let mut repeats = Repeats::new();
    let each = described(4, "1", None).configs.len();
    let taken = (0..1_000).take_while(|_| repeats.add(each).is_ok()).count();
    assert!((100..1_000).contains(&taken), "{taken}");
}
