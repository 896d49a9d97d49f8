//! Control records: the key's type, and the bodies that a log reader needs.
//!
//! Bodies of raft's control records (leader change, snapshot header and footer, KRaft version and voters) are
//! `protocol`'s messages: here only their keys are made and told apart.

use bytes::Bytes;

use crate::record::{BatchBuilder, BatchOptions, Compression, RecordError, records_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ControlRecordType {
    Abort,
    Commit,
    LeaderChange,
    SnapshotHeader,
    SnapshotFooter,
    KraftVersion,
    KraftVoters,
    /// A type of a later Kafka: readers skip it.
    Unknown(i16),
}

impl ControlRecordType {
    pub fn id(self) -> i16 {
        match self {
            ControlRecordType::Abort => 0,
            ControlRecordType::Commit => 1,
            ControlRecordType::LeaderChange => 2,
            ControlRecordType::SnapshotHeader => 3,
            ControlRecordType::SnapshotFooter => 4,
            ControlRecordType::KraftVersion => 5,
            ControlRecordType::KraftVoters => 6,
            ControlRecordType::Unknown(id) => id,
        }
    }

    pub fn from_id(id: i16) -> ControlRecordType {
        match id {
            0 => ControlRecordType::Abort,
            1 => ControlRecordType::Commit,
            2 => ControlRecordType::LeaderChange,
            3 => ControlRecordType::SnapshotHeader,
            4 => ControlRecordType::SnapshotFooter,
            5 => ControlRecordType::KraftVersion,
            6 => ControlRecordType::KraftVoters,
            id => ControlRecordType::Unknown(id),
        }
    }

    /// Kafka's name, as dumps print it.
    pub fn name(self) -> &'static str {
        match self {
            ControlRecordType::Abort => "ABORT",
            ControlRecordType::Commit => "COMMIT",
            ControlRecordType::LeaderChange => "LEADER_CHANGE",
            ControlRecordType::SnapshotHeader => "SNAPSHOT_HEADER",
            ControlRecordType::SnapshotFooter => "SNAPSHOT_FOOTER",
            ControlRecordType::KraftVersion => "KRAFT_VERSION",
            ControlRecordType::KraftVoters => "KRAFT_VOTERS",
            ControlRecordType::Unknown(_) => "UNKNOWN",
        }
    }

    /// The key of a control record of this type (version 0).
    pub fn key(self) -> [u8; 4] {
        let [high, low] = self.id().to_be_bytes();
        [0, 0, high, low]
    }

    pub fn parse_key(key: &[u8]) -> Result<ControlRecordType, RecordError> {
        let Some(&[version_high, version_low, high, low]) = key.first_chunk::<4>() else {
            return Err(RecordError::InvalidControlRecord("key is shorter than 4 bytes"));
        };
        if i16::from_be_bytes([version_high, version_low]) < 0 {
            return Err(RecordError::InvalidControlRecord("key has a negative version"));
        }
        Ok(ControlRecordType::from_id(i16::from_be_bytes([high, low])))
    }
}

/// The value of a COMMIT or ABORT marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndTransactionMarker {
    pub control_type: ControlRecordType,
    pub coordinator_epoch: i32,
}

impl EndTransactionMarker {
    pub fn parse(key: &[u8], value: &[u8]) -> Result<EndTransactionMarker, RecordError> {
        let control_type = ControlRecordType::parse_key(key)?;
        if !matches!(control_type, ControlRecordType::Commit | ControlRecordType::Abort) {
            return Err(RecordError::InvalidControlRecord("not an end transaction marker"));
        }
        let Some(&[version_high, version_low, a, b, c, d]) = value.first_chunk::<6>() else {
            return Err(RecordError::InvalidControlRecord(
                "marker is shorter than 6 bytes",
            ));
        };
        if i16::from_be_bytes([version_high, version_low]) < 0 {
            return Err(RecordError::InvalidControlRecord("marker has a negative version"));
        }
        Ok(EndTransactionMarker {
            control_type,
            coordinator_epoch: i32::from_be_bytes([a, b, c, d]),
        })
    }

    pub fn value(&self) -> [u8; 6] {
        let [a, b, c, d] = self.coordinator_epoch.to_be_bytes();
        [0, 0, a, b, c, d]
    }
}

/// A control batch of one record. `options` gives offset, epochs and producer; the control flag is set here.
pub fn control_batch(
    options: BatchOptions,
    control_type: ControlRecordType,
    value: &[u8],
    timestamp: i64,
) -> Result<Bytes, RecordError> {
    let options = BatchOptions {
        is_control: true,
        compression: Compression::None,
        ..options
    };
    let mut builder = BatchBuilder::new(options);
    builder.append(timestamp, Some(&control_type.key()), Some(value), &[]);
    builder.build()
}

/// The control type of a control batch: that of its first record.
pub fn control_type_of(batch: &Bytes) -> Result<ControlRecordType, RecordError> {
    let record = records_of(batch)?.next().transpose()?;
    match record.and_then(|record| record.key) {
        Some(key) => ControlRecordType::parse_key(&key),
        None => Err(RecordError::InvalidControlRecord("a control batch without a key")),
    }
}

/// The marker in a control batch of a transaction; none if it is another control batch.
pub fn end_transaction_marker_of(batch: &Bytes) -> Result<Option<EndTransactionMarker>, RecordError> {
    let Some(record) = records_of(batch)?.next().transpose()? else {
        return Ok(None);
    };
    let Some(key) = record.key else {
        return Err(RecordError::InvalidControlRecord("a control batch without a key"));
    };
    match ControlRecordType::parse_key(&key)? {
        ControlRecordType::Commit | ControlRecordType::Abort => {
            EndTransactionMarker::parse(&key, record.value.as_deref().unwrap_or_default()).map(Some)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
#[path = "control_record_test.rs"]
mod control_record_test;
