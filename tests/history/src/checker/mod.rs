//! The judge: says of a history where it is not one that Kafka promises. Pure.
//!
//! ```text
//! index    what every part needs: writes by value and what became of them, where records lie
//! writes   lost, torn, doubled, reordered, two values at one offset, ends that are never reached
//! reads    of what was aborted (G1a), was not yet decided (G1b) or was never written; polls that go back or leave out
//! groups   what a group's transactions consumed: each input once; what its members were given: each record once at least;
//!          and that its offsets say so
//! cycles   transactions that depend on each other in a circle (G0, G1c)
//! ```
//!
//! What Kafka does not promise is not held against it: transactions of different transactional ids may write to two
//! partitions in opposite orders (a G0 for a database; `Counts::interleaved`). What a client could not know is taken as
//! it turns out: a transaction with an unknown outcome of which a read_committed reader saw a record was committed, and
//! then all of it must be there.

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Body, History, Operation, Outcome};

mod cycles;
mod groups;
mod index;
mod reads;
mod writes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Acknowledged, committed or read before, and not there at the end.
    Lost,
    /// A part of a committed transaction is there, a part is not.
    TornTransaction,
    /// One send, two records.
    Duplicate,
    /// A client's sends to a partition, or sends of which one was over before the other began, lie in another order.
    Reordered,
    /// Two values at one offset.
    InconsistentOffset,
    /// A reader does not reach the end although nothing is open any more.
    Stuck,
    /// G1a: a read_committed reader saw a record of a transaction that was not committed.
    AbortedRead,
    /// G1b: a read_committed reader saw a record before its client asked for the commit.
    IntermediateRead,
    /// Nobody sent what was read.
    UnknownValue,
    /// A consumer went back without having been moved.
    NonMonotonicPoll,
    /// A consumer passed over a record that it should have seen.
    SkippedRead,
    /// Two committed transactions of a group consumed the same input.
    ProcessedTwice,
    /// A group went past an input that no committed transaction consumed.
    Unprocessed,
    /// A group went past a record that none of its members was given.
    Unread,
    /// A group's offset is before what its committed transactions consumed, or is gone.
    LostCommit,
    /// A group's offset is not behind anything that it consumed.
    InventedCommit,
    /// G0: transactions of one transactional id, which come one after the other, lie in a circle.
    WriteCycle,
    /// G1c: the same with what transactions read of each other.
    CircularInformationFlow,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    pub kind: Kind,
    pub detail: String,
}

/// What the history is made of; so that a run in which nothing happened is not taken for a good one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub transactions_committed: usize,
    pub transactions_aborted: usize,
    pub transactions_unknown: usize,
    /// Of unknown outcome, and found to be committed.
    pub transactions_found_committed: usize,
    pub sends: usize,
    pub sends_acknowledged: usize,
    pub reads: usize,
    pub reads_in_transactions: usize,
    /// Records at the end, as a read_committed reader sees them.
    pub records_committed: usize,
    /// The same for read_uncommitted.
    pub records_uncommitted: usize,
    pub inputs_processed: usize,
    /// Records that members of groups were given outside of transactions.
    pub records_given: usize,
    /// Offsets of groups at the end.
    pub group_offsets: usize,
    pub dependencies: usize,
    /// Groups of transactions whose writes interleave; Kafka does not forbid it.
    pub interleaved: usize,
}

#[derive(Debug, Clone, Default)]
pub struct Report {
    pub anomalies: Vec<Anomaly>,
    pub counts: Counts,
}

impl Report {
    fn add(&mut self, kind: Kind, detail: String) {
        self.anomalies.push(Anomaly { kind, detail });
    }

    pub fn kinds(&self) -> BTreeMap<Kind, usize> {
        let mut kinds = BTreeMap::new();
        for anomaly in &self.anomalies {
            *kinds.entry(anomaly.kind).or_default() += 1;
        }
        kinds
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const EXAMPLES: usize = 10;
        writeln!(formatter, "{:#?}", self.counts)?;
        for (kind, count) in self.kinds() {
            writeln!(formatter, "{kind:?}: {count}")?;
            let of_kind = self.anomalies.iter().filter(|anomaly| anomaly.kind == kind);
            for anomaly in of_kind.take(EXAMPLES) {
                writeln!(formatter, "  {}", anomaly.detail)?;
            }
        }
        write!(formatter, "{} anomalies", self.anomalies.len())
    }
}

pub fn check(history: &History) -> Report {
    let mut report = Report::default();
    let index = index::Index::new(history);
    count(history, &index, &mut report.counts);
    writes::check(&index, &mut report);
    reads::check(&index, &mut report);
    groups::check(&index, &mut report);
    cycles::check(&index, &mut report);
    report
}

fn count(history: &History, index: &index::Index<'_>, counts: &mut Counts) {
    for Operation { outcome, body, .. } in &history.operations {
        match (body, outcome) {
            (Body::Transaction(_), Outcome::Ok) => counts.transactions_committed += 1,
            (Body::Transaction(_), Outcome::Fail) => counts.transactions_aborted += 1,
            (Body::Transaction(_), Outcome::Unknown) => counts.transactions_unknown += 1,
            _ => {}
        }
        match body {
            Body::Poll(poll) => counts.reads += poll.reads.len(),
            Body::Transaction(transaction) => {
                let polls = transaction.polls();
                counts.reads_in_transactions += polls.map(|poll| poll.reads.len()).sum::<usize>();
            }
            _ => {}
        }
    }
    counts.sends = index.writes.len();
    let acknowledged = index
        .writes
        .values()
        .filter(|write| write.send.acknowledged.is_some());
    counts.sends_acknowledged = acknowledged.count();
    counts.transactions_found_committed = index.found_committed.len();
}

#[cfg(test)]
mod good_history_test;
#[cfg(test)]
mod mutation_test;
