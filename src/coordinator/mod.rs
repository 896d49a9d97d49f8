//! STATE ON A PARTITION: the group and the transaction coordinator (later: share) over one runtime.
//!
//! ```text
//! partition_for   which partition, and so which broker, keeps a key; topic_partitions: of how many
//! runtime/        one task a partition: loads, appends, waits for the high watermark, keeps timers
//! group/          what a group is and who is in it; committed offsets
//! transaction/    which transaction a transactional id has open, and how it ends
//! ```

pub mod group;
pub mod partition_for;
pub mod runtime;
pub mod topic_partitions;
pub mod transaction;
