//! The first records of a leadership (`ActivationRecordsGenerator`).
//!
//! Pure. An empty log gets the bootstrap records in one metadata transaction; a transaction that the leader before left open
//! is aborted.

use super::shard::Shard;
use crate::metadata::metadata_version::{ELIGIBLE_LEADER_REPLICAS_VERSION, MetadataVersion};
use crate::metadata::{ConfigResourceType, image_records};
use crate::protocol::StrBytes;
use crate::protocol::records::metadata::{
    AbortTransactionRecord, BeginTransactionRecord, ConfigRecord, EndTransactionRecord, MetadataRecord,
};
use crate::raft::VersionedRecord;

/// Why a log cannot be led.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActivationError {
    #[error(
        "a metadata transaction is open since offset {offset}, but metadata.version {level} does not support transactions"
    )]
    TransactionNotSupported { offset: i64, level: i16 },
}

/// The records, and whether they have to be one batch.
#[derive(Debug, PartialEq)]
pub struct Activation {
    pub records: Vec<VersionedRecord>,
    pub is_atomic: bool,
}

impl Shard {
    /// `bootstrap` is what `kavka format` wrote (FeatureLevel and SCRAM records); without any, the newest production level of
    /// `metadata.version`.
    pub fn activation_records(&self, bootstrap: &[VersionedRecord]) -> Result<Activation, ActivationError> {
        match self.image().features.metadata_version {
            None => self.records_for_empty_log(bootstrap),
            Some(version) => self.records_for_log(version),
        }
    }

    fn abort_open_transaction(
        &self,
        version: MetadataVersion,
    ) -> Result<Vec<VersionedRecord>, ActivationError> {
        let Some(offset) = self.transaction_start_offset() else {
            return Ok(Vec::new());
        };
        if !version.is_metadata_transaction_supported() {
            return Err(ActivationError::TransactionNotSupported {
                offset,
                level: version.level(),
            });
        }
        let record = AbortTransactionRecord {
            reason: Some(StrBytes::from_static_str("Controller failover")),
            ..AbortTransactionRecord::default()
        };
        Ok(vec![(record.into(), 0)])
    }

    fn records_for_log(&self, version: MetadataVersion) -> Result<Activation, ActivationError> {
        Ok(Activation {
            records: self.abort_open_transaction(version)?,
            is_atomic: true,
        })
    }

    fn records_for_empty_log(&self, bootstrap: &[VersionedRecord]) -> Result<Activation, ActivationError> {
        let mut bootstrap = bootstrap.to_vec();
        if level_in(&bootstrap, MetadataVersion::FEATURE_NAME) == 0 {
            let level = MetadataVersion::LATEST_PRODUCTION.level();
            bootstrap.insert(
                0,
                image_records::feature_level_record(MetadataVersion::FEATURE_NAME, level),
            );
        }
        let version = MetadataVersion(level_in(&bootstrap, MetadataVersion::FEATURE_NAME));
        let elr_level = level_in(&bootstrap, ELIGIBLE_LEADER_REPLICAS_VERSION);
        let mut records = self.abort_open_transaction(version)?;
        let in_transaction = version.is_metadata_transaction_supported();
        if in_transaction {
            let record = BeginTransactionRecord {
                name: Some(StrBytes::from_static_str("Bootstrap records")),
                ..BeginTransactionRecord::default()
            };
            records.push((record.into(), 0));
        }
        records.extend(bootstrap);
        if elr_level > 0 {
            // From now on the whole cluster has one minimum, not one for each node's file.
            let minimum = self.config.config.min_insync_replicas.to_string();
            let record = ConfigRecord {
                resource_type: ConfigResourceType::Broker.id(),
                resource_name: StrBytes::new(),
                name: StrBytes::from_static_str("min.insync.replicas"),
                value: Some(StrBytes::from_string(minimum)),
                ..ConfigRecord::default()
            };
            records.push((record.into(), 0));
        }
        if in_transaction {
            records.push((EndTransactionRecord::default().into(), 0));
        }
        Ok(Activation {
            records,
            is_atomic: !in_transaction,
        })
    }
}

fn level_in(records: &[VersionedRecord], name: &str) -> i16 {
    let level_of = |record: &VersionedRecord| match &record.0 {
        MetadataRecord::FeatureLevel(record) if record.name.as_str() == name => Some(record.feature_level),
        _ => None,
    };
    records.iter().rev().find_map(level_of).unwrap_or(0)
}

#[cfg(test)]
#[path = "activation_test.rs"]
mod activation_test;
