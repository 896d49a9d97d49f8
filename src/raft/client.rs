//! The handle to raft that the rest of the node holds. Cheap to clone; all calls may come from any thread.
#![allow(clippy::todo)]

use std::sync::Arc;

use super::{Endpoint, LeaderAndEpoch, OffsetAndEpoch, RaftError, RaftListener, VersionedRecord};

#[derive(Clone, Debug)]
pub struct RaftClient {
    shared: Arc<()>,
}

impl RaftClient {
    pub fn node_id(&self) -> i32 {
        let _ = &self.shared;
        todo!()
    }

    /// Hands one atomic batch to the log of `epoch`; returns the offset of its last record at once. It is committed when a
    /// listener gets it; if the leadership is lost first it may never be. Does not wait for the disk.
    pub fn append(&self, epoch: i32, records: Vec<VersionedRecord>) -> Result<i64, RaftError> {
        let _ = (epoch, records);
        todo!()
    }

    pub fn leader_and_epoch(&self) -> LeaderAndEpoch {
        todo!()
    }

    /// Where the leader listens for other controllers and brokers, if known.
    pub fn leader_endpoint(&self) -> Option<Endpoint> {
        todo!()
    }

    /// `None` until this node knows it (a leader: until its LeaderChange record is committed).
    pub fn high_watermark(&self) -> Option<i64> {
        todo!()
    }

    pub fn log_end_offset(&self) -> i64 {
        todo!()
    }

    /// `kraft.version` as the log has it.
    pub fn kraft_version(&self) -> i16 {
        todo!()
    }

    pub fn latest_snapshot_id(&self) -> Option<OffsetAndEpoch> {
        todo!()
    }

    /// The listener is called from the raft thread, first with the latest snapshot and all that is committed.
    pub fn register(&self, listener: Box<dyn RaftListener>) {
        let _ = listener;
        todo!()
    }

    /// Writes a snapshot of all up to `id.offset` (exclusive) on the calling thread. `false`: there is one already, or the log
    /// starts behind it.
    pub fn create_snapshot(
        &self,
        id: OffsetAndEpoch,
        last_contained_log_timestamp: i64,
        records: &mut dyn Iterator<Item = VersionedRecord>,
    ) -> Result<bool, RaftError> {
        let _ = (id, last_contained_log_timestamp, records);
        todo!()
    }

    /// Gives up the leadership of `epoch` (nothing happens if it is over already).
    pub fn resign(&self, epoch: i32) {
        let _ = epoch;
        todo!()
    }

    /// Ends the raft thread after all that was appended is on disk, and waits for it.
    pub fn shutdown(&self) {
        todo!()
    }
}
