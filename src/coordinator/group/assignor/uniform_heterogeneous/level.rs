//! Which subscriber of a topic takes the next partition, and which gives one up: the bookkeeping of two groups of members
//! at one level each. Pure.
//!
//! ```text
//!                        most loaded
//!   ^  least            |      |
//!   |  loaded           v      v  given up: nothing left of this topic
//!   |  |     |          ########  ###
//!   |  v  -> v      ############  ###
//!   |  #####################<-##  ###
//!   +---------------------------------> members by load
//! ```
//! A round gives each member of the least loaded group one partition; then the group's level is one higher, and members that
//! were at that level join it. From the other end the same downwards. Loads are looked up as they were and only where a group
//! grows, so that the order of members need not change while partitions move.
//!
//! Invariant: a member beyond a group's edge has the load it had at `begin`.

#[derive(Default)]
pub struct Balancer {
    /// By load, then by number.
    members: Vec<usize>,
    least: LeastLoaded,
    most: MostLoaded,
}

/// `members[..end]`.
#[derive(Default)]
struct LeastLoaded {
    end: usize,
    level: isize,
    next: usize,
}

/// `members[start..end]`; what follows has nothing to give.
#[derive(Default)]
struct MostLoaded {
    start: usize,
    end: usize,
    level: isize,
    /// One above the next, so that it can be said that none is left.
    next_end: usize,
}

impl Balancer {
    /// Begins with the subscribers of a topic, at least one. The difference between the highest and the least load.
    pub fn begin(&mut self, subscribers: &[usize], sizes: &[usize]) -> isize {
        self.members.clear();
        self.members.extend_from_slice(subscribers);
        self.members.sort_by_key(|member| (sizes[*member], *member));
        let count = self.members.len();
        let (lowest, highest) = (self.load(0, sizes), self.load(count - 1, sizes));
        self.least = LeastLoaded {
            end: 0,
            level: lowest - 1,
            next: 0,
        };
        self.most = MostLoaded {
            start: count,
            end: count,
            level: highest + 1,
            next_end: count,
        };
        highest - lowest
    }

    fn load(&self, place: usize, sizes: &[usize]) -> isize {
        sizes[self.members[place]].cast_signed()
    }

    /// The member to take a partition; it is counted as taken.
    pub fn next_least_loaded(&mut self, sizes: &[usize]) -> usize {
        if self.least.next >= self.least.end {
            self.least.level += 1;
            while self.least.end < self.members.len() && self.load(self.least.end, sizes) == self.least.level
            {
                self.least.end += 1;
            }
            self.least.next = 0;
        }
        let member = self.members[self.least.next];
        self.least.next += 1;
        member
    }

    /// The member to give a partition; it is counted as given. `None`: nobody has one left.
    pub fn next_most_loaded(&mut self, sizes: &[usize]) -> Option<usize> {
        if self.most.next_end <= self.most.start {
            let emptied = self.most.end <= self.most.start;
            self.most.level = match self.most.start.checked_sub(1) {
                // All of the group have been excluded: go on at the level of those below.
                Some(below) if emptied => self.load(below, sizes),
                _ => self.most.level - 1,
            };
            while self.most.start > 0 && self.load(self.most.start - 1, sizes) == self.most.level {
                self.most.start -= 1;
            }
            self.most.next_end = self.most.end;
        }
        self.most.next_end = self.most.next_end.checked_sub(1)?;
        Some(self.members[self.most.next_end])
    }

    /// The last one that `next_most_loaded` named has nothing to give.
    pub fn exclude_most_loaded(&mut self) {
        self.most.end -= 1;
        self.members.swap(self.most.next_end, self.most.end);
    }

    /// Whether another move would not help.
    pub fn is_balanced(&self) -> bool {
        self.most.level - self.least.level <= 1
    }
}
