//! UpdateFeatures: raising and lowering finalized feature levels (`FeatureControlManager`).
//!
//! Pure. All updates of a request are made, or none. A level has to be in the range that this controller, every registered
//! broker and every other controller claims; what this build claims is `SUPPORTED_FEATURES` and nothing else.
//! `kraft.version` lives in control records of raft, not here: it can be confirmed, not changed.

use std::collections::{BTreeMap, HashMap};

use super::shard::{Inputs, Outcome, Shard};
use crate::config::java_order::sort_as_java_hash_map;
use crate::metadata::features::SUPPORTED_FEATURES;
use crate::metadata::metadata_version::{ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION, MetadataVersion};
use crate::metadata::{ConfigResource, ConfigResourceType, VersionRange, image_records};
use crate::protocol::messages::update_features_response::UpdatableFeatureResult;
use crate::protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use crate::protocol::records::metadata::{ConfigRecord, NoOpRecord};
use crate::protocol::{ErrorCode, StrBytes};
use crate::raft::VersionedRecord;

/// `FeatureUpdate.UpgradeType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpgradeType {
    Unknown,
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
}

impl UpgradeType {
    fn from_code(code: i8) -> Self {
        match code {
            1 => Self::Upgrade,
            2 => Self::SafeDowngrade,
            3 => Self::UnsafeDowngrade,
            _ => Self::Unknown,
        }
    }
}

/// What a feature that a node does not name is served at.
const DISABLED: VersionRange = VersionRange { min: 0, max: 0 };

/// Version of the request from which there are no results by feature.
const WITHOUT_RESULTS: i16 = 2;

impl Shard {
    pub fn update_features(
        &self,
        inputs: &Inputs<'_>,
        api_version: i16,
        request: &UpdateFeaturesRequest,
    ) -> Outcome<UpdateFeaturesResponse> {
        let mut by_name: HashMap<&str, (i16, UpgradeType)> = HashMap::new();
        for update in &request.feature_updates {
            let asked = (
                update.max_version_level,
                UpgradeType::from_code(update.upgrade_type),
            );
            // The last one of a name counts.
            by_name.insert(&update.feature, asked);
        }
        let mut updates: Vec<(&str, (i16, UpgradeType))> = by_name.into_iter().collect();
        // The first that is refused is reported.
        sort_as_java_hash_map(&mut updates, |(name, _)| name);
        let proposed: BTreeMap<&str, i16> =
            updates.iter().map(|(name, (level, _))| (*name, *level)).collect();
        let mut records = Vec::new();
        for (name, (level, upgrade_type)) in &updates {
            let decided = self.update_feature(inputs, name, *level, *upgrade_type, &proposed);
            match decided {
                Ok(decided) => records.extend(decided),
                Err(message) => return Outcome::atomic(Vec::new(), refusal(&message)),
            }
        }
        let mut response = UpdateFeaturesResponse::default();
        response.error_message = None;
        if api_version < WITHOUT_RESULTS {
            let results = request.feature_updates.iter().map(|update| {
                UpdatableFeatureResult::default()
                    .with_feature(update.feature.clone())
                    .with_error_message(Some(StrBytes::from_static_str("NONE")))
            });
            response.results = results.collect();
        }
        if request.validate_only {
            return Outcome::atomic(Vec::new(), response);
        }
        if proposed
            .get(ELIGIBLE_LEADER_REPLICAS_VERSION)
            .is_some_and(|level| *level > 0)
        {
            records.splice(0..0, self.one_min_insync_replicas());
        }
        Outcome::atomic(records, response)
    }

    /// The records of one update, or why it is refused.
    fn update_feature(
        &self,
        inputs: &Inputs<'_>,
        name: &str,
        level: i16,
        upgrade_type: UpgradeType,
        proposed: &BTreeMap<&str, i16>,
    ) -> Result<Vec<VersionedRecord>, String> {
        let invalid = |reason: &str| {
            Err(format!(
                "Invalid update version {level} for feature {name}. {reason}"
            ))
        };
        if upgrade_type == UpgradeType::Unknown {
            return invalid("The controller does not support the given upgrade type.");
        }
        let current = match name {
            KRAFT_VERSION => inputs.kraft_version,
            MetadataVersion::FEATURE_NAME => self.metadata_version().level(),
            name => self.image().features.level(name),
        };
        if level < 0 {
            return invalid("A feature version cannot be less than 0.");
        }
        if let Some(reason) = self.reason_not_supported(name, level) {
            return invalid(&reason);
        }
        if level < current && upgrade_type == UpgradeType::Upgrade {
            return invalid(
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe \
                 downgrade.",
            );
        }
        if level > current && upgrade_type != UpgradeType::Upgrade {
            return invalid("Can't downgrade to a newer version.");
        }
        match name {
            MetadataVersion::FEATURE_NAME => check_metadata_downgrade(current, level, upgrade_type)?,
            KRAFT_VERSION => return update_kraft_version(current, level, upgrade_type),
            _ if SUPPORTED_FEATURES.iter().all(|(known, _)| *known != name)
                && !self.image().features.finalized.contains_key(name) =>
            {
                return invalid(&format!("Feature {name} not found."));
            }
            _ => {}
        }
        if name == ELIGIBLE_LEADER_REPLICAS_VERSION && level > 0 {
            let metadata_version = proposed.get(MetadataVersion::FEATURE_NAME).copied();
            let metadata_version = metadata_version.map_or(self.metadata_version(), MetadataVersion);
            if !metadata_version.is_elr_supported() {
                return invalid(&format!(
                    "{name} could not be set to {level} because it depends on metadata.version level {}",
                    MetadataVersion::ELR_MINIMUM.level()
                ));
            }
        }
        Ok(vec![image_records::feature_level_record(name, level)])
    }

    fn reason_not_supported(&self, name: &str, level: i16) -> Option<String> {
        let own_id = self.node_id();
        let own = SUPPORTED_FEATURES.iter().find(|(known, _)| *known == name);
        let own = own.map_or(DISABLED, |(_, range)| *range);
        if let Some(reason) = reason_beyond(&format!("Local controller {own_id}"), own, level) {
            return Some(reason);
        }
        let range_in =
            |features: &BTreeMap<String, VersionRange>| features.get(name).copied().unwrap_or(DISABLED);
        let cluster = &self.image().cluster;
        for broker in cluster.brokers.values() {
            let range = range_in(&broker.supported_features);
            if let Some(reason) = reason_beyond(&format!("Broker {}", broker.id), range, level) {
                return Some(reason);
            }
        }
        if !self.metadata_version().is_controller_registration_supported() {
            return None;
        }
        for controller in cluster.controllers.values().filter(|other| other.id != own_id) {
            let range = range_in(&controller.supported_features);
            if let Some(reason) = reason_beyond(&format!("Controller {}", controller.id), range, level) {
                return Some(reason);
            }
        }
        let mut voters = self
            .static_config()
            .controller_quorum_voters
            .iter()
            .map(|voter| voter.id);
        let missing = voters.find(|id| *id != own_id && !cluster.controllers.contains_key(id))?;
        Some(format!(
            "controller {missing} has not registered, and may not support this feature"
        ))
    }

    /// With eligible leader replicas the whole cluster has one `min.insync.replicas` (`maybeGenerateElrSafetyRecords`).
    fn one_min_insync_replicas(&self) -> Vec<VersionedRecord> {
        const KEY: &str = "min.insync.replicas";
        let record = |resource: &ConfigResource, value: Option<String>| -> VersionedRecord {
            let record = ConfigRecord {
                resource_type: resource.resource_type.id(),
                resource_name: StrBytes::from_string(resource.name.to_string()),
                name: StrBytes::from_static_str(KEY),
                value: value.map(StrBytes::from_string),
                ..ConfigRecord::default()
            };
            (record.into(), 0)
        };
        let configs = &self.image().configs;
        let whole_cluster = ConfigResource::broker_default();
        let mut records = Vec::new();
        if !configs
            .get(&whole_cluster)
            .is_some_and(|settings| settings.contains_key(KEY))
        {
            let minimum = self.static_config().min_insync_replicas;
            records.push(record(&whole_cluster, Some(minimum.to_string())));
        }
        let of_brokers = configs.iter().filter(|(resource, settings)| {
            resource.resource_type == ConfigResourceType::Broker
                && !resource.name.is_empty()
                && settings.contains_key(KEY)
        });
        records.extend(of_brokers.map(|(resource, _)| record(resource, None)));
        records
    }
}

fn refusal(message: &str) -> UpdateFeaturesResponse {
    let text =
        format!("The update failed for all features since the following feature had an error: {message}");
    let mut response = UpdateFeaturesResponse::default();
    response.error_code = ErrorCode::InvalidUpdateVersion.code();
    response.error_message = Some(StrBytes::from_string(text));
    response
}

fn reason_beyond(who: &str, range: VersionRange, level: i16) -> Option<String> {
    if range.min <= level && level <= range.max {
        None
    } else if range.max == 0 {
        Some(format!("{who} does not support this feature."))
    } else if range.min == range.max {
        Some(format!("{who} only supports versions {}", range.min))
    } else {
        Some(format!(
            "{who} only supports versions {}-{}",
            range.min, range.max
        ))
    }
}

fn check_metadata_downgrade(current: i16, level: i16, upgrade_type: UpgradeType) -> Result<(), String> {
    if level >= current || !MetadataVersion::has_changed_metadata_between(level, current) {
        return Ok(());
    }
    let reason = match upgrade_type {
        UpgradeType::UnsafeDowngrade => "Unsafe metadata downgrade is not supported in this version.",
        _ => "Refusing to perform the requested downgrade because it might delete metadata information.",
    };
    Err(format!(
        "Unsupported metadata.version downgrade from {current} to {level}. {reason}"
    ))
}

fn update_kraft_version(
    current: i16,
    level: i16,
    upgrade_type: UpgradeType,
) -> Result<Vec<VersionedRecord>, String> {
    match upgrade_type {
        // Kafka writes a record so that the answer waits for what raft has written.
        UpgradeType::Upgrade if level == current => Ok(vec![(NoOpRecord::default().into(), 0)]),
        UpgradeType::Upgrade => Err(format!(
            "Invalid upgrade of {KRAFT_VERSION} from version {current} to {level}"
        )),
        _ if level == current => Ok(Vec::new()),
        _ => Err(format!(
            "Invalid update version {level} for feature {KRAFT_VERSION}. Can't downgrade the version of this feature."
        )),
    }
}

#[cfg(test)]
#[path = "features_test.rs"]
mod features_test;
