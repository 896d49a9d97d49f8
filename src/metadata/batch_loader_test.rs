use std::sync::Arc;

use super::BatchLoader;
use crate::metadata::MetadataImage;
use crate::protocol::StrBytes;
use crate::protocol::records::metadata::{
    AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord, FeatureLevelRecord, MetadataRecord,
    NoOpRecord,
};
use crate::raft::CommittedBatch;

fn feature(name: &'static str, level: i16) -> MetadataRecord {
    FeatureLevelRecord {
        name: StrBytes::from_static_str(name),
        feature_level: level,
        ..FeatureLevelRecord::default()
    }
    .into()
}

fn batch(base_offset: i64, records: Vec<MetadataRecord>) -> CommittedBatch {
    CommittedBatch {
        base_offset,
        last_offset: base_offset + records.len().max(1) as i64 - 1,
        epoch: 1,
        append_timestamp: 1000 + base_offset,
        size_in_bytes: 10,
        records,
    }
}

/// The offsets that are published by these commits, each of one batch.
fn published(loader: &mut BatchLoader, batches: Vec<CommittedBatch>) -> Vec<i64> {
    let mut offsets = Vec::new();
    for batch in batches {
        let (mut ready, mut faults) = (Vec::new(), Vec::new());
        loader.load_batch(&batch, &mut ready, &mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        ready.extend(loader.flush());
        offsets.extend(ready.iter().map(|publication| publication.image.offset()));
    }
    offsets
}

fn loader() -> BatchLoader {
    BatchLoader::new(Arc::new(MetadataImage::empty()))
}

fn begin() -> MetadataRecord {
    BeginTransactionRecord::default().into()
}

fn end() -> MetadataRecord {
    EndTransactionRecord::default().into()
}

fn abort() -> MetadataRecord {
    AbortTransactionRecord::default().into()
}

#[test]
fn batches_are_published_with_their_provenance() {
    let mut loader = loader();
    assert_eq!(
        published(
            &mut loader,
            vec![batch(0, vec![]), batch(1, vec![feature("a", 1)])]
        ),
        vec![0, 1]
    );
    let provenance = loader.image().provenance;
    assert_eq!(provenance.last_contained_epoch, 1);
    assert_eq!(provenance.last_contained_log_time_ms, 1001);
    assert!(provenance.is_offset_batch_aligned);
    assert_eq!(loader.image().features.level("a"), 1);
}

#[test]
fn transaction_over_several_commits_is_published_when_it_ends() {
    let mut loader = loader();
    let batches = vec![
        batch(0, vec![feature("a", 1)]),
        batch(1, vec![begin(), feature("b", 1)]),
        batch(3, vec![feature("c", 1)]),
        batch(4, vec![end()]),
    ];
    assert_eq!(published(&mut loader, batches), vec![0, 4]);
    assert_eq!(loader.image().features.level("b"), 1);
    assert_eq!(loader.image().features.level("c"), 1);
}

#[test]
fn records_before_a_begin_in_the_same_batch_are_published_in_front_of_it() {
    let mut loader = loader();
    let batches = vec![batch(0, vec![feature("a", 1), begin(), feature("b", 1)])];
    assert_eq!(published(&mut loader, batches), vec![0]);
    assert!(
        !loader.image().provenance.is_offset_batch_aligned,
        "no snapshot can be made there"
    );
    assert_eq!(loader.image().features.level("b"), 0);
    assert_eq!(published(&mut loader, vec![batch(3, vec![end()])]), vec![3]);
    assert_eq!(loader.image().features.level("b"), 1);
}

#[test]
fn aborted_transaction_leaves_nothing_but_the_offset() {
    let mut loader = loader();
    let batches = vec![
        batch(0, vec![feature("a", 1)]),
        batch(1, vec![begin(), feature("a", 0), feature("b", 1)]),
        batch(4, vec![abort()]),
    ];
    assert_eq!(published(&mut loader, batches), vec![0, 4]);
    assert_eq!(loader.image().features.level("a"), 1);
    assert_eq!(loader.image().features.level("b"), 0);
}

#[test]
fn records_after_an_abort_in_the_same_commit_build_on_the_state_before() {
    let mut loader = loader();
    let batches = vec![
        batch(0, vec![begin(), feature("b", 1)]),
        batch(2, vec![abort(), begin(), feature("c", 1), end()]),
        batch(6, vec![NoOpRecord::default().into()]),
    ];
    published(&mut loader, batches);
    assert_eq!(loader.image().features.level("b"), 0);
    assert_eq!(loader.image().features.level("c"), 1);
}

#[test]
fn end_without_a_begin_is_a_fault_with_its_offset() {
    let mut loader = loader();
    let (mut ready, mut faults) = (Vec::new(), Vec::new());
    loader.load_batch(&batch(7, vec![feature("a", 1), end()]), &mut ready, &mut faults);
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].offset, 8);
}

#[test]
fn only_records_that_say_something_count_as_seen() {
    let mut loader = loader();
    let (mut ready, mut faults) = (Vec::new(), Vec::new());
    loader.load_batch(&batch(0, vec![]), &mut ready, &mut faults);
    assert!(!loader.has_seen_record());
    loader.load_batch(
        &batch(1, vec![feature("metadata.version", 33)]),
        &mut ready,
        &mut faults,
    );
    assert!(loader.has_seen_record());
    loader.flush();
    assert!(loader.has_seen_record());
}
