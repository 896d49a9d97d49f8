//! The rules of one partition's replication, pure: epochs, ISR, followers' progress, high watermark.
//!
//! ISR states (KIP-497; a leader never changes the committed ISR by itself, it asks the controller by AlterPartition):
//!
//! ```text
//! state          isr        maximal isr       arrow
//! Committed      isr        isr               follower caught up -> PendingExpand; follower lags -> PendingShrink
//! PendingExpand  committed  committed + new   answered -> Committed (new ISR); refused -> Committed (as before)
//! PendingShrink  committed  committed         answered -> Committed (new ISR); refused -> Committed (as before)
//! ```
//!
//! The maximal ISR counts for the high watermark and for acknowledgements: waiting for one replica more is always safe.
//! A metadata record with a newer partition epoch ends any pending state. The leader's high watermark never goes back.

use crate::log::LogOffsetMetadata;
use crate::metadata::PartitionRegistration;
use crate::replica::ReplicaError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IsrState {
    Committed {
        isr: Vec<i32>,
    },
    PendingExpand {
        isr: Vec<i32>,
        new_in_sync_replica: i32,
    },
    PendingShrink {
        isr: Vec<i32>,
        out_of_sync_replicas: Vec<i32>,
    },
}

impl Default for IsrState {
    fn default() -> Self {
        Self::Committed { isr: Vec::new() }
    }
}

impl IsrState {
    /// What the controller knows.
    pub fn isr(&self) -> &[i32] {
        match self {
            Self::Committed { isr } | Self::PendingExpand { isr, .. } | Self::PendingShrink { isr, .. } => {
                isr
            }
        }
    }

    pub fn is_in_maximal_isr(&self, replica: i32) -> bool {
        let joins = matches!(self, Self::PendingExpand { new_in_sync_replica, .. } if *new_in_sync_replica == replica);
        joins || self.isr().contains(&replica)
    }

    pub fn maximal_isr_size(&self) -> usize {
        self.isr().len() + usize::from(matches!(self, Self::PendingExpand { .. }))
    }

    pub fn is_inflight(&self) -> bool {
        !matches!(self, Self::Committed { .. })
    }
}

/// Who leads, since when, and who replicates: what the metadata said last, and pending changes of the ISR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    pub leader_id: i32,
    /// -1 before the first metadata.
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    /// The log end offset when this node became the leader of this epoch; `None` on a follower.
    pub leader_epoch_start_offset: Option<i64>,
    pub replicas: Vec<i32>,
    pub isr: IsrState,
}

impl Default for PartitionState {
    fn default() -> Self {
        Self {
            leader_id: crate::metadata::NO_LEADER,
            leader_epoch: -1,
            partition_epoch: -1,
            leader_epoch_start_offset: None,
            replicas: Vec::new(),
            isr: IsrState::default(),
        }
    }
}

impl PartitionState {
    /// Takes over what the metadata says of the assignment; the caller sets `leader_epoch_start_offset`.
    pub fn follow_metadata(&mut self, registration: &PartitionRegistration) {
        self.leader_id = registration.leader;
        self.leader_epoch = registration.leader_epoch;
        self.partition_epoch = registration.partition_epoch;
        self.replicas.clone_from(&registration.replicas);
        self.isr = IsrState::Committed {
            isr: registration.isr.clone(),
        };
    }

    /// An epoch that a request names must be the current one (KIP-320).
    pub fn check_leader_epoch(&self, requested: Option<i32>) -> Result<(), ReplicaError> {
        let current = self.leader_epoch;
        match requested {
            Some(requested) if requested < current => {
                Err(ReplicaError::FencedLeaderEpoch { requested, current })
            }
            Some(requested) if requested > current => {
                Err(ReplicaError::UnknownLeaderEpoch { requested, current })
            }
            _ => Ok(()),
        }
    }

    /// `min.insync.replicas`, but never more than there are replicas.
    pub fn effective_min_isr(&self, min_insync_replicas: i32) -> usize {
        (min_insync_replicas.max(0) as usize).min(self.replicas.len().max(1))
    }
}

/// What the leader knows of one follower (`Replica`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowerState {
    pub replica_id: i32,
    pub log_start_offset: i64,
    pub log_end_offset: LogOffsetMetadata,
    /// The leader's log end offset at the follower's last fetch, and when that was.
    pub last_fetch_leader_log_end_offset: i64,
    pub last_fetch_time_ms: i64,
    /// The last time it had all that the leader had.
    pub last_caught_up_time_ms: i64,
    pub broker_epoch: i64,
}

impl FollowerState {
    pub fn new(replica_id: i32) -> Self {
        Self {
            replica_id,
            log_start_offset: -1,
            log_end_offset: LogOffsetMetadata::offset_only(-1),
            last_fetch_leader_log_end_offset: 0,
            last_fetch_time_ms: 0,
            last_caught_up_time_ms: 0,
            broker_epoch: -1,
        }
    }

    /// At a new leader epoch: members of the ISR count as caught up now, others as never.
    pub fn reset(&mut self, now_ms: i64, leader_end_offset: i64, is_new_leader: bool, in_sync: bool) {
        self.last_caught_up_time_ms = if in_sync { now_ms } else { 0 };
        if is_new_leader {
            self.log_start_offset = -1;
            self.log_end_offset = LogOffsetMetadata::offset_only(-1);
            self.last_fetch_leader_log_end_offset = -1;
            self.last_fetch_time_ms = 0;
            self.broker_epoch = -1;
        } else {
            self.last_fetch_leader_log_end_offset = leader_end_offset;
            self.last_fetch_time_ms = if in_sync { now_ms } else { 0 };
        }
    }

    /// A fetch from `fetch_offset` on: it has all before. Caught up now if that is all there is; caught up at its last fetch if it has now
    /// what was all there was then (a follower under steady load never has all at the moment it asks).
    pub fn record_fetch(
        &mut self,
        fetch_offset: LogOffsetMetadata,
        log_start_offset: i64,
        now_ms: i64,
        leader_end_offset: i64,
        broker_epoch: i64,
    ) {
        if fetch_offset.message_offset >= leader_end_offset {
            self.last_caught_up_time_ms = self.last_caught_up_time_ms.max(now_ms);
        } else if fetch_offset.message_offset >= self.last_fetch_leader_log_end_offset {
            self.last_caught_up_time_ms = self.last_caught_up_time_ms.max(self.last_fetch_time_ms);
        }
        self.log_start_offset = log_start_offset;
        self.log_end_offset = fetch_offset;
        self.last_fetch_leader_log_end_offset = self.last_fetch_leader_log_end_offset.max(leader_end_offset);
        self.last_fetch_time_ms = now_ms;
        self.broker_epoch = broker_epoch;
    }

    pub fn is_caught_up(&self, leader_end_offset: i64, now_ms: i64, replica_lag_time_max_ms: i64) -> bool {
        leader_end_offset == self.log_end_offset.message_offset
            || now_ms - self.last_caught_up_time_ms <= replica_lag_time_max_ms
    }
}

/// The highest offset that the leader's high watermark may take: what every replica of the maximal ISR has, and every one that is about
/// to join it (else one that catches up would never get past the high watermark of an ISR of one). `None` under min ISR: it stalls.
pub fn high_watermark_candidate(
    state: &PartitionState,
    min_insync_replicas: i32,
    leader_end_offset: LogOffsetMetadata,
    followers: &[FollowerState],
    may_join: impl Fn(&FollowerState) -> bool,
) -> Option<LogOffsetMetadata> {
    if state.isr.isr().len() < state.effective_min_isr(min_insync_replicas) {
        return None;
    }
    let mut candidate = leader_end_offset;
    for follower in followers {
        let behind = follower.log_end_offset.message_offset < candidate.message_offset;
        if behind && (state.isr.is_in_maximal_isr(follower.replica_id) || may_join(follower)) {
            candidate = follower.log_end_offset;
        }
    }
    Some(candidate)
}

#[cfg(test)]
#[path = "replica_state_test.rs"]
mod replica_state_test;
