//! Changed configs over the wire: acted on at once, kept over a restart, read by everyone who is asked.

use kavka::protocol::messages::{
    AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest, ListConfigResourcesRequest,
    alter_configs_request, describe_configs_request, incremental_alter_configs_request,
};
use kavka::protocol::{ErrorCode, StrBytes};

use crate::support::client::Client;
use crate::support::node::{Node, wait_until};
use crate::support::topic::{self, batch, produce};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const GROUP: i8 = 32;
const SET: i8 = 0;
const DELETE: i8 = 1;

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

type Answer = (ErrorCode, Option<String>);

fn alter(client: &mut Client, kind: i8, name: &str, changes: &[(&str, i8, &str)]) -> Answer {
    let configs = changes.iter().map(|(key, operation, value)| {
        incremental_alter_configs_request::AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(*operation)
            .with_value((*operation != DELETE).then(|| text(value)))
    });
    let resource = incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let response = client.call(1, &request);
    let answer = &response.responses[0];
    assert_eq!((answer.resource_type, &*answer.resource_name), (kind, name));
    let message = answer.error_message.as_ref().map(ToString::to_string);
    (ErrorCode::from_code(answer.error_code), message)
}

fn altered() -> Answer {
    (ErrorCode::None, None)
}

fn describe(client: &mut Client, kind: i8, name: &str, key: &str) -> (Option<String>, i8) {
    let resource = describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(Some(vec![text(key)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = client.call(4, &request);
    let config = &response.results[0].configs[0];
    (
        config.value.as_ref().map(ToString::to_string),
        config.config_source,
    )
}

/// A batch of one record of this many bytes.
fn produce_bytes(client: &mut Client, topic: &str, bytes: usize) -> Result<i64, i16> {
    produce(client, topic, 0, batch(None, &["x".repeat(bytes)]))
}

const TOO_LARGE: i16 = 10;

#[test]
fn changed_topic_and_its_defaults_are_acted_on_at_once_and_after_a_restart() {
    let mut node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "t", 1, &[]);
    produce_bytes(&mut client, "t", 5000).unwrap();
    let limit = |client: &mut Client, kind, name: &str, key: &str, operation, value: &str| {
        assert_eq!(alter(client, kind, name, &[(key, operation, value)]), altered());
    };
    limit(&mut client, TOPIC, "t", "max.message.bytes", SET, "1000");
    assert_eq!(produce_bytes(&mut client, "t", 5000), Err(TOO_LARGE));
    limit(&mut client, TOPIC, "t", "max.message.bytes", DELETE, "");
    produce_bytes(&mut client, "t", 5000).unwrap();
    // The default of all topics; the topic's own comes first.
    limit(&mut client, BROKER, "", "message.max.bytes", SET, "2000");
    assert_eq!(produce_bytes(&mut client, "t", 5000), Err(TOO_LARGE));
    limit(&mut client, BROKER, "1", "message.max.bytes", SET, "6000");
    produce_bytes(&mut client, "t", 5000).unwrap();
    limit(&mut client, BROKER, "1", "message.max.bytes", DELETE, "");
    topic::create(&mut client, "own", 1, &[("max.message.bytes", "9000")]);
    produce_bytes(&mut client, "own", 5000).unwrap();
    drop(client);
    node.terminate();
    node.start_again();
    let mut client = Client::connect(node.address());
    assert_eq!(produce_bytes(&mut client, "t", 5000), Err(TOO_LARGE));
    produce_bytes(&mut client, "own", 5000).unwrap();
    assert_eq!(
        describe(&mut client, TOPIC, "t", "max.message.bytes"),
        (Some("2000".to_owned()), 3)
    );
    assert_eq!(
        describe(&mut client, TOPIC, "own", "max.message.bytes"),
        (Some("9000".to_owned()), 1)
    );
}

#[test]
fn whole_configs_are_replaced_by_the_old_request() {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    topic::create(
        &mut client,
        "t",
        1,
        &[("retention.ms", "7200000"), ("segment.ms", "60000")],
    );
    let config = alter_configs_request::AlterableConfig::default()
        .with_name(text("segment.ms"))
        .with_value(Some(text("70000")));
    let resource = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("t"))
        .with_configs(vec![config]);
    let request = AlterConfigsRequest::default().with_resources(vec![resource]);
    for version in 0..=2 {
        let response = client.call(version, &request);
        assert_eq!(
            (
                response.responses[0].error_code,
                &response.responses[0].error_message
            ),
            (0, &None)
        );
    }
    assert_eq!(
        describe(&mut client, TOPIC, "t", "segment.ms"),
        (Some("70000".to_owned()), 1)
    );
    assert_eq!(
        describe(&mut client, TOPIC, "t", "retention.ms"),
        (Some("604800000".to_owned()), 5)
    );
}

#[test]
fn connections_of_an_address_are_limited_as_the_node_is_told() {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    let limit = [("max.connections.per.ip", SET, "1")];
    assert_eq!(alter(&mut client, BROKER, "1", &limit), altered());
    let list = ListConfigResourcesRequest::default();
    // One over the limit is closed without an answer.
    let mut second = Client::connect(node.address());
    assert!(second.try_call(1, &list).is_none());
    let unlimited = [("max.connections.per.ip", DELETE, "")];
    assert_eq!(alter(&mut client, BROKER, "1", &unlimited), altered());
    wait_until("the node lets another connection in", || {
        Client::connect(node.address()).try_call(1, &list).is_some()
    });
}

#[test]
fn loggers_are_changed_until_the_node_ends() {
    let mut node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    let level = |client: &mut Client, logger: &str| describe(client, BROKER_LOGGER, "1", logger);
    let root = |name: &str| (Some(name.to_owned()), 6);
    assert_eq!(level(&mut client, "root"), root("INFO"));
    let raft = [("kavka.raft", SET, "DEBUG")];
    assert_eq!(alter(&mut client, BROKER_LOGGER, "1", &raft), altered());
    assert_eq!(level(&mut client, "kavka.raft"), root("DEBUG"));
    assert_eq!(level(&mut client, "root"), root("INFO"));
    assert_eq!(
        alter(&mut client, BROKER_LOGGER, "1", &[("kafka.nope", SET, "INFO")]),
        (
            ErrorCode::InvalidConfig,
            Some("Logger kafka.nope does not exist!".to_owned())
        )
    );
    assert_eq!(
        alter(&mut client, BROKER_LOGGER, "2", &raft),
        (
            ErrorCode::InvalidRequest,
            Some("Unexpected node id. Expected 1, but received 2".to_owned())
        )
    );
    drop(client);
    node.terminate();
    node.start_again();
    let mut client = Client::connect(node.address());
    assert_eq!(level(&mut client, "kavka.raft"), root("INFO"));
}

#[test]
fn what_has_configs_is_listed_by_kind() {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "t", 1, &[]);
    let timeout = [("consumer.session.timeout.ms", SET, "50000")];
    assert_eq!(alter(&mut client, GROUP, "g", &timeout), altered());
    let interval = [("interval.ms", SET, "1000")];
    assert_eq!(alter(&mut client, 16, "m", &interval), altered());
    let list = |client: &mut Client, version: i16, kinds: &[i8]| {
        let request = ListConfigResourcesRequest::default().with_resource_types(kinds.to_vec());
        let response = client.call(version, &request);
        let listed = response.config_resources.into_iter();
        let listed: Vec<(i8, String)> = listed
            .map(|resource| (resource.resource_type, resource.resource_name.to_string()))
            .collect();
        (ErrorCode::from_code(response.error_code), listed)
    };
    let named = |kind: i8, name: &str| (kind, name.to_owned());
    let all = [
        named(32, "g"),
        named(16, "m"),
        named(8, "1"),
        named(4, "1"),
        named(2, "t"),
    ];
    assert_eq!(list(&mut client, 1, &[]), (ErrorCode::None, all.to_vec()));
    assert_eq!(
        list(&mut client, 1, &[16, 32]),
        (ErrorCode::None, vec![named(32, "g"), named(16, "m")])
    );
    assert_eq!(list(&mut client, 0, &[]), (ErrorCode::None, vec![named(16, "m")]));
    assert_eq!(
        list(&mut client, 1, &[2, 0]),
        (ErrorCode::UnsupportedVersion, Vec::new())
    );
}
