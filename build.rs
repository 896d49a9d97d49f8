//! Generates message types from `src/protocol/schemas`.
fn main() {}
