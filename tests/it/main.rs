//! Integration tests: they start the real binary and speak only the wire to it; `tidy` reads the source.

// A test's helper that meets the unexpected should fail the test at once.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bad_input;
mod configs;
mod full_disk;
mod group_crash;
mod groups;
mod heavy_clients;
mod log_dirs;
mod many_connections;
mod metrics;
mod odd_requests;
mod odd_surroundings;
mod offsets;
mod refused_starts;
mod restart;
mod restart_topics;
mod support;
mod takeover;
mod tidy;
