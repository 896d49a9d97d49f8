//! A map that is cheap to clone and cheap to change after it was cloned.
//!
//! It owns a fixed number of shards, each a `BTreeMap` behind an `Arc`: a clone copies one pointer, a change to a
//! shared map copies the list of shard pointers and the one shard it touches (1/[`SHARDS`] of the entries). Keys are
//! spread by a hash with fixed keys, so that iteration order is the same in every process: the simulator depends on it.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

const SHARDS: usize = 64;

/// See the module's words.
pub struct SharedMap<K, V> {
    shards: Arc<[Arc<BTreeMap<K, V>>; SHARDS]>,
    len: usize,
}

impl<K, V> SharedMap<K, V>
where
    K: Ord + Hash + Clone,
    V: Clone,
{
    pub fn new() -> Self {
        let empty = Arc::new(BTreeMap::new());
        Self {
            shards: Arc::new(std::array::from_fn(|_| empty.clone())),
            len: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn shard_of<Q: Hash + ?Sized>(key: &Q) -> usize {
        // `DefaultHasher::new` has fixed keys, unlike a `RandomState`.
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish() as usize % SHARDS
    }

    fn shard_mut(&mut self, index: usize) -> &mut BTreeMap<K, V> {
        Arc::make_mut(&mut Arc::make_mut(&mut self.shards)[index])
    }

    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        self.shards[Self::shard_of(key)].get(key)
    }

    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        self.get(key).is_some()
    }

    /// A reference to change the value in place. Copies the shard if it is shared, even if nothing is changed then.
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        let index = Self::shard_of(key);
        if !self.shards[index].contains_key(key) {
            return None;
        }
        self.shard_mut(index).get_mut(key)
    }

    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let index = Self::shard_of(&key);
        let previous = self.shard_mut(index).insert(key, value);
        if previous.is_none() {
            self.len += 1;
        }
        previous
    }

    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        let index = Self::shard_of(key);
        if !self.shards[index].contains_key(key) {
            return None;
        }
        let removed = self.shard_mut(index).remove(key);
        if removed.is_some() {
            self.len -= 1;
        }
        removed
    }

    /// Entries in an order that depends on the keys only; not sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.shards.iter().flat_map(|shard| shard.iter())
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        Self {
            shards: self.shards.clone(),
            len: self.len,
        }
    }
}

impl<K: Ord + Hash + Clone, V: Clone> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && (Arc::ptr_eq(&self.shards, &other.shards)
                || self
                    .shards
                    .iter()
                    .zip(other.shards.iter())
                    .all(|(left, right)| Arc::ptr_eq(left, right) || left == right))
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_map()
            .entries(self.shards.iter().flat_map(|shard| shard.iter()))
            .finish()
    }
}

#[cfg(test)]
#[path = "shared_map_test.rs"]
mod shared_map_test;
