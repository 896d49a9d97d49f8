//! REQUESTS: the router table and one file an API key.
//!
//! ```text
//! router       frame -> header -> row of the table -> decoded request -> handler -> encoded answer
//! table        THE table: key, versions, listeners, handler; ApiVersions, the router and the README are made from it
//! context      what a handler knows beside the request: the node, the connection, the header
//! reply        what a handler gives back; what the network writes
//! error_map    errors of the layers below as error codes, exhaustively
//! cluster_view, config_changes, auto_topic_creation, authorized_operations     what several APIs share
//! foo.rs       one API: `pub async fn handle(&RequestContext, FooRequest) -> Result<Reply<FooResponse>, ApiError>`
//! ```
//!
//! To add an API: a file here with `handle` and `impl ErrorResponse<FooRequest> for FooResponse`, its `pub mod`, one row in
//! `table.rs`. A handler authorizes, validates, makes one domain call, and shapes the answer: rules and state live below.
//!
//! Only this layer knows request versions. It never touches a socket or a file.

pub mod authorized_operations;
pub mod auto_topic_creation;
pub mod cluster_view;
mod committed_topics;
mod config_changes;
pub mod consumer_group_describe;
pub mod consumer_group_heartbeat;
pub mod context;
pub mod current_leader;
pub mod error_map;
pub mod fetch_response;
mod repeats;
pub mod reply;
pub mod router;
pub mod table;

pub mod add_offsets_to_txn;
pub mod add_partitions_to_txn;
pub mod allocate_producer_ids;
pub mod alter_configs;
pub mod alter_replica_log_dirs;
pub mod api_versions;
pub mod assign_replicas_to_dirs;
pub mod begin_quorum_epoch;
pub mod broker_heartbeat;
pub mod broker_registration;
pub mod controller_registration;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_quorum;
pub mod describe_topic_partitions;
pub mod describe_transactions;
pub mod end_quorum_epoch;
pub mod end_txn;
pub mod fetch;
pub mod fetch_snapshot;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod list_transactions;
pub mod metadata;
pub mod metadata_fetch;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
mod produce_transaction;
pub mod sync_group;
pub mod txn_offset_commit;
pub mod update_features;
pub mod vote;
pub mod write_txn_markers;

pub use crate::protocol::ApiError;
pub use context::{Broker, ConnectionContext, ListenerScope, Principal, RequestContext};
pub use reply::{Answer, ErrorResponse, Reply, ResponseFrame, ResponsePart};
pub use router::{RequestError, Router};

#[cfg(test)]
mod test_cluster;
