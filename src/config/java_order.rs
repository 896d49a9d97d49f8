//! The order in which a `java.util.HashMap` or `HashSet` of strings iterates: Kafka's answers show it where they list
//! several names, or report the first of several that it refuses. Pure.

/// Sorts entries of equal bucket in the order given, as insertion does.
pub fn sort_as_java_hash_map<T>(entries: &mut [T], name: impl Fn(&T) -> &str) {
    // A table is grown when it is three quarters full.
    let buckets = entries
        .len()
        .saturating_mul(4)
        .div_ceil(3)
        .next_power_of_two()
        .max(16);
    let bucket = |name: &str| {
        let hash = java_hash(name);
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    };
    entries.sort_by_key(|entry| bucket(name(entry)));
}

/// `String.hashCode`.
fn java_hash(text: &str) -> u32 {
    text.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(u32::from(unit))
    })
}

#[cfg(test)]
mod java_order_test {
    use super::*;

    /// What Java 17 iterates.
    #[test]
    fn names_are_in_the_order_of_a_java_map() {
        let mut names = [
            "transaction.version",
            "eligible.leader.replicas.version",
            "metadata.version",
            "group.version",
            "share.version",
            "kraft.version",
            "streams.version",
        ];
        sort_as_java_hash_map(&mut names, |name| name);
        let expected = [
            "group.version",
            "kraft.version",
            "metadata.version",
            "share.version",
            "streams.version",
            "transaction.version",
            "eligible.leader.replicas.version",
        ];
        assert_eq!(names, expected);
        let mut names = ["log.dirs", "process.roles"];
        sort_as_java_hash_map(&mut names, |name| name);
        assert_eq!(names, ["process.roles", "log.dirs"]);
    }
}
