//! The shared cache of fetch sessions: eight shards of the pure `fetch_session`, each under a lock of its own.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::replica::fetch::FetchPartition;
use crate::replica::fetch_session::{
    FetchAnswer, FetchContext, FetchMetadata, FetchSessionShard, SHARDS, SessionError, SessionPartition,
    shard_of,
};

pub struct FetchSessionCache {
    shards: Vec<Mutex<FetchSessionShard>>,
    next_shard: AtomicU32,
}

impl FetchSessionCache {
    pub fn new(slots: usize) -> Self {
        let shards = (0..SHARDS)
            .map(|number| Mutex::new(FetchSessionShard::new(number, slots)))
            .collect();
        Self {
            shards,
            next_shard: AtomicU32::new(0),
        }
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, FetchSessionShard> {
        // A session is data of its own: a panic over one leaves the others as they were.
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn new_context(
        &self,
        metadata: FetchMetadata,
        uses_topic_ids: bool,
        fetch: Vec<(SessionPartition, FetchPartition)>,
        forgotten: &[SessionPartition],
        topic_name: &dyn Fn(Uuid) -> Option<Arc<str>>,
        now_ms: i64,
    ) -> FetchContext {
        let mut shard = self.shard(shard_of(metadata.session_id));
        shard.new_context(metadata, uses_topic_ids, fetch, forgotten, topic_name, now_ms)
    }

    /// The new session's id, or 0 where there is no room. Shards take turns.
    pub fn maybe_create(
        &self,
        privileged: bool,
        uses_topic_ids: bool,
        answers: &[FetchAnswer],
        now_ms: i64,
    ) -> i32 {
        let index = self.next_shard.fetch_add(1, Ordering::Relaxed) as usize % self.shards.len();
        let mut random = || fastrand::u32(..);
        self.shard(index)
            .maybe_create(privileged, uses_topic_ids, answers, &mut random, now_ms)
    }

    pub fn finish_incremental(
        &self,
        session_id: i32,
        epoch: i32,
        answers: &mut Vec<FetchAnswer>,
    ) -> Result<(), SessionError> {
        self.shard(shard_of(session_id))
            .finish_incremental(session_id, epoch, answers)
    }

    /// Sessions, their partitions, and sessions evicted so far.
    pub fn counts(&self) -> (usize, usize, u64) {
        (0..self.shards.len())
            .map(|index| self.shard(index).counts())
            .fold((0, 0, 0), |sum, counts| {
                (sum.0 + counts.0, sum.1 + counts.1, sum.2 + counts.2)
            })
    }
}
