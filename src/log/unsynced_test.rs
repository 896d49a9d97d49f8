use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn who_comes_while_another_syncs_waits_for_it_and_syncs_nothing() {
    let unsynced = Unsynced::default();
    unsynced.mark();
    let is_durable = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let synced = unsynced.sync(|| {
            scope.spawn(|| {
                let waited = unsynced.sync(|| Err("synced twice"));
                assert_eq!(waited, Ok(()));
                assert!(is_durable.load(Ordering::Acquire));
            });
            assert!(unsynced.is_marked());
            is_durable.store(true, Ordering::Release);
            Ok::<_, Infallible>(())
        });
        assert_eq!(synced, Ok(()));
    });
    assert!(!unsynced.is_marked());
}

#[test]
fn what_is_marked_during_a_sync_or_before_one_that_fails_is_left_to_the_next() {
    let unsynced = Unsynced::default();
    unsynced.mark();
    assert_eq!(unsynced.sync(|| Err("failed")), Err("failed"));
    assert!(unsynced.is_marked());
    let synced = unsynced.sync(|| {
        unsynced.mark();
        Ok::<_, Infallible>(())
    });
    assert_eq!(synced, Ok(()));
    assert!(unsynced.is_marked());
    assert_eq!(unsynced.sync(|| Ok::<_, Infallible>(())), Ok(()));
    assert!(!unsynced.is_marked());
}
