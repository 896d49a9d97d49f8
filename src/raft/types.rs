//! Small values of KRaft that the layers above share.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::MetadataRecord;

/// The topic that holds the cluster's metadata; one partition, 0.
pub const CLUSTER_METADATA_TOPIC_NAME: &str = "__cluster_metadata";

/// Its id, reserved by Kafka (AAAAAAAAAAAAAAAAAAAAAQ).
pub const CLUSTER_METADATA_TOPIC_ID: Uuid = Uuid::from_u128(1);

/// A metadata record and the record version it is written in.
pub type VersionedRecord = (MetadataRecord, i16);

/// Who leads the quorum in an epoch, as far as this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderAndEpoch {
    pub leader_id: Option<i32>,
    pub epoch: i32,
}

impl LeaderAndEpoch {
    pub const UNKNOWN: Self = Self {
        leader_id: None,
        epoch: 0,
    };

    pub fn is_leader(&self, node_id: i32) -> bool {
        self.leader_id == Some(node_id)
    }
}

/// A snapshot's id, or the end of an epoch in a log: `offset` is exclusive, `epoch` is that of the record before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OffsetAndEpoch {
    pub offset: i64,
    pub epoch: i32,
}

impl OffsetAndEpoch {
    pub const fn new(offset: i64, epoch: i32) -> Self {
        Self { offset, epoch }
    }
}

/// Epoch first, as Kafka's `OffsetAndEpoch`: "more up to date" in the election rules.
impl Ord for OffsetAndEpoch {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.epoch, self.offset).cmp(&(other.epoch, other.offset))
    }
}

impl PartialOrd for OffsetAndEpoch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for OffsetAndEpoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "OffsetAndEpoch(offset={}, epoch={})",
            self.offset, self.epoch
        )
    }
}

/// The checkpoint that formatting leaves: bootstrap records and voters. It is never replicated or served.
pub const BOOTSTRAP_SNAPSHOT_ID: OffsetAndEpoch = OffsetAndEpoch::new(0, 0);

/// The `kraft.version`s that this node speaks.
pub const MIN_KRAFT_VERSION: i16 = 0;
pub const MAX_KRAFT_VERSION: i16 = 1;

/// Where a node listens, under a listener's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub name: Arc<str>,
    pub host: Arc<str>,
    pub port: u16,
}
