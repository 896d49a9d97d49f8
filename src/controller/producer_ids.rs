//! AllocateProducerIds: blocks of producer ids, each handed out once.
//!
//! Pure. The next block only moves when its record is replayed, so a block that was never committed is handed out again.

use super::shard::{Outcome, Shard};
use crate::protocol::messages::{AllocateProducerIdsRequest, AllocateProducerIdsResponse, ProducerId};
use crate::protocol::records::metadata::ProducerIdsRecord;
use crate::protocol::{ApiError, ErrorCode};

/// Ids in a block (`ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`).
pub const PRODUCER_ID_BLOCK_SIZE: i32 = 1000;

impl Shard {
    pub fn allocate_producer_ids(
        &self,
        request: &AllocateProducerIdsRequest,
    ) -> Result<Outcome<AllocateProducerIdsResponse>, ApiError> {
        self.check_broker_epoch(request.broker_id.0, request.broker_epoch)?;
        // The image says -1 before the first block.
        let first = self.image().producer_ids.next_producer_id.max(0);
        let next_producer_id = first
            .checked_add(i64::from(PRODUCER_ID_BLOCK_SIZE))
            .ok_or(ErrorCode::UnknownServerError)?;
        let record = ProducerIdsRecord {
            broker_id: request.broker_id.0,
            broker_epoch: request.broker_epoch,
            next_producer_id,
            ..ProducerIdsRecord::default()
        };
        let mut response = AllocateProducerIdsResponse::default();
        response.producer_id_start = ProducerId(first);
        response.producer_id_len = PRODUCER_ID_BLOCK_SIZE;
        Ok(Outcome::of(vec![(record.into(), 0)], response))
    }
}

#[cfg(test)]
#[path = "producer_ids_test.rs"]
mod producer_ids_test;
