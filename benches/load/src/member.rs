//! Many members that join one group at once, in the classic or the consumer protocol.
//!
//! A member does what clients do: it joins, syncs, beats, and joins again when it is told to; in the consumer protocol it says
//! what has changed about it, answers a new assignment at once, and beats otherwise.
//! Versions: JoinGroup 5, SyncGroup 3, Heartbeat 3, and ConsumerGroupHeartbeat 0 with compact lengths.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;

use anyhow::{Result, bail};

use crate::Arguments;
use crate::admin::connect_to;
use crate::closed::{Client, Loops, Wish};
use crate::group::{COMING, PATIENCE, find_coordinator};
use crate::wire::{Answer, Request};

const JOIN_GROUP: i16 = 11;
const HEARTBEAT: i16 = 12;
const SYNC_GROUP: i16 = 14;
const CONSUMER_GROUP_HEARTBEAT: i16 = 68;

const UNKNOWN_MEMBER_ID: i16 = 25;
const ILLEGAL_GENERATION: i16 = 22;
const REBALANCE_IN_PROGRESS: i16 = 27;
const MEMBER_ID_REQUIRED: i16 = 79;

const TIMEOUT_MS: i32 = 60_000;
const BEAT_NS: u64 = 100_000_000;
const RETRY_NS: u64 = 1_000_000;

/// In which generation (or epoch) members have their work, and how many in each.
struct Progress {
    generations: Vec<Option<i32>>,
    counts: HashMap<i32, usize>,
}

impl Progress {
    /// True when all have their work in the same generation.
    fn set(&mut self, number: usize, generation: Option<i32>) -> bool {
        let previous = std::mem::replace(&mut self.generations[number], generation);
        if let Some(count) = previous.and_then(|previous| self.counts.get_mut(&previous)) {
            *count -= 1;
        }
        let Some(generation) = generation else {
            return false;
        };
        let count = self.counts.entry(generation).or_default();
        *count += 1;
        *count == self.generations.len()
    }
}

struct Place {
    number: usize,
    group: Rc<str>,
    topic: Rc<str>,
    progress: Rc<RefCell<Progress>>,
}

impl Place {
    fn set(&self, generation: Option<i32>, wish: &mut Wish) {
        if self.progress.borrow_mut().set(self.number, generation) {
            wish.all_are_done();
        }
    }
}

/// All members begin at one moment; prints how long it takes until each has its work in the same generation.
pub fn join(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let group: Rc<str> = arguments.require::<String>("group")?.into();
    let topic: Rc<str> = arguments.require::<String>("topic")?.into();
    let members: usize = arguments.get("members", 500)?;
    let protocol: String = arguments.get("protocol", "classic".to_owned())?;
    arguments.finish()?;
    find_coordinator(&mut connect_to(address)?, &group)?;
    let progress = Rc::new(RefCell::new(Progress {
        generations: vec![None; members],
        counts: HashMap::new(),
    }));
    let places = (0..members).map(|number| Place {
        number,
        group: group.clone(),
        topic: topic.clone(),
        progress: progress.clone(),
    });
    let took_ns = match protocol.as_str() {
        "classic" => run(address, places.map(ClassicMember::new))?,
        "consumer" => run(address, places.map(ConsumerMember::new))?,
        other => bail!("no protocol {other}"),
    };
    println!("{{\"seconds\":{:.4}}}", took_ns as f64 / 1e9);
    Ok(())
}

fn run<C: Client>(address: SocketAddr, members: impl Iterator<Item = C>) -> Result<u64> {
    let connected = members.map(|member| Ok((connect_to(address)?, member)));
    let connected: Vec<(TcpStream, C)> = connected.collect::<Result<_>>()?;
    Loops::new(connected)?.run(PATIENCE.as_nanos() as u64)
}

enum Asked {
    Join,
    Sync,
    Beat,
}

/// The leader gives every member a few bytes.
struct ClassicMember {
    place: Place,
    member_id: Vec<u8>,
    generation: i32,
    asked: Asked,
}

impl ClassicMember {
    fn new(place: Place) -> ClassicMember {
        ClassicMember {
            place,
            member_id: Vec::new(),
            generation: -1,
            asked: Asked::Join,
        }
    }

    fn join(&mut self, wish: &mut Wish) {
        self.asked = Asked::Join;
        self.place.set(None, wish);
        let mut request = Request::new(JOIN_GROUP, 5);
        request
            .string(self.place.group.as_bytes())
            .i32(TIMEOUT_MS)
            .i32(TIMEOUT_MS)
            .string(&self.member_id)
            .i16(-1) // no instance id
            .string(b"consumer")
            .i32(1)
            .string(b"range")
            .i32(16)
            .bytes(&[0; 16]);
        wish.send(&request.frame(0));
    }

    fn joined(&mut self, answer: &mut Answer, now: u64, wish: &mut Wish) -> Result<()> {
        let code = answer.i16()?;
        self.generation = answer.i32()?;
        answer.string()?;
        let leader = answer.string()?.to_vec();
        self.member_id = answer.string()?.to_vec();
        match code {
            0 => {}
            MEMBER_ID_REQUIRED => {
                self.join(wish);
                return Ok(());
            }
            UNKNOWN_MEMBER_ID => {
                self.member_id.clear();
                self.join(wish);
                return Ok(());
            }
            code if COMING.contains(&code) => {
                wish.wake_at(now + RETRY_NS);
                return Ok(());
            }
            code => bail!("JoinGroup: error {code}"),
        }
        let mut others: Vec<Vec<u8>> = Vec::new();
        if leader == self.member_id {
            for _ in 0..answer.i32()? {
                others.push(answer.string()?.to_vec());
                answer.string()?;
                let metadata = answer.i32()?;
                answer.take(metadata.max(0) as usize)?;
            }
        }
        self.asked = Asked::Sync;
        let mut request = Request::new(SYNC_GROUP, 3);
        request
            .string(self.place.group.as_bytes())
            .i32(self.generation)
            .string(&self.member_id)
            .i16(-1)
            .i32(others.len() as i32);
        for other in &others {
            request.string(other).i32(4).i32(0);
        }
        wish.send(&request.frame(0));
        Ok(())
    }
}

impl Client for ClassicMember {
    fn start(&mut self, _now: u64, wish: &mut Wish) -> Result<()> {
        self.join(wish);
        Ok(())
    }

    fn answered(&mut self, answer: &[u8], now: u64, wish: &mut Wish) -> Result<()> {
        let mut answer = Answer::new(answer);
        answer.i32()?;
        match self.asked {
            Asked::Join => return self.joined(&mut answer, now, wish),
            Asked::Sync => match answer.i16()? {
                0 => {
                    self.asked = Asked::Beat;
                    self.place.set(Some(self.generation), wish);
                    wish.wake_at(now + BEAT_NS);
                }
                REBALANCE_IN_PROGRESS | ILLEGAL_GENERATION => self.join(wish),
                code => bail!("SyncGroup: error {code}"),
            },
            Asked::Beat => match answer.i16()? {
                0 => wish.wake_at(now + BEAT_NS),
                REBALANCE_IN_PROGRESS | ILLEGAL_GENERATION => self.join(wish),
                code => bail!("Heartbeat: error {code}"),
            },
        }
        Ok(())
    }

    fn woken(&mut self, _now: u64, wish: &mut Wish) -> Result<()> {
        match self.asked {
            Asked::Join => self.join(wish),
            Asked::Sync => {}
            Asked::Beat => {
                let mut request = Request::new(HEARTBEAT, 3);
                request
                    .string(self.place.group.as_bytes())
                    .i32(self.generation)
                    .string(&self.member_id)
                    .i16(-1);
                wish.send(&request.frame(0));
            }
        }
        Ok(())
    }
}

/// It has its work when it has one partition: there are as many as members.
struct ConsumerMember {
    place: Place,
    member_id: String,
    epoch: i32,
    owned: Vec<(Vec<u8>, Vec<i32>)>,
}

impl ConsumerMember {
    fn new(place: Place) -> ConsumerMember {
        ConsumerMember {
            // Clients choose a member id of 22 characters.
            member_id: format!("member-of-the-load-{:03}", place.number),
            place,
            epoch: 0,
            owned: Vec::new(),
        }
    }

    /// Says all that there is to say when it joins, what it has when that has changed, else that it is there.
    fn beat(&self, tells_owned: bool, wish: &mut Wish) {
        let is_joining = self.epoch == 0;
        let mut request = Request::flexible(CONSUMER_GROUP_HEARTBEAT, 0);
        request
            .compact_string(self.place.group.as_bytes())
            .compact_string(self.member_id.as_bytes())
            .i32(self.epoch)
            .i8(0) // no instance id
            .i8(0) // no rack
            .i32(if is_joining { TIMEOUT_MS } else { -1 });
        match is_joining {
            true => request.length(1).compact_string(self.place.topic.as_bytes()),
            false => request.i8(0),
        };
        request.i8(0); // the default assignor
        match is_joining || tells_owned {
            true => {
                request.length(self.owned.len());
                for (topic_id, partitions) in &self.owned {
                    request.bytes(topic_id).length(partitions.len());
                    for partition in partitions {
                        request.i32(*partition);
                    }
                    request.i8(0);
                }
            }
            false => drop(request.i8(0)),
        }
        request.i8(0);
        wish.send(&request.frame(0));
    }
}

impl Client for ConsumerMember {
    fn start(&mut self, _now: u64, wish: &mut Wish) -> Result<()> {
        self.beat(true, wish);
        Ok(())
    }

    fn answered(&mut self, answer: &[u8], now: u64, wish: &mut Wish) -> Result<()> {
        let mut answer = Answer::new(answer);
        answer.take(1)?; // tags of the header
        answer.i32()?;
        let code = answer.i16()?;
        let message = String::from_utf8_lossy(answer.compact_string()?).into_owned();
        if COMING.contains(&code) {
            wish.wake_at(now + RETRY_NS);
            return Ok(());
        }
        if code != 0 {
            bail!("ConsumerGroupHeartbeat: error {code}: {message}");
        }
        answer.compact_string()?;
        self.epoch = answer.i32()?;
        answer.i32()?;
        let mut owned = None;
        if answer.i8()? >= 0 {
            let mut assigned = Vec::new();
            for _ in 0..answer.length()? {
                let topic_id = answer.take(16)?.to_vec();
                let partitions: Vec<i32> = (0..answer.length()?)
                    .map(|_| answer.i32())
                    .collect::<Result<_>>()?;
                answer.take(1)?;
                assigned.push((topic_id, partitions));
            }
            owned = Some(assigned).filter(|assigned| *assigned != self.owned);
        }
        let is_changed = owned.is_some();
        self.owned = owned.unwrap_or(std::mem::take(&mut self.owned));
        let count: usize = self.owned.iter().map(|(_, partitions)| partitions.len()).sum();
        self.place.set((count == 1).then_some(self.epoch), wish);
        match is_changed {
            true => self.beat(true, wish),
            false => wish.wake_at(now + BEAT_NS),
        }
        Ok(())
    }

    fn woken(&mut self, _now: u64, wish: &mut Wish) -> Result<()> {
        self.beat(false, wish);
        Ok(())
    }
}
