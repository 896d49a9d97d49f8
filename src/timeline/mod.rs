//! State with a recent past: what a log's records made of it, at the end of the log and at its last committed offset.
//!
//! Pure. A change is made at the offset of the record that caused it. Until that offset is committed, the change can be
//! looked past (`get_at`) and taken back (`revert`); a commit forgets how it was before.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeBounds;

/// A map with versions. Changes must come in the order of their offsets.
#[derive(Debug, Clone)]
pub struct TimelineMap<K, V> {
    latest: BTreeMap<K, V>,
    /// For each key with uncommitted changes: what it was before each of them, oldest first.
    before: BTreeMap<K, VecDeque<(i64, Option<V>)>>,
    /// The uncommitted changes in order.
    changes: VecDeque<(i64, K)>,
    /// Changes below are committed, those to come too: while a log is read, what is known to be committed needs no past.
    committed: i64,
}

impl<K, V> Default for TimelineMap<K, V> {
    fn default() -> Self {
        Self {
            latest: BTreeMap::new(),
            before: BTreeMap::new(),
            changes: VecDeque::new(),
            committed: 0,
        }
    }
}

impl<K: Ord + Clone, V: Clone> TimelineMap<K, V> {
    /// The latest value.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.latest.get(key)
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.latest.contains_key(key)
    }

    /// The value once the records below `committed` were applied, and no others.
    pub fn get_at<Q: Ord + ?Sized>(&self, key: &Q, committed: i64) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let past = self.before.get(key).and_then(|changes| {
            let first = changes.partition_point(|(offset, _)| *offset < committed);
            changes.get(first)
        });
        match past {
            Some((_, value)) => value.as_ref(),
            None => self.latest.get(key),
        }
    }

    /// Latest entries in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.latest.iter()
    }

    /// Latest entries of a range of keys.
    pub fn range<Q: Ord + ?Sized, R: RangeBounds<Q>>(&self, range: R) -> impl Iterator<Item = (&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.latest.range(range)
    }

    /// Entries of a range of keys once the records below `committed` were applied, and no others.
    pub fn range_at<R: RangeBounds<K> + Clone>(&self, range: R, committed: i64) -> Vec<(&K, &V)> {
        let mut keys: Vec<&K> = self
            .latest
            .range(range.clone())
            .map(|(key, _)| key)
            .chain(self.before.range(range).map(|(key, _)| key))
            .collect();
        keys.sort();
        keys.dedup();
        keys.into_iter()
            .filter_map(|key| Some((key, self.get_at(key, committed)?)))
            .collect()
    }

    pub fn len(&self) -> usize {
        self.latest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    fn remember(&mut self, offset: i64, key: K, previous: Option<V>) {
        debug_assert!(self.changes.back().is_none_or(|(last, _)| *last <= offset));
        self.before
            .entry(key.clone())
            .or_default()
            .push_back((offset, previous));
        self.changes.push_back((offset, key));
    }

    /// Returns the value before.
    pub fn insert(&mut self, offset: i64, key: K, value: V) -> Option<V> {
        if offset < self.committed {
            return self.latest.insert(key, value);
        }
        let previous = self.latest.insert(key.clone(), value);
        self.remember(offset, key, previous.clone());
        previous
    }

    /// Returns the value before.
    pub fn remove(&mut self, offset: i64, key: &K) -> Option<V> {
        let previous = self.latest.remove(key)?;
        if offset < self.committed {
            return Some(previous);
        }
        self.remember(offset, key.clone(), Some(previous.clone()));
        Some(previous)
    }

    /// Records below `committed` are committed, also those that are applied later: their changes cannot be taken back.
    pub fn commit(&mut self, committed: i64) {
        self.committed = self.committed.max(committed);
        while self
            .changes
            .front()
            .is_some_and(|(offset, _)| *offset < committed)
        {
            let Some((_, key)) = self.changes.pop_front() else {
                return;
            };
            if let Some(changes) = self.before.get_mut(&key) {
                changes.pop_front();
                if changes.is_empty() {
                    self.before.remove(&key);
                }
            }
        }
    }

    /// Takes back what records at `offset` and above changed.
    pub fn revert(&mut self, offset: i64) {
        while self.changes.back().is_some_and(|(changed, _)| *changed >= offset) {
            let Some((_, key)) = self.changes.pop_back() else {
                return;
            };
            let Some(changes) = self.before.get_mut(&key) else {
                continue;
            };
            let previous = changes.pop_back().and_then(|(_, previous)| previous);
            if changes.is_empty() {
                self.before.remove(&key);
            }
            match previous {
                Some(value) => self.latest.insert(key, value),
                None => self.latest.remove(&key),
            };
        }
    }
}

#[cfg(test)]
mod timeline_test;
