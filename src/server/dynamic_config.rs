//! Acts on changes of the node's own configs in the metadata log (Kafka's `DynamicConfigPublisher` and `BrokerConfigHandler`).
//!
//! What kavka acts on while it runs: the defaults of topics, the limits of connections, the cleaner's settings, the expiry of
//! producer ids, the verification of transactions, the interval between assignments. Sizes of pools are accepted: kavka's threads
//! are as many as there are processors.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::log_tasks::log_cleaner_config;
use crate::config::{CurrentConfig, KafkaConfig, dynamic_config, support};
use crate::coordinator::group::GroupCoordinatorService;
use crate::log::LogManager;
use crate::metadata::{ConfigResource, MetadataDelta, MetadataImage, MetadataPublisher};
use crate::network::ConnectionLimits;
use crate::replica::ReplicaManager;

pub(super) struct DynamicConfigPublisher {
    pub current: Arc<CurrentConfig>,
    pub replica_manager: Arc<ReplicaManager>,
    pub log_manager: Arc<LogManager>,
    pub connection_limits: ConnectionLimits,
    pub group_coordinator: Arc<GroupCoordinatorService>,
}

impl DynamicConfigPublisher {
    fn apply(&self, before: &KafkaConfig, now: &KafkaConfig, image: &MetadataImage) {
        if before.log_config != now.log_config {
            self.replica_manager.update_log_configs(image);
        }
        if let Err(error) = self.connection_limits.update(now) {
            tracing::error!(%error, "the limits of connections stay as they were");
        }
        if let Err(error) = self.log_manager.update_cleaner(log_cleaner_config(now)) {
            tracing::error!(%error, "more threads of the log cleaner could not be started");
        }
        self.log_manager
            .set_producer_id_expiration_ms(now.producer_id_expiration_ms);
        self.replica_manager
            .set_transaction_verification(now.transaction_partition_verification_enable);
        self.group_coordinator
            .set_assignment_interval_ms(now.group_consumer_assignment_interval_ms);
    }
}

impl MetadataPublisher for DynamicConfigPublisher {
    fn name(&self) -> &'static str {
        "DynamicConfigPublisher"
    }

    fn on_metadata_update(&self, delta: &MetadataDelta, image: &Arc<MetadataImage>) {
        let own = ConfigResource::broker(self.current.file().node_id);
        let cluster_default = ConfigResource::broker_default();
        let changed = delta.changed_configs();
        if !changed.contains(&own) && !changed.contains(&cluster_default) {
            return;
        }
        let nothing = BTreeMap::new();
        let stored =
            |resource: &ConfigResource| image.configs.get(resource).map_or(&nothing, |stored| &**stored);
        let before = self.current.load();
        let (now, left_out) = self.current.update(stored(&cluster_default), stored(&own));
        for left_out in left_out {
            tracing::error!("a stored configuration is not in force: {left_out}");
        }
        self.apply(&before, &now, image);
        tracing::info!("the node's configs were changed by the metadata log");
        let waiting = dynamic_config::waiting_for_restart(self.current.file(), &now);
        if !waiting.is_empty() {
            tracing::warn!(
                "Stored configurations that differ from the file's, by which this node goes on: {}.",
                waiting.join(", ")
            );
        }
        let stored = [now.dynamic_default(), now.dynamic_broker()];
        let neglected: Vec<&str> = stored.into_iter().flat_map(support::neglected).collect();
        if !neglected.is_empty() {
            tracing::warn!(
                "Configurations that kavka accepts but does not act on: {}.",
                neglected.join(", ")
            );
        }
    }
}

#[cfg(test)]
#[path = "dynamic_config_test.rs"]
mod dynamic_config_test;
