//! Incremental fetch sessions (KIP-227, KIP-516), pure: who fetches what, and what changed since the last answer.
//!
//! A session remembers the partitions of a fetcher and what it was last told of each; a request then names only what it changes,
//! an answer only what changed. The cache is bounded by `max.incremental.fetch.session.cache.slots`; Kafka splits it into eight shards,
//! each with its share of the slots and of the id space (`FetchSessionCacheShard`), and so do we. Their partitions are bounded, too.
//!
//! Invariants: a session is in `last_used` exactly once; in `evictable_by_all` only if also in `evictable_by_privileged`;
//! its epoch grows by one with every request that it accepts (1 follows i32::MAX); the order of partitions is the order in which they
//! are read, and a partition that gave records moves to the end, so that no busy partition starves the others.
//!
//! Must never: look at the clock, make random numbers (both are handed in), or resolve names by itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use crate::replica::fetch::{FetchPartition, FetchPartitionData};

pub const INVALID_SESSION_ID: i32 = 0;
pub const INITIAL_EPOCH: i32 = 0;
pub const FINAL_EPOCH: i32 = -1;
/// `KafkaBroker.MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`.
pub const MIN_EVICTION_MS: i64 = 120_000;
/// `KafkaBroker.NumFetchSessionCacheShards`.
pub const SHARDS: i32 = 8;
/// Partitions that all sessions of a shard may remember, about 150 bytes each and at most as many again of a name ([`NAME_MAX`]). Kafka has no such limit: its slots alone leave room for thousands
/// of millions. A fetcher without a session names its partitions in every request, that is all.
pub const SHARD_PARTITIONS_MAX: usize = 250_000;
/// No topic has a longer name (`Topic.MAX_NAME_LENGTH`): who fetches by one gets an error each time, and no session that remembers it.
const NAME_MAX: usize = 249;

/// Session id and epoch of a request (`FetchMetadata`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchMetadata {
    pub session_id: i32,
    pub epoch: i32,
}

impl FetchMetadata {
    /// What a request older than version 7 means.
    pub const LEGACY: Self = Self {
        session_id: INVALID_SESSION_ID,
        epoch: FINAL_EPOCH,
    };

    pub fn is_full(&self) -> bool {
        self.epoch == INITIAL_EPOCH || self.epoch == FINAL_EPOCH
    }
}

pub fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        ..0 => FINAL_EPOCH,
        i32::MAX => 1,
        _ => epoch + 1,
    }
}

/// A partition as a fetcher names it: by topic id (then the name may be unknown here), or by name (then the id is nil).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionPartition {
    pub topic_id: Uuid,
    pub topic: Option<Arc<str>>,
    pub partition: i32,
}

impl SessionPartition {
    fn may_be_remembered(&self) -> bool {
        self.topic.as_ref().is_none_or(|name| name.len() <= NAME_MAX)
    }

    /// With an id the name plays no part: an id with a name unknown is the same partition as the id with its name.
    fn key(&self) -> Key {
        if self.topic_id.is_nil() {
            Key::Name(self.topic.clone().unwrap_or_default(), self.partition)
        } else {
            Key::Id(self.topic_id, self.partition)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Id(Uuid, i32),
    Name(Arc<str>, i32),
}

/// Why a request cannot use its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionError {
    /// FETCH_SESSION_ID_NOT_FOUND
    IdNotFound,
    /// INVALID_FETCH_SESSION_EPOCH
    InvalidEpoch,
    /// FETCH_SESSION_TOPIC_ID_ERROR: the session names topics by id and the request by name, or the other way round.
    TopicId,
}

/// What a request is about, once its session is known (`FetchContext`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchContext {
    Error(SessionError),
    /// No session and none to be made.
    Sessionless(Vec<(SessionPartition, FetchPartition)>),
    /// All partitions named; a session is made with the answer if there is room.
    Full(Vec<(SessionPartition, FetchPartition)>),
    /// All partitions of the session, in the order in which to read them.
    Incremental {
        session_id: i32,
        epoch: i32,
        partitions: Vec<(SessionPartition, FetchPartition)>,
    },
}

/// One partition of an answer with what was asked.
#[derive(Debug, Clone)]
pub struct FetchAnswer {
    pub partition: SessionPartition,
    pub request: FetchPartition,
    pub data: FetchPartitionData,
}

/// A partition of a session with what its fetcher last asked and heard (`CachedPartition`).
#[derive(Debug, Clone)]
struct CachedPartition {
    partition: SessionPartition,
    request: FetchPartition,
    high_watermark: i64,
    local_log_start_offset: i64,
}

impl CachedPartition {
    /// True if the fetcher must hear of this; remembers what it hears (`maybeUpdateResponseData`).
    fn update_and_check(&mut self, answer: &FetchPartitionData) -> bool {
        let mut must_respond = !answer.records.is_empty()
            || answer.preferred_read_replica >= 0
            || answer.diverging_epoch.is_some()
            || answer.error.is_some();
        if self.high_watermark != answer.high_watermark {
            must_respond = true;
            self.high_watermark = answer.high_watermark;
        }
        if self.local_log_start_offset != answer.log_start_offset {
            must_respond = true;
            self.local_log_start_offset = answer.log_start_offset;
        }
        if answer.error.is_some() {
            // Makes the partition be sent again when the error goes away.
            self.high_watermark = -1;
        }
        must_respond
    }
}

const NONE: usize = usize::MAX;

#[derive(Debug)]
struct Node {
    value: CachedPartition,
    previous: usize,
    next: usize,
}

/// A map that keeps an order in which an entry can move to the end at no cost (`ImplicitLinkedHashCollection`).
#[derive(Debug)]
struct LinkedPartitions {
    index: HashMap<Key, usize>,
    nodes: Vec<Option<Node>>,
    free: Vec<usize>,
    first: usize,
    last: usize,
}

impl LinkedPartitions {
    fn with_capacity(capacity: usize) -> Self {
        Self {
            index: HashMap::with_capacity(capacity),
            nodes: Vec::with_capacity(capacity),
            free: Vec::new(),
            first: NONE,
            last: NONE,
        }
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    fn get_mut(&mut self, key: &Key) -> Option<(usize, &mut CachedPartition)> {
        let at = *self.index.get(key)?;
        self.nodes[at].as_mut().map(|node| (at, &mut node.value))
    }

    fn node(&mut self, at: usize) -> Option<&mut Node> {
        self.nodes.get_mut(at).and_then(Option::as_mut)
    }

    fn push(&mut self, value: CachedPartition) {
        let key = value.partition.key();
        let node = Node {
            value,
            previous: NONE,
            next: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at] = Some(node);
                at
            }
            None => {
                self.nodes.push(Some(node));
                self.nodes.len() - 1
            }
        };
        self.link_last(at);
        self.index.insert(key, at);
    }

    fn link_last(&mut self, at: usize) {
        let last = self.last;
        if let Some(node) = self.node(at) {
            node.previous = last;
            node.next = NONE;
        }
        match self.node(last) {
            Some(node) => node.next = at,
            None => self.first = at,
        }
        self.last = at;
    }

    fn unlink(&mut self, at: usize) {
        let Some((previous, next)) = self.node(at).map(|node| (node.previous, node.next)) else {
            return;
        };
        match self.node(previous) {
            Some(node) => node.next = next,
            None => self.first = next,
        }
        match self.node(next) {
            Some(node) => node.previous = previous,
            None => self.last = previous,
        }
    }

    fn move_to_end(&mut self, at: usize) {
        self.unlink(at);
        self.link_last(at);
    }

    fn remove(&mut self, key: &Key) -> bool {
        let Some(at) = self.index.remove(key) else {
            return false;
        };
        self.unlink(at);
        self.nodes[at] = None;
        self.free.push(at);
        true
    }

    fn for_each(&mut self, mut visit: impl FnMut(&mut CachedPartition)) {
        let mut at = self.first;
        while let Some(node) = self.node(at) {
            visit(&mut node.value);
            at = node.next;
        }
    }
}

#[derive(Debug)]
struct FetchSession {
    id: i32,
    /// Made by a follower.
    privileged: bool,
    uses_topic_ids: bool,
    created_ms: i64,
    last_used_ms: i64,
    epoch: i32,
    partitions: LinkedPartitions,
    /// The size under which it stands in the eviction order.
    cached_size: usize,
}

type EvictableKey = (bool, usize, i32);

impl FetchSession {
    fn evictable_key(&self) -> EvictableKey {
        (self.privileged, self.cached_size, self.id)
    }

    fn update(&mut self, fetch: Vec<(SessionPartition, FetchPartition)>, forgotten: &[SessionPartition]) {
        for (partition, request) in fetch {
            match self.partitions.get_mut(&partition.key()) {
                Some((_, cached)) => cached.request = request,
                None => self.partitions.push(CachedPartition {
                    partition,
                    request,
                    high_watermark: -1,
                    local_log_start_offset: -1,
                }),
            }
        }
        for partition in forgotten {
            self.partitions.remove(&partition.key());
        }
    }

    fn all_partitions(
        &mut self,
        topic_name: &dyn Fn(Uuid) -> Option<Arc<str>>,
    ) -> Vec<(SessionPartition, FetchPartition)> {
        let mut all = Vec::with_capacity(self.partitions.len());
        self.partitions.for_each(|cached| {
            if cached.partition.topic.is_none() {
                cached.partition.topic = topic_name(cached.partition.topic_id);
            }
            all.push((cached.partition.clone(), cached.request));
        });
        all
    }
}

/// One shard of the cache: a bounded number of sessions and who of them gives way to whom.
#[derive(Debug)]
pub struct FetchSessionShard {
    slots: usize,
    first_id: i32,
    id_range: i32,
    sessions: HashMap<i32, FetchSession>,
    last_used: BTreeSet<(i64, i32)>,
    evictable_by_all: BTreeSet<EvictableKey>,
    evictable_by_privileged: BTreeSet<EvictableKey>,
    partitions: usize,
    evictions: u64,
}

/// Which shard a session id belongs to.
pub fn shard_of(session_id: i32) -> usize {
    let id_range = i32::MAX / SHARDS;
    (session_id / id_range).clamp(0, SHARDS - 1) as usize
}

impl FetchSessionShard {
    /// Shard `number` of `SHARDS`, with its share of all `slots`.
    pub fn new(number: i32, slots: usize) -> Self {
        let id_range = i32::MAX / SHARDS;
        Self {
            slots: slots / SHARDS as usize,
            first_id: (number * id_range).max(1),
            id_range: id_range - i32::from(number == 0),
            sessions: HashMap::new(),
            last_used: BTreeSet::new(),
            evictable_by_all: BTreeSet::new(),
            evictable_by_privileged: BTreeSet::new(),
            partitions: 0,
            evictions: 0,
        }
    }

    /// Sessions, their partitions, and sessions evicted so far: Kafka's three metrics of a shard.
    pub fn counts(&self) -> (usize, usize, u64) {
        (self.sessions.len(), self.partitions, self.evictions)
    }

    /// What a request with `metadata` is about. `fetch` holds no partition twice; `uses_topic_ids` is that of the request's version.
    pub fn new_context(
        &mut self,
        metadata: FetchMetadata,
        uses_topic_ids: bool,
        fetch: Vec<(SessionPartition, FetchPartition)>,
        forgotten: &[SessionPartition],
        topic_name: &dyn Fn(Uuid) -> Option<Arc<str>>,
        now_ms: i64,
    ) -> FetchContext {
        if metadata.is_full() {
            // A session named in a full request is closed.
            self.remove(metadata.session_id);
            return match metadata.epoch {
                FINAL_EPOCH => FetchContext::Sessionless(fetch),
                _ => FetchContext::Full(fetch),
            };
        }
        let Some(session) = self.sessions.get_mut(&metadata.session_id) else {
            return FetchContext::Error(SessionError::IdNotFound);
        };
        if session.epoch != metadata.epoch {
            return FetchContext::Error(SessionError::InvalidEpoch);
        }
        if session.uses_topic_ids != uses_topic_ids {
            return FetchContext::Error(SessionError::TopicId);
        }
        if !fetch.iter().all(|(partition, _)| partition.may_be_remembered()) {
            return self.give_up(metadata.session_id);
        }
        // Only a request that forgets what it names can leave both the session empty and something to read.
        let left = if forgotten.is_empty() {
            Vec::new()
        } else {
            fetch.clone()
        };
        session.update(fetch, forgotten);
        if session.partitions.len() == 0 {
            self.remove(metadata.session_id);
            return FetchContext::Sessionless(left);
        }
        if self.partitions - session.cached_size + session.partitions.len() > SHARD_PARTITIONS_MAX {
            return self.give_up(metadata.session_id);
        }
        session.epoch = next_epoch(session.epoch);
        let (epoch, partitions) = (session.epoch, session.all_partitions(topic_name));
        self.touch(metadata.session_id, now_ms);
        FetchContext::Incremental {
            session_id: metadata.session_id,
            epoch,
            partitions,
        }
    }

    /// As if it had been evicted: the fetcher begins anew.
    fn give_up(&mut self, session_id: i32) -> FetchContext {
        self.remove(session_id);
        self.evictions += 1;
        FetchContext::Error(SessionError::IdNotFound)
    }

    /// Makes a session out of a full request and its answer, if there is room or someone gives way. Returns its id or `INVALID_SESSION_ID`.
    /// `random` yields any number; it is asked again while the id is taken.
    pub fn maybe_create(
        &mut self,
        privileged: bool,
        uses_topic_ids: bool,
        answers: &[FetchAnswer],
        random: &mut dyn FnMut() -> u32,
        now_ms: i64,
    ) -> i32 {
        if self.partitions + answers.len() > SHARD_PARTITIONS_MAX {
            self.evict_unused(now_ms);
        }
        let may_be = |answer: &FetchAnswer| answer.partition.may_be_remembered();
        if self.partitions + answers.len() > SHARD_PARTITIONS_MAX || !answers.iter().all(may_be) {
            return INVALID_SESSION_ID;
        }
        let room = self.sessions.len() < self.slots
            || self.try_evict(privileged, (privileged, answers.len(), 0), now_ms);
        if !room {
            return INVALID_SESSION_ID;
        }
        let mut partitions = LinkedPartitions::with_capacity(answers.len());
        for answer in answers {
            partitions.push(CachedPartition {
                partition: answer.partition.clone(),
                request: answer.request,
                high_watermark: answer.data.high_watermark,
                local_log_start_offset: answer.data.log_start_offset,
            });
        }
        let id = self.new_session_id(random);
        let session = FetchSession {
            id,
            privileged,
            uses_topic_ids,
            created_ms: now_ms,
            last_used_ms: now_ms,
            epoch: next_epoch(INITIAL_EPOCH),
            partitions,
            cached_size: 0,
        };
        self.sessions.insert(id, session);
        self.touch(id, now_ms);
        id
    }

    /// Drops from `answers` what the fetcher of an incremental request knows already. `epoch` is that of the context.
    /// On an error (the session was used or closed meanwhile) the answer holds no partition.
    pub fn finish_incremental(
        &mut self,
        session_id: i32,
        epoch: i32,
        answers: &mut Vec<FetchAnswer>,
    ) -> Result<(), SessionError> {
        // An evicted session still answers the request that was under way, as in Kafka: nothing is remembered, all is sent.
        let Some(session) = self.sessions.get_mut(&session_id) else {
            return Ok(());
        };
        if session.epoch != epoch {
            answers.clear();
            return Err(SessionError::InvalidEpoch);
        }
        answers.retain(|answer| {
            let Some((at, cached)) = session.partitions.get_mut(&answer.partition.key()) else {
                return true;
            };
            let must_respond = cached.update_and_check(&answer.data);
            if must_respond && !answer.data.records.is_empty() {
                session.partitions.move_to_end(at);
            }
            must_respond
        });
        Ok(())
    }

    fn new_session_id(&self, random: &mut dyn FnMut() -> u32) -> i32 {
        loop {
            let id = self.first_id + (random() % self.id_range as u32) as i32;
            if !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }

    /// A new session A makes an old session B give way if B was not used for long, or A is privileged and B is not, or A is larger than B
    /// and B not young.
    fn try_evict(&mut self, privileged: bool, key: EvictableKey, now_ms: i64) -> bool {
        let Some(&(last_used_ms, oldest)) = self.last_used.first() else {
            return false;
        };
        let victim = if now_ms - last_used_ms > MIN_EVICTION_MS {
            oldest
        } else {
            let evictable = if privileged {
                &self.evictable_by_privileged
            } else {
                &self.evictable_by_all
            };
            match evictable.first() {
                Some(first) if key >= *first => first.2,
                _ => return false,
            }
        };
        self.remove(victim);
        self.evictions += 1;
        true
    }

    /// Those that were not used for long.
    fn evict_unused(&mut self, now_ms: i64) {
        while let Some(&(last_used_ms, oldest)) = self.last_used.first()
            && now_ms - last_used_ms > MIN_EVICTION_MS
        {
            self.remove(oldest);
            self.evictions += 1;
        }
    }

    fn remove(&mut self, session_id: i32) {
        let Some(session) = self.sessions.remove(&session_id) else {
            return;
        };
        self.last_used.remove(&(session.last_used_ms, session_id));
        self.evictable_by_all.remove(&session.evictable_key());
        self.evictable_by_privileged.remove(&session.evictable_key());
        self.partitions -= session.cached_size;
    }

    fn touch(&mut self, session_id: i32, now_ms: i64) {
        let Some(session) = self.sessions.get_mut(&session_id) else {
            return;
        };
        self.last_used.remove(&(session.last_used_ms, session_id));
        self.evictable_by_all.remove(&session.evictable_key());
        self.evictable_by_privileged.remove(&session.evictable_key());
        self.partitions -= session.cached_size;

        session.last_used_ms = now_ms;
        session.cached_size = session.partitions.len();
        self.partitions += session.cached_size;
        self.last_used.insert((now_ms, session_id));
        let old_enough = now_ms - session.created_ms > MIN_EVICTION_MS;
        if !session.privileged || old_enough {
            self.evictable_by_privileged.insert(session.evictable_key());
        }
        if old_enough {
            self.evictable_by_all.insert(session.evictable_key());
        }
    }
}

#[cfg(test)]
#[path = "fetch_session_test.rs"]
mod fetch_session_test;
