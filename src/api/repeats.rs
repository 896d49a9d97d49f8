//! A bound on what an answer repeats: a request of a few kilobytes may name the same thing thousands of times, and each time its
//! description is the same hundreds of kilobytes. Apache Kafka answers that as long as its heap lasts.

use super::ApiError;
use crate::protocol::ErrorCode;

/// Entries of descriptions that one answer gives again; about 200 bytes each.
const REPEATED_ENTRIES_MAX: usize = 100_000;

#[derive(Debug)]
pub(super) struct Repeats {
    left: usize,
}

impl Repeats {
    pub fn new() -> Self {
        Self {
            left: REPEATED_ENTRIES_MAX,
        }
    }

    /// So many entries are given once more; the error is of the whole request.
    pub fn add(&mut self, entries: usize) -> Result<(), ApiError> {
        match self.left.checked_sub(entries) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ApiError::new(
                ErrorCode::InvalidRequest,
                "The request names the same things so often that the answer would be too large.",
            )),
        }
    }
}
