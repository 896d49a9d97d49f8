use uuid::Uuid;

use super::*;
use crate::raft::rpc::{FetchAnswer, FetchContent, QuorumDescription, ReplicaStatus};

const DIRECTORY: Uuid = Uuid::from_u128(0xd1);
const OTHER_DIRECTORY: Uuid = Uuid::from_u128(0xd2);
const OBSERVER: ReplicaKey = ReplicaKey {
    id: 7,
    directory_id: Some(Uuid::from_u128(0xd7)),
};

fn local() -> ReplicaKey {
    ReplicaKey::new(1, DIRECTORY)
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        name: "CONTROLLER".into(),
        host: "localhost".into(),
        port,
    }
}

fn voter(id: i32, directory_id: Option<Uuid>, port: u16) -> VoterNode {
    VoterNode {
        key: ReplicaKey { id, directory_id },
        endpoints: vec![endpoint(port)],
        min_kraft_version: 0,
        max_kraft_version: if directory_id.is_some() { 1 } else { 0 },
    }
}

/// A log of one epoch after another, with snapshots: what the machine sees of it.
#[derive(Debug, Clone, Default)]
struct TestLog {
    start: i64,
    end: i64,
    /// Epoch and start offset.
    epochs: Vec<(i32, i64)>,
    snapshots: Vec<OffsetAndEpoch>,
}

impl TestLog {
    fn of(epochs: &[(i32, i64)], end: i64) -> Self {
        Self {
            end,
            epochs: epochs.to_vec(),
            ..Self::default()
        }
    }
}

impl LogView for TestLog {
    fn log_start_offset(&self) -> i64 {
        self.start
    }

    fn end_offset(&self) -> OffsetAndEpoch {
        OffsetAndEpoch::new(self.end, self.epochs.last().map_or(0, |(epoch, _)| *epoch))
    }

    fn end_offset_for_epoch(&self, epoch: i32) -> OffsetAndEpoch {
        let index = self.epochs.partition_point(|(at, _)| *at <= epoch);
        let end = self.epochs.get(index).map_or(self.end, |(_, start)| *start);
        match index.checked_sub(1) {
            Some(index) => OffsetAndEpoch::new(end, self.epochs[index].0),
            None => self
                .snapshots
                .first()
                .copied()
                .unwrap_or(OffsetAndEpoch::new(0, 0)),
        }
    }

    fn latest_snapshot_id(&self) -> Option<OffsetAndEpoch> {
        self.snapshots.last().copied()
    }

    fn earliest_snapshot_id(&self) -> Option<OffsetAndEpoch> {
        self.snapshots.first().copied()
    }
}

fn config() -> NodeConfig {
    NodeConfig {
        local: local(),
        cluster_id: "cluster".to_owned(),
        listeners: vec![endpoint(9093)],
        election_timeout_ms: 1000,
        fetch_timeout_ms: 2000,
        election_backoff_max_ms: 1000,
        seed: 42,
    }
}

/// kraft.version 1, voters of the formatting checkpoint.
fn formatted(voters: impl IntoIterator<Item = VoterNode>) -> RaftNode {
    let mut quorum = QuorumHistory::new(VoterSet::default());
    quorum.add_kraft_version(-1, 1);
    quorum.add_voters(-1, VoterSet::new(voters));
    RaftNode::new(config(), quorum)
}

fn sole_voter() -> RaftNode {
    formatted([voter(1, Some(DIRECTORY), 9093)])
}

fn voter_of_three() -> RaftNode {
    formatted([
        voter(1, Some(DIRECTORY), 9093),
        voter(2, Some(Uuid::from_u128(2)), 9094),
        voter(3, Some(Uuid::from_u128(3)), 9095),
    ])
}

fn at(ms: i64) -> Now {
    Now {
        monotonic_ms: ms,
        wall_ms: 1_000_000 + ms,
    }
}

fn elected(epoch: i32, leader_id: Option<i32>, voted: Option<ReplicaKey>) -> ElectionState {
    ElectionState {
        epoch,
        leader_id,
        voted,
    }
}

/// A sole voter that leads epoch 1 with its three control records committed; the log then ends at 3.
fn leader() -> (RaftNode, TestLog) {
    let mut node = sole_voter();
    node.step(at(0), Input::Start(ElectionState::default()), &TestLog::default());
    let log = TestLog::of(&[(1, 0)], 3);
    node.step(at(0), Input::Appended { end_offset: 3 }, &log);
    let outputs = node.step(at(0), Input::Flushed { end_offset: 3 }, &log);
    assert_eq!(outputs, [Output::HighWatermark(3)]);
    (node, log)
}

fn fetch(fetch_offset: i64, last_fetched_epoch: i32) -> MetadataFetch {
    MetadataFetch {
        cluster_id: Some("cluster".to_owned()),
        replica: OBSERVER,
        max_wait_ms: 500,
        current_leader_epoch: 1,
        fetch_offset,
        last_fetched_epoch,
        high_watermark: 3,
    }
}

fn leader_of(epoch: i32) -> CurrentLeader {
    CurrentLeader {
        leader_id: Some(1),
        epoch,
        endpoints: vec![endpoint(9093)],
    }
}

fn fetch_answer(high_watermark: i64, content: FetchContent) -> Answer {
    Answer::Fetch(FetchAnswer {
        error: ErrorCode::None,
        leader: leader_of(1),
        high_watermark,
        log_start_offset: 0,
        content,
    })
}

fn fetch_error(error: ErrorCode) -> Answer {
    Answer::Fetch(FetchAnswer {
        error,
        leader: leader_of(1),
        high_watermark: -1,
        log_start_offset: 0,
        content: FetchContent::Nothing,
    })
}

const TOKEN: Token = Token(9);

// ---- start

#[test]
fn start_of_sole_voter_on_empty_log_leads_at_once_with_one_persist_and_writes_voters() {
    let mut node = sole_voter();
    let outputs = node.step(at(0), Input::Start(ElectionState::default()), &TestLog::default());
    assert_eq!(
        outputs,
        [
            Output::Persist(elected(1, Some(1), None)),
            Output::OpenEpoch {
                epoch: 1,
                base_offset: 0,
                records: vec![
                    ControlRecord::LeaderChange {
                        leader_id: 1,
                        voters: vec![1],
                        granting_voters: vec![1],
                    },
                    ControlRecord::KRaftVersion(1),
                    ControlRecord::KRaftVoters(VoterSet::new([voter(1, Some(DIRECTORY), 9093)])),
                ],
            },
            Output::LeaderChanged {
                leader: LeaderAndEpoch {
                    leader_id: Some(1),
                    epoch: 1,
                },
                epoch_start_offset: Some(0),
            },
        ]
    );
    assert_eq!(node.next_deadline_ms(), i64::MAX);
    assert_eq!(node.quorum().last_voters_offset(), Some(2));
}

#[test]
fn start_of_former_sole_leader_leads_the_next_epoch_and_writes_voters_only_if_they_changed() {
    let mut quorum = QuorumHistory::new(VoterSet::default());
    quorum.add_kraft_version(1, 1);
    quorum.add_voters(2, VoterSet::new([voter(1, Some(DIRECTORY), 9093)]));
    let log = TestLog::of(&[(2, 0)], 10);
    for (listeners, count) in [(vec![endpoint(9093)], 1), (vec![endpoint(19093)], 3)] {
        let config = NodeConfig {
            listeners,
            ..config()
        };
        let mut node = RaftNode::new(config, quorum.clone());
        let outputs = node.step(at(0), Input::Start(elected(2, Some(1), None)), &log);
        assert_eq!(outputs[0], Output::Persist(elected(3, Some(1), None)));
        match &outputs[1] {
            Output::OpenEpoch {
                epoch: 3,
                base_offset: 10,
                records,
            } => assert_eq!(records.len(), count),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn start_of_static_sole_voter_writes_no_voters() {
    let quorum = QuorumHistory::new(VoterSet::new([voter(1, None, 9093)]));
    let mut node = RaftNode::new(config(), quorum);
    let outputs = node.step(at(0), Input::Start(ElectionState::default()), &TestLog::default());
    assert_eq!(
        outputs[1],
        Output::OpenEpoch {
            epoch: 1,
            base_offset: 0,
            records: vec![ControlRecord::LeaderChange {
                leader_id: 1,
                voters: vec![1],
                granting_voters: vec![1],
            }],
        }
    );
}

#[test]
fn start_with_quorum_state_behind_the_log_takes_the_logs_epoch() {
    let mut node = sole_voter();
    let log = TestLog::of(&[(5, 0)], 10);
    let outputs = node.step(at(0), Input::Start(elected(2, Some(1), None)), &log);
    assert_eq!(outputs[0], Output::Persist(elected(6, Some(1), None)));
}

#[test]
fn start_of_candidate_that_had_voted_for_itself_leads_that_epoch() {
    let mut node = sole_voter();
    let log = TestLog::of(&[(1, 0)], 10);
    let outputs = node.step(at(0), Input::Start(elected(2, None, Some(local()))), &log);
    assert_eq!(outputs[0], Output::Persist(elected(2, Some(1), None)));
}

#[test]
fn start_of_voter_of_three_that_led_is_resigned_and_then_asks_for_votes() {
    let mut node = voter_of_three();
    let log = TestLog::of(&[(2, 0)], 10);
    let outputs = node.step(at(0), Input::Start(elected(2, Some(1), None)), &log);
    // Nobody is told that it leads.
    assert_eq!(
        outputs,
        [
            Output::Persist(elected(2, Some(1), None)),
            Output::LeaderChanged {
                leader: LeaderAndEpoch {
                    leader_id: None,
                    epoch: 2,
                },
                epoch_start_offset: None,
            },
        ]
    );
    let deadline = node.next_deadline_ms();
    assert!((1000..2000).contains(&deadline), "{deadline}");
    assert_eq!(node.step(at(deadline - 1), Input::Tick, &log), []);
    let outputs = node.step(at(deadline), Input::Tick, &log);
    assert_eq!(outputs[0], Output::Persist(elected(3, None, None)));

    let deadline = node.next_deadline_ms();
    assert_eq!(
        node.step(at(deadline), Input::Tick, &log),
        [Output::RequestVotes {
            epoch: 3,
            pre_vote: true,
        }]
    );
    // No answers: back to waiting, without a new epoch.
    let deadline = node.next_deadline_ms();
    node.step(at(deadline), Input::Tick, &log);
    assert_eq!(node.state().name(), "Unattached");
    assert_eq!(node.epoch(), 3);
}

#[test]
fn start_of_follower_follows_the_stored_leader_and_keeps_its_vote() {
    let mut node = voter_of_three();
    let log = TestLog::of(&[(2, 0)], 10);
    let stored = elected(2, Some(2), Some(ReplicaKey::new(2, Uuid::from_u128(2))));
    let outputs = node.step(at(0), Input::Start(stored.clone()), &log);
    assert_eq!(outputs[0], Output::Persist(stored));
    assert_eq!(node.state().name(), "Follower");
    assert_eq!(node.leader_endpoints(), [endpoint(9094)]);
    assert_eq!(node.next_deadline_ms(), 2000);
}

#[test]
fn start_of_observer_waits_for_nothing() {
    let mut node = formatted([voter(2, Some(OTHER_DIRECTORY), 9094)]);
    node.step(at(0), Input::Start(ElectionState::default()), &TestLog::default());
    assert_eq!(node.state().name(), "Unattached");
    assert_eq!(node.next_deadline_ms(), i64::MAX);
}

#[test]
fn start_with_another_directory_than_the_voters_is_an_observer() {
    let mut node = formatted([voter(1, Some(OTHER_DIRECTORY), 9093)]);
    node.step(at(0), Input::Start(ElectionState::default()), &TestLog::default());
    assert_eq!(node.state().name(), "Unattached");
}

// ---- append, flush, commit

#[test]
fn append_is_committed_only_when_flushed() {
    let (mut node, mut log) = leader();
    log.end = 5;
    assert_eq!(
        node.step(at(1), Input::Appended { end_offset: 5 }, &log),
        [Output::Flush]
    );
    assert_eq!(
        node.step(at(1), Input::Flushed { end_offset: 5 }, &log),
        [Output::HighWatermark(5)]
    );
    assert_eq!(node.step(at(1), Input::Flushed { end_offset: 5 }, &log), []);
}

#[test]
fn high_watermark_needs_a_record_of_the_epoch_on_a_majority() {
    let voters = VoterSet::new([
        voter(1, Some(DIRECTORY), 1),
        voter(2, Some(OTHER_DIRECTORY), 2),
        voter(3, Some(OBSERVER.directory_id.unwrap()), 3),
    ]);
    let mut state = LeaderState::new(local(), 10, vec![1, 2], &voters);
    state.appended(12);
    assert!(!state.flushed(11), "alone");
    let second = ReplicaKey::new(2, OTHER_DIRECTORY);
    assert!(!state.replica_fetched(second, 0, 10), "nothing of this epoch");
    assert!(state.replica_fetched(second, 0, 12));
    assert_eq!(state.high_watermark, Some(11));
    // Another directory of the same id is no voter.
    assert!(!state.replica_fetched(ReplicaKey::new(3, Uuid::from_u128(99)), 0, 12));
    assert!(state.replica_fetched(ReplicaKey::new(3, OBSERVER.directory_id.unwrap()), 0, 12));
    assert_eq!(state.high_watermark, Some(12));
    assert!(!state.replica_fetched(second, 0, 10), "it never goes back");
    assert_eq!(state.high_watermark, Some(12));
}

#[test]
fn resign_closes_the_epoch_and_a_sole_voter_leads_again_two_epochs_later() {
    let (mut node, log) = leader();
    assert_eq!(node.step(at(5), Input::Resign { epoch: 0 }, &log), []);
    assert_eq!(
        node.step(at(5), Input::Resign { epoch: 1 }, &log),
        [
            Output::CloseEpoch,
            Output::LeaderChanged {
                leader: LeaderAndEpoch {
                    leader_id: None,
                    epoch: 1,
                },
                epoch_start_offset: None,
            },
        ]
    );
    let deadline = node.next_deadline_ms();
    let outputs = node.step(at(deadline), Input::Tick, &log);
    assert_eq!(outputs[0], Output::Persist(elected(2, None, None)));
    let deadline = node.next_deadline_ms();
    let outputs = node.step(at(deadline), Input::Tick, &log);
    assert_eq!(outputs[0], Output::Persist(elected(3, Some(1), None)));
}

// ---- fetch

#[test]
fn fetch_of_what_is_there_is_answered_at_once_and_noted() {
    let (mut node, log) = leader();
    assert_eq!(
        node.step(at(4), Input::Fetch(TOKEN, fetch(0, 0)), &log),
        [Output::Answer(
            TOKEN,
            fetch_answer(3, FetchContent::RecordsFrom(0))
        )]
    );
    let status = |log_end_offset, last_caught_up_timestamp| ReplicaStatus {
        replica_id: 7,
        replica_directory_id: OBSERVER.directory_id.unwrap(),
        log_end_offset,
        last_fetch_timestamp: 1_000_004,
        last_caught_up_timestamp,
    };
    let leader_status = ReplicaStatus {
        replica_id: 1,
        replica_directory_id: DIRECTORY,
        log_end_offset: 3,
        last_fetch_timestamp: 1_000_006,
        last_caught_up_timestamp: 1_000_006,
    };
    let description = |observers| {
        Output::Answer(
            TOKEN,
            Answer::DescribeQuorum(QuorumDescription {
                error: ErrorCode::None,
                leader_id: 1,
                leader_epoch: 1,
                high_watermark: 3,
                voters: vec![leader_status],
                observers,
                nodes: vec![(1, vec![endpoint(9093)])],
            }),
        )
    };
    assert_eq!(
        node.step(at(6), Input::DescribeQuorum(TOKEN), &log),
        [description(vec![status(0, -1)])]
    );
    // Silent for five minutes: forgotten.
    let later = at(300_004);
    match &node.step(later, Input::DescribeQuorum(TOKEN), &log)[..] {
        [Output::Answer(_, Answer::DescribeQuorum(description))] => {
            assert_eq!(description.observers, []);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn fetch_at_the_end_waits_for_an_append_or_the_high_watermark_or_its_deadline() {
    let (mut node, mut log) = leader();
    let wait = Input::Fetch(TOKEN, fetch(3, 1));
    assert_eq!(node.step(at(0), wait.clone(), &log), []);
    assert_eq!(node.next_deadline_ms(), 500);
    log.end = 4;
    assert_eq!(
        node.step(at(1), Input::Appended { end_offset: 4 }, &log),
        [
            Output::Flush,
            Output::Answer(TOKEN, fetch_answer(3, FetchContent::RecordsFrom(3))),
        ]
    );

    let at_end = Input::Fetch(TOKEN, fetch(4, 1));
    assert_eq!(node.step(at(2), at_end.clone(), &log), []);
    assert_eq!(
        node.step(at(3), Input::Flushed { end_offset: 4 }, &log),
        [
            Output::HighWatermark(4),
            Output::Answer(TOKEN, fetch_answer(4, FetchContent::RecordsFrom(4))),
        ]
    );

    // It does not know the high watermark yet: told at once.
    assert_eq!(
        node.step(at(4), at_end, &log),
        [Output::Answer(
            TOKEN,
            fetch_answer(4, FetchContent::RecordsFrom(4))
        )]
    );

    let mut knowing = fetch(4, 1);
    knowing.high_watermark = 4;
    assert_eq!(node.step(at(10), Input::Fetch(TOKEN, knowing), &log), []);
    assert_eq!(node.step(at(509), Input::Tick, &log), []);
    assert_eq!(
        node.step(at(510), Input::Tick, &log),
        [Output::Answer(
            TOKEN,
            fetch_answer(4, FetchContent::RecordsFrom(4))
        )]
    );
    assert_eq!(node.next_deadline_ms(), i64::MAX);
}

#[test]
fn fetch_with_wrong_values_gets_kafkas_error() {
    let (mut node, log) = leader();
    type Change = fn(&mut MetadataFetch);
    let cases: [(Change, Answer); 9] = [
        (
            |fetch| fetch.cluster_id = Some("other".to_owned()),
            Answer::Top(ErrorCode::InconsistentClusterId),
        ),
        (
            |fetch| fetch.max_wait_ms = -1,
            fetch_error(ErrorCode::InvalidRequest),
        ),
        (
            |fetch| fetch.fetch_offset = -1,
            fetch_error(ErrorCode::InvalidRequest),
        ),
        (
            |fetch| fetch.last_fetched_epoch = -1,
            fetch_error(ErrorCode::InvalidRequest),
        ),
        (
            |fetch| fetch.last_fetched_epoch = 2,
            fetch_error(ErrorCode::InvalidRequest),
        ),
        (
            |fetch| (fetch.current_leader_epoch, fetch.last_fetched_epoch) = (0, 0),
            fetch_error(ErrorCode::FencedLeaderEpoch),
        ),
        (
            |fetch| fetch.current_leader_epoch = 2,
            fetch_error(ErrorCode::UnknownLeaderEpoch),
        ),
        (
            |fetch| fetch.replica.id = 1,
            fetch_error(ErrorCode::UnknownServerError),
        ),
        (
            // Not a replica: served, not noted.
            |fetch| (fetch.replica.id, fetch.cluster_id) = (-1, None),
            fetch_answer(3, FetchContent::RecordsFrom(2)),
        ),
    ];
    for (change, expected) in cases {
        let mut request = fetch(2, 1);
        change(&mut request);
        assert_eq!(
            node.step(at(0), Input::Fetch(TOKEN, request.clone()), &log),
            [Output::Answer(TOKEN, expected)],
            "{request:?}"
        );
    }
}

#[test]
fn fetch_by_position_gets_records_divergence_or_a_snapshot() {
    let (mut node, _) = leader();
    let log = TestLog {
        start: 10,
        end: 40,
        epochs: vec![(2, 10), (4, 20), (6, 30)],
        snapshots: vec![OffsetAndEpoch::new(10, 2), OffsetAndEpoch::new(25, 4)],
    };
    let latest = FetchContent::Snapshot(OffsetAndEpoch::new(25, 4));
    let cases = [
        (0, 0, latest),
        (9, 2, latest),
        (10, 1, latest),
        (10, 2, FetchContent::RecordsFrom(10)),
        (15, 1, latest),
        (20, 2, FetchContent::RecordsFrom(20)),
        (21, 2, FetchContent::Diverging(OffsetAndEpoch::new(20, 2))),
        (25, 3, FetchContent::Diverging(OffsetAndEpoch::new(20, 2))),
        (25, 4, FetchContent::RecordsFrom(25)),
        (41, 6, FetchContent::Diverging(OffsetAndEpoch::new(40, 6))),
    ];
    node.epoch = 6;
    for (offset, epoch, content) in cases {
        let mut request = fetch(offset, epoch);
        request.current_leader_epoch = 6;
        match &node.step(at(0), Input::Fetch(TOKEN, request), &log)[..] {
            [Output::Answer(_, Answer::Fetch(answer)), ..] => {
                assert_eq!(answer.content, content, "offset {offset} epoch {epoch}");
                assert_eq!(answer.log_start_offset, 10);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn fetch_from_the_start_is_served_by_the_log_if_only_the_formatting_checkpoint_is_there() {
    let (mut node, mut log) = leader();
    log.snapshots = vec![super::super::BOOTSTRAP_SNAPSHOT_ID];
    assert_eq!(
        node.step(at(0), Input::Fetch(TOKEN, fetch(0, 0)), &log),
        [Output::Answer(
            TOKEN,
            fetch_answer(3, FetchContent::RecordsFrom(0))
        )]
    );
}

#[test]
fn fetch_that_waits_is_refused_when_the_leader_resigns() {
    let (mut node, log) = leader();
    node.step(at(0), Input::Fetch(TOKEN, fetch(3, 1)), &log);
    let outputs = node.step(at(1), Input::Resign { epoch: 1 }, &log);
    assert!(
        outputs.contains(&Output::Answer(
            TOKEN,
            fetch_error(ErrorCode::NotLeaderOrFollower)
        )),
        "{outputs:?}"
    );
}

#[test]
fn leaders_requests_after_shutdown_or_elsewhere_are_refused() {
    let (mut node, log) = leader();
    assert_eq!(node.step(at(0), Input::Shutdown, &log), []);
    assert_eq!(
        node.step(at(0), Input::Fetch(TOKEN, fetch(3, 1)), &log),
        [Output::Answer(TOKEN, fetch_error(ErrorCode::BrokerNotAvailable))]
    );

    let mut node = voter_of_three();
    let log = TestLog::of(&[(1, 0)], 3);
    node.step(at(0), Input::Start(elected(1, Some(2), None)), &log);
    let outputs = node.step(at(0), Input::Fetch(TOKEN, fetch(3, 1)), &log);
    assert_eq!(
        outputs,
        [Output::Answer(
            TOKEN,
            Answer::Fetch(FetchAnswer {
                error: ErrorCode::NotLeaderOrFollower,
                leader: CurrentLeader {
                    leader_id: Some(2),
                    epoch: 1,
                    endpoints: vec![endpoint(9094)],
                },
                high_watermark: -1,
                log_start_offset: 0,
                content: FetchContent::Nothing,
            })
        )]
    );
    match &node.step(at(0), Input::DescribeQuorum(TOKEN), &log)[..] {
        [Output::Answer(_, Answer::DescribeQuorum(description))] => {
            assert_eq!(description.error, ErrorCode::NotLeaderOrFollower);
        }
        other => panic!("{other:?}"),
    }
}

// ---- votes

fn vote(candidate_epoch: i32, last: OffsetAndEpoch, pre_vote: bool) -> VoteRequest {
    VoteRequest {
        cluster_id: Some("cluster".to_owned()),
        voter: Some(local()),
        candidate: ReplicaKey::new(5, Uuid::from_u128(5)),
        candidate_epoch,
        last_epoch: last.epoch,
        last_epoch_end_offset: last.offset,
        pre_vote,
    }
}

fn vote_answer(error: ErrorCode, leader: CurrentLeader, vote_granted: bool) -> Output {
    Output::Answer(
        TOKEN,
        Answer::Vote {
            error,
            leader,
            vote_granted,
        },
    )
}

#[test]
fn vote_asked_of_a_leader_in_its_epoch_is_refused() {
    let (mut node, log) = leader();
    for pre_vote in [false, true] {
        let request = vote(1, OffsetAndEpoch::new(100, 0), pre_vote);
        assert_eq!(
            node.step(at(0), Input::Vote(TOKEN, request), &log),
            [vote_answer(ErrorCode::None, leader_of(1), false)]
        );
    }
    assert_eq!(node.state().name(), "Leader");
}

#[test]
fn vote_asked_of_a_leader_for_a_later_epoch_ends_its_own_and_is_granted_once() {
    let (mut node, log) = leader();
    let nobody = CurrentLeader {
        leader_id: None,
        epoch: 4,
        endpoints: Vec::new(),
    };
    let candidate = ReplicaKey::new(5, Uuid::from_u128(5));
    let request = vote(4, OffsetAndEpoch::new(3, 1), false);
    assert_eq!(
        node.step(at(0), Input::Vote(TOKEN, request.clone()), &log),
        [
            Output::CloseEpoch,
            Output::Persist(elected(4, None, Some(candidate))),
            vote_answer(ErrorCode::None, nobody.clone(), true),
            Output::LeaderChanged {
                leader: LeaderAndEpoch {
                    leader_id: None,
                    epoch: 4,
                },
                epoch_start_offset: None,
            },
        ]
    );
    // The same again is granted again, another is not.
    assert_eq!(
        node.step(at(0), Input::Vote(TOKEN, request.clone()), &log),
        [vote_answer(ErrorCode::None, nobody.clone(), true)]
    );
    let other = VoteRequest {
        candidate: ReplicaKey::new(6, Uuid::from_u128(6)),
        ..request
    };
    assert_eq!(
        node.step(at(0), Input::Vote(TOKEN, other), &log),
        [vote_answer(ErrorCode::None, nobody, false)]
    );
    // Nobody came: it leads again by itself.
    let deadline = node.next_deadline_ms();
    let outputs = node.step(at(deadline), Input::Tick, &log);
    assert_eq!(outputs[0], Output::Persist(elected(5, Some(1), None)));
}

#[test]
fn vote_for_a_candidate_whose_log_is_behind_is_refused_but_its_epoch_is_taken() {
    let (mut node, log) = leader();
    let request = vote(4, OffsetAndEpoch::new(2, 1), false);
    let outputs = node.step(at(0), Input::Vote(TOKEN, request), &log);
    assert_eq!(outputs[1], Output::Persist(elected(4, None, None)));
    assert!(matches!(
        outputs[2],
        Output::Answer(
            _,
            Answer::Vote {
                vote_granted: false,
                ..
            }
        )
    ));
}

#[test]
fn vote_with_wrong_values_gets_kafkas_error() {
    let (mut node, log) = leader();
    let valid = vote(1, OffsetAndEpoch::new(3, 0), false);
    let cases = [
        (
            VoteRequest {
                last_epoch: 1,
                ..valid.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            VoteRequest {
                last_epoch_end_offset: -1,
                ..valid.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            VoteRequest {
                candidate: ReplicaKey::new(-1, Uuid::nil()),
                ..valid.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            VoteRequest {
                candidate_epoch: 0,
                pre_vote: true,
                ..valid.clone()
            },
            ErrorCode::FencedLeaderEpoch,
        ),
        (
            VoteRequest {
                voter: Some(ReplicaKey::new(1, OTHER_DIRECTORY)),
                ..valid.clone()
            },
            ErrorCode::InvalidVoterKey,
        ),
    ];
    for (request, error) in cases {
        assert_eq!(
            node.step(at(0), Input::Vote(TOKEN, request), &log),
            [vote_answer(error, leader_of(1), false)]
        );
    }
    let other_cluster = VoteRequest {
        cluster_id: Some("other".to_owned()),
        ..valid
    };
    assert_eq!(
        node.step(at(0), Input::Vote(TOKEN, other_cluster), &log),
        [Output::Answer(
            TOKEN,
            Answer::Top(ErrorCode::InconsistentClusterId)
        )]
    );
}

#[test]
fn pre_vote_asked_of_a_resigned_leader_is_granted() {
    let (mut node, log) = leader();
    node.step(at(0), Input::Resign { epoch: 1 }, &log);
    let request = vote(1, OffsetAndEpoch::new(3, 1), true);
    assert_eq!(
        node.step(at(0), Input::Vote(TOKEN, request), &log),
        [vote_answer(ErrorCode::None, leader_of(1), true)]
    );
    assert_eq!(node.state().name(), "Resigned");
}

// ---- BeginQuorumEpoch, EndQuorumEpoch

fn begin(leader_id: i32, leader_epoch: i32, leader_endpoints: Vec<Endpoint>) -> BeginQuorumEpochRequest {
    BeginQuorumEpochRequest {
        cluster_id: None,
        voter: None,
        leader_id,
        leader_epoch,
        leader_endpoints,
    }
}

fn quorum_epoch_answer(error: ErrorCode, leader: CurrentLeader) -> Output {
    Output::Answer(TOKEN, Answer::QuorumEpoch { error, leader })
}

#[test]
fn begin_quorum_epoch_of_a_later_epoch_makes_a_follower() {
    let (mut node, log) = leader();
    let outputs = node.step(
        at(0),
        Input::BeginQuorumEpoch(TOKEN, begin(2, 3, vec![endpoint(9094)])),
        &log,
    );
    let leader = CurrentLeader {
        leader_id: Some(2),
        epoch: 3,
        endpoints: vec![endpoint(9094)],
    };
    assert_eq!(
        outputs,
        [
            Output::CloseEpoch,
            Output::Persist(elected(3, Some(2), None)),
            quorum_epoch_answer(ErrorCode::None, leader.clone()),
            Output::LeaderChanged {
                leader: LeaderAndEpoch {
                    leader_id: Some(2),
                    epoch: 3,
                },
                epoch_start_offset: None,
            },
        ]
    );
    // Its leader ends the epoch and does not name us: we stand after the longest wait.
    let end = EndQuorumEpochRequest {
        cluster_id: None,
        leader_id: 2,
        leader_epoch: 3,
        preferred_candidates: vec![ReplicaKey::new(9, Uuid::nil())],
        leader_endpoints: Vec::new(),
    };
    assert_eq!(
        node.step(at(10), Input::EndQuorumEpoch(TOKEN, end.clone()), &log),
        [quorum_epoch_answer(ErrorCode::None, leader)]
    );
    assert_eq!(node.next_deadline_ms(), 1010);
    let first = EndQuorumEpochRequest {
        preferred_candidates: vec![local()],
        ..end
    };
    node.step(at(10), Input::EndQuorumEpoch(TOKEN, first), &log);
    assert_eq!(node.next_deadline_ms(), 10);
}

#[test]
fn begin_quorum_epoch_that_cannot_be_is_answered_without_harm() {
    let (mut node, log) = leader();
    let cases = [
        (
            begin(2, 0, Vec::new()),
            quorum_epoch_answer(ErrorCode::FencedLeaderEpoch, leader_of(1)),
        ),
        (
            begin(-1, 1, Vec::new()),
            quorum_epoch_answer(ErrorCode::InvalidRequest, leader_of(1)),
        ),
        // A second leader of our own epoch; ourselves in an epoch that we know nothing of; a leader nobody can reach.
        (
            begin(2, 1, vec![endpoint(1)]),
            Output::Answer(TOKEN, Answer::Top(ErrorCode::UnknownServerError)),
        ),
        (
            begin(1, 9, vec![endpoint(1)]),
            Output::Answer(TOKEN, Answer::Top(ErrorCode::UnknownServerError)),
        ),
        (
            begin(2, 9, Vec::new()),
            Output::Answer(TOKEN, Answer::Top(ErrorCode::UnknownServerError)),
        ),
        (
            begin(1, 1, Vec::new()),
            quorum_epoch_answer(ErrorCode::None, leader_of(1)),
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(
            node.step(at(0), Input::BeginQuorumEpoch(TOKEN, request), &log),
            [expected]
        );
        assert_eq!(node.state().name(), "Leader");
    }
}

/// Apache Kafka takes such an epoch, wraps at the next election and ends.
#[test]
fn epoch_from_outside_that_no_cluster_reaches_is_refused_and_not_kept() {
    for epoch in [i32::MAX, i32::MAX - 1, i32::MAX / 2 + 1] {
        let (mut node, log) = leader();
        let inputs = [
            Input::Vote(TOKEN, vote(epoch, OffsetAndEpoch::new(3, 1), false)),
            Input::BeginQuorumEpoch(TOKEN, begin(9, epoch, vec![endpoint(9)])),
            Input::EndQuorumEpoch(
                TOKEN,
                EndQuorumEpochRequest {
                    cluster_id: None,
                    leader_id: 9,
                    leader_epoch: epoch,
                    leader_endpoints: vec![endpoint(9)],
                    preferred_candidates: Vec::new(),
                },
            ),
        ];
        for input in inputs {
            let outputs = node.step(at(0), input.clone(), &log);
            let expected = match input {
                Input::Vote(..) => vote_answer(ErrorCode::InvalidRequest, leader_of(1), false),
                _ => quorum_epoch_answer(ErrorCode::InvalidRequest, leader_of(1)),
            };
            assert_eq!(outputs, [expected], "{epoch}");
            assert_eq!(node.epoch(), 1);
        }
    }
    let (mut node, log) = leader();
    node.step(
        at(0),
        Input::Vote(TOKEN, vote(i32::MAX / 2, OffsetAndEpoch::new(3, 1), false)),
        &log,
    );
    node.step(at(10_000), Input::Tick, &log);
    assert_eq!(node.epoch(), i32::MAX / 2 + 1);
    assert!(node.state().is_leader());
}
