//! Real clients against a real node, and the history of what they saw.
//!
//! ```text
//! recorder     the clock, the ids and the operations of all clients
//! node         the process under test, on a directory of its own; killed and started again
//! producer     librdkafka's producer, with what it was told of each send
//! consumer     librdkafka's consumer, with what it saw and when it was moved
//! writers      workers that write: transactions (some share an id and fence each other), and plain idempotent sends
//! processors   members of a group that consume, transform and produce
//! readers      workers that only read, and the readings at the end
//! ```
//!
//! Clients are killed, too: dropped where they are, with what they had open. Nothing here judges; see `checker`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fastrand::Rng;
use rdkafka::{Offset, TopicPartitionList};

use crate::history::{History, Key, Value};

mod consumer;
mod node;
mod processors;
mod producer;
mod readers;
mod recorder;
mod writers;

use node::Node;
use recorder::Recorder;

/// Partitions of each topic; brokers make them so because of `num.partitions`.
pub const PARTITIONS: u16 = 4;
/// Written to by transactions and plain sends; the first is what the group consumes.
const INPUT: u16 = 0;
const MIXED: u16 = 1;
/// Written to by the group alone.
const OUTPUT: u16 = 2;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The kavka to run; `None` with `bootstrap`.
    pub node: Option<PathBuf>,
    /// A broker that runs already; it is not killed.
    pub bootstrap: Option<String>,
    /// Where the node lives; a directory of an earlier run may be gone on with. `None`: a temporary one.
    pub directory: Option<PathBuf>,
    pub duration: Duration,
    pub kill_every: Duration,
    pub seed: u64,
    /// Readers of committed records read uncommitted ones: the judge must notice.
    pub sabotage: bool,
}

/// What all workers know.
pub struct Surroundings {
    recorder: Recorder,
    bootstrap: String,
    /// Of the names of topics, groups and transactional ids: runs on one directory keep apart.
    prefix: String,
    sabotage: bool,
    /// Consumers that did not close.
    left_behind: AtomicUsize,
}

impl Surroundings {
    fn topic(&self, topic: u16) -> String {
        format!("{}-{topic}", self.prefix)
    }

    fn key(&self, topic: &str, partition: i32) -> Option<Key> {
        let number = topic.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        Some(Key {
            topic: number.parse().ok()?,
            partition: u16::try_from(partition).ok()?,
        })
    }

    fn offsets(&self, places: &[(Key, i64)]) -> Result<TopicPartitionList> {
        let mut list = TopicPartitionList::new();
        for (key, offset) in places {
            let partition = i32::from(key.partition);
            list.add_partition_offset(&self.topic(key.topic), partition, Offset::Offset(*offset))?;
        }
        Ok(list)
    }
}

/// The value, and a tail of some hundred bytes that follows from it.
fn payload_of(value: Value) -> Vec<u8> {
    let mut payload = value.to_be_bytes().to_vec();
    let tail = usize::try_from(value % 300).unwrap_or(0);
    payload.extend((0..tail).map(|place| value.to_be_bytes()[7 - place % 4]));
    payload
}

/// `None`: not as it was sent.
fn value_of(payload: &[u8]) -> Option<Value> {
    let value = Value::from_be_bytes(*payload.first_chunk()?);
    (payload_of(value) == payload).then_some(value)
}

fn keys_of(topics: &[u16]) -> Vec<Key> {
    let all = topics.iter().flat_map(|topic| {
        (0..PARTITIONS).map(|partition| Key {
            topic: *topic,
            partition,
        })
    });
    all.collect()
}

/// What came of a run.
pub struct Run {
    pub history: History,
    pub kills: usize,
    /// From the start of the process to its first open port, of the slowest start.
    pub slowest_start: Duration,
    /// Consumers that did not close.
    pub left_behind: usize,
}

pub fn run(settings: &Settings) -> Result<Run> {
    let mut node = match &settings.node {
        Some(program) => Some(Node::start(program, settings.directory.clone())?),
        None => None,
    };
    let bootstrap = match (&node, &settings.bootstrap) {
        (Some(node), _) => node.address(),
        (None, Some(bootstrap)) => bootstrap.clone(),
        (None, None) => bail!("neither a node nor a bootstrap address"),
    };
    let surroundings = Arc::new(Surroundings {
        recorder: Recorder::new(),
        bootstrap,
        prefix: format!("history-{:x}", settings.seed),
        sabotage: settings.sabotage,
        left_behind: AtomicUsize::new(0),
    });
    writers::create_topics(&surroundings)?;
    readers::begin_group(&surroundings, processors::GROUP, &[INPUT])?;
    for group in readers::GROUPS {
        readers::begin_group(&surroundings, group, &readers::ALL)?;
    }
    let workers = start_workers(&surroundings, settings.seed);
    let (kills, slowest_start) = match &mut node {
        Some(node) => torment(node, &surroundings, settings)?,
        None => {
            thread::sleep(settings.duration);
            (0, Duration::ZERO)
        }
    };
    surroundings.recorder.stop();
    for worker in workers {
        if worker.join().is_err() {
            bail!("a worker panicked");
        }
    }
    readers::read_to_the_end(&surroundings)?;
    readers::ask_for_offsets(&surroundings)?;
    Ok(Run {
        history: surroundings.recorder.history(),
        kills,
        slowest_start,
        left_behind: surroundings.left_behind.load(Ordering::Relaxed),
    })
}

fn start_workers(surroundings: &Arc<Surroundings>, seed: u64) -> Vec<thread::JoinHandle<()>> {
    type Worker = fn(&Arc<Surroundings>, &str, Rng);
    // Two of them share an id: each fences the other off when it starts.
    let mut workers: Vec<(Worker, &str)> = ["one", "two", "shared", "shared", "contended", "contended"]
        .map(|id| (writers::transactional as Worker, id))
        .into();
    workers.extend(["sender", "other-sender"].map(|name| (writers::idempotent as Worker, name)));
    workers.extend(["p1", "p2", "p3"].map(|id| (processors::process as Worker, id)));
    workers.extend(["committed", "uncommitted"].map(|name| (readers::assigned as Worker, name)));
    let groups = ["committed", "committed", "uncommitted"];
    workers.extend(groups.map(|name| (readers::subscribed as Worker, name)));
    let numbered = workers.into_iter().zip(1..);
    numbered
        .map(|((worker, name), number)| {
            let surroundings = surroundings.clone();
            let rng = Rng::with_seed(seed.wrapping_mul(1000).wrapping_add(number));
            thread::spawn(move || worker(&surroundings, name, rng))
        })
        .collect()
}

/// Until a client asks for a commit, and then for as long as one takes: of the request, the decision and the markers some
/// have been, when the node dies.
fn await_commit(surroundings: &Surroundings, rng: &mut Rng) {
    let recorder = &surroundings.recorder;
    let (before, deadline) = (recorder.commits(), Instant::now() + Duration::from_secs(1));
    while recorder.commits() == before && Instant::now() < deadline {
        thread::sleep(Duration::from_micros(100));
    }
    thread::sleep(Duration::from_micros(rng.u64(0..10_000)));
}

/// Kills the node again and again until the time is over, every other time while a transaction commits; leaves it running. Returns how often, and the slowest start.
fn torment(node: &mut Node, surroundings: &Surroundings, settings: &Settings) -> Result<(usize, Duration)> {
    let end = Instant::now() + settings.duration;
    let mut rng = Rng::with_seed(settings.seed);
    let mut kills = 0;
    let mut slowest = Duration::ZERO;
    let mut next_kill = Instant::now() + settings.kill_every;
    let mut next_word = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
        node.expect_running()?;
        if Instant::now() > next_word {
            next_word += Duration::from_secs(60);
            println!("{kills} kills, {}", surroundings.recorder.progress());
        }
        if Instant::now() < next_kill {
            continue;
        }
        next_kill += settings.kill_every;
        if kills % 2 == 0 {
            await_commit(surroundings, &mut rng);
        }
        surroundings.recorder.event("kill");
        node.kill()?;
        kills += 1;
        thread::sleep(Duration::from_millis(rng.u64(0..800)));
        let started = Instant::now();
        node.start_again()?;
        slowest = slowest.max(started.elapsed());
        surroundings.recorder.event("listens");
    }
    Ok((kills, slowest))
}
