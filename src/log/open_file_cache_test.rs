use super::*;
use crate::io::sim_disk::SimDisk;

fn folder() -> (SimDisk, Arc<PartitionDir>) {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/data/t-0")).unwrap();
    (disk, PartitionDir::new(PathBuf::from("/data/t-0")))
}

#[test]
fn open_more_files_than_the_bound_closes_those_not_used() {
    let (disk, dir) = folder();
    let cache = OpenFileCache::new(Arc::new(disk), 3);
    let handles: Vec<_> = (0..10)
        .map(|base| FileHandle::new(&cache, &dir, base, FileKind::Log))
        .collect();
    for (index, handle) in handles.iter().enumerate() {
        handle.create().unwrap();
        handle.get().unwrap().write_all_at(&[index as u8], 0).unwrap();
        let open = handles
            .iter()
            .filter(|handle| handle.open.load().is_some())
            .count();
        assert!(open <= 3, "{open} open");
    }
    for (index, handle) in handles.iter().enumerate() {
        let mut byte = [0];
        handle.get().unwrap().read_at(&mut byte, 0).unwrap();
        assert_eq!(byte[0], index as u8);
    }
}

#[test]
fn rename_of_file_and_folder_leaves_it_openable() {
    let (disk, dir) = folder();
    let cache = OpenFileCache::new(Arc::new(disk.clone()), 10);
    let handle = FileHandle::new(&cache, &dir, 7, FileKind::OffsetIndex);
    handle.create().unwrap();
    handle.get().unwrap().write_all_at(b"x", 0).unwrap();
    handle.change_suffix(DELETED_SUFFIX).unwrap();
    dir.rename(&disk, PathBuf::from("/data/t-0-delete")).unwrap();
    handle.close();
    assert_eq!(
        handle.path(),
        Path::new("/data/t-0-delete/00000000000000000007.index.deleted")
    );
    assert_eq!(handle.get().unwrap().len().unwrap(), 1);
    assert_eq!(cache.opened(), 2);
}

#[test]
fn get_of_a_file_that_is_not_there_fails() {
    let (disk, dir) = folder();
    let cache = OpenFileCache::new(Arc::new(disk), 10);
    let handle = FileHandle::new(&cache, &dir, 7, FileKind::TransactionIndex);
    assert_eq!(handle.get().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(!handle.exists());
}
