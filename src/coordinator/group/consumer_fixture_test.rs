//! Consumer groups on the fixture: topics in the metadata, heartbeats, what members have.

use std::sync::Arc;

use uuid::Uuid;

use super::consumer_group::ConsumerGroup;
use super::consumer_protocol::HeartbeatContext;
use super::fixture_test::*;
use crate::coordinator::runtime::shard::{CoordinatorShard, TopicChanges};
use crate::metadata::{MetadataDelta, MetadataImage, MetadataProvenance};
use crate::protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use crate::protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, GroupId, TopicName,
};
use crate::protocol::records::metadata::{
    ConfigRecord, MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord,
};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

pub fn topic_id(number: u128) -> Uuid {
    Uuid::from_u128(0x1000 + number)
}

/// Partitions by topic number.
pub type Partitions<'a> = &'a [(u128, &'a [i32])];

pub fn request(member_id: &str, member_epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("group")))
        .with_member_id(text(member_id))
        .with_member_epoch(member_epoch)
        .with_instance_id(None)
        .with_rack_id(None)
        .with_rebalance_timeout_ms(-1)
        .with_subscribed_topic_names(None)
        .with_subscribed_topic_regex(None)
        .with_server_assignor(None)
        .with_topic_partitions(None)
}

pub fn joining(member_id: &str, topics: &[&str]) -> ConsumerGroupHeartbeatRequest {
    request(member_id, 0)
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_names(Some(names(topics)))
        .with_topic_partitions(Some(Vec::new()))
}

pub fn names(topics: &[&str]) -> Vec<TopicName> {
    topics.iter().map(|topic| TopicName(text(topic))).collect()
}

pub fn owning(partitions: Partitions) -> Option<Vec<TopicPartitions>> {
    let topics = partitions.iter().map(|(topic, partitions)| {
        TopicPartitions::default()
            .with_topic_id(topic_id(*topic))
            .with_partitions(partitions.to_vec())
    });
    Some(topics.collect())
}

/// Epoch and assignment.
pub type Answered = (i32, Option<Vec<(u128, Vec<i32>)>>);

/// Epoch and assignment of an answer.
pub fn answered(response: &ConsumerGroupHeartbeatResponse) -> Answered {
    assert_eq!(response.error_code, 0);
    let assignment = response.assignment.as_ref().map(|assignment| {
        let topics = assignment.topic_partitions.iter();
        topics
            .map(|topic| (topic.topic_id.as_u128() - 0x1000, topic.partitions.clone()))
            .collect()
    });
    (response.member_epoch, assignment)
}

impl Fixture {
    fn change_metadata(&mut self, records: Vec<MetadataRecord>) {
        let before = self.shard.image.clone();
        let offset = before.offset() + 1;
        let mut delta = MetadataDelta::new(before);
        for record in &records {
            delta.replay(record).unwrap();
        }
        let image: MetadataImage = delta.apply(MetadataProvenance {
            last_contained_offset: offset,
            ..MetadataProvenance::EMPTY
        });
        self.shard
            .on_metadata_update(&Arc::new(image), &TopicChanges::of(&delta));
    }

    /// Creates a topic, or gives it more partitions.
    pub fn topic(&mut self, name: &str, number: u128, partitions: i32) {
        let existing = self.shard.image.topics.by_name(name);
        let existing = existing.map_or(0, |topic| topic.partitions.len() as i32);
        let mut records: Vec<MetadataRecord> = Vec::new();
        if existing == 0 {
            let record = TopicRecord {
                name: text(name),
                topic_id: topic_id(number),
                ..Default::default()
            };
            records.push(record.into());
        }
        for partition_id in existing..partitions {
            let record = PartitionRecord {
                topic_id: topic_id(number),
                partition_id,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                ..Default::default()
            };
            records.push(record.into());
        }
        self.change_metadata(records);
    }

    pub fn delete_topic(&mut self, number: u128) {
        let record = RemoveTopicRecord {
            topic_id: topic_id(number),
            ..Default::default()
        };
        self.change_metadata(vec![record.into()]);
    }

    pub fn group_config(&mut self, group: &str, key: &str, value: &str) {
        let record = ConfigRecord {
            resource_type: 32,
            resource_name: text(group),
            name: text(key),
            value: Some(text(value)),
            ..Default::default()
        };
        self.change_metadata(vec![record.into()]);
    }

    pub fn try_beat(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<ConsumerGroupHeartbeatResponse, ApiError> {
        let context = self.context();
        let client = HeartbeatContext {
            client_id: text("client"),
            client_host: text("/127.0.0.1"),
            new_member_id: text("made-up"),
        };
        let outcome = self.shard.consumer_group_heartbeat(&context, &client, request)?;
        Ok(self.apply(outcome))
    }

    pub fn beat(&mut self, request: &ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
        self.try_beat(request).unwrap()
    }

    /// Epoch and assignment that a heartbeat is answered with.
    pub fn beats(&mut self, request: &ConsumerGroupHeartbeatRequest) -> Answered {
        let response = self.beat(request);
        answered(&response)
    }

    pub fn refused(&mut self, request: &ConsumerGroupHeartbeatRequest) -> (ErrorCode, String) {
        let error = self.try_beat(request).unwrap_err();
        (error.code, error.message_or_default().to_owned())
    }

    pub fn group(&self) -> &ConsumerGroup {
        self.shard.consumer_group("group").expect("no consumer group")
    }

    pub fn epochs(&self) -> (i32, i32, &'static str) {
        let group = self.group();
        (group.group_epoch(), group.assignment_epoch(), group.state())
    }

    /// Names of the keys of records from an offset on; a tombstone's with a dash before it.
    pub fn written_since(&self, offset: usize) -> Vec<String> {
        let records = self.log[offset..].iter();
        records
            .map(|record| {
                let name = record.key.name().trim_end_matches("Key").to_owned();
                let name = name.replace("ConsumerGroup", "");
                match record.value {
                    Some(_) => name,
                    None => format!("-{name}"),
                }
            })
            .collect()
    }

    /// What there is of a group comes out the same from the log.
    pub fn assert_replays(&self) {
        let mut replayed = self.reloaded();
        let replayed = replayed.shard.groups.get_mut("group".as_bytes());
        let live = self.shard.groups.get("group".as_bytes());
        match (replayed, live) {
            (Some(super::shard::Group::Consumer(replayed)), Some(super::shard::Group::Consumer(live))) => {
                let mut live = (**live).clone();
                live.request_metadata_refresh();
                replayed.request_metadata_refresh();
                assert_eq!(**replayed, live);
            }
            (replayed, live) => assert_eq!(replayed.is_some(), live.is_some()),
        }
    }
}

pub fn member_id(response: &ConsumerGroupHeartbeatResponse) -> StrBytes {
    response.member_id.clone().unwrap()
}
