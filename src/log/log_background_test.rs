use std::path::{Path, PathBuf};

use super::*;
use crate::io::clock::SystemClock;
use crate::io::disk::Disk;
use crate::io::sim_disk::SimDisk;
use crate::io::stalling_disk::{StallingCall, StallingDisk};
use crate::log::log_manager_test::{batch, config_with, open_manager};
use crate::log::{AppendOrigin, LogConfig, TopicPartition};

#[test]
fn passes_come_due_after_the_delay_and_their_interval_and_again() {
    let intervals = BackgroundIntervals {
        initial_delay_ms: 10,
        retention_check_ms: 100,
        flush_check_ms: i64::MAX,
        recovery_point_checkpoint_ms: 60,
        log_start_offset_checkpoint_ms: 60,
        high_watermark_checkpoint_ms: 1000,
    };
    let mut schedule = Schedule::new(&intervals, 1000);
    assert_eq!(schedule.next_ms(), 1010);
    assert_eq!(schedule.take_due(1009), []);
    assert_eq!(schedule.take_due(1010), [Pass::Retention, Pass::HighWatermarks]);
    assert_eq!(schedule.next_ms(), 1070);
    assert_eq!(
        schedule.take_due(1070),
        [Pass::RecoveryPoints, Pass::LogStartOffsets]
    );
    assert_eq!(
        schedule.take_due(1200),
        [Pass::Retention, Pass::RecoveryPoints, Pass::LogStartOffsets]
    );
    assert_eq!(
        schedule.take_due(1260),
        [Pass::RecoveryPoints, Pass::LogStartOffsets]
    );
}

/// Two directories; a log of three segments in each, of which the first is due for retention.
struct TwoDirs {
    disk: StallingDisk,
    manager: Arc<LogManager>,
    slow: Arc<UnifiedLog>,
    fast: Arc<UnifiedLog>,
}

fn two_dirs() -> TwoDirs {
    let disk = StallingDisk::new(Arc::new(SimDisk::new()));
    let dirs = [PathBuf::from("/slow"), PathBuf::from("/fast")];
    let manager = Arc::new(open_manager(
        Arc::new(disk.clone()),
        Arc::new(SystemClock::new()),
        &dirs,
    ));
    manager.load_logs(&|_| LogConfig::default(), &|_| false).unwrap();
    let make = |topic: &str, dir: &str| {
        let config = config_with(&[("file.delete.delay.ms", "0"), ("retention.ms", "1")]);
        let log = manager
            .get_or_create_in(&TopicPartition::new(topic, 0), None, config, Some(Path::new(dir)))
            .unwrap();
        for _ in 0..2 {
            log.append_as_leader(&batch(2, 50, 1_000), 0, AppendOrigin::Client, 1_000)
                .unwrap();
            log.roll().unwrap();
        }
        log.update_high_watermark(log.log_end_offset());
        log
    };
    let (slow, fast) = (make("s", "/slow"), make("f", "/fast"));
    TwoDirs {
        disk,
        manager,
        slow,
        fast,
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        thread::yield_now();
    }
}

#[test]
fn passes_of_a_directory_go_on_while_another_one_stalls() {
    let dirs = two_dirs();
    dirs.disk.stall(Path::new("/slow"), StallingCall::Sync);
    let intervals = BackgroundIntervals {
        initial_delay_ms: 1,
        retention_check_ms: 1,
        flush_check_ms: 1,
        recovery_point_checkpoint_ms: 1,
        log_start_offset_checkpoint_ms: 1,
        high_watermark_checkpoint_ms: 1,
    };
    dirs.manager.start_background(intervals).unwrap();
    wait_until("the slow directory hangs", || dirs.disk.hanging() > 0);
    let path = |name: &str| Path::new("/fast").join(name);
    let has_lines = |name: &str, lines: usize| {
        let text = dirs.disk.read(&path(name)).unwrap_or_default();
        String::from_utf8(text).unwrap().lines().count() == lines
    };
    wait_until("flush of what was rolled", || dirs.fast.recovery_point() == 4);
    wait_until("retention", || dirs.fast.log_start_offset() == 4);
    wait_until("removal", || {
        let names = dirs.disk.list(Path::new("/fast/f-0")).unwrap();
        names
            .iter()
            .all(|(name, _)| !name.to_string_lossy().ends_with(".deleted"))
    });
    for checkpoint in [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ] {
        wait_until(checkpoint, || has_lines(checkpoint, 3));
    }
    wait_until("log start offsets", || {
        has_lines("log-start-offset-checkpoint", 2)
    });
    assert_eq!(dirs.slow.recovery_point(), 0);
    dirs.disk.release();
    wait_until("the slow directory's passes", || {
        dirs.slow.log_start_offset() == 4
    });
    dirs.manager.shutdown(1).unwrap();
    assert!(lock(&dirs.manager.background).is_empty());
}

#[test]
fn scrub_of_a_directory_goes_on_while_another_one_stalls() {
    let dirs = two_dirs();
    dirs.disk.stall(Path::new("/slow"), StallingCall::Read);
    let config = crate::log::LogScrubConfig {
        bytes_per_second: 1e9,
        interval_ms: 600_000,
        initial_delay_ms: 0,
    };
    dirs.manager.start_scrub(config).unwrap();
    let is_read = |log: &UnifiedLog| {
        let segments = log.segments.load();
        segments[..2]
            .iter()
            .all(|segment| segment.scrubbed_ms.load(Ordering::Relaxed) != i64::MIN)
    };
    wait_until("the fast directory is read", || is_read(&dirs.fast));
    wait_until("the slow directory hangs", || dirs.disk.hanging() > 0);
    assert!(!is_read(&dirs.slow));
    dirs.disk.release();
    wait_until("the slow directory is read", || is_read(&dirs.slow));
    dirs.manager.shutdown(1).unwrap();
}

#[test]
fn cleaner_goes_on_in_a_directory_while_another_ones_checkpoint_stalls() {
    let dirs = two_dirs();
    let compacted = config_with(&[
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.0"),
    ]);
    dirs.slow.update_config(compacted.clone());
    dirs.fast.update_config(compacted);
    dirs.disk
        .stall(Path::new("/slow/cleaner-offset-checkpoint"), StallingCall::Write);
    let config = crate::log::LogCleanerConfig {
        threads: 2,
        backoff_ms: 1,
        ..Default::default()
    };
    dirs.manager.start_cleaner(config).unwrap();
    wait_until("the slow directory hangs", || dirs.disk.hanging() > 0);
    wait_until("the fast directory's log is clean", || {
        dirs.manager.cleaner.manager.first_dirty_offset_of(&dirs.fast) == 4
    });
    // Nor does a deletion there wait.
    dirs.manager.async_delete(&TopicPartition::new("f", 0)).unwrap();
    dirs.disk.release();
    dirs.manager.shutdown(1).unwrap();
}
