//! The raft machine of one replica: `step(now, input) -> outputs`. Pure: it asks the log by a read-only view and changes
//! nothing but itself; the driver executes the outputs in order, each only after the one before has succeeded.
//!
//! Owns epoch, vote, leader, voters, replication progress and waiting fetches. The states and their transitions: `state.rs`.
//!
//! Two persists with nothing between them become one: a sole voter goes from start through candidate to leader with one fsync
//! of `quorum-state`, and nobody can have heard of what lay between.
//!
//! What is not here yet: requests to others (votes, BeginQuorumEpoch, fetching as a follower), check-quorum, changes of the voter
//! set. A node whose quorum has other voters asks for votes by an output that no driver sends, and so never leads.

use std::cmp::min;

use super::control::ControlRecord;
use super::leader::LeaderState;
use super::rpc::{
    Answer, BeginQuorumEpochRequest, CurrentLeader, EndQuorumEpochRequest, MetadataFetch, SnapshotFetch,
    VoteRequest,
};
use super::state::{ElectionState, State};
use super::voters::{QuorumHistory, ReplicaKey, VoterNode, VoterSet};
use super::{Endpoint, LeaderAndEpoch, OffsetAndEpoch};
use crate::protocol::error_code::ErrorCode;

/// Both clocks at the moment of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub monotonic_ms: i64,
    pub wall_ms: i64,
}

/// Finds the asker again when its answer is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

#[derive(Debug, Clone)]
pub struct NodeConfig {
    pub local: ReplicaKey,
    pub cluster_id: String,
    /// The advertised controller listeners of this node.
    pub listeners: Vec<Endpoint>,
    pub election_timeout_ms: i64,
    pub fetch_timeout_ms: i64,
    pub election_backoff_max_ms: i64,
    /// Seed of the election timeouts.
    pub seed: u64,
}

/// What the machine may ask of log and snapshots.
pub trait LogView {
    fn log_start_offset(&self) -> i64;
    /// Log end offset and the epoch of the last record (of the snapshot, if the log is empty behind one).
    fn end_offset(&self) -> OffsetAndEpoch;
    /// Where the largest epoch at or below `epoch` ends.
    fn end_offset_for_epoch(&self, epoch: i32) -> OffsetAndEpoch;
    fn latest_snapshot_id(&self) -> Option<OffsetAndEpoch>;
    fn earliest_snapshot_id(&self) -> Option<OffsetAndEpoch>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// First and once, with what `quorum-state` held.
    Start(ElectionState),
    /// A deadline may have passed.
    Tick,
    /// Batches of this leader are in the log, not yet on disk.
    Appended {
        end_offset: i64,
    },
    /// All below is on disk.
    Flushed {
        end_offset: i64,
    },
    Resign {
        epoch: i32,
    },
    /// From here on leader's requests are refused.
    Shutdown,
    Fetch(Token, MetadataFetch),
    FetchSnapshot(Token, SnapshotFetch),
    DescribeQuorum(Token),
    Vote(Token, VoteRequest),
    BeginQuorumEpoch(Token, BeginQuorumEpochRequest),
    EndQuorumEpoch(Token, EndQuorumEpochRequest),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Make durable before anything that follows.
    Persist(ElectionState),
    /// This node leads: write the batch that opens the epoch, then take appends from `base_offset + records.len()` on.
    OpenEpoch {
        epoch: i32,
        base_offset: i64,
        records: Vec<ControlRecord>,
    },
    /// This node leads no more: refuse appends.
    CloseEpoch,
    /// fsync the log, then give `Flushed`.
    Flush,
    /// All below is committed.
    HighWatermark(i64),
    /// Tell the listeners; for this node as leader, once they have seen all before `epoch_start_offset`.
    LeaderChanged {
        leader: LeaderAndEpoch,
        epoch_start_offset: Option<i64>,
    },
    Answer(Token, Answer),
    /// Ask every other voter.
    RequestVotes {
        epoch: i32,
        pre_vote: bool,
    },
}

#[derive(Debug)]
pub(super) struct ParkedFetch {
    pub(super) token: Token,
    pub(super) request: MetadataFetch,
    pub(super) deadline_ms: i64,
}

pub struct RaftNode {
    pub(super) config: NodeConfig,
    pub(super) quorum: QuorumHistory,
    pub(super) epoch: i32,
    pub(super) state: State,
    pub(super) parked: Vec<ParkedFetch>,
    pub(super) shutting_down: bool,
    outputs: Vec<Output>,
    announced: LeaderAndEpoch,
    random: u64,
}

impl RaftNode {
    /// Nothing happens before `Input::Start`.
    pub fn new(config: NodeConfig, quorum: QuorumHistory) -> Self {
        let random = config.seed;
        Self {
            config,
            quorum,
            epoch: 0,
            state: State::Unattached {
                leader_id: None,
                voted: None,
                election_deadline_ms: i64::MAX,
            },
            parked: Vec::new(),
            shutting_down: false,
            outputs: Vec::new(),
            announced: LeaderAndEpoch::UNKNOWN,
            random,
        }
    }

    pub fn step(&mut self, now: Now, input: Input, log: &dyn LogView) -> Vec<Output> {
        match input {
            Input::Start(stored) => self.start(now, stored, log),
            Input::Tick => self.tick(now, log),
            Input::Appended { end_offset } => self.appended(now, end_offset, log),
            Input::Flushed { end_offset } => self.flushed(now, end_offset, log),
            Input::Resign { epoch } => self.resign(now, epoch, log),
            Input::Shutdown => self.shutting_down = true,
            Input::Fetch(token, request) => self.on_fetch(now, token, request, log),
            Input::FetchSnapshot(token, request) => self.on_fetch_snapshot(token, request),
            Input::DescribeQuorum(token) => self.on_describe_quorum(now, token),
            Input::Vote(token, request) => self.on_vote(now, token, request, log),
            Input::BeginQuorumEpoch(token, request) => self.on_begin_quorum_epoch(now, token, request, log),
            Input::EndQuorumEpoch(token, request) => self.on_end_quorum_epoch(now, token, request, log),
        }
        self.announce();
        std::mem::take(&mut self.outputs)
    }

    /// When the next `Tick` is due.
    pub fn next_deadline_ms(&self) -> i64 {
        let parked = self.parked.iter().map(|fetch| fetch.deadline_ms).min();
        let election = if self.is_voter() {
            match &self.state {
                State::Unattached {
                    election_deadline_ms, ..
                }
                | State::Prospective {
                    election_deadline_ms, ..
                }
                | State::Candidate { election_deadline_ms }
                | State::Resigned { election_deadline_ms } => *election_deadline_ms,
                State::Follower {
                    fetch_deadline_ms, ..
                } => *fetch_deadline_ms,
                State::Leader(_) => i64::MAX,
            }
        } else {
            i64::MAX
        };
        min(parked.unwrap_or(i64::MAX), election)
    }

    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    #[cfg(test)]
    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn quorum(&self) -> &QuorumHistory {
        &self.quorum
    }

    /// Who can be asked to lead. A resigned leader can not, though answers still name it.
    pub fn leader_and_epoch(&self) -> LeaderAndEpoch {
        let leader_id = match self.state {
            State::Resigned { .. } => None,
            _ => self.known_leader().0,
        };
        LeaderAndEpoch {
            leader_id,
            epoch: self.epoch,
        }
    }

    pub fn leader_endpoints(&self) -> Vec<Endpoint> {
        self.known_leader().1
    }

    pub(super) fn is_voter(&self) -> bool {
        self.quorum.last_voters().is_voter(&self.config.local)
    }

    fn is_only_voter(&self) -> bool {
        self.quorum.last_voters().is_only_voter(&self.config.local)
    }

    fn known_leader(&self) -> (Option<i32>, Vec<Endpoint>) {
        match &self.state {
            State::Unattached { leader_id, .. } => (*leader_id, Vec::new()),
            State::Follower {
                leader_id,
                leader_endpoints,
                ..
            } => (Some(*leader_id), leader_endpoints.clone()),
            State::Prospective {
                leader: Some((leader_id, endpoints)),
                ..
            } => (Some(*leader_id), endpoints.clone()),
            State::Prospective { leader: None, .. } | State::Candidate { .. } => (None, Vec::new()),
            State::Leader(_) | State::Resigned { .. } => {
                (Some(self.config.local.id), self.config.listeners.clone())
            }
        }
    }

    pub(super) fn current_leader(&self) -> CurrentLeader {
        let (leader_id, endpoints) = self.known_leader();
        CurrentLeader {
            leader_id,
            epoch: self.epoch,
            endpoints,
        }
    }

    fn election_state(&self) -> ElectionState {
        let voted = match &self.state {
            State::Unattached { voted, .. }
            | State::Follower { voted, .. }
            | State::Prospective { voted, .. } => *voted,
            State::Candidate { .. } => Some(self.config.local),
            State::Leader(_) | State::Resigned { .. } => None,
        };
        ElectionState {
            epoch: self.epoch,
            leader_id: self.known_leader().0,
            voted,
        }
    }

    pub(super) fn output(&mut self, output: Output) {
        if let (Some(Output::Persist(_)), Output::Persist(_)) = (self.outputs.last(), &output) {
            self.outputs.pop();
        }
        self.outputs.push(output);
    }

    pub(super) fn answer(&mut self, token: Token, answer: Answer) {
        self.output(Output::Answer(token, answer));
    }

    fn announce(&mut self) {
        let leader = self.leader_and_epoch();
        if leader == self.announced {
            return;
        }
        self.announced = leader;
        let epoch_start_offset = match &self.state {
            State::Leader(state) => Some(state.epoch_start_offset),
            _ => None,
        };
        self.output(Output::LeaderChanged {
            leader,
            epoch_start_offset,
        });
    }

    /// The only place where state and epoch change.
    fn transition(&mut self, epoch: i32, next: State, log: &dyn LogView) {
        assert!(epoch >= self.epoch, "epochs never go back");
        assert!(
            epoch > self.epoch || self.state.may_become_in_same_epoch(&next),
            "{} may not become {} in epoch {epoch}",
            self.state.name(),
            next.name()
        );
        let led = self.state.is_leader();
        let durable = !matches!(next, State::Prospective { .. } | State::Resigned { .. });
        self.epoch = epoch;
        self.state = next;
        if led {
            self.output(Output::CloseEpoch);
        }
        if durable {
            let election = self.election_state();
            self.output(Output::Persist(election));
        }
        if led {
            self.refuse_parked_fetches(ErrorCode::NotLeaderOrFollower, log);
        }
    }

    /// Uniform in [timeout, 2 * timeout).
    fn election_deadline(&mut self, now: Now) -> i64 {
        // xorshift64*: good enough to keep two voters apart, and repeatable from a seed.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let random = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        let timeout = self.config.election_timeout_ms.max(1);
        now.monotonic_ms + timeout + (random as i64) % timeout
    }

    /// A higher epoch does not give a voter more time than it had.
    fn remaining_election_deadline(&mut self, now: Now) -> i64 {
        match self.state {
            State::Unattached {
                election_deadline_ms, ..
            }
            | State::Prospective {
                election_deadline_ms, ..
            }
            | State::Candidate { election_deadline_ms }
            | State::Resigned { election_deadline_ms }
                if election_deadline_ms != i64::MAX =>
            {
                election_deadline_ms
            }
            _ => self.election_deadline(now),
        }
    }

    fn start(&mut self, now: Now, stored: ElectionState, log: &dyn LogView) {
        let local = self.config.local;
        let log_epoch = log.end_offset().epoch;
        let election_deadline_ms = self.election_deadline(now);
        self.epoch = stored.epoch.max(log_epoch);
        let endpoints = |voters: &VoterSet, leader: i32| voters.endpoints(leader).to_vec();
        self.state = if stored.epoch < log_epoch {
            State::Unattached {
                leader_id: None,
                voted: None,
                election_deadline_ms,
            }
        } else if stored.leader_id == Some(local.id) {
            State::Resigned { election_deadline_ms }
        } else if stored.leader_id.is_none() && stored.voted.is_some_and(|voted| voted.matches(&local)) {
            State::Candidate { election_deadline_ms }
        } else {
            match stored.leader_id {
                Some(leader_id) if !self.quorum.last_voters().endpoints(leader_id).is_empty() => {
                    State::Follower {
                        leader_id,
                        leader_endpoints: endpoints(self.quorum.last_voters(), leader_id),
                        voted: stored.voted,
                        fetch_deadline_ms: now.monotonic_ms + self.config.fetch_timeout_ms,
                        has_fetched_from_leader: false,
                    }
                }
                leader_id => State::Unattached {
                    leader_id,
                    voted: stored.voted,
                    election_deadline_ms,
                },
            }
        };
        let election = self.election_state();
        self.output(Output::Persist(election));
        if self.is_only_voter() {
            match self.state {
                // Its vote for itself is all it takes.
                State::Candidate { .. } => self.become_leader(log),
                _ => self.become_candidate(now, log),
            }
        }
    }

    fn tick(&mut self, now: Now, log: &dyn LogView) {
        self.expire_parked_fetches(now, log);
        if !self.is_voter() {
            return;
        }
        let due = |deadline: i64| now.monotonic_ms >= deadline;
        match &self.state {
            State::Unattached {
                leader_id,
                voted,
                election_deadline_ms,
            } if due(*election_deadline_ms) => {
                let leader = leader_id.map(|id| (id, Vec::new()));
                let voted = *voted;
                self.become_prospective(now, leader, voted, log);
            }
            State::Follower {
                leader_id,
                leader_endpoints,
                voted,
                fetch_deadline_ms,
                ..
            } if due(*fetch_deadline_ms) => {
                let leader = Some((*leader_id, leader_endpoints.clone()));
                let voted = *voted;
                self.become_prospective(now, leader, voted, log);
            }
            State::Prospective {
                leader,
                voted,
                election_deadline_ms,
            } if due(*election_deadline_ms) => {
                let (leader, voted) = (leader.clone(), *voted);
                self.leave_prospective(now, leader, voted, log);
            }
            State::Candidate { election_deadline_ms } if due(*election_deadline_ms) => {
                let voted = Some(self.config.local);
                self.become_prospective(now, None, voted, log);
            }
            State::Resigned { election_deadline_ms } if due(*election_deadline_ms) => {
                let election_deadline_ms = self.election_deadline(now);
                let next = State::Unattached {
                    leader_id: None,
                    voted: None,
                    election_deadline_ms,
                };
                self.transition(self.epoch + 1, next, log);
            }
            _ => {}
        }
    }

    fn become_prospective(
        &mut self,
        now: Now,
        leader: Option<(i32, Vec<Endpoint>)>,
        voted: Option<ReplicaKey>,
        log: &dyn LogView,
    ) {
        let next = State::Prospective {
            leader,
            voted,
            election_deadline_ms: self.election_deadline(now),
        };
        self.transition(self.epoch, next, log);
        if self.is_only_voter() {
            self.become_candidate(now, log);
        } else {
            self.output(Output::RequestVotes {
                epoch: self.epoch,
                pre_vote: true,
            });
        }
    }

    fn leave_prospective(
        &mut self,
        now: Now,
        leader: Option<(i32, Vec<Endpoint>)>,
        voted: Option<ReplicaKey>,
        log: &dyn LogView,
    ) {
        let next = match leader {
            Some((leader_id, leader_endpoints)) if !leader_endpoints.is_empty() => State::Follower {
                leader_id,
                leader_endpoints,
                voted,
                fetch_deadline_ms: now.monotonic_ms + self.config.fetch_timeout_ms,
                has_fetched_from_leader: false,
            },
            leader => State::Unattached {
                leader_id: leader.map(|(id, _)| id),
                voted,
                election_deadline_ms: self.election_deadline(now),
            },
        };
        self.transition(self.epoch, next, log);
    }

    fn become_candidate(&mut self, now: Now, log: &dyn LogView) {
        let next = State::Candidate {
            election_deadline_ms: self.election_deadline(now),
        };
        self.transition(self.epoch + 1, next, log);
        if self.is_only_voter() {
            self.become_leader(log);
        } else {
            self.output(Output::RequestVotes {
                epoch: self.epoch,
                pre_vote: false,
            });
        }
    }

    fn become_leader(&mut self, log: &dyn LogView) {
        let base_offset = log.end_offset().offset;
        let local = self.config.local;
        let state = LeaderState::new(local, base_offset, vec![local.id], self.quorum.last_voters());
        let mut records = vec![ControlRecord::LeaderChange {
            leader_id: local.id,
            voters: state.voter_ids(),
            granting_voters: state.granting_voters.clone(),
        }];
        self.transition(self.epoch, State::Leader(state), log);
        if let Some(voters) = self.voters_to_write() {
            let version = self.quorum.last_kraft_version();
            self.quorum.add_kraft_version(base_offset + 1, version);
            self.quorum.add_voters(base_offset + 2, voters.clone());
            if let State::Leader(state) = &mut self.state {
                state.update_voters(&voters);
            }
            records.push(ControlRecord::KRaftVersion(version));
            records.push(ControlRecord::KRaftVoters(voters));
        }
        self.output(Output::OpenEpoch {
            epoch: self.epoch,
            base_offset,
            records,
        });
    }

    /// With kraft.version 1 a new leader writes the voters if the log has none yet (they come from the formatting checkpoint, which is
    /// never replicated) or if its own entry is out of date.
    fn voters_to_write(&self) -> Option<VoterSet> {
        let local = self.config.local;
        if self.quorum.last_kraft_version() < 1 {
            return None;
        }
        let voters = self.quorum.last_voters();
        let current = voters.get(local.id).filter(|voter| voter.key.matches(&local))?;
        let mine = VoterNode {
            key: local,
            endpoints: self.config.listeners.clone(),
            min_kraft_version: super::MIN_KRAFT_VERSION,
            max_kraft_version: super::MAX_KRAFT_VERSION,
        };
        let never_written = self.quorum.last_voters_offset() == Some(-1);
        (never_written || *current != mine).then(|| voters.with_updated(mine))
    }

    fn appended(&mut self, now: Now, end_offset: i64, log: &dyn LogView) {
        let State::Leader(state) = &mut self.state else {
            return;
        };
        state.appended(end_offset);
        self.output(Output::Flush);
        self.complete_parked_fetches(now, end_offset, log);
    }

    fn flushed(&mut self, now: Now, end_offset: i64, log: &dyn LogView) {
        let State::Leader(state) = &mut self.state else {
            return;
        };
        if state.flushed(end_offset) {
            self.high_watermark_moved(now, log);
        }
    }

    pub(super) fn high_watermark_moved(&mut self, now: Now, log: &dyn LogView) {
        let State::Leader(state) = &self.state else {
            return;
        };
        if let Some(high_watermark) = state.high_watermark {
            self.output(Output::HighWatermark(high_watermark));
        }
        self.complete_parked_fetches(now, i64::MAX, log);
    }

    fn resign(&mut self, now: Now, epoch: i32, log: &dyn LogView) {
        if epoch != self.epoch || !self.state.is_leader() {
            return;
        }
        let next = State::Resigned {
            election_deadline_ms: self.election_deadline(now),
        };
        self.transition(self.epoch, next, log);
    }

    /// A later epoch whose leader is not known.
    pub(super) fn become_unattached(&mut self, now: Now, epoch: i32, log: &dyn LogView) {
        let next = State::Unattached {
            leader_id: None,
            voted: None,
            election_deadline_ms: self.remaining_election_deadline(now),
        };
        self.transition(epoch, next, log);
    }

    pub(super) fn become_follower(
        &mut self,
        now: Now,
        epoch: i32,
        leader_id: i32,
        leader_endpoints: Vec<Endpoint>,
        log: &dyn LogView,
    ) {
        let voted = match &self.state {
            State::Unattached { voted, .. } | State::Prospective { voted, .. } if epoch == self.epoch => {
                *voted
            }
            State::Candidate { .. } if epoch == self.epoch => Some(self.config.local),
            _ => None,
        };
        let next = State::Follower {
            leader_id,
            leader_endpoints,
            voted,
            fetch_deadline_ms: now.monotonic_ms + self.config.fetch_timeout_ms,
            has_fetched_from_leader: false,
        };
        self.transition(epoch, next, log);
    }

    /// Records the vote, in this epoch.
    pub(super) fn add_vote(&mut self, candidate: ReplicaKey) {
        match &mut self.state {
            State::Unattached { voted, .. } | State::Prospective { voted, .. } => *voted = Some(candidate),
            _ => unreachable!("only unattached and prospective replicas vote"),
        }
        let election = self.election_state();
        self.output(Output::Persist(election));
    }
}

#[cfg(test)]
#[path = "node_test.rs"]
mod node_test;
