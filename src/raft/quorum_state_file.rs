//! `quorum-state`: one JSON line with the epoch, its leader and this node's vote. Replaced atomically and durably before anything
//! follows from it.
//!
//! data_version 0 goes with kraft.version 0 (it names the voters), 1 with kraft.version 1 (it names the voted directory). Either is
//! read. A file that says the same as what is to be written is left alone: no fsync.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use uuid::Uuid;

use super::RaftError;
use super::state::ElectionState;
use super::voters::ReplicaKey;
use crate::io::disk::Disk;

pub const QUORUM_STATE_FILE_NAME: &str = "quorum-state";

#[derive(Debug)]
pub struct QuorumStateFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// What the file holds, if it has been read or written.
    content: Option<Vec<u8>>,
}

impl QuorumStateFile {
    /// `partition_dir` is `__cluster_metadata-0` in the metadata log dir.
    pub fn new(disk: Arc<dyn Disk>, partition_dir: &Path) -> Self {
        Self {
            disk,
            path: partition_dir.join(QUORUM_STATE_FILE_NAME),
            content: None,
        }
    }

    /// `None`: there is no file yet.
    pub fn read(&mut self) -> Result<Option<ElectionState>, RaftError> {
        if !self.disk.exists(&self.path) {
            return Ok(None);
        }
        let content = self
            .disk
            .read(&self.path)
            .map_err(|error| RaftError::io("reading", &self.path, error))?;
        let state = decode(&content).map_err(|reason| RaftError::corrupt(&self.path, reason))?;
        self.content = Some(content);
        Ok(Some(state))
    }

    /// `voter_ids` is written with kraft.version 0 only.
    pub fn write(
        &mut self,
        state: &ElectionState,
        kraft_version: i16,
        voter_ids: &[i32],
    ) -> Result<(), RaftError> {
        let content = encode(state, kraft_version, voter_ids);
        if self.content.as_ref() == Some(&content) {
            return Ok(());
        }
        // Whatever a failed write left behind, it is not what we believe to be there.
        self.content = None;
        self.disk
            .write_atomically(&self.path, &content)
            .map_err(|error| RaftError::io("writing", &self.path, error))?;
        self.content = Some(content);
        Ok(())
    }
}

fn encode(state: &ElectionState, kraft_version: i16, voter_ids: &[i32]) -> Vec<u8> {
    let leader_id = state.leader_id.unwrap_or(-1);
    let epoch = state.epoch;
    let voted_id = state.voted.map_or(-1, |voted| voted.id);
    // Fields in the order in which Kafka writes them.
    let line = if kraft_version >= 1 {
        let directory = state
            .voted
            .map_or(Uuid::nil(), |voted| voted.directory_id_or_nil());
        let directory = URL_SAFE_NO_PAD.encode(directory.as_bytes());
        format!(
            "{{\"leaderId\":{leader_id},\"leaderEpoch\":{epoch},\"votedId\":{voted_id},\
             \"votedDirectoryId\":\"{directory}\",\"data_version\":1}}"
        )
    } else {
        let voters: Vec<String> = voter_ids
            .iter()
            .map(|id| format!("{{\"voterId\":{id}}}"))
            .collect();
        format!(
            "{{\"clusterId\":\"\",\"leaderId\":{leader_id},\"leaderEpoch\":{epoch},\"votedId\":{voted_id},\
             \"appliedOffset\":0,\"currentVoters\":[{}],\"data_version\":0}}",
            voters.join(",")
        )
    };
    line.into_bytes()
}

fn decode(content: &[u8]) -> Result<ElectionState, String> {
    let json: Value = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let integer = |field: &str| {
        json.get(field)
            .and_then(Value::as_i64)
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(|| format!("{field} is missing or not a number"))
    };
    let version = integer("data_version")?;
    let known = |id: i32| (id >= 0).then_some(id);
    let epoch = integer("leaderEpoch")?;
    let leader_id = known(integer("leaderId")?);
    let voted_id = known(integer("votedId")?);
    let directory = match version {
        0 => Uuid::nil(),
        1 => match json.get("votedDirectoryId").and_then(Value::as_str) {
            Some(text) => decode_uuid(text)?,
            None => Uuid::nil(),
        },
        other => return Err(format!("data_version {other} is not known")),
    };
    if epoch < 0 {
        return Err(format!("leaderEpoch is {epoch}"));
    }
    if epoch == i32::MAX {
        return Err(format!("leaderEpoch is {epoch}: no election can follow it"));
    }
    Ok(ElectionState {
        epoch,
        leader_id,
        voted: voted_id.map(|id| ReplicaKey::new(id, directory)),
    })
}

fn decode_uuid(text: &str) -> Result<Uuid, String> {
    URL_SAFE_NO_PAD
        .decode(text)
        .ok()
        .and_then(|bytes| Uuid::from_slice(&bytes).ok())
        .ok_or_else(|| format!("{text} is not a uuid"))
}

#[cfg(test)]
#[path = "quorum_state_file_test.rs"]
mod quorum_state_file_test;
