//! The whole cluster state at one offset of the metadata log.
//!
//! Pure. An image never changes once published: a change is a new image that shares what stayed the same.

use std::sync::Arc;

use thiserror::Error;
use uuid::Uuid;

use super::acls::AclsImage;
use super::client_quotas::ClientQuotasImage;
use super::cluster::ClusterImage;
use super::configs::ConfigsImage;
use super::delegation_tokens::DelegationTokensImage;
use super::features::FeaturesImage;
use super::producer_ids::ProducerIdsImage;
use super::scram::ScramImage;
use super::topics::TopicsImage;

/// Where in the log an image ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataProvenance {
    pub last_contained_offset: i64,
    pub last_contained_epoch: i32,
    pub last_contained_log_time_ms: i64,
    /// Whether the offset ends a batch; only then a snapshot may be made there.
    pub is_offset_batch_aligned: bool,
}

impl MetadataProvenance {
    pub const EMPTY: Self = Self {
        last_contained_offset: -1,
        last_contained_epoch: -1,
        last_contained_log_time_ms: -1,
        is_offset_batch_aligned: false,
    };
}

impl Default for MetadataProvenance {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Everything that the metadata log says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetadataImage {
    pub provenance: MetadataProvenance,
    pub features: Arc<FeaturesImage>,
    pub cluster: ClusterImage,
    pub topics: TopicsImage,
    pub configs: ConfigsImage,
    pub client_quotas: ClientQuotasImage,
    pub producer_ids: ProducerIdsImage,
    pub acls: AclsImage,
    pub scram: ScramImage,
    pub delegation_tokens: DelegationTokensImage,
}

/// A record that does not fit the state it meets: the log and this code disagree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReplayError {
    #[error("no topic has the id {0}")]
    UnknownTopicId(Uuid),
    #[error("topic {name} exists already with the id {existing}; the record gives it {new}")]
    DuplicateTopic { name: String, existing: Uuid, new: Uuid },
    #[error("topic {topic_id} has no partition {partition}")]
    UnknownPartition { topic_id: Uuid, partition: i32 },
    #[error("partition {topic_id}-{partition}: {reason}")]
    InvalidPartition {
        topic_id: Uuid,
        partition: i32,
        reason: &'static str,
    },
    #[error("broker {0} is not registered")]
    UnknownBroker(i32),
    #[error("broker {broker_id} has the epoch {registered}, the record says {in_record}")]
    WrongBrokerEpoch {
        broker_id: i32,
        registered: i64,
        in_record: i64,
    },
    #[error("controller {0} is not registered")]
    UnknownController(i32),
    #[error("no access control entry has the id {0}")]
    UnknownAcl(Uuid),
    #[error("no topic is called {0}")]
    UnknownTopicName(String),
    #[error("the next producer id would go from {current} to {next}")]
    ProducerIdsNotGrowing { current: i64, next: i64 },
    #[error("unknown value {value} of {what}")]
    UnknownValue { what: &'static str, value: i64 },
    #[error("metadata transaction: {0}")]
    Transaction(&'static str),
}

impl MetadataImage {
    /// The state before the first record.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The last offset that this image contains; -1 for none.
    pub fn offset(&self) -> i64 {
        self.provenance.last_contained_offset
    }

    pub fn is_empty(&self) -> bool {
        self.features.metadata_version.is_none()
            && self.cluster == ClusterImage::default()
            && self.topics.is_empty()
    }
}
