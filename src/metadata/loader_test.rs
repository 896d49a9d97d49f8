use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::{MetadataLoader, MetadataLoaderConfig, SnapshotDoor};
use crate::io::clock::SystemClock;
use crate::metadata::{MetadataCache, MetadataDelta, MetadataImage, MetadataPublisher};
use crate::protocol::StrBytes;
use crate::protocol::records::metadata::{
    BeginTransactionRecord, EndTransactionRecord, FeatureLevelRecord, MetadataRecord, NoOpRecord,
};
use crate::raft::{
    CommittedBatch, LeaderAndEpoch, OffsetAndEpoch, RaftError, RaftListener, SnapshotContents,
    VersionedRecord,
};

/// High watermark as the test sets it, and the snapshots that were asked for.
#[derive(Default)]
struct Raft {
    high_watermark: AtomicI64,
    snapshots: Mutex<Vec<(OffsetAndEpoch, usize)>>,
}

impl SnapshotDoor for Raft {
    fn high_watermark(&self) -> Option<i64> {
        Some(self.high_watermark.load(Ordering::SeqCst)).filter(|offset| *offset >= 0)
    }

    fn create_snapshot(
        &self,
        id: OffsetAndEpoch,
        _last_contained_log_timestamp: i64,
        records: &mut dyn Iterator<Item = VersionedRecord>,
    ) -> Result<bool, RaftError> {
        self.snapshots.lock().unwrap().push((id, records.count()));
        Ok(true)
    }
}

/// What a publisher saw, in order.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Log {
    fn push(&self, line: String) {
        self.lines.lock().unwrap().push(line);
        self.changed.notify_all();
    }

    fn wait_for(&self, count: usize) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        let (lines, timeout) = self
            .changed
            .wait_timeout_while(lines, Duration::from_secs(20), |lines| lines.len() < count)
            .unwrap();
        assert!(!timeout.timed_out(), "only saw {lines:?}");
        lines.clone()
    }
}

struct Recorder {
    name: &'static str,
    log: Arc<Log>,
}

impl MetadataPublisher for Recorder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_metadata_update(&self, delta: &MetadataDelta, image: &Arc<MetadataImage>) {
        self.log.push(format!(
            "{} {}->{}",
            self.name,
            delta.previous().offset(),
            image.offset()
        ));
    }

    fn on_controller_change(&self, leader_id: i32, leader_epoch: i32) {
        self.log
            .push(format!("{} leader {leader_id} of {leader_epoch}", self.name));
    }
}

struct Fixture {
    raft: Arc<Raft>,
    loader: MetadataLoader,
    listener: Box<dyn RaftListener>,
    log: Arc<Log>,
    fatal: Arc<Log>,
}

fn fixture(max_bytes_between_snapshots: usize) -> Fixture {
    let raft = Arc::new(Raft::default());
    raft.high_watermark.store(-1, Ordering::SeqCst);
    let fatal = Arc::new(Log::default());
    let fatal_log = fatal.clone();
    let config = MetadataLoaderConfig {
        max_bytes_between_snapshots,
        max_snapshot_interval_ms: 0,
        faults_are_fatal: true,
        on_fatal: Box::new(move |reason| fatal_log.push(reason.to_owned())),
    };
    let loader = MetadataLoader::start(
        config,
        raft.clone(),
        Arc::new(SystemClock::new()),
        MetadataCache::default(),
    )
    .unwrap();
    Fixture {
        raft,
        listener: loader.listener(),
        loader,
        log: Arc::new(Log::default()),
        fatal,
    }
}

impl Fixture {
    fn install(&self, names: &[&'static str]) {
        let publishers = names.iter().map(|name| -> Arc<dyn MetadataPublisher> {
            Arc::new(Recorder {
                name,
                log: self.log.clone(),
            })
        });
        self.loader.install_publishers(publishers.collect());
    }

    fn commit(&mut self, base_offset: i64, records: Vec<MetadataRecord>) {
        self.listener.handle_commit(vec![batch(base_offset, records)]);
    }
}

fn batch(base_offset: i64, records: Vec<MetadataRecord>) -> CommittedBatch {
    CommittedBatch {
        base_offset,
        last_offset: base_offset + records.len().max(1) as i64 - 1,
        epoch: 3,
        append_timestamp: 1000,
        size_in_bytes: 100,
        records,
    }
}

fn metadata_version() -> MetadataRecord {
    FeatureLevelRecord {
        name: StrBytes::from_static_str("metadata.version"),
        feature_level: 33,
        ..FeatureLevelRecord::default()
    }
    .into()
}

fn no_op() -> MetadataRecord {
    NoOpRecord::default().into()
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long");
        std::thread::yield_now();
    }
}

#[test]
fn nothing_is_published_before_the_loader_has_caught_up() {
    let mut fixture = fixture(usize::MAX);
    fixture.install(&["first", "second"]);
    fixture.listener.handle_leader_change(LeaderAndEpoch {
        leader_id: Some(1),
        epoch: 3,
    });
    fixture.commit(0, vec![]);
    fixture.commit(1, vec![metadata_version()]);
    // The high watermark becomes known only now, and is ahead.
    fixture.raft.high_watermark.store(4, Ordering::SeqCst);
    fixture.commit(2, vec![no_op()]);
    fixture.commit(3, vec![no_op()]);
    let seen = fixture.log.wait_for(4);
    assert_eq!(
        seen,
        [
            "first -1->3",
            "first leader 1 of 3",
            "second -1->3",
            "second leader 1 of 3"
        ]
    );
    wait_until(|| fixture.loader.last_published_offset() == 3);
    assert_eq!(fixture.loader.cache().load().offset(), 3);
}

/// Who waits for the first image reads the finalized features from it: a state from the middle of what was loaded at once (a
/// metadata transaction begins there) must not be it. It was seen for a moment only, hence the rounds.
#[test]
fn first_image_is_the_whole_one_when_a_transaction_begins_in_the_middle() {
    for _ in 0..500 {
        let mut fixture = fixture(usize::MAX);
        fixture.raft.high_watermark.store(4, Ordering::SeqCst);
        let published = fixture.loader.published_offset();
        let cache = fixture.loader.cache().clone();
        let waiting = std::thread::spawn(move || {
            while *published.borrow() < 0 {
                std::hint::spin_loop();
            }
            cache.load().features.level("metadata.version")
        });
        fixture.listener.handle_commit(vec![
            batch(0, vec![no_op()]),
            batch(
                1,
                vec![
                    BeginTransactionRecord::default().into(),
                    metadata_version(),
                    EndTransactionRecord::default().into(),
                ],
            ),
        ]);
        assert_eq!(waiting.join().unwrap(), 33);
    }
}

#[test]
fn commits_are_published_in_order_to_every_publisher() {
    let mut fixture = fixture(usize::MAX);
    fixture.install(&["first", "second"]);
    fixture.raft.high_watermark.store(1, Ordering::SeqCst);
    fixture.commit(0, vec![metadata_version()]);
    fixture.log.wait_for(4);
    fixture.commit(1, vec![no_op()]);
    fixture.commit(2, vec![no_op(), no_op()]);
    let seen = fixture.log.wait_for(8);
    assert_eq!(
        seen[4..],
        ["first 0->1", "second 0->1", "first 1->3", "second 1->3"]
    );
    fixture.install(&["late"]);
    assert_eq!(fixture.log.wait_for(9)[8], "late -1->3");
}

#[test]
fn control_batches_alone_are_no_metadata() {
    let mut fixture = fixture(usize::MAX);
    fixture.install(&["only"]);
    fixture.raft.high_watermark.store(1, Ordering::SeqCst);
    fixture.commit(0, vec![]);
    fixture.raft.high_watermark.store(2, Ordering::SeqCst);
    fixture.commit(1, vec![metadata_version()]);
    assert_eq!(fixture.log.wait_for(1)[0], "only -1->1");
}

#[test]
fn loaded_snapshot_is_published_and_the_log_goes_on() {
    let mut fixture = fixture(usize::MAX);
    fixture.install(&["only"]);
    fixture.raft.high_watermark.store(10, Ordering::SeqCst);
    let batches = vec![Ok(batch(1, vec![metadata_version()]))];
    fixture.listener.handle_load_snapshot(SnapshotContents::new(
        OffsetAndEpoch::new(10, 2),
        500,
        Box::new(batches.into_iter()),
    ));
    fixture.log.wait_for(2);
    fixture.commit(10, vec![no_op()]);
    let seen = fixture.log.wait_for(3);
    assert_eq!(seen[0], "only -1->9");
    assert_eq!(seen[2], "only 9->10");
}

#[test]
fn enough_bytes_make_a_snapshot_at_the_end_of_the_image() {
    let mut fixture = fixture(250);
    fixture.install(&["only"]);
    fixture.raft.high_watermark.store(1, Ordering::SeqCst);
    fixture.commit(0, vec![metadata_version()]);
    fixture.commit(1, vec![no_op()]);
    fixture.commit(2, vec![no_op()]);
    wait_until(|| !fixture.raft.snapshots.lock().unwrap().is_empty());
    assert_eq!(
        fixture.raft.snapshots.lock().unwrap()[..],
        [(OffsetAndEpoch::new(3, 3), 1)]
    );
}

#[test]
fn record_that_does_not_apply_ends_the_node() {
    let mut fixture = fixture(usize::MAX);
    fixture.raft.high_watermark.store(1, Ordering::SeqCst);
    fixture.commit(0, vec![metadata_version()]);
    fixture.commit(1, vec![no_op(), EndTransactionRecord::default().into()]);
    let reasons = fixture.fatal.wait_for(1);
    assert!(reasons[0].contains("offset 2"), "{reasons:?}");
}

#[test]
fn panicking_publisher_ends_the_node() {
    struct Broken;
    impl MetadataPublisher for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }
        fn on_metadata_update(&self, _: &MetadataDelta, _: &Arc<MetadataImage>) {
            panic!("on purpose");
        }
    }
    let mut fixture = fixture(usize::MAX);
    fixture.loader.install_publishers(vec![Arc::new(Broken)]);
    fixture.raft.high_watermark.store(1, Ordering::SeqCst);
    fixture.commit(0, vec![metadata_version()]);
    assert_eq!(fixture.fatal.wait_for(1), ["the metadata loader panicked"]);
}
