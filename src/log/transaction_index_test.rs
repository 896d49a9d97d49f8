use std::path::{Path, PathBuf};

use super::*;
use crate::io::disk::Disk;
use crate::io::sim_disk::SimDisk;
use crate::log::open_file_cache::{FileKind, OpenFileCache, PartitionDir};

fn index_with(entries: &[(i64, i64, i64, i64)]) -> (SimDisk, TransactionIndex) {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/d")).unwrap();
    let cache = OpenFileCache::new(Arc::new(disk.clone()), 10);
    let handle = FileHandle::new(
        &cache,
        &PartitionDir::new(PathBuf::from("/d")),
        0,
        FileKind::TransactionIndex,
    );
    let index = TransactionIndex::new(handle, 0, false);
    for &(producer_id, first_offset, last_offset, last_stable_offset) in entries {
        index
            .append(&AbortedTxn {
                producer_id,
                first_offset,
                last_offset,
                last_stable_offset,
            })
            .unwrap();
    }
    (disk, index)
}

fn ids(found: &[AbortedTxn]) -> Vec<i64> {
    found.iter().map(|txn| txn.producer_id).collect()
}

#[test]
fn file_is_made_with_the_first_entry() {
    let (disk, index) = index_with(&[]);
    assert!(index.all().unwrap().is_empty());
    assert!(!disk.exists(Path::new("/d/00000000000000000000.txnindex")));
    let (disk, _) = index_with(&[(7, 8, 13, 14)]);
    let bytes = disk.read(Path::new("/d/00000000000000000000.txnindex")).unwrap();
    assert_eq!(bytes.len(), 34);
    assert_eq!(bytes[..10], [0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
}

#[test]
fn collect_aborted_txns_gives_those_that_touch_the_range_and_tells_when_it_is_complete() {
    let (_, index) = index_with(&[(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]);
    let (found, complete) = index.collect_aborted_txns(0, 100).unwrap();
    assert_eq!((ids(&found), complete), (vec![0, 1, 2, 3], false));
    let (found, complete) = index.collect_aborted_txns(0, 32).unwrap();
    assert_eq!((ids(&found), complete), (vec![0, 1, 2], true));
    let (found, complete) = index.collect_aborted_txns(0, 35).unwrap();
    assert_eq!((ids(&found), complete), (vec![0, 1, 2, 3], true));
    let (found, complete) = index.collect_aborted_txns(16, 35).unwrap();
    assert_eq!((ids(&found), complete), (vec![2, 3], true));
}

#[test]
fn truncate_to_removes_markers_at_and_after() {
    let (_, index) = index_with(&[(0, 0, 10, 2), (1, 5, 15, 16), (2, 18, 35, 25)]);
    index.truncate_to(15).unwrap();
    assert_eq!(ids(&index.all().unwrap()), [0]);
    assert!(index.sanity_check(i64::MAX).unwrap());
}

#[test]
fn entries_that_cannot_be_are_told_from_those_that_can() {
    let right = [(0, 0, 10, 2), (1, 2, 15, 13), (2, 13, 35, 25)];
    let (_, index) = index_with(&right);
    assert!(index.sanity_check(36).unwrap());
    assert!(
        !index.sanity_check(35).unwrap(),
        "the marker is in the next segment"
    );
    let wrong = [
        (-1, 2, 15, 13),
        (1, -2, 15, 13),
        (1, 15, 15, 13),
        (1, 2, 10, 9),
        (1, 2, 9, 9),
        (1, 2, 36, 13),
        (1, 2, 15, 1),
        (1, 2, 15, 17),
        (1, 2, 15, 26),
        (1, 2, -15, -15),
    ];
    for middle in wrong {
        let (_, index) = index_with(&[right[0], middle, right[2]]);
        assert!(!index.sanity_check(36).unwrap(), "{middle:?}");
        let error = index.collect_aborted_txns(0, 100).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{middle:?}");
    }
    let (disk, index) = index_with(&right);
    let path = Path::new("/d/00000000000000000000.txnindex");
    disk.flip_bit(path, 8 * 35).unwrap();
    assert!(!index.sanity_check(36).unwrap(), "another version");
    assert!(index.all().is_err());
}
