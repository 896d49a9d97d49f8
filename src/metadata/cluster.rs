//! Registered brokers and controllers in the image.
//!
//! Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

/// How a listener is secured, by its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SecurityProtocol {
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

impl SecurityProtocol {
    pub fn id(self) -> i16 {
        match self {
            Self::Plaintext => 0,
            Self::Ssl => 1,
            Self::SaslPlaintext => 2,
            Self::SaslSsl => 3,
        }
    }

    pub fn from_id(id: i16) -> Option<Self> {
        match id {
            0 => Some(Self::Plaintext),
            1 => Some(Self::Ssl),
            2 => Some(Self::SaslPlaintext),
            3 => Some(Self::SaslSsl),
            _ => None,
        }
    }
}

/// One advertised listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name, as `PLAINTEXT` or `EXTERNAL`.
    pub name: Arc<str>,
    pub host: Arc<str>,
    pub port: u16,
    /// As on the wire; [`SecurityProtocol::from_id`] reads it.
    pub security_protocol: i16,
}

/// The levels of a feature that a node can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    pub min: i16,
    pub max: i16,
}

impl VersionRange {
    pub fn contains(self, level: i16) -> bool {
        self.min <= level && level <= self.max
    }
}

/// One registered broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerRegistration {
    pub id: i32,
    pub epoch: i64,
    pub incarnation_id: Uuid,
    pub listeners: Vec<Endpoint>,
    pub supported_features: BTreeMap<String, VersionRange>,
    pub rack: Option<Arc<str>>,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    pub is_migrating_zk_broker: bool,
    /// Online log directories, sorted by the signed value of their halves as Java's `Uuid.compareTo` does.
    pub directories: Vec<Uuid>,
    pub cordoned_directories: Option<Vec<Uuid>>,
}

impl BrokerRegistration {
    /// Neither fenced nor on its way out.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    pub fn listener(&self, name: &str) -> Option<&Endpoint> {
        self.listeners.iter().find(|endpoint| &*endpoint.name == name)
    }
}

/// One registered controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerRegistration {
    pub id: i32,
    pub incarnation_id: Uuid,
    pub zk_migration_ready: bool,
    pub listeners: Vec<Endpoint>,
    pub supported_features: BTreeMap<String, VersionRange>,
}

/// Brokers and controllers by id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterImage {
    pub brokers: Arc<BTreeMap<i32, Arc<BrokerRegistration>>>,
    pub controllers: Arc<BTreeMap<i32, Arc<ControllerRegistration>>>,
}

impl ClusterImage {
    pub fn broker(&self, id: i32) -> Option<&Arc<BrokerRegistration>> {
        self.brokers.get(&id)
    }

    /// The broker's registration if it is unfenced (it may be shutting down).
    pub fn alive_broker(&self, id: i32) -> Option<&Arc<BrokerRegistration>> {
        self.brokers.get(&id).filter(|broker| !broker.fenced)
    }

    pub fn is_active(&self, id: i32) -> bool {
        self.brokers.get(&id).is_some_and(|broker| broker.is_active())
    }

    pub fn broker_epoch(&self, id: i32) -> Option<i64> {
        self.brokers.get(&id).map(|broker| broker.epoch)
    }
}
