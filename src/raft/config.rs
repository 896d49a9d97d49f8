//! How raft runs on this node, from the node's settings.

use uuid::Uuid;

use super::Endpoint;
use crate::config::KafkaConfig;
use crate::log::LogConfig;

/// Names are those of the properties.
#[derive(Debug, Clone)]
pub struct RaftConfig {
    pub node_id: i32,
    /// `directory.id` of the metadata log dir.
    pub directory_id: Uuid,
    pub cluster_id: String,
    /// Advertised controller listeners; empty on a node that is a broker only.
    pub listeners: Vec<Endpoint>,
    /// `controller.quorum.voters`; empty with a dynamic quorum.
    pub static_voters: Vec<(i32, Endpoint)>,
    pub election_timeout_ms: i64,
    pub fetch_timeout_ms: i64,
    pub election_backoff_max_ms: i64,
    pub metadata_max_retention_bytes: i64,
    pub metadata_max_retention_ms: i64,
}

impl RaftConfig {
    /// Kafka's defaults for all but who this node is.
    pub fn new(node_id: i32, directory_id: Uuid, cluster_id: impl Into<String>) -> Self {
        Self {
            node_id,
            directory_id,
            cluster_id: cluster_id.into(),
            listeners: Vec::new(),
            static_voters: Vec::new(),
            election_timeout_ms: 1000,
            fetch_timeout_ms: 2000,
            election_backoff_max_ms: 1000,
            metadata_max_retention_bytes: 100 * 1024 * 1024,
            metadata_max_retention_ms: 7 * 24 * 3_600_000,
        }
    }

    /// `directory_id` is that of `metadata_log_dir`.
    pub fn from_config(config: &KafkaConfig, directory_id: Uuid, cluster_id: impl Into<String>) -> Self {
        let endpoint = |name: &str, host: &str, port: u16| Endpoint {
            name: name.into(),
            host: host.into(),
            port,
        };
        // Static voters have no listener names of their own: the quorum's listener is the first controller listener.
        let quorum_listener = config.controller_listener_name();
        let listeners = config
            .advertised_controller_listeners
            .iter()
            .map(|listener| endpoint(&listener.listener_name, &listener.host, listener.port))
            .collect();
        let static_voters = config
            .controller_quorum_voters
            .iter()
            .map(|voter| (voter.id, endpoint(quorum_listener, &voter.host, voter.port)))
            .collect();
        Self {
            node_id: config.node_id,
            directory_id,
            cluster_id: cluster_id.into(),
            listeners,
            static_voters,
            election_timeout_ms: config.controller_quorum_election_timeout_ms.into(),
            fetch_timeout_ms: config.controller_quorum_fetch_timeout_ms.into(),
            election_backoff_max_ms: config.controller_quorum_election_backoff_max_ms.into(),
            metadata_max_retention_bytes: config.metadata_max_retention_bytes,
            metadata_max_retention_ms: config.metadata_max_retention_ms,
        }
    }
}

/// Settings of the metadata log itself: never cleaned by time or size, only behind a snapshot.
pub fn metadata_log_config(config: &KafkaConfig) -> LogConfig {
    LogConfig {
        max_message_bytes: config.internal_metadata_max_batch_size_in_bytes,
        segment_bytes: config
            .internal_metadata_log_segment_bytes
            .unwrap_or(config.metadata_log_segment_bytes),
        segment_ms: config.metadata_log_segment_ms,
        file_delete_delay_ms: config.internal_metadata_delete_delay_millis,
        retention_ms: -1,
        retention_bytes: -1,
        ..LogConfig::default()
    }
}

#[cfg(test)]
#[path = "config_test.rs"]
mod config_test;
