use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::io::clock::SystemClock;
use crate::io::sim_disk::SimDisk;
use crate::io::stalling_disk::{StallingCall, StallingDisk};
use crate::log::{LogConfig, LogManager, LogManagerConfig, VerificationRequest};
use crate::metadata::{MetadataCache, MetadataDelta, MetadataProvenance, MetadataPublisher};
use crate::replica::test_support::{NODE, TestClock, batch, id, topic, topic_partition};
use crate::replica::{FetchIsolation, OffsetSpec, ReplicaManager, ReplicaManagerConfig, TopicIdPartition};

const PATIENCE: Duration = Duration::from_secs(20);

fn dirs() -> Vec<PathBuf> {
    ["/slow", "/fast"].map(PathBuf::from).to_vec()
}

fn gate(workers: usize) -> (DiskGate, Arc<TestClock>) {
    let clock: Arc<TestClock> = Arc::default();
    (DiskGate::new(&dirs(), workers, clock.clone()), clock)
}

async fn pass<'a>(gate: &'a DiskGate, dir: &str) -> Pass<'a> {
    gate.pass(Path::new(dir), false).await.unwrap()
}

fn is_inline(pass: &Pass<'_>) -> bool {
    matches!(pass, Pass::Inline(_))
}

#[tokio::test]
async fn stuck_directory_is_not_entered_inline_and_others_are() {
    let (gate, clock) = gate(4);
    let stuck = pass(&gate, "/slow").await;
    assert!(is_inline(&stuck));
    assert!(is_inline(&pass(&gate, "/slow").await), "not stuck yet");
    clock.advance(STUCK_MS + 1);
    assert!(!is_inline(&pass(&gate, "/slow").await));
    assert!(is_inline(&pass(&gate, "/fast").await));
    drop(stuck);
    assert!(is_inline(&pass(&gate, "/slow").await));
}

#[tokio::test]
async fn long_work_that_gets_on_is_not_taken_for_stuck() {
    let (gate, clock) = gate(3);
    let Pass::Inline(long) = pass(&gate, "/slow").await else {
        panic!("not inline");
    };
    for _ in 0..3 {
        clock.advance(STUCK_MS);
        long.gets_on();
        assert!(is_inline(&pass(&gate, "/slow").await));
    }
    clock.advance(STUCK_MS + 1);
    assert!(!is_inline(&pass(&gate, "/slow").await));
}

#[tokio::test]
async fn last_worker_is_never_taken() {
    let (gate, clock) = gate(3);
    let first = pass(&gate, "/slow").await;
    let second = pass(&gate, "/fast").await;
    assert!(is_inline(&first) && is_inline(&second));
    // Busy, not stuck: it waits for a while, then goes elsewhere.
    assert!(!is_inline(&pass(&gate, "/fast").await));
    clock.advance(STUCK_MS + 1);
    assert!(!is_inline(&pass(&gate, "/fast").await));
    drop((first, second));
    assert!(is_inline(&pass(&gate, "/fast").await));
}

async fn still_waits<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = tokio::task::yield_now() => true,
    }
}

#[tokio::test(start_paused = true)]
async fn who_finds_all_slots_taken_gets_the_next_that_is_left_in_turn() {
    let (gate, _clock) = gate(2);
    let first = pass(&gate, "/slow").await;
    let mut second = Box::pin(pass(&gate, "/fast"));
    assert!(still_waits(&mut second).await);
    let mut third = Box::pin(pass(&gate, "/slow"));
    assert!(still_waits(&mut third).await);
    drop(first);
    let second = second.await;
    assert!(is_inline(&second));
    assert!(still_waits(&mut third).await);
    drop(second);
    assert!(is_inline(&third.await));
    // The slot is free again.
    assert!(is_inline(&pass(&gate, "/fast").await));
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_takes_nobodys_turn() {
    let (gate, _clock) = gate(2);
    let first = pass(&gate, "/slow").await;
    let mut second = Box::pin(pass(&gate, "/fast"));
    let mut third = Box::pin(pass(&gate, "/slow"));
    assert!(still_waits(&mut second).await && still_waits(&mut third).await);
    drop(first);
    // Its turn has come, and its connection is closed.
    drop(second);
    assert!(is_inline(&third.await));
}

#[tokio::test(start_paused = true)]
async fn who_goes_to_the_pool_leaves_its_turn_to_the_next() {
    let (gate, clock) = gate(3);
    let hanging = pass(&gate, "/slow").await;
    clock.advance(STUCK_MS - 1);
    let moving = pass(&gate, "/fast").await;
    let mut second = Box::pin(pass(&gate, "/slow"));
    let mut third = Box::pin(pass(&gate, "/fast"));
    assert!(still_waits(&mut second).await && still_waits(&mut third).await);
    clock.advance(2);
    drop(moving);
    assert!(!is_inline(&second.await));
    let inline = tokio::time::timeout(Duration::from_millis(1), third).await;
    assert!(is_inline(&inline.unwrap()));
    drop(hanging);
}

#[tokio::test]
async fn single_worker_does_nothing_inline() {
    let (gate, _clock) = gate(1);
    assert!(!is_inline(&pass(&gate, "/fast").await));
}

#[tokio::test]
async fn work_that_waits_for_the_disk_goes_to_the_pool_at_once() {
    let (gate, _clock) = gate(4);
    let pass = gate.pass(Path::new("/fast"), true).await.unwrap();
    assert!(!is_inline(&pass));
}

#[tokio::test]
async fn pool_threads_of_a_directory_are_bounded_and_others_have_theirs() {
    let (gate, _clock) = gate(1);
    let mut passes = Vec::new();
    for _ in 0..POOLED_A_DIR_MAX {
        passes.push(pass(&gate, "/slow").await);
    }
    let one_more = tokio::select! {
        biased;
        _ = pass(&gate, "/slow") => true,
        () = tokio::task::yield_now() => false,
    };
    assert!(!one_more);
    pass(&gate, "/fast").await;
    passes.pop();
    pass(&gate, "/slow").await;
}

#[tokio::test]
async fn directory_that_is_none_of_the_gates_needs_no_pass() {
    let (gate, _clock) = gate(2);
    assert!(gate.pass(Path::new("/other"), false).await.is_none());
}

/// What it is for: work in one directory hangs, that in another goes on, on as many workers as hang.
#[test]
fn hanging_directory_leaves_the_runtime_to_others() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let gate = Arc::new(DiskGate::new(&dirs(), 2, Arc::new(SystemClock::new())));
    let (release, hold) = mpsc::channel::<()>();
    let hold = Arc::new(std::sync::Mutex::new(hold));
    let hanging: Vec<_> = (0..40)
        .map(|number| {
            let (gate, hold) = (gate.clone(), hold.clone());
            runtime.spawn(async move {
                let work = move || {
                    hold.lock().unwrap().recv().unwrap();
                    number
                };
                gate.run(Path::new("/slow"), false, work).await
            })
        })
        .collect();
    for _ in 0..50 {
        let gate = gate.clone();
        let task = runtime.spawn(async move { gate.run(Path::new("/fast"), false, || 7).await });
        let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, task).await });
        assert_eq!(answer.unwrap().unwrap(), Some(7));
    }
    assert!(hanging.iter().all(|task| !task.is_finished()));
    for _ in 0..40 {
        release.send(()).unwrap();
    }
    for (number, task) in hanging.into_iter().enumerate() {
        let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, task).await });
        assert_eq!(done.unwrap().unwrap(), Some(number));
    }
}

/// Two topics in two directories, on a runtime as small as a node's on one processor.
struct TwoDirs {
    runtime: tokio::runtime::Runtime,
    disk: StallingDisk,
    manager: Arc<ReplicaManager>,
}

const WORKERS: usize = 2;

impl TwoDirs {
    fn new() -> Self {
        let disk = StallingDisk::new(Arc::new(SimDisk::new()));
        let clock = Arc::new(SystemClock::new());
        let config = LogManagerConfig::new(["/first", "/second"].map(PathBuf::from).to_vec());
        let logs = Arc::new(LogManager::open(config, Arc::new(disk.clone()), clock.clone()).unwrap());
        let config = ReplicaManagerConfig {
            directory_ids: BTreeMap::new(),
            alter_log_dirs_threads: 1,
            node_id: NODE,
            replica_lag_time_max_ms: 30_000,
            max_incremental_fetch_session_cache_slots: 10,
            data_workers: WORKERS,
            transaction_partition_verification_enable: true,
        };
        let log_config = Arc::new(|_: &_| LogConfig::kafka_defaults().unwrap());
        let metadata = MetadataCache::default();
        let manager = ReplicaManager::new(config, logs, metadata.clone(), log_config, clock);
        for (name, number) in [("slow", 0), ("fast", 1)] {
            let mut delta = MetadataDelta::new(metadata.image());
            for record in topic(name, id(number), &[NODE], &[NODE]) {
                delta.replay(&record).unwrap();
            }
            let image = Arc::new(delta.apply(MetadataProvenance::default()));
            metadata.store(image.clone());
            manager.on_metadata_update(&delta, &image);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .enable_all()
            .build()
            .unwrap();
        Self {
            runtime,
            disk,
            manager,
        }
    }

    fn spawn_produce(&self, name: &'static str) -> tokio::task::JoinHandle<i64> {
        let manager = self.manager.clone();
        self.runtime.spawn(async move {
            let entries = vec![(TopicIdPartition::new(Uuid::nil(), name, 0), batch(b"value"))];
            let guards = Default::default();
            let appended = manager.append_records(30_000, 1, false, entries, &guards).await;
            let result = appended.into_results().remove(0).1;
            assert!(result.error.is_none(), "{result:?}");
            result.base_offset
        })
    }

    fn spawn_latest(&self, name: &'static str) -> tokio::task::JoinHandle<i64> {
        let manager = self.manager.clone();
        self.runtime.spawn(async move {
            let (partition, isolation) = (topic_partition(name), Some(FetchIsolation::HighWatermark));
            let found = manager.find_offset(&partition, OffsetSpec::Latest, isolation, None, true);
            found.await.unwrap().unwrap().offset
        })
    }

    fn spawn_verification(&self, name: &'static str) -> tokio::task::JoinHandle<bool> {
        let manager = self.manager.clone();
        let request = VerificationRequest {
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: -1,
            supports_epoch_bump: false,
        };
        self.runtime.spawn(async move {
            let partition = topic_partition(name);
            let started = manager.start_verification(&partition, request).await;
            started.unwrap().is_some()
        })
    }

    fn await_all<T>(&self, tasks: Vec<tokio::task::JoinHandle<T>>) -> Vec<T> {
        let all = async {
            let mut results = Vec::new();
            for task in tasks {
                results.push(task.await.unwrap());
            }
            results
        };
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, all).await })
            .unwrap()
    }
}

#[test]
fn directory_whose_writes_stall_delays_only_what_is_for_it() {
    let node = TwoDirs::new();
    let dir_of = |name| {
        node.manager
            .get_partition(&topic_partition(name))
            .unwrap()
            .log()
            .parent_dir()
    };
    assert_ne!(dir_of("slow"), dir_of("fast"));
    node.disk.stall(&dir_of("slow"), StallingCall::Write);
    let stalled: Vec<_> = (0..30).map(|_| node.spawn_produce("slow")).collect();
    while node.disk.hanging() == 0 {
        std::thread::yield_now();
    }
    let verifications: Vec<_> = (0..10).map(|_| node.spawn_verification("slow")).collect();
    let mut took = Vec::new();
    for expected in 0..20 {
        let began = std::time::Instant::now();
        let produced = node.await_all(vec![node.spawn_produce("fast")]);
        let latest = node.await_all(vec![node.spawn_latest("fast")]);
        let verified = node.await_all(vec![node.spawn_verification("fast")]);
        took.push(began.elapsed());
        assert_eq!(
            (produced, latest, verified),
            (vec![expected], vec![expected + 1], vec![true])
        );
    }
    took.sort();
    assert!(took[10] < Duration::from_millis(100), "{took:?}");
    assert!(stalled.iter().all(|task| !task.is_finished()));
    assert!(verifications.iter().all(|task| !task.is_finished()));
    node.disk.release();
    assert!(node.await_all(verifications).into_iter().all(|is_open| is_open));
    let mut offsets = node.await_all(stalled);
    offsets.sort_unstable();
    assert_eq!(offsets, (0..30).collect::<Vec<i64>>());
}
