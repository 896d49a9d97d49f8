//! The small text files of a log directory and of a partition's folder.
//!
//! Owns their formats: the offset checkpoints (`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
//! `log-start-offset-checkpoint`, `cleaner-offset-checkpoint`), `leader-epoch-checkpoint`, `partition.metadata` and
//! `.kafka_cleanshutdown`. They are only ever replaced as a whole. An empty file is a checkpoint without entries (Kafka
//! writes one when it makes the directory). Pure but for the calls on `Disk` at the end.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use super::TopicPartition;
use super::leader_epoch_cache::EpochEntry;
use crate::io::disk::Disk;

pub const RECOVERY_POINT_CHECKPOINT: &str = "recovery-point-offset-checkpoint";
pub const HIGH_WATERMARK_CHECKPOINT: &str = "replication-offset-checkpoint";
pub const LOG_START_OFFSET_CHECKPOINT: &str = "log-start-offset-checkpoint";
pub const CLEANER_CHECKPOINT: &str = "cleaner-offset-checkpoint";
pub const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
pub const PARTITION_METADATA: &str = "partition.metadata";
/// Bytes of a whole one.
pub const PARTITION_METADATA_LENGTH: usize = 43;
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

const CURRENT_VERSION: i32 = 0;

/// What is wrong with one of these files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error("malformed line {line:?}")]
    MalformedLine { line: String },
    #[error("unrecognized version of the checkpoint file: {version}")]
    Version { version: i32 },
    #[error("expected {expected} entries in the checkpoint file, but found {found}")]
    Count { expected: usize, found: usize },
}

fn malformed(line: &str) -> CheckpointError {
    CheckpointError::MalformedLine {
        line: line.to_owned(),
    }
}

/// Version, count, one entry a line.
fn parse_entries<T>(text: &str, parse_line: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, CheckpointError> {
    let mut lines = text.lines();
    let Some(version_line) = lines.next() else {
        return Ok(Vec::new());
    };
    let version: i32 = version_line.trim().parse().map_err(|_| malformed(version_line))?;
    if version != CURRENT_VERSION {
        return Err(CheckpointError::Version { version });
    }
    let Some(count_line) = lines.next() else {
        return Ok(Vec::new());
    };
    let expected: usize = count_line.trim().parse().map_err(|_| malformed(count_line))?;
    let entries = lines
        .map(|line| parse_line(line).ok_or_else(|| malformed(line)))
        .collect::<Result<Vec<T>, CheckpointError>>()?;
    if entries.len() != expected {
        return Err(CheckpointError::Count {
            expected,
            found: entries.len(),
        });
    }
    Ok(entries)
}

fn format_entries<'a>(count: usize, lines: impl Iterator<Item = String> + 'a) -> String {
    let mut text = format!("{CURRENT_VERSION}\n{count}\n");
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// `<topic> <partition> <offset>` a line.
pub fn parse_offsets(text: &str) -> Result<BTreeMap<TopicPartition, i64>, CheckpointError> {
    let entries = parse_entries(text, |line| {
        let mut words = line.split_whitespace();
        let topic = words.next()?;
        let partition = words.next()?.parse().ok()?;
        let offset = words.next()?.parse().ok()?;
        words
            .next()
            .is_none()
            .then(|| (TopicPartition::new(topic, partition), offset))
    })?;
    Ok(entries.into_iter().collect())
}

pub fn format_offsets(offsets: &BTreeMap<TopicPartition, i64>) -> String {
    format_entries(
        offsets.len(),
        offsets
            .iter()
            .map(|(tp, offset)| format!("{} {} {offset}", tp.topic, tp.partition)),
    )
}

/// `<epoch> <start offset>` a line. The file of a young log is not synced: a number that power loss cut short must not
/// pass for a smaller one, so the last line must be whole.
pub fn parse_epochs(text: &str) -> Result<Vec<EpochEntry>, CheckpointError> {
    let is_cut = !text.ends_with('\n') || text.lines().nth(1).is_none();
    if !text.is_empty() && is_cut {
        return Err(malformed(text.lines().last().unwrap_or_default()));
    }
    parse_entries(text, |line| {
        let mut words = line.split_whitespace();
        let epoch = words.next()?.parse().ok()?;
        let start_offset = words.next()?.parse().ok()?;
        words
            .next()
            .is_none()
            .then_some(EpochEntry { epoch, start_offset })
    })
}

pub fn format_epochs(epochs: &[EpochEntry]) -> String {
    format_entries(
        epochs.len(),
        epochs
            .iter()
            .map(|entry| format!("{} {}", entry.epoch, entry.start_offset)),
    )
}

/// `version: 0` and `topic_id: <22 characters>`, without a last new line.
pub fn format_partition_metadata(topic_id: Uuid) -> String {
    format!(
        "version: {CURRENT_VERSION}\ntopic_id: {}",
        URL_SAFE_NO_PAD.encode(topic_id.as_bytes())
    )
}

/// `None` for a file that power loss left empty.
pub fn parse_partition_metadata(text: &str) -> Result<Option<Uuid>, CheckpointError> {
    let text = text.trim_matches(['\0', '\n', '\r', ' ']);
    if text.is_empty() {
        return Ok(None);
    }
    let mut topic_id = None;
    for line in text.lines() {
        match line
            .split_once(':')
            .map(|(name, value)| (name.trim(), value.trim()))
        {
            Some(("version", version)) => {
                let version: i32 = version.parse().map_err(|_| malformed(line))?;
                if version != CURRENT_VERSION {
                    return Err(CheckpointError::Version { version });
                }
            }
            Some(("topic_id", id)) => {
                let bytes = URL_SAFE_NO_PAD.decode(id).map_err(|_| malformed(line))?;
                topic_id = Some(Uuid::from_slice(&bytes).map_err(|_| malformed(line))?);
            }
            _ => return Err(malformed(line)),
        }
    }
    match topic_id {
        Some(id) if !id.is_nil() => Ok(Some(id)),
        _ => Err(malformed(text)),
    }
}

/// `{"version":0,"brokerEpoch":56}`.
pub fn format_clean_shutdown(broker_epoch: i64) -> String {
    format!("{{\"version\":{CURRENT_VERSION},\"brokerEpoch\":{broker_epoch}}}")
}

/// The broker epoch; -1 for a file of a Kafka before 3.9 (it is empty) or one that does not parse.
pub fn parse_clean_shutdown(text: &str) -> i64 {
    serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .and_then(|json| json.get("brokerEpoch").and_then(serde_json::Value::as_i64))
        .unwrap_or(-1)
}

/// A text file's content; `None` when there is none.
pub(crate) fn read_text(disk: &dyn Disk, path: &Path) -> io::Result<Option<String>> {
    match disk.read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "checkpoint_test.rs"]
mod checkpoint_test;
