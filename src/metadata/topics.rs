//! Topics and their partitions in the image.
//!
//! Pure. Invariant: `by_id` and `by_name` hold the same topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::image::ReplayError;
use super::partition::PartitionRegistration;
use super::shared_map::SharedMap;

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicImage {
    pub name: Arc<str>,
    pub id: Uuid,
    pub partitions: BTreeMap<i32, Arc<PartitionRegistration>>,
}

/// All topics.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicsImage {
    by_id: SharedMap<Uuid, Arc<TopicImage>>,
    by_name: SharedMap<Arc<str>, Uuid>,
}

impl TopicsImage {
    pub fn by_id(&self, id: Uuid) -> Option<&Arc<TopicImage>> {
        self.by_id.get(&id)
    }

    pub fn by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.by_id.get(self.by_name.get(name)?)
    }

    pub fn id_of(&self, name: &str) -> Option<Uuid> {
        self.by_name.get(name).copied()
    }

    pub fn name_of(&self, id: Uuid) -> Option<Arc<str>> {
        self.by_id.get(&id).map(|topic| topic.name.clone())
    }

    pub fn partition(&self, id: Uuid, partition: i32) -> Option<&Arc<PartitionRegistration>> {
        self.by_id.get(&id)?.partitions.get(&partition)
    }

    /// All topics, in no useful order (the same in every process).
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_id.values()
    }

    /// All topics by name.
    pub fn sorted_by_name(&self) -> Vec<&Arc<TopicImage>> {
        let mut topics: Vec<_> = self.by_id.values().collect();
        topics.sort_by(|left, right| left.name.cmp(&right.name));
        topics
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// Changes; who calls them keeps track of what changed.
impl TopicsImage {
    pub(crate) fn add_topic(&mut self, name: &str, id: Uuid) -> Result<Arc<str>, ReplayError> {
        if let Some(existing) = self.by_name.get(name) {
            return Err(ReplayError::DuplicateTopic {
                name: name.to_owned(),
                existing: *existing,
                new: id,
            });
        }
        let name: Arc<str> = Arc::from(name);
        let topic = TopicImage {
            name: name.clone(),
            id,
            partitions: BTreeMap::new(),
        };
        self.by_id.insert(id, Arc::new(topic));
        self.by_name.insert(name.clone(), id);
        Ok(name)
    }

    pub(crate) fn remove_topic(&mut self, id: Uuid) -> Result<Arc<TopicImage>, ReplayError> {
        let topic = self.by_id.remove(&id).ok_or(ReplayError::UnknownTopicId(id))?;
        self.by_name.remove(&*topic.name);
        Ok(topic)
    }

    pub(crate) fn put_partition(
        &mut self,
        id: Uuid,
        partition: i32,
        registration: Arc<PartitionRegistration>,
    ) -> Result<(), ReplayError> {
        let topic = self.by_id.get_mut(&id).ok_or(ReplayError::UnknownTopicId(id))?;
        Arc::make_mut(topic).partitions.insert(partition, registration);
        Ok(())
    }
}
