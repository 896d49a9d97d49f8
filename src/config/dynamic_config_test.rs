//! Messages are those that Apache Kafka 4.4 answered.

use super::*;

fn settings(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect()
}

fn cluster_default(entries: &[(&str, &str)]) -> Result<(), String> {
    change(entries, false)
}

fn one_broker(entries: &[(&str, &str)]) -> Result<(), String> {
    change(entries, true)
}

fn change(entries: &[(&str, &str)], for_one_broker: bool) -> Result<(), String> {
    let config = KafkaConfig::development_defaults().unwrap();
    validate_change(&config, &settings(entries), for_one_broker).map_err(|error| message_of(&error))
}

fn refused(message: &str) -> Result<(), String> {
    Err(message.to_owned())
}

#[test]
fn keys_that_need_a_restart_are_refused() {
    assert_eq!(
        cluster_default(&[("process.roles", "broker"), ("log.dirs", "/x")]),
        refused("Cannot update these configs dynamically: [process.roles, log.dirs]")
    );
    for key in [
        "node.id",
        "advertised.listeners",
        "log.retention.hours",
        "auto.create.topics.enable",
    ] {
        assert_eq!(
            one_broker(&[(key, "1")]),
            refused(&format!("Cannot update these configs dynamically: [{key}]"))
        );
    }
    // What nobody knows is somebody's.
    assert_eq!(cluster_default(&[("nope", "1")]), Ok(()));
}

#[test]
fn keys_of_one_broker_are_refused_for_the_cluster() {
    let per_broker = "Cannot update these configs at default cluster level, broker id must be specified: ";
    for key in [
        "listener.name.plaintext.ssl.keystore.location",
        "sasl.jaas.config",
        "cordoned.log.dirs",
    ] {
        assert_eq!(
            cluster_default(&[(key, "/x")]),
            refused(&format!("{per_broker}[{key}]"))
        );
    }
    let security = "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]";
    assert_eq!(one_broker(&[("ssl.keystore.location", "/x")]), refused(security));
    assert_eq!(
        cluster_default(&[("ssl.keystore.location", "/x")]),
        refused(security)
    );
}

#[test]
fn values_are_checked_by_type_and_range() {
    for (key, text, message) in [
        (
            "log.retention.ms",
            "x",
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            "log.segment.bytes",
            "5",
            "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            "num.io.threads",
            "0",
            "Invalid value 0 for configuration num.io.threads: Value must be at least 1",
        ),
        (
            "max.connections",
            "-1",
            "Invalid value -1 for configuration max.connections: Value must be at least 0",
        ),
        (
            "leader.replication.throttled.rate",
            "-1",
            "Invalid value -1 for configuration leader.replication.throttled.rate: Value must be at least 0",
        ),
        (
            "producer.id.expiration.ms",
            "0",
            "Invalid value 0 for configuration producer.id.expiration.ms: Value must be at least 1",
        ),
        ("log.cleaner.threads", "0", "/ by zero"),
        (
            "max.connections.per.ip.overrides",
            "a:b:c",
            "For input string: \"c\"",
        ),
    ] {
        assert_eq!(cluster_default(&[(key, text)]), refused(message), "{key}");
    }
    // A negative retention is none.
    assert_eq!(cluster_default(&[("log.retention.ms", "-5")]), Ok(()));
    assert_eq!(
        cluster_default(&[("leader.replication.throttled.rate", "1000")]),
        Ok(())
    );
}

#[test]
fn rules_of_several_keys_are_checked_on_the_whole() {
    assert_eq!(
        cluster_default(&[("log.cleaner.dedupe.buffer.size", "1000")]),
        refused(
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
        )
    );
    assert_eq!(
        one_broker(&[("max.connections.per.ip", "0")]),
        refused(
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides \
             property is set."
        )
    );
}

#[test]
fn pools_at_most_double_and_at_least_halve() {
    let failed = |key: &str, rest: &str| {
        refused(&format!(
            "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed \
             for {key}, {rest} for configuration Invalid dynamic configuration"
        ))
    };
    assert_eq!(
        cluster_default(&[("num.io.threads", "100")]),
        failed(
            "num.io.threads=100",
            "value should not be greater than double the current value 8"
        )
    );
    assert_eq!(
        cluster_default(&[("background.threads", "1")]),
        failed(
            "background.threads=1",
            "value should be at least half the current value 10"
        )
    );
    assert_eq!(
        cluster_default(&[("num.io.threads", "16"), ("num.network.threads", "2")]),
        Ok(())
    );
    assert_eq!(
        cluster_default(&[("log.cleaner.threads", "5")]),
        refused(
            "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads cannot be increased to more \
             than double the current value 1 for configuration Invalid dynamic configuration"
        )
    );
}

#[test]
fn what_kavka_would_neglect_at_a_cost_is_refused() {
    for (key, text) in [
        ("listener.name.plaintext.max.connections", "100"),
        ("max.connection.creation.rate", "5"),
        ("config.providers", "file"),
    ] {
        let message = one_broker(&[(key, text)]).unwrap_err();
        assert!(message.contains("kavka does not act on it yet"), "{message}");
    }
}

#[test]
fn stored_configs_that_make_no_sense_are_left_out() {
    let file = KafkaConfig::development_defaults().unwrap();
    let default = settings(&[
        ("log.retention.ms", "x"),
        ("message.max.bytes", "5"),
        ("sasl.jaas.config", "s"),
    ]);
    let own = settings(&[("node.id", "9"), ("log.retention.ms", "77")]);
    let Effective { config, left_out } = effective(&file, &default, &own);
    assert_eq!((config.message_max_bytes, config.node_id), (5, file.node_id));
    let left_out: Vec<String> = left_out.iter().map(LeftOut::to_string).collect();
    assert_eq!(
        left_out,
        [
            "log.retention.ms of the cluster: Not a number of type LONG",
            "sasl.jaas.config of the cluster: it can be changed for one broker only",
            "node.id of this broker: it cannot be changed while the node runs",
        ]
    );
    assert_eq!(config.log_config.retention_ms, 77);
}

/// The keys and why.
fn left_out(effective: &Effective) -> Vec<(&str, bool, &str)> {
    let left_out = effective.left_out.iter();
    left_out
        .map(|left_out| (&*left_out.key, left_out.for_one_broker, &*left_out.reason))
        .collect()
}

#[test]
fn value_that_does_not_fit_leaves_the_others_in_force() {
    const TOO_SMALL: &str = "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.";
    const KEY: &str = "log.cleaner.dedupe.buffer.size";
    let file = KafkaConfig::development_defaults().unwrap();
    let limit = ("max.connections.per.ip", "100");
    let both = effective(
        &file,
        &settings(&[(KEY, "1"), limit]),
        &settings(&[("log.retention.ms", "77")]),
    );
    assert_eq!(both.config.max_connections_per_ip, 100);
    assert_eq!(both.config.log_config.retention_ms, 77);
    assert_eq!(both.config.original(KEY), None);
    assert_eq!(left_out(&both), [(KEY, false, TOO_SMALL)]);
    // The broker's own bad value does not cost the cluster's.
    let own = settings(&[(KEY, "1")]);
    let both = effective(&file, &settings(&[limit, (KEY, "134217700")]), &own);
    assert_eq!(both.config.original(KEY), Some("134217700"));
    assert_eq!(both.config.max_connections_per_ip, 100);
    assert_eq!(left_out(&both), [(KEY, true, TOO_SMALL)]);
}

#[test]
fn key_that_needs_a_later_one_stays_beside_a_bad_value() {
    let file = KafkaConfig::development_defaults().unwrap();
    let default = settings(&[
        ("log.cleaner.dedupe.buffer.size", "1"),
        ("max.connections.per.ip", "0"),
        ("max.connections.per.ip.overrides", "10.0.0.1:5"),
    ]);
    let both = effective(&file, &default, &BTreeMap::new());
    assert_eq!(both.config.max_connections_per_ip, 0);
    assert_eq!(both.left_out.len(), 1);
}

#[test]
fn protocol_that_is_not_served_is_left_out_alone() {
    const KEY: &str = "listener.security.protocol.map";
    let file = KafkaConfig::development_defaults().unwrap();
    let own = settings(&[
        (KEY, "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"),
        ("max.connections", "9"),
    ]);
    let both = effective(&file, &BTreeMap::new(), &own);
    assert_eq!(both.config.max_connections, 9);
    let keys: Vec<&str> = both.left_out.iter().map(|left_out| &*left_out.key).collect();
    assert_eq!(keys, [KEY]);
    assert!(waiting_for_restart(&file, &both.config).is_empty());
}

#[test]
fn listeners_that_differ_from_the_files_wait_for_a_restart() {
    let file = KafkaConfig::development_defaults().unwrap();
    let shown = |own: &[(&str, &str)]| {
        let both = effective(&file, &BTreeMap::new(), &settings(own));
        assert_eq!(both.left_out, []);
        waiting_for_restart(&file, &both.config)
    };
    let as_in_file = file
        .original("listeners")
        .unwrap_or("PLAINTEXT://:9092")
        .to_owned();
    assert!(shown(&[("listeners", &as_in_file)]).is_empty());
    let moved = as_in_file.replace("9092", "9192");
    assert_eq!(shown(&[("listeners", &moved)]), ["listeners"]);
    let map = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:SSL";
    assert_eq!(
        shown(&[("listener.security.protocol.map", map)]),
        ["listener.security.protocol.map"]
    );
}

#[test]
fn secret_that_is_left_out_is_not_told() {
    let file = KafkaConfig::development_defaults().unwrap();
    let own = settings(&[
        ("num.io.threads", "s3cret"),
        ("ssl.key.password", "s3cret"),
        ("config.providers", "s3cret"),
    ]);
    let both = effective(&file, &settings(&[("sasl.jaas.config", "s3cret")]), &own);
    assert!(both.left_out.len() >= 3);
    for left_out in &both.left_out {
        assert!(!left_out.to_string().contains("s3cret"), "{left_out}");
    }
}
