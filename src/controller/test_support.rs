//! A shard with brokers, for tests of decisions: `run` writes and commits what was decided.

use std::sync::Arc;

use uuid::Uuid;

use super::context::ControllerContext;
use super::shard::{Inputs, Outcome, Shard, ShardConfig};
use crate::config::KafkaConfig;
use crate::metadata::PartitionRegistration;
use crate::protocol::messages::broker_registration_request::Feature;
use crate::protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use crate::protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerId, BrokerRegistrationRequest,
    CreateTopicsRequest, CreateTopicsResponse, TopicName,
};
use crate::protocol::records::metadata::{FeatureLevelRecord, MetadataRecord};
use crate::protocol::{ApiError, StrBytes};
use crate::raft::VersionedRecord;

pub const CLUSTER_ID: &str = "test-cluster";

pub struct Fixture {
    pub shard: Shard,
    pub now_ms: i64,
    pub random: fastrand::Rng,
    pub kraft_version: i16,
    pub context: ControllerContext,
}

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn feature_level(name: &str, feature_level: i16) -> VersionedRecord {
    let record = FeatureLevelRecord {
        name: text(name),
        feature_level,
        ..FeatureLevelRecord::default()
    };
    (record.into(), 0)
}

/// The directory that every test broker has.
pub fn directory_of(broker_id: i32) -> Uuid {
    Uuid::from_u128(1000 + broker_id.unsigned_abs() as u128)
}

pub fn registration(broker_id: i32, incarnation: u128) -> BrokerRegistrationRequest {
    let mut request = BrokerRegistrationRequest::default();
    request.broker_id = BrokerId(broker_id);
    request.cluster_id = text(CLUSTER_ID);
    request.incarnation_id = Uuid::from_u128(incarnation);
    request.log_dirs = vec![directory_of(broker_id)];
    request.previous_broker_epoch = -1;
    for (name, min, max) in [
        ("metadata.version", 7, 33),
        ("kraft.version", 0, 1),
        ("eligible.leader.replicas.version", 0, 1),
    ] {
        let mut feature = Feature::default();
        feature.name = text(name);
        feature.min_supported_version = min;
        feature.max_supported_version = max;
        request.features.push(feature);
    }
    request
}

impl Fixture {
    /// An active controller on an empty log, features finalized as `kavka format` does.
    pub fn new(config: &[(&str, &str)]) -> Self {
        Self::with_features(
            config,
            vec![
                feature_level("metadata.version", 33),
                feature_level("eligible.leader.replicas.version", 1),
            ],
        )
    }

    pub fn with_features(config: &[(&str, &str)], features: Vec<VersionedRecord>) -> Self {
        let shard = Shard::new(ShardConfig {
            config: Arc::new(KafkaConfig::development_with(config).unwrap()),
            cluster_id: CLUSTER_ID.to_owned(),
            own_broker_incarnation: None,
        });
        let mut fixture = Self {
            shard,
            now_ms: 0,
            random: fastrand::Rng::with_seed(42),
            kraft_version: 1,
            context: ControllerContext::internal(),
        };
        fixture.write(&features);
        fixture.shard.activate(0);
        fixture
    }

    /// With brokers 1 to `count` registered and unfenced.
    pub fn with_brokers(count: i32) -> Self {
        let mut fixture = Self::new(&[]);
        for id in 1..=count {
            fixture
                .register(&registration(id, id.unsigned_abs() as u128))
                .unwrap();
            fixture.unfence(id);
        }
        fixture
    }

    pub fn next_offset(&self) -> i64 {
        self.shard.latest_offset() + 1
    }

    pub fn write(&mut self, records: &[VersionedRecord]) {
        if !records.is_empty() {
            let base_offset = self.next_offset();
            self.shard.replay_written(base_offset, records).unwrap();
        }
        self.shard.commit(self.shard.latest_offset());
    }

    /// Decides, writes, commits; the records and the response.
    pub fn run<T>(
        &mut self,
        decide: impl FnOnce(&Shard, &mut Inputs<'_>, &ControllerContext) -> Result<Outcome<T>, ApiError>,
    ) -> Result<(Vec<VersionedRecord>, T), ApiError> {
        let mut inputs = Inputs {
            now_ms: self.now_ms,
            next_write_offset: self.shard.latest_offset() + 1,
            kraft_version: self.kraft_version,
            random: &mut self.random,
        };
        let outcome = decide(&self.shard, &mut inputs, &self.context)?;
        self.write(&outcome.records);
        let end_offset = self.shard.latest_offset();
        self.shard.apply_effects(outcome.effects, end_offset);
        Ok((outcome.records, outcome.response))
    }

    /// The epoch.
    pub fn register(&mut self, request: &BrokerRegistrationRequest) -> Result<i64, ApiError> {
        self.register_with_records(request).map(|(_, epoch)| epoch)
    }

    pub fn register_with_records(
        &mut self,
        request: &BrokerRegistrationRequest,
    ) -> Result<(Vec<VersionedRecord>, i64), ApiError> {
        let (records, response) =
            self.run(|shard, inputs, context| shard.register_broker(inputs, context, request))?;
        Ok((records, response.broker_epoch))
    }

    pub fn heartbeat(
        &mut self,
        request: BrokerHeartbeatRequest,
    ) -> Result<(Vec<VersionedRecord>, BrokerHeartbeatResponse), ApiError> {
        self.shard
            .note_heartbeat(self.now_ms, request.broker_id.0, request.broker_epoch);
        self.run(|shard, _, _| shard.broker_heartbeat(&request))
    }

    /// A heartbeat of a broker that has read everything and knows its epoch.
    pub fn heartbeat_request(&self, broker_id: i32) -> BrokerHeartbeatRequest {
        BrokerHeartbeatRequest {
            broker_id: BrokerId(broker_id),
            broker_epoch: self.shard.image().cluster.broker_epoch(broker_id).unwrap(),
            current_metadata_offset: self.shard.latest_offset(),
            ..BrokerHeartbeatRequest::default()
        }
    }

    pub fn unfence(&mut self, broker_id: i32) -> Vec<VersionedRecord> {
        let (records, response) = self.heartbeat(self.heartbeat_request(broker_id)).unwrap();
        assert!(!response.is_fenced);
        records
    }

    /// Fences as an ended session does.
    pub fn fence(&mut self, broker_id: i32) -> Vec<VersionedRecord> {
        let epoch = self.shard.image().cluster.broker_epoch(broker_id).unwrap();
        self.run(|shard, _, _| Ok(shard.fence_stale_broker(broker_id, epoch)))
            .unwrap()
            .0
    }

    pub fn want_shut_down(&mut self, broker_id: i32) -> (Vec<VersionedRecord>, BrokerHeartbeatResponse) {
        let request = BrokerHeartbeatRequest {
            want_shut_down: true,
            ..self.heartbeat_request(broker_id)
        };
        self.heartbeat(request).unwrap()
    }

    pub fn create(
        &mut self,
        request: &CreateTopicsRequest,
    ) -> Result<(Vec<VersionedRecord>, CreateTopicsResponse), ApiError> {
        self.run(|shard, inputs, _| shard.create_topics(inputs, request))
    }

    pub fn create_topic(&mut self, name: &str, partitions: i32, replication_factor: i16) -> Uuid {
        let request = create_request(vec![topic(name, partitions, replication_factor)]);
        let (_, response) = self.create(&request).unwrap();
        assert_eq!(
            response.topics[0].error_code, 0,
            "{:?}",
            response.topics[0].error_message
        );
        response.topics[0].topic_id
    }

    pub fn partition(&self, topic: &str, partition: i32) -> PartitionRegistration {
        let topic = self.shard.image().topics.by_name(topic).unwrap();
        (*topic.partitions[&partition]).clone()
    }
}

pub fn topic(name: &str, num_partitions: i32, replication_factor: i16) -> CreatableTopic {
    let mut topic = CreatableTopic::default();
    topic.name = TopicName(text(name));
    topic.num_partitions = num_partitions;
    topic.replication_factor = replication_factor;
    topic
}

pub fn with_config(mut topic: CreatableTopic, name: &str, value: Option<&str>) -> CreatableTopic {
    let mut config = CreatableTopicConfig::default();
    config.name = text(name);
    config.value = value.map(text);
    topic.configs.push(config);
    topic
}

pub fn create_request(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    let mut request = CreateTopicsRequest::default();
    request.topics = topics;
    request
}

/// Records by name and version.
pub fn names(records: &[VersionedRecord]) -> Vec<(&'static str, i16)> {
    records
        .iter()
        .map(|(record, version)| (record.name(), *version))
        .collect()
}

pub fn partition_changes(
    records: &[VersionedRecord],
) -> Vec<&crate::protocol::records::metadata::PartitionChangeRecord> {
    records
        .iter()
        .filter_map(|(record, _)| match record {
            MetadataRecord::PartitionChange(record) => Some(record),
            _ => None,
        })
        .collect()
}
