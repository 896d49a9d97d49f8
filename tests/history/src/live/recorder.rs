//! The history as it is made: one clock, ids and values that nobody else has, operations of all clients.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::history::{Body, ClientId, History, Operation, Outcome, Time, Value};

pub struct Recorder {
    started: Instant,
    last: AtomicU64,
    next_client: AtomicU32,
    next_value: AtomicU64,
    stopping: AtomicBool,
    commits: AtomicU64,
    operations: Mutex<Vec<Operation>>,
}

impl Recorder {
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            last: AtomicU64::new(0),
            next_client: AtomicU32::new(1),
            next_value: AtomicU64::new(1),
            stopping: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            operations: Mutex::default(),
        }
    }

    /// Later than every time that was given out before.
    pub fn now(&self) -> Time {
        let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let later = |last: u64| elapsed.max(last + 1);
        let order = Ordering::SeqCst;
        let last = self.last.fetch_update(order, order, |last| Some(later(last)));
        later(last.unwrap_or_else(|last| last))
    }

    pub fn client(&self) -> ClientId {
        self.next_client.fetch_add(1, Ordering::SeqCst)
    }

    pub fn value(&self) -> Value {
        self.next_value.fetch_add(1, Ordering::SeqCst)
    }

    /// A client is about to ask for a commit.
    pub fn commit_begins(&self) -> Time {
        let now = self.now();
        self.commits.fetch_add(1, Ordering::SeqCst);
        now
    }

    /// How many began.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// No new work from here on.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn operations(&self) -> MutexGuard<'_, Vec<Operation>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn record(&self, client: ClientId, invoked: Time, outcome: Outcome, body: Body) {
        let completed = Some(self.now());
        self.operations().push(Operation {
            client,
            invoked,
            completed,
            outcome,
            body,
        });
    }

    pub fn event(&self, what: impl Into<String>) {
        self.record(0, self.now(), Outcome::Ok, Body::Event(what.into()));
    }

    pub fn progress(&self) -> String {
        let operations = self.operations();
        let is_committed = |operation: &&Operation| {
            operation.outcome == Outcome::Ok && matches!(operation.body, Body::Transaction(_))
        };
        let committed = operations.iter().filter(is_committed).count();
        let sends = self.next_value.load(Ordering::SeqCst);
        format!("{committed} transactions committed, {sends} records sent")
    }

    /// What was recorded, in the order in which it began.
    pub fn history(&self) -> History {
        let mut operations = std::mem::take(&mut *self.operations());
        operations.sort_by_key(|operation| operation.invoked);
        History { operations }
    }
}
