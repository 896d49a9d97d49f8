use std::path::PathBuf;

use super::*;
use crate::io::disk::Disk;
use crate::io::sim_disk::SimDisk;
use crate::io::stalling_disk::{StallingCall, StallingDisk};
use crate::log::LogConfig;
use crate::log::log_manager_test::{TestClock, open_manager};

#[test]
fn cleaning_that_ends_while_its_log_is_deleted_leaves_no_offset_to_the_next_of_that_name() {
    let sim = Arc::new(SimDisk::new());
    let disk = StallingDisk::new(sim.clone());
    let manager = open_manager(
        Arc::new(disk.clone()),
        TestClock::at(1_700_000_000_000),
        &[PathBuf::from("/d")],
    );
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let made = |topic: &str| {
        let topic_partition = TopicPartition::new(topic, 0);
        let log = manager.get_or_create(&topic_partition, None, LogConfig::default());
        log.unwrap()
    };
    let (deleted, other) = (made("t"), made("other"));
    let cleaner = &manager.cleaner.manager;
    // Those who have it at hand, or wait for it.
    let users_of_checkpoint =
        || Arc::strong_count(&cleaner.checkpoints.lock().unwrap()[deleted.log_dir.path()]) - 1;
    let path = Path::new("/d/cleaner-offset-checkpoint");
    disk.stall(path, StallingCall::Write);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| cleaner.done(&other, Some(5)));
        while disk.hanging() == 0 {
            std::thread::yield_now();
        }
        let second = scope.spawn(|| cleaner.done(&deleted, Some(7)));
        while users_of_checkpoint() < 2 {
            std::thread::yield_now();
        }
        deleted.mark_closed();
        disk.release();
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    assert_eq!(sim.read(path).unwrap(), b"0\n1\nother 0 5\n");
}
