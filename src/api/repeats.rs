//! A bound on what an answer repeats: a request of a few kilobytes may name the same thing thousands of times, and each time its
//! description is the same hundreds of kilobytes. Apache Kafka answers that as long as its heap lasts.

use std::collections::{HashMap, HashSet};

use super::ApiError;
use crate::protocol::messages::GroupId;
use crate::protocol::{ErrorCode, StrBytes};

pub(super) const ENTRY_BYTES: usize = 200;
/// Entries of descriptions that one answer gives again; about [`ENTRY_BYTES`] each.
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

/// The groups that are named, each once.
pub(super) fn each_once(group_ids: &[GroupId]) -> Vec<GroupId> {
    let mut seen = HashSet::with_capacity(group_ids.len());
    let first = |group_id: &&GroupId| seen.insert((*group_id).clone());
    group_ids.iter().filter(first).cloned().collect()
}

/// What was described of each group once, as often and in the order as they are `named`. `entries`: how much a description repeats.
pub(super) fn as_named<T: Clone>(
    described: Vec<T>,
    named: impl Iterator<Item = StrBytes>,
    group_id: impl Fn(&T) -> &GroupId,
    entries: impl Fn(&T) -> usize,
) -> Result<Vec<T>, ApiError> {
    let by_id: HashMap<&StrBytes, &T> = described.iter().map(|one| (&group_id(one).0, one)).collect();
    let mut repeats = Repeats::new();
    let mut seen = HashSet::with_capacity(by_id.len());
    let mut all = Vec::new();
    for name in named {
        let Some(one) = by_id.get(&name) else { continue };
        if !seen.insert(name) {
            repeats.add(entries(one))?;
        }
        all.push((*one).clone());
    }
    Ok(all)
}

#[cfg(test)]
#[path = "repeats_test.rs"]
mod repeats_test;
