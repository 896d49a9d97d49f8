use super::{Activation, ActivationError};
use crate::controller::test_support::*;
use crate::protocol::records::metadata::{BeginTransactionRecord, MetadataRecord};

fn activation(fixture: &Fixture, bootstrap: &[crate::raft::VersionedRecord]) -> Activation {
    fixture.shard.activation_records(bootstrap).unwrap()
}

#[test]
fn empty_log_gets_the_bootstrap_records_in_a_transaction_and_the_clusters_minimum() {
    let fixture = Fixture::with_features(&[("min.insync.replicas", "1")], vec![]);
    let bootstrap = [
        feature_level("metadata.version", 33),
        feature_level("eligible.leader.replicas.version", 1),
    ];
    let Activation { records, is_atomic } = activation(&fixture, &bootstrap);
    assert!(!is_atomic);
    assert_eq!(
        names(&records),
        [
            ("BeginTransactionRecord", 0),
            ("FeatureLevelRecord", 0),
            ("FeatureLevelRecord", 0),
            ("ConfigRecord", 0),
            ("EndTransactionRecord", 0)
        ]
    );
    let MetadataRecord::BeginTransaction(begin) = &records[0].0 else {
        panic!("{records:?}");
    };
    assert_eq!(begin.name.as_ref().unwrap().as_str(), "Bootstrap records");
    let MetadataRecord::Config(config) = &records[3].0 else {
        panic!("{records:?}");
    };
    assert_eq!(
        (
            config.resource_type,
            config.resource_name.as_str(),
            config.name.as_str()
        ),
        (4, "", "min.insync.replicas")
    );
    assert_eq!(config.value.as_ref().unwrap().as_str(), "1");
}

#[test]
fn without_bootstrap_records_the_newest_level_is_taken() {
    let fixture = Fixture::with_features(&[], vec![]);
    let records = activation(&fixture, &[]).records;
    assert_eq!(records[1], feature_level("metadata.version", 33));
    assert_eq!(records.len(), 3);
}

#[test]
fn level_without_transactions_gets_one_atomic_batch() {
    let fixture = Fixture::with_features(&[], vec![]);
    let bootstrap = [feature_level("metadata.version", 12)];
    assert_eq!(
        activation(&fixture, &bootstrap),
        Activation {
            records: bootstrap.to_vec(),
            is_atomic: true
        }
    );
}

#[test]
fn log_with_content_needs_nothing() {
    let fixture = Fixture::new(&[]);
    assert!(
        activation(&fixture, &[feature_level("metadata.version", 33)])
            .records
            .is_empty()
    );
}

#[test]
fn open_transaction_is_aborted_and_its_records_do_not_count() {
    let mut fixture = Fixture::new(&[]);
    let begin = (BeginTransactionRecord::default().into(), 0);
    fixture.write(&[begin, feature_level("group.version", 1)]);
    let records = activation(&fixture, &[]).records;
    assert_eq!(names(&records), [("AbortTransactionRecord", 0)]);
    assert_eq!(fixture.shard.image().features.level("group.version"), 1);
    fixture.write(&records);
    assert_eq!(fixture.shard.image().features.level("group.version"), 0);
    assert_eq!(fixture.shard.transaction_start_offset(), None);
}

#[test]
fn half_written_bootstrap_is_aborted_and_written_again() {
    let mut fixture = Fixture::with_features(&[], vec![]);
    fixture.write(&[(BeginTransactionRecord::default().into(), 0)]);
    let records = activation(&fixture, &[feature_level("metadata.version", 33)]).records;
    assert_eq!(
        names(&records),
        [
            ("AbortTransactionRecord", 0),
            ("BeginTransactionRecord", 0),
            ("FeatureLevelRecord", 0),
            ("EndTransactionRecord", 0)
        ]
    );
}

#[test]
fn open_transaction_below_the_level_of_transactions_cannot_be_led() {
    let mut fixture = Fixture::with_features(&[], vec![feature_level("metadata.version", 12)]);
    let offset = fixture.next_offset();
    fixture.write(&[(BeginTransactionRecord::default().into(), 0)]);
    assert_eq!(
        fixture.shard.activation_records(&[]),
        Err(ActivationError::TransactionNotSupported { offset, level: 12 })
    );
}
