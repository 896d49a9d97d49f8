//! The settings that the group coordinator acts on, by their Kafka names.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use super::assignor::Assignor;
use crate::config::KafkaConfig;
use crate::record::Compression;

/// `group.consumer.migration.policy`: which way a group that is in use may change its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationPolicy {
    pub upgrade: bool,
    pub downgrade: bool,
}

impl MigrationPolicy {
    /// In any case of letters; what is unknown disables both.
    pub fn named(name: &str) -> Self {
        let name = name.to_lowercase();
        Self {
            upgrade: name == "bidirectional" || name == "upgrade",
            downgrade: name == "bidirectional" || name == "downgrade",
        }
    }

    pub fn is_disabled(self) -> bool {
        !self.upgrade && !self.downgrade
    }
}

/// What a group may have its own of, and the bounds that the brokers put on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounded {
    pub value_ms: i32,
    pub min_ms: i32,
    pub max_ms: i32,
}

impl Bounded {
    /// The group's own value within the bounds, or that of the brokers.
    pub fn or_own(self, own: Option<&String>) -> i64 {
        let own = own.and_then(|text| text.trim().parse::<i32>().ok());
        let own = own.map(|value| value.min(self.max_ms).max(self.min_ms));
        i64::from(own.unwrap_or(self.value_ms))
    }
}

/// The same with a value that the brokers may change while they run; copies change with it.
#[derive(Debug, Clone)]
pub struct Changeable {
    at_start: Bounded,
    value_ms: Arc<AtomicI32>,
}

impl Changeable {
    pub fn new(at_start: Bounded) -> Self {
        Self {
            value_ms: Arc::new(AtomicI32::new(at_start.value_ms)),
            at_start,
        }
    }

    pub fn set(&self, value_ms: i32) {
        self.value_ms.store(value_ms, Ordering::Relaxed);
    }

    pub fn now(&self) -> Bounded {
        Bounded {
            value_ms: self.value_ms.load(Ordering::Relaxed),
            ..self.at_start
        }
    }
}

#[derive(Debug, Clone)]
pub struct GroupConfig {
    pub group_min_session_timeout_ms: i32,
    pub group_max_session_timeout_ms: i32,
    pub group_initial_rebalance_delay_ms: i32,
    pub group_max_size: usize,
    pub consumer_group_max_size: usize,
    pub consumer_group_session_timeout: Bounded,
    pub consumer_group_heartbeat_interval: Bounded,
    pub consumer_group_assignment_interval: Changeable,
    pub consumer_group_regex_refresh_interval_ms: i64,
    /// The first one is for members that want none.
    pub consumer_group_assignors: Vec<Assignor>,
    pub consumer_group_migration_policy: MigrationPolicy,
    /// `consumer` is among `group.coordinator.rebalance.protocols`.
    pub serves_consumer_protocol: bool,
    pub offset_metadata_max_bytes: usize,
    pub offsets_retention_ms: i64,
    pub offsets_retention_check_interval_ms: i64,
    /// Also how long any operation may take to be committed.
    pub offsets_commit_timeout_ms: i32,
    pub offsets_load_buffer_size: usize,
    pub offsets_topic_num_partitions: i32,
    pub offsets_topic_compression: Compression,
}

/// A JoinGroup of a new member is given up after this long (`NEW_MEMBER_JOIN_TIMEOUT_MS`): its client knows no member id
/// yet, so it cannot heartbeat.
pub const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1000;

impl Default for GroupConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            group_min_session_timeout_ms: 6000,
            group_max_session_timeout_ms: 1_800_000,
            group_initial_rebalance_delay_ms: 3000,
            group_max_size: i32::MAX as usize,
            consumer_group_max_size: i32::MAX as usize,
            consumer_group_session_timeout: Bounded {
                value_ms: 45_000,
                min_ms: 45_000,
                max_ms: 60_000,
            },
            consumer_group_heartbeat_interval: Bounded {
                value_ms: 5000,
                min_ms: 5000,
                max_ms: 15_000,
            },
            consumer_group_assignment_interval: Changeable::new(Bounded {
                value_ms: 1000,
                min_ms: 0,
                max_ms: 15_000,
            }),
            consumer_group_regex_refresh_interval_ms: 600_000,
            consumer_group_assignors: vec![Assignor::Uniform, Assignor::Range],
            consumer_group_migration_policy: MigrationPolicy {
                upgrade: true,
                downgrade: true,
            },
            serves_consumer_protocol: true,
            offset_metadata_max_bytes: 4096,
            offsets_retention_ms: 7 * 24 * 3600 * 1000,
            offsets_retention_check_interval_ms: 600_000,
            offsets_commit_timeout_ms: 5000,
            offsets_load_buffer_size: 5 * 1024 * 1024,
            offsets_topic_num_partitions: 50,
            offsets_topic_compression: Compression::None,
        }
    }
}

impl GroupConfig {
    /// From the node's settings, which are in their valid ranges.
    pub fn new(config: &KafkaConfig) -> Self {
        let size = |value: i32| usize::try_from(value).unwrap_or(0);
        Self {
            group_min_session_timeout_ms: config.group_min_session_timeout_ms,
            group_max_session_timeout_ms: config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms,
            group_max_size: size(config.group_max_size),
            consumer_group_max_size: size(config.group_consumer_max_size),
            consumer_group_session_timeout: Bounded {
                value_ms: config.group_consumer_session_timeout_ms,
                min_ms: config.group_consumer_min_session_timeout_ms,
                max_ms: config.group_consumer_max_session_timeout_ms,
            },
            consumer_group_heartbeat_interval: Bounded {
                value_ms: config.group_consumer_heartbeat_interval_ms,
                min_ms: config.group_consumer_min_heartbeat_interval_ms,
                max_ms: config.group_consumer_max_heartbeat_interval_ms,
            },
            consumer_group_assignment_interval: Changeable::new(Bounded {
                value_ms: config.group_consumer_assignment_interval_ms,
                min_ms: config.group_consumer_min_assignment_interval_ms,
                max_ms: config.group_consumer_max_assignment_interval_ms,
            }),
            consumer_group_regex_refresh_interval_ms: i64::from(
                config.group_consumer_regex_refresh_interval_ms,
            ),
            consumer_group_assignors: assignors(&config.group_consumer_assignors),
            consumer_group_migration_policy: MigrationPolicy::named(&config.group_consumer_migration_policy),
            serves_consumer_protocol: config
                .group_coordinator_rebalance_protocols
                .iter()
                .any(|protocol| protocol.eq_ignore_ascii_case("consumer")),
            offset_metadata_max_bytes: size(config.offset_metadata_max_bytes),
            offsets_retention_ms: i64::from(config.offsets_retention_minutes) * 60 * 1000,
            offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms,
            offsets_commit_timeout_ms: config.offsets_commit_timeout_ms,
            offsets_load_buffer_size: size(config.offsets_load_buffer_size),
            offsets_topic_num_partitions: config.offsets_topic_num_partitions,
            offsets_topic_compression: match config.offsets_topic_compression_codec {
                1 => Compression::Gzip,
                2 => Compression::Snappy,
                3 => Compression::Lz4,
                4 => Compression::Zstd,
                _ => Compression::None,
            },
        }
    }
}

/// A class of somebody's own cannot be loaded; kavka says so at start.
fn assignors(names: &[String]) -> Vec<Assignor> {
    let known: Vec<Assignor> = names
        .iter()
        .filter_map(|name| Assignor::from_name(name))
        .collect();
    match known.is_empty() {
        true => vec![Assignor::Uniform],
        false => known,
    }
}
