//! How many connections there may be: `max.connections` in all, `max.connections.per.ip` from one address (Kafka's `ConnectionQuotas`).
//!
//! Over the address's limit a connection is closed at once; over the total the accept loop waits for one to end. Not so on the inter-broker
//! listener when there are others, for brokers must always reach each other: there a connection over the total is let in, and the one that
//! was used least recently on another listener is closed for it.
//!
//! Before the process runs out of descriptors, which would take its log directories offline, every new connection is let in at the cost of
//! the least recently used one. And before requests that come slowly fill the memory, the connection whose request has been coming for
//! longest is closed; one whose request is here and waits for its answer only when none is left that comes, and if the request is a very
//! large one. Apache Kafka has neither bound.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::NetworkError;

#[derive(Debug)]
pub struct ConnectionQuota {
    /// What the process has descriptors for.
    open_max: usize,
    /// Of large requests that have come in part or are handled, over all connections.
    request_bytes: AtomicUsize,
    request_bytes_max: usize,
    state: Mutex<State>,
    slot_freed: Notify,
}

#[derive(Debug, Default)]
struct Limits {
    per_ip_max: usize,
    per_ip_overrides: HashMap<IpAddr, usize>,
    /// `None`: no limit that a machine could reach.
    total_max: Option<usize>,
}

impl Limits {
    fn new(max_connections: i32, per_ip_max: i32, overrides: &str) -> Result<Self, NetworkError> {
        let max_connections = usize::try_from(max_connections).unwrap_or(0);
        Ok(Self {
            per_ip_max: usize::try_from(per_ip_max).unwrap_or(0),
            per_ip_overrides: parse_overrides(overrides)?,
            total_max: (max_connections < i32::MAX as usize).then_some(max_connections),
        })
    }

    fn of(&self, address: IpAddr) -> usize {
        self.per_ip_overrides
            .get(&address)
            .copied()
            .unwrap_or(self.per_ip_max)
    }
}

#[derive(Debug, Default)]
struct State {
    limits: Limits,
    per_ip: HashMap<IpAddr, usize>,
    total: usize,
    next_id: u64,
    /// Those that may be closed for another.
    evictable: HashMap<u64, Arc<Usage>>,
    /// Told to end, but still counted.
    leaving: HashMap<u64, Arc<Usage>>,
}

/// When a connection was used last, and whether it must make room.
#[derive(Debug)]
pub struct Usage {
    opened: Instant,
    /// Nanoseconds after `opened`.
    last_used: AtomicU64,
    /// What has come of a large request, and since when (nanoseconds after `opened`).
    request_bytes: AtomicUsize,
    request_began: AtomicU64,
    /// All of it has come.
    request_is_whole: AtomicBool,
    evicted: Notify,
}

impl Usage {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            last_used: AtomicU64::new(0),
            request_bytes: AtomicUsize::new(0),
            request_began: AtomicU64::new(0),
            request_is_whole: AtomicBool::new(false),
            evicted: Notify::new(),
        })
    }

    pub fn touch(&self, now: Instant) {
        self.last_used.store(self.age_at(now), Ordering::Relaxed);
    }

    fn age_at(&self, now: Instant) -> u64 {
        u64::try_from((now - self.opened).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Until the connection must make room.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    fn last_used(&self) -> Instant {
        self.opened + std::time::Duration::from_nanos(self.last_used.load(Ordering::Relaxed))
    }

    /// The lowest must make room first; `None`: there is nothing to be had. Those that come: the one that began first. Those that
    /// are handled: the largest.
    fn rank(&self) -> Option<(usize, Instant)> {
        let bytes = self.request_bytes.load(Ordering::Relaxed);
        let began = std::time::Duration::from_nanos(self.request_began.load(Ordering::Relaxed));
        let size = if self.request_is_whole.load(Ordering::Relaxed) {
            usize::MAX - bytes
        } else {
            0
        };
        (bytes > 0).then(|| (size, self.opened + began))
    }
}

/// What one connection's request takes of the memory; given back when dropped.
#[derive(Debug)]
pub struct RequestBytes {
    quota: Arc<ConnectionQuota>,
    usage: Option<Arc<Usage>>,
    bytes: usize,
}

impl RequestBytes {
    /// Smaller requests are not counted: all that connections can hold of them is little.
    pub const LARGE: usize = 64 * 1024;
    /// The same for those that are handled: what a member of a group says while it waits for the others, or a follower that fetches
    /// many partitions, is smaller, and they must not be closed for others' megabytes.
    const LARGE_AND_WHOLE: usize = 256 * 1024;

    /// So much of a request has come, and more is to come.
    pub fn came(&mut self, bytes: usize) {
        self.set(bytes, false);
    }

    /// A request of this size has come and is handled.
    pub fn is_whole(&mut self, bytes: usize) {
        let counted = if bytes >= Self::LARGE_AND_WHOLE { bytes } else { 0 };
        self.set(counted, true);
    }

    pub fn is_done(&mut self) {
        self.set(0, false);
    }

    /// Over the bound another connection is told to end, or this one: see [`Usage::rank`].
    fn set(&mut self, bytes: usize, is_whole: bool) {
        if let Some(usage) = &self.usage
            && bytes > 0
        {
            usage.request_is_whole.store(is_whole, Ordering::Relaxed);
        }
        if bytes == self.bytes {
            return;
        }
        if let Some(usage) = &self.usage {
            if self.bytes == 0 {
                usage
                    .request_began
                    .store(usage.age_at(Instant::now()), Ordering::Relaxed);
            }
            usage.request_bytes.store(bytes, Ordering::Relaxed);
        }
        let total = &self.quota.request_bytes;
        if bytes < self.bytes {
            total.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            self.bytes = bytes;
            return;
        }
        let before = total.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        let after = before + (bytes - self.bytes);
        self.bytes = bytes;
        if after > self.quota.request_bytes_max {
            self.quota
                .state()
                .make_room_for_requests(after, self.quota.request_bytes_max);
        }
    }
}

impl Drop for RequestBytes {
    fn drop(&mut self) {
        self.is_done();
    }
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    quota: Arc<ConnectionQuota>,
    address: IpAddr,
    evictable: Option<(u64, Arc<Usage>)>,
}

impl ConnectionSlot {
    /// `None`: it is never closed for another.
    pub fn usage(&self) -> Option<Arc<Usage>> {
        self.evictable.as_ref().map(|(_, usage)| usage.clone())
    }

    pub fn request_bytes(&self) -> RequestBytes {
        RequestBytes {
            quota: self.quota.clone(),
            usage: self.usage(),
            bytes: 0,
        }
    }
}

impl ConnectionQuota {
    /// Three limits of the configuration; `open_max`: how many connections the process has descriptors for; and the bound of
    /// [`RequestBytes`].
    pub fn new(
        max_connections: i32,
        per_ip_max: i32,
        overrides: &str,
        open_max: usize,
        request_bytes_max: usize,
    ) -> Result<Arc<Self>, NetworkError> {
        let state = State {
            limits: Limits::new(max_connections, per_ip_max, overrides)?,
            ..State::default()
        };
        Ok(Arc::new(Self {
            open_max: open_max.max(1),
            request_bytes: AtomicUsize::new(0),
            request_bytes_max,
            state: Mutex::new(state),
            slot_freed: Notify::new(),
        }))
    }

    /// Of large requests that are here, over all connections.
    pub fn request_bytes(&self) -> usize {
        self.request_bytes.load(Ordering::Relaxed)
    }

    /// Other limits from now on. Connections that are over them stay until another needs their place.
    pub fn update(&self, max_connections: i32, per_ip_max: i32, overrides: &str) -> Result<(), NetworkError> {
        let limits = Limits::new(max_connections, per_ip_max, overrides)?;
        self.state().limits = limits;
        self.slot_freed.notify_waiters();
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain counting is done under it: nothing there can panic halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from `address`, waiting for the total unless `is_protected`; the error is the address's limit.
    pub async fn admit(
        self: &Arc<Self>,
        address: IpAddr,
        is_protected: bool,
    ) -> Result<ConnectionSlot, usize> {
        loop {
            let mut freed = pin!(self.slot_freed.notified());
            // From here on no slot that is freed is missed.
            freed.as_mut().enable();
            if let Some(slot) = self.try_admit(address, is_protected) {
                return slot;
            }
            freed.await;
        }
    }

    /// `None`: not before another ends.
    fn try_admit(
        self: &Arc<Self>,
        address: IpAddr,
        is_protected: bool,
    ) -> Option<Result<ConnectionSlot, usize>> {
        let mut state = self.state();
        if !is_protected && state.limits.total_max.is_some_and(|max| state.total >= max) {
            return None;
        }
        let limit = state.limits.of(address);
        if state.per_ip.get(&address).copied().unwrap_or(0) >= limit {
            return Some(Err(limit));
        }
        if state.total >= self.open_max {
            state.make_room(self.open_max - 1);
            // Not before the place is free.
            return None;
        }
        *state.per_ip.entry(address).or_default() += 1;
        state.total += 1;
        let evictable = (!is_protected).then(|| {
            let id = state.next_id;
            state.next_id += 1;
            let usage = Usage::new();
            state.evictable.insert(id, usage.clone());
            (id, usage)
        });
        if let Some(max) = state.limits.total_max {
            state.make_room(max);
        }
        Some(Ok(ConnectionSlot {
            quota: self.clone(),
            address,
            evictable,
        }))
    }
}

impl State {
    /// Tells those that were used least recently to end, until the rest are no more than `max`.
    fn make_room(&mut self, max: usize) {
        while self.total - self.leaving.len() > max {
            let oldest = self.evictable.iter().min_by_key(|(_, usage)| usage.last_used());
            let Some(id) = oldest.map(|(id, _)| *id) else {
                return;
            };
            self.evict(id);
        }
    }

    /// The same with those that have large requests, until what the rest has of `total` is no more than `max`.
    fn make_room_for_requests(&mut self, total: usize, max: usize) {
        let bytes_of = |usage: &Arc<Usage>| usage.request_bytes.load(Ordering::Relaxed);
        let mut left = total.saturating_sub(self.leaving.values().map(bytes_of).sum());
        while left > max {
            let rank = |(id, usage): (&u64, &Arc<Usage>)| usage.rank().map(|rank| (rank, *id));
            let Some((_, id)) = self.evictable.iter().filter_map(rank).min() else {
                return;
            };
            left = left.saturating_sub(self.evictable.get(&id).map_or(0, bytes_of));
            self.evict(id);
        }
    }

    fn evict(&mut self, id: u64) {
        if let Some(usage) = self.evictable.remove(&id) {
            usage.evicted.notify_one();
            self.leaving.insert(id, usage);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.quota.state();
        state.total -= 1;
        if let Some((id, _)) = &self.evictable
            && state.evictable.remove(id).is_none()
        {
            state.leaving.remove(id);
        }
        if let Some(count) = state.per_ip.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                state.per_ip.remove(&self.address);
            }
        }
        drop(state);
        self.quota.slot_freed.notify_waiters();
    }
}

/// `host:count,...`; host names stand for all their addresses.
fn parse_overrides(text: &str) -> Result<HashMap<IpAddr, usize>, NetworkError> {
    let mut overrides = HashMap::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let failed = |reason: &str| NetworkError::PerIpOverride {
            entry: entry.to_owned(),
            reason: reason.to_owned(),
        };
        let (host, count) = entry
            .rsplit_once(':')
            .ok_or_else(|| failed("expected host:count"))?;
        let count = count
            .trim()
            .parse()
            .map_err(|_| failed("the count is not a number"))?;
        let host = host.trim().trim_start_matches('[').trim_end_matches(']');
        let addresses = (host, 0u16)
            .to_socket_addrs()
            .map_err(|error| failed(&error.to_string()))?;
        overrides.extend(addresses.map(|address| (address.ip().to_canonical(), count)));
    }
    Ok(overrides)
}

#[cfg(test)]
#[path = "connection_quota_test.rs"]
mod connection_quota_test;
