//! kavka: an Apache Kafka cluster without the JVM.
//!
//! Modules in the order a request visits them; each imports only those below it:
//!
//! ```text
//! main -> cli -> server     wiring and life cycle
//! network                   sockets: framing, ordering, sendfile
//! api                       router and one file a request
//! -------------------------------------------------------------
//! coordinator  replica  controller  metadata  raft
//! -------------------------------------------------------------
//! log  client  record  protocol  io
//! config  security  telemetry  metrics  timeline     (used across)
//! ```

pub mod cli;
pub mod server;

pub mod network;

pub mod api;

pub mod controller;
pub mod coordinator;
pub mod metadata;
pub mod raft;
pub mod replica;

pub mod io;
pub mod log;
pub mod protocol;
pub mod record;

pub mod config;
pub mod metrics;
pub mod telemetry;
pub mod timeline;
