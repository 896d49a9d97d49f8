//! What a topic may be called (`Topic.validate`).
//!
//! Pure.

/// A name longer than this would not fit a directory's name with its suffixes.
const MAX_NAME_LENGTH: usize = 249;

/// Topics that Kafka keeps for itself and that clients see as internal.
pub const INTERNAL_TOPICS: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// `Err` is Kafka's message, for INVALID_TOPIC_EXCEPTION.
pub fn validate(name: &str) -> Result<(), String> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let reason = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if java_length(name) > MAX_NAME_LENGTH {
        format!("the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}")
    } else if !name.bytes().all(is_legal) {
        format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
    } else {
        return Ok(());
    };
    Err(format!("Topic name is invalid: {reason}"))
}

/// Java counts UTF-16 units.
fn java_length(text: &str) -> usize {
    text.encode_utf16().count()
}
