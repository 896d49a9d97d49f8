use super::*;

#[test]
fn table_parsed_holds_every_key_of_kafka() {
    let (ours, kafkas): (Vec<_>, Vec<_>) = ConfigDefinition::broker()
        .keys()
        .iter()
        .partition(|key| key.name.starts_with("kavka."));
    assert_eq!(kafkas.len(), 379);
    assert!(
        ours.iter().all(|key| key.is_internal),
        "not told to Kafka's tools"
    );
    assert_eq!(ConfigDefinition::topic().keys().len(), 38);
    assert_eq!(ConfigDefinition::group().keys().len(), 27);
}

#[test]
fn rows_parsed_have_type_default_and_range() {
    let broker = ConfigDefinition::broker();
    let key = broker.get("log.segment.bytes").unwrap();
    assert_eq!(key.config_type, ConfigType::Int);
    assert_eq!(key.default, Some("1073741824"));
    assert_eq!(
        key.valid_values,
        ValidValues::Range {
            min: 1_048_576.0,
            max: None
        }
    );
    assert_eq!(key.update_mode, UpdateMode::ClusterWide);
    assert!(broker.get("node.id").unwrap().is_required);
    assert_eq!(broker.get("log.dirs").unwrap().default, None);
    assert_eq!(
        broker.get("listeners").unwrap().default,
        Some("PLAINTEXT://:9092")
    );
    assert_eq!(broker.get("authorizer.class.name").unwrap().default, Some(""));
    assert_eq!(
        broker.get("compression.zstd.level").unwrap().valid_values,
        ValidValues::Range {
            min: -131_072.0,
            max: Some(22.0)
        }
    );
    assert_eq!(
        broker.get("process.roles").unwrap().valid_values,
        ValidValues::OneOf(vec!["broker", "controller"])
    );
}

#[test]
fn every_topic_synonym_is_a_broker_key() {
    for key in ConfigDefinition::topic().keys() {
        for synonym in topic_synonyms(key.name) {
            assert!(ConfigDefinition::broker().get(synonym).is_some(), "{synonym}");
        }
    }
    assert_eq!(
        topic_synonyms("retention.ms"),
        ["log.retention.ms", "log.retention.minutes", "log.retention.hours"]
    );
}
