//! What a fetch, a ListOffsets and an OffsetForLeaderEpoch ask of a partition, and what they get: plain data.

use crate::io::disk::FileSlice;
pub use crate::log::{AbortedTransaction, FetchIsolation};
use crate::replica::{ReplicaError, TopicIdPartition};

/// What holds for the whole fetch (`FetchParams`).
#[derive(Debug, Clone)]
pub struct FetchParams {
    /// -1 for consumers, a broker's id for its replica fetcher.
    pub replica_id: i32,
    /// The broker epoch that the fetching follower says it has; -1 where it says none.
    pub replica_epoch: i64,
    pub max_wait_ms: u64,
    pub min_bytes: usize,
    pub max_bytes: usize,
    pub isolation: FetchIsolation,
    /// KIP-392: a consumer may read from a follower.
    pub allow_follower: bool,
}

impl FetchParams {
    pub const ORDINARY_CONSUMER_ID: i32 = -1;

    pub fn is_from_follower(&self) -> bool {
        self.replica_id >= 0
    }
}

/// What a fetch wants of one partition (`FetchRequest.PartitionData`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPartition {
    pub fetch_offset: i64,
    /// The follower's log start offset; -1 for consumers.
    pub log_start_offset: i64,
    pub max_bytes: i32,
    pub current_leader_epoch: Option<i32>,
    pub last_fetched_epoch: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DivergingEpoch {
    pub epoch: i32,
    pub end_offset: i64,
}

/// One partition's part of the answer (`FetchPartitionData`). Offsets are -1 where Kafka answers -1.
#[derive(Debug, Clone)]
pub struct FetchPartitionData {
    pub error: Option<ReplicaError>,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// `None` unless the fetch was read_committed.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    pub diverging_epoch: Option<DivergingEpoch>,
    /// -1: none.
    pub preferred_read_replica: i32,
    /// The records, as byte ranges of files, in order.
    pub records: Vec<FileSlice>,
}

impl FetchPartitionData {
    pub const INVALID_OFFSET: i64 = -1;

    /// What Kafka answers beside an error: -1 everywhere.
    pub fn failed(error: ReplicaError) -> Self {
        Self {
            error: Some(error),
            high_watermark: Self::INVALID_OFFSET,
            last_stable_offset: Self::INVALID_OFFSET,
            log_start_offset: Self::INVALID_OFFSET,
            aborted_transactions: None,
            diverging_epoch: None,
            preferred_read_replica: -1,
            records: Vec::new(),
        }
    }

    pub fn records_size(&self) -> usize {
        self.records.iter().map(|slice| slice.length).sum()
    }
}

/// The answer, in the order of the request.
pub type FetchResult = Vec<(TopicIdPartition, FetchPartitionData)>;

/// What a ListOffsets asks for: the negative time stamps of the protocol, or a real one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetSpec {
    Latest,
    Earliest,
    MaxTimestamp,
    EarliestLocal,
    LatestTiered,
    EarliestPendingUpload,
    Timestamp(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetResult {
    /// -1: none.
    pub timestamp: i64,
    /// -1: no such offset.
    pub offset: i64,
    pub leader_epoch: Option<i32>,
}

/// A slice of no file in particular, for tests.
#[cfg(test)]
pub(crate) fn test_slice(length: usize) -> FileSlice {
    #[derive(Debug)]
    struct NoFile;
    impl crate::io::disk::DiskFile for NoFile {
        fn read_at(&self, _: &mut [u8], _: u64) -> std::io::Result<usize> {
            Ok(0)
        }
        fn write_all_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
            Ok(())
        }
        fn write_all_vectored_at(&self, _: &[&[u8]], _: u64) -> std::io::Result<()> {
            Ok(())
        }
        fn len(&self) -> std::io::Result<u64> {
            Ok(0)
        }
        fn set_len(&self, _: u64) -> std::io::Result<()> {
            Ok(())
        }
        fn sync_data(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn as_file(&self) -> Option<&std::fs::File> {
            None
        }
    }
    FileSlice {
        file: std::sync::Arc::new(NoFile),
        position: 0,
        length,
    }
}
