use super::*;

#[test]
fn every_plain_field_is_a_key_of_its_type() {
    for field in FIELD_NAMES {
        assert!(
            ConfigDefinition::broker().get(&key_of_field(field)).is_some(),
            "{field}"
        );
    }
    let config = KafkaConfig::development_defaults().unwrap();
    assert_eq!(config.node_id, 1);
    assert_eq!(config.num_partitions, 1);
}
