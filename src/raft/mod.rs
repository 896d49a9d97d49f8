//! CONSENSUS: KRaft (KIP-595, KIP-630, KIP-853, KIP-996), a pure step machine and the driver that runs its outputs.
//!
//! ```text
//! client.rs             the handle that the rest of the node holds: append, listen, snapshots, remote requests
//! driver.rs             the raft thread: runs the machine's outputs on the metadata log, in order
//! node.rs*  requests.rs* the machine: (now, input) -> outputs; state.rs* leader.rs* its parts, voters.rs* rpc.rs* its vocabulary
//! metadata_log.rs       the log of __cluster_metadata-0 and the snapshots beside it
//! records.rs* control.rs* batches and control records as bytes
//! snapshot.rs           checkpoint files; quorum_state_file.rs the durable vote; storage.rs what `format` writes
//! ```
//! `*` = pure: no I/O, clock, threads or randomness.
//!
//! Invariants: a vote and an epoch are durable before anybody hears of them; a record is committed only after the log is
//! fsynced (the JVM leader counts its own unflushed end, which with one voter acknowledges what a power cut may
//! lose: we do not); a listener sees every committed batch once, in order, and nothing else. A disk error ends the
//! raft thread: nothing is committed after it, and every listener is told.

mod client;
mod config;
mod control;
mod driver;
mod error;
mod leader;
mod listener;
mod metadata_log;
mod node;
mod quorum_state_file;
mod records;
mod requests;
pub mod rpc;
mod snapshot;
mod state;
pub mod storage;
mod types;
mod voters;

pub use client::{FetchReply, RaftClient, SnapshotReply};
pub use config::{RaftConfig, metadata_log_config};
pub use error::RaftError;
pub use listener::{CommittedBatch, RaftListener, SnapshotContents};
pub use types::{
    BOOTSTRAP_SNAPSHOT_ID, CLUSTER_METADATA_TOPIC_ID, CLUSTER_METADATA_TOPIC_NAME, Endpoint, LeaderAndEpoch,
    MAX_KRAFT_VERSION, MIN_KRAFT_VERSION, OffsetAndEpoch, VersionedRecord,
};
pub use voters::{ReplicaKey, VoterNode, VoterSet};

pub use crate::protocol::records::metadata::MetadataRecord;
