//! Moves replicas between the log directories of this node while they are in use (AlterReplicaLogDirs, KIP-113 and KIP-858).
//!
//! ```text
//! copying --has all that the log has--> assigning --the controller has it--> swap: under the partition's lock the last bytes are copied, and the
//!                                                                            copy takes the log's place
//! ```
//!
//! Threads are there only while something is moved: at most `num.replica.alter.log.dirs.threads` (one a log directory), each takes a chunk of one move,
//! then of the next. Together they stay below `replica.alter.log.dirs.io.max.bytes.per.second`.
//! A move goes on after a restart: its `-future` folder says where to. One that fails is tried again until it is given another target.
//! Invariants: a partition has one move at most; the controller is told before the swap, and told back if it does not come.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use uuid::Uuid;

use crate::log::{LogError, LogManager, TopicPartition};
use crate::metadata::ConfigResource;
use crate::replica::{Partition, ReplicaError, ReplicaManager};

/// Bytes copied at a time, as `replica.fetch.max.bytes`.
const CHUNK_BYTES: usize = 1024 * 1024;
/// `replica.fetch.backoff.ms`.
const RETRY: Duration = Duration::from_secs(1);
/// How often a move looks whether it may go on.
const LOOK: Duration = Duration::from_millis(10);
/// A pause for the rate is cut into pieces of this length, so that the end of the node and a cancelled move are noticed.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How long a stop waits for a step to end: a chunk is copied, or a log is flushed and swapped.
const STOP_MAX: Duration = Duration::from_secs(30);

const RATE_CONFIG: &str = "replica.alter.log.dirs.io.max.bytes.per.second";

/// Why a replica cannot be moved, by Kafka's errors.
#[derive(Debug, thiserror::Error)]
pub enum AlterLogDirError {
    #[error("The topic name is too long.")]
    TopicNameTooLong,
    #[error("Log dir {} is not found in the config.", dir.display())]
    LogDirNotFound { dir: PathBuf },
    #[error("Log directory {} is offline", dir.display())]
    LogDirOffline { dir: PathBuf },
    /// Made in that directory when it comes.
    #[error("{topic_partition} is not on this node")]
    ReplicaNotAvailable { topic_partition: TopicPartition },
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    #[error(transparent)]
    Log(#[from] LogError),
}

const NOT_ASSIGNED: u8 = 0;
const ASSIGNING: u8 = 1;
const ASSIGNED: u8 = 2;

/// One replica on its way.
struct Move {
    topic_partition: TopicPartition,
    from: PathBuf,
    assignment: AtomicU8,
    is_cancelled: AtomicBool,
    has_failed: AtomicBool,
}

#[derive(Default)]
struct State {
    moves: HashMap<TopicPartition, Arc<Move>>,
    queue: VecDeque<Arc<Move>>,
    threads: usize,
    is_stopping: bool,
    /// When the bytes that were copied so far are paid for (monotonic).
    free_at_ms: f64,
}

/// What the replica manager holds of it.
#[derive(Default)]
pub(crate) struct Moves {
    state: Mutex<State>,
    /// A thread ended.
    ended: Condvar,
}

impl Moves {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the threads have ended: after that no log changes its directory. They end after the step that they are at; one that
    /// panicked is not waited for for ever.
    pub fn stop(&self) {
        let mut state = self.state();
        state.is_stopping = true;
        let ended = self
            .ended
            .wait_timeout_while(state, STOP_MAX, |state| state.threads > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }
}

enum Step {
    Again(Duration),
    Done,
}

impl ReplicaManager {
    /// Moves the replica into `log_dir` (an absolute path), or lets it stay if it is there; returns when it has begun.
    pub fn alter_replica_log_dir(
        &self,
        topic_partition: &TopicPartition,
        log_dir: &Path,
    ) -> Result<(), AlterLogDirError> {
        let logs = self.log_manager();
        if !LogManager::can_be_moved(topic_partition) {
            return Err(AlterLogDirError::TopicNameTooLong);
        }
        let Some(wanted) = logs.find_log_dir(log_dir) else {
            let dir = log_dir.to_path_buf();
            return Err(AlterLogDirError::LogDirNotFound { dir });
        };
        if !logs.is_log_dir_online(wanted) {
            let dir = wanted.clone();
            return Err(AlterLogDirError::LogDirOffline { dir });
        }
        let partition = match self.get_partition(topic_partition) {
            Ok(partition) => partition,
            Err(error @ ReplicaError::KafkaStorage { .. }) => return Err(error.into()),
            Err(error) => {
                logs.set_preferred_log_dir(topic_partition, wanted);
                return Err(match error {
                    ReplicaError::NotLeaderOrFollower { .. } => AlterLogDirError::ReplicaNotAvailable {
                        topic_partition: topic_partition.clone(),
                    },
                    other => other.into(),
                });
            }
        };
        if let Some(future) = logs.future(topic_partition)
            && *future.parent_dir() != **wanted
        {
            self.cancel_move(topic_partition, Some(&partition));
            logs.delete_future(topic_partition)?;
        }
        let current = partition.log();
        if *current.parent_dir() == **wanted {
            return Ok(());
        }
        logs.create_future(&current, wanted)?;
        self.start_move(&partition);
        Ok(())
    }

    /// At start: moves that the last run did not end, and copies of partitions that are gone.
    pub(crate) fn resume_moves(&self) {
        for future in self.log_manager().all_futures() {
            let topic_partition = future.topic_partition();
            match self.get_partition(topic_partition) {
                Ok(partition) => {
                    match self
                        .log_manager()
                        .begin_copy_anew_if_cleaned(&partition.log(), &future)
                    {
                        Ok(()) => {
                            tracing::info!(partition = %topic_partition, to = %future.parent_dir().display(), "moving on to another log directory");
                            self.start_move(&partition);
                        }
                        Err(error) => {
                            tracing::error!(partition = %topic_partition, %error, "the copy could not be begun anew, and is given up");
                            self.give_up_copy(topic_partition);
                        }
                    }
                }
                // Its log's directory is offline.
                Err(ReplicaError::KafkaStorage { .. }) => {}
                Err(_) => self.give_up_copy(topic_partition),
            }
        }
    }

    fn give_up_copy(&self, topic_partition: &TopicPartition) {
        if let Err(error) = self.log_manager().delete_future(topic_partition) {
            tracing::warn!(partition = %topic_partition, %error, "the copy that is not wanted any more stays");
        }
    }

    fn start_move(&self, partition: &Arc<Partition>) {
        let topic_partition = partition.topic_partition().clone();
        let mut state = self.moves.state();
        if state.moves.contains_key(&topic_partition) {
            return;
        }
        let started = Arc::new(Move {
            topic_partition: topic_partition.clone(),
            from: partition.log().parent_dir().to_path_buf(),
            assignment: AtomicU8::new(NOT_ASSIGNED),
            is_cancelled: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        });
        state.moves.insert(topic_partition, Arc::clone(&started));
        state.queue.push_back(started);
        if state.threads < self.config.alter_log_dirs_threads.max(1) {
            let manager = self.weak.clone();
            let spawned = std::thread::Builder::new()
                .name("alter-log-dirs".into())
                .spawn(move || run(&manager));
            match spawned {
                Ok(_) => state.threads += 1,
                Err(error) => tracing::error!(%error, "no thread to move replicas with"),
            }
        }
    }

    /// The move ends without a swap. `partition`: still there, so the controller is told that it stays.
    pub(crate) fn cancel_move(&self, topic_partition: &TopicPartition, partition: Option<&Partition>) {
        let Some(cancelled) = self.moves.state().moves.remove(topic_partition) else {
            return;
        };
        cancelled.is_cancelled.store(true, Ordering::Release);
        let was_told = cancelled.assignment.load(Ordering::Acquire) != NOT_ASSIGNED;
        // A swap that had begun is over then, and no other comes.
        let stays_in = partition.and_then(|partition| self.directories.id_of(&partition.settled_log_dir()));
        if let Some(topic_id) = partition.and_then(Partition::topic_id)
            && was_told
            && let Some(directory) = stays_in
        {
            self.directories
                .assign(topic_id, topic_partition.partition, directory, None);
        }
    }

    fn finish_move(&self, done: &Arc<Move>) {
        let mut state = self.moves.state();
        if state
            .moves
            .get(&done.topic_partition)
            .is_some_and(|known| Arc::ptr_eq(known, done))
        {
            state.moves.remove(&done.topic_partition);
        }
    }

    fn step(&self, moving: &Arc<Move>) -> Step {
        let topic_partition = &moving.topic_partition;
        let logs = self.log_manager();
        if moving.is_cancelled.load(Ordering::Acquire) {
            return Step::Done;
        }
        let (Ok(partition), Some(future)) =
            (self.get_partition(topic_partition), logs.future(topic_partition))
        else {
            return Step::Done;
        };
        if !logs.is_log_dir_online(&future.parent_dir()) {
            tracing::warn!(partition = %topic_partition, "the log directory that it was being moved to is offline: it stays");
            self.cancel_move(topic_partition, Some(&partition));
            let _ = logs.delete_future(topic_partition);
            return Step::Done;
        }
        let outcome = match partition.copy_to_future(&future, CHUNK_BYTES) {
            Ok(0) => self.swap_when_assigned(moving, &partition, &future.parent_dir()),
            Ok(copied) => Ok(Step::Again(self.charge(copied))),
            Err(error) => Err(error),
        };
        outcome.unwrap_or_else(|error| {
            if !moving.has_failed.swap(true, Ordering::AcqRel) {
                tracing::error!(partition = %topic_partition, %error, "could not be moved to another log directory; it is tried again");
            }
            Step::Again(RETRY)
        })
    }

    fn swap_when_assigned(
        &self,
        moving: &Arc<Move>,
        partition: &Partition,
        target: &Path,
    ) -> Result<Step, LogError> {
        let supported = self
            .metadata
            .load()
            .features
            .metadata_version_or_minimum()
            .is_directory_assignment_supported();
        match moving.assignment.load(Ordering::Acquire) {
            NOT_ASSIGNED => {
                moving.assignment.store(ASSIGNING, Ordering::Release);
                match (partition.topic_id(), self.directories.id_of(target)) {
                    (Some(topic_id), Some(directory)) if supported => {
                        let accepted = Arc::clone(moving);
                        let on_accepted = move || accepted.assignment.store(ASSIGNED, Ordering::Release);
                        self.directories.assign(
                            topic_id,
                            moving.topic_partition.partition,
                            directory,
                            Some(Box::new(on_accepted)),
                        );
                    }
                    // Nobody wants to know.
                    _ => moving.assignment.store(ASSIGNED, Ordering::Release),
                }
                Ok(Step::Again(Duration::ZERO))
            }
            ASSIGNING => Ok(Step::Again(LOOK)),
            _ => {
                let is_swapped = partition.replace_with_future(self.log_manager(), CHUNK_BYTES, || {
                    !moving.is_cancelled.load(Ordering::Acquire)
                })?;
                if !is_swapped {
                    return Ok(Step::Again(LOOK));
                }
                tracing::info!(partition = %moving.topic_partition, from = %moving.from.display(), to = %target.display(), "moved");
                Ok(Step::Done)
            }
        }
    }

    /// How long to wait after these bytes.
    fn charge(&self, bytes: usize) -> Duration {
        let Some(bytes_per_second) = self.alter_log_dirs_rate() else {
            return Duration::ZERO;
        };
        let now_ms = self.clock.monotonic_ms() as f64;
        let mut state = self.moves.state();
        state.free_at_ms = state.free_at_ms.max(now_ms) + bytes as f64 / bytes_per_second * 1000.0;
        Duration::from_secs_f64(((state.free_at_ms - now_ms) / 1000.0).clamp(0.0, 3600.0))
    }

    /// A dynamic config of the broker, else of all brokers; there is none by default, and none in the node's file.
    fn alter_log_dirs_rate(&self) -> Option<f64> {
        let image = self.metadata.load();
        let own = ConfigResource::broker(self.config.node_id);
        [own, ConfigResource::broker_default()]
            .iter()
            .find_map(|resource| image.configs.get(resource)?.get(RATE_CONFIG))
            .and_then(|value| value.trim().parse::<i64>().ok())
            .filter(|rate| (1..i64::MAX).contains(rate))
            .map(|rate| rate as f64)
    }

    /// Moves that are under way.
    pub fn moving_replicas(&self) -> usize {
        self.moves.state().moves.len()
    }
}

/// A thread: one step of a move, then of the next, until there is none.
fn run(manager: &Weak<ReplicaManager>) {
    loop {
        let Some(manager) = manager.upgrade() else {
            return;
        };
        let next = {
            let mut state = manager.moves.state();
            let next = if state.is_stopping {
                None
            } else {
                state.queue.pop_front()
            };
            if next.is_none() {
                state.threads -= 1;
                manager.moves.ended.notify_all();
            }
            next
        };
        let Some(moving) = next else {
            return;
        };
        match manager.step(&moving) {
            Step::Done => manager.finish_move(&moving),
            Step::Again(pause) => {
                wait(&manager, &moving, pause);
                manager.moves.state().queue.push_back(moving);
            }
        }
    }
}

fn wait(manager: &ReplicaManager, moving: &Move, pause: Duration) {
    let mut left = pause;
    while !left.is_zero() && !manager.moves.is_stopping() && !moving.is_cancelled.load(Ordering::Acquire) {
        let piece = left.min(PAUSE_MAX);
        std::thread::sleep(piece);
        left -= piece;
    }
}

/// For the answer of the controller: which directory it should say.
pub(crate) fn assignment_differs(assigned: Option<Uuid>, actual: Option<Uuid>) -> Option<Uuid> {
    actual.filter(|actual| assigned != Some(*actual))
}

#[cfg(test)]
#[path = "alter_log_dirs_test.rs"]
mod alter_log_dirs_test;
