//! Stands in for `protocol::records::metadata::MetadataRecord` until the protocol layer has it; then this file goes.

#[derive(Debug, Clone, PartialEq)]
pub struct MetadataRecord;
