//! One connection: frames in, answers out in the order of their requests.
//!
//! A request is handled only after the one before it, as Kafka does; but an answer may come in two stages (a produce is appended, then
//! replicated), and then the next request starts while the first waits. Answers keep their order in `pending`. Requests that
//! have arrived together (a client with several in flight) are answered together: small answers wait until what is here
//! already is handled, never for what is not.
//!
//! Must never: read ahead of what it may answer (a client that does not read its answers is not read either), hold a buffer
//! while idle, or let one connection's trouble reach another.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::connection_quota::{RequestBytes, Usage};
use super::frame::{Frame, FrameError, FrameReader};
use super::pipelining::Pipeline;
use super::sendfile::write_frame;
use super::{Handling, RequestHandler};
use crate::api::reply::{BoxFuture, EncodeError};
use crate::api::{Answer, ConnectionContext, RequestError, ResponseFrame};

/// Answers of one connection that wait for their turn; at that many no further request is read.
pub const PENDING_ANSWERS_MAX: usize = 128;

/// Bytes of requests that are handled while small answers wait for each other.
const REQUEST_BYTES_TOGETHER_MAX: usize = 512 * 1024;
/// A larger answer leaves at once.
const SMALL_ANSWER_MAX: usize = 4096;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionEnd {
    #[error("closed by the peer")]
    PeerClosed,
    #[error("idle for longer than connections.max.idle.ms")]
    Idle,
    #[error("its place or its memory was needed")]
    Evicted,
    #[error("the node shuts down")]
    Shutdown,
    #[error(transparent)]
    Frame(FrameError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A mistake of ours; the hook has printed where.
    #[error("handling a request panicked")]
    Panicked,
    #[error("writing failed: {0}")]
    Write(io::Error),
}

impl ConnectionEnd {
    /// Whether the peer sent what no client should, or there are too many of them: worth a line.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Frame(FrameError::NegativeSize(_) | FrameError::TooLarge { .. }) => true,
            Self::Request(_) | Self::Encode(_) | Self::Evicted | Self::Panicked => true,
            Self::PeerClosed | Self::Idle | Self::Shutdown | Self::Write(_) => false,
            Self::Frame(FrameError::Io(_)) => false,
        }
    }

    /// Whether only what comes last on the connection is wrong: the requests before it have their answers.
    fn leaves_earlier_answers(&self) -> bool {
        match self {
            Self::Frame(FrameError::NegativeSize(_) | FrameError::TooLarge { .. }) => true,
            Self::Request(_) | Self::Panicked | Self::PeerClosed | Self::Shutdown => true,
            // An answer that is lost must not be followed by another, and nobody reads what cannot be written.
            Self::Encode(_) | Self::Write(_) | Self::Frame(FrameError::Io(_)) => false,
            Self::Idle | Self::Evicted => false,
        }
    }
}

enum Pending {
    Ready(ResponseFrame),
    Later(BoxFuture<Result<ResponseFrame, EncodeError>>),
}

impl Pending {
    fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }

    fn is_large(&self) -> bool {
        matches!(self, Self::Ready(frame) if frame.len() > SMALL_ANSWER_MAX)
    }
}

pub struct Connection {
    pub context: Arc<ConnectionContext>,
    pub stream: TcpStream,
    pub reader: FrameReader,
    /// The reader's count, to which writes are added.
    pub bytes_moved: Arc<AtomicU64>,
    /// What the request at hand takes of the memory for large ones.
    pub request_bytes: RequestBytes,
    pub handler: Arc<dyn RequestHandler>,
    pub pipeline: Pipeline,
    /// `None`: for ever.
    pub max_idle: Option<Duration>,
    /// `None`: it is never closed for another connection.
    pub usage: Option<Arc<Usage>>,
    /// Turns true when the node shuts down.
    pub shutdown: watch::Receiver<bool>,
}

impl Connection {
    /// Serves until the connection ends; what is pending then is sent, for its requests are done: their client must not repeat them.
    pub async fn run(mut self) -> ConnectionEnd {
        let usage = self.usage.clone();
        let evicted = async {
            match &usage {
                Some(usage) => usage.evicted().await,
                None => std::future::pending().await,
            }
        };
        // Beside all that the connection may wait for, a peer that reads nothing included.
        let max_idle = self.max_idle;
        let activity = Activity::new(self.bytes_moved.clone(), usage.clone());
        let mut pending = VecDeque::new();
        tokio::select! {
            biased;
            end = self.serve_and_finish(&activity, &mut pending) => end,
            () = evicted => ConnectionEnd::Evicted,
            () = activity.idle_for(max_idle) => ConnectionEnd::Idle,
        }
    }

    async fn serve_and_finish(
        &mut self,
        activity: &Activity,
        pending: &mut VecDeque<Pending>,
    ) -> ConnectionEnd {
        let end = match self.serve(activity, pending).await {
            Ok(()) => ConnectionEnd::PeerClosed,
            Err(end) => end,
        };
        if end.leaves_earlier_answers()
            && let Err(failed) = self.finish(pending).await
        {
            tracing::debug!("the last answers of a connection were not sent: {failed}");
        }
        end
    }

    /// `Ok`: the peer has closed.
    async fn serve(
        &mut self,
        activity: &Activity,
        pending: &mut VecDeque<Pending>,
    ) -> Result<(), ConnectionEnd> {
        // It waits over all requests: no watch is touched per request.
        let mut shutdown = self.shutdown.clone();
        let mut stopped = pin!(super::turned_true(&mut shutdown));
        loop {
            let now = activity.last();
            self.handle_what_is_here(pending, now).await?;
            self.write_ready(pending, now).await?;
            let may_read = pending.len() < PENDING_ANSWERS_MAX;
            tokio::select! {
                biased;
                _ = &mut stopped => return Err(ConnectionEnd::Shutdown),
                answer = front(pending), if !pending.is_empty() => {
                    activity.touch();
                    pending.pop_front();
                    self.write(answer?).await?;
                }
                frame = self.reader.next(&self.stream, &mut self.request_bytes), if may_read => {
                    let Some(frame) = frame.map_err(ConnectionEnd::Frame)? else {
                        return Ok(());
                    };
                    activity.touch();
                    self.handle(frame, pending).await?;
                    activity.touch();
                }
            }
        }
    }

    /// Runs one request to the end of its first stage; answers before it go on being written meanwhile.
    async fn handle(&mut self, frame: Frame, pending: &mut VecDeque<Pending>) -> Result<(), ConnectionEnd> {
        let Frame { bytes, memory } = frame;
        self.request_bytes.is_whole(bytes.len());
        let handler = self.handler.clone();
        let context = self.context.clone();
        let mut handling = pin!(without_panic(handler.handle(&context, bytes)));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut handling => break answer?,
                earlier = front(pending), if !pending.is_empty() => {
                    pending.pop_front();
                    self.write(earlier?).await?;
                }
            }
        };
        drop(memory);
        self.request_bytes.is_done();
        match answer {
            Answer::Ready(frame) => pending.push_back(Pending::Ready(frame)),
            Answer::Later(later) => pending.push_back(Pending::Later(later)),
            Answer::Nothing => {}
        }
        Ok(())
    }

    /// While there are small answers to be sent, and requests that need not be waited for.
    async fn handle_what_is_here(
        &mut self,
        pending: &mut VecDeque<Pending>,
        now: Instant,
    ) -> Result<(), ConnectionEnd> {
        let together_max = self.pipeline.together_max(now);
        let mut bytes = 0;
        while bytes < REQUEST_BYTES_TOGETHER_MAX
            && pending.len() < together_max
            && pending.front().is_some_and(Pending::is_ready)
            && pending.back().is_some_and(|answer| !answer.is_large())
        {
            let Some(frame) = self.reader.next_if_here(&self.stream, &mut self.request_bytes) else {
                break;
            };
            bytes += frame.bytes.len();
            self.handle(frame, pending).await?;
        }
        Ok(())
    }

    /// Writes the answers at the front that wait for nothing any more, with one call where they are small.
    async fn write_ready(
        &mut self,
        pending: &mut VecDeque<Pending>,
        now: Instant,
    ) -> Result<(), ConnectionEnd> {
        let mut together = ResponseFrame::default();
        let mut count = 0;
        while let Some(Pending::Ready(frame)) = pending.front_mut() {
            together.parts.append(&mut frame.parts);
            pending.pop_front();
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        self.pipeline.answered(count, now);
        self.write(together).await
    }

    /// Waits for all that is pending and writes it.
    async fn finish(&mut self, pending: &mut VecDeque<Pending>) -> Result<(), ConnectionEnd> {
        while !pending.is_empty() {
            let answer = front(pending).await?;
            pending.pop_front();
            self.write(answer).await?;
        }
        Ok(())
    }

    async fn write(&mut self, frame: ResponseFrame) -> Result<(), ConnectionEnd> {
        write_frame(&self.stream, frame, &self.bytes_moved)
            .await
            .map_err(ConnectionEnd::Write)
    }
}

/// When something has last moved on a connection (`connections.max.idle.ms`). As in Kafka nothing else counts: neither a request
/// that waits nor an answer that the peer does not take keeps a connection.
struct Activity {
    began: Instant,
    /// Nanoseconds after `began`.
    last: AtomicU64,
    bytes_moved: Arc<AtomicU64>,
    usage: Option<Arc<Usage>>,
}

impl Activity {
    /// For ever, on the scale of timers.
    const FAR: Duration = Duration::from_secs(30 * 24 * 3600);
    const SOON: Duration = Duration::from_millis(10);

    fn new(bytes_moved: Arc<AtomicU64>, usage: Option<Arc<Usage>>) -> Self {
        Self {
            began: Instant::now(),
            last: AtomicU64::new(0),
            bytes_moved,
            usage,
        }
    }

    fn touch(&self) {
        let now = Instant::now();
        let nanoseconds = u64::try_from((now - self.began).as_nanos()).unwrap_or(u64::MAX);
        self.last.store(nanoseconds, Ordering::Relaxed);
        if let Some(usage) = &self.usage {
            usage.touch(now);
        }
    }

    fn last(&self) -> Instant {
        self.began + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    fn elapsed(&self) -> Duration {
        self.last().elapsed()
    }

    /// Until nothing has moved for `max`. Bytes of a frame that is not whole are seen here only, so that no clock is read for them:
    /// they count from the moment at which they are seen.
    async fn idle_for(&self, max: Option<Duration>) {
        let Some(max) = max else {
            return std::future::pending().await;
        };
        let mut seen = self.bytes_moved.load(Ordering::Relaxed);
        loop {
            let left = max.saturating_sub(self.elapsed()).clamp(Self::SOON, Self::FAR);
            sleep(left).await;
            let moved = self.bytes_moved.load(Ordering::Relaxed);
            let is_over = self.elapsed() >= max;
            if is_over && moved == seen {
                return;
            }
            if is_over {
                self.touch();
            }
            seen = moved;
        }
    }
}

/// What the handler says; a panic ends this connection alone, and not before its earlier answers are sent.
async fn without_panic(mut handling: Handling<'_>) -> Result<Answer, ConnectionEnd> {
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(context)));
        match polled {
            Ok(polled) => polled.map_err(ConnectionEnd::Request),
            Err(_) => Poll::Ready(Err(ConnectionEnd::Panicked)),
        }
    })
    .await
}

/// The answer at the front, when it is there; it stays at the front. Cancel-safe.
async fn front(pending: &mut VecDeque<Pending>) -> Result<ResponseFrame, EncodeError> {
    match pending.front_mut() {
        Some(Pending::Later(later)) => later.await,
        Some(Pending::Ready(frame)) => Ok(std::mem::take(frame)),
        None => std::future::pending().await,
    }
}
