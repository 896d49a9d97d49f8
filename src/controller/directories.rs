//! AssignReplicasToDirs: a broker says in which of its log directories its replicas lie (KIP-858).
//!
//! Pure. What it says goes into the partitions' registrations, so that a failed directory takes its leaderships away, and those only. A replica
//! that is put into a directory which is offline leaves its ISR and its leadership at once.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::elections::BrokerChange;
use super::indexes::TopicIdAndPartition;
use super::partition_change::{PartitionChangeBuilder, PartitionChangeContext};
use super::shard::{Outcome, Shard};
use crate::metadata::TopicImage;
use crate::protocol::messages::assign_replicas_to_dirs_request::DirectoryData as AskedDirectory;
use crate::protocol::messages::assign_replicas_to_dirs_response::{DirectoryData, PartitionData, TopicData};
use crate::protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};
use crate::protocol::{ApiError, ErrorCode};
use crate::raft::VersionedRecord;

impl Shard {
    pub fn assign_replicas_to_dirs(
        &self,
        request: &AssignReplicasToDirsRequest,
    ) -> Result<Outcome<AssignReplicasToDirsResponse>, ApiError> {
        if !self.metadata_version().is_directory_assignment_supported() {
            return Err(ApiError::new(
                ErrorCode::UnsupportedVersion,
                "Directory assignment is not supported yet.",
            ));
        }
        let broker_id = request.broker_id.0;
        self.check_broker_epoch(broker_id, request.broker_epoch)?;
        let mut records = Vec::new();
        let mut offline = BTreeSet::new();
        let mut response = AssignReplicasToDirsResponse::default();
        for asked in &request.directories {
            response
                .directories
                .push(self.assign_directory(broker_id, asked, &mut records, &mut offline));
        }
        let offline: Vec<TopicIdAndPartition> = offline.into_iter().collect();
        let change = BrokerChange {
            remove: Some(broker_id),
            ..BrokerChange::default()
        };
        self.leader_and_isr_updates(change, &offline, &mut records);
        Ok(Outcome::of(records, response))
    }

    fn assign_directory(
        &self,
        broker_id: i32,
        asked: &AskedDirectory,
        records: &mut Vec<VersionedRecord>,
        offline: &mut BTreeSet<TopicIdAndPartition>,
    ) -> DirectoryData {
        let broker = self.image().cluster.broker(broker_id);
        let is_online = broker.is_some_and(|broker| broker.has_online_directory(asked.id));
        let mut directory = DirectoryData::default();
        directory.id = asked.id;
        for asked_topic in &asked.topics {
            let mut answered = TopicData::default();
            answered.topic_id = asked_topic.topic_id;
            let topic = self.image().topics.by_id(asked_topic.topic_id);
            for asked_partition in &asked_topic.partitions {
                let index = asked_partition.partition_index;
                let error = match topic {
                    None => ErrorCode::UnknownTopicId,
                    Some(topic) => self.assign_replica(broker_id, topic, index, asked.id, records),
                };
                if error == ErrorCode::None && !is_online {
                    offline.insert((asked_topic.topic_id, index));
                }
                let mut partition = PartitionData::default();
                partition.partition_index = index;
                partition.error_code = error.code();
                answered.partitions.push(partition);
            }
            directory.topics.push(answered);
        }
        directory
    }

    fn assign_replica(
        &self,
        broker_id: i32,
        topic: &TopicImage,
        index: i32,
        directory: Uuid,
        records: &mut Vec<VersionedRecord>,
    ) -> ErrorCode {
        let Some(partition) = topic.partitions.get(&index) else {
            return ErrorCode::UnknownTopicOrPartition;
        };
        if !partition.replicas.contains(&broker_id) {
            return ErrorCode::NotLeaderOrFollower;
        }
        let is_acceptable_leader = |id: i32| self.is_acceptable_leader(id, partition);
        let context = PartitionChangeContext {
            is_acceptable_leader: &is_acceptable_leader,
            default_directory: &|id| self.default_directory(id),
            metadata_version: self.metadata_version(),
            min_isr: self.effective_min_isr(topic),
            elr_enabled: self.image().features.is_elr_enabled(),
        };
        let built = PartitionChangeBuilder::new(partition, topic.id, index, context)
            .directory(broker_id, directory)
            .build();
        if let Some((record, version)) = built {
            records.push((record.into(), version));
        }
        ErrorCode::None
    }
}

#[cfg(test)]
#[path = "directories_test.rs"]
mod directories_test;
