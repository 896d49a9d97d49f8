//! Feature levels: which release means which, and what `kavka format` finalizes.
//!
//! kavka knows every level that Apache Kafka 4.4 knows. By itself it finalizes those features at 0 of which it does not serve
//! the requests yet; a level that is asked for is written as asked.

use crate::metadata::features::SUPPORTED_FEATURES;

/// A stable `metadata.version` of 4.4: its level and its name.
pub(super) const METADATA_VERSIONS: &[(i16, &str)] = &[
    (7, "3.3-IV3"),
    (8, "3.4-IV0"),
    (9, "3.5-IV0"),
    (10, "3.5-IV1"),
    (11, "3.5-IV2"),
    (12, "3.6-IV0"),
    (13, "3.6-IV1"),
    (14, "3.6-IV2"),
    (15, "3.7-IV0"),
    (16, "3.7-IV1"),
    (17, "3.7-IV2"),
    (18, "3.7-IV3"),
    (19, "3.7-IV4"),
    (20, "3.8-IV0"),
    (21, "3.9-IV0"),
    (22, "4.0-IV0"),
    (23, "4.0-IV1"),
    (24, "4.0-IV2"),
    (25, "4.0-IV3"),
    (26, "4.1-IV0"),
    (27, "4.1-IV1"),
    (28, "4.2-IV0"),
    (29, "4.2-IV1"),
    (30, "4.3-IV0"),
    (31, "4.4-IV0"),
    (32, "4.4-IV1"),
    (33, "4.4-IV2"),
];

pub(super) const LATEST_METADATA_VERSION: i16 = 33;

/// A feature beside `metadata.version`, in Kafka's order.
pub(super) struct Feature {
    pub name: &'static str,
    /// Level and the `metadata.version` from which a new cluster gets it, level 1 first.
    levels: &'static [(i16, i16)],
    /// What each level needs of `metadata.version`, if anything.
    dependency: Option<(i16, i16)>,
}

pub(super) const FEATURES: &[Feature] = &[
    Feature {
        name: KRAFT_VERSION,
        levels: &[(1, 21)],
        dependency: None,
    },
    Feature {
        name: "transaction.version",
        levels: &[(1, 24), (2, 24)],
        dependency: None,
    },
    Feature {
        name: "group.version",
        levels: &[(1, 22)],
        dependency: None,
    },
    Feature {
        name: "eligible.leader.replicas.version",
        levels: &[(1, 26)],
        dependency: Some((1, 23)),
    },
    Feature {
        name: "share.version",
        levels: &[(1, 28), (2, 31)],
        dependency: None,
    },
    Feature {
        name: "streams.version",
        levels: &[(1, 29)],
        dependency: None,
    },
];

pub(super) const METADATA_VERSION: &str = "metadata.version";
pub(super) const KRAFT_VERSION: &str = "kraft.version";

impl Feature {
    pub fn find(name: &str) -> Option<&'static Feature> {
        FEATURES.iter().find(|feature| feature.name == name)
    }

    /// What Apache Kafka finalizes for a new cluster of this `metadata.version`.
    pub fn kafka_default(&self, metadata_version: i16) -> i16 {
        let allowed = self
            .levels
            .iter()
            .filter(|(_, bootstrap)| *bootstrap <= metadata_version);
        allowed.map(|(level, _)| *level).max().unwrap_or(0)
    }

    /// What kavka finalizes: as Kafka, but nothing whose requests it does not serve.
    pub fn default_level(&self, metadata_version: i16) -> i16 {
        if SUPPORTED_FEATURES.iter().any(|(name, _)| *name == self.name) {
            self.kafka_default(metadata_version)
        } else {
            0
        }
    }

    pub fn has_level(&self, level: i16) -> bool {
        level == 0 || self.levels.iter().any(|(known, _)| *known == level)
    }

    /// The `metadata.version` that `level` needs.
    pub fn needs(&self, level: i16) -> Option<i16> {
        self.dependency
            .filter(|(from, _)| level >= *from)
            .map(|(_, metadata_version)| metadata_version)
    }
}

/// The level of `3.9`, `3.9-IV0` and the like: a release without `-IV` is its last level.
pub(super) fn parse_metadata_version(text: &str) -> Option<i16> {
    let exact = METADATA_VERSIONS.iter().find(|(_, name)| *name == text);
    // A patch release has the level of its minor release.
    let release: Vec<&str> = text.split('.').take(2).collect();
    let prefix = format!("{}-IV", release.join("."));
    let is_release = !text.contains("-IV") && release.len() == 2;
    let last = METADATA_VERSIONS
        .iter()
        .rfind(|(_, name)| is_release && name.starts_with(&prefix));
    exact.or(last).map(|(level, _)| *level)
}

pub(super) fn metadata_version_name(level: i16) -> &'static str {
    METADATA_VERSIONS
        .iter()
        .find(|(known, _)| *known == level)
        .map_or("unknown", |(_, name)| name)
}

/// What a wrong name is answered with.
pub(super) fn unknown_metadata_version(text: &str) -> String {
    let names: Vec<&str> = METADATA_VERSIONS.iter().map(|(_, name)| *name).collect();
    format!(
        "Unknown metadata.version '{text}'. Supported metadata.version are: {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod features_test {
    use super::*;

    #[test]
    fn release_names_parsed_to_their_last_level() {
        for (text, level) in [
            ("4.4-IV2", Some(33)),
            ("4.4", Some(33)),
            ("4.0", Some(25)),
            ("3.9.1", Some(21)),
            ("3.9-IV0", Some(21)),
            ("9.9", None),
            ("4.5-IV0", None),
            ("4", None),
            ("", None),
        ] {
            assert_eq!(parse_metadata_version(text), level, "{text}");
        }
    }

    /// `kafka-storage.sh version-mapping` of 4.4 for these releases.
    #[test]
    fn defaults_of_kafka_are_those_of_its_version_mapping() {
        let levels = |metadata_version| {
            FEATURES
                .iter()
                .map(|feature| feature.kafka_default(metadata_version))
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(33), [1, 2, 1, 1, 2, 1]);
        assert_eq!(levels(21), [1, 0, 0, 0, 0, 0]);
        assert_eq!(levels(25), [1, 2, 1, 0, 0, 0]);
    }
}
