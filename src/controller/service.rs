//! The service around the controller's state machine.
#![allow(clippy::todo)]

use std::sync::Arc;

use uuid::Uuid;

use super::context::ControllerContext;
use crate::config::KafkaConfig;
use crate::io::clock::Clock;
use crate::protocol::ApiError;
use crate::protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse,
    BrokerRegistrationRequest, BrokerRegistrationResponse, ControllerRegistrationRequest,
    ControllerRegistrationResponse, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
};
use crate::raft::{RaftClient, VersionedRecord};

/// What the controller is built of.
pub struct ControllerServiceConfig {
    pub config: Arc<KafkaConfig>,
    pub cluster_id: String,
    /// Data records of the bootstrap checkpoint, for an empty log (FeatureLevel and SCRAM records).
    pub bootstrap_records: Vec<VersionedRecord>,
    /// The incarnation of the broker in this process, if there is one.
    pub own_broker_incarnation: Option<Uuid>,
    /// Must make the node end; called once with the reason.
    pub on_fatal: Box<dyn Fn(&str) + Send>,
}

/// The controller of this node, active or not; clones are handles to the same task. Every call is answered when its records
/// are committed; NOT_CONTROLLER when another node is active.
#[derive(Clone)]
pub struct ControllerService {}

impl ControllerService {
    /// Starts the task on `runtime` and registers with raft.
    pub fn start(
        config: ControllerServiceConfig,
        raft: RaftClient,
        clock: Arc<dyn Clock>,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let _ = (config, raft, clock, runtime);
        todo!()
    }

    /// Whether this node is the active controller.
    pub fn is_active(&self) -> bool {
        todo!()
    }

    /// Duplicates, `__cluster_metadata` and all of Kafka's other rules included; authorization is the caller's.
    pub async fn create_topics(
        &self,
        context: &ControllerContext,
        request: CreateTopicsRequest,
    ) -> Result<CreateTopicsResponse, ApiError> {
        let _ = (context, request);
        todo!()
    }

    /// By name or by id; duplicates and `delete.topic.enable` included.
    pub async fn delete_topics(
        &self,
        context: &ControllerContext,
        request: DeleteTopicsRequest,
    ) -> Result<DeleteTopicsResponse, ApiError> {
        let _ = (context, request);
        todo!()
    }

    pub async fn create_partitions(
        &self,
        context: &ControllerContext,
        request: CreatePartitionsRequest,
    ) -> Result<CreatePartitionsResponse, ApiError> {
        let _ = (context, request);
        todo!()
    }

    pub async fn register_broker(
        &self,
        context: &ControllerContext,
        request: BrokerRegistrationRequest,
    ) -> Result<BrokerRegistrationResponse, ApiError> {
        let _ = (context, request);
        todo!()
    }

    pub async fn broker_heartbeat(
        &self,
        context: &ControllerContext,
        request: BrokerHeartbeatRequest,
    ) -> Result<BrokerHeartbeatResponse, ApiError> {
        let _ = (context, request);
        todo!()
    }

    pub async fn allocate_producer_ids(
        &self,
        context: &ControllerContext,
        request: AllocateProducerIdsRequest,
    ) -> Result<AllocateProducerIdsResponse, ApiError> {
        let _ = (context, request);
        todo!()
    }

    pub async fn register_controller(
        &self,
        context: &ControllerContext,
        request: ControllerRegistrationRequest,
    ) -> Result<ControllerRegistrationResponse, ApiError> {
        let _ = (context, request);
        todo!()
    }

    /// Gives the leadership up and ends the task.
    pub fn shutdown(&self) {
        todo!()
    }
}
