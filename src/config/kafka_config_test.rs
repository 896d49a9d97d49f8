use super::*;

/// The node that the messages below were asked of Apache Kafka 4.4 with.
fn base() -> BTreeMap<String, String> {
    [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.quorum.voters", "1@localhost:9093"),
        ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
        ("controller.listener.names", "CONTROLLER"),
    ]
    .map(|(key, text)| (key.to_owned(), text.to_owned()))
    .into()
}

fn load(changes: &[(&str, Option<&str>)]) -> Result<KafkaConfig, String> {
    let mut properties = base();
    for (key, text) in changes {
        match text {
            Some(text) => properties.insert((*key).to_owned(), (*text).to_owned()),
            None => properties.remove(*key),
        };
    }
    KafkaConfig::from_properties(properties).map_err(|error| error.to_string())
}

fn texts(endpoints: &[Endpoint]) -> Vec<String> {
    endpoints.iter().map(Endpoint::to_string).collect()
}

#[test]
fn every_plain_field_is_a_key_of_the_table() {
    for field in FIELD_NAMES {
        assert!(
            ConfigDefinition::broker().get(&key_of_field(field)).is_some(),
            "{field}"
        );
    }
}

#[test]
fn development_defaults_are_one_node_of_both_roles_on_localhost() {
    let config = KafkaConfig::development_defaults().unwrap();
    assert_eq!(
        config.process_roles,
        [ProcessRole::Broker, ProcessRole::Controller]
    );
    assert_eq!(config.node_id, 1);
    assert_eq!(
        texts(&config.listeners),
        ["PLAINTEXT://localhost:9092", "CONTROLLER://localhost:9093"]
    );
    assert_eq!(config.log_dirs, [PathBuf::from("./kavka-data")]);
    assert_eq!(config.metadata_log_dir, PathBuf::from("./kavka-data"));
    assert_eq!(config.offsets_topic_replication_factor, 1);
    assert_eq!(config.offsets_topic_num_partitions, 50);
    assert_eq!(config.num_partitions, 1);
    assert!(config.auto_create_topics_enable);
}

#[test]
fn single_keys_refused_with_kafkas_messages() {
    for (key, text, message) in [
        (
            "node.id",
            None,
            "Missing required configuration \"node.id\" which has no default value.",
        ),
        (
            "node.id",
            Some("-1"),
            "Invalid value -1 for configuration node.id: Value must be at least 0",
        ),
        (
            "process.roles",
            None,
            "Missing required configuration \"process.roles\" which has no default value.",
        ),
        (
            "process.roles",
            Some("foo"),
            "Invalid value foo for configuration process.roles: String must be one of: broker, controller",
        ),
        (
            "num.partitions",
            Some("0"),
            "Invalid value 0 for configuration num.partitions: Value must be at least 1",
        ),
        (
            "log.dirs",
            Some(""),
            "Configuration 'log.dirs' must not be empty. Valid values include: any non-empty value",
        ),
        (
            "log.dirs",
            Some("/a,,/b"),
            "Configuration 'log.dirs' values must not be empty.",
        ),
        (
            "controller.quorum.voters",
            Some("foo"),
            "Invalid configuration value for controller.quorum.voters. Each entry should be in the form \
             `{id}@{host}:{port}`.",
        ),
        (
            "controller.quorum.voters",
            Some("1@localhost:x"),
            "Failed to parse host name from entry 1@localhost:x for the configuration controller.quorum.voters. Each \
             entry should be in the form `{id}@{host}:{port}`.",
        ),
        (
            "controller.quorum.bootstrap.servers",
            Some("foo"),
            "Failed to parse host name from foo for the configuration controller.quorum.bootstrap.servers. Each entry \
             should be in the form \"{host}:{port}\"",
        ),
        (
            "inter.broker.listener.name",
            Some("FOO"),
            "Listener with name FOO defined in inter.broker.listener.name not found in listener.security.protocol.map.",
        ),
    ] {
        assert_eq!(
            load(&[(key, text)]).err().as_deref(),
            Some(message),
            "{key}={text:?}"
        );
    }
}

#[test]
fn keys_that_contradict_each_other_refused() {
    for (changes, part) in [
        (
            vec![("controller.quorum.voters", None)],
            "If using process.roles, either controller.quorum.bootstrap.servers",
        ),
        (
            vec![("controller.quorum.voters", Some("2@localhost:9093"))],
            "the node id 1 must be included in the set of voters controller.quorum.voters=Set(2)",
        ),
        (
            vec![("process.roles", Some("broker"))],
            "the node id 1 must not be included in the set of voters",
        ),
        (
            vec![("process.roles", Some("broker")), ("node.id", Some("5"))],
            "controller.listener.names must not contain a value appearing in the 'listeners' configuration",
        ),
        (
            vec![("process.roles", Some("controller"))],
            "The listeners config must only contain KRaft controller listeners",
        ),
        (
            vec![("controller.listener.names", Some("FOO"))],
            "No security protocol defined for listener CONTROLLER",
        ),
        (
            vec![("listeners", Some("PLAINTEXT://:9092,CONTROLLER://:9092"))],
            "Each listener must have a different port",
        ),
        (
            vec![(
                "listeners",
                Some("PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093"),
            )],
            "Each listener must have a different name",
        ),
        (
            vec![("listeners", Some("PLAINTEXT:9092"))],
            "Unable to parse PLAINTEXT:9092 to a broker endpoint",
        ),
        (
            vec![("listeners", Some("PLAINTEXT://:99999,CONTROLLER://:9093"))],
            "not between 0 and 65535",
        ),
        (
            vec![("listeners", Some("PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"))],
            "cannot use the nonroutable meta-address 0.0.0.0",
        ),
        (
            vec![("advertised.listeners", Some("PLAINTEXT://0.0.0.0:9092"))],
            "cannot use the nonroutable meta-address 0.0.0.0",
        ),
        (
            vec![("advertised.listeners", Some("CONTROLLER://h:1"))],
            "There must be at least one broker advertised listener.",
        ),
        (
            vec![("advertised.listeners", Some("FOO://h:9092"))],
            "No security protocol defined for listener FOO",
        ),
        (
            vec![("inter.broker.listener.name", Some("CONTROLLER"))],
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options \
             based on currently configured listeners are PLAINTEXT",
        ),
        (
            vec![
                ("inter.broker.listener.name", Some("PLAINTEXT")),
                ("security.inter.broker.protocol", Some("PLAINTEXT")),
            ],
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        (vec![("broker.id", Some("2"))], "must be set to the same value"),
        (
            vec![("log.retention.ms", Some("0"))],
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            vec![("queued.max.request.bytes", Some("5"))],
            "queued.max.request.bytes must be larger or equal",
        ),
        (
            vec![("replica.fetch.wait.max.ms", Some("40000"))],
            "replica.socket.timeout.ms should always be at least",
        ),
        (
            vec![("connections.max.idle.ms", Some("10"))],
            "should always be less than connections.max.idle.ms=10",
        ),
        (
            vec![("group.coordinator.rebalance.protocols", Some("consumer"))],
            "Disabling the 'classic' protocol",
        ),
        (vec![("cordoned.log.dirs", Some("/x"))], "Missing entries : /x"),
        (
            vec![("early.start.listeners", Some("FOO"))],
            "early.start.listeners contains listener FOO",
        ),
    ] {
        let message = load(&changes).err().unwrap_or_default();
        assert!(message.contains(part), "{changes:?}: {message}");
    }
}

#[test]
fn controller_listener_without_advertised_one_takes_the_static_voters_address() {
    let config = load(&[]).unwrap();
    assert_eq!(texts(&config.advertised_broker_listeners), ["PLAINTEXT://:9092"]);
    assert_eq!(
        texts(&config.advertised_controller_listeners),
        ["CONTROLLER://localhost:9093"]
    );

    let dynamic = load(&[
        ("controller.quorum.voters", None),
        ("controller.quorum.bootstrap.servers", Some("foo:1")),
    ])
    .unwrap();
    assert_eq!(
        texts(&dynamic.advertised_controller_listeners),
        ["CONTROLLER://:9093"]
    );

    let advertised = load(&[(
        "advertised.listeners",
        Some("PLAINTEXT://h:9092,CONTROLLER://h2:9093"),
    )])
    .unwrap();
    assert_eq!(
        texts(&advertised.advertised_broker_listeners),
        ["PLAINTEXT://h:9092"]
    );
    assert_eq!(
        texts(&advertised.advertised_controller_listeners),
        ["CONTROLLER://h2:9093"]
    );
}

#[test]
fn names_of_listeners_are_upper_cased() {
    let config = load(&[
        ("listeners", Some("plaintext://:9092,controller://:9093")),
        ("controller.listener.names", Some("controller")),
    ])
    .unwrap();
    assert_eq!(
        texts(&config.listeners),
        ["PLAINTEXT://:9092", "CONTROLLER://:9093"]
    );
    assert_eq!(config.controller_listener_name(), "CONTROLLER");
    assert_eq!(config.inter_broker_listener_name, "PLAINTEXT");
}

#[test]
fn broker_alone_needs_no_controller_listener_of_its_own() {
    let config = load(&[
        ("process.roles", Some("broker")),
        ("node.id", Some("5")),
        ("listeners", Some("PLAINTEXT://[::1]:9092")),
        ("controller.listener.names", Some("FOO")),
    ])
    .unwrap();
    assert!(config.is_broker() && !config.is_controller());
    assert_eq!(config.listeners[0].host, "::1");
    assert!(config.advertised_controller_listeners.is_empty());
    assert_eq!(
        config.listener_security_protocol_map["FOO"],
        SecurityProtocol::Plaintext
    );
}

#[test]
fn ports_of_zero_are_resolved_by_what_was_bound() {
    let config = load(&[("listeners", Some("PLAINTEXT://:0,CONTROLLER://:0"))]).unwrap();
    let resolved = listeners::resolve_advertised(&config.advertised_broker_listeners, |_| Some(4711), "host");
    assert_eq!(texts(&resolved), ["PLAINTEXT://host:4711"]);
}

#[test]
fn override_wins_over_the_file_and_broken_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.properties");
    let lines: Vec<String> = base()
        .iter()
        .map(|(key, text)| properties::format_line(key, text))
        .collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let overrides = [("num.partitions".to_owned(), "7".to_owned())];
    assert_eq!(
        KafkaConfig::load(Some(&path), &overrides).unwrap().num_partitions,
        7
    );
    let gone = dir.path().join("gone");
    let message = KafkaConfig::load(Some(&gone), &[]).unwrap_err().to_string();
    assert!(
        message.starts_with(&format!("Cannot read {}: ", gone.display())),
        "{message}"
    );
}

#[test]
fn dynamic_values_win_over_the_file() {
    let config = load(&[("log.retention.ms", Some("5"))]).unwrap();
    let default = [("log.retention.ms".to_owned(), "6".to_owned())].into();
    let broker = [("log.retention.ms".to_owned(), "7".to_owned())].into();
    assert_eq!(
        config
            .with_dynamic(&default, &BTreeMap::new())
            .unwrap()
            .log_config
            .retention_ms,
        6
    );
    assert_eq!(
        config
            .with_dynamic(&default, &broker)
            .unwrap()
            .log_config
            .retention_ms,
        7
    );
}

#[test]
fn debug_print_shows_no_values_that_may_be_secret() {
    let config = load(&[("ssl.keystore.password", Some("hidden-word"))]).unwrap();
    assert!(!format!("{config:?}").contains("hidden-word"));
}

#[test]
fn stock_server_properties_start_unchanged() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/server.properties");
    let config = KafkaConfig::load(Some(&path), &[]).unwrap();
    assert_eq!(
        config.controller_quorum_bootstrap_servers,
        [("localhost".to_owned(), 9093)]
    );
    assert_eq!(
        texts(&config.advertised_controller_listeners),
        ["CONTROLLER://localhost:9093"]
    );
    assert_eq!(config.log_dirs, [PathBuf::from("/tmp/kraft-combined-logs")]);
    assert!(
        config.warnings().is_empty(),
        "values that equal the defaults are no reason to warn: {:?}",
        config.warnings()
    );
}

#[test]
fn keys_of_groups_that_contradict_each_other_refused_with_kafkas_messages() {
    let greater = |key: &str, other: &str| format!("{key} must be greater than or equal to {other}");
    for kind in ["consumer", "share", "streams"] {
        for (what, below, above) in [
            ("heartbeat.interval.ms", "4999", "15001"),
            ("session.timeout.ms", "44999", "60001"),
        ] {
            let key = format!("group.{kind}.{what}");
            let (least, largest) = (
                format!("group.{kind}.min.{what}"),
                format!("group.{kind}.max.{what}"),
            );
            let refused = |key: &str, text: &str| load(&[(key, Some(text))]).unwrap_err();
            assert_eq!(refused(&key, below), greater(&key, &least));
            assert_eq!(
                refused(&key, above),
                format!("{key} must be less than or equal to {largest}")
            );
            assert_eq!(refused(&least, above), greater(&largest, &least));
            assert_eq!(refused(&largest, below), greater(&largest, &least));
        }
    }
    assert_eq!(
        load(&[("group.streams.num.standby.replicas", Some("3"))]).unwrap_err(),
        "group.streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas"
    );
}

#[test]
fn assignors_that_are_neither_known_names_nor_classes_refused() {
    for known in [
        "range",
        "uniform,uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
    ] {
        load(&[("group.consumer.assignors", Some(known))]).unwrap();
    }
    for (text, unknown) in [("Range", "Range"), ("uniform,bogus", "bogus")] {
        assert_eq!(
            load(&[("group.consumer.assignors", Some(text))]).unwrap_err(),
            format!(
                "Invalid value {unknown} for configuration group.consumer.assignors: Class cannot be found"
            )
        );
    }
}
