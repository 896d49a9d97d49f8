//! The generator that `build.rs` runs: schema text in, Rust text out. Not part of the library.

pub mod schema;
pub mod tables;
pub mod types;

/// RPCs of which the kafka-protocol crate lacks something that Kafka 4.4 has: generated here, both directions and all
/// versions, so that no message has two types. A unit test compares every other RPC's versions with the schema.
pub const GENERATED_RPCS: &[&str] = &[
    "ListOffsets",
    "OffsetCommit",
    "OffsetFetch",
    "ApiVersions",
    "InitProducerId",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeLogDirs",
    "DeleteGroups",
    "BrokerHeartbeat",
    "ShareFetch",
    "ShareAcknowledge",
    "AddRaftVoter",
    "WriteShareGroupState",
    "ReadShareGroupStateSummary",
    "StreamsGroupHeartbeat",
    "StreamsGroupDescribe",
    "DescribeShareGroupOffsets",
    "StreamsGroupTopologyDescriptionUpdate",
    "UnregisterController",
];

/// `TopicData` to `topic_data`, with the kafka-protocol crate's spelling of the odd ones.
pub fn snake(name: &str) -> String {
    let mut out = String::new();
    let chars: Vec<char> = name.chars().collect();
    for (index, &c) in chars.iter().enumerate() {
        let previous = index.checked_sub(1).map(|before| chars[before]);
        let next_is_lower = chars.get(index + 1).is_some_and(|next| next.is_lowercase());
        let starts_word = c.is_uppercase() && previous.is_some_and(|p| !p.is_uppercase() || next_is_lower)
            || c.is_ascii_digit() && previous.is_some_and(|p| p.is_lowercase());
        if starts_word && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    match out.as_str() {
        "type" => "_type".into(),
        "match" => "_match".into(),
        _ => out,
    }
}

/// Name of a static: `SHARE_FETCH_REQUEST`.
pub fn screaming(name: &str) -> String {
    snake(name).trim_start_matches('_').to_uppercase()
}
