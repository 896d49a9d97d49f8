//! What DescribeConfigs says of a node's and a topic's configs: value, source and synonyms in Kafka's order.

use super::ConfigType;

/// Where a value comes from; the numbers are those of DescribeConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigSource {
    Unknown = 0,
    TopicConfig = 1,
    DynamicBrokerConfig = 2,
    DynamicDefaultBrokerConfig = 3,
    StaticBrokerConfig = 4,
    DefaultConfig = 5,
    DynamicBrokerLoggerConfig = 6,
    ClientMetricsConfig = 7,
    GroupConfig = 8,
}

/// One place where a config's value may come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    pub name: &'static str,
    /// `None` for null and for sensitive values.
    pub value: Option<String>,
    pub source: ConfigSource,
}

/// One config as DescribeConfigs shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedConfig {
    pub name: String,
    /// `None` for null and for sensitive values.
    pub value: Option<String>,
    pub read_only: bool,
    pub source: ConfigSource,
    pub is_sensitive: bool,
    /// Every source that has a value, the one in force first; the request decides whether to send them.
    pub synonyms: Vec<ConfigSynonym>,
    /// `None` when the key is unknown (type UNKNOWN, 0).
    pub config_type: Option<ConfigType>,
}

/// Every config of a node, in the table's order.
pub fn broker_configs(config: &super::KafkaConfig) -> Vec<DescribedConfig> {
    let _ = config;
    Vec::new()
}

/// Every config of a topic with these overrides on this node, in the table's order.
pub fn topic_configs(
    config: &super::KafkaConfig,
    overrides: &std::collections::BTreeMap<String, String>,
) -> Vec<DescribedConfig> {
    let _ = (config, overrides);
    Vec::new()
}
