//! A producing connection, and the load that all of them share.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;

use anyhow::{Result, bail};

use super::{Plan, Timings};
use crate::now_ns;
use crate::wire::{self, CORRELATION_AT};

/// What is still to be sent, and the bytes that every request shares.
pub struct Load {
    pub batch: Vec<u8>,
    pub requests: u64,
    /// Before the batch, for every partition.
    heads: Vec<Vec<u8>>,
    /// The same with acks=1: ends a run with acks=0, so that its last answer tells that all before was taken.
    last_heads: Vec<Vec<u8>>,
    handed_out: u64,
    /// Nanoseconds between requests; 0 in a closed loop.
    interval: f64,
    start: u64,
}

impl Load {
    pub fn new(plan: &Plan, batch: Vec<u8>, requests: u64, rate: f64) -> Load {
        let heads = |acks| {
            (0..plan.partitions)
                .map(|partition| wire::produce_head(&plan.topic, partition, acks, batch.len()))
                .collect()
        };
        Load {
            heads: heads(plan.acks),
            last_heads: heads(1),
            batch,
            requests,
            handed_out: 0,
            interval: if rate > 0.0 { 1e9 / rate } else { 0.0 },
            start: 0,
        }
    }

    pub fn start(&mut self, now: u64) {
        self.start = now;
    }

    pub fn is_used_up(&self) -> bool {
        self.handed_out == self.requests
    }

    /// When the next request of a fixed rate is due.
    pub fn next_due(&self) -> Option<u64> {
        (self.interval > 0.0 && !self.is_used_up())
            .then(|| self.start + (self.handed_out as f64 * self.interval) as u64)
    }

    /// Takes the due request; its number.
    pub fn take_due(&mut self) -> u64 {
        self.handed_out += 1;
        self.handed_out - 1
    }

    fn take_in_closed_loop(&mut self) -> bool {
        let left = self.interval == 0.0 && !self.is_used_up();
        self.handed_out += u64::from(left);
        left
    }
}

struct Sending {
    head: Vec<u8>,
    sent: usize,
    due: u64,
    partition: i32,
    answered: bool,
}

pub struct Producer {
    /// Due times of requests that could not be sent yet.
    pub queue: VecDeque<u64>,
    sending: Option<Sending>,
    in_flight: VecDeque<(u64, i32)>,
    next_partition: i32,
    correlation_id: i32,
    /// With acks=0: the closing request with acks=1 was sent.
    closed: bool,
    sent_any: bool,
    buffer: Vec<u8>,
    filled: usize,
}

impl Producer {
    pub fn new(first_partition: i32) -> Producer {
        Producer {
            queue: VecDeque::new(),
            sending: None,
            in_flight: VecDeque::new(),
            next_partition: first_partition,
            correlation_id: 0,
            closed: false,
            sent_any: false,
            buffer: vec![0; 16 * 1024],
            filled: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.sending.is_none() && self.in_flight.is_empty()
    }

    fn next_request(&mut self, plan: &Plan, load: &mut Load) -> Option<Sending> {
        let closing =
            plan.acks == 0 && load.is_used_up() && self.queue.is_empty() && self.sent_any && !self.closed;
        let due = if closing {
            self.closed = true;
            now_ns()
        } else if let Some(due) = self.queue.front().copied() {
            (self.in_flight.len() < plan.in_flight || plan.acks == 0).then(|| self.queue.pop_front())?;
            due
        } else if self.in_flight.len() < plan.in_flight && load.take_in_closed_loop() {
            now_ns()
        } else {
            return None;
        };
        let partition = self.next_partition;
        self.next_partition = (partition + 1) % plan.partitions;
        let heads = if closing { &load.last_heads } else { &load.heads };
        let mut head = heads[partition as usize].clone();
        self.correlation_id = self.correlation_id.wrapping_add(1);
        head[CORRELATION_AT..CORRELATION_AT + 4].copy_from_slice(&self.correlation_id.to_be_bytes());
        self.sent_any = true;
        Some(Sending {
            head,
            sent: 0,
            due,
            partition,
            answered: plan.acks != 0 || closing,
        })
    }

    /// Sends until nothing may be sent or the socket is full; whether it is full.
    pub fn pump(&mut self, mut stream: &TcpStream, plan: &Plan, load: &mut Load) -> Result<bool> {
        loop {
            if self.sending.is_none() {
                self.sending = self.next_request(plan, load);
            }
            let Some(sending) = &mut self.sending else {
                return Ok(false);
            };
            let head = sending.head.len();
            let total = head + load.batch.len();
            while sending.sent < total {
                let slices = [
                    IoSlice::new(&sending.head[sending.sent.min(head)..]),
                    IoSlice::new(&load.batch[sending.sent.saturating_sub(head)..]),
                ];
                match stream.write_vectored(&slices) {
                    Ok(count) => sending.sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if sending.answered {
                self.in_flight.push_back((sending.due, sending.partition));
            }
            self.sending = None;
        }
    }

    pub fn receive(&mut self, mut stream: &TcpStream, plan: &Plan, timings: &mut Timings) -> Result<()> {
        match stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => bail!("the broker closed a producer's connection"),
            Ok(count) => self.filled += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let now = now_ns();
        let mut at = 0;
        while self.filled - at >= 4 {
            let length = wire::read_i32(&self.buffer, at) as usize;
            if self.filled - at - 4 < length {
                break;
            }
            let answer = &self.buffer[at + 4..at + 4 + length];
            let error_at = wire::produce_error_at(&plan.topic);
            let error = wire::read_i16(answer, error_at);
            if error != 0 {
                bail!("the broker answered a Produce with error {error}");
            }
            let Some((due, partition)) = self.in_flight.pop_front() else {
                bail!("an answer to nothing");
            };
            timings.acknowledged(partition, wire::read_i64(answer, error_at + 2), due, now);
            at += 4 + length;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}
