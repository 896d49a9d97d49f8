//! Which partition of a coordinator's topic a key belongs to: Java's `String.hashCode`, as every client and broker has it.
//!
//! Pure.

/// `Utils.abs(key.hashCode()) % partition_count`.
pub fn partition_for(key: &str, partition_count: i32) -> i32 {
    // i32::MIN has no absolute value; Kafka takes 0.
    java_hash_code(key).checked_abs().unwrap_or(0) % partition_count.max(1)
}

/// Over UTF-16 units.
pub fn java_hash_code(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

#[cfg(test)]
mod partition_for_test {
    use super::*;

    #[test]
    fn hash_is_that_of_java() {
        assert_eq!(java_hash_code(""), 0);
        assert_eq!(java_hash_code("hello"), 99_162_322);
        assert_eq!(java_hash_code("polygenelubricants"), i32::MIN);
        assert_eq!(java_hash_code("é😀"), 0xe9 * 31 * 31 + 0xd83d * 31 + 0xde00);
    }

    #[test]
    fn key_whose_hash_has_no_absolute_value_goes_to_partition_0() {
        assert_eq!(partition_for("polygenelubricants", 50), 0);
        assert_eq!(partition_for("hello", 50), 22);
    }
}
