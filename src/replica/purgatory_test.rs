//! Who is woken by what, and that nothing stays behind. Time stands still but where a test lets it run.

use std::time::Duration;

use super::*;
use crate::log::FetchIsolation::{HighWatermark, LogEnd, TxnCommitted};

fn list() -> Arc<WaitList> {
    Arc::new(WaitList::default())
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

async fn is_woken(waiter: &FetchWaiter) -> bool {
    // With paused time an idle runtime jumps to the deadline: no real waiting.
    waiter.wait_until(Instant::now() + Duration::from_millis(1)).await
}

#[tokio::test(start_paused = true)]
async fn fetch_is_woken_when_the_missing_bytes_arrived_and_not_before() {
    let list = list();
    let waiter = FetchWaiter::new(100);
    let _watching = list.watch_data(&waiter, HighWatermark, list.events()).unwrap();
    list.on_append(Visible::Bytes(60), Some(1));
    assert!(!is_woken(&waiter).await);
    list.on_append(Visible::Bytes(40), Some(2));
    assert!(is_woken(&waiter).await);
}

#[tokio::test(start_paused = true)]
async fn marker_wakes_who_waits_for_what_is_stable_whatever_is_missing() {
    let list = list();
    let (stable, any) = (FetchWaiter::new(100), FetchWaiter::new(100));
    let _first = list.watch_data(&stable, TxnCommitted, list.events()).unwrap();
    let _second = list.watch_data(&any, HighWatermark, list.events()).unwrap();
    list.on_append(Visible::Marker(60), Some(1));
    assert!(is_woken(&stable).await);
    assert!(!is_woken(&any).await);
    list.on_append(Visible::Marker(40), Some(2));
    assert!(is_woken(&any).await);
}

#[tokio::test(start_paused = true)]
async fn consumer_sleeps_until_the_high_watermark_moves_and_a_follower_sees_the_append() {
    let list = list();
    let (consumer, follower) = (FetchWaiter::new(1), FetchWaiter::new(1));
    let _first = list.watch_data(&consumer, HighWatermark, list.events()).unwrap();
    let _second = list.watch_data(&follower, LogEnd, list.events()).unwrap();
    list.on_append(Visible::Bytes(10), None);
    assert!(is_woken(&follower).await);
    assert!(!is_woken(&consumer).await);
    list.on_high_watermark(Visible::Unknown, 1);
    assert!(is_woken(&consumer).await);
}

#[tokio::test(start_paused = true)]
async fn event_before_the_registration_makes_it_look_again() {
    let list = list();
    let events = list.events();
    list.on_append(Visible::Bytes(10), Some(1));
    assert!(
        list.watch_data(&FetchWaiter::new(1), HighWatermark, events)
            .is_none()
    );
    assert!(list.is_empty());
}

#[tokio::test(start_paused = true)]
async fn event_between_registration_and_sleep_is_not_lost() {
    let list = list();
    let waiter = FetchWaiter::new(1);
    let _watching = list.watch_data(&waiter, HighWatermark, list.events()).unwrap();
    list.on_append(Visible::Bytes(10), Some(1));
    let started = Instant::now();
    assert!(waiter.wait_until(soon()).await);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn only_those_of_that_partition_are_woken() {
    let (one, other) = (list(), list());
    let (waiter, bystander) = (FetchWaiter::new(1), FetchWaiter::new(1));
    let _first = one.watch_data(&waiter, HighWatermark, one.events()).unwrap();
    let _second = other
        .watch_data(&bystander, HighWatermark, other.events())
        .unwrap();
    one.on_append(Visible::Bytes(10), Some(1));
    assert!(is_woken(&waiter).await);
    assert!(!is_woken(&bystander).await);
}

#[tokio::test(start_paused = true)]
async fn dropped_registration_leaves_nothing_and_its_place_is_used_again() {
    let list = list();
    let waiter = FetchWaiter::new(1);
    let stale = list.watch_data(&waiter, HighWatermark, list.events()).unwrap();
    let ticket = stale.ticket;
    drop(stale);
    assert!(list.is_empty());
    let fresh = list.watch_data(&waiter, HighWatermark, list.events()).unwrap();
    assert_eq!(fresh.ticket.unwrap().index, ticket.unwrap().index);
    // A ticket of before does not end the registration that took its place.
    assert!(list.lock().take(ticket.unwrap()).is_none());
    assert_eq!(list.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn produce_is_woken_when_the_last_of_its_partitions_is_replicated() {
    let (one, other) = (list(), list());
    let waiter = ProduceWaiter::new(2);
    let _first = one.watch_offset(&waiter, 10);
    let _second = other.watch_offset(&waiter, 5);
    one.on_high_watermark(Visible::Unknown, 9);
    other.on_high_watermark(Visible::Unknown, 7);
    assert!(!waiter.wait_until(Instant::now() + Duration::from_millis(1)).await);
    one.on_high_watermark(Visible::Unknown, 10);
    assert!(waiter.wait_until(soon()).await);
    assert!(one.is_empty() && other.is_empty());
}

#[tokio::test(start_paused = true)]
async fn produce_that_finds_its_offset_reached_completes_itself_once() {
    let list = list();
    let waiter = ProduceWaiter::new(2);
    let _pending = list.watch_offset(&waiter, 10);
    let reached = list.watch_offset(&waiter, 3);
    // The event and the second look race for it: it must count once.
    list.on_high_watermark(Visible::Unknown, 5);
    reached.complete();
    assert!(!waiter.wait_until(Instant::now() + Duration::from_millis(1)).await);
    list.on_high_watermark(Visible::Unknown, 10);
    assert!(waiter.wait_until(soon()).await);
}

#[tokio::test(start_paused = true)]
async fn state_change_wakes_all() {
    let list = list();
    let (fetch, produce) = (FetchWaiter::new(1_000), ProduceWaiter::new(1));
    let _first = list.watch_data(&fetch, HighWatermark, list.events()).unwrap();
    let _second = list.watch_offset(&produce, 1_000);
    list.on_state_change();
    assert!(fetch.wait_until(soon()).await);
    assert!(produce.wait_until(soon()).await);
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_the_deadline_comes() {
    let list = list();
    let waiter = FetchWaiter::new(1);
    let _watching = list.watch_data(&waiter, HighWatermark, list.events()).unwrap();
    let started = Instant::now();
    assert!(!waiter.wait_until(started + Duration::from_millis(500)).await);
    assert!(started.elapsed() >= Duration::from_millis(500));
}

#[test]
fn watch_that_ends_tells_whether_something_happened_meanwhile() {
    let list = list();
    let events = list.events();
    let waiter = FetchWaiter::new(1);
    let quiet = list.watch_data(&waiter, HighWatermark, events).unwrap();
    assert_eq!(quiet.end(), events);
    assert!(list.is_empty());
    // Of an event that it does not wait for it tells, too.
    let stirred = list.watch_data(&waiter, HighWatermark, events).unwrap();
    list.on_append(Visible::Bytes(10), None);
    assert_ne!(stirred.end(), events);
    assert!(list.is_empty());
}
