//! Where log lines go: stdout, as Kafka's console appender; the level by KAVKA_LOG, RUST_LOG or (in the image) KAFKA_LOG4J_ROOT_LOGLEVEL, else info.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Sets up logging for a node. A second call does nothing.
pub(super) fn init() {
    let directives = ["KAVKA_LOG", "RUST_LOG", "KAFKA_LOG4J_ROOT_LOGLEVEL"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()))
        .unwrap_or_else(|| "info".to_owned());
    let filter = EnvFilter::try_new(&directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let is_first = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stdout().is_terminal())
        .with_target(false)
        .try_init()
        .is_ok();
    if is_first && EnvFilter::try_new(&directives).is_err() {
        tracing::warn!("Log level {directives} is not understood; using info.");
    }
}
