//! What changed between two images.
//!
//! Pure. A delta owns the next image while it grows (sharing with the previous one what stays) and the set of what was
//! touched. [`MetadataDelta::replay`] is the only door for records; inside a metadata transaction (KIP-868) the records
//! are held back and count from EndTransaction on, or never.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::configs::ConfigResource;
use super::image::{MetadataImage, MetadataProvenance};
use super::partition::PartitionRegistration;
use super::topics::TopicImage;

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
