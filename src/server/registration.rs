//! What this node says of itself when it registers as a broker and as a controller. Pure.

use uuid::Uuid;

use crate::config::{Endpoint, KafkaConfig, listeners};
use crate::log::meta_properties::LogDirIdentities;
use crate::metadata::MetadataImage;
use crate::metadata::broker_lifecycle::BrokerLifecycleConfig;
use crate::metadata::features::SUPPORTED_FEATURES;
use crate::network::BoundListener;
use crate::protocol::StrBytes;
use crate::protocol::messages::{
    ControllerRegistrationRequest, broker_registration_request, controller_registration_request,
};

/// Advertised addresses with the ports that the system picked where the configuration says 0.
pub(super) fn resolve(advertised: &[Endpoint], bound: &[BoundListener]) -> Vec<Endpoint> {
    let port_of = |name: &str| {
        bound
            .iter()
            .find(|listener| listener.endpoint().listener_name == name)
            .map(|listener| listener.local_address().port())
    };
    listeners::resolve_advertised(advertised, port_of, &host_name())
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// `PLAINTEXT://localhost:9092, ...`
pub(super) fn text_of(endpoints: &[Endpoint]) -> String {
    endpoints
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) fn raft_endpoint(endpoint: &Endpoint) -> crate::raft::Endpoint {
    crate::raft::Endpoint {
        name: endpoint.listener_name.as_str().into(),
        host: endpoint.host.as_str().into(),
        port: endpoint.port,
    }
}

/// Feature ranges to register: what kavka serves, and each finalized level beyond that, since a controller accepts no broker whose
/// ranges leave one out. Features of a taken-over cluster thus stay as they were found.
fn features(image: &MetadataImage) -> Vec<(StrBytes, i16, i16)> {
    let mut features: Vec<_> = SUPPORTED_FEATURES
        .iter()
        .map(|(name, range)| {
            let level = image.features.level(name);
            (StrBytes::from_static_str(name), range.min, range.max.max(level))
        })
        .collect();
    for (name, level) in &image.features.finalized {
        if !features.iter().any(|(known, _, _)| **known == **name) {
            features.push((StrBytes::from_string(name.clone()), 0, *level));
        }
    }
    features
}

/// The broker's registration (BrokerRegistration and its heartbeats).
pub(super) fn of_broker(
    config: &KafkaConfig,
    identities: &LogDirIdentities,
    incarnation_id: Uuid,
    advertised: &[Endpoint],
    image: &MetadataImage,
    previous_broker_epoch: i64,
) -> BrokerLifecycleConfig {
    let listener = |endpoint: &Endpoint| {
        broker_registration_request::Listener::default()
            .with_name(StrBytes::from_string(endpoint.listener_name.clone()))
            .with_host(StrBytes::from_string(endpoint.host.clone()))
            .with_port(endpoint.port)
            .with_security_protocol(endpoint.security_protocol.id())
    };
    let feature = |(name, min, max): (StrBytes, i16, i16)| {
        broker_registration_request::Feature::default()
            .with_name(name)
            .with_min_supported_version(min)
            .with_max_supported_version(max)
    };
    let is_log_dir = |dir: &std::path::PathBuf| config.log_dirs.contains(dir);
    BrokerLifecycleConfig {
        broker_id: config.node_id,
        cluster_id: identities.cluster_id.clone(),
        incarnation_id,
        listeners: advertised.iter().map(listener).collect(),
        features: features(image).into_iter().map(feature).collect(),
        rack: config.broker_rack.clone(),
        log_dirs: identities
            .directory_ids
            .iter()
            .filter(|(dir, _)| is_log_dir(dir))
            .map(|(_, id)| *id)
            .collect(),
        previous_broker_epoch,
        heartbeat_interval_ms: config.broker_heartbeat_interval_ms.into(),
        session_timeout_ms: config.broker_session_timeout_ms.into(),
        initial_registration_timeout_ms: config.initial_broker_registration_timeout_ms.into(),
    }
}

/// The controller's registration (KIP-919). It claims what kavka serves; finalized levels beyond are kept, not controlled.
pub(super) fn of_controller(
    node_id: i32,
    incarnation_id: Uuid,
    advertised: &[Endpoint],
) -> ControllerRegistrationRequest {
    let listener = |endpoint: &Endpoint| {
        controller_registration_request::Listener::default()
            .with_name(StrBytes::from_string(endpoint.listener_name.clone()))
            .with_host(StrBytes::from_string(endpoint.host.clone()))
            .with_port(endpoint.port)
            .with_security_protocol(endpoint.security_protocol.id())
    };
    let feature = |(name, range): &(&'static str, crate::metadata::VersionRange)| {
        controller_registration_request::Feature::default()
            .with_name(StrBytes::from_static_str(name))
            .with_min_supported_version(range.min)
            .with_max_supported_version(range.max)
    };
    ControllerRegistrationRequest::default()
        .with_controller_id(node_id)
        .with_incarnation_id(incarnation_id)
        .with_zk_migration_ready(false)
        .with_listeners(advertised.iter().map(listener).collect())
        .with_features(SUPPORTED_FEATURES.iter().map(feature).collect())
}
