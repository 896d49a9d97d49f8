//! BrokerRegistration, BrokerHeartbeat, sessions that end, UnregisterBroker.
//!
//! Pure. Order and messages of the checks are Kafka's (`ClusterControlManager`, `ReplicationControlManager`).

use std::collections::{BTreeSet, HashMap, HashSet};

use uuid::Uuid;

use super::context::ControllerContext;
use super::elections::BrokerChange;
use super::heartbeats::{BrokerControlState, HeartbeatWish};
use super::shard::{Effect, Inputs, Outcome, Shard};
use crate::log::meta_properties::directory_id_text;
use crate::metadata::metadata_version::{KRAFT_VERSION, MetadataVersion};
use crate::metadata::partition::directory_id;
use crate::metadata::{BrokerRegistration, VersionRange};
use crate::protocol::messages::broker_registration_request::Feature;
use crate::protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest, BrokerRegistrationResponse,
};
use crate::protocol::records::metadata::register_broker_record::{BrokerEndpoint, BrokerFeature};
use crate::protocol::records::metadata::{BrokerRegistrationChangeRecord, RegisterBrokerRecord};
use crate::protocol::{ApiError, ErrorCode};
use crate::raft::VersionedRecord;

/// From this request version on a broker says whether it was shut down cleanly.
const FIRST_VERSION_WITH_PREVIOUS_BROKER_EPOCH: i16 = 3;

impl Shard {
    /// Registers a broker, or amends the registration of the same incarnation.
    pub fn register_broker(
        &self,
        inputs: &Inputs<'_>,
        context: &ControllerContext,
        request: &BrokerRegistrationRequest,
    ) -> Result<Outcome<BrokerRegistrationResponse>, ApiError> {
        if request.cluster_id.as_str() != self.config.cluster_id {
            return Err(ApiError::new(
                ErrorCode::InconsistentClusterId,
                format!(
                    "Expected cluster ID {}, but got cluster ID {}",
                    self.config.cluster_id, request.cluster_id
                ),
            ));
        }
        let broker_id = request.broker_id.0;
        let existing = self.image().cluster.broker(broker_id);
        self.check_no_other_incarnation(inputs, request, existing.map(|broker| &**broker))?;
        if request.is_migrating_zk_broker {
            return Err(ApiError::new(
                ErrorCode::BrokerIdNotRegistered,
                "Controller does not support registering ZK brokers.",
            ));
        }
        let metadata_version = self.metadata_version();
        if metadata_version.is_directory_assignment_supported() {
            self.check_directories(broker_id, &request.log_dirs)?;
        }
        self.check_features(inputs.kraft_version, request)?;

        let mut records = Vec::new();
        let mut record = register_broker_record(request, metadata_version);
        let same_incarnation = existing.filter(|broker| broker.incarnation_id == request.incarnation_id);
        if let Some(existing) = same_incarnation {
            record.fenced = existing.fenced;
            record.in_controlled_shutdown = existing.in_controlled_shutdown;
            record.broker_epoch = existing.epoch;
        } else {
            let stored_epoch = existing.map_or(-2, |broker| broker.epoch);
            let is_clean_shutdown = context.api_version >= FIRST_VERSION_WITH_PREVIOUS_BROKER_EPOCH
                && stored_epoch == request.previous_broker_epoch;
            self.broker_shut_down(broker_id, is_clean_shutdown, &mut records);
            record.broker_epoch = inputs.next_write_offset;
        }
        let mut response = BrokerRegistrationResponse::default();
        response.broker_epoch = record.broker_epoch;
        let effect = Effect::Register {
            broker_id,
            fenced: record.fenced,
            is_new_incarnation: same_incarnation.is_none(),
        };
        records.push((record.into(), metadata_version.register_broker_record_version()));
        Ok(Outcome::of(records, response).with_effects(vec![effect]))
    }

    fn check_no_other_incarnation(
        &self,
        inputs: &Inputs<'_>,
        request: &BrokerRegistrationRequest,
        existing: Option<&BrokerRegistration>,
    ) -> Result<(), ApiError> {
        let has_valid_session = |broker: &BrokerRegistration| {
            self.heartbeats.as_ref().is_some_and(|heartbeats| {
                heartbeats.has_valid_session(broker.id, broker.epoch, inputs.now_ms)
            })
        };
        match existing {
            Some(broker) if broker.incarnation_id != request.incarnation_id && has_valid_session(broker) => {
                Err(ApiError::new(
                    ErrorCode::DuplicateBrokerRegistration,
                    "Another broker is registered with that broker id. If the broker was recently restarted this \
                     should self-resolve once the heartbeat manager expires the broker's session.",
                ))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_directories(&self, broker_id: i32, directories: &[Uuid]) -> Result<(), ApiError> {
        let invalid = |message: String| Err(ApiError::new(ErrorCode::InvalidRegistration, message));
        if directories.is_empty() {
            return invalid("No directories specified in request".to_owned());
        }
        if directories.iter().any(|id| directory_id::is_reserved(*id)) {
            return invalid("Reserved directory ID in request".to_owned());
        }
        if directories.iter().collect::<BTreeSet<_>>().len() != directories.len() {
            return invalid("Duplicate directory ID in request".to_owned());
        }
        let mut owners: HashMap<Uuid, &BrokerRegistration> = HashMap::new();
        for broker in self
            .image()
            .cluster
            .brokers
            .values()
            .filter(|broker| broker.id != broker_id)
        {
            for directory in &broker.directories {
                owners.entry(*directory).or_insert(broker);
            }
        }
        for directory in directories {
            if let Some(owner) = owners.get(directory) {
                return invalid(format!(
                    "Broker {} is already registered with directory {}",
                    owner.id,
                    directory_id_text(*directory)
                ));
            }
        }
        Ok(())
    }

    /// Every finalized level must be in the broker's range; a feature that it does not name is served at 0 only.
    fn check_features(
        &self,
        kraft_version: i16,
        request: &BrokerRegistrationRequest,
    ) -> Result<(), ApiError> {
        let features = &self.image().features;
        let finalized = |name: &str| match name {
            KRAFT_VERSION => kraft_version,
            name => features.level(name),
        };
        for feature in &request.features {
            let range = VersionRange {
                min: feature.min_supported_version,
                max: feature.max_supported_version,
            };
            check_range(feature.name.as_str(), range, finalized(feature.name.as_str()))?;
        }
        let is_named = |name: &str| {
            request
                .features
                .iter()
                .any(|feature| feature.name.as_str() == name)
        };
        if !is_named(MetadataVersion::FEATURE_NAME) {
            return Err(ApiError::new(
                ErrorCode::InvalidRegistration,
                "Request features do not contain 'metadata.version'",
            ));
        }
        let names = features
            .finalized
            .keys()
            .map(String::as_str)
            .chain([KRAFT_VERSION]);
        for name in names.filter(|name| !is_named(name)) {
            if finalized(name) != 0 {
                check_range(name, VersionRange { min: 0, max: 0 }, finalized(name))?;
            }
        }
        Ok(())
    }

    /// The heartbeat itself counts before it is decided: see [`Shard::note_heartbeat`].
    pub fn broker_heartbeat(
        &self,
        request: &BrokerHeartbeatRequest,
    ) -> Result<Outcome<BrokerHeartbeatResponse>, ApiError> {
        let broker_id = request.broker_id.0;
        let broker_epoch = request.broker_epoch;
        let Some(register_offset) = self.register_broker_record_offset(broker_id) else {
            return Err(ApiError::new(
                ErrorCode::StaleBrokerEpoch,
                format!("Receive a heartbeat from broker {broker_id} before registration"),
            ));
        };
        self.check_broker_epoch(broker_id, broker_epoch)?;
        let wish = HeartbeatWish {
            current_metadata_offset: request.current_metadata_offset,
            want_fence: request.want_fence,
            want_shut_down: request.want_shut_down,
        };
        let has_leaderships = self.indexes().has_leaderships(broker_id);
        let states = self
            .heartbeats
            .as_ref()
            .and_then(|heartbeats| heartbeats.next_state(broker_id, wish, register_offset, has_leaderships));
        let Some((current, next)) = states else {
            return Err(ErrorCode::NotController.into());
        };
        let mut records = Vec::new();
        if current != next {
            match next {
                BrokerControlState::Fenced | BrokerControlState::ShutdownNow => {
                    self.broker_fenced(broker_id, &mut records);
                }
                BrokerControlState::Unfenced => self.broker_unfenced(broker_id, broker_epoch, &mut records),
                BrokerControlState::ControlledShutdown => {
                    self.broker_in_controlled_shutdown(broker_id, broker_epoch, &mut records);
                }
            }
        }
        self.change_directories(request, &mut records);
        let mut effects = vec![Effect::Touch {
            broker_id,
            fenced: next.is_fenced(),
            metadata_offset: request.current_metadata_offset,
        }];
        if next == BrokerControlState::ControlledShutdown {
            effects.push(Effect::ControlledShutdown { broker_id });
        }
        let response = BrokerHeartbeatResponse {
            is_caught_up: request.current_metadata_offset >= register_offset,
            is_fenced: next.is_fenced(),
            should_shut_down: next == BrokerControlState::ShutdownNow,
            ..BrokerHeartbeatResponse::default()
        };
        Ok(Outcome::of(records, response).with_effects(effects))
    }

    fn change_directories(&self, request: &BrokerHeartbeatRequest, records: &mut Vec<VersionedRecord>) {
        let Some(broker) = self.image().cluster.broker(request.broker_id.0) else {
            return;
        };
        let version = self.metadata_version();
        if version.is_directory_assignment_supported() {
            self.directories_offline(broker, &request.offline_log_dirs, records);
        }
        if let Some(cordoned) = &request.cordoned_log_dirs
            && version.is_cordoned_log_dirs_supported()
        {
            let new: BTreeSet<&Uuid> = cordoned.iter().collect();
            let known = broker.cordoned_directories.as_ref();
            let is_known = known.is_some_and(|known| known.iter().collect::<BTreeSet<_>>() == new);
            if !is_known {
                let record = BrokerRegistrationChangeRecord {
                    broker_id: broker.id,
                    broker_epoch: broker.epoch,
                    cordoned_log_dirs: Some(cordoned.clone()),
                    ..BrokerRegistrationChangeRecord::default()
                };
                records.push((record.into(), 3));
            }
        }
    }

    fn directories_offline(
        &self,
        broker: &BrokerRegistration,
        offline: &[Uuid],
        records: &mut Vec<VersionedRecord>,
    ) {
        let offline: HashSet<Uuid> = offline.iter().copied().collect();
        let newly_offline: HashSet<Uuid> = broker
            .directories
            .iter()
            .copied()
            .filter(|id| offline.contains(id))
            .collect();
        if newly_offline.is_empty() {
            return;
        }
        // A failed disk is rare: a walk over all partitions is cheaper than an index of their directories.
        let is_there = |directory: Option<Uuid>| directory.is_some_and(|id| newly_offline.contains(&id));
        let mut partitions = Vec::new();
        for topic in self.image().topics.iter() {
            for (partition, registration) in &topic.partitions {
                if is_there(registration.directory_of(broker.id)) {
                    partitions.push((topic.id, *partition));
                }
            }
        }
        let change = BrokerChange {
            remove: Some(broker.id),
            ..BrokerChange::default()
        };
        self.leader_and_isr_updates(change, &partitions, records);
        let remaining = broker
            .directories
            .iter()
            .copied()
            .filter(|id| !newly_offline.contains(id));
        let record = BrokerRegistrationChangeRecord {
            broker_id: broker.id,
            broker_epoch: broker.epoch,
            log_dirs: remaining.collect(),
            ..BrokerRegistrationChangeRecord::default()
        };
        records.push((record.into(), 2));
    }

    /// A heartbeat arrived: the session goes on, whatever will be decided about it.
    pub fn note_heartbeat(&mut self, now_ms: i64, broker_id: i32, broker_epoch: i64) {
        if let Some(heartbeats) = &mut self.heartbeats {
            heartbeats.update_contact_time(broker_id, broker_epoch, now_ms);
        }
    }

    /// It could not be fenced now: its session stays over.
    pub fn put_back_stale_broker(&mut self, now_ms: i64, (broker_id, broker_epoch): (i32, i64)) {
        let session_timeout_ms = i64::from(self.static_config().broker_session_timeout_ms);
        self.note_heartbeat(now_ms - session_timeout_ms - 1, broker_id, broker_epoch);
    }

    /// Takes one broker whose session is over; the caller fences it by [`Shard::fence_stale_broker`].
    pub fn take_stale_broker(&mut self, now_ms: i64) -> Option<(i32, i64)> {
        self.heartbeats.as_mut()?.maybe_remove_expired(now_ms)
    }

    /// The records that fence the broker, if it is still of that epoch.
    pub fn fence_stale_broker(&self, broker_id: i32, broker_epoch: i64) -> Outcome<()> {
        let mut records = Vec::new();
        let mut effects = Vec::new();
        match self.image().cluster.broker(broker_id) {
            None => effects.push(Effect::Remove { broker_id }),
            Some(broker) if broker.epoch == broker_epoch => {
                self.broker_fenced(broker_id, &mut records);
                effects.push(Effect::Fence { broker_id });
            }
            Some(_) => {}
        }
        Outcome::of(records, ()).with_effects(effects)
    }
}

fn check_range(name: &str, range: VersionRange, finalized: i16) -> Result<(), ApiError> {
    if range.contains(finalized) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::UnsupportedVersion,
        format!(
            "Unable to register because the broker does not support finalized version {finalized} of {name}. The \
             broker wants a version between {} and {}, inclusive.",
            range.min, range.max
        ),
    ))
}

fn register_broker_record(
    request: &BrokerRegistrationRequest,
    metadata_version: MetadataVersion,
) -> RegisterBrokerRecord {
    let feature = |feature: &Feature| BrokerFeature {
        name: feature.name.clone(),
        min_supported_version: feature.min_supported_version,
        max_supported_version: feature.max_supported_version,
        ..BrokerFeature::default()
    };
    let listeners = request.listeners.iter().map(|listener| BrokerEndpoint {
        name: listener.name.clone(),
        host: listener.host.clone(),
        port: listener.port,
        security_protocol: listener.security_protocol,
        ..BrokerEndpoint::default()
    });
    RegisterBrokerRecord {
        broker_id: request.broker_id.0,
        is_migrating_zk_broker: request.is_migrating_zk_broker,
        incarnation_id: request.incarnation_id,
        end_points: listeners.collect(),
        features: request.features.iter().map(feature).collect(),
        rack: request.rack.clone(),
        log_dirs: if metadata_version.is_directory_assignment_supported() {
            request.log_dirs.clone()
        } else {
            Vec::new()
        },
        ..RegisterBrokerRecord::default()
    }
}

#[cfg(test)]
#[path = "brokers_test.rs"]
mod brokers_test;
