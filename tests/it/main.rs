//! Integration tests: they start the real binary and speak only the wire to it; `tidy` reads the source.

mod bad_input;
mod restart;
mod support;
mod tidy;
