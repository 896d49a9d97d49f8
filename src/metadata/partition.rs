//! One partition as the metadata log describes it (`PartitionRegistration`).
//!
//! Pure. Owns the rules of Partition and PartitionChange records: the partition epoch grows with every change, the
//! leader epoch with every change that names a leader, even the same one.

use uuid::Uuid;

/// No leader (`LeaderConstants.NO_LEADER`).
pub const NO_LEADER: i32 = -1;
/// In a PartitionChange record: the leader stays (`NO_LEADER_CHANGE`).
pub const NO_LEADER_CHANGE: i32 = -2;
/// In a PartitionChange record: the leader recovery state stays.
pub const NO_RECOVERY_STATE_CHANGE: i8 = -1;

/// Directory ids with a meaning instead of a directory (`DirectoryId`).
pub mod directory_id {
    use uuid::Uuid;

    pub const MIGRATING: Uuid = Uuid::from_u128(0);
    pub const UNASSIGNED: Uuid = Uuid::from_u128(1);
    pub const LOST: Uuid = Uuid::from_u128(2);

    /// The first hundred ids are Kafka's own.
    pub fn is_reserved(id: Uuid) -> bool {
        id.as_u128() < 100
    }
}

/// Whether the leader was elected from the ISR (KIP-704).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeaderRecoveryState {
    #[default]
    Recovered,
    Recovering,
}

impl LeaderRecoveryState {
    pub fn value(self) -> i8 {
        match self {
            Self::Recovered => 0,
            Self::Recovering => 1,
        }
    }

    pub fn from_value(value: i8) -> Option<Self> {
        match value {
            0 => Some(Self::Recovered),
            1 => Some(Self::Recovering),
            _ => None,
        }
    }
}

/// The state of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionRegistration {
    pub replicas: Vec<i32>,
    /// Parallel to `replicas`.
    pub directories: Vec<Uuid>,
    pub isr: Vec<i32>,
    pub removing_replicas: Vec<i32>,
    pub adding_replicas: Vec<i32>,
    /// Eligible leader replicas (KIP-966).
    pub elr: Vec<i32>,
    pub last_known_elr: Vec<i32>,
    pub leader: i32,
    pub leader_recovery_state: LeaderRecoveryState,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
}

impl PartitionRegistration {
    pub fn has_leader(&self) -> bool {
        self.leader != NO_LEADER
    }

    pub fn is_reassigning(&self) -> bool {
        !self.removing_replicas.is_empty() || !self.adding_replicas.is_empty()
    }

    pub fn has_preferred_leader(&self) -> bool {
        self.leader == self.preferred_replica()
    }

    pub fn preferred_replica(&self) -> i32 {
        self.replicas.first().copied().unwrap_or(NO_LEADER)
    }

    /// Where `replica`'s log lies; `None` if it is no replica.
    pub fn directory_of(&self, replica: i32) -> Option<Uuid> {
        let index = self.replicas.iter().position(|id| *id == replica)?;
        Some(
            self.directories
                .get(index)
                .copied()
                .unwrap_or(directory_id::MIGRATING),
        )
    }
}
