//! Remote requests and their answers as values, without versions or codecs: `api` translates. Pure.

use uuid::Uuid;

use super::voters::ReplicaKey;
use super::{Endpoint, OffsetAndEpoch};
use crate::protocol::error_code::ErrorCode;

/// What names the receiver in Vote, BeginQuorumEpoch and EndQuorumEpoch; `None` in old versions: anybody.
pub type VoterKey = Option<ReplicaKey>;

/// Fetch of the metadata partition (the topic has been checked).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataFetch {
    pub cluster_id: Option<String>,
    pub replica: ReplicaKey,
    pub max_wait_ms: i32,
    pub current_leader_epoch: i32,
    pub fetch_offset: i64,
    pub last_fetched_epoch: i32,
    /// From version 18 (KIP-1166): what the replica knows, -1 if nothing; `i64::MAX` in older versions.
    pub high_watermark: i64,
}

/// FetchSnapshot of the metadata partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFetch {
    pub cluster_id: Option<String>,
    pub replica: ReplicaKey,
    pub max_bytes: i32,
    pub current_leader_epoch: i32,
    pub snapshot_id: OffsetAndEpoch,
    pub position: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoteRequest {
    pub cluster_id: Option<String>,
    pub voter: VoterKey,
    pub candidate: ReplicaKey,
    pub candidate_epoch: i32,
    pub last_epoch: i32,
    pub last_epoch_end_offset: i64,
    pub pre_vote: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginQuorumEpochRequest {
    pub cluster_id: Option<String>,
    pub voter: VoterKey,
    pub leader_id: i32,
    pub leader_epoch: i32,
    /// Empty in version 0: then the voter set knows.
    pub leader_endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndQuorumEpochRequest {
    pub cluster_id: Option<String>,
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub preferred_candidates: Vec<ReplicaKey>,
    pub leader_endpoints: Vec<Endpoint>,
}

/// Who leads, as every partition-level answer says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentLeader {
    pub leader_id: Option<i32>,
    pub epoch: i32,
    /// All its listeners; the answer carries the one that the request came in by, if there is one.
    pub endpoints: Vec<Endpoint>,
}

impl CurrentLeader {
    pub fn leader_id_or_sentinel(&self) -> i32 {
        self.leader_id.unwrap_or(-1)
    }

    pub fn endpoint(&self, listener_name: &str) -> Option<&Endpoint> {
        self.endpoints
            .iter()
            .find(|endpoint| &*endpoint.name == listener_name)
    }
}

/// An error for the whole request (`Top`), or an answer with an error code for the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Top(ErrorCode),
    Fetch(FetchAnswer),
    FetchSnapshot(SnapshotAnswer),
    Vote {
        error: ErrorCode,
        leader: CurrentLeader,
        vote_granted: bool,
    },
    QuorumEpoch {
        error: ErrorCode,
        leader: CurrentLeader,
    },
    DescribeQuorum(QuorumDescription),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchAnswer {
    pub error: ErrorCode,
    pub leader: CurrentLeader,
    /// -1: unknown, or there is an error.
    pub high_watermark: i64,
    pub log_start_offset: i64,
    pub content: FetchContent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchContent {
    Nothing,
    /// Batches from this offset to the log end (they may be uncommitted).
    RecordsFrom(i64),
    /// The replica has what the log never had: truncate to this.
    Diverging(OffsetAndEpoch),
    /// Fetch this snapshot instead.
    Snapshot(OffsetAndEpoch),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotAnswer {
    pub error: ErrorCode,
    pub leader: CurrentLeader,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumDescription {
    /// `NOT_LEADER_OR_FOLLOWER` comes alone.
    pub error: ErrorCode,
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub high_watermark: i64,
    pub voters: Vec<ReplicaStatus>,
    pub observers: Vec<ReplicaStatus>,
    /// The voters' listeners.
    pub nodes: Vec<(i32, Vec<Endpoint>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaStatus {
    pub replica_id: i32,
    pub replica_directory_id: Uuid,
    /// -1: it has not fetched in this epoch.
    pub log_end_offset: i64,
    pub last_fetch_timestamp: i64,
    pub last_caught_up_timestamp: i64,
}
