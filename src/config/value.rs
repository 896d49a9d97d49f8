//! A key's text to its typed value, with the checks and the messages of Kafka's `ConfigDef`.

use super::ConfigError;
use super::definition::{ConfigKey, ConfigType, ValidValues};

/// A typed value; `Null` is a key without default that is not set.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigValue {
    Null,
    Boolean(bool),
    Short(i16),
    Int(i32),
    Long(i64),
    Double(f64),
    /// Strings, classes and passwords.
    String(String),
    List(Vec<String>),
}

/// Parses and validates `text` as the value of `key`.
pub fn parse(key: &ConfigKey, text: &str) -> Result<ConfigValue, ConfigError> {
    let value = parse_type(key, text.trim())?;
    check_valid(key, &value)?;
    Ok(value)
}

/// The value of `key` when nobody sets it.
pub fn default_of(key: &ConfigKey) -> Result<ConfigValue, ConfigError> {
    match key.default {
        _ if key.is_required => Err(ConfigError::Missing {
            key: key.name.to_owned(),
        }),
        Some(text) => parse_type(key, text),
        None => Ok(ConfigValue::Null),
    }
}

/// Splits at commas, dropping the white space around them, as Kafka does: an empty text is an empty list.
pub fn split_list(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.is_empty() {
        Vec::new()
    } else {
        text.split(',').map(|part| part.trim().to_owned()).collect()
    }
}

/// Kafka keeps the first of equal entries.
fn drop_duplicates(entries: &mut Vec<String>) {
    let mut kept: Vec<String> = Vec::with_capacity(entries.len());
    for entry in entries.drain(..) {
        if !kept.contains(&entry) {
            kept.push(entry);
        }
    }
    *entries = kept;
}

fn parse_type(key: &ConfigKey, text: &str) -> Result<ConfigValue, ConfigError> {
    let not_a_number =
        |type_name: &str| ConfigError::invalid(key.name, text, format!("Not a number of type {type_name}"));
    match key.config_type {
        ConfigType::Boolean if text.eq_ignore_ascii_case("true") => Ok(ConfigValue::Boolean(true)),
        ConfigType::Boolean if text.eq_ignore_ascii_case("false") => Ok(ConfigValue::Boolean(false)),
        ConfigType::Boolean => Err(ConfigError::invalid(
            key.name,
            text,
            "Expected value to be either true or false",
        )),
        ConfigType::Short => text
            .parse()
            .map(ConfigValue::Short)
            .map_err(|_| not_a_number("SHORT")),
        ConfigType::Int => text
            .parse()
            .map(ConfigValue::Int)
            .map_err(|_| not_a_number("INT")),
        ConfigType::Long => text
            .parse()
            .map(ConfigValue::Long)
            .map_err(|_| not_a_number("LONG")),
        ConfigType::Double => text
            .parse()
            .map(ConfigValue::Double)
            .map_err(|_| not_a_number("DOUBLE")),
        ConfigType::String | ConfigType::Class | ConfigType::Password => {
            Ok(ConfigValue::String(text.to_owned()))
        }
        ConfigType::List => {
            let mut entries = split_list(text);
            if key.valid_values != ValidValues::ThrottledReplicas {
                drop_duplicates(&mut entries);
            }
            Ok(ConfigValue::List(entries))
        }
    }
}

fn check_valid(key: &ConfigKey, value: &ConfigValue) -> Result<(), ConfigError> {
    match (&key.valid_values, value) {
        (ValidValues::Range { min, max }, _) => check_range(key, value, *min, *max),
        (ValidValues::GzipLevel, ConfigValue::Int(level)) if *level != -1 && !(1..=9).contains(level) => Err(
            ConfigError::invalid(key.name, level, "Value must be between 1 and 9 or equal to -1"),
        ),
        (ValidValues::NonEmpty, ConfigValue::String(text)) if text.is_empty() => {
            Err(ConfigError::invalid(key.name, text, "String must be non-empty"))
        }
        (ValidValues::OneOf(names), ConfigValue::String(text)) if !names.contains(&text.as_str()) => {
            Err(ConfigError::invalid(
                key.name,
                text,
                format!("String must be one of: {}", names.join(", ")),
            ))
        }
        (ValidValues::OneOfIgnoringCase(names), ConfigValue::String(text))
            if !names.iter().any(|name| name.eq_ignore_ascii_case(text)) =>
        {
            let expected = format!("String must be one of (case insensitive): {}", names.join(", "));
            Err(ConfigError::invalid(key.name, text, expected))
        }
        (ValidValues::AutoOffsetReset, ConfigValue::String(text)) => check_auto_offset_reset(key, text),
        (ValidValues::ThrottledReplicas, ConfigValue::List(entries)) => {
            check_throttled_replicas(key, entries)
        }
        (_, ConfigValue::List(entries)) => check_list(key, entries),
        _ => Ok(()),
    }
}

fn check_range(key: &ConfigKey, value: &ConfigValue, min: f64, max: Option<f64>) -> Result<(), ConfigError> {
    // Every bound of the table is exact in a double, and so is the order of an i64 against it.
    let (number, text) = match value {
        ConfigValue::Short(number) => (f64::from(*number), number.to_string()),
        ConfigValue::Int(number) => (f64::from(*number), number.to_string()),
        ConfigValue::Long(number) => (*number as f64, number.to_string()),
        ConfigValue::Double(number) => (*number, java_double(*number)),
        ConfigValue::Null | ConfigValue::Boolean(_) | ConfigValue::String(_) | ConfigValue::List(_) => {
            return Ok(());
        }
    };
    if number < min {
        return Err(ConfigError::invalid(
            key.name,
            text,
            format!("Value must be at least {min}"),
        ));
    }
    match max {
        Some(max) if number > max => Err(ConfigError::invalid(
            key.name,
            text,
            format!("Value must be no more than {max}"),
        )),
        _ => Ok(()),
    }
}

/// Lists of which Kafka wants at least one entry, if they are set (its table of valid values does not show it).
const LISTS_THAT_MUST_NOT_BE_EMPTY: &[&str] = &[
    "advertised.listeners",
    "controller.listener.names",
    "group.consumer.assignors",
    "group.coordinator.rebalance.protocols",
    "group.share.assignors",
    "group.streams.assignors",
    "listeners",
    "log.dir",
    "log.dirs",
    "process.roles",
];

fn check_list(key: &ConfigKey, entries: &[String]) -> Result<(), ConfigError> {
    if entries.is_empty() && LISTS_THAT_MUST_NOT_BE_EMPTY.contains(&key.name) {
        let valid = match &key.valid_values {
            ValidValues::OneOf(names) => format!("[{}]", names.join(", ")),
            _ => "any non-empty value".to_owned(),
        };
        return Err(ConfigError::rule(format!(
            "Configuration '{}' must not be empty. Valid values include: {valid}",
            key.name
        )));
    }
    if entries.iter().any(String::is_empty) {
        return Err(ConfigError::rule(format!(
            "Configuration '{}' values must not be empty.",
            key.name
        )));
    }
    if let ValidValues::OneOf(names) = &key.valid_values
        && let Some(unknown) = entries.iter().find(|entry| !names.contains(&entry.as_str()))
    {
        let expected = format!("String must be one of: {}", names.join(", "));
        return Err(ConfigError::invalid(key.name, unknown, expected));
    }
    Ok(())
}

fn check_throttled_replicas(key: &ConfigKey, entries: &[String]) -> Result<(), ConfigError> {
    // Trailing empty entries are dropped before the check, as Java's `split` does.
    let is_replica = |entry: &str| {
        entry.split_once(':').is_some_and(|(partition, broker)| {
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number(partition) && is_number(broker)
        })
    };
    let filled = entries
        .iter()
        .rposition(|entry| !entry.is_empty())
        .map_or(0, |last| last + 1);
    let entries = &entries[..filled];
    if entries.is_empty() || entries[0] == "*" || entries.iter().all(|entry| is_replica(entry)) {
        return Ok(());
    }
    let expected = format!(
        "{} must be the literal '*' or a list of replicas in the following format: \
         [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        key.name
    );
    Err(ConfigError::invalid(
        key.name,
        format!("[{}]", entries.join(", ")),
        expected,
    ))
}

fn check_auto_offset_reset(key: &ConfigKey, text: &str) -> Result<(), ConfigError> {
    let is_duration = |text: &str| is_positive_iso_duration(text).unwrap_or(false);
    if text == "latest" || text == "earliest" || text.strip_prefix("by_duration:").is_some_and(is_duration) {
        return Ok(());
    }
    let expected = format!(
        "Invalid value `{text}` for configuration {}. The value must be either 'earliest', 'latest' or of the format \
         'by_duration:<PnDTnHnMn.nS>'.",
        key.name
    );
    Err(ConfigError::invalid(key.name, text, expected))
}

/// Whether `PnDTnHnMn.nS` (`java.time.Duration`) is not negative; `None`: it is no duration.
fn is_positive_iso_duration(text: &str) -> Option<bool> {
    let text = text.to_ascii_uppercase();
    let (is_negated, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest.to_owned()),
        None => (false, text.strip_prefix('+').unwrap_or(&text).to_owned()),
    };
    let text = text.strip_prefix('P')?;
    let (days, time) = match text.split_once('T') {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return None,
        None => (text, ""),
    };
    let mut total = 0.0;
    let mut parts = 0;
    for (part, units) in [(days, "D"), (time, "HMS")] {
        let mut rest = part;
        for unit in units.chars() {
            let Some((number, after)) = rest.split_once(unit) else {
                continue;
            };
            let seconds = match unit {
                'D' => 86_400.0,
                'H' => 3600.0,
                'M' => 60.0,
                _ => 1.0,
            };
            total += duration_number(number, unit == 'S')? * seconds;
            parts += 1;
            rest = after;
        }
        if !rest.is_empty() {
            return None;
        }
    }
    (parts > 0).then_some(if is_negated { total <= 0.0 } else { total >= 0.0 })
}

fn duration_number(text: &str, may_have_fraction: bool) -> Option<f64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_legal = match digits.split_once(['.', ',']) {
        Some((whole, fraction)) => {
            may_have_fraction
                && is_number(whole)
                && fraction.len() <= 9
                && (fraction.is_empty() || is_number(fraction))
        }
        None => is_number(digits),
    };
    is_legal.then(|| text.replace(',', ".").parse().ok())?
}

/// A double as Java prints it: at least one digit after the point, the exponent form from 10^7 on and below 10^-3.
pub fn java_double(number: f64) -> String {
    let magnitude = number.abs();
    if number == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{number:?}");
    }
    let text = format!("{number:E}");
    match text.split_once('E') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0E{exponent}"),
        _ => text,
    }
}

/// A typed field of [`super::KafkaConfig`] or [`super::LogConfig`].
pub trait FromConfigValue: Sized {
    /// `None` when the value is of another type, which is a mistake in the struct and caught by its test.
    fn from_config_value(value: &ConfigValue) -> Option<Self>;
}

macro_rules! from_config_value {
    ($type:ty, $variant:ident) => {
        impl FromConfigValue for $type {
            fn from_config_value(value: &ConfigValue) -> Option<Self> {
                match value {
                    ConfigValue::$variant(value) => Some(value.clone()),
                    _ => None,
                }
            }
        }
    };
}

from_config_value!(bool, Boolean);
from_config_value!(i16, Short);
from_config_value!(i32, Int);
from_config_value!(i64, Long);
from_config_value!(f64, Double);
from_config_value!(String, String);
from_config_value!(Vec<String>, List);

impl<T: FromConfigValue> FromConfigValue for Option<T> {
    fn from_config_value(value: &ConfigValue) -> Option<Self> {
        match value {
            ConfigValue::Null => Some(None),
            value => T::from_config_value(value).map(Some),
        }
    }
}

#[cfg(test)]
#[path = "value_test.rs"]
mod value_test;
