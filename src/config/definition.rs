//! The table of every configuration key: `configs.tsv`, which holds what Apache Kafka 4.4 defines (scope, key, type, default,
//! valid values, internal, update mode), parsed once when first asked.
//!
//! A key, a default or a range is written nowhere else.

use std::collections::HashMap;
use std::sync::OnceLock;

static TABLE: &str = include_str!("configs.tsv");

/// The type of a configuration's value; the codes are those of DescribeConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigType {
    Boolean = 1,
    String = 2,
    Int = 3,
    Short = 4,
    Long = 5,
    Double = 6,
    List = 7,
    Class = 8,
    Password = 9,
}

/// When a broker's key can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    ReadOnly,
    PerBroker,
    ClusterWide,
    /// Not a broker's key: topics' and groups' can always be changed.
    Always,
}

/// What values of a key are valid, beyond its type.
#[derive(Debug, Clone, PartialEq)]
pub enum ValidValues {
    Any,
    NonNull,
    NonEmpty,
    Range {
        min: f64,
        max: Option<f64>,
    },
    /// gzip's levels: 1 to 9, or -1.
    GzipLevel,
    OneOf(Vec<&'static str>),
    OneOfIgnoringCase(Vec<&'static str>),
    /// `share.auto.offset.reset`.
    AutoOffsetReset,
    /// `leader.replication.throttled.replicas` and its sister.
    ThrottledReplicas,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigKey {
    pub name: &'static str,
    pub config_type: ConfigType,
    /// As text; `None` is null. Lists are comma separated.
    pub default: Option<&'static str>,
    pub is_required: bool,
    pub valid_values: ValidValues,
    pub is_internal: bool,
    pub update_mode: UpdateMode,
}

/// The keys of one scope, in the table's order.
#[derive(Debug, Default)]
pub struct ConfigDefinition {
    keys: Vec<ConfigKey>,
    by_name: HashMap<&'static str, usize>,
}

impl ConfigDefinition {
    /// The node's keys: `server.properties`.
    pub fn broker() -> &'static Self {
        &tables().broker
    }

    /// The node's keys that exist in the metadata log only: the rates of throttles (`QuotaConfig.brokerQuotaConfigs`).
    pub fn broker_dynamic_only() -> &'static Self {
        &tables().broker_dynamic_only
    }

    /// A topic's keys.
    pub fn topic() -> &'static Self {
        &tables().topic
    }

    /// A group's keys.
    pub fn group() -> &'static Self {
        &tables().group
    }

    pub fn get(&self, name: &str) -> Option<&ConfigKey> {
        self.by_name.get(name).map(|index| &self.keys[*index])
    }

    pub fn keys(&self) -> &[ConfigKey] {
        &self.keys
    }

    fn push(&mut self, key: ConfigKey) {
        self.by_name.insert(key.name, self.keys.len());
        self.keys.push(key);
    }
}

/// The node's keys that stand behind a topic's key, the first set one winning (`LogConfig.ALL_TOPIC_CONFIG_SYNONYMS`).
pub fn topic_synonyms(topic_key: &str) -> &'static [&'static str] {
    tables().synonyms.get(topic_key).map_or(&[], Vec::as_slice)
}

/// The one of [`topic_synonyms`] by whose name DescribeConfigs shows them (`LogConfig.TOPIC_CONFIG_SYNONYMS`).
pub fn topic_synonym(topic_key: &str) -> Option<&'static str> {
    topic_synonyms(topic_key).first().copied()
}

#[derive(Default)]
struct Tables {
    broker: ConfigDefinition,
    broker_dynamic_only: ConfigDefinition,
    topic: ConfigDefinition,
    group: ConfigDefinition,
    synonyms: HashMap<&'static str, Vec<&'static str>>,
}

fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let mut tables = Tables::default();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&'static str> = line.split('\t').collect();
            match columns.first().copied() {
                Some("broker") => tables.broker.push(parse_row(&columns)),
                Some("broker-dynamic") => tables.broker_dynamic_only.push(parse_row(&columns)),
                Some("topic") => tables.topic.push(parse_row(&columns)),
                Some("group") => tables.group.push(parse_row(&columns)),
                Some("synonyms") => {
                    tables
                        .synonyms
                        .insert(columns[1], columns[2].split_whitespace().collect());
                }
                _ => {}
            }
        }
        tables
    })
}

fn parse_row(columns: &[&'static str]) -> ConfigKey {
    let config_type = match columns[2] {
        "BOOLEAN" => ConfigType::Boolean,
        "STRING" => ConfigType::String,
        "INT" => ConfigType::Int,
        "SHORT" => ConfigType::Short,
        "LONG" => ConfigType::Long,
        "DOUBLE" => ConfigType::Double,
        "LIST" => ConfigType::List,
        "CLASS" => ConfigType::Class,
        "PASSWORD" => ConfigType::Password,
        other => panic!("configs.tsv: type {other}"),
    };
    let is_required = columns[3] == "(required)";
    let default = match columns[3] {
        "(required)" | "null" => None,
        list if config_type == ConfigType::List => Some(list.trim_start_matches('[').trim_end_matches(']')),
        other => Some(other),
    };
    ConfigKey {
        name: columns[1],
        config_type,
        default,
        is_required,
        valid_values: parse_valid_values(columns[4]),
        is_internal: columns[5] == "internal",
        update_mode: match columns[6] {
            "read-only" => UpdateMode::ReadOnly,
            "per-broker" => UpdateMode::PerBroker,
            "cluster-wide" => UpdateMode::ClusterWide,
            _ => UpdateMode::Always,
        },
    }
}

fn parse_valid_values(text: &'static str) -> ValidValues {
    let names = |text: &'static str| {
        text.trim_start_matches('[')
            .trim_end_matches(']')
            .split(", ")
            .collect::<Vec<&'static str>>()
    };
    match text {
        "" => ValidValues::Any,
        "non-null string" => ValidValues::NonNull,
        "non-empty string" | "non-empty list" => ValidValues::NonEmpty,
        "[1,...,9] or -1" => ValidValues::GzipLevel,
        text if text.starts_with("[latest, earliest, by_duration") => ValidValues::AutoOffsetReset,
        text if text.starts_with("[partitionId]") => ValidValues::ThrottledReplicas,
        text if text.starts_with("(case insensitive) ") => {
            ValidValues::OneOfIgnoringCase(names(&text["(case insensitive) ".len()..]))
        }
        text => match text
            .trim_start_matches('[')
            .trim_end_matches(']')
            .split_once(",...")
        {
            Some((min, max)) => ValidValues::Range {
                min: min
                    .parse()
                    .unwrap_or_else(|_| panic!("configs.tsv: range {text}")),
                max: max.strip_prefix(',').and_then(|max| max.parse().ok()),
            },
            None => ValidValues::OneOf(names(text)),
        },
    }
}

#[cfg(test)]
#[path = "definition_test.rs"]
mod definition_test;
