//! Large buffers of requests, used again.
//!
//! The allocator gives the pages of a large buffer back to the system and gets others for the next one, which the system clears
//! first: with requests of 256 KiB that was half of what a produce cost. So the bytes of a large request are lent: when the last
//! part of them is dropped, their buffer comes here and serves another.
//!
//! Invariants: a buffer is here only while nobody has a part of it, and it is empty; no more than [`POOLED_BYTES_MAX`] wait here, and none
//! while there is no connection that has sent large requests ([`BufferPool::join`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

/// Smaller ones are the allocator's: it keeps their pages.
pub const POOLED_FROM: usize = 64 * 1024;
const POOLED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What one is made larger by, so that it serves requests that differ a little.
pub const SLACK: usize = 4096;

#[derive(Debug, Default)]
struct Free {
    /// In the order in which they came.
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// Connections that have sent large requests.
    users: usize,
}

impl Free {
    fn remove(&mut self, index: usize) -> Vec<u8> {
        let buffer = self.buffers.remove(index);
        self.bytes -= buffer.capacity();
        buffer
    }
}

/// Shared by the connections of a role.
#[derive(Debug, Clone, Default)]
pub struct BufferPool {
    free: Arc<Mutex<Free>>,
}

impl BufferPool {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty buffer of at least this capacity.
    pub fn take(&self, capacity: usize) -> BytesMut {
        if capacity < POOLED_FROM {
            return BytesMut::with_capacity(capacity);
        }
        // Not one that is much larger: whoever keeps a part of it keeps it all.
        let fitting = |buffer: &Vec<u8>| (capacity..=capacity / 2 * 3 + SLACK).contains(&buffer.capacity());
        let mut free = self.lock();
        // The last one's bytes are the likeliest to be in a processor's cache.
        let pooled = free.buffers.iter().rposition(fitting);
        let pooled = pooled.map(|index| free.remove(index));
        drop(free);
        // Nothing is copied on this way round; it cannot fail, for nobody else has these bytes.
        pooled
            .and_then(|buffer| Bytes::from(buffer).try_into_mut().ok())
            .unwrap_or_else(|| BytesMut::with_capacity(capacity + SLACK))
    }

    /// The bytes of a request. A large one's buffer comes back when the last part of it is dropped.
    pub fn lend(&self, request: BytesMut) -> Bytes {
        if request.capacity() < POOLED_FROM {
            return request.freeze();
        }
        Bytes::from_owner(Lent {
            request,
            pool: self.clone(),
        })
    }

    /// Takes a buffer whose bytes are done with; if somebody else has a part of it, it is his.
    pub fn give_back(&self, mut buffer: BytesMut) {
        buffer.clear();
        // All of it, the front that was taken off included. Of a shared one this is another, and empty.
        let buffer = Vec::from(buffer);
        if !(POOLED_FROM..=POOLED_BYTES_MAX).contains(&buffer.capacity()) {
            return;
        }
        let mut freed = Vec::new();
        let mut free = self.lock();
        if free.users == 0 {
            return;
        }
        free.bytes += buffer.capacity();
        free.buffers.push(buffer);
        // Those of sizes that are asked for no more are the ones that stay.
        while free.bytes > POOLED_BYTES_MAX {
            freed.push(free.remove(0));
        }
        drop(free);
    }

    #[cfg(test)]
    pub fn waiting_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// A connection sends large requests.
    pub fn join(&self) {
        self.lock().users += 1;
    }

    /// One that did has ended. After the last of them what waits here is freed, and what comes back later, too.
    pub fn leave(&self) {
        let mut free = self.lock();
        free.users = free.users.saturating_sub(1);
        if free.users > 0 {
            return;
        }
        let freed = std::mem::take(&mut *free);
        drop(free);
        drop(freed);
    }
}

struct Lent {
    request: BytesMut,
    pool: BufferPool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.request
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.request));
    }
}

#[cfg(test)]
#[path = "buffer_pool_test.rs"]
mod buffer_pool_test;
