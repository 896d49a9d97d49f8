//! The raft thread: feeds the machine, runs its outputs on the metadata log in order, and hands what is committed to listeners.
//!
//! A turn: requests -> appends that wait -> one write -> one fsync -> commit -> one chunk to each listener. Appends that arrive
//! while a turn's fsync runs share the next one (group commit); nothing lingers. After an error of the disk nothing is written or
//! committed any more: a failed fsync may have lost the pages that a later one would claim to have saved.
//!
//! A full disk is no such error: what it does not take waits, in order, and is written when there is room; until then this node
//! leads on, and what is committed can be read.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use super::client::{Published, Shared};
use super::metadata_log::{MetadataLog, Retention};
use super::node::{Input, LogView, Now, Output, RaftNode, Token};
use super::quorum_state_file::QuorumStateFile;
use super::records::{self, MAX_BATCH_SIZE_BYTES};
use super::rpc::{
    Answer, BeginQuorumEpochRequest, EndQuorumEpochRequest, MetadataFetch, SnapshotFetch, VoteRequest,
};
use super::state::ElectionState;
use super::{CommittedBatch, LeaderAndEpoch, RaftError, RaftListener};

/// Snapshots are looked through for retention so often (Kafka's fixed period).
const CLEAN_PERIOD_MS: i64 = 60_000;
/// How soon a full disk is tried again.
const NO_SPACE_RETRY_MS: i64 = 200;
/// How often what cannot wait (the vote, the batch that opens an epoch) is tried on a full disk before raft gives up.
const NO_SPACE_TRIES: u32 = 15;
/// Commands taken before what they appended is written.
const COMMANDS_PER_TURN: usize = 256;

/// What other threads ask of the raft thread.
pub(super) enum Command {
    /// Something was appended.
    Wake,
    Register(Box<dyn RaftListener>),
    Resign {
        epoch: i32,
    },
    Request(Request, oneshot::Sender<Answer>),
    Shutdown,
}

pub(super) enum Request {
    Fetch(MetadataFetch),
    FetchSnapshot(SnapshotFetch),
    DescribeQuorum,
    Vote(VoteRequest),
    BeginQuorumEpoch(BeginQuorumEpochRequest),
    EndQuorumEpoch(EndQuorumEpochRequest),
}

struct ListenerContext {
    listener: Box<dyn RaftListener>,
    /// `None`: has not got anything yet, not even a snapshot.
    next_offset: Option<i64>,
    last_fired: LeaderAndEpoch,
}

pub(super) struct Driver {
    shared: Arc<Shared>,
    commands: Receiver<Command>,
    node: RaftNode,
    quorum_state: QuorumStateFile,
    retention: Retention,
    listeners: Vec<ListenerContext>,
    waiting: HashMap<Token, oneshot::Sender<Answer>>,
    next_token: u64,
    /// Taken from those who append, and not written yet: a full disk.
    unwritten: VecDeque<(Bytes, i64)>,
    retry_ms: Option<i64>,
    flush_needed: bool,
    high_watermark: Option<i64>,
    leader: LeaderAndEpoch,
    epoch_start_offset: Option<i64>,
    next_clean_ms: i64,
    shutting_down: bool,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        commands: Receiver<Command>,
        node: RaftNode,
        quorum_state: QuorumStateFile,
        retention: Retention,
    ) -> Self {
        let next_clean_ms = shared.clock.monotonic_ms() + CLEAN_PERIOD_MS;
        Self {
            shared,
            commands,
            node,
            quorum_state,
            retention,
            listeners: Vec::new(),
            waiting: HashMap::new(),
            next_token: 0,
            unwritten: VecDeque::new(),
            retry_ms: None,
            flush_needed: false,
            high_watermark: None,
            leader: LeaderAndEpoch::UNKNOWN,
            epoch_start_offset: None,
            next_clean_ms,
            shutting_down: false,
        }
    }

    /// The thread's body: returns after shutdown or a fatal error, which the listeners are told.
    pub(super) fn run(mut self, stored: ElectionState) {
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| self.run_until_shutdown(stored)));
        let result = ended.unwrap_or_else(|_| Err(RaftError::Log("the raft thread panicked".to_owned())));
        match result {
            Ok(()) => {
                self.shared.close_appends(RaftError::ShutDown);
                for context in &mut self.listeners {
                    context.listener.begin_shutdown();
                }
            }
            Err(error) => {
                tracing::error!(%error, "raft stops: nothing is committed any more");
                self.shared.close_appends(error.clone());
                self.shared.publish(Published {
                    leader: LeaderAndEpoch {
                        leader_id: None,
                        epoch: self.node.epoch(),
                    },
                    leader_endpoints: Vec::new(),
                    high_watermark: self.high_watermark,
                    quorum: Arc::new(self.node.quorum().clone()),
                });
                for context in &mut self.listeners {
                    context.listener.handle_fatal_error(&error);
                }
                // Those that come too late to hear of it from the loop above.
                while let Ok(command) = self.commands.try_recv() {
                    if let Command::Register(mut listener) = command {
                        listener.handle_fatal_error(&error);
                    }
                }
            }
        }
    }

    fn run_until_shutdown(&mut self, stored: ElectionState) -> Result<(), RaftError> {
        self.step(Input::Start(stored))?;
        loop {
            self.append_and_commit()?;
            let more_to_hand_over = self.advance_listeners()?;
            // What found no room was not acknowledged to anybody, and a shutdown does not wait for room.
            if self.shutting_down && !more_to_hand_over {
                return Ok(());
            }
            let timeout = if more_to_hand_over {
                Duration::ZERO
            } else {
                self.time_until_next_deadline()
            };
            self.take_commands(timeout)?;
            let now = self.now();
            if now.monotonic_ms >= self.node.next_deadline_ms() {
                self.step(Input::Tick)?;
            }
            if now.monotonic_ms >= self.next_clean_ms {
                self.next_clean_ms = now.monotonic_ms + CLEAN_PERIOD_MS;
                match self.shared.log.clean(now.wall_ms, self.retention) {
                    Err(error) if error.is_no_space() => tracing::warn!(%error, "no room to clean in"),
                    cleaned => drop(cleaned?),
                }
            }
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic_ms: self.shared.clock.monotonic_ms(),
            wall_ms: self.shared.clock.now_ms(),
        }
    }

    fn time_until_next_deadline(&self) -> Duration {
        let deadline = self.node.next_deadline_ms().min(self.next_clean_ms);
        let deadline = deadline.min(self.retry_ms.unwrap_or(i64::MAX));
        let wait_ms = deadline.saturating_sub(self.shared.clock.monotonic_ms());
        Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0))
    }

    fn take_commands(&mut self, timeout: Duration) -> Result<(), RaftError> {
        let mut command = match self.commands.recv_timeout(timeout) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            // Every handle is gone: nobody can append or listen any more.
            Err(RecvTimeoutError::Disconnected) => Some(Command::Shutdown),
        };
        for _ in 0..COMMANDS_PER_TURN {
            match command {
                Some(command) => self.handle_command(command)?,
                None => break,
            }
            command = self.commands.try_recv().ok();
        }
        if let Some(command) = command {
            self.handle_command(command)?;
        }
        Ok(())
    }

    fn handle_command(&mut self, command: Command) -> Result<(), RaftError> {
        match command {
            Command::Wake => Ok(()),
            Command::Register(listener) => {
                self.listeners.push(ListenerContext {
                    listener,
                    next_offset: None,
                    last_fired: LeaderAndEpoch::UNKNOWN,
                });
                Ok(())
            }
            Command::Resign { epoch } => self.step(Input::Resign { epoch }),
            Command::Request(request, asker) => {
                let token = Token(self.next_token);
                self.next_token += 1;
                self.waiting.insert(token, asker);
                self.step(match request {
                    Request::Fetch(request) => Input::Fetch(token, request),
                    Request::FetchSnapshot(request) => Input::FetchSnapshot(token, request),
                    Request::DescribeQuorum => Input::DescribeQuorum(token),
                    Request::Vote(request) => Input::Vote(token, request),
                    Request::BeginQuorumEpoch(request) => Input::BeginQuorumEpoch(token, request),
                    Request::EndQuorumEpoch(request) => Input::EndQuorumEpoch(token, request),
                })
            }
            Command::Shutdown => {
                self.shutting_down = true;
                self.shared.refuse_new_appends();
                self.step(Input::Shutdown)
            }
        }
    }

    fn step(&mut self, input: Input) -> Result<(), RaftError> {
        let now = self.now();
        let outputs = self.node.step(now, input, &*self.shared.log);
        for output in outputs {
            self.execute(output)?;
        }
        Ok(())
    }

    fn execute(&mut self, output: Output) -> Result<(), RaftError> {
        match output {
            Output::Persist(state) => {
                let quorum = self.node.quorum();
                let voter_ids: Vec<i32> = quorum.last_voters().ids().collect();
                let (file, log) = (&mut self.quorum_state, &self.shared.log);
                try_for_room(log, || {
                    file.write(&state, quorum.last_kraft_version(), &voter_ids)
                })
            }
            Output::OpenEpoch {
                epoch,
                base_offset,
                records: control_records,
            } => {
                let now_ms = self.shared.clock.now_ms();
                let batch = records::encode_control_batch(base_offset, epoch, now_ms, &control_records)
                    .map_err(RaftError::Log)?;
                let end_offset = base_offset + control_records.len() as i64;
                let log = &self.shared.log;
                try_for_room(log, || log.append(&batch))?;
                self.shared.open_appends(epoch, end_offset);
                self.step(Input::Appended { end_offset })
            }
            Output::CloseEpoch => {
                self.unwritten.clear();
                self.retry_ms = None;
                self.shared.close_epoch(self.node.epoch());
                Ok(())
            }
            Output::Flush => {
                self.flush_needed = true;
                Ok(())
            }
            Output::HighWatermark(high_watermark) => {
                self.shared.log.update_high_watermark(high_watermark);
                self.high_watermark = Some(high_watermark);
                self.shared.publish_high_watermark(high_watermark);
                Ok(())
            }
            Output::LeaderChanged {
                leader,
                epoch_start_offset,
            } => {
                tracing::info!(epoch = leader.epoch, leader_id = ?leader.leader_id, "the metadata quorum's leader changed");
                self.leader = leader;
                self.epoch_start_offset = epoch_start_offset;
                self.publish();
                Ok(())
            }
            Output::Answer(token, answer) => {
                if let Some(asker) = self.waiting.remove(&token) {
                    // Whoever hung up does not need it.
                    let _ = asker.send(answer);
                }
                Ok(())
            }
            Output::RequestVotes { epoch, pre_vote } => {
                tracing::debug!(epoch, pre_vote, "votes of other voters are not asked for yet");
                Ok(())
            }
        }
    }

    fn publish(&self) {
        self.shared.publish(Published {
            leader: self.node.leader_and_epoch(),
            leader_endpoints: self.node.leader_endpoints(),
            high_watermark: self.high_watermark,
            quorum: Arc::new(self.node.quorum().clone()),
        });
    }

    /// Writes what waits and commits it with one fsync.
    fn append_and_commit(&mut self) -> Result<(), RaftError> {
        let now_ms = self.shared.clock.monotonic_ms();
        if self.retry_ms.is_none_or(|retry_ms| retry_ms <= now_ms) {
            self.write_what_waits(now_ms)?;
            if self.unwritten.is_empty() {
                self.unwritten = grouped(self.shared.take_pending(), MAX_BATCH_SIZE_BYTES).into();
                self.write_what_waits(now_ms)?;
            }
        }
        if self.flush_needed {
            self.flush_needed = false;
            let end_offset = self.shared.log.end_offset().offset;
            self.shared.log.flush()?;
            self.step(Input::Flushed { end_offset })?;
        }
        Ok(())
    }

    fn write_what_waits(&mut self, now_ms: i64) -> Result<(), RaftError> {
        while let Some((bytes, end_offset)) = self.unwritten.pop_front() {
            match self.shared.log.append(&bytes) {
                Ok(()) => {
                    self.retry_ms = None;
                    self.step(Input::Appended { end_offset })?;
                }
                Err(error) if error.is_no_space() => {
                    if self.retry_ms.is_none() {
                        tracing::error!(%error, "changes of the metadata wait for room");
                    }
                    self.retry_ms = Some(now_ms + NO_SPACE_RETRY_MS);
                    self.unwritten.push_front((bytes, end_offset));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands a snapshot or one chunk of committed batches to each listener that is behind, then tells of leaders. Returns
    /// whether somebody is still behind.
    fn advance_listeners(&mut self) -> Result<bool, RaftError> {
        let mut decoded: Option<(i64, Vec<CommittedBatch>)> = None;
        let mut more = false;
        for index in 0..self.listeners.len() {
            if let Some(high_watermark) = self.high_watermark {
                let next_offset = self.load_snapshot_if_needed(index, high_watermark)?;
                if next_offset < high_watermark {
                    let batches = match &decoded {
                        Some((offset, batches)) if *offset == next_offset => batches.clone(),
                        _ => {
                            let batches: Vec<CommittedBatch> = self
                                .shared
                                .log
                                .read_batches(next_offset, high_watermark)?
                                .into_iter()
                                .map(|batch| batch.into_committed())
                                .collect();
                            decoded = Some((next_offset, batches.clone()));
                            batches
                        }
                    };
                    let next_offset = batches.last().map_or(next_offset, |batch| batch.last_offset + 1);
                    let context = &mut self.listeners[index];
                    context.next_offset = Some(next_offset);
                    context.listener.handle_commit(batches);
                    more |= next_offset < high_watermark;
                }
            }
            self.fire_leader_change(index);
        }
        Ok(more)
    }

    /// Where the listener goes on; a new one, or one that the log's start has overtaken, first gets the latest snapshot.
    fn load_snapshot_if_needed(&mut self, index: usize, high_watermark: i64) -> Result<i64, RaftError> {
        let log = &self.shared.log;
        let context = &mut self.listeners[index];
        let start = log.log_start_offset();
        match context.next_offset {
            Some(next_offset) if next_offset >= start || next_offset >= high_watermark => {
                return Ok(next_offset);
            }
            _ => {}
        }
        let next_offset = match log.open_latest_snapshot()? {
            Some(contents) => {
                let next_offset = contents.snapshot_id.offset;
                context.listener.handle_load_snapshot(contents);
                next_offset
            }
            None => start,
        };
        context.next_offset = Some(next_offset);
        Ok(next_offset)
    }

    fn fire_leader_change(&mut self, index: usize) {
        let context = &mut self.listeners[index];
        let has_caught_up = self
            .epoch_start_offset
            .is_none_or(|start| context.next_offset.is_some_and(|next_offset| next_offset > start));
        if self.leader != context.last_fired && has_caught_up {
            context.last_fired = self.leader;
            context.listener.handle_leader_change(self.leader);
        }
    }
}

/// Once more without the reserve, then a few times.
fn try_for_room(
    log: &MetadataLog,
    mut write: impl FnMut() -> Result<(), RaftError>,
) -> Result<(), RaftError> {
    let mut tries = 0;
    loop {
        match write() {
            Err(error) if error.is_no_space() && tries < NO_SPACE_TRIES => {
                tries += 1;
                if !log.give_up_reserve() {
                    std::thread::sleep(Duration::from_millis(NO_SPACE_RETRY_MS.unsigned_abs()));
                }
            }
            result => return result,
        }
    }
}

/// Batches joined for as few writes as can be, none larger than a segment may be.
fn grouped(pending: Vec<(Bytes, i64)>, max_bytes: usize) -> Vec<(Bytes, i64)> {
    let mut groups: Vec<(Bytes, i64)> = Vec::new();
    let mut joined = BytesMut::new();
    let mut batches = pending.into_iter().peekable();
    while let Some((batch, end_offset)) = batches.next() {
        let next_fits = batches
            .peek()
            .is_some_and(|(next, _)| joined.len() + batch.len() + next.len() <= max_bytes);
        if joined.is_empty() && !next_fits {
            groups.push((batch, end_offset));
        } else {
            joined.extend_from_slice(&batch);
            if !next_fits {
                groups.push((joined.split().freeze(), end_offset));
            }
        }
    }
    groups
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod driver_test;
