//! The process's limit of open files: a node needs one a connection and one an open log file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one; returns the limit in force (`None`: unlimited). A refusal leaves it as it was.
pub fn raise_soft_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => limit.current,
    }
}

/// How the limit is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// Of the logs that are kept open.
    pub log_files: usize,
    pub connections: usize,
}

impl DescriptorBudget {
    /// For all else: listeners, connections to other nodes, checkpoints, directories that are synced, the metadata log.
    const RESERVE: usize = 128;
    const LOG_FILES_MAX: usize = 8_000;

    /// `None`: unlimited. Connections get two thirds of what is limited.
    pub fn of(limit: Option<u64>) -> Self {
        let limit = limit
            .and_then(|limit| usize::try_from(limit).ok())
            .unwrap_or(usize::MAX);
        let free = limit.saturating_sub(Self::RESERVE).max(Self::RESERVE);
        let log_files = (free / 3).min(Self::LOG_FILES_MAX);
        Self {
            log_files,
            connections: free - log_files,
        }
    }
}

#[cfg(test)]
mod descriptors_test {
    use super::*;

    #[test]
    fn budget_leaves_connections_two_thirds_and_never_more_than_there_is() {
        let shares = |limit| {
            let budget = DescriptorBudget::of(limit);
            (budget.log_files, budget.connections)
        };
        assert_eq!(shares(Some(20_000)), (6_624, 13_248));
        assert_eq!(shares(Some(1_024)), (298, 598));
        assert_eq!(shares(Some(1_048_576)), (8_000, 1_040_448));
        assert_eq!(shares(None), (8_000, usize::MAX - 128 - 8_000));
    }
}
