//! The next frame off a socket: four bytes of size, then the request, in one buffer of just that size.
//!
//! An idle connection holds no buffer: small reads go through the stack, and what is read beyond a frame waits in `ahead`, which
//! is given up once empty. A client that sends large frames sends more of about that size: the next one is read into a buffer
//! as large as the last, which then is the frame's, so that one call takes it all; large ones are used again (`buffer_pool`).
//! Only what has arrived costs memory: a size that a client merely promises reserves no more than [`FIRST_RESERVE`].
//! [`FrameReader::next`] may be dropped at any await without losing a byte.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::buffer_pool::{BufferPool, POOLED_FROM, SLACK};
use super::connection_quota::RequestBytes;

/// One read's share of the stack; also what a large frame is copied of at most.
const SMALL_READ: usize = 4096;
/// Reserved on a promise; the rest when this much has come.
const FIRST_RESERVE: usize = 1024 * 1024;
const SIZE_PREFIX: usize = 4;

/// Why there is no next frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the size {0} of a request is negative")]
    NegativeSize(i32),
    #[error("a request of {size} bytes is larger than socket.request.max.bytes ({max})")]
    TooLarge { size: i32, max: usize },
    /// Not worth a line: clients do that.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
}

/// Memory for requests over all connections (`queued.max.request.bytes`).
#[derive(Debug, Clone)]
pub struct RequestMemory {
    total: usize,
    free: Option<Arc<Semaphore>>,
    buffers: BufferPool,
}

impl RequestMemory {
    /// Zero and less: no bound.
    pub fn new(queued_max_request_bytes: i64) -> Self {
        let total = usize::try_from(queued_max_request_bytes).unwrap_or(0);
        Self {
            total,
            free: (total > 0 && total < Semaphore::MAX_PERMITS).then(|| Arc::new(Semaphore::new(total))),
            buffers: BufferPool::default(),
        }
    }

    /// Not reserved by any request; `None`: not bounded.
    pub fn free_bytes(&self) -> Option<usize> {
        self.free.as_ref().map(|free| free.available_permits())
    }

    /// A request larger than all of it gets all of it.
    async fn reserve(&self, size: usize) -> Option<OwnedSemaphorePermit> {
        let free = self.free.as_ref()?;
        let wanted = u32::try_from(size.min(self.total)).unwrap_or(u32::MAX);
        free.clone().acquire_many_owned(wanted).await.ok()
    }
}

/// A request as it came, and its share of the memory, which is given back when the request is handled.
#[derive(Debug)]
pub struct Frame {
    pub bytes: Bytes,
    pub memory: Option<OwnedSemaphorePermit>,
}

/// A frame that has not come whole yet.
#[derive(Debug)]
struct Partial {
    size: usize,
    buffer: BytesMut,
    memory: Option<OwnedSemaphorePermit>,
}

/// Cuts bytes into frames; without sockets, so that tests and fuzzers can feed it.
#[derive(Debug)]
pub struct FrameBuffer {
    max_size: usize,
    /// What was read and belongs to no frame that has begun.
    ahead: BytesMut,
    partial: Option<Partial>,
    /// The last frame's size.
    last_size: usize,
    buffers: BufferPool,
    /// A large frame has begun: counted as a user of the buffers.
    is_user: bool,
}

impl FrameBuffer {
    pub fn new(max_size: usize) -> Self {
        Self::with_buffers(max_size, BufferPool::default())
    }

    fn with_buffers(max_size: usize, buffers: BufferPool) -> Self {
        Self {
            max_size,
            ahead: BytesMut::new(),
            partial: None,
            last_size: 0,
            buffers,
            is_user: false,
        }
    }

    /// The checked size of the next frame, if it has not begun and its size is here: [`Self::begin`] it.
    pub fn next_size(&self) -> Result<Option<usize>, FrameError> {
        let (None, Some(prefix)) = (&self.partial, self.ahead.first_chunk::<SIZE_PREFIX>()) else {
            return Ok(None);
        };
        let size = i32::from_be_bytes(*prefix);
        match usize::try_from(size) {
            Err(_) => Err(FrameError::NegativeSize(size)),
            Ok(bytes) if bytes > self.max_size => Err(FrameError::TooLarge {
                size,
                max: self.max_size,
            }),
            Ok(bytes) => Ok(Some(bytes)),
        }
    }

    /// Begins a frame of `size`, which is [`Self::next_size`]'s, with its share of the memory.
    pub fn begin(&mut self, size: usize, memory: Option<OwnedSemaphorePermit>) {
        self.ahead.advance(SIZE_PREFIX);
        self.last_size = size;
        if size >= POOLED_FROM && !self.is_user {
            self.is_user = true;
            self.buffers.join();
        }
        let here = self.ahead.len().min(size);
        let is_all = here == self.ahead.len();
        let room = self.ahead.capacity();
        // What came in a buffer of the frame's own stays there, unless it would keep much more from being freed.
        let has_come = here > SMALL_READ && here >= room / 2;
        let has_room = is_all && room >= size.min(FIRST_RESERVE) && size >= room / 2;
        let buffer = if is_all && (has_come || has_room) {
            std::mem::take(&mut self.ahead)
        } else if has_come {
            self.ahead.split_to(here)
        } else {
            let mut buffer = self.buffers.take(size.min(FIRST_RESERVE - SLACK));
            buffer.extend_from_slice(&self.ahead[..here]);
            self.ahead.advance(here);
            buffer
        };
        if self.ahead.is_empty() {
            self.give_up_ahead();
        }
        self.partial = Some(Partial { size, buffer, memory });
    }

    fn give_up_ahead(&mut self) {
        self.buffers.give_back(std::mem::take(&mut self.ahead));
    }

    /// The frame that is whole, once.
    pub fn finished(&mut self) -> Option<Frame> {
        let is_whole = |partial: &mut Partial| partial.buffer.len() == partial.size;
        let partial = self.partial.take_if(is_whole)?;
        Some(Frame {
            bytes: self.buffers.lend(partial.buffer),
            memory: partial.memory,
        })
    }

    /// What has come of a frame that is not whole.
    fn partial_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.buffer.len())
    }

    /// Adds bytes that were read elsewhere.
    pub fn fill(&mut self, mut bytes: &[u8]) {
        if let Some(partial) = &mut self.partial {
            let (taken, rest) = bytes.split_at(bytes.len().min(partial.size - partial.buffer.len()));
            partial.buffer.extend_from_slice(taken);
            bytes = rest;
        }
        self.ahead.extend_from_slice(bytes);
    }

    /// One read of what is there: straight into the frame's buffer, or over the stack while no frame has begun.
    /// `may_expect`: a large frame may be read before its size is known.
    fn read(&mut self, stream: &TcpStream, may_expect: bool) -> io::Result<usize> {
        let Some(partial) = &mut self.partial else {
            let expected = SIZE_PREFIX + self.last_size.min(FIRST_RESERVE);
            if may_expect && expected > SMALL_READ && self.ahead.is_empty() {
                self.ahead = self.buffers.take(expected);
                let mut limited = BufMut::limit(&mut self.ahead, expected);
                let result = stream.try_read_buf(&mut limited);
                if self.ahead.is_empty() {
                    self.give_up_ahead();
                }
                return result;
            }
            let mut small = [0; SMALL_READ];
            let count = stream.try_read(&mut small)?;
            self.ahead.extend_from_slice(&small[..count]);
            return Ok(count);
        };
        let missing = partial.size - partial.buffer.len();
        if partial.buffer.len() == partial.buffer.capacity() {
            partial.buffer.reserve(missing);
        }
        // The allocator may have given more than was asked for: what follows the frame must stay in the socket.
        let mut limited = BufMut::limit(&mut partial.buffer, missing);
        stream.try_read_buf(&mut limited)
    }
}

/// Reads one connection's frames.
#[derive(Debug)]
pub struct FrameReader {
    buffer: FrameBuffer,
    memory: RequestMemory,
    bytes_moved: Arc<AtomicU64>,
}

impl FrameReader {
    pub fn new(max_size: usize, memory: RequestMemory) -> Self {
        Self {
            buffer: FrameBuffer::with_buffers(max_size, memory.buffers.clone()),
            memory,
            bytes_moved: Arc::default(),
        }
    }

    /// Counts the bytes that are read; who writes to the same connection adds its own.
    pub fn bytes_moved(&self) -> Arc<AtomicU64> {
        self.bytes_moved.clone()
    }

    /// The next frame, or `None` when the peer has closed (in the middle of a frame, too). `held` is told how much of a large one
    /// is here while more of it is waited for. Cancel-safe.
    pub async fn next(
        &mut self,
        stream: &TcpStream,
        held: &mut RequestBytes,
    ) -> Result<Option<Frame>, FrameError> {
        loop {
            if let Some(size) = self.buffer.next_size()? {
                let memory = self.memory.reserve(size).await;
                self.buffer.begin(size, memory);
            }
            if let Some(frame) = self.buffer.finished() {
                return Ok(Some(frame));
            }
            // Before the wait, which may be a long one.
            self.count_partial(held);
            stream.readable().await?;
            if self.read(stream)? == Some(0) {
                return Ok(None);
            }
        }
    }

    fn count_partial(&self, held: &mut RequestBytes) {
        let partial_bytes = self.buffer.partial_bytes();
        if partial_bytes >= RequestBytes::LARGE {
            held.came(partial_bytes);
        }
    }

    /// The next frame if all of it is here, and nothing has to be waited for to take it; else `held` is told what is. An end or an
    /// error is left for [`Self::next`] to meet.
    pub fn next_if_here(&mut self, stream: &TcpStream, held: &mut RequestBytes) -> Option<Frame> {
        let frame = self.take_if_here(stream);
        if frame.is_none() {
            self.count_partial(held);
        }
        frame
    }

    fn take_if_here(&mut self, stream: &TcpStream) -> Option<Frame> {
        if self.memory.free.is_some() {
            return None;
        }
        loop {
            // A size that cannot be is `next`'s to tell, after the answers that wait have left.
            let Ok(size) = self.buffer.next_size() else {
                return None;
            };
            if let Some(size) = size {
                self.buffer.begin(size, None);
            }
            if let Some(frame) = self.buffer.finished() {
                return Some(frame);
            }
            match self.read(stream) {
                Ok(Some(1..)) => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// One read; `None`: nothing is there.
    fn read(&mut self, stream: &TcpStream) -> Result<Option<usize>, FrameError> {
        match self.buffer.read(stream, self.memory.free.is_none()) {
            Ok(count) => {
                self.bytes_moved.fetch_add(count as u64, Ordering::Relaxed);
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for FrameBuffer {
    fn drop(&mut self) {
        if self.is_user {
            self.buffers.leave();
        }
    }
}

#[cfg(test)]
#[path = "frame_test.rs"]
mod frame_test;
