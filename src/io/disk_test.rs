use std::io::IoSliceMut;

use rustix::io::ReadWriteFlags;

use super::*;

#[test]
fn write_all_vectored_at_more_parts_than_one_call_takes_writes_all_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new();
    let file = disk.open(&dir.path().join("f"), OpenMode::Create).unwrap();
    let parts: Vec<Vec<u8>> = (0..2500u32).map(|i| i.to_be_bytes().to_vec()).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    file.write_all_vectored_at(&slices, 3).unwrap();
    let content = disk.read(&dir.path().join("f")).unwrap();
    assert_eq!(content[..3], [0, 0, 0]);
    assert_eq!(content[3..], parts.concat());
}

#[test]
fn read_at_past_the_end_gives_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new();
    let file = disk.open(&dir.path().join("f"), OpenMode::Create).unwrap();
    file.write_all_at(b"abcdef", 0).unwrap();
    let mut buffer = [0u8; 10];
    assert_eq!(file.read_at(&mut buffer, 4).unwrap(), 2);
    assert_eq!(&buffer[..2], b"ef");
}

#[test]
fn write_atomically_over_an_old_file_leaves_the_new_one_alone() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new();
    let path = dir.path().join("checkpoint");
    disk.write_atomically(&path, b"old").unwrap();
    disk.write_atomically(&path, b"new").unwrap();
    assert_eq!(disk.read(&path).unwrap(), b"new");
    assert_eq!(
        disk.list(dir.path()).unwrap(),
        vec![(PathBuf::from("checkpoint"), false)]
    );
}

#[test]
fn try_lock_twice_in_one_process_is_refused_until_the_first_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new();
    let path = dir.path().join(".lock");
    let first = disk.try_lock(&path).unwrap();
    assert!(first.is_some());
    assert!(disk.try_lock(&path).unwrap().is_none());
    drop(first);
    assert!(disk.try_lock(&path).unwrap().is_some());
}

#[test]
fn what_a_read_would_wait_for_is_told_and_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new();
    let file = disk.open(&dir.path().join("f"), OpenMode::Create).unwrap();
    file.write_all_at(&[7; 100_000], 0).unwrap();
    assert!(file.is_cached_at(99_999));
    let mut buffer = [0; 100];
    let is_read = file.read_cached(&mut buffer, 99_900);
    // Some file systems know no such read.
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let answer = rustix::io::preadv2(file.as_file().unwrap(), &mut parts, 0, ReadWriteFlags::NOWAIT);
    assert_eq!(is_read, answer != Err(rustix::io::Errno::OPNOTSUPP));
    assert_eq!(is_read, buffer == [7; 100]);
    assert!(!file.read_cached(&mut buffer, 99_901), "it ends before");
    file.sync_data().unwrap();
    let advice = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(file.as_file().unwrap(), 0, None, advice).unwrap();
    // A file system in memory drops nothing, and some know no such question.
    if !file.is_cached_at(99_999) {
        let mut byte = [0];
        assert!(!file.read_cached(&mut byte, 99_999));
        file.read_at(&mut byte, 99_999).unwrap();
        assert!(file.is_cached_at(99_999));
    }
}

#[test]
fn reserve_sets_room_aside_behind_the_end_and_set_len_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = SystemDisk::new().open(&path, OpenMode::Create).unwrap();
    file.write_all_at(&[1; 5000], 0).unwrap();
    let taken = || fs::metadata(&path).unwrap().blocks() * 512;
    match file.reserve(5000, 1 << 20) {
        Ok(()) => assert!(taken() >= 1 << 20),
        // A file system that knows no such thing.
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}"),
    }
    assert_eq!(file.len().unwrap(), 5000);
    file.set_len(5000).unwrap();
    assert!(taken() < 1 << 19);
    assert_eq!(file.len().unwrap(), 5000);
}
