//! The next block of producer ids in the image.
//!
//! Pure.

use super::image::ReplayError;
use crate::protocol::records::metadata::ProducerIdsRecord;

/// Where the next block of producer ids starts; -1 before the first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdsImage {
    pub next_producer_id: i64,
}

impl Default for ProducerIdsImage {
    fn default() -> Self {
        Self { next_producer_id: -1 }
    }
}

impl ProducerIdsImage {
    /// A block is never handed out twice, so the next one only grows.
    pub(super) fn replay_producer_ids(&mut self, record: &ProducerIdsRecord) -> Result<(), ReplayError> {
        if record.next_producer_id <= self.next_producer_id {
            return Err(ReplayError::ProducerIdsNotGrowing {
                current: self.next_producer_id,
                next: record.next_producer_id,
            });
        }
        self.next_producer_id = record.next_producer_id;
        Ok(())
    }
}
