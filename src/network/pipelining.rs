//! How many connections have clients that keep several requests in flight.
//!
//! Their answers are cheapest when they leave together, for each that leaves wakes the client; but with all of them answered at once a
//! client and the broker take turns at being idle. Not so where there are as many such clients as processors: then somebody else
//! is served meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fewer than the five requests that producers keep in flight.
const TOGETHER_MAX: usize = 3;
const TOGETHER_AMONG_MANY_MAX: usize = 5;

/// Over the connections of a server.
#[derive(Debug)]
pub struct Pipelining {
    processors: usize,
    connections: AtomicUsize,
}

impl Pipelining {
    pub fn new(processors: usize) -> Arc<Self> {
        Arc::new(Self {
            processors,
            connections: AtomicUsize::new(0),
        })
    }
}

/// One connection's part.
#[derive(Debug)]
pub struct Pipeline {
    all: Arc<Pipelining>,
    is_counted: bool,
}

impl Pipeline {
    pub fn new(all: Arc<Pipelining>) -> Self {
        Self {
            all,
            is_counted: false,
        }
    }

    /// So many answers left at once.
    pub fn answered(&mut self, together: usize) {
        let has_several = together > 1;
        if has_several == self.is_counted {
            return;
        }
        self.is_counted = has_several;
        let connections = &self.all.connections;
        match has_several {
            true => connections.fetch_add(1, Ordering::Relaxed),
            false => connections.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// How many small answers may leave together.
    pub fn together_max(&self) -> usize {
        // One alone waits for its client, whatever the machine.
        let many = self.all.processors.max(2);
        match self.all.connections.load(Ordering::Relaxed) >= many {
            true => TOGETHER_AMONG_MANY_MAX,
            false => TOGETHER_MAX,
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.answered(0);
    }
}

#[cfg(test)]
mod pipelining_test {
    use super::*;

    #[test]
    fn more_answers_leave_together_while_as_many_clients_as_processors_have_several_in_flight() {
        let all = Pipelining::new(3);
        let mut pipelines: Vec<Pipeline> = (0..4).map(|_| Pipeline::new(all.clone())).collect();
        let [first, second, third, idle] = &mut pipelines[..] else {
            unreachable!()
        };
        first.answered(2);
        first.answered(3);
        second.answered(3);
        third.answered(1);
        assert_eq!(idle.together_max(), TOGETHER_MAX);
        third.answered(2);
        assert_eq!(idle.together_max(), TOGETHER_AMONG_MANY_MAX);
        second.answered(1);
        second.answered(1);
        assert_eq!(idle.together_max(), TOGETHER_MAX);
        second.answered(2);
        assert_eq!(idle.together_max(), TOGETHER_AMONG_MANY_MAX);
        pipelines.remove(0);
        assert_eq!(pipelines[0].together_max(), TOGETHER_MAX);
        pipelines.clear();
        assert_eq!(all.connections.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn client_alone_is_answered_before_its_last_request_on_one_processor_too() {
        let mut alone = Pipeline::new(Pipelining::new(1));
        alone.answered(3);
        assert_eq!(alone.together_max(), TOGETHER_MAX);
    }
}
