//! BYTES: listeners, framing, in-order answers, sendfile, back-pressure. Knows nothing of requests but their order.
//!
//! ```text
//! socket_server     binds listeners, one accept loop each, shutdown
//!   connection      one task a connection: frame -> handler -> answers in the order of the requests
//!     frame         the next frame off the socket, into one buffer
//!       buffer_pool large buffers of requests, used again
//!     sendfile      a response onto the socket, file ranges by sendfile
//!       cold_read   brings bytes that are not in the page cache there first, on other threads
//!   connection_quota   max.connections, max.connections.per.ip, memory of requests that come slowly
//!   pipelining    how many small answers leave together
//! memory            how much that is
//! descriptors       the process's limit of open files
//! log_limiter       one line a mishap, but not a thousand a second
//! ```
//!
//! Bounds: a connection has one request in work and at most [`connection::PENDING_ANSWERS_MAX`] answers waiting for their turn; an
//! idle one holds no buffer; bytes of requests over all connections stay under `queued.max.request.bytes` and a share of the memory; a few
//! megabytes of buffers wait to be used again.
//! A frame that cannot be one, or whose handler refuses it, closes that connection and no other.

mod buffer_pool;
mod cold_read;
pub mod connection;
pub mod connection_quota;
pub mod descriptors;
pub mod frame;
pub mod log_limiter;
pub mod memory;
mod pipelining;
pub mod sendfile;
pub mod socket_server;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::api::{Answer, ConnectionContext, RequestError, Router};

pub use socket_server::{BoundListener, ConnectionLimits, NetworkConfig, SocketServer};

/// What goes wrong outside of a connection.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("cannot listen on {listener}: {source}")]
    Bind {
        /// As in the configuration: `PLAINTEXT://localhost:9092`.
        listener: String,
        source: io::Error,
    },
    #[error("max.connections.per.ip.overrides: {entry}: {reason}")]
    PerIpOverride { entry: String, reason: String },
}

/// The future of one request.
pub type Handling<'a> = Pin<Box<dyn Future<Output = Result<Answer, RequestError>> + Send + 'a>>;

/// Who answers requests; tests put their own in place of the router.
pub trait RequestHandler: Send + Sync + 'static {
    /// `frame` is a request without its size prefix. An error means: close the connection.
    fn handle<'a>(&'a self, connection: &'a Arc<ConnectionContext>, frame: Bytes) -> Handling<'a>;
}

impl RequestHandler for Router {
    fn handle<'a>(&'a self, connection: &'a Arc<ConnectionContext>, frame: Bytes) -> Handling<'a> {
        Box::pin(Router::handle(self, connection, frame))
    }
}

/// Waits for a signal (or its sender's end).
async fn turned_true(signal: &mut tokio::sync::watch::Receiver<bool>) {
    let _ = signal.wait_for(|is_true| *is_true).await;
}
