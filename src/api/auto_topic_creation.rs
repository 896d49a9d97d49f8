//! Topics that come to be because somebody asked for them: unknown ones in a Metadata request, the coordinators' own
//! (`AutoTopicCreationManager`).
//!
//! The one who asked is not kept waiting: the creation runs beside, and the client asks again. A topic whose creation is
//! under way is not asked for twice.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::Broker;
use crate::config::KafkaConfig;
use crate::controller::{ControllerContext, topic_name};
use crate::protocol::StrBytes;
use crate::protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use crate::protocol::messages::{CreateTopicsRequest, TopicName};

pub const GROUP_METADATA_TOPIC: &str = "__consumer_offsets";
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";
pub const SHARE_GROUP_STATE_TOPIC: &str = "__share_group_state";

/// Which topics are being created; part of [`Broker`].
#[derive(Debug, Default)]
pub struct AutoTopicCreation {
    in_flight: Mutex<HashSet<String>>,
}

impl AutoTopicCreation {
    /// Starts to create `topics`, all of valid names, on behalf of `context`'s principal.
    pub fn create(
        &self,
        broker: &Arc<Broker>,
        mut context: ControllerContext,
        topics: impl IntoIterator<Item = String>,
    ) {
        let mut names = Vec::new();
        {
            let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
            for topic in topics {
                if in_flight.insert(topic.clone()) {
                    names.push(topic);
                }
            }
        }
        if names.is_empty() {
            return;
        }
        let timeout_ms = broker.config.request_timeout_ms;
        context.deadline_ms = Some(broker.clock.monotonic_ms() + i64::from(timeout_ms));
        context.api_version = i16::MAX;
        let mut request = CreateTopicsRequest::default();
        request.timeout_ms = timeout_ms;
        request.topics = names
            .iter()
            .map(|name| creatable_topic(&broker.config, name))
            .collect();
        let broker = broker.clone();
        tokio::spawn(async move {
            let result = broker.controller.create_topics(&context, request).await;
            let mut in_flight = broker
                .auto_topic_creation
                .in_flight
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for name in &names {
                in_flight.remove(name);
            }
            drop(in_flight);
            match result {
                Ok(response) => tracing::debug!("auto topic creation of {names:?} ended with {response:?}"),
                Err(error) => tracing::warn!("auto topic creation of {names:?} failed: {error}"),
            }
        });
    }
}

/// Whether `name` is one of the topics that Kafka keeps for itself.
pub fn is_internal(name: &str) -> bool {
    topic_name::INTERNAL_TOPICS.contains(&name)
}

fn creatable_topic(config: &KafkaConfig, name: &str) -> CreatableTopic {
    let (partitions, replication_factor, configs) = match name {
        GROUP_METADATA_TOPIC => (
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            group_metadata_configs(config),
        ),
        TRANSACTION_STATE_TOPIC => (
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            transaction_state_configs(config),
        ),
        SHARE_GROUP_STATE_TOPIC => (
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            share_group_state_configs(config),
        ),
        _ => (
            config.num_partitions,
            i16::try_from(config.default_replication_factor).unwrap_or(i16::MAX),
            Vec::new(),
        ),
    };
    let mut topic = CreatableTopic::default();
    topic.name = TopicName(StrBytes::from_string(name.to_owned()));
    topic.num_partitions = partitions;
    topic.replication_factor = replication_factor;
    topic.configs = configs
        .into_iter()
        .map(|(name, value)| {
            let mut config = CreatableTopicConfig::default();
            config.name = StrBytes::from_static_str(name);
            config.value = Some(StrBytes::from_string(value));
            config
        })
        .collect();
    topic
}

type TopicConfigs = Vec<(&'static str, String)>;

fn group_metadata_configs(config: &KafkaConfig) -> TopicConfigs {
    vec![
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "producer".to_owned()),
        ("segment.bytes", config.offsets_topic_segment_bytes.to_string()),
    ]
}

fn transaction_state_configs(config: &KafkaConfig) -> TopicConfigs {
    vec![
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "uncompressed".to_owned()),
        (
            "min.insync.replicas",
            config.transaction_state_log_min_isr.to_string(),
        ),
        (
            "segment.bytes",
            config.transaction_state_log_segment_bytes.to_string(),
        ),
        ("unclean.leader.election.enable", "false".to_owned()),
    ]
}

fn share_group_state_configs(config: &KafkaConfig) -> TopicConfigs {
    vec![
        ("cleanup.policy", "delete".to_owned()),
        ("compression.type", "producer".to_owned()),
        (
            "min.insync.replicas",
            config.share_coordinator_state_topic_min_isr.to_string(),
        ),
        ("retention.ms", "-1".to_owned()),
        (
            "segment.bytes",
            config.share_coordinator_state_topic_segment_bytes.to_string(),
        ),
    ]
}
