//! Delayed produce and fetch: an event and a deadline, no polling, no thread.
//!
//! Each partition has a [`WaitList`]. Who waits registers on the lists of its partitions and sleeps; who changes a partition tells its
//! list what happened, and only those whose condition may hold now are woken: a fetch when the bytes it misses have arrived, a produce when the
//! high watermark reached the offset it needs on the last of its partitions. A registration ends with its guard, so a connection that is
//! closed while it waits leaves nothing behind. An idle waiter costs its registrations and one timer entry.
//!
//! No wake-up is lost: the change comes before the event, and the waiter looks once more after it registered. Each list counts its events, so
//! that this second look is a comparison of numbers and no second read.
//!
//! Must never: hold a list's lock while it calls anything but a waker.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::log::FetchIsolation;

/// A fetch that waits for bytes.
#[derive(Debug)]
pub struct FetchWaiter {
    missing_bytes: AtomicI64,
    notify: Notify,
}

impl FetchWaiter {
    pub fn new(missing_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            missing_bytes: AtomicI64::new(i64::try_from(missing_bytes).unwrap_or(i64::MAX)),
            notify: Notify::new(),
        })
    }

    fn arrived(&self, bytes: i64) {
        let missing = self.missing_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if missing <= bytes {
            self.notify.notify_one();
        }
    }

    fn wake(&self) {
        self.notify.notify_one();
    }

    /// False: the deadline came first.
    pub async fn wait_until(&self, deadline: Instant) -> bool {
        tokio::time::timeout_at(deadline, self.notify.notified())
            .await
            .is_ok()
    }
}

/// A produce with acks=all that waits for the replicas of its partitions.
#[derive(Debug)]
pub struct ProduceWaiter {
    pending: AtomicUsize,
    notify: Notify,
}

impl ProduceWaiter {
    pub fn new(pending: usize) -> Arc<Self> {
        Arc::new(Self {
            pending: AtomicUsize::new(pending),
            notify: Notify::new(),
        })
    }

    fn one_done(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.notify.notify_one();
        }
    }

    /// False: the deadline came first.
    pub async fn wait_until(&self, deadline: Instant) -> bool {
        tokio::time::timeout_at(deadline, self.notify.notified())
            .await
            .is_ok()
    }
}

#[derive(Debug)]
enum Watch {
    Data {
        waiter: Arc<FetchWaiter>,
        isolation: FetchIsolation,
    },
    Offset {
        waiter: Arc<ProduceWaiter>,
        required_offset: i64,
    },
    LowWatermark {
        waiter: Arc<ProduceWaiter>,
        required_offset: i64,
    },
}

impl Watch {
    /// What a waiter for an offset waited for is there; a waiter for data knows by itself.
    fn one_done(&self) {
        match self {
            Self::Offset { waiter, .. } | Self::LowWatermark { waiter, .. } => waiter.one_done(),
            Self::Data { .. } => {}
        }
    }
}

#[derive(Debug)]
struct Slot {
    id: u64,
    watch: Watch,
}

#[derive(Debug, Default)]
struct Slots {
    /// Grows with every event.
    events: u64,
    next_id: u64,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
}

impl Slots {
    fn add(&mut self, watch: Watch) -> Ticket {
        let id = self.next_id;
        self.next_id += 1;
        let slot = Some(Slot { id, watch });
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        Ticket { index, id }
    }

    fn remove(&mut self, index: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(slot)
    }

    /// Unless the watch was completed.
    fn take(&mut self, ticket: Ticket) -> Option<Slot> {
        match self.slots.get(ticket.index) {
            Some(Some(slot)) if slot.id == ticket.id => self.remove(ticket.index),
            _ => None,
        }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Ends the watches for high watermarks that `is_reached`.
    fn complete_offsets(&mut self, is_reached: impl Fn(i64) -> bool) {
        self.complete_where(
            |watch| matches!(watch, Watch::Offset { required_offset, .. } if is_reached(*required_offset)),
        );
    }

    /// The same for low watermarks.
    fn complete_low_watermarks(&mut self, is_reached: impl Fn(i64) -> bool) {
        self.complete_where(|watch| {
            matches!(watch, Watch::LowWatermark { required_offset, .. } if is_reached(*required_offset))
        });
    }

    fn complete_where(&mut self, is_reached: impl Fn(&Watch) -> bool) {
        for index in 0..self.slots.len() {
            let reached = matches!(&self.slots[index], Some(slot) if is_reached(&slot.watch));
            if reached && let Some(slot) = self.remove(index) {
                slot.watch.one_done();
            }
        }
    }
}

/// A place in a list; stale once the watch was completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    index: usize,
    id: u64,
}

/// Who waits on one partition.
#[derive(Debug, Default)]
pub struct WaitList {
    slots: Mutex<Slots>,
}

/// What became visible by an event: the number of bytes, where it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visible {
    Bytes(usize),
    /// Of the end of a transaction, by which what was appended before becomes stable.
    Marker(usize),
    Unknown,
}

impl Visible {
    fn bytes(self, isolation: FetchIsolation) -> i64 {
        match self {
            // Enough for anyone: the waiter looks by itself.
            Self::Marker(_) if isolation == FetchIsolation::TxnCommitted => i64::MAX / 2,
            Self::Unknown => i64::MAX / 2,
            Self::Bytes(bytes) | Self::Marker(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
        }
    }
}

impl WaitList {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        // The lock is never held where something can panic, and a list stays usable in any case.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of events so far: taken before a read, compared by `watch_data`.
    pub fn events(&self) -> u64 {
        self.lock().events
    }

    /// The log grew (followers see it at once), and the high watermark moved too if it is given (consumers see that).
    pub fn on_append(&self, visible: Visible, high_watermark: Option<i64>) {
        let mut slots = self.lock();
        slots.events += 1;
        if slots.is_empty() {
            return;
        }
        for slot in slots.slots.iter().flatten() {
            if let Watch::Data { waiter, isolation } = &slot.watch
                && (*isolation == FetchIsolation::LogEnd || high_watermark.is_some())
            {
                waiter.arrived(visible.bytes(*isolation));
            }
        }
        if let Some(high_watermark) = high_watermark {
            slots.complete_offsets(|required| required <= high_watermark);
        }
    }

    /// The high watermark moved without an append. Followers hear of it too: they take it over from the answer.
    pub fn on_high_watermark(&self, visible: Visible, high_watermark: i64) {
        self.on_append(visible, Some(high_watermark));
    }

    /// Leadership, epoch or existence changed: everyone looks anew.
    pub fn on_state_change(&self) {
        let mut slots = self.lock();
        slots.events += 1;
        for slot in slots.slots.iter().flatten() {
            if let Watch::Data { waiter, .. } = &slot.watch {
                waiter.wake();
            }
        }
        slots.complete_offsets(|_| true);
        slots.complete_low_watermarks(|_| true);
    }

    /// A follower's log starts later now.
    pub fn on_low_watermark(&self, low_watermark: i64) {
        let mut slots = self.lock();
        if !slots.is_empty() {
            slots.complete_low_watermarks(|required| required <= low_watermark);
        }
    }

    /// Registers a fetch. `None`: something happened since `events` was taken, so read again first.
    pub fn watch_data(
        self: &Arc<Self>,
        waiter: &Arc<FetchWaiter>,
        isolation: FetchIsolation,
        events: u64,
    ) -> Option<Watching> {
        let mut slots = self.lock();
        if slots.events != events {
            return None;
        }
        let ticket = slots.add(Watch::Data {
            waiter: waiter.clone(),
            isolation,
        });
        drop(slots);
        Some(Watching {
            list: self.clone(),
            ticket: Some(ticket),
        })
    }

    /// Registers a produce until the high watermark is at or above `required_offset`. The caller looks once more afterwards, and calls
    /// `Watching::complete` if it is there already.
    pub fn watch_offset(self: &Arc<Self>, waiter: &Arc<ProduceWaiter>, required_offset: i64) -> Watching {
        let ticket = self.lock().add(Watch::Offset {
            waiter: waiter.clone(),
            required_offset,
        });
        Watching {
            list: self.clone(),
            ticket: Some(ticket),
        }
    }

    /// Registers a DeleteRecords until the low watermark is at or above `required_offset`, in the same way.
    pub fn watch_low_watermark(
        self: &Arc<Self>,
        waiter: &Arc<ProduceWaiter>,
        required_offset: i64,
    ) -> Watching {
        let ticket = self.lock().add(Watch::LowWatermark {
            waiter: waiter.clone(),
            required_offset,
        });
        Watching {
            list: self.clone(),
            ticket: Some(ticket),
        }
    }

    /// How many wait, for metrics and tests.
    pub fn len(&self) -> usize {
        let slots = self.lock();
        slots.slots.len() - slots.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A registration; ends when dropped.
#[derive(Debug)]
pub struct Watching {
    list: Arc<WaitList>,
    /// `None`: it has ended.
    ticket: Option<Ticket>,
}

impl Watching {
    /// What was waited for is there: counts as done unless an event came first.
    pub fn complete(mut self) {
        let slot = self
            .ticket
            .take()
            .and_then(|ticket| self.list.lock().take(ticket));
        if let Some(slot) = slot {
            slot.watch.one_done();
        }
    }

    /// Ends it; tells the number of events so far.
    pub fn end(mut self) -> u64 {
        let mut slots = self.list.lock();
        if let Some(ticket) = self.ticket.take() {
            slots.take(ticket);
        }
        slots.events
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.list.lock().take(ticket);
        }
    }
}

#[cfg(test)]
#[path = "purgatory_test.rs"]
mod purgatory_test;
