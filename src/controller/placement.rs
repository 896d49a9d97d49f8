//! Where the replicas of new partitions go (`StripedReplicaPlacer`).
//!
//! Pure: the random numbers are handed in. Racks are visited in turn, each rack's brokers in turn; the leader of a new
//! partition is never a fenced broker, and fenced brokers are taken only when a rack has no other left.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Random numbers, handed in; in the simulator seeded ones.
pub trait ControllerRandom {
    /// Uniform in `0..bound`; `bound` is above 0.
    fn next_below(&mut self, bound: usize) -> usize;
    /// Uniform over all numbers.
    fn next_u128(&mut self) -> u128;
}

/// A broker that may carry new replicas: registered, not shutting down, not all directories cordoned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsableBroker {
    pub id: i32,
    pub rack: Option<Arc<str>>,
    pub fenced: bool,
}

/// Places `partitions` times `replication_factor` replicas. The error is Kafka's message, for INVALID_REPLICATION_FACTOR.
pub fn place(
    brokers: &[UsableBroker],
    partitions: usize,
    replication_factor: i16,
    random: &mut dyn ControllerRandom,
) -> Result<Vec<Vec<i32>>, String> {
    let mut racks = RackList::new(brokers, random);
    let unfenced = brokers.iter().filter(|broker| !broker.fenced).count();
    if replication_factor <= 0 {
        return Err(format!(
            "Invalid replication factor {replication_factor}: the replication factor must be positive."
        ));
    }
    if unfenced == 0 {
        return Err("All brokers are currently fenced.".to_owned());
    }
    let replicas = usize::from(replication_factor.unsigned_abs());
    if replicas > brokers.len() {
        return Err(format!(
            "The target replication factor of {replicas} cannot be reached because only {} broker(s) are registered or some brokers have all their log directories cordoned.",
            brokers.len()
        ));
    }
    Ok((0..partitions)
        .map(|_| racks.place(replicas, unfenced, random))
        .collect())
}

/// Brokers in a ring; a new round (epoch) starts one further than the last.
#[derive(Default)]
struct BrokerList {
    brokers: Vec<i32>,
    /// How many were taken in this epoch.
    index: usize,
    offset: usize,
    epoch: usize,
}

impl BrokerList {
    fn initialize(&mut self, random: &mut dyn ControllerRandom) {
        if !self.brokers.is_empty() {
            self.brokers.sort_unstable();
            self.offset = random.next_below(self.brokers.len());
        }
    }

    fn next(&mut self, epoch: usize) -> Option<i32> {
        let count = self.brokers.len();
        if count == 0 {
            return None;
        }
        if self.epoch != epoch {
            self.epoch = epoch;
            self.index = 0;
            self.offset = (self.offset + 1) % count;
        }
        if self.index >= count {
            return None;
        }
        let broker = self.brokers[(self.index + self.offset) % count];
        self.index += 1;
        Some(broker)
    }
}

#[derive(Default)]
struct Rack {
    fenced: BrokerList,
    unfenced: BrokerList,
}

impl Rack {
    fn next(&mut self, epoch: usize) -> Option<i32> {
        self.unfenced.next(epoch).or_else(|| self.fenced.next(epoch))
    }
}

struct RackList {
    racks: Vec<Rack>,
    epoch: usize,
    /// The rack that the next partition starts in.
    offset: usize,
}

impl RackList {
    fn new(brokers: &[UsableBroker], random: &mut dyn ControllerRandom) -> Self {
        let mut by_name: BTreeMap<Option<&str>, Rack> = BTreeMap::new();
        for broker in brokers {
            let rack = by_name.entry(broker.rack.as_deref()).or_default();
            let list = if broker.fenced {
                &mut rack.fenced
            } else {
                &mut rack.unfenced
            };
            list.brokers.push(broker.id);
        }
        let mut racks: Vec<Rack> = by_name.into_values().collect();
        for rack in &mut racks {
            rack.fenced.initialize(random);
            rack.unfenced.initialize(random);
        }
        let offset = if racks.is_empty() {
            0
        } else {
            random.next_below(racks.len())
        };
        Self {
            racks,
            epoch: 0,
            offset,
        }
    }

    /// One partition's replicas. There is an unfenced broker, and at least `replicas` brokers: else this would not end.
    fn place(&mut self, replicas: usize, unfenced: usize, random: &mut dyn ControllerRandom) -> Vec<i32> {
        // After as many assignments as there are unfenced brokers the same would come again: shuffle. With one
        // unfenced broker there is nothing to vary, and a reset epoch would leave its list exhausted for ever.
        if self.epoch == unfenced && unfenced > 1 {
            self.shuffle(random);
            self.epoch = 0;
        }
        if self.offset == self.racks.len() {
            self.offset = 0;
        }
        let mut placed = Vec::with_capacity(replicas);
        let leader_rack = self.place_leader(&mut placed);
        self.place_followers(replicas, leader_rack, &mut placed);
        self.epoch += 1;
        self.offset += 1;
        placed
    }

    fn place_leader(&mut self, placed: &mut Vec<i32>) -> usize {
        let mut rack = self.offset;
        loop {
            if let Some(broker) = self.racks[rack].unfenced.next(self.epoch) {
                placed.push(broker);
                return rack;
            }
            rack = (rack + 1) % self.racks.len();
        }
    }

    fn place_followers(&mut self, replicas: usize, leader_rack: usize, placed: &mut Vec<i32>) {
        // The leader's rack has had its turn in the first round.
        let mut skip = Some(leader_rack);
        let mut rack = self.offset;
        while placed.len() < replicas {
            if skip == Some(rack) {
                skip = None;
            } else if let Some(broker) = self.racks[rack].next(self.epoch) {
                placed.push(broker);
            }
            rack = (rack + 1) % self.racks.len();
        }
    }

    fn shuffle(&mut self, random: &mut dyn ControllerRandom) {
        shuffle(&mut self.racks, random);
        for rack in &mut self.racks {
            shuffle(&mut rack.fenced.brokers, random);
            shuffle(&mut rack.unfenced.brokers, random);
        }
    }
}

fn shuffle<T>(items: &mut [T], random: &mut dyn ControllerRandom) {
    for last in (1..items.len()).rev() {
        let other = random.next_below(last + 1);
        items.swap(last, other);
    }
}

#[cfg(test)]
#[path = "placement_test.rs"]
mod placement_test;
