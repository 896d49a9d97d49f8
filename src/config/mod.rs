//! CONFIG: one table of keys with type, default and valid range; `server.properties`; topic configs.
//!
//! - `definition` the table of `configs.tsv`, parsed once; `value` a key's text to its typed value with Kafka's messages
//! - `properties` the syntax of Java's `.properties` files
//! - `kafka_config` what a node was told, checked as a whole; `listeners` its endpoints
//! - `support` which keys kavka acts on, and which refuse to start because it does not
//! - `dynamic_config` changes of a running node's configs; `group_config`, `client_metrics_config` those of groups and subscriptions
//! - `group_bounds` what the node's keys of groups must be to each other
//! - `current_config` what is in force now, for those who act on changes; `java_order` in which Java lists names
//! - `topic_config` a topic's own configs over the node's; `describe` what DescribeConfigs says of all of them
//!
//! Nothing here opens a socket or knows a request.

pub mod client_metrics_config;
pub mod current_config;
pub mod definition;
pub mod describe;
pub mod dynamic_config;
pub mod error;
mod group_bounds;
pub mod group_config;
pub mod java_order;
pub mod kafka_config;
pub mod listeners;
pub mod properties;
pub mod support;
pub mod topic_config;
pub mod value;

pub use current_config::CurrentConfig;
pub use definition::{ConfigDefinition, ConfigType};
pub use error::ConfigError;
pub use kafka_config::{KafkaConfig, ProcessRole};
pub use listeners::{Endpoint, QuorumVoter, SecurityProtocol};
pub use topic_config::LogConfig;
