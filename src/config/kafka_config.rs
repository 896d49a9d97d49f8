//! What a node was told, typed and checked as a whole: Kafka's `KafkaConfig`.
//!
//! A value of this type has passed every check that Kafka makes at start, and asks for nothing that kavka would have to
//! neglect at the cost of security, durability or visibility. Sources are kept for DescribeConfigs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::listeners::{self, Endpoint, QuorumVoter, SecurityProtocol, SecurityProtocolMap};
use super::value::{self, ConfigValue, FromConfigValue};
use super::{ConfigDefinition, ConfigError, LogConfig, properties, support};

/// A role of `process.roles`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessRole {
    Broker,
    Controller,
}

macro_rules! typed_fields {
    ($($field:ident: $type:ty,)*) => {
        /// The node's configuration. A plain field is named by its key, with `_` for `.`.
        #[derive(Clone, PartialEq)]
        pub struct KafkaConfig {
            $(pub $field: $type,)*
            /// Sorted, each once.
            pub process_roles: Vec<ProcessRole>,
            /// What is bound, controller listeners too.
            pub listeners: Vec<Endpoint>,
            /// What a broker registers; see [`listeners::resolve_advertised`].
            pub advertised_broker_listeners: Vec<Endpoint>,
            /// What a controller registers; with static voters the address they name for this node.
            pub advertised_controller_listeners: Vec<Endpoint>,
            /// Upper case.
            pub controller_listener_names: Vec<String>,
            /// Upper case.
            pub inter_broker_listener_name: String,
            pub listener_security_protocol_map: SecurityProtocolMap,
            pub controller_quorum_voters: Vec<QuorumVoter>,
            pub controller_quorum_bootstrap_servers: Vec<(String, u16)>,
            /// `log.dirs`, else `log.dir`; each once.
            pub log_dirs: Vec<PathBuf>,
            /// `metadata.log.dir`, else the first of `log_dirs`.
            pub metadata_log_dir: PathBuf,
            /// Defaults of topics.
            pub log_config: LogConfig,
            sources: Sources,
        }

        /// Names of the plain fields.
        #[cfg(test)]
        pub(super) const FIELD_NAMES: &[&str] = &[$(stringify!($field),)*];

        struct Plain {
            $($field: $type,)*
        }

        impl Plain {
            fn from_sources(sources: &Sources) -> Result<Self, ConfigError> {
                Ok(Self { $($field: sources.typed(&key_of_field(stringify!($field)))?,)* })
            }

            fn into_config(self, derived: Derived, log_config: LogConfig, sources: Sources) -> KafkaConfig {
                KafkaConfig {
                    $($field: self.$field,)*
                    process_roles: derived.process_roles,
                    listeners: derived.listeners,
                    advertised_broker_listeners: derived.advertised_broker_listeners,
                    advertised_controller_listeners: derived.advertised_controller_listeners,
                    controller_listener_names: derived.controller_listener_names,
                    inter_broker_listener_name: derived.inter_broker_listener_name,
                    listener_security_protocol_map: derived.listener_security_protocol_map,
                    controller_quorum_voters: derived.controller_quorum_voters,
                    controller_quorum_bootstrap_servers: derived.controller_quorum_bootstrap_servers,
                    log_dirs: derived.log_dirs,
                    metadata_log_dir: derived.metadata_log_dir,
                    log_config,
                    sources,
                }
            }
        }
    };
}

typed_fields! {
    node_id: i32,
    broker_rack: Option<String>,
    add_partitions_to_txn_retry_backoff_max_ms: i32,
    add_partitions_to_txn_retry_backoff_ms: i32,
    auto_create_topics_enable: bool,
    auto_leader_rebalance_enable: bool,
    background_threads: i32,
    broker_heartbeat_interval_ms: i32,
    broker_session_timeout_ms: i32,
    compression_type: String,
    connections_max_idle_ms: i64,
    controlled_shutdown_enable: bool,
    controller_quorum_append_linger_ms: i32,
    controller_quorum_auto_join_enable: bool,
    controller_quorum_election_backoff_max_ms: i32,
    controller_quorum_election_timeout_ms: i32,
    controller_quorum_fetch_max_bytes: i32,
    controller_quorum_fetch_snapshot_max_bytes: i32,
    controller_quorum_fetch_timeout_ms: i32,
    controller_quorum_request_timeout_ms: i32,
    controller_quorum_retry_backoff_ms: i32,
    controller_socket_timeout_ms: i32,
    default_replication_factor: i32,
    delete_topic_enable: bool,
    fetch_max_bytes: i32,
    group_consumer_assignment_interval_ms: i32,
    group_consumer_assignors: Vec<String>,
    group_consumer_heartbeat_interval_ms: i32,
    group_consumer_max_assignment_interval_ms: i32,
    group_consumer_max_heartbeat_interval_ms: i32,
    group_consumer_max_session_timeout_ms: i32,
    group_consumer_max_size: i32,
    group_consumer_migration_policy: String,
    group_consumer_min_assignment_interval_ms: i32,
    group_consumer_min_heartbeat_interval_ms: i32,
    group_consumer_min_session_timeout_ms: i32,
    group_consumer_regex_refresh_interval_ms: i32,
    group_consumer_session_timeout_ms: i32,
    group_coordinator_rebalance_protocols: Vec<String>,
    group_initial_rebalance_delay_ms: i32,
    group_max_session_timeout_ms: i32,
    group_max_size: i32,
    group_min_session_timeout_ms: i32,
    initial_broker_registration_timeout_ms: i32,
    internal_metadata_delete_delay_millis: i64,
    internal_metadata_log_segment_bytes: Option<i32>,
    internal_metadata_max_batch_size_in_bytes: i32,
    kavka_log_min_free_bytes: i64,
    kavka_log_scrub_interval_ms: i64,
    kavka_log_scrub_io_max_bytes_per_second: i64,
    kavka_metadata_log_reserve_bytes: i64,
    kavka_metrics_listener: Option<String>,
    leader_imbalance_check_interval_seconds: i64,
    log_cleaner_backoff_ms: i64,
    log_cleaner_dedupe_buffer_size: i64,
    log_cleaner_enable: bool,
    log_cleaner_io_buffer_load_factor: f64,
    log_cleaner_io_buffer_size: i32,
    log_cleaner_io_max_bytes_per_second: f64,
    log_cleaner_threads: i32,
    log_dir_failure_timeout_ms: i64,
    log_flush_offset_checkpoint_interval_ms: i32,
    log_flush_scheduler_interval_ms: i64,
    log_flush_start_offset_checkpoint_interval_ms: i32,
    log_initial_task_delay_ms: i64,
    log_retention_check_interval_ms: i64,
    log_segment_delete_delay_ms: i64,
    max_connections: i32,
    max_connections_per_ip: i32,
    max_connections_per_ip_overrides: String,
    max_incremental_fetch_session_cache_slots: i32,
    max_request_partition_size_limit: i32,
    message_max_bytes: i32,
    metadata_log_max_record_bytes_between_snapshots: i64,
    metadata_log_max_snapshot_interval_ms: i64,
    metadata_log_segment_bytes: i32,
    metadata_log_segment_ms: i64,
    metadata_max_idle_interval_ms: i32,
    metadata_max_retention_bytes: i64,
    metadata_max_retention_ms: i64,
    min_insync_replicas: i32,
    num_io_threads: i32,
    num_network_threads: i32,
    num_partitions: i32,
    num_recovery_threads_per_data_dir: i32,
    num_replica_alter_log_dirs_threads: Option<i32>,
    num_replica_fetchers: i32,
    offset_metadata_max_bytes: i32,
    offsets_commit_timeout_ms: i32,
    offsets_load_buffer_size: i32,
    offsets_retention_check_interval_ms: i64,
    offsets_retention_minutes: i32,
    offsets_topic_compression_codec: i32,
    offsets_topic_num_partitions: i32,
    offsets_topic_replication_factor: i16,
    offsets_topic_segment_bytes: i32,
    producer_id_expiration_check_interval_ms: i32,
    producer_id_expiration_ms: i32,
    queued_max_request_bytes: i64,
    queued_max_requests: i32,
    replica_fetch_backoff_ms: i32,
    replica_fetch_max_bytes: i32,
    replica_fetch_min_bytes: i32,
    replica_fetch_response_max_bytes: i32,
    replica_fetch_wait_max_ms: i32,
    replica_high_watermark_checkpoint_interval_ms: i64,
    replica_lag_time_max_ms: i64,
    replica_socket_receive_buffer_bytes: i32,
    replica_socket_timeout_ms: i32,
    request_timeout_ms: i32,
    server_max_startup_time_ms: i64,
    share_coordinator_state_topic_min_isr: i16,
    share_coordinator_state_topic_num_partitions: i32,
    share_coordinator_state_topic_replication_factor: i16,
    share_coordinator_state_topic_segment_bytes: i32,
    socket_listen_backlog_size: i32,
    socket_receive_buffer_bytes: i32,
    socket_request_max_bytes: i32,
    socket_send_buffer_bytes: i32,
    transaction_abort_timed_out_transaction_cleanup_interval_ms: i32,
    transaction_max_timeout_ms: i32,
    transaction_partition_verification_enable: bool,
    transaction_remove_expired_transaction_cleanup_interval_ms: i32,
    transaction_state_log_load_buffer_size: i32,
    transaction_state_log_min_isr: i32,
    transaction_state_log_num_partitions: i32,
    transaction_state_log_replication_factor: i16,
    transaction_state_log_segment_bytes: i32,
    transactional_id_expiration_ms: i32,
    unclean_leader_election_enable: bool,
    unclean_leader_election_interval_ms: i64,
}

impl std::fmt::Debug for KafkaConfig {
    /// Values may be secrets: only what the node is.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("KafkaConfig")
            .field("node_id", &self.node_id)
            .field("process_roles", &self.process_roles)
            .field("listeners", &self.listeners)
            .field("log_dirs", &self.log_dirs)
            .finish_non_exhaustive()
    }
}

/// The key of a plain field.
pub(super) fn key_of_field(field: &str) -> String {
    field.replace('_', ".")
}

/// The texts as they were given, by where they were given.
#[derive(Clone, PartialEq, Default)]
struct Sources {
    file: BTreeMap<String, String>,
    /// The cluster's default of brokers, from the metadata log.
    dynamic_default: BTreeMap<String, String>,
    /// This broker's own, from the metadata log.
    dynamic_broker: BTreeMap<String, String>,
}

impl Sources {
    fn get(&self, key: &str) -> Option<&str> {
        [&self.dynamic_broker, &self.dynamic_default, &self.file]
            .into_iter()
            .find_map(|source| source.get(key))
            .map(String::as_str)
    }

    fn value(&self, key: &str) -> Result<ConfigValue, ConfigError> {
        let definition = ConfigDefinition::broker()
            .get(key)
            .ok_or_else(|| ConfigError::rule(format!("Unknown broker config name: {key}")))?;
        match self.get(key) {
            Some(text) => value::parse(definition, text),
            None => value::default_of(definition),
        }
    }

    fn typed<T: FromConfigValue>(&self, key: &str) -> Result<T, ConfigError> {
        let value = self.value(key)?;
        T::from_config_value(&value)
            .ok_or_else(|| ConfigError::invalid(key, format!("{value:?}"), "a value of another type"))
    }
}

impl KafkaConfig {
    /// Reads `path` (none: [`development_properties`]) with `overrides` over it, and checks all of it.
    pub fn load(path: Option<&Path>, overrides: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut properties = match path {
            Some(path) => properties::read(path)?,
            None => development_properties(),
        };
        properties.extend(overrides.iter().cloned());
        Self::from_properties(properties)
    }

    /// `kavka` without a file: one node of both roles on localhost.
    pub fn development_defaults() -> Result<Self, ConfigError> {
        Self::from_properties(development_properties())
    }

    /// The development defaults with `log.dirs` and more set: a node for tests. Ports of 0 are fine.
    pub fn development_with(overrides: &[(&str, &str)]) -> Result<Self, ConfigError> {
        let mut properties = development_properties();
        properties.extend(
            overrides
                .iter()
                .map(|(key, text)| ((*key).to_owned(), (*text).to_owned())),
        );
        Self::from_properties(properties)
    }

    /// Checks `properties` as Kafka does at start.
    pub fn from_properties(properties: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let mut sources = Sources {
            file: properties,
            ..Sources::default()
        };
        adopt_broker_id(&mut sources)?;
        Self::from_sources(sources)
    }

    /// This configuration under the dynamic ones of the metadata log; a broker takes what it can and leaves bad values.
    pub fn with_dynamic(
        &self,
        dynamic_default: &BTreeMap<String, String>,
        dynamic_broker: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        Self::from_sources(Sources {
            file: self.sources.file.clone(),
            dynamic_default: dynamic_default.clone(),
            dynamic_broker: dynamic_broker.clone(),
        })
    }

    fn from_sources(sources: Sources) -> Result<Self, ConfigError> {
        for (name, text) in &sources.file {
            if let Some(key) = ConfigDefinition::broker().get(name) {
                value::parse(key, text)?;
            }
        }
        let plain = Plain::from_sources(&sources)?;
        let derived = Derived::from_sources(&sources, plain.node_id)?;
        // Topics' defaults need a config to ask; only `original` is used of it.
        let partial = plain.into_config(derived, LogConfig::kafka_defaults()?, sources);
        let log_config = LogConfig::from_overrides(&partial, &BTreeMap::new())?;
        let config = Self {
            log_config,
            ..partial
        };
        config.check()?;
        support::refuse_unsupported(&config)?;
        Ok(config)
    }

    /// The text set for `key`, the dynamic ones first; `None` when it has its default.
    pub fn original(&self, key: &str) -> Option<&str> {
        self.sources.get(key)
    }

    /// Everything the file and the command line set.
    pub fn file_properties(&self) -> &BTreeMap<String, String> {
        &self.sources.file
    }

    pub fn dynamic_default(&self) -> &BTreeMap<String, String> {
        &self.sources.dynamic_default
    }

    pub fn dynamic_broker(&self) -> &BTreeMap<String, String> {
        &self.sources.dynamic_broker
    }

    pub fn is_broker(&self) -> bool {
        self.process_roles.contains(&ProcessRole::Broker)
    }

    pub fn is_controller(&self) -> bool {
        self.process_roles.contains(&ProcessRole::Controller)
    }

    /// Bound listeners that serve clients and brokers.
    pub fn broker_listeners(&self) -> impl Iterator<Item = &Endpoint> {
        self.listeners
            .iter()
            .filter(|endpoint| !self.controller_listener_names.contains(&endpoint.listener_name))
    }

    /// Bound listeners that serve the quorum.
    pub fn controller_listeners(&self) -> impl Iterator<Item = &Endpoint> {
        self.listeners
            .iter()
            .filter(|endpoint| self.controller_listener_names.contains(&endpoint.listener_name))
    }

    /// The listener by which this node reaches controllers: the first of `controller.listener.names`.
    pub fn controller_listener_name(&self) -> &str {
        self.controller_listener_names.first().map_or("", String::as_str)
    }

    /// What to say once at start: known keys that kavka does not act on, unknown keys, doubtful values.
    pub fn warnings(&self) -> Vec<String> {
        support::warnings(self)
    }
}

/// What `kavka` without a file runs: a node of both roles that only this machine can reach.
pub fn development_properties() -> BTreeMap<String, String> {
    [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.quorum.bootstrap.servers", "localhost:9093"),
        (
            "listeners",
            "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        ),
        ("controller.listener.names", "CONTROLLER"),
        ("log.dirs", "./kavka-data"),
        ("offsets.topic.replication.factor", "1"),
        ("transaction.state.log.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
    ]
    .into_iter()
    .map(|(key, text)| (key.to_owned(), text.to_owned()))
    .collect()
}

/// `node.id` may be given by its old name; both must then agree, and both are shown.
fn adopt_broker_id(sources: &mut Sources) -> Result<(), ConfigError> {
    let (node_id, broker_id) = (sources.file.get("node.id"), sources.file.get("broker.id"));
    match (node_id, broker_id) {
        (Some(node_id), Some(broker_id)) if node_id.trim() != broker_id.trim() => Err(ConfigError::rule(
            "`node.id` and `broker.id` must be set to the same value. `broker.id` is deprecated, please use \
             `node.id` instead.",
        )),
        (None, None) => Ok(()),
        (Some(id), _) | (None, Some(id)) => {
            let id = id.clone();
            sources.file.insert("node.id".to_owned(), id.clone());
            sources.file.insert("broker.id".to_owned(), id);
            Ok(())
        }
    }
}

/// The fields that are made of several keys.
struct Derived {
    process_roles: Vec<ProcessRole>,
    listeners: Vec<Endpoint>,
    advertised_broker_listeners: Vec<Endpoint>,
    advertised_controller_listeners: Vec<Endpoint>,
    controller_listener_names: Vec<String>,
    inter_broker_listener_name: String,
    listener_security_protocol_map: SecurityProtocolMap,
    controller_quorum_voters: Vec<QuorumVoter>,
    controller_quorum_bootstrap_servers: Vec<(String, u16)>,
    log_dirs: Vec<PathBuf>,
    metadata_log_dir: PathBuf,
}

impl Derived {
    fn from_sources(sources: &Sources, node_id: i32) -> Result<Self, ConfigError> {
        let process_roles = process_roles(sources)?;
        let mut controller_listener_names: Vec<String> =
            upper_case(&sources.typed::<Vec<String>>("controller.listener.names")?);
        let mut seen = Vec::new();
        controller_listener_names.retain(|name| {
            let is_new = !seen.contains(name);
            seen.push(name.clone());
            is_new
        });
        let map = security_protocol_map(sources, &controller_listener_names)?;
        let listeners =
            listeners::parse_endpoints("listeners", &sources.typed::<Vec<String>>("listeners")?, &map)?;
        listeners::require_different_ports("listeners", &listeners)?;
        let voters =
            listeners::parse_quorum_voters(&sources.typed::<Vec<String>>("controller.quorum.voters")?)?;
        let bootstrap_servers = listeners::parse_bootstrap_servers(
            &sources.typed::<Vec<String>>("controller.quorum.bootstrap.servers")?,
        )?;

        let explicit = match sources.typed::<Option<Vec<String>>>("advertised.listeners")? {
            Some(entries) => Some(listeners::parse_endpoints(
                "advertised.listeners",
                &entries,
                &map,
            )?),
            None => None,
        };
        let is_controllers =
            |endpoint: &Endpoint| controller_listener_names.contains(&endpoint.listener_name);
        let advertised_broker_listeners = explicit
            .as_ref()
            .unwrap_or(&listeners)
            .iter()
            .filter(|endpoint| !is_controllers(endpoint))
            .cloned()
            .collect();
        let own_voter = voters.iter().find(|voter| voter.id == node_id);
        let advertised_controller_listeners = if process_roles.contains(&ProcessRole::Controller) {
            advertised_controllers(
                &listeners,
                explicit.as_deref(),
                &controller_listener_names,
                own_voter,
            )
        } else {
            Vec::new()
        };

        let log_dirs = log_dirs(sources)?;
        let metadata_log_dir = sources
            .typed::<Option<String>>("metadata.log.dir")?
            .map_or_else(|| log_dirs.first().cloned().unwrap_or_default(), PathBuf::from);
        Ok(Self {
            process_roles,
            listeners,
            advertised_broker_listeners,
            advertised_controller_listeners,
            inter_broker_listener_name: inter_broker_listener_name(sources, &map)?,
            controller_listener_names,
            listener_security_protocol_map: map,
            controller_quorum_voters: voters,
            controller_quorum_bootstrap_servers: bootstrap_servers,
            log_dirs,
            metadata_log_dir,
        })
    }
}

fn process_roles(sources: &Sources) -> Result<Vec<ProcessRole>, ConfigError> {
    let mut roles: Vec<ProcessRole> = sources
        .typed::<Vec<String>>("process.roles")?
        .iter()
        .map(|role| {
            if role == "broker" {
                ProcessRole::Broker
            } else {
                ProcessRole::Controller
            }
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    Ok(roles)
}

/// In order of preference: what `advertised.listeners` says of it, the address that the static voters name (for the first
/// controller listener), the listener itself.
fn advertised_controllers(
    listeners: &[Endpoint],
    explicit: Option<&[Endpoint]>,
    controller_listener_names: &[String],
    own_voter: Option<&QuorumVoter>,
) -> Vec<Endpoint> {
    let bound = |name: &String| listeners.iter().find(|endpoint| endpoint.listener_name == *name);
    let advertised = |name: &String| {
        explicit.and_then(|explicit| explicit.iter().find(|endpoint| endpoint.listener_name == *name))
    };
    controller_listener_names
        .iter()
        .enumerate()
        .filter_map(|(index, name)| {
            if let Some(endpoint) = advertised(name) {
                return Some(endpoint.clone());
            }
            let mut endpoint = bound(name)?.clone();
            if let (0, Some(voter)) = (index, own_voter) {
                endpoint.host.clone_from(&voter.host);
                endpoint.port = voter.port;
            }
            Some(endpoint)
        })
        .collect()
}

/// The map in force: unless one is set, each controller listener that is no protocol's name is PLAINTEXT when nothing
/// else than PLAINTEXT is in use.
fn security_protocol_map(
    sources: &Sources,
    controller_listener_names: &[String],
) -> Result<SecurityProtocolMap, ConfigError> {
    const KEY: &str = "listener.security.protocol.map";
    let mut map = listeners::parse_security_protocol_map(&value::split_list(&sources.typed::<String>(KEY)?))?;
    if sources.get(KEY).is_some() {
        return Ok(map);
    }
    let entries: Vec<String> = sources.typed("listeners")?;
    let uses_only_plaintext = entries.iter().all(|entry| {
        let name = entry.split("://").next().unwrap_or_default().to_uppercase();
        controller_listener_names.contains(&name) || name == "PLAINTEXT" || !map.contains_key(&name)
    });
    let protocol: String = sources.typed("security.inter.broker.protocol")?;
    if uses_only_plaintext && protocol == "PLAINTEXT" {
        for name in controller_listener_names {
            map.entry(name.clone()).or_insert(SecurityProtocol::Plaintext);
        }
    }
    Ok(map)
}

fn inter_broker_listener_name(sources: &Sources, map: &SecurityProtocolMap) -> Result<String, ConfigError> {
    let name: Option<String> = sources.typed("inter.broker.listener.name")?;
    match name {
        Some(_) if sources.get("security.inter.broker.protocol").is_some() => Err(ConfigError::rule(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        )),
        Some(name) if !map.contains_key(&name.to_uppercase()) => Err(ConfigError::rule(format!(
            "Listener with name {} defined in inter.broker.listener.name not found in \
             listener.security.protocol.map.",
            name.to_uppercase()
        ))),
        Some(name) => Ok(name.to_uppercase()),
        None => sources.typed("security.inter.broker.protocol"),
    }
}

fn log_dirs(sources: &Sources) -> Result<Vec<PathBuf>, ConfigError> {
    let dirs = match sources.typed::<Option<Vec<String>>>("log.dirs")? {
        Some(dirs) => dirs,
        None => sources.typed("log.dir")?,
    };
    Ok(dirs.into_iter().map(PathBuf::from).collect())
}

fn upper_case(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.to_uppercase()).collect()
}

#[path = "kafka_config_checks.rs"]
mod kafka_config_checks;

#[cfg(test)]
#[path = "kafka_config_test.rs"]
mod kafka_config_test;
