//! BATCHES: record batches of magic 2 (and 0/1, read only), compression, control records. Pure.
