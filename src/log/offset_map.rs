//! The map of one cleaning: the latest offset of every key in the dirty part of a log (Kafka's SkimpyOffsetMap).
//!
//! Owns a bounded table of 24 bytes an entry (128 bits of a keyed hash, and the offset), however long the keys are.
//! Two keys with the same hash would cost a record: the hash is SipHash with a random key and two finalizations, so that
//! nobody can construct such keys and chance does not find them (about n^2 / 2^129).
//! Invariant: an offset is only ever replaced by what is put later; the caller puts them in the log's order.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Bytes that one entry takes: as in Kafka, so that the same buffer holds as many keys.
pub(crate) const BYTES_PER_ENTRY: usize = 24;

/// Two halves of the hash, and the offset plus one (zero: the slot is free).
type Slot = [u64; 3];

#[derive(Debug)]
pub(crate) struct OffsetMap {
    slots: Vec<Slot>,
    entries: usize,
    entries_max: usize,
    hasher: RandomState,
    latest_offset: i64,
}

impl OffsetMap {
    /// How many keys a buffer of `bytes` takes when it may be filled up to `load_factor`.
    pub fn capacity_of(bytes: usize, load_factor: f64) -> usize {
        ((bytes / BYTES_PER_ENTRY) as f64 * load_factor) as usize
    }

    /// For `keys_max` keys at most: what is allocated follows from it, so a small dirty part costs little memory.
    pub fn new(keys_max: usize, load_factor: f64) -> Self {
        let slots = (keys_max as f64 / load_factor.clamp(0.01, 1.0)) as usize + 1;
        Self {
            slots: vec![[0; 3]; slots],
            entries: 0,
            entries_max: keys_max,
            hasher: RandomState::new(),
            latest_offset: -1,
        }
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        let first = hasher.finish();
        hasher.write_u8(1);
        (first, hasher.finish())
    }

    /// The slot of a key: where it is, or the free one where it belongs.
    fn find(&self, (first, second): (u64, u64)) -> usize {
        let count = self.slots.len();
        let mut index = ((u128::from(first) * count as u128) >> 64) as usize;
        loop {
            let [a, b, offset] = self.slots[index];
            if offset == 0 || (a == first && b == second) {
                return index;
            }
            index = if index + 1 == count { 0 } else { index + 1 };
        }
    }

    /// Notes the key's offset; false when there is no room for another key, and nothing was noted.
    pub fn put(&mut self, key: &[u8], offset: i64) -> bool {
        let hash = self.hash(key);
        let index = self.find(hash);
        if self.slots[index][2] == 0 {
            if self.entries >= self.entries_max {
                return false;
            }
            self.entries += 1;
        }
        self.slots[index] = [hash.0, hash.1, offset as u64 + 1];
        self.latest_offset = offset;
        true
    }

    pub fn get(&self, key: &[u8]) -> Option<i64> {
        match self.slots[self.find(self.hash(key))][2] {
            0 => None,
            offset => Some((offset - 1) as i64),
        }
    }

    #[cfg(test)]
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// The offset up to which the log is in here: above it every record stays.
    pub fn latest_offset(&self) -> i64 {
        self.latest_offset
    }

    pub fn update_latest_offset(&mut self, offset: i64) {
        self.latest_offset = offset;
    }
}

#[cfg(test)]
#[path = "offset_map_test.rs"]
mod offset_map_test;
