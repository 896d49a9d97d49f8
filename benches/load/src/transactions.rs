//! Transactions: a producer writes to a partition of its own and commits, over and over, in a closed loop or at a fixed rate.
//!
//! At a fixed rate a transaction begins when it is due, and its latency runs from there (no coordinated omission).
//! With `transaction.version` 2: Produce 12, which adds its partition to the transaction itself, and EndTxn 5, which raises
//! the producer's epoch at every end. A Produce that comes before the markers of the transaction before it are written is answered
//! CONCURRENT_TRANSACTIONS, and sent again a millisecond later.

use std::cell::RefCell;
use std::net::TcpStream;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::Arguments;
use crate::admin::connect_to;
use crate::batch::{self, BATCH_HEADER, Codec};
use crate::closed::{Client, Loops, Wish, cpu_seconds};
use crate::histogram::Latencies;
use crate::wire::{self, Answer, Request};

const FIND_COORDINATOR: i16 = 10;
const INIT_PRODUCER_ID: i16 = 22;
const END_TXN: i16 = 26;
const TRANSACTION_KEY: i8 = 1;

const CONCURRENT_TRANSACTIONS: i16 = 51;
/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS.
const COMING: [i16; 4] = [14, 15, 16, CONCURRENT_TRANSACTIONS];

const TRANSACTION_TIMEOUT_MS: i32 = 60_000;
const PATIENCE: Duration = Duration::from_secs(60);
const BACKOFF_NS: u64 = 1_000_000;

/// A Produce of one transactional batch, whose producer, sequence and checksum are filled in for each request.
struct ProduceFrame {
    bytes: Vec<u8>,
    batch_at: usize,
}

impl ProduceFrame {
    fn new(transactional_id: &str, topic: &str, partition: i32, batch: &[u8]) -> ProduceFrame {
        let mut request = Request::flexible(wire::PRODUCE, 12);
        request
            .compact_string(transactional_id.as_bytes())
            .i16(-1) // acks: all
            .i32(30_000)
            .length(1)
            .compact_string(topic.as_bytes())
            .length(1)
            .i32(partition)
            .length(batch.len());
        let mut bytes = request.frame(batch.len() + 3);
        let batch_at = bytes.len();
        bytes.extend_from_slice(batch);
        bytes.extend_from_slice(&[0; 3]); // tags of the partition, the topic, the request
        let attributes_at = batch_at + batch::CRC_FROM;
        bytes[attributes_at + 1] |= 0x10; // transactional
        ProduceFrame { bytes, batch_at }
    }

    fn of(&mut self, producer_id: i64, producer_epoch: i16, sequence: i32) -> &[u8] {
        const PRODUCER_AT: usize = 43;
        let batch_end = self.bytes.len() - 3;
        let batch = &mut self.bytes[self.batch_at..batch_end];
        batch[PRODUCER_AT..PRODUCER_AT + 8].copy_from_slice(&producer_id.to_be_bytes());
        batch[PRODUCER_AT + 8..PRODUCER_AT + 10].copy_from_slice(&producer_epoch.to_be_bytes());
        batch[PRODUCER_AT + 10..PRODUCER_AT + 14].copy_from_slice(&sequence.to_be_bytes());
        let crc = crc32c::crc32c(&batch[batch::CRC_FROM..]);
        batch[batch::CRC_AT..batch::CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
        &self.bytes
    }
}

/// What is counted of all producers.
struct Totals {
    transactions: u64,
    bytes: u64,
    refused: u64,
    /// From EndTxn to its answer, tries that were refused included.
    commit: Latencies,
    /// From the first Produce to the answer of EndTxn.
    whole: Latencies,
}

/// What the producers have in common.
struct Plan {
    topic: String,
    partitions: i32,
    batch: Vec<u8>,
    batch_records: i32,
    record_size: usize,
    in_flight: usize,
    /// A transaction is that long; 0: one request.
    interval_ns: u64,
    /// Between two requests of such a transaction; 0: as fast as answers come.
    pace_ns: u64,
    /// Between two transactions of a producer; 0: a closed loop.
    period_ns: u64,
    seconds: f64,
}

#[derive(PartialEq, Eq)]
enum Phase {
    /// The next transaction is not due yet.
    Waiting,
    /// The first request is under way, alone: it adds the partition.
    Beginning,
    Producing,
    /// Nothing is under way, and the next request of the transaction is not due yet.
    Pacing,
    Ending,
}

struct Producer {
    plan: Rc<Plan>,
    totals: Rc<RefCell<Totals>>,
    transactional_id: String,
    frame: ProduceFrame,
    producer_id: i64,
    producer_epoch: i16,
    sequence: i32,
    in_flight: usize,
    /// Requests of this transaction.
    sent: u64,
    phase: Phase,
    began: u64,
    ending: u64,
    due: u64,
    /// Its part of the others' first period, in which it begins.
    turn: f64,
    deadline: u64,
}

impl Producer {
    fn produce(&mut self, wish: &mut Wish) {
        let frame = self
            .frame
            .of(self.producer_id, self.producer_epoch, self.sequence);
        wish.send(frame);
        self.sequence += self.plan.batch_records;
        self.in_flight += 1;
        self.sent += 1;
    }

    fn begin(&mut self, began: u64, wish: &mut Wish) {
        self.phase = Phase::Beginning;
        self.began = began;
        self.sequence = 0;
        self.sent = 0;
        self.produce(wish);
    }

    fn end(&mut self, wish: &mut Wish) {
        let mut request = Request::flexible(END_TXN, 5);
        request
            .compact_string(self.transactional_id.as_bytes())
            .i64(self.producer_id)
            .i16(self.producer_epoch)
            .i8(1) // commit
            .i8(0);
        wish.send(&request.frame(0));
    }

    fn try_again(&mut self, now: u64, wish: &mut Wish) {
        self.totals.borrow_mut().refused += 1;
        wish.wake_at(now + BACKOFF_NS);
    }

    fn produced(&mut self, answer: &[u8], now: u64, wish: &mut Wish) -> Result<()> {
        self.in_flight -= 1;
        match produce_error(answer)? {
            0 => {}
            CONCURRENT_TRANSACTIONS if self.phase == Phase::Beginning => {
                self.try_again(now, wish);
                return Ok(());
            }
            code => bail!("{}: Produce: error {code}", self.transactional_id),
        }
        self.totals.borrow_mut().bytes += self.plan.record_size as u64 * self.plan.batch_records as u64;
        self.go_on_producing(now, wish);
        Ok(())
    }

    fn go_on_producing(&mut self, now: u64, wish: &mut Wish) {
        self.phase = Phase::Producing;
        if now < self.began + self.plan.interval_ns {
            while self.in_flight < self.plan.in_flight && self.next_due() <= now {
                self.produce(wish);
            }
            if self.in_flight == 0 {
                self.phase = Phase::Pacing;
                wish.wake_at(self.next_due());
            }
        } else if self.in_flight == 0 {
            self.phase = Phase::Ending;
            self.ending = now;
            self.end(wish);
        }
    }

    fn next_due(&self) -> u64 {
        self.began + self.sent * self.plan.pace_ns
    }

    fn ended(&mut self, answer: &[u8], now: u64, wish: &mut Wish) -> Result<()> {
        let mut answer = Answer::new(answer);
        answer.take(1)?; // tags of the header
        answer.i32()?;
        match answer.i16()? {
            0 => {}
            CONCURRENT_TRANSACTIONS => {
                self.try_again(now, wish);
                return Ok(());
            }
            code => bail!("{}: EndTxn: error {code}", self.transactional_id),
        }
        self.producer_id = wire::read_i64(answer.take(8)?, 0);
        self.producer_epoch = answer.i16()?;
        let mut totals = self.totals.borrow_mut();
        totals.transactions += 1;
        totals.commit.record(now - self.ending);
        totals.whole.record(now - self.began);
        drop(totals);
        self.go_on(now, wish);
        Ok(())
    }

    fn go_on(&mut self, now: u64, wish: &mut Wish) {
        self.due = match self.plan.period_ns {
            0 => now,
            period_ns => self.due + period_ns,
        };
        if self.due >= self.deadline {
            wish.done();
        } else if self.due <= now {
            self.begin(self.due, wish);
        } else {
            self.phase = Phase::Waiting;
            wish.wake_at(self.due);
        }
    }
}

impl Client for Producer {
    fn start(&mut self, now: u64, wish: &mut Wish) -> Result<()> {
        self.deadline = now + (self.plan.seconds * 1e9) as u64;
        // Producers of a fixed rate take turns.
        self.due = now + (self.plan.period_ns as f64 * self.turn) as u64;
        self.phase = Phase::Waiting;
        wish.wake_at(self.due);
        Ok(())
    }

    fn answered(&mut self, answer: &[u8], now: u64, wish: &mut Wish) -> Result<()> {
        match self.phase {
            Phase::Ending => self.ended(answer, now, wish),
            Phase::Waiting | Phase::Beginning | Phase::Producing | Phase::Pacing => {
                self.produced(answer, now, wish)
            }
        }
    }

    fn woken(&mut self, now: u64, wish: &mut Wish) -> Result<()> {
        match self.phase {
            Phase::Ending => self.end(wish),
            Phase::Waiting => self.begin(self.due, wish),
            Phase::Pacing => self.go_on_producing(now, wish),
            // It began when it was wanted.
            Phase::Beginning | Phase::Producing => self.begin(self.began, wish),
        }
        Ok(())
    }
}

/// The error of the only partition.
fn produce_error(answer: &[u8]) -> Result<i16> {
    let mut answer = Answer::new(answer);
    answer.take(1)?; // tags of the header
    answer.length()?;
    answer.compact_string()?;
    answer.length()?;
    answer.i32()?;
    answer.i16()
}

/// Waits until the coordinator gives the transactional id a producer id and epoch.
fn init_producer_id(stream: &mut TcpStream, transactional_id: &str) -> Result<(i64, i16)> {
    let start = Instant::now();
    loop {
        let mut request = Request::new(FIND_COORDINATOR, 2);
        request.string(transactional_id.as_bytes()).i8(TRANSACTION_KEY);
        wire::call(stream, &request.frame(0))?;
        let mut request = Request::new(INIT_PRODUCER_ID, 1);
        request
            .string(transactional_id.as_bytes())
            .i32(TRANSACTION_TIMEOUT_MS);
        let answer = wire::call(stream, &request.frame(0))?;
        let mut answer = Answer::new(&answer);
        answer.i32()?;
        match answer.i16()? {
            0 => return Ok((wire::read_i64(answer.take(8)?, 0), answer.i16()?)),
            code if COMING.contains(&code) && start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(5));
            }
            code => bail!("InitProducerId of {transactional_id}: error {code}"),
        }
    }
}

pub fn run(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let producers: usize = arguments.get("producers", 1)?;
    let record_size: usize = arguments.get("record-size", 100)?;
    let batch_records: usize = arguments.get("batch-records", 1)?;
    let interval_ms: u64 = arguments.get("interval-ms", 0)?;
    let rate: f64 = arguments.get("rate", 0.0)?;
    let period_ns = match rate > 0.0 {
        true => (producers as f64 / rate * 1e9) as u64,
        false => 0,
    };
    let bytes_per_second: f64 = arguments.get("bytes-per-second", 0.0)?;
    let pace_ns = match bytes_per_second > 0.0 {
        true => (producers * batch_records * record_size) as f64 / bytes_per_second * 1e9,
        false => 0.0,
    };
    let plan = Rc::new(Plan {
        topic: arguments.require("topic")?,
        partitions: arguments.get("partitions", 1)?,
        batch: batch::build(Codec::None, batch_records, record_size)?,
        batch_records: batch_records as i32,
        record_size,
        in_flight: arguments.get("in-flight", 5)?,
        interval_ns: interval_ms * 1_000_000,
        pace_ns: pace_ns as u64,
        period_ns,
        seconds: arguments.get("seconds", 5.0)?,
    });
    arguments.finish()?;
    debug_assert!(plan.batch.len() > BATCH_HEADER);
    let totals = Rc::new(RefCell::new(Totals {
        transactions: 0,
        bytes: 0,
        refused: 0,
        commit: Latencies::new()?,
        whole: Latencies::new()?,
    }));
    let mut clients = Vec::with_capacity(producers);
    for number in 0..producers {
        let mut stream = connect_to(address)?;
        let transactional_id = format!("load-{producers}-{number}");
        let (producer_id, producer_epoch) = init_producer_id(&mut stream, &transactional_id)?;
        let partition = number as i32 % plan.partitions;
        let producer = Producer {
            frame: ProduceFrame::new(&transactional_id, &plan.topic, partition, &plan.batch),
            plan: plan.clone(),
            totals: totals.clone(),
            transactional_id,
            producer_id,
            producer_epoch,
            sequence: 0,
            in_flight: 0,
            sent: 0,
            phase: Phase::Beginning,
            began: 0,
            ending: 0,
            due: 0,
            turn: number as f64 / producers as f64,
            deadline: u64::MAX,
        };
        clients.push((stream, producer));
    }
    let cpu = cpu_seconds();
    let timeout_ns = (plan.seconds * 1e9) as u64 + PATIENCE.as_nanos() as u64;
    let seconds = Loops::new(clients)?.run(timeout_ns)? as f64 / 1e9;
    let totals = totals.borrow();
    println!(
        "{{\"seconds\":{seconds:.4},\"client_cpu_seconds\":{:.3},\"transactions\":{},\"produced_bytes\":{},\"refused\":{},\
         \"commit_us\":{},\"transaction_us\":{}}}",
        cpu_seconds() - cpu,
        totals.transactions,
        totals.bytes,
        totals.refused,
        totals.commit.to_json(),
        totals.whole.to_json()
    );
    Ok(())
}
