//! Who leads when brokers come and go: the PartitionChange records of a fenced, leaving, returning or crashed broker.
//!
//! Pure (`ReplicationControlManager.generateLeaderAndIsrUpdates`).

use super::indexes::TopicIdAndPartition;
use super::partition_change::{Election, PartitionChangeBuilder, PartitionChangeContext};
use super::shard::Shard;
use crate::metadata::{PartitionRegistration, TopicImage};
use crate::protocol::records::metadata::BrokerRegistrationChangeRecord;
use crate::raft::VersionedRecord;

/// The part that a broker plays in an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BrokerChange {
    /// Leaves every ISR, but stays eligible.
    pub remove: Option<i32>,
    /// May lead, whatever its registration says now.
    pub add: Option<i32>,
    /// Leaves every ISR and is not eligible any more: it may have lost records.
    pub unclean: Option<i32>,
}

impl Shard {
    /// `min(min.insync.replicas, replication factor)`.
    pub(super) fn effective_min_isr(&self, topic: &TopicImage) -> usize {
        let overrides = self.image().configs.topic_overrides(&topic.name);
        let configured = overrides
            .get("min.insync.replicas")
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(self.effective_config().min_insync_replicas);
        let replication_factor = topic
            .partitions
            .values()
            .next()
            .map_or(1, |partition| partition.replicas.len());
        usize::try_from(configured).unwrap_or(0).min(replication_factor)
    }

    fn is_unclean_election_enabled(&self, topic: &TopicImage) -> bool {
        let overrides = self.image().configs.topic_overrides(&topic.name);
        match overrides.get("unclean.leader.election.enable") {
            Some(value) => value.trim().eq_ignore_ascii_case("true"),
            None => self.effective_config().unclean_leader_election_enable,
        }
    }

    fn is_directory_online(&self, broker_id: i32, partition: &PartitionRegistration) -> bool {
        let (Some(broker), Some(directory)) = (
            self.image().cluster.broker(broker_id),
            partition.directory_of(broker_id),
        ) else {
            return false;
        };
        broker.may_serve_from(directory)
    }

    pub(super) fn is_acceptable_leader(&self, broker_id: i32, partition: &PartitionRegistration) -> bool {
        self.image().cluster.is_active(broker_id) && self.is_directory_online(broker_id, partition)
    }

    /// The changes of `partitions` when a broker goes or comes.
    pub(super) fn leader_and_isr_updates(
        &self,
        change: BrokerChange,
        partitions: &[TopicIdAndPartition],
        records: &mut Vec<VersionedRecord>,
    ) {
        let is_gone = |id: i32| Some(id) == change.remove || Some(id) == change.unclean;
        let metadata_version = self.metadata_version();
        let elr_enabled = self.image().features.is_elr_enabled();
        for (topic_id, partition_id) in partitions {
            let Some(topic) = self.image().topics.by_id(*topic_id) else {
                continue;
            };
            let Some(partition) = topic.partitions.get(partition_id) else {
                continue;
            };
            let is_acceptable_leader = |id: i32| {
                !is_gone(id)
                    && (Some(id) == change.add || self.image().cluster.is_active(id))
                    && self.is_directory_online(id, partition)
            };
            let context = PartitionChangeContext {
                is_acceptable_leader: &is_acceptable_leader,
                default_directory: &|id| self.default_directory(id),
                metadata_version,
                min_isr: self.effective_min_isr(topic),
                elr_enabled,
            };
            let election = if self.is_unclean_election_enabled(topic) {
                Election::Unclean
            } else {
                Election::Online
            };
            let isr = partition.isr.iter().copied().filter(|id| !is_gone(*id)).collect();
            let built = PartitionChangeBuilder::new(partition, *topic_id, *partition_id, context)
                .election(election)
                .unclean_shutdown_replicas(change.unclean.into_iter().collect())
                .target_isr(isr)
                .build();
            if let Some((record, version)) = built {
                records.push((record.into(), version));
            }
        }
    }

    pub(super) fn broker_fenced(&self, broker_id: i32, records: &mut Vec<VersionedRecord>) {
        let Some(broker) = self.image().cluster.broker(broker_id) else {
            return;
        };
        self.remove_from_isrs(broker_id, records);
        records.push((
            BrokerRegistrationChangeRecord {
                broker_id,
                broker_epoch: broker.epoch,
                fenced: 1,
                ..BrokerRegistrationChangeRecord::default()
            }
            .into(),
            0,
        ));
    }

    fn remove_from_isrs(&self, broker_id: i32, records: &mut Vec<VersionedRecord>) {
        let change = BrokerChange {
            remove: Some(broker_id),
            ..BrokerChange::default()
        };
        let partitions = self.indexes().partitions_with_broker_in_isr(broker_id);
        self.leader_and_isr_updates(change, &partitions, records);
    }

    pub(super) fn broker_unfenced(
        &self,
        broker_id: i32,
        broker_epoch: i64,
        records: &mut Vec<VersionedRecord>,
    ) {
        records.push((
            BrokerRegistrationChangeRecord {
                broker_id,
                broker_epoch,
                fenced: -1,
                ..BrokerRegistrationChangeRecord::default()
            }
            .into(),
            0,
        ));
        let change = BrokerChange {
            add: Some(broker_id),
            ..BrokerChange::default()
        };
        let partitions = self.indexes().partitions_without_leader();
        self.leader_and_isr_updates(change, &partitions, records);
    }

    pub(super) fn broker_in_controlled_shutdown(
        &self,
        broker_id: i32,
        broker_epoch: i64,
        records: &mut Vec<VersionedRecord>,
    ) {
        let is_known = self
            .image()
            .cluster
            .broker(broker_id)
            .is_some_and(|broker| broker.in_controlled_shutdown);
        if !is_known {
            records.push((
                BrokerRegistrationChangeRecord {
                    broker_id,
                    broker_epoch,
                    in_controlled_shutdown: 1,
                    ..BrokerRegistrationChangeRecord::default()
                }
                .into(),
                1,
            ));
        }
        self.remove_from_isrs(broker_id, records);
    }

    /// A new incarnation registered: what the old one still holds is taken from it.
    pub(super) fn broker_shut_down(
        &self,
        broker_id: i32,
        is_clean_shutdown: bool,
        records: &mut Vec<VersionedRecord>,
    ) {
        if !self.image().features.is_elr_enabled() || is_clean_shutdown {
            self.remove_from_isrs(broker_id, records);
            return;
        }
        let change = BrokerChange {
            unclean: Some(broker_id),
            ..BrokerChange::default()
        };
        let in_isr = self.indexes().partitions_with_broker_in_isr(broker_id);
        self.leader_and_isr_updates(change, &in_isr, records);
        let in_elr = self.indexes().partitions_with_broker_in_elr(broker_id);
        self.leader_and_isr_updates(change, &in_elr, records);
    }

    /// Leaderless partitions that may be led by who lacks records, at most `max` of them.
    pub(super) fn unclean_elections(&self, max: usize, records: &mut Vec<VersionedRecord>) {
        for key in self.indexes().partitions_without_leader() {
            if records.len() >= max {
                return;
            }
            let topic = self.image().topics.by_id(key.0);
            if topic.is_some_and(|topic| self.is_unclean_election_enabled(topic)) {
                self.leader_and_isr_updates(BrokerChange::default(), &[key], records);
            }
        }
    }
}

#[cfg(test)]
#[path = "elections_test.rs"]
mod elections_test;
