//! The values that go into and come out of a log: plain data, no behaviour. Pure.

use crate::io::disk::FileSlice;

/// Who appends: what is checked and how producer errors are answered depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AppendOrigin {
    /// A fetch from the leader: offsets are set, producer state is taken as it comes.
    Replication,
    /// Transaction markers and group records that a coordinator of this node writes.
    Coordinator,
    /// A producer: all checks.
    Client,
    /// The Raft leader's own records.
    RaftLeader,
}

/// Up to where a read sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FetchIsolation {
    /// Replicas: to the log end.
    LogEnd,
    /// Consumers (read_uncommitted): to the high watermark.
    HighWatermark,
    /// Consumers (read_committed): to the last stable offset, with the aborted transactions.
    TxnCommitted,
}

/// `relative_position_in_segment` when only the offset is known.
pub const UNKNOWN_FILE_POSITION: i64 = -1;

/// An offset with the place of its batch on disk, so that two of them give a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOffsetMetadata {
    pub message_offset: i64,
    pub segment_base_offset: i64,
    /// `UNKNOWN_FILE_POSITION` when only the offset is known.
    pub relative_position_in_segment: i64,
}

impl LogOffsetMetadata {
    pub fn offset_only(message_offset: i64) -> Self {
        Self {
            message_offset,
            segment_base_offset: -1,
            relative_position_in_segment: UNKNOWN_FILE_POSITION,
        }
    }

    pub fn is_offset_only(&self) -> bool {
        self.relative_position_in_segment == UNKNOWN_FILE_POSITION
    }

    /// Is this offset in an older segment than `that`?
    pub fn on_older_segment(&self, that: &LogOffsetMetadata) -> bool {
        self.segment_base_offset < that.segment_base_offset
    }

    pub fn on_same_segment(&self, that: &LogOffsetMetadata) -> bool {
        self.segment_base_offset == that.segment_base_offset
    }

    /// Bytes from this up to `that`; `None` when they lie in different segments or are not placed.
    pub fn bytes_until(&self, that: &LogOffsetMetadata) -> Option<i64> {
        (self.on_same_segment(that) && !self.is_offset_only() && !that.is_offset_only())
            .then(|| that.relative_position_in_segment - self.relative_position_in_segment)
    }
}

/// What an append did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogAppendInfo {
    /// -1 when nothing was appended (an empty set of records, a follower that had them all).
    pub first_offset: i64,
    pub last_offset: i64,
    pub last_leader_epoch: i32,
    pub max_timestamp: i64,
    /// The broker's time when the topic is LogAppendTime, else -1.
    pub log_append_time: i64,
    pub log_start_offset: i64,
    pub valid_bytes: usize,
    /// The records were there already (an idempotent producer's retry): nothing was written, the offsets and
    /// `max_timestamp`/`log_append_time` are those of the first append.
    pub duplicate: bool,
    /// Where the log ends after it: what the first batch was appended at plus its bytes.
    pub log_end_offset: i64,
}

/// What a read found: ranges of files, no bytes are touched.
#[derive(Debug, Clone)]
pub struct FetchDataInfo {
    /// In order; all of one segment. Empty when there is nothing to read at the offset.
    pub slices: Vec<FileSlice>,
    /// The fetch offset with its place (start of the batch that holds it).
    pub fetch_offset_metadata: LogOffsetMetadata,
    /// The first batch does not fit in `max_bytes` and was cut (only without `min_one_message`).
    pub first_entry_incomplete: bool,
    /// With `TxnCommitted`: the aborted transactions that touch the range.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
}

impl FetchDataInfo {
    pub fn empty(fetch_offset_metadata: LogOffsetMetadata) -> Self {
        Self {
            slices: Vec::new(),
            fetch_offset_metadata,
            first_entry_incomplete: false,
            aborted_transactions: None,
        }
    }

    pub fn size_in_bytes(&self) -> usize {
        self.slices.iter().map(|slice| slice.length).sum()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

/// The answer to a search by time: the record's own time stamp and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampAndOffset {
    pub timestamp: i64,
    pub offset: i64,
    pub leader_epoch: Option<i32>,
}

/// One active producer, for DescribeProducers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerStateSummary {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub last_sequence: i32,
    pub last_timestamp: i64,
    /// -1: none yet.
    pub coordinator_epoch: i32,
    /// The first offset of the open transaction, or -1.
    pub current_txn_start_offset: i64,
}
