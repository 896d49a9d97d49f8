//! Where log lines go: stdout, as Kafka's console appender; the level by KAVKA_LOG, RUST_LOG or (in the image) KAFKA_LOG4J_ROOT_LOGLEVEL, else info.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::telemetry;

/// Sets up logging for a node. A second call does nothing.
pub(super) fn init() {
    let directives = ["KAVKA_LOG", "RUST_LOG", "KAFKA_LOG4J_ROOT_LOGLEVEL"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()))
        .unwrap_or_else(|| "info".to_owned());
    let filter = EnvFilter::try_new(&directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_filter_reloading()
        .with_ansi(std::io::stdout().is_terminal())
        // A line that nobody reads any more (`kavka | head`) is none to write on stderr, whose reader may be gone too: that
        // would be a panic of the thread that logs.
        .log_internal_errors(false)
        .with_target(false);
    let reload = builder.reload_handle();
    let is_first = builder.try_init().is_ok();
    if !is_first {
        return;
    }
    telemetry::install(&directives, move |filter| {
        // The subscriber is there as long as the process is.
        let _ = reload.reload(filter);
    });
    if EnvFilter::try_new(&directives).is_err() {
        tracing::warn!("Log level {directives} is not understood; using info.");
    }
}
