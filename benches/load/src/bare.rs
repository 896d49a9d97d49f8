//! The limit: what moving the same bytes costs when nothing is checked, kept or decided.
//!
//! Produce: the request is read into one buffer and its batch written to the partition's file. Fetch: the next bytes of
//! the files leave by sendfile behind ready-made headers. One thread a connection. Every batch of a topic must have the
//! same size and record count, which is how a fetch offset becomes a position.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::net::SendFlags;

use crate::Arguments;
use crate::batch::BATCH_HEADER;
use crate::wire::{self, read_i16, read_i32, read_i64};

const PARTITIONS_MAX: usize = 1024;
const FETCH_PARTITION: usize = 28;

struct Partition {
    file: File,
    bytes: AtomicU64,
    batch_bytes: AtomicU64,
    batch_records: AtomicU64,
}

struct Store {
    directory: PathBuf,
    partitions: Vec<OnceLock<Partition>>,
    /// Wakes fetches that found nothing.
    waiting: Mutex<usize>,
    produced: Condvar,
}

impl Store {
    fn partition(&self, index: i32) -> Result<&Partition> {
        let cell = self.partitions.get(index as usize).context("no such partition")?;
        if cell.get().is_none() {
            let path = self.directory.join(format!("{index}.log"));
            let file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .open(path)?;
            let _ = cell.set(Partition {
                file,
                bytes: AtomicU64::new(0),
                batch_bytes: AtomicU64::new(1),
                batch_records: AtomicU64::new(1),
            });
        }
        cell.get().context("just set")
    }
}

pub fn serve(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let directory: PathBuf = arguments.require("directory")?;
    arguments.finish()?;
    let store = Arc::new(Store {
        directory,
        partitions: (0..PARTITIONS_MAX).map(|_| OnceLock::new()).collect(),
        waiting: Mutex::new(0),
        produced: Condvar::new(),
    });
    for stream in TcpListener::bind(address)?.incoming() {
        let store = Arc::clone(&store);
        let stream = stream?;
        stream.set_nodelay(true)?;
        std::thread::spawn(move || {
            if let Err(error) = connection(stream, &store) {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

fn connection(mut stream: TcpStream, store: &Store) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let mut length = [0; 4];
        if stream.read(&mut length[..1])? == 0 {
            return Ok(());
        }
        stream.read_exact(&mut length[1..])?;
        let length = i32::from_be_bytes(length) as usize;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        stream.read_exact(&mut buffer[..length])?;
        let frame = &buffer[..length];
        match read_i16(frame, 0) {
            wire::PRODUCE => produce(&mut stream, store, frame)?,
            wire::FETCH => fetch(&mut stream, store, frame)?,
            other => bail!("no api key {other} here"),
        }
    }
}

/// Where the body begins: behind api key, version, correlation id and client id.
fn body_at(frame: &[u8]) -> usize {
    10 + read_i16(frame, 8).max(0) as usize
}

fn produce(stream: &mut TcpStream, store: &Store, frame: &[u8]) -> Result<()> {
    let body = body_at(frame);
    let acks = read_i16(frame, body + 2);
    let name_at = body + 12;
    let name_length = read_i16(frame, name_at) as usize;
    let batch_at = name_at + 2 + name_length + 12;
    let batch = &frame[batch_at..];
    let partition = store.partition(read_i32(frame, batch_at - 8))?;
    (&partition.file).write_all(batch)?;
    let records = read_i32(batch, BATCH_HEADER - 4) as u64;
    partition.batch_bytes.store(batch.len() as u64, Ordering::Relaxed);
    partition.batch_records.store(records, Ordering::Relaxed);
    let before = partition.bytes.fetch_add(batch.len() as u64, Ordering::AcqRel);
    if *store.waiting.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
        store.produced.notify_all();
    }
    if acks == 0 {
        return Ok(());
    }
    let base_offset = before / batch.len() as u64 * records;
    let mut answer = vec![0; 4];
    answer.extend_from_slice(&frame[4..8]); // correlation id
    answer.extend_from_slice(&1i32.to_be_bytes());
    answer.extend_from_slice(&frame[name_at..name_at + 2 + name_length]);
    answer.extend_from_slice(&1i32.to_be_bytes());
    answer.extend_from_slice(&frame[batch_at - 8..batch_at - 4]); // partition
    answer.extend_from_slice(&0i16.to_be_bytes());
    answer.extend_from_slice(&base_offset.to_be_bytes());
    answer.extend_from_slice(&[0xff; 8]); // log append time
    answer.extend_from_slice(&[0; 8 + 4]); // log start offset, record errors
    answer.extend_from_slice(&[0xff; 2]); // no message
    answer.extend_from_slice(&[0; 4]); // throttle
    let length = answer.len() as i32 - 4;
    answer[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&answer)?;
    Ok(())
}

/// What of a partition goes into an answer: position and length in its file.
struct Part<'a> {
    partition: &'a Partition,
    position: u64,
    count: usize,
    head: [u8; 42],
}

fn part<'a>(store: &'a Store, asked: &[u8]) -> Result<Part<'a>> {
    let partition = store.partition(read_i32(asked, 0))?;
    let offset = read_i64(asked, 8) as u64;
    let max_bytes = read_i32(asked, 24) as u64;
    let bytes = partition.bytes.load(Ordering::Acquire);
    let batch_bytes = partition.batch_bytes.load(Ordering::Relaxed);
    let batch_records = partition.batch_records.load(Ordering::Relaxed);
    let position = offset / batch_records * batch_bytes;
    // The bytes that a broker sends: the limit may cut the last batch.
    let count = bytes.saturating_sub(position).min(max_bytes.max(batch_bytes));
    let high_watermark = bytes / batch_bytes * batch_records;
    let mut head = [0; 42];
    head[..4].copy_from_slice(&asked[..4]);
    head[6..14].copy_from_slice(&high_watermark.to_be_bytes());
    head[14..22].copy_from_slice(&high_watermark.to_be_bytes());
    head[30..38].copy_from_slice(&[0xff; 8]); // no aborted transactions, no preferred replica
    head[38..].copy_from_slice(&(count as i32).to_be_bytes());
    Ok(Part {
        partition,
        position,
        count: count as usize,
        head,
    })
}

fn fetch(stream: &mut TcpStream, store: &Store, frame: &[u8]) -> Result<()> {
    let name_at = body_at(frame) + 29;
    let asked_at = name_at + 2 + read_i16(frame, name_at) as usize + 4;
    let asked = read_i32(frame, asked_at - 4) as usize;
    let look = || {
        (0..asked)
            .map(|index| part(store, &frame[asked_at + index * FETCH_PARTITION..]))
            .collect::<Result<Vec<Part>>>()
    };
    let mut parts = look()?;
    if parts.iter().all(|part| part.count == 0) {
        let mut waiting = store.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        // Looked at again under the lock that the producer takes after its write: nothing is slept through.
        parts = look()?;
        if parts.iter().all(|part| part.count == 0) {
            let max_wait = Duration::from_millis(read_i32(frame, body_at(frame) + 4) as u64);
            waiting = match store.produced.wait_timeout(waiting, max_wait) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
            parts = look()?;
        }
        *waiting -= 1;
    }
    let mut head = vec![0; 4];
    head.extend_from_slice(&frame[4..8]); // correlation id
    head.extend_from_slice(&[0; 10]);
    head.extend_from_slice(&1i32.to_be_bytes());
    head.extend_from_slice(&frame[name_at..asked_at]);
    let length: usize = head.len() - 4
        + parts
            .iter()
            .map(|part| part.head.len() + part.count)
            .sum::<usize>();
    head[..4].copy_from_slice(&(length as i32).to_be_bytes());
    for mut part in parts {
        head.extend_from_slice(&part.head);
        if part.count == 0 {
            continue;
        }
        rustix::net::send(&*stream, &head, SendFlags::MORE)?;
        head.clear();
        while part.count > 0 {
            let sent = rustix::fs::sendfile(
                &*stream,
                &part.partition.file,
                Some(&mut part.position),
                part.count,
            )?;
            if sent == 0 {
                bail!("the file ends early");
            }
            part.count -= sent;
        }
    }
    stream.write_all(&head)?;
    Ok(())
}
