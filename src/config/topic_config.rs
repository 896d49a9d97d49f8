//! A topic's configs: Kafka's `LogConfig`, its defaults from the node's keys, and the checks of a topic's overrides.

use std::collections::BTreeMap;

use super::definition::{self, ConfigDefinition, ConfigKey};
use super::value::{self, ConfigValue, FromConfigValue};
use super::{ConfigError, KafkaConfig};

macro_rules! log_config {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $key:literal,)*) => {
        /// What one log does: the topic's overrides over the node's settings over Kafka's defaults.
        #[derive(Debug, Clone, PartialEq)]
        pub struct LogConfig {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl LogConfig {
            fn from_values(
                mut value: impl FnMut(&'static str) -> Result<ConfigValue, ConfigError>,
            ) -> Result<Self, ConfigError> {
                Ok(Self {
                    $($field: {
                        let value = value($key)?;
                        <$type>::from_config_value(&value)
                            .ok_or_else(|| ConfigError::invalid($key, format!("{value:?}"), "another type"))?
                    },)*
                })
            }
        }
    };
}

log_config! {
    cleanup_policy: Vec<String> = "cleanup.policy",
    compression_gzip_level: i32 = "compression.gzip.level",
    compression_lz4_level: i32 = "compression.lz4.level",
    /// `uncompressed`, `zstd`, `lz4`, `snappy`, `gzip` or `producer`.
    compression_type: String = "compression.type",
    compression_zstd_level: i32 = "compression.zstd.level",
    delete_retention_ms: i64 = "delete.retention.ms",
    file_delete_delay_ms: i64 = "file.delete.delay.ms",
    flush_messages: i64 = "flush.messages",
    flush_ms: i64 = "flush.ms",
    follower_replication_throttled_replicas: Vec<String> = "follower.replication.throttled.replicas",
    index_interval_bytes: i32 = "index.interval.bytes",
    /// Tests of Kafka's own set segments below 1 MiB by it.
    internal_segment_bytes: Option<i32> = "internal.segment.bytes",
    leader_replication_throttled_replicas: Vec<String> = "leader.replication.throttled.replicas",
    max_compaction_lag_ms: i64 = "max.compaction.lag.ms",
    max_decompressed_message_bytes: i32 = "max.decompressed.message.bytes",
    max_message_bytes: i32 = "max.message.bytes",
    message_timestamp_after_max_ms: i64 = "message.timestamp.after.max.ms",
    message_timestamp_before_max_ms: i64 = "message.timestamp.before.max.ms",
    /// `CreateTime` or `LogAppendTime`.
    message_timestamp_type: String = "message.timestamp.type",
    min_cleanable_dirty_ratio: f64 = "min.cleanable.dirty.ratio",
    min_compaction_lag_ms: i64 = "min.compaction.lag.ms",
    min_insync_replicas: i32 = "min.insync.replicas",
    preallocate: bool = "preallocate",
    retention_bytes: i64 = "retention.bytes",
    retention_ms: i64 = "retention.ms",
    segment_bytes: i32 = "segment.bytes",
    segment_index_bytes: i32 = "segment.index.bytes",
    segment_jitter_ms: i64 = "segment.jitter.ms",
    segment_ms: i64 = "segment.ms",
    unclean_leader_election_enable: bool = "unclean.leader.election.enable",
}

impl LogConfig {
    /// The topic's `overrides` (keys that Kafka does not know are skipped, as 4.4 does) over the node's settings.
    pub fn from_overrides(
        config: &KafkaConfig,
        overrides: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        Self::from_values(|name| value_in_force(config, overrides, topic_key(name)?))
    }

    /// Kafka's own defaults: a node that sets nothing.
    pub fn kafka_defaults() -> Result<Self, ConfigError> {
        Self::from_values(|name| value::default_of(topic_key(name)?))
    }

    /// The segment size in force: `internal.segment.bytes` wins.
    pub fn segment_size(&self) -> i32 {
        self.internal_segment_bytes.unwrap_or(self.segment_bytes)
    }

    pub fn is_compacted(&self) -> bool {
        self.cleanup_policy.iter().any(|policy| policy == "compact")
    }

    pub fn is_deleting(&self) -> bool {
        self.cleanup_policy.iter().any(|policy| policy == "delete")
    }

    /// A random share of `segment_jitter_ms`, by which a segment is rolled early; `random` is any number.
    pub fn random_segment_jitter(&self, random: u64) -> i64 {
        if self.segment_jitter_ms == 0 {
            return 0;
        }
        (random % self.segment_jitter_ms.min(self.segment_ms).unsigned_abs()) as i64
    }
}

impl Default for LogConfig {
    /// [`LogConfig::kafka_defaults`].
    fn default() -> Self {
        Self::kafka_defaults().unwrap_or_else(|error| panic!("configs.tsv: {error}"))
    }
}

fn topic_key(name: &str) -> Result<&'static ConfigKey, ConfigError> {
    ConfigDefinition::topic()
        .get(name)
        .ok_or_else(|| ConfigError::rule(format!("Unknown topic config name: {name}")))
}

/// The topic's own value of `key`, else the node's.
pub(super) fn value_in_force(
    config: &KafkaConfig,
    overrides: &BTreeMap<String, String>,
    key: &ConfigKey,
) -> Result<ConfigValue, ConfigError> {
    match overrides.get(key.name) {
        Some(text) => value::parse(key, text),
        None => default_on(config, key),
    }
}

/// What a topic that does not set `key` gets on this node: the first of the node's synonyms that is set, in the topic's unit.
fn default_on(config: &KafkaConfig, key: &ConfigKey) -> Result<ConfigValue, ConfigError> {
    for synonym in definition::topic_synonyms(key.name) {
        if let Some(text) = config.original(synonym) {
            return in_topic_unit(key, synonym, text);
        }
    }
    value::default_of(key)
}

/// The value of the node's `synonym` as one of the topic's `key`: hours and minutes become milliseconds.
pub(super) fn in_topic_unit(key: &ConfigKey, synonym: &str, text: &str) -> Result<ConfigValue, ConfigError> {
    let broker_key = ConfigDefinition::broker()
        .get(synonym)
        .ok_or_else(|| ConfigError::rule(format!("Unknown broker config name: {synonym}")))?;
    let milliseconds_in_unit: i64 = match synonym.rsplit('.').next() {
        Some("hours") => 3_600_000,
        Some("minutes") => 60_000,
        // A node's negative retention is none, whatever the number.
        _ if key.name == "retention.ms" => {
            return match value::parse(broker_key, text)? {
                ConfigValue::Long(number) => Ok(ConfigValue::Long(number.max(-1))),
                other => Ok(other),
            };
        }
        _ => return value::parse(key, text),
    };
    match value::parse(broker_key, text)? {
        ConfigValue::Int(number) if number < 0 && key.name == "retention.ms" => Ok(ConfigValue::Long(-1)),
        ConfigValue::Int(number) => Ok(ConfigValue::Long(i64::from(number) * milliseconds_in_unit)),
        other => Err(ConfigError::invalid(
            synonym,
            format!("{other:?}"),
            "Not a number of type INT",
        )),
    }
}

/// Checks a topic's complete overrides as the controller does, over what the node sets and after what the topic had; the
/// message is what the request is answered (INVALID_CONFIG).
pub fn validate_topic_config(
    config: &KafkaConfig,
    existing: &BTreeMap<String, String>,
    overrides: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    for name in overrides.keys() {
        topic_key(name)?;
    }
    for (name, text) in overrides {
        value::parse(topic_key(name)?, text)?;
    }
    let in_force = |name: &str| value_in_force(config, overrides, topic_key(name)?);
    let lags = (
        in_force("min.compaction.lag.ms")?,
        in_force("max.compaction.lag.ms")?,
    );
    if let (ConfigValue::Long(min), ConfigValue::Long(max)) = lags
        && min > max
    {
        return Err(ConfigError::rule(format!(
            "conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})"
        )));
    }
    check_remote_storage(existing, overrides)
}

/// Tiered storage is disabled on every node.
fn check_remote_storage(
    existing: &BTreeMap<String, String>,
    overrides: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    let is_true = |configs: &BTreeMap<String, String>, name: &str| {
        configs
            .get(name)
            .is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
    };
    const ENABLE: &str = "remote.storage.enable";
    if is_true(overrides, ENABLE) {
        return Err(ConfigError::rule(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
        ));
    }
    if is_true(existing, ENABLE) && !is_true(overrides, "remote.log.delete.on.disable") {
        return Err(ConfigError::rule(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and \
             turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to \
             disable remote storage and delete all remote data, please set \
             `remote.storage.enable=false,remote.log.delete.on.disable=true`.",
        ));
    }
    Ok(())
}

#[cfg(test)]
#[path = "topic_config_test.rs"]
mod topic_config_test;
