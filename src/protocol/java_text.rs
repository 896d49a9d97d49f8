//! Bytes that should be UTF-8, read as Java reads them (`new String(bytes, UTF_8)`): what is wrong becomes U+FFFD.
//!
//! One for each maximal part of a character, as everywhere; but a surrogate, which other encoders write as three bytes, is a
//! whole character to Java and three wrong bytes to Rust.

const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Never fails.
pub fn decode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut left = bytes;
    while !left.is_empty() {
        let (valid, wrong) = match std::str::from_utf8(left) {
            Ok(valid) => (valid, 0),
            Err(error) => {
                let (valid, rest) = left.split_at(error.valid_up_to());
                let wrong = surrogate_length(rest).or(error.error_len()).unwrap_or(rest.len());
                // Valid by what the error says.
                (std::str::from_utf8(valid).unwrap_or_default(), wrong)
            }
        };
        text.push_str(valid);
        if wrong > 0 {
            text.push(REPLACEMENT);
        }
        left = &left[valid.len() + wrong..];
    }
    text
}

/// How many bytes of a surrogate `bytes` begins with, if it begins with one.
fn surrogate_length(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => Some(3),
        [0xed, 0xa0..=0xbf, ..] => Some(2),
        _ => None,
    }
}

#[cfg(test)]
#[path = "java_text_test.rs"]
mod java_text_test;
