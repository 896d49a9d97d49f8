//! Consume, transform, produce: each input is consumed by one committed transaction of a group.

use std::collections::{BTreeMap, HashSet};

use super::index::Index;
use super::{Kind, Report};
use crate::history::{Isolation, Key};

pub fn check(index: &Index<'_>, report: &mut Report) {
    let mut consumed: BTreeMap<(&str, Key), Vec<(i64, usize)>> = BTreeMap::new();
    for (operation, transaction) in index.committed_transactions() {
        let Some(group) = &transaction.group else {
            continue;
        };
        for read in transaction.polls().flat_map(|poll| &poll.reads) {
            let inputs = consumed.entry((group, read.key)).or_default();
            inputs.push((read.offset, operation));
        }
    }
    for ((group, key), mut inputs) in consumed {
        inputs.sort_unstable();
        report.counts.inputs_processed += inputs.len();
        for pair in inputs.windows(2) {
            if let [(offset, first), (other, second)] = pair
                && offset == other
            {
                let detail = format!("{group}: {key} at {offset}, by operations {first} and {second}");
                report.add(Kind::ProcessedTwice, detail);
            }
        }
        left_out(index, group, key, &inputs, report);
    }
}

/// A group begins at the beginning.
fn left_out(index: &Index<'_>, group: &str, key: Key, inputs: &[(i64, usize)], report: &mut Report) {
    let (Some(truth), Some((last, _))) = (index.final_read(key, Isolation::ReadCommitted), inputs.last())
    else {
        return;
    };
    let processed: HashSet<i64> = inputs.iter().map(|(offset, _)| *offset).collect();
    let due = truth.offsets.iter().filter(|offset| *offset <= last);
    for offset in due.filter(|offset| !processed.contains(offset)) {
        let detail = format!("{group}: {key} at {offset}; the group got to {last}");
        report.add(Kind::Unprocessed, detail);
    }
}
