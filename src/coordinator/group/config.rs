//! The settings that the group coordinator acts on, by their Kafka names.

use crate::config::KafkaConfig;
use crate::record::Compression;

#[derive(Debug, Clone)]
pub struct GroupConfig {
    pub group_min_session_timeout_ms: i32,
    pub group_max_session_timeout_ms: i32,
    pub group_initial_rebalance_delay_ms: i32,
    pub group_max_size: usize,
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
