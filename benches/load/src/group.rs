//! Groups: many members that join at once (classic or consumer protocol), commits in a closed loop, a filled offsets partition.
//!
//! A member that joins is a thread with a blocking socket and does what clients do: it joins, syncs, beats, and joins again when it is told to.
//! Versions: JoinGroup 5, SyncGroup 3, Heartbeat 3, OffsetCommit 7, OffsetFetch 5, FindCoordinator 2, and ConsumerGroupHeartbeat 0 with
//! compact lengths.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::admin::connect_to;
use crate::closed::{Client, Loops, Wish, cpu_seconds};
use crate::wire::{self, Answer, Request};
use crate::{Arguments, now_ns};

const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 9;
const FIND_COORDINATOR: i16 = 10;
const JOIN_GROUP: i16 = 11;
const HEARTBEAT: i16 = 12;
const SYNC_GROUP: i16 = 14;
const CONSUMER_GROUP_HEARTBEAT: i16 = 68;

const UNKNOWN_MEMBER_ID: i16 = 25;
const ILLEGAL_GENERATION: i16 = 22;
const REBALANCE_IN_PROGRESS: i16 = 27;
const MEMBER_ID_REQUIRED: i16 = 79;
/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
const COMING: [i16; 3] = [14, 15, 16];

const TIMEOUT_MS: i32 = 60_000;
const BEAT: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(120);
const STACK_BYTES: usize = 128 << 10;

/// Waits until the group's coordinator answers.
fn find_coordinator(stream: &mut TcpStream, group: &str) -> Result<()> {
    let start = Instant::now();
    loop {
        let mut request = Request::new(FIND_COORDINATOR, 2);
        request.string(group.as_bytes()).i8(0);
        let answer = wire::call(stream, &request.frame(0))?;
        let mut answer = Answer::new(&answer);
        answer.i32()?;
        if answer.i16()? == 0 && committed(stream, group, "none")?.is_some() {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("group {group} has no coordinator");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The offset committed for partition 0; `None` while the coordinator is not there.
fn committed(stream: &mut TcpStream, group: &str, topic: &str) -> Result<Option<i64>> {
    let mut request = Request::new(OFFSET_FETCH, 5);
    request
        .string(group.as_bytes())
        .i32(1)
        .string(topic.as_bytes())
        .i32(1)
        .i32(0);
    let answer = wire::call(stream, &request.frame(0))?;
    let mut answer = Answer::new(&answer);
    answer.i32()?;
    let mut offset = -1;
    for _ in 0..answer.i32()? {
        answer.string()?;
        for _ in 0..answer.i32()? {
            answer.i32()?;
            offset = wire::read_i64(answer.take(8)?, 0);
            answer.i32()?;
            answer.string()?;
            if COMING.contains(&answer.i16()?) {
                return Ok(None);
            }
        }
    }
    match answer.i16()? {
        0 => Ok(Some(offset)),
        code if COMING.contains(&code) => Ok(None),
        code => bail!("OffsetFetch: error {code}"),
    }
}

/// What members tell the main thread: the generation (or epoch) in which each has its work; -1: none.
struct Progress {
    generations: Vec<AtomicI32>,
    end: AtomicBool,
    failure: Mutex<Option<anyhow::Error>>,
}

impl Progress {
    fn is_stable(&self) -> bool {
        let first = self.generations[0].load(Ordering::SeqCst);
        let mut all = self.generations.iter();
        first >= 0 && all.all(|generation| generation.load(Ordering::SeqCst) == first)
    }
}

/// All members begin at one moment; prints how long it takes until each has its work in the same generation.
pub fn join(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let group: String = arguments.require("group")?;
    let topic: String = arguments.require("topic")?;
    let members: usize = arguments.get("members", 500)?;
    let protocol: String = arguments.get("protocol", "classic".to_owned())?;
    arguments.finish()?;
    find_coordinator(&mut connect_to(address)?, &group)?;
    let progress = Arc::new(Progress {
        generations: (0..members).map(|_| AtomicI32::new(-1)).collect(),
        end: AtomicBool::new(false),
        failure: Mutex::new(None),
    });
    let barrier = Arc::new(Barrier::new(members + 1));
    let mut threads = Vec::with_capacity(members);
    for number in 0..members {
        let (progress, barrier) = (progress.clone(), barrier.clone());
        let (group, topic, is_classic) = (group.clone(), topic.clone(), protocol == "classic");
        let run = move || {
            let result = connect_to(address).and_then(|mut stream| {
                barrier.wait();
                match is_classic {
                    true => classic_member(&mut stream, &group, number, &progress),
                    false => consumer_member(&mut stream, &group, &topic, number, &progress),
                }
            });
            if let (Err(error), Ok(mut failure)) = (result, progress.failure.lock()) {
                failure.get_or_insert(error.context(format!("member {number}")));
            }
        };
        threads.push(thread::Builder::new().stack_size(STACK_BYTES).spawn(run)?);
    }
    barrier.wait();
    let start = Instant::now();
    while !progress.is_stable() {
        if let Some(error) = progress
            .failure
            .lock()
            .ok()
            .and_then(|mut failure| failure.take())
        {
            return Err(error);
        }
        if start.elapsed() > PATIENCE {
            bail!("the group is not stable after {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(1));
    }
    let seconds = start.elapsed().as_secs_f64();
    progress.end.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().ok().context("a member's thread has failed")?;
    }
    println!("{{\"seconds\":{seconds:.4}}}");
    Ok(())
}

/// A member of the classic protocol; the leader gives every member a few bytes.
fn classic_member(stream: &mut TcpStream, group: &str, number: usize, progress: &Progress) -> Result<()> {
    let mut member_id: Vec<u8> = Vec::new();
    while !progress.end.load(Ordering::SeqCst) {
        let mut request = Request::new(JOIN_GROUP, 5);
        request
            .string(group.as_bytes())
            .i32(TIMEOUT_MS)
            .i32(TIMEOUT_MS)
            .string(&member_id)
            .i16(-1) // no instance id
            .string(b"consumer")
            .i32(1)
            .string(b"range")
            .i32(16);
        let mut frame = request.frame(16);
        frame.extend_from_slice(&[0; 16]);
        let answer = wire::call(stream, &frame)?;
        let mut answer = Answer::new(&answer);
        answer.i32()?;
        let code = answer.i16()?;
        let generation = answer.i32()?;
        answer.string()?;
        let leader = answer.string()?.to_vec();
        member_id = answer.string()?.to_vec();
        match code {
            0 => {}
            MEMBER_ID_REQUIRED => continue,
            UNKNOWN_MEMBER_ID => {
                member_id.clear();
                continue;
            }
            code if COMING.contains(&code) => continue,
            code => bail!("JoinGroup: error {code}"),
        }
        let mut others: Vec<Vec<u8>> = Vec::new();
        if leader == member_id {
            for _ in 0..answer.i32()? {
                others.push(answer.string()?.to_vec());
                answer.string()?;
                let metadata = answer.i32()?;
                answer.take(metadata.max(0) as usize)?;
            }
        }
        let mut request = Request::new(SYNC_GROUP, 3);
        request
            .string(group.as_bytes())
            .i32(generation)
            .string(&member_id)
            .i16(-1)
            .i32(others.len() as i32);
        for other in &others {
            request.string(other).i32(4).i32(0);
        }
        let answer = wire::call(stream, &request.frame(0))?;
        let mut answer = Answer::new(&answer);
        answer.i32()?;
        match answer.i16()? {
            0 => {}
            REBALANCE_IN_PROGRESS | ILLEGAL_GENERATION => continue,
            code => bail!("SyncGroup: error {code}"),
        }
        progress.generations[number].store(generation, Ordering::SeqCst);
        beat_until_rebalance(stream, group, generation, &member_id, progress)?;
        progress.generations[number].store(-1, Ordering::SeqCst);
    }
    Ok(())
}

fn beat_until_rebalance(
    stream: &mut TcpStream,
    group: &str,
    generation: i32,
    member_id: &[u8],
    progress: &Progress,
) -> Result<()> {
    while !progress.end.load(Ordering::SeqCst) {
        thread::sleep(BEAT);
        let mut request = Request::new(HEARTBEAT, 3);
        request
            .string(group.as_bytes())
            .i32(generation)
            .string(member_id)
            .i16(-1);
        let answer = wire::call(stream, &request.frame(0))?;
        let mut answer = Answer::new(&answer);
        answer.i32()?;
        match answer.i16()? {
            0 => {}
            REBALANCE_IN_PROGRESS | ILLEGAL_GENERATION => return Ok(()),
            code => bail!("Heartbeat: error {code}"),
        }
    }
    Ok(())
}

/// A member of the consumer protocol. It has its work when it has one partition: there are as many as members.
fn consumer_member(
    stream: &mut TcpStream,
    group: &str,
    topic: &str,
    number: usize,
    progress: &Progress,
) -> Result<()> {
    // Clients choose a member id of 22 characters.
    let member_id = format!("member-of-the-load-{number:03}");
    let mut owned: Vec<(Vec<u8>, Vec<i32>)> = Vec::new();
    let mut epoch = 0;
    while !progress.end.load(Ordering::SeqCst) {
        let mut request = Request::flexible(CONSUMER_GROUP_HEARTBEAT, 0);
        request
            .compact_string(group.as_bytes())
            .compact_string(member_id.as_bytes())
            .i32(epoch)
            .i8(0) // no instance id
            .i8(0) // no rack
            .i32(TIMEOUT_MS)
            .i8(2) // one topic
            .compact_string(topic.as_bytes())
            .i8(0) // the default assignor
            .length(owned.len());
        for (topic_id, partitions) in &owned {
            request.bytes(topic_id).length(partitions.len());
            for partition in partitions {
                request.i32(*partition);
            }
            request.i8(0);
        }
        request.i8(0);
        let answer = wire::call(stream, &request.frame(0))?;
        let mut answer = Answer::new(&answer);
        answer.take(1)?; // tags of the header
        answer.i32()?;
        let code = answer.i16()?;
        let message = String::from_utf8_lossy(answer.compact_string()?).into_owned();
        if COMING.contains(&code) {
            continue;
        }
        if code != 0 {
            bail!("ConsumerGroupHeartbeat: error {code}: {message}");
        }
        answer.compact_string()?;
        epoch = answer.i32()?;
        answer.i32()?;
        let is_changed = answer.i8()? >= 0;
        if is_changed {
            owned.clear();
            for _ in 0..answer.length()? {
                let topic_id = answer.take(16)?.to_vec();
                let partitions = (0..answer.length()?)
                    .map(|_| answer.i32())
                    .collect::<Result<_>>()?;
                answer.take(1)?;
                owned.push((topic_id, partitions));
            }
        }
        let count: usize = owned.iter().map(|(_, partitions)| partitions.len()).sum();
        let generation = if count == 1 { epoch } else { -1 };
        progress.generations[number].store(generation, Ordering::SeqCst);
        // A client answers an assignment at once.
        if !is_changed {
            thread::sleep(BEAT);
        }
    }
    Ok(())
}

fn commit_frame(group: &str, topic: &str, partitions: i32, offset: i64) -> Vec<u8> {
    let mut request = Request::new(OFFSET_COMMIT, 7);
    request
        .string(group.as_bytes())
        .i32(-1)
        .string(b"")
        .i16(-1)
        .i32(1)
        .string(topic.as_bytes())
        .i32(partitions);
    for partition in 0..partitions {
        request.i32(partition).i64(offset).i32(-1).string(b"");
    }
    request.frame(0)
}

fn check_committed(answer: &[u8]) -> Result<()> {
    let mut answer = Answer::new(answer);
    answer.i32()?;
    for _ in 0..answer.i32()? {
        answer.string()?;
        for _ in 0..answer.i32()? {
            answer.i32()?;
            let code = answer.i16()?;
            if code != 0 {
                bail!("OffsetCommit: error {code}");
            }
        }
    }
    Ok(())
}

/// A group that commits one offset after the other.
struct Committer {
    group: String,
    topic: String,
    seconds: f64,
    deadline: u64,
    committed: i64,
}

impl Committer {
    fn commit(&self, wish: &mut Wish) {
        wish.send(&commit_frame(&self.group, &self.topic, 1, self.committed));
    }
}

impl Client for Committer {
    fn start(&mut self, now: u64, wish: &mut Wish) -> Result<()> {
        self.deadline = now + (self.seconds * 1e9) as u64;
        self.commit(wish);
        Ok(())
    }

    fn answered(&mut self, answer: &[u8], now: u64, wish: &mut Wish) -> Result<()> {
        check_committed(answer)?;
        self.committed += 1;
        match now < self.deadline {
            true => self.commit(wish),
            false => wish.done(),
        }
        Ok(())
    }

    fn woken(&mut self, _now: u64, _wish: &mut Wish) -> Result<()> {
        Ok(())
    }
}

/// Connections, each with a group of its own, commit one offset after the other for some seconds.
pub fn commits(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let topic: String = arguments.require("topic")?;
    let connections: usize = arguments.get("connections", 32)?;
    let seconds: f64 = arguments.get("seconds", 5.0)?;
    arguments.finish()?;
    let mut committers = Vec::with_capacity(connections);
    for number in 0..connections {
        let committer = Committer {
            group: format!("commits-{number}"),
            topic: topic.clone(),
            seconds,
            deadline: u64::MAX,
            committed: 0,
        };
        let mut stream = connect_to(address)?;
        find_coordinator(&mut stream, &committer.group)?;
        committers.push((stream, committer));
    }
    let cpu = cpu_seconds();
    let mut loops = Loops::new(committers)?;
    let took = loops.run((seconds * 1e9) as u64 + PATIENCE.as_nanos() as u64)? as f64 / 1e9;
    let done: i64 = loops.clients().map(|committer| committer.committed).sum();
    println!(
        "{{\"seconds\":{took:.3},\"client_cpu_seconds\":{:.3},\"commits\":{done}}}",
        cpu_seconds() - cpu
    );
    Ok(())
}

/// Commits `commits` offsets: `groups` groups, each for all partitions of the topic, over and over.
pub fn fill(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let topic: String = arguments.require("topic")?;
    let groups: i64 = arguments.get("groups", 100)?;
    let partitions: i32 = arguments.get("partitions", 1000)?;
    let commits: i64 = arguments.get("commits", 1_000_000)?;
    arguments.finish()?;
    let mut stream = connect_to(address)?;
    find_coordinator(&mut stream, "fill-0")?;
    let requests = commits / i64::from(partitions);
    for request in 0..requests {
        let group = format!("fill-{}", request % groups);
        let frame = commit_frame(&group, &topic, partitions, request + 1);
        check_committed(&wire::call(&mut stream, &frame)?)?;
    }
    println!("{{\"commits\":{}}}", requests * i64::from(partitions));
    Ok(())
}

/// Tries until the group's coordinator answers with its committed offset; prints the monotonic time.
pub fn fetched(mut arguments: Arguments) -> Result<()> {
    let address: SocketAddr = arguments.address()?;
    let topic: String = arguments.require("topic")?;
    let group: String = arguments.require("group")?;
    arguments.finish()?;
    println!("ready");
    let start = Instant::now();
    loop {
        let found = connect_to(address).and_then(|mut stream| {
            loop {
                match committed(&mut stream, &group, &topic)? {
                    Some(offset) => return Ok(offset),
                    None => thread::sleep(Duration::from_micros(500)),
                }
            }
        });
        match found {
            Ok(offset) => {
                println!("{{\"fetched_ns\":{},\"offset\":{offset}}}", now_ns());
                return Ok(());
            }
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_micros(500)),
        }
    }
}
