//! Groups: commits in a closed loop, a filled offsets partition. Their members are in `member.rs`.
//!
//! Versions: OffsetCommit 7, OffsetFetch 5, FindCoordinator 2.

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::admin::connect_to;
use crate::closed::{Client, Loops, Wish, cpu_seconds};
use crate::wire::{self, Answer, Request};
use crate::{Arguments, now_ns};

const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 9;
const FIND_COORDINATOR: i16 = 10;

/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
pub const COMING: [i16; 3] = [14, 15, 16];

pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the group's coordinator answers.
pub fn find_coordinator(stream: &mut TcpStream, group: &str) -> Result<()> {
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
