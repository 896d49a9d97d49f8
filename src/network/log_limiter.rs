//! Keeps a hostile client from filling the disk by way of the log: a few lines a second, then a count of what was left out.

use std::sync::Mutex;

const LINES_PER_SECOND: u32 = 10;

/// Shared by all connections of a server.
#[derive(Debug, Default)]
pub struct LogLimiter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    second: i64,
    lines: u32,
    left_out: u64,
}

impl LogLimiter {
    /// Whether to log now; the number says how many lines were left out since the last one. Time in milliseconds, monotonic.
    pub fn admit(&self, now_ms: i64) -> Option<u64> {
        let mut state = self
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let second = now_ms / 1000;
        if state.second != second {
            state.second = second;
            state.lines = 0;
        }
        if state.lines >= LINES_PER_SECOND {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod log_limiter_test {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted_and_told_in_the_next_second() {
        let limiter = LogLimiter::default();
        let admitted = (0..25).filter(|_| limiter.admit(5_000).is_some()).count();
        assert_eq!(admitted, LINES_PER_SECOND as usize);
        assert_eq!(limiter.admit(6_000), Some(15));
        assert_eq!(limiter.admit(6_001), Some(0));
    }
}
