use std::io;

use super::*;
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::protocol::records::metadata::{FeatureLevelRecord, MetadataRecord, NoOpRecord};
use crate::raft::CommittedBatch;

const ID: OffsetAndEpoch = OffsetAndEpoch::new(300, 7);

fn feature(level: i16) -> VersionedRecord {
    let mut record = FeatureLevelRecord::default();
    record.name = "metadata.version".into();
    record.feature_level = level;
    (MetadataRecord::FeatureLevel(record), 0)
}

fn no_op() -> VersionedRecord {
    (MetadataRecord::NoOp(NoOpRecord::default()), 0)
}

fn disk() -> (SimDisk, Arc<dyn Disk>, PathBuf) {
    let sim = SimDisk::new();
    let dir = PathBuf::from("/data/__cluster_metadata-0");
    sim.create_dir_all(&dir).unwrap();
    sim.sync_dir(Path::new("/")).unwrap();
    sim.sync_dir(Path::new("/data")).unwrap();
    (sim.clone(), Arc::new(sim), dir)
}

fn write(disk: &Arc<dyn Disk>, dir: &Path, records: &[VersionedRecord]) -> Result<u64, RaftError> {
    let mut writer = SnapshotWriter::create(Arc::clone(disk), dir, ID, 55, 1, None, 1000)?;
    for list in records.chunks(RECORDS_PER_BATCH) {
        writer.append(list, 1001)?;
    }
    writer.freeze(1002)
}

#[test]
fn snapshot_file_names_are_parsed_as_kafka_does() {
    let name = |id, partial, deleted| Some(SnapshotFileName { id, partial, deleted });
    let cases = [
        (
            "00000000000000000300-0000000007.checkpoint",
            name(ID, false, false),
        ),
        (
            "00000000000000000300-0000000007-1234.checkpoint.part",
            name(ID, true, false),
        ),
        (
            "00000000000000000300-0000000007.checkpoint.deleted",
            name(ID, false, true),
        ),
        ("leader-epoch-checkpoint", None),
        ("bootstrap.checkpoint", None),
        ("00000000000000000300.checkpoint", None),
        ("00000000000000000300.log", None),
    ];
    for (text, expected) in cases {
        assert_eq!(SnapshotFileName::parse(text), expected, "{text}");
    }
    let dir = Path::new("/d");
    assert_eq!(
        snapshot_path(dir, ID),
        Path::new("/d/00000000000000000300-0000000007.checkpoint")
    );
}

#[test]
fn snapshot_written_is_read_back_in_batches_of_1024() {
    let (_, disk, dir) = disk();
    let mut records = vec![feature(33)];
    records.extend((0..1500).map(|_| no_op()));
    let size = write(&disk, &dir, &records).unwrap();

    let path = snapshot_path(&dir, ID);
    assert_eq!(disk.read(&path).unwrap().len() as u64, size);
    let contents = SnapshotReader::open(&*disk, &path, ID)
        .unwrap()
        .into_contents()
        .unwrap();
    assert_eq!(contents.snapshot_id, ID);
    assert_eq!(contents.last_contained_log_offset(), 299);
    assert_eq!(contents.last_contained_log_timestamp, 55);
    let batches: Vec<CommittedBatch> = contents.map(Result::unwrap).collect();
    let shape: Vec<_> = batches
        .iter()
        .map(|batch| {
            (
                batch.base_offset,
                batch.last_offset,
                batch.epoch,
                batch.append_timestamp,
                batch.records.len(),
            )
        })
        .collect();
    // Offsets 0 and 1 are SnapshotHeader and KRaftVersion.
    assert_eq!(shape, [(2, 1025, 7, 1001, 1024), (1026, 1502, 7, 1001, 477)]);
    assert_eq!(batches[0].records[0], records[0].0);
}

#[test]
fn snapshot_is_there_whole_or_not_at_all_after_power_loss() {
    let mut survived = 0;
    for seed in 0..50 {
        let (sim, disk, dir) = disk();
        write(&disk, &dir, &[feature(33)]).unwrap();
        sim.lose_power(seed);
        let path = snapshot_path(&dir, ID);
        assert!(disk.exists(&path), "freeze returned");
        let contents = SnapshotReader::open(&*disk, &path, ID)
            .unwrap()
            .into_contents()
            .unwrap();
        survived += contents.map(Result::unwrap).count();
    }
    assert_eq!(survived, 50);
}

#[test]
fn snapshot_that_the_disk_fails_is_never_named() {
    for operation in [SimOperation::Write, SimOperation::Sync, SimOperation::Rename] {
        for n in 0..2 {
            let (sim, disk, dir) = disk();
            sim.fail_nth(operation, n, io::ErrorKind::Other);
            let written = write(&disk, &dir, &[feature(33)]);
            let path = snapshot_path(&dir, ID);
            if written.is_err() && disk.exists(&path) {
                // The rename was done, only its fsync failed: the file is whole.
                assert_eq!((operation, n), (SimOperation::Sync, 1));
            }
            assert_eq!(
                written.is_err(),
                n == 0 || operation != SimOperation::Rename,
                "{operation:?} {n}"
            );
        }
    }
}

#[test]
fn snapshot_cut_or_damaged_is_an_error() {
    let (sim, disk, dir) = disk();
    let size = write(&disk, &dir, &[feature(33)]).unwrap();
    let path = snapshot_path(&dir, ID);
    let whole = disk.read(&path).unwrap();
    let read = || -> Result<usize, RaftError> {
        let contents = SnapshotReader::open(&*disk, &path, ID)?.into_contents()?;
        contents
            .collect::<Result<Vec<_>, _>>()
            .map(|batches| batches.len())
    };
    assert_eq!(read().unwrap(), 1);
    for length in [0, 10, 70, size as usize - 1] {
        disk.write_atomically(&path, &whole[..length]).unwrap();
        assert!(read().is_err(), "{length} bytes");
    }
    disk.write_atomically(&path, &whole).unwrap();
    sim.flip_bit(&path, 8 * (size - 80)).unwrap();
    assert!(read().is_err());
}
