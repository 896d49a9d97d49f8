//! Answers are those that Apache Kafka 4.4 gave on the same levels.

use super::*;
use crate::controller::test_support::*;
use crate::protocol::messages::update_features_request::FeatureUpdateKey;
use crate::protocol::records::metadata::MetadataRecord;

const FAILED: &str = "The update failed for all features since the following feature had an error: ";
const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

fn request(updates: &[(&str, i16, i8)]) -> UpdateFeaturesRequest {
    let updates = updates.iter().map(|(name, level, upgrade_type)| {
        FeatureUpdateKey::default()
            .with_feature(text(name))
            .with_max_version_level(*level)
            .with_upgrade_type(*upgrade_type)
    });
    UpdateFeaturesRequest::default().with_feature_updates(updates.collect())
}

/// The levels written in order, or the message.
fn update(fixture: &mut Fixture, updates: &[(&str, i16, i8)]) -> Result<Vec<(String, i16)>, String> {
    let request = request(updates);
    let (records, response) = fixture
        .run(|shard, inputs, _| Ok(shard.update_features(inputs, 2, &request)))
        .unwrap();
    assert!(response.results.is_empty());
    match response.error_message {
        Some(message) => {
            assert_eq!((response.error_code, records.len()), (95, 0));
            Err(message.strip_prefix(FAILED).unwrap().to_owned())
        }
        None => {
            assert_eq!(response.error_code, 0);
            let levels = records.iter().filter_map(|(record, _)| match record {
                MetadataRecord::FeatureLevel(record) => Some((record.name.to_string(), record.feature_level)),
                _ => None,
            });
            Ok(levels.collect())
        }
    }
}

fn refused(updates: &[(&str, i16, i8)]) -> String {
    update(&mut Fixture::with_brokers(1), updates).unwrap_err()
}

#[test]
fn levels_that_are_not_supported_are_refused() {
    assert_eq!(
        refused(&[("nope", 1, UPGRADE)]),
        "Invalid update version 1 for feature nope. Local controller 1 does not support this feature."
    );
    assert_eq!(
        refused(&[("nope", 0, UPGRADE)]),
        "Invalid update version 0 for feature nope. Feature nope not found."
    );
    assert_eq!(
        refused(&[("eligible.leader.replicas.version", 9, UPGRADE)]),
        "Invalid update version 9 for feature eligible.leader.replicas.version. Local controller 1 only supports \
         versions 0-1"
    );
    assert_eq!(
        refused(&[("eligible.leader.replicas.version", -1, UPGRADE)]),
        "Invalid update version -1 for feature eligible.leader.replicas.version. A feature version cannot be less \
         than 0."
    );
    for level in [0, 6, 34, 35] {
        assert_eq!(
            refused(&[("metadata.version", level, UNSAFE_DOWNGRADE)]),
            format!(
                "Invalid update version {level} for feature metadata.version. Local controller 1 only supports versions \
                 7-33"
            )
        );
    }
}

#[test]
fn level_that_a_broker_does_not_support_is_refused() {
    let mut fixture = Fixture::with_features(&[], vec![feature_level("metadata.version", 30)]);
    let mut old = registration(4, 4);
    for feature in &mut old.features {
        match &*feature.name {
            "metadata.version" => feature.max_supported_version = 31,
            "eligible.leader.replicas.version" => feature.max_supported_version = 0,
            _ => {}
        }
    }
    fixture.register(&old).unwrap();
    assert_eq!(
        update(&mut fixture, &[("metadata.version", 33, UPGRADE)]),
        Err(
            "Invalid update version 33 for feature metadata.version. Broker 4 only supports versions 7-31"
                .to_owned()
        )
    );
    assert_eq!(
        update(&mut fixture, &[("eligible.leader.replicas.version", 1, UPGRADE)]),
        Err(
            "Invalid update version 1 for feature eligible.leader.replicas.version. Broker 4 does not support this \
             feature."
                .to_owned()
        )
    );
    assert_eq!(
        update(&mut fixture, &[("metadata.version", 31, UPGRADE)]),
        Ok(vec![("metadata.version".to_owned(), 31)])
    );
}

#[test]
fn downgrade_has_to_be_asked_for_as_one() {
    let elr = "eligible.leader.replicas.version";
    assert_eq!(
        refused(&[(elr, 0, UPGRADE)]),
        "Invalid update version 0 for feature eligible.leader.replicas.version. Can't downgrade the version of this \
         feature without setting the upgrade type to either safe or unsafe downgrade."
    );
    for unknown in [0, 7, -1] {
        assert_eq!(
            refused(&[(elr, 0, unknown)]),
            "Invalid update version 0 for feature eligible.leader.replicas.version. The controller does not support the \
             given upgrade type."
        );
    }
    let mut fixture = Fixture::with_brokers(1);
    for downgrade in [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE] {
        // To the same level it is written again.
        assert_eq!(
            update(&mut fixture, &[(elr, 1, UPGRADE)]),
            Ok(vec![(elr.to_owned(), 1)])
        );
        assert_eq!(
            update(&mut fixture, &[(elr, 0, downgrade)]),
            Ok(vec![(elr.to_owned(), 0)])
        );
        assert_eq!(fixture.shard.image().features.level(elr), 0);
    }
    assert_eq!(
        update(&mut fixture, &[(elr, 1, SAFE_DOWNGRADE)]),
        Err(
            "Invalid update version 1 for feature eligible.leader.replicas.version. Can't downgrade to a newer version."
                .to_owned()
        )
    );
}

#[test]
fn metadata_version_goes_back_only_where_nothing_would_be_lost() {
    assert_eq!(
        refused(&[("metadata.version", 32, SAFE_DOWNGRADE)]),
        "Unsupported metadata.version downgrade from 33 to 32. Refusing to perform the requested downgrade because it \
         might delete metadata information."
    );
    assert_eq!(
        refused(&[("metadata.version", 20, UNSAFE_DOWNGRADE)]),
        "Unsupported metadata.version downgrade from 33 to 20. Unsafe metadata downgrade is not supported in this \
         version."
    );
    let mut fixture = Fixture::with_features(&[], vec![feature_level("metadata.version", 31)]);
    fixture.register(&registration(1, 1)).unwrap();
    assert_eq!(
        update(&mut fixture, &[("metadata.version", 30, SAFE_DOWNGRADE)]),
        Ok(vec![("metadata.version".to_owned(), 30)])
    );
    assert_eq!(
        update(&mut fixture, &[("metadata.version", 29, SAFE_DOWNGRADE)]),
        Err(
            "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the requested downgrade because \
             it might delete metadata information."
                .to_owned()
        )
    );
}

#[test]
fn kraft_version_is_confirmed_or_refused() {
    let mut fixture = Fixture::with_brokers(1);
    assert_eq!(
        update(&mut fixture, &[("kraft.version", 1, UPGRADE)]),
        Ok(Vec::new())
    );
    assert_eq!(
        update(&mut fixture, &[("kraft.version", 1, SAFE_DOWNGRADE)]),
        Ok(Vec::new())
    );
    for downgrade in [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE] {
        assert_eq!(
            update(&mut fixture, &[("kraft.version", 0, downgrade)]),
            Err(
                "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature."
                    .to_owned()
            )
        );
    }
    fixture.kraft_version = 0;
    assert_eq!(
        update(&mut fixture, &[("kraft.version", 1, UPGRADE)]),
        Err("Invalid upgrade of kraft.version from version 0 to 1".to_owned())
    );
}

#[test]
fn all_updates_are_made_or_none() {
    let mut fixture = Fixture::with_features(&[], vec![feature_level("metadata.version", 22)]);
    fixture.register(&registration(1, 1)).unwrap();
    let elr = "eligible.leader.replicas.version";
    assert_eq!(
        update(&mut fixture, &[(elr, 1, UPGRADE), ("metadata.version", 34, UPGRADE)]),
        Err(
            "Invalid update version 34 for feature metadata.version. Local controller 1 only supports versions 7-33"
                .to_owned()
        )
    );
    // It depends on a level of the metadata, which may come with it.
    assert_eq!(
        update(&mut fixture, &[(elr, 1, UPGRADE)]),
        Err(
            "Invalid update version 1 for feature eligible.leader.replicas.version. eligible.leader.replicas.version \
             could not be set to 1 because it depends on metadata.version level 23"
                .to_owned()
        )
    );
    let both = update(
        &mut fixture,
        &[(elr, 1, UPGRADE), ("metadata.version", 23, UPGRADE)],
    );
    assert_eq!(both.map(|levels| levels.len()), Ok(2));
    let features = &fixture.shard.image().features;
    assert_eq!(
        (features.level(elr), features.metadata_version),
        (1, Some(MetadataVersion(23)))
    );
}

#[test]
fn eligible_leader_replicas_make_one_minimum_for_the_cluster() {
    let mut fixture = Fixture::with_features(
        &[("min.insync.replicas", "2")],
        vec![feature_level("metadata.version", 33)],
    );
    let of_broker = ConfigRecord {
        resource_type: 4,
        resource_name: text("7"),
        name: text("min.insync.replicas"),
        value: Some(text("3")),
        ..ConfigRecord::default()
    };
    fixture.write(&[(of_broker.into(), 0)]);
    let request = request(&[("eligible.leader.replicas.version", 1, UPGRADE)]);
    let (records, _) = fixture
        .run(|shard, inputs, _| Ok(shard.update_features(inputs, 2, &request)))
        .unwrap();
    assert_eq!(
        names(&records),
        [
            ("ConfigRecord", 0),
            ("ConfigRecord", 0),
            ("FeatureLevelRecord", 0)
        ]
    );
    let configs = &fixture.shard.image().configs;
    let whole_cluster = configs.get(&ConfigResource::broker_default()).unwrap();
    assert_eq!(
        whole_cluster.get("min.insync.replicas").map(String::as_str),
        Some("2")
    );
    assert_eq!(configs.get(&ConfigResource::broker(7)), None);
}

#[test]
fn validate_only_writes_nothing_and_old_versions_name_each_feature() {
    let mut fixture = Fixture::with_brokers(1);
    let elr = "eligible.leader.replicas.version";
    let request = request(&[(elr, 0, SAFE_DOWNGRADE)]).with_validate_only(true);
    for (api_version, results) in [(0, 1), (1, 1), (2, 0)] {
        let (records, response) = fixture
            .run(|shard, inputs, _| Ok(shard.update_features(inputs, api_version, &request)))
            .unwrap();
        assert!(records.is_empty());
        assert_eq!(
            (
                response.error_code,
                response.error_message,
                response.results.len()
            ),
            (0, None, results)
        );
        for result in response.results {
            assert_eq!((&*result.feature, result.error_code), (elr, 0));
            assert_eq!(result.error_message.as_deref(), Some("NONE"));
        }
    }
    assert_eq!(fixture.shard.image().features.level(elr), 1);
}

#[test]
fn many_names_take_no_longer_each_and_the_last_of_a_name_counts() {
    let began = std::time::Instant::now();
    let updates: Vec<FeatureUpdateKey> = (0..200_000)
        .map(|number| {
            FeatureUpdateKey::default()
                .with_feature(text(&format!("feature-{number}")))
                .with_max_version_level(1)
                .with_upgrade_type(UPGRADE)
        })
        .collect();
    let request = UpdateFeaturesRequest::default().with_feature_updates(updates);
    let (records, response) = Fixture::with_brokers(1)
        .run(|shard, inputs, _| Ok(shard.update_features(inputs, 2, &request)))
        .unwrap();
    assert_eq!((response.error_code, records.len()), (95, 0));
    assert!(
        began.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        refused(&[("nope", 1, UPGRADE), ("nope", 0, UPGRADE)]),
        "Invalid update version 0 for feature nope. Feature nope not found."
    );
}
