//! How many connections have clients that keep several requests in flight.
//!
//! Their answers are cheapest when they leave together, for each that leaves wakes the client; but with all of them answered at once a
//! client and the broker take turns at being idle. Not so where there are as many such clients as processors: then somebody else
//! is served meanwhile.
//!
//! Invariant: a client counts for two windows of time at most after several of its answers left together, so that those who
//! have become quiet do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Fewer than the five requests that producers keep in flight.
const TOGETHER_MAX: usize = 3;
const TOGETHER_AMONG_MANY_MAX: usize = 5;
const WINDOW_MS: u128 = 50;

/// Over the connections of a server.
#[derive(Debug)]
pub struct Pipelining {
    processors: usize,
    began: Instant,
    /// A [`Seen`].
    seen: AtomicU64,
}

/// How many connections were seen in a window of time and in the one before.
#[derive(Debug, Clone, Copy)]
struct Seen {
    window: u32,
    before: u16,
    here: u16,
}

impl Seen {
    fn from_bits(bits: u64) -> Self {
        Self {
            window: (bits >> 32) as u32,
            before: (bits >> 16) as u16,
            here: bits as u16,
        }
    }

    fn bits(self) -> u64 {
        u64::from(self.window) << 32 | u64::from(self.before) << 16 | u64::from(self.here)
    }

    /// As it is in `window`, if that is not before its own.
    fn at(self, window: u32) -> Self {
        match window.wrapping_sub(self.window) {
            0 => self,
            1 => Self {
                window,
                before: self.here,
                here: 0,
            },
            2..=0x7fff_ffff => Self {
                window,
                before: 0,
                here: 0,
            },
            // Another thread's clock was read later.
            _ => self,
        }
    }
}

impl Pipelining {
    pub fn new(processors: usize, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            processors,
            began: now,
            seen: AtomicU64::new(0),
        })
    }

    fn window(&self, now: Instant) -> u32 {
        (now.saturating_duration_since(self.began).as_millis() / WINDOW_MS) as u32
    }

    fn note(&self, window: u32) {
        let more = |bits| {
            let seen = Seen::from_bits(bits).at(window);
            let here = seen.here.saturating_add(1);
            Some(Seen { here, ..seen }.bits())
        };
        // It always has a next value.
        let _ = self.seen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    fn connections(&self, window: u32) -> usize {
        let seen = Seen::from_bits(self.seen.load(Ordering::Relaxed)).at(window);
        usize::from(seen.before.max(seen.here))
    }
}

/// One connection's part.
#[derive(Debug)]
pub struct Pipeline {
    all: Arc<Pipelining>,
    /// When it was counted last.
    counted_in: Option<u32>,
}

impl Pipeline {
    pub fn new(all: Arc<Pipelining>) -> Self {
        Self {
            all,
            counted_in: None,
        }
    }

    /// So many answers left at once.
    pub fn answered(&mut self, together: usize, now: Instant) {
        let window = self.all.window(now);
        if together > 1 && self.counted_in != Some(window) {
            self.counted_in = Some(window);
            self.all.note(window);
        }
    }

    /// How many small answers may leave together.
    pub fn together_max(&self, now: Instant) -> usize {
        // One alone waits for its client, whatever the machine.
        let many = self.all.processors.max(2);
        match self.all.connections(self.all.window(now)) >= many {
            true => TOGETHER_AMONG_MANY_MAX,
            false => TOGETHER_MAX,
        }
    }
}

#[cfg(test)]
mod pipelining_test {
    use std::time::Duration;

    use super::*;

    const WINDOW: Duration = Duration::from_millis(WINDOW_MS as u64);

    #[test]
    fn more_answers_leave_together_while_as_many_clients_as_processors_have_several_in_flight() {
        let began = Instant::now();
        let all = Pipelining::new(3, began);
        let mut pipelines: Vec<Pipeline> = (0..4).map(|_| Pipeline::new(all.clone())).collect();
        let [first, second, third, idle] = &mut pipelines[..] else {
            unreachable!()
        };
        for number in 0..5 {
            let now = began + WINDOW * number;
            first.answered(2, now);
            first.answered(3, now);
            second.answered(3, now);
            third.answered(1, now);
            assert_eq!(idle.together_max(now), TOGETHER_MAX);
        }
        let now = began + WINDOW * 4;
        third.answered(2, now);
        assert_eq!(idle.together_max(now), TOGETHER_AMONG_MANY_MAX);
        // Whose clock was read a little earlier sees the same.
        assert_eq!(idle.together_max(now - WINDOW / 2), TOGETHER_AMONG_MANY_MAX);
        // Until the next window is over, unless they go on.
        assert_eq!(idle.together_max(now + WINDOW), TOGETHER_AMONG_MANY_MAX);
        first.answered(2, now + WINDOW);
        assert_eq!(idle.together_max(now + WINDOW), TOGETHER_AMONG_MANY_MAX);
        first.answered(2, now + 2 * WINDOW);
        assert_eq!(idle.together_max(now + 2 * WINDOW), TOGETHER_MAX);
    }

    #[test]
    fn clients_that_have_become_quiet_do_not_count() {
        let began = Instant::now();
        let all = Pipelining::new(2, began);
        let mut pipelines: Vec<Pipeline> = (0..2).map(|_| Pipeline::new(all.clone())).collect();
        for pipeline in &mut pipelines {
            pipeline.answered(5, began);
        }
        assert_eq!(pipelines[0].together_max(began), TOGETHER_AMONG_MANY_MAX);
        for later in [2, 3, 1_000, u32::MAX / 4] {
            assert_eq!(pipelines[0].together_max(began + WINDOW * later), TOGETHER_MAX);
        }
    }

    #[test]
    fn client_alone_is_answered_before_its_last_request_on_one_processor_too() {
        let now = Instant::now();
        let mut alone = Pipeline::new(Pipelining::new(1, now));
        alone.answered(3, now);
        assert_eq!(alone.together_max(now), TOGETHER_MAX);
    }
}
