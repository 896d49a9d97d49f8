//! The states of a replica of the metadata log, and which may follow which. Pure.
//!
//! | from \ to   | Unattached | Follower | Prospective | Candidate | Leader | Resigned |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | Unattached  | higher epoch; vote; leader heard of | leader heard of | election timeout | | | |
//! | Follower    | higher epoch | leader of a higher epoch | fetch timeout | | | |
//! | Prospective | higher epoch; timeout; vote | leader heard of; timeout | | majority would vote | | |
//! | Candidate   | higher epoch | leader heard of | election timeout | | majority voted | |
//! | Leader      | higher epoch | leader of a higher epoch | | | | asked to; shutdown |
//! | Resigned    | higher epoch; timeout (epoch + 1) | leader of a higher epoch | | | | |
//!
//! At start: [`super::node::RaftNode::new`]. Every arrow but those into Prospective and Resigned is made durable before
//! anything follows from it. An observer (not in the latest voter set) has no election timer and stays
//! Unattached or Follower.

use super::Endpoint;
use super::leader::LeaderState;
use super::voters::ReplicaKey;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Unattached {
        /// Known by id only: it cannot be reached.
        leader_id: Option<i32>,
        voted: Option<ReplicaKey>,
        election_deadline_ms: i64,
    },
    Follower {
        leader_id: i32,
        leader_endpoints: Vec<Endpoint>,
        voted: Option<ReplicaKey>,
        fetch_deadline_ms: i64,
        has_fetched_from_leader: bool,
    },
    Prospective {
        leader: Option<(i32, Vec<Endpoint>)>,
        voted: Option<ReplicaKey>,
        election_deadline_ms: i64,
    },
    Candidate {
        election_deadline_ms: i64,
    },
    Leader(LeaderState),
    Resigned {
        election_deadline_ms: i64,
    },
}

impl State {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unattached { .. } => "Unattached",
            Self::Follower { .. } => "Follower",
            Self::Prospective { .. } => "Prospective",
            Self::Candidate { .. } => "Candidate",
            Self::Leader(_) => "Leader",
            Self::Resigned { .. } => "Resigned",
        }
    }

    pub fn is_leader(&self) -> bool {
        matches!(self, Self::Leader(_))
    }

    /// May the state be left for `next` in the same epoch?
    pub fn may_become_in_same_epoch(&self, next: &State) -> bool {
        matches!(
            (self, next),
            (
                Self::Unattached { .. },
                Self::Unattached { .. } | Self::Follower { .. } | Self::Prospective { .. }
            ) | (Self::Follower { .. }, Self::Prospective { .. })
                | (
                    Self::Prospective { .. },
                    Self::Unattached { .. } | Self::Follower { .. } | Self::Prospective { .. }
                )
                | (
                    Self::Candidate { .. },
                    Self::Leader(_) | Self::Follower { .. } | Self::Prospective { .. }
                )
                | (Self::Leader(_), Self::Resigned { .. })
                | (Self::Resigned { .. }, Self::Prospective { .. })
        )
    }
}

/// What `quorum-state` keeps: the vote and the leader of the current epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElectionState {
    pub epoch: i32,
    pub leader_id: Option<i32>,
    pub voted: Option<ReplicaKey>,
}
