//! Timers against a plain map of deadlines.

use super::{TimerEvent, TimerQueue};
use std::collections::BTreeMap;

impl TimerEvent for (u8, u32) {
    type Key = u8;

    fn key(&self) -> u8 {
        self.0
    }
}

#[test]
fn moved_timer_fires_once_at_its_last_deadline() {
    let mut timers = TimerQueue::default();
    timers.schedule(10, (1, 1));
    timers.schedule(30, (1, 2));
    assert_eq!(timers.pop_due(29), None);
    assert_eq!(timers.next_deadline_ms(), Some(30));
    assert_eq!(timers.pop_due(30), Some((1, 2)));
    assert_eq!(timers.pop_due(i64::MAX), None);
    timers.schedule(50, (1, 3));
    timers.schedule(40, (1, 4));
    assert_eq!(timers.pop_due(40), Some((1, 4)));
    assert_eq!(timers.pop_due(60), None);
}

#[test]
fn cancelled_timer_does_not_fire() {
    let mut timers = TimerQueue::default();
    timers.schedule(10, (1, 1));
    timers.schedule(10, (2, 1));
    timers.cancel(&1);
    assert_eq!(timers.pop_due(10), Some((2, 1)));
    assert!(timers.is_empty());
}

#[test]
fn timers_that_are_gone_leave_nothing_for_long() {
    let mut timers = TimerQueue::default();
    timers.schedule(i64::MAX, (0, 0));
    for step in 0..10_000 {
        timers.schedule(1_000_000 + i64::from(step), (1, step));
        timers.cancel(&1);
        timers.schedule(1_000_000 - i64::from(step), (2, step));
        assert!(timers.heap.len() <= 100);
    }
    assert_eq!(timers.pop_due(1_000_000), Some((2, 9_999)));
    assert_eq!(timers.pop_due(i64::MAX), Some((0, 0)));
    assert!(timers.is_empty() && timers.heap.is_empty());
}

#[test]
fn random_timers_fire_as_a_map_of_deadlines_says() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut timers = TimerQueue::default();
        let mut model: BTreeMap<u8, (i64, u32)> = BTreeMap::new();
        let mut now = 0;
        for step in 0..500 {
            let key = random.u8(..8);
            match random.u8(..4) {
                0 | 1 => {
                    let deadline = now + random.i64(0..50);
                    timers.schedule(deadline, (key, step));
                    model.insert(key, (deadline, step));
                }
                2 => {
                    timers.cancel(&key);
                    model.remove(&key);
                }
                _ => {
                    now += random.i64(0..20);
                    let mut fired: Vec<_> = std::iter::from_fn(|| timers.pop_due(now)).collect();
                    fired.sort_unstable();
                    let due: Vec<_> = model
                        .iter()
                        .filter(|(_, (deadline, _))| *deadline <= now)
                        .map(|(key, (_, step))| (*key, *step))
                        .collect();
                    assert_eq!(fired, due, "seed {seed}");
                    model.retain(|_, (deadline, _)| *deadline > now);
                }
            }
            assert_eq!(timers.len(), model.len());
            if let Some(first) = model.values().map(|(deadline, _)| *deadline).min() {
                assert!(timers.next_deadline_ms().is_some_and(|next| next <= first));
            }
        }
    }
}
