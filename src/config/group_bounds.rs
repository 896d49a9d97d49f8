//! What the keys of groups must be to each other (`GroupCoordinatorConfig`), and which assignors there are.

use super::ConfigError;

/// A key and the keys of its least and its largest value.
const RANGES: &[(&str, Option<&str>, &str)] = &[
    (
        "group.consumer.heartbeat.interval.ms",
        Some("group.consumer.min.heartbeat.interval.ms"),
        "group.consumer.max.heartbeat.interval.ms",
    ),
    (
        "group.consumer.session.timeout.ms",
        Some("group.consumer.min.session.timeout.ms"),
        "group.consumer.max.session.timeout.ms",
    ),
    (
        "group.consumer.assignment.interval.ms",
        Some("group.consumer.min.assignment.interval.ms"),
        "group.consumer.max.assignment.interval.ms",
    ),
    (
        "group.share.heartbeat.interval.ms",
        Some("group.share.min.heartbeat.interval.ms"),
        "group.share.max.heartbeat.interval.ms",
    ),
    (
        "group.share.session.timeout.ms",
        Some("group.share.min.session.timeout.ms"),
        "group.share.max.session.timeout.ms",
    ),
    (
        "group.streams.heartbeat.interval.ms",
        Some("group.streams.min.heartbeat.interval.ms"),
        "group.streams.max.heartbeat.interval.ms",
    ),
    (
        "group.streams.session.timeout.ms",
        Some("group.streams.min.session.timeout.ms"),
        "group.streams.max.session.timeout.ms",
    ),
    (
        "group.streams.num.standby.replicas",
        None,
        "group.streams.max.standby.replicas",
    ),
];

/// The names of assignors. What has a dot is a Java class: Kafka's own, or somebody's, which kavka cannot load and does without.
const ASSIGNORS: &[(&str, &[&str])] = &[
    ("group.consumer.assignors", &["range", "uniform"]),
    ("group.share.assignors", &["simple"]),
    ("group.streams.assignors", &["sticky"]),
];

/// `number` and `list` give the values of keys.
pub(super) fn check(
    number: impl Fn(&str) -> Result<i32, ConfigError>,
    list: impl Fn(&str) -> Result<Vec<String>, ConfigError>,
) -> Result<(), ConfigError> {
    for (key, least, largest) in RANGES {
        let value = number(key)?;
        if let Some(least) = least {
            at_least((largest, number(largest)?), (least, number(least)?))?;
            at_least((key, value), (least, number(least)?))?;
        }
        if value > number(largest)? {
            return Err(ConfigError::rule(format!(
                "{key} must be less than or equal to {largest}"
            )));
        }
    }
    for (key, known) in ASSIGNORS {
        let is_known = |entry: &String| entry.contains('.') || known.contains(&entry.as_str());
        if let Some(unknown) = list(key)?.iter().find(|entry| !is_known(entry)) {
            return Err(ConfigError::invalid(key, unknown, "Class cannot be found"));
        }
    }
    Ok(())
}

fn at_least((key, value): (&str, i32), (least_key, least): (&str, i32)) -> Result<(), ConfigError> {
    match value >= least {
        true => Ok(()),
        false => Err(ConfigError::rule(format!(
            "{key} must be greater than or equal to {least_key}"
        ))),
    }
}
