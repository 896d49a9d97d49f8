//! STATE ON A PARTITION: the group coordinator (later: transaction, share) over one runtime.

pub mod partition_for;
