use super::*;
use crate::io::sim_disk::SimDisk;

fn disk() -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new());
    disk.create_dir_all(Path::new("/d")).unwrap();
    disk
}

const PATH: &str = "/d/.kavka_reserve";

#[test]
fn reserve_is_made_when_there_is_room_for_twice_as_much_and_given_up_on_a_full_disk() {
    let disk = disk();
    let reserve = Reserve::new(disk.clone(), Path::new("/d"), 100_000);
    disk.set_capacity(Some(150_000));
    reserve.restore();
    assert!(!disk.exists(Path::new(PATH)));
    disk.set_capacity(Some(250_000));
    reserve.restore();
    assert_eq!(disk.read(Path::new(PATH)).unwrap().len(), 100_000);
    reserve.give_up_if_needed();
    assert!(disk.exists(Path::new(PATH)), "150,000 are free");
    disk.set_capacity(Some(130_000));
    reserve.give_up_if_needed();
    assert_eq!(disk.used(), 0);
    assert!(!reserve.give_up(), "there is none any more");
}

#[test]
fn reserve_that_finds_no_room_in_the_end_leaves_nothing() {
    let disk = disk();
    disk.set_capacity(Some(1_000_000));
    disk.fail_nth(
        crate::io::sim_disk::SimOperation::Write,
        1,
        io::ErrorKind::StorageFull,
    );
    let reserve = Reserve::new(disk.clone(), Path::new("/d"), 100_000);
    reserve.restore();
    assert!(!disk.exists(Path::new(PATH)));
    reserve.restore();
    assert!(disk.exists(Path::new(PATH)));
}

#[test]
fn reserve_of_no_bytes_is_no_file() {
    let disk = disk();
    disk.set_capacity(Some(1_000_000));
    let reserve = Reserve::new(disk.clone(), Path::new("/d"), 0);
    reserve.restore();
    reserve.give_up_if_needed();
    assert!(!disk.exists(Path::new(PATH)));
}
