//! The configs of one group (`GroupConfig`): their checks, within the bounds that the node's `group.*` keys set. Pure.

use std::collections::BTreeMap;

use super::value::{self, ConfigValue};
use super::{ConfigDefinition, ConfigError, KafkaConfig};

/// A bound of a group's key by the node's keys.
enum Bound {
    Range(&'static str, &'static str),
    Max(&'static str),
    Min(&'static str),
}

/// In Kafka's order: the first that is broken is told.
const BOUNDS: &[(&str, Bound)] = &[
    (
        "consumer.heartbeat.interval.ms",
        Bound::Range(
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
    ),
    (
        "consumer.session.timeout.ms",
        Bound::Range(
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
        ),
    ),
    (
        "consumer.assignment.interval.ms",
        Bound::Range(
            "group.consumer.min.assignment.interval.ms",
            "group.consumer.max.assignment.interval.ms",
        ),
    ),
    (
        "share.heartbeat.interval.ms",
        Bound::Range(
            "group.share.min.heartbeat.interval.ms",
            "group.share.max.heartbeat.interval.ms",
        ),
    ),
    (
        "share.session.timeout.ms",
        Bound::Range(
            "group.share.min.session.timeout.ms",
            "group.share.max.session.timeout.ms",
        ),
    ),
    (
        "share.record.lock.duration.ms",
        Bound::Range(
            "group.share.min.record.lock.duration.ms",
            "group.share.max.record.lock.duration.ms",
        ),
    ),
    (
        "share.delivery.count.limit",
        Bound::Range(
            "group.share.min.delivery.count.limit",
            "group.share.max.delivery.count.limit",
        ),
    ),
    (
        "share.partition.max.record.locks",
        Bound::Range(
            "group.share.min.partition.max.record.locks",
            "group.share.max.partition.max.record.locks",
        ),
    ),
    (
        "share.assignment.interval.ms",
        Bound::Range(
            "group.share.min.assignment.interval.ms",
            "group.share.max.assignment.interval.ms",
        ),
    ),
    (
        "streams.heartbeat.interval.ms",
        Bound::Range(
            "group.streams.min.heartbeat.interval.ms",
            "group.streams.max.heartbeat.interval.ms",
        ),
    ),
    (
        "streams.session.timeout.ms",
        Bound::Range(
            "group.streams.min.session.timeout.ms",
            "group.streams.max.session.timeout.ms",
        ),
    ),
    (
        "streams.num.standby.replicas",
        Bound::Max("group.streams.max.standby.replicas"),
    ),
    (
        "streams.assignment.interval.ms",
        Bound::Range(
            "group.streams.min.assignment.interval.ms",
            "group.streams.max.assignment.interval.ms",
        ),
    ),
    (
        "streams.task.offset.interval.ms",
        Bound::Min("group.streams.min.task.offset.interval.ms"),
    ),
    (
        "streams.num.warmup.replicas",
        Bound::Max("group.streams.max.warmup.replicas"),
    ),
];

/// Checks a group's complete configs; the message is what the request is answered (INVALID_CONFIG).
pub fn validate_group_config(
    config: &KafkaConfig,
    settings: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    for name in settings.keys() {
        if ConfigDefinition::group().get(name).is_none() {
            return Err(ConfigError::rule(format!("Unknown group config name: {name}")));
        }
    }
    check_rack_aware_tags(settings)?;
    let mut parsed = BTreeMap::new();
    for key in ConfigDefinition::group().keys() {
        if let Some(text) = settings.get(key.name) {
            parsed.insert(key.name, value::parse(key, text)?);
        }
    }
    for (name, bound) in BOUNDS {
        if let Some(ConfigValue::Int(value)) = parsed.get(name) {
            check_bound(config, name, *value, bound)?;
        }
    }
    check_assignor(config, &parsed)?;
    for kind in ["consumer", "share", "streams"] {
        check_session_exceeds_heartbeat(config, &parsed, kind)?;
    }
    match parsed.get("errors.deadletterqueue.topic.name") {
        Some(ConfigValue::String(topic)) if topic.starts_with("__") => Err(ConfigError::rule(
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        )),
        _ => Ok(()),
    }
}

fn check_rack_aware_tags(settings: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    const KEY: &str = "streams.rack.aware.assignment.tags";
    let mut tags = settings
        .get(KEY)
        .map(|text| value::split_list(text))
        .unwrap_or_default();
    let all = tags.len();
    tags.sort_unstable();
    tags.dedup();
    match tags.len() == all {
        true => Ok(()),
        false => Err(ConfigError::rule(format!(
            "{KEY} must not contain duplicate tag keys."
        ))),
    }
}

fn node_number(config: &KafkaConfig, key: &str) -> i32 {
    let definition = ConfigDefinition::broker().get(key);
    let value = definition.and_then(|definition| match config.original(key) {
        Some(text) => value::parse(definition, text).ok(),
        None => value::default_of(definition).ok(),
    });
    match value {
        Some(ConfigValue::Int(value)) => value,
        // No such key: the table's test would fail.
        _ => 0,
    }
}

fn check_bound(config: &KafkaConfig, name: &str, value: i32, bound: &Bound) -> Result<(), ConfigError> {
    let broken = match bound {
        Bound::Range(min, max) => {
            let (min, max) = (node_number(config, min), node_number(config, max));
            (!(min..=max).contains(&value)).then(|| format!("in the range {min} to {max} inclusive."))
        }
        Bound::Max(max) => {
            let max = node_number(config, max);
            (value > max).then(|| format!("less than or equal to {max}"))
        }
        Bound::Min(min) => {
            let min = node_number(config, min);
            (value < min).then(|| format!("greater than or equal to {min}"))
        }
    };
    match broken {
        Some(expected) => Err(ConfigError::rule(format!("{name} must be {expected}"))),
        None => Ok(()),
    }
}

fn check_assignor(config: &KafkaConfig, parsed: &BTreeMap<&str, ConfigValue>) -> Result<(), ConfigError> {
    let Some(ConfigValue::String(name)) = parsed.get("streams.assignor.name") else {
        return Ok(());
    };
    let registered = config.original("group.streams.assignors").unwrap_or("sticky");
    let registered = value::split_list(registered);
    match registered.contains(name) {
        true => Ok(()),
        false => Err(ConfigError::rule(format!(
            "streams.assignor.name '{name}' is not a registered task assignor. Registered assignors are: [{}].",
            registered.join(", ")
        ))),
    }
}

fn check_session_exceeds_heartbeat(
    config: &KafkaConfig,
    parsed: &BTreeMap<&str, ConfigValue>,
    kind: &str,
) -> Result<(), ConfigError> {
    let (session, heartbeat) = (
        format!("{kind}.session.timeout.ms"),
        format!("{kind}.heartbeat.interval.ms"),
    );
    let own = |name: &str| match parsed.get(name) {
        Some(ConfigValue::Int(value)) => Some(*value),
        _ => None,
    };
    let in_force = |name: &str| own(name).unwrap_or_else(|| node_number(config, &format!("group.{name}")));
    let is_set = own(&session).is_some() || own(&heartbeat).is_some();
    match is_set && in_force(&session) <= in_force(&heartbeat) {
        true => Err(ConfigError::rule(format!(
            "{session} must be greater than {heartbeat}"
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
#[path = "group_config_test.rs"]
mod group_config_test;
