//! The handle to raft that the rest of the node holds. Cheap to clone; all calls may come from any thread.
//!
//! [`RaftClient::append`] assigns offsets and encodes on the calling thread, like Kafka's batch accumulator; the raft thread writes,
//! syncs and commits. Lock order: `appends` and `published` are leaves, never held together or over I/O.

use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::config::RaftConfig;
use super::driver::{Command, Driver, Request};
use super::metadata_log::{MetadataLog, Retention};
use super::node::{LogView, NodeConfig, RaftNode};
use super::quorum_state_file::QuorumStateFile;
use super::records::{self, MAX_BATCH_SIZE_BYTES};
use super::rpc::{
    Answer, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchAnswer, FetchContent, MetadataFetch,
    QuorumDescription, SnapshotAnswer, SnapshotFetch, VoteRequest,
};
use super::snapshot::{RECORDS_PER_BATCH, SnapshotWriter};
use super::voters::{QuorumHistory, ReplicaKey, VoterNode, VoterSet};
use super::{
    BOOTSTRAP_SNAPSHOT_ID, Endpoint, LeaderAndEpoch, OffsetAndEpoch, RaftError, RaftListener, VersionedRecord,
};
use crate::io::clock::Clock;
use crate::io::disk::Disk;
use crate::log::UnifiedLog;
use crate::protocol::ErrorCode;

/// Bytes that may wait for the raft thread (Kafka: ten batches of 8 MiB).
const PENDING_BYTES_MAX: usize = 10 * MAX_BATCH_SIZE_BYTES;
/// Requests that may wait for the raft thread.
const COMMANDS_MAX: usize = 4096;

/// What the raft thread lets others see.
pub(super) struct Published {
    pub(super) leader: LeaderAndEpoch,
    pub(super) leader_endpoints: Vec<Endpoint>,
    pub(super) high_watermark: Option<i64>,
    pub(super) quorum: Arc<QuorumHistory>,
}

enum AppendStatus {
    /// Somebody else leads, or nobody; the epoch is the current one.
    NotLeader {
        epoch: i32,
    },
    Open {
        epoch: i32,
    },
    Ended(RaftError),
}

struct Appends {
    status: AppendStatus,
    next_offset: i64,
    /// Batch, and the offset behind its last record.
    pending: Vec<(Bytes, i64)>,
    pending_bytes: usize,
}

pub(super) struct Shared {
    node_id: i32,
    pub(super) log: Arc<MetadataLog>,
    pub(super) clock: Arc<dyn Clock>,
    commands: SyncSender<Command>,
    appends: Mutex<Appends>,
    published: Mutex<Published>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn publish(&self, published: Published) {
        *locked(&self.published) = published;
    }

    pub(super) fn publish_high_watermark(&self, high_watermark: i64) {
        locked(&self.published).high_watermark = Some(high_watermark);
    }

    pub(super) fn open_appends(&self, epoch: i32, next_offset: i64) {
        let mut appends = locked(&self.appends);
        appends.status = AppendStatus::Open { epoch };
        appends.next_offset = next_offset;
        appends.drop_pending();
    }

    /// What waits was never written, and never will be.
    pub(super) fn close_epoch(&self, epoch: i32) {
        let mut appends = locked(&self.appends);
        if !matches!(appends.status, AppendStatus::Ended(_)) {
            appends.status = AppendStatus::NotLeader { epoch };
        }
        appends.drop_pending();
    }

    /// What waits is still written.
    pub(super) fn refuse_new_appends(&self) {
        locked(&self.appends).status = AppendStatus::Ended(RaftError::ShutDown);
    }

    pub(super) fn close_appends(&self, error: RaftError) {
        let mut appends = locked(&self.appends);
        appends.status = AppendStatus::Ended(error);
        appends.drop_pending();
    }

    pub(super) fn take_pending(&self) -> Vec<(Bytes, i64)> {
        let mut appends = locked(&self.appends);
        appends.pending_bytes = 0;
        std::mem::take(&mut appends.pending)
    }

    fn send(&self, command: Command) -> Result<(), RaftError> {
        self.commands.send(command).map_err(|_| RaftError::ShutDown)
    }
}

impl Appends {
    fn drop_pending(&mut self) {
        self.pending.clear();
        self.pending_bytes = 0;
    }
}

/// An answer to a Fetch of the metadata partition, with its batches.
#[derive(Debug)]
pub struct FetchReply {
    pub answer: FetchAnswer,
    pub records: Bytes,
}

/// An answer to a FetchSnapshot. `size`, `position` and `bytes` are meant only without an error.
#[derive(Debug)]
pub struct SnapshotReply {
    pub answer: SnapshotAnswer,
    pub size: u64,
    pub bytes: Bytes,
}

struct Thread {
    shared: Arc<Shared>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The thread holds what this handle's clones share, so it would never see them gone.
        let _ = self.shared.commands.try_send(Command::Shutdown);
    }
}

#[derive(Clone)]
pub struct RaftClient {
    shared: Arc<Shared>,
    thread: Arc<Thread>,
}

impl RaftClient {
    /// Reads `quorum-state`, snapshots and log on the calling thread, then starts the raft thread. `log` is `__cluster_metadata-0`
    /// as `LogManager::open_metadata_log` gives it. A sole voter leads without waiting for any timeout.
    pub fn start(
        config: RaftConfig,
        log: Arc<UnifiedLog>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RaftError> {
        let log = Arc::new(MetadataLog::open(log, Arc::clone(&disk))?);
        let mut quorum = QuorumHistory::new(static_voters(&config.static_voters));
        log.load_quorum_history(&mut quorum)?;
        let mut quorum_state = QuorumStateFile::new(disk, log.dir());
        let stored = quorum_state.read()?.unwrap_or_default();
        let (commands, receiver) = sync_channel(COMMANDS_MAX);
        let shared = Arc::new(Shared {
            node_id: config.node_id,
            log,
            clock,
            commands,
            appends: Mutex::new(Appends {
                status: AppendStatus::NotLeader { epoch: 0 },
                next_offset: 0,
                pending: Vec::new(),
                pending_bytes: 0,
            }),
            published: Mutex::new(Published {
                leader: LeaderAndEpoch::UNKNOWN,
                leader_endpoints: Vec::new(),
                high_watermark: None,
                quorum: Arc::new(quorum.clone()),
            }),
        });
        let retention = Retention {
            max_bytes: config.metadata_max_retention_bytes,
            max_ms: config.metadata_max_retention_ms,
        };
        let node = RaftNode::new(node_config(config), quorum);
        let driver = Driver::new(Arc::clone(&shared), receiver, node, quorum_state, retention);
        let handle = std::thread::Builder::new()
            .name("raft".to_owned())
            .spawn(move || driver.run(stored))
            .map_err(|error| RaftError::io("starting", PathBuf::from("the raft thread"), error))?;
        let thread = Arc::new(Thread {
            shared: Arc::clone(&shared),
            handle: Mutex::new(Some(handle)),
        });
        Ok(Self { shared, thread })
    }

    pub fn node_id(&self) -> i32 {
        self.shared.node_id
    }

    /// Hands one atomic batch to the log of `epoch`; returns the offset of its last record at once. It is committed when a
    /// listener gets it; if the leadership is lost first it may never be. Does not wait for the disk.
    pub fn append(&self, epoch: i32, records: Vec<VersionedRecord>) -> Result<i64, RaftError> {
        if records.is_empty() {
            return Err(RaftError::EmptyBatch);
        }
        let now_ms = self.shared.clock.now_ms();
        let mut appends = locked(&self.shared.appends);
        match &appends.status {
            AppendStatus::Open { epoch: current } if *current == epoch => {}
            AppendStatus::Open { epoch: current } | AppendStatus::NotLeader { epoch: current } => {
                return Err(RaftError::NotLeader {
                    epoch,
                    current_epoch: *current,
                });
            }
            AppendStatus::Ended(error) => return Err(error.clone()),
        }
        let batch = records::encode_data_batch(appends.next_offset, epoch, now_ms, &records)
            .map_err(RaftError::Log)?;
        if batch.len() > MAX_BATCH_SIZE_BYTES {
            return Err(RaftError::RecordBatchTooLarge {
                size: batch.len(),
                max: MAX_BATCH_SIZE_BYTES,
            });
        }
        if appends.pending_bytes + batch.len() > PENDING_BYTES_MAX {
            return Err(RaftError::BufferFull {
                pending: appends.pending_bytes,
            });
        }
        let was_empty = appends.pending.is_empty();
        appends.next_offset += records.len() as i64;
        appends.pending_bytes += batch.len();
        let end_offset = appends.next_offset;
        appends.pending.push((batch, end_offset));
        drop(appends);
        if was_empty {
            // A full queue wakes the thread too, and every turn looks at what waits.
            let _ = self.shared.commands.try_send(Command::Wake);
        }
        Ok(end_offset - 1)
    }

    pub fn leader_and_epoch(&self) -> LeaderAndEpoch {
        locked(&self.shared.published).leader
    }

    /// Where the leader listens for other controllers and brokers, if known: one entry a controller listener.
    pub fn leader_endpoints(&self) -> Vec<Endpoint> {
        locked(&self.shared.published).leader_endpoints.clone()
    }

    /// `None` until this node knows it (a leader: until its LeaderChange record is committed).
    pub fn high_watermark(&self) -> Option<i64> {
        locked(&self.shared.published).high_watermark
    }

    pub fn log_end_offset(&self) -> i64 {
        self.shared.log.end_offset().offset
    }

    /// `kraft.version` as the log has it.
    pub fn kraft_version(&self) -> i16 {
        self.quorum().last_kraft_version()
    }

    /// The latest voters, committed or not.
    pub fn voters(&self) -> VoterSet {
        self.quorum().last_voters().clone()
    }

    fn quorum(&self) -> Arc<QuorumHistory> {
        Arc::clone(&locked(&self.shared.published).quorum)
    }

    pub fn latest_snapshot_id(&self) -> Option<OffsetAndEpoch> {
        self.shared
            .log
            .latest_snapshot_id()
            .filter(|id| *id != BOOTSTRAP_SNAPSHOT_ID)
    }

    /// The listener is called from the raft thread, first with the latest snapshot and all that is committed.
    pub fn register(&self, listener: Box<dyn RaftListener>) {
        if let Err(error) = self.shared.commands.send(Command::Register(listener)) {
            let std::sync::mpsc::SendError(command) = error;
            if let Command::Register(mut listener) = command {
                listener.handle_fatal_error(&self.ended());
            }
        }
    }

    fn ended(&self) -> RaftError {
        match &locked(&self.shared.appends).status {
            AppendStatus::Ended(error) => error.clone(),
            AppendStatus::NotLeader { .. } | AppendStatus::Open { .. } => RaftError::ShutDown,
        }
    }

    /// Writes a snapshot of all up to `id.offset` (exclusive) on the calling thread. `false`: there is one already, or the log
    /// starts behind it.
    pub fn create_snapshot(
        &self,
        id: OffsetAndEpoch,
        last_contained_log_timestamp: i64,
        records: &mut dyn Iterator<Item = VersionedRecord>,
    ) -> Result<bool, RaftError> {
        let log = &self.shared.log;
        if !log.validate_new_snapshot(id, self.high_watermark())? {
            return Ok(false);
        }
        let quorum = self.quorum();
        let last_offset = id.offset - 1;
        let now_ms = || self.shared.clock.now_ms();
        let mut writer = SnapshotWriter::create(
            Arc::clone(log.disk()),
            log.dir(),
            id,
            last_contained_log_timestamp,
            quorum.kraft_version_at(last_offset),
            quorum.voters_at(last_offset),
            now_ms(),
        )?;
        let mut list = Vec::with_capacity(RECORDS_PER_BATCH);
        loop {
            list.clear();
            list.extend(records.take(RECORDS_PER_BATCH));
            if list.is_empty() {
                break;
            }
            if let Err(error) = writer.append(&list, now_ms()) {
                writer.abort();
                return Err(error);
            }
        }
        writer.freeze(now_ms())?;
        log.note_snapshot(id)?;
        Ok(true)
    }

    /// Gives up the leadership of `epoch` (nothing happens if it is over already).
    pub fn resign(&self, epoch: i32) {
        let _ = self.shared.send(Command::Resign { epoch });
    }

    /// Ends the raft thread after all that was appended is committed and handed over, and waits for it.
    pub fn shutdown(&self) {
        let _ = self.shared.send(Command::Shutdown);
        if let Some(handle) = locked(&self.thread.handle).take() {
            let _ = handle.join();
        }
    }

    async fn ask(&self, request: Request) -> Result<Answer, ErrorCode> {
        let (sender, receiver) = oneshot::channel();
        // Never blocks a worker; a queue that is full for want of disk answers as a node that is going away.
        self.shared
            .commands
            .try_send(Command::Request(request, sender))
            .map_err(|_| ErrorCode::BrokerNotAvailable)?;
        match receiver.await {
            Ok(Answer::Top(error)) => Err(error),
            Ok(answer) => Ok(answer),
            Err(_) => Err(ErrorCode::BrokerNotAvailable),
        }
    }

    /// Fetch of the metadata partition; waits as the request says. `Err` is an error for the whole request.
    pub async fn handle_fetch(
        &self,
        request: MetadataFetch,
        max_bytes: i32,
    ) -> Result<FetchReply, ErrorCode> {
        let Answer::Fetch(mut answer) = self.ask(Request::Fetch(request)).await? else {
            return Err(ErrorCode::UnknownServerError);
        };
        let mut records = Bytes::new();
        if let FetchContent::RecordsFrom(offset) = answer.content {
            let max_bytes = usize::try_from(max_bytes).unwrap_or(0).min(MAX_BATCH_SIZE_BYTES);
            match self.shared.log.read(offset, max_bytes) {
                Ok(bytes) => records = bytes,
                Err(error) => {
                    tracing::error!(%error, offset, "a fetch of the metadata log failed");
                    answer.error = ErrorCode::UnknownServerError;
                    answer.high_watermark = -1;
                    answer.content = FetchContent::Nothing;
                }
            }
        }
        Ok(FetchReply { answer, records })
    }

    pub async fn handle_fetch_snapshot(&self, request: SnapshotFetch) -> Result<SnapshotReply, ErrorCode> {
        let (id, position) = (request.snapshot_id, request.position);
        let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0);
        let Answer::FetchSnapshot(mut answer) = self.ask(Request::FetchSnapshot(request)).await? else {
            return Err(ErrorCode::UnknownServerError);
        };
        let mut reply = |error: ErrorCode, size: u64, bytes: Bytes| {
            if answer.error == ErrorCode::None {
                answer.error = error;
            }
            SnapshotReply {
                answer: answer.clone(),
                size,
                bytes,
            }
        };
        // The formatting checkpoint is never replicated: the first leader writes its content to the log.
        if id == BOOTSTRAP_SNAPSHOT_ID {
            return Ok(reply(ErrorCode::SnapshotNotFound, 0, Bytes::new()));
        }
        let from = u64::try_from(position).unwrap_or(u64::MAX);
        match self.shared.log.read_snapshot(id, from, max_bytes) {
            Ok(None) => Ok(reply(ErrorCode::SnapshotNotFound, 0, Bytes::new())),
            Ok(Some((size, _))) if from >= size => Ok(reply(ErrorCode::PositionOutOfRange, 0, Bytes::new())),
            Ok(Some((size, bytes))) => Ok(reply(ErrorCode::None, size, bytes)),
            Err(error) => {
                tracing::error!(%error, %id, "a snapshot cannot be read");
                Err(ErrorCode::UnknownServerError)
            }
        }
    }

    pub async fn handle_describe_quorum(&self) -> Result<QuorumDescription, ErrorCode> {
        match self.ask(Request::DescribeQuorum).await? {
            Answer::DescribeQuorum(description) => Ok(description),
            _ => Err(ErrorCode::UnknownServerError),
        }
    }

    /// [`Answer::Vote`].
    pub async fn handle_vote(&self, request: VoteRequest) -> Result<Answer, ErrorCode> {
        self.ask(Request::Vote(request)).await
    }

    /// [`Answer::QuorumEpoch`].
    pub async fn handle_begin_quorum_epoch(
        &self,
        request: BeginQuorumEpochRequest,
    ) -> Result<Answer, ErrorCode> {
        self.ask(Request::BeginQuorumEpoch(request)).await
    }

    /// [`Answer::QuorumEpoch`].
    pub async fn handle_end_quorum_epoch(&self, request: EndQuorumEpochRequest) -> Result<Answer, ErrorCode> {
        self.ask(Request::EndQuorumEpoch(request)).await
    }
}

impl std::fmt::Debug for RaftClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RaftClient")
            .field("node_id", &self.shared.node_id)
            .finish_non_exhaustive()
    }
}

fn node_config(config: RaftConfig) -> NodeConfig {
    NodeConfig {
        local: ReplicaKey::new(config.node_id, config.directory_id),
        cluster_id: config.cluster_id,
        listeners: config.listeners,
        election_timeout_ms: config.election_timeout_ms,
        fetch_timeout_ms: config.fetch_timeout_ms,
        election_backoff_max_ms: config.election_backoff_max_ms,
        seed: fastrand::u64(1..),
    }
}

fn static_voters(voters: &[(i32, Endpoint)]) -> VoterSet {
    VoterSet::new(voters.iter().map(|(id, endpoint)| VoterNode {
        key: ReplicaKey {
            id: *id,
            directory_id: None,
        },
        endpoints: vec![endpoint.clone()],
        min_kraft_version: 0,
        max_kraft_version: 0,
    }))
}

#[cfg(test)]
#[path = "client_test.rs"]
mod client_test;
