use super::*;

/// What `new String(bytes, UTF_8)` of OpenJDK 17 gave.
#[test]
fn bytes_that_are_not_utf_8_read_as_java_reads_them() {
    let cases: &[(&[u8], &str)] = &[
        (b"", ""),
        (b"plain \xc3\xa9 \xf0\x9f\x98\x80", "plain \u{e9} \u{1f600}"),
        (b"\xff", "\u{fffd}"),
        (b"\xc3", "\u{fffd}"),
        (b"\xc3(", "\u{fffd}("),
        (b"\xc0\x80", "\u{fffd}\u{fffd}"),
        (b"\xe2\x82", "\u{fffd}"),
        (b"\xe2\x82A", "\u{fffd}A"),
        (b"\xe0\x80\x80", "\u{fffd}\u{fffd}\u{fffd}"),
        (b"\xf0\x90\x80", "\u{fffd}"),
        (b"\xf0\x90A\x80", "\u{fffd}A\u{fffd}"),
        (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
        (b"\xe1\x80\xc3\xa9", "\u{fffd}\u{e9}"),
        (b"A\xffB\xc3\xa9C", "A\u{fffd}B\u{e9}C"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(&decode(bytes), expected, "{bytes:x?}");
    }
}

/// Rust alone would take each of their bytes for itself.
#[test]
fn surrogate_is_one_wrong_character_whole_or_cut() {
    let cases: &[(&[u8], &str)] = &[
        (b"\xed\xa0\x80", "\u{fffd}"),
        (b"\xed\xbf\xbf", "\u{fffd}"),
        (b"\xed\xa0\x80\xed\xb0\x80", "\u{fffd}\u{fffd}"),
        (b"\xed\xa0", "\u{fffd}"),
        (b"\xed\xa0A", "\u{fffd}A"),
        (b"\xedA", "\u{fffd}A"),
        (b"\xed\xa0\xf0\x9f\x98\x80", "\u{fffd}\u{1f600}"),
        (b"\xed\x9f\xbf", "\u{d7ff}"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(&decode(bytes), expected, "{bytes:x?}");
    }
}
