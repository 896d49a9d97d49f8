//! The settings that the transaction coordinator acts on.

use crate::config::KafkaConfig;

#[derive(Debug, Clone)]
pub struct TransactionConfig {
    pub max_timeout_ms: i32,
    pub transactional_id_expiration_ms: i64,
    pub abort_timed_out_interval_ms: u64,
    pub remove_expired_interval_ms: i64,
    /// How long an operation may take to be committed.
    pub write_timeout_ms: i64,
    pub load_buffer_bytes: usize,
}

impl Default for TransactionConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            max_timeout_ms: 15 * 60 * 1000,
            transactional_id_expiration_ms: 7 * 24 * 3600 * 1000,
            abort_timed_out_interval_ms: 10_000,
            remove_expired_interval_ms: 3600 * 1000,
            write_timeout_ms: 30_000,
            load_buffer_bytes: 5 * 1024 * 1024,
        }
    }
}

impl TransactionConfig {
    pub fn new(config: &KafkaConfig) -> Self {
        Self {
            max_timeout_ms: config.transaction_max_timeout_ms,
            transactional_id_expiration_ms: i64::from(config.transactional_id_expiration_ms),
            abort_timed_out_interval_ms: positive(
                config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            ),
            remove_expired_interval_ms: i64::from(
                config.transaction_remove_expired_transaction_cleanup_interval_ms,
            ),
            load_buffer_bytes: usize::try_from(config.transaction_state_log_load_buffer_size).unwrap_or(1),
            ..Self::default()
        }
    }
}

fn positive(value: i32) -> u64 {
    u64::try_from(value).unwrap_or(1)
}
