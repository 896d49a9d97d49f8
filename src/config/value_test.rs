use super::super::ConfigDefinition;
use super::*;

fn topic(key: &str, text: &str) -> Result<ConfigValue, String> {
    parse(ConfigDefinition::topic().get(key).unwrap(), text).map_err(|error| error.to_string())
}

fn broker(key: &str, text: &str) -> Result<ConfigValue, String> {
    parse(ConfigDefinition::broker().get(key).unwrap(), text).map_err(|error| error.to_string())
}

/// Each text is what Kafka 4.4's `LogConfig.validate` or `KafkaConfig` says.
#[test]
fn bad_values_refused_with_kafkas_messages() {
    for (key, text, message) in [
        (
            "segment.bytes",
            "x",
            "Invalid value x for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.bytes",
            "",
            "Invalid value  for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.bytes",
            "1",
            "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "cleanup.policy",
            "foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "cleanup.policy",
            "delete,",
            "Configuration 'cleanup.policy' values must not be empty.",
        ),
        (
            "compression.type",
            "GZIP",
            "Invalid value GZIP for configuration compression.type: String must be one of: uncompressed, zstd, lz4, \
             snappy, gzip, producer",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.zstd.level",
            "99",
            "Invalid value 99 for configuration compression.zstd.level: Value must be no more than 22",
        ),
        (
            "retention.ms",
            "99999999999999999999",
            "Invalid value 99999999999999999999 for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "leader.replication.throttled.replicas",
            "a",
            "Invalid value [a] for configuration leader.replication.throttled.replicas: \
             leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following \
             format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ] {
        assert_eq!(topic(key, text), Err(message.to_owned()), "{key}={text}");
    }
    for (key, text, message) in [
        (
            "process.roles",
            "",
            "Configuration 'process.roles' must not be empty. Valid values include: [broker, controller]",
        ),
        (
            "controller.listener.names",
            "",
            "Configuration 'controller.listener.names' must not be empty. Valid values include: any non-empty value",
        ),
        (
            "listeners",
            "",
            "Configuration 'listeners' must not be empty. Valid values include: any non-empty value",
        ),
        (
            "group.consumer.migration.policy",
            "foo",
            "Invalid value foo for configuration group.consumer.migration.policy: String must be one of (case \
             insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL",
        ),
    ] {
        assert_eq!(broker(key, text), Err(message.to_owned()), "{key}={text}");
    }
}

#[test]
fn white_space_and_case_accepted_as_kafka_does() {
    assert_eq!(
        topic("segment.bytes", " 1048576 "),
        Ok(ConfigValue::Int(1_048_576))
    );
    assert_eq!(topic("preallocate", " TRUE "), Ok(ConfigValue::Boolean(true)));
    assert_eq!(
        topic("cleanup.policy", " compact , delete "),
        Ok(ConfigValue::List(vec!["compact".to_owned(), "delete".to_owned()]))
    );
    assert_eq!(topic("cleanup.policy", ""), Ok(ConfigValue::List(Vec::new())));
    assert_eq!(
        broker("log.dirs", "/a,/b, /a"),
        Ok(ConfigValue::List(vec!["/a".to_owned(), "/b".to_owned()]))
    );
    assert!(topic("leader.replication.throttled.replicas", "*").is_ok());
    assert!(topic("leader.replication.throttled.replicas", "0:1,").is_ok());
    assert_eq!(
        broker("controller.quorum.voters", ""),
        Ok(ConfigValue::List(Vec::new()))
    );
}

#[test]
fn every_default_is_of_its_type_and_valid() {
    for definition in [
        ConfigDefinition::broker(),
        ConfigDefinition::topic(),
        ConfigDefinition::group(),
    ] {
        for key in definition.keys() {
            match key.default {
                Some(text) => {
                    parse(key, text).unwrap();
                }
                None if key.is_required => assert!(default_of(key).is_err()),
                None => assert_eq!(default_of(key), Ok(ConfigValue::Null)),
            }
        }
    }
}

#[test]
fn doubles_print_as_in_java() {
    for (number, text) in [
        (0.5, "0.5"),
        (2.0, "2.0"),
        (1.797_693_134_862_315_7e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
    ] {
        assert_eq!(java_double(number), text);
    }
}
