//! What is set in the metadata log is what the parts of the node act by.

use bytes::Bytes;

use super::*;
use crate::api::ConnectionContext;
use crate::coordinator::group::GroupConfig;
use crate::coordinator::runtime::ReplicaLog;
use crate::metadata::MetadataProvenance;
use crate::network::{Handling, NetworkConfig, RequestHandler, SocketServer};
use crate::protocol::records::metadata::ConfigRecord;
use crate::record::BatchOptions;
use crate::replica::ReplicaError;
use crate::replica::test_support::{Fixture, NODE, batch_of, id, text, topic};

struct Deaf;

impl RequestHandler for Deaf {
    fn handle<'a>(&'a self, _: &'a Arc<ConnectionContext>, _: Bytes) -> Handling<'a> {
        Box::pin(std::future::pending())
    }
}

struct Node {
    fixture: Fixture,
    publisher: DynamicConfigPublisher,
    _server: SocketServer,
}

impl Node {
    fn new() -> Self {
        let fixture = Fixture::new();
        let id = NODE.to_string();
        let config = KafkaConfig::development_with(&[
            ("node.id", &id),
            ("controller.quorum.voters", &format!("{id}@localhost:9093")),
        ]);
        let config = Arc::new(config.unwrap());
        let log = ReplicaLog::new(fixture.manager.clone());
        let group_coordinator = GroupCoordinatorService::new(
            NODE,
            GroupConfig::new(&config),
            Arc::new(log),
            fixture.clock.clone(),
            fixture.metadata.clone(),
            tokio::runtime::Handle::current(),
        );
        let network = NetworkConfig::from(&*config);
        let server = SocketServer::new(network, Arc::new(Deaf), fixture.clock.clone()).unwrap();
        let publisher = DynamicConfigPublisher {
            current: Arc::new(CurrentConfig::new(config)),
            replica_manager: fixture.manager.clone(),
            log_manager: fixture.manager.log_manager().clone(),
            connection_limits: server.connection_limits(),
            group_coordinator,
        };
        Self {
            fixture,
            publisher,
            _server: server,
        }
    }

    /// `None` takes the setting away.
    fn set_for_cluster(&self, name: &str, value: Option<&str>) {
        let record = ConfigRecord {
            resource_type: 4,
            resource_name: text(""),
            name: text(name),
            value: value.map(text),
            ..Default::default()
        };
        let mut delta = MetadataDelta::new(self.fixture.metadata.image());
        delta.replay(&record.into()).unwrap();
        let image = Arc::new(delta.apply(MetadataProvenance::default()));
        self.fixture.metadata.store(image.clone());
        self.publisher.on_metadata_update(&delta, &image);
    }

    /// Whether a producer may open a transaction that its coordinator was not asked about.
    fn takes_unverified_transaction(&self, producer_id: i64) -> bool {
        let options = BatchOptions {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            is_transactional: true,
            ..Default::default()
        };
        let appended = self.fixture.append("t", 1, batch_of(options, b"value"));
        match appended.into_results().remove(0).1.error {
            None => true,
            Some(ReplicaError::Log(_)) => false,
            Some(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn verification_of_transactions_follows_the_clusters_setting() {
    const KEY: &str = "transaction.partition.verification.enable";
    let node = Node::new();
    node.fixture.publish(&topic("t", id(0), &[NODE], &[NODE]));
    assert!(!node.takes_unverified_transaction(1));
    node.set_for_cluster(KEY, Some("false"));
    assert!(node.takes_unverified_transaction(1));
    node.set_for_cluster(KEY, None);
    assert!(!node.takes_unverified_transaction(2));
}

#[tokio::test]
async fn interval_between_assignments_follows_the_clusters_setting() {
    const KEY: &str = "group.consumer.assignment.interval.ms";
    let node = Node::new();
    let groups = &node.publisher.group_coordinator;
    assert_eq!(groups.assignment_interval_ms(), 1000);
    node.set_for_cluster(KEY, Some("250"));
    assert_eq!(groups.assignment_interval_ms(), 250);
    node.set_for_cluster(KEY, None);
    assert_eq!(groups.assignment_interval_ms(), 1000);
}
