//! What DescribeLogDirs tells of the log directories: the logs in each, and how much room its file system has.
//!
//! The metadata log is not among them: it is raft's, as in Kafka.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::{LogManager, TopicPartition, UnifiedLog};

/// One of `log.dirs`, by its absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDirDescription {
    pub path: PathBuf,
    /// `None`: the directory is offline.
    pub content: Option<LogDirContent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDirContent {
    pub total_bytes: i64,
    /// What this process may still write; less than what is free where the file system keeps a reserve for root.
    pub usable_bytes: i64,
    /// In the order of the partitions.
    pub replicas: Vec<LogDescription>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDescription {
    pub topic_partition: TopicPartition,
    pub size_in_bytes: u64,
    /// How far a future log is behind the current one; -1 where there is no current one.
    pub offset_lag: i64,
    pub is_future: bool,
}

impl LogManager {
    /// `wanted`: `None` for all partitions. A directory is told of even if none of them is in it.
    pub fn describe_log_dirs(&self, wanted: Option<&HashSet<TopicPartition>>) -> Vec<LogDirDescription> {
        let described = self.log_dirs().iter().map(|dir| LogDirDescription {
            path: std::path::absolute(dir).unwrap_or_else(|_| dir.clone()),
            content: self.describe_log_dir(dir, wanted),
        });
        described.collect()
    }

    fn describe_log_dir(
        &self,
        dir: &Path,
        wanted: Option<&HashSet<TopicPartition>>,
    ) -> Option<LogDirContent> {
        if !self.is_log_dir_online(dir) {
            return None;
        }
        let space = match self.disk().space(dir) {
            Ok(space) => space,
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "no answer of the file system on its space");
                return None;
            }
        };
        let is_wanted = |log: &UnifiedLog| {
            *log.parent_dir() == *dir && wanted.is_none_or(|wanted| wanted.contains(log.topic_partition()))
        };
        let mut replicas = Vec::new();
        for (log, is_future) in self.all_and_future_logs() {
            if is_wanted(&log) {
                replicas.push(LogDescription {
                    topic_partition: log.topic_partition().clone(),
                    size_in_bytes: log.size_in_bytes(),
                    offset_lag: if is_future { self.offset_lag(&log) } else { 0 },
                    is_future,
                });
            }
        }
        replicas.sort_by(|one, other| {
            (&one.topic_partition, one.is_future).cmp(&(&other.topic_partition, other.is_future))
        });
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Some(LogDirContent {
            total_bytes: bytes(space.total_bytes),
            usable_bytes: bytes(space.usable_bytes),
            replicas,
        })
    }

    fn offset_lag(&self, future: &UnifiedLog) -> i64 {
        self.get(future.topic_partition())
            .map_or(-1, |log| log.log_end_offset() - future.log_end_offset())
    }
}
