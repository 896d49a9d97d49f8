//! The machine's answers to remote requests (KIP-595, KIP-853, KIP-996, KIP-1166). Pure.
//!
//! Fetch, FetchSnapshot and DescribeQuorum are for the leader; Vote, BeginQuorumEpoch and EndQuorumEpoch for anybody, and their
//! senders need not be voters that this node knows.

use super::node::{LogView, Now, ParkedFetch, RaftNode, Token};
use super::rpc::{
    Answer, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchAnswer, FetchContent, MetadataFetch,
    QuorumDescription, SnapshotAnswer, SnapshotFetch, VoteRequest,
};
use super::state::State;
use super::voters::ReplicaKey;
use super::{BOOTSTRAP_SNAPSHOT_ID, Endpoint, OffsetAndEpoch};
use crate::protocol::error_code::ErrorCode;

/// An epoch from outside above it is nobody's: no cluster has had so many elections. Believed, it would be durable, and the highest ones
/// leave no epoch for the next election. Kafka's counter wraps there.
const REMOTE_EPOCH_MAX: i32 = i32::MAX / 2;

/// Where a fetch position stands against the log.
enum Position {
    Valid,
    Diverging(OffsetAndEpoch),
    Snapshot(OffsetAndEpoch),
}

fn validate_position(log: &dyn LogView, offset: i64, epoch: i32) -> Position {
    let latest_snapshot = log.latest_snapshot_id();
    if let Some(latest) = latest_snapshot
        && offset == 0
        && latest != BOOTSTRAP_SNAPSHOT_ID
    {
        // Quicker than the log from its start, even where that is still there.
        return Position::Snapshot(latest);
    }
    let start = log.log_start_offset();
    if start == 0 && offset == 0 {
        return Position::Valid;
    }
    if let (Some(earliest), Some(latest)) = (log.earliest_snapshot_id(), latest_snapshot)
        && (offset < start || (offset == start && epoch != earliest.epoch) || epoch < earliest.epoch)
    {
        return Position::Snapshot(latest);
    }
    let end = log.end_offset_for_epoch(epoch);
    if end.epoch != epoch || end.offset < offset {
        Position::Diverging(end)
    } else {
        Position::Valid
    }
}

impl RaftNode {
    fn has_valid_cluster_id(&self, cluster_id: &Option<String>) -> bool {
        cluster_id
            .as_ref()
            .is_none_or(|cluster_id| *cluster_id == self.config.cluster_id)
    }

    /// For a request that only a leader of exactly this epoch answers.
    fn validate_leader_only(&self, request_epoch: i32) -> ErrorCode {
        if request_epoch < self.epoch {
            ErrorCode::FencedLeaderEpoch
        } else if request_epoch > self.epoch {
            ErrorCode::UnknownLeaderEpoch
        } else if !self.state.is_leader() {
            ErrorCode::NotLeaderOrFollower
        } else if self.shutting_down {
            ErrorCode::BrokerNotAvailable
        } else {
            ErrorCode::None
        }
    }

    fn validate_voter_only(&self, remote_id: i32, request_epoch: i32) -> ErrorCode {
        if request_epoch < self.epoch {
            ErrorCode::FencedLeaderEpoch
        } else if remote_id < 0 || (request_epoch > self.epoch && request_epoch > REMOTE_EPOCH_MAX) {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::None
        }
    }

    /// Was the request meant for this replica?
    fn is_valid_voter_key(&self, voter: &Option<ReplicaKey>) -> bool {
        voter
            .as_ref()
            .is_none_or(|voter| voter.matches(&self.config.local))
    }

    // ---- Fetch

    pub(super) fn on_fetch(&mut self, now: Now, token: Token, request: MetadataFetch, log: &dyn LogView) {
        if !self.has_valid_cluster_id(&request.cluster_id) {
            return self.answer(token, Answer::Top(ErrorCode::InconsistentClusterId));
        }
        if request.max_wait_ms < 0
            || request.fetch_offset < 0
            || request.last_fetched_epoch < 0
            || request.last_fetched_epoch > request.current_leader_epoch
        {
            let answer = self.fetch_error(ErrorCode::InvalidRequest, log);
            return self.answer(token, Answer::Fetch(answer));
        }
        let (answer, moved) = self.try_complete_fetch(now, &request, log);
        let known = answer.high_watermark;
        let at_once = answer.error != ErrorCode::None
            || request.max_wait_ms == 0
            || request.high_watermark < known
            || match answer.content {
                FetchContent::RecordsFrom(offset) => offset < log.end_offset().offset,
                FetchContent::Diverging(_) | FetchContent::Snapshot(_) => true,
                FetchContent::Nothing => false,
            };
        if moved {
            // First, so that a waiting fetch does not hide the one that moved it.
            self.high_watermark_moved(now, log);
        }
        if at_once {
            self.answer(token, Answer::Fetch(answer));
        } else {
            let deadline_ms = now.monotonic_ms + i64::from(request.max_wait_ms);
            self.parked.push(ParkedFetch {
                token,
                request,
                deadline_ms,
            });
        }
    }

    /// The answer as of now, after noting what the replica has; and whether the high watermark moved by that.
    fn try_complete_fetch(
        &mut self,
        now: Now,
        request: &MetadataFetch,
        log: &dyn LogView,
    ) -> (FetchAnswer, bool) {
        let local_id = self.config.local.id;
        let answer = self.fetch_answer(request, log);
        let mut moved = false;
        if let (State::Leader(state), FetchContent::RecordsFrom(offset)) = (&mut self.state, answer.content) {
            if request.replica.id == local_id {
                return (self.fetch_error(ErrorCode::UnknownServerError, log), false);
            }
            // A negative id is not a replica, just somebody who reads.
            if request.replica.id >= 0 {
                moved = state.replica_fetched(request.replica, now.wall_ms, offset);
            }
        }
        (self.fetch_answer(request, log), moved)
    }

    fn fetch_answer(&self, request: &MetadataFetch, log: &dyn LogView) -> FetchAnswer {
        let error = self.validate_leader_only(request.current_leader_epoch);
        let State::Leader(state) = &self.state else {
            return self.fetch_error(error, log);
        };
        if error != ErrorCode::None {
            return self.fetch_error(error, log);
        }
        let content = match validate_position(log, request.fetch_offset, request.last_fetched_epoch) {
            Position::Valid => FetchContent::RecordsFrom(request.fetch_offset),
            Position::Diverging(end) => FetchContent::Diverging(end),
            Position::Snapshot(id) => FetchContent::Snapshot(id),
        };
        FetchAnswer {
            error,
            leader: self.current_leader(),
            high_watermark: state.high_watermark.unwrap_or(-1),
            log_start_offset: log.log_start_offset(),
            content,
        }
    }

    fn fetch_error(&self, error: ErrorCode, log: &dyn LogView) -> FetchAnswer {
        FetchAnswer {
            error,
            leader: self.current_leader(),
            high_watermark: -1,
            log_start_offset: log.log_start_offset(),
            content: FetchContent::Nothing,
        }
    }

    /// Answers the waiting fetches of offsets below `end_offset`; a moved high watermark wakes them all.
    pub(super) fn complete_parked_fetches(&mut self, now: Now, end_offset: i64, log: &dyn LogView) {
        let (woken, waiting) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|fetch| fetch.request.fetch_offset < end_offset);
        self.parked = waiting;
        let woken: Vec<ParkedFetch> = woken;
        for fetch in woken {
            // A waiting replica's progress was counted when it came: nothing can move by counting it again.
            let (answer, _) = self.try_complete_fetch(now, &fetch.request, log);
            self.answer(fetch.token, Answer::Fetch(answer));
        }
    }

    pub(super) fn expire_parked_fetches(&mut self, now: Now, log: &dyn LogView) {
        let (due, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|fetch| fetch.deadline_ms <= now.monotonic_ms);
        self.parked = waiting;
        for fetch in due {
            let answer = self.fetch_answer(&fetch.request, log);
            self.answer(fetch.token, Answer::Fetch(answer));
        }
    }

    pub(super) fn refuse_parked_fetches(&mut self, error: ErrorCode, log: &dyn LogView) {
        for fetch in std::mem::take(&mut self.parked) {
            let answer = self.fetch_error(error, log);
            self.answer(fetch.token, Answer::Fetch(answer));
        }
    }

    // ---- FetchSnapshot, DescribeQuorum

    /// Leadership only; whether the snapshot and the position exist is for the reader of the file to say.
    pub(super) fn on_fetch_snapshot(&mut self, token: Token, request: SnapshotFetch) {
        if !self.has_valid_cluster_id(&request.cluster_id) {
            return self.answer(token, Answer::Top(ErrorCode::InconsistentClusterId));
        }
        let answer = SnapshotAnswer {
            error: self.validate_leader_only(request.current_leader_epoch),
            leader: self.current_leader(),
        };
        self.answer(token, Answer::FetchSnapshot(answer));
    }

    pub(super) fn on_describe_quorum(&mut self, now: Now, token: Token) {
        let leader_epoch = self.epoch;
        let leader_id = self.config.local.id;
        let nodes = |node: &Self| {
            node.quorum
                .last_voters()
                .nodes()
                .map(|voter| (voter.key.id, voter.endpoints.clone()))
                .collect()
        };
        let nodes = nodes(self);
        let description = match &mut self.state {
            State::Leader(state) => QuorumDescription {
                error: ErrorCode::None,
                leader_id,
                leader_epoch,
                high_watermark: state.high_watermark.unwrap_or(-1),
                voters: state.voter_statuses(now.wall_ms),
                observers: state.observer_statuses(now.wall_ms),
                nodes,
            },
            _ => QuorumDescription {
                error: ErrorCode::NotLeaderOrFollower,
                leader_id: -1,
                leader_epoch: -1,
                high_watermark: -1,
                voters: Vec::new(),
                observers: Vec::new(),
                nodes: Vec::new(),
            },
        };
        self.answer(token, Answer::DescribeQuorum(description));
    }

    // ---- Vote, BeginQuorumEpoch, EndQuorumEpoch

    pub(super) fn on_vote(&mut self, now: Now, token: Token, request: VoteRequest, log: &dyn LogView) {
        if !self.has_valid_cluster_id(&request.cluster_id) {
            return self.answer(token, Answer::Top(ErrorCode::InconsistentClusterId));
        }
        let epoch_is_valid = if request.pre_vote {
            request.last_epoch <= request.candidate_epoch
        } else {
            request.last_epoch < request.candidate_epoch
        };
        if request.last_epoch_end_offset < 0 || request.last_epoch < 0 || !epoch_is_valid {
            return self.answer_vote(token, ErrorCode::InvalidRequest, false);
        }
        let error = self.validate_voter_only(request.candidate.id, request.candidate_epoch);
        if error != ErrorCode::None {
            return self.answer_vote(token, error, false);
        }
        if request.candidate_epoch > self.epoch {
            self.become_unattached(now, request.candidate_epoch, log);
        }
        if !self.is_valid_voter_key(&request.voter) {
            return self.answer_vote(token, ErrorCode::InvalidVoterKey, false);
        }
        let candidate_end = OffsetAndEpoch::new(request.last_epoch_end_offset, request.last_epoch);
        let up_to_date = candidate_end >= log.end_offset();
        let granted = self.can_grant_vote(&request.candidate, up_to_date, request.pre_vote);
        let already_voted = match &self.state {
            State::Unattached { voted, .. } | State::Prospective { voted, .. } => voted.is_some(),
            _ => true,
        };
        if granted && !request.pre_vote && !already_voted {
            self.add_vote(request.candidate);
        }
        self.answer_vote(token, ErrorCode::None, granted);
    }

    fn can_grant_vote(&self, candidate: &ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool {
        match &self.state {
            State::Leader(_) => false,
            // Who hears from its leader helps nobody to unseat it.
            State::Follower {
                has_fetched_from_leader,
                ..
            } => pre_vote && up_to_date && !has_fetched_from_leader,
            State::Candidate { .. } | State::Resigned { .. } => pre_vote && up_to_date,
            State::Unattached { .. } | State::Prospective { .. } if pre_vote => up_to_date,
            State::Unattached {
                voted: Some(voted), ..
            }
            | State::Prospective {
                voted: Some(voted), ..
            } => voted.matches(candidate),
            State::Unattached {
                leader_id: Some(_), ..
            }
            | State::Prospective { leader: Some(_), .. } => false,
            State::Unattached { .. } | State::Prospective { .. } => up_to_date,
        }
    }

    fn answer_vote(&mut self, token: Token, error: ErrorCode, vote_granted: bool) {
        let leader = self.current_leader();
        self.answer(
            token,
            Answer::Vote {
                error,
                leader,
                vote_granted,
            },
        );
    }

    pub(super) fn on_begin_quorum_epoch(
        &mut self,
        now: Now,
        token: Token,
        request: BeginQuorumEpochRequest,
        log: &dyn LogView,
    ) {
        if !self.has_valid_cluster_id(&request.cluster_id) {
            return self.answer(token, Answer::Top(ErrorCode::InconsistentClusterId));
        }
        let mut error = self.validate_voter_only(request.leader_id, request.leader_epoch);
        if error == ErrorCode::None {
            error = self.learn_of_leader(
                now,
                request.leader_id,
                request.leader_epoch,
                request.leader_endpoints,
                log,
            );
        }
        if error == ErrorCode::None && !self.is_valid_voter_key(&request.voter) {
            error = ErrorCode::InvalidVoterKey;
        }
        self.answer_quorum_epoch(token, error);
    }

    pub(super) fn on_end_quorum_epoch(
        &mut self,
        now: Now,
        token: Token,
        request: EndQuorumEpochRequest,
        log: &dyn LogView,
    ) {
        if !self.has_valid_cluster_id(&request.cluster_id) {
            return self.answer(token, Answer::Top(ErrorCode::InconsistentClusterId));
        }
        let mut error = self.validate_voter_only(request.leader_id, request.leader_epoch);
        if error == ErrorCode::None {
            error = self.learn_of_leader(
                now,
                request.leader_id,
                request.leader_epoch,
                request.leader_endpoints,
                log,
            );
        }
        if error == ErrorCode::None {
            let backoff = self.end_epoch_election_backoff(&request.preferred_candidates);
            if let State::Follower {
                leader_id,
                fetch_deadline_ms,
                ..
            } = &mut self.state
                && *leader_id == request.leader_id
            {
                *fetch_deadline_ms = now.monotonic_ms + backoff;
            }
        }
        self.answer_quorum_epoch(token, error);
    }

    fn answer_quorum_epoch(&mut self, token: Token, error: ErrorCode) {
        // Kafka answers a failure inside by the top-level code.
        let answer = if error == ErrorCode::UnknownServerError {
            Answer::Top(error)
        } else {
            Answer::QuorumEpoch {
                error,
                leader: self.current_leader(),
            }
        };
        self.answer(token, answer);
    }

    /// A request says who leads `epoch`, which is not older than ours.
    fn learn_of_leader(
        &mut self,
        now: Now,
        leader_id: i32,
        epoch: i32,
        endpoints: Vec<Endpoint>,
        log: &dyn LogView,
    ) -> ErrorCode {
        let known = self.current_leader().leader_id;
        let newer = epoch > self.epoch;
        let inconsistent = if leader_id == self.config.local.id {
            // Nobody else can know of an epoch that this node leads before it does.
            newer || known != Some(leader_id)
        } else {
            !newer && known.is_some_and(|known| known != leader_id)
        };
        if inconsistent {
            // The JVM ends the process here; a stray request must not be able to do that.
            return ErrorCode::UnknownServerError;
        }
        let endpoints = if endpoints.is_empty() {
            self.quorum.last_voters().endpoints(leader_id).to_vec()
        } else {
            endpoints
        };
        let must_follow = match &self.state {
            State::Unattached { .. } | State::Candidate { .. } => true,
            // It returns to the leader that it stopped hearing from only by a new epoch or by its own timeout.
            State::Prospective { leader, .. } => leader.is_none(),
            State::Follower { .. } | State::Leader(_) | State::Resigned { .. } => false,
        };
        if newer || must_follow {
            if endpoints.is_empty() {
                return ErrorCode::UnknownServerError;
            }
            self.become_follower(now, epoch, leader_id, endpoints, log);
        }
        ErrorCode::None
    }

    /// The resigning leader orders its successors: the first stands at once, each later one waits twice as long.
    fn end_epoch_election_backoff(&self, preferred: &[ReplicaKey]) -> i64 {
        let max = self.config.election_backoff_max_ms;
        let position = preferred
            .iter()
            .position(|candidate| candidate.matches(&self.config.local));
        match position {
            Some(0) => 0,
            Some(position) => {
                let shift = (preferred.len() - 1).min(62) as u32;
                let step = (position - 1).min(62) as u32;
                max.min((max >> shift).saturating_mul(1 << step))
            }
            None => max,
        }
    }
}

impl std::fmt::Debug for RaftNode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RaftNode")
            .field("local", &self.config.local)
            .field("epoch", &self.epoch)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
