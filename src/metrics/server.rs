//! `GET /metrics` and `HEAD /metrics` over HTTP/1.1, and nothing else: one request a connection, bounded in size, time and number.
//!
//! Must never hold up anything of the node's own: a page is made on a blocking thread, and a disk that hangs holds no more of
//! those than there may be pages in the making. Nor may those who ask nothing hold up who does: there is always room for another
//! connection, at the cost of the oldest that has not asked yet.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinHandle};

use super::Registry;

const REQUEST_BYTES_MAX: usize = 8 * 1024;
const CONNECTIONS_MAX: usize = 64;
/// In the making at a time.
const PAGES_MAX: usize = 4;
/// For one request from its first byte to the last of its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// After an `accept` that failed: mostly for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens on `host:port`. What is no such thing is `InvalidInput`.
pub fn bind(address: &str) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Ends when it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    accepting: JoinHandle<()>,
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl MetricsServer {
    pub fn start(listener: TcpListener, registry: Arc<Registry>, runtime: &Handle) -> io::Result<Self> {
        let _entered = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let accepting = runtime.spawn(accept(listener, registry));
        Ok(Self { accepting })
    }
}

async fn accept(listener: tokio::net::TcpListener, registry: Arc<Registry>) {
    let pages = Arc::new(Semaphore::new(PAGES_MAX));
    let mut connections = Connections::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        connections.make_room();
        let has_asked = Arc::new(AtomicBool::new(false));
        let serving = serve(stream, registry.clone(), pages.clone(), has_asked.clone());
        let task = tokio::spawn(tokio::time::timeout(PATIENCE, serving)).abort_handle();
        connections.open.push_back(Open { task, has_asked });
    }
}

struct Open {
    task: AbortHandle,
    /// The whole request is here.
    has_asked: Arc<AtomicBool>,
}

/// Oldest first; some may have ended.
#[derive(Default)]
struct Connections {
    open: VecDeque<Open>,
}

impl Connections {
    fn make_room(&mut self) {
        if self.open.len() < CONNECTIONS_MAX {
            return;
        }
        self.open.retain(|connection| !connection.task.is_finished());
        if self.open.len() < CONNECTIONS_MAX {
            return;
        }
        let silent = self
            .open
            .iter()
            .position(|connection| !connection.has_asked.load(Ordering::Relaxed));
        if let Some(oldest) = self.open.remove(silent.unwrap_or(0)) {
            oldest.task.abort();
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    registry: Arc<Registry>,
    pages: Arc<Semaphore>,
    has_asked: Arc<AtomicBool>,
) -> io::Result<()> {
    let request = read_head(&mut stream).await?;
    has_asked.store(true, Ordering::Relaxed);
    let asked = judge(&request);
    let (status, body) = match asked {
        Ok(_) => {
            let permit = pages.acquire_owned().await.map_err(io::Error::other)?;
            // The thread keeps the permit, also when nobody waits for it any more.
            let made = tokio::task::spawn_blocking(move || (registry.page(), permit)).await;
            match made {
                Ok((page, _permit)) => ("200 OK", page),
                Err(_) => ("500 Internal Server Error", String::new()),
            }
        }
        Err(status) => (status, String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if asked != Ok(Asked::HeadAlone) {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}

/// As much as there is of a request up to the empty line.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::with_capacity(512);
    while !request.windows(4).any(|four| four == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        if stream.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    Ok(request)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Page,
    /// What would be in front of the page.
    HeadAlone,
}

/// What is asked for, or the status of what is no request for the page.
pub(super) fn judge(request: &[u8]) -> Result<Asked, &'static str> {
    const BAD: &str = "400 Bad Request";
    if request.len() > REQUEST_BYTES_MAX || !request.windows(4).any(|four| four == b"\r\n\r\n") {
        return Err(BAD);
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| BAD)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next()) else {
        return Err(BAD);
    };
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        _ if !version.starts_with("HTTP/1.") || words.next().is_some() => Err(BAD),
        ("GET", "/metrics") => Ok(Asked::Page),
        ("HEAD", "/metrics") => Ok(Asked::HeadAlone),
        (_, "/metrics") => Err("405 Method Not Allowed"),
        _ => Err("404 Not Found"),
    }
}
