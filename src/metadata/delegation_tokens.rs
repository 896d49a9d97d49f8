//! Delegation tokens in the image, by token id. Kept and written again; nobody asks them yet.
//!
//! Pure.

use std::sync::Arc;

use super::shared_map::SharedMap;

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
