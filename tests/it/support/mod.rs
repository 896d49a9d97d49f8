//! What every integration test needs: a node of its own and a client that speaks raw requests.

pub mod client;
pub mod node;
pub mod ports;
pub mod process;
pub mod topic;
