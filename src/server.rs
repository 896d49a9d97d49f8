//! Builds and wires every component by `process.roles`; start and stop order.

use crate::config::KafkaConfig;

/// Why a node did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{0}")]
    NotBuilt(&'static str),
}

/// Runs a node on formatted log directories until SIGTERM or SIGINT; returns when it has shut down.
pub fn run(config: KafkaConfig) -> Result<(), ServerError> {
    let _ = config;
    Err(ServerError::NotBuilt("this build has no server yet"))
}
