//! Integration tests: they speak only the wire.
