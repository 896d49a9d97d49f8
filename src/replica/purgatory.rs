//! Delayed produce and fetch: an event and a deadline, no polling, no thread.
