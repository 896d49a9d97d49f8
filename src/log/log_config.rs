//! The settings of one log. (Until `config::topic_config::LogConfig` is there, which takes its place by this name.)

/// Field = the topic property with underscores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub segment_bytes: i32,
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub segment_index_bytes: i32,
    pub flush_messages: i64,
    pub flush_ms: i64,
    pub retention_bytes: i64,
    pub retention_ms: i64,
    pub max_message_bytes: i32,
    pub index_interval_bytes: i32,
    pub file_delete_delay_ms: i64,
    pub min_insync_replicas: i32,
    /// `cleanup.policy` holds `compact`.
    pub compact: bool,
    /// `cleanup.policy` holds `delete`.
    pub delete: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1024 * 1024 * 1024,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 * 1024 * 1024,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_bytes: -1,
            retention_ms: 7 * 24 * 3_600_000,
            max_message_bytes: 1024 * 1024 + 12,
            index_interval_bytes: 4096,
            file_delete_delay_ms: 60_000,
            min_insync_replicas: 1,
            compact: false,
            delete: true,
        }
    }
}
