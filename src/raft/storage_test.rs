use std::path::PathBuf;

use super::*;
use crate::io::disk::SystemDisk;
use crate::io::sim_disk::SimDisk;
use crate::protocol::records::metadata::FeatureLevelRecord;
use crate::raft::control::ControlRecord;

fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(folder)
}

fn features(records: &[VersionedRecord]) -> Vec<(String, i16)> {
    records
        .iter()
        .filter_map(|(record, _)| match record {
            MetadataRecord::FeatureLevel(feature) => Some((feature.name.to_string(), feature.feature_level)),
            _ => None,
        })
        .collect()
}

#[test]
fn bootstrap_records_of_kafka_4_4_come_from_the_checkpoint() {
    let records = read_bootstrap_records(&SystemDisk::new(), &golden("single/data"))
        .unwrap()
        .unwrap();
    assert_eq!(records.len(), 7);
    assert_eq!(
        features(&records),
        [
            ("metadata.version", 33),
            ("eligible.leader.replicas.version", 1),
            ("group.version", 1),
            ("share.version", 2),
            ("streams.version", 1),
            ("transaction.version", 2),
        ]
        .map(|(name, level)| (name.to_owned(), level))
    );
    assert!(matches!(records[6].0, MetadataRecord::UserScramCredential(_)));
}

#[test]
fn bootstrap_records_of_kafka_3_9_come_from_the_old_file() {
    let records = read_bootstrap_records(&SystemDisk::new(), &golden("old-3.9/data"))
        .unwrap()
        .unwrap();
    assert_eq!(features(&records), [("metadata.version".to_owned(), 21)]);
}

#[test]
fn bootstrap_records_of_a_directory_without_any_are_none() {
    let sim = SimDisk::new();
    assert_eq!(read_bootstrap_records(&sim, Path::new("/data")).unwrap(), None);
}

#[test]
fn bootstrap_checkpoint_written_is_kafkas_but_for_its_times() {
    // The voters and records of golden cluster3, written by us, batch by batch.
    let golden_dir = golden("cluster3/node-1/data");
    let golden_path = snapshot_path(&metadata_partition_dir(&golden_dir), BOOTSTRAP_SNAPSHOT_ID);
    let mut expected = SnapshotReader::open(&SystemDisk::new(), &golden_path, BOOTSTRAP_SNAPSHOT_ID).unwrap();
    let mut voters = Vec::new();
    let header = expected.next_batch().unwrap().unwrap();
    for record in &header.control_records {
        if let ControlRecord::KRaftVoters(set) = record {
            voters = set
                .nodes()
                .map(|node| BootstrapVoter {
                    voter_id: node.key.id,
                    voter_directory_id: node.key.directory_id_or_nil(),
                    endpoints: node.endpoints.clone(),
                })
                .collect();
        }
    }
    assert_eq!(voters.len(), 3);
    let checkpoint = BootstrapCheckpoint {
        kraft_version: 1,
        voters: Some(voters),
        records: read_bootstrap_records(&SystemDisk::new(), &golden_dir)
            .unwrap()
            .unwrap(),
    };

    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let dir = Path::new("/data");
    disk.create_dir_all(dir).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    write_bootstrap_checkpoint(&disk, dir, &checkpoint, 5000).unwrap();
    sim.lose_power(1);

    let path = snapshot_path(&metadata_partition_dir(dir), BOOTSTRAP_SNAPSHOT_ID);
    assert_eq!(
        disk.read(&path).unwrap().len(),
        std::fs::read(&golden_path).unwrap().len()
    );
    let mut written = SnapshotReader::open(&*disk, &path, BOOTSTRAP_SNAPSHOT_ID).unwrap();
    let first = written.next_batch().unwrap().unwrap();
    assert_eq!(
        first.control_records[0],
        ControlRecord::SnapshotHeader {
            last_contained_log_timestamp: 5000
        }
    );
    assert_eq!(first.control_records[1..], header.control_records[1..]);
    loop {
        match (expected.next_batch().unwrap(), written.next_batch().unwrap()) {
            (Some(expected), Some(written)) => {
                assert_eq!(written.records, expected.records);
                assert_eq!(written.control_records, expected.control_records);
                assert_eq!(written.header.base_offset, expected.header.base_offset);
                assert_eq!(written.header.attributes, expected.header.attributes);
            }
            (None, None) => break,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn bootstrap_checkpoint_of_static_voters_names_none() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let dir = Path::new("/data");
    disk.create_dir_all(dir).unwrap();
    let mut record = FeatureLevelRecord::default();
    record.name = "metadata.version".into();
    record.feature_level = 33;
    let checkpoint = BootstrapCheckpoint {
        kraft_version: 0,
        voters: None,
        records: vec![(MetadataRecord::FeatureLevel(record), 0)],
    };
    write_bootstrap_checkpoint(&disk, dir, &checkpoint, 1).unwrap();
    let path = snapshot_path(&metadata_partition_dir(dir), BOOTSTRAP_SNAPSHOT_ID);
    let mut written = SnapshotReader::open(&*disk, &path, BOOTSTRAP_SNAPSHOT_ID).unwrap();
    assert_eq!(
        written.next_batch().unwrap().unwrap().control_records,
        [ControlRecord::SnapshotHeader {
            last_contained_log_timestamp: 1
        }]
    );
    assert_eq!(
        read_bootstrap_records(&*disk, dir).unwrap(),
        Some(checkpoint.records)
    );
}
