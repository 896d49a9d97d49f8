//! Both stages of a produce: what is refused before the append, what waits after it, and what ends the wait.

use std::sync::Mutex;

use uuid::Uuid;

use super::*;
use crate::log::TopicPartition;
use crate::record::BatchOptions;
use crate::replica::test_support::*;
use crate::replica::{PartitionListener, replica_manager::ReplicaManager};

fn alone() -> Fixture {
    let fixture = Fixture::new();
    fixture.publish(&topic("t", id(0), &[NODE], &[NODE]));
    fixture
}

/// `t` with a follower in sync, at `min.insync.replicas`.
fn replicated(min_insync_replicas: &str) -> Fixture {
    let fixture = Fixture::new();
    fixture.publish(&[broker(NODE, 1), broker(2, 1)]);
    let mut records = topic("t", id(0), &[NODE, 2], &[NODE, 2]);
    records.push(topic_config("t", "min.insync.replicas", min_insync_replicas));
    fixture.publish(&records);
    fixture
}

fn only(results: Vec<(TopicIdPartition, AppendResult)>) -> AppendResult {
    let mut results = results;
    assert_eq!(results.len(), 1);
    results.remove(0).1
}

async fn follower_has(fixture: &Fixture, offset: i64) {
    fixture
        .manager
        .fetch_messages(&follower(2, 0), &[fetch_from("t", offset)])
        .await;
}

#[tokio::test(start_paused = true)]
async fn records_for_a_topic_do_not_get_into_another_of_its_name() {
    let fixture = alone();
    let append = async |topic_id| {
        let entries = vec![(TopicIdPartition::new(topic_id, "t", 0), batch(b"value"))];
        let guards = VerificationGuards::new();
        let appended = fixture
            .manager
            .append_records(0, 1, false, entries, &guards)
            .await;
        only(appended.into_results())
    };
    assert!(append(id(0)).await.error.is_none());
    // What is asked for is known, what is here is of the one before still.
    let error = append(id(1)).await.error;
    assert!(matches!(error, Some(ReplicaError::UnknownTopicId)), "{error:?}");
    let mut anew = vec![removed(id(0))];
    anew.extend(topic("t", id(1), &[NODE], &[NODE]));
    fixture.publish(&anew);
    // Sorted out before the topic was deleted, appended after.
    let error = append(id(0)).await.error;
    assert!(matches!(error, Some(ReplicaError::UnknownTopicId)), "{error:?}");
    let result = append(id(1)).await;
    assert!(result.error.is_none());
    assert_eq!(result.base_offset, 0);
}

#[tokio::test(start_paused = true)]
async fn any_acks_are_complete_at_once_with_one_replica() {
    let fixture = alone();
    for (acks, offset) in [(-1, 0), (0, 1), (1, 2)] {
        let appended = fixture.append("t", acks, batch(b"value"));
        assert!(appended.is_complete(), "acks {acks}");
        let result = only(appended.into_results());
        assert!(result.error.is_none());
        assert_eq!(
            (result.base_offset, result.last_offset, result.log_start_offset),
            (offset, offset, 0)
        );
        assert_eq!(result.log_append_time_ms, -1);
    }
}

#[tokio::test(start_paused = true)]
async fn results_keep_the_order_of_the_entries_and_fail_one_by_one() {
    let fixture = alone();
    let entry = |topic: &str| (TopicIdPartition::new(Uuid::nil(), topic, 0), batch(b"value"));
    let entries = vec![
        entry("missing"),
        entry("t"),
        entry("__consumer_offsets"),
        entry("t"),
    ];
    let results = fixture
        .manager
        .append_records(1_000, -1, false, entries, &Default::default())
        .await
        .into_results();
    assert!(matches!(
        results[0].1.error,
        Some(ReplicaError::UnknownTopicOrPartition { .. })
    ));
    assert_eq!((results[1].1.base_offset, results[3].1.base_offset), (0, 1));
    assert!(matches!(
        results[2].1.error,
        Some(ReplicaError::InvalidTopic { .. })
    ));
    assert_eq!(
        (results[2].1.base_offset, results[2].1.log_start_offset),
        (-1, -1)
    );
}

#[tokio::test(start_paused = true)]
async fn acks_that_are_none_append_nothing() {
    let fixture = alone();
    for acks in [2, -2, i16::MAX] {
        let result = only(fixture.append("t", acks, batch(b"value")).into_results());
        assert!(matches!(
            result.error,
            Some(ReplicaError::InvalidRequiredAcks { .. })
        ));
    }
    assert_eq!(
        only(fixture.append("t", 1, batch(b"value")).into_results()).base_offset,
        0
    );
}

#[tokio::test(start_paused = true)]
async fn acks_all_wait_for_the_follower_and_acks_one_do_not() {
    let fixture = replicated("1");
    assert!(fixture.append("t", 1, batch(b"one")).is_complete());
    let appended = fixture.append("t", -1, batch(b"two"));
    assert!(!appended.is_complete());
    let waiting = tokio::spawn(appended.completed());
    follower_has(&fixture, 1).await;
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    follower_has(&fixture, 2).await;
    let result = only(waiting.await.unwrap());
    assert!(result.error.is_none());
    assert_eq!(result.base_offset, 1);
}

#[tokio::test(start_paused = true)]
async fn follower_that_came_between_append_and_wait_is_not_missed() {
    let fixture = replicated("1");
    let appended = fixture.append("t", -1, batch(b"one"));
    follower_has(&fixture, 1).await;
    let started = Instant::now();
    assert!(only(appended.completed().await).error.is_none());
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn follower_that_does_not_come_is_a_timeout_with_the_offsets() {
    let fixture = replicated("1");
    let started = Instant::now();
    let result = only(fixture.append("t", -1, batch(b"one")).completed().await);
    assert!(matches!(result.error, Some(ReplicaError::RequestTimedOut)));
    assert_eq!(
        (result.base_offset, started.elapsed()),
        (0, Duration::from_millis(1_000))
    );
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    assert!(partition.waiters.is_empty());
}

#[tokio::test(start_paused = true)]
async fn isr_below_the_minimum_refuses_acks_all_before_the_append_and_takes_acks_one() {
    let fixture = replicated("2");
    fixture.publish(&[change(id(0), None, Some(&[NODE]))]);
    let result = only(fixture.append("t", -1, batch(b"one")).into_results());
    assert!(matches!(
        result.error,
        Some(ReplicaError::NotEnoughReplicas {
            in_sync: 1,
            required: 2,
            ..
        })
    ));
    assert_eq!((result.base_offset, result.log_start_offset), (-1, 0));
    let result = only(fixture.append("t", 1, batch(b"one")).into_results());
    assert_eq!(result.base_offset, 0);
}

#[tokio::test(start_paused = true)]
async fn isr_that_shrinks_to_the_leader_completes_the_wait() {
    let fixture = replicated("1");
    let waiting = tokio::spawn(fixture.append("t", -1, batch(b"one")).completed());
    tokio::task::yield_now().await;
    // The follower must not count as about to join: it has been away for longer than it may lag.
    fixture.clock.advance(60_000);
    fixture.publish(&[change(id(0), None, Some(&[NODE]))]);
    assert!(only(waiting.await.unwrap()).error.is_none());
}

#[tokio::test(start_paused = true)]
async fn isr_that_shrinks_below_the_minimum_stalls_the_high_watermark() {
    let fixture = replicated("2");
    let waiting = tokio::spawn(fixture.append("t", -1, batch(b"one")).completed());
    tokio::task::yield_now().await;
    fixture.clock.advance(60_000);
    fixture.publish(&[change(id(0), None, Some(&[NODE]))]);
    assert!(matches!(
        only(waiting.await.unwrap()).error,
        Some(ReplicaError::RequestTimedOut)
    ));
}

#[tokio::test(start_paused = true)]
async fn leadership_that_is_lost_ends_the_wait() {
    let fixture = replicated("1");
    let waiting = tokio::spawn(fixture.append("t", -1, batch(b"one")).completed());
    tokio::task::yield_now().await;
    let started = Instant::now();
    fixture.publish(&[change(id(0), Some(2), None)]);
    let result = only(waiting.await.unwrap());
    assert!(matches!(
        result.error,
        Some(ReplicaError::NotLeaderOrFollower { .. })
    ));
    assert_eq!(started.elapsed(), Duration::ZERO);
    let refused = only(fixture.append("t", 1, batch(b"two")).into_results());
    assert!(matches!(
        refused.error,
        Some(ReplicaError::NotLeaderOrFollower { .. })
    ));
    assert_eq!(refused.log_start_offset, -1);
}

/// The wait goes on when the leader stays in a new epoch: the follower that comes later completes it, and only the deadline ends it.
#[tokio::test(start_paused = true)]
async fn leader_epoch_that_changes_does_not_end_the_wait() {
    for follower_comes in [true, false] {
        let fixture = replicated("1");
        let waiting = tokio::spawn(fixture.append("t", -1, batch(b"one")).completed());
        tokio::task::yield_now().await;
        let started = Instant::now();
        for _ in 0..3 {
            fixture.publish(&[change(id(0), Some(NODE), None)]);
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
        }
        if follower_comes {
            follower_has(&fixture, 1).await;
            assert!(only(waiting.await.unwrap()).error.is_none());
            assert_eq!(started.elapsed(), Duration::ZERO);
        } else {
            let result = only(waiting.await.unwrap());
            assert!(matches!(result.error, Some(ReplicaError::RequestTimedOut)));
            assert_eq!(started.elapsed(), Duration::from_millis(1_000));
        }
        let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
        assert!(partition.waiters.is_empty());
    }
}

/// What a request would get that came after the deletion, as `DelayedProduce` asks anew.
#[tokio::test(start_paused = true)]
async fn topic_that_is_deleted_under_the_wait_is_unknown() {
    let fixture = replicated("1");
    let waiting = tokio::spawn(fixture.append("t", -1, batch(b"one")).completed());
    tokio::task::yield_now().await;
    fixture.publish(&[removed(id(0))]);
    let result = only(waiting.await.unwrap());
    assert!(
        matches!(result.error, Some(ReplicaError::UnknownTopicOrPartition { .. })),
        "{result:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn batch_sent_twice_is_answered_with_its_first_offset_and_a_gap_is_refused() {
    let fixture = alone();
    let idempotent = |base_sequence| {
        let options = BatchOptions {
            producer_id: 7,
            producer_epoch: 0,
            base_sequence,
            ..Default::default()
        };
        batch_of(options, b"value")
    };
    let produce = |base_sequence| only(fixture.append("t", -1, idempotent(base_sequence)).into_results());
    assert_eq!(produce(0).base_offset, 0);
    assert_eq!(produce(1).base_offset, 1);
    assert_eq!(produce(0).base_offset, 0);
    let gap = produce(5);
    assert!(
        matches!(
            gap.error,
            Some(ReplicaError::Log(LogError::OutOfOrderSequence { .. }))
        ),
        "{gap:?}"
    );
    assert_eq!((gap.base_offset, gap.log_start_offset), (-1, 0));
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl PartitionListener for Heard {
    fn on_high_watermark_updated(&self, _: &TopicPartition, high_watermark: i64) {
        self.0
            .lock()
            .unwrap()
            .push(format!("high watermark {high_watermark}"));
    }
    fn on_failed(&self, _: &TopicPartition) {
        self.0.lock().unwrap().push(String::from("failed"));
    }
    fn on_deleted(&self, _: &TopicPartition) {
        self.0.lock().unwrap().push(String::from("deleted"));
    }
    fn on_become_follower(&self, _: &TopicPartition) {
        self.0.lock().unwrap().push(String::from("follower"));
    }
}

fn append_coordinator_batch(manager: &ReplicaManager, leader_epoch: i32) -> Result<i64, ReplicaError> {
    manager.append_coordinator_batch(
        &topic_partition("t"),
        leader_epoch,
        batch(b"state"),
        Default::default(),
    )
}

#[tokio::test(start_paused = true)]
async fn coordinator_appends_in_its_epoch_only_and_reads_back_what_it_wrote() {
    let fixture = alone();
    assert_eq!(append_coordinator_batch(&fixture.manager, 0).unwrap(), 1);
    let newer = append_coordinator_batch(&fixture.manager, 1);
    assert!(matches!(newer, Err(ReplicaError::UnknownLeaderEpoch { .. })));
    fixture.publish(&[change(id(0), Some(NODE), None)]);
    let older = append_coordinator_batch(&fixture.manager, 0);
    assert!(matches!(older, Err(ReplicaError::FencedLeaderEpoch { .. })));

    let partition = topic_partition("t");
    let read = fixture
        .manager
        .read_coordinator_batches(&partition, 0, 10)
        .unwrap();
    assert_eq!(read.len(), batch(b"state").len());
    assert!(
        fixture
            .manager
            .read_coordinator_batches(&partition, 1, 10)
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn listener_hears_of_the_high_watermark_and_of_the_end() {
    let fixture = replicated("1");
    let heard = Arc::new(Heard::default());
    assert!(
        fixture
            .manager
            .add_partition_listener(&topic_partition("t"), heard.clone())
    );
    assert!(
        !fixture
            .manager
            .add_partition_listener(&topic_partition("missing"), heard.clone())
    );
    append_coordinator_batch(&fixture.manager, 0).unwrap();
    follower_has(&fixture, 1).await;
    fixture.publish(&[change(id(0), Some(2), None)]);
    fixture.publish(&[removed(id(0))]);
    assert_eq!(
        *heard.0.lock().unwrap(),
        ["high watermark 1", "follower", "deleted"]
    );
}
