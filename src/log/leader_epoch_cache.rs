//! Which leader epoch began at which offset (Kafka's LeaderEpochFileCache). Pure: the file is the log's to write.
//!
//! Invariant: epochs and start offsets both grow strictly; a new entry removes those that contradict it.

/// `epoch`'s first offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    pub epoch: i32,
    pub start_offset: i64,
}

/// "No epoch" in questions and answers.
pub const UNDEFINED_EPOCH: i32 = -1;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaderEpochCache {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochCache {
    pub fn from_entries(entries: impl IntoIterator<Item = EpochEntry>) -> Self {
        let mut cache = Self::default();
        for entry in entries {
            cache.assign(entry.epoch, entry.start_offset);
        }
        cache
    }

    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn latest_epoch(&self) -> Option<i32> {
        self.entries.last().map(|entry| entry.epoch)
    }

    /// Notes that `epoch` starts at `start_offset`; true when the cache changed and must be written down.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        if epoch < 0 || start_offset < 0 {
            return false;
        }
        if let Some(last) = self.entries.last()
            && last.epoch == epoch
            && start_offset >= last.start_offset
        {
            return false;
        }
        // As in Kafka an entry that contradicts older ones wins over them, whether it comes from a leader or a repair.
        while self
            .entries
            .last()
            .is_some_and(|last| last.epoch >= epoch || last.start_offset >= start_offset)
        {
            self.entries.pop();
        }
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// The largest epoch at or below `requested` and where it ends: the answer of OffsetForLeaderEpoch.
    pub fn end_offset_for(&self, requested: i32, log_end_offset: i64) -> Option<(i32, i64)> {
        if requested == UNDEFINED_EPOCH {
            return None;
        }
        if self.latest_epoch() == Some(requested) {
            return Some((requested, log_end_offset));
        }
        let higher = self.entries.partition_point(|entry| entry.epoch <= requested);
        let next = self.entries.get(higher)?;
        match higher.checked_sub(1) {
            // Below all that are known: the data of that epoch is gone, the follower starts where the log does.
            None => Some((requested, next.start_offset)),
            Some(floor) => Some((self.entries[floor].epoch, next.start_offset)),
        }
    }

    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        let after = self.entries.partition_point(|entry| entry.start_offset <= offset);
        after.checked_sub(1).map(|index| self.entries[index].epoch)
    }

    /// Removes the epochs that start at or after `end_offset`; true when there were any.
    pub fn truncate_from_end(&mut self, end_offset: i64) -> bool {
        if end_offset < 0 {
            return false;
        }
        let keep = self
            .entries
            .partition_point(|entry| entry.start_offset < end_offset);
        let changed = keep < self.entries.len();
        self.entries.truncate(keep);
        changed
    }

    /// Removes the epochs that end at or before `start_offset`; the one that holds it then starts there.
    pub fn truncate_from_start(&mut self, start_offset: i64) -> bool {
        let after = self
            .entries
            .partition_point(|entry| entry.start_offset <= start_offset);
        let Some(holder) = after.checked_sub(1) else {
            return false;
        };
        let changed = holder > 0 || self.entries[holder].start_offset != start_offset;
        self.entries[holder].start_offset = start_offset;
        self.entries.drain(..holder);
        changed
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
#[path = "leader_epoch_cache_test.rs"]
mod leader_epoch_cache_test;
