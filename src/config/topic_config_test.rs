use super::*;

fn validate(overrides: &[(&str, &str)]) -> Result<(), String> {
    let config = KafkaConfig::development_defaults().unwrap();
    let overrides = overrides
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    validate_topic_config(&config, &BTreeMap::new(), &overrides).map_err(|error| error.to_string())
}

#[test]
fn defaults_of_a_node_that_sets_nothing_are_kafkas() {
    let config = KafkaConfig::development_defaults().unwrap();
    assert_eq!(config.log_config, LogConfig::default());
    assert_eq!(LogConfig::default().retention_ms, 604_800_000);
    assert_eq!(LogConfig::default().segment_size(), 1 << 30);
}

#[test]
fn node_settings_reach_topics_in_milliseconds_and_the_smaller_unit_wins() {
    let config = KafkaConfig::development_with(&[
        ("log.roll.hours", "2"),
        ("log.roll.jitter.hours", "1"),
        ("log.retention.hours", "-1"),
        ("log.flush.scheduler.interval.ms", "9"),
    ])
    .unwrap();
    assert_eq!(config.log_config.segment_ms, 7_200_000);
    assert_eq!(config.log_config.segment_jitter_ms, 3_600_000);
    assert_eq!(config.log_config.retention_ms, -1);
    assert_eq!(config.log_config.flush_ms, 9);
    let config =
        KafkaConfig::development_with(&[("log.retention.hours", "1"), ("log.retention.ms", "5")]).unwrap();
    assert_eq!(config.log_config.retention_ms, 5);
}

#[test]
fn topic_overrides_win_and_unknown_ones_are_skipped() {
    let config = KafkaConfig::development_defaults().unwrap();
    let overrides: BTreeMap<String, String> = [
        ("segment.bytes", "2000000"),
        ("cleanup.policy", "compact,delete"),
        ("gone.key", "x"),
    ]
    .map(|(key, text)| (key.to_owned(), text.to_owned()))
    .into();
    let log_config = LogConfig::from_overrides(&config, &overrides).unwrap();
    assert_eq!(log_config.segment_bytes, 2_000_000);
    assert!(log_config.is_compacted() && log_config.is_deleting());
}

#[test]
fn topic_configs_refused_with_kafkas_messages() {
    assert_eq!(
        validate(&[("retention.ms", "-1"), ("cleanup.policy", "compact")]),
        Ok(())
    );
    for (overrides, message) in [
        (vec![("foo", "bar")], "Unknown topic config name: foo"),
        (
            vec![("remote.storage.enable", "true")],
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
        ),
        (
            vec![("segment.bytes", "1")],
            "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            vec![("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "3")],
            "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (3)",
        ),
    ] {
        assert_eq!(validate(&overrides), Err(message.to_owned()));
    }
}
