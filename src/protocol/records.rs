//! Every record that Kafka 4.4 keeps in its internal logs, generated; and the framing around them.
//!
//! Types and versions that are not known here are kept as raw bytes, so that nothing found in a log is lost.

use crate::protocol::wire::{BufSink, Reader, Wire, WireError, put_unsigned_varint};
use bytes::{BufMut, Bytes, BytesMut};

include!(concat!(env!("OUT_DIR"), "/records.rs"));

/// A record kept as raw bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct UnknownRecord {
    pub record_type: i16,
    /// Version of the body; 0 for keys, which have none.
    pub version: i16,
    pub body: Bytes,
}

/// Version of the frame around a metadata record; Kafka has had one so far.
const METADATA_FRAME_VERSION: u32 = 1;

impl metadata::MetadataRecord {
    /// The record's API key, as in its frame.
    pub fn api_key(&self) -> i16 {
        self.record_type()
    }

    /// Frame version, API key and version as unsigned varints, then the body: a record's value in `__cluster_metadata`.
    pub fn encode_framed(&self, version: i16, buf: &mut BytesMut) -> Result<(), WireError> {
        let mut w = BufSink(buf);
        put_unsigned_varint(&mut w, METADATA_FRAME_VERSION);
        put_unsigned_varint(&mut w, self.api_key() as u32);
        put_unsigned_varint(&mut w, version as u32);
        self.write(&mut w, version)
    }

    /// The record and its version.
    pub fn decode_framed(bytes: Bytes) -> Result<(metadata::MetadataRecord, i16), WireError> {
        let mut r = Reader::new(bytes);
        match r.unsigned_varint()? {
            METADATA_FRAME_VERSION => {}
            other => return Err(WireError::UnsupportedFrame(other)),
        }
        let mut number = || {
            let value = r.unsigned_varint()?;
            i16::try_from(value).map_err(|_| WireError::BadLength(i64::from(value)))
        };
        let (api_key, version) = (number()?, number()?);
        let record = metadata::MetadataRecord::read(api_key, &mut r, version)?;
        r.end()?;
        Ok((record, version))
    }
}

/// Coordinator records: a key is an int16 of its type and its fields, a value an int16 of its version and its fields.
macro_rules! coordinator_records {
    ($key:path, $value:path) => {
        impl $key {
            pub fn encode(&self) -> Result<Bytes, WireError> {
                let mut buf = BytesMut::with_capacity(64);
                buf.put_i16(self.record_type());
                self.write(&mut BufSink(&mut buf), 0)?;
                Ok(buf.freeze())
            }

            pub fn decode(bytes: Bytes) -> Result<Self, WireError> {
                let mut r = Reader::new(bytes);
                let record_type = i16::read(&mut r, 0, false)?;
                let key = Self::read(record_type, &mut r, 0)?;
                r.end()?;
                Ok(key)
            }
        }

        impl $value {
            pub fn encode(&self, version: i16) -> Result<Bytes, WireError> {
                let mut buf = BytesMut::with_capacity(128);
                buf.put_i16(version);
                self.write(&mut BufSink(&mut buf), version)?;
                Ok(buf.freeze())
            }

            /// The value under a key of this type, and its version.
            pub fn decode(record_type: i16, bytes: Bytes) -> Result<(Self, i16), WireError> {
                let mut r = Reader::new(bytes);
                let version = i16::read(&mut r, 0, false)?;
                let value = Self::read(record_type, &mut r, version)?;
                r.end()?;
                Ok((value, version))
            }
        }
    };
}

coordinator_records!(group::GroupRecordKey, group::GroupRecordValue);
coordinator_records!(
    transaction::TransactionRecordKey,
    transaction::TransactionRecordValue
);
coordinator_records!(share::ShareRecordKey, share::ShareRecordValue);

#[cfg(test)]
#[path = "records_test.rs"]
mod records_test;
