//! A broker's life as its controller sees it (KIP-631): when to register, what to say in a heartbeat, what the answer means.
//!
//! Pure: monotonic times and answers come in, [`Action`]s go out. At most one request is in flight.
//!
//! ```text
//! NOT_RUNNING --start--> STARTING --isCaughtUp--> RECOVERY --!isFenced--> RUNNING
//! RUNNING --begin_controlled_shutdown--> PENDING_CONTROLLED_SHUTDOWN --shouldShutDown--> SHUTTING_DOWN
//! any other --begin_controlled_shutdown--> SHUTTING_DOWN
//! ```
//!
//! The broker wants to be fenced until it says that it is ready ([`BrokerLifecycle::set_ready_to_unfence`]).

use uuid::Uuid;

use super::cluster::sorted_directories;
use crate::protocol::messages::broker_registration_request::{Feature, Listener};
use crate::protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerId, BrokerRegistrationRequest,
};
use crate::protocol::{ApiError, StrBytes};

/// `BrokerState`; the numbers are those of the metric and of the protocol's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum BrokerState {
    NotRunning = 0,
    Starting = 1,
    Recovery = 2,
    Running = 3,
    PendingControlledShutdown = 6,
    ShuttingDown = 7,
}

/// Soon again while starting: there is often nothing to recover.
const STARTING_INTERVAL_MS: i64 = 10;
/// Once sooner than usual in controlled shutdown: leaders move quickly.
const FIRST_SHUTDOWN_INTERVAL_MS: i64 = 50;
const FAILURE_BACKOFF_MIN_MS: i64 = 100;

/// Who the broker is.
#[derive(Debug, Clone)]
pub struct BrokerLifecycleConfig {
    pub broker_id: i32,
    pub cluster_id: String,
    /// Random, new with each start of the process.
    pub incarnation_id: Uuid,
    /// Advertised listeners without those of the controller.
    pub listeners: Vec<Listener>,
    pub features: Vec<Feature>,
    pub rack: Option<String>,
    /// `directory.id` of all online log dirs.
    pub log_dirs: Vec<Uuid>,
    /// Of the last clean shutdown; -1 if there was none.
    pub previous_broker_epoch: i64,
    /// `broker.heartbeat.interval.ms`
    pub heartbeat_interval_ms: i64,
    /// `broker.session.timeout.ms`: failures back off up to it.
    pub session_timeout_ms: i64,
    /// `initial.broker.registration.timeout.ms`
    pub initial_registration_timeout_ms: i64,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Register(Box<BrokerRegistrationRequest>),
    Heartbeat(Box<BrokerHeartbeatRequest>),
    /// Nothing before this monotonic time, or before something happens.
    WaitUntil(i64),
    /// An answer is awaited.
    WaitForAnswer,
    /// The first registration took too long: the node ends.
    GiveUp,
    /// Nothing any more.
    Stop,
}

/// See the module's words.
#[derive(Debug)]
pub struct BrokerLifecycle {
    config: BrokerLifecycleConfig,
    state: BrokerState,
    broker_epoch: i64,
    is_registered: bool,
    ready_to_unfence: bool,
    offline_log_dirs: Vec<Uuid>,
    cordoned_log_dirs: Vec<Uuid>,
    in_flight: bool,
    next_ms: i64,
    /// Something changed while a request was in flight: say it right after.
    next_is_immediate: bool,
    failures: u32,
    give_up_ms: i64,
    got_controlled_shutdown_response: bool,
}

impl BrokerLifecycle {
    /// Begins in STARTING.
    pub fn new(config: BrokerLifecycleConfig, now_ms: i64) -> Self {
        Self {
            give_up_ms: now_ms + config.initial_registration_timeout_ms,
            config,
            state: BrokerState::Starting,
            broker_epoch: -1,
            is_registered: false,
            ready_to_unfence: false,
            offline_log_dirs: Vec::new(),
            cordoned_log_dirs: Vec::new(),
            in_flight: false,
            next_ms: now_ms,
            next_is_immediate: false,
            failures: 0,
            got_controlled_shutdown_response: false,
        }
    }

    pub fn state(&self) -> BrokerState {
        self.state
    }

    /// -1 until registered.
    pub fn broker_epoch(&self) -> i64 {
        self.broker_epoch
    }

    /// Whether the broker waits for its metadata: then a newly published offset is worth a heartbeat at once.
    pub fn is_waiting_for_metadata(&self) -> bool {
        self.is_registered && self.state == BrokerState::Starting
    }

    /// What to do at `now_ms`; a request counts as sent.
    pub fn next_action(&mut self, now_ms: i64, published_offset: i64) -> Action {
        if self.state == BrokerState::ShuttingDown {
            return Action::Stop;
        }
        if !self.is_registered && self.give_up_ms <= now_ms {
            return Action::GiveUp;
        }
        if self.in_flight {
            return Action::WaitForAnswer;
        }
        if self.next_ms > now_ms {
            return Action::WaitUntil(self.next_ms);
        }
        self.in_flight = true;
        if self.is_registered {
            Action::Heartbeat(Box::new(self.heartbeat(published_offset)))
        } else {
            Action::Register(Box::new(self.registration()))
        }
    }

    fn registration(&self) -> BrokerRegistrationRequest {
        let mut request = BrokerRegistrationRequest::default();
        request.broker_id = BrokerId(self.config.broker_id);
        request.cluster_id = StrBytes::from_string(self.config.cluster_id.clone());
        request.incarnation_id = self.config.incarnation_id;
        request.listeners = self.config.listeners.clone();
        request.features = self.config.features.clone();
        request.rack = self.config.rack.clone().map(StrBytes::from_string);
        request.log_dirs = sorted_directories(&self.config.log_dirs);
        request.previous_broker_epoch = self.config.previous_broker_epoch;
        request
    }

    fn heartbeat(&self, published_offset: i64) -> BrokerHeartbeatRequest {
        BrokerHeartbeatRequest {
            broker_id: BrokerId(self.config.broker_id),
            broker_epoch: self.broker_epoch,
            current_metadata_offset: published_offset,
            want_fence: !self.ready_to_unfence,
            want_shut_down: self.state == BrokerState::PendingControlledShutdown,
            offline_log_dirs: self.offline_log_dirs.clone(),
            cordoned_log_dirs: Some(self.cordoned_log_dirs.clone()),
            ..BrokerHeartbeatRequest::default()
        }
    }

    pub fn on_registration_answer(&mut self, now_ms: i64, answer: Result<i64, ApiError>) {
        self.in_flight = false;
        match answer {
            Ok(broker_epoch) => {
                self.failures = 0;
                self.broker_epoch = broker_epoch;
                self.is_registered = true;
                self.schedule(now_ms, 0);
            }
            Err(_) => self.schedule_after_failure(now_ms),
        }
    }

    pub fn on_heartbeat_answer(&mut self, now_ms: i64, answer: Result<BrokerHeartbeatResponse, ApiError>) {
        self.in_flight = false;
        let Ok(answer) = answer else {
            return self.schedule_after_failure(now_ms);
        };
        self.failures = 0;
        let interval_ms = self.config.heartbeat_interval_ms;
        match self.state {
            BrokerState::Starting => {
                if answer.is_caught_up {
                    self.state = BrokerState::Recovery;
                }
                self.schedule(now_ms, STARTING_INTERVAL_MS);
            }
            BrokerState::Recovery => {
                if !answer.is_fenced {
                    self.state = BrokerState::Running;
                }
                self.schedule(now_ms, interval_ms);
            }
            BrokerState::PendingControlledShutdown if answer.should_shut_down => {
                self.state = BrokerState::ShuttingDown;
            }
            BrokerState::PendingControlledShutdown => {
                let is_first = !std::mem::replace(&mut self.got_controlled_shutdown_response, true);
                let wait_ms = if is_first {
                    FIRST_SHUTDOWN_INTERVAL_MS
                } else {
                    interval_ms
                };
                self.schedule(now_ms, wait_ms);
            }
            BrokerState::Running | BrokerState::NotRunning | BrokerState::ShuttingDown => {
                self.schedule(now_ms, interval_ms);
            }
        }
    }

    /// Logs are loaded, managers started: the broker may lead.
    pub fn set_ready_to_unfence(&mut self, now_ms: i64) {
        self.ready_to_unfence = true;
        self.say_it_now(now_ms);
    }

    /// Newly published metadata, while somebody waits for it.
    pub fn on_published(&mut self, now_ms: i64) {
        if self.is_waiting_for_metadata() {
            self.say_it_now(now_ms);
        }
    }

    /// A log directory failed.
    pub fn add_offline_log_dir(&mut self, now_ms: i64, directory: Uuid) {
        if !self.offline_log_dirs.contains(&directory) {
            self.offline_log_dirs.push(directory);
            self.say_it_now(now_ms);
        }
    }

    /// SIGTERM: leaderships are to go elsewhere first.
    pub fn begin_controlled_shutdown(&mut self, now_ms: i64) {
        match self.state {
            BrokerState::Running => {
                self.state = BrokerState::PendingControlledShutdown;
                self.say_it_now(now_ms);
            }
            BrokerState::PendingControlledShutdown | BrokerState::ShuttingDown => {}
            BrokerState::NotRunning | BrokerState::Starting | BrokerState::Recovery => {
                self.state = BrokerState::ShuttingDown;
            }
        }
    }

    /// No waiting for anybody any more.
    pub fn begin_shutdown(&mut self) {
        self.state = BrokerState::ShuttingDown;
    }

    /// A registered broker says it with a heartbeat; before that the registration is on its way anyway.
    fn say_it_now(&mut self, now_ms: i64) {
        if self.in_flight {
            self.next_is_immediate = true;
        } else if self.is_registered {
            self.next_ms = now_ms;
        }
    }

    fn schedule(&mut self, now_ms: i64, wait_ms: i64) {
        let wait_ms = if std::mem::take(&mut self.next_is_immediate) {
            0
        } else {
            wait_ms
        };
        self.next_ms = now_ms + wait_ms;
    }

    /// Never at once, whatever happened meanwhile.
    fn schedule_after_failure(&mut self, now_ms: i64) {
        let doubled = FAILURE_BACKOFF_MIN_MS.saturating_mul(1_i64 << self.failures.min(20));
        self.failures += 1;
        self.next_is_immediate = false;
        self.next_ms = now_ms + doubled.min(self.config.session_timeout_ms);
    }
}

#[cfg(test)]
#[path = "broker_lifecycle_test.rs"]
mod broker_lifecycle_test;
