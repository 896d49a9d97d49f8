//! What clients of a node saw, and whether Kafka may have answered so.
//!
//! ```text
//! main        the command line
//! live/       runs real clients (librdkafka) against a node that is killed again and again; records what they see
//! history     the record: operations with their times and outcomes; a file format, so that a history can be judged again
//! checker/*   the judge: a history in, anomalies out
//! ```
//! `*` = pure: no I/O, clock, threads or randomness.

pub mod checker;
pub mod history;
#[cfg(feature = "live")]
pub mod live;
