use uuid::Uuid;

use super::{Action, BrokerLifecycle, BrokerLifecycleConfig, BrokerState};
use crate::protocol::ErrorCode;
use crate::protocol::messages::{BrokerHeartbeatRequest, BrokerHeartbeatResponse};

fn config() -> BrokerLifecycleConfig {
    BrokerLifecycleConfig {
        broker_id: 1,
        cluster_id: "cluster".to_owned(),
        incarnation_id: Uuid::from_u128(500),
        listeners: Vec::new(),
        features: Vec::new(),
        rack: None,
        log_dirs: vec![
            Uuid::from_u128(u128::MAX),
            Uuid::from_u128(300),
            Uuid::from_u128(200),
        ],
        previous_broker_epoch: 17,
        heartbeat_interval_ms: 2000,
        session_timeout_ms: 9000,
        initial_registration_timeout_ms: 60_000,
    }
}

fn answer(is_caught_up: bool, is_fenced: bool, should_shut_down: bool) -> BrokerHeartbeatResponse {
    BrokerHeartbeatResponse {
        is_caught_up,
        is_fenced,
        should_shut_down,
        ..BrokerHeartbeatResponse::default()
    }
}

fn heartbeat(action: Action) -> BrokerHeartbeatRequest {
    match action {
        Action::Heartbeat(request) => *request,
        other => panic!("expected a heartbeat, got {other:?}"),
    }
}

fn registered() -> BrokerLifecycle {
    let mut lifecycle = BrokerLifecycle::new(config(), 0);
    assert!(matches!(lifecycle.next_action(0, -1), Action::Register(_)));
    lifecycle.on_registration_answer(5, Ok(7));
    lifecycle
}

fn running() -> BrokerLifecycle {
    let mut lifecycle = registered();
    heartbeat(lifecycle.next_action(5, 7));
    lifecycle.on_heartbeat_answer(6, Ok(answer(true, true, false)));
    lifecycle.set_ready_to_unfence(7);
    heartbeat(lifecycle.next_action(7, 7));
    lifecycle.on_heartbeat_answer(8, Ok(answer(true, false, false)));
    assert_eq!(lifecycle.state(), BrokerState::Running);
    lifecycle
}

#[test]
fn start_registers_with_sorted_directories_and_previous_epoch() {
    let mut lifecycle = BrokerLifecycle::new(config(), 0);
    let Action::Register(request) = lifecycle.next_action(0, -1) else {
        panic!("no registration");
    };
    assert_eq!(request.broker_id.0, 1);
    assert_eq!(request.previous_broker_epoch, 17);
    // Java compares ids as signed numbers: all bits set come first.
    assert_eq!(
        request.log_dirs,
        vec![
            Uuid::from_u128(u128::MAX),
            Uuid::from_u128(200),
            Uuid::from_u128(300)
        ]
    );
    assert_eq!(lifecycle.next_action(1, -1), Action::WaitForAnswer);
}

#[test]
fn failed_registration_backs_off_and_gives_up_in_the_end() {
    let mut lifecycle = BrokerLifecycle::new(config(), 0);
    assert!(matches!(lifecycle.next_action(0, -1), Action::Register(_)));
    lifecycle.on_registration_answer(0, Err(ErrorCode::NotController.into()));
    assert_eq!(lifecycle.next_action(0, -1), Action::WaitUntil(100));
    assert!(matches!(lifecycle.next_action(100, -1), Action::Register(_)));
    lifecycle.on_registration_answer(100, Err(ErrorCode::DuplicateBrokerRegistration.into()));
    assert_eq!(lifecycle.next_action(100, -1), Action::WaitUntil(300));
    assert_eq!(lifecycle.next_action(60_000, -1), Action::GiveUp);
}

#[test]
fn starting_heartbeats_soon_again_until_caught_up() {
    let mut lifecycle = registered();
    let request = heartbeat(lifecycle.next_action(5, 3));
    assert!(request.want_fence && !request.want_shut_down);
    assert_eq!((request.broker_epoch, request.current_metadata_offset), (7, 3));
    lifecycle.on_heartbeat_answer(6, Ok(answer(false, true, false)));
    assert_eq!(lifecycle.state(), BrokerState::Starting);
    assert_eq!(lifecycle.next_action(6, 3), Action::WaitUntil(16));
    // Published metadata is worth a heartbeat before the interval is over.
    lifecycle.on_published(8);
    heartbeat(lifecycle.next_action(8, 7));
    lifecycle.on_heartbeat_answer(9, Ok(answer(true, true, false)));
    assert_eq!(lifecycle.state(), BrokerState::Recovery);
}

#[test]
fn ready_broker_asks_to_be_unfenced_at_once_and_runs() {
    let mut lifecycle = running();
    assert_eq!(lifecycle.next_action(8, 9), Action::WaitUntil(2008));
    let request = heartbeat(lifecycle.next_action(2008, 9));
    assert!(!request.want_fence);
}

#[test]
fn ready_while_a_heartbeat_is_in_flight_is_said_right_after() {
    let mut lifecycle = registered();
    heartbeat(lifecycle.next_action(5, 7));
    lifecycle.set_ready_to_unfence(6);
    assert_eq!(lifecycle.next_action(6, 7), Action::WaitForAnswer);
    lifecycle.on_heartbeat_answer(7, Ok(answer(true, true, false)));
    assert!(!heartbeat(lifecycle.next_action(7, 7)).want_fence);
}

#[test]
fn running_broker_shuts_down_when_the_controller_allows() {
    let mut lifecycle = running();
    lifecycle.begin_controlled_shutdown(100);
    assert_eq!(lifecycle.state(), BrokerState::PendingControlledShutdown);
    let request = heartbeat(lifecycle.next_action(100, 9));
    assert!(request.want_shut_down && !request.want_fence);
    lifecycle.on_heartbeat_answer(101, Ok(answer(true, false, false)));
    assert_eq!(lifecycle.next_action(101, 9), Action::WaitUntil(151));
    heartbeat(lifecycle.next_action(151, 9));
    lifecycle.on_heartbeat_answer(152, Ok(answer(true, false, false)));
    assert_eq!(lifecycle.next_action(152, 9), Action::WaitUntil(2152));
    heartbeat(lifecycle.next_action(2152, 9));
    lifecycle.on_heartbeat_answer(2153, Ok(answer(true, true, true)));
    assert_eq!(lifecycle.state(), BrokerState::ShuttingDown);
    assert_eq!(lifecycle.next_action(2153, 9), Action::Stop);
}

#[test]
fn broker_that_never_ran_shuts_down_without_asking() {
    let mut lifecycle = registered();
    lifecycle.begin_controlled_shutdown(6);
    assert_eq!(lifecycle.state(), BrokerState::ShuttingDown);
}

#[test]
fn failed_heartbeat_keeps_the_state_and_backs_off() {
    let mut lifecycle = running();
    heartbeat(lifecycle.next_action(2008, 9));
    lifecycle.on_heartbeat_answer(2009, Err(ErrorCode::StaleBrokerEpoch.into()));
    assert_eq!(lifecycle.state(), BrokerState::Running);
    assert_eq!(lifecycle.next_action(2009, 9), Action::WaitUntil(2109));
}

#[test]
fn offline_directory_is_said_at_once_and_from_then_on() {
    let mut lifecycle = running();
    lifecycle.add_offline_log_dir(50, Uuid::from_u128(300));
    let request = heartbeat(lifecycle.next_action(50, 9));
    assert_eq!(request.offline_log_dirs, vec![Uuid::from_u128(300)]);
    lifecycle.on_heartbeat_answer(51, Ok(answer(true, false, false)));
    let request = heartbeat(lifecycle.next_action(2051, 9));
    assert_eq!(request.offline_log_dirs, vec![Uuid::from_u128(300)]);
}
