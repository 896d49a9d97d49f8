use super::*;

fn quota_of(
    max_connections: i32,
    per_ip_max: i32,
    overrides: &str,
) -> Result<Arc<ConnectionQuota>, NetworkError> {
    ConnectionQuota::new(max_connections, per_ip_max, overrides, usize::MAX, usize::MAX)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn address_at_its_limit_is_refused_until_a_slot_is_dropped() {
    let quota = quota_of(i32::MAX, 2, "127.0.0.2:1").unwrap();
    let first = quota.admit(ip("127.0.0.1"), false).await.unwrap();
    let _second = quota.admit(ip("127.0.0.1"), false).await.unwrap();
    assert_eq!(quota.admit(ip("127.0.0.1"), false).await.unwrap_err(), 2);
    let _other = quota.admit(ip("127.0.0.2"), false).await.unwrap();
    assert_eq!(quota.admit(ip("127.0.0.2"), false).await.unwrap_err(), 1);
    drop(first);
    assert!(quota.admit(ip("127.0.0.1"), false).await.is_ok());
}

#[tokio::test]
async fn total_reached_waits_but_not_on_the_protected_listener() {
    let quota = quota_of(1, i32::MAX, "").unwrap();
    let only = quota.admit(ip("127.0.0.1"), false).await.unwrap();
    let waiting = quota.admit(ip("127.0.0.1"), false);
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("admitted over the total"),
        slot = quota.admit(ip("127.0.0.1"), true) => assert!(slot.is_ok()),
    }
    drop(only);
    assert!(waiting.await.is_ok());
}

#[test]
fn override_without_a_count_is_refused() {
    assert!(quota_of(1, 1, "127.0.0.1").is_err());
    assert!(quota_of(1, 1, "127.0.0.1:x").is_err());
}

/// The total counts all connections; one of the protected listener closes the least recently used of the others, and waits for nobody.
#[tokio::test(start_paused = true)]
async fn protected_connection_over_the_total_closes_the_least_recently_used_of_the_others() {
    let quota = quota_of(3, i32::MAX, "").unwrap();
    let admit = |is_protected| quota.admit(ip("127.0.0.1"), is_protected);
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(admit(false).await.unwrap());
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
    }
    others[0].usage().unwrap().touch(Instant::now());
    let evicted = |slot: &ConnectionSlot| {
        let usage = slot.usage().unwrap();
        async move {
            tokio::time::timeout(std::time::Duration::from_millis(1), usage.evicted())
                .await
                .is_ok()
        }
    };
    let first = admit(true).await.unwrap();
    assert!(first.usage().is_none());
    assert!(evicted(&others[1]).await);
    let _second = admit(true).await.unwrap();
    assert!(evicted(&others[2]).await);
    assert!(!evicted(&others[0]).await);
    others.truncate(1);
    // Three again: the next of the others waits.
    let waiting = admit(false);
    tokio::pin!(waiting);
    assert!(
        tokio::time::timeout(std::time::Duration::from_millis(1), &mut waiting)
            .await
            .is_err()
    );
    drop(first);
    assert!(waiting.await.is_ok());
}

/// What is closed already makes room for one only.
#[tokio::test(start_paused = true)]
async fn connection_that_makes_room_is_not_told_twice() {
    let quota = quota_of(2, i32::MAX, "").unwrap();
    let others = [
        quota.admit(ip("127.0.0.1"), false).await.unwrap(),
        quota.admit(ip("127.0.0.1"), false).await.unwrap(),
    ];
    let _protected = quota.admit(ip("127.0.0.1"), true).await.unwrap();
    let counts = || {
        let state = quota.state();
        (state.total, state.leaving.len(), state.evictable.len())
    };
    assert_eq!(counts(), (3, 1, 1));
    drop(others);
    assert_eq!(counts(), (1, 0, 0));
}

#[tokio::test]
async fn raised_total_lets_those_in_who_wait() {
    let quota = quota_of(1, i32::MAX, "").unwrap();
    let _only = quota.admit(ip("127.0.0.1"), false).await.unwrap();
    let other = quota.clone();
    let waiting = tokio::spawn(async move { other.admit(ip("127.0.0.1"), false).await });
    tokio::task::yield_now().await;
    quota.update(2, i32::MAX, "").unwrap();
    let _second = waiting.await.unwrap().unwrap();
    quota.update(3, 1, "").unwrap();
    assert_eq!(quota.admit(ip("127.0.0.1"), false).await.unwrap_err(), 1);
}

/// Whoever comes when there is no descriptor left is let in as soon as the least recently used connection has ended, on any listener.
#[tokio::test(start_paused = true)]
async fn connection_over_what_may_be_open_takes_the_place_of_the_least_recently_used() {
    for is_protected in [false, true] {
        let quota = ConnectionQuota::new(i32::MAX, i32::MAX, "", 2, usize::MAX).unwrap();
        let least_used = quota.admit(ip("127.0.0.1"), false).await.unwrap();
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
        let other = quota.admit(ip("127.0.0.1"), false).await.unwrap();
        let coming = quota.admit(ip("127.0.0.1"), is_protected);
        tokio::pin!(coming);
        tokio::select! {
            biased;
            _ = &mut coming => panic!("let in before there was a place"),
            () = async { least_used.usage().unwrap().evicted().await } => {}
        }
        drop(least_used);
        assert!(coming.await.is_ok());
        let other_id = other.evictable.as_ref().unwrap().0;
        assert!(quota.state().evictable.contains_key(&other_id));
    }
}

/// Requests that come make room before those that are handled, whose answers may take long; smaller ones of these never do.
#[tokio::test(start_paused = true)]
async fn requests_that_come_make_room_before_those_that_wait_for_their_answer() {
    let quota = ConnectionQuota::new(i32::MAX, i32::MAX, "", usize::MAX, 1_000_000).unwrap();
    let mut slots = Vec::new();
    for (is_whole, bytes) in [
        (true, 200_000),
        (true, 300_000),
        (true, 400_000),
        (false, 100_000),
        (false, 150_000),
    ] {
        let slot = quota.admit(ip("127.0.0.1"), false).await.unwrap();
        let mut held = slot.request_bytes();
        held.came(bytes);
        if is_whole {
            held.is_whole(bytes);
        }
        slots.push((slot, held));
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
    }
    let leaving = || {
        let state = quota.state();
        let is_leaving = |(slot, _): &(ConnectionSlot, RequestBytes)| {
            state.leaving.contains_key(&slot.evictable.as_ref().unwrap().0)
        };
        slots.iter().map(is_leaving).collect::<Vec<bool>>()
    };
    assert_eq!(
        quota.request_bytes(),
        950_000,
        "the smallest that is whole is not counted"
    );
    let protected = quota.admit(ip("127.0.0.1"), true).await.unwrap();
    let mut held = protected.request_bytes();
    held.came(100_000);
    assert_eq!(leaving(), [false, false, false, true, false], "what came first");
    held.came(250_000);
    assert_eq!(leaving(), [false, false, false, true, true]);
    held.came(400_000);
    assert_eq!(leaving(), [false, false, true, true, true], "the largest");
    held.came(2_000_000);
    assert_eq!(leaving(), [false, true, true, true, true]);
}
