//! One partition as the metadata log describes it (`PartitionRegistration`).
//!
//! Pure. Owns the rules of Partition and PartitionChange records: the partition epoch grows with every change, the
//! leader epoch with every change that names a leader, even the same one.

use uuid::Uuid;

use super::image::ReplayError;
use super::metadata_version::MetadataVersion;
use crate::protocol::records::metadata::{PartitionChangeRecord, PartitionRecord};

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

/// Directories for `replicas`; a record from before directories counts as `MIGRATING` for all.
fn directories_or_migrating(directories: &[Uuid], replicas: usize) -> Result<Vec<Uuid>, &'static str> {
    if directories.is_empty() {
        return Ok(vec![directory_id::MIGRATING; replicas]);
    }
    if directories.len() != replicas {
        return Err("the directories do not match the replicas");
    }
    Ok(directories.to_vec())
}

impl PartitionRegistration {
    /// What a Partition record says.
    pub fn from_record(record: &PartitionRecord) -> Result<Self, ReplayError> {
        let invalid = |reason| ReplayError::InvalidPartition {
            topic_id: record.topic_id,
            partition: record.partition_id,
            reason,
        };
        let replicas = record.replicas.clone();
        Ok(Self {
            directories: directories_or_migrating(&record.directories, replicas.len()).map_err(invalid)?,
            replicas,
            isr: record.isr.clone(),
            removing_replicas: record.removing_replicas.clone(),
            adding_replicas: record.adding_replicas.clone(),
            elr: record.eligible_leader_replicas.clone().unwrap_or_default(),
            last_known_elr: record.last_known_elr.clone().unwrap_or_default(),
            leader: record.leader,
            leader_recovery_state: LeaderRecoveryState::from_value(record.leader_recovery_state)
                .ok_or_else(|| invalid("unknown leader recovery state"))?,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
        })
    }

    /// This registration after a PartitionChange record.
    pub fn merge(&self, record: &PartitionChangeRecord) -> Result<Self, ReplayError> {
        let invalid = |reason| ReplayError::InvalidPartition {
            topic_id: record.topic_id,
            partition: record.partition_id,
            reason,
        };
        let changed = |field: &Option<Vec<i32>>, kept: &Vec<i32>| field.as_ref().unwrap_or(kept).clone();
        let replicas = changed(&record.replicas, &self.replicas);
        let directories = match &record.directories {
            Some(directories) => directories_or_migrating(directories, replicas.len()).map_err(invalid)?,
            // From before directory assignment: who stays keeps what was known.
            None => replicas
                .iter()
                .map(|id| self.directory_of(*id).unwrap_or(directory_id::MIGRATING))
                .collect(),
        };
        let leader_changes = record.leader != NO_LEADER_CHANGE;
        let leader_recovery_state = match record.leader_recovery_state {
            NO_RECOVERY_STATE_CHANGE => self.leader_recovery_state,
            value => LeaderRecoveryState::from_value(value)
                .ok_or_else(|| invalid("unknown leader recovery state"))?,
        };
        Ok(Self {
            directories,
            replicas,
            isr: changed(&record.isr, &self.isr),
            removing_replicas: changed(&record.removing_replicas, &self.removing_replicas),
            adding_replicas: changed(&record.adding_replicas, &self.adding_replicas),
            elr: changed(&record.eligible_leader_replicas, &self.elr),
            last_known_elr: changed(&record.last_known_elr, &self.last_known_elr),
            leader: if leader_changes {
                record.leader
            } else {
                self.leader
            },
            leader_recovery_state,
            // Counts up even if the record names the leader of before: that is how an epoch is bumped.
            leader_epoch: self.leader_epoch + i32::from(leader_changes),
            partition_epoch: self.partition_epoch + 1,
        })
    }

    /// After a ClearElr record; `None` if there is nothing to clear.
    pub fn without_elr(&self) -> Option<Self> {
        if self.elr.is_empty() && self.last_known_elr.is_empty() {
            return None;
        }
        Some(Self {
            elr: Vec::new(),
            last_known_elr: Vec::new(),
            partition_epoch: self.partition_epoch + 1,
            ..self.clone()
        })
    }

    /// The Partition record of this registration, and its version.
    pub fn to_record(
        &self,
        topic_id: Uuid,
        partition: i32,
        metadata_version: MetadataVersion,
        elr_enabled: bool,
    ) -> (PartitionRecord, i16) {
        let some_ids = |ids: &[i32]| (elr_enabled && !ids.is_empty()).then(|| ids.to_vec());
        let record = PartitionRecord {
            partition_id: partition,
            topic_id,
            replicas: self.replicas.clone(),
            isr: self.isr.clone(),
            removing_replicas: self.removing_replicas.clone(),
            adding_replicas: self.adding_replicas.clone(),
            leader: self.leader,
            leader_recovery_state: self.leader_recovery_state.value(),
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            directories: if metadata_version.is_directory_assignment_supported() {
                self.directories.clone()
            } else {
                Vec::new()
            },
            eligible_leader_replicas: some_ids(&self.elr),
            last_known_elr: some_ids(&self.last_known_elr),
            ..PartitionRecord::default()
        };
        (record, metadata_version.partition_record_version())
    }
}
