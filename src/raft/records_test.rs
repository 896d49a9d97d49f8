use std::path::{Path, PathBuf};

use super::*;
use crate::record::Batches;

fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(folder)
}

/// Segments and checkpoints of every golden metadata log, and the file that Kafka before 4.1 formatted with.
fn files() -> Vec<PathBuf> {
    let mut files = vec![golden("old-3.9/data/bootstrap.checkpoint")];
    for folder in [
        "single",
        "cluster3/node-1",
        "cluster3/node-2",
        "cluster3/node-3",
        "crash",
        "old-3.9",
    ] {
        let dir = golden(folder).join("data/__cluster_metadata-0");
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_str().unwrap();
            // `leader-epoch-checkpoint` is another thing.
            if name.ends_with(".log") || name.ends_with(".checkpoint") {
                files.push(path);
            }
        }
    }
    files
}

fn versioned(batch: &Bytes) -> Vec<VersionedRecord> {
    records_of(batch)
        .unwrap()
        .map(|record| MetadataRecord::decode_framed(record.unwrap().value.unwrap()).unwrap())
        .collect()
}

#[test]
fn batches_of_kafka_are_decoded_and_written_again_with_the_same_bytes() {
    let (mut data, mut control) = (0, 0);
    for path in files() {
        let bytes = Bytes::from(std::fs::read(&path).unwrap());
        for batch in Batches::of_bytes(&bytes) {
            let (header, batch) = batch.unwrap();
            let decoded = decode_batch(header, &batch).unwrap();
            let again = if header.is_control() {
                assert_eq!(decoded.records, []);
                control += decoded.control_records.len();
                encode_control_batch(
                    header.base_offset,
                    header.partition_leader_epoch,
                    header.max_timestamp,
                    &decoded.control_records,
                )
            } else {
                let records = versioned(&batch);
                data += records.len();
                let plain: Vec<MetadataRecord> = records.iter().map(|(record, _)| record.clone()).collect();
                assert_eq!(decoded.records, plain);
                encode_data_batch(
                    header.base_offset,
                    header.partition_leader_epoch,
                    header.max_timestamp,
                    &records,
                )
            };
            assert_eq!(
                again.unwrap(),
                batch,
                "{} at offset {}",
                path.display(),
                header.base_offset
            );
        }
    }
    assert!(data > 500 && control > 50, "{data} {control}");
}

#[test]
fn batch_with_a_flipped_bit_is_refused() {
    let batch = encode_control_batch(5, 1, 1000, &[ControlRecord::KRaftVersion(1)]).unwrap();
    let header = BatchHeader::parse(&batch).unwrap();
    assert!(decode_batch(header, &batch).is_ok());
    let mut damaged = batch.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(decode_batch(header, &Bytes::from(damaged)).is_err());
}

#[test]
fn data_batch_that_raft_would_not_write_is_refused() {
    type Part = Option<&'static [u8]>;
    let cases: [(Part, Part); 3] = [
        (Some(b"key"), Some(b"\x01\x14\x00\x00")),
        (None, None),
        (None, Some(b"\x00\x14\x00\x00")),
    ];
    for (key, value) in cases {
        let mut batch = builder(0, 1, false);
        batch.append(1, key, value, &[]);
        let batch = batch.build().unwrap();
        let header = BatchHeader::parse(&batch).unwrap();
        assert!(decode_batch(header, &batch).is_err(), "{key:?} {value:?}");
    }
}
