//! Time, handed in so that tests own it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The clock door: wall-clock milliseconds for what is written down, a monotonic one for deadlines.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch (Kafka's `Time.milliseconds()`).
    fn now_ms(&self) -> i64;
    /// Milliseconds since an arbitrary fixed start; never goes back.
    fn monotonic_ms(&self) -> i64;
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64)
    }

    fn monotonic_ms(&self) -> i64 {
        self.start.elapsed().as_millis() as i64
    }
}
