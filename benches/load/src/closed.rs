//! Closed loops: one thread, one epoll, many connections, each with a client that decides what it sends by what it was answered.
//!
//! A thread a connection would cost the broker's machine a switch for every request: then the switches are measured.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use rustix::event::epoll;
use rustix::time::Timespec;

use crate::now_ns;
use crate::wire;

/// What a client wants: bytes to send, to be woken, or to be through.
#[derive(Default)]
pub struct Wish {
    bytes: Vec<u8>,
    wake_at: Option<u64>,
    is_done: bool,
    all_are_done: bool,
}

impl Wish {
    pub fn send(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
    }

    pub fn wake_at(&mut self, at_ns: u64) {
        self.wake_at = Some(at_ns);
    }

    pub fn done(&mut self) {
        self.is_done = true;
    }

    /// What is measured has happened: nobody goes on.
    pub fn all_are_done(&mut self) {
        self.all_are_done = true;
    }
}

pub trait Client {
    fn start(&mut self, now: u64, wish: &mut Wish) -> Result<()>;
    /// An answer, without its length.
    fn answered(&mut self, answer: &[u8], now: u64, wish: &mut Wish) -> Result<()>;
    fn woken(&mut self, now: u64, wish: &mut Wish) -> Result<()>;
}

struct Connection<C> {
    stream: TcpStream,
    client: C,
    wish: Wish,
    sent: usize,
    waits_to_write: bool,
    buffer: Vec<u8>,
    filled: usize,
}

impl<C: Client> Connection<C> {
    /// Sends what is wished for; whether the socket is full.
    fn pump(&mut self) -> Result<bool> {
        while self.sent < self.wish.bytes.len() {
            match self.stream.write(&self.wish.bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.wish.bytes.clear();
        self.sent = 0;
        Ok(false)
    }

    fn receive(&mut self) -> Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => bail!("the broker closed a connection"),
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
            self.client.answered(answer, now, &mut self.wish)?;
            at += 4 + length;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}

pub struct Loops<C> {
    connections: Vec<Connection<C>>,
    epoll: rustix::fd::OwnedFd,
    wakes: BinaryHeap<Reverse<(u64, usize)>>,
    done: usize,
}

impl<C: Client> Loops<C> {
    pub fn new(clients: Vec<(TcpStream, C)>) -> Result<Loops<C>> {
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(clients.len());
        for (index, (stream, client)) in clients.into_iter().enumerate() {
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, stream.as_fd(), data, epoll::EventFlags::IN)?;
            connections.push(Connection {
                stream,
                client,
                wish: Wish::default(),
                sent: 0,
                waits_to_write: false,
                buffer: vec![0; 1024],
                filled: 0,
            });
        }
        Ok(Loops {
            connections,
            epoll,
            wakes: BinaryHeap::new(),
            done: 0,
        })
    }

    /// Does what a client has wished for.
    fn act(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        if let Some(at) = connection.wish.wake_at.take() {
            self.wakes.push(Reverse((at, index)));
        }
        if std::mem::take(&mut connection.wish.is_done) {
            self.done += 1;
        }
        if connection.wish.all_are_done {
            self.done = self.connections.len();
            return Ok(());
        }
        let blocked = connection.pump()?;
        if blocked != connection.waits_to_write {
            connection.waits_to_write = blocked;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, blocked);
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, connection.stream.as_fd(), data, flags)?;
        }
        Ok(())
    }

    fn wake_who_is_due(&mut self) -> Result<()> {
        while let Some(Reverse((at, index))) = self.wakes.peek().copied() {
            let now = now_ns();
            if at > now {
                break;
            }
            self.wakes.pop();
            let connection = &mut self.connections[index];
            connection.client.woken(now, &mut connection.wish)?;
            self.act(index)?;
        }
        Ok(())
    }

    /// Until every client is done; the nanoseconds that it took.
    pub fn run(&mut self, timeout_ns: u64) -> Result<u64> {
        let start = now_ns();
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            connection.client.start(start, &mut connection.wish)?;
            self.act(index)?;
        }
        let mut events = Vec::with_capacity(256);
        while self.done < self.connections.len() {
            let now = now_ns();
            if now - start > timeout_ns {
                bail!("not done after {} s", timeout_ns / 1_000_000_000);
            }
            let next = self.wakes.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let wait = next.saturating_sub(now).min(1_000_000_000);
            let wait = Timespec {
                tv_sec: (wait / 1_000_000_000) as i64,
                tv_nsec: (wait % 1_000_000_000) as i64,
            };
            events.clear();
            let space = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, space, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let index = event.data.u64() as usize;
                let flags = event.flags;
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                    self.connections[index]
                        .receive()
                        .with_context(|| format!("connection {index}"))?;
                }
                self.act(index)?;
            }
            self.wake_who_is_due()?;
        }
        Ok(now_ns() - start)
    }
}

impl<C> Loops<C> {
    pub fn clients(&self) -> impl Iterator<Item = &C> {
        self.connections.iter().map(|connection| &connection.client)
    }
}

/// What this process has used of the processors, in seconds.
pub fn cpu_seconds() -> f64 {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9
}
