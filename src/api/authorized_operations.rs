//! What a principal may do with a resource, as bits by Kafka's operation numbers (KIP-430). Without an authorizer: all there is.

const READ: u8 = 3;
const WRITE: u8 = 4;
const CREATE: u8 = 5;
const DELETE: u8 = 6;
const ALTER: u8 = 7;
const DESCRIBE: u8 = 8;
const CLUSTER_ACTION: u8 = 9;
const DESCRIBE_CONFIGS: u8 = 10;
const ALTER_CONFIGS: u8 = 11;
const IDEMPOTENT_WRITE: u8 = 12;

pub const TOPIC: i32 = bits(&[
    READ,
    WRITE,
    CREATE,
    DELETE,
    ALTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
]);
pub const GROUP: i32 = bits(&[READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]);
pub const CLUSTER: i32 = bits(&[
    CREATE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
]);

const fn bits(operations: &[u8]) -> i32 {
    let mut bits = 0;
    let mut index = 0;
    while index < operations.len() {
        bits |= 1 << operations[index];
        index += 1;
    }
    bits
}

#[cfg(test)]
mod authorized_operations_test {
    /// As Apache Kafka 4.4 answers without an authorizer.
    #[test]
    fn bits_are_those_of_apache_kafka() {
        assert_eq!((super::TOPIC, super::CLUSTER, super::GROUP), (3576, 8096, 3400));
    }
}
