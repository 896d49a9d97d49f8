use std::path::{Path, PathBuf};

use super::*;
use crate::io::disk::Disk;
use crate::io::sim_disk::SimDisk;
use crate::log::open_file_cache::{FileKind, OpenFileCache, PartitionDir};

fn new_index(max_size: usize) -> TimeIndex {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/d")).unwrap();
    let cache = OpenFileCache::new(Arc::new(disk), 10);
    let handle = FileHandle::new(
        &cache,
        &PartitionDir::new(PathBuf::from("/d")),
        45,
        FileKind::TimeIndex,
    );
    handle.create().unwrap();
    TimeIndex::new_empty(handle, 45, max_size)
}

fn at(timestamp: i64, offset: i64) -> TimestampOffset {
    TimestampOffset { timestamp, offset }
}

#[test]
fn lookup_finds_the_last_time_stamp_at_or_before() {
    let index = new_index(1200);
    assert_eq!(index.lookup(100).unwrap(), at(-1, 45));
    for (timestamp, offset) in [(10, 50), (20, 55), (30, 55), (40, 70)] {
        index.maybe_append(timestamp, offset).unwrap();
    }
    assert_eq!(index.lookup(9).unwrap(), at(-1, 45));
    assert_eq!(index.lookup(10).unwrap(), at(10, 50));
    assert_eq!(index.lookup(39).unwrap(), at(30, 55));
    assert_eq!(index.lookup(999).unwrap(), at(40, 70));
}

#[test]
fn maybe_append_of_the_same_time_stamp_adds_nothing_and_a_lower_one_is_refused() {
    let index = new_index(1200);
    index.maybe_append(10, 50).unwrap();
    index.maybe_append(10, 60).unwrap();
    assert_eq!(index.all().unwrap(), [at(10, 50)]);
    assert!(index.maybe_append(9, 60).is_err());
    assert!(index.maybe_append(11, 49).is_err());
}

#[test]
fn truncate_to_keeps_offsets_below() {
    let index = new_index(1200);
    for (timestamp, offset) in [(10, 50), (20, 55), (30, 60)] {
        index.maybe_append(timestamp, offset).unwrap();
    }
    index.truncate_to(55).unwrap();
    assert_eq!(index.last_entry().unwrap(), at(10, 50));
}

#[test]
fn is_full_one_entry_before_the_end() {
    let index = new_index(36);
    index.maybe_append(10, 50).unwrap();
    assert!(!index.is_full().unwrap());
    index.maybe_append(20, 51).unwrap();
    assert!(index.is_full().unwrap());
}
