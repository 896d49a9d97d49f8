//! Where a partition's leader is, for the answers that tell a client at once (KIP-951): Produce from 10 on, Fetch from 16 on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RequestContext;
use crate::metadata::{MetadataCache, NO_LEADER};
use crate::protocol::StrBytes;
use crate::replica::TopicIdPartition;

/// A broker as one listener's clients reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderEndpoint {
    pub node_id: i32,
    pub host: StrBytes,
    pub port: i32,
    pub rack: Option<StrBytes>,
}

/// Gathers the leaders that one answer names, and their end points, as the metadata has them when the answer is made.
pub struct CurrentLeaders {
    metadata: MetadataCache,
    listener_name: Arc<str>,
    endpoints: BTreeMap<i32, LeaderEndpoint>,
}

impl CurrentLeaders {
    pub fn new(context: &RequestContext) -> Self {
        Self {
            metadata: context.broker.metadata.clone(),
            listener_name: context.connection.listener_name.clone(),
            endpoints: BTreeMap::new(),
        }
    }

    /// Leader id and epoch, -1 where they are not known. The leader's end point is remembered if it is alive.
    pub fn of(&mut self, partition: &TopicIdPartition) -> (i32, i32) {
        let (topic, index) = (
            &partition.topic_partition.topic,
            partition.topic_partition.partition,
        );
        let image = self.metadata.load();
        let Some(registration) = image
            .topics
            .by_name(topic)
            .and_then(|topic| topic.partitions.get(&index))
        else {
            return (NO_LEADER, -1);
        };
        let (leader, leader_epoch) = (registration.leader, registration.leader_epoch);
        if let Some(broker) = image.cluster.alive_broker(leader)
            && let Some(endpoint) = broker.listener(&self.listener_name)
        {
            self.endpoints.insert(
                leader,
                LeaderEndpoint {
                    node_id: leader,
                    host: StrBytes::from_string(endpoint.host.to_string()),
                    port: i32::from(endpoint.port),
                    rack: broker
                        .rack
                        .as_ref()
                        .map(|rack| StrBytes::from_string(rack.to_string())),
                },
            );
        }
        (leader, leader_epoch)
    }

    pub fn into_endpoints(self) -> Vec<LeaderEndpoint> {
        self.endpoints.into_values().collect()
    }
}
