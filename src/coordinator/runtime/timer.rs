//! Deadlines by key. Pure.
//!
//! A heartbeat moves a deadline far more often than one is reached. So moving one later costs a map write only: its entry
//! in the heap stays where it was, and finds out when it comes up that it came too early.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt::Debug;
use std::hash::Hash;

/// So few entries of timers that are gone are not worth the work.
const STALE_ENTRIES_FEW: usize = 64;

/// What a timer says when it fires. Two events with one key are one timer.
pub trait TimerEvent: Clone + Debug + Send + 'static {
    type Key: Clone + Debug + Eq + Hash + Ord + Send;

    fn key(&self) -> Self::Key;
}

#[derive(Debug)]
struct Scheduled<T> {
    deadline_ms: i64,
    /// Deadline of the timer's entry in the heap; never after `deadline_ms`.
    queued_ms: i64,
    event: T,
}

#[derive(Debug)]
pub struct TimerQueue<T: TimerEvent> {
    timers: HashMap<T::Key, Scheduled<T>>,
    heap: BinaryHeap<Reverse<(i64, T::Key)>>,
}

impl<T: TimerEvent> Default for TimerQueue<T> {
    fn default() -> Self {
        Self {
            timers: HashMap::new(),
            heap: BinaryHeap::new(),
        }
    }
}

impl<T: TimerEvent> TimerQueue<T> {
    /// Replaces a timer with the same key.
    pub fn schedule(&mut self, deadline_ms: i64, event: T) {
        let key = event.key();
        match self.timers.get_mut(&key) {
            Some(timer) if timer.queued_ms <= deadline_ms => {
                timer.deadline_ms = deadline_ms;
                timer.event = event;
            }
            _ => {
                self.heap.push(Reverse((deadline_ms, key.clone())));
                let timer = Scheduled {
                    deadline_ms,
                    queued_ms: deadline_ms,
                    event,
                };
                self.timers.insert(key, timer);
                self.compact();
            }
        }
    }

    /// Leaves a timer with the same key as it is.
    pub fn schedule_if_absent(&mut self, deadline_ms: i64, event: T) {
        if !self.timers.contains_key(&event.key()) {
            self.schedule(deadline_ms, event);
        }
    }

    pub fn cancel(&mut self, key: &T::Key) {
        self.timers.remove(key);
        self.compact();
    }

    /// Timers that were cancelled or brought forward leave entries that may lie there for weeks: once they are most of the
    /// heap, it is made anew.
    fn compact(&mut self) {
        if self.heap.len() <= 2 * self.timers.len() + STALE_ENTRIES_FEW {
            return;
        }
        let queued = |(key, timer): (&T::Key, &Scheduled<T>)| Reverse((timer.queued_ms, key.clone()));
        self.heap = self.timers.iter().map(queued).collect();
    }

    /// When to look again: no timer is due before. May be too early, never too late.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Takes the next timer that is due.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<T> {
        loop {
            match self.heap.peek() {
                Some(Reverse((queued_ms, _))) if *queued_ms <= now_ms => {}
                _ => return None,
            }
            let Reverse((queued_ms, key)) = self.heap.pop()?;
            match self.timers.get_mut(&key) {
                // An entry that a cancelled or an earlier timer left behind.
                None => {}
                Some(timer) if timer.queued_ms != queued_ms => {}
                Some(timer) if timer.deadline_ms > now_ms => {
                    timer.queued_ms = timer.deadline_ms;
                    self.heap.push(Reverse((timer.deadline_ms, key)));
                }
                Some(_) => return self.timers.remove(&key).map(|timer| timer.event),
            }
        }
    }

    pub fn len(&self) -> usize {
        self.timers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }
}

#[cfg(test)]
#[path = "timer_test.rs"]
mod timer_test;
