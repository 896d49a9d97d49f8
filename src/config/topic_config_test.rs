use super::*;

#[test]
fn defaults_of_a_node_that_sets_nothing_are_kafkas() {
    let config = KafkaConfig::development_defaults().unwrap();
    assert_eq!(config.log_config, LogConfig::kafka_defaults().unwrap());
}
