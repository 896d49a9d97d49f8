//! Client quotas in the image. Kept and written again; nobody asks them yet.
//!
//! Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shared_map::SharedMap;

/// An entity: its parts by type (`user`, `client-id`, `ip`); a part without a name is the default of its type.
pub type ClientQuotaEntity = BTreeMap<String, Option<String>>;

/// Quotas by entity and key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClientQuotasImage {
    pub by_entity: SharedMap<ClientQuotaEntity, Arc<BTreeMap<String, f64>>>,
}
