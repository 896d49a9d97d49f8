//! Gathers committed batches into deltas, and says when one is ready to be published.
//!
//! Pure (`MetadataBatchLoader`). All batches of one commit make one delta. A metadata transaction (KIP-868) is published when
//! it ends, or never:
//!
//! ```text
//! none --Begin--> started --record--> continued --End--> ended --next record--> none
//!                    \---------------------\---Abort--> aborted --next record--> none
//! ```
//!
//! What came before a Begin is published before it, at the offset in front of it, so that an abort has an image to
//! return to.

use std::sync::Arc;

use super::delta::MetadataDelta;
use super::image::{MetadataImage, MetadataProvenance, ReplayError};
use crate::protocol::records::metadata::MetadataRecord;
use crate::raft::CommittedBatch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    Started,
    Continued,
    Ended,
    Aborted,
}

/// A delta and the image it makes.
#[derive(Debug)]
pub struct Publication {
    pub delta: MetadataDelta,
    pub image: Arc<MetadataImage>,
    /// Size of the batches in it.
    pub size_in_bytes: usize,
}

/// A record that could not be applied.
#[derive(Debug)]
pub struct LoadFault {
    pub offset: i64,
    pub error: ReplayError,
}

/// See the module's words.
#[derive(Debug)]
pub struct BatchLoader {
    image: Arc<MetadataImage>,
    delta: MetadataDelta,
    transaction: Transaction,
    has_seen_record: bool,
    last: MetadataProvenance,
    size_in_bytes: usize,
    batches: usize,
}

impl BatchLoader {
    pub fn new(image: Arc<MetadataImage>) -> Self {
        Self {
            delta: MetadataDelta::new(image.clone()),
            transaction: Transaction::None,
            has_seen_record: !image.is_empty(),
            last: image.provenance,
            image,
            size_in_bytes: 0,
            batches: 0,
        }
    }

    /// The newest image, published or not.
    pub fn image(&self) -> &Arc<MetadataImage> {
        &self.image
    }

    /// Whether any record that says something was applied.
    pub fn has_seen_record(&self) -> bool {
        self.has_seen_record
    }

    /// Applies one batch. What has to be published in the middle of it goes to `ready`.
    pub fn load_batch(
        &mut self,
        batch: &CommittedBatch,
        ready: &mut Vec<Publication>,
        faults: &mut Vec<LoadFault>,
    ) {
        self.last.last_contained_log_time_ms = batch.append_timestamp;
        self.last.last_contained_epoch = batch.epoch;
        for (offset, record) in (batch.base_offset..).zip(&batch.records) {
            if let Err(error) = self.replay(record) {
                faults.push(LoadFault { offset, error });
            }
            let something_before = offset > batch.base_offset || self.batches > 0;
            if self.transaction == Transaction::Started && something_before {
                self.last.is_offset_batch_aligned = offset == batch.base_offset;
                ready.push(self.publish());
                self.transaction = Transaction::Started;
            }
            self.last.last_contained_offset = offset;
        }
        self.last.last_contained_offset = batch.last_offset;
        self.size_in_bytes += batch.size_in_bytes;
        self.batches += 1;
    }

    /// The end of a commit: what is gathered is ready, unless a transaction is open.
    pub fn flush(&mut self) -> Option<Publication> {
        self.last.is_offset_batch_aligned = true;
        match self.transaction {
            Transaction::Started | Transaction::Continued => None,
            Transaction::Aborted | Transaction::None | Transaction::Ended => Some(self.publish()),
        }
    }

    /// A snapshot was loaded.
    pub fn reset(&mut self, image: Arc<MetadataImage>) {
        *self = Self::new(image);
    }

    fn publish(&mut self) -> Publication {
        let image = Arc::new(self.delta.apply(self.last));
        let delta = std::mem::replace(&mut self.delta, MetadataDelta::new(image.clone()));
        self.image = image.clone();
        self.transaction = Transaction::None;
        // From now on only an image with content counts as seen, as after a restart from here.
        self.has_seen_record = !image.is_empty();
        self.batches = 0;
        Publication {
            delta,
            image,
            size_in_bytes: std::mem::take(&mut self.size_in_bytes),
        }
    }

    fn replay(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        let open = matches!(self.transaction, Transaction::Started | Transaction::Continued);
        match record {
            MetadataRecord::BeginTransaction(_) if open => {
                Err(ReplayError::Transaction("begin inside of another transaction"))
            }
            MetadataRecord::BeginTransaction(_) => {
                self.transaction = Transaction::Started;
                Ok(())
            }
            MetadataRecord::EndTransaction(_) if open => {
                self.transaction = Transaction::Ended;
                Ok(())
            }
            MetadataRecord::EndTransaction(_) => Err(ReplayError::Transaction("end without a begin")),
            MetadataRecord::AbortTransaction(_) if open => {
                self.transaction = Transaction::Aborted;
                // What was before the transaction was published in front of its begin.
                self.delta = MetadataDelta::new(self.image.clone());
                Ok(())
            }
            MetadataRecord::AbortTransaction(_) => Err(ReplayError::Transaction("abort without a begin")),
            record => {
                match self.transaction {
                    Transaction::Started => self.transaction = Transaction::Continued,
                    Transaction::Ended | Transaction::Aborted => self.transaction = Transaction::None,
                    Transaction::None | Transaction::Continued => {}
                }
                self.has_seen_record = true;
                self.delta.replay(record)
            }
        }
    }
}

#[cfg(test)]
#[path = "batch_loader_test.rs"]
mod batch_loader_test;
