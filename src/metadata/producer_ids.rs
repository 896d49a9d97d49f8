//! The next block of producer ids in the image.
//!
//! Pure.

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
