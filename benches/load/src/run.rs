//! One thread, one epoll, many connections: producers in a closed loop or at a fixed rate, consumers that read on.
//!
//! Latency at a fixed rate is measured from the moment a request was due, not from when it could be sent: a broker that
//! stalls is charged for every request that had to wait (no coordinated omission). End to end runs from the same moment to
//! the arrival of the batch at a consumer.

mod consumer;
mod producer;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use rustix::event::epoll;
use rustix::time::Timespec;

use crate::batch::{self, Codec};
use crate::histogram::Latencies;
use crate::wire;
use crate::{Arguments, now_ns};
use consumer::Consumer;
use producer::{Load, Producer};

/// What is asked of a run.
pub struct Plan {
    pub topic: String,
    pub partitions: i32,
    pub acks: i16,
    pub in_flight: usize,
    pub record_size: usize,
    pub batch_records: usize,
    pub fetch: wire::FetchLimits,
    /// Consumers read from the first offset and begin again at the end; else they follow the tail.
    pub from_earliest: bool,
}

/// When the batch at (partition, base offset) was due, and who received it when.
#[derive(Default)]
struct Journey {
    due: Option<u64>,
    arrivals: Vec<u64>,
}

/// The measured times of a run.
pub struct Timings {
    produce: Latencies,
    end_to_end: Latencies,
    journeys: HashMap<(i32, i64), Journey>,
    consumers: usize,
    /// Whether end to end is asked for: at a fixed rate with consumers.
    track: bool,
    skip_until: u64,
}

impl Timings {
    pub fn acknowledged(&mut self, partition: i32, base_offset: i64, due: u64, now: u64) {
        if due < self.skip_until {
            return;
        }
        self.produce.record(now.saturating_sub(due));
        if self.track {
            self.journeys.entry((partition, base_offset)).or_default().due = Some(due);
            self.settle(partition, base_offset);
        }
    }

    pub fn arrived(&mut self, partition: i32, base_offset: i64, now: u64) {
        if self.track {
            self.journeys
                .entry((partition, base_offset))
                .or_default()
                .arrivals
                .push(now);
            self.settle(partition, base_offset);
        }
    }

    fn settle(&mut self, partition: i32, base_offset: i64) {
        let Some(journey) = self.journeys.get(&(partition, base_offset)) else {
            return;
        };
        let Some(due) = journey.due else { return };
        if journey.arrivals.len() == self.consumers {
            for arrival in &journey.arrivals {
                self.end_to_end.record(arrival.saturating_sub(due));
            }
            self.journeys.remove(&(partition, base_offset));
        }
    }
}

enum Role {
    Producer(Producer),
    Consumer(Consumer),
}

struct Connection {
    stream: TcpStream,
    role: Role,
    waits_to_write: bool,
}

fn open(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| address.to_string())?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

struct Engine {
    plan: Plan,
    load: Load,
    timings: Timings,
    connections: Vec<Connection>,
    producers: usize,
    epoll: rustix::fd::OwnedFd,
    /// Bytes each consumer of a run without producers has to read.
    consumer_bytes: u64,
}

impl Engine {
    fn producers_are_done(&self) -> bool {
        self.load.is_used_up()
            && self.connections[..self.producers]
                .iter()
                .all(|connection| match &connection.role {
                    Role::Producer(producer) => producer.is_idle(),
                    Role::Consumer(_) => true,
                })
    }

    fn is_done(&self) -> bool {
        let size = self.plan.record_size as u64;
        let wanted = match self.producers {
            0 => self.consumer_bytes / size,
            _ => self.load.requests * self.plan.batch_records as u64,
        };
        self.producers_are_done()
            && self.connections[self.producers..]
                .iter()
                .all(|connection| match &connection.role {
                    Role::Consumer(consumer) => consumer.records >= wanted,
                    Role::Producer(_) => true,
                })
    }

    /// Sends what a connection may send, and asks to be told when the socket has room again.
    fn pump(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        let blocked = match &mut connection.role {
            Role::Producer(producer) => producer.pump(&connection.stream, &self.plan, &mut self.load)?,
            Role::Consumer(consumer) => consumer.pump(&connection.stream, &self.plan)?,
        };
        if blocked != connection.waits_to_write {
            connection.waits_to_write = blocked;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, blocked);
            epoll::modify(
                &self.epoll,
                connection.stream.as_fd(),
                epoll::EventData::new_u64(index as u64),
                flags,
            )?;
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        match &mut connection.role {
            Role::Producer(producer) => producer.receive(&connection.stream, &self.plan, &mut self.timings),
            Role::Consumer(consumer) => consumer.receive(&connection.stream, &self.plan, &mut self.timings),
        }
    }

    /// Hands out the requests that are due by now; the time until the next one.
    fn hand_out_due(&mut self, now: u64) -> Result<Option<u64>> {
        while let Some(due) = self.load.next_due() {
            if due > now {
                return Ok(Some(due - now));
            }
            let index = self.load.take_due() as usize % self.producers;
            if let Role::Producer(producer) = &mut self.connections[index].role {
                producer.queue.push_back(due);
            }
            self.pump(index)?;
        }
        Ok(None)
    }

    fn run(&mut self, timeout_ns: u64) -> Result<()> {
        let start = now_ns();
        self.load.start(start);
        for index in 0..self.connections.len() {
            self.pump(index)?;
        }
        let mut events = Vec::with_capacity(256);
        while !self.is_done() {
            let now = now_ns();
            if now - start > timeout_ns {
                bail!("not done after {} s", timeout_ns / 1_000_000_000);
            }
            let wait = self.hand_out_due(now)?.unwrap_or(1_000_000_000);
            let wait = Timespec {
                tv_sec: (wait / 1_000_000_000) as i64,
                tv_nsec: (wait % 1_000_000_000) as i64,
            };
            events.clear();
            let waited = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&wait),
            );
            match waited {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let index = event.data.u64() as usize;
                let flags = event.flags;
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                    self.receive(index)?;
                }
                self.pump(index)?;
            }
        }
        Ok(())
    }

    fn report(&self, seconds: f64, cpu_seconds: f64) {
        let records = self.load.requests * self.plan.batch_records as u64;
        let bytes = records * self.plan.record_size as u64;
        let (mut fetched_records, mut fetched_wire, mut fetches) = (0, 0, 0);
        for connection in &self.connections {
            if let Role::Consumer(consumer) = &connection.role {
                fetched_records += consumer.records;
                fetched_wire += consumer.record_bytes;
                fetches += consumer.fetches;
            }
        }
        let fetched_bytes = fetched_records * self.plan.record_size as u64;
        println!(
            "{{\"seconds\":{seconds:.4},\"client_cpu_seconds\":{cpu_seconds:.3},\"produced_requests\":{},\
             \"produced_records\":{records},\"produced_bytes\":{bytes},\"produced_wire_bytes\":{},\
             \"fetched_records\":{fetched_records},\"fetched_bytes\":{fetched_bytes},\
             \"fetched_wire_bytes\":{fetched_wire},\"fetches\":{fetches},\"produce_us\":{},\"end_to_end_us\":{}}}",
            self.load.requests,
            self.load.requests * self.load.batch.len() as u64,
            self.timings.produce.to_json(),
            self.timings.end_to_end.to_json()
        );
    }
}

pub fn run(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let record_size: usize = arguments.get("record-size", 1024)?;
    let batch_records = arguments.get("batch-records", (16_384 / record_size.max(1)).max(1))?;
    let producers: usize = arguments.get("producers", 0)?;
    let consumers: usize = arguments.get("consumers", 0)?;
    let codec = arguments.get("compression", Codec::None)?;
    let rate: f64 = arguments.get("rate", 0.0)?;
    let bytes: u64 = arguments.get("bytes", 0)?;
    let seconds: f64 = arguments.get("seconds", 0.0)?;
    let skip_ms: u64 = arguments.get("skip-ms", 0)?;
    let timeout: u64 = arguments.get("timeout", 120)?;
    let plan = Plan {
        topic: arguments.require("topic")?,
        partitions: arguments.get("partitions", 1)?,
        acks: arguments.get("acks", 1)?,
        in_flight: arguments.get("in-flight", 5)?,
        record_size,
        batch_records,
        fetch: wire::FetchLimits {
            max_wait_ms: arguments.get("max-wait-ms", 500)?,
            min_bytes: arguments.get("min-bytes", 1)?,
            max_bytes: arguments.get("max-bytes", 50 << 20)?,
            partition_max_bytes: arguments.get("partition-max-bytes", 1 << 20)?,
        },
        from_earliest: producers == 0,
    };
    arguments.finish()?;
    let batch = batch::build(codec, batch_records, record_size)?;
    let requests = match (producers, rate > 0.0) {
        (0, _) => 0,
        (_, true) => (rate * seconds) as u64,
        (_, false) => bytes / (record_size * batch_records) as u64,
    };
    let load = Load::new(&plan, batch, requests, rate);
    let timings = Timings {
        produce: Latencies::new()?,
        end_to_end: Latencies::new()?,
        journeys: HashMap::new(),
        consumers,
        track: rate > 0.0 && consumers > 0,
        skip_until: now_ns() + skip_ms * 1_000_000,
    };
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let starts = match consumers {
        0 => Vec::new(),
        _ => consumer::start_offsets(&mut open(address)?, &plan)?,
    };
    let mut connections = Vec::new();
    for index in 0..producers + consumers {
        let stream = open(address)?;
        stream.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&epoll, stream.as_fd(), data, epoll::EventFlags::IN)?;
        let role = match index < producers {
            true => Role::Producer(Producer::new(index as i32 % plan.partitions)),
            false => Role::Consumer(Consumer::new(&plan, &starts)),
        };
        connections.push(Connection {
            stream,
            role,
            waits_to_write: false,
        });
    }
    let mut engine = Engine {
        plan,
        load,
        timings,
        connections,
        producers,
        epoll,
        consumer_bytes: bytes / consumers.max(1) as u64,
    };
    let start = now_ns();
    engine.run(timeout * 1_000_000_000)?;
    let seconds = (now_ns() - start) as f64 / 1e9;
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    engine.report(seconds, cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
    Ok(())
}
