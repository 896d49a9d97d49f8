//! Access control entries in the image, by id. Kept and written again; nobody asks them yet.
//!
//! Pure.

use std::sync::Arc;

use uuid::Uuid;

use super::image::ReplayError;
use super::shared_map::SharedMap;
use crate::protocol::records::metadata::{AccessControlEntryRecord, RemoveAccessControlEntryRecord};

/// One entry, its enums as numbers: levels that this build does not know survive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessControlEntry {
    pub resource_type: i8,
    pub resource_name: Arc<str>,
    pub pattern_type: i8,
    pub principal: Arc<str>,
    pub host: Arc<str>,
    pub operation: i8,
    pub permission_type: i8,
}

/// All entries.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AclsImage {
    pub by_id: SharedMap<Uuid, Arc<AccessControlEntry>>,
}

impl AclsImage {
    pub(super) fn replay_access_control_entry(&mut self, record: &AccessControlEntryRecord) {
        let entry = AccessControlEntry {
            resource_type: record.resource_type,
            resource_name: Arc::from(record.resource_name.as_str()),
            pattern_type: record.pattern_type,
            principal: Arc::from(record.principal.as_str()),
            host: Arc::from(record.host.as_str()),
            operation: record.operation,
            permission_type: record.permission_type,
        };
        self.by_id.insert(record.id, Arc::new(entry));
    }

    pub(super) fn replay_remove_access_control_entry(
        &mut self,
        record: &RemoveAccessControlEntryRecord,
    ) -> Result<(), ReplayError> {
        match self.by_id.remove(&record.id) {
            Some(_) => Ok(()),
            None => Err(ReplayError::UnknownAcl(record.id)),
        }
    }
}
