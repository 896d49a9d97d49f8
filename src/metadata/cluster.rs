//! Registered brokers and controllers in the image.
//!
//! Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::image::ReplayError;
use super::metadata_version::MetadataVersion;
use super::partition::directory_id;
use crate::protocol::StrBytes;
use crate::protocol::records::metadata::register_broker_record::{BrokerEndpoint, BrokerFeature};
use crate::protocol::records::metadata::register_controller_record::{ControllerEndpoint, ControllerFeature};
use crate::protocol::records::metadata::{
    BrokerRegistrationChangeRecord, RegisterBrokerRecord, RegisterControllerRecord,
};

/// One advertised listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name, as `PLAINTEXT` or `EXTERNAL`.
    pub name: Arc<str>,
    pub host: Arc<str>,
    pub port: u16,
    /// As on the wire.
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

impl BrokerRegistration {
    /// Whether a log directory may take new replicas (KIP-1066).
    pub fn has_uncordoned_directories(&self) -> bool {
        match &self.cordoned_directories {
            Some(cordoned) if !self.directories.is_empty() => self
                .directories
                .iter()
                .any(|directory| !cordoned.contains(directory)),
            Some(_) | None => true,
        }
    }

    pub fn has_online_directory(&self, directory: Uuid) -> bool {
        self.directories.contains(&directory)
    }

    /// Whether a replica in this directory of its can be served; one that is not known yet counts as online, a lost one does not.
    pub fn may_serve_from(&self, directory: Uuid) -> bool {
        match directory {
            directory_id::LOST => false,
            directory_id::UNASSIGNED | directory_id::MIGRATING => true,
            // A registration from before directories has none.
            directory => self.directories.is_empty() || self.has_online_directory(directory),
        }
    }

    /// What a RegisterBroker record says.
    pub fn from_record(record: &RegisterBrokerRecord) -> Self {
        let listeners = record.end_points.iter().map(|endpoint| Endpoint {
            name: Arc::from(endpoint.name.as_str()),
            host: Arc::from(endpoint.host.as_str()),
            port: endpoint.port,
            security_protocol: endpoint.security_protocol,
        });
        let features = record.features.iter().map(|feature| {
            let range = VersionRange {
                min: feature.min_supported_version,
                max: feature.max_supported_version,
            };
            (feature.name.to_string(), range)
        });
        Self {
            id: record.broker_id,
            epoch: record.broker_epoch,
            incarnation_id: record.incarnation_id,
            listeners: listeners.collect(),
            supported_features: features.collect(),
            rack: record.rack.as_ref().map(|rack| Arc::from(rack.as_str())),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            is_migrating_zk_broker: record.is_migrating_zk_broker,
            directories: sorted_directories(&record.log_dirs),
            cordoned_directories: record.cordoned_log_dirs.as_deref().map(sorted_directories),
        }
    }

    /// The RegisterBroker record of this registration, and its version.
    pub fn to_record(&self, metadata_version: MetadataVersion) -> (RegisterBrokerRecord, i16) {
        let endpoint = |endpoint: &Endpoint| BrokerEndpoint {
            name: StrBytes::from_string(endpoint.name.to_string()),
            host: StrBytes::from_string(endpoint.host.to_string()),
            port: endpoint.port,
            security_protocol: endpoint.security_protocol,
            ..BrokerEndpoint::default()
        };
        let feature = |(name, range): (&String, &VersionRange)| BrokerFeature {
            name: StrBytes::from_string(name.clone()),
            min_supported_version: range.min,
            max_supported_version: range.max,
            ..BrokerFeature::default()
        };
        let record = RegisterBrokerRecord {
            broker_id: self.id,
            is_migrating_zk_broker: self.is_migrating_zk_broker,
            incarnation_id: self.incarnation_id,
            broker_epoch: self.epoch,
            end_points: self.listeners.iter().map(endpoint).collect(),
            features: self.supported_features.iter().map(feature).collect(),
            rack: self
                .rack
                .as_ref()
                .map(|rack| StrBytes::from_string(rack.to_string())),
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
            log_dirs: if metadata_version.is_directory_assignment_supported() {
                self.directories.clone()
            } else {
                Vec::new()
            },
            cordoned_log_dirs: self
                .cordoned_directories
                .clone()
                .filter(|_| metadata_version.is_cordoned_log_dirs_supported()),
            ..RegisterBrokerRecord::default()
        };
        (record, metadata_version.register_broker_record_version())
    }
}

/// Java's order of ids: both halves as signed numbers.
pub fn sorted_directories(directories: &[Uuid]) -> Vec<Uuid> {
    let mut sorted = directories.to_vec();
    sorted.sort_by_key(|id| {
        let (most, least) = id.as_u64_pair();
        (most.cast_signed(), least.cast_signed())
    });
    sorted
}

impl ControllerRegistration {
    pub fn from_record(record: &RegisterControllerRecord) -> Self {
        let listeners = record.end_points.iter().map(|endpoint| Endpoint {
            name: Arc::from(endpoint.name.as_str()),
            host: Arc::from(endpoint.host.as_str()),
            port: endpoint.port,
            security_protocol: endpoint.security_protocol,
        });
        let features = record.features.iter().map(|feature| {
            let range = VersionRange {
                min: feature.min_supported_version,
                max: feature.max_supported_version,
            };
            (feature.name.to_string(), range)
        });
        Self {
            id: record.controller_id,
            incarnation_id: record.incarnation_id,
            zk_migration_ready: record.zk_migration_ready,
            listeners: listeners.collect(),
            supported_features: features.collect(),
        }
    }

    pub fn to_record(&self) -> RegisterControllerRecord {
        let endpoint = |endpoint: &Endpoint| ControllerEndpoint {
            name: StrBytes::from_string(endpoint.name.to_string()),
            host: StrBytes::from_string(endpoint.host.to_string()),
            port: endpoint.port,
            security_protocol: endpoint.security_protocol,
            ..ControllerEndpoint::default()
        };
        let feature = |(name, range): (&String, &VersionRange)| ControllerFeature {
            name: StrBytes::from_string(name.clone()),
            min_supported_version: range.min,
            max_supported_version: range.max,
            ..ControllerFeature::default()
        };
        RegisterControllerRecord {
            controller_id: self.id,
            incarnation_id: self.incarnation_id,
            zk_migration_ready: self.zk_migration_ready,
            end_points: self.listeners.iter().map(endpoint).collect(),
            features: self.supported_features.iter().map(feature).collect(),
            ..RegisterControllerRecord::default()
        }
    }
}

/// What a BrokerRegistrationChange record (or one of its forebears) changes; `None` keeps.
#[derive(Debug, Default)]
pub(crate) struct RegistrationChange {
    pub fenced: Option<bool>,
    pub in_controlled_shutdown: Option<bool>,
    pub directories: Option<Vec<Uuid>>,
    pub cordoned_directories: Option<Vec<Uuid>>,
}

impl RegistrationChange {
    pub fn from_record(record: &BrokerRegistrationChangeRecord) -> Result<Self, ReplayError> {
        let fenced = match record.fenced {
            0 => None,
            1 => Some(true),
            -1 => Some(false),
            value => {
                return Err(ReplayError::UnknownValue {
                    what: "fenced",
                    value: i64::from(value),
                });
            }
        };
        let in_controlled_shutdown = match record.in_controlled_shutdown {
            0 => None,
            1 => Some(true),
            value => {
                return Err(ReplayError::UnknownValue {
                    what: "inControlledShutdown",
                    value: i64::from(value),
                });
            }
        };
        Ok(Self {
            fenced,
            in_controlled_shutdown,
            directories: (!record.log_dirs.is_empty()).then(|| sorted_directories(&record.log_dirs)),
            cordoned_directories: record.cordoned_log_dirs.as_deref().map(sorted_directories),
        })
    }
}

/// Changes; who calls them keeps track of what changed.
impl ClusterImage {
    pub(super) fn put_broker(&mut self, registration: BrokerRegistration) {
        Arc::make_mut(&mut self.brokers).insert(registration.id, Arc::new(registration));
    }

    fn checked_broker(&self, id: i32, epoch: i64) -> Result<&Arc<BrokerRegistration>, ReplayError> {
        let registration = self.brokers.get(&id).ok_or(ReplayError::UnknownBroker(id))?;
        if registration.epoch != epoch {
            return Err(ReplayError::WrongBrokerEpoch {
                broker_id: id,
                registered: registration.epoch,
                in_record: epoch,
            });
        }
        Ok(registration)
    }

    pub(super) fn remove_broker(&mut self, id: i32, epoch: i64) -> Result<(), ReplayError> {
        self.checked_broker(id, epoch)?;
        Arc::make_mut(&mut self.brokers).remove(&id);
        Ok(())
    }

    pub(super) fn change_broker(
        &mut self,
        id: i32,
        epoch: i64,
        change: RegistrationChange,
    ) -> Result<(), ReplayError> {
        let mut registration = (**self.checked_broker(id, epoch)?).clone();
        if let Some(fenced) = change.fenced {
            registration.fenced = fenced;
        }
        if let Some(in_controlled_shutdown) = change.in_controlled_shutdown {
            registration.in_controlled_shutdown = in_controlled_shutdown;
        }
        if let Some(directories) = change.directories {
            registration.directories = directories;
        }
        if change.cordoned_directories.is_some() {
            registration.cordoned_directories = change.cordoned_directories;
        }
        self.put_broker(registration);
        Ok(())
    }

    pub(super) fn put_controller(&mut self, registration: ControllerRegistration) {
        Arc::make_mut(&mut self.controllers).insert(registration.id, Arc::new(registration));
    }

    pub(super) fn remove_controller(&mut self, id: i32) -> Result<(), ReplayError> {
        match Arc::make_mut(&mut self.controllers).remove(&id) {
            Some(_) => Ok(()),
            None => Err(ReplayError::UnknownController(id)),
        }
    }
}
