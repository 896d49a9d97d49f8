use super::*;

fn config(extra: &[(&str, &str)]) -> KafkaConfig {
    let base = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        (
            "listeners",
            "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        ),
        ("controller.listener.names", "CONTROLLER"),
        ("log.dirs", "/tmp/kavka-config-test"),
    ];
    let properties = base
        .iter()
        .chain(extra)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    KafkaConfig::from_properties(properties.collect()).unwrap()
}

#[test]
fn config_of_a_dynamic_quorum_has_its_listeners_and_no_static_voters() {
    let raft = RaftConfig::from_config(
        &config(&[
            ("controller.quorum.bootstrap.servers", "localhost:9093"),
            ("controller.quorum.election.timeout.ms", "77"),
        ]),
        Uuid::from_u128(5),
        "cluster",
    );
    assert_eq!(raft.node_id, 1);
    assert_eq!(raft.election_timeout_ms, 77);
    assert_eq!(raft.metadata_max_retention_bytes, 104_857_600);
    assert_eq!(raft.static_voters, []);
    assert_eq!(
        raft.listeners,
        [Endpoint {
            name: "CONTROLLER".into(),
            host: "localhost".into(),
            port: 9093,
        }]
    );
}

#[test]
fn config_of_a_static_quorum_names_its_voters_by_the_first_controller_listener() {
    let raft = RaftConfig::from_config(
        &config(&[("controller.quorum.voters", "1@localhost:9093,2@other:9094")]),
        Uuid::from_u128(5),
        "cluster",
    );
    let voters: Vec<_> = raft
        .static_voters
        .iter()
        .map(|(id, endpoint)| (*id, &*endpoint.name, &*endpoint.host, endpoint.port))
        .collect();
    assert_eq!(
        voters,
        [
            (1, "CONTROLLER", "localhost", 9093),
            (2, "CONTROLLER", "other", 9094)
        ]
    );
}

#[test]
fn metadata_log_is_never_cleaned_by_itself() {
    let log = metadata_log_config(&config(&[
        ("controller.quorum.bootstrap.servers", "localhost:9093"),
        ("log.retention.ms", "1000"),
        ("metadata.log.segment.bytes", "9000000"),
    ]));
    assert_eq!((log.retention_ms, log.retention_bytes), (-1, -1));
    assert_eq!(log.segment_bytes, 9_000_000);
    assert_eq!(log.max_message_bytes, 8 * 1024 * 1024);
    assert_eq!(log.cleanup_policy, ["delete"]);
}
