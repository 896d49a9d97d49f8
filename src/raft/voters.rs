//! Who votes: replica keys, voter sets, and how they and `kraft.version` changed along the log. Pure.
//!
//! A voter set comes from `controller.quorum.voters` (kraft.version 0: fixed, no directory ids) or from KRaftVoters
//! records (kraft.version 1). The latest one in the log counts at once, committed or not. Records of the formatting checkpoint 0-0 lie at offset -1.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Endpoint;

/// A node and the disk of its metadata log. `None` matches any disk (static voters, requests of old versions).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaKey {
    pub id: i32,
    pub directory_id: Option<Uuid>,
}

impl ReplicaKey {
    /// On the wire and on disk "none" is the zero uuid.
    pub fn new(id: i32, directory_id: Uuid) -> Self {
        Self {
            id,
            directory_id: (!directory_id.is_nil()).then_some(directory_id),
        }
    }

    pub fn directory_id_or_nil(&self) -> Uuid {
        self.directory_id.unwrap_or(Uuid::nil())
    }

    /// Is `other` this replica? A key without a directory speaks for every directory of its node.
    pub fn matches(&self, other: &ReplicaKey) -> bool {
        self.id == other.id && (self.directory_id.is_none() || self.directory_id == other.directory_id)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoterNode {
    pub key: ReplicaKey,
    pub endpoints: Vec<Endpoint>,
    pub min_kraft_version: i16,
    pub max_kraft_version: i16,
}

/// Ordered by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VoterSet {
    voters: BTreeMap<i32, VoterNode>,
}

impl VoterSet {
    pub fn new(voters: impl IntoIterator<Item = VoterNode>) -> Self {
        Self {
            voters: voters.into_iter().map(|voter| (voter.key.id, voter)).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.voters.is_empty()
    }

    pub fn len(&self) -> usize {
        self.voters.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = i32> + '_ {
        self.voters.keys().copied()
    }

    pub fn nodes(&self) -> impl Iterator<Item = &VoterNode> {
        self.voters.values()
    }

    pub fn get(&self, id: i32) -> Option<&VoterNode> {
        self.voters.get(&id)
    }

    pub fn is_voter(&self, key: &ReplicaKey) -> bool {
        self.voters
            .get(&key.id)
            .is_some_and(|voter| voter.key.matches(key))
    }

    pub fn is_only_voter(&self, key: &ReplicaKey) -> bool {
        self.voters.len() == 1 && self.is_voter(key)
    }

    /// Where a voter listens; empty if it is none.
    pub fn endpoints(&self, id: i32) -> &[Endpoint] {
        self.voters.get(&id).map_or(&[], |voter| &voter.endpoints)
    }

    /// This set with the voter of the same key replaced.
    pub fn with_updated(&self, node: VoterNode) -> Self {
        let mut voters = self.voters.clone();
        voters.insert(node.key.id, node);
        Self { voters }
    }
}

/// Values along the log: what holds from an offset on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct History<T> {
    entries: Vec<(i64, T)>,
}

impl<T: Clone> History<T> {
    fn add_at(&mut self, offset: i64, value: T) {
        // Two records of one snapshot or batch may repeat an offset: the later one wins.
        self.entries.retain(|(at, _)| *at < offset);
        self.entries.push((offset, value));
    }

    fn last(&self) -> Option<&(i64, T)> {
        self.entries.last()
    }

    fn at_or_before(&self, offset: i64) -> Option<&T> {
        let after = self.entries.partition_point(|(at, _)| *at <= offset);
        after.checked_sub(1).map(|index| &self.entries[index].1)
    }
}

/// Voter sets and `kraft.version` as the snapshot and the log give them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuorumHistory {
    static_voters: VoterSet,
    voters: History<VoterSet>,
    kraft_versions: History<i16>,
}

impl QuorumHistory {
    pub fn new(static_voters: VoterSet) -> Self {
        Self {
            static_voters,
            ..Self::default()
        }
    }

    pub fn add_voters(&mut self, offset: i64, voters: VoterSet) {
        self.voters.add_at(offset, voters);
    }

    pub fn add_kraft_version(&mut self, offset: i64, version: i16) {
        self.kraft_versions.add_at(offset, version);
    }

    pub fn last_voters(&self) -> &VoterSet {
        self.voters
            .last()
            .map_or(&self.static_voters, |(_, voters)| voters)
    }

    /// -1: from the formatting checkpoint; `None`: static voters.
    pub fn last_voters_offset(&self) -> Option<i64> {
        self.voters.last().map(|(offset, _)| *offset)
    }

    pub fn voters_at(&self, offset: i64) -> Option<&VoterSet> {
        self.voters.at_or_before(offset)
    }

    pub fn last_kraft_version(&self) -> i16 {
        self.kraft_versions.last().map_or(0, |(_, version)| *version)
    }

    pub fn kraft_version_at(&self, offset: i64) -> i16 {
        self.kraft_versions.at_or_before(offset).copied().unwrap_or(0)
    }
}
