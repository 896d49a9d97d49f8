//! The configs of a subscription to clients' metrics (`ClientMetricsConfigs`, KIP-714): what they may be. Pure.

use std::collections::BTreeMap;

use super::ConfigError;
use super::definition::{ConfigKey, ConfigType, UpdateMode, ValidValues};
use super::value::{self, ConfigValue};

const fn key(name: &'static str, config_type: ConfigType, default: &'static str) -> ConfigKey {
    ConfigKey {
        name,
        config_type,
        default: Some(default),
        is_required: false,
        valid_values: ValidValues::Any,
        is_internal: false,
        update_mode: UpdateMode::Always,
    }
}

/// In the order of DescribeConfigs.
pub static KEYS: [ConfigKey; 3] = [
    key("interval.ms", ConfigType::Int, "300000"),
    key("match", ConfigType::List, ""),
    key("metrics", ConfigType::List, ""),
];

const INTERVAL_MS: std::ops::RangeInclusive<i32> = 100..=3_600_000;

/// What a client can be known by.
const MATCH_PARAMS: &[&str] = &[
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

/// Why a subscription is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientMetricsError {
    /// INVALID_REQUEST.
    #[error("{0}")]
    InvalidRequest(String),
    /// INVALID_CONFIG.
    #[error(transparent)]
    InvalidConfig(#[from] ConfigError),
}

/// Checks the complete configs of subscription `name`.
pub fn validate_client_metrics_config(
    name: &str,
    settings: &BTreeMap<String, String>,
) -> Result<(), ClientMetricsError> {
    let invalid = |message: String| Err(ClientMetricsError::InvalidRequest(message));
    if name.is_empty() {
        return invalid("Subscription name can't be empty".to_owned());
    }
    for name in settings.keys() {
        if !KEYS.iter().any(|key| key.name == name) {
            return invalid(format!("Unknown client metrics configuration: {name}"));
        }
    }
    for key in &KEYS {
        let Some(text) = settings.get(key.name) else {
            continue;
        };
        match value::parse(key, text)? {
            ConfigValue::Int(value) if !INTERVAL_MS.contains(&value) => {
                return invalid(format!(
                    "Invalid value {value} for {}, interval must be between {} and {} (1 hour)",
                    key.name,
                    INTERVAL_MS.start(),
                    INTERVAL_MS.end()
                ));
            }
            ConfigValue::List(patterns) if key.name == "match" => {
                for pattern in &patterns {
                    check_pattern(pattern)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_pattern(pattern: &str) -> Result<(), ConfigError> {
    // As Java's `split`: what is empty at the end does not count.
    let mut parts: Vec<&str> = pattern.split('=').collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    let is_legal =
        parts.len() == 2 && MATCH_PARAMS.contains(&parts[0].trim()) && is_java_regex(parts[1].trim());
    match is_legal {
        true => Ok(()),
        false => Err(ConfigError::rule(format!(
            "Illegal client matching pattern: {pattern}"
        ))),
    }
}

/// Whether Java compiles `pattern`, as far as its structure tells: classes and groups are closed, every quantifier has
/// something to repeat, no escape is left open.
fn is_java_regex(pattern: &str) -> bool {
    let (mut groups, mut classes) = (0_usize, 0_usize);
    let mut can_repeat = false;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                if characters.next().is_none() {
                    return false;
                }
                can_repeat = true;
            }
            '[' => {
                classes += 1;
                // A bracket that comes first is one of the class.
                let _ = characters.next_if_eq(&'^');
                let _ = characters.next_if_eq(&']');
            }
            ']' if classes > 0 => {
                classes -= 1;
                can_repeat = true;
            }
            _ if classes > 0 => {}
            '(' => {
                groups += 1;
                can_repeat = false;
                let _ = characters.next_if_eq(&'?');
            }
            ')' => {
                if groups == 0 {
                    return false;
                }
                groups -= 1;
                can_repeat = true;
            }
            '*' | '+' | '?' => {
                if !can_repeat {
                    return false;
                }
                // Reluctant or possessive.
                let _ = characters.next_if(|next| matches!(next, '?' | '+'));
                can_repeat = false;
            }
            '|' => can_repeat = false,
            _ => can_repeat = true,
        }
    }
    groups == 0 && classes == 0
}

#[cfg(test)]
#[path = "client_metrics_config_test.rs"]
mod client_metrics_config_test;
