//! Turns raft's commits into images and hands them to the publishers.
