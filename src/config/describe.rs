//! What DescribeConfigs says of a node's and a topic's configs: value, source and synonyms in Kafka's order (`ConfigHelper`).

use std::collections::BTreeMap;

use super::definition::{self, ConfigKey, UpdateMode};
use super::value::{self, ConfigValue};
use super::{ConfigDefinition, ConfigError, ConfigType, KafkaConfig, support, topic_config};

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
    pub name: String,
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

/// Every config of a node: the table's keys but the internal ones, then what the file sets beyond the table (hidden, since
/// nobody knows what it is).
pub fn broker_configs(config: &KafkaConfig) -> Result<Vec<DescribedConfig>, ConfigError> {
    let mut described = Vec::with_capacity(ConfigDefinition::broker().keys().len());
    for key in ConfigDefinition::broker()
        .keys()
        .iter()
        .filter(|key| !key.is_internal)
    {
        let value = match config.original(key.name) {
            Some(text) => value::parse(key, text)?,
            None => value::default_of(key)?,
        };
        described.push(broker_config(
            config,
            key.name,
            Some(key),
            to_text(&value),
            |_| true,
        ));
    }
    let is_beyond = |name: &str| {
        ConfigDefinition::broker()
            .get(name)
            .is_none_or(|definition| definition.is_internal)
    };
    let sources = [
        config.dynamic_broker(),
        config.dynamic_default(),
        config.file_properties(),
    ];
    let mut beyond: BTreeMap<&String, &String> = BTreeMap::new();
    for (name, text) in sources.into_iter().flatten().filter(|(name, _)| is_beyond(name)) {
        beyond.entry(name).or_insert(text);
    }
    for (name, text) in beyond {
        let key = described_key(name);
        described.push(broker_config(config, name, key, Some(text.clone()), |_| true));
    }
    Ok(described)
}

/// The resource BROKER with an empty name: what is set for every broker of the cluster.
pub fn default_broker_configs(config: &KafkaConfig) -> Vec<DescribedConfig> {
    let is_default = |synonym: &ConfigSynonym| synonym.source == ConfigSource::DynamicDefaultBrokerConfig;
    config
        .dynamic_default()
        .iter()
        .map(|(name, text)| broker_config(config, name, described_key(name), Some(text.clone()), is_default))
        .collect()
}

/// Every config of a topic with these overrides on this node, in the table's order.
pub fn topic_configs(
    config: &KafkaConfig,
    overrides: &BTreeMap<String, String>,
) -> Result<Vec<DescribedConfig>, ConfigError> {
    ConfigDefinition::topic()
        .keys()
        .iter()
        .filter(|key| !key.is_internal)
        .map(|key| {
            let mut synonyms = match definition::topic_synonym(key.name) {
                Some(synonym) => synonyms_of(config, synonym, false),
                None => Vec::new(),
            };
            let in_force = to_text(&topic_config::value_in_force(config, overrides, key)?);
            if overrides.contains_key(key.name) {
                let value = in_force.clone();
                let source = ConfigSource::TopicConfig;
                synonyms.insert(
                    0,
                    ConfigSynonym {
                        name: key.name.to_owned(),
                        value,
                        source,
                    },
                );
            }
            Ok(DescribedConfig {
                name: key.name.to_owned(),
                value: in_force,
                read_only: false,
                source: synonyms
                    .first()
                    .map_or(ConfigSource::DefaultConfig, |synonym| synonym.source),
                is_sensitive: false,
                synonyms,
                config_type: Some(key.config_type),
            })
        })
        .collect()
}

/// Every config of a group: its own over the nodes' `group.*` keys, with all their sources, over the defaults.
pub fn group_configs(config: &KafkaConfig, overrides: &BTreeMap<String, String>) -> Vec<DescribedConfig> {
    let shown = ConfigDefinition::group()
        .keys()
        .iter()
        .filter(|key| !key.is_internal);
    let described = shown.map(|key| {
        let mut synonyms = group_synonyms(config, key);
        if let Some(value) = overrides.get(key.name) {
            let own = ConfigSynonym {
                name: key.name.to_owned(),
                value: Some(value.clone()),
                source: ConfigSource::GroupConfig,
            };
            synonyms.insert(0, own);
        }
        let first = synonyms.first();
        DescribedConfig {
            name: key.name.to_owned(),
            value: first.and_then(|first| first.value.clone()),
            read_only: false,
            source: first.map_or(ConfigSource::DefaultConfig, |first| first.source),
            is_sensitive: false,
            config_type: Some(key.config_type),
            synonyms,
        }
    });
    described.collect()
}

/// What the nodes say of a group's key.
fn group_synonyms(config: &KafkaConfig, key: &ConfigKey) -> Vec<ConfigSynonym> {
    let broker_key = match key.name {
        "streams.assignor.name" => "group.streams.assignors".to_owned(),
        name => format!("group.{name}"),
    };
    if ConfigDefinition::broker().get(&broker_key).is_some() {
        return synonyms_of(config, &broker_key, false);
    }
    vec![ConfigSynonym {
        name: key.name.to_owned(),
        value: key.default.map(str::to_owned),
        source: ConfigSource::DefaultConfig,
    }]
}

/// A value as Kafka writes it: lists joined by commas without spaces; `None` is null.
pub fn to_text(value: &ConfigValue) -> Option<String> {
    match value {
        ConfigValue::Null => None,
        ConfigValue::Boolean(value) => Some(value.to_string()),
        ConfigValue::Short(value) => Some(value.to_string()),
        ConfigValue::Int(value) => Some(value.to_string()),
        ConfigValue::Long(value) => Some(value.to_string()),
        ConfigValue::Double(value) => Some(value::java_double(*value)),
        ConfigValue::String(value) => Some(value.clone()),
        ConfigValue::List(value) => Some(value.join(",")),
    }
}

fn described_key(name: &str) -> Option<&'static ConfigKey> {
    support::base_key(name).or_else(|| ConfigDefinition::broker_dynamic_only().get(name))
}

fn broker_config(
    config: &KafkaConfig,
    name: &str,
    key: Option<&ConfigKey>,
    value: Option<String>,
    is_shown: impl Fn(&ConfigSynonym) -> bool,
) -> DescribedConfig {
    // A key that nobody knows may hold a secret.
    let is_sensitive = key.is_none_or(|key| key.config_type == ConfigType::Password);
    let mut synonyms = synonyms_of(config, name, is_sensitive);
    synonyms.retain(is_shown);
    DescribedConfig {
        name: name.to_owned(),
        value: value.filter(|_| !is_sensitive),
        // Under a listener's prefix too, although it can be changed there.
        read_only: key.is_none_or(|key| key.update_mode == UpdateMode::ReadOnly || key.name != name),
        source: synonyms
            .first()
            .map_or(ConfigSource::DefaultConfig, |synonym| synonym.source),
        is_sensitive,
        synonyms,
        config_type: key.map(|key| key.config_type),
    }
}

/// Every place that gives `name` or one of its synonyms a value; those before the first that gives `name` itself are left out,
/// as Kafka does (so `log.retention.ms` shows nothing of `log.retention.hours`).
fn synonyms_of(config: &KafkaConfig, name: &str, is_sensitive: bool) -> Vec<ConfigSynonym> {
    let names = broker_synonyms(name);
    let mut synonyms = Vec::new();
    for (source, values) in [
        (ConfigSource::DynamicBrokerConfig, config.dynamic_broker()),
        (ConfigSource::DynamicDefaultBrokerConfig, config.dynamic_default()),
        (ConfigSource::StaticBrokerConfig, config.file_properties()),
    ] {
        for name in &names {
            if let Some(text) = values.get(*name) {
                let value = Some(text.clone()).filter(|_| !is_sensitive);
                synonyms.push(ConfigSynonym {
                    name: (*name).to_owned(),
                    value,
                    source,
                });
            }
        }
    }
    for name in &names {
        let default = ConfigDefinition::broker()
            .get(name)
            .and_then(|key| value::default_of(key).ok());
        if let Some(text) = default.as_ref().and_then(to_text) {
            let source = ConfigSource::DefaultConfig;
            let value = Some(text).filter(|_| !is_sensitive);
            synonyms.push(ConfigSynonym {
                name: (*name).to_owned(),
                value,
                source,
            });
        }
    }
    let first = synonyms
        .iter()
        .position(|synonym| synonym.name == name)
        .unwrap_or(synonyms.len());
    synonyms.split_off(first)
}

/// `DynamicBrokerConfig.brokerConfigSynonyms`.
fn broker_synonyms(name: &str) -> Vec<&str> {
    const FAMILIES: &[&[&str]] = &[
        &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
        &["log.roll.ms", "log.roll.hours"],
        &["log.roll.jitter.ms", "log.roll.jitter.hours"],
    ];
    if let Some(family) = FAMILIES.iter().find(|family| family.contains(&name)) {
        return family.to_vec();
    }
    if name == "log.flush.interval.ms" {
        return vec![name, "log.flush.scheduler.interval.ms"];
    }
    match support::without_listener_prefix(name) {
        Some(base) => vec![name, base],
        None => vec![name],
    }
}

#[cfg(test)]
#[path = "describe_test.rs"]
mod describe_test;
