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
mod repeats_test {
    use super::*;

    type Described = (GroupId, usize);

    fn id(name: &'static str) -> GroupId {
        GroupId(StrBytes::from_static_str(name))
    }

    fn answer(described: &[Described], named: &[GroupId]) -> Result<Vec<Described>, ApiError> {
        let named = named.iter().map(|group_id| group_id.0.clone());
        as_named(described.to_vec(), named, |one| &one.0, |one| one.1)
    }

    #[test]
    fn group_is_described_once_and_answered_as_often_as_it_is_named() {
        let named = [id("b"), id("a"), id("b")];
        assert_eq!(each_once(&named), [id("b"), id("a")]);
        let described = [(id("a"), 1), (id("b"), 2)];
        let expected = [(id("b"), 2), (id("a"), 1), (id("b"), 2)];
        assert_eq!(answer(&described, &named).unwrap(), expected);
    }

    #[test]
    fn answer_that_repeats_too_much_is_refused() {
        let described = [(id("a"), REPEATED_ENTRIES_MAX / 2)];
        let named = vec![id("a"); 3];
        assert_eq!(answer(&described, &named).unwrap().len(), 3);
        let error = answer(&described, &[named, vec![id("a")]].concat()).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidRequest);
        // One that is not there is small.
        assert_eq!(
            answer(&[(id("a"), 0)], &vec![id("a"); 200_000]).unwrap().len(),
            200_000
        );
    }
}
