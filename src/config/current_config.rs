//! The configuration in force: the node's file under what the metadata log sets, replaced as a whole when that changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::KafkaConfig;
use super::dynamic_config::{self, LeftOut};

/// Shared by those who act on changes; everyone else keeps what it was started with.
#[derive(Debug)]
pub struct CurrentConfig {
    file: Arc<KafkaConfig>,
    current: ArcSwap<KafkaConfig>,
}

impl CurrentConfig {
    pub fn new(file: Arc<KafkaConfig>) -> Self {
        Self {
            current: ArcSwap::new(file.clone()),
            file,
        }
    }

    /// What the node was started with.
    pub fn file(&self) -> &Arc<KafkaConfig> {
        &self.file
    }

    pub fn load(&self) -> Arc<KafkaConfig> {
        self.current.load_full()
    }

    /// Takes what the metadata log sets now, and returns what is in force and what had to be left out.
    pub fn update(
        &self,
        cluster_default: &BTreeMap<String, String>,
        own: &BTreeMap<String, String>,
    ) -> (Arc<KafkaConfig>, Vec<LeftOut>) {
        let effective = dynamic_config::effective(&self.file, cluster_default, own);
        let changed = Arc::new(effective.config);
        self.current.store(changed.clone());
        (changed, effective.left_out)
    }
}
