//! Producer ids from blocks that the controller hands out (`RPCProducerIdManager`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::io::clock::Clock;

/// Ids `first..first + length`, this node's alone for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdBlock {
    pub first: i64,
    pub length: i32,
}

/// The way to the controller's AllocateProducerIds; `None` where it failed, after which the manager backs off.
pub trait ProducerIdAllocator: Send + Sync + 'static {
    fn allocate(&self) -> Pin<Box<dyn Future<Output = Option<ProducerIdBlock>> + Send>>;
}

pub struct ProducerIdManager {
    _allocator: Arc<dyn ProducerIdAllocator>,
    _clock: Arc<dyn Clock>,
}

impl ProducerIdManager {
    pub fn new(allocator: Arc<dyn ProducerIdAllocator>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            _allocator: allocator,
            _clock: clock,
        })
    }

    /// The next id, or `None` while the first block is on its way (COORDINATOR_LOAD_IN_PROGRESS to the client).
    pub async fn generate(self: &Arc<Self>) -> Option<i64> {
        todo!()
    }
}
