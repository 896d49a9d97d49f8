//! What a leader knows of the others, and how the high watermark follows from it. Pure.
//!
//! The high watermark is the largest offset that a majority of voters have on disk, once it lies above the epoch's start
//! (so that a record of this epoch is among them: Raft's commitment rule). A follower's fetch at offset n says that
//! it has flushed all below n. For this node counts what it has flushed, not what it has written: the JVM leader
//! counts the latter, and with one voter thereby acknowledges what is not on disk.

use std::collections::BTreeMap;

use super::rpc::ReplicaStatus;
use super::voters::{ReplicaKey, VoterSet};

/// An observer that has not fetched for so long is forgotten.
pub const OBSERVER_SESSION_TIMEOUT_MS: i64 = 300_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderState {
    pub epoch_start_offset: i64,
    pub granting_voters: Vec<i32>,
    pub high_watermark: Option<i64>,
    local: ReplicaKey,
    /// What this node has on disk.
    flushed_end_offset: Option<i64>,
    log_end_offset: i64,
    voters: BTreeMap<i32, ReplicaState>,
    observers: BTreeMap<ReplicaKey, ReplicaState>,
}

/// A replica's progress. Times are wall-clock, as DescribeQuorum shows them; -1: never.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReplicaState {
    key: ReplicaKey,
    end_offset: Option<i64>,
    last_fetch_timestamp: i64,
    last_fetch_leader_log_end_offset: i64,
    last_caught_up_timestamp: i64,
}

impl ReplicaState {
    fn new(key: ReplicaKey) -> Self {
        Self {
            key,
            end_offset: None,
            last_fetch_timestamp: -1,
            last_fetch_leader_log_end_offset: -1,
            last_caught_up_timestamp: -1,
        }
    }

    /// A replica that reaches what was the log end at its previous fetch was caught up then.
    fn fetched(&mut self, wall_ms: i64, fetch_offset: i64, leader_log_end_offset: i64) {
        if fetch_offset >= leader_log_end_offset {
            self.last_caught_up_timestamp = self.last_caught_up_timestamp.max(wall_ms);
        } else if self.last_fetch_leader_log_end_offset > 0
            && fetch_offset >= self.last_fetch_leader_log_end_offset
        {
            self.last_caught_up_timestamp = self.last_caught_up_timestamp.max(self.last_fetch_timestamp);
        }
        self.last_fetch_leader_log_end_offset = leader_log_end_offset;
        self.last_fetch_timestamp = self.last_fetch_timestamp.max(wall_ms);
        self.end_offset = Some(fetch_offset);
    }

    fn status(&self) -> ReplicaStatus {
        ReplicaStatus {
            replica_id: self.key.id,
            replica_directory_id: self.key.directory_id_or_nil(),
            log_end_offset: self.end_offset.unwrap_or(-1),
            last_fetch_timestamp: self.last_fetch_timestamp,
            last_caught_up_timestamp: self.last_caught_up_timestamp,
        }
    }
}

impl LeaderState {
    pub fn new(
        local: ReplicaKey,
        epoch_start_offset: i64,
        granting_voters: Vec<i32>,
        voters: &VoterSet,
    ) -> Self {
        let mut state = Self {
            epoch_start_offset,
            granting_voters,
            high_watermark: None,
            local,
            flushed_end_offset: None,
            log_end_offset: epoch_start_offset,
            voters: BTreeMap::new(),
            observers: BTreeMap::new(),
        };
        state.update_voters(voters);
        state
    }

    pub fn voter_ids(&self) -> Vec<i32> {
        self.voters.keys().copied().collect()
    }

    /// Takes over a new voter set: who joins or leaves keeps its progress.
    pub fn update_voters(&mut self, voters: &VoterSet) {
        let mut old = std::mem::take(&mut self.voters);
        for node in voters.nodes() {
            let known = match old.remove(&node.key.id) {
                Some(state) if state.key.matches(&node.key) => Some(state),
                Some(other_directory) => {
                    self.observers.insert(other_directory.key, other_directory);
                    None
                }
                None => None,
            };
            let mut state = known
                .or_else(|| self.observers.remove(&node.key))
                .unwrap_or_else(|| ReplicaState::new(node.key));
            state.key = node.key;
            self.voters.insert(node.key.id, state);
        }
        for state in old.into_values() {
            self.observers.insert(state.key, state);
        }
    }

    pub fn appended(&mut self, log_end_offset: i64) {
        assert!(
            log_end_offset >= self.log_end_offset,
            "a leader's log never shrinks"
        );
        self.log_end_offset = log_end_offset;
    }

    /// Returns whether the high watermark moved.
    pub fn flushed(&mut self, end_offset: i64) -> bool {
        assert!(end_offset <= self.log_end_offset, "more flushed than written");
        self.flushed_end_offset = self.flushed_end_offset.max(Some(end_offset));
        self.maybe_update_high_watermark()
    }

    /// A valid fetch of another replica. Returns whether the high watermark moved.
    pub fn replica_fetched(&mut self, replica: ReplicaKey, wall_ms: i64, fetch_offset: i64) -> bool {
        let log_end_offset = self.log_end_offset;
        match self.voters.get_mut(&replica.id) {
            Some(voter) if voter.key.matches(&replica) => {
                voter.fetched(wall_ms, fetch_offset, log_end_offset);
                self.maybe_update_high_watermark()
            }
            _ => {
                self.observers
                    .entry(replica)
                    .or_insert_with(|| ReplicaState::new(replica))
                    .fetched(wall_ms, fetch_offset, log_end_offset);
                false
            }
        }
    }

    fn maybe_update_high_watermark(&mut self) -> bool {
        let mut ends: Vec<Option<i64>> = self
            .voters
            .values()
            .map(|voter| {
                if voter.key.matches(&self.local) {
                    self.flushed_end_offset
                } else {
                    voter.end_offset
                }
            })
            .collect();
        ends.sort_unstable_by(|left, right| right.cmp(left));
        match ends.get(ends.len() / 2).copied().flatten() {
            Some(end) if end > self.epoch_start_offset && Some(end) > self.high_watermark => {
                self.high_watermark = Some(end);
                true
            }
            _ => false,
        }
    }

    fn local_status(&self, wall_ms: i64, key: ReplicaKey) -> ReplicaStatus {
        ReplicaStatus {
            replica_id: key.id,
            replica_directory_id: key.directory_id_or_nil(),
            log_end_offset: self.log_end_offset,
            last_fetch_timestamp: wall_ms,
            last_caught_up_timestamp: wall_ms,
        }
    }

    pub fn voter_statuses(&self, wall_ms: i64) -> Vec<ReplicaStatus> {
        self.voters
            .values()
            .map(|voter| {
                if voter.key.matches(&self.local) {
                    self.local_status(wall_ms, voter.key)
                } else {
                    voter.status()
                }
            })
            .collect()
    }

    /// Forgets those that were silent for too long, and lists the rest.
    pub fn observer_statuses(&mut self, wall_ms: i64) -> Vec<ReplicaStatus> {
        let local = self.local;
        self.observers.retain(|key, state| {
            *key == local || wall_ms - state.last_fetch_timestamp < OBSERVER_SESSION_TIMEOUT_MS
        });
        self.observers
            .values()
            .map(|observer| {
                if observer.key == local {
                    self.local_status(wall_ms, local)
                } else {
                    observer.status()
                }
            })
            .collect()
    }
}
