use super::*;

fn disk_with_dir() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/d")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

#[test]
fn lose_power_after_sync_of_file_and_dir_keeps_the_bytes_for_every_seed() {
    for seed in 0..50 {
        let disk = disk_with_dir();
        let path = Path::new("/d/f");
        let file = disk.open(path, OpenMode::Create).unwrap();
        file.write_all_at(b"synced", 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_all_at(b" and not", 6).unwrap();
        disk.lose_power(seed);
        assert!(disk.read(path).unwrap().starts_with(b"synced"), "seed {seed}");
    }
}

#[test]
fn lose_power_without_sync_of_the_dir_loses_the_name_for_some_seed() {
    let lost = (0..50).any(|seed| {
        let disk = disk_with_dir();
        let file = disk.open(Path::new("/d/f"), OpenMode::Create).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        file.sync_data().unwrap();
        disk.lose_power(seed);
        !disk.exists(Path::new("/d/f"))
    });
    assert!(lost);
}

#[test]
fn crash_process_keeps_all_that_was_written() {
    let disk = disk_with_dir();
    let file = disk.open(Path::new("/d/f"), OpenMode::Create).unwrap();
    file.write_all_at(b"written", 0).unwrap();
    disk.crash_process();
    assert_eq!(disk.read(Path::new("/d/f")).unwrap(), b"written");
}

#[test]
fn fail_nth_fails_that_call_alone() {
    let disk = disk_with_dir();
    let file = disk.open(Path::new("/d/f"), OpenMode::Create).unwrap();
    disk.fail_nth(SimOperation::Write, 1, io::ErrorKind::StorageFull);
    file.write_all_at(b"a", 0).unwrap();
    assert_eq!(
        file.write_all_at(b"b", 1).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    file.write_all_at(b"c", 1).unwrap();
    assert_eq!(disk.read(Path::new("/d/f")).unwrap(), b"ac");
}

#[test]
fn tear_write_leaves_a_part_of_the_bytes() {
    let disk = disk_with_dir();
    let file = disk.open(Path::new("/d/f"), OpenMode::Create).unwrap();
    disk.tear_write(0, 50, io::ErrorKind::Other);
    file.write_all_at(b"abcd", 0).unwrap_err();
    assert_eq!(disk.read(Path::new("/d/f")).unwrap(), b"ab");
}

#[test]
fn rename_of_a_directory_moves_what_is_in_it() {
    let disk = disk_with_dir();
    disk.create_dir_all(Path::new("/d/p-0")).unwrap();
    disk.write_atomically(Path::new("/d/p-0/x"), b"1").unwrap();
    disk.rename(Path::new("/d/p-0"), Path::new("/d/p-0-delete"))
        .unwrap();
    assert_eq!(disk.read(Path::new("/d/p-0-delete/x")).unwrap(), b"1");
    assert!(!disk.exists(Path::new("/d/p-0")));
}
