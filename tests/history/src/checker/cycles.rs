//! The graph of committed transactions, as Jepsen's elle draws it: who wrote before whom, who read from whom.
//!
//! A transaction comes before another of the same transactional id when it wrote before it to any partition (they follow
//! each other), and before any that read from it (it was committed before). Both orders agree with the order in which the
//! commits were asked for, so there is no circle. Writes of different transactional ids may interleave.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::index::{Fate, Index};
use super::{Kind, Report};
use crate::history::{Isolation, Key};

/// From one operation to another.
type Edge = (usize, usize);

pub fn check(index: &Index<'_>, report: &mut Report) {
    let same_id = writes_of_one_id(index);
    let reads = reads_from(index);
    report.counts.dependencies = same_id.len() + reads.len();
    for circle in circles(&same_id) {
        let detail = describe(index, &circle);
        report.add(Kind::WriteCycle, detail);
    }
    let both: BTreeSet<Edge> = same_id.union(&reads).copied().collect();
    for circle in circles(&both) {
        let members: BTreeSet<usize> = circle.iter().copied().collect();
        let is_within = |(from, to): &&Edge| members.contains(from) && members.contains(to);
        if reads.iter().any(|edge| is_within(&edge)) {
            let detail = describe(index, &circle);
            report.add(Kind::CircularInformationFlow, detail);
        }
    }
    report.counts.interleaved = circles(&all_writes(index)).len();
}

fn describe(index: &Index<'_>, circle: &[usize]) -> String {
    const SHOWN: usize = 8;
    let of = |operation: &usize| {
        let values = index
            .writes
            .values()
            .filter(|write| write.operation == *operation);
        let mut values: Vec<_> = values.map(|write| write.send.value).collect();
        values.sort_unstable();
        format!("operation {operation} (wrote {values:?})")
    };
    let shown: Vec<String> = circle.iter().take(SHOWN).map(of).collect();
    format!("{} transactions: {}", circle.len(), shown.join(", "))
}

/// The writers of committed records that lie behind each other, by what `group` tells apart.
fn successions<'a, G: Ord>(
    index: &'a Index<'_>,
    group: impl Fn(Key, Option<&'a str>) -> Option<G>,
) -> BTreeSet<Edge> {
    let mut last: BTreeMap<G, usize> = BTreeMap::new();
    let mut edges = BTreeSet::new();
    for (key, offset, value) in &index.placements {
        let first = index.offset_of.get(value) == Some(offset);
        let write = index
            .writes
            .get(value)
            .filter(|write| write.fate == Fate::Committed);
        let Some(write) = write.filter(|_| first) else {
            continue;
        };
        let id = write
            .transaction
            .map(|transaction| transaction.transactional_id.as_str());
        let Some(group) = group(*key, id) else {
            continue;
        };
        if let Some(before) = last.insert(group, write.operation)
            && before != write.operation
        {
            edges.insert((before, write.operation));
        }
    }
    edges
}

fn writes_of_one_id(index: &Index<'_>) -> BTreeSet<Edge> {
    successions(index, |key, id| Some((key, id?)))
}

fn all_writes(index: &Index<'_>) -> BTreeSet<Edge> {
    successions(index, |key, _| Some(key))
}

fn reads_from(index: &Index<'_>) -> BTreeSet<Edge> {
    let mut edges = BTreeSet::new();
    for (reader, transaction) in index.committed_transactions() {
        let polls = transaction
            .polls()
            .filter(|poll| poll.isolation == Isolation::ReadCommitted);
        for read in polls.flat_map(|poll| &poll.reads) {
            let writer = index.writes.get(&read.value);
            let writer = writer.filter(|write| write.fate == Fate::Committed && write.operation != reader);
            edges.extend(writer.map(|write| (write.operation, reader)));
        }
    }
    edges
}

/// The strongly connected components with more than one member (Tarjan, without recursion).
fn circles(edges: &BTreeSet<Edge>) -> Vec<Vec<usize>> {
    let mut successors: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (from, to) in edges {
        successors.entry(*from).or_default().push(*to);
    }
    let mut search = Search {
        successors: &successors,
        numbers: HashMap::new(),
        lowest: HashMap::new(),
        stack: Vec::new(),
        on_stack: BTreeSet::new(),
        found: Vec::new(),
    };
    for root in successors.keys() {
        search.from(*root);
    }
    search.found
}

struct Search<'a> {
    successors: &'a BTreeMap<usize, Vec<usize>>,
    numbers: HashMap<usize, usize>,
    lowest: HashMap<usize, usize>,
    stack: Vec<usize>,
    on_stack: BTreeSet<usize>,
    found: Vec<Vec<usize>>,
}

impl<'a> Search<'a> {
    fn enter(&mut self, node: usize) -> (usize, std::slice::Iter<'a, usize>) {
        let number = self.numbers.len();
        self.numbers.insert(node, number);
        self.lowest.insert(node, number);
        self.stack.push(node);
        self.on_stack.insert(node);
        let successors: &'a [usize] = self.successors.get(&node).map_or(&[], Vec::as_slice);
        (node, successors.iter())
    }

    fn lower(&mut self, node: usize, to: usize) {
        let lowest = self.lowest.entry(node).or_insert(to);
        *lowest = (*lowest).min(to);
    }

    fn from(&mut self, root: usize) {
        if self.numbers.contains_key(&root) {
            return;
        }
        let mut path = vec![self.enter(root)];
        while let Some((node, successors)) = path.last_mut() {
            let node = *node;
            match successors.next() {
                Some(next) if !self.numbers.contains_key(next) => path.push(self.enter(*next)),
                Some(next) if self.on_stack.contains(next) => self.lower(node, self.numbers[next]),
                Some(_) => {}
                None => {
                    path.pop();
                    if let Some((parent, _)) = path.last() {
                        self.lower(*parent, self.lowest[&node]);
                    }
                    self.leave(node);
                }
            }
        }
    }

    fn leave(&mut self, node: usize) {
        if self.lowest[&node] != self.numbers[&node] {
            return;
        }
        let mut component = Vec::new();
        while let Some(member) = self.stack.pop() {
            self.on_stack.remove(&member);
            component.push(member);
            if member == node {
                break;
            }
        }
        if component.len() > 1 {
            component.reverse();
            self.found.push(component);
        }
    }
}
