//! METADATA READS: the image of the cluster, deltas, the loader and its publishers.
