//! Client quotas in the image. Kept and written again; nobody asks them yet.
//!
//! Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shared_map::SharedMap;
use crate::protocol::records::metadata::ClientQuotaRecord;

/// An entity: its parts by type (`user`, `client-id`, `ip`); a part without a name is the default of its type.
pub type ClientQuotaEntity = BTreeMap<String, Option<String>>;

/// Quotas by entity and key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClientQuotasImage {
    pub by_entity: SharedMap<ClientQuotaEntity, Arc<BTreeMap<String, f64>>>,
}

impl ClientQuotasImage {
    pub(super) fn replay_client_quota(&mut self, record: &ClientQuotaRecord) {
        let entity: ClientQuotaEntity = record
            .entity
            .iter()
            .map(|part| {
                let name = part.entity_name.as_ref().map(|name| name.to_string());
                (part.entity_type.to_string(), name)
            })
            .collect();
        let mut quotas = self.by_entity.get(&entity).cloned().unwrap_or_default();
        if record.remove {
            Arc::make_mut(&mut quotas).remove(record.key.as_str());
        } else {
            Arc::make_mut(&mut quotas).insert(record.key.to_string(), record.value);
        }
        if quotas.is_empty() {
            self.by_entity.remove(&entity);
        } else {
            self.by_entity.insert(entity, quotas);
        }
    }
}
