//! REPLICATION: partitions, high watermark, delayed produce and fetch, fetch sessions.
