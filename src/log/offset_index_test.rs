use std::path::{Path, PathBuf};

use super::*;
use crate::io::disk::{Disk, OpenMode};
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::log::open_file_cache::{FileKind, OpenFileCache, PartitionDir};

const PATH: &str = "/d/00000000000000000100.index";

fn handle(disk: &SimDisk) -> Arc<FileHandle> {
    disk.create_dir_all(Path::new("/d")).unwrap();
    let cache = OpenFileCache::new(Arc::new(disk.clone()), 10);
    FileHandle::new(
        &cache,
        &PartitionDir::new(PathBuf::from("/d")),
        100,
        FileKind::OffsetIndex,
    )
}

fn new_index(disk: &SimDisk) -> OffsetIndex {
    let handle = handle(disk);
    handle.create().unwrap();
    OffsetIndex::new_empty(handle, 100, 8 * 1000)
}

fn at(offset: i64, position: u32) -> OffsetPosition {
    OffsetPosition { offset, position }
}

#[test]
fn lookup_finds_the_last_entry_at_or_before_for_every_offset() {
    let disk = SimDisk::new();
    let index = new_index(&disk);
    assert_eq!(index.lookup(500).unwrap(), at(100, 0));
    for entry in 1..=900 {
        index.append(100 + entry * 10, (entry * 7) as u32).unwrap();
    }
    for target in 90..9200 {
        let entry = ((target - 100) / 10).clamp(0, 900);
        let wanted = if entry == 0 {
            at(100, 0)
        } else {
            at(100 + entry * 10, (entry * 7) as u32)
        };
        assert_eq!(index.lookup(target).unwrap(), wanted, "{target}");
    }
    assert_eq!(index.last_offset().unwrap(), 9100);
    assert_eq!(index.first_at_or_after_position(8).unwrap(), Some(120));
    assert_eq!(index.first_at_or_after_position(6301).unwrap(), None);
}

#[test]
fn append_not_above_the_last_offset_is_refused() {
    let index = new_index(&SimDisk::new());
    index.append(105, 10).unwrap();
    assert!(index.append(105, 20).is_err());
    assert!(index.append(104, 20).is_err());
    index.append(106, 20).unwrap();
}

#[test]
fn open_of_a_preallocated_file_takes_zeros_as_no_entries_and_trim_cuts_them() {
    for entries in [0, 1, 2, 255, 999, 1000] {
        let disk = SimDisk::new();
        let index = new_index(&disk);
        for entry in 1..=entries {
            index.append(100 + entry, entry as u32 * 5).unwrap();
        }
        index.file().sync().unwrap();
        let file = disk.open(Path::new(PATH), OpenMode::ReadWrite).unwrap();
        file.set_len(8000).unwrap();
        let opened = OffsetIndex::open(handle(&disk), 100, 8000);
        assert_eq!(opened.all().unwrap().len() as i64, entries);
        assert_eq!(opened.last_offset().unwrap(), 100 + entries);
        opened.file().trim_to_valid_size().unwrap();
        assert_eq!(file.len().unwrap() as i64, entries * 8);
    }
}

#[test]
fn entries_wait_in_memory_are_found_there_and_are_written_together() {
    let disk = SimDisk::new();
    let index = new_index(&disk);
    let length = || disk.read(Path::new(PATH)).unwrap().len();
    for entry in 1..=63 {
        index.append(100 + entry * 10, entry as u32).unwrap();
    }
    assert_eq!(length(), 0);
    assert_eq!(index.lookup(735).unwrap(), at(730, 63));
    assert_eq!(index.lookup(109).unwrap(), at(100, 0));
    index.append(740, 64).unwrap();
    assert_eq!(length(), 64 * 8);
    for entry in 65..=300 {
        index.append(100 + entry * 10, entry as u32).unwrap();
        // In the file, among the recent ones that were written, and among those that were not.
        for wanted in [1, entry / 2, entry - 1, entry] {
            assert_eq!(
                index.lookup(100 + wanted * 10 + 5).unwrap(),
                at(100 + wanted * 10, wanted as u32)
            );
        }
    }
    index.truncate_to(100 + 299 * 10).unwrap();
    assert_eq!(
        (length(), index.last_offset().unwrap()),
        (256 * 8, 100 + 298 * 10)
    );
    index.append(5000, 500).unwrap();
    index.file().sync().unwrap();
    assert_eq!(length(), 299 * 8);
}

#[test]
fn lookup_finds_entries_that_are_not_spread_evenly() {
    let disk = SimDisk::new();
    let created = handle(&disk);
    created.create().unwrap();
    let index = OffsetIndex::new_empty(created, 100, 80_000);
    let mut random = fastrand::Rng::with_seed(3);
    let mut offsets = vec![100];
    for entry in 1..5000u32 {
        let step = if entry < 4000 { 1 } else { random.i64(1..1_000_000) };
        offsets.push(offsets[offsets.len() - 1] + step);
        index.append(offsets[entry as usize], entry).unwrap();
    }
    index.file().sync().unwrap();
    let opened = OffsetIndex::open(handle(&disk), 100, 80_000);
    for _ in 0..2000 {
        let entry = random.usize(..5000);
        let next = offsets.get(entry + 1).copied().unwrap_or(offsets[4999] + 1000);
        let target = random.i64(offsets[entry]..next);
        let behind = offsets.get(entry + 1).map(|offset| at(*offset, entry as u32 + 1));
        for index in [&index, &opened] {
            assert_eq!(
                index.lookup_around(target).unwrap(),
                (at(offsets[entry], entry as u32), behind),
                "{target}"
            );
        }
    }
}

#[test]
fn lookup_after_a_truncation_finds_no_entries_that_it_found_before() {
    let index = new_index(&SimDisk::new());
    for entry in 1..=900 {
        index.append(100 + entry * 10, entry as u32).unwrap();
    }
    // Reads a block of the file, which is kept for the next search.
    let wanted = (at(3100, 300), Some(at(3110, 301)));
    assert_eq!(index.lookup_around(3105).unwrap(), wanted);
    index.truncate_to(3100).unwrap();
    for entry in 300..=900 {
        index.append(100 + entry * 20, entry as u32 * 3).unwrap();
    }
    assert_eq!(
        index.lookup_around(6105).unwrap(),
        (at(6100, 900), Some(at(6120, 903)))
    );
    assert_eq!(
        index.lookup_around(3105).unwrap(),
        (at(3090, 299), Some(at(6100, 900)))
    );
}

#[test]
fn truncate_to_removes_entries_at_and_after_the_offset() {
    let disk = SimDisk::new();
    let index = new_index(&disk);
    for entry in 1..=10 {
        index.append(100 + entry * 10, entry as u32).unwrap();
    }
    index.truncate_to(150).unwrap();
    assert_eq!(index.last_offset().unwrap(), 140);
    index.file().sync().unwrap();
    assert_eq!(disk.read(Path::new(PATH)).unwrap().len(), 32);
    index.truncate_to(0).unwrap();
    assert_eq!(index.last_offset().unwrap(), 100);
    index.append(101, 1).unwrap();
    assert_eq!(index.lookup(200).unwrap(), at(101, 1));
}

#[test]
fn truncate_keeps_what_waits_before_it_and_cuts_what_is_written_behind_it() {
    for kept in 0..=100i64 {
        let disk = SimDisk::new();
        let index = new_index(&disk);
        for entry in 1..=100 {
            index.append(100 + entry, entry as u32).unwrap();
        }
        // 64 are written, 36 wait.
        index.truncate_to(101 + kept).unwrap();
        let expected: Vec<_> = (1..=kept).map(|entry| at(100 + entry, entry as u32)).collect();
        assert_eq!(index.all().unwrap(), expected, "{kept}");
        index.append(300, 300).unwrap();
        index.file().sync().unwrap();
        let opened = OffsetIndex::open(handle(&disk), 100, 8000);
        assert_eq!(opened.all().unwrap().len() as i64, kept + 1, "{kept}");
        assert_eq!(opened.last_offset().unwrap(), 300);
    }
}

#[test]
fn full_disk_leaves_out_the_entry_that_could_not_be_written_with_those_that_wait() {
    let disk = SimDisk::new();
    let index = new_index(&disk);
    for entry in 1..64 {
        index.append(100 + entry, entry as u32).unwrap();
    }
    disk.fail_from(SimOperation::Write, 0, std::io::ErrorKind::StorageFull);
    for _ in 0..3 {
        index.append(164, 64).unwrap_err();
        assert_eq!(index.last_offset().unwrap(), 163);
    }
    index.truncate_to(151).unwrap();
    assert_eq!(index.last_offset().unwrap(), 150);
    disk.heal();
    index.append(164, 64).unwrap();
    index.file().sync().unwrap();
    let opened = OffsetIndex::open(handle(&disk), 100, 8000);
    assert_eq!(opened.all().unwrap(), index.all().unwrap());
    assert_eq!(opened.all().unwrap().len(), 51);
}

#[test]
fn entries_are_read_right_while_others_come() {
    let disk = SimDisk::new();
    let handle = handle(&disk);
    handle.create().unwrap();
    let index = OffsetIndex::new_empty(handle, 100, 8 * 50_000);
    index.append(101, 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for entry in 2..=50_000 {
                index.append(100 + entry, entry as u32).unwrap();
            }
        });
        loop {
            let entries = index.file().entries().unwrap();
            for slot in [0, entries / 2, entries - 1] {
                let expected = at(101 + slot as i64, 1 + slot as u32);
                assert_eq!(index.parse(&index.file().read_entry(slot).unwrap()), expected);
            }
            if entries == 50_000 {
                break;
            }
        }
    });
}

#[test]
fn file_with_bytes_of_half_an_entry_counts_whole_ones() {
    let disk = SimDisk::new();
    let index = new_index(&disk);
    index.append(101, 1).unwrap();
    index.file().sync().unwrap();
    disk.open(Path::new(PATH), OpenMode::ReadWrite)
        .unwrap()
        .write_all_at(b"junk!", 8)
        .unwrap();
    let opened = OffsetIndex::open(handle(&disk), 100, 8000);
    assert_eq!(opened.all().unwrap(), [at(101, 1)]);
}

#[test]
fn is_full_at_the_configured_size() {
    let disk = SimDisk::new();
    let handle = handle(&disk);
    handle.create().unwrap();
    let index = OffsetIndex::new_empty(handle, 100, 17);
    index.append(101, 1).unwrap();
    assert!(!index.is_full().unwrap());
    index.append(102, 2).unwrap();
    assert!(index.is_full().unwrap());
}

#[test]
fn fits_in_segment_is_an_i32_from_the_base() {
    assert!(fits_in_segment(5, 5));
    assert!(!fits_in_segment(5, 4));
    assert!(fits_in_segment(5, 5 + i64::from(i32::MAX)));
    assert!(!fits_in_segment(5, 6 + i64::from(i32::MAX)));
}
