//! Producer ids in blocks that the controller hands out (`RPCProducerIdManager`).
//!
//! A block is this node's alone for ever: the controller commits it to the metadata log before it answers, so no id is given twice over
//! restarts; what is left of a block at shutdown is never used. The next block is asked for when 90 % of the current one are gone.
//! While there is none, Kafka answers COORDINATOR_LOAD_IN_PROGRESS and the client comes again after its backoff; we wait for the block as
//! long as that backoff would take, so that the first producer of a new node starts sooner.
//!
//! Invariants: one request to the controller at a time; a block starts above the end of the one before.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::controller::{ControllerContext, ControllerService};
use crate::io::clock::Clock;
use crate::metadata::MetadataCache;
use crate::protocol::ErrorCode;
use crate::protocol::messages::AllocateProducerIdsRequest;

/// `RPCProducerIdManager.PID_PREFETCH_THRESHOLD`.
const PREFETCH_PERCENT: i64 = 90;
/// `RPCProducerIdManager.RETRY_BACKOFF_MS`.
const RETRY_BACKOFF_MS: i64 = 50;
/// The clients' default `retry.backoff.ms`: what waiting here saves them.
const FIRST_BLOCK_WAIT: Duration = Duration::from_millis(100);

/// Ids `first..first + length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdBlock {
    pub first: i64,
    pub length: i32,
}

impl ProducerIdBlock {
    fn end(&self) -> i64 {
        self.first + i64::from(self.length)
    }
}

/// The way to the controller's AllocateProducerIds; `None` where it failed, after which the manager backs off.
pub trait ProducerIdAllocator: Send + Sync + 'static {
    fn allocate(&self) -> Pin<Box<dyn Future<Output = Option<ProducerIdBlock>> + Send>>;
}

#[derive(Default)]
struct State {
    /// The block in use and its next id.
    current: Option<(ProducerIdBlock, i64)>,
    next: Option<ProducerIdBlock>,
    is_in_flight: bool,
    /// No request before this (monotonic).
    backoff_until_ms: i64,
}

impl State {
    fn take(&mut self) -> Option<i64> {
        if self.current.is_none_or(|(block, next_id)| next_id >= block.end()) {
            let block = self.next.take()?;
            self.current = Some((block, block.first));
        }
        let (_, next_id) = self.current.as_mut()?;
        let id = *next_id;
        *next_id += 1;
        Some(id)
    }

    fn needs_block(&self) -> bool {
        self.next.is_none()
            && self.current.is_none_or(|(block, next_id)| {
                (next_id - block.first) * 100 >= i64::from(block.length) * PREFETCH_PERCENT
            })
    }

    /// False: it is not above what was given before, so someone may have its ids.
    fn add(&mut self, block: ProducerIdBlock) -> bool {
        let is_usable = block.first >= 0
            && block.length > 0
            && self
                .current
                .is_none_or(|(current, _)| block.first >= current.end());
        if is_usable {
            self.next = Some(block);
        }
        is_usable
    }
}

pub struct ProducerIdManager {
    allocator: Arc<dyn ProducerIdAllocator>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    answered: Notify,
}

impl ProducerIdManager {
    pub fn new(allocator: Arc<dyn ProducerIdAllocator>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let backoff_until_ms = i64::MIN;
        let state = Mutex::new(State {
            backoff_until_ms,
            ..State::default()
        });
        Arc::new(Self {
            allocator,
            clock,
            state,
            answered: Notify::new(),
        })
    }

    /// The next id, or `None` while there is no block (COORDINATOR_LOAD_IN_PROGRESS to the client).
    pub async fn generate(self: &Arc<Self>) -> Option<i64> {
        let deadline = tokio::time::Instant::now() + FIRST_BLOCK_WAIT;
        loop {
            // Registered before the look, so that an answer in between is not missed.
            let answered = self.answered.notified();
            let (id, is_waiting) = self.take_or_request();
            if id.is_some() || !is_waiting {
                return id;
            }
            if tokio::time::timeout_at(deadline, answered).await.is_err() {
                return self.lock().take();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An id if there is one, and whether a block is on its way.
    fn take_or_request(self: &Arc<Self>) -> (Option<i64>, bool) {
        let mut state = self.lock();
        let id = state.take();
        if state.needs_block() && !state.is_in_flight && self.clock.monotonic_ms() >= state.backoff_until_ms {
            state.is_in_flight = true;
            tokio::spawn(self.clone().request_block());
        }
        (id, state.is_in_flight)
    }

    async fn request_block(self: Arc<Self>) {
        // An allocator that panics must not leave the manager waiting for ever.
        let _answered = Answered(&self);
        let block = self.allocator.allocate().await;
        let mut state = self.lock();
        let is_usable = match block {
            Some(block) => {
                let is_usable = state.add(block);
                if !is_usable {
                    tracing::error!(?block, "producer id block does not follow the current one");
                }
                is_usable
            }
            None => false,
        };
        if !is_usable {
            state.backoff_until_ms = self.clock.monotonic_ms() + RETRY_BACKOFF_MS;
        }
    }
}

/// Ends the request that is in flight, whatever became of it.
struct Answered<'a>(&'a ProducerIdManager);

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        self.0.lock().is_in_flight = false;
        self.0.answered.notify_waiters();
    }
}

/// Asks the controller of this process.
pub struct ControllerProducerIdAllocator {
    pub controller: ControllerService,
    pub metadata: MetadataCache,
    pub node_id: i32,
}

impl ProducerIdAllocator for ControllerProducerIdAllocator {
    fn allocate(&self) -> Pin<Box<dyn Future<Output = Option<ProducerIdBlock>> + Send>> {
        let controller = self.controller.clone();
        let broker_epoch = self
            .metadata
            .load()
            .cluster
            .broker_epoch(self.node_id)
            .unwrap_or(-1);
        let request = AllocateProducerIdsRequest::default()
            .with_broker_id(self.node_id.into())
            .with_broker_epoch(broker_epoch);
        Box::pin(async move {
            let response = match controller
                .allocate_producer_ids(&ControllerContext::internal(), request)
                .await
            {
                Ok(response) => response,
                Err(error) => {
                    tracing::info!(%error, "no producer ids from the controller");
                    return None;
                }
            };
            let error = ErrorCode::from_code(response.error_code);
            if error.is_error() {
                tracing::info!(%error, "no producer ids from the controller");
                return None;
            }
            Some(ProducerIdBlock {
                first: response.producer_id_start.0,
                length: response.producer_id_len,
            })
        })
    }
}

#[cfg(test)]
#[path = "producer_ids_test.rs"]
mod producer_ids_test;
