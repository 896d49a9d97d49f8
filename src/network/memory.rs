//! How much memory requests may take that have come in part or are being handled (`queued.max.request.bytes` is without a bound by default).

use std::fs;

/// A share of what this process may have.
const SHARE: u64 = 4;
/// Where a container's limit stands (cgroup v2, v1); "max" is none.
const CGROUP_LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// A quarter of the machine's or the container's memory, but room for two of the largest requests.
pub fn request_bytes_max(largest_request: usize) -> usize {
    let limits = CGROUP_LIMITS
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    share_of(machine_bytes(), limits, largest_request)
}

fn machine_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram.saturating_mul(u64::from(system.mem_unit.max(1)))
}

fn share_of(machine: u64, limits: impl Iterator<Item = u64>, largest_request: usize) -> usize {
    let bytes = limits.fold(machine, u64::min) / SHARE;
    usize::try_from(bytes)
        .unwrap_or(usize::MAX)
        .max(largest_request.saturating_mul(2))
}

#[cfg(test)]
mod memory_test {
    use super::*;

    #[test]
    fn share_is_a_quarter_of_the_smallest_limit_with_room_for_two_requests() {
        assert_eq!(share_of(1000, [].into_iter(), 10), 250);
        assert_eq!(share_of(1000, [400, u64::MAX].into_iter(), 10), 100);
        assert_eq!(share_of(1000, [].into_iter(), 200), 400);
    }

    #[test]
    fn machine_has_memory() {
        assert!(request_bytes_max(1) > 1024 * 1024);
    }
}
