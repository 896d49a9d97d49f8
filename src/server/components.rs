//! The node's parts, built bottom up, started and stopped in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::ServerError;
use super::dynamic_config::DynamicConfigPublisher;
use super::fatal::Fatal;
use super::log_tasks::LogTasks;
use super::registration;
use crate::api::{Broker, ListenerScope, Router};
use crate::config::{ConfigError, CurrentConfig, KafkaConfig, LogConfig, listeners};
use crate::controller::{ControllerService, ControllerServiceConfig};
use crate::coordinator::group::{GroupConfig, GroupCoordinatorService};
use crate::coordinator::runtime::ReplicaLog;
use crate::coordinator::transaction::{
    LocalMarkerWriter, LocalMarkers, TransactionConfig, TransactionCoordinatorParts,
    TransactionCoordinatorService, TransactionVerifier,
};
use crate::io::clock::Clock;
use crate::io::disk::Disk;
use crate::log::meta_properties::{self, LogDirIdentities};
use crate::log::{LogDirFailureListener, LogManager, LogManagerConfig, Reserve};
use crate::metadata::{
    BrokerLifecycleManager, MetadataCache, MetadataImage, MetadataLoader, MetadataLoaderConfig,
    MetadataPublisher,
};
use crate::metrics::{self, MetricsServer};
use crate::network::descriptors::DescriptorBudget;
use crate::network::{BoundListener, NetworkConfig, SocketServer};
use crate::raft::{self, RaftClient, RaftConfig, storage};
use crate::replica::{
    ControllerDirectoryAssigner, ControllerProducerIdAllocator, ProducerIdManager, ReplicaManager,
    ReplicaManagerConfig,
};

/// How long a controlled shutdown may take, as Kafka's broker server waits.
const CONTROLLED_SHUTDOWN_MAX: Duration = Duration::from_secs(300);
/// How long connections may take to finish the request that they are at.
const CONNECTIONS_GRACE: Duration = Duration::from_secs(5);

/// Whose threads the parts run on.
#[derive(Clone, Copy)]
pub(super) struct Runtimes<'a> {
    pub control: &'a Runtime,
    pub data: &'a Runtime,
    pub bulk: &'a Runtime,
}

/// What a running node is made of.
pub(super) struct Components {
    config: Arc<KafkaConfig>,
    dynamic_config: Arc<DynamicConfigPublisher>,
    identities: LogDirIdentities,
    incarnation_id: Uuid,
    clock: Arc<dyn Clock>,
    log_manager: Arc<LogManager>,
    raft: RaftClient,
    loader: MetadataLoader,
    controller: ControllerService,
    replica_manager: Arc<ReplicaManager>,
    group_coordinator: Arc<GroupCoordinatorService>,
    transaction_coordinator: Arc<TransactionCoordinatorService>,
    control: Handle,
    data: Handle,
    sockets: tokio::sync::Mutex<Sockets>,
    lifecycle: std::sync::OnceLock<BrokerLifecycleManager>,
    log_dir_failures: LogDirFailures,
    log_tasks: std::sync::Mutex<Option<LogTasks>>,
    metrics: std::sync::Mutex<Option<MetricsServer>>,
    advertised: Vec<listeners::Endpoint>,
    began: Instant,
}

/// The listeners, bound at once so that a port in use is told at once, served when the node is ready.
struct Sockets {
    server: Option<SocketServer>,
    broker_listeners: Vec<BoundListener>,
    controller_listeners: Vec<BoundListener>,
}

impl Components {
    /// Opens the directories, binds the listeners and starts the control plane. Nothing is served yet.
    pub(super) fn build(
        config: Arc<KafkaConfig>,
        descriptors: DescriptorBudget,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        Runtimes { control, data, bulk }: Runtimes<'_>,
        fatal: &Fatal,
    ) -> Result<Self, ServerError> {
        let began = Instant::now();
        let reserve = Reserve::new(
            disk.clone(),
            &config.metadata_log_dir,
            config.kavka_metadata_log_reserve_bytes.unsigned_abs(),
        );
        reserve.give_up_if_needed();
        let identities = meta_properties::open(
            &*disk,
            &config.log_dirs,
            &config.metadata_log_dir,
            config.node_id,
            || fastrand::u128(..),
        )?;
        for (dir, reason) in &identities.failed {
            tracing::error!(dir = %dir.display(), reason, "a log directory cannot be read; the node goes on without it");
        }
        // Who can reach the node can see its metrics.
        let metrics_listener = bind_metrics(&config)?;
        let bound = bind_listeners(&config)?;
        let advertised = registration::resolve(&config.advertised_broker_listeners, &bound.broker_listeners);
        let advertised_controllers = registration::resolve(
            &config.advertised_controller_listeners,
            &bound.controller_listeners,
        );
        let incarnation_id = Uuid::from_u128(fastrand::u128(..));

        let log_dir_failure = LogDirFailures::default();
        let log_manager = Arc::new(LogManager::open(
            LogManagerConfig {
                max_open_files: descriptors.log_files,
                ..log_manager_config(&config, &log_dir_failure)
            },
            disk.clone(),
            clock.clone(),
        )?);
        log_manager.set_reserve(reserve);
        log_manager.set_min_free_bytes(config.kavka_log_min_free_bytes.unsigned_abs());
        let metadata_log =
            log_manager.open_metadata_log(&config.metadata_log_dir, raft::metadata_log_config(&config))?;
        let raft_config = RaftConfig {
            listeners: advertised_controllers
                .iter()
                .map(registration::raft_endpoint)
                .collect(),
            ..RaftConfig::from_config(
                &config,
                identities.metadata_directory_id,
                identities.cluster_id.clone(),
            )
        };
        let raft = RaftClient::start(raft_config, metadata_log, disk.clone(), clock.clone())?;

        let cache = MetadataCache::new(MetadataImage::empty());
        let loader = start_loader(&config, &raft, &clock, &cache, fatal)?;
        raft.register(loader.listener());
        let ends = fatal.clone();
        let controller = ControllerService::start(
            ControllerServiceConfig {
                config: config.clone(),
                cluster_id: identities.cluster_id.clone(),
                bootstrap_records: storage::read_bootstrap_records(&*disk, &config.metadata_log_dir)?
                    .unwrap_or_default(),
                own_broker_incarnation: Some(incarnation_id),
                own_registration: Some(registration::of_controller(
                    config.node_id,
                    Uuid::from_u128(fastrand::u128(..)),
                    &advertised_controllers,
                )),
                on_fatal: Box::new(move |reason| ends.end(reason)),
            },
            raft.clone(),
            clock.clone(),
            control.handle(),
        );
        let current_config = Arc::new(CurrentConfig::new(config.clone()));
        let replica_manager =
            build_replica_manager(&current_config, &identities, &log_manager, &cache, &clock);
        log_dir_failure.listen(&replica_manager, &log_manager, &config.metadata_log_dir, fatal);
        let coordinator_log = Arc::new(ReplicaLog::new(replica_manager.clone()));
        let group_coordinator = GroupCoordinatorService::new(
            config.node_id,
            GroupConfig::new(&config),
            coordinator_log.clone(),
            clock.clone(),
            cache.clone(),
            data.handle().clone(),
        );
        let allocator = ControllerProducerIdAllocator {
            controller: controller.clone(),
            metadata: cache.clone(),
            node_id: config.node_id,
        };
        let producer_ids = ProducerIdManager::new(Arc::new(allocator), clock.clone());
        let markers = Arc::new(LocalMarkerWriter::new(
            replica_manager.clone(),
            group_coordinator.clone(),
            clock.clone(),
            u64::try_from(config.request_timeout_ms).unwrap_or(0),
        ));
        let transaction_coordinator = TransactionCoordinatorService::new(TransactionCoordinatorParts {
            node_id: config.node_id,
            config: TransactionConfig::new(&config),
            log: coordinator_log,
            clock: clock.clone(),
            metadata: cache.clone(),
            producer_ids: producer_ids.clone(),
            marker_writer: Arc::new(LocalMarkers {
                writer: markers.clone(),
            }),
            executor: data.handle().clone(),
        });
        let broker = Arc::new(Broker {
            node_id: config.node_id,
            cluster_id: identities.cluster_id.clone(),
            config: config.clone(),
            current_config: current_config.clone(),
            clock: clock.clone(),
            metadata: cache,
            raft: raft.clone(),
            controller: controller.clone(),
            replica_manager: replica_manager.clone(),
            published_offset: loader.published_offset(),
            auto_topic_creation: Default::default(),
            group_coordinator: group_coordinator.clone(),
            producer_ids,
            transaction_verifier: TransactionVerifier::new(
                replica_manager.clone(),
                transaction_coordinator.clone(),
                &config,
            ),
            transaction_coordinator: transaction_coordinator.clone(),
            markers,
        });
        let network = NetworkConfig {
            open_connections_max: descriptors.connections,
            ..NetworkConfig::from(&*config)
        };
        let server = SocketServer::new(
            network,
            Arc::new(Router::new(broker, bulk.handle().clone())),
            clock.clone(),
        )?;
        let dynamic_config = Arc::new(DynamicConfigPublisher {
            current: current_config,
            replica_manager: replica_manager.clone(),
            log_manager: log_manager.clone(),
            connection_limits: server.connection_limits(),
            group_coordinator: group_coordinator.clone(),
        });
        let metrics = match metrics_listener {
            Some(listener) => Some(start_metrics(listener, &log_manager, &config, control.handle())?),
            None => None,
        };
        Ok(Self {
            config,
            dynamic_config,
            identities,
            incarnation_id,
            clock,
            log_manager,
            raft,
            loader,
            controller,
            replica_manager,
            group_coordinator,
            transaction_coordinator,
            control: control.handle().clone(),
            data: data.handle().clone(),
            sockets: tokio::sync::Mutex::new(Sockets {
                server: Some(server),
                ..bound
            }),
            lifecycle: std::sync::OnceLock::new(),
            log_dir_failures: log_dir_failure,
            log_tasks: std::sync::Mutex::new(None),
            metrics: std::sync::Mutex::new(metrics),
            advertised,
            began,
        })
    }

    /// Registers the broker, loads the logs, and serves once the controller has unfenced it.
    pub(super) async fn start(&self) -> Result<(), ServerError> {
        self.serve_controller_listeners().await?;
        // What features are finalized decides what the broker has to claim, so the metadata come first.
        let mut published = self.loader.published_offset();
        let _ = published.wait_for(|offset| *offset >= 0).await;
        let lifecycle = self.lifecycle.get_or_init(|| self.start_lifecycle());
        self.log_dir_failures
            .tell_controller(lifecycle, &self.identities, &self.log_manager, &self.control);
        let assigner = ControllerDirectoryAssigner {
            controller: self.controller.clone(),
        };
        let assignments = self.replica_manager.directory_assignments().clone();
        self.control
            .spawn(assignments.run(Arc::new(assigner), self.loader.cache().clone()));
        if !lifecycle.caught_up().await {
            return Err(ServerError::Fatal(
                "the controller did not accept this broker's registration".to_owned(),
            ));
        }
        self.loader.install_publishers(self.publishers());
        self.replica_manager.wait_until_started().await?;
        lifecycle.set_ready_to_unfence().await;
        if !lifecycle.unfenced().await {
            return Err(ServerError::Fatal(
                "the controller did not unfence this broker".to_owned(),
            ));
        }
        // Leaders are elected together with the unfencing; before this node has heard of it, its partitions are followers that
        // would answer with the high watermark of the last checkpoint.
        self.wait_until_published().await;
        self.serve_broker_listeners().await?;
        let tasks = LogTasks::start(
            &self.dynamic_config.current.load(),
            &self.log_manager,
            &self.replica_manager,
            &self.control,
        );
        *self
            .log_tasks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(tasks);
        tracing::info!(
            node_id = self.config.node_id,
            cluster_id = self.identities.cluster_id,
            listeners = %registration::text_of(&self.advertised),
            milliseconds = self.began.elapsed().as_millis() as u64,
            "kavka started"
        );
        Ok(())
    }

    async fn wait_until_published(&self) {
        let committed = self.raft.high_watermark().unwrap_or(0);
        let _ = self
            .loader
            .published_offset()
            .wait_for(|offset| *offset >= committed - 1)
            .await;
    }

    fn publishers(&self) -> Vec<Arc<dyn MetadataPublisher>> {
        // The configuration first: the others act by it.
        vec![
            self.dynamic_config.clone(),
            self.replica_manager.clone(),
            self.group_coordinator.clone(),
            self.transaction_coordinator.clone(),
        ]
    }

    fn start_lifecycle(&self) -> BrokerLifecycleManager {
        let config = registration::of_broker(
            &self.config,
            &self.identities,
            self.incarnation_id,
            &self.advertised,
            &self.loader.cache().load(),
            self.log_manager.previous_broker_epoch(),
        );
        BrokerLifecycleManager::start(
            config,
            Arc::new(self.controller.clone()),
            self.loader.published_offset(),
            self.clock.clone(),
            &self.control,
        )
    }

    async fn serve_controller_listeners(&self) -> Result<(), ServerError> {
        let mut sockets = self.sockets.lock().await;
        let listeners = std::mem::take(&mut sockets.controller_listeners);
        let Some(server) = sockets.server.as_mut() else {
            return Ok(());
        };
        Ok(server.start(listeners, &self.control)?)
    }

    async fn serve_broker_listeners(&self) -> Result<(), ServerError> {
        let mut sockets = self.sockets.lock().await;
        let listeners = std::mem::take(&mut sockets.broker_listeners);
        let Some(server) = sockets.server.as_mut() else {
            return Ok(());
        };
        Ok(server.start(listeners, &self.data)?)
    }

    /// A clean shutdown: the next start recovers nothing.
    pub(super) async fn stop(&self) -> Result<(), ServerError> {
        tracing::info!("shutting down");
        let began = Instant::now();
        // In the middle of a start the logs may be loading.
        self.log_manager.stop_loading();
        let lifecycle = self.lifecycle.get();
        if let Some(lifecycle) = lifecycle {
            if self.config.controlled_shutdown_enable {
                let handed_over = lifecycle.controlled_shutdown();
                if tokio::time::timeout(CONTROLLED_SHUTDOWN_MAX, handed_over)
                    .await
                    .is_err()
                {
                    tracing::warn!("the controller did not let this broker go; shutting down without it");
                }
            }
            lifecycle.shutdown().await;
        }
        self.close_sockets().await;
        drop(
            self.log_tasks
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take(),
        );
        self.transaction_coordinator.shutdown();
        self.group_coordinator.shutdown();
        self.replica_manager.shutdown();
        // It makes and deletes logs.
        self.loader.shutdown();
        self.loader.wait_until_ended();
        let broker_epoch = lifecycle.map_or(-1, BrokerLifecycleManager::broker_epoch);
        // Raft's last writes come before its log is closed.
        self.raft.shutdown();
        self.log_manager.shutdown(broker_epoch)?;
        tracing::info!(milliseconds = began.elapsed().as_millis() as u64, "shut down");
        Ok(())
    }

    /// As much of a shutdown as is safe when something is broken: nothing is promised, so the next start recovers.
    pub(super) async fn stop_after_failure(&self) {
        self.close_sockets().await;
        if let Some(lifecycle) = self.lifecycle.get() {
            lifecycle.shutdown().await;
        }
        self.loader.shutdown();
        self.raft.shutdown();
    }

    async fn close_sockets(&self) {
        drop(
            self.metrics
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take(),
        );
        let server = self.sockets.lock().await.server.take();
        if let Some(server) = server {
            server.shutdown(CONNECTIONS_GRACE).await;
        }
    }
}

fn bind_listeners(config: &KafkaConfig) -> Result<Sockets, ServerError> {
    let network = NetworkConfig::from(config);
    let bind = |scope| move |endpoint| BoundListener::bind(endpoint, scope, &network.clone());
    let broker_listeners = config
        .broker_listeners()
        .map(bind.clone()(ListenerScope::Broker))
        .collect::<Result<_, _>>()?;
    let controller_listeners = config
        .controller_listeners()
        .map(bind(ListenerScope::Controller))
        .collect::<Result<_, _>>()?;
    Ok(Sockets {
        server: None,
        broker_listeners,
        controller_listeners,
    })
}

/// Early, so that a port in use is told at once.
fn bind_metrics(config: &KafkaConfig) -> Result<Option<std::net::TcpListener>, ServerError> {
    let Some(address) = config
        .kavka_metrics_listener
        .as_deref()
        .filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    metrics::bind(address)
        .map(Some)
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::InvalidInput => {
                ConfigError::invalid("kavka.metrics.listener", address, "host:port").into()
            }
            _ => no_metrics(address)(source),
        })
}

fn start_metrics(
    listener: std::net::TcpListener,
    log_manager: &Arc<LogManager>,
    config: &KafkaConfig,
    runtime: &Handle,
) -> Result<MetricsServer, ServerError> {
    let mut registry = metrics::Registry::default();
    let logs = Arc::downgrade(log_manager);
    registry.add(move |page| {
        if let Some(logs) = logs.upgrade() {
            logs.collect_metrics(page);
        }
    });
    let address = config.kavka_metrics_listener.as_deref().unwrap_or_default();
    MetricsServer::start(listener, Arc::new(registry), runtime).map_err(no_metrics(address))
}

fn no_metrics(address: &str) -> impl Fn(std::io::Error) -> ServerError {
    let address = address.to_owned();
    move |source| ServerError::Metrics {
        address: address.clone(),
        source,
    }
}

/// Hands a failed log directory to those who have to act on it; they come to be after the log manager.
#[derive(Default, Clone)]
struct LogDirFailures {
    listener: Arc<std::sync::OnceLock<LogDirFailureListener>>,
    /// Where it is told to the controller.
    offline: Arc<std::sync::OnceLock<mpsc::Sender<PathBuf>>>,
}

impl LogDirFailures {
    /// Once the broker is registered: a heartbeat says which of its directories are offline. Those that failed before are told too.
    fn tell_controller(
        &self,
        lifecycle: &BrokerLifecycleManager,
        identities: &LogDirIdentities,
        logs: &Arc<LogManager>,
        runtime: &Handle,
    ) {
        // Each fails once, and may be told of once more below.
        let (sender, mut failed) = mpsc::channel(2 * logs.log_dirs().len().max(1));
        let _ = self.offline.set(sender.clone());
        for dir in logs.log_dirs().iter().filter(|dir| !logs.is_log_dir_online(dir)) {
            let _ = sender.try_send(dir.clone());
        }
        let (lifecycle, ids) = (lifecycle.clone(), identities.directory_ids.clone());
        runtime.spawn(async move {
            while let Some(dir) = failed.recv().await {
                if let Some((_, id)) = ids.iter().find(|(known, _)| *known == dir) {
                    lifecycle.add_offline_log_dir(*id).await;
                }
            }
        });
    }

    fn listen(
        &self,
        replica_manager: &Arc<ReplicaManager>,
        log_manager: &Arc<LogManager>,
        metadata_log_dir: &Path,
        fatal: &Fatal,
    ) {
        let offline = self.offline.clone();
        let metadata_log_dir = metadata_log_dir.to_path_buf();
        let replicas = Arc::downgrade(replica_manager);
        let logs = Arc::downgrade(log_manager);
        let fatal = fatal.clone();
        let _ = self.listener.set(Arc::new(move |dir: &Path, error| {
            tracing::error!(dir = %dir.display(), %error, "a log directory failed and is offline; its partitions answer KAFKA_STORAGE_ERROR");
            if let Some(replicas) = replicas.upgrade() {
                replicas.on_log_dir_failure(dir);
            }
            if let Some(offline) = offline.get() {
                let _ = offline.try_send(dir.to_path_buf());
            }
            if dir == metadata_log_dir {
                fatal.end(&format!("the metadata log directory {} failed: {error}", dir.display()));
            } else if logs.upgrade().is_some_and(|logs| logs.live_log_dirs().is_empty()) {
                fatal.end(&format!("all log directories failed, {} at last: {error}", dir.display()));
            }
        }));
    }

    fn callback(&self) -> LogDirFailureListener {
        let listener = self.listener.clone();
        Arc::new(move |dir, error| match listener.get() {
            Some(listener) => listener(dir, error),
            None => tracing::error!(dir = %dir.display(), %error, "a log directory failed and is offline"),
        })
    }
}

fn log_manager_config(config: &KafkaConfig, failures: &LogDirFailures) -> LogManagerConfig {
    LogManagerConfig {
        recovery_threads_per_data_dir: usize::try_from(config.num_recovery_threads_per_data_dir).unwrap_or(1),
        max_transaction_timeout_ms: config.transaction_max_timeout_ms,
        producer_id_expiration_ms: config.producer_id_expiration_ms,
        on_log_dir_failure: failures.callback(),
        ..LogManagerConfig::new(config.log_dirs.clone())
    }
}

fn start_loader(
    config: &KafkaConfig,
    raft: &RaftClient,
    clock: &Arc<dyn Clock>,
    cache: &MetadataCache,
    fatal: &Fatal,
) -> Result<MetadataLoader, ServerError> {
    let ends = fatal.clone();
    MetadataLoader::start(
        MetadataLoaderConfig {
            max_bytes_between_snapshots: usize::try_from(
                config.metadata_log_max_record_bytes_between_snapshots,
            )
            .unwrap_or(usize::MAX),
            max_snapshot_interval_ms: config.metadata_log_max_snapshot_interval_ms,
            faults_are_fatal: config.is_controller(),
            on_fatal: Box::new(move |reason| ends.end(reason)),
        },
        Arc::new(raft.clone()),
        clock.clone(),
        cache.clone(),
    )
    .map_err(|source| ServerError::System {
        action: "start the metadata loader",
        source,
    })
}

fn build_replica_manager(
    current: &Arc<CurrentConfig>,
    identities: &LogDirIdentities,
    log_manager: &Arc<LogManager>,
    cache: &MetadataCache,
    clock: &Arc<dyn Clock>,
) -> Arc<ReplicaManager> {
    let config = current.file();
    let node = current.clone();
    ReplicaManager::new(
        ReplicaManagerConfig {
            node_id: config.node_id,
            replica_lag_time_max_ms: config.replica_lag_time_max_ms,
            directory_ids: identities.directory_ids.iter().cloned().collect(),
            alter_log_dirs_threads: config
                .num_replica_alter_log_dirs_threads
                .and_then(|threads| usize::try_from(threads).ok())
                .unwrap_or(config.log_dirs.len()),
            max_incremental_fetch_session_cache_slots: usize::try_from(
                config.max_incremental_fetch_session_cache_slots,
            )
            .unwrap_or(0),
            data_workers: super::data_threads(),
            transaction_partition_verification_enable: config.transaction_partition_verification_enable,
        },
        log_manager.clone(),
        cache.clone(),
        Arc::new(
            move |overrides| match LogConfig::from_overrides(&node.load(), overrides) {
                Ok(log_config) => log_config,
                Err(error) => {
                    tracing::error!(%error, "a topic's configs in the metadata make no sense; the node's own are used");
                    node.load().log_config.clone()
                }
            },
        ),
        clock.clone(),
    )
}
