//! Builds and wires every component by `process.roles`; start and stop order.
//!
//! ```text
//! start   meta.properties -> listeners bound -> log dirs locked -> raft -> loader, controller -> registration
//!         -> first image published (logs loaded, partitions lead) -> unfenced -> requests are served
//! stop    controlled shutdown -> listeners closed -> coordinators, partitions -> logs flushed, checkpoints -> raft
//! ```
//!
//! The control plane (raft, loader, controller, heartbeats, timers) has threads of its own; requests run on the data plane's, so that
//! neither load nor a slow disk there delays a heartbeat. Bulky requests have a thread to themselves.

mod components;
mod dynamic_config;
mod fatal;
mod log_tasks;
mod registration;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{ConfigError, KafkaConfig};
use crate::io::clock::SystemClock;
use crate::io::disk::SystemDisk;
use crate::log::LogError;
use crate::log::meta_properties::MetaPropertiesError;
use crate::network::NetworkError;
use crate::network::descriptors::{self, DescriptorBudget};
use crate::raft::RaftError;

use components::{Components, Runtimes};
use fatal::Fatal;

/// Why a node does not start or ends by itself. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    MetaProperties(#[from] MetaPropertiesError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Raft(#[from] RaftError),
    #[error("cannot serve metrics on {address}: {source}")]
    Metrics { address: String, source: io::Error },
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: io::Error },
    #[error("{0}")]
    Unsupported(String),
    #[error("the node cannot go on: {0}")]
    Fatal(String),
}

/// Threads of the control plane: few, they only ever wait or decide.
const CONTROL_THREADS: usize = 3;
/// Requests of thousands of elements take turns on it, so that they hold no others up.
const BULK_THREADS: usize = 1;
/// Threads for work that may hang in a file, made when needed and ended when idle. `replica::disk_gate` takes up to 16 of
/// them for a directory whose disk stalls.
const BLOCKING_THREADS_MAX: usize = 128;

/// Runs a formatted node until SIGTERM or SIGINT; returns when it has shut down cleanly.
pub fn run(config: KafkaConfig) -> Result<(), ServerError> {
    refuse_what_is_not_served(&config)?;
    let descriptors = DescriptorBudget::of(descriptors::raise_soft_limit());
    let control = runtime("control", CONTROL_THREADS)?;
    let data = runtime("data", data_threads())?;
    let bulk = runtime("bulk", BULK_THREADS)?;
    let runtimes = Runtimes {
        control: &control,
        data: &data,
        bulk: &bulk,
    };
    let outcome = control.block_on(run_until_stopped(config, descriptors, runtimes));
    bulk.shutdown_background();
    data.shutdown_timeout(Duration::from_secs(5));
    control.shutdown_timeout(Duration::from_secs(5));
    outcome
}

async fn run_until_stopped(
    config: KafkaConfig,
    descriptors: DescriptorBudget,
    runtimes: Runtimes<'_>,
) -> Result<(), ServerError> {
    // Before anything else: a signal that comes during the start must not be lost.
    let system = |action| move |source| ServerError::System { action, source };
    let mut terminate = signal(SignalKind::terminate()).map_err(system("listen for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("listen for SIGINT"))?;
    let fatal = Fatal::new();
    let disk = Arc::new(SystemDisk::new());
    let clock = Arc::new(SystemClock::new());
    let components = Components::build(Arc::new(config), descriptors, disk, clock, runtimes, &fatal)?;
    let started = tokio::select! {
        outcome = components.start() => outcome,
        reason = fatal.reason() => Err(ServerError::Fatal(reason)),
        _ = terminate.recv() => return components.stop().await,
        _ = interrupt.recv() => return components.stop().await,
    };
    if let Err(error) = started {
        components.stop_after_failure().await;
        return Err(error);
    }
    tokio::select! {
        reason = fatal.reason() => {
            components.stop_after_failure().await;
            Err(ServerError::Fatal(reason))
        }
        _ = terminate.recv() => components.stop().await,
        _ = interrupt.recv() => components.stop().await,
    }
}

fn runtime(name: &'static str, threads: usize) -> Result<Runtime, ServerError> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(Duration::from_secs(2))
        .thread_name(format!("kavka-{name}"))
        .enable_all()
        .build()
        .map_err(|source| ServerError::System {
            action: "start its threads",
            source,
        })
}

/// One data worker a processor, and one that is never in a file (`replica::disk_gate`).
fn data_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) + 1
}

/// A configuration that this version would run wrongly does not start.
fn refuse_what_is_not_served(config: &KafkaConfig) -> Result<(), ServerError> {
    if !(config.is_broker() && config.is_controller()) {
        return Err(ServerError::Unsupported(
            "process.roles: expected broker,controller; nodes of one role are not supported yet".to_owned(),
        ));
    }
    if config.controller_quorum_voters.len() > 1 {
        return Err(ServerError::Unsupported(
            "controller.quorum.voters: expected this node alone; a quorum of several voters is not supported yet"
                .to_owned(),
        ));
    }
    Ok(())
}
