//! Long polls under paused time: what is answered at once, what wakes them, what leaves them asleep.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::coordinator::runtime::context::marker_batch;
use crate::coordinator::runtime::{TransactionEnd, TransactionalProducer};

use crate::record::BatchOptions;
use crate::replica::test_support::*;

fn led(topics: &[&str]) -> Arc<Fixture> {
    let fixture = Fixture::new();
    for (number, name) in topics.iter().enumerate() {
        fixture.publish(&topic(name, id(number as u128), &[NODE], &[NODE]));
    }
    Arc::new(fixture)
}

type Fetching = tokio::task::JoinHandle<(FetchResult, Duration)>;

fn spawn_fetch(
    fixture: &Arc<Fixture>,
    params: FetchParams,
    partitions: Vec<(TopicIdPartition, FetchPartition)>,
) -> Fetching {
    let fixture = fixture.clone();
    tokio::spawn(async move {
        let started = Instant::now();
        let result = fixture.manager.fetch_messages(&params, &partitions).await;
        (result, started.elapsed())
    })
}

fn waiting_on(fixture: &Fixture, topic: &str) -> usize {
    fixture
        .manager
        .get_partition(&topic_partition(topic))
        .unwrap()
        .waiters
        .len()
}

/// Lets the spawned run until `count` wait on the partition.
async fn until_waiting(fixture: &Fixture, topic: &str, count: usize) {
    // Turns, not time: a task that is ready gets its turn long before.
    for _ in 0..100_000 {
        if waiting_on(fixture, topic) == count {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} wait on {topic}, not {count}", waiting_on(fixture, topic));
}

#[tokio::test(start_paused = true)]
async fn data_there_is_answered_at_once() {
    let fixture = led(&["t"]);
    let size = fixture.fill("t", b"value");
    let (result, waited) = spawn_fetch(&fixture, consumer(500, 1), vec![fetch_from("t", 0)])
        .await
        .unwrap();
    assert_eq!(waited, Duration::ZERO);
    let data = &result[0].1;
    assert_eq!(data.records_size(), size);
    assert_eq!(
        (
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset
        ),
        (1, 1, 0)
    );
    assert!(data.error.is_none() && data.aborted_transactions.is_none());
}

#[tokio::test(start_paused = true)]
async fn nothing_there_the_answer_comes_after_max_wait_and_is_empty() {
    let fixture = led(&["t"]);
    let (result, waited) = spawn_fetch(&fixture, consumer(500, 1), vec![fetch_from("t", 0)])
        .await
        .unwrap();
    assert_eq!(waited, Duration::from_millis(500));
    assert_eq!(result[0].1.records_size(), 0);
    assert_eq!(result[0].1.high_watermark, 0);
    assert_eq!(waiting_on(&fixture, "t"), 0);
}

#[tokio::test(start_paused = true)]
async fn no_wait_asked_for_the_answer_is_what_there_is() {
    let fixture = led(&["t"]);
    let (_, waited) = spawn_fetch(&fixture, consumer(0, 1), vec![fetch_from("t", 0)])
        .await
        .unwrap();
    assert_eq!(waited, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn append_wakes_the_fetch_that_waits_for_it() {
    let fixture = led(&["t"]);
    let fetch = spawn_fetch(&fixture, consumer(500, 1), vec![fetch_from("t", 0)]);
    until_waiting(&fixture, "t", 1).await;
    let size = fixture.fill("t", b"value");
    let (result, waited) = fetch.await.unwrap();
    assert_eq!(waited, Duration::ZERO);
    assert_eq!(result[0].1.records_size(), size);
}

#[tokio::test(start_paused = true)]
async fn fetch_sleeps_on_until_min_bytes_are_there() {
    let fixture = led(&["t"]);
    let size = batch(b"value").len();
    let fetch = spawn_fetch(&fixture, consumer(500, 2 * size), vec![fetch_from("t", 0)]);
    until_waiting(&fixture, "t", 1).await;
    fixture.fill("t", b"value");
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting_on(&fixture, "t"), 1);
    fixture.fill("t", b"value");
    let (result, waited) = fetch.await.unwrap();
    assert_eq!((result[0].1.records_size(), waited), (2 * size, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn thousand_idle_consumers_do_not_stir_when_another_partition_is_written() {
    let fixture = led(&["idle", "busy"]);
    let fetches: Vec<_> = (0..1_000)
        .map(|_| spawn_fetch(&fixture, consumer(500, 1), vec![fetch_from("idle", 0)]))
        .collect();
    until_waiting(&fixture, "idle", 1_000).await;
    for _ in 0..100 {
        fixture.fill("busy", b"value");
    }
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting_on(&fixture, "idle"), 1_000);
    assert!(fetches.iter().all(|fetch| !fetch.is_finished()));
    let size = fixture.fill("idle", b"value");
    for fetch in fetches {
        let (result, waited) = fetch.await.unwrap();
        assert_eq!((result[0].1.records_size(), waited), (size, Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn fetch_of_many_partitions_is_woken_by_any_and_leaves_no_watch_behind() {
    let fixture = led(&["a", "b", "c"]);
    let partitions = vec![fetch_from("a", 0), fetch_from("b", 0), fetch_from("c", 0)];
    let fetch = spawn_fetch(&fixture, consumer(500, 1), partitions);
    until_waiting(&fixture, "c", 1).await;
    let size = fixture.fill("b", b"value");
    let (result, _) = fetch.await.unwrap();
    let sizes: Vec<_> = result.iter().map(|(_, data)| data.records_size()).collect();
    assert_eq!(sizes, [0, size, 0]);
    for topic in ["a", "b", "c"] {
        assert_eq!(waiting_on(&fixture, topic), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn partitions_where_nothing_happened_are_answered_as_they_are() {
    for isolation in [FetchIsolation::HighWatermark, FetchIsolation::TxnCommitted] {
        let fixture = led(&["quiet", "shortened", "written"]);
        fixture.fill("quiet", b"value");
        fixture.fill("shortened", b"value");
        let params = FetchParams {
            isolation,
            ..consumer(500, 1)
        };
        let partitions = vec![
            fetch_from("quiet", 1),
            fetch_from("shortened", 1),
            fetch_from("written", 0),
        ];
        let fetch = spawn_fetch(&fixture, params.clone(), partitions.clone());
        until_waiting(&fixture, "written", 1).await;
        // It moves the start without an event.
        let shortened = fixture.manager.get_partition(&topic_partition("shortened"));
        shortened.unwrap().delete_records_on_leader(1).unwrap();
        let size = fixture.fill("written", b"value");
        let (result, waited) = fetch.await.unwrap();
        assert_eq!(waited, Duration::ZERO);
        let sizes = result.iter().map(|(_, data)| data.records_size());
        assert_eq!(sizes.collect::<Vec<_>>(), [0, 0, size]);
        assert_eq!(result[1].1.log_start_offset, 1);
        let fresh = fixture.manager.fetch_messages(&params, &partitions).await;
        assert_eq!(format!("{result:?}"), format!("{fresh:?}"));
        for topic in ["quiet", "shortened", "written"] {
            assert_eq!(waiting_on(&fixture, topic), 0);
        }
    }
}

/// A transaction that is open.
fn begin_transaction(fixture: &Fixture, value: &[u8]) -> usize {
    fixture.manager.set_transaction_verification(false);
    let options = BatchOptions {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..Default::default()
    };
    let records = batch_of(options, value);
    let size = records.len();
    let results = fixture.append("t", 1, records).into_results();
    assert!(results[0].1.error.is_none(), "{:?}", results[0].1);
    size
}

async fn commit(fixture: &Fixture) {
    let producer = TransactionalProducer {
        producer_id: 7,
        producer_epoch: 0,
    };
    let end = TransactionEnd {
        producer,
        coordinator_epoch: 0,
        committed: true,
        transaction_version: 0,
    };
    let marker = marker_batch(end, 1_700_000_000_000).unwrap();
    let entries = vec![(TopicIdPartition::new(id(0), "t", 0), marker)];
    let results = fixture.manager.append_markers(0, 0, entries).await.into_results();
    assert!(results[0].1.error.is_none(), "{:?}", results[0].1);
}

fn read_committed(max_wait_ms: u64, min_bytes: usize) -> FetchParams {
    FetchParams {
        isolation: FetchIsolation::TxnCommitted,
        ..consumer(max_wait_ms, min_bytes)
    }
}

#[tokio::test(start_paused = true)]
async fn open_transaction_that_began_in_an_earlier_segment_is_waited_for() {
    let fixture = led(&["t"]);
    let size = begin_transaction(&fixture, b"value");
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    partition.log().roll().unwrap();
    fixture.fill("t", b"value");
    let fetch = spawn_fetch(&fixture, read_committed(500, 1), vec![fetch_from("t", 0)]);
    let (result, waited) = fetch.await.unwrap();
    assert_eq!(waited, Duration::from_millis(500));
    assert_eq!(result[0].1.records_size(), 0);
    // Who sees all gets what lies before the new segment at once.
    let params = consumer(500, 10_000);
    let (result, waited) = spawn_fetch(&fixture, params, vec![fetch_from("t", 0)])
        .await
        .unwrap();
    assert_eq!(waited, Duration::ZERO);
    assert_eq!(result[0].1.records_size(), size);
}

#[tokio::test(start_paused = true)]
async fn commit_brings_what_was_appended_long_before() {
    let fixture = led(&["t"]);
    let size = begin_transaction(&fixture, &[b'v'; 1_000]);
    let fetch = spawn_fetch(&fixture, read_committed(500, size), vec![fetch_from("t", 0)]);
    until_waiting(&fixture, "t", 1).await;
    commit(&fixture).await;
    let (result, waited) = fetch.await.unwrap();
    assert_eq!(waited, Duration::ZERO);
    assert!(result[0].1.records_size() >= size);
}

#[tokio::test(start_paused = true)]
async fn fetch_that_is_dropped_leaves_no_watch_behind() {
    let fixture = led(&["t"]);
    let fetch = spawn_fetch(&fixture, consumer(500, 1), vec![fetch_from("t", 0)]);
    until_waiting(&fixture, "t", 1).await;
    fetch.abort();
    assert!(fetch.await.unwrap_err().is_cancelled());
    assert_eq!(waiting_on(&fixture, "t"), 0);
}

#[tokio::test(start_paused = true)]
async fn error_on_one_partition_is_answered_at_once_with_the_others() {
    let fixture = led(&["t"]);
    let partitions = vec![fetch_from("t", 0), fetch_from("missing", 0), fetch_from("t", 7)];
    let (result, waited) = spawn_fetch(&fixture, consumer(500, 1), partitions).await.unwrap();
    assert_eq!(waited, Duration::ZERO);
    assert!(result[0].1.error.is_none());
    assert!(matches!(
        result[1].1.error,
        Some(ReplicaError::UnknownTopicOrPartition { .. })
    ));
    assert!(matches!(
        result[2].1.error,
        Some(ReplicaError::Log(LogError::OffsetOutOfRange { .. }))
    ));
    let data = &result[2].1;
    assert_eq!(
        (
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset
        ),
        (-1, -1, -1)
    );
}

#[tokio::test(start_paused = true)]
async fn topic_made_anew_under_the_same_name_is_another() {
    let fixture = led(&["t"]);
    let (mut partition, request) = fetch_from("t", 0);
    partition.topic_id = id(99);
    let (result, _) = spawn_fetch(&fixture, consumer(500, 1), vec![(partition, request)])
        .await
        .unwrap();
    assert!(matches!(
        result[0].1.error,
        Some(ReplicaError::InconsistentTopicId)
    ));
}

#[tokio::test(start_paused = true)]
async fn topic_deleted_under_a_waiting_fetch_ends_the_wait() {
    let fixture = led(&["t"]);
    let fetch = spawn_fetch(&fixture, consumer(500, 1), vec![fetch_from("t", 0)]);
    until_waiting(&fixture, "t", 1).await;
    fixture.publish(&[removed(id(0))]);
    let (result, waited) = fetch.await.unwrap();
    assert_eq!(waited, Duration::ZERO);
    assert!(matches!(
        result[0].1.error,
        Some(ReplicaError::UnknownTopicOrPartition { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn leader_epoch_is_checked_before_and_after_the_wait() {
    let fixture = led(&["t"]);
    let with_epoch = |epoch| {
        let (partition, request) = fetch_from("t", 0);
        vec![(
            partition,
            FetchPartition {
                current_leader_epoch: Some(epoch),
                ..request
            },
        )]
    };
    let (result, _) = spawn_fetch(&fixture, consumer(500, 1), with_epoch(1))
        .await
        .unwrap();
    assert!(matches!(
        result[0].1.error,
        Some(ReplicaError::UnknownLeaderEpoch { .. })
    ));

    let fetch = spawn_fetch(&fixture, consumer(500, 1), with_epoch(0));
    until_waiting(&fixture, "t", 1).await;
    fixture.publish(&[change(id(0), Some(NODE), None)]);
    let (result, waited) = fetch.await.unwrap();
    assert_eq!(waited, Duration::ZERO);
    assert!(matches!(
        result[0].1.error,
        Some(ReplicaError::FencedLeaderEpoch { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn first_batch_of_all_comes_whole_and_nothing_after_the_budget_is_spent() {
    let fixture = led(&["a", "b", "c"]);
    let size = fixture.fill("b", &[7; 2_000]);
    fixture.fill("c", &[7; 2_000]);
    let params = FetchParams {
        max_bytes: 100,
        ..consumer(500, 1)
    };
    let partitions = vec![fetch_from("a", 0), fetch_from("b", 0), fetch_from("c", 0)];
    let (result, _) = spawn_fetch(&fixture, params, partitions).await.unwrap();
    let sizes: Vec<_> = result.iter().map(|(_, data)| data.records_size()).collect();
    assert_eq!(sizes, [0, size, 0]);
}

#[tokio::test(start_paused = true)]
async fn partition_max_bytes_cuts_after_the_first_message_rule_is_used_up() {
    let fixture = led(&["a", "b"]);
    let size = fixture.fill("a", b"value");
    fixture.fill("b", &[7; 2_000]);
    let (partition, request) = fetch_from("b", 0);
    let small = (
        partition,
        FetchPartition {
            max_bytes: 100,
            ..request
        },
    );
    let partitions = vec![fetch_from("a", 0), small];
    let (result, _) = spawn_fetch(&fixture, consumer(500, 1), partitions).await.unwrap();
    assert_eq!(
        (result[0].1.records_size(), result[1].1.records_size()),
        (size, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn consumer_sees_what_is_replicated_only_and_the_follower_all() {
    let fixture = Fixture::new();
    fixture.publish(&[broker(NODE, 1), broker(2, 1)]);
    fixture.publish(&topic("t", id(0), &[NODE, 2], &[NODE, 2]));
    let fixture = Arc::new(fixture);
    let size = fixture.fill("t", b"value");
    let consumer_fetch = spawn_fetch(&fixture, consumer(500, 1), vec![fetch_from("t", 0)]);
    until_waiting(&fixture, "t", 1).await;

    let (result, _) = spawn_fetch(&fixture, follower(2, 0), vec![fetch_from("t", 0)])
        .await
        .unwrap();
    assert_eq!(
        (result[0].1.records_size(), result[0].1.high_watermark),
        (size, 0)
    );
    assert!(!consumer_fetch.is_finished());
    // Its next fetch says that it has it.
    spawn_fetch(&fixture, follower(2, 0), vec![fetch_from("t", 1)])
        .await
        .unwrap();
    let (result, waited) = consumer_fetch.await.unwrap();
    assert_eq!(
        (result[0].1.records_size(), result[0].1.high_watermark),
        (size, 1)
    );
    assert_eq!(waited, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn replica_that_is_none_or_the_leader_itself_is_refused() {
    let fixture = led(&["t"]);
    for replica in [9, NODE] {
        let (result, _) = spawn_fetch(&fixture, follower(replica, 0), vec![fetch_from("t", 0)])
            .await
            .unwrap();
        assert!(matches!(
            result[0].1.error,
            Some(ReplicaError::NotLeaderOrFollower { .. })
        ));
        let (partition, request) = fetch_from("t", 0);
        let with_epoch = FetchPartition {
            current_leader_epoch: Some(0),
            ..request
        };
        let (result, _) = spawn_fetch(&fixture, follower(replica, 0), vec![(partition, with_epoch)])
            .await
            .unwrap();
        assert!(matches!(
            result[0].1.error,
            Some(ReplicaError::UnknownLeaderEpoch { .. })
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn fetch_of_an_epoch_that_the_log_left_is_told_where_it_diverges() {
    let fixture = led(&["t"]);
    fixture.fill("t", b"one");
    fixture.publish(&[change(id(0), Some(NODE), None)]);
    fixture.fill("t", b"two");
    let (partition, request) = fetch_from("t", 2);
    let request = FetchPartition {
        last_fetched_epoch: Some(0),
        ..request
    };
    let (result, waited) = spawn_fetch(&fixture, consumer(500, 1), vec![(partition, request)])
        .await
        .unwrap();
    let diverging = result[0].1.diverging_epoch.unwrap();
    assert_eq!((diverging.epoch, diverging.end_offset), (0, 1));
    assert_eq!((result[0].1.records_size(), waited), (0, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn no_partitions_are_answered_at_once() {
    let fixture = led(&[]);
    let (result, waited) = spawn_fetch(&fixture, consumer(500, 1), vec![]).await.unwrap();
    assert!(result.is_empty());
    assert_eq!(waited, Duration::ZERO);
}
