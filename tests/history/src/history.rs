//! The record of a run: every operation with when it began, when it ended and how, in one monotonic clock for all clients.
//!
//! Times are unique, so they order what one client did. What a client cannot know is `Outcome::Unknown`: a commit that
//! timed out may have happened. A transaction whose client never asked for a commit is known not to be committed,
//! whatever became of the client.
//!
//! A file has one operation a line, as JSON.

use std::fmt;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

/// Nanoseconds since the run began; no two events have the same.
pub type Time = u64;

/// What a record carries: every send of a run has its own.
pub type Value = u64;

/// One client object (a producer with its id and epoch, a consumer with its position); a successor has another.
pub type ClientId = u32;

/// A topic and a partition. Order is kept, and offsets count, within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub topic: u16,
    pub partition: u16,
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.topic, self.partition)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Isolation {
    ReadCommitted,
    ReadUncommitted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It happened.
    Ok,
    /// It did not and will not happen.
    Fail,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    pub key: Key,
    pub value: Value,
    pub invoked: Time,
    /// When the client was told that it is on the log.
    pub acknowledged: Option<Time>,
    /// Not every acknowledgement tells it.
    pub offset: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    pub key: Key,
    pub offset: i64,
    pub value: Value,
}

/// One answer of `poll`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poll {
    pub consumer: ClientId,
    pub isolation: Isolation,
    pub completed: Time,
    pub reads: Vec<Read>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Send(Send),
    Poll(Poll),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    pub transactional_id: String,
    /// In the order in which the client took them.
    pub steps: Vec<Step>,
    /// The group whose offsets, right behind what was polled, went into the transaction.
    pub group: Option<String>,
    pub commit_invoked: Option<Time>,
}

impl Transaction {
    pub fn sends(&self) -> impl Iterator<Item = &Send> {
        self.steps.iter().filter_map(|step| match step {
            Step::Send(send) => Some(send),
            Step::Poll(_) => None,
        })
    }

    pub fn polls(&self) -> impl Iterator<Item = &Poll> {
        self.steps.iter().filter_map(|step| match step {
            Step::Poll(poll) => Some(poll),
            Step::Send(_) => None,
        })
    }
}

/// A consumer that reads what its group gives it, outside of transactions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub consumer: ClientId,
    pub group: String,
    /// The same for all members of a group.
    pub isolation: Isolation,
}

/// Where a group stood once everything had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupOffset {
    pub group: String,
    pub key: Key,
    /// 0: as it began. `None`: there is none, though every group of a run begins with one.
    pub offset: Option<i64>,
}

/// All of a partition, read once everything had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalRead {
    pub key: Key,
    pub isolation: Isolation,
    pub reads: Vec<Read>,
    /// Where the reader came to stand.
    pub position: i64,
    /// The high watermark: without open transactions every reader must reach it.
    pub end: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// Outside of transactions.
    Send(Send),
    Transaction(Transaction),
    /// Outside of transactions.
    Poll(Poll),
    /// The consumer may go on anywhere: it was assigned, revoked or moved.
    Repositioned(ClientId),
    /// Before its first poll.
    Member(Member),
    FinalRead(FinalRead),
    GroupOffset(GroupOffset),
    /// For the reader of a history: a kill, a restart.
    Event(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub client: ClientId,
    pub invoked: Time,
    pub completed: Option<Time>,
    pub outcome: Outcome,
    pub body: Body,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    pub operations: Vec<Operation>,
}

impl History {
    pub fn write(&self, mut file: impl Write) -> io::Result<()> {
        for operation in &self.operations {
            serde_json::to_writer(&mut file, operation)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    }

    pub fn read(file: impl BufRead) -> io::Result<History> {
        let operation = |line: io::Result<String>| Ok(serde_json::from_str(&line?)?);
        let operations: io::Result<Vec<Operation>> = file.lines().map(operation).collect();
        Ok(History {
            operations: operations?,
        })
    }
}
