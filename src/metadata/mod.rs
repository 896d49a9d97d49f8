//! METADATA READS: the cluster's state as an immutable image, the deltas between images, and the thread that turns
//! committed metadata records into both.
//!
//! ```text
//! raft commits -> loader (own thread) -> delta.replay(record)... -> delta.apply() -> publishers, in order
//!                                                                          \-> cache (readers: one atomic load)
//! ```
//!
//! Images share what did not change (`Arc`s and [`shared_map::SharedMap`]), so a new image costs what changed, not
//! what is there. Everything here but the loader, the cache and the life cycle's shell is pure.

pub mod acls;
pub mod batch_loader;
pub mod broker_lifecycle;
pub mod broker_lifecycle_manager;
pub mod cache;
pub mod client_quotas;
pub mod cluster;
pub mod configs;
pub mod delegation_tokens;
pub mod delta;
pub mod features;
pub mod image;
pub mod image_records;
pub mod loader;
pub mod metadata_version;
pub mod partition;
pub mod producer_ids;
pub mod publisher;
pub mod scram;
pub mod shared_map;
pub mod topics;

pub use broker_lifecycle::{BrokerLifecycleConfig, BrokerState};
pub use broker_lifecycle_manager::{BrokerLifecycleManager, ControllerChannel};
pub use cache::MetadataCache;
pub use cluster::{BrokerRegistration, ClusterImage, ControllerRegistration, Endpoint, VersionRange};
pub use configs::{ConfigResource, ConfigResourceType, ConfigsImage};
pub use delta::{LocalReplicaChanges, MetadataDelta, PartitionInfo, TopicsDelta};
pub use features::FeaturesImage;
pub use image::{MetadataImage, MetadataProvenance, ReplayError};
pub use loader::{MetadataLoader, MetadataLoaderConfig};
pub use metadata_version::MetadataVersion;
pub use partition::{LeaderRecoveryState, NO_LEADER, PartitionRegistration};
pub use publisher::MetadataPublisher;
pub use topics::{TopicImage, TopicsImage};

#[cfg(test)]
mod golden_test;
