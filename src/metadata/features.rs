//! Finalized feature levels in the image.
//!
//! Pure. `metadata.version` is apart; `kraft.version` is not here at all, it lives in control records.

use std::collections::BTreeMap;

use super::cluster::VersionRange;
use super::metadata_version::{
    ELIGIBLE_LEADER_REPLICAS_VERSION, GROUP_VERSION, KRAFT_VERSION, MetadataVersion, TRANSACTION_VERSION,
};
use crate::protocol::records::metadata::FeatureLevelRecord;

/// What this build serves of each feature, by name; a feature that it serves at level 0 only is absent, as in Kafka.
pub const SUPPORTED_FEATURES: &[(&str, VersionRange)] = &[
    (ELIGIBLE_LEADER_REPLICAS_VERSION, VersionRange { min: 0, max: 1 }),
    (GROUP_VERSION, VersionRange { min: 0, max: 1 }),
    (KRAFT_VERSION, VersionRange { min: 0, max: 1 }),
    (
        MetadataVersion::FEATURE_NAME,
        VersionRange {
            min: MetadataVersion::MINIMUM.level(),
            max: MetadataVersion::LATEST_PRODUCTION.level(),
        },
    ),
    (TRANSACTION_VERSION, VersionRange { min: 0, max: 2 }),
];

/// All finalized features.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeaturesImage {
    /// `None` until the first FeatureLevel record of it.
    pub metadata_version: Option<MetadataVersion>,
    /// The other features; levels are above 0.
    pub finalized: BTreeMap<String, i16>,
}

impl FeaturesImage {
    /// The finalized level, or the lowest supported while none is known.
    pub fn metadata_version_or_minimum(&self) -> MetadataVersion {
        self.metadata_version.unwrap_or(MetadataVersion::MINIMUM)
    }

    /// The finalized level of a feature, 0 if it is off.
    pub fn level(&self, name: &str) -> i16 {
        if name == MetadataVersion::FEATURE_NAME {
            return self.metadata_version.map_or(0, MetadataVersion::level);
        }
        self.finalized.get(name).copied().unwrap_or(0)
    }

    /// KIP-966.
    pub fn is_elr_enabled(&self) -> bool {
        self.level(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0
    }
}

impl FeaturesImage {
    pub(super) fn replay_feature_level(&mut self, record: &FeatureLevelRecord) {
        match record.name.as_str() {
            MetadataVersion::FEATURE_NAME => {
                self.metadata_version = Some(MetadataVersion(record.feature_level))
            }
            // Its place is the control records; old tools wrote it here too.
            KRAFT_VERSION => {}
            name if record.feature_level == 0 => {
                self.finalized.remove(name);
            }
            name => {
                self.finalized.insert(name.to_owned(), record.feature_level);
            }
        }
    }
}
