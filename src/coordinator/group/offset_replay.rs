//! Replaying offset commits, which is what a coordinator spends its loading with: a record of the log is read where it lies.
//! Pure.
//!
//! What this reader does not know it leaves to the one that is generated from Kafka's schemas, and so are all errors found
//! there; the two are compared in tests. A value that is replaced or taken back keeps no byte of the log's buffer alive.

use uuid::Uuid;

use super::offsets::{OffsetAndMetadata, OffsetKey};
use super::shard::GroupShard;
use crate::protocol::StrBytes;

const OFFSET_COMMIT_KEY: i16 = 1;

/// A commit as its record has it.
#[derive(Debug, PartialEq)]
struct RawCommit<'a> {
    group: &'a str,
    topic: &'a str,
    partition: i32,
    value: Option<RawValue<'a>>,
}

#[derive(Debug, PartialEq)]
struct RawValue<'a> {
    offset: i64,
    leader_epoch: i32,
    metadata: &'a str,
    commit_timestamp_ms: i64,
    expire_timestamp_ms: i64,
    topic_id: Uuid,
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn text(&mut self, length: usize) -> Option<&'a str> {
        std::str::from_utf8(self.take(length)?).ok()
    }

    fn string(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.i16()?).ok()?;
        self.text(length)
    }

    /// One whose length fits in one byte.
    fn compact_string(&mut self) -> Option<&'a str> {
        let [length] = self.array()?;
        match length {
            1..0x80 => self.text(usize::from(length) - 1),
            _ => None,
        }
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// `None`: another record, or one that this reader does not know.
fn parse<'a>(key: &'a [u8], value: Option<&'a [u8]>) -> Option<RawCommit<'a>> {
    let mut fields = Fields(key);
    if fields.i16()? != OFFSET_COMMIT_KEY {
        return None;
    }
    let (group, topic, partition) = (fields.string()?, fields.string()?, fields.i32()?);
    fields.end()?;
    let value = match value {
        Some(value) => Some(parse_value(value)?),
        None => None,
    };
    Some(RawCommit {
        group,
        topic,
        partition,
        value,
    })
}

fn parse_value(value: &[u8]) -> Option<RawValue<'_>> {
    let mut fields = Fields(value);
    let version = fields.i16()?;
    if !(0..=4).contains(&version) {
        return None;
    }
    let offset = fields.i64()?;
    let leader_epoch = if version >= 3 { fields.i32()? } else { -1 };
    let metadata = match version {
        4 => fields.compact_string()?,
        _ => fields.string()?,
    };
    let commit_timestamp_ms = fields.i64()?;
    let expire_timestamp_ms = if version == 1 { fields.i64()? } else { -1 };
    let mut topic_id = Uuid::nil();
    if version == 4 {
        // The tags: how many, which, how long.
        match fields.array()? {
            [0] => {}
            [1] => {
                if fields.array()? != [0, 16] {
                    return None;
                }
                topic_id = Uuid::from_bytes(fields.array()?);
            }
            [_] => return None,
        }
    }
    fields.end()?;
    Some(RawValue {
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_timestamp_ms,
        topic_id,
    })
}

impl RawValue<'_> {
    fn to_owned(&self, record_offset: i64) -> OffsetAndMetadata {
        let metadata = match self.metadata {
            "" => StrBytes::new(),
            metadata => StrBytes::from_string(metadata.to_owned()),
        };
        OffsetAndMetadata {
            record_offset,
            committed_offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata,
            commit_timestamp_ms: self.commit_timestamp_ms,
            expire_timestamp_ms: (self.expire_timestamp_ms != -1).then_some(self.expire_timestamp_ms),
            topic_id: self.topic_id,
        }
    }
}

impl GroupShard {
    /// Applies the record if it is an offset commit that can be read so.
    pub(super) fn replay_raw_offset(
        &mut self,
        offset: i64,
        producer_id: i64,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> bool {
        let Some(commit) = parse(key, value) else {
            return false;
        };
        let key = (commit.group, commit.topic, commit.partition);
        let value = commit.value.map(|value| value.to_owned(offset));
        self.replay_offset(offset, producer_id, key, value);
        true
    }

    pub(super) fn replay_offset(
        &mut self,
        offset: i64,
        producer_id: i64,
        (group, topic, partition): (&str, &str, i32),
        value: Option<OffsetAndMetadata>,
    ) {
        let group = match self.groups.get_key_value(group.as_bytes()) {
            Some((known, _)) => known.clone(),
            None => {
                let group = StrBytes::from_string(group.to_owned());
                if let Some(value) = &value {
                    // A group that commits without being one: it has no record of its own.
                    self.create_classic_group(offset, value.commit_timestamp_ms, &group);
                }
                group
            }
        };
        let key = OffsetKey {
            group,
            topic: self.intern(topic),
            partition,
        };
        self.offsets.replay(offset, producer_id, key, value);
    }
}

#[cfg(test)]
#[path = "offset_replay_test.rs"]
mod offset_replay_test;
