//! Changing a node's configs while it runs (`DynamicBrokerConfig`): which keys can be changed, for one broker or for the whole
//! cluster, and what a change has to satisfy. Pure.
//!
//! What a change asks for and kavka would have to neglect at a cost is refused here as it is at start.

use std::collections::BTreeMap;
use std::fmt;

use super::definition::{ConfigDefinition, ConfigKey, ConfigType, UpdateMode};
use super::java_order::sort_as_java_hash_map;
use super::value::{self, ConfigValue};
use super::{ConfigError, KafkaConfig, support};

/// Security configs that make sense for a listener only (`SslConfigs.RECONFIGURABLE_CONFIGS`).
const DYNAMIC_SECURITY_CONFIGS: &[&str] = &[
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

/// Keys that may be given for one listener and for the whole cluster.
const CLUSTER_LEVEL_LISTENER_CONFIGS: &[&str] = &[
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
];

/// Pools whose size may at most double and at least halve in one step.
const THREAD_POOLS: &[&str] = &[
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
];

/// A node's key, by its whole name or under a listener's prefix; keys that exist as dynamic ones only too.
fn dynamic_key(name: &str) -> Option<&'static ConfigKey> {
    support::base_key(name)
        .filter(|key| key.update_mode != UpdateMode::ReadOnly)
        .or_else(|| ConfigDefinition::broker_dynamic_only().get(name))
}

fn is_read_only(name: &str) -> bool {
    ConfigDefinition::broker()
        .get(name)
        .is_some_and(|key| key.update_mode == UpdateMode::ReadOnly)
}

fn is_per_broker(name: &str) -> bool {
    let by_itself = ConfigDefinition::broker().get(name);
    by_itself.is_some_and(|key| key.update_mode == UpdateMode::PerBroker)
        || support::without_listener_prefix(name)
            .is_some_and(|base| !CLUSTER_LEVEL_LISTENER_CONFIGS.contains(&base))
}

/// Checks the complete dynamic configs `proposed` of this broker (`for_one_broker`) or of the cluster's default, over what
/// `current` has of the other. The message is what the request is answered with.
pub fn validate_change(
    current: &KafkaConfig,
    proposed: &BTreeMap<String, String>,
    for_one_broker: bool,
) -> Result<(), ConfigError> {
    refuse_names(proposed, is_read_only, "Cannot update these configs dynamically")?;
    refuse_names(
        proposed,
        |name| DYNAMIC_SECURITY_CONFIGS.contains(&name),
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )?;
    for (name, text) in proposed {
        check_value(name, text)?;
    }
    if !for_one_broker {
        refuse_names(
            proposed,
            is_per_broker,
            "Cannot update these configs at default cluster level, broker id must be specified",
        )?;
    }
    support::refuse_unsupported_in(proposed)?;
    check_connection_overrides(proposed)?;
    if proposed.get("log.cleaner.threads").map(String::as_str) == Some("0") {
        // What Kafka says of a buffer for no thread.
        return Err(ConfigError::rule("/ by zero"));
    }
    let changed = match for_one_broker {
        true => current.with_dynamic(current.dynamic_default(), proposed),
        false => current.with_dynamic(proposed, current.dynamic_broker()),
    };
    check_reconfiguration(current, &changed?)
}

fn refuse_names(
    proposed: &BTreeMap<String, String>,
    is_refused: impl Fn(&str) -> bool,
    message: &str,
) -> Result<(), ConfigError> {
    let mut refused: Vec<&str> = proposed
        .keys()
        .map(String::as_str)
        .filter(|name| is_refused(name))
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    sort_as_java_hash_map(&mut refused, |name| name);
    Err(ConfigError::rule(format!("{message}: [{}]", refused.join(", "))))
}

/// Unknown keys are anyone's.
fn check_value(name: &str, text: &str) -> Result<ConfigValue, ConfigError> {
    match dynamic_key(name) {
        Some(key) => value::parse(key, text),
        None => Ok(ConfigValue::Null),
    }
}

fn check_connection_overrides(proposed: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    let text = proposed.get("max.connections.per.ip.overrides");
    for entry in text.map(|text| value::split_list(text)).unwrap_or_default() {
        let count = entry.rsplit_once(':').map_or("", |(_, count)| count);
        if count.trim().parse::<i32>().is_err() {
            return Err(ConfigError::rule(format!("For input string: \"{count}\"")));
        }
    }
    Ok(())
}

/// What the running parts of a node say of the new configuration.
fn check_reconfiguration(current: &KafkaConfig, changed: &KafkaConfig) -> Result<(), ConfigError> {
    let invalid = |message: String| {
        Err(ConfigError::rule(format!(
            "Invalid value org.apache.kafka.common.config.ConfigException: {message} for configuration Invalid dynamic \
             configuration"
        )))
    };
    if changed.listeners != current.listeners {
        return Err(ConfigError::Unsupported {
            key: "listeners".to_owned(),
            value: changed.original("listeners").unwrap_or_default().to_owned(),
            reason: "listeners are bound at start",
            expected: "change the file and restart the node",
        });
    }
    for key in THREAD_POOLS {
        let (before, after) = (number(current, key), number(changed, key));
        let failed = format!("Dynamic thread count update validation failed for {key}={after}");
        if after < before / 2 {
            return invalid(format!(
                "{failed}, value should be at least half the current value {before}"
            ));
        }
        if after > before.saturating_mul(2) {
            return invalid(format!(
                "{failed}, value should not be greater than double the current value {before}"
            ));
        }
    }
    let (before, after) = (current.log_cleaner_threads, changed.log_cleaner_threads);
    if after < before / 2 {
        return invalid(format!(
            "Log cleaner threads cannot be reduced to less than half the current value {before}"
        ));
    }
    if after > before.saturating_mul(2) {
        return invalid(format!(
            "Log cleaner threads cannot be increased to more than double the current value {before}"
        ));
    }
    Ok(())
}

fn number(config: &KafkaConfig, key: &str) -> i32 {
    match key {
        "num.io.threads" => config.num_io_threads,
        "num.network.threads" => config.num_network_threads,
        "num.replica.fetchers" => config.num_replica_fetchers,
        "num.recovery.threads.per.data.dir" => config.num_recovery_threads_per_data_dir,
        _ => config.background_threads,
    }
}

/// A stored dynamic config that does not count, and why. Its value is not told: it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub key: String,
    pub for_one_broker: bool,
    pub reason: String,
}

impl LeftOut {
    fn new(key: &str, for_one_broker: bool, reason: impl Into<String>) -> Self {
        Self {
            key: key.to_owned(),
            for_one_broker,
            reason: reason.into(),
        }
    }

    fn refused(key: &str, for_one_broker: bool, error: &ConfigError) -> Self {
        let is_public = dynamic_key(key).is_some_and(|key| key.config_type != ConfigType::Password);
        let reason = match error {
            _ if !is_public => "its value is refused".to_owned(),
            error => error.without_value(),
        };
        Self::new(key, for_one_broker, reason)
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.for_one_broker {
            true => "this broker",
            false => "the cluster",
        };
        write!(f, "{} of {level}: {}", self.key, self.reason)
    }
}

/// What of stored dynamic configs counts: a broker leaves out what it cannot take (`fromPersistentProps`).
pub fn usable(stored: &BTreeMap<String, String>, for_one_broker: bool) -> BTreeMap<String, String> {
    sorted_out(stored, for_one_broker, &mut Vec::new())
}

fn sorted_out(
    stored: &BTreeMap<String, String>,
    for_one_broker: bool,
    left_out: &mut Vec<LeftOut>,
) -> BTreeMap<String, String> {
    let mut usable = BTreeMap::new();
    for (name, text) in stored {
        match why_unusable(name, text, for_one_broker) {
            Some(reason) => left_out.push(reason),
            None => {
                usable.insert(name.clone(), text.clone());
            }
        }
    }
    usable
}

fn why_unusable(name: &str, text: &str, for_one_broker: bool) -> Option<LeftOut> {
    let left_out = |reason: &str| Some(LeftOut::new(name, for_one_broker, reason));
    if is_read_only(name) {
        return left_out("it cannot be changed while the node runs");
    }
    if DYNAMIC_SECURITY_CONFIGS.contains(&name) {
        return left_out("it can be changed for one listener only");
    }
    if !for_one_broker && is_per_broker(name) {
        return left_out("it can be changed for one broker only");
    }
    let error = check_value(name, text).err()?;
    Some(LeftOut::refused(name, for_one_broker, &error))
}

/// What is in force, and what is stored without being so.
#[derive(Debug)]
pub struct Effective {
    pub config: KafkaConfig,
    pub left_out: Vec<LeftOut>,
}

/// The node's file under the cluster's default and the broker's own configs of the metadata log. Where they do not make sense
/// together, as few as possible are left out: a limit does not go because of somebody else's bad value.
pub fn effective(
    file: &KafkaConfig,
    cluster_default: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> Effective {
    let mut left_out = Vec::new();
    let default = sorted_out(cluster_default, false, &mut left_out);
    let own = sorted_out(own, true, &mut left_out);
    let config = match file.with_dynamic(&default, &own) {
        Ok(config) => config,
        Err(_) => key_by_key(file, default, own, &mut left_out),
    };
    Effective { config, left_out }
}

/// Adds one key after the other, the cluster's first, and again those that did not fit until none fits: a key may need another.
fn key_by_key(
    file: &KafkaConfig,
    default: BTreeMap<String, String>,
    own: BTreeMap<String, String>,
    left_out: &mut Vec<LeftOut>,
) -> KafkaConfig {
    let of_cluster = default.into_iter().map(|(name, text)| (false, name, text));
    let of_broker = own.into_iter().map(|(name, text)| (true, name, text));
    let mut remaining: Vec<(bool, String, String)> = of_cluster.chain(of_broker).collect();
    let mut config = file.clone();
    loop {
        let before = remaining.len();
        let mut refused = Vec::new();
        remaining.retain(|(for_one_broker, name, text)| {
            let mut default = config.dynamic_default().clone();
            let mut own = config.dynamic_broker().clone();
            let level = match for_one_broker {
                true => &mut own,
                false => &mut default,
            };
            level.insert(name.clone(), text.clone());
            match file.with_dynamic(&default, &own) {
                Ok(fitting) => config = fitting,
                Err(error) => {
                    refused.push(LeftOut::refused(name, *for_one_broker, &error));
                    return true;
                }
            }
            false
        });
        if remaining.len() == before || remaining.is_empty() {
            left_out.append(&mut refused);
            return config;
        }
    }
}

/// Of what `now` shows, the keys by which the node does not act before it is started with them in its file.
pub fn waiting_for_restart(file: &KafkaConfig, now: &KafkaConfig) -> Vec<&'static str> {
    let mut waiting = Vec::new();
    if now.listeners != file.listeners {
        waiting.push("listeners");
    }
    if now.listener_security_protocol_map != file.listener_security_protocol_map {
        waiting.push("listener.security.protocol.map");
    }
    waiting
}

/// A change of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListChange {
    Append,
    Subtract,
}

/// The node's list `name` after a change of its value `current`, its default without one.
pub fn changed_list(
    current: Option<&String>,
    name: &str,
    change: ListChange,
    value: &str,
) -> Result<String, ConfigError> {
    let Some(key) = ConfigDefinition::broker().get(name) else {
        return Err(ConfigError::rule(format!("Unknown config name: {name}")));
    };
    if key.config_type != ConfigType::List {
        let change = match change {
            ListChange::Append => "append",
            ListChange::Subtract => "subtract",
        };
        return Err(ConfigError::rule(format!(
            "Config value {change} is not allowed for config key: {name}"
        )));
    }
    let current = current.map(String::as_str).or(key.default).unwrap_or_default();
    let mut entries: Vec<&str> = current.split(',').filter(|entry| !entry.is_empty()).collect();
    match change {
        ListChange::Append => {
            let added = value.split(',').filter(|entry| !entries.contains(entry));
            let added: Vec<&str> = added.collect();
            entries.extend(added);
        }
        ListChange::Subtract => {
            for entry in value.split(',') {
                if let Some(position) = entries.iter().position(|known| *known == entry) {
                    entries.remove(position);
                }
            }
        }
    }
    Ok(entries.join(","))
}

/// The text of a refused change, as Kafka answers it.
pub fn message_of(error: &ConfigError) -> String {
    match error {
        ConfigError::Requirement { message } => format!("requirement failed: {message}"),
        error => error.to_string(),
    }
}

#[cfg(test)]
#[path = "dynamic_config_test.rs"]
mod dynamic_config_test;
