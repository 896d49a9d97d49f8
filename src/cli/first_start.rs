//! A node that starts on empty log directories formats them itself, but only when it can be nothing but the whole quorum.
//!
//! Kafka never does so: a controller that lost its disk and forms a quorum of its own would lose the cluster's state. Here
//! that cannot happen, since there is no other controller that could know it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::KafkaConfig;
use crate::io::clock::{Clock, SystemClock};
use crate::io::disk::Disk;
use crate::log::meta_properties::{self, MetaPropertiesEnsemble};

use super::CliError;
use super::formatter::{self, FormatOptions, InitialControllers};

/// What to do with the log directories at start.
#[derive(Debug, PartialEq, Eq)]
enum FirstStart {
    /// They are formatted (all, or those that count): go on.
    Formatted,
    Format(InitialControllers),
    /// `kavka format` is needed; why.
    Refuse(String),
}

/// Formats the log directories if that is safe; refuses to go on if they are not formatted and it is not.
pub(super) fn format_if_safe(disk: &Arc<dyn Disk>, config: &KafkaConfig) -> Result<(), CliError> {
    let ensemble = MetaPropertiesEnsemble::load(&**disk, &config.log_dirs, &config.metadata_log_dir);
    let used = ensemble.unformatted.iter().find(|dir| is_used(&**disk, dir));
    match decide(config, &ensemble, used) {
        FirstStart::Formatted => Ok(()),
        FirstStart::Refuse(reason) => Err(CliError::new(reason)),
        FirstStart::Format(initial_controllers) => {
            let cluster_id =
                meta_properties::directory_id_text(meta_properties::generate_directory_id(super::random));
            let options = FormatOptions {
                cluster_id,
                initial_controllers,
                ..FormatOptions::default()
            };
            let now_ms = SystemClock::new().now_ms();
            let mut lines = Vec::new();
            formatter::format(disk, config, &options, now_ms, super::random, &mut lines)?;
            for line in String::from_utf8_lossy(&lines)
                .lines()
                .filter(|line| line.starts_with("Formatting"))
            {
                tracing::info!("{line}");
            }
            Ok(())
        }
    }
}

fn is_used(disk: &dyn Disk, dir: &Path) -> bool {
    // `lost+found` is a fresh file system's own.
    disk.list(dir)
        .is_ok_and(|entries| entries.iter().any(|(name, _)| name != Path::new("lost+found")))
}

/// The rule. `used` is an unformatted directory with something in it.
fn decide(config: &KafkaConfig, ensemble: &MetaPropertiesEnsemble, used: Option<&PathBuf>) -> FirstStart {
    if !ensemble.formatted.is_empty() || !ensemble.failed.is_empty() {
        // What is there decides; opening it says what is wrong with it.
        return FirstStart::Formatted;
    }
    let needs_format = |reason: String| {
        FirstStart::Refuse(format!(
            "No readable meta.properties files found: {reason}. Format the log directories with `kavka format`."
        ))
    };
    if let Some(dir) = used {
        return needs_format(format!(
            "{} is not empty, so it is not formatted by itself",
            dir.display()
        ));
    }
    if !(config.is_broker() && config.is_controller()) {
        return needs_format("only a node of both roles is formatted by itself".to_owned());
    }
    if let [voter] = config.controller_quorum_voters.as_slice()
        && voter.id == config.node_id
    {
        return FirstStart::Format(InitialControllers::NotGiven);
    }
    if !config.controller_quorum_voters.is_empty() {
        return needs_format("controller.quorum.voters names other nodes".to_owned());
    }
    if config.controller_quorum_auto_join_enable {
        return needs_format("controller.quorum.auto.join.enable is set".to_owned());
    }
    if names_only_itself(config) {
        FirstStart::Format(InitialControllers::Standalone)
    } else {
        needs_format(
            "controller.quorum.bootstrap.servers names more than this node's own controller listener"
                .to_owned(),
        )
    }
}

/// `controller.quorum.bootstrap.servers` holds one address, and it is what this node's controller listener advertises.
fn names_only_itself(config: &KafkaConfig) -> bool {
    let [(host, port)] = config.controller_quorum_bootstrap_servers.as_slice() else {
        return false;
    };
    config.advertised_controller_listeners.iter().any(|endpoint| {
        // A listener without a host is every interface, so also the loopback one.
        let is_host = endpoint.host == *host || (endpoint.host.is_empty() && is_loopback(host));
        is_host && endpoint.port == *port
    })
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
#[path = "first_start_test.rs"]
mod first_start_test;
