//! Partitions from their election to their resignation. One whose log is not there or does not decode, or under which
//! something panics, does not stay without a coordinator.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::super::context::context_test::{MemoryLog, Numbers, batch, partition, set};
use super::super::shard::Effect;
use super::{ContextConfig, CoordinatorRuntime, LOAD_RETRY, LoadError, Outcome, RuntimeConfig, retry_after};
use crate::io::clock::SystemClock;
use crate::metadata::{LocalReplicaChanges, MetadataCache, PartitionInfo, PartitionRegistration};
use crate::protocol::{ApiError, ErrorCode};
use crate::record::{BatchBuilder, BatchOptions, Compression};

const LONG: Duration = Duration::from_secs(600);

fn not_coordinator<T>() -> Result<T, ApiError> {
    Err(ErrorCode::NotCoordinator.into())
}

fn log() -> Arc<MemoryLog> {
    let log = MemoryLog::new(true);
    log.push(batch(&[("a", 1)], BatchOptions::default()));
    log.commit(&partition());
    log
}

fn runtime(log: Arc<MemoryLog>, executor: &Handle) -> CoordinatorRuntime<Numbers> {
    let config = RuntimeConfig {
        topic: "numbers".into(),
        context: ContextConfig {
            compression: Compression::None,
            base_sequence: 0,
            write_timeout_ms: 60_000,
        },
        load_buffer_bytes: 1000,
        loads_at_once: 1,
    };
    let clock = Arc::new(SystemClock::new());
    CoordinatorRuntime::new(
        config,
        log,
        clock,
        MetadataCache::default(),
        executor.clone(),
        Numbers::default,
    )
}

/// Time is paused: what is waited for comes at once, or never.
async fn until_active(runtime: &CoordinatorRuntime<Numbers>) {
    let active = async {
        while runtime.read(0, |shard, _| shard.loaded).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, active)
        .await
        .expect("it stays without a coordinator");
}

async fn until_failed(runtime: &CoordinatorRuntime<Numbers>) {
    let failed = async {
        while runtime.read(0, |shard, _| shard.loaded).await != not_coordinator() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, failed).await.expect("it does not fail");
}

async fn write(runtime: &CoordinatorRuntime<Numbers>, value: i64) -> Result<(), ApiError> {
    let written = runtime.write(0, move |_, _| Ok(set("b", value)));
    timeout(LONG, written).await.expect("nobody answers")
}

#[test]
fn partition_takes_operations_from_its_election_to_its_resignation() {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let log = MemoryLog::new(true);
    log.push(batch(&[("a", 1)], BatchOptions::default()));
    log.commit(&partition());
    let runtime = runtime(log.clone(), executor.handle());
    executor.block_on(async {
        let write = |value| runtime.write(0, move |_, _| Ok(set("b", value)));
        assert_eq!(write(1).await, Err(ApiError::from(ErrorCode::NotCoordinator)));
        runtime.elect(0, 3);
        until_active(&runtime).await;
        assert_eq!(runtime.read(0, |shard, _| shard.latest["a"]).await, Ok(1));
        assert_eq!(write(2).await, Ok(()));
        assert_eq!(
            runtime
                .read(0, |shard, committed| (shard.latest["b"], committed))
                .await,
            Ok((2, 2))
        );
        let refused = runtime.write(0, |_, _| {
            Err::<Outcome<Numbers, ()>, _>(ErrorCode::InvalidGroupId.into())
        });
        assert_eq!(refused.await, Err(ErrorCode::InvalidGroupId.into()));
        // An election and a resignation of older epochs change nothing.
        runtime.elect(0, 2);
        runtime.resign(0, Some(3));
        assert_eq!(write(3).await, Ok(()));
        let parked = runtime.write_parked(0, |_, _, _| Ok(Outcome::of(())));
        let resign = async { runtime.resign(0, Some(4)) };
        let (parked, ()) = tokio::join!(parked, resign);
        assert_eq!(parked, Err(ErrorCode::NotCoordinator.into()));
        assert_eq!(write(4).await, Err(ErrorCode::NotCoordinator.into()));
        assert!(runtime.partition_ids().is_empty());
        // Elected again it has all that was written.
        runtime.elect(0, 5);
        until_active(&runtime).await;
        assert_eq!(runtime.read(0, |shard, _| shard.latest["b"]).await, Ok(3));
        runtime.shutdown();
    });
}

#[test]
fn parked_reply_is_given_when_the_shard_says_so() {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let runtime = runtime(MemoryLog::new(true), executor.handle());
    executor.block_on(async {
        runtime.elect(0, 0);
        until_active(&runtime).await;
        let reply = runtime.write_parked(0, |_, _, token| {
            let mut outcome = set("x", 1);
            outcome.pending = Some(token);
            Ok(outcome)
        });
        assert_eq!(reply.await, Ok(1));
        let at_once = runtime.write_parked(0, |_, _, token| {
            let mut outcome = Outcome::of(());
            outcome.effects = vec![Effect::Reply(token, 5)];
            Ok(outcome)
        });
        assert_eq!(at_once.await, Ok(5));
        let refused = runtime.write_parked(0, |_, _, _| Err(ErrorCode::UnknownServerError.into()));
        assert_eq!(refused.await, Err(ErrorCode::UnknownServerError.into()));
    });
}

#[tokio::test(start_paused = true)]
async fn log_that_was_not_there_at_the_election_is_loaded_once_it_is() {
    let log = log();
    log.absent.store(true, Ordering::SeqCst);
    let runtime = runtime(log.clone(), &Handle::current());
    runtime.elect(0, 3);
    until_failed(&runtime).await;
    assert_eq!(write(&runtime, 1).await, not_coordinator());
    sleep(LONG).await;
    until_failed(&runtime).await;
    log.absent.store(false, Ordering::SeqCst);
    until_active(&runtime).await;
    assert_eq!(runtime.read(0, |shard, _| shard.latest["a"]).await, Ok(1));
    // It hears of the high watermark, and once.
    assert_eq!(write(&runtime, 2).await, Ok(()));
    assert_eq!(log.listeners.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn partition_that_waits_for_its_log_can_be_resigned() {
    let log = log();
    log.absent.store(true, Ordering::SeqCst);
    let runtime = runtime(log.clone(), &Handle::current());
    runtime.elect(0, 3);
    until_failed(&runtime).await;
    runtime.resign(0, Some(4));
    log.absent.store(false, Ordering::SeqCst);
    sleep(LONG).await;
    assert!(log.listeners.lock().unwrap().is_empty());
    // And elected again.
    runtime.elect(0, 5);
    until_active(&runtime).await;
}

#[tokio::test(start_paused = true)]
async fn log_that_does_not_decode_is_tried_again_by_the_next_election() {
    let log = log();
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1, Some(b"\xff"), None, &[]);
    log.push(builder.build().unwrap());
    let runtime = runtime(log.clone(), &Handle::current());
    runtime.elect(0, 3);
    until_failed(&runtime).await;
    log.batches.lock().unwrap().pop();
    sleep(LONG).await;
    until_failed(&runtime).await;
    let elected = Instant::now();
    runtime.elect(0, 4);
    until_active(&runtime).await;
    assert!(elected.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn load_that_panics_is_tried_again() {
    let log = log();
    log.panics.store(2, Ordering::SeqCst);
    let runtime = runtime(log.clone(), &Handle::current());
    runtime.elect(0, 3);
    until_active(&runtime).await;
    assert_eq!(write(&runtime, 2).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn load_that_panics_every_time_is_tried_ever_more_seldom() {
    let log = log();
    log.panics.store(1_000, Ordering::SeqCst);
    let runtime = runtime(log.clone(), &Handle::current());
    runtime.elect(0, 3);
    sleep(Duration::from_secs(600)).await;
    let tries = 1_000 - log.panics.load(Ordering::SeqCst);
    assert!((10..20).contains(&tries), "{tries} times in ten minutes");
    log.panics.store(0, Ordering::SeqCst);
    // An election is no try of ours.
    let elected = Instant::now();
    runtime.elect(0, 4);
    until_active(&runtime).await;
    assert!(elected.elapsed() < Duration::from_secs(1));
}

#[test]
fn what_is_tried_again_is_what_may_be_better_by_then() {
    for code in [ErrorCode::KafkaStorageError, ErrorCode::NotLeaderOrFollower] {
        assert_eq!(retry_after(&LoadError::Log(code)), Some(LOAD_RETRY));
    }
    // A damaged range stays one.
    assert_eq!(retry_after(&LoadError::Log(ErrorCode::UnknownServerError)), None);
    assert_eq!(retry_after(&LoadError::NoKey(1)), None);
}

#[tokio::test(start_paused = true)]
async fn operation_that_panics_costs_a_load_and_no_more() {
    let log = log();
    let runtime = runtime(log.clone(), &Handle::current());
    runtime.elect(0, 3);
    until_active(&runtime).await;
    assert_eq!(write(&runtime, 1).await, Ok(()));
    let panics = runtime.write(0, |_, _| -> Result<Outcome<Numbers, ()>, ApiError> {
        panic!("as the test wants it")
    });
    let (panicked, beside) = tokio::join!(panics, write(&runtime, 3));
    assert_eq!((panicked, beside), (not_coordinator(), not_coordinator()));
    until_active(&runtime).await;
    assert_eq!(runtime.read(0, |shard, _| shard.latest["b"]).await, Ok(1));
    assert_eq!(write(&runtime, 4).await, Ok(()));
    assert_eq!(log.listeners.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn parked_operation_that_cannot_be_written_says_why() {
    let log = log();
    let runtime = runtime(log.clone(), &Handle::current());
    runtime.elect(0, 3);
    until_active(&runtime).await;
    *log.refuse.lock().unwrap() = Some(ErrorCode::NotLeaderOrFollower);
    let parked = runtime.write_parked(0, |_, _, _| Ok(set("b", 1)));
    let parked = timeout(LONG, parked).await.expect("nobody answers");
    assert_eq!(parked, Err(ErrorCode::NotLeaderOrFollower.into()));
}

/// As a delta has it whose topic was deleted, and made anew.
fn made_anew(topic: &str, leader_epoch: i32) -> LocalReplicaChanges {
    let leader = PartitionInfo {
        topic: topic.into(),
        topic_id: Uuid::from_u128(2),
        partition: 0,
        registration: Arc::new(PartitionRegistration {
            leader_epoch,
            ..Default::default()
        }),
    };
    LocalReplicaChanges {
        deletes: vec![(topic.into(), Uuid::from_u128(1), 0)],
        elected_leaders: vec![leader],
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn topic_that_is_made_anew_within_a_delta_has_a_coordinator() {
    let log = log();
    let runtime = runtime(log.clone(), &Handle::current());
    runtime.elect(0, 0);
    until_active(&runtime).await;
    runtime.on_local_changes(&made_anew("another", 7));
    assert_eq!(runtime.leader_epoch(0), Some(0));
    log.clear();
    runtime.on_local_changes(&made_anew("numbers", 0));
    until_active(&runtime).await;
    assert_eq!(runtime.read(0, |shard, _| shard.latest.len()).await, Ok(0));
    assert_eq!(write(&runtime, 1).await, Ok(()));
    assert_eq!(log.listeners.lock().unwrap().len(), 1);
}
