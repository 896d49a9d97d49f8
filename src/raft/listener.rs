//! What raft hands to the controller and to the metadata loader.

use super::{LeaderAndEpoch, MetadataRecord, OffsetAndEpoch, RaftError};

/// One committed batch of the metadata log, or one batch of a snapshot.
///
/// A control batch (leader change, voters) comes with empty `records`: it moves the offset all the same.
#[derive(Debug, Clone, PartialEq)]
pub struct CommittedBatch {
    pub base_offset: i64,
    pub last_offset: i64,
    pub epoch: i32,
    pub append_timestamp: i64,
    pub size_in_bytes: usize,
    pub records: Vec<MetadataRecord>,
}

/// Called on the raft thread, never at the same time, and must be quick: hand over to a channel.
///
/// Order: `handle_load_snapshot` (if there is one) before the batches that follow it; a change to *this node is the leader*
/// only after all that was committed before its epoch (up to its LeaderChange record) was handed over, any other
/// change at once.
pub trait RaftListener: Send + 'static {
    fn handle_commit(&mut self, batches: Vec<CommittedBatch>);
    fn handle_load_snapshot(&mut self, snapshot: SnapshotContents);
    fn handle_leader_change(&mut self, leader: LeaderAndEpoch);
    /// Raft stops because the disk failed or holds nonsense: nothing will be committed any more. The node must end.
    fn handle_fatal_error(&mut self, error: &RaftError);
    /// Raft was shut down in order; no call follows.
    fn begin_shutdown(&mut self) {}
}

/// A snapshot being read, batch by batch (it may be larger than memory should hold).
pub struct SnapshotContents {
    pub snapshot_id: OffsetAndEpoch,
    /// Append time of the last record that the snapshot covers.
    pub last_contained_log_timestamp: i64,
    batches: Box<dyn Iterator<Item = Result<CommittedBatch, RaftError>> + Send>,
}

impl SnapshotContents {
    /// The iterator yields data batches only. Tests of listeners may make their own.
    pub fn new(
        snapshot_id: OffsetAndEpoch,
        last_contained_log_timestamp: i64,
        batches: Box<dyn Iterator<Item = Result<CommittedBatch, RaftError>> + Send>,
    ) -> Self {
        Self {
            snapshot_id,
            last_contained_log_timestamp,
            batches,
        }
    }

    /// The offset of the last record that the snapshot covers.
    pub fn last_contained_log_offset(&self) -> i64 {
        self.snapshot_id.offset - 1
    }
}

impl Iterator for SnapshotContents {
    type Item = Result<CommittedBatch, RaftError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

impl std::fmt::Debug for SnapshotContents {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SnapshotContents")
            .field("snapshot_id", &self.snapshot_id)
            .field("last_contained_log_timestamp", &self.last_contained_log_timestamp)
            .finish_non_exhaustive()
    }
}
