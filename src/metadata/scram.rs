//! SCRAM credentials in the image. Kept and written again; nobody asks them yet.
//!
//! Pure.

use std::sync::Arc;

use bytes::Bytes;

use super::shared_map::SharedMap;
use crate::protocol::records::metadata::{RemoveUserScramCredentialRecord, UserScramCredentialRecord};

/// What is stored of a user's password for one mechanism.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    pub salt: Bytes,
    pub stored_key: Bytes,
    pub server_key: Bytes,
    pub iterations: i32,
}

/// Keys do not belong in a log line.
impl std::fmt::Debug for ScramCredential {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ScramCredential")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

/// Credentials by mechanism number and user.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScramImage {
    pub by_mechanism_and_user: SharedMap<(i8, Arc<str>), Arc<ScramCredential>>,
}

impl ScramImage {
    pub(super) fn replay_user_scram_credential(&mut self, record: &UserScramCredentialRecord) {
        let credential = ScramCredential {
            salt: record.salt.clone(),
            stored_key: record.stored_key.clone(),
            server_key: record.server_key.clone(),
            iterations: record.iterations,
        };
        self.by_mechanism_and_user.insert(
            (record.mechanism, Arc::from(record.name.as_str())),
            Arc::new(credential),
        );
    }

    pub(super) fn replay_remove_user_scram_credential(&mut self, record: &RemoveUserScramCredentialRecord) {
        self.by_mechanism_and_user
            .remove(&(record.mechanism, Arc::<str>::from(record.name.as_str())));
    }
}
