//! `kavka docker-run`: runs a node by environment variables, as the official apache/kafka image does, without a shell.
//!
//! A variable KAFKA_X_Y is the key `x.y`: `___` stands for `-`, `__` for `_`, `_` for `.`, and letters become small. With none of
//! them the image's default file is run (a node of both roles); a file mounted at /mnt/shared/config/server.properties is
//! read, and the variables go over it. CLUSTER_ID names the cluster of an empty log directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use crate::config::kafka_config::development_properties;
use crate::config::{Endpoint, KafkaConfig, properties};
use crate::io::clock::{Clock, SystemClock};
use crate::io::disk::{Disk, SystemDisk};
use crate::log::meta_properties::MetaPropertiesEnsemble;

use super::formatter::{self, FormatOptions, InitialControllers};
use super::{CliError, start};

/// The image's own cluster id, when CLUSTER_ID is not set.
const DEFAULT_CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";
const MOUNTED_PROPERTIES: &str = "/mnt/shared/config/server.properties";
/// Where the image keeps data: a volume.
const DATA_DIR: &str = "/var/lib/kafka/data";

/// Variables of the image's scripts and of the JVM: no keys.
const NOT_KEYS: &[&str] = &[
    "KAFKA_VERSION",
    "KAFKA_HEAP_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_OPTS",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_JMX_HOSTNAME",
    "KAFKA_JMX_OPTS",
    "KAFKA_JMX_PORT",
];

/// `kavka docker-run [NAME=VALUE]...`: arguments are variables too, as in the image.
pub(super) fn run(
    variables: impl Iterator<Item = (String, String)>,
    arguments: Vec<OsString>,
) -> Result<(), CliError> {
    let mut variables: BTreeMap<String, String> = variables.collect();
    for argument in arguments {
        let argument = argument.to_string_lossy().into_owned();
        let (name, value) = argument
            .split_once('=')
            .ok_or_else(|| CliError::new(format!("kavka docker-run: {argument}: expected NAME=VALUE")))?;
        variables.insert(name.to_owned(), value.to_owned());
    }
    let config = load(&variables)?;
    let cluster_id = variables
        .get("CLUSTER_ID")
        .filter(|id| !id.is_empty())
        .map_or(DEFAULT_CLUSTER_ID, String::as_str);
    format_empty(
        &(Arc::new(SystemDisk::new()) as Arc<dyn Disk>),
        &config,
        cluster_id,
    )?;
    start::run_config(config)
}

/// Where a health check finds the node that the process's variables, or the mounted file, describe.
pub(super) enum Health {
    Broker((String, u16)),
    Controller((String, u16)),
}

/// Without a word about listeners it is Kafka's default port: stray KAFKA_* variables outside of a container are no node.
pub(super) fn health_address(variables: impl Iterator<Item = (String, String)>) -> Result<Health, CliError> {
    let node = node_properties(mounted_properties()?, &variables.collect());
    if !node.contains_key("listeners") {
        return Ok(Health::Broker(("localhost".to_owned(), 9092)));
    }
    let config = KafkaConfig::from_properties(node).map_err(CliError::new)?;
    let own_address = |endpoint: &Endpoint| {
        let host = match endpoint.host.as_str() {
            "" | "0.0.0.0" | "::" => "localhost",
            host => host,
        };
        (host.to_owned(), endpoint.port)
    };
    match (
        config.broker_listeners().next(),
        config.controller_listeners().next(),
    ) {
        (Some(broker), _) => Ok(Health::Broker(own_address(broker))),
        (None, Some(controller)) => Ok(Health::Controller(own_address(controller))),
        (None, None) => Err(CliError::new("the node has no listener")),
    }
}

fn load(variables: &BTreeMap<String, String>) -> Result<KafkaConfig, CliError> {
    KafkaConfig::from_properties(node_properties(mounted_properties()?, variables)).map_err(CliError::new)
}

fn mounted_properties() -> Result<Option<BTreeMap<String, String>>, CliError> {
    let mounted = Path::new(MOUNTED_PROPERTIES);
    if !mounted.exists() {
        return Ok(None);
    }
    properties::read(mounted).map(Some).map_err(CliError::new)
}

/// The image formats empty directories at every start: whoever sets CLUSTER_ID has said which cluster it is.
fn format_empty(disk: &Arc<dyn Disk>, config: &KafkaConfig, cluster_id: &str) -> Result<(), CliError> {
    let ensemble = MetaPropertiesEnsemble::load(&**disk, &config.log_dirs, &config.metadata_log_dir);
    if !ensemble.formatted.is_empty() {
        return Ok(());
    }
    let is_static_or_broker = !config.controller_quorum_voters.is_empty() || !config.is_controller();
    let initial_controllers = match config.controller_quorum_bootstrap_servers.as_slice() {
        _ if is_static_or_broker => InitialControllers::NotGiven,
        [_one] => InitialControllers::Standalone,
        _ => InitialControllers::None,
    };
    let cluster_id = cluster_id.to_owned();
    let options = FormatOptions {
        cluster_id,
        initial_controllers,
        ..FormatOptions::default()
    };
    let mut out = std::io::stdout().lock();
    formatter::format(
        disk,
        config,
        &options,
        SystemClock::new().now_ms(),
        super::random,
        &mut out,
    )
}

/// The node's properties: a mounted file or the image's default, with the variables over it.
fn node_properties(
    mounted: Option<BTreeMap<String, String>>,
    variables: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let from_variables: BTreeMap<String, String> = variables
        .iter()
        .filter_map(|(name, value)| Some((key_of_variable(name)?, value.clone())))
        .collect();
    // As the image: once a variable is set, its default file is not used.
    let mut node = match mounted {
        Some(mounted) => mounted,
        None if from_variables.is_empty() => image_default(),
        None => BTreeMap::new(),
    };
    node.extend(from_variables);
    listen_where_advertised(&mut node);
    node.entry("log.dirs".to_owned())
        .or_insert_with(|| DATA_DIR.to_owned());
    node
}

/// As the image: a broker without listeners binds the ports that it advertises, on every interface.
fn listen_where_advertised(node: &mut BTreeMap<String, String>) {
    let is_controller_only = node
        .get("process.roles")
        .is_some_and(|roles| roles.trim() == "controller");
    if is_controller_only
        || node
            .get("listeners")
            .is_some_and(|listeners| !listeners.is_empty())
    {
        return;
    }
    let Some(advertised) = node
        .get("advertised.listeners")
        .filter(|advertised| !advertised.is_empty())
    else {
        return;
    };
    let listeners: Vec<String> = advertised
        .split(',')
        .map(
            |endpoint| match (endpoint.split_once("://"), endpoint.rsplit_once(':')) {
                (Some((name, _)), Some((_, port))) => format!("{name}://0.0.0.0:{port}"),
                _ => endpoint.to_owned(),
            },
        )
        .collect();
    node.insert("listeners".to_owned(), listeners.join(","));
}

/// The development node, reached from outside the container by a published port.
fn image_default() -> BTreeMap<String, String> {
    let mut node = development_properties();
    for (key, value) in [
        ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
        (
            "advertised.listeners",
            "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        ),
        ("log.dirs", DATA_DIR),
    ] {
        node.insert(key.to_owned(), value.to_owned());
    }
    node
}

/// The key that a variable names, if it names one.
fn key_of_variable(name: &str) -> Option<String> {
    let name = name
        .strip_prefix("KAFKA_")
        .filter(|_| !NOT_KEYS.contains(&name))?;
    if name.is_empty() {
        return None;
    }
    let mut key = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let underscores = rest.len() - rest.trim_start_matches('_').len();
        let (mark, used) = match underscores {
            0 => (first.to_ascii_lowercase(), first.len_utf8()),
            1 => ('.', 1),
            2 => ('_', 2),
            _ => ('-', 3),
        };
        key.push(mark);
        rest = &rest[used..];
    }
    Some(key)
}

#[cfg(test)]
mod docker_test {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn variables_mapped_to_keys_by_the_images_rules() {
        for (name, key) in [
            ("KAFKA_NODE_ID", Some("node.id")),
            ("KAFKA_CONTROLLER_QUORUM_VOTERS", Some("controller.quorum.voters")),
            ("KAFKA_X__Y", Some("x_y")),
            ("KAFKA_X___Y", Some("x-y")),
            (
                "KAFKA_LISTENER_NAME_MY___NET_SSL_KEY_PASSWORD",
                Some("listener.name.my-net.ssl.key.password"),
            ),
            ("KAFKA_A____B", Some("a-.b")),
            ("KAFKA_HEAP_OPTS", None),
            ("KAFKA_", None),
            ("PATH", None),
            ("CLUSTER_ID", None),
        ] {
            assert_eq!(key_of_variable(name).as_deref(), key, "{name}");
        }
    }

    #[test]
    fn no_variable_runs_the_images_default() {
        let config =
            KafkaConfig::from_properties(node_properties(None, &variables(&[("PATH", "/bin")]))).unwrap();
        assert!(config.is_broker() && config.is_controller());
        assert_eq!(config.log_dirs, [Path::new(DATA_DIR)]);
        assert_eq!(config.listeners[0].host, "");
        assert_eq!(config.advertised_broker_listeners[0].host, "localhost");
    }

    #[test]
    fn variables_replace_the_default_and_go_over_a_mounted_file() {
        let node = node_properties(None, &variables(&[("KAFKA_NODE_ID", "7")]));
        assert_eq!(node.get("node.id").map(String::as_str), Some("7"));
        assert!(!node.contains_key("listeners"), "the default file is not used");
        let mounted = variables(&[("node.id", "3"), ("log.dirs", "/data")]);
        let node = node_properties(Some(mounted), &variables(&[("KAFKA_NODE_ID", "7")]));
        assert_eq!(node, variables(&[("node.id", "7"), ("log.dirs", "/data")]));
    }

    #[test]
    fn broker_without_listeners_binds_what_it_advertises() {
        let node = node_properties(
            None,
            &variables(&[("KAFKA_ADVERTISED_LISTENERS", "A://h:1,B://[::1]:2")]),
        );
        assert_eq!(
            node.get("listeners").map(String::as_str),
            Some("A://0.0.0.0:1,B://0.0.0.0:2")
        );
        let both = [
            ("KAFKA_ADVERTISED_LISTENERS", "A://h:1"),
            ("KAFKA_LISTENERS", "A://:7"),
        ];
        assert_eq!(
            node_properties(None, &variables(&both))
                .get("listeners")
                .map(String::as_str),
            Some("A://:7")
        );
    }

    #[test]
    fn health_check_asks_where_the_variables_say() {
        let address = |pairs: &[(&str, &str)]| match health_address(variables(pairs).into_iter()).unwrap() {
            Health::Broker((host, port)) => format!("broker {host}:{port}"),
            Health::Controller((host, port)) => format!("controller {host}:{port}"),
        };
        assert_eq!(address(&[("PATH", "/bin")]), "broker localhost:9092");
        assert_eq!(address(&[("KAFKA_HOME", "/opt/kafka")]), "broker localhost:9092");
        let node = [
            ("KAFKA_NODE_ID", "1"),
            ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
            ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@kavka:9093"),
        ];
        let with = |more: &[(&'static str, &'static str)]| address(&[&node[..], more].concat());
        assert_eq!(
            with(&[
                ("KAFKA_PROCESS_ROLES", "broker,controller"),
                ("KAFKA_LISTENERS", "CONTROLLER://:9093,PLAINTEXT://kavka:19092"),
            ]),
            "broker kavka:19092"
        );
        assert_eq!(
            with(&[
                ("KAFKA_PROCESS_ROLES", "controller"),
                ("KAFKA_LISTENERS", "CONTROLLER://0.0.0.0:9093"),
            ]),
            "controller localhost:9093"
        );
    }

    #[test]
    fn cluster_of_the_images_documentation_starts() {
        let node = node_properties(
            None,
            &variables(&[
                ("KAFKA_NODE_ID", "1"),
                (
                    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
                    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
                ),
                (
                    "KAFKA_ADVERTISED_LISTENERS",
                    "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
                ),
                ("KAFKA_PROCESS_ROLES", "broker,controller"),
                ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1"),
                ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@broker:29093"),
                (
                    "KAFKA_LISTENERS",
                    "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
                ),
                ("KAFKA_INTER_BROKER_LISTENER_NAME", "PLAINTEXT"),
                ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
                ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
                ("KAFKA_LOG_DIRS", "/tmp/kraft-combined-logs"),
            ]),
        );
        let config = KafkaConfig::from_properties(node).unwrap();
        assert_eq!(config.group_initial_rebalance_delay_ms, 0);
        assert_eq!(config.advertised_broker_listeners.len(), 2);
    }
}
