//! Listeners: bound first (so that the port is known and a conflict stops the start), then served, one accept loop each.
//!
//! Limits of connections and of request memory are counted apart for brokers' and controllers' listeners, as in Kafka, where
//! each role has a server of its own: clients that exhaust theirs keep no one from the quorum.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::{Connection, ConnectionEnd};
use super::connection_quota::{ConnectionQuota, ConnectionSlot};
use super::frame::{FrameReader, RequestMemory};
use super::log_limiter::LogLimiter;
use super::pipelining::{Pipeline, Pipelining};
use super::{NetworkError, RequestHandler};
use crate::api::{ConnectionContext, ListenerScope, Principal};
use crate::config::{Endpoint, KafkaConfig};
use crate::io::clock::Clock;

/// How long an accept loop rests after the process ran out of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// One in so many connections may be one to controllers.
const CONTROLLERS_SHARE: usize = 8;

/// What the sockets need of the configuration.
#[derive(Debug, Clone)]
pub struct NetworkConfig {
    pub socket_listen_backlog_size: i32,
    /// -1: the system's default.
    pub socket_receive_buffer_bytes: i32,
    /// -1: as large as the system lets it grow.
    pub socket_send_buffer_bytes: i32,
    pub socket_request_max_bytes: i32,
    pub queued_max_request_bytes: i64,
    pub connections_max_idle_ms: i64,
    pub max_connections: i32,
    pub max_connections_per_ip: i32,
    pub max_connections_per_ip_overrides: String,
    pub inter_broker_listener_name: String,
    /// How many connections there are descriptors for.
    pub open_connections_max: usize,
    /// The memory for large requests that have come in part or are being handled.
    pub request_bytes_max: usize,
}

impl From<&KafkaConfig> for NetworkConfig {
    fn from(config: &KafkaConfig) -> Self {
        Self {
            socket_listen_backlog_size: config.socket_listen_backlog_size,
            socket_receive_buffer_bytes: asked_for(
                config,
                RECEIVE_BUFFER,
                config.socket_receive_buffer_bytes,
            ),
            socket_send_buffer_bytes: asked_for(config, SEND_BUFFER, config.socket_send_buffer_bytes),
            socket_request_max_bytes: config.socket_request_max_bytes,
            queued_max_request_bytes: config.queued_max_request_bytes,
            connections_max_idle_ms: config.connections_max_idle_ms,
            max_connections: config.max_connections,
            max_connections_per_ip: config.max_connections_per_ip,
            max_connections_per_ip_overrides: config.max_connections_per_ip_overrides.clone(),
            inter_broker_listener_name: config.inter_broker_listener_name.clone(),
            open_connections_max: usize::MAX,
            request_bytes_max: super::memory::request_bytes_max(
                usize::try_from(config.socket_request_max_bytes).unwrap_or(0),
            ),
        }
    }
}

const RECEIVE_BUFFER: &str = "socket.receive.buffer.bytes";
const SEND_BUFFER: &str = "socket.send.buffer.bytes";

/// The size of a buffer if one was asked for. Kafka's default (100 KiB) was not: an answer of a megabyte leaves it in pieces, each with a
/// wake-up here and at the client, and so comes a large request, where the system's own buffers grow with what the connection
/// carries, up to the system's limit.
fn asked_for(config: &KafkaConfig, key: &str, bytes: i32) -> i32 {
    match config.original(key) {
        Some(_) => bytes,
        None => -1,
    }
}

/// A listener that is bound but not served yet.
#[derive(Debug)]
pub struct BoundListener {
    endpoint: Endpoint,
    scope: ListenerScope,
    listener: TcpListener,
    local: SocketAddr,
}

impl BoundListener {
    /// Binds one of `listeners`.
    pub fn bind(
        endpoint: &Endpoint,
        scope: ListenerScope,
        config: &NetworkConfig,
    ) -> Result<Self, NetworkError> {
        let failed = |source: io::Error| NetworkError::Bind {
            listener: endpoint.to_string(),
            source,
        };
        let listener = bind_any(endpoint, config).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        Ok(Self {
            endpoint: endpoint.clone(),
            scope,
            listener,
            local,
        })
    }

    /// With the port that the system picked where the configuration says 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// The addresses to try, in Java's order: IPv4 before IPv6, and every interface of both for an empty host.
fn addresses(endpoint: &Endpoint) -> io::Result<Vec<SocketAddr>> {
    if endpoint.host.is_empty() {
        return Ok(vec![
            SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), endpoint.port),
            SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), endpoint.port),
        ]);
    }
    let mut addresses: Vec<SocketAddr> = (endpoint.host.as_str(), endpoint.port)
        .to_socket_addrs()?
        .collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.truncate(1);
    Ok(addresses)
}

fn bind_any(endpoint: &Endpoint, config: &NetworkConfig) -> io::Result<TcpListener> {
    let mut failure = io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
    for address in addresses(endpoint)? {
        match bind_one(address, config) {
            Ok(listener) => return Ok(listener),
            // A machine without IPv6 serves the wildcard by IPv4; a port in use is in use.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn bind_one(address: SocketAddr, config: &NetworkConfig) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    if config.socket_receive_buffer_bytes > 0 {
        // Before listen: accepted sockets inherit it, and the window scale depends on it.
        socket.set_recv_buffer_size(config.socket_receive_buffer_bytes as usize)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(config.socket_listen_backlog_size)?;
    Ok(socket.into())
}

/// What the accept loops share.
struct Shared {
    handler: Arc<dyn RequestHandler>,
    config: NetworkConfig,
    clock: Arc<dyn Clock>,
    broker_limits: Limits,
    controller_limits: Limits,
    limiter: LogLimiter,
    pipelining: Arc<Pipelining>,
    next_connection_id: AtomicU64,
}

/// What the listeners of one role share.
struct Limits {
    quota: Arc<ConnectionQuota>,
    memory: RequestMemory,
}

impl Limits {
    fn new(config: &NetworkConfig, open_connections_max: usize) -> Result<Self, NetworkError> {
        let quota = ConnectionQuota::new(
            config.max_connections,
            config.max_connections_per_ip,
            &config.max_connections_per_ip_overrides,
            open_connections_max,
            config.request_bytes_max,
        )?;
        Ok(Self {
            quota,
            memory: RequestMemory::new(config.queued_max_request_bytes),
        })
    }
}

impl Shared {
    fn limits(&self, scope: ListenerScope) -> &Limits {
        match scope {
            ListenerScope::Broker => &self.broker_limits,
            ListenerScope::Controller => &self.controller_limits,
        }
    }
}

/// The limits of connections of the brokers' listeners, to be changed while they are served.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    quota: Arc<ConnectionQuota>,
}

impl ConnectionLimits {
    pub fn update(&self, config: &KafkaConfig) -> Result<(), NetworkError> {
        self.quota.update(
            config.max_connections,
            config.max_connections_per_ip,
            &config.max_connections_per_ip_overrides,
        )
    }
}

/// The node's listeners and their connections.
pub struct SocketServer {
    shared: Arc<Shared>,
    stop_accepting: watch::Sender<bool>,
    shutdown: watch::Sender<bool>,
    accept_loops: JoinSet<()>,
}

impl SocketServer {
    pub fn new(
        config: NetworkConfig,
        handler: Arc<dyn RequestHandler>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, NetworkError> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let of_controllers = config.open_connections_max / CONTROLLERS_SHARE;
        let of_brokers = config.open_connections_max - of_controllers;
        Ok(Self {
            shared: Arc::new(Shared {
                handler,
                broker_limits: Limits::new(&config, of_brokers)?,
                controller_limits: Limits::new(&config, of_controllers)?,
                config,
                clock,
                limiter: LogLimiter::default(),
                pipelining: Pipelining::new(processors, Instant::now()),
                next_connection_id: AtomicU64::new(0),
            }),
            stop_accepting: watch::Sender::new(false),
            shutdown: watch::Sender::new(false),
            accept_loops: JoinSet::new(),
        })
    }

    pub fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            quota: self.shared.broker_limits.quota.clone(),
        }
    }

    /// Serves `listeners`, all those of one role at once, on `runtime` (the data plane's).
    pub fn start(
        &mut self,
        listeners: Vec<BoundListener>,
        runtime: &tokio::runtime::Handle,
    ) -> Result<(), NetworkError> {
        let is_only = listeners.len() == 1;
        for bound in listeners {
            let failed = |source: io::Error| NetworkError::Bind {
                listener: bound.endpoint.to_string(),
                source,
            };
            let entered = runtime.enter();
            let listener = tokio::net::TcpListener::from_std(bound.listener).map_err(failed)?;
            drop(entered);
            let is_privileged = bound.endpoint.listener_name == self.shared.config.inter_broker_listener_name;
            let acceptor = Acceptor {
                shared: self.shared.clone(),
                listener,
                listener_name: Arc::from(bound.endpoint.listener_name.as_str()),
                scope: bound.scope,
                is_privileged,
                is_protected: is_privileged && !is_only,
                shutdown: self.shutdown.subscribe(),
            };
            self.accept_loops
                .spawn_on(acceptor.run(self.stop_accepting.subscribe()), runtime);
        }
        Ok(())
    }

    /// No new connections; those there are go on.
    pub fn stop_accepting(&self) {
        self.stop_accepting.send_replace(true);
    }

    /// Ends every connection after the request that it is at, and those that are not done within `grace` at once.
    pub async fn shutdown(mut self, grace: Duration) {
        self.stop_accepting.send_replace(true);
        self.shutdown.send_replace(true);
        let drained = async { while self.accept_loops.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, drained).await.is_err() {
            tracing::info!("connections still busy after {grace:?} are closed");
        }
        // An accept loop's end takes its connections with it.
        self.accept_loops.shutdown().await;
    }
}

/// One accept loop; owns the tasks of its connections.
struct Acceptor {
    shared: Arc<Shared>,
    listener: tokio::net::TcpListener,
    listener_name: Arc<str>,
    scope: ListenerScope,
    is_privileged: bool,
    is_protected: bool,
    shutdown: watch::Receiver<bool>,
}

impl Acceptor {
    async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        let mut stopped = pin!(super::turned_true(&mut stop));
        loop {
            let (stream, peer) = tokio::select! {
                biased;
                _ = &mut stopped => break,
                Some(ended) = connections.join_next() => {
                    Self::ended(ended);
                    continue;
                }
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        self.accept_failed(&error).await;
                        continue;
                    }
                }
            };
            // May wait for another connection to end (max.connections): the one at hand is kept meanwhile.
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                slot = self.shared.limits(self.scope).quota.admit(peer.ip(), self.is_protected) => match slot {
                    Ok(slot) => self.serve(stream, peer, slot, &mut connections),
                    Err(limit) => self.rejected(peer.ip(), limit),
                }
            }
        }
        drop(self);
        while let Some(ended) = connections.join_next().await {
            Self::ended(ended);
        }
    }

    /// A panic is ours, never the client's right: it ends that connection only, and the hook has printed it.
    fn ended(result: Result<(), tokio::task::JoinError>) {
        if let Err(error) = result
            && error.is_panic()
        {
            tracing::error!("a connection's task panicked: {error}");
        }
    }

    async fn accept_failed(&self, error: &io::Error) {
        if let Some(left_out) = self.shared.limiter.admit(self.shared.clock.monotonic_ms()) {
            tracing::error!(
                "accepting on {} failed: {error} ({left_out} lines left out)",
                self.listener_name
            );
        }
        if is_out_of_descriptors(error) {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
        }
    }

    fn rejected(&self, address: IpAddr, limit: usize) {
        if let Some(left_out) = self.shared.limiter.admit(self.shared.clock.monotonic_ms()) {
            tracing::info!(
                "Rejected connection from /{address}, address already has the configured maximum of {limit} \
                 connections. ({left_out} lines left out)"
            );
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        slot: ConnectionSlot,
        connections: &mut JoinSet<()>,
    ) {
        let shared = self.shared.clone();
        let Ok(local) = self.prepare(&stream) else { return };
        let reader = FrameReader::new(
            shared.config.socket_request_max_bytes.max(0) as usize,
            shared.limits(self.scope).memory.clone(),
        );
        let connection = Connection {
            context: Arc::new(ConnectionContext {
                id: shared.next_connection_id.fetch_add(1, Ordering::Relaxed),
                listener_name: self.listener_name.clone(),
                scope: self.scope,
                is_privileged: self.is_privileged,
                peer,
                local,
                principal: Principal::anonymous(),
                client_information: Default::default(),
            }),
            stream,
            bytes_moved: reader.bytes_moved(),
            reader,
            request_bytes: slot.request_bytes(),
            handler: shared.handler.clone(),
            pipeline: Pipeline::new(shared.pipelining.clone()),
            max_idle: u64::try_from(shared.config.connections_max_idle_ms)
                .ok()
                .map(Duration::from_millis),
            usage: slot.usage(),
            shutdown: self.shutdown.clone(),
        };
        connections.spawn(async move {
            let end = connection.run().await;
            drop(slot);
            report(&shared, peer, &end);
        });
    }

    /// An error means that the peer has gone already.
    fn prepare(&self, stream: &TcpStream) -> io::Result<SocketAddr> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        socket.set_keepalive(true)?;
        if self.shared.config.socket_send_buffer_bytes > 0 {
            socket.set_send_buffer_size(self.shared.config.socket_send_buffer_bytes as usize)?;
        }
        let local = stream.local_addr()?;
        Ok(SocketAddr::new(local.ip().to_canonical(), local.port()))
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn report(shared: &Shared, peer: SocketAddr, end: &ConnectionEnd) {
    if !end.is_misbehaviour() {
        tracing::debug!("connection from {peer}: {end}");
        return;
    }
    if let Some(left_out) = shared.limiter.admit(shared.clock.monotonic_ms()) {
        match left_out {
            0 => tracing::warn!("closed the connection from {peer}: {end}"),
            _ => tracing::warn!("closed the connection from {peer}: {end} ({left_out} such lines left out)"),
        }
    }
}

#[cfg(test)]
#[path = "socket_server_test.rs"]
mod socket_server_test;
