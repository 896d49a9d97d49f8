//! THE ROUTER TABLE: every API that kavka serves, with its versions, listeners and handler.
//!
//! ApiVersions, the router and the README's table come from it; a version number stands nowhere else. An API is here only
//! when it works in full: what needs a later issue is absent, and so neither advertised nor routed.
//!
//! A handler in a row fixes the types of its request and response; `answer` does the rest.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use super::router::{answer, decode_for};
use super::{Answer, ListenerScope, RequestContext, RequestError};
use crate::protocol::ApiKey;

/// The future of one handled request.
pub type Handling<'a> = Pin<Box<dyn Future<Output = Result<Answer, RequestError>> + Send + 'a>>;

/// Decodes a body, runs the handler and encodes what it says.
pub type Handler = for<'a> fn(&'a RequestContext, Bytes) -> Handling<'a>;

/// Decodes a body into the type that the handler takes, and drops it: what fuzzers and tests run.
pub type Check = fn(ApiKey, i16, Bytes) -> Result<(), RequestError>;

/// One row.
pub struct ApiRow {
    pub key: ApiKey,
    /// Served from; see `advertised_min_version`.
    pub min_version: i16,
    pub max_version: i16,
    /// Below `min_version` only for Produce: old librdkafka takes the absence of Produce 0 for a broker without compression (KIP-896).
    pub advertised_min_version: i16,
    pub on_broker: bool,
    pub on_controller: bool,
    pub handler: Handler,
    pub check: Check,
}

impl ApiRow {
    pub fn serves(&self, version: i16) -> bool {
        self.min_version <= version && version <= self.max_version
    }

    pub fn is_on(&self, scope: ListenerScope) -> bool {
        match scope {
            ListenerScope::Broker => self.on_broker,
            ListenerScope::Controller => self.on_controller,
        }
    }
}

/// `Name min..=max [advertised from n] on listeners => handler;`
macro_rules! table {
    (@scope broker) => { (true, false) };
    (@scope controller) => { (false, true) };
    (@scope both) => { (true, true) };
    (@advertised $min:literal) => { $min };
    (@advertised $min:literal $advertised:literal) => { $advertised };
    ($($key:ident $min:literal to $max:literal $(advertised from $advertised:literal)? on $scope:ident => $module:ident,)*) => {
        &[$(ApiRow {
            key: ApiKey::$key,
            min_version: $min,
            max_version: $max,
            advertised_min_version: table!(@advertised $min $($advertised)?),
            on_broker: table!(@scope $scope).0,
            on_controller: table!(@scope $scope).1,
            handler: |context, body| Box::pin(answer(context, body, super::$module::handle)),
            check: |key, version, body| decode_for(key, version, body, super::$module::handle),
        },)*]
    };
}

/// In the order of the keys.
pub static TABLE: &[ApiRow] = table! {
    Produce 3 to 13 advertised from 0 on broker => produce,
    Fetch 4 to 18 on both => fetch,
    ListOffsets 1 to 11 on broker => list_offsets,
    Metadata 0 to 13 on broker => metadata,
    OffsetCommit 2 to 10 on broker => offset_commit,
    OffsetFetch 1 to 10 on broker => offset_fetch,
    FindCoordinator 0 to 6 on broker => find_coordinator,
    JoinGroup 0 to 9 on broker => join_group,
    Heartbeat 0 to 4 on broker => heartbeat,
    LeaveGroup 0 to 5 on broker => leave_group,
    SyncGroup 0 to 5 on broker => sync_group,
    DescribeGroups 0 to 6 on broker => describe_groups,
    ListGroups 0 to 5 on broker => list_groups,
    ApiVersions 0 to 5 on both => api_versions,
    CreateTopics 2 to 7 on both => create_topics,
    DeleteTopics 1 to 6 on both => delete_topics,
    DeleteRecords 0 to 2 on broker => delete_records,
    InitProducerId 0 to 5 on broker => init_producer_id,
    OffsetForLeaderEpoch 2 to 4 on broker => offset_for_leader_epoch,
    AddPartitionsToTxn 0 to 5 on broker => add_partitions_to_txn,
    AddOffsetsToTxn 0 to 4 on broker => add_offsets_to_txn,
    EndTxn 0 to 5 on broker => end_txn,
    WriteTxnMarkers 1 to 2 on broker => write_txn_markers,
    TxnOffsetCommit 0 to 6 on broker => txn_offset_commit,
    DescribeConfigs 1 to 4 on both => describe_configs,
    AlterConfigs 0 to 2 on both => alter_configs,
    AlterReplicaLogDirs 1 to 2 on broker => alter_replica_log_dirs,
    DescribeLogDirs 1 to 5 on broker => describe_log_dirs,
    CreatePartitions 0 to 3 on both => create_partitions,
    DeleteGroups 0 to 3 on broker => delete_groups,
    IncrementalAlterConfigs 0 to 1 on both => incremental_alter_configs,
    OffsetDelete 0 to 0 on broker => offset_delete,
    Vote 0 to 2 on controller => vote,
    BeginQuorumEpoch 0 to 1 on controller => begin_quorum_epoch,
    EndQuorumEpoch 0 to 1 on controller => end_quorum_epoch,
    DescribeQuorum 0 to 2 on both => describe_quorum,
    UpdateFeatures 0 to 2 on both => update_features,
    FetchSnapshot 0 to 1 on controller => fetch_snapshot,
    DescribeCluster 0 to 2 on both => describe_cluster,
    DescribeProducers 0 to 0 on broker => describe_producers,
    BrokerRegistration 0 to 4 on controller => broker_registration,
    BrokerHeartbeat 0 to 2 on controller => broker_heartbeat,
    DescribeTransactions 0 to 0 on broker => describe_transactions,
    ListTransactions 0 to 2 on broker => list_transactions,
    AllocateProducerIds 0 to 0 on controller => allocate_producer_ids,
    ConsumerGroupHeartbeat 0 to 1 on broker => consumer_group_heartbeat,
    ConsumerGroupDescribe 0 to 1 on broker => consumer_group_describe,
    ControllerRegistration 0 to 0 on controller => controller_registration,
    AssignReplicasToDirs 0 to 0 on controller => assign_replicas_to_dirs,
    ListConfigResources 0 to 1 on broker => list_config_resources,
    DescribeTopicPartitions 0 to 0 on broker => describe_topic_partitions,
};

/// The row of a key, whatever the listener.
pub fn row(key: ApiKey) -> Option<&'static ApiRow> {
    TABLE
        .binary_search_by_key(&key, |row| row.key)
        .ok()
        .map(|index| &TABLE[index])
}

/// The rows that a listener of this kind serves.
pub fn rows(scope: ListenerScope) -> impl Iterator<Item = &'static ApiRow> {
    TABLE.iter().filter(move |row| row.is_on(scope))
}

/// The table for the README; a test compares.
pub fn markdown() -> String {
    let mut text = String::from("| key | API | versions | listeners |\n| ---: | --- | --- | --- |\n");
    for row in TABLE {
        let listeners = match (row.on_broker, row.on_controller) {
            (true, true) => "broker, controller",
            (true, false) => "broker",
            _ => "controller",
        };
        let mut versions = match row.min_version == row.max_version {
            true => row.min_version.to_string(),
            false => format!("{}-{}", row.min_version, row.max_version),
        };
        if row.advertised_min_version != row.min_version {
            versions.push_str(&format!(" (advertised from {})", row.advertised_min_version));
        }
        text.push_str(&format!(
            "| {} | {} | {versions} | {listeners} |\n",
            row.key.code(),
            row.key.name()
        ));
    }
    text
}

#[cfg(test)]
#[path = "table_test.rs"]
mod table_test;
