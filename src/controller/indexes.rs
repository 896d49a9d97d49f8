//! Which partitions concern which broker, and which topic names collide.
//!
//! Pure. Derived from the image and nothing else: [`Indexes::of`] builds it whole, [`Indexes::update`] follows a delta, and
//! both must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::metadata::partition::NO_LEADER;
use crate::metadata::{MetadataDelta, MetadataImage, PartitionRegistration};

/// A topic's id and a partition.
pub type TopicIdAndPartition = (Uuid, i32);

/// See the module's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Indexes {
    isr_members: BTreeMap<i32, BTreeSet<TopicIdAndPartition>>,
    elr_members: BTreeMap<i32, BTreeSet<TopicIdAndPartition>>,
    without_leader: BTreeSet<TopicIdAndPartition>,
    leaderships: BTreeMap<i32, usize>,
    /// Names with a `.` or `_`, by their unified form.
    colliding: BTreeMap<String, BTreeSet<Arc<str>>>,
}

/// Whether a topic's name can collide with another's in the names of metrics.
pub fn has_collision_characters(name: &str) -> bool {
    name.contains(['_', '.'])
}

/// The form in which colliding names are equal.
pub fn unify_collision_characters(name: &str) -> String {
    name.replace('.', "_")
}

impl Indexes {
    /// Of a whole image.
    pub fn of(image: &MetadataImage) -> Self {
        let mut indexes = Self::default();
        for topic in image.topics.iter() {
            indexes.add_name(&topic.name);
            for (partition, registration) in &topic.partitions {
                indexes.add((topic.id, *partition), registration);
            }
        }
        indexes
    }

    /// Follows `delta`, whose previous image these indexes are of.
    pub fn update(&mut self, delta: &MetadataDelta) {
        let topics = delta.topics_delta();
        for topic in topics.deleted_topics() {
            self.remove_name(&topic.name);
            for (partition, registration) in &topic.partitions {
                self.remove((topic.id, *partition), registration);
            }
        }
        for topic in topics.changed_topics() {
            if delta.previous().topics.by_id(topic.id).is_none() {
                self.add_name(&topic.name);
            }
            for (partition, change) in &topic.partitions {
                let key = (topic.id, *partition);
                if let Some(previous) = &change.previous {
                    self.remove(key, previous);
                }
                self.add(key, &change.current);
            }
        }
    }

    fn add_name(&mut self, name: &Arc<str>) {
        if has_collision_characters(name) {
            let unified = unify_collision_characters(name);
            self.colliding.entry(unified).or_default().insert(name.clone());
        }
    }

    fn remove_name(&mut self, name: &Arc<str>) {
        let unified = unify_collision_characters(name);
        if let Some(names) = self.colliding.get_mut(&unified) {
            names.remove(name);
            if names.is_empty() {
                self.colliding.remove(&unified);
            }
        }
    }

    fn add(&mut self, key: TopicIdAndPartition, registration: &PartitionRegistration) {
        for id in &registration.isr {
            self.isr_members.entry(*id).or_default().insert(key);
        }
        for id in &registration.elr {
            self.elr_members.entry(*id).or_default().insert(key);
        }
        if registration.leader == NO_LEADER {
            self.without_leader.insert(key);
        } else {
            *self.leaderships.entry(registration.leader).or_default() += 1;
        }
    }

    fn remove(&mut self, key: TopicIdAndPartition, registration: &PartitionRegistration) {
        for (members, ids) in [
            (&mut self.isr_members, &registration.isr),
            (&mut self.elr_members, &registration.elr),
        ] {
            for id in ids {
                if let Some(partitions) = members.get_mut(id) {
                    partitions.remove(&key);
                    if partitions.is_empty() {
                        members.remove(id);
                    }
                }
            }
        }
        if registration.leader == NO_LEADER {
            self.without_leader.remove(&key);
        } else if let Some(count) = self.leaderships.get_mut(&registration.leader) {
            *count -= 1;
            if *count == 0 {
                self.leaderships.remove(&registration.leader);
            }
        }
    }

    pub fn partitions_with_broker_in_isr(&self, broker_id: i32) -> Vec<TopicIdAndPartition> {
        self.isr_members
            .get(&broker_id)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    pub fn partitions_with_broker_in_elr(&self, broker_id: i32) -> Vec<TopicIdAndPartition> {
        self.elr_members
            .get(&broker_id)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    pub fn partitions_without_leader(&self) -> Vec<TopicIdAndPartition> {
        self.without_leader.iter().copied().collect()
    }

    pub fn has_leaderships(&self, broker_id: i32) -> bool {
        self.leaderships.contains_key(&broker_id)
    }

    /// An existing topic that a new one called `name` would collide with.
    pub fn colliding_topic(&self, name: &str) -> Option<&Arc<str>> {
        if !has_collision_characters(name) {
            return None;
        }
        self.colliding.get(&unify_collision_characters(name))?.first()
    }
}
