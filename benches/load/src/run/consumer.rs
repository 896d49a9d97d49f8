//! A consuming connection: one Fetch at a time over all partitions; its answer is looked at header by header, the records
//! between are dropped in the kernel, not copied.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use anyhow::{Result, bail};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::{Plan, Timings};
use crate::batch::BATCH_HEADER;
use crate::now_ns;
use crate::wire::{self, FetchLimits, read_i16, read_i32, read_i64};

const PARTITION_HEAD: usize = 4 + 2 + 8 + 8 + 8 + 4 + 4 + 4;
/// Below this, records are read with the headers around them.
const DROP_FROM: usize = 4096;
const BUFFER: usize = 256 * 1024;

/// The offsets at which consumers begin.
pub fn start_offsets(stream: &mut TcpStream, plan: &Plan) -> Result<Vec<i64>> {
    let mut offsets = vec![0; plan.partitions as usize];
    if plan.from_earliest {
        return Ok(offsets);
    }
    let limits = FetchLimits {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 1,
        partition_max_bytes: 1,
    };
    for (partition, offset) in offsets.iter_mut().enumerate() {
        let answer = wire::call(
            stream,
            &wire::fetch(&plan.topic, &[(partition as i32, 0)], &limits),
        )?;
        let head = &answer[wire::fetch_answer_head(&plan.topic)..];
        if read_i16(head, 4) != 0 {
            bail!(
                "partition {partition}: a Fetch answered with error {}",
                read_i16(head, 4)
            );
        }
        *offset = read_i64(head, 6);
    }
    Ok(offsets)
}

#[derive(Clone, Copy)]
enum Step {
    Length,
    Head,
    Partition {
        left: i32,
    },
    Batch {
        left: i32,
        partition: i32,
        records: usize,
    },
    Drop {
        left: i32,
        drop: usize,
    },
    AnswerEnd,
}

pub struct Consumer {
    offsets: Vec<i64>,
    high_watermarks: Vec<i64>,
    request: Vec<u8>,
    sent: usize,
    waits: bool,
    step: Step,
    /// Bytes of the answer that were not looked at yet.
    answer_left: usize,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    pub records: u64,
    pub record_bytes: u64,
    pub fetches: u64,
}

impl Consumer {
    pub fn new(plan: &Plan, starts: &[i64]) -> Consumer {
        Consumer {
            offsets: starts.to_vec(),
            high_watermarks: vec![i64::MAX; plan.partitions as usize],
            request: Vec::new(),
            sent: 0,
            waits: false,
            step: Step::Length,
            answer_left: 0,
            buffer: vec![0; BUFFER],
            at: 0,
            filled: 0,
            records: 0,
            record_bytes: 0,
            fetches: 0,
        }
    }

    /// Sends the next Fetch if none is out; whether the socket is full.
    pub fn pump(&mut self, mut stream: &TcpStream, plan: &Plan) -> Result<bool> {
        if !self.waits {
            if plan.from_earliest {
                for (offset, high_watermark) in self.offsets.iter_mut().zip(&self.high_watermarks) {
                    *offset = if *offset >= *high_watermark { 0 } else { *offset };
                }
            }
            let partitions: Vec<(i32, i64)> = (0..).zip(self.offsets.iter().copied()).collect();
            self.request = wire::fetch(&plan.topic, &partitions, &plan.fetch);
            self.sent = 0;
            self.waits = true;
            self.fetches += 1;
        }
        while self.sent < self.request.len() {
            match stream.write(&self.request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    pub fn receive(&mut self, mut stream: &TcpStream, plan: &Plan, timings: &mut Timings) -> Result<()> {
        loop {
            self.look(plan, timings)?;
            if let Step::Drop { drop, .. } = &mut self.step
                && *drop >= DROP_FROM
            {
                let count = (*drop).min(self.buffer.len());
                match rustix::net::recv(stream, &mut self.buffer[..count], RecvFlags::TRUNC) {
                    Ok((_, 0)) => bail!("the broker closed a consumer's connection"),
                    Ok((_, dropped)) => {
                        *drop -= dropped;
                        continue;
                    }
                    Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
            self.buffer.copy_within(self.at..self.filled, 0);
            self.filled -= self.at;
            self.at = 0;
            // Not far beyond the next header: what follows it is dropped without a copy.
            let end = (self.filled + DROP_FROM).min(self.buffer.len());
            match stream.read(&mut self.buffer[self.filled..end]) {
                Ok(0) => bail!("the broker closed a consumer's connection"),
                Ok(count) => self.filled += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        if self.filled - self.at < count {
            return None;
        }
        self.at += count;
        Some(&self.buffer[self.at - count..self.at])
    }

    /// Goes over what has been read as far as it goes.
    fn look(&mut self, plan: &Plan, timings: &mut Timings) -> Result<()> {
        loop {
            let step = match self.step {
                Step::Length => {
                    let Some(bytes) = self.take(4) else { return Ok(()) };
                    self.answer_left = read_i32(bytes, 0) as usize;
                    Step::Head
                }
                Step::Head => {
                    let size = wire::fetch_answer_head(&plan.topic);
                    let Some(bytes) = self.take(size) else {
                        return Ok(());
                    };
                    let (error, left) = (read_i16(bytes, 8), read_i32(bytes, size - 4));
                    if error != 0 {
                        bail!("the broker answered a Fetch with error {error}");
                    }
                    self.answer_left -= size;
                    Step::Partition { left }
                }
                Step::Partition { left: 0 } => Step::AnswerEnd,
                Step::Partition { left } => match self.look_at_partition(left)? {
                    Some(step) => step,
                    None => return Ok(()),
                },
                Step::Batch { left, records: 0, .. } => Step::Partition { left },
                Step::Batch { left, records, .. } if records < BATCH_HEADER => {
                    Step::Drop { left, drop: records }
                }
                Step::Batch {
                    left,
                    partition,
                    records,
                } => match self.look_at_batch(left, partition, records, timings)? {
                    Some(step) => step,
                    None => return Ok(()),
                },
                Step::Drop { left, drop } => {
                    let here = drop.min(self.filled - self.at);
                    self.at += here;
                    if here < drop {
                        self.step = Step::Drop {
                            left,
                            drop: drop - here,
                        };
                        return Ok(());
                    }
                    Step::Partition { left }
                }
                Step::AnswerEnd => {
                    if self.answer_left != 0 || self.at != self.filled {
                        bail!("a Fetch answer with {} bytes too many", self.answer_left);
                    }
                    self.waits = false;
                    self.step = Step::Length;
                    return Ok(());
                }
            };
            self.step = step;
        }
    }

    fn look_at_partition(&mut self, left: i32) -> Result<Option<Step>> {
        let Some(bytes) = self.take(PARTITION_HEAD) else {
            return Ok(None);
        };
        let partition = read_i32(bytes, 0);
        let error = read_i16(bytes, 4);
        let high_watermark = read_i64(bytes, 6);
        let aborted = read_i32(bytes, 30);
        let records = read_i32(bytes, 38).max(0) as usize;
        if error != 0 || aborted > 0 {
            bail!("partition {partition}: error {error}, {aborted} aborted transactions");
        }
        self.answer_left -= PARTITION_HEAD + records;
        self.high_watermarks[partition as usize] = high_watermark;
        Ok(Some(Step::Batch {
            left: left - 1,
            partition,
            records,
        }))
    }

    /// The generator's batches all have one size: the first tells how many a partition's records hold.
    fn look_at_batch(
        &mut self,
        left: i32,
        partition: i32,
        records: usize,
        timings: &mut Timings,
    ) -> Result<Option<Step>> {
        let Some(bytes) = self.take(BATCH_HEADER) else {
            return Ok(None);
        };
        let size = 12 + read_i32(bytes, 8) as usize;
        let count = i64::from(read_i32(bytes, BATCH_HEADER - 4));
        // The bare program leaves the producer's 0 there.
        let base_offset = read_i64(bytes, 0);
        // A batch cut by the limit of bytes counts nothing, and is asked for again.
        let batches = records / size;
        let offset = &mut self.offsets[partition as usize];
        if batches > 0 && base_offset != 0 && base_offset != *offset {
            bail!("partition {partition}: offset {base_offset} where {offset} was due");
        }
        let now = now_ns();
        for _ in 0..batches {
            timings.arrived(partition, *offset, now);
            *offset += count;
        }
        self.records += batches as u64 * count as u64;
        self.record_bytes += (batches * size) as u64;
        Ok(Some(Step::Drop {
            left,
            drop: records - BATCH_HEADER,
        }))
    }
}
