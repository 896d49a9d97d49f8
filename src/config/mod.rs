//! CONFIG: one table of keys with type, default and valid range; `server.properties`; topic configs.
//!
//! - `definition` the table of `configs.tsv`, parsed once; `value` a key's text to its typed value with Kafka's messages
//! - `properties` the syntax of Java's `.properties` files
//! - `kafka_config` what a node was told, checked as a whole; `listeners` its endpoints
//! - `support` which keys kavka acts on, and which refuse to start because it does not
//! - `topic_config` a topic's own configs over the node's; `describe` what DescribeConfigs says of all of them
//!
//! Nothing here opens a socket or knows a request.

pub mod definition;
pub mod describe;
pub mod error;
pub mod kafka_config;
pub mod listeners;
pub mod properties;
pub mod support;
pub mod topic_config;
pub mod value;

pub use definition::{ConfigDefinition, ConfigType};
pub use error::ConfigError;
pub use kafka_config::{KafkaConfig, ProcessRole};
pub use listeners::{Endpoint, QuorumVoter, SecurityProtocol};
pub use topic_config::LogConfig;
