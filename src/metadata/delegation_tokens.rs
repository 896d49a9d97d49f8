//! Delegation tokens in the image, by token id. Kept and written again; nobody asks them yet.
//!
//! Pure.

use std::sync::Arc;

use super::shared_map::SharedMap;
use crate::protocol::records::metadata::{DelegationTokenRecord, RemoveDelegationTokenRecord};

/// One token; its HMAC is not stored, it follows from the id and the cluster's secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationToken {
    pub owner: Arc<str>,
    pub requester: Arc<str>,
    pub renewers: Vec<Arc<str>>,
    pub issue_timestamp: i64,
    pub max_timestamp: i64,
    pub expiration_timestamp: i64,
}

/// All tokens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DelegationTokensImage {
    pub by_token_id: SharedMap<Arc<str>, Arc<DelegationToken>>,
}

impl DelegationTokensImage {
    pub(super) fn replay_delegation_token(&mut self, record: &DelegationTokenRecord) {
        let token = DelegationToken {
            owner: Arc::from(record.owner.as_str()),
            requester: Arc::from(record.requester.as_str()),
            renewers: record
                .renewers
                .iter()
                .map(|renewer| Arc::from(renewer.as_str()))
                .collect(),
            issue_timestamp: record.issue_timestamp,
            max_timestamp: record.max_timestamp,
            expiration_timestamp: record.expiration_timestamp,
        };
        self.by_token_id
            .insert(Arc::from(record.token_id.as_str()), Arc::new(token));
    }

    pub(super) fn replay_remove_delegation_token(&mut self, record: &RemoveDelegationTokenRecord) {
        self.by_token_id.remove(record.token_id.as_str());
    }
}
