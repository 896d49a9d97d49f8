//! Keeps a disk that stalls from holding all threads of a runtime.
//!
//! Work on files runs inline on the runtime's workers: with page-cache writes a hop to another thread would cost more than
//! the work. A directory whose disk stalls holds the worker that is in it, and without this all of them, one by one.
//!
//! ```text
//! directory makes progress, a slot is free    inline
//! all slots taken by work that makes progress  wait for one, meanwhile the worker is others'
//! else                                         on the blocking pool, a bounded number for a directory; more wait for these
//! ```
//! There is one slot less than the runtime has workers, over all directories: so one worker is always there for what needs
//! no disk. Work that is known to wait for the disk (a sync with each append) goes to the pool at once.
//!
//! Invariants: whoever entered leaves (guards); a directory that does not move takes no more workers; work is neither lost
//! nor done twice, whichever way it goes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::io::clock::Clock;

/// Work that was going on for so long without any end is taken for stuck.
const STUCK_MS: i64 = 20;
/// Threads of the pool that one directory may hold.
pub const POOLED_A_DIR_MAX: usize = 16;

/// Something that is entered and left: does it move?
#[derive(Debug, Default)]
struct Traffic {
    inside: AtomicUsize,
    last_progress_ms: AtomicI64,
}

impl Traffic {
    fn enter(&self, now_ms: i64) {
        self.try_enter(usize::MAX, now_ms);
    }

    /// Unless so many are inside.
    fn try_enter(&self, max: usize, now_ms: i64) -> bool {
        let one_more = |inside: usize| (inside < max).then_some(inside + 1);
        let before = self
            .inside
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        if before == Ok(0) {
            self.last_progress_ms.store(now_ms, Ordering::Release);
        }
        before.is_ok()
    }

    fn moves(&self, now_ms: i64) {
        self.last_progress_ms.store(now_ms, Ordering::Release);
    }

    fn leave(&self, now_ms: i64) {
        self.moves(now_ms);
        self.inside.fetch_sub(1, Ordering::AcqRel);
    }

    fn is_stuck(&self, now_ms: i64) -> bool {
        self.inside.load(Ordering::Acquire) > 0
            && now_ms - self.last_progress_ms.load(Ordering::Acquire) > STUCK_MS
    }
}

/// One log directory.
#[derive(Debug)]
struct DirGate {
    path: PathBuf,
    traffic: Traffic,
    pooled: Arc<Semaphore>,
}

/// The directories of a node, and the workers of one runtime.
pub struct DiskGate {
    clock: Arc<dyn Clock>,
    dirs: Vec<DirGate>,
    slots: Traffic,
    slots_max: usize,
    /// Told of every slot that is left: who has waited longest hears of it, though a newcomer may be there first.
    left: Notify,
}

impl fmt::Debug for DiskGate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DiskGate")
            .field("dirs", &self.dirs)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

/// How a piece of work may be done. Held until it is.
#[derive(Debug)]
pub enum Pass<'a> {
    Inline(Inside<'a>),
    /// On a thread that may hang.
    Pooled(OwnedSemaphorePermit),
}

/// A worker is in a directory.
#[derive(Debug)]
pub struct Inside<'a> {
    gate: &'a DiskGate,
    dir: &'a DirGate,
}

impl Inside<'_> {
    /// Long work of many steps has done another one.
    pub fn gets_on(&self) {
        let now_ms = self.gate.clock.monotonic_ms();
        self.dir.traffic.moves(now_ms);
        self.gate.slots.moves(now_ms);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let now_ms = self.gate.clock.monotonic_ms();
        self.dir.traffic.leave(now_ms);
        self.gate.slots.leave(now_ms);
        self.gate.left.notify_one();
    }
}

enum Attempt<'a> {
    Inside(Inside<'a>),
    Busy,
    Stuck,
}

impl DiskGate {
    /// `workers`: threads of the runtime whose tasks pass through this gate.
    pub fn new(log_dirs: &[PathBuf], workers: usize, clock: Arc<dyn Clock>) -> Self {
        let dir = |path: &PathBuf| DirGate {
            path: path.clone(),
            traffic: Traffic::default(),
            pooled: Arc::new(Semaphore::new(POOLED_A_DIR_MAX)),
        };
        Self {
            clock,
            dirs: log_dirs.iter().map(dir).collect(),
            slots: Traffic::default(),
            slots_max: workers.saturating_sub(1),
            left: Notify::new(),
        }
    }

    fn dir(&self, path: &Path) -> Option<&DirGate> {
        match self.dirs.as_slice() {
            [only] => Some(only),
            dirs => dirs.iter().find(|dir| dir.path == path),
        }
    }

    fn try_enter<'a>(&'a self, dir: &'a DirGate) -> Attempt<'a> {
        let now_ms = self.clock.monotonic_ms();
        if dir.traffic.is_stuck(now_ms) {
            return Attempt::Stuck;
        }
        let is_stuck = self.slots.is_stuck(now_ms);
        if !self.slots.try_enter(self.slots_max, now_ms) {
            return if is_stuck { Attempt::Stuck } else { Attempt::Busy };
        }
        dir.traffic.enter(now_ms);
        Attempt::Inside(Inside { gate: self, dir })
    }

    /// A slot, which is waited for while they make progress, and no longer than it takes to see that they do not.
    async fn wait_for_slot<'a>(&'a self, dir: &'a DirGate) -> Option<Inside<'a>> {
        // Mostly there is one, and neither a clock nor a place in the line is needed.
        match self.try_enter(dir) {
            Attempt::Inside(inside) => return Some(inside),
            Attempt::Stuck => return None,
            Attempt::Busy => {}
        }
        let deadline = Instant::now() + Duration::from_millis(STUCK_MS.unsigned_abs());
        loop {
            let mut left = pin!(self.left.notified());
            // Before the look: who leaves after it is heard.
            left.as_mut().enable();
            match self.try_enter(dir) {
                Attempt::Inside(inside) => return Some(inside),
                Attempt::Stuck => {
                    // The slot that this may have been told of is for whoever is next.
                    self.left.notify_one();
                    return None;
                }
                Attempt::Busy => timeout_at(deadline, left).await.ok()?,
            }
        }
    }

    /// Waits for a pass to a directory. `None`: it is none of the gate's, and needs none.
    pub async fn pass(&self, log_dir: &Path, waits_for_disk: bool) -> Option<Pass<'_>> {
        let dir = self.dir(log_dir)?;
        if !waits_for_disk
            && self.slots_max > 0
            && let Some(inside) = self.wait_for_slot(dir).await
        {
            return Some(Pass::Inline(inside));
        }
        // The semaphore is never closed.
        let permit = dir.pooled.clone().acquire_owned().await.ok()?;
        Some(Pass::Pooled(permit))
    }

    /// Does `work`, which may wait for the disk of this directory, inline or on the pool; `None` when the runtime ends.
    pub async fn run<T: Send + 'static>(
        &self,
        log_dir: &Path,
        waits_for_disk: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match self.pass(log_dir, waits_for_disk).await {
            None => Some(work()),
            Some(Pass::Inline(inside)) => {
                let result = work();
                drop(inside);
                Some(result)
            }
            Some(Pass::Pooled(permit)) => {
                let pooled = tokio::task::spawn_blocking(move || {
                    let result = work();
                    drop(permit);
                    result
                });
                match pooled.await {
                    Ok(result) => Some(result),
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => None,
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "disk_gate_test.rs"]
mod disk_gate_test;
