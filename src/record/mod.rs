//! BATCHES: record batches of magic 2 (and 0/1, read only), compression, control records. Pure.
//!
//! Owns the byte layout of record batches and of the records in them: what is in a segment file, in a
//! Produce request and in a Fetch response. Must never do I/O, read the clock, or trust a size that the
//! bytes declare: every length is checked against what is there before it is used.

pub mod batch_builder;
pub mod compression;
pub mod control_record;
pub mod error;
#[cfg(test)]
pub(crate) mod golden;
pub mod inflate;
pub mod legacy;
#[allow(clippy::module_inception)] // Kafka's name for it.
pub mod record;
pub mod record_batch;
pub mod varint;

pub use batch_builder::{BatchBuilder, BatchOptions, HeaderRef, empty_batch};
pub use compression::Compression;
pub use error::{InvalidRecord, RecordError};
pub use record::{Header, RawRecord, Record, Records, records_of, records_of_bounded};
pub use record_batch::{
    BatchHeader, Batches, LOG_OVERHEAD, MAGIC_OFFSET, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD, TimestampType, crc_is_valid,
    decrement_sequence, increment_sequence,
};

#[cfg(test)]
mod golden_test;
