//! DeleteRecords: what moves at once, what is refused, and what the answer waits for.

use super::*;
use crate::log::LogError;
use crate::replica::test_support::*;

fn filled(replicas: &[i32], records: usize) -> Fixture {
    let fixture = Fixture::new();
    fixture.publish(&[broker(NODE, 1), broker(2, 1)]);
    fixture.publish(&topic("t", id(0), replicas, &[NODE]));
    for _ in 0..records {
        fixture.fill("t", b"value");
    }
    fixture
}

fn delete(fixture: &Fixture, topic: &str, offset: i64) -> DeletedRecords {
    fixture
        .manager
        .delete_records(vec![(topic_partition(topic), offset)])
}

async fn deleted(fixture: &Fixture, topic: &str, offset: i64) -> DeleteRecordsResult {
    delete(fixture, topic, offset).completed(1_000).await.remove(0).1
}

fn log_start_offset(fixture: &Fixture) -> i64 {
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    partition.log().log_start_offset()
}

/// A fetch of the follower, whose log starts at `log_start_offset`.
async fn follower_starts_at(fixture: &Fixture, fetch_offset: i64, log_start_offset: i64) {
    let (partition, mut request) = fetch_from("t", fetch_offset);
    request.log_start_offset = log_start_offset;
    let entries = [(partition, request)];
    fixture.manager.fetch_messages(&follower(2, 0), &entries).await;
}

#[tokio::test(start_paused = true)]
async fn log_start_moves_up_and_never_back() {
    let fixture = filled(&[NODE], 5);
    let result = deleted(&fixture, "t", 3).await;
    assert!(result.error.is_none());
    assert_eq!(result.low_watermark, 3);
    assert_eq!(log_start_offset(&fixture), 3);
    // Below it there is nothing to do: that is no error.
    let result = deleted(&fixture, "t", 1).await;
    assert!(result.error.is_none());
    assert_eq!(result.low_watermark, 3);
    assert_eq!(log_start_offset(&fixture), 3);
}

#[tokio::test(start_paused = true)]
async fn minus_one_deletes_up_to_the_high_watermark() {
    let fixture = filled(&[NODE], 5);
    assert_eq!(deleted(&fixture, "t", -1).await.low_watermark, 5);
    assert_eq!(log_start_offset(&fixture), 5);
}

#[tokio::test(start_paused = true)]
async fn offset_above_the_high_watermark_or_below_minus_one_is_out_of_range() {
    let fixture = filled(&[NODE], 5);
    let above = deleted(&fixture, "t", 6).await;
    assert!(matches!(
        above.error,
        Some(ReplicaError::Log(LogError::OffsetOutOfRange { .. }))
    ));
    assert_eq!(above.low_watermark, -1);
    let below = deleted(&fixture, "t", -2).await;
    assert!(matches!(below.error, Some(ReplicaError::OffsetOutOfRange { .. })));
    assert_eq!(log_start_offset(&fixture), 0);
}

#[tokio::test(start_paused = true)]
async fn compacted_internal_missing_and_followed_partitions_are_refused() {
    let fixture = filled(&[NODE], 1);
    let mut records = topic("compacted", id(1), &[NODE], &[NODE]);
    records.push(topic_config("compacted", "cleanup.policy", "compact"));
    records.extend(topic("followed", id(2), &[2, NODE], &[2, NODE]));
    fixture.publish(&records);
    let error = |topic| {
        let fixture = &fixture;
        async move { deleted(fixture, topic, 0).await.error }
    };
    assert!(matches!(
        error("compacted").await,
        Some(ReplicaError::PolicyViolation { .. })
    ));
    assert!(matches!(
        error("__consumer_offsets").await,
        Some(ReplicaError::InvalidTopic { .. })
    ));
    assert!(matches!(
        error("missing").await,
        Some(ReplicaError::UnknownTopicOrPartition { .. })
    ));
    assert!(matches!(
        error("followed").await,
        Some(ReplicaError::NotLeaderOrFollower { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn answer_waits_until_the_follower_has_followed() {
    let fixture = filled(&[NODE, 2], 5);
    let waiting = tokio::spawn(delete(&fixture, "t", 3).completed(60_000));
    // What the leader has is deleted at once.
    assert_eq!(log_start_offset(&fixture), 3);
    follower_starts_at(&fixture, 5, 0).await;
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    follower_starts_at(&fixture, 5, 3).await;
    let result = waiting.await.unwrap().remove(0).1;
    assert!(result.error.is_none());
    assert_eq!(result.low_watermark, 3);
}

#[tokio::test(start_paused = true)]
async fn follower_that_does_not_follow_in_time_is_a_timeout() {
    let fixture = filled(&[NODE, 2], 5);
    follower_starts_at(&fixture, 5, 1).await;
    let result = deleted(&fixture, "t", 3).await;
    assert!(matches!(result.error, Some(ReplicaError::RequestTimedOut)));
    assert_eq!(result.low_watermark, 1);
}

#[tokio::test(start_paused = true)]
async fn fenced_follower_is_not_waited_for() {
    let fixture = Fixture::new();
    fixture.publish(&topic("t", id(0), &[NODE, 2], &[NODE]));
    fixture.fill("t", b"value");
    let result = deleted(&fixture, "t", 1).await;
    assert!(result.error.is_none());
    assert_eq!(result.low_watermark, 1);
}

#[tokio::test(start_paused = true)]
async fn loss_of_leadership_ends_the_wait() {
    let fixture = filled(&[NODE, 2], 5);
    let waiting = tokio::spawn(delete(&fixture, "t", 3).completed(60_000));
    tokio::task::yield_now().await;
    fixture.publish(&[change(id(0), Some(2), None)]);
    let result = waiting.await.unwrap().remove(0).1;
    assert!(matches!(
        result.error,
        Some(ReplicaError::NotLeaderOrFollower { .. })
    ));
    assert_eq!(result.low_watermark, -1);
}
