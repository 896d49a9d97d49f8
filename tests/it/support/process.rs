//! What the system knows of a process.

use std::fs;

fn status(process: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    value.split_whitespace().next().unwrap().parse().unwrap()
}

pub fn resident_kib(process: u32) -> u64 {
    status(process, "VmRSS:")
}

/// The most that it ever was.
pub fn resident_peak_kib(process: u32) -> u64 {
    status(process, "VmHWM:")
}

pub fn threads(process: u32) -> u64 {
    status(process, "Threads:")
}

/// How many are open.
pub fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// `None`: unlimited.
pub fn soft_limit_of_descriptors(process: u32) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let values = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .unwrap();
    values.split_whitespace().next().unwrap().parse().ok()
}
