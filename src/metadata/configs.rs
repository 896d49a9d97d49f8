//! Dynamic configurations in the image: what was set, by resource.
//!
//! Pure. A resource without settings has no entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shared_map::SharedMap;
use crate::protocol::records::metadata::ConfigRecord;

/// Kinds of resource that carry settings (`ConfigResource.Type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigResourceType {
    Unknown,
    Topic,
    Broker,
    BrokerLogger,
    ClientMetrics,
    Group,
}

impl ConfigResourceType {
    pub fn id(self) -> i8 {
        match self {
            Self::Unknown => 0,
            Self::Topic => 2,
            Self::Broker => 4,
            Self::BrokerLogger => 8,
            Self::ClientMetrics => 16,
            Self::Group => 32,
        }
    }

    pub fn from_id(id: i8) -> Self {
        match id {
            2 => Self::Topic,
            4 => Self::Broker,
            8 => Self::BrokerLogger,
            16 => Self::ClientMetrics,
            32 => Self::Group,
            _ => Self::Unknown,
        }
    }
}

/// A resource; for a broker the name is its id, or empty for the cluster's default.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    pub resource_type: ConfigResourceType,
    pub name: Arc<str>,
}

impl ConfigResource {
    pub fn new(resource_type: ConfigResourceType, name: &str) -> Self {
        Self {
            resource_type,
            name: Arc::from(name),
        }
    }

    pub fn topic(name: &str) -> Self {
        Self::new(ConfigResourceType::Topic, name)
    }

    /// The node's own settings.
    pub fn broker(id: i32) -> Self {
        Self::new(ConfigResourceType::Broker, &id.to_string())
    }

    /// The settings of all brokers.
    pub fn broker_default() -> Self {
        Self::new(ConfigResourceType::Broker, "")
    }
}

/// All dynamic settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConfigsImage {
    by_resource: SharedMap<ConfigResource, Arc<BTreeMap<String, String>>>,
}

impl ConfigsImage {
    /// What was set for `resource`; `None` if nothing was.
    pub fn get(&self, resource: &ConfigResource) -> Option<&Arc<BTreeMap<String, String>>> {
        self.by_resource.get(resource)
    }

    /// The topic's overrides; empty if it has none.
    pub fn topic_overrides(&self, topic: &str) -> Arc<BTreeMap<String, String>> {
        self.by_resource
            .get(&ConfigResource::topic(topic))
            .cloned()
            .unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ConfigResource, &Arc<BTreeMap<String, String>>)> {
        self.by_resource.iter()
    }
}

impl ConfigsImage {
    pub(super) fn replay_config(&mut self, record: &ConfigRecord) -> ConfigResource {
        let resource = ConfigResource::new(
            ConfigResourceType::from_id(record.resource_type),
            record.resource_name.as_str(),
        );
        let mut settings = self.by_resource.get(&resource).cloned().unwrap_or_default();
        match &record.value {
            Some(value) => {
                Arc::make_mut(&mut settings).insert(record.name.to_string(), value.to_string());
            }
            None => {
                Arc::make_mut(&mut settings).remove(record.name.as_str());
            }
        }
        if settings.is_empty() {
            self.by_resource.remove(&resource);
        } else {
            self.by_resource.insert(resource.clone(), settings);
        }
        resource
    }

    /// A topic is gone, and its settings with it. Whether it had any.
    pub(super) fn remove(&mut self, resource: &ConfigResource) -> bool {
        self.by_resource.remove(resource).is_some()
    }
}
