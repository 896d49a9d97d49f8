//! STATE ON A PARTITION: the group coordinator (later: transaction, share) over one runtime.
//!
//! ```text
//! partition_for   which partition, and so which broker, keeps a key
//! runtime/        one task a partition: loads, appends, waits for the high watermark, keeps timers
//! group/          what a group is and who is in it; committed offsets
//! ```

pub mod group;
pub mod partition_for;
pub mod runtime;
