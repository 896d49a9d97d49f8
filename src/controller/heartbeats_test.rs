use super::{BrokerControlState, HeartbeatWish, Heartbeats};

fn wish(current_metadata_offset: i64, want_fence: bool, want_shut_down: bool) -> HeartbeatWish {
    HeartbeatWish {
        current_metadata_offset,
        want_fence,
        want_shut_down,
    }
}

use BrokerControlState::{ControlledShutdown, Fenced, ShutdownNow, Unfenced};

#[test]
fn fenced_broker_is_unfenced_only_when_it_has_read_its_registration() {
    let mut heartbeats = Heartbeats::new(9000);
    heartbeats.register(1, true);
    assert_eq!(
        heartbeats.next_state(1, wish(9, false, false), 10, false),
        Some((Fenced, Fenced))
    );
    assert_eq!(
        heartbeats.next_state(1, wish(10, false, false), 10, false),
        Some((Fenced, Unfenced))
    );
    assert_eq!(
        heartbeats.next_state(1, wish(10, true, false), 10, false),
        Some((Fenced, Fenced))
    );
    assert_eq!(
        heartbeats.next_state(1, wish(0, true, true), 10, true),
        Some((Fenced, ShutdownNow))
    );
    assert_eq!(heartbeats.next_state(2, wish(0, true, true), 10, true), None);
}

#[test]
fn unfenced_broker_with_leaderships_shuts_down_after_all_others_have_read_on() {
    let mut heartbeats = Heartbeats::new(9000);
    heartbeats.register(1, false);
    heartbeats.register(2, false);
    heartbeats.touch(2, false, 40);
    assert_eq!(
        heartbeats.next_state(1, wish(50, false, true), 10, true),
        Some((Unfenced, ControlledShutdown))
    );
    heartbeats.touch(1, false, 50);
    heartbeats.maybe_set_controlled_shutdown_offset(1, 55);
    heartbeats.maybe_set_controlled_shutdown_offset(1, 99);
    assert!(heartbeats.is_shutting_down(1));
    let next = |heartbeats: &Heartbeats, leads| heartbeats.next_state(1, wish(50, false, true), 10, leads);
    assert_eq!(
        next(&heartbeats, true),
        Some((ControlledShutdown, ControlledShutdown))
    );
    assert_eq!(
        next(&heartbeats, false),
        Some((ControlledShutdown, ControlledShutdown))
    );
    heartbeats.touch(2, false, 55);
    assert_eq!(next(&heartbeats, false), Some((ControlledShutdown, ShutdownNow)));
}

#[test]
fn unfenced_broker_without_leaderships_may_go_at_once() {
    let mut heartbeats = Heartbeats::new(9000);
    heartbeats.register(1, false);
    assert_eq!(
        heartbeats.next_state(1, wish(5, false, true), 1, false),
        Some((Unfenced, ShutdownNow))
    );
    assert_eq!(
        heartbeats.next_state(1, wish(5, true, true), 1, true),
        Some((Unfenced, ShutdownNow))
    );
    assert_eq!(
        heartbeats.next_state(1, wish(5, true, false), 1, true),
        Some((Unfenced, Fenced))
    );
    assert_eq!(
        heartbeats.next_state(1, wish(5, false, false), 1, true),
        Some((Unfenced, Unfenced))
    );
}

#[test]
fn session_expires_after_the_timeout_and_once() {
    let mut heartbeats = Heartbeats::new(9000);
    heartbeats.update_contact_time(1, 7, 1000);
    assert!(heartbeats.has_valid_session(1, 7, 10_000));
    assert!(!heartbeats.has_valid_session(1, 8, 10_000));
    assert_eq!(heartbeats.maybe_remove_expired(10_000), None);
    assert!(!heartbeats.has_valid_session(1, 7, 10_001));
    assert_eq!(heartbeats.maybe_remove_expired(10_001), Some((1, 7)));
    assert_eq!(heartbeats.maybe_remove_expired(10_001), None);
}

#[test]
fn fencing_ends_controlled_shutdown() {
    let mut heartbeats = Heartbeats::new(9000);
    heartbeats.register(1, false);
    heartbeats.maybe_set_controlled_shutdown_offset(1, 5);
    heartbeats.touch(1, true, 5);
    assert!(!heartbeats.is_shutting_down(1));
    heartbeats.maybe_set_controlled_shutdown_offset(1, 6);
    assert!(!heartbeats.is_shutting_down(1), "a fenced broker cannot enter it");
}
