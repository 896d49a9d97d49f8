//! The cluster as a client of one listener sees it: nodes by that listener's endpoints, replicas that are offline for it
//! (Kafka's `KRaftMetadataCache`). Shared by Metadata, DescribeTopicPartitions, DescribeCluster and FindCoordinator.

use crate::metadata::{BrokerRegistration, Endpoint, MetadataImage, PartitionRegistration};
use crate::protocol::StrBytes;
use crate::protocol::messages::BrokerId;

/// An image through a listener.
#[derive(Clone, Copy)]
pub struct ClusterView<'a> {
    pub image: &'a MetadataImage,
    pub listener: &'a str,
}

/// A broker and its endpoint on the listener.
pub struct BrokerNode<'a> {
    pub broker: &'a BrokerRegistration,
    pub endpoint: &'a Endpoint,
}

impl BrokerNode<'_> {
    pub fn id(&self) -> BrokerId {
        BrokerId(self.broker.id)
    }

    pub fn host(&self) -> StrBytes {
        StrBytes::from_string(self.endpoint.host.to_string())
    }

    pub fn port(&self) -> i32 {
        i32::from(self.endpoint.port)
    }

    pub fn rack(&self) -> Option<StrBytes> {
        self.broker
            .rack
            .as_ref()
            .map(|rack| StrBytes::from_string(rack.to_string()))
    }
}

impl<'a> ClusterView<'a> {
    /// The broker with this id, fenced or not, if it has the listener.
    pub fn node(self, id: i32) -> Option<BrokerNode<'a>> {
        let broker: &BrokerRegistration = self.image.cluster.broker(id)?;
        let endpoint = broker.listener(self.listener)?;
        Some(BrokerNode { broker, endpoint })
    }

    pub fn alive_node(self, id: i32) -> Option<BrokerNode<'a>> {
        self.node(id).filter(|node| !node.broker.fenced)
    }

    /// In the order of the ids.
    pub fn alive_nodes(self) -> impl Iterator<Item = BrokerNode<'a>> {
        self.image
            .cluster
            .brokers
            .keys()
            .filter_map(move |id| self.alive_node(*id))
    }

    /// What a client is told is the controller: any broker that is alive will do, it forwards (KIP-590).
    pub fn random_alive_broker_id(self) -> Option<i32> {
        let alive: Vec<i32> = self
            .image
            .cluster
            .brokers
            .values()
            .filter(|broker| !broker.fenced)
            .map(|broker| broker.id)
            .collect();
        match alive.len() {
            0 => None,
            count => Some(alive[fastrand::usize(..count)]),
        }
    }

    pub fn offline_replicas(self, partition: &PartitionRegistration) -> Vec<BrokerId> {
        partition
            .replicas
            .iter()
            .filter(|id| self.is_replica_offline(partition, **id))
            .map(|id| BrokerId(*id))
            .collect()
    }

    fn is_replica_offline(self, partition: &PartitionRegistration, id: i32) -> bool {
        match self.alive_node(id) {
            Some(node) => partition
                .directory_of(id)
                .is_some_and(|directory| !node.broker.may_serve_from(directory)),
            None => true,
        }
    }
}

pub fn broker_ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}
