//! What changed between two images.
//!
//! Pure. A delta owns the next image while it grows (sharing with the previous one what stays) and the set of what was
//! touched. [`MetadataDelta::replay`] is the only door for records, on brokers and on the controller alike; that records of
//! an open metadata transaction (KIP-868) are not published yet is the batch loader's business.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::cluster::{BrokerRegistration, ControllerRegistration, RegistrationChange};
use super::configs::ConfigResource;
use super::image::{MetadataImage, MetadataProvenance, ReplayError};
use super::partition::PartitionRegistration;
use super::topics::TopicImage;
use crate::protocol::records::metadata::{ClearElrRecord, MetadataRecord, TopicRecord};

/// Changes on top of an image.
#[derive(Debug)]
pub struct MetadataDelta {
    previous: Arc<MetadataImage>,
    next: MetadataImage,
    topics: TopicsDelta,
    changed_brokers: BTreeSet<i32>,
    changed_controllers: BTreeSet<i32>,
    changed_configs: BTreeSet<ConfigResource>,
    features_changed: bool,
}

/// Topics and partitions that were touched.
#[derive(Debug, Default, Clone)]
pub struct TopicsDelta {
    /// By topic id; partitions as they are now.
    changed: BTreeMap<Uuid, TopicDelta>,
    /// As they were in the previous image.
    deleted: BTreeMap<Uuid, Arc<TopicImage>>,
}

/// The touched partitions of one topic.
#[derive(Debug, Clone)]
pub struct TopicDelta {
    pub name: Arc<str>,
    pub id: Uuid,
    pub partitions: BTreeMap<i32, PartitionDelta>,
}

/// One touched partition.
#[derive(Debug, Clone)]
pub struct PartitionDelta {
    /// `None` for a new partition.
    pub previous: Option<Arc<PartitionRegistration>>,
    pub current: Arc<PartitionRegistration>,
}

/// A partition that this broker has to lead or to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionInfo {
    pub topic: Arc<str>,
    pub topic_id: Uuid,
    pub partition: i32,
    pub registration: Arc<PartitionRegistration>,
}

/// What a delta asks of one broker (`LocalReplicaChanges`). Deletes come first: a name may be created anew.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalReplicaChanges {
    /// Topic, its id and the partition: not a replica any more, or the topic is gone.
    pub deletes: Vec<(Arc<str>, Uuid, i32)>,
    /// Leads it, and the partition epoch changed.
    pub leaders: Vec<PartitionInfo>,
    /// The subset of `leaders` whose leader epoch changed: coordinators are elected on these.
    pub elected_leaders: Vec<PartitionInfo>,
    /// Is a replica without leading it, and the partition epoch changed.
    pub followers: Vec<PartitionInfo>,
}

impl MetadataDelta {
    pub fn new(previous: Arc<MetadataImage>) -> Self {
        Self {
            next: (*previous).clone(),
            previous,
            topics: TopicsDelta::default(),
            changed_brokers: BTreeSet::new(),
            changed_controllers: BTreeSet::new(),
            changed_configs: BTreeSet::new(),
            features_changed: false,
        }
    }

    /// A delta that a snapshot is replayed into: what it does not mention is gone. Ends with [`Self::finish_snapshot`].
    pub fn for_snapshot(previous: Arc<MetadataImage>) -> Self {
        Self {
            next: MetadataImage::empty(),
            ..Self::new(previous)
        }
    }

    /// The image that the changes start from.
    pub fn previous(&self) -> &Arc<MetadataImage> {
        &self.previous
    }

    pub fn topics_delta(&self) -> &TopicsDelta {
        &self.topics
    }

    /// Brokers registered, changed or gone: ask the image which.
    pub fn changed_brokers(&self) -> &BTreeSet<i32> {
        &self.changed_brokers
    }

    pub fn changed_controllers(&self) -> &BTreeSet<i32> {
        &self.changed_controllers
    }

    pub fn changed_configs(&self) -> &BTreeSet<ConfigResource> {
        &self.changed_configs
    }

    pub fn features_changed(&self) -> bool {
        self.features_changed
    }

    /// The image as the records so far make it.
    pub fn next(&self) -> &MetadataImage {
        &self.next
    }

    /// Applies one record.
    pub fn replay(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::RegisterBroker(record) => {
                self.next
                    .cluster
                    .put_broker(BrokerRegistration::from_record(record));
                self.changed_brokers.insert(record.broker_id);
            }
            MetadataRecord::UnregisterBroker(record) => {
                self.next
                    .cluster
                    .remove_broker(record.broker_id, record.broker_epoch)?;
                self.changed_brokers.insert(record.broker_id);
            }
            MetadataRecord::FenceBroker(record) => self.replay_fencing(record.id, record.epoch, true)?,
            MetadataRecord::UnfenceBroker(record) => self.replay_fencing(record.id, record.epoch, false)?,
            MetadataRecord::BrokerRegistrationChange(record) => {
                let change = RegistrationChange::from_record(record)?;
                self.next
                    .cluster
                    .change_broker(record.broker_id, record.broker_epoch, change)?;
                self.changed_brokers.insert(record.broker_id);
            }
            MetadataRecord::RegisterController(record) => {
                self.next
                    .cluster
                    .put_controller(ControllerRegistration::from_record(record));
                self.changed_controllers.insert(record.controller_id);
            }
            MetadataRecord::UnregisterController(record) => {
                self.next.cluster.remove_controller(record.controller_id)?;
                self.changed_controllers.insert(record.controller_id);
            }
            MetadataRecord::Topic(record) => self.replay_topic(record)?,
            MetadataRecord::Partition(record) => {
                let registration = PartitionRegistration::from_record(record)?;
                self.put_partition(record.topic_id, record.partition_id, registration)?;
            }
            MetadataRecord::PartitionChange(record) => {
                let registration = self
                    .next
                    .topics
                    .partition(record.topic_id, record.partition_id)
                    .ok_or(ReplayError::UnknownPartition {
                        topic_id: record.topic_id,
                        partition: record.partition_id,
                    })?
                    .merge(record)?;
                self.put_partition(record.topic_id, record.partition_id, registration)?;
            }
            MetadataRecord::RemoveTopic(record) => self.replay_remove_topic(record.topic_id)?,
            MetadataRecord::ClearElr(record) => self.replay_clear_elr(record)?,
            MetadataRecord::Config(record) => {
                let resource = self.next.configs.replay_config(record);
                self.changed_configs.insert(resource);
            }
            MetadataRecord::FeatureLevel(record) => {
                Arc::make_mut(&mut self.next.features).replay_feature_level(record);
                self.features_changed = true;
            }
            MetadataRecord::ProducerIds(record) => self.next.producer_ids.replay_producer_ids(record)?,
            MetadataRecord::ClientQuota(record) => self.next.client_quotas.replay_client_quota(record),
            MetadataRecord::AccessControlEntry(record) => self.next.acls.replay_access_control_entry(record),
            MetadataRecord::RemoveAccessControlEntry(record) => {
                self.next.acls.replay_remove_access_control_entry(record)?;
            }
            MetadataRecord::UserScramCredential(record) => {
                self.next.scram.replay_user_scram_credential(record)
            }
            MetadataRecord::RemoveUserScramCredential(record) => {
                self.next.scram.replay_remove_user_scram_credential(record);
            }
            MetadataRecord::DelegationToken(record) => {
                self.next.delegation_tokens.replay_delegation_token(record);
            }
            MetadataRecord::RemoveDelegationToken(record) => {
                self.next.delegation_tokens.replay_remove_delegation_token(record);
            }
            // Transactions are the batch loader's; a migration from ZooKeeper means nothing any more.
            MetadataRecord::NoOp(_)
            | MetadataRecord::BeginTransaction(_)
            | MetadataRecord::EndTransaction(_)
            | MetadataRecord::AbortTransaction(_)
            | MetadataRecord::ZkMigrationState(_) => {}
            MetadataRecord::Unknown(unknown) => {
                return Err(ReplayError::UnknownValue {
                    what: "metadata record type",
                    value: i64::from(unknown.record_type),
                });
            }
        }
        Ok(())
    }

    fn replay_fencing(&mut self, id: i32, epoch: i64, fenced: bool) -> Result<(), ReplayError> {
        let change = RegistrationChange {
            fenced: Some(fenced),
            ..RegistrationChange::default()
        };
        self.next.cluster.change_broker(id, epoch, change)?;
        self.changed_brokers.insert(id);
        Ok(())
    }

    fn replay_topic(&mut self, record: &TopicRecord) -> Result<(), ReplayError> {
        let name = self
            .next
            .topics
            .add_topic(record.name.as_str(), record.topic_id)?;
        self.topics.changed.insert(
            record.topic_id,
            TopicDelta {
                name,
                id: record.topic_id,
                partitions: BTreeMap::new(),
            },
        );
        Ok(())
    }

    fn put_partition(
        &mut self,
        topic_id: Uuid,
        partition: i32,
        registration: PartitionRegistration,
    ) -> Result<(), ReplayError> {
        let registration = Arc::new(registration);
        self.next
            .topics
            .put_partition(topic_id, partition, registration.clone())?;
        self.note_partition(topic_id, partition, registration);
        Ok(())
    }

    fn note_partition(&mut self, topic_id: Uuid, partition: i32, current: Arc<PartitionRegistration>) {
        let Some(topic) = self.next.topics.by_id(topic_id) else {
            return;
        };
        let previous = self.previous.topics.partition(topic_id, partition).cloned();
        let delta = self.topics.changed.entry(topic_id).or_insert_with(|| TopicDelta {
            name: topic.name.clone(),
            id: topic_id,
            partitions: BTreeMap::new(),
        });
        delta
            .partitions
            .insert(partition, PartitionDelta { previous, current });
    }

    fn replay_remove_topic(&mut self, topic_id: Uuid) -> Result<(), ReplayError> {
        let topic = self.next.topics.remove_topic(topic_id)?;
        let resource = ConfigResource::topic(&topic.name);
        if self.next.configs.remove(&resource) {
            self.changed_configs.insert(resource);
        }
        // A topic that came and went within the delta leaves no trace.
        self.topics.changed.remove(&topic_id);
        if let Some(previous) = self.previous.topics.by_id(topic_id) {
            self.topics.deleted.insert(topic_id, previous.clone());
        }
        Ok(())
    }

    fn replay_clear_elr(&mut self, record: &ClearElrRecord) -> Result<(), ReplayError> {
        let topics: Vec<Arc<TopicImage>> = if record.topic_name.is_empty() {
            self.next.topics.iter().cloned().collect()
        } else {
            let topic = self.next.topics.by_name(record.topic_name.as_str());
            let topic = topic.ok_or_else(|| ReplayError::UnknownTopicName(record.topic_name.to_string()))?;
            vec![topic.clone()]
        };
        for topic in topics {
            for (partition, registration) in &topic.partitions {
                if let Some(cleared) = registration.without_elr() {
                    self.put_partition(topic.id, *partition, cleared)?;
                }
            }
        }
        Ok(())
    }

    /// After the last record of a snapshot: what the snapshot did not mention was deleted.
    pub fn finish_snapshot(&mut self) {
        let previous = self.previous.clone();
        for topic in previous.topics.iter() {
            if self.next.topics.by_id(topic.id).is_none() {
                self.topics.deleted.insert(topic.id, topic.clone());
            }
        }
        for id in previous.cluster.brokers.keys() {
            self.changed_brokers.insert(*id);
        }
        for id in previous.cluster.controllers.keys() {
            self.changed_controllers.insert(*id);
        }
        for (resource, _) in previous.configs.iter() {
            self.changed_configs.insert(resource.clone());
        }
        self.features_changed |= previous.features != self.next.features;
    }

    /// A delta from nothing to `image`, for publishers that join late.
    pub fn from_nothing_to(image: &MetadataImage) -> Self {
        let mut delta = Self::new(Arc::new(MetadataImage::empty()));
        delta.next = image.clone();
        for topic in image.topics.iter() {
            delta.topics.changed.insert(
                topic.id,
                TopicDelta {
                    name: topic.name.clone(),
                    id: topic.id,
                    partitions: BTreeMap::new(),
                },
            );
            for (partition, registration) in &topic.partitions {
                delta.note_partition(topic.id, *partition, registration.clone());
            }
        }
        delta.changed_brokers = image.cluster.brokers.keys().copied().collect();
        delta.changed_controllers = image.cluster.controllers.keys().copied().collect();
        delta.changed_configs = image
            .configs
            .iter()
            .map(|(resource, _)| resource.clone())
            .collect();
        delta.features_changed = true;
        delta
    }

    /// The image with the changes, as of `provenance`.
    pub fn apply(&self, provenance: MetadataProvenance) -> MetadataImage {
        let mut image = self.next.clone();
        image.provenance = provenance;
        image
    }
}

impl TopicsDelta {
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.deleted.is_empty()
    }

    pub fn changed_topics(&self) -> impl Iterator<Item = &TopicDelta> {
        self.changed.values()
    }

    pub fn changed_topic(&self, id: Uuid) -> Option<&TopicDelta> {
        self.changed.get(&id)
    }

    pub fn deleted_topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.deleted.values()
    }

    /// What `broker_id` has to do.
    pub fn local_changes(&self, broker_id: i32) -> LocalReplicaChanges {
        let mut changes = LocalReplicaChanges::default();
        for topic in self.deleted.values() {
            for (partition, registration) in &topic.partitions {
                if registration.replicas.contains(&broker_id) {
                    changes.deletes.push((topic.name.clone(), topic.id, *partition));
                }
            }
        }
        for topic in self.changed.values() {
            for (partition, delta) in &topic.partitions {
                topic.add_local_change(*partition, delta, broker_id, &mut changes);
            }
        }
        changes
    }
}

impl TopicDelta {
    fn add_local_change(
        &self,
        partition: i32,
        delta: &PartitionDelta,
        broker_id: i32,
        changes: &mut LocalReplicaChanges,
    ) {
        let previous = delta.previous.as_deref();
        let was_replica = previous.is_some_and(|registration| registration.replicas.contains(&broker_id));
        if !delta.current.replicas.contains(&broker_id) {
            if was_replica {
                changes.deletes.push((self.name.clone(), self.id, partition));
            }
            return;
        }
        if previous.is_some_and(|registration| registration.partition_epoch == delta.current.partition_epoch)
        {
            return;
        }
        let info = PartitionInfo {
            topic: self.name.clone(),
            topic_id: self.id,
            partition,
            registration: delta.current.clone(),
        };
        if delta.current.leader != broker_id {
            changes.followers.push(info);
            return;
        }
        if previous.is_none_or(|registration| registration.leader_epoch != delta.current.leader_epoch) {
            changes.elected_leaders.push(info.clone());
        }
        changes.leaders.push(info);
    }
}

#[cfg(test)]
#[path = "delta_test.rs"]
mod delta_test;
