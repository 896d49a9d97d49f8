use super::*;

fn pairs(text: &str) -> Vec<(String, String)> {
    parse(text).unwrap().into_iter().collect()
}

fn one(key: &str, value: &str) -> Vec<(String, String)> {
    vec![(key.to_owned(), value.to_owned())]
}

#[test]
fn separators_of_all_kinds_split_key_and_value() {
    for text in [
        "a=b", "a:b", "a b", "a = b", "a : b", "  a\tb", "a  =  b", "a=b\r\n", "\ta=b\n",
    ] {
        assert_eq!(pairs(text), one("a", "b"), "{text:?}");
    }
    assert_eq!(pairs("a==b"), one("a", "=b"));
    assert_eq!(pairs("a"), one("a", ""));
    assert_eq!(pairs("a\\ b\\=c = d"), one("a b=c", "d"));
    assert_eq!(
        pairs("listeners=PLAINTEXT://:9092"),
        one("listeners", "PLAINTEXT://:9092")
    );
}

#[test]
fn comments_and_blank_lines_skipped() {
    assert_eq!(
        pairs("# x=1\n! y=2\n\n   \n  # z\na=b # not a comment"),
        one("a", "b # not a comment")
    );
}

#[test]
fn continued_lines_joined_without_leading_space() {
    assert_eq!(pairs("a=b,\\\n   c,\\\r\n\td"), one("a", "b,c,d"));
    assert_eq!(
        pairs("a=b\\\n# c"),
        one("a", "b# c"),
        "a continuation is no comment"
    );
    assert_eq!(
        pairs("a=b\\\\\nc=d").len(),
        2,
        "an escaped backslash continues nothing"
    );
    assert_eq!(pairs("a=b\\"), one("a", "b"));
}

#[test]
fn escapes_decoded() {
    assert_eq!(pairs("a=\\t\\n\\u0041\\q\\\\"), one("a", "\t\nAq\\"));
    assert_eq!(pairs("a=\\uD83D\\uDE00"), one("a", "\u{1F600}"));
    assert_eq!(pairs("a=žluť"), one("a", "žluť"));
    assert_eq!(
        parse("\nb=\\u00g1").unwrap_err(),
        (2, "Malformed \\uxxxx encoding.".to_owned())
    );
}

#[test]
fn key_given_twice_last_one_wins() {
    assert_eq!(pairs("a=1\na=2"), one("a", "2"));
}

#[test]
fn formatted_line_parses_back() {
    for (key, value) in [("a b", " c=d:e"), ("x", "tab\tand\\ slash"), ("y", "")] {
        assert_eq!(pairs(&format_line(key, value)), one(key, value));
    }
}
