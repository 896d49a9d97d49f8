//! Runs a broker's life cycle: asks [`BrokerLifecycle`] what to do, does it over a [`ControllerChannel`].
//!
//! One task; it ends when the broker may go.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::broker_lifecycle::{Action, BrokerLifecycle, BrokerLifecycleConfig, BrokerState};
use crate::io::clock::Clock;
use crate::protocol::ApiError;
use crate::protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest, BrokerRegistrationResponse,
};

/// Orders that may wait for the task.
const ORDERS_MAX: usize = 64;

pub type ChannelFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The way to the active controller, in this process or elsewhere.
pub trait ControllerChannel: Send + Sync + 'static {
    /// Until there is a controller to talk to, as far as one can know.
    fn ready(&self) -> ChannelFuture<'_, ()>;
    fn register(
        &self,
        request: BrokerRegistrationRequest,
    ) -> ChannelFuture<'_, Result<BrokerRegistrationResponse, ApiError>>;
    fn heartbeat(
        &self,
        request: BrokerHeartbeatRequest,
    ) -> ChannelFuture<'_, Result<BrokerHeartbeatResponse, ApiError>>;
}

enum Order {
    ReadyToUnfence,
    OfflineLogDir(Uuid),
    ControlledShutdown,
    Shutdown,
}

/// What is known of the broker's life from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerLifecycleStatus {
    pub state: BrokerState,
    /// -1 until registered.
    pub broker_epoch: i64,
    /// The first registration took too long: the node has to end.
    pub has_given_up: bool,
}

/// The handle; clones are handles to the same broker.
#[derive(Clone)]
pub struct BrokerLifecycleManager {
    orders: mpsc::Sender<Order>,
    status: watch::Receiver<BrokerLifecycleStatus>,
}

impl BrokerLifecycleManager {
    /// Starts registering. `published_offset` is the metadata loader's.
    pub fn start(
        config: BrokerLifecycleConfig,
        channel: Arc<dyn ControllerChannel>,
        published_offset: watch::Receiver<i64>,
        clock: Arc<dyn Clock>,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (orders, order_queue) = mpsc::channel(ORDERS_MAX);
        let lifecycle = BrokerLifecycle::new(config, clock.monotonic_ms());
        let (status_sender, status) = watch::channel(status_of(&lifecycle, false));
        let task = Task {
            lifecycle,
            channel,
            published_offset,
            clock,
            status: status_sender,
            has_given_up: false,
        };
        runtime.spawn(task.run(order_queue));
        Self { orders, status }
    }

    pub fn status(&self) -> watch::Receiver<BrokerLifecycleStatus> {
        self.status.clone()
    }

    pub fn state(&self) -> BrokerState {
        self.status.borrow().state
    }

    /// -1 until registered.
    pub fn broker_epoch(&self) -> i64 {
        self.status.borrow().broker_epoch
    }

    /// Until the broker is in `state` or beyond; `false` if it gave up or went down instead.
    async fn wait_for(&self, state: BrokerState) -> bool {
        let mut status = self.status.clone();
        let reached = status
            .wait_for(|status| status.has_given_up || status.state >= state)
            .await
            .map(|status| *status);
        reached.is_ok_and(|status| {
            !status.has_given_up && (status.state == state || status.state != BrokerState::ShuttingDown)
        })
    }

    /// Until the metadata of the moment of registration is published.
    pub async fn caught_up(&self) -> bool {
        self.wait_for(BrokerState::Recovery).await
    }

    /// Until the controller lets the broker serve.
    pub async fn unfenced(&self) -> bool {
        self.wait_for(BrokerState::Running).await
    }

    /// Logs are loaded, managers started.
    pub async fn set_ready_to_unfence(&self) {
        let _ = self.orders.send(Order::ReadyToUnfence).await;
    }

    pub async fn add_offline_log_dir(&self, directory: Uuid) {
        let _ = self.orders.send(Order::OfflineLogDir(directory)).await;
    }

    /// Asks the controller to move the leaderships away, and waits until it lets the broker go. The caller bounds the wait.
    pub async fn controlled_shutdown(&self) {
        if self.orders.send(Order::ControlledShutdown).await.is_ok() {
            self.wait_for(BrokerState::ShuttingDown).await;
        }
    }

    /// Goes without asking.
    pub async fn shutdown(&self) {
        let _ = self.orders.send(Order::Shutdown).await;
    }
}

fn status_of(lifecycle: &BrokerLifecycle, has_given_up: bool) -> BrokerLifecycleStatus {
    BrokerLifecycleStatus {
        state: lifecycle.state(),
        broker_epoch: lifecycle.broker_epoch(),
        has_given_up,
    }
}

struct Task {
    lifecycle: BrokerLifecycle,
    channel: Arc<dyn ControllerChannel>,
    published_offset: watch::Receiver<i64>,
    clock: Arc<dyn Clock>,
    status: watch::Sender<BrokerLifecycleStatus>,
    has_given_up: bool,
}

/// An answer to the request in flight.
enum Answer {
    Registration(Result<i64, ApiError>),
    Heartbeat(Result<BrokerHeartbeatResponse, ApiError>),
}

impl Task {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let channel = self.channel.clone();
        let mut in_flight: Option<ChannelFuture<'_, Answer>> = None;
        loop {
            let now_ms = self.clock.monotonic_ms();
            let published = *self.published_offset.borrow_and_update();
            let wait = match self.lifecycle.next_action(now_ms, published) {
                Action::Register(request) => {
                    in_flight = Some(Box::pin(register(&*channel, *request)));
                    continue;
                }
                Action::Heartbeat(request) => {
                    in_flight = Some(Box::pin(heartbeat(&*channel, *request)));
                    continue;
                }
                Action::WaitUntil(at_ms) => Some(at_ms - now_ms),
                // Not for ever: the first registration has a deadline.
                Action::WaitForAnswer => Some(1000),
                Action::GiveUp => {
                    self.has_given_up = true;
                    None
                }
                Action::Stop => None,
            };
            self.publish_status();
            let Some(wait_ms) = wait else { return };
            let is_waiting_for_metadata = self.lifecycle.is_waiting_for_metadata();
            tokio::select! {
                answer = answer_of(&mut in_flight) => {
                    in_flight = None;
                    self.take_answer(answer);
                }
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                changed = self.published_offset.changed(), if is_waiting_for_metadata => {
                    if changed.is_ok() {
                        self.lifecycle.on_published(self.clock.monotonic_ms());
                    } else {
                        // The loader is gone, and with it the node.
                        return;
                    }
                }
                () = tokio::time::sleep(Duration::from_millis(wait_ms.max(0).unsigned_abs())) => {}
            }
        }
    }

    fn publish_status(&self) {
        let status = status_of(&self.lifecycle, self.has_given_up);
        self.status.send_if_modified(|current| {
            let changed = *current != status;
            if changed {
                tracing::debug!(state = ?status.state, epoch = status.broker_epoch, "broker life cycle");
            }
            *current = status;
            changed
        });
    }

    fn take_answer(&mut self, answer: Answer) {
        let now_ms = self.clock.monotonic_ms();
        match answer {
            Answer::Registration(answer) => {
                if let Err(error) = &answer {
                    tracing::info!("the broker could not be registered: {error}");
                }
                self.lifecycle.on_registration_answer(now_ms, answer);
            }
            Answer::Heartbeat(answer) => {
                if let Err(error) = &answer {
                    tracing::warn!("a heartbeat failed: {error}");
                }
                self.lifecycle.on_heartbeat_answer(now_ms, answer);
            }
        }
    }

    fn obey(&mut self, order: Order) {
        let now_ms = self.clock.monotonic_ms();
        match order {
            Order::ReadyToUnfence => self.lifecycle.set_ready_to_unfence(now_ms),
            Order::OfflineLogDir(directory) => self.lifecycle.add_offline_log_dir(now_ms, directory),
            Order::ControlledShutdown => self.lifecycle.begin_controlled_shutdown(now_ms),
            Order::Shutdown => self.lifecycle.begin_shutdown(),
        }
    }
}

async fn answer_of(in_flight: &mut Option<ChannelFuture<'_, Answer>>) -> Answer {
    match in_flight {
        Some(answer) => answer.await,
        None => std::future::pending().await,
    }
}

async fn register(channel: &dyn ControllerChannel, request: BrokerRegistrationRequest) -> Answer {
    channel.ready().await;
    let answer = channel.register(request).await;
    Answer::Registration(answer.and_then(|response| {
        no_error(response.error_code)?;
        Ok(response.broker_epoch)
    }))
}

async fn heartbeat(channel: &dyn ControllerChannel, request: BrokerHeartbeatRequest) -> Answer {
    channel.ready().await;
    let answer = channel.heartbeat(request).await;
    Answer::Heartbeat(answer.and_then(|response| {
        no_error(response.error_code)?;
        Ok(response)
    }))
}

/// A remote controller's error comes inside of the response.
fn no_error(error_code: i16) -> Result<(), ApiError> {
    match crate::protocol::ErrorCode::from_code(error_code) {
        crate::protocol::ErrorCode::None => Ok(()),
        code => Err(code.into()),
    }
}

#[cfg(test)]
#[path = "broker_lifecycle_manager_test.rs"]
mod broker_lifecycle_manager_test;
