//! What OffsetCommit and TxnOffsetCommit do alike: topics that do not exist are answered here, the coordinator sees the
//! others.
//!
//! The two take different generated types with the same fields: `commit_topic!` says so once for each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use uuid::Uuid;

use crate::metadata::{MetadataImage, TopicImage};
use crate::protocol::messages::TopicName;
use crate::protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use crate::protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use crate::protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestTopic;
use crate::protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use crate::protocol::{ErrorCode, StrBytes};

/// A topic of a request.
pub(super) trait CommitTopic: Clone {
    type Answered: AnsweredTopic;

    fn topic_id(&self) -> Uuid;
    fn name(&self) -> &TopicName;
    fn has_partitions(&self) -> bool;
    fn set_topic(&mut self, topic_id: Uuid, name: TopicName);
    /// Takes out the partitions that do not exist, as a topic of its own.
    fn split_unknown(&mut self, exists: impl Fn(i32) -> bool) -> Self;
    /// All its partitions answered with one error.
    fn failed(&self, error: ErrorCode) -> Self::Answered;
}

/// A topic of the answer.
pub(super) trait AnsweredTopic {
    fn topic_id(&self) -> Uuid;
    fn name(&self) -> &TopicName;
    fn append(&mut self, other: Self);
}

macro_rules! commit_topic {
    ($asked:ty => $answered:ty, $answered_partition:ty) => {
        impl CommitTopic for $asked {
            type Answered = $answered;

            fn topic_id(&self) -> Uuid {
                self.topic_id
            }

            fn name(&self) -> &TopicName {
                &self.name
            }

            fn has_partitions(&self) -> bool {
                !self.partitions.is_empty()
            }

            fn set_topic(&mut self, topic_id: Uuid, name: TopicName) {
                self.topic_id = topic_id;
                self.name = name;
            }

            fn split_unknown(&mut self, exists: impl Fn(i32) -> bool) -> Self {
                let mut unknown = <$asked>::default();
                unknown.set_topic(self.topic_id, self.name.clone());
                (self.partitions, unknown.partitions) = std::mem::take(&mut self.partitions)
                    .into_iter()
                    .partition(|partition| exists(partition.partition_index));
                unknown
            }

            fn failed(&self, error: ErrorCode) -> $answered {
                let partitions = self.partitions.iter().map(|partition| {
                    let mut answered = <$answered_partition>::default();
                    answered.partition_index = partition.partition_index;
                    answered.error_code = error.code();
                    answered
                });
                let mut answered = <$answered>::default();
                answered.name = self.name.clone();
                answered.topic_id = self.topic_id;
                answered.partitions = partitions.collect();
                answered
            }
        }

        impl AnsweredTopic for $answered {
            fn topic_id(&self) -> Uuid {
                self.topic_id
            }

            fn name(&self) -> &TopicName {
                &self.name
            }

            fn append(&mut self, other: Self) {
                self.partitions.extend(other.partitions);
            }
        }
    };
}

commit_topic!(OffsetCommitRequestTopic => OffsetCommitResponseTopic, OffsetCommitResponsePartition);
commit_topic!(TxnOffsetCommitRequestTopic => TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition);

/// The answer as it grows.
pub(super) struct Answer<T> {
    by_id: bool,
    pub topics: Vec<T>,
    /// Where the topics are in it, by name or by id.
    places: HashMap<(Uuid, StrBytes), usize>,
}

impl<T: AnsweredTopic> Answer<T> {
    pub fn new(by_id: bool) -> Self {
        Self {
            by_id,
            topics: Vec::new(),
            places: HashMap::new(),
        }
    }

    fn merge(&mut self, topic: T) {
        let key = match self.by_id {
            true => (topic.topic_id(), StrBytes::default()),
            false => (Uuid::nil(), topic.name().0.clone()),
        };
        match self.places.entry(key) {
            Entry::Occupied(place) => self.topics[*place.get()].append(topic),
            Entry::Vacant(place) => {
                place.insert(self.topics.len());
                self.topics.push(topic);
            }
        }
    }

    /// What can be committed of these topics, with their names and ids; the rest is answered.
    pub fn take_valid<A: CommitTopic<Answered = T>>(
        &mut self,
        image: &MetadataImage,
        asked: Vec<A>,
    ) -> Vec<A> {
        let topics = asked.into_iter();
        topics
            .filter_map(|topic| self.take_valid_topic(image, topic))
            .collect()
    }

    fn take_valid_topic<A: CommitTopic<Answered = T>>(
        &mut self,
        image: &MetadataImage,
        mut topic: A,
    ) -> Option<A> {
        let known: Option<Arc<TopicImage>> = match self.by_id {
            true => image.topics.by_id(topic.topic_id()).cloned(),
            false => image.topics.by_name(topic.name()).cloned(),
        };
        let Some(known) = known else {
            let error = match self.by_id {
                true => ErrorCode::UnknownTopicId,
                false => ErrorCode::UnknownTopicOrPartition,
            };
            self.merge(topic.failed(error));
            return None;
        };
        topic.set_topic(known.id, TopicName(StrBytes::from_string(known.name.to_string())));
        let unknown = topic.split_unknown(|partition| known.partitions.contains_key(&partition));
        if unknown.has_partitions() {
            self.merge(unknown.failed(ErrorCode::UnknownTopicOrPartition));
        }
        topic.has_partitions().then_some(topic)
    }

    /// What the coordinator says of the topics it was `asked` for; an error is one of all of them. As with Kafka it is merged
    /// with what was answered before, and stands as it is, a topic as often as it was named, where nothing was.
    pub fn finish<A: CommitTopic<Answered = T>>(
        &mut self,
        asked: &[A],
        committed: Result<Vec<T>, ErrorCode>,
    ) {
        let topics =
            committed.unwrap_or_else(|error| asked.iter().map(|topic| topic.failed(error)).collect());
        if self.topics.is_empty() {
            self.topics = topics;
        } else {
            topics.into_iter().for_each(|topic| self.merge(topic));
        }
    }
}

#[cfg(test)]
#[path = "committed_topics_test.rs"]
mod committed_topics_test;
