//! The change of one partition: who leads it, who is in sync, who may still lead (`PartitionChangeBuilder`).
//!
//! Pure. The caller says which ISR, replicas or recovery state it wants; the builder completes a reassignment that is due,
//! keeps the eligible leader replicas (KIP-966), elects a leader, and yields the PartitionChange record, or nothing.
//!
//! With ELR on: below min ISR, who leaves the ISR cleanly stays eligible; the ISR may become empty; a leader elected from
//! the ELR becomes the whole ISR; `last_known_elr` holds the last leader while there is none.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::metadata::partition::{NO_LEADER, NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE};
use crate::metadata::{LeaderRecoveryState, MetadataVersion, PartitionRegistration};
use crate::protocol::records::metadata::PartitionChangeRecord;

/// How far an election may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Election {
    /// The first replica if it can, else as `Online`.
    Preferred,
    /// Only who has all committed records.
    Online,
    /// Any live replica rather than none.
    Unclean,
}

/// Whether a broker can lead at all: alive, its directory online.
pub type IsAcceptableLeader<'a> = &'a dyn Fn(i32) -> bool;

/// See the module's words.
pub struct PartitionChangeBuilder<'a> {
    partition: &'a PartitionRegistration,
    topic_id: Uuid,
    partition_id: i32,
    is_acceptable_leader: IsAcceptableLeader<'a>,
    /// The directory of a replica that is new.
    default_directory: &'a dyn Fn(i32) -> Uuid,
    metadata_version: MetadataVersion,
    min_isr: usize,
    elr_enabled: bool,
    election: Election,
    target_isr: Vec<i32>,
    target_replicas: Vec<i32>,
    target_removing: Vec<i32>,
    target_adding: Vec<i32>,
    target_elr: Vec<i32>,
    target_leader_recovery_state: LeaderRecoveryState,
    unclean_shutdown_replicas: Vec<i32>,
    /// A replica and where it lies from now on.
    target_directory: Option<(i32, Uuid)>,
}

/// What the builder must know of the cluster.
pub struct PartitionChangeContext<'a> {
    pub is_acceptable_leader: IsAcceptableLeader<'a>,
    pub default_directory: &'a dyn Fn(i32) -> Uuid,
    pub metadata_version: MetadataVersion,
    pub min_isr: usize,
    pub elr_enabled: bool,
}

impl<'a> PartitionChangeBuilder<'a> {
    pub fn new(
        partition: &'a PartitionRegistration,
        topic_id: Uuid,
        partition_id: i32,
        context: PartitionChangeContext<'a>,
    ) -> Self {
        Self {
            topic_id,
            partition_id,
            is_acceptable_leader: context.is_acceptable_leader,
            default_directory: context.default_directory,
            metadata_version: context.metadata_version,
            min_isr: context.min_isr,
            elr_enabled: context.elr_enabled,
            election: Election::Online,
            target_isr: partition.isr.clone(),
            target_replicas: partition.replicas.clone(),
            target_removing: partition.removing_replicas.clone(),
            target_adding: partition.adding_replicas.clone(),
            target_elr: partition.elr.clone(),
            target_leader_recovery_state: partition.leader_recovery_state,
            unclean_shutdown_replicas: Vec::new(),
            target_directory: None,
            partition,
        }
    }

    pub fn target_isr(mut self, isr: Vec<i32>) -> Self {
        self.target_isr = isr;
        self
    }

    pub fn election(mut self, election: Election) -> Self {
        self.election = election;
        self
    }

    /// These came back without all they had acknowledged: they are not eligible.
    pub fn unclean_shutdown_replicas(mut self, replicas: Vec<i32>) -> Self {
        self.unclean_shutdown_replicas = replicas;
        self
    }

    pub fn directory(mut self, replica: i32, directory: Uuid) -> Self {
        self.target_directory = Some((replica, directory));
        self
    }

    pub fn target_leader_recovery_state(mut self, state: LeaderRecoveryState) -> Self {
        self.target_leader_recovery_state = state;
        self
    }

    /// The record and its version; `None` when nothing changes.
    pub fn build(mut self) -> Option<(PartitionChangeRecord, i16)> {
        let mut record = PartitionChangeRecord {
            topic_id: self.topic_id,
            partition_id: self.partition_id,
            ..PartitionChangeRecord::default()
        };
        self.complete_reassignment_if_due();
        self.populate_target_elr();
        self.try_election(&mut record);
        self.bump_leader_epoch_if_replicas_left(&mut record);
        self.set_elr(&mut record);
        self.set_isr(&mut record);
        self.bump_leader_epoch_if_isr_shrank(&mut record);
        self.set_last_known_leader(&mut record);
        self.set_assignment(&mut record);
        if self.target_leader_recovery_state != self.partition.leader_recovery_state {
            record.leader_recovery_state = self.target_leader_recovery_state.value();
        }
        (!is_no_op(&record)).then(|| (record, self.metadata_version.partition_record_version()))
    }

    fn complete_reassignment_if_due(&mut self) {
        if self.target_removing.is_empty() && self.target_adding.is_empty() {
            return;
        }
        let without_removing = |ids: &[i32]| -> Vec<i32> {
            ids.iter()
                .copied()
                .filter(|id| !self.target_removing.contains(id))
                .collect()
        };
        let isr = without_removing(&self.target_isr);
        let replicas = without_removing(&self.target_replicas);
        let contains_all = |wanted: &[i32]| wanted.iter().all(|id| isr.contains(id));
        let would_be_empty = !self.target_removing.is_empty() && (isr.is_empty() || replicas.is_empty());
        let shrinks_too_early =
            self.target_adding.len() < self.target_removing.len() && !contains_all(&replicas);
        if would_be_empty || !contains_all(&self.target_adding) || shrinks_too_early {
            return;
        }
        self.target_isr = isr;
        self.target_replicas = replicas;
        self.target_removing.clear();
        self.target_adding.clear();
    }

    fn populate_target_elr(&mut self) {
        if !self.elr_enabled {
            return;
        }
        if self.target_isr.len() >= self.min_isr {
            self.target_elr.clear();
            return;
        }
        let candidates: BTreeSet<i32> = self
            .target_elr
            .iter()
            .chain(&self.partition.isr)
            .copied()
            .collect();
        self.target_elr = candidates
            .into_iter()
            .filter(|id| !self.target_isr.contains(id) && !self.unclean_shutdown_replicas.contains(id))
            .collect();
    }

    fn is_valid_new_leader(&self, replica: i32) -> bool {
        let is_eligible = self.target_isr.contains(&replica)
            || self.target_isr.is_empty() && self.target_elr.contains(&replica);
        is_eligible && (self.is_acceptable_leader)(replica)
    }

    /// The last leader, when nobody else can be: it may lack records, so the election is unclean.
    fn last_known_leader(&self) -> Option<i32> {
        if !self.elr_enabled || !self.target_elr.is_empty() || !self.target_isr.is_empty() {
            return None;
        }
        match self.partition.last_known_elr.as_slice() {
            [leader] if (self.is_acceptable_leader)(*leader) => Some(*leader),
            _ => None,
        }
    }

    /// The leader and whether the election was unclean.
    fn elect(&self) -> (i32, bool) {
        let preferred = (self.election == Election::Preferred)
            .then(|| self.target_replicas.first().copied())
            .flatten();
        let clean = preferred
            .into_iter()
            .chain([self.partition.leader])
            .chain(self.target_replicas.iter().copied())
            .find(|id| self.is_valid_new_leader(*id));
        if let Some(leader) = clean {
            return (leader, false);
        }
        if let Some(leader) = self.last_known_leader() {
            return (leader, true);
        }
        if self.election == Election::Unclean {
            let alive = self
                .target_replicas
                .iter()
                .find(|id| (self.is_acceptable_leader)(**id));
            if let Some(leader) = alive {
                return (*leader, true);
            }
        }
        (NO_LEADER, false)
    }

    fn try_election(&mut self, record: &mut PartitionChangeRecord) {
        let (leader, is_unclean) = self.elect();
        if leader == self.partition.leader {
            return;
        }
        if self.target_elr.contains(&leader) {
            self.target_isr = vec![leader];
            self.target_elr.retain(|id| *id != leader);
        }
        record.leader = leader;
        if is_unclean {
            record.isr = Some(vec![leader]);
            if self.partition.leader_recovery_state != LeaderRecoveryState::Recovering {
                record.leader_recovery_state = LeaderRecoveryState::Recovering.value();
            }
        }
    }

    /// Followers learn by the leader epoch that the replicas are others.
    fn bump_leader_epoch_if_replicas_left(&self, record: &mut PartitionChangeRecord) {
        let all_stay = self
            .partition
            .replicas
            .iter()
            .all(|id| self.target_replicas.contains(id));
        if record.leader == NO_LEADER_CHANGE && !all_stay {
            record.leader = self.partition.leader;
        }
    }

    /// Needed below metadata.version 3.6 only (KAFKA-15021).
    fn bump_leader_epoch_if_isr_shrank(&self, record: &mut PartitionChangeRecord) {
        if !self.metadata_version.is_leader_epoch_bump_on_isr_shrink_needed()
            || record.leader != NO_LEADER_CHANGE
        {
            return;
        }
        if let Some(isr) = &record.isr
            && !self.partition.isr.iter().all(|id| isr.contains(id))
        {
            record.leader = self.partition.leader;
        }
    }

    fn set_elr(&mut self, record: &mut PartitionChangeRecord) {
        let is_unclean = record.isr.is_some();
        if is_unclean || !self.elr_enabled {
            self.target_elr.clear();
        }
        if self.target_elr != self.partition.elr {
            record.eligible_leader_replicas = Some(self.target_elr.clone());
        }
    }

    fn set_isr(&self, record: &mut PartitionChangeRecord) {
        let may_be_set = !self.target_isr.is_empty() || self.elr_enabled;
        if record.isr.is_none() && may_be_set && self.target_isr != self.partition.isr {
            record.isr = Some(self.target_isr.clone());
        }
    }

    fn set_last_known_leader(&self, record: &mut PartitionChangeRecord) {
        if !self.elr_enabled {
            return;
        }
        if record.leader == NO_LEADER && self.partition.last_known_elr.is_empty() {
            record.last_known_elr = Some(vec![self.partition.leader]);
        } else if record.leader >= 0 && !self.partition.last_known_elr.is_empty() {
            record.last_known_elr = Some(Vec::new());
        }
    }

    fn set_assignment(&self, record: &mut PartitionChangeRecord) {
        if !self.target_replicas.is_empty() {
            if self.metadata_version.is_directory_assignment_supported() {
                let directories: Vec<Uuid> = self
                    .target_replicas
                    .iter()
                    .map(|id| {
                        let wanted = self.target_directory.filter(|(replica, _)| replica == id);
                        wanted
                            .map(|(_, directory)| directory)
                            .or_else(|| self.partition.directory_of(*id))
                            .unwrap_or_else(|| (self.default_directory)(*id))
                    })
                    .collect();
                if directories != self.partition.directories {
                    record.directories = Some(directories);
                }
            }
            if self.target_replicas != self.partition.replicas {
                record.replicas = Some(self.target_replicas.clone());
            }
        }
        if self.target_removing != self.partition.removing_replicas {
            record.removing_replicas = Some(self.target_removing.clone());
        }
        if self.target_adding != self.partition.adding_replicas {
            record.adding_replicas = Some(self.target_adding.clone());
        }
    }
}

fn is_no_op(record: &PartitionChangeRecord) -> bool {
    record.isr.is_none()
        && record.leader == NO_LEADER_CHANGE
        && record.replicas.is_none()
        && record.removing_replicas.is_none()
        && record.adding_replicas.is_none()
        && record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        && record.directories.is_none()
        && record.eligible_leader_replicas.is_none()
        && record.last_known_elr.is_none()
}

#[cfg(test)]
#[path = "partition_change_test.rs"]
mod partition_change_test;
