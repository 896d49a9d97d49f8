//! What one consumer group is configured with: its own settings where it has them, else those of the brokers. Pure.

use super::config::GroupConfig;
use crate::metadata::MetadataImage;
use crate::metadata::configs::{ConfigResource, ConfigResourceType};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSettings {
    pub session_timeout_ms: i64,
    pub heartbeat_interval_ms: i64,
    /// Between two target assignments (KIP-1263).
    pub assignment_interval_ms: i64,
}

impl GroupSettings {
    pub fn of(group_id: &str, config: &GroupConfig, image: &MetadataImage) -> Self {
        let resource = ConfigResource::new(ConfigResourceType::Group, group_id);
        let own = image.configs.get(&resource);
        let own = |key: &str| own.and_then(|settings| settings.get(key));
        Self {
            session_timeout_ms: config
                .consumer_group_session_timeout
                .or_own(own("consumer.session.timeout.ms")),
            heartbeat_interval_ms: config
                .consumer_group_heartbeat_interval
                .or_own(own("consumer.heartbeat.interval.ms")),
            assignment_interval_ms: config
                .consumer_group_assignment_interval
                .now()
                .or_own(own("consumer.assignment.interval.ms")),
        }
    }
}
