//! What a handler knows beside its request: the node, the connection that asked, and the request's header.
//!
//! [`Broker`] is a plain struct that `server.rs` builds once; handlers reach every service through it. Nothing here decides.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use super::auto_topic_creation::AutoTopicCreation;
use crate::config::{CurrentConfig, KafkaConfig};
use crate::controller::{ControllerContext, ControllerService};
use crate::coordinator::group::GroupCoordinatorService;
use crate::coordinator::transaction::{
    LocalMarkerWriter, TransactionCoordinatorService, TransactionVerifier,
};
use crate::io::clock::Clock;
use crate::metadata::MetadataCache;
use crate::protocol::{ApiKey, StrBytes};
use crate::raft::RaftClient;
use crate::replica::{ProducerIdManager, ReplicaManager};

/// The node's services, as handlers see them.
pub struct Broker {
    pub node_id: i32,
    pub cluster_id: String,
    /// What the node was started with.
    pub config: Arc<KafkaConfig>,
    /// The same under what the metadata log sets.
    pub current_config: Arc<CurrentConfig>,
    pub clock: Arc<dyn Clock>,
    pub metadata: MetadataCache,
    pub raft: RaftClient,
    pub controller: ControllerService,
    pub replica_manager: Arc<ReplicaManager>,
    pub producer_ids: Arc<ProducerIdManager>,
    pub group_coordinator: Arc<GroupCoordinatorService>,
    pub transaction_coordinator: Arc<TransactionCoordinatorService>,
    pub transaction_verifier: TransactionVerifier,
    /// Ends transactions on partitions of this node.
    pub markers: Arc<LocalMarkerWriter>,
    /// The last metadata offset that this node's broker has acted on.
    pub published_offset: watch::Receiver<i64>,
    /// Starts empty: `Default`.
    pub auto_topic_creation: AutoTopicCreation,
}

/// How long an answer waits for this node's own broker to see what the controller has committed.
const PUBLISHED_WAIT_MAX: Duration = Duration::from_secs(5);

impl Broker {
    /// Waits until this node's broker acts on all that is committed now. Kafka answers a creation before its broker has heard of the
    /// topic, and clients that use it at once see UNKNOWN_TOPIC_OR_PARTITION; with controller and broker in one process that need not be.
    pub async fn wait_until_published(&self) {
        let Some(high_watermark) = self.raft.high_watermark() else {
            return;
        };
        let mut published = self.published_offset.clone();
        let seen = published.wait_for(|offset| *offset >= high_watermark - 1);
        // A loader that is behind for so long has said why; the answer is true all the same.
        let _ = tokio::time::timeout(PUBLISHED_WAIT_MAX, seen).await;
    }
}

/// Which requests a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerScope {
    Broker,
    Controller,
}

/// Who asks (`KafkaPrincipal`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    pub principal_type: StrBytes,
    pub name: StrBytes,
}

impl Principal {
    /// `User:ANONYMOUS`: whoever comes without authentication.
    pub fn anonymous() -> Self {
        Self {
            principal_type: StrBytes::from_static_str("User"),
            name: StrBytes::from_static_str("ANONYMOUS"),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.principal_type, self.name)
    }
}

/// The software at the other end, as its ApiVersions request named it (KIP-511).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInformation {
    pub software_name: StrBytes,
    pub software_version: StrBytes,
}

/// One connection: what stays the same over its requests.
#[derive(Debug)]
pub struct ConnectionContext {
    /// Unique in this process.
    pub id: u64,
    pub listener_name: Arc<str>,
    pub scope: ListenerScope,
    /// The listener is the inter-broker or the control-plane one (`fromPrivilegedListener`).
    pub is_privileged: bool,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub principal: Principal,
    /// Set once, by the first ApiVersions request that names it.
    pub client_information: OnceLock<ClientInformation>,
}

/// One request's surroundings.
pub struct RequestContext {
    pub broker: Arc<Broker>,
    pub connection: Arc<ConnectionContext>,
    pub api_key: ApiKey,
    /// The version of the body; for an ApiVersions request above the range that is 0 (see `requested_version`).
    pub api_version: i16,
    /// The version that the header named.
    pub requested_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<StrBytes>,
    /// Who asks: the connection's principal, or the one that a forwarding broker vouches for.
    pub principal: Principal,
    /// The connection's peer, or the address that a forwarding broker vouches for.
    pub client_address: IpAddr,
    /// The request came in an Envelope from another broker.
    pub is_forwarded: bool,
    /// Wall clock at arrival.
    pub now_ms: i64,
}

impl RequestContext {
    pub fn listener_name(&self) -> &str {
        &self.connection.listener_name
    }

    pub fn scope(&self) -> ListenerScope {
        self.connection.scope
    }

    /// How this request asks the controller; `timeout_ms` is the request's own.
    pub fn for_controller(&self, timeout_ms: i32) -> ControllerContext {
        ControllerContext {
            api_version: self.api_version,
            principal: Arc::from(self.principal.to_string()),
            deadline_ms: Some(self.broker.clock.monotonic_ms() + i64::from(timeout_ms)),
        }
    }

    /// Kafka's text for the client id: empty where the header has null.
    pub fn client_id_or_empty(&self) -> &str {
        self.client_id.as_deref().unwrap_or("")
    }

    /// `/127.0.0.1`, as Java prints an address: what groups remember of a member's host.
    pub fn client_host(&self) -> String {
        match self.client_address.to_canonical() {
            IpAddr::V4(address) => format!("/{address}"),
            // Java leaves out no zeros.
            IpAddr::V6(address) => {
                let parts = address.segments().map(|part| format!("{part:x}"));
                format!("/{}", parts.join(":"))
            }
        }
    }
}
