use super::*;

fn synonyms(config: &DescribedConfig) -> String {
    let parts: Vec<String> = config
        .synonyms
        .iter()
        .map(|synonym| {
            format!(
                "{}|{}|{:?}",
                synonym.name,
                synonym.value.as_deref().unwrap_or("null"),
                synonym.source
            )
        })
        .collect();
    parts.join(", ")
}

/// The node whose answers of Apache Kafka 4.4 the tests below compare with.
fn node() -> KafkaConfig {
    let config = KafkaConfig::development_with(&[
        ("log.retention.hours", "100"),
        ("log.retention.minutes", "70"),
        ("log.roll.hours", "5"),
        ("log.segment.bytes", "1073741824"),
        ("ssl.keystore.password", "abc"),
        ("foo.bar", "baz"),
        ("log.flush.scheduler.interval.ms", "777"),
        ("min.insync.replicas", "1"),
        ("log.cleanup.policy", "delete"),
    ])
    .unwrap();
    let defaults = [("min.insync.replicas".to_owned(), "1".to_owned())].into();
    config.with_dynamic(&defaults, &BTreeMap::new()).unwrap()
}

#[test]
fn topic_described_has_kafkas_values_sources_and_synonyms() {
    let overrides = [
        ("retention.ms".to_owned(), "5000".to_owned()),
        ("cleanup.policy".to_owned(), "compact".to_owned()),
    ];
    let described = topic_configs(&node(), &overrides.into()).unwrap();
    assert_eq!(described.len(), 37);
    for (name, value, source, expected) in [
        (
            "compression.type",
            "producer",
            ConfigSource::DefaultConfig,
            "compression.type|producer|DefaultConfig",
        ),
        (
            "min.insync.replicas",
            "1",
            ConfigSource::DynamicDefaultBrokerConfig,
            "min.insync.replicas|1|DynamicDefaultBrokerConfig, min.insync.replicas|1|StaticBrokerConfig, \
             min.insync.replicas|1|DefaultConfig",
        ),
        (
            "cleanup.policy",
            "compact",
            ConfigSource::TopicConfig,
            "cleanup.policy|compact|TopicConfig, log.cleanup.policy|delete|StaticBrokerConfig, \
             log.cleanup.policy|delete|DefaultConfig",
        ),
        ("flush.ms", "777", ConfigSource::DefaultConfig, ""),
        (
            "retention.ms",
            "5000",
            ConfigSource::TopicConfig,
            "retention.ms|5000|TopicConfig",
        ),
        ("segment.ms", "18000000", ConfigSource::DefaultConfig, ""),
        (
            "segment.bytes",
            "1073741824",
            ConfigSource::StaticBrokerConfig,
            "log.segment.bytes|1073741824|StaticBrokerConfig, log.segment.bytes|1073741824|DefaultConfig",
        ),
        (
            "leader.replication.throttled.replicas",
            "",
            ConfigSource::DefaultConfig,
            "",
        ),
        (
            "min.cleanable.dirty.ratio",
            "0.5",
            ConfigSource::DefaultConfig,
            "log.cleaner.min.cleanable.ratio|0.5|DefaultConfig",
        ),
    ] {
        let config = described.iter().find(|config| config.name == name).unwrap();
        assert_eq!(config.value.as_deref(), Some(value), "{name}");
        assert_eq!(config.source, source, "{name}");
        assert_eq!(synonyms(config), expected, "{name}");
        assert!(!config.read_only && !config.is_sensitive);
    }
    let other = topic_configs(&node(), &BTreeMap::new()).unwrap();
    let retention = other.iter().find(|config| config.name == "retention.ms").unwrap();
    assert_eq!(
        retention.value.as_deref(),
        Some("4200000"),
        "minutes win over hours"
    );
}

#[test]
fn broker_described_has_kafkas_values_sources_and_synonyms() {
    let described = broker_configs(&node()).unwrap();
    let find = |name: &str| described.iter().find(|config| config.name == name).unwrap();
    for (name, value, expected) in [
        ("log.retention.ms", None, ""),
        (
            "log.retention.minutes",
            Some("70"),
            "log.retention.minutes|70|StaticBrokerConfig, log.retention.hours|100|StaticBrokerConfig, \
             log.retention.hours|168|DefaultConfig",
        ),
        (
            "log.retention.hours",
            Some("100"),
            "log.retention.hours|100|StaticBrokerConfig, log.retention.hours|168|DefaultConfig",
        ),
        ("log.flush.interval.ms", None, ""),
        ("node.id", Some("1"), "node.id|1|StaticBrokerConfig"),
        (
            "broker.id",
            Some("1"),
            "broker.id|1|StaticBrokerConfig, broker.id|-1|DefaultConfig",
        ),
        ("inter.broker.listener.name", None, ""),
        ("cordoned.log.dirs", Some(""), "cordoned.log.dirs||DefaultConfig"),
        (
            "log.cleaner.io.max.bytes.per.second",
            Some("1.7976931348623157E308"),
            "log.cleaner.io.max.bytes.per.second|1.7976931348623157E308|DefaultConfig",
        ),
        (
            "group.coordinator.rebalance.protocols",
            Some("classic,consumer,streams"),
            "group.coordinator.rebalance.protocols|classic,consumer,streams|DefaultConfig",
        ),
    ] {
        assert_eq!(find(name).value.as_deref(), value, "{name}");
        assert_eq!(synonyms(find(name)), expected, "{name}");
    }
    assert!(find("node.id").read_only);
    assert!(!find("num.io.threads").read_only);
    let unknown = find("foo.bar");
    assert_eq!(
        (
            unknown.value.as_deref(),
            unknown.is_sensitive,
            unknown.config_type
        ),
        (None, true, None)
    );
    let password = find("ssl.keystore.password");
    assert_eq!((password.value.as_deref(), password.is_sensitive), (None, true));
    assert_eq!(
        synonyms(password),
        "ssl.keystore.password|null|StaticBrokerConfig"
    );
    assert!(
        !described
            .iter()
            .any(|config| config.name == "unstable.api.versions.enable")
    );
}

#[test]
fn cluster_default_described_has_only_what_is_set() {
    let described = default_broker_configs(&node());
    assert_eq!(described.len(), 1);
    assert_eq!(
        synonyms(&described[0]),
        "min.insync.replicas|1|DynamicDefaultBrokerConfig"
    );
}

#[test]
fn groups_show_every_source_of_the_nodes_keys() {
    let file = KafkaConfig::development_with(&[("group.share.heartbeat.interval.ms", "6000")]).unwrap();
    let set = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let interval = "group.consumer.assignment.interval.ms";
    let config = file
        .with_dynamic(&set(interval, "500"), &set(interval, "700"))
        .unwrap();
    let described = group_configs(&config, &set("consumer.assignment.interval.ms", "900"));
    let of = |name: &str| {
        let found = described.iter().find(|config| config.name == name).unwrap();
        let synonyms = found.synonyms.iter();
        let synonyms: Vec<_> = synonyms
            .map(|synonym| (&*synonym.name, synonym.value.as_deref().unwrap(), synonym.source))
            .collect();
        (found.value.as_deref().unwrap(), found.source, synonyms)
    };
    // As Apache Kafka 4.4 answered.
    assert_eq!(
        of("consumer.assignment.interval.ms"),
        (
            "900",
            ConfigSource::GroupConfig,
            vec![
                (
                    "consumer.assignment.interval.ms",
                    "900",
                    ConfigSource::GroupConfig
                ),
                (interval, "700", ConfigSource::DynamicBrokerConfig),
                (interval, "500", ConfigSource::DynamicDefaultBrokerConfig),
                (interval, "1000", ConfigSource::DefaultConfig),
            ]
        )
    );
    let heartbeat = "group.share.heartbeat.interval.ms";
    assert_eq!(
        of("share.heartbeat.interval.ms"),
        (
            "6000",
            ConfigSource::StaticBrokerConfig,
            vec![
                (heartbeat, "6000", ConfigSource::StaticBrokerConfig),
                (heartbeat, "5000", ConfigSource::DefaultConfig),
            ]
        )
    );
    assert_eq!(
        of("streams.assignor.name"),
        (
            "sticky",
            ConfigSource::DefaultConfig,
            vec![("group.streams.assignors", "sticky", ConfigSource::DefaultConfig)]
        )
    );
}
