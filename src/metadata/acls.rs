//! Access control entries in the image, by id. Kept and written again; nobody asks them yet.
//!
//! Pure.

use std::sync::Arc;

use uuid::Uuid;

use super::shared_map::SharedMap;

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
