//! The assignor `uniform` for a group whose members are subscribed to different topics. Pure.
//!
//! ```text
//! keep       what members have of what they are still subscribed to
//! assign     what nobody has, topic by topic, to the subscriber that has least
//! balance    topic by topic, from the subscribers that have most to those that have least, until no partition moves or
//!            the turns are used up
//! ```
//! Topics come in the order of partitions a subscriber, most first: those that few can take are dealt before those that
//! can fill the gaps. Where subscribers of a topic have the same subscriptions the outcome is balanced; where subscriptions
//! overlap otherwise it is nearly so.
//!
//! Members and topics are numbers in here, so that the loops look into arrays.

mod level;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use self::level::Balancer;
use super::{GroupAssignment, GroupSpec, MemberSpec, TopicPartitions, compare_topic_ids};
use crate::protocol::StrBytes;

/// Turns over all topics. One is enough, and one to see it, unless subscriptions overlap in odd ways; then each is taken to
/// halve the imbalance.
const TURNS_MAX: usize = 16;

const NOBODY: usize = usize::MAX;

struct Topic {
    id: Uuid,
    /// Members by number, ascending.
    subscribers: Vec<usize>,
    /// The member that has each partition, or `NOBODY`.
    owners: Vec<usize>,
}

struct Builder<'a> {
    members: Vec<(&'a StrBytes, &'a MemberSpec)>,
    topics: Vec<Topic>,
    /// How many partitions each member has.
    sizes: Vec<usize>,
    /// Whether a member has other partitions than before.
    changed: Vec<bool>,
}

pub fn assign(group: &GroupSpec) -> GroupAssignment {
    let mut builder = Builder::new(group);
    builder.keep();
    let mut balancer = Balancer::default();
    builder.assign_unassigned(&mut balancer);
    builder.balance(&mut balancer);
    builder.into_assignment()
}

impl<'a> Builder<'a> {
    fn new(group: &'a GroupSpec) -> Self {
        let members: Vec<_> = group.members.iter().collect();
        let mut topics: BTreeMap<Uuid, Topic> = BTreeMap::new();
        for (number, (_, member)) in members.iter().enumerate() {
            for topic_id in member.subscribed_topic_ids.iter() {
                if let Some(topic) = topics.get_mut(topic_id) {
                    topic.subscribers.push(number);
                    continue;
                }
                let count = group.partition_count(topic_id);
                let topic = Topic {
                    id: *topic_id,
                    subscribers: vec![number],
                    owners: vec![NOBODY; usize::try_from(count).unwrap_or_default()],
                };
                topics.insert(*topic_id, topic);
            }
        }
        let mut topics: Vec<Topic> = topics.into_values().collect();
        topics.sort_by(compare_topics);
        Self {
            sizes: vec![0; members.len()],
            changed: vec![false; members.len()],
            members,
            topics,
        }
    }

    fn keep(&mut self) {
        let numbers: HashMap<Uuid, usize> = (0..).zip(&self.topics).map(|(n, topic)| (topic.id, n)).collect();
        for (number, (_, member)) in self.members.iter().enumerate() {
            for (topic_id, partitions) in member.assignment.iter() {
                let topic = numbers
                    .get(topic_id)
                    .and_then(|topic| self.topics.get_mut(*topic));
                let Some(topic) = topic.filter(|_| member.subscribed_topic_ids.contains(topic_id)) else {
                    self.changed[number] = true;
                    continue;
                };
                for partition in partitions {
                    let index = usize::try_from(*partition).unwrap_or(usize::MAX);
                    match topic.owners.get_mut(index) {
                        Some(owner) if *owner == NOBODY => {
                            *owner = number;
                            self.sizes[number] += 1;
                        }
                        // No such partition, or one that another member has: does not come from a target assignment.
                        _ => self.changed[number] = true,
                    }
                }
            }
        }
    }

    fn assign_unassigned(&mut self, balancer: &mut Balancer) {
        for topic in 0..self.topics.len() {
            if !self.topics[topic].owners.contains(&NOBODY) {
                continue;
            }
            balancer.begin(&self.topics[topic].subscribers, &self.sizes);
            for partition in 0..self.topics[topic].owners.len() {
                if self.topics[topic].owners[partition] == NOBODY {
                    let member = balancer.next_least_loaded(&self.sizes);
                    self.give(topic, partition, member);
                }
            }
        }
    }

    fn balance(&mut self, balancer: &mut Balancer) {
        let shared: Vec<usize> = (0..self.topics.len())
            .filter(|topic| self.topics[*topic].subscribers.len() >= 2)
            .collect();
        // The last topic of which a partition moved: to come back to it without another move is the end.
        let mut last_moved = None;
        for _ in 0..TURNS_MAX {
            for topic in &shared {
                if last_moved == Some(*topic) {
                    return;
                }
                let moved = self.balance_topic(*topic, balancer);
                if moved || last_moved.is_none() {
                    last_moved = Some(*topic);
                }
            }
        }
    }

    /// Whether a partition has moved.
    fn balance_topic(&mut self, topic: usize, balancer: &mut Balancer) -> bool {
        let imbalance = balancer.begin(&self.topics[topic].subscribers, &self.sizes);
        if imbalance <= 1 {
            return false;
        }
        // What each member has of the topic as the turn begins, given up from the last.
        let mut owned: HashMap<usize, Vec<usize>> = HashMap::new();
        for (partition, owner) in self.topics[topic].owners.iter().enumerate() {
            owned.entry(*owner).or_default().push(partition);
        }
        let mut moved = false;
        while !balancer.is_balanced() {
            let Some(giver) = balancer.next_most_loaded(&self.sizes) else {
                break;
            };
            let Some(partition) = owned.get_mut(&giver).and_then(Vec::pop) else {
                balancer.exclude_most_loaded();
                continue;
            };
            let taker = balancer.next_least_loaded(&self.sizes);
            if balancer.is_balanced() {
                break;
            }
            self.give(topic, partition, taker);
            moved = true;
        }
        moved
    }

    fn give(&mut self, topic: usize, partition: usize, member: usize) {
        let owner = std::mem::replace(&mut self.topics[topic].owners[partition], member);
        if owner != NOBODY {
            self.sizes[owner] -= 1;
            self.changed[owner] = true;
        }
        self.sizes[member] += 1;
        self.changed[member] = true;
    }

    fn into_assignment(self) -> GroupAssignment {
        let mut anew: Vec<TopicPartitions> = vec![TopicPartitions::new(); self.members.len()];
        for topic in &self.topics {
            for (partition, owner) in (0..).zip(&topic.owners) {
                if *owner != NOBODY && self.changed[*owner] {
                    anew[*owner].entry(topic.id).or_default().insert(partition);
                }
            }
        }
        let members = self.members.iter().zip(self.changed).zip(anew);
        members
            .map(|(((id, member), changed), anew)| {
                let partitions = match changed {
                    true => Arc::new(anew),
                    false => member.assignment.clone(),
                };
                ((*id).clone(), partitions)
            })
            .collect()
    }
}

/// By partitions a subscriber, most first; then by number of subscribers, fewest first; then by id.
fn compare_topics(left: &Topic, right: &Topic) -> Ordering {
    let weight = |topic: &Topic| topic.owners.len() as f64 / topic.subscribers.len() as f64;
    weight(right)
        .total_cmp(&weight(left))
        .then_with(|| left.subscribers.len().cmp(&right.subscribers.len()))
        .then_with(|| compare_topic_ids(&left.id, &right.id))
}
